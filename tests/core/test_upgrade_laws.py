"""What always holds of an offer: random fleets, failures, roll-backs, commands, reloads, restarts and time.

Two gateways get the same facts at the same times. Which offer is the right one, `tests.model` knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.decision.decision import Forward, NegotiationResult, Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Drain,
    Fact,
    OperatorCommand,
    PassiveObservation,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Scheme, Version
from tests.core.builders import XY, Toy, backend, service
from tests.core.timeline import Timeline
from tests.kit.examples import examples

NAMES = "abcd"
DATES = CalendarDate()
UNIVERSE: dict[str, list[Version]] = {
    XY.name: [Version(major, minor) for major in (1, 2) for minor in range(7)],
    DATES.name: [Version(2024, month, day) for month in (1, 2) for day in (1, 2, 3)],
}


Versions: TypeAlias = frozenset[Version]
NONE: Versions = frozenset()

Indices: TypeAlias = tuple[frozenset[int], bool]
"""An advertisement: indices into the universe, and whether it is legacy."""


@st.composite
def advertisements(draw: st.DrawFn) -> Indices:
    """Often one of two ranges, as in an upgrade."""
    kind = draw(st.sampled_from(("old", "new", "old", "new", "range", "range", "gap", "legacy", "nothing")))
    if kind in ("old", "new"):
        return frozenset(range(3 if kind == "old" else 6)), False
    low, high = sorted((draw(st.integers(0, 6)), draw(st.integers(0, 6))))
    base = draw(st.sampled_from((0, 0, 0, 7)))
    versions = frozenset(range(base + low, base + high + 1))
    if kind == "gap":
        return versions - {draw(st.integers(0, 13))}, False
    if kind == "legacy":
        return frozenset({1}), True
    return (frozenset(), True) if kind == "nothing" else (versions, False)


WHO = st.sampled_from(NAMES)
LAG = st.sampled_from((0.0, 0.0, 0.0, 1.0, 3.0))
INDEX = st.integers(0, 13)
POLICIES = st.tuples(
    st.sampled_from(Policy), st.builds(AtLeast, st.integers(1, 3)) | st.just(AtLeast(50, percent=True))
)
STABILIZATIONS = st.sampled_from((0.0, 2.0, 5.0))
CEILINGS = st.none() | INDEX
MEMBERS = st.lists(
    st.tuples(WHO, st.sampled_from((80, 80, 80, 81)), st.none() | st.none() | advertisements()),
    min_size=1,
    max_size=4,
    unique_by=lambda listed: listed[0],
)
FIRST: st.SearchStrategy[list[Indices | None]] = st.lists(advertisements() | st.none(), max_size=4)
Listed: TypeAlias = list[tuple[str, int, Indices | None]]


class Upgrades(RuleBasedStateMachine):
    """`busy` advances its snapshot at every step of time, `lazy` only with a fact or a command."""

    @initialize(
        scheme=st.sampled_from((XY, XY, DATES)),
        policy=POLICIES,
        stabilization=STABILIZATIONS,
        ceiling=CEILINGS,
        members=MEMBERS,
        first=FIRST,
    )
    def configure(
        self,
        scheme: Scheme,
        policy: tuple[Policy, AtLeast],
        stabilization: float,
        ceiling: int | None,
        members: Listed,
        first: list[Indices | None],
    ) -> None:
        self.scheme, self.dialect = scheme, Toy(scheme=scheme)
        self.ceiling = ceiling
        self.pinned: int | None = None
        one = self._service(policy, stabilization, ceiling, members)
        self.busy, self.lazy = self._timeline(one), Timeline(one)
        self.before = NONE
        self._end_first_probes(first)

    # -- what happens

    @rule(who=WHO, advertisement=advertisements(), lag=LAG)
    def is_probed(self, who: str, advertisement: Indices, lag: float) -> None:
        self._observe(who, ProbeSucceeded(self._advertisement(advertisement), self.busy.now - lag))

    @rule(advertisement=advertisements(), other=advertisements(), others=st.sets(WHO))
    def a_round_of_probes(self, advertisement: Indices, other: Indices, others: set[str]) -> None:
        """As in a finished upgrade or roll-back, or half of one. Legacy answers count by the third."""
        for _ in range(3 if advertisement[1] or other[1] else 1):
            for who in NAMES:
                self.is_probed(who, other if who in others else advertisement, 0.0)
                self.the_laws_hold()

    @rule(who=WHO, times=st.sampled_from((1, 1, 3)))
    def fails(self, who: str, times: int) -> None:
        for _ in range(times):
            self._observe(who, ProbeFailed("no connection", self.busy.now))

    @rule(who=WHO, advertisement=advertisements(), lag=LAG)
    def is_observed_in_a_response(self, who: str, advertisement: Indices, lag: float) -> None:
        self._observe(who, PassiveObservation(self._advertisement(advertisement), self.busy.now - lag))

    @rule(who=WHO, index=st.none() | INDEX, lag=LAG)
    def becomes_suspect(self, who: str, index: int | None, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, ConnectFailed(at) if index is None else VersionMismatch(self._version(index), at))

    @rule(who=WHO)
    def lacks_the_served_version(self, who: str) -> None:
        self._observe(who, ServedVersionMissing(self.busy.now))

    @rule(who=WHO, drained=st.booleans())
    def is_drained(self, who: str, drained: bool) -> None:
        self._apply(Drain(who, drained))

    @rule(who=WHO)
    def leaves_or_comes_back(self, who: str) -> None:
        """By discovery: nothing that is known goes with it, and nothing on offer."""
        one, offered = self.busy.view.service, self.busy.view.offer_state.versions
        at = self.busy.now + 300
        backends = [
            replace(each, leaves_at=None if each.leaving else at) if each.name == who else each
            for each in one.backends
        ]
        if self.busy.view.members.all_probed:
            self._configure(replace(one, backends=tuple(backends)), restarts=False)
            assert offered <= self.busy.view.offer_state.versions

    @rule(index=CEILINGS)
    def is_pinned(self, index: int | None) -> None:
        self.pinned = index
        self._apply(Pin(None if index is None else self._version(index)))

    @rule(seconds=st.integers(1, 6) | st.sampled_from((100, 3600)), looks=st.integers(1, 3))
    def time_goes_by(self, seconds: int, looks: int) -> None:
        for _ in range(looks):
            self.busy.wait(seconds / looks)
        self.busy.now = self.lazy.now = round(self.busy.now)
        self.busy.look()

    @rule(who=WHO, times=st.integers(1, 8), other=advertisements())
    def flaps(self, who: str, times: int, other: Indices) -> None:
        """It serves something else and comes back, again and again."""
        member = self.busy.view.members.member(who)
        if member is None or member.advertisement is None or member.legacy or other[1]:
            return
        usual = member.advertisement
        for _ in range(times):
            for advertisement in (self._advertisement(other), usual):
                self._observe(who, ProbeSucceeded(advertisement, self.busy.now))
                self.the_laws_hold()
            self.time_goes_by(6, 1)

    @rule(
        policy=POLICIES,
        stabilization=STABILIZATIONS,
        ceiling=CEILINGS,
        members=MEMBERS,
        first=FIRST,
        restarts=st.booleans(),
    )
    def is_configured_anew(
        self,
        policy: tuple[Policy, AtLeast],
        stabilization: float,
        ceiling: int | None,
        members: Listed,
        first: list[Indices | None],
        restarts: bool,
    ) -> None:
        """By a reload, or by a restart with a state file."""
        one = self._service(policy, stabilization, ceiling, members)
        self._configure(one, restarts)
        self.ceiling = ceiling
        self._end_first_probes(first)

    @rule(add=st.booleans(), restarts=st.booleans(), first=FIRST)
    def only_its_policy_changes(self, add: bool, restarts: bool, first: list[Indices | None]) -> None:
        """And perhaps a backend is added."""
        before = self.busy.view.service
        policy = Policy.REACHABLE if before.policy is Policy.GUARANTEED else Policy.GUARANTEED
        free = [name for name in NAMES if self.busy.view.members.member(name) is None]
        more = tuple(backend(name) for name in free[:1]) if add else ()
        one = service(
            backends=(*before.backends, *more),
            dialect=self.dialect,
            policy=policy,
            stabilization=before.stabilization,
            ceiling=before.ceiling,
        )
        self._configure(one, restarts)
        self._end_first_probes(first)

    def _configure(self, one: Service, restarts: bool) -> None:
        for gateway in (self.busy, self.lazy):
            if restarts:
                gateway.look()  # what is saved is what was offered in the end
                gateway.restart(one)
            else:
                gateway.reload(one)
        self.before = NONE  # no law is about versions that leave by an operator's word

    def _end_first_probes(self, first: list[Indices | None]) -> None:
        """End the first probes of some backends that were never probed, in success or failure."""
        unprobed = [each.backend.name for each in self.busy.view.members.all if not each.probed]
        for who, advertisement in zip(unprobed, first, strict=False):
            self.the_laws_hold()
            if advertisement is None:
                self.fails(who, 1)
            else:
                self.is_probed(who, advertisement, 0.0)

    # -- what holds after every step

    @invariant()
    def the_laws_hold(self) -> None:
        offer_state = frozenset(self.busy.view.offer_state.versions)
        offer = frozenset(self.busy.offer.versions)
        self._loses_nothing_that_is_served(offer_state)
        self._stays_below_the_ceiling(offer_state, offer)
        self._sends_and_refuses_truthfully(offer)
        self._agree()

    def _loses_nothing_that_is_served(self, offer_state: Versions) -> None:
        """Except by an operator's word (a pin is only a view). The one exception: of an offer that must be
        unbroken the newest part stays, when a version in its middle is in no last report."""
        reports = [each.advertisement for each in self.busy.view.members.all]
        served = NONE.union(*(each.versions for each in reports if each is not None))
        for lost in (self.before - offer_state) & served:
            assert self.scheme.contiguous
            assert lost < min(offer_state)
            middle = {each for each in self.before if lost < each < min(offer_state)}
            assert middle - served, "a gap"
        self.before = offer_state if self.busy.view.members.all_probed else NONE

    def _stays_below_the_ceiling(self, offer_state: Versions, offer: Versions) -> None:
        ceiling = self.ceiling if self.pinned is None else self.pinned
        cap = None if ceiling is None else self._version(ceiling)
        assert self.busy.offer.ceiling == cap
        assert offer == {each for each in offer_state if cap is None or each <= cap}
        offered = self.busy.offer.offered
        assert (offered is None) is (not offer)
        if offered is not None:
            assert offered.lowest <= offered.highest
            if self.scheme.contiguous:
                assert offer == set(VersionSet.between(offered.lowest, offered.highest)), "nothing is missing"

    def _sends_and_refuses_truthfully(self, offer: Versions) -> None:
        transparent = self.busy.offer.transparent
        for version in (None, *UNIVERSE[self.scheme.name]):
            decision = self.busy.send(version)
            if isinstance(decision, Forward):
                self._is_sent_to_a_member_with_it(decision, version, offer)
            else:
                assert not transparent or all(
                    each.absent for each in self.busy.view.members.all if each.in_service
                )
                assert isinstance(decision, Refuse)
                self._is_refused_for_good_reason(decision, version, offer)

    def _is_sent_to_a_member_with_it(self, sent: Forward, version: Version | None, offer: Versions) -> None:
        assert sent.member is not None
        assert sent.member.in_service
        assert not sent.member.restored
        assert not sent.member.absent
        if self.busy.offer.transparent:
            return
        negotiated = sent.resolution.version
        assert negotiated is not None
        assert negotiated in offer
        assert version in (None, negotiated)
        assert sent.member.advertisement is not None
        assert negotiated in sent.member.advertisement.versions
        assert negotiated not in sent.member.mismatched

    def _is_refused_for_good_reason(self, refused: Refuse, version: Version | None, offer: Versions) -> None:
        """With 406 only outside the offer; inside it with 503, and only if no member can serve it."""
        final = refused.result is not NegotiationResult.UNAVAILABLE
        assert refused.response.status == (406 if final else 503)
        assert final is (bool(offer) and version is not None and version not in offer)
        wanted = min(offer, default=None) if version is None else version
        for member in [each for each in self.busy.view.members.all if each.in_service]:
            assert wanted not in offer or wanted not in member.usable_versions, "it could have served it"

    def _agree(self) -> None:
        """Two gateways that observed the same at the same times, however often one of them looks."""
        seen = self.lazy.snapshot.with_fleet(self.lazy.snapshot.fleet, self.lazy.now).views["toy"]
        assert seen.offer == self.busy.offer
        # A fall that is forgotten by now is dropped when the service is worked out the next time.
        lazy, busy = (
            replace(state, falls=state.falls.at(self.busy.now))
            for state in (seen.offer_state, self.busy.view.offer_state)
        )
        assert lazy == busy

    # -- values

    def _version(self, index: int) -> Version:
        universe = UNIVERSE[self.scheme.name]
        return universe[index % len(universe)]

    def _versions(self, advertisement: Indices) -> Versions:
        return frozenset(map(self._version, advertisement[0]))

    def _advertisement(self, advertisement: Indices) -> Advertisement:
        return Advertisement(VersionSet.only(*self._versions(advertisement)), legacy=advertisement[1])

    def _timeline(self, one: Service) -> Timeline:
        """Of `busy`."""
        return Timeline(one)

    def _service(
        self, policy: tuple[Policy, AtLeast], stabilization: float, ceiling: int | None, members: Listed
    ) -> Service:
        backends: list[Backend] = [
            backend(
                name,
                port=port,
                declared=None if declared is None else VersionSet.only(*self._versions(declared)),
            )
            for name, port, declared in members
        ]
        return service(
            backends=tuple(backends),
            dialect=self.dialect,
            policy=policy[0],
            at_least=policy[1],
            stabilization=stabilization,
            ceiling=None if ceiling is None else self._version(ceiling),
        )

    # -- to both gateways

    def _observe(self, who: str, fact: Fact) -> None:
        self.busy.observe(who, fact)
        self.lazy.observe(who, fact)

    def _apply(self, command: OperatorCommand) -> None:
        self.busy.apply(command)
        self.lazy.apply(command)


Upgrades.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestUpgrades = Upgrades.TestCase
