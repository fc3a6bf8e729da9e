"""The gateway offers what docs/semantics.md says, at every step of random upgrades, rollbacks and faults.

The rule is written a second time in `offer_model`, from the page alone. Both get the same facts and commands
at the same times. After each step the offer, the pending versions, the phase and what holds the offer are
compared.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

import pytest

from gateway.core.days import DAY, midnight
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    Drain,
    Fact,
    OperatorCommand,
    PassiveObservation,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
    Raise,
)
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Scheme, Semantic, Version
from tests.core.builders import Toy
from tests.kit.examples import examples
from tests.model import offer_model
from tests.model.offer_model import Known, Model, Pair

NAMES: Final = ("a", "b", "c", "d")
STEPS: Final = 250
"""Steps of one fleet."""
FIRST_DAY: Final = date(2030, 1, 1)
LEGACY: Final[frozenset[Pair]] = frozenset({(1, 1)})
POLICIES: Final = (
    *(offer_model.Policy("guaranteed"), offer_model.Policy("reachable")),
    *(offer_model.Policy("at_least", number) for number in (1, 2, 3)),
    *(offer_model.Policy("at_least", percent, percent=True) for percent in (34, 50)),
)


class ToyWithLegacy(Toy):
    """Legacy backends stand for 1.1."""

    legacy_versions = VersionSet.only(Version(1, 1))


class SetOfVersions(ToyWithLegacy):
    """Versions that are a set: gaps are on offer, too."""

    def __init__(self) -> None:
        super().__init__(scheme=Semantic())


@dataclass
class Run:
    """One service in the gateway and in the model, at the same moment."""

    rng: random.Random
    unbroken: bool
    stabilization: float
    now: float = 0.0
    today: int = 0
    ports: dict[str, int] = field(default_factory=dict)
    next_port: int = 1000
    history: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    mostly_legacy: bool = field(init=False)
    snapshot: Snapshot = field(init=False)
    model: Model = field(init=False)

    def __post_init__(self) -> None:
        policy = self.rng.choice(POLICIES)
        self.mostly_legacy = self.rng.random() < 0.15
        backends = {name: self.new_backend(name) for name in NAMES[: self.rng.randint(1, 3)]}
        self.model = Model(self.unbroken, LEGACY, self.stabilization, policy, backends)
        self.snapshot = Snapshot.configured([self.service()], now=self.now)
        self.model.reload(policy, backends, self.now)

    # --- the same thing in both ---------------------------------------------------------------------------

    def service(self) -> Service:
        """The service as the model has it configured."""
        policy = self.model.policy
        dialect = ToyWithLegacy() if self.unbroken else SetOfVersions()
        scheme: Scheme = MajorMinor() if self.unbroken else dialect.scheme
        assert dialect.scheme.key == scheme.key
        backends = tuple(
            Backend(
                name,
                "test",
                self.ports[name],
                declared=self.gateway_set(each.last_report or frozenset()) if each.declared else None,
                leaves_at=self.now + 300 if each.leaving else None,
            )
            for name, each in self.model.backends.items()
        )
        return Service(
            "toy",
            dialect,
            backends,
            policy=Policy(policy.name),
            at_least=AtLeast(policy.number, percent=policy.percent)
            if policy.name == "at_least"
            else AtLeast(1),
            stabilization=self.stabilization,
            negotiates_legacy=self.model.negotiates_legacy,
            ceiling=self.gateway_limit(self.model.file_ceiling),
            floor=self.gateway_limit(self.model.file_floor),
            lifecycle=None if self.model.sunset is None else self.lifecycle(*self.model.sunset),
        )

    def lifecycle(self, below: Pair, day: int) -> Lifecycle:
        return Lifecycle(None, Line(self.gateway_version(below), FIRST_DAY + timedelta(day)), enforce=True)

    def new_backend(self, name: str) -> Known:
        self.next_port += 1
        self.ports[name] = self.next_port
        if not self.mostly_legacy and self.rng.random() < 0.1:
            return Known(declared=True, last_report=self.versions(), probed=True)
        return Known()

    def versions(self) -> frozenset[Pair]:
        """What a backend serves: mostly a range from 1.1, like the releases of one product."""
        kind = self.rng.random()
        if kind < 0.75:
            return _range(1, 1, self.rng.randint(1, 6))
        if kind < 0.9:
            low = self.rng.randint(1, 5)
            return _range(1, low, self.rng.randint(low, 6))
        if kind < 0.95:
            return _range(2, 0, self.rng.randint(0, 2))
        return _range(1, 1, self.rng.randint(1, 2)) | _range(1, 4, self.rng.randint(4, 6))

    def gateway_set(self, versions: frozenset[Pair]) -> VersionSet:
        return VersionSet.only(*(self.gateway_version(each) for each in sorted(versions)))

    def gateway_version(self, pair: Pair) -> Version:
        return Version(*pair) if self.unbroken else Version(*pair, 0)

    def gateway_limit(self, pair: Pair | None) -> Version | None:
        return None if pair is None else self.gateway_version(pair)

    def pairs(self, versions: VersionSet) -> frozenset[Pair]:
        return frozenset(
            pair
            for pair in ((major, minor) for major in (1, 2) for minor in range(8))
            if self.gateway_version(pair) in versions
        )

    # --- steps ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """A random fact or command after a random time; then both are compared."""
        pauses = (0.0, 0.1, 1.0, self.stabilization / 2, self.stabilization, 3 * self.stabilization, 200.0)
        self.pass_time(self.now + (4000.0 if self.rng.random() < 0.01 else self.rng.choice(pauses)))
        legacy = self.mostly_legacy and len(self.history) < STEPS // 4
        kind = self.rng.choices(
            (
                "probe",
                "fail",
                "legacy",
                "observe",
                "drain",
                "pin",
                "reload",
                "restart",
                "look",
                "raise",
                "day",
                "leave",
            ),
            (0, 18, 38, 0, 8, 3, 5, 2, 6, 0, 2, 0) if legacy else (30, 18, 8, 6, 8, 3, 5, 2, 6, 3, 2, 4),
        )[0]
        getattr(self, f"_{kind}")()
        self.look_at_calendar()
        self.seen[kind] += 1
        self.compare()

    def pass_time(self, to: float) -> None:
        """The gateway's timer wakes it whenever something is due."""
        while (due := self.snapshot.due) is not None and due <= to:
            after = self.snapshot.with_fleet(self.snapshot.fleet, due)
            self.now = max(self.now, due)
            if after is self.snapshot:
                break
            self.snapshot = after
        self.now = to

    def observe(self, name: str, fact: Fact) -> None:
        fleet = self.snapshot.fleet.observe("toy", name, fact)
        self.snapshot = self.snapshot.with_fleet(fleet, self.now)

    def a_backend(self) -> tuple[str, Known]:
        return self.rng.choice(list(self.model.backends.items()))

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:g}: {text}")

    def _probe(self) -> None:
        name, known = self.a_backend()
        versions = known.last_report if known.declared and known.last_report else self.versions()
        self.note(f"{name} serves {sorted(versions)}")
        self.observe(name, ProbeSucceeded(Advertisement(self.gateway_set(versions)), self.now))
        if not known.declared:
            self.model.probe_succeeded(name, versions, self.now)

    def _fail(self) -> None:
        name, known = self.a_backend()
        self.note(f"{name} does not answer")
        self.observe(name, ProbeFailed("down", self.now))
        if not known.declared:
            self.model.probe_failed(name, self.now)

    def _legacy(self) -> None:
        name, known = self.a_backend()
        if known.declared:
            return
        self.note(f"{name} looks legacy")
        advertisement = Advertisement(self.gateway_set(LEGACY), legacy=True)
        self.observe(name, ProbeSucceeded(advertisement, self.now))
        self.model.probe_was_legacy(name, self.now)

    def _observe(self) -> None:
        name, known = self.a_backend()
        if known.declared or not known.probed or known.last_report is None:
            return  # it gets no request
        versions = self.versions()
        self.note(f"{name} said {sorted(versions)}")
        self.observe(name, PassiveObservation(Advertisement(self.gateway_set(versions)), self.now))
        self.model.observed(name, versions, self.now)

    def _drain(self) -> None:
        name, known = self.a_backend()
        drained = not known.drained
        self.note(f"drain {name}: {drained}")
        self.apply(Drain(name, drained))
        self.model.drain(name, drained, self.now)

    def _pin(self) -> None:
        """Only pins that show something: others are refused."""
        self.model.look(self.now)
        pins = [None, *sorted(self.model.offered)]
        pin = self.rng.choice(pins)
        self.note(f"pin {pin}")
        self.apply(Pin(self.gateway_limit(pin)))
        self.model.pinned = pin

    def _raise(self) -> None:
        """Only floors that leave something: others are refused. None lowers it."""
        self.model.look(self.now)
        floor = self.rng.choice([None, *sorted(self.model.capped)])
        self.note(f"raise {floor}")
        self.apply(Raise(self.gateway_limit(floor)))
        self.model.raised = floor

    def _day(self) -> None:
        self.today += 1
        self.note(f"day {self.today}")

    def look_at_calendar(self) -> None:
        """As the gateway does at each reload, and when a day comes."""
        view = self.snapshot.views["toy"]
        sunset = view.service.passed_sunset(float(midnight(FIRST_DAY) + self.today * DAY))
        raised = view.members.raised
        if (after := raised.at_sunset(sunset, view.service.floor)) is not raised:
            self.apply(Raise(after.floor, after))
            self.seen["raised by the clock"] += 1
        self.model.calendar(self.today)

    def apply(self, command: OperatorCommand) -> None:
        fleet = self.snapshot.fleet.apply("toy", command)
        self.snapshot = self.snapshot.with_fleet(fleet, self.now)

    def _reload(self) -> None:
        backends = dict(self.model.backends)
        if len(backends) > 1 and self.rng.random() < 0.6:
            del backends[self.rng.choice(list(backends))]
        if self.rng.random() < 0.5:
            free = [name for name in NAMES if name not in backends]
            if free:
                name = self.rng.choice(free)
                backends[name] = self.new_backend(name)
        policy = self.rng.choice(POLICIES) if self.rng.random() < 0.4 else self.model.policy
        refuse = self.rules_for_legacy()
        if self.rng.random() < 0.3:
            self.model.file_floor = self.rng.choice([None, (1, 2), (1, 4)])
            self.model.sunset = self.rng.choice(
                [None, *(((1, low), self.today + low % 3) for low in (2, 3, 5))]
            )
        if self.rng.random() < 0.3:
            self.model.file_ceiling = self.rng.choice([None, None, (1, 1), (1, 3), (1, 5)])
        self.note(f"reload: {policy} {list(backends)} refuse={refuse} {self.model.sunset}")
        self.reload(policy, backends, refuse=refuse)

    def _leave(self) -> None:
        """Its source names a backend no more, or again. Nothing on offer goes with it."""
        name, known = self.a_backend()
        if known.declared:
            return
        self.model.look(self.now)
        known.leaving, known.absent = not known.leaving, True
        self.note(f"{name} leaves: {known.leaving}")
        self.reload(self.model.policy, self.model.backends, refuse=self.model.negotiates_legacy)

    def reload(self, policy: offer_model.Policy, backends: dict[str, Known], *, refuse: bool) -> None:
        self.model.reload(policy, backends, self.now, negotiates_legacy=refuse)
        self.snapshot = Snapshot.configured([self.service()], now=self.now, after=self.snapshot)

    def rules_for_legacy(self) -> bool:
        """Whether the next configuration says `legacy: refuse`."""
        return self.model.negotiates_legacy is not (self.rng.random() < 0.3)

    def _restart(self) -> None:
        self.model.look(self.now)
        if not self.model.offered:
            return
        policy = self.rng.choice(POLICIES) if self.rng.random() < 0.4 else self.model.policy
        refuse = self.rules_for_legacy()
        self.note(f"restart: {policy} refuse={refuse}")
        saved = self.snapshot.saved()
        self.model.restart(policy, self.now, negotiates_legacy=refuse)
        self.snapshot = Snapshot.configured([self.service()], now=self.now, saved=saved)

    def _look(self) -> None:
        self.snapshot = self.snapshot.with_fleet(self.snapshot.fleet, self.now)
        self.model.look(self.now)

    # --- comparison -----------------------------------------------------------------------------------------

    def compare(self) -> None:
        self.model.look(self.now)
        view = self.snapshot.views["toy"]
        offer, model = view.offer, self.model
        rule, by = model.held
        floor = self.gateway_limit(model.floor)
        told = {
            "on offer": self.pairs(offer.versions),
            "beneath the ceiling": self.pairs(view.offer_state.versions),
            "pending": self.pairs(offer.pending),
            "transparent": offer.transparent,
            "floor": (offer.floor, offer.suspended),
            "phase": offer.phase.value,
            "held": (offer.held.rule.value if offer.held.rule else None, frozenset(offer.held.by)),
        }
        expected = {
            "on offer": model.shown,
            "beneath the ceiling": model.offered,
            "pending": frozenset(model.pending),
            "transparent": model.transparent,
            "floor": (
                floor,
                floor is not None
                and bool(model.shown)
                and floor > max(map(self.gateway_version, model.shown)),
            ),
            "phase": model.phase,
            "held": (rule, by),
        }
        self.seen[f"phase {model.phase}"] += 1
        self.seen[f"held {rule}"] += 1
        self.seen["transparent"] += model.transparent
        self.seen["suspended floor"] += offer.suspended
        self.seen["legacy alone offer"] += model.negotiates_legacy and model.legacy_only_offers
        wrong = {name: (value, expected[name]) for name, value in told.items() if value != expected[name]}
        assert not wrong, "\n".join(
            [f"{name}: the gateway says {got}, the page {due}" for name, (got, due) in wrong.items()]
            + self.history[-25:]
        )


