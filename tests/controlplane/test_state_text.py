"""The format of the state file: what was written is read back, and nothing else counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.state.text import StateTextError, format_state, parse_state
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionRange, VersionSet
from gateway.core.versions.version import CalendarDate, MajorMinor, Named, Scheme, Version, WholeNumber
from gateway.dialects.chef.dialect import Chef
from gateway.dialects.openstack.ironic import Ironic
from tests.core.builders import Toy

BACKENDS = ("api-1", "10.0.0.2:6385", "[::1]:80")
SCHEMES: tuple[Scheme, ...] = (
    MajorMinor(),
    WholeNumber(),
    CalendarDate(),
    CalendarDate(day=False),
    Named(("v1alpha1", "v1beta1", "v1", "V1")),
)


def service(scheme: Scheme, name: str = "api", backends: tuple[str, ...] = BACKENDS) -> Service:
    configured = tuple(Backend(backend, "127.0.0.1", port) for port, backend in enumerate(backends, 1))
    return Service(name, Toy(scheme=scheme), configured)


def versions_of(scheme: Scheme) -> st.SearchStrategy[Version]:
    if isinstance(scheme, Named):
        return st.integers(0, len(scheme.names) - 1).map(Version)
    if isinstance(scheme, CalendarDate):
        dates = st.dates().map(lambda day: (day.year, day.month, day.day))
        return dates.map(lambda parts: Version(*(parts if scheme.day else parts[:2])))
    parts = st.integers(0, 999_999)
    return parts.map(Version) if isinstance(scheme, WholeNumber) else st.builds(Version, parts, parts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Service, SavedState]:
    scheme = draw(st.sampled_from(SCHEMES))
    version = versions_of(scheme)
    pairs = st.tuples(version, version).filter(lambda ends: ends[0].major == ends[1].major)
    ranges = pairs.map(lambda ends: VersionRange(min(ends), max(ends)))
    max_ranges = 1 if scheme.contiguous else 4
    versions = VersionSet.of(draw(st.lists(ranges, max_size=max_ranges)))
    drained = draw(st.frozensets(st.sampled_from(BACKENDS)))
    return service(scheme), SavedState(versions, draw(st.none() | version), drained)


@given(cases())
def test_what_was_written_is_read_back(case: tuple[Service, SavedState]) -> None:
    service, saved = case
    running = Snapshot.configured([service], now=0.0, saved={"api": saved})

    assert running.saved() == {"api": saved}
    assert parse_state(format_state(running), [service]) == ({"api": saved}, ())


@given(cases())
def test_a_gateway_that_starts_with_it_offers_what_the_last_one_did(case: tuple[Service, SavedState]) -> None:
    service, saved = case
    before = Snapshot.configured([service], now=0.0, saved={"api": saved})
    after = Snapshot.configured([service], now=5.0, saved=parse_state(format_state(before), [service]).saved)

    assert after.views["api"].offer == before.views["api"].offer


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ENTRY_KEYS = ("dialect", "scheme", "versions", "pin", "drained")


def text_of(entry: object, version: object = 1, name: str = "api") -> str:
    return json.dumps({"skewgate_state": version, "services": {name: entry}})


@given(st.one_of(st.text(), ANY_JSON.map(json.dumps), ANY_JSON.map(text_of)))
def test_any_other_text_is_refused_and_never_a_crash(text: str) -> None:
    try:
        saved, _ = parse_state(text, [service(MajorMinor())])
    except StateTextError:
        return
    assert saved == {}


GOOD: dict[str, Any] = {
    "dialect": "toy",
    "scheme": ["major.minor"],
    "versions": [["1.1", "1.58"]],
    "pin": "1.31",
    "drained": ["api-1"],
}


@given(st.sampled_from(ENTRY_KEYS), ANY_JSON)
def test_one_broken_value_is_no_crash(key: str, value: object) -> None:
    try:
        saved, dropped = parse_state(text_of({**GOOD, key: value}), [service(MajorMinor())])
    except StateTextError:
        return
    assert saved or dropped


def test_the_format_is_this_one() -> None:
    """Written by hand: a change of the format needs another number, or a running fleet loses its state."""
    saved, dropped = parse_state(text_of(GOOD), [service(MajorMinor())])

    assert saved == {
        "api": SavedState(
            VersionSet.between(Version(1, 1), Version(1, 58)), Version(1, 31), frozenset({"api-1"})
        )
    }
    assert dropped == ()


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "it is not JSON"),
        (text_of(GOOD)[:-9], "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a state file of skewgate"),
        ('{"services": {}}', "it is not a state file of skewgate"),
        (text_of(GOOD, version=True), "it is not a state file of skewgate"),
        (text_of(GOOD, version=2), "its format is 2, this release reads format 1"),
        ('{"skewgate_state": 1}', "it has no `services`"),
        (text_of(None), "its entry 'api' is malformed"),
        (text_of({**GOOD, "pin": 1.31}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "versions": [["1.1"]]}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "drained": [1]}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "pin": "1.3l"}), "its entry 'api' holds what is not a version or a range"),
        (
            text_of({**GOOD, "versions": [["1.58", "1.1"]]}),
            "its entry 'api' holds what is not a version or a range",
        ),
        (
            text_of({**GOOD, "versions": [["1.1", "2.5"]]}),
            "its entry 'api' holds what is not a version or a range",
        ),
        (
            text_of({**GOOD, "versions": [["1.1", "1.5"], ["1.8", "1.9"]]}),
            "its entry 'api' has a gap in its versions",
        ),
    ],
    ids=lambda text: text[:60],
)
def test_what_is_damaged_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(StateTextError) as refused:
        parse_state(text, [service(MajorMinor())])

    assert str(refused.value) == reason


@pytest.mark.parametrize(
    "entry, services, dropped",
    [
        (GOOD, [], "api: no longer configured"),
        (GOOD, [service(MajorMinor(), name="other")], "api: no longer configured"),
        ({**GOOD, "dialect": "ironic"}, [service(MajorMinor())], "api: saved for another dialect, ironic"),
        (GOOD, [service(CalendarDate())], "api: saved for another scheme of versions, major.minor"),
        (
            {**GOOD, "scheme": ["date", True]},
            [service(CalendarDate(day=False))],
            "api: saved for another scheme of versions, date True",
        ),
    ],
)
def test_an_entry_for_what_is_configured_otherwise_does_not_count(
    entry: object, services: list[Service], dropped: str
) -> None:
    assert parse_state(text_of(entry), services) == ({}, (dropped,))


def test_a_drained_backend_that_is_gone_is_forgotten_and_the_rest_counts() -> None:
    entry = {**GOOD, "drained": ["api-9", "api-1"]}
    saved, dropped = parse_state(text_of(entry), [service(MajorMinor())])

    assert saved["api"].drained == frozenset({"api-1"})
    assert dropped == ("api/api-9: was drained, no longer configured",)


def test_several_services_each_in_its_own_versions() -> None:
    backend = Backend("api-1", "127.0.0.1", 1)
    services = [
        Service("metal", Ironic(), (backend,)),
        Service("cook", Chef.configured(Chef.Options()), (backend,)),
    ]
    saved = {
        "metal": SavedState(VersionSet.between(Version(1, 1), Version(1, 90)), Version(1, 58)),
        "cook": SavedState(VersionSet.between(Version(0), Version(2)), None, frozenset({"api-1"})),
    }
    text = format_state(Snapshot.configured(services, now=0.0, saved=saved))

    assert parse_state(text, services).saved == saved
    assert parse_state(text, services[:1]) == (
        {"metal": saved["metal"]},
        ("cook: no longer configured",),
    )


def test_nothing_known_is_saved_as_nothing() -> None:
    fresh = Snapshot.configured([service(MajorMinor())], now=0.0)

    assert parse_state(format_state(fresh), [service(MajorMinor())]).saved == {"api": SavedState(NO_VERSIONS)}
