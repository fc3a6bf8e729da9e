"""The announced end of versions: which responses have which headers, and how a day is written in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.decision import Forward, Refuse, decide
from gateway.core.decision.operations import OperationRule, Operations, OperationStatus, PathTemplate
from gateway.core.decision.response import rewrite_head
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import Header, RequestHead
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.core.builders import XY, explained_json, legacy, snapshot, upto, v

LINK = "https://docs.example/old"
DEPRECATED = Line(v("1.5"), date(2023, 7, 1), LINK)
SUNSET = Line(v("1.3"), date(2024, 2, 29))
LIFECYCLE = Lifecycle(DEPRECATED, SUNSET)
DEPRECATION_LINES = ["Deprecation: @1688169600", f'Link: <{LINK}>; rel="deprecation"']
SUNSET_LINE = "Sunset: Thu, 29 Feb 2024 00:00:00 GMT"

DAYS = st.dates(date(1970, 1, 1), date(2999, 12, 31))
VERSIONS = st.integers(0, 9).map(lambda minor: v(f"1.{minor}"))
LINES = st.builds(Line, VERSIONS, DAYS, st.sampled_from([None, LINK]))


def fleet(*edits: HeaderEdits, lifecycle: Lifecycle | None = LIFECYCLE) -> Snapshot:
    found = {"legacy": legacy("1.1"), "new": upto(9)}
    return snapshot(
        found, policy=Policy.REACHABLE, lifecycle=lifecycle, response_edits=edits[0] if edits else None
    )


def announced(
    version: str, *fields: Header, base: Snapshot | None = None, member: str = "new", path: str = "/x"
) -> list[str]:
    """The lines of a response about the end of its version, and of a backend's own about the same."""
    base = base or fleet()
    decision = decide(base, RequestHead("GET", path, "", (("x-version", version),)), "", {}, 0, {})
    assert isinstance(decision, Forward)
    found = base.views["toy"].members.member(member)
    assert found is not None
    sent = fields or (("x-version", version),)
    lines = rewrite_head(decision.resolution, found, 200, sent).lines.decode().split("\r\n")[:-1]
    return [line for line in lines if line.lower().startswith(("deprecation:", "sunset:", "link:"))]


# --- how a day is written ----------------------------------------------------------------------------------


@given(DAYS)
def test_both_headers_name_the_beginning_of_the_day_in_utc(day: date) -> None:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)

    assert Line(v("1.5"), day).timestamp == midnight.timestamp()
    ((_, text),) = Lifecycle(None, Line(v("1.5"), day)).headers(v("1.4"), ())
    assert parsedate_to_datetime(text) == midnight


# --- which responses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, lines",
    [
        ("1.1", [*DEPRECATION_LINES, SUNSET_LINE]),
        ("1.2", [*DEPRECATION_LINES, SUNSET_LINE]),
        ("1.3", DEPRECATION_LINES),
        ("1.4", DEPRECATION_LINES),
        ("1.5", []),
        ("1.9", []),
        ("latest", []),
    ],
)
def test_a_line_is_about_the_versions_below_it(version: str, lines: list[str]) -> None:
    assert announced(version) == lines


@given(LINES | st.none(), LINES | st.none(), VERSIONS, st.sets(st.sampled_from(["deprecation", "sunset"])))
def test_each_header_is_there_exactly_below_its_line_unless_a_backend_has_sent_it(
    deprecated: Line | None, sunset: Line | None, version: Version, taken: set[str]
) -> None:
    kinds = {"deprecation": deprecated, "sunset": sunset}
    below = {
        name: line
        for name, line in kinds.items()
        if line is not None and version < line.below and name not in taken
    }

    found = Lifecycle(deprecated, sunset).headers(version, taken)

    assert [name.lower() for name, _ in found if name != "Link"] == list(below)
    assert [value for name, value in found if name == "Link"] == [
        f'<{line.link}>; rel="{name}"' for name, line in below.items() if line.link is not None
    ]


def test_what_a_backend_sends_itself_stays_and_ours_is_not_added() -> None:
    own = ("deprecation", "@1")

    assert announced("1.1", own) == [SUNSET_LINE, "deprecation: @1"]
    assert announced("1.9", own) == ["deprecation: @1"], "about more than the version"


