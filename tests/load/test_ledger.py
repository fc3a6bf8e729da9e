"""The judgement notices what it is there for, and forgives what its rules say and nothing more.

Every case begins with a run in which all is well, and changes one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.load import figures as shown
from tests.load.ledger import Breach, End, Judgement, Ledger
from tests.load.records import (
    Execution,
    How,
    Journal,
    Offer,
    Outage,
    Request,
    Sample,
    Serving,
    Span,
    read_lines,
)

FROM_58, FROM_90 = Offer("1.1", "1.58"), Offer("1.1", "1.90")

# At 10.0 a GET and a POST at 1.58 are asked, while /status says 1.1-1.58 before, between and after.
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
) -> Judgement:
    ledger = Ledger(requests, executions, samples(*offers), outages=outages, serving=serving, falls=falls)
    return ledger.judge()


def kinds(judgement: Judgement) -> list[Breach]:
    return [each.kind for each in judgement.breaches]


def failed(request: Request, status: int) -> Request:
    """The same, answered with this status and no version; 0: cut off."""
    fault = "" if status else "IncompleteReadError"
    return replace(request, status=status, served="", lowest="", highest="", fault=fault)


def test_a_run_in_which_all_is_well() -> None:
    judgement = judged([GET, POST], [GOT, POSTED])

    assert judgement.breaches == ()
    assert judgement.ends == {"get-1": End.SERVED, "post-1": End.SERVED}


# -- lost


@pytest.mark.parametrize("status", [0, 400, 404, 406, 500, 502, 503, 504])
@pytest.mark.parametrize("request_", [GET, POST], ids=["safe", "unsafe"])
def test_a_request_that_fails_while_somebody_could_serve_it_is_lost(request_: Request, status: int) -> None:
    judgement = judged([failed(request_, status)], [])

    assert judgement.ends == {request_.ident: End.LOST}
    assert kinds(judgement) == [Breach.LOST]
    assert request_.ident in str(judgement)


def test_a_reply_with_a_broken_body_is_lost() -> None:
    assert kinds(judged([replace(GET, fault="the body is cut")], [GOT])) == [Breach.LOST]


def test_a_success_that_nobody_executed_is_lost() -> None:
    assert kinds(judged([GET], [])) == [Breach.LOST]


def test_an_execution_that_nobody_asked_for_is_noticed() -> None:
    assert kinds(judged([GET], [GOT, POSTED])) == [Breach.LOST]


# -- duplicated


def test_an_unsafe_request_that_is_executed_twice_is_duplicated() -> None:
    judgement = judged([POST], [POSTED, replace(POSTED, backend="api-3")])

    assert kinds(judgement) == [Breach.DUPLICATED]
    assert "by api-2 at 1.58 and by api-3 at 1.58" in str(judgement)


def test_an_unsafe_request_in_doubt_is_at_most_once_executed() -> None:
    killed = [Outage("api-2", How.KILLED, Span(10.05, 10.3))]
    doubtful = failed(POST, 502)

    assert kinds(judged([doubtful], [POSTED, POSTED], outages=killed)) == [Breach.DUPLICATED]
    assert kinds(judged([doubtful], [POSTED], outages=killed)) == []


def test_a_safe_request_may_be_executed_twice_and_one_that_streams_may_not() -> None:
    twice = [GOT, replace(GOT, backend="api-3")]

    assert kinds(judged([GET], twice)) == []
    assert kinds(judged([replace(GET, method="PUT", streamed=True)], twice)) == [Breach.DUPLICATED]


def test_what_a_backend_refused_is_no_execution() -> None:
    assert kinds(judged([POST], [replace(POSTED, refused=True), POSTED])) == []
    assert kinds(judged([POST], [replace(POSTED, refused=True)])) == [Breach.LOST]


# -- desynced


def test_an_execution_at_another_version_than_told_is_desynced() -> None:
    judgement = judged([GET], [replace(GOT, version="1.1")])

    assert kinds(judgement) == [Breach.DESYNCED]
    assert "by api-1 at 1.1" in str(judgement)


@pytest.mark.parametrize("asked, served", [("1.58", "1.31"), ("latest", "1.57"), ("", "1.58")])
def test_a_version_that_the_request_does_not_mean_is_desynced(asked: str, served: str) -> None:
    """Told and executed alike, and still not what was asked for."""
    judgement = judged([replace(GET, asked=asked, served=served)], [replace(GOT, version=served)])

    assert kinds(judgement) == [Breach.DESYNCED]


@pytest.mark.parametrize("asked, served", [("latest", "1.58"), ("", "1.1")])
def test_a_version_that_the_request_means_is_right(asked: str, served: str) -> None:
    assert kinds(judged([replace(GET, asked=asked, served=served)], [replace(GOT, version=served)])) == []


def test_what_is_in_doubt_is_executed_at_the_version_asked_for_or_not_at_all() -> None:
    hung = [Outage("api-2", How.HUNG, Span(10.0, 11.0))]
    doubtful = failed(POST, 504)

    assert kinds(judged([doubtful], [POSTED], outages=hung)) == []
    assert kinds(judged([doubtful], [replace(POSTED, version="1.1")], outages=hung)) == [Breach.DESYNCED]


def test_an_unsafe_request_that_is_said_not_to_have_happened_must_not_have() -> None:
    """503: nobody was there to take it. That it was executed is the opposite of what its client was told."""
    assert kinds(judged([failed(POST, 503)], [POSTED], serving=[])) == [Breach.DESYNCED]
    assert kinds(judged([failed(POST, 503)], [], serving=[])) == []


@pytest.mark.parametrize("told", [FROM_90, Offer("1.2", "1.58"), Offer("", "")])
def test_a_range_that_was_not_on_offer_is_noticed(told: Offer) -> None:
    judgement = judged([replace(GET, lowest=told.lowest, highest=told.highest)], [GOT])

    assert Breach.MISTOLD in kinds(judgement)


# -- what is allowed, and only then


def test_a_refusal_is_right_only_outside_the_offer() -> None:
    refused = replace(failed(GET, 406), asked="1.90", lowest="1.1", highest="1.58")

    assert judged([refused], []).ends == {"get-1": End.REFUSED}
    assert judged([refused], [], offers=[FROM_90, FROM_58, FROM_58], falls=[Span(9.0, 11.0)]).breaches == ()
    assert judged([refused], [], offers=[FROM_90] * 3).ends == {"get-1": End.LOST}
    assert kinds(judged([replace(refused, highest="1.90")], [], offers=[FROM_58, FROM_90])) == [
        Breach.MISTOLD
    ]


@pytest.mark.parametrize("asked", ["", "latest"])
def test_latest_and_silence_are_never_refused(asked: str) -> None:
    assert judged([replace(failed(GET, 406), asked=asked)], []).ends == {"get-1": End.LOST}


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
def test_unavailable_is_right_only_with_a_moment_without_anybody(
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
        (GET, 504, How.HUNG, End.LOST),
        (GET, 502, How.KILLED, End.LOST),
        (GET, 502, How.HUNG, End.LOST),
        (GET, 504, How.KILLED, End.LOST),
        (POST, 502, How.HUNG, End.LOST),
        (POST, 500, How.KILLED, End.LOST),
    ],
)
def test_an_outage_excuses_what_cannot_be_otherwise(
    request_: Request, status: int, how: How, end: End
) -> None:
    near = [Outage("api-1", how, Span(10.05, 10.3))]
    later = [Outage("api-1", how, Span(10.2, 10.3))]

    assert judged([failed(request_, status)], [], outages=near).ends == {request_.ident: end}
    assert judged([failed(request_, status)], [], outages=later).ends == {request_.ident: End.LOST}


def test_the_last_one_that_serves_a_version_may_take_a_safe_request_along() -> None:
    """Sent, unanswered, and nobody is left to send it to."""
    killed = [Outage("api-1", How.KILLED, Span(10.05, 10.3))]
    until_then = [Serving("api-1", "1.58", Span(0.0, 10.05))]

    assert judged([failed(GET, 502)], [GOT], outages=killed, serving=until_then).ends == {
        "get-1": End.UNAVAILABLE
    }


@pytest.mark.parametrize("backend, how, end", [
    ("api-1", How.KILLED, End.CUT),
    ("api-1", How.HUNG, End.CUT),
    ("api-1", How.TERMINATED, End.LOST),
    ("api-2", How.KILLED, End.LOST),
])  # fmt: skip
def test_a_safe_reply_is_cut_only_by_the_death_of_the_backend_that_sent_it(
    backend: str, how: How, end: End
) -> None:
    outage = [Outage(backend, how, Span(10.05, 10.3))]

    assert judged([failed(GET, 0)], [GOT], outages=outage).ends == {"get-1": end}


# -- the offer


def test_an_offer_that_dips_in_status_is_noticed() -> None:
    judgement = judged([], [], offers=[FROM_58, FROM_90, FROM_58, FROM_90])

    assert kinds(judgement) == [Breach.FELL]
    assert "/status was told 1.1-1.58 after /status 1.1-1.90" in str(judgement)


def test_a_minimum_that_rises_takes_versions_away_as_well() -> None:
    assert kinds(judged([], [], offers=[FROM_58, Offer("1.2", "1.58")])) == [Breach.FELL]


def test_an_offer_that_dips_before_a_client_s_eyes_is_noticed() -> None:
    """/status never showed it."""
    first = replace(GET, asked="latest", served="1.90", highest="1.90")
    second = replace(GET, ident="get-2", began=10.2, ended=10.3)
    executions = [replace(GOT, version="1.90"), replace(GOT, ident="get-2")]
    judgement = judged([first, second], executions, offers=[FROM_58, FROM_90, FROM_90])

    assert [(each.kind, each.who) for each in judgement.breaches] == [(Breach.FELL, "get-2")]


def test_replies_that_overlap_have_no_order() -> None:
    first = replace(GET, asked="latest", served="1.90", highest="1.90")
    second = replace(GET, ident="get-2", began=10.09, ended=10.3)
    executions = [replace(GOT, version="1.90"), replace(GOT, ident="get-2")]

    assert judged([first, second], executions, offers=[FROM_58, FROM_90, FROM_90]).breaches == ()


def test_what_was_taken_back_in_its_time_may_fall_and_nothing_else() -> None:
    offers = [FROM_90, FROM_90, FROM_58, FROM_58]

    assert judged([], [], offers=offers, falls=[Span(11.0, 12.05)]).breaches == ()
    assert kinds(judged([], [], offers=offers, falls=[Span(13.0, 14.0)])) == [Breach.FELL]
    assert kinds(judged([], [], offers=[*offers, FROM_90, FROM_58], falls=[Span(11.0, 12.05)])) == [
        Breach.FELL
    ]


# -- books and table


def test_what_a_journal_was_told_is_there_at_once(tmp_path: Path) -> None:
    """Nothing is flushed or closed: the one who writes may be killed at any moment."""
    book = tmp_path / "book.jsonl"
    one, other = Journal(book), Journal(book)
    one.note(GET)
    other.note(POST)

    assert list(read_lines(book, Request)) == [GET, POST]
    assert list(read_lines(tmp_path / "nobody", Execution)) == []


def test_the_table_counts_each_kind_and_all() -> None:
    twice = [POSTED, replace(POSTED, backend="api-3")]
    lost = replace(failed(GET, 500), ident="get-2")
    requests = [GET, lost, POST]
    heading, *rows = shown.table(requests, judged(requests, [GOT, *twice]))
    cells = {row.split()[0]: dict(zip(shown.HEADINGS[1:], row.split()[1:], strict=True)) for row in rows}

    assert heading.split()[:3] == ["client", "requests", "served"]
    assert (
        cells["pinned"] | {"requests": "2", "served": "1", "lost": "1", "p50 ms": "100.0"} == cells["pinned"]
    )
    assert cells["creating"] | {"requests": "1", "duplicated": "1"} == cells["creating"]
    assert cells["all"] | {"requests": "3", "served": "2", "lost": "1", "duplicated": "1"} == cells["all"]
