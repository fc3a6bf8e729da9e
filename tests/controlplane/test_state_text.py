"""The format of the state file: what was written is read back, and nothing else counts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.state.text import StateTextError, format_state, parse_state
from gateway.core.agreement.attachment import LastAttached, Registered
from gateway.core.agreement.raised import Raised
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.lifecycle import Line
from gateway.core.fleet.offer_state import SavedAdvertisement, SavedState
from gateway.core.fleet.service import ALL_BACKENDS, AtLeast, Policy, Service
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


def service(
    scheme: Scheme, name: str = "api", backends: tuple[str, ...] = BACKENDS, **options: Any
) -> Service:
    configured = tuple(Backend(backend, "127.0.0.1", port) for port, backend in enumerate(backends, 1))
    return Service(name, Toy(scheme=scheme), configured, **options)


def versions_of(scheme: Scheme) -> st.SearchStrategy[Version]:
    if isinstance(scheme, Named):
        return st.integers(0, len(scheme.names) - 1).map(Version)
    if isinstance(scheme, CalendarDate):
        dates = st.dates().map(lambda day: (day.year, day.month, day.day))
        return dates.map(lambda parts: Version(*(parts if scheme.day else parts[:2])))
    parts = st.integers(0, 999_999)
    return parts.map(Version) if isinstance(scheme, WholeNumber) else st.builds(Version, parts, parts)


POLICIES: st.SearchStrategy[tuple[Policy, AtLeast | None]] = st.sampled_from(
    [
        (Policy.GUARANTEED, None),
        (Policy.REACHABLE, None),
        (Policy.AT_LEAST, AtLeast(2)),
        (Policy.AT_LEAST, AtLeast(50, percent=True)),
    ]
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Service, SavedState]:
    """A service and what may be saved of it: its policy, too."""
    scheme = draw(st.sampled_from(SCHEMES))
    version = versions_of(scheme)
    pairs = st.tuples(version, version).filter(lambda ends: ends[0].major == ends[1].major)
    ranges = pairs.map(lambda ends: VersionRange(min(ends), max(ends)))
    max_ranges = 1 if scheme.contiguous else 4
    versions = VersionSet.of(draw(st.lists(ranges, max_size=max_ranges)))
    drained = draw(st.dictionaries(st.sampled_from(BACKENDS), st.sampled_from(("", "roll 1a2b"))))
    policy, number = draw(POLICIES)
    legacy = draw(st.booleans())
    one = service(scheme, policy=policy, at_least=number or ALL_BACKENDS, negotiates_legacy=legacy)
    known = st.builds(
        Advertisement,
        st.lists(ranges, max_size=4).map(VersionSet.of),
        st.booleans(),
        st.none() | version,
    )
    advertisements = {
        backend.name: SavedAdvertisement(backend.url, draw(known), draw(st.integers(-1000, 0)) / 2)
        for backend in one.backends
        if draw(st.booleans())
    }
    return one, SavedState(
        versions,
        draw(st.none() | version),
        drained,
        (policy, number),
        advertisements,
        cut=bool(versions) and draw(st.booleans()),
        negotiates_legacy=legacy,
    )


@given(cases())
def test_what_was_written_is_read_back(case: tuple[Service, SavedState]) -> None:
    """Whatever the clocks of both processes showed: one that started earlier, and one that starts now."""
    service, saved = case
    running = Snapshot.configured([service], now=0.0, saved={"api": saved})
    parsed = parse_state(format_state(running, wall_offset=1000.0), [service], wall_offset=1500.0)

    assert not any(member.probed for member in running.views["api"].members.all)
    assert running.saved() == {"api": saved}
    assert (parsed.saved, parsed.dropped) == ({"api": saved}, ())
    for name, known in parsed.saved["api"].advertisements.items():
        assert known.at == saved.advertisements[name].at - 500.0


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


def text_of(entry: object, version: object = 2, name: str = "api") -> str:
    return json.dumps({"skewgate_state": version, "services": {name: entry}})


@given(st.one_of(st.text(), ANY_JSON.map(json.dumps), ANY_JSON.map(text_of)))
def test_any_other_text_is_refused_and_never_a_crash(text: str) -> None:
    try:
        saved, _ = parse_state(text, [service(MajorMinor())])
    except StateTextError:
        return
    assert saved == {}


KNOWN: dict[str, Any] = {
    "url": "http://127.0.0.1:1",
    "versions": [["1.1", "1.58"], ["1.60", "1.60"]],
    "default": "1.1",
    "legacy": False,
    "at": 1790000000.5,
}
GOOD: dict[str, Any] = {
    "dialect": "toy",
    "scheme": ["major.minor"],
    "versions": [["1.1", "1.58"]],
    "policy": "at_least",
    "at_least": "50%",
    "cut": False,
    "pin": "1.31",
    "drained": ["api-1"],
    "advertisements": {"api-1": KNOWN},
}
SAVED = SavedState(
    VersionSet.between(Version(1, 1), Version(1, 58)),
    Version(1, 31),
    {"api-1": ""},
    (Policy.AT_LEAST, AtLeast(50, percent=True)),
    {
        "api-1": SavedAdvertisement(
            "http://127.0.0.1:1",
            Advertisement(VersionSet.read("1.1-1.58, 1.60", MajorMinor()), default=Version(1, 1)),
        )
    },
)


@given(st.sampled_from(sorted(GOOD)), ANY_JSON)
def test_one_broken_value_is_no_crash(key: str, value: object) -> None:
    try:
        saved, dropped = parse_state(text_of({**GOOD, key: value}), [service(MajorMinor())])
    except StateTextError:
        return
    assert saved or dropped


@given(st.sampled_from(sorted(KNOWN)), ANY_JSON)
def test_one_broken_value_of_an_advertisement_is_no_crash(key: str, value: object) -> None:
    entry = {**GOOD, "advertisements": {"api-1": {**KNOWN, key: value}}}
    try:
        saved, _ = parse_state(text_of(entry), [service(MajorMinor())])
    except StateTextError:
        return
    assert saved


def test_the_format_is_this_one() -> None:
    """Written by hand: a change of the format needs another number, or a running fleet loses its state."""
    saved, dropped = parse_state(text_of(GOOD), [service(MajorMinor())])

    assert saved == {"api": SAVED}
    assert saved["api"].advertisements["api-1"].at == KNOWN["at"]
    assert dropped == ()


def test_a_raised_floor_is_there_again_and_releases_without_floors_read_the_rest() -> None:
    raised = {"version": "1.20", "by": ["1.20", "2026-06-30"], "enforced": ["1.20", "2026-06-30"]}
    saved, dropped = parse_state(text_of({**GOOD, "raised": raised}), [service(MajorMinor())])
    sunset = Line(Version(1, 20), date(2026, 6, 30))
    assert saved == {"api": replace(SAVED, raised=Raised(Version(1, 20), sunset, sunset))}
    assert dropped == ()

    started = Snapshot.configured([service(MajorMinor())], now=0.0, saved=saved)
    assert json.loads(format_state(started))["services"]["api"]["raised"] == raised
    assert started.views["api"].offer.floor == Version(1, 20)


def test_names_that_were_added_change_nothing_that_was_saved() -> None:
    """A range of old names does not gain the new ones between them."""
    old, new = Named(("v1", "v2", "v3")), Named(("v0", "v1", "v2beta", "v2", "v3", "v4"))
    saved = SavedState(
        VersionSet.read("v1..v3", old),
        old.require("v2"),
        advertisements={
            "api-1": SavedAdvertisement(
                "http://127.0.0.1:1", Advertisement(VersionSet.read("v1..v2", old), default=old.require("v2"))
            )
        },
    )
    text = format_state(Snapshot.configured([service(old)], now=0.0, saved={"api": saved}))
    read, dropped = parse_state(text, [service(new)])

    assert dropped == ()
    assert read["api"].versions == VersionSet.only(*map(new.require, ("v1", "v2", "v3")))
    assert read["api"].pin == new.require("v2")
    known = read["api"].advertisements["api-1"].advertisement
    assert known == Advertisement(
        VersionSet.only(new.require("v1"), new.require("v2")), default=new.require("v2")
    )


@pytest.mark.parametrize(
    "names", [("v1", "v3"), ("v2", "v1", "v3"), ("v1", "v2", "V3")], ids=["lost", "moved", "renamed"]
)
def test_names_that_were_lost_or_moved_make_another_scheme(names: tuple[str, ...]) -> None:
    text = format_state(Snapshot.configured([service(Named(("v1", "v2", "v3")))], now=0.0))

    assert parse_state(text, [service(Named(names))]) == (
        {},
        ("api: saved for another scheme of versions, named v1 v2 v3",),
    )


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "it is not JSON"),
        (text_of(GOOD)[:-9], "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a state file of skewgate"),
        ('{"services": {}}', "it is not a state file of skewgate"),
        (text_of(GOOD, version=True), "it is not a state file of skewgate"),
        (text_of(GOOD, version=3), "its format is 3, this release reads 2"),
        ('{"skewgate_state": 2}', "it has no `services`"),
        (text_of(None), "its entry 'api' is malformed"),
        (text_of({**GOOD, "pin": 1.31}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "raised": "1.31"}), "its entry 'api' has an invalid version, range or floor"),
        (
            text_of({**GOOD, "raised": {"version": "1.31", "by": "the clock", "enforced": None}}),
            "its entry 'api' has an invalid version, range or floor",
        ),
        (text_of({**GOOD, "versions": [["1.1"]]}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "drained": [1]}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "drained_by": {"api-1": 1}}), "its entry 'api' is malformed"),
        (text_of({**GOOD, "advertisements": {"api-1": None}}), "its entry 'api' is malformed"),
        (
            text_of({**GOOD, "advertisements": {"api-1": {**KNOWN, "at": float("nan")}}}),
            "its entry 'api' is malformed",
        ),
        (
            text_of({**GOOD, "advertisements": {"api-1": {**KNOWN, "source": 7}}}),
            "its entry 'api' is malformed",
        ),
        (
            text_of({**GOOD, "advertisements": {"api-1": {**KNOWN, "leaves_at": "soon"}}}),
            "its entry 'api' is malformed",
        ),
        (
            text_of({**GOOD, "advertisements": {"api-1": {**KNOWN, "leaves_at": float("nan")}}}),
            "its entry 'api' is malformed",
        ),
        (
            text_of({**GOOD, "advertisements": {"api-1": {**KNOWN, "default": "one"}}}),
            "its entry 'api' has an invalid version, range or floor",
        ),
        (text_of({**GOOD, "policy": "all"}), "its entry 'api' has an invalid policy"),
        (text_of({**GOOD, "at_least": "half"}), "its entry 'api' has an invalid policy"),
        (text_of({**GOOD, "policy": "reachable"}), "its entry 'api' has an invalid policy"),
        (text_of({**GOOD, "pin": "1.3l"}), "its entry 'api' has an invalid version, range or floor"),
        (
            text_of({**GOOD, "versions": [["1.58", "1.1"]]}),
            "its entry 'api' has an invalid version, range or floor",
        ),
        (
            text_of({**GOOD, "versions": [["1.1", "2.5"]]}),
            "its entry 'api' has an invalid version, range or floor",
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

    assert saved["api"].drained == {"api-1": ""}
    assert dropped == ("api/api-9: was drained, no longer configured",)


def test_what_another_address_advertised_is_forgotten_and_the_rest_counts() -> None:
    entry = {**GOOD, "advertisements": {"api-1": {**KNOWN, "url": "http://127.0.0.1:9"}, "gone": KNOWN}}
    saved, dropped = parse_state(text_of(entry), [service(MajorMinor())])

    assert saved == {"api": replace(SAVED, advertisements={})}
    assert dropped == (
        "api/api-1: what it advertised, it has another address now",
        "api/gone: what it advertised, no longer configured",
    )


def test_who_has_drained_a_backend_is_kept_and_earlier_releases_read_the_rest() -> None:
    one = service(MajorMinor())
    saved = SavedState(SAVED.versions, drained={"api-1": "roll 1a2b3c4d"})
    text = format_state(Snapshot.configured([one], now=0.0, saved={"api": saved}))

    assert json.loads(text)["services"]["api"]["drained"] == ["api-1"]
    assert parse_state(text, [one]).saved["api"].drained == {"api-1": "roll 1a2b3c4d"}


def test_several_services_each_in_its_own_versions() -> None:
    backend = Backend("api-1", "127.0.0.1", 1)
    services = [
        Service("metal", Ironic(), (backend,)),
        Service("cook", Chef.configured(Chef.Options()), (backend,)),
    ]
    guaranteed = (Policy.GUARANTEED, None)
    saved = {
        "metal": SavedState(
            VersionSet.between(Version(1, 1), Version(1, 90)), Version(1, 58), policy=guaranteed
        ),
        "cook": SavedState(VersionSet.between(Version(0), Version(2)), None, {"api-1": ""}, guaranteed),
    }
    text = format_state(Snapshot.configured(services, now=0.0, saved=saved))

    assert parse_state(text, services).saved == saved
    assert parse_state(text, services[:1]) == (
        {"metal": saved["metal"]},
        ("cook: no longer configured",),
    )


def test_nothing_known_is_saved_as_nothing() -> None:
    fresh = Snapshot.configured([service(MajorMinor())], now=0.0)

    assert parse_state(format_state(fresh), [service(MajorMinor())]).saved == {
        "api": SavedState(NO_VERSIONS, policy=(Policy.GUARANTEED, None))
    }


REGISTERED = Registered(("new", "old"), LastAttached("boot", 12.5, 1_790_000_000.0))


@pytest.mark.parametrize("registered", [REGISTERED, Registered(("new",))])
def test_the_registration_of_a_replica_survives(registered: Registered) -> None:
    snapshot = Snapshot.configured([service(MajorMinor())], now=0.0)
    text = format_state(snapshot, registrations={"api": registered})
    parsed = parse_state(text, [service(MajorMinor())])
    assert parsed.saved["api"].registered == registered
    assert not parsed.dropped


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"ids": [], "last_attached": None},
        {"ids": "new", "last_attached": None},
        {"ids": ["new", 1], "last_attached": None},
        {"ids": ["x" * 1000], "last_attached": None},
        {"ids": ["new"] * 1000, "last_attached": None},
        {"ids": ["new"], "last_attached": ["boot", "1", 2]},
        {"ids": ["new"], "last_attached": ["boot", 1]},
    ],
)
def test_a_malformed_registration_is_dropped_and_the_rest_counts(entry: object) -> None:
    document = json.loads(format_state(Snapshot.configured([service(MajorMinor())], now=0.0)))
    document["services"]["api"]["replica"] = entry
    parsed = parse_state(json.dumps(document), [service(MajorMinor())])
    assert parsed.saved["api"].registered is None
    assert any("registration" in each for each in parsed.dropped)


def test_a_time_that_no_clock_shows_is_no_time() -> None:
    document = json.loads(format_state(Snapshot.configured([service(MajorMinor())], now=0.0)))
    document["services"]["api"]["replica"] = {"ids": ["new"], "last_attached": ["boot", 1e99, 1.0]}
    parsed = parse_state(json.dumps(document), [service(MajorMinor())])
    assert parsed.saved["api"].registered == Registered(("new",))
