"""The judge finds every breach, and excuses only what its rules allow.

Every case takes a run without a breach and changes one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.status import Offer, Sample
from tests.load import figures
from tests.load.ledger import Breach, End, Judgement, Ledger
from tests.load.records import Delay, Execution, How, Outage, RecordFile, Request, Serving, Span, read_lines

FROM_58, FROM_90 = Offer("1.1", "1.58"), Offer("1.1", "1.90")

# A GET and a POST at 1.58 are sent at 10.0. /status shows 1.1-1.58 before, between and after.
GET = Request("get-1", "pinned", "GET", "1.58", 10.0, 10.1, 200, "1.58", *FROM_58)
POST = Request("post-1", "creating", "POST", "1.58", 10.0, 10.1, 201, "1.58", *FROM_58)
GOT = Execution("get-1", "api-1", "1.58", 10.05)
POSTED = Execution("post-1", "api-2", "1.58", 10.05)
ALWAYS = [Serving("api-1", "1.58", Span(0.0, 99.0))]


def samples(*offers: Offer) -> list[Sample]:
    """Readings at 9.0, 10.5, 12.0 and so on."""
    return [
        Sample(9.0 + 1.5 * number, 9.1 + 1.5 * number, offer, "uniform")
        for number, offer in enumerate(offers)
    ]


def judged(
    requests: Sequence[Request],
    executions: Sequence[Execution],
    *,
    offers: Sequence[Offer] = (FROM_58, FROM_58, FROM_58),
    outages: Sequence[Outage] = (),
    serving: Sequence[Serving] = ALWAYS,
    falls: Sequence[Span] = (),
    crowds: Sequence[Span] = (),
    prompt: float | None = None,
    delays: Sequence[Delay] = (),
) -> Judgement:
    return Ledger(
        requests,
        executions,
        samples(*offers),
        outages=outages,
        serving=serving,
        falls=falls,
        crowds=crowds,
        prompt=prompt,
        delays=delays,
    ).judge()


def kinds(judgement: Judgement) -> list[Breach]:
    return [finding.kind for finding in judgement.breaches]


def failed(request: Request, status: int) -> Request:
    """The same request with this status and no version in the response; 0: the response was incomplete."""
    fault = "" if status else "IncompleteReadError"
    return replace(request, status=status, served="", lowest="", highest="", fault=fault)


def test_a_run_without_a_breach() -> None:
    judgement = judged([GET, POST], [GOT, POSTED])

    assert judgement.breaches == ()
    assert judgement.ends == {"get-1": End.SERVED, "post-1": End.SERVED}


# -- lost


@pytest.mark.parametrize("status", [0, 400, 404, 406, 500, 502, 503, 504])
@pytest.mark.parametrize("request_", [GET, POST], ids=["safe", "unsafe"])
def test_a_request_that_fails_while_a_backend_could_serve_it_is_lost(request_: Request, status: int) -> None:
    judgement = judged([failed(request_, status)], [])

    assert judgement.ends == {request_.ident: End.LOST}
    assert kinds(judgement) == [Breach.LOST]
    assert request_.ident in str(judgement)


def test_a_request_with_a_malformed_response_body_is_lost() -> None:
    assert kinds(judged([replace(GET, fault="the body is incomplete")], [GOT])) == [Breach.LOST]


def test_a_success_that_no_backend_executed_is_lost() -> None:
    assert kinds(judged([GET], [])) == [Breach.LOST]


def test_an_execution_without_a_request_is_found() -> None:
    assert kinds(judged([GET], [GOT, POSTED])) == [Breach.LOST]


# -- duplicated


def test_an_unsafe_request_that_is_executed_twice_is_duplicated() -> None:
    judgement = judged([POST], [POSTED, replace(POSTED, backend="api-3")])

    assert kinds(judgement) == [Breach.DUPLICATED]
    assert "by api-2 at 1.58 and by api-3 at 1.58" in str(judgement)


def test_an_unsafe_request_in_doubt_is_executed_at_most_once() -> None:
    killed = [Outage("api-2", How.KILLED, Span(10.05, 10.3))]
    doubtful = failed(POST, 502)

    assert kinds(judged([doubtful], [POSTED, POSTED], outages=killed)) == [Breach.DUPLICATED]
    assert kinds(judged([doubtful], [POSTED], outages=killed)) == []


def test_a_safe_request_may_be_executed_twice_and_a_streamed_one_may_not() -> None:
    twice = [GOT, replace(GOT, backend="api-3")]

    assert kinds(judged([GET], twice)) == []
    assert kinds(judged([replace(GET, method="PUT", streamed=True)], twice)) == [Breach.DUPLICATED]


def test_a_refusal_by_a_backend_is_not_an_execution() -> None:
    assert kinds(judged([POST], [replace(POSTED, refused=True), POSTED])) == []
    assert kinds(judged([POST], [replace(POSTED, refused=True)])) == [Breach.LOST]


# -- desynced


def test_an_execution_at_another_version_than_in_the_response_is_desynced() -> None:
    judgement = judged([GET], [replace(GOT, version="1.1")])

    assert kinds(judgement) == [Breach.DESYNCED]
    assert "by api-1 at 1.1" in str(judgement)


@pytest.mark.parametrize("requested, served", [("1.58", "1.31"), ("latest", "1.57"), ("", "1.58")])
def test_a_served_version_other_than_the_requested_one_is_desynced(requested: str, served: str) -> None:
    """The response agrees with the execution, but not with the request."""
    judgement = judged([replace(GET, requested=requested, served=served)], [replace(GOT, version=served)])

    assert kinds(judgement) == [Breach.DESYNCED]


@pytest.mark.parametrize("requested, served", [("latest", "1.58"), ("", "1.1")])
def test_latest_and_no_version_are_served_at_the_version_that_they_mean(requested: str, served: str) -> None:
    assert (
        kinds(judged([replace(GET, requested=requested, served=served)], [replace(GOT, version=served)]))
        == []
    )


def test_a_request_is_not_timed_out_by_a_backend_that_did_not_get_it() -> None:
    hung = [Outage("api-1", How.HUNG, Span(10.0, 11.0))]
    doubtful = failed(POST, 504)

    assert judged([doubtful], [replace(POSTED, backend="api-1")], outages=hung).ends == {
        "post-1": End.TIMED_OUT
    }
    assert judged([doubtful], [POSTED], outages=hung).ends == {"post-1": End.LOST}


def test_a_request_in_doubt_is_executed_at_the_requested_version_or_not_at_all() -> None:
    hung = [Outage("api-2", How.HUNG, Span(10.0, 11.0))]
    doubtful = failed(POST, 504)

    assert kinds(judged([doubtful], [POSTED], outages=hung)) == []
    assert kinds(judged([doubtful], [replace(POSTED, version="1.1")], outages=hung)) == [Breach.DESYNCED]


def test_an_unsafe_request_with_a_503_must_not_be_executed() -> None:
    """A 503 says that no backend got the request."""
    assert kinds(judged([failed(POST, 503)], [POSTED], serving=[])) == [Breach.DESYNCED]
    assert kinds(judged([failed(POST, 503)], [], serving=[])) == []


@pytest.mark.parametrize("seen", [FROM_90, Offer("1.2", "1.58"), Offer("", "")])
def test_a_range_that_was_not_offered_is_found(seen: Offer) -> None:
    judgement = judged([replace(GET, lowest=seen.lowest, highest=seen.highest)], [GOT])

    assert Breach.WRONG_RANGE in kinds(judgement)


# -- what is allowed, and only then


def test_a_refusal_is_allowed_only_outside_the_offer() -> None:
    refused = replace(failed(GET, 406), requested="1.90", lowest="1.1", highest="1.58")

    assert judged([refused], []).ends == {"get-1": End.REFUSED}
    assert judged([refused], [], offers=[FROM_90, FROM_58, FROM_58], falls=[Span(9.0, 11.0)]).breaches == ()
    assert judged([refused], [], offers=[FROM_90] * 3).ends == {"get-1": End.LOST}
    assert kinds(judged([replace(refused, highest="1.90")], [], offers=[FROM_58, FROM_90])) == [
        Breach.WRONG_RANGE
    ]


@pytest.mark.parametrize("requested", ["", "latest"])
def test_latest_and_no_version_are_never_refused(requested: str) -> None:
    assert judged([replace(failed(GET, 406), requested=requested)], []).ends == {"get-1": End.LOST}


@pytest.mark.parametrize(
    "serving, end",
    [
        ([], End.UNAVAILABLE),
        ([("1.58", 0.0, 10.05)], End.UNAVAILABLE),
        ([("1.58", 10.05, 99.0)], End.UNAVAILABLE),
        ([("1.58", 0.0, 10.04), ("1.58", 10.06, 99.0)], End.UNAVAILABLE),
        ([("1.31", 0.0, 99.0)], End.UNAVAILABLE),
        ([("1.58", 0.0, 99.0)], End.LOST),
        ([("1.58", 0.0, 10.06), ("1.58", 10.04, 99.0)], End.LOST),
        ([("1.31", 0.0, 99.0), ("1.90", 9.0, 11.0)], End.LOST),
    ],
)
def test_a_503_is_allowed_only_with_a_moment_without_a_backend(
    serving: list[tuple[str, float, float]], end: End
) -> None:
    able = [Serving("api-1", highest, Span(since, until)) for highest, since, until in serving]

    assert judged([failed(GET, 503)], [], serving=able).ends == {"get-1": end}


@pytest.mark.parametrize(
    "request_, status, how, end",
    [
        (POST, 502, How.KILLED, End.IN_DOUBT),
        (POST, 502, How.TERMINATED, End.IN_DOUBT),
        (POST, 0, How.KILLED, End.IN_DOUBT),
        (POST, 504, How.HUNG, End.TIMED_OUT),
        (POST, 504, How.PARTITIONED, End.TIMED_OUT),
        (GET, 504, How.HUNG, End.LOST),
        (GET, 504, How.PARTITIONED, End.LOST),
        (POST, 502, How.PARTITIONED, End.LOST),
        (GET, 502, How.KILLED, End.LOST),
        (GET, 502, How.HUNG, End.LOST),
        (GET, 504, How.KILLED, End.LOST),
        (POST, 502, How.HUNG, End.LOST),
        (POST, 500, How.KILLED, End.LOST),
    ],
)
def test_an_outage_excuses_only_unavoidable_failures(
    request_: Request, status: int, how: How, end: End
) -> None:
    near = [Outage("api-1", how, Span(10.05, 10.3))]
    later = [Outage("api-1", how, Span(10.2, 10.3))]

    assert judged([failed(request_, status)], [], outages=near).ends == {request_.ident: end}
    assert judged([failed(request_, status)], [], outages=later).ends == {request_.ident: End.LOST}


def test_a_safe_request_may_fail_when_the_last_backend_of_its_version_dies() -> None:
    """It was sent, there is no response, and no other backend is left."""
    killed = [Outage("api-1", How.KILLED, Span(10.05, 10.3))]
    until_then = [Serving("api-1", "1.58", Span(0.0, 10.05))]

    assert judged([failed(GET, 502)], [GOT], outages=killed, serving=until_then).ends == {
        "get-1": End.UNAVAILABLE
    }


@pytest.mark.parametrize(
    "backend, how, end",
    [
        ("api-1", How.KILLED, End.CUT),
        ("api-1", How.HUNG, End.CUT),
        ("api-1", How.PARTITIONED, End.CUT),
        ("api-1", How.TERMINATED, End.LOST),
        ("api-2", How.KILLED, End.LOST),
    ],
)
def test_a_response_may_be_cut_only_by_the_death_of_the_backend_that_sent_it(
    backend: str, how: How, end: End
) -> None:
    outage = [Outage(backend, how, Span(10.05, 10.3))]

    assert judged([failed(GET, 0)], [GOT], outages=outage).ends == {"get-1": end}


@pytest.mark.parametrize("dripped, end", [(True, End.CUT), (False, End.LOST)])
def test_a_response_is_cut_as_well_when_only_its_beginning_reached_the_gateway(
    dripped: bool, end: End
) -> None:
    cut_off = [Outage("api-1", How.PARTITIONED, Span(10.05, 10.3))]
    request = replace(failed(GET, 504), dripped=dripped)

    assert judged([request], [GOT], outages=cut_off).ends == {"get-1": end}


@pytest.mark.parametrize("status", [0, 503])
def test_only_a_new_connection_in_a_crowd_may_be_turned_away(status: int) -> None:
    """And only if nothing was executed, and if its client had not lost an established one."""
    crowd = [Span(10.05, 11.0)]
    turned_away = failed(GET, status)

    assert judged([turned_away], [], crowds=crowd).ends == {"get-1": End.TURNED_AWAY}
    for request, executions, crowds in [
        (turned_away, [], [Span(10.2, 11.0)]),
        (turned_away, [GOT], crowd),
        (replace(turned_away, established=True), [], crowd),
        (replace(turned_away, evicted=True), [], crowd),
    ]:
        assert judged([request], executions, crowds=crowds).ends == {"get-1": End.LOST}


# -- misdirected, evicted, late


def test_a_response_to_another_request_is_misdirected() -> None:
    assert kinds(judged([replace(GET, answered="get-1")], [GOT])) == []
    assert kinds(judged([replace(GET, answered="post-1")], [GOT])) == [Breach.MISDIRECTED]


def test_an_established_connection_that_is_closed_is_found_although_the_next_one_serves() -> None:
    assert kinds(judged([replace(GET, evicted=True)], [GOT])) == [Breach.EVICTED]


@pytest.mark.parametrize(
    "ended, prompt, delays, late",
    [
        (13.1, None, [], False),
        (11.9, 2.0, [], False),
        (12.1, 2.0, [], True),
        (12.1, 2.0, [Delay(Span(9.0, 10.0), 1.0)], False),
        (12.1, 2.0, [Delay(Span(8.0, 9.9), 1.0)], True),
        (13.1, 2.0, [Delay(Span(9.0, 10.0), 1.0)], True),
        (13.1, 2.0, [Delay(Span(9.0, 10.0), 1.0), Delay(Span(12.0, 12.5), 0.5)], False),
    ],
)
def test_a_request_is_late_beyond_what_the_faults_meanwhile_may_cost(
    ended: float, prompt: float | None, delays: list[Delay], late: bool
) -> None:
    slow = replace(GET, ended=ended)

    assert kinds(judged([slow], [GOT], prompt=prompt, delays=delays)) == ([Breach.LATE] if late else [])
    assert kinds(judged([replace(slow, slow=True)], [GOT], prompt=prompt, delays=delays)) == []


def test_a_lost_request_is_not_late_as_well() -> None:
    assert kinds(judged([replace(failed(GET, 503), ended=13.1)], [], prompt=2.0)) == [Breach.LOST]


# -- the offer


def test_an_offer_that_falls_in_status_is_found() -> None:
    judgement = judged([], [], offers=[FROM_58, FROM_90, FROM_58, FROM_90])

    assert kinds(judgement) == [Breach.FELL]
    assert "/status saw 1.1-1.58 after /status saw 1.1-1.90" in str(judgement)


def test_a_minimum_that_rises_is_a_fall_as_well() -> None:
    assert kinds(judged([], [], offers=[FROM_58, Offer("1.2", "1.58")])) == [Breach.FELL]


def test_an_offer_that_falls_in_responses_is_found() -> None:
    """/status never showed the lower offer."""
    first = replace(GET, requested="latest", served="1.90", highest="1.90")
    second = replace(GET, ident="get-2", began=10.2, ended=10.3)
    executions = [replace(GOT, version="1.90"), replace(GOT, ident="get-2")]
    judgement = judged([first, second], executions, offers=[FROM_58, FROM_90, FROM_90])

    assert [(finding.kind, finding.who) for finding in judgement.breaches] == [(Breach.FELL, "get-2")]


def test_responses_that_overlap_have_no_order() -> None:
    first = replace(GET, requested="latest", served="1.90", highest="1.90")
    second = replace(GET, ident="get-2", began=10.09, ended=10.3)
    executions = [replace(GOT, version="1.90"), replace(GOT, ident="get-2")]

    assert judged([first, second], executions, offers=[FROM_58, FROM_90, FROM_90]).breaches == ()


def test_an_offer_may_fall_only_while_it_is_taken_back() -> None:
    offers = [FROM_90, FROM_90, FROM_58, FROM_58]

    assert judged([], [], offers=offers, falls=[Span(11.0, 12.05)]).breaches == ()
    assert kinds(judged([], [], offers=offers, falls=[Span(13.0, 14.0)])) == [Breach.FELL]
    assert kinds(judged([], [], offers=[*offers, FROM_90, FROM_58], falls=[Span(11.0, 12.05)])) == [
        Breach.FELL
    ]


# -- records and table


def test_a_record_is_in_the_file_at_once(tmp_path: Path) -> None:
    """Without a flush or a close: the writer may be killed at any moment."""
    path = tmp_path / "records.jsonl"
    first, second = RecordFile(path), RecordFile(path)
    first.append(GET)
    second.append(POST)

    assert list(read_lines(path, Request)) == [GET, POST]
    assert list(read_lines(tmp_path / "missing", Execution)) == []


def test_the_table_counts_each_kind_and_all() -> None:
    twice = [POSTED, replace(POSTED, backend="api-3")]
    lost = replace(failed(GET, 500), ident="get-2")
    requests = [GET, lost, POST]
    cells = {row[""]: row for row in figures.by_kind(requests, judged(requests, [GOT, *twice]))}

    assert cells["pinned"] | {"requests": "2", "served": "1", "lost": "1", "p50 ms": "100"} == cells["pinned"]
    assert cells["creating"] | {"requests": "1", "duplicated": "1"} == cells["creating"]
    assert cells["all"] | {"requests": "3", "served": "2", "lost": "1", "duplicated": "1"} == cells["all"]


def test_a_table_shows_nothing_that_is_zero_everywhere() -> None:
    heading, *lines = figures.table(figures.by_kind([GET], judged([GET], [GOT])))

    assert heading.split() == ["requests", "served", "p50", "ms", "p99", "ms", "p100", "ms"]
    assert lines[-1].split() == ["all", "1", "1", "100", "100", "100"]
