"""What the gateway relies on from a dialect, for whatever Ironic's clients and backends may send."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.dialect import (
    Advert,
    Ask,
    AskKind,
    Bounds,
    Failure,
    Place,
    ProbeAnswer,
    ProbeFault,
    Reason,
    Refusal,
    Refused,
)
from gateway.core.message import Header, as_mapping, fold, render
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects.ironic import RESOURCE, ROOT, V1, Ironic

IRONIC = Ironic.configured(Ironic.Options())
OFFER = Bounds(VersionSet.between(Version(1, 1), Version(1, 58)))

VERSIONS = st.builds(Version, st.integers(0, 3), st.integers(0, 200))
TEXTS = (
    st.text(st.characters(max_codepoint=255), max_size=20)
    | st.from_regex(r"\A[0-9.,+_ -]{0,10}\Z")
    | st.sampled_from(
        ["1.31", "latest", "LATEST", "spam", "", "1.05", "baremetal 1.9", "1.5,1.6", "baremetal"]
    )
    | VERSIONS.map(IRONIC.scheme.format)
    | VERSIONS.map(lambda version: f"baremetal {IRONIC.scheme.format(version)}")
)
"""Header values as a strict parser lets them through: Latin-1 text."""

REQUEST_LINES = st.lists(st.tuples(st.sampled_from(sorted(IRONIC.reads)), TEXTS), max_size=5)
REPLY_LINES = st.lists(st.tuples(st.sampled_from(sorted(IRONIC.owned_reply)), TEXTS), max_size=6)
PLACES = st.sampled_from([ROOT, V1, RESOURCE])
STATUSES = st.sampled_from([100, 200, 204, 300, 401, 404, 405, 406, 409, 413, 500, 502, 503]) | st.integers(
    100, 599
)


def ask_of(lines: list[Header], place: Place = RESOURCE) -> Ask:
    return IRONIC.read_ask(place, as_mapping(lines))


@given(REQUEST_LINES, PLACES)
def test_no_request_makes_it_raise_and_an_ask_is_one_of_four_things(
    lines: list[Header], place: Place
) -> None:
    ask = ask_of(lines, place)

    assert (ask.version is not None) == (ask.kind is AskKind.EXACT)
    assert ask == ask_of(lines, place)


@given(REQUEST_LINES)
@example([("openstack-api-version", "compute 2.1"), ("x-openstack-ironic-api-version", "1.5, 1.6")])
def test_several_lines_are_one_list(lines: list[Header]) -> None:
    """V2, V3: duplicates resolve to one version, whichever way a hop before us has joined them."""
    joined = {
        name: ",".join(value for each, value in lines if each == name) for name in dict.fromkeys(dict(lines))
    }

    assert ask_of(list(joined.items())) == ask_of(lines)


@given(REQUEST_LINES, st.randoms(use_true_random=False))
def test_the_case_of_names_does_not_matter(lines: list[Header], chance: object) -> None:
    tricked = [
        ("".join(chance.choice([letter.lower(), letter.upper()]) for letter in name), value)  # type: ignore[attr-defined]  # a random.Random of hypothesis
        for name, value in lines
    ]

    assert ask_of(tricked) == ask_of(lines)


@given(VERSIONS, st.sampled_from([V1, RESOURCE]))
def test_what_is_written_for_a_backend_is_read_as_the_same_version(version: Version, place: Place) -> None:
    """The round trip, by either header alone as old and new servers read them, and by both."""
    ask = Ask(AskKind.EXACT, version, "")

    written = [(fold(name), value) for name, value in IRONIC.write_request(place, version, ask, silent=False)]

    assert ask_of(written).version == version
    assert all(ask_of([line]).version == version for line in written)
    assert len({name for name, _ in written}) == len(written)


@given(VERSIONS, PLACES, STATUSES, st.booleans())
def test_every_name_that_is_written_is_owned(
    version: Version, place: Place, status: int, silent: bool
) -> None:
    ask = Ask(AskKind.EXACT, version, "")
    served = IRONIC.read_reply(place, status, as_mapping([]))

    to_backend = IRONIC.write_request(place, version, ask, silent=silent)
    to_client = IRONIC.write_reply(place, status, served, version, OFFER, silent=silent)

    assert {fold(name) for name, _ in to_backend} <= IRONIC.owned_request
    assert {fold(name) for name, _ in to_client} <= IRONIC.owned_reply
    assert IRONIC.reads <= IRONIC.owned_request


@given(REQUEST_LINES, PLACES)
def test_a_refusal_names_the_range_or_says_that_the_text_was_no_version(
    lines: list[Header], place: Place
) -> None:
    ask = ask_of(lines)
    reason = Reason.MALFORMED if ask.version is None else Reason.ABOVE_MAX

    reply = IRONIC.refuse(Refusal(reason, ask, ask.version, OFFER), place, as_mapping(lines))

    inner = json.loads(json.loads(reply.body)["error_message"])
    assert (reply.status, inner["code"], inner["title"]) == (406, 406, "Not Acceptable")
    names = [name for name, _ in reply.headers]
    if ask.version is None:
        assert names == ["Content-Type"]
        # Never echoes what the client sent.
        assert inner["description"] == "Invalid value for X-OpenStack-Ironic-API-Version header"
    else:
        assert inner["description"].endswith(" The supported version range is: [1.1, 1.58].")
        assert len(names) == 3
        assert dict(reply.headers)["X-OpenStack-Ironic-API-Maximum-Version"] == "1.58"
    render(reply.headers)


@given(st.integers(400, 599), st.text(max_size=40), st.text(max_size=40), st.booleans())
def test_any_failure_is_ironics_json(status: int, title: str, detail: str, offered: bool) -> None:
    reply = IRONIC.fail(Failure(status, title, detail, bounds=OFFER if offered else None))

    assert reply.status == status
    assert json.loads(json.loads(reply.body)["error_message"]) == {
        "code": status,
        "title": title,
        "description": detail,
    }
    assert len(reply.headers) == (3 if offered else 1)


@given(REPLY_LINES, PLACES, STATUSES, st.none() | VERSIONS, st.booleans())
def test_no_reply_makes_it_raise_or_tells_a_client_anything_but_versions_and_the_offer(
    lines: list[Header], place: Place, status: int, settled: Version | None, silent: bool
) -> None:
    served = IRONIC.read_reply(place, status, as_mapping(lines))
    written = IRONIC.write_reply(place, status, served, settled, OFFER, silent=silent)

    told = dict(written)
    assert len(told) == len(written)
    assert told.get("X-OpenStack-Ironic-API-Minimum-Version", "1.1") == "1.1"
    assert told.get("X-OpenStack-Ironic-API-Maximum-Version", "1.58") == "1.58"
    said = told.get("X-OpenStack-Ironic-API-Version")
    assert said is None or IRONIC.scheme.parse(said) in {
        served.version,
        settled if silent else served.version,
    }
    assert served.refused is Refused.NO or (status == 406 and served.version is None)
    assert served.advert is None or served.advert.versions.lowest <= served.advert.versions.highest


@given(VERSIONS, STATUSES)
def test_a_served_version_crosses_unchanged(version: Version, status: int) -> None:
    line = ("x-openstack-ironic-api-version", IRONIC.scheme.format(version))
    served = IRONIC.read_reply(RESOURCE, status, as_mapping([line]))

    written = IRONIC.write_reply(RESOURCE, status, served, Version(1, 1), OFFER, silent=False)

    assert [(fold(name), value) for name, value in written] == [line]


@given(STATUSES, REPLY_LINES, st.binary(max_size=60) | st.just(b'{"id": "v1"}'))
def test_a_probe_ends_after_one_question(status: int, lines: list[Header], body: bytes) -> None:
    step = IRONIC.probe((ProbeAnswer(status, as_mapping(lines), body),), None)

    assert isinstance(step, Advert | ProbeFault)
    if isinstance(step, ProbeFault):
        assert step.reason in {"status", "range", "document"}
        assert step.detail
    else:
        assert step.versions
        assert not step.silent or step.versions == IRONIC.silent_serves


@given(st.text(max_size=30), st.text(max_size=10))
@example("/v1/%", "")
@example("/%ff%fe", "")
def test_every_target_is_a_place(path: str, query: str) -> None:
    assert IRONIC.place("GET", path, query) in {ROOT, V1, RESOURCE}
