"""Answers about usage: every counted request is in a row, and every reason to doubt them is told."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.usage.record import Count, Gap, Period, RowKey, Scope, Source, UsageRecord
from gateway.core.usage.summary import BY, Question, QuestionError, answer, why_incomplete

TODAY = 20_784
"""2026-11-27."""
DAY = 86_400.0
WEEK = UsageRecord(TODAY - 7, TODAY, {}, (), (Source("a", (), (Period(0.0, (TODAY + 0.5) * DAY),)),))


def row(client: str = "nova", asked: str = "1.58", **other: Any) -> RowKey:
    """A row of a request that was served as asked, if `other` does not say otherwise."""
    fields = {
        "service": "baremetal",
        "client": client,
        "named": True,
        "requested": "exact" if asked else "none",
        "asked": asked,
        "result": "served",
        "version": asked,
        "endpoint": "api",
        "signed": False,
        "safe": True,
        "operation": "GET /v1/nodes",
        **other,
    }
    return RowKey(**fields)


def record(*rows: RowKey, **other: Any) -> UsageRecord:
    """A record of a week with one request for each of `rows`, today."""
    counts: dict[tuple[int, RowKey], Count] = {}
    for key in rows:
        one = Count(1, TODAY * DAY, TODAY * DAY)
        counts[TODAY, key] = counts[TODAY, key].plus(one) if (TODAY, key) in counts else one
    return WEEK._replace(rows=counts, **other)


def subjects(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each[found["by"]], each["requested"]) for each in found["rows"]]


def test_a_client_that_takes_whatever_is_newest_has_a_row_of_its_own() -> None:
    found = answer(
        record(
            row(asked="1.10"),
            row(asked="1.9"),
            row(asked="", requested="latest", version="1.58"),
            row(asked="", version="1.1"),
            row("curl", named=False),
        ),
        Question(service="baremetal"),
    )
    assert [
        (each["client"], each["named"], each["requested"], each["versions"]) for each in found["rows"]
    ] == [
        ("nova", True, "exact", {"1.9": 1, "1.10": 1}),
        ("nova", True, "latest", {"1.58": 1}),
        ("nova", True, "none", {"1.1": 1}),
        ("curl", False, "exact", {"1.58": 1}),
    ]
    assert found["complete"]
    assert json.loads(json.dumps(found))["rows"][0]["versions"] == {"1.9": 1, "1.10": 1}


def test_by_version_in_the_order_of_versions_and_by_operation() -> None:
    rows = record(
        row(asked="1.10", operation="GET /v1/ports"),
        row("heat", asked="1.9"),
        row(asked="1.9"),
        row(asked="", requested="malformed", version="", result="malformed"),
        row(asked="", requested="", version="", result=""),
    )
    found = answer(rows, Question(by="version"))
    assert subjects(found) == [("1.9", "exact"), ("1.10", "exact"), ("", ""), ("", "malformed")]
    assert found["rows"][0]["clients"] == {"heat": 1, "nova": 1}
    assert (found["requests"], found["refused"]) == (5, 1)
    found = answer(rows, Question(by="operation"))
    assert subjects(found)[0] == ("GET /v1/nodes", "")
    assert ("GET /v1/ports", "exact") in subjects(found)


def test_a_refused_version_is_the_one_that_was_asked_for() -> None:
    found = answer(record(row(asked="1.95", version="", result="above_max")), Question(by="version"))
    (only,) = found["rows"]
    assert (only["version"], only["requests"], only["refused"]) == ("1.95", 1, 1)


@pytest.mark.parametrize("asked, shown", [("1.1", "1.1"), ("", "1.20")])
def test_in_a_brown_out_it_is_not_the_one_to_which_a_bridge_leads(asked: str, shown: str) -> None:
    found = answer(record(row(asked=asked, version="1.20", result="brownout")), Question(by="version"))
    assert [each["version"] for each in found["rows"]] == [shown]


def test_who_stands_below_a_version() -> None:
    rows = record(
        row("exact", asked="1.9"),
        row("default", asked="", version="1.1"),
        row("newest", asked="", requested="latest", version="1.58"),
        row("refused", asked="1.0", version="", result="below_min"),
        row("scanner", asked="other", version="", result="above_max"),
        row("unknown", asked="other", version="", result="below_min"),
        row("broken", asked="", requested="malformed", version="", result="malformed"),
        row("legacy", asked="", requested="", version="", result="transparent"),
        row("renamed", asked="kilo"),
    )
    found = answer(rows, Question(service="baremetal", below="1.10"))
    assert {each["client"] for each in found["rows"]} == {
        *("exact", "default", "refused", "unknown", "legacy", "renamed")
    }
    assert answer(rows, Question(version="1.1"))["rows"][0]["client"] == "default"
    assert answer(rows, Question(client="exact"))["requests"] == 1
    assert answer(rows, Question(client="exact", version="1.1"))["rows"] == []


def test_versions_with_names_are_ordered_as_the_state_declares_them() -> None:
    state = json.dumps({"services": {"baremetal": {"scheme": ["named", "kilo", "antelope"]}}})
    source = WEEK.sources[0]._replace(state=state)
    rows = record(row(asked="antelope"), row("old", asked="kilo"), sources=(source,))
    assert subjects(answer(rows, Question(by="version"))) == [("kilo", "exact"), ("antelope", "exact")]
    found = answer(rows, Question(service="baremetal", below="antelope"))
    assert subjects(found) == [("old", "exact")]
    with pytest.raises(QuestionError, match="below"):
        answer(rows, Question(service="baremetal", below="1.10"))


def test_the_state_of_a_database_is_read_once_for_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 services it was read 1,000 times, for 8 s."""
    saved: dict[str, Any] = {f"s{number}": {"scheme": ["named", "kilo", "antelope"]} for number in range(9)}
    source = WEEK.sources[0]._replace(
        state=json.dumps({"services": {**saved, "odd": {}, "s9": {"scheme": 1}}})
    )
    rows = record(
        *(row(service=service, asked=version) for service in saved for version in ("antelope", "kilo")),
        row(service="s9", asked="1.10"),
        sources=(source,),
    )
    reads: list[str] = []
    loads = json.loads

    def counted(text: str) -> Any:
        reads.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)

    found = answer(rows, Question(by="version"))
    assert subjects(found) == [*[("kilo", "exact"), ("antelope", "exact")] * 9, ("1.10", "exact")]
    assert reads == [source.state]