def _range(major: int, low: int, high: int) -> frozenset[Pair]:
    return frozenset((major, minor) for minor in range(low, high + 1))


def run_fleets(steps: int, seed: int) -> Counter[str]:
    """So many steps, over fleets of every kind."""
    seen: Counter[str] = Counter()
    for number in range(steps // STEPS):
        rng = random.Random(f"{seed}/{number}")
        run = Run(rng, unbroken=number % 4 != 3, stabilization=rng.choice((0.0, 5.0, 60.0)))
        for _ in range(STEPS):
            run.step()
        seen.update(run.seen)
    return seen


def check_coverage(seen: Counter[str], steps: int) -> None:
    """Everything that the page names has happened."""
    expected = {
        *(f"phase {each}" for each in ("unknown", "mixed", "capped", "stabilizing", "uniform")),
        *(f"held {each}" for each in ("ceiling", "stabilization", "state", "guaranteed", "at_least", None)),
        *("transparent", "legacy alone offer", "raised by the clock", "suspended floor"),
    }
    rare = {each: seen[each] for each in expected if seen[each] < steps // 1000}
    assert not rare, rare


def test_the_offer_follows_the_page() -> None:
    steps = max(3_000, examples(10_000))  # with fewer not everything happens
    check_coverage(run_fleets(steps, seed=10), steps)


@pytest.mark.fuzz
def test_the_offer_follows_the_page_for_200_000_steps() -> None:
    steps = 200_000
    check_coverage(run_fleets(steps, seed=2010), steps)
