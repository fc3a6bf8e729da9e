"""Replicas that learn at different times and hold the present record or the one before: what a request gets
from each of them, and where they end once all know the same."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.agreement.attachment import NOT_JOINED, Agreed
from gateway.core.agreement.ladder import LiveReplica, all_transparent, legacy_only, next_record
from gateway.core.agreement.record import AgreedRecord
from gateway.core.decision.decision import Refuse, decide
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from tests.core.builders import XY, legacy, service, upto, v
from tests.kit.examples import examples

STABILIZATION = 4.0
LONG = 1000.0
"""Seconds: longer than any version waits that has fallen."""
NUMBER = 3
WHICH = st.integers(0, NUMBER - 1)
BACKENDS = st.sampled_from("ab")
FOUND = st.sampled_from((upto(5), upto(9), upto(9), upto(9, 3), legacy("1.1"), legacy(), None))
VERSIONS = [v(f"1.{minor}") for minor in range(1, 11)]


class SkewedReplicas(RuleBasedStateMachine):
    """All are attached. Their steps are `next_record`'s, their views those of the snapshot."""

    @initialize(policies=st.lists(st.sampled_from(Policy), min_size=NUMBER, max_size=NUMBER))
    def begin(self, policies: list[Policy]) -> None:
        """The policies differ while a changed file is put in force, one replica after the other."""
        self.now = 1.0
        self.record: AgreedRecord | None = None
        self.replicas = [
            Snapshot.configured(
                [service("a", "b", stabilization=STABILIZATION, policy=policy)], now=0.0, agreed=NOT_JOINED
            )
            for policy in policies
        ]
        self.holds = [0] * NUMBER
        for at in range(NUMBER):
            self.adopts(at)

    def _live(self) -> dict[str, LiveReplica]:
        found = (each.vote("toy", self.now) for each in self.replicas)
        return {
            str(at): LiveReplica(seq, *own)
            for at, (seq, own) in enumerate(zip(self.holds, found, strict=True))
        }

    @rule(at=WHICH, name=BACKENDS, found=FOUND)
    def learns(self, at: int, name: str, found: Advertisement | None) -> None:
        fact = ProbeFailed("no connection", self.now) if found is None else ProbeSucceeded(found, self.now)
        self.replicas[at] = self.replicas[at].after([("toy", name, fact)], self.now)

    @rule(found=FOUND, lacks=st.none() | WHICH)
    def all_but_one_learn(self, found: Advertisement | None, lacks: int | None) -> None:
        for at in range(NUMBER):
            if at != lacks:
                self.learns(at, "a", found)
                self.learns(at, "b", found)

    @rule(at=WHICH)
    def adopts(self, at: int) -> None:
        replicas = self._live().values()
        agreed = Agreed(
            self.record,
            transparent=all_transparent(self.record, replicas),
            voting=True,
            legacy_only=legacy_only(self.record, replicas),
        )
        self.replicas[at] = self.replicas[at].with_agreed({"toy": agreed}, self.now)
        self.holds[at] = 0 if self.record is None else self.record.seq

    @rule(adopt=st.booleans())
    def a_step(self, adopt: bool) -> None:
        live = self._live()
        found = next_record(self.record, live, list(live), None, XY)
        self.record = found or self.record
        if adopt or found is None:
            for at in range(NUMBER):
                self.adopts(at)

    @rule(at=WHICH, found=st.sampled_from((upto(5), upto(9))))
    def one_is_ahead_after_a_change(self, at: int, found: Advertisement) -> None:
        """All see it, have seen it stand, and one of them adopts whatever record there is."""
        self.all_but_one_learn(found, None)
        self.time_goes_by(LONG)
        for _ in range(4):
            self.a_step(adopt=False)
            self.adopts(at)
            self.nobody_refuses_what_another_offers()

    @rule(seconds=st.sampled_from((1.0, STABILIZATION, LONG)))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.replicas = [each.after([], self.now) for each in self.replicas]

    @rule(name=BACKENDS)
    def all_come_to_know_the_same(self, name: str) -> None:
        """The last file is everywhere, and every backend is of the new release."""
        one = service("a", "b", stabilization=STABILIZATION)
        self.replicas = [
            Snapshot.configured([one], now=self.now, after=each, agreed=NOT_JOINED) for each in self.replicas
        ]
        for _ in range(2):
            for at in range(NUMBER):
                for backend in ("a", "b") if name == "a" else ("b", "a"):
                    self.learns(at, backend, upto(9))
            self._rests()
            self.time_goes_by(LONG)
        self._rests()

        for each in self.replicas:
            offer = each.views["toy"].offer
            assert offer.versions == upto(9).versions
            assert (offer.held.rule, offer.moving, offer.transparent) == (None, False, False)

    def _rests(self) -> None:
        for at in range(NUMBER):
            self.adopts(at)
        for _ in range(20):
            before = self.record
            self.a_step(adopt=True)
            self.nobody_refuses_what_another_offers()
            if self.record is before:
                return
        raise AssertionError("the ladder does not come to rest")

    @invariant()
    def nobody_refuses_what_another_offers(self) -> None:
        if not hasattr(self, "replicas"):
            return
        for version in VERSIONS:
            told = any(version in each.views["toy"].offer.versions for each in self.replicas)
            head = RequestHead("GET", "/x", "", (("x-version", XY.format(version)),))
            decisions = [decide(each, head, "api.test", {}, 0, {}) for each in self.replicas]
            assert not told or not any(
                isinstance(each, Refuse) and each.response.status == 406 for each in decisions
            )


SkewedReplicas.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30)
TestSkewedReplicas = SkewedReplicas.TestCase