@pytest.mark.parametrize(
    "question",
    [
        Question(below="1.10"),
        Question(service="baremetal", below="new"),
        Question(service="baremetal", below="9" * 5000),
        Question(since="7"),
        Question(since="0d"),
        Question(since="-7d"),
        Question(since="\u0667d"),
        Question(by="color"),
    ],
)
def test_a_question_without_a_meaning_is_refused(question: Question) -> None:
    with pytest.raises(QuestionError):
        answer(record(row()), question)


def test_a_request_that_moved_to_another_row_is_counted_once() -> None:
    moved, to = row("other", named=False), row("curl", named=False)
    first, second = Count(1, 1.0, 1.0), Count(-1, 1.0, 1.0)
    rows = WEEK._replace(rows={(TODAY - 1, moved): first, (TODAY, moved): second, (TODAY, to): first})
    found = answer(rows, Question())
    assert (subjects(found), found["requests"]) == ([("curl", "exact")], 1)


def test_a_gap_matters_to_the_questions_that_it_cannot_answer() -> None:
    gaps = (
        Gap(TODAY - 2, "baremetal", Scope.OPERATIONS, "500 operations were reached"),
        Gap(TODAY - 1, "", Scope.ALL, "a worker was killed"),
        Gap(TODAY, "", Scope.ALL, "a worker was killed"),
        Gap(TODAY, "compute", Scope.CLIENTS, "200 products were reached"),
    )
    rows = record(row(), gaps=gaps)
    killed = "2026-11-26 to 2026-11-27: a worker was killed"
    assert answer(rows, Question(service="baremetal"))["incomplete"] == (killed,)
    assert answer(rows, Question(service="baremetal", by="operation"))["incomplete"] == (
        "2026-11-25: 500 operations were reached",
        killed,
    )
    assert answer(rows, Question())["incomplete"] == (
        killed,
        "2026-11-27: compute: 200 products were reached",
    )
    assert not answer(rows, Question(service="baremetal"))["complete"]


