"""Several workers: never offered by one and refused by another, and in the end what one alone would offer.

Random upgrades, failures, roll-backs, commands, reloads and restarts; every message late, workers that die
and are replaced, a slow disk, a main process that is killed and whose workers go on, take-overs.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from gateway.core.agreement.record import Level
from gateway.core.decision.decision import Decision, Forward, NegotiationResult, Refuse, as_detached, decide
from gateway.core.decision.routing import Routes
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.version import Version
from tests.controlplane.several_workers import ManyWorkers
from tests.core.builders import XY
from tests.core.test_upgrade_laws import UNIVERSE, Upgrades
from tests.kit.examples import examples

WHICH = st.integers(0, 3)
REFUSED = {NegotiationResult.BELOW_MIN, NegotiationResult.ABOVE_MAX}


class Workers(Upgrades):
    """`busy` has workers beside what one alone would have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[ServiceView, tuple[frozenset[Version], frozenset[Version]]] = {}

    def _timeline(self, one: Service) -> ManyWorkers:
        self.many = ManyWorkers(one)
        return self.many

    def teardown(self) -> None:
        if hasattr(self, "many"):
            self.many.close()

    # -- what happens beside the upgrade

    @rule(which=WHICH)
    def a_worker_gets_its_update(self, which: int) -> None:
        if workers := self.many.process.workers:
            workers[which % len(workers)].gets_it()

    @rule(which=st.lists(WHICH, min_size=1, max_size=6))
    def workers_acknowledge(self, which: list[int]) -> None:
        """And the next update is sent."""
        process = self.many.process
        for each in which:
            if process.workers:
                worker = process.workers[each % len(process.workers)]
                self.many.do(lambda worker=worker: process.acknowledges(worker))  # type: ignore[misc]
                process.sends(worker)

    @rule(which=WHICH)
    def a_worker_is_killed(self, which: int) -> None:
        self.many.do(lambda: self.many.process.ends_a_worker(which))

    @rule()
    def a_worker_is_started(self) -> None:
        if not self.many.process.alone and len(self.many.process.workers) < 4:
            self.many.process.starts_a_worker()

    @rule()
    def the_disk_is_stuck(self) -> None:
        self.many.disk.stuck = True

    @rule()
    def the_disk_is_done(self) -> None:
        self.many.do(self.many.disk.is_done)

    @rule()
    def the_orphans_have_drained(self) -> None:
        self.many.orphans_end()

    @rule(workers=st.sampled_from((0, 2)))
    def is_taken_over(self, workers: int) -> None:
        if self.many.earlier is not None or not self.busy.view.members.all_probed:
            return
        self.many.is_taken_over(workers)
        self.lazy.look()
        self.lazy.restart(self.busy.view.service)
        self.before = frozenset()

    @rule()
    def the_earlier_process_ends(self) -> None:
        self.many.earlier_one_ends()

    # -- what holds

    @invariant()
    def none_offers_what_another_refuses(self) -> None:
        if not hasattr(self, "many"):
            return
        both = [self._serves_and_refuses(view) for view in self.many.views()]
        for serves, _ in both:
            for _, refuses in both:
                assert not serves & refuses

    @invariant()
    def live_workers_are_one_level_apart(self) -> None:
        if not hasattr(self, "many"):
            return
        agreed = [snapshot.views["toy"].agreed for snapshot in self.many.process.serving()]
        for version in UNIVERSE[self.scheme.name]:
            levels = {each.level(version) for each in agreed if each is not None}
            assert max(levels, default=Level.REFUSED) - min(levels, default=Level.REFUSED) <= 1

    @rule()
    def in_the_end_they_offer_what_one_alone_offers(self) -> None:
        self.many.rest()
        busy = self.busy.view
        if not busy.offer_state.initialized and busy.offer_state.round_ended is None:
            return  # after a restart, before anything is known: the records that stood go on standing
        for view in self.many.views():
            assert view.offer.versions == busy.offer.versions
            assert view.offer.transparent is busy.offer.transparent
            assert view.offer == busy.offer
            for version in (None, *UNIVERSE[self.scheme.name]):
                assert _told(_sent(view, version)) == _told(_sent(busy, version))

    def _serves_and_refuses(self, view: ServiceView) -> tuple[frozenset[Version], frozenset[Version]]:
        """An orphan that negotiates nothing offers nothing: it passes on to legacy backends until it has
        drained, while the next process may have begun to negotiate."""
        found = self.seen.get(view)
        if found is None:
            serves, refuses = set(), set()
            for version in UNIVERSE[self.scheme.name]:
                decision = _sent(view, version)
                assert isinstance(decision, Forward | Refuse)
                if isinstance(decision, Refuse) and decision.result in REFUSED:
                    refuses.add(version)
                elif _is_transparent(view) and not _is_attached(view):
                    continue
                elif isinstance(decision, Forward) or _stands(view, version):
                    serves.add(version)
            found = self.seen[view] = frozenset(serves), frozenset(refuses)
        return found


