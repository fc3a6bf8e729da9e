"""What one process says to another of its snapshots: whoever is told the differences decides as the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.agreement.attachment import NOT_JOINED, NOTHING_AGREED, Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    AdvertisementRestored,
    ConnectFailed,
    Drain,
    Fact,
    HealthChecked,
    ObservedFact,
    PassiveObservation,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
    Raise,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.offer import NOT_HELD
from gateway.core.fleet.publication import publication, published
from gateway.core.fleet.service import AtLeast, Health, Match, Policy, Probe, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Named, Scheme, Version
from gateway.workers.channel import dumps, loads
from tests.core.builders import XY, Toy, backend, explained, service, upto
from tests.kit.examples import examples

NAMES: Final = ("one", "two", "three")
BACKENDS: Final = ("a", "b", "c", "d")
SCHEMES: Final[Mapping[str, Scheme]] = {
    "xy": XY,
    "names": Named(("v1alpha1", "v1", "v2")),
    "more names": Named(("v1alpha1", "v1alpha2", "v1", "v2beta1", "v2")),
}
TEXTS: Final = {
    "xy": ("1.0", "1.1", "1.2", "1.3", "1.4"),
    "names": ("v1alpha1", "v1", "v2"),
    "more names": ("v1alpha1", "v1alpha2", "v1", "v2"),
}
OPERATIONS: Final = Operations.of(
    [
        OperationRule(
            ("GET",), PathTemplate.read("/nodes/{id}"), VersionSet.between(Version(1, 2), Version(1, 9))
        )
    ]
)
CLIENTS: Final = ((), (Client("cron", "curl", {"X-Team": "a"}),))
UNTRUSTED: Final = (("x-user",), ("x-user", "x-role-*"))


# --- what is compared --------------------------------------------------------------------------------------


def described(snapshot: Snapshot) -> dict[str, object]:
    """All that is in a snapshot, with the times. Who is told has no vote: when its own would change, and for
    whom it would wait, is not known there."""
    voting = {name for name, view in snapshot.views.items() if view.agreed and view.agreed.voting}
    dues = {name: at for name, at in snapshot.dues.items() if name not in voting}
    return {
        "generation": snapshot.generation,
        "selected": snapshot.selected_names,
        "untrusted": snapshot.untrusted_headers,
        "clients": snapshot.clients.rules,
        "dues": dues,
        "due": snapshot.due if not voting else None,
        "members": [(name, repr(each)) for name, each in snapshot.fleet.member_sets.items()],
        "views": [
            (name, view.members, repr((view.offer_state, offer, view.agreed, dues.get(name))))
            for name, view in snapshot.views.items()
            for offer in [replace(view.offer, held=NOT_HELD) if name in voting else view.offer]
        ],
        "services": [described_service(view.service) for view in snapshot.views.values()],
    }


def described_service(one: Service) -> dict[str, object]:
    """Its configuration, but for what is compared by identity: the dialect, and who may use it."""
    found = {field.name: getattr(one, field.name) for field in fields(one)}
    del found["access"]
    return found | {
        "dialect": (type(one.dialect), one.dialect.scheme.key, one.dialect.default_version),
        "operations": repr(one.operations),  # two with other names of placeholders are equal
    }


def decisions(snapshot: Snapshot) -> list[Any]:
    """What happens to requests of every kind."""
    found = []
    for name in NAMES:
        for path in ("/nodes/7", "/doc", "/legacy", "/new", "/own"):
            headers: list[tuple[tuple[str, str], ...]] = [(), (("X-Version", "latest"),)]
            if path == "/nodes/7":
                headers += [(("X-Version", text),) for text in ("1.0", "1.3", "1.9", "v1", "v1alpha2", "no")]
            found += [explained(snapshot, "GET", f"/{name}{path}", each) for each in headers]
    return found


def others(one: Snapshot, other: Snapshot) -> list[str]:
    """In what they differ. Names alone: they are large."""
    here, there = described(one), described(other)
    return [name for name in here if here[name] != there[name]]


def sent(before: Snapshot | None, after: Snapshot) -> bytes:
    return dumps(publication(before, after))


def news(before: Snapshot, after: Snapshot) -> list[tuple[str, list[str]]]:
    """Of which services and members something else is known."""
    return [
        (view.service.name, [member.key for _, member in view.members.news_since(old.members)])
        for old, view in after.news_since(before)
        if old is not None
    ]


# --- what can happen ---------------------------------------------------------------------------------------


class ReadingToy(Toy):
    """Another dialect, which reads one more header."""

    name = "reading"
    reads = Toy.reads | {"x-more"}


class Written(NamedTuple):
    """A service as an operator writes it."""

    name: str
    scheme: str
    other_dialect: bool
    policy: Policy
    stabilization: float
    operations: bool
    health: bool
    narrow: bool
    """It takes only requests for nodes."""
    backends: tuple[tuple[str, int, bool], ...]
    """Name, port, and whether its versions are declared."""

    @property
    def service(self) -> Service:
        scheme = SCHEMES[self.scheme]
        declared = VersionSet.only(scheme.require(TEXTS[self.scheme][1]))
        return service(
            name=self.name,
            dialect=(ReadingToy if self.other_dialect else Toy)(scheme=scheme),
            backends=tuple(
                backend(name, port=port, declared=declared if is_declared else None)
                for name, port, is_declared in self.backends
            ),
            policy=self.policy,
            at_least=AtLeast(2),
            stabilization=self.stabilization,
            operations=OPERATIONS if self.operations and self.scheme == "xy" else Operations(),
            probe=Probe(health=Health("/health") if self.health else None),
            match=Match(path=f"/{self.name}/nodes" if self.narrow else f"/{self.name}"),
            written=repr(self),
        )


WRITTEN = st.builds(
    Written,
    st.just(""),
    st.sampled_from(("xy", "xy", "names", "more names")),
    st.sampled_from((False, False, False, True)),
    st.sampled_from(Policy),
    st.sampled_from((0.0, 3.0)),
    st.booleans(),
    st.booleans(),
    st.sampled_from((False, False, True)),
    st.lists(
        st.tuples(
            st.sampled_from(BACKENDS), st.sampled_from((80, 80, 81)), st.sampled_from((False, False, True))
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[0],
    ).map(tuple),
)
FILES = st.lists(
    st.tuples(st.sampled_from(NAMES), WRITTEN), min_size=1, max_size=3, unique_by=lambda each: each[0]
).map(lambda found: [written._replace(name=name) for name, written in found])
WHICH = st.integers(0, 8)
"""Of services, backends and versions, the one at this position, counted round."""
WORKERS: Final = 3


class Published(RuleBasedStateMachine):
    """One process learns; others are told at times of their own, and then have what it had."""

    @initialize(file=FILES, agreed=st.sampled_from((None, NOTHING_AGREED, NOT_JOINED)))
    def starts(self, file: Sequence[Written], agreed: Agreed | None) -> None:
        self.now = 100.0
        self.file = list(file)
        self.agreed = agreed
        self.snapshot = Snapshot.configured([each.service for each in file], now=self.now, agreed=self.agreed)
        self.told: list[tuple[Snapshot | None, Snapshot | None]] = [(None, None)] * WORKERS
        """For each worker the snapshot that it was told last, and the one that it made of that."""

    # -- what happens in the first process

    @rule(which=WHICH, member=WHICH, kind=WHICH, of=WHICH, lag=st.sampled_from((0.0, 0.0, 2.0)))
    def a_fact(self, which: int, member: int, kind: int, of: int, lag: float) -> None:
        self.snapshot = self.snapshot.after([self._fact(which, member, kind, of, lag)], self.now)

    @rule(of=WHICH, but=WHICH)
    def a_round_of_probes(self, of: int, but: int) -> None:
        self.snapshot = self.snapshot.after(
            [
                (name, each.name, ProbeSucceeded(self._advertisement(name, of + (at == but)), self.now))
                for name, view in self.snapshot.views.items()
                for at, each in enumerate(view.service.backends)
            ],
            self.now,
        )

    @rule(which=WHICH, member=WHICH, drained=st.booleans(), of=st.none() | WHICH)
    def a_command(self, which: int, member: int, drained: bool, of: int | None) -> None:
        name, one = self._service(which)
        fleet = self.snapshot.fleet.apply(name, Drain(self._backend(one, member), drained=drained))
        pin = Pin(None if of is None else self._version(name, of))
        floor = Raise(None if of is None else self._version(name, of - 1))
        self.snapshot = self.snapshot.with_fleet(fleet.apply(name, pin).apply(name, floor), self.now)

    @rule(seconds=st.sampled_from((1.0, 3.0, 10.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.snapshot = self.snapshot.after([], self.now)

    @rule(
        file=FILES,
        headers=st.sampled_from(UNTRUSTED),
        clients=st.sampled_from(CLIENTS),
        keep=st.booleans(),
        turn=st.booleans(),
    )
    def a_reload(
        self,
        file: list[Written],
        headers: tuple[str, ...],
        clients: tuple[Client, ...],
        keep: bool,
        turn: bool,
    ) -> None:
        """Some services stay as they are written, most times."""
        if keep:
            named = {each.name: each for each in file[1:]}
            file = [named.get(each.name, each) for each in self.file]
        self.file = file[::-1] if turn else file
        self.snapshot = Snapshot.configured(
            [each.service for each in self.file],
            now=self.now,
            after=self.snapshot,
            untrusted_headers=headers,
            clients=clients,
            agreed=self.agreed,
        )

    @rule(which=WHICH, found=st.sampled_from(("a", "a", "ab", "b", "")), leaves=st.booleans())
    def others_are_discovered(self, which: int, found: str, leaves: bool) -> None:
        _, one = self._service(which)
        leaves_at = self.now + 5.0 if leaves else None
        backends = [
            replace(backend(f"{name}.found"), source="dns", leaves_at=leaves_at if at == 0 else None)
            for at, name in enumerate(found)
        ]
        changed = one.with_backends(backends, undiscovered=not found)
        self.snapshot = self.snapshot.with_discovered([changed], self.now)

    @rule(which=WHICH, low=WHICH, high=WHICH, attached=st.booleans(), passes=st.sampled_from(("", "t", "l")))
    def is_agreed(self, which: int, low: int, high: int, attached: bool, passes: str) -> None:
        if self.agreed is None:
            return
        name, _ = self._service(which)
        offered = self._versions(name, low)
        both = offered | self._versions(name, high)
        before = self.snapshot.views[name].agreed
        seq = 1 if before is None or before.record is None else before.record.seq + 1
        record = AgreedRecord(seq, "guaranteed", offered, offered, both, both)
        agreed = Agreed(record, attached, passes == "t", self.agreed.voting, passes == "l")
        self.snapshot = self.snapshot.with_agreed({name: agreed}, self.now)

    # -- what is told

    @rule(worker=st.integers(1, WORKERS - 1))
    def is_told_of_much(self, worker: int) -> None:
        self._tell(worker)
        _, after = self.told[worker]
        assert after is not None
        assert decisions(after) == decisions(self.snapshot)

    @invariant()
    def one_of_them_is_told_of_everything_at_once(self) -> None:
        if hasattr(self, "told") and self.told[0][0] is not self.snapshot:
            self._tell(0)

    def _tell(self, worker: int) -> None:
        before, had = self.told[worker]
        after = published(had, loads(sent(before, self.snapshot)))
        self.told[worker] = self.snapshot, after
        assert not others(after, self.snapshot)
        if before is not None and had is not None:
            self._stays_the_same(before, had, after)

    def _stays_the_same(self, before: Snapshot, had: Snapshot, after: Snapshot) -> None:
        for name, view in self.snapshot.views.items():
            old = before.views.get(name)
            if old is not None:
                assert (after.views[name] is had.views[name]) is (view is old)
                assert after.views[name].service is had.views[name].service or view.service is not old.service
                same = after.fleet.member_sets[name].knows_the_same(had.fleet.member_sets[name])
                assert same or not self.snapshot.fleet.member_sets[name].knows_the_same(
                    before.fleet.member_sets[name]
                )
                for mine in after.views[name].service.backends:
                    assert mine not in had.views[name].service.backends or any(
                        mine is each for each in had.views[name].service.backends
                    )
        assert (after.views is had.views) or (self.snapshot.views is not before.views)
        assert news(had, after) == news(before, self.snapshot)

    @rule(which=WHICH, member=WHICH, kind=WHICH, of=WHICH, lag=st.sampled_from((0.0, 0.0, 2.0)))
    def a_fact_on_top(self, which: int, member: int, kind: int, of: int, lag: float) -> None:
        """Whoever has been told learns the same from a fact as the first process would."""
        fact = self._fact(which, member, kind, of, lag)
        scheme_id = self.snapshot.views[fact[0]].service.scheme_id
        for before, had in self.told:
            if before is None or had is None:
                continue
            view = before.views.get(fact[0])
            if view is None or view.service.scheme_id == scheme_id:  # in another one it is no fact
                there, here = had.after([fact], self.now), before.after([fact], self.now)
                assert not others(there, here)

    @invariant()
    def a_view_that_agrees_never_stands_alone(self) -> None:
        if hasattr(self, "agreed"):
            alone = [name for name, view in self.snapshot.views.items() if view.agreed is None]
            assert self.agreed is None or not alone

    # -- what is drawn

    def _service(self, which: int) -> tuple[str, Service]:
        views = list(self.snapshot.views.values())
        one = views[which % len(views)].service
        return one.name, one

    def _backend(self, one: Service, which: int) -> str:
        return one.backends[which % len(one.backends)].name if one.backends else "nobody"

    def _scheme(self, name: str) -> tuple[Scheme, tuple[str, ...]]:
        scheme = self.snapshot.views[name].service.dialect.scheme
        key = next(key for key, each in SCHEMES.items() if each.key == scheme.key)
        return scheme, TEXTS[key]

    def _version(self, name: str, which: int) -> Version:
        scheme, texts = self._scheme(name)
        return scheme.require(texts[which % len(texts)])

    def _versions(self, name: str, which: int) -> VersionSet:
        """From the first one up to one of them."""
        scheme, texts = self._scheme(name)
        return VersionSet.only(*map(scheme.require, texts[: which % len(texts) + 1]))

    def _advertisement(self, name: str, which: int) -> Advertisement:
        if which == 0:
            return Advertisement(VersionSet(), legacy=True)
        return Advertisement(self._versions(name, which))

    def _fact(self, which: int, member: int, kind: int, of: int, lag: float) -> ObservedFact:
        name, one = self._service(which)
        at = self.now - lag
        advertisement = self._advertisement(name, of)
        facts: tuple[Fact, ...] = (
            ProbeSucceeded(advertisement, at),
            ProbeSucceeded(advertisement, at, prompted=True),
            ProbeFailed("no connection", at),
            PassiveObservation(advertisement, at),
            ConnectFailed(at, "refused"),
            VersionMismatch(self._version(name, of), at, f"/{of % 2}"),
            ServedVersionMissing(at),
            HealthChecked("503" if of % 2 else None, at),
            AdvertisementRestored(advertisement, at),
        )
        return name, self._backend(one, member), facts[kind]


TestPublished = Published.TestCase
TestPublished.settings = settings(max_examples=examples(40), stateful_step_count=25)


# --- how much is said --------------------------------------------------------------------------------------


def large(services: int, backends: int) -> Snapshot:
    """All is known of everybody, and agreed on."""
    everyone = upto(58).versions
    record = AgreedRecord(3, "guaranteed", everyone, everyone, everyone, everyone)
    everything = [
        service(*(f"api-{at}" for at in range(backends)), name=f"s{number}") for number in range(services)
    ]
    first = Snapshot.configured(everything, now=0.0, agreed=Agreed(record))
    return first.after(probed(everything, 1.0), 1.0)


def probed(services: Iterable[Service], at: float) -> list[ObservedFact]:
    return [(one.name, each.name, ProbeSucceeded(upto(58), at)) for one in services for each in one.backends]


@pytest.mark.parametrize("services, backends", [(1, 1000), (1000, 1)])
def test_what_is_said_is_as_large_as_what_has_changed(services: int, backends: int) -> None:
    before = large(services, backends)
    one = before.views["s0"].service
    agreed = before.views["s0"].agreed
    assert agreed is not None
    assert agreed.record is not None
    next_step = replace(agreed, record=replace(agreed.record, seq=4))
    changes = {
        "fails": before.after([("s0", "api-0", ProbeFailed("no connection", 2.0))], 2.0),
        "is only newer": before.after([("s0", "api-0", ProbeSucceeded(upto(58), 2.0))], 2.0),
        "advertises more": before.after([("s0", "api-0", ProbeSucceeded(upto(60), 2.0))], 2.0),
        "drained": before.with_fleet(before.fleet.apply("s0", Drain("api-0")), 2.0),
        "pinned": before.with_fleet(before.fleet.apply("s0", Pin(Version(1, 5))), 2.0),
        "raised": before.with_fleet(before.fleet.apply("s0", Raise(Version(1, 3))), 2.0),
        "agreed": before.with_agreed({"s0": next_step}, 0.0),
        "found": before.with_discovered([replace(one, backends=(*one.backends, backend("new")))], 2.0),
    }

    sizes = {what: len(sent(before, after)) for what, after in changes.items()}
    everything = len(sent(None, before))

    assert max(sizes.values()) < 4096, sizes
    assert everything < 1_500_000
    record = len(dumps(agreed))
    assert sizes["fails"] < record, "it holds no record"


def test_nothing_is_said_when_nothing_has_changed() -> None:
    before = large(2, 2)

    said = publication(before, before)

    assert not said.services
    assert published(before, said).views is before.views
    assert published(before, said).fleet is before.fleet


def test_a_member_is_said_without_its_backend_and_a_service_without_those_that_stay() -> None:
    before = large(1, 3)
    one = before.views["s0"].service
    more = replace(one, backends=(one.backends[2], backend("new"), replace(one.backends[0])))
    difference = publication(before, before.with_discovered([more], 2.0))

    said = difference.services["s0"]
    assert said.service == {}
    assert said.backends == [2, backend("new"), 0]
    assert not any(isinstance(value, Backend) for each in said.members.values() for value in each.values())

    had = published(None, publication(None, before))
    there = published(had, difference)
    old, new = (each.fleet.member_sets["s0"].all for each in (had, there))
    assert (new[0], new[2]) == (old[2], old[0])
    assert new[0] is old[2]
    assert new[2] is old[0]


def test_heads_are_read_anew_by_a_worker_that_is_told_of_other_headers_only() -> None:
    """The data plane makes its readers again when the routes are other ones."""
    before = large(1, 1)
    services = [view.service for view in before.views.values()]
    after = Snapshot.configured(services, now=2.0, after=before, untrusted_headers=("X-Acme",))
    had = published(None, publication(None, before))

    assert published(had, publication(before, after)).routes is not had.routes


def test_a_publication_for_somebody_who_has_something_else_is_no_snapshot() -> None:
    before = large(1, 1)
    after = before.after([("s0", "api-0", ProbeFailed("no connection", 2.0))], 2.0)

    with pytest.raises((AssertionError, KeyError, IndexError)):
        published(None, publication(before, after))


def test_services_are_told_in_their_order_and_without_those_that_are_gone() -> None:
    one, two, three = (service("a", name=name, match=Match(path=f"/{name}")) for name in NAMES)
    before = Snapshot.configured([one, two], now=0.0)
    after = Snapshot.configured([three, one], now=1.0, after=before)

    there = published(published(None, publication(None, before)), publication(before, after))

    assert list(there.views) == list(there.fleet.member_sets) == ["three", "one"]
    assert there.routes.find("any", "/two/x") is None
    found: Any = there.routes.find("any", "/three/x")
    assert found.service == "three"


def test_one_that_leaves_and_comes_back_does_so_for_everybody() -> None:
    before = large(1, 2)
    one = before.views["s0"].service
    leaving = replace(one, backends=(one.backends[0], replace(one.backends[1], leaves_at=9.0)))
    left = before.with_discovered([leaving], 2.0)
    back = left.with_discovered([one], 3.0)
    [_, member] = back.fleet.member_sets["s0"].all
    assert member.returned

    there = published(None, publication(None, before))
    there = published(there, publication(before, left))
    there = published(there, publication(left, back))

    assert not others(there, back)
    assert not others(published(None, publication(None, back)), back)


def test_a_backend_of_which_nothing_is_known_goes_over_to_the_new_scheme_too() -> None:
    few, more = (service("a", dialect=Toy(scheme=SCHEMES[key])) for key in ("names", "more names"))
    before = Snapshot.configured([few], now=0.0)
    after = Snapshot.configured([more], now=1.0, after=before)

    there = published(published(None, publication(None, before)), publication(before, after))

    assert not others(there, after)
