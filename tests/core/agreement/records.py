"""Random versions, votes and records."""

from __future__ import annotations

import hypothesis.strategies as st

from gateway.core.agreement.ladder import Vote
from gateway.core.agreement.record import AgreedRecord
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, joined, unbroken
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme, Version, WholeNumber

UNIVERSE: dict[type[Scheme], list[Version]] = {
    MajorMinor: [Version(major, minor) for major in (1, 2) for minor in range(1, 6)],
    WholeNumber: [Version(number) for number in range(8)],
    CalendarDate: [Version(2024, month, day) for month in (1, 2) for day in (1, 2, 5, 28)],
}
NAMES = [Version(index) for index in range(3)]


def minors(low: int, high: int) -> VersionSet:
    return VersionSet.between(Version(1, low), Version(1, high))


def universe(scheme: Scheme) -> list[Version]:
    """The versions that are drawn."""
    return UNIVERSE.get(type(scheme), NAMES)


def sets(scheme: Scheme) -> st.SearchStrategy[VersionSet]:
    """Any versions; unbroken ones where an offer must be."""
    some = st.sets(st.sampled_from(universe(scheme))).map(lambda found: VersionSet.only(*found))
    if not scheme.contiguous:
        return some
    ends = st.tuples(st.sampled_from(universe(scheme)), st.sampled_from(universe(scheme)))
    ranges = ends.filter(lambda pair: pair[0] <= pair[1] and pair[0].major == pair[1].major)
    return (
        st.just(NO_VERSIONS)
        | ranges.map(lambda pair: VersionSet.between(*pair))
        | some.map(lambda found: unbroken(found, scheme))
    )


def at_rest(seq: int, rule: str, state: VersionSet) -> AgreedRecord:
    """The record at which steps end where there is no ceiling."""
    return AgreedRecord(seq, rule, state, state, state, state)


@st.composite
def records(draw: st.DrawFn, scheme: Scheme) -> AgreedRecord:
    """Any record that the ladder may make, and more."""
    some = st.sets(st.sampled_from(universe(scheme))).map(lambda found: VersionSet.only(*found))
    offered = draw(sets(scheme))
    accepted = offered | draw(some)
    return AgreedRecord(
        draw(st.integers(1, 2**53 - 1)),
        draw(st.sampled_from(("guaranteed", "reachable", "at_least 50%"))),
        draw(sets(scheme)),
        offered,
        accepted,
        accepted | draw(some),
    )


@st.composite
def votes(draw: st.DrawFn, scheme: Scheme, state: VersionSet) -> Vote:
    """Any vote about `state`."""
    floor = unbroken(state & draw(sets(scheme)), scheme)
    more = draw(sets(scheme))
    want = joined(floor, more, scheme) - floor if floor else more
    return Vote(
        draw(st.sampled_from(("guaranteed", "guaranteed", "reachable"))),
        floor,
        want,
        draw(sets(scheme)),
        draw(st.none() | st.sampled_from(universe(scheme))),
        draw(st.none() | st.sampled_from(universe(scheme))),
    )