@pytest.mark.parametrize(
    "question, complete",
    [
        (Question(), True),
        (Question(by="version"), False),
        (Question(version="1.5"), False),
        (Question(service="baremetal", below="1.5"), False),
    ],
)
def test_versions_counted_together_matter_to_questions_about_versions(
    question: Question, complete: bool
) -> None:
    gap = Gap(TODAY, "baremetal", Scope.VERSIONS, "20 texts were reached")
    assert answer(record(row(), gaps=(gap,)), question)["complete"] is complete


def test_days_that_are_not_in_a_row_are_counted() -> None:
    gaps = tuple(Gap(day, "", Scope.ALL, "the disk was full") for day in (TODAY, TODAY - 3))
    assert answer(record(gaps=gaps), Question())["incomplete"] == (
        "2 days from 2026-11-24 to 2026-11-27: the disk was full",
    )


def test_a_record_that_is_shorter_than_the_question() -> None:
    young = Source("a", (), (Period((TODAY - 1.5) * DAY, (TODAY + 0.5) * DAY),))
    stale = Source("b", ("r2",), (Period(0.0, (TODAY - 1.5) * DAY),))
    assert answer(record(sources=(young,)), Question())["complete"]
    assert answer(record(sources=(young,)), Question(since="7d"))["incomplete"] == (
        "2026-11-20 to 2026-11-25: the record begins only on the last of these days",
    )
    assert answer(record(sources=(stale, WEEK.sources[0])), Question(since="7d"))["incomplete"] == (
        "2026-11-25 to 2026-11-27: nothing is recorded of r2 (stopped, `usage` off, or an older copy)",
    )
    assert not answer(record(sources=(Source("a", (), ()),)), Question(since="7d"))["complete"]


def test_replicas_whose_databases_were_not_read() -> None:
    seen = {"r1": (TODAY - 9, TODAY), "r2": (TODAY - 9, TODAY - 6), "r0": (TODAY - 9, TODAY - 8)}
    first = WEEK.sources[0]._replace(replica_ids=("r1",), replicas=seen)
    assert answer(record(sources=(first,)), Question())["incomplete"] == (
        "2026-11-20 to 2026-11-21: the database of replica r2 was not read: `--db` adds up several",
    )
    both = (first, WEEK.sources[0]._replace(id="b", replica_ids=("r2", "r3"), replicas=seen))
    assert answer(record(sources=both), Question())["complete"]


keys = st.builds(
    row,
    client=st.sampled_from(("nova", "curl")),
    asked=st.sampled_from(("1.1", "1.58", "")),
    service=st.sampled_from(("baremetal", "compute")),
    named=st.booleans(),
    requested=st.sampled_from(("exact", "latest", "none", "malformed", "")),
    result=st.sampled_from(("served", "below_min", "unavailable", "denied", "")),
    version=st.sampled_from(("1.1", "1.58", "")),
    operation=st.sampled_from(("GET /v1/nodes", "other")),
)


@given(st.lists(keys), st.sampled_from(BY))
def test_every_request_is_in_one_row_of_every_answer(rows: list[RowKey], by: str) -> None:
    found = answer(record(*rows), Question(by=by))
    assert found["requests"] == sum(each["requests"] for each in found["rows"]) == len(rows)
    assert found["refused"] == sum(each["refused"] for each in found["rows"])
    expected = Counter(each.client for each in rows)
    clients = sum((Counter(each["clients"]) for each in found["rows"]), Counter[str]())
    assert clients == expected
    names = [(each["service"], each[by], each.get("named"), each["requested"]) for each in found["rows"]]
    assert len(set(names)) == len(names)


@given(st.lists(st.integers(TODAY - 7, TODAY), min_size=1), st.sampled_from(Scope), st.sampled_from(Scope))
def test_no_gap_that_matters_is_left_out(days: list[int], scope: Scope, asked: Scope) -> None:
    gaps = tuple(Gap(day, "", scope, "reason") for day in days)
    assert bool(why_incomplete(WEEK._replace(gaps=gaps), None, asked, of_days=False)) == (scope >= asked)
