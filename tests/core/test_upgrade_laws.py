"""What always holds: random fleets, failures, roll-backs, commands, reloads and time.

Two gateways and a model get the same facts at the same times. The model (`tests.core.model`) works with sets
and times of single versions.
"""

from __future__ import annotations

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
    VersionMismatch,
)
from gateway.core.fleet.offer import Phase
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Scheme, Version
from tests.core.builders import XY, Toy, backend, service
from tests.core.model import NONE, Known, Model, Versions, between
from tests.core.timeline import Timeline

NAMES = "abcd"
DATES = CalendarDate()
UNIVERSE: dict[str, list[Version]] = {
    XY.name: [Version(major, minor) for major in (1, 2) for minor in range(7)],
    DATES.name: [Version(2024, month, day) for month in (1, 2) for day in (1, 2, 3)],
}


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
        self.busy, self.lazy = Timeline(one), Timeline(one)
        self.model = Model(scheme, one.policy, one.at_least, stabilization, self._enlisted(members, {}))
        self.model.learn(0.0)
        self.before = NONE
        self._end_first_probes(first)

    # -- what happens

    @rule(who=WHO, advertisement=advertisements(), lag=LAG)
    def is_probed(self, who: str, advertisement: Indices, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, ProbeSucceeded(self._advertisement(advertisement), at))
        known = self._undeclared(who)
        if known is not None:
            known.failures = 0
            self._updated(known, advertisement, at)
        self._learned()

    @rule(advertisement=advertisements(), other=advertisements(), others=st.sets(WHO))
    def a_round_of_probes(self, advertisement: Indices, other: Indices, others: set[str]) -> None:
        """As in a finished upgrade or roll-back, or half of one."""
        for who in NAMES:
            self.is_probed(who, other if who in others else advertisement, 0.0)
            self.the_laws_hold()

    @rule(who=WHO, times=st.sampled_from((1, 1, 3)))
    def fails(self, who: str, times: int) -> None:
        for _ in range(times):
            self._observe(who, ProbeFailed("no connection", self.busy.now))
        known = self._undeclared(who)
        if known is not None:
            known.failures += times
        self._learned()

    @rule(who=WHO, advertisement=advertisements(), lag=LAG)
    def is_observed_in_a_response(self, who: str, advertisement: Indices, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, PassiveObservation(self._advertisement(advertisement), at))
        known = self._undeclared(who)
        if known is not None:
            self._updated(known, advertisement, at)
        self._learned()

    @rule(who=WHO, index=st.none() | INDEX, lag=LAG)
    def becomes_suspect(self, who: str, index: int | None, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, ConnectFailed(at) if index is None else VersionMismatch(self._version(index), at))
        self._learned()

    @rule(who=WHO, drained=st.booleans())
    def is_drained(self, who: str, drained: bool) -> None:
        self._apply(Drain(who, drained))
        if who in self.model.backends:
            self.model.backends[who].drained = drained
        self._learned()

    @rule(index=CEILINGS)
    def is_pinned(self, index: int | None) -> None:
        self._apply(Pin(None if index is None else self._version(index)))
        self.pinned = index
        self._learned()

    @rule(seconds=st.integers(1, 6), looks=st.integers(1, 3))
    def time_goes_by(self, seconds: int, looks: int) -> None:
        for _ in range(looks):
            self.busy.wait(seconds / looks)
        self.busy.now = self.lazy.now = round(self.busy.now)
        self.busy.look()
        self.model.look(self.busy.now)
        self.before = self.model.offered

    @rule(policy=POLICIES, stabilization=STABILIZATIONS, ceiling=CEILINGS, members=MEMBERS, first=FIRST)
    def is_reloaded(
        self,
        policy: tuple[Policy, AtLeast],
        stabilization: float,
        ceiling: int | None,
        members: Listed,
        first: list[Indices | None],
    ) -> None:
        one = self._service(policy, stabilization, ceiling, members)
        before = self.model.backends
        self.busy.reload(one)
        self.lazy.reload(one)
        self.ceiling = ceiling
        model = self.model
        model.backends = self._enlisted(members, before)
        model.policy, model.at_least, model.stabilization = one.policy, one.at_least, stabilization
        gone = [
            each
            for name, each in before.items()
            if name not in model.backends or model.backends[name].port != each.port
        ]
        model.remove([each for each in gone if each.versions is not None])
        self.before = model.offered  # no law is about versions that leave by removal
        self._learned()
        self._end_first_probes(first)

    def _end_first_probes(self, first: list[Indices | None]) -> None:
        """End the first probes of some backends that were never probed, in success or failure."""
        unprobed = [name for name, each in self.model.backends.items() if not each.probed]
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
        self._offers_what_the_model_says(offer_state)
        self._loses_nothing_that_is_served(offer_state)
        self._stays_below_the_ceiling(offer_state, offer)
        self._sends_and_refuses_truthfully(offer)
        self._agree()

    def _offers_what_the_model_says(self, offer_state: Versions) -> None:
        assert offer_state == self.model.offered

    def _loses_nothing_that_is_served(self, offer_state: Versions) -> None:
        """Except by removal (a pin is only a view). The one exception: of an offer that must be unbroken the
        newest part stays, when by fresh advertisements no backend serves a version in its middle."""
        model = self.model
        served = model.serving(each for each in model.backends.values() if each.fresh)
        for lost in (self.before - offer_state) & served:
            assert self.scheme.contiguous
            assert all(each.fresh for each in model.known)
            assert lost < min(offer_state)
            middle = {each for each in self.before if lost < each < min(offer_state)}
            assert middle - model.serving(model.known), "a gap"
        self.before = offer_state

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
                assert offer == set(between(offered.lowest, offered.highest)), "nothing is missing"

    def _sends_and_refuses_truthfully(self, offer: Versions) -> None:
        in_service = {name: each for name, each in self.model.backends.items() if each.in_service}
        transparent = (
            self.model.initialized and bool(in_service) and all(each.legacy for each in in_service.values())
        )
        assert self.busy.offer.transparent is transparent
        for version in (None, *UNIVERSE[self.scheme.name]):
            decision = self.busy.send(version)
            if isinstance(decision, Forward):
                self._is_sent_to_a_member_with_it(decision, version, offer)
            else:
                assert not transparent
                assert isinstance(decision, Refuse)
                self._is_refused_for_good_reason(decision, version, offer)

    def _is_sent_to_a_member_with_it(self, sent: Forward, version: Version | None, offer: Versions) -> None:
        known = self.model.backends[sent.member.backend.name]
        assert known.in_service
        if self.busy.offer.transparent:
            return
        negotiated = sent.resolution.version
        assert negotiated is not None
        assert negotiated in offer
        assert version in (None, negotiated)
        assert negotiated in (known.versions or ())
        assert negotiated not in sent.member.mismatched

    def _is_refused_for_good_reason(self, refused: Refuse, version: Version | None, offer: Versions) -> None:
        """With 406 only outside the offer; inside it with 503, and only if no member can serve it."""
        final = refused.result is not NegotiationResult.UNAVAILABLE
        assert refused.response.status == (406 if final else 503)
        assert final is (bool(offer) and version is not None and version not in offer)
        wanted = min(offer, default=None) if version is None else version
        for member in self.busy.view.pool.in_service:
            if wanted in offer and wanted in (self.model.backends[member.backend.name].versions or ()):
                assert wanted is not None
                assert wanted in member.mismatched, "this member could have served it"

    def _agree(self) -> None:
        """Two gateways that observed the same at the same times, however often one of them looks."""
        seen = self.lazy.snapshot.with_fleet(self.lazy.snapshot.fleet, self.lazy.now).views["toy"]
        assert seen.offer == self.busy.offer
        assert seen.offer_state == self.busy.view.offer_state

    @invariant()
    def the_phase_follows(self) -> None:
        offer, non_legacy = (
            self.busy.offer,
            [each.versions for each in self.model.in_service if each.versions],
        )
        if not self.model.offered and not offer.transparent:
            assert offer.phase is Phase.UNKNOWN
        elif len(set(non_legacy)) > 1:
            assert offer.phase is Phase.MIXED
        elif frozenset(offer.versions) != self.model.offered:
            assert offer.phase is Phase.CAPPED
        elif set(non_legacy) - {frozenset(offer.versions)}:
            assert offer.phase is Phase.STABILIZING
        else:
            assert offer.phase is Phase.UNIFORM
            assert (offer.held_by, offer.held_rule) == ((), None)

    # -- values

    def _version(self, index: int) -> Version:
        universe = UNIVERSE[self.scheme.name]
        return universe[index % len(universe)]

    def _versions(self, advertisement: Indices) -> Versions:
        return frozenset(map(self._version, advertisement[0]))

    def _advertisement(self, advertisement: Indices) -> Advertisement:
        return Advertisement(VersionSet.only(*self._versions(advertisement)), legacy=advertisement[1])

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

    def _enlisted(self, members: Listed, before: dict[str, Known]) -> dict[str, Known]:
        """What is known of a backend stays known at the same address, unless it was or is declared."""
        found = {}
        for name, port, advertisement in members:
            was = before.get(name)
            was = was if was is not None and was.port == port else Known(port)
            declared = None if advertisement is None else self._versions(advertisement)
            if declared is None and was.declared is None:
                found[name] = was
            else:
                found[name] = Known(port, declared, declared, drained=was.drained)
        return found

    # -- to both gateways and the model

    def _undeclared(self, who: str) -> Known | None:
        known = self.model.backends.get(who)
        return known if known is not None and known.declared is None else None

    def _updated(self, known: Known, advertisement: Indices, at: float) -> None:
        if at >= known.advertised_at:
            known.versions, known.legacy, known.advertised_at = (
                self._versions(advertisement),
                advertisement[1],
                at,
            )

    def _observe(self, who: str, fact: Fact) -> None:
        self.busy.observe(who, fact)
        self.lazy.observe(who, fact)

    def _apply(self, command: OperatorCommand) -> None:
        self.busy.apply(command)
        self.lazy.apply(command)

    def _learned(self) -> None:
        self.model.learn(self.busy.now)


Upgrades.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestUpgrades = Upgrades.TestCase
