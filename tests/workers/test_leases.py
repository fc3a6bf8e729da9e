"""Who of several workers has how many leases: never more than there are, and nobody waits in vain."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.dataplane.limits.sharing import SharedLimits
from gateway.workers.leases import LeaseLedger
from gateway.workers.messages import Leases, LeaseUse
from tests.kit.examples import examples

KEY = "baremetal/api-1"


class LeaseUser:
    """A worker with requests that are in flight or wait, all for one member."""

    def __init__(self, workers: int) -> None:
        self.shared = SharedLimits(workers)
        self.in_flight = self.waiting = self.heard = self.ended = 0
        self.inbox: deque[Leases] = deque()
        self.outbox: deque[LeaseUse] = deque()

    def asks(self, requests: int) -> None:
        self.waiting += requests
        self.goes_on()

    def ends_one(self) -> None:
        self.in_flight -= 1
        self.ended += 1
        if KEY in self.shared.recalled and self.waiting:
            self.shared.give_turn(KEY, self.in_flight)
        self.goes_on()

    def receives(self) -> None:
        leases = self.inbox.popleft()
        for key, number in leases.granted.items():
            self.shared.leases[key] = self.shared.leases.get(key, 0) + number
        self.shared.recalled, self.shared.exhausted = leases.recalled, leases.exhausted
        self.heard = leases.number
        self.goes_on()

    def goes_on(self) -> None:
        while self.waiting and self.in_flight < self.shared.leases.get(KEY, 0):
            self.waiting -= 1
            self.in_flight += 1
        if KEY in self.shared.recalled:
            self.shared.give_idle(KEY, self.in_flight)
        self.outbox.append(LeaseUse(self.heard, dict(self.shared.released), {KEY: self.waiting}))
        self.shared.released.clear()


class Fleet:
    """Workers and their ledger, between which messages take as long as they are told to."""

    def __init__(self, workers: int, bound: int) -> None:
        self.ledger = LeaseLedger(workers)
        self.ledger.configure({KEY: bound})
        self.workers: dict[int, LeaseUser] = {}
        for number in range(workers):
            self.starts(number)

    def starts(self, number: int) -> None:
        self.workers[number] = LeaseUser(len(self.workers) + 1)
        self.ledger.joined(number)
        self.deal()

    def ends(self, number: int) -> None:
        del self.workers[number]
        self.ledger.left(number)
        self.deal()

    def held(self) -> dict[int, int]:
        """By worker how many it may be using."""
        stock = self.ledger._stocks.get(KEY)
        return {} if stock is None else dict(stock.held)

    def deal(self) -> None:
        for number, leases in self.ledger.deal():
            self.workers[number].inbox.append(leases)

    def hears(self, number: int) -> None:
        self.ledger.used(number, self.workers[number].outbox.popleft())
        self.deal()

    def deliver_all(self) -> int:
        """How many messages that took."""
        messages = 0
        while True:
            busy = [n for n, worker in self.workers.items() if worker.inbox or worker.outbox]
            if not busy:
                return messages
            for number in busy:
                while self.workers[number].inbox:
                    self.workers[number].receives()
                    messages += 1
                while self.workers[number].outbox:
                    self.hears(number)

    @property
    def in_flight(self) -> int:
        return sum(worker.in_flight for worker in self.workers.values())


def test_each_worker_begins_with_its_part_and_the_rest_is_lent() -> None:
    fleet = Fleet(4, 6)
    fleet.deliver_all()
    assert fleet.held() == {0: 1, 1: 1, 2: 1, 3: 1}

    fleet.workers[2].asks(3)
    fleet.deliver_all()

    assert fleet.workers[2].in_flight == 3


def test_what_others_do_not_use_goes_to_who_wants_it() -> None:
    fleet = Fleet(4, 64)
    fleet.deliver_all()

    fleet.workers[0].asks(64)
    fleet.deliver_all()

    assert fleet.workers[0].in_flight == 64
    assert fleet.deliver_all() == 0, "then nothing is said any more"


def test_a_single_lease_goes_round() -> None:
    """Each worker has always more to do: nobody waits more than three turns."""
    fleet = Fleet(4, 1)
    for worker in fleet.workers.values():
        worker.asks(1000)
    fleet.deliver_all()
    for _ in range(80):
        (busy,) = [worker for worker in fleet.workers.values() if worker.in_flight]
        busy.ends_one()
        fleet.deliver_all()
        assert fleet.in_flight == 1

    assert {worker.ended for worker in fleet.workers.values()} == {20}


def test_in_a_throng_everybody_gets_an_equal_part_and_keeps_it() -> None:
    fleet = Fleet(4, 6)
    fleet.workers[0].asks(1000)
    fleet.deliver_all()
    assert fleet.workers[0].in_flight == 6
    for number in (1, 2, 3):
        fleet.workers[number].asks(1000)
    fleet.deliver_all()
    for _ in range(12):
        for worker in fleet.workers.values():
            if worker.in_flight:
                worker.ends_one()
                fleet.deliver_all()
    assert sorted(fleet.held().values()) == [1, 1, 2, 2]

    messages = 0
    for worker in fleet.workers.values():
        worker.ends_one()
        messages += fleet.deliver_all()
    assert messages == 0, "a request that ends makes room for the next one of its worker"


def test_those_that_wait_hear_when_all_are_taken_and_not_before() -> None:
    fleet = Fleet(2, 2)
    fleet.deliver_all()
    fleet.workers[0].asks(2)
    first = fleet.workers[0]
    while first.outbox:
        fleet.hears(0)
    while first.inbox:
        first.receives()
    assert KEY not in first.shared.exhausted, "the other one may not need its own"
    fleet.deliver_all()
    assert first.in_flight == 2

    fleet.workers[1].asks(1)
    fleet.deliver_all()

    assert KEY in fleet.workers[1].shared.exhausted
    first.ends_one()
    fleet.deliver_all()
    assert fleet.workers[1].in_flight == 1
    assert not fleet.workers[1].shared.exhausted


def test_a_worker_that_ends_leaves_its_leases_to_others() -> None:
    fleet = Fleet(2, 2)
    fleet.workers[0].asks(2)
    fleet.workers[1].asks(5)
    fleet.deliver_all()
    fleet.ends(0)
    fleet.deliver_all()
    assert fleet.workers[1].in_flight == 2


def test_a_lower_bound_holds_as_soon_as_requests_end_and_a_higher_one_at_once() -> None:
    fleet = Fleet(2, 4)
    for worker in fleet.workers.values():
        worker.asks(9)
    fleet.deliver_all()
    fleet.ledger.configure({KEY: 1})
    fleet.deal()
    fleet.deliver_all()
    for _ in range(2):
        for worker in fleet.workers.values():
            worker.ends_one()
            fleet.deliver_all()
    assert fleet.in_flight == 1

    fleet.ledger.configure({KEY: 3})
    fleet.deal()
    fleet.deliver_all()
    assert fleet.in_flight == 3


def test_a_member_that_goes_and_comes_again_has_no_more_leases_than_before() -> None:
    fleet = Fleet(2, 2)
    fleet.workers[0].asks(2)
    fleet.deliver_all()
    fleet.ledger.configure({})
    fleet.deal()
    fleet.ledger.configure({KEY: 2})
    fleet.deal()
    fleet.deliver_all()
    fleet.workers[1].asks(2)
    fleet.deliver_all()
    assert fleet.in_flight == 2

    while fleet.in_flight:
        for worker in fleet.workers.values():
            while worker.in_flight:
                worker.ends_one()
        fleet.deliver_all()
    for _ in range(2):
        assert list(fleet.ledger.keys) == [KEY]
        fleet.ledger.configure({})
        fleet.deal()
        fleet.deliver_all()
    assert list(fleet.ledger.keys) == []


def test_those_that_wait_when_a_bound_is_removed_go_by_it() -> None:
    fleet = Fleet(2, 1)
    for worker in fleet.workers.values():
        worker.asks(2)
    fleet.deliver_all()
    fleet.ledger.configure({})
    fleet.deal()
    for _ in range(4):
        fleet.deliver_all()
        (busy,) = [worker for worker in fleet.workers.values() if worker.in_flight]
        busy.ends_one()
    fleet.deliver_all()
    assert fleet.held() == {}


class PermitLaws(RuleBasedStateMachine):
    """Messages that are late, workers that end and start, bounds that change."""

    @initialize(workers=st.integers(2, 4), bound=st.integers(1, 9))
    def begin(self, workers: int, bound: int) -> None:
        self.number = workers
        self.most = bound
        self.configured = True
        self.fleet = Fleet(workers, bound)

    def of(self, number: int) -> int:
        return sorted(self.fleet.workers)[number % len(self.fleet.workers)]

    @rule(number=st.integers(0, 3), requests=st.integers(1, 5))
    def requests_come(self, number: int, requests: int) -> None:
        self.fleet.workers[self.of(number)].asks(requests)

    @rule(number=st.integers(0, 3))
    def one_ends(self, number: int) -> None:
        worker = self.fleet.workers[self.of(number)]
        if worker.in_flight:
            worker.ends_one()

    @rule(number=st.integers(0, 3))
    def one_gives_up(self, number: int) -> None:
        worker = self.fleet.workers[self.of(number)]
        if worker.waiting:
            worker.waiting -= 1
            worker.goes_on()

    @rule(number=st.integers(0, 3))
    def a_worker_hears(self, number: int) -> None:
        worker = self.fleet.workers[self.of(number)]
        if worker.inbox:
            worker.receives()

    @rule(number=st.integers(0, 3))
    def the_main_process_hears(self, number: int) -> None:
        number = self.of(number)
        if self.fleet.workers[number].outbox:
            self.fleet.hears(number)

    @precondition(lambda self: len(self.fleet.workers) == self.number)
    @rule(number=st.integers(0, 3))
    def a_worker_is_replaced(self, number: int) -> None:
        number = self.of(number)
        self.fleet.ends(number)
        self.fleet.starts(number)

    @rule(bound=st.integers(0, 9))
    def the_bound_changes(self, bound: int) -> None:
        self.settle()
        if not bound and not self.configured:
            return
        self.configured = bound > 0
        self.most = bound or self.most  # without a bound those that wait go by the one before
        self.fleet.ledger.configure({KEY: bound} if bound else {})
        self.fleet.deal()
        self.fleet.deliver_all()

    def settle(self) -> None:
        """Everything ends, and everything is heard."""
        for _ in range(200):
            self.fleet.deliver_all()
            if not any(worker.in_flight or worker.waiting for worker in self.fleet.workers.values()):
                break
            for worker in self.fleet.workers.values():
                if worker.in_flight:
                    worker.ends_one()
        assert not any(worker.waiting for worker in self.fleet.workers.values()), "nobody waits in vain"

    @invariant()
    def never_more_than_there_are(self) -> None:
        assert self.fleet.in_flight <= self.most
        held = self.fleet.held()
        for number, worker in self.fleet.workers.items():
            assert worker.in_flight <= worker.shared.leases.get(KEY, 0) <= held.get(number, 0)
        assert sum(held.values()) <= self.most

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.settle()


TestPermitLaws = PermitLaws.TestCase
TestPermitLaws.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