def _stands(view: ServiceView, version: Version) -> bool:
    """Whether it would be served if a backend could."""
    if view.agreed is None:
        return version in view.offer.versions or view.offer.transparent
    return _is_transparent(view) or view.agreed.level(version) >= Level.ACCEPTED


def _is_transparent(view: ServiceView) -> bool:
    return view.agreed is not None and view.agreed.transparent


def _is_attached(view: ServiceView) -> bool:
    return view.agreed is None or view.agreed.attached


def _sent(view: ServiceView, version: Version | None) -> Decision:
    """A request for exactly `version`, or for none, to whoever holds `view`."""
    service = view.service
    fields = () if version is None else (("x-version", service.dialect.scheme.format(version)),)
    names = service.dialect.reads | service.dialect.owned_request
    snapshot = Snapshot(
        1, Routes.of([service]), {service.name: view}, Fleet({service.name: view.members}), names
    )
    decision = decide(snapshot, RequestHead("GET", "/x", "", fields), "api.test", {}, 0, {})
    if isinstance(decision, Refuse) and not _is_attached(view):
        return as_detached(decision)
    return decision


def _told(decision: Decision) -> tuple[str, ...]:
    """What a client notices of it."""
    assert isinstance(decision, Forward | Refuse)
    if isinstance(decision, Refuse):
        return str(decision.response.status), decision.result.value
    return "sent", decision.resolution.version_text


Workers.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=40)
TestWorkers = Workers.TestCase


def test_who_joins_while_steps_are_saved_is_not_left_behind() -> None:
    """While no worker is live, all steps are taken at once. A worker that joins before they are saved holds
    none of them, and the others must not be more than one level ahead of it."""
    state = Workers()
    policy = (Policy.GUARANTEED, AtLeast(50, percent=True))
    state.configure(XY, policy, 0.0, None, [("d", 80, None)], [])
    state.the_disk_is_stuck()
    state.is_observed_in_a_response("d", (frozenset({0, 1, 2}), False), 0.0)
    state.workers_acknowledge([0])
    state.the_disk_is_done()
    state.workers_acknowledge([1, 1])
    state.live_workers_are_one_level_apart()
    state.none_offers_what_another_refuses()
    state.teardown()


def test_an_orphan_that_negotiates_nothing_does_not_hold_the_first_offer() -> None:
    state = Workers()
    policy, newer = (Policy.GUARANTEED, AtLeast(50, percent=True)), (frozenset({0, 1, 2}), False)
    state.configure(XY, policy, 0.0, None, [("a", 80, None)], [(frozenset(), True)])
    state.a_round_of_probes((frozenset(), True), (frozenset(), True), set())
    state.workers_acknowledge([0] * 4)
    state.only_its_policy_changes(add=False, restarts=True, first=[(frozenset(), True)])
    assert [_is_transparent(view) for view in state.many.views()] == [True]
    state.is_probed("a", newer, 0.0)
    state.workers_acknowledge([0, 0])
    assert [bool(view.offer.versions) for view in state.many.views()] == [True, False]
    state.none_offers_what_another_refuses()
    state.teardown()


def test_who_takes_over_does_not_refuse_what_a_worker_of_the_other_one_still_serves() -> None:
    """It is handed a record that not every worker has: what that one has open, the one before accepted."""
    state = Workers()
    policy, all_of_it = (Policy.GUARANTEED, AtLeast(1)), (frozenset({7}), False)
    state.configure(XY, policy, 0.0, None, [("a", 80, None)], [])
    state.in_the_end_they_offer_what_one_alone_offers()
    state.is_probed("a", all_of_it, 0.0)
    state.in_the_end_they_offer_what_one_alone_offers()
    state.is_pinned(0)
    state.workers_acknowledge([0, 1, 0, 1])
    state.is_taken_over(0)
    state.is_probed("a", (frozenset({0, 1, 2}), False), 0.0)
    state.none_offers_what_another_refuses()
    state.teardown()


def test_who_takes_over_refuses_nothing_while_the_other_one_negotiates_nothing() -> None:
    """It passes on whatever comes until it has ended: its backends were legacy when it held still."""
    state = Workers()
    state.configure(XY, (Policy.GUARANTEED, AtLeast(1)), 0.0, None, [("a", 80, None)], [None])
    state.is_taken_over(0)
    state.the_earlier_process_ends()
    state.is_probed("a", (frozenset({1}), True), 0.0)
    state.is_taken_over(0)
    state.is_probed("a", (frozenset({0, 1, 2}), False), 0.0)
    state.none_offers_what_another_refuses()
    state.in_the_end_they_offer_what_one_alone_offers()
    state.teardown()
