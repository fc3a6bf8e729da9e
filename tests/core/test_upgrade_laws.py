"""What always holds while everything moves: random fleets, failures, roll-backs, orders, reloads and time.

Beside two gateways goes a model that knows sets and clocks of single versions only, and no rule by heart but
those of the design.
"""

from __future__ import annotations

from typing import TypeAlias

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.backend import Backend
from gateway.core.decision import Forward, Refuse, Verdict
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Contradicted, Drain, Fact, Failed, Order, Overheard, Pin, Unreached
from gateway.core.offer import Phase
from gateway.core.ranges import VersionSet
from gateway.core.service import AtLeast, Policy, Service
from gateway.core.version import CalendarDate, Scheme, Version
from tests.core.course import Course
from tests.core.model import NONE, Known, Model, Versions, between
from tests.core.stage import XY, Toy, backend, service

NAMES = "abcd"
DATES = CalendarDate()
UNIVERSE: dict[str, list[Version]] = {
    XY.name: [Version(major, minor) for major in (1, 2) for minor in range(7)],
    DATES.name: [Version(2024, month, day) for month in (1, 2) for day in (1, 2, 3)],
}


Said: TypeAlias = tuple[frozenset[int], bool]
"""An advert: indices into the universe, and whether it is silent."""


@st.composite
def adverts(draw: st.DrawFn) -> Said:
    """Often one of two ranges, as in an upgrade."""
    kind = draw(st.sampled_from(("old", "new", "old", "new", "range", "range", "gap", "silent", "nothing")))
    if kind in ("old", "new"):
        return frozenset(range(3 if kind == "old" else 6)), False
    low, high = sorted((draw(st.integers(0, 6)), draw(st.integers(0, 6))))
    base = draw(st.sampled_from((0, 0, 0, 7)))
    versions = frozenset(range(base + low, base + high + 1))
    if kind == "gap":
        return versions - {draw(st.integers(0, 13))}, False
    if kind == "silent":
        return frozenset({1}), True
    return (frozenset(), True) if kind == "nothing" else (versions, False)


WHO = st.sampled_from(NAMES)
LAG = st.sampled_from((0.0, 0.0, 0.0, 1.0, 3.0))
INDEX = st.integers(0, 13)
POLICIES = st.tuples(
    st.sampled_from(Policy), st.builds(AtLeast, st.integers(1, 3)) | st.just(AtLeast(50, percent=True))
)
SETTLES = st.sampled_from((0.0, 2.0, 5.0))
CEILINGS = st.none() | INDEX
MEMBERS = st.lists(
    st.tuples(WHO, st.sampled_from((80, 80, 80, 81)), st.none() | st.none() | adverts()),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
)
FIRST: st.SearchStrategy[list[Said | None]] = st.lists(adverts() | st.none(), max_size=4)
Listed: TypeAlias = list[tuple[str, int, Said | None]]


