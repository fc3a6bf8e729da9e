"""What is kept across a restart, as text: whatever was written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.state_text import StateTextError, recall, state_text
from gateway.core.backend import Backend
from gateway.core.memory import Kept
from gateway.core.ranges import NOTHING, VersionRange, VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import CalendarDate, MajorMinor, Named, Scheme, Version, WholeNumber
from gateway.dialects.chef import Chef
from gateway.dialects.ironic import Ironic
from tests.core.stage import Toy

BACKENDS = ("api-1", "10.0.0.2:6385", "[::1]:80")
SCHEMES: tuple[Scheme, ...] = (
    MajorMinor(),
    WholeNumber(),
    CalendarDate(),
    CalendarDate(day=False),
    Named(("v1alpha1", "v1beta1", "v1", "V1")),
)


def service(scheme: Scheme, name: str = "api", backends: tuple[str, ...] = BACKENDS) -> Service:
    made = tuple(Backend(each, "127.0.0.1", port) for port, each in enumerate(backends, 1))
    return Service(name, Toy(scheme=scheme), made)


def versions_of(scheme: Scheme) -> st.SearchStrategy[Version]:
    if isinstance(scheme, Named):
        return st.integers(0, len(scheme.names) - 1).map(Version)
    if isinstance(scheme, CalendarDate):
        dates = st.dates().map(lambda day: (day.year, day.month, day.day))
        return dates.map(lambda parts: Version(*(parts if scheme.day else parts[:2])))
    parts = st.integers(0, 999_999)
    return parts.map(Version) if isinstance(scheme, WholeNumber) else st.builds(Version, parts, parts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Service, Kept]:
    scheme = draw(st.sampled_from(SCHEMES))
    version = versions_of(scheme)
    pairs = st.tuples(version, version).filter(lambda ends: ends[0].major == ends[1].major)
    ranges = pairs.map(lambda ends: VersionRange(min(ends), max(ends)))
    most = 1 if scheme.contiguous else 4
    versions = VersionSet.of(draw(st.lists(ranges, max_size=most)))
    drained = draw(st.frozensets(st.sampled_from(BACKENDS)))
    return service(scheme), Kept(versions, draw(st.none() | version), drained)


@given(cases())
def test_what_was_written_is_read_back(case: tuple[Service, Kept]) -> None:
    one, kept = case
    running = Snapshot.configured([one], now=0.0, kept={"api": kept})

    assert running.kept() == {"api": kept}
    assert recall(state_text(running), [one]) == ({"api": kept}, ())


@given(cases())
def test_a_gateway_that_starts_with_it_offers_what_the_last_one_did(case: tuple[Service, Kept]) -> None:
    one, kept = case
    before = Snapshot.configured([one], now=0.0, kept={"api": kept})
    after = Snapshot.configured([one], now=5.0, kept=recall(state_text(before), [one]).kept)

    assert after.views["api"].offer == before.views["api"].offer


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ENTRY_KEYS = ("dialect", "scheme", "versions", "pin", "drained")


def text_of(entry: object, form: object = 1, name: str = "api") -> str:
    return json.dumps({"skewgate_state": form, "services": {name: entry}})


@given(st.one_of(st.text(), ANY_JSON.map(json.dumps), ANY_JSON.map(text_of)))
def test_any_other_text_is_refused_and_never_a_crash(text: str) -> None:
    try:
        kept, _ = recall(text, [service(MajorMinor())])
    except StateTextError:
        return
    assert kept == {}


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
        kept, lost = recall(text_of({**GOOD, key: value}), [service(MajorMinor())])
    except StateTextError:
        return
    assert kept or lost


def test_the_form_is_this_one() -> None:
    """Written by hand: a change of the form needs another number, or a running fleet loses its state."""
    kept, lost = recall(text_of(GOOD), [service(MajorMinor())])

    assert kept == {
        "api": Kept(VersionSet.between(Version(1, 1), Version(1, 58)), Version(1, 31), frozenset({"api-1"}))
    }
    assert lost == ()


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "it is no JSON"),
        (text_of(GOOD)[:-9], "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "it is no state of skewgate"),
        ('{"services": {}}', "it is no state of skewgate"),
        (text_of(GOOD, form=True), "it is no state of skewgate"),
        (text_of(GOOD, form=2), "its form is 2, this release reads 1"),
        ('{"skewgate_state": 1}', "it names no services"),
        (text_of(None), "its entry 'api' is broken"),
        (text_of({**GOOD, "pin": 1.31}), "its entry 'api' is broken"),
        (text_of({**GOOD, "versions": [["1.1"]]}), "its entry 'api' is broken"),
        (text_of({**GOOD, "drained": [1]}), "its entry 'api' is broken"),
        (text_of({**GOOD, "pin": "1.3l"}), "its entry 'api' names what is no version"),
        (text_of({**GOOD, "versions": [["1.58", "1.1"]]}), "its entry 'api' names what is no version"),
        (
            text_of({**GOOD, "versions": [["1.1", "1.5"], ["1.8", "1.9"]]}),
            "its entry 'api' offers versions with a gap",
        ),
    ],
    ids=lambda text: text[:60],
)
def test_what_is_damaged_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(StateTextError) as refused:
        recall(text, [service(MajorMinor())])

    assert str(refused.value) == said


@pytest.mark.parametrize(
    "entry, services, lost",
    [
        (GOOD, [], "api: is not configured any more"),
        (GOOD, [service(MajorMinor(), name="other")], "api: is not configured any more"),
        ({**GOOD, "dialect": "ironic"}, [service(MajorMinor())], "api: was kept for another dialect, ironic"),
        (GOOD, [service(CalendarDate())], "api: was kept for another scheme of versions, major.minor"),
        (
            {**GOOD, "scheme": ["date", True]},
            [service(CalendarDate(day=False))],
            "api: was kept for another scheme of versions, date True",
        ),
    ],
)
def test_an_entry_for_what_is_configured_otherwise_does_not_count(
    entry: object, services: list[Service], lost: str
) -> None:
    assert recall(text_of(entry), services) == ({}, (lost,))


def test_a_drained_backend_that_is_gone_is_forgotten_and_the_rest_counts() -> None:
    entry = {**GOOD, "drained": ["api-9", "api-1"]}
    kept, lost = recall(text_of(entry), [service(MajorMinor())])

    assert kept["api"].drained == frozenset({"api-1"})
    assert lost == ("api/api-9: was drained and is not configured any more",)


def test_several_services_each_in_its_own_versions() -> None:
    backend = Backend("api-1", "127.0.0.1", 1)
    services = [
        Service("metal", Ironic(), (backend,)),
        Service("cook", Chef.configured(Chef.Options()), (backend,)),
    ]
    wanted = {
        "metal": Kept(VersionSet.between(Version(1, 1), Version(1, 90)), Version(1, 58)),
        "cook": Kept(VersionSet.between(Version(0), Version(2)), None, frozenset({"api-1"})),
    }
    text = state_text(Snapshot.configured(services, now=0.0, kept=wanted))

    assert recall(text, services).kept == wanted
    assert recall(text, services[:1]) == (
        {"metal": wanted["metal"]},
        ("cook: is not configured any more",),
    )


def test_nothing_known_is_kept_as_nothing() -> None:
    fresh = Snapshot.configured([service(MajorMinor())], now=0.0)

    assert recall(state_text(fresh), [service(MajorMinor())]).kept == {"api": Kept(NOTHING)}