def test_the_version_that_the_client_is_shown_counts() -> None:
    """Not the negotiated one, if the backend has executed another."""
    assert announced("1.9", ("x-version", "1.4")) == DEPRECATION_LINES
    assert announced("1.4", ("x-version", "1.9")) == []


def test_a_legacy_member_has_executed_the_negotiated_version() -> None:
    assert announced("1.1", ("x-other", "1"), member="legacy") == [*DEPRECATION_LINES, SUNSET_LINE]


def test_where_nothing_is_negotiated_nothing_is_announced() -> None:
    assert announced("1.1", path="/doc") == []
    transparent = snapshot({"legacy": legacy("1.1")}, lifecycle=LIFECYCLE)
    assert announced("1.1", ("sunset", "x"), base=transparent, member="legacy") == ["sunset: x"]


def test_configured_header_changes_have_the_last_word() -> None:
    removed = fleet(HeaderEdits(remove=("Sunset", "Link")))
    assert announced("1.1", base=removed) == DEPRECATION_LINES[:1]
    assert announced("1.1", ("sunset", "x"), base=removed) == DEPRECATION_LINES[:1]
    assert announced("1.1", base=fleet(HeaderEdits(set=(("Deprecation", "@2"),)))) == [SUNSET_LINE]
    assert announced("1.1", base=fleet(HeaderEdits(add=(("Deprecation", "@2"),)))) == [SUNSET_LINE]


def test_the_refusal_of_an_operation_is_served_at_its_version() -> None:
    """Its version was accepted. The refusal of a version is not served at any."""
    rule = OperationRule(("GET",), PathTemplate.read("/x"), VersionSet.read_open(">=1.7", XY))
    base = snapshot({"new": upto(9)}, lifecycle=LIFECYCLE, operations=Operations.of([rule]))

    found = {}
    for version in ("1.4", "1.6", "0.1"):
        decision = decide(base, RequestHead("GET", "/x", "", (("x-version", version),)), "", {}, 0, {})
        assert isinstance(decision, Refuse)
        found[version] = [f"{name}: {value}" for name, value in decision.response.headers if name != "Vary"]

    assert found == {"1.4": DEPRECATION_LINES, "1.6": [], "0.1": []}


# --- what people see ---------------------------------------------------------------------------------------


def test_the_announcement_in_words() -> None:
    assert (
        LIFECYCLE.sentence(XY, 0.0) == "below 1.5 deprecated from 2023-07-01; below 1.3 sunset on 2024-02-29"
    )
    assert replace(LIFECYCLE, deprecated=None).sentence(XY, 0.0) == "below 1.3 sunset on 2024-02-29"


def test_explain_has_the_headers_where_the_end_is_announced() -> None:
    def announces(version: str, path: str = "/x") -> list[str]:
        shown = explained_json(fleet(), "GET", path, [("X-Version", version)])
        return [f"{name}: {value}" for name, value in shown["announces"]]

    assert announces("1.4") == DEPRECATION_LINES
    assert [announces("1.5"), announces("0.1"), announces("1.1", "/doc")] == [[], [], []]


# --- operations --------------------------------------------------------------------------------------------


TEXTS = st.sampled_from(["1.1", "1.1-1.4", ">=1.2", "<=1.6", "1.3-1.8", "next"])


@given(st.lists(TEXTS, max_size=4), VERSIONS)
def test_operations_below_a_version_are_deprecated_and_exist_as_before(
    texts: list[str], below: Version
) -> None:
    rules = [
        OperationRule(
            ("GET", "PUT"),
            PathTemplate.read("/x/{y}"),
            VersionSet() if text == "next" else VersionSet.read_open(text, XY),
        )
        for text in texts
    ]
    before = Operations.of(rules)

    after = before.deprecated_below(below)

    assert [(each.method, each.path, each.versions) for each in after.listed] == [
        (each.method, each.path, each.versions) for each in before.listed
    ]
    for operation in after.listed:
        for rule in operation.rules:
            is_below = bool(rule.versions.up_to(below.step(-1)))
            assert (rule.status is OperationStatus.DEPRECATED) is is_below