class Upgrades(RuleBasedStateMachine):
    """`busy` looks whenever it can, `lazy` only when it hears something."""

    @initialize(
        scheme=st.sampled_from((XY, XY, DATES)),
        policy=POLICIES,
        settle=SETTLES,
        ceiling=CEILINGS,
        members=MEMBERS,
        first=FIRST,
    )
    def configure(
        self,
        scheme: Scheme,
        policy: tuple[Policy, AtLeast],
        settle: float,
        ceiling: int | None,
        members: Listed,
        first: list[Said | None],
    ) -> None:
        self.scheme, self.dialect = scheme, Toy(scheme=scheme)
        self.ceiling = ceiling
        self.pinned: int | None = None
        one = self._service(policy, settle, ceiling, members)
        self.busy, self.lazy = Course(one), Course(one)
        self.model = Model(scheme, one.policy, one.at_least, settle, self._enlisted(members, {}))
        self.model.learn(0.0)
        self.before = NONE
        self._end_first_probes(first)

    # -- what happens

    @rule(who=WHO, advert=adverts(), lag=LAG)
    def is_probed(self, who: str, advert: Said, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, Answered(self._advert(advert), at))
        known = self._undeclared(who)
        if known is not None:
            known.failures = 0
            self._heard(known, advert, at)
        self._learned()

    @rule(advert=adverts(), other=adverts(), others=st.sets(WHO))
    def a_round_of_probes(self, advert: Said, other: Said, others: set[str]) -> None:
        """As in a finished upgrade or roll-back, or half of one."""
        for who in NAMES:
            self.is_probed(who, other if who in others else advert, 0.0)
            self.the_laws_hold()

    @rule(who=WHO, times=st.sampled_from((1, 1, 3)))
    def fails(self, who: str, times: int) -> None:
        for _ in range(times):
            self._observe(who, Failed("no connection", self.busy.now))
        known = self._undeclared(who)
        if known is not None:
            known.failures += times
        self._learned()

    @rule(who=WHO, advert=adverts(), lag=LAG)
    def is_overheard(self, who: str, advert: Said, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, Overheard(self._advert(advert), at))
        known = self._undeclared(who)
        if known is not None:
            self._heard(known, advert, at)
        self._learned()

    @rule(who=WHO, index=st.none() | INDEX, lag=LAG)
    def is_doubted(self, who: str, index: int | None, lag: float) -> None:
        at = self.busy.now - lag
        self._observe(who, Unreached(at) if index is None else Contradicted(self._version(index), at))
        self._learned()

    @rule(who=WHO, drained=st.booleans())
    def is_drained(self, who: str, drained: bool) -> None:
        self._obey(Drain(who, drained))
        if who in self.model.backends:
            self.model.backends[who].drained = drained
        self._learned()

    @rule(index=CEILINGS)
    def is_pinned(self, index: int | None) -> None:
        self._obey(Pin(None if index is None else self._version(index)))
        self.pinned = index
        self._learned()

    @rule(seconds=st.integers(1, 6), looks=st.integers(1, 3))
    def time_goes_by(self, seconds: int, looks: int) -> None:
        for _ in range(looks):
            self.busy.wait(seconds / looks)
        self.busy.now = self.lazy.now = round(self.busy.now)
        self.busy.look()
        self.model.look(self.busy.now)
        self.before = self.model.promised

    @rule(policy=POLICIES, settle=SETTLES, ceiling=CEILINGS, members=MEMBERS, first=FIRST)
    def is_reloaded(
        self,
        policy: tuple[Policy, AtLeast],
        settle: float,
        ceiling: int | None,
        members: Listed,
        first: list[Said | None],
    ) -> None:
        one = self._service(policy, settle, ceiling, members)
        before = self.model.backends
        self.busy.reload(one)
        self.lazy.reload(one)
        self.ceiling = ceiling
        model = self.model
        model.backends = self._enlisted(members, before)
        model.policy, model.at_least, model.settle = one.policy, one.at_least, settle
        gone = [
            each
            for name, each in before.items()
            if name not in model.backends or model.backends[name].port != each.port
        ]
        model.remove([each for each in gone if each.versions is not None])
        self.before = model.promised  # what went by removal is no loss that any law speaks of
        self._learned()
        self._end_first_probes(first)

    def _end_first_probes(self, first: list[Said | None]) -> None:
        """Of those that were never asked the first few are, well or badly."""
        unasked = [name for name, each in self.model.backends.items() if not each.probed]
        for who, advert in zip(unasked, first, strict=False):
            self.the_laws_hold()
            if advert is None:
                self.fails(who, 1)
            else:
                self.is_probed(who, advert, 0.0)

    # -- what holds after every step

    @invariant()
    def the_laws_hold(self) -> None:
        memory = frozenset(self.busy.view.memory.versions)
        offer = frozenset(self.busy.offer.versions)
        self._promises_what_the_design_says(memory)
        self._loses_nothing_that_is_served(memory)
        self._stays_below_the_ceiling(memory, offer)
        self._sends_and_refuses_truthfully(offer)
        self._agree()

    def _promises_what_the_design_says(self, memory: Versions) -> None:
        assert memory == self.model.promised

    def _loses_nothing_that_is_served(self, memory: Versions) -> None:
        """Except by removal (and by pin, which is a view). The one exception: of an offer that must be
        unbroken the newest part stays, when by everybody's fresh word nobody serves something in its
        middle."""
        model = self.model
        served = model.serving(each for each in model.backends.values() if each.fresh)
        for lost in (self.before - memory) & served:
            assert self.scheme.contiguous
            assert all(each.fresh for each in model.known)
            assert lost < min(memory)
            middle = {each for each in self.before if lost < each < min(memory)}
            assert middle - model.serving(model.known), "a hole"
        self.before = memory

    def _stays_below_the_ceiling(self, memory: Versions, offer: Versions) -> None:
        ceiling = self.ceiling if self.pinned is None else self.pinned
        cap = None if ceiling is None else self._version(ceiling)
        assert self.busy.offer.ceiling == cap
        assert offer == {each for each in memory if cap is None or each <= cap}
        bounds = self.busy.offer.bounds
        assert (bounds is None) is (not offer)
        if bounds is not None:
            assert bounds.lowest <= bounds.highest
            if self.scheme.contiguous:
                assert offer == set(between(bounds.lowest, bounds.highest)), "nothing is missing"

    def _sends_and_refuses_truthfully(self, offer: Versions) -> None:
        in_service = {name: each for name, each in self.model.backends.items() if each.in_service}
        transparent = (
            self.model.opened and bool(in_service) and all(each.silent for each in in_service.values())
        )
        assert self.busy.offer.transparent is transparent
        for version in (None, *UNIVERSE[self.scheme.name]):
            decision = self.busy.ask(version)
            if isinstance(decision, Forward):
                self._is_sent_to_who_serves_it(decision, version, offer)
            else:
                assert not transparent
                assert isinstance(decision, Refuse)
                self._is_refused_for_good_reason(decision, version, offer)

    def _is_sent_to_who_serves_it(self, sent: Forward, version: Version | None, offer: Versions) -> None:
        known = self.model.backends[sent.member.backend.name]
        assert known.in_service
        if self.busy.offer.transparent:
            return
        settled = sent.resolution.version
        assert settled is not None
        assert settled in offer
        assert version in (None, settled)
        assert settled in (known.versions or ())
        assert settled not in sent.member.contradicted

    def _is_refused_for_good_reason(self, refused: Refuse, version: Version | None, offer: Versions) -> None:
        """For good only outside the offer; inside it, for now, and only if nobody can take it."""
        final = refused.verdict is not Verdict.UNAVAILABLE
        assert refused.reply.status == (406 if final else 503)
        assert final is (bool(offer) and version is not None and version not in offer)
        wanted = min(offer, default=None) if version is None else version
        for member in self.busy.view.pool.in_service:
            if wanted in offer and wanted in (self.model.backends[member.backend.name].versions or ()):
                assert wanted is not None
                assert wanted in member.contradicted, "somebody could have served it"

    def _agree(self) -> None:
        """Two gateways that were told the same at the same times, however often one of them looks."""
        seen = self.lazy.snapshot.knowing(self.lazy.snapshot.fleet, self.lazy.now).views["toy"]
        assert seen.offer == self.busy.offer
        assert seen.memory == self.busy.view.memory

    @invariant()
    def the_phase_is_told(self) -> None:
        offer, speaking = self.busy.offer, [each.versions for each in self.model.in_service if each.versions]
        if not self.model.promised and not offer.transparent:
            assert offer.phase is Phase.UNKNOWN
        elif len(set(speaking)) > 1:
            assert offer.phase is Phase.MIXED
        elif frozenset(offer.versions) != self.model.promised:
            assert offer.phase is Phase.CAPPED
        elif set(speaking) - {frozenset(offer.versions)}:
            assert offer.phase is Phase.SETTLING
        else:
            assert offer.phase is Phase.UNIFORM
            assert (offer.held_by, offer.held_rule) == ((), None)

    # -- values

    def _version(self, index: int) -> Version:
        universe = UNIVERSE[self.scheme.name]
        return universe[index % len(universe)]

    def _versions(self, advert: Said) -> Versions:
        return frozenset(map(self._version, advert[0]))

    def _advert(self, advert: Said) -> Advert:
        return Advert(VersionSet.only(*self._versions(advert)), silent=advert[1])

    def _service(
        self, policy: tuple[Policy, AtLeast], settle: float, ceiling: int | None, members: Listed
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
            settle=settle,
            ceiling=None if ceiling is None else self._version(ceiling),
        )

    def _enlisted(self, members: Listed, before: dict[str, Known]) -> dict[str, Known]:
        """Known of before stays known at the same address, unless it was or is declared."""
        found = {}
        for name, port, advert in members:
            was = before.get(name)
            was = was if was is not None and was.port == port else Known(port)
            declared = None if advert is None else self._versions(advert)
            if declared is None and was.declared is None:
                found[name] = was
            else:
                found[name] = Known(port, declared, declared, drained=was.drained)
        return found

    # -- to both gateways and the model

    def _undeclared(self, who: str) -> Known | None:
        known = self.model.backends.get(who)
        return known if known is not None and known.declared is None else None

    def _heard(self, known: Known, advert: Said, at: float) -> None:
        if at >= known.heard_at:
            known.versions, known.silent, known.heard_at = self._versions(advert), advert[1], at

    def _observe(self, who: str, fact: Fact) -> None:
        self.busy.observe(who, fact)
        self.lazy.observe(who, fact)

    def _obey(self, order: Order) -> None:
        self.busy.obey(order)
        self.lazy.obey(order)

    def _learned(self) -> None:
        self.model.learn(self.busy.now)


Upgrades.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestUpgrades = Upgrades.TestCase
