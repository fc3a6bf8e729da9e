"""What all workers share: several workers in one loop, connected by the real exchange, with every message
pickled on its way."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import Any, Final

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.selection import ALL_REQUESTS
from gateway.core.fleet.admission import ClientLimits
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.failures import Ejection
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.limits.client_limiter import ClientLimiter, client_key
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.local_responses.failures import Failure
from gateway.dataplane.worker import Worker
from gateway.telemetry.metrics import Metrics
from gateway.workers.messages import AttemptFailed, ClientUse, HeldBack
from gateway.workers.shares import BrokerClient, TokenBroker
from tests.dataplane.test_request_queue import Held, bounded, sent
from tests.kit.backends import ScriptedBackend
from tests.kit.clients import Client
from tests.kit.ironic import NEW, reconfigure, versions
from tests.kit.messages import request
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed, service_of

KEY: Final = "baremetal/api-1"
PLAN: Final = Ejection(failures=4, time=10.0, max_time=25.0, max_share=50)
CLIENT: Final = client_key(ip_address("127.0.0.1"))
"""The key of all clients here."""


class Fleet:
    """`number` workers of one gateway in front of `backends`, and their main process."""

    def __init__(self, testbed: Testbed, number: int, service: Service) -> None:
        self.testbed = testbed
        self.service = service
        self.main = SnapshotHolder(Snapshot.configured([service], now=0.0))
        self.metrics = Metrics()
        self.metrics.watch(self.main)
        self.told: list[str] = []
        self.broker = TokenBroker(
            self.main, self.metrics, monotonic, lambda key, text, _: self.told.append(text), number
        )
        self.gateways: list[Gateway] = []
        self.clients: list[BrokerClient] = []
        self.messages: list[object] = []
        """All that were sent, either way."""
        self.withheld: list[Callable[[], None]] | None = None
        """Deliveries of what clients have used, while `withhold` is in force."""

    @classmethod
    async def of(
        cls, testbed: Testbed, number: int, *backends: ScriptedBackend | Backend, **more: Any
    ) -> Fleet:
        fleet = cls(testbed, number, replace(service_of(*backends), **more))
        for slot in range(number):
            await fleet.start(slot, number)
        await fleet.quiet()
        return fleet

    async def start(self, slot: int, number: int) -> None:
        shared = SharedLimits(number)
        gateway = await self.testbed.gateway(*self.service.backends, shared=shared)
        reconfigure(gateway.snapshot_holder, [self.service])
        client = BrokerClient(
            shared, gateway.worker, self.sender(lambda each: self.broker.received(slot, each))
        )
        self.gateways.append(gateway)
        self.clients.append(client)
        self.broker.joined(slot, self.sender(client.received))

    def sender(self, deliver: Callable[[Any], None]) -> Callable[[object], None]:
        loop = asyncio.get_running_loop()

        def send(message: object) -> None:
            copy = pickle.loads(pickle.dumps(message))  # noqa: S301
            self.messages.append(message)
            if self.withheld is not None and isinstance(message, ClientUse):
                self.withheld.append(partial(deliver, copy))
            else:
                loop.call_soon(deliver, copy)

        return send

    def withhold(self) -> None:
        """From here on nobody hears what clients have used, until `deliver`."""
        self.withheld = []

    def deliver(self) -> None:
        withheld, self.withheld = self.withheld, None
        for each in withheld or ():
            each()

    async def quiet(self) -> None:
        """Until nothing more is said at once."""
        for _ in range(3):
            said = -1
            while said != len(self.messages):
                said = len(self.messages)
                for _ in range(5):
                    await asyncio.sleep(0)

    def reload(self, service: Service) -> None:
        for holder in (self.main, *(gateway.snapshot_holder for gateway in self.gateways)):
            reconfigure(holder, [service])

    def worker(self, slot: int) -> Worker:
        return self.gateways[slot].worker

    def leases(self, key: str = KEY) -> list[int]:
        return [gateway.worker.context.leases[key] for gateway in self.gateways]  # type: ignore[index]

    def member(self, name: str = "api-1") -> Member:
        member = self.main.current.fleet.member_sets["baremetal"].member(name)
        assert member is not None
        return member

    def fail(self, slot: int, times: int = 1, name: str = "api-1") -> None:
        for _ in range(times):
            self.worker(slot).context.ejections.failed(self.member(name), Failure.NO_REPLY, reused=False)

    def respond(self, slot: int, name: str = "api-1") -> None:
        ejections = self.worker(slot).context.ejections
        if ejections.watching:
            ejections.responded(self.member(name), 200)

    def limiter(self, slot: int) -> ClientLimiter:
        context = self.worker(slot).context
        context.request_reader(trusted=False)  # the next head finds the configuration in force
        return context.admission.limiters["baremetal"]

    async def close(self) -> None:
        await until(lambda: all(gateway.nothing_left() for gateway in self.gateways))
        for slot, client in enumerate(self.clients):
            self.broker.left(slot)
            client.close()


@pytest.fixture
async def fleets(testbed: Testbed) -> Any:
    made: list[Fleet] = []

    async def make(number: int, *backends: ScriptedBackend | Backend, **more: Any) -> Fleet:
        fleet = await Fleet.of(testbed, number, *backends, **more)
        made.append(fleet)
        return fleet

    yield make
    for fleet in made:
        for gateway in fleet.gateways:
            for client in gateway.clients:
                client.reset()
        await fleet.close()


# --- bounds of a backend -----------------------------------------------------------------------------------


async def test_a_backend_that_takes_one_request_gets_one_from_all_workers_together(
    testbed: Testbed, fleets: Any
) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(4, bounded(backend, 1, length=40))
    clients = [await sent(fleet.gateways[number % 4], f"/v1/nodes/{number}") for number in range(12)]
    for number in range(12):
        await backend.received(number + 1)
        held.let_go()
    for client in clients:
        assert (await client.response()).status == 200

    assert held.most_at_once == 1
    order = [int(message.target.rpartition("/")[2]) % 4 for message in backend.requests]
    assert all(sorted(order[at : at + 4]) == [0, 1, 2, 3] for at in (0, 4, 8)), "in turn"


async def test_a_busy_worker_gets_what_others_do_not_use(testbed: Testbed, fleets: Any) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 4))
    assert fleet.leases() == [2, 2]
    clients = [await sent(fleet.gateways[0]) for _ in range(4)]
    await backend.received(4)

    held.let_go(4)
    for client in clients:
        assert (await client.response()).status == 200
    await fleet.quiet()
    said = len(fleet.messages)
    held.let_go(1)
    assert (await fleet.gateways[0].request(request())).status == 200
    await fleet.quiet()
    assert len(fleet.messages) == said, "a request within the leases costs no message"


async def test_no_more_connections_than_it_takes_from_all_workers_together(
    testbed: Testbed, fleets: Any
) -> None:
    backend = await testbed.backend()
    fleet = await fleets(3, bounded(backend, 0, connections=1, length=9))
    most = 0

    async def client(gateway: Gateway) -> None:
        nonlocal most
        for _ in range(5):
            assert (await gateway.request(request())).status == 200
            most = max(
                most, sum(sum(each.worker.report().connections["baremetal", "api-1"]) for each in active())
            )

    def active() -> list[Gateway]:
        return [each for each in fleet.gateways if each.worker.report().connections]

    await asyncio.gather(*(client(gateway) for gateway in fleet.gateways))
    assert most == 1


async def test_without_a_queue_a_request_goes_where_another_worker_has_room(
    testbed: Testbed, fleets: Any
) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 2, length=0))
    clients = [await sent(fleet.gateways[0]) for _ in range(2)]
    await backend.received(2)
    refused = await fleet.gateways[0].request(request())
    assert refused.status == 503

    await fleet.quiet()
    other = fleet.gateways[1]
    assert (await other.request(request())).status == 503, "all are taken"
    held.let_go(2)
    for one in clients:
        assert (await one.response()).status == 200
    held.let_go()
    assert (await other.request(request())).status == 200, "they are free again, at the other worker"


async def test_the_queue_is_divided(testbed: Testbed, fleets: Any) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 1, length=3))
    clients = [await sent(fleet.gateways[0])]
    await backend.received()
    for gateway in fleet.gateways:
        clients += [await sent(gateway) for _ in range(2)]
    await until(
        lambda: all(gateway.worker.report().waiting_by_member == {KEY: 2} for gateway in fleet.gateways)
    )
    await fleet.quiet()
    for gateway in fleet.gateways:
        assert (await gateway.request(request())).status == 503
    held.let_go(5)
    for client in clients:
        assert (await client.response()).status == 200
    assert held.most_at_once == 1


async def test_what_a_worker_had_is_free_when_it_has_ended(testbed: Testbed, fleets: Any) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 1))
    first = await sent(fleet.gateways[0])
    await backend.received()
    second = await sent(fleet.gateways[1])
    await until(lambda: fleet.worker(1).report().waiting_by_member == {KEY: 1})
    await fleet.worker(0).abort()
    fleet.broker.left(0)
    await first.ended()

    await backend.received(2)
    held.let_go(2)
    assert (await second.response()).status == 200


async def test_a_reload_changes_a_bound_for_all(testbed: Testbed, fleets: Any) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 1, length=20))
    clients = [await sent(fleet.gateways[number % 2]) for number in range(6)]
    await backend.received()
    fleet.reload(replace(fleet.service, backends=(bounded(backend, 3, length=20),)))
    await backend.received(3)
    await fleet.quiet()
    assert len(backend.requests) == 3
    held.let_go(6)
    for client in clients:
        assert (await client.response()).status == 200
    assert held.most_at_once == 3


async def test_what_waits_when_a_bound_is_removed_goes_by_it(testbed: Testbed, fleets: Any) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, bounded(backend, 1, length=20))
    clients = [await sent(fleet.gateways[number % 2]) for number in range(6)]
    await backend.received()
    await until(
        lambda: sum(sum(each.worker.report().waiting_by_member.values()) for each in fleet.gateways) == 5
    )
    fleet.reload(replace(fleet.service, backends=(backend.backend,)))
    await fleet.quiet()
    held.let_go(6)
    for client in clients:
        assert (await client.response()).status == 200
    assert held.most_at_once == 1
    held.let_go(1)
    assert (await fleet.gateways[0].request(request())).status == 200


# --- ejection ----------------------------------------------------------------------------------------------


def two_backends() -> list[Backend]:
    return [Backend(f"api-{n}", "127.0.0.1", n, declared=versions(NEW)) for n in (1, 2)]


async def test_failures_at_all_workers_count_together(fleets: Any) -> None:
    fleet = await fleets(3, *two_backends(), ejection=PLAN)
    for slot in (0, 1, 2):
        fleet.fail(slot)
    await fleet.quiet()
    assert not fleet.broker.ejected()

    fleet.fail(1)
    await until(lambda: all(one.worker.context.held_back == {KEY: 0} for one in fleet.gateways))

    assert fleet.broker.held_back == {KEY: 0}
    assert set(fleet.broker.ejected()) == {KEY}
    (line,) = fleet.told
    assert line.startswith("ejected for 10 s: connections broke, or responses were invalid, 4 in")


async def test_an_answer_at_another_worker_ends_the_row(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=PLAN)
    fleet.fail(0, 3)
    await until(lambda: fleet.worker(1).context.ejections.watching)
    fleet.respond(1)
    await fleet.quiet()
    fleet.fail(0, 3)
    await fleet.quiet()
    assert not fleet.broker.ejected()


async def test_an_answer_is_told_once(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=PLAN)
    for _ in range(50):
        fleet.respond(0)
    assert not any(isinstance(each, AttemptFailed) for each in fleet.messages), "nobody has failed"

    fleet.fail(0)
    for _ in range(50):
        fleet.respond(0)
    told = [each for each in fleet.messages if isinstance(each, AttemptFailed)]
    assert [each.reason is None for each in told] == [False, True]


async def test_failures_of_a_backend_that_was_replaced_do_not_count(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=PLAN)
    for _ in range(4):
        fleet.broker.received(0, AttemptFailed(KEY, "http://127.0.0.1:99", next(iter(PLAN.on))))
    fleet.broker.received(0, AttemptFailed("gone/api-1", "", next(iter(PLAN.on))))
    assert not fleet.broker.ejected()


async def test_a_worker_that_starts_knows_who_is_ejected(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=PLAN)
    fleet.fail(0, 4)
    await until(lambda: fleet.worker(1).context.held_back == {KEY: 0})
    await fleet.start(2, 3)
    await fleet.quiet()
    assert fleet.worker(2).context.held_back == {KEY: 0}


async def test_all_workers_let_it_come_back_together(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=replace(PLAN, time=0.3))
    fleet.fail(0, 4)
    await fleet.quiet()
    async with asyncio.timeout(PATIENCE):
        while any(KEY in one.worker.context.held_back for one in fleet.gateways):
            shares = [one.worker.context.held_back.get(KEY, ALL_REQUESTS) for one in fleet.gateways]
            assert len(set(shares)) == 1
            await asyncio.sleep(0.01)
            await fleet.quiet()


# --- retries -----------------------------------------------------------------------------------------------


class Waiting:
    """A request that waits for its turn to be sent again."""

    def __init__(self) -> None:
        self.allowed = False

    def on_retry_allowed(self, failure: Failure) -> None:
        self.allowed = True

    def on_retry_expired(self, failure: Failure) -> None:
        raise AssertionError


async def test_three_retries_at_a_time_for_all_workers_and_where_they_are_wanted(fleets: Any) -> None:
    fleet = await fleets(4, *two_backends())
    budgets = [fleet.worker(slot).context.retry_budget for slot in range(4)]
    requests = {slot: [Waiting() for _ in range(3)] for slot in (1, 2)}

    def allowed() -> list[int]:
        return [sum(each.allowed for each in requests[slot]) for slot in (1, 2)]

    for each in requests[1]:
        budgets[1].enqueue("baremetal", each, Failure.NO_REPLY, 1e9)
    await fleet.quiet()
    assert allowed() == [3, 0]

    for each in requests[2]:
        budgets[2].enqueue("baremetal", each, Failure.NO_REPLY, 1e9)
    await fleet.quiet()
    assert allowed() == [3, 0]
    for _ in range(3):
        budgets[1].release("baremetal")
        await fleet.quiet()
    assert allowed() == [3, 3]
    for _ in range(3):
        budgets[2].release("baremetal")


# --- clients -----------------------------------------------------------------------------------------------


async def statuses(gateway: Gateway, number: int) -> list[int]:
    client = await gateway.client()
    return [(await client.request(request())).status for _ in range(number)]


def tokens_told(fleet: Any) -> int:
    """Tokens in all messages, however many these are: a worker says what was taken, the other one is told."""
    told = [each.tokens for each in fleet.messages if isinstance(each, ClientUse)]
    return sum(number for tokens in told for clients in tokens.values() for number in clients.values())


async def test_a_rate_holds_for_all_workers_together(testbed: Testbed, fleets: Any) -> None:
    limits = ClientLimits(rate=0.001, burst=6)
    fleet = await fleets(2, await testbed.backend(), client_limits=limits)
    assert await statuses(fleet.gateways[0], 4) == [200] * 4
    await until(lambda: tokens_told(fleet) == 2 * 4)
    await fleet.quiet()
    assert await statuses(fleet.gateways[1], 3) == [200, 200, 429]


async def test_what_was_taken_too_much_is_taken_off_afterwards(testbed: Testbed, fleets: Any) -> None:
    limits = ClientLimits(rate=0.01, burst=4)
    fleet = await fleets(2, await testbed.backend(), client_limits=limits)
    fleet.withhold()  # or a slow machine tells the second worker before it has taken any
    for gateway in fleet.gateways:
        assert await statuses(gateway, 5) == [200] * 4 + [429]
    fleet.deliver()
    await until(lambda: tokens_told(fleet) == 2 * 8)
    await fleet.quiet()
    for slot in range(2):
        assert 410 < fleet.limiter(slot).wait(CLIENT, monotonic()) < 501, "it owes four tokens, and needs one"


async def test_requests_in_flight_of_a_client_are_counted_at_all_workers(
    testbed: Testbed, fleets: Any
) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, backend, client_limits=ClientLimits(concurrency=2))
    clients: list[Client] = [await sent(fleet.gateways[0]) for _ in range(2)]
    await backend.received(2)
    await until(lambda: not fleet.limiter(1).has_room(CLIENT))
    assert (await fleet.gateways[1].request(request())).status == 429

    held.let_go(2)
    for client in clients:
        assert (await client.response()).status == 200
    await until(lambda: fleet.limiter(1).has_room(CLIENT))
    held.let_go()
    assert (await fleet.gateways[1].request(request())).status == 200


@pytest.mark.parametrize("end", ["it has ended", "a reload"])
async def test_nothing_stays_counted_for_a_worker_that_counts_no_more(
    testbed: Testbed, fleets: Any, end: str
) -> None:
    held = Held()
    backend = await testbed.backend(held)
    fleet = await fleets(2, backend, client_limits=ClientLimits(concurrency=1))
    client = await sent(fleet.gateways[0])
    await backend.received()
    await until(lambda: not fleet.limiter(1).has_room(CLIENT))
    if end == "a reload":
        service = fleet.service
        fleet.reload(replace(service, client_limits=ClientLimits()))
        for gateway in fleet.gateways:
            gateway.worker.context.request_reader(trusted=False)
        fleet.reload(replace(service))
        assert fleet.limiter(0).has_room(CLIENT), "it begins anew"
    else:
        fleet.broker.left(0)
    await until(lambda: fleet.limiter(1).has_room(CLIENT))
    held.let_go()
    assert (await client.response()).status == 200


# --- what it costs -----------------------------------------------------------------------------------------


async def test_without_limits_nothing_is_said(testbed: Testbed, fleets: Any) -> None:
    fleet = await fleets(2, await testbed.backend(), await testbed.backend())
    said = len(fleet.messages)
    for gateway in fleet.gateways:
        assert await statuses(gateway, 20) == [200] * 20
    await fleet.quiet()
    assert len(fleet.messages) == said


async def test_after_its_end_a_worker_is_told_nothing_and_heard_no_more(fleets: Any) -> None:
    fleet = await fleets(2, *two_backends(), ejection=PLAN)
    fleet.broker.left(1)
    fleet.broker.left(1)
    said = len(fleet.messages)
    fleet.broker.received(1, AttemptFailed(KEY, "", next(iter(PLAN.on))))
    fleet.broker.received(1, ClientUse({}, {}))
    fleet.clients[1].close()
    fleet.fail(1, 9)
    await fleet.quiet()
    assert not any(isinstance(each, HeldBack) for each in fleet.messages[said:])
    assert not fleet.broker.ejected()
