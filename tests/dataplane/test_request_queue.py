"""Bounds of a backend, and the queue of the requests that wait for room."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.connections import Queue
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.service import Policy
from gateway.dataplane.exchange.stages import Stage
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import ScriptedBackend, UpstreamConnection, ironic_response, refusing_backend, serve
from tests.kit.clients import Client
from tests.kit.ironic import OLD, reconfigure
from tests.kit.messages import KIB, Message, request, version_line
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, reload, service_of

HOUR = 3600.0


class Held:
    """A script that answers a request only once it is let go."""

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(0)
        self.at_once = self.most_at_once = 0

    async def __call__(self, upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self.turn.acquire()
            self.at_once -= 1
            await upstream.send(ironic_response(message))

    def let_go(self, number: int = 1) -> None:
        for _ in range(number):
            self.turn.release()


def bounded(
    backend: ScriptedBackend,
    requests: int = 1,
    *,
    length: int = 9,
    timeout: float = HOUR,
    connections: int = 0,
) -> Backend:
    return replace(
        backend.backend,
        max_requests=requests,
        max_connections=connections,
        queue=Queue(length, timeout),
    )


async def sent(gateway: Gateway, path: str = "/v1/nodes", *lines: str) -> Client:
    client = await gateway.client()
    await client.send(request("GET", path, *lines))
    return client


def queued(gateway: Gateway) -> int:
    return sum(gateway.worker.context.request_queue.waiting_by_member.values())


@pytest.mark.parametrize("by_connections", [False, True])
async def test_requests_wait_in_their_order_and_never_more_than_the_bound_are_sent(
    testbed: Testbed, by_connections: bool
) -> None:
    held = Held()
    backend = await testbed.backend(held)
    bound = bounded(backend, 0, connections=2) if by_connections else bounded(backend, 2)
    gateway = await testbed.gateway(bound)
    clients = []
    for number in range(7):
        clients.append(await sent(gateway, f"/v1/nodes/{number}"))
        await until(lambda number=number: len(gateway.stages) == number + 1)  # type: ignore[misc]
        if number < 2:
            await backend.received(number + 1)
    assert queued(gateway) == 5
    assert gateway.worker.report().waiting_by_member == {"baremetal/api-1": 5}
    newcomers = 0
    for number in range(7):
        held.let_go()
        assert (await clients[number].response()).status == 200
        if number == 3:  # it must not take the place of those that wait
            clients.append(await sent(gateway, "/v1/nodes/7"))
            newcomers += 1
    held.let_go(newcomers)
    assert (await clients[7].response()).status == 200

    assert [message.target for message in backend.requests] == [f"/v1/nodes/{n}" for n in range(8)]
    assert held.most_at_once == 2
    assert backend.connections == 2
    assert queued(gateway) == 0


async def test_one_with_room_is_preferred_to_waiting(testbed: Testbed) -> None:
    held = Held()
    one, other = await testbed.backend(held), await testbed.backend()
    gateway = await testbed.gateway(bounded(one), other)
    gateway.prefer(0, of=2)
    first = await sent(gateway)
    await one.received()

    for _ in range(3):
        assert (await gateway.request(request())).status == 200

    assert len(other.requests) == 3
    held.let_go()
    assert (await first.response()).status == 200


async def test_without_a_place_in_a_queue_the_client_gets_503(testbed: Testbed) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend, length=1))
    first = await sent(gateway)
    await backend.received()
    second = await sent(gateway)
    await until(lambda: queued(gateway) == 1)

    refused = await gateway.request(request())

    assert_ironic_error(refused, 503)
    assert gateway.records[0].reason == "queue_full"
    assert gateway.records[0].backend == "none"
    labels = {"service": "baremetal", "backend": "api-1"}
    assert gateway.metric("skewgate_queue_refused_total", reason="queue_full", **labels) == 1
    held.let_go(2)
    for client in (first, second):
        assert (await client.response()).status == 200


async def test_a_request_that_waits_too_long_gets_503(testbed: Testbed) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend, timeout=0.05))
    first = await sent(gateway)
    await backend.received()

    assert_ironic_error(await gateway.request(request()), 503)

    assert gateway.records[0].reason == "queue_timeout"
    assert gateway.metric("skewgate_queue_refused_total", reason="queue_timeout") == 1
    assert queued(gateway) == 0
    held.let_go()
    assert (await first.response()).status == 200
    assert len(backend.requests) == 1


async def test_a_client_that_goes_leaves_the_queue(testbed: Testbed) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend))
    first = await sent(gateway, "/v1/nodes/first")
    await backend.received()
    gone, last = await sent(gateway, "/v1/nodes/gone"), await sent(gateway, "/v1/nodes/last")
    await until(lambda: queued(gateway) == 2)

    gone.reset()
    await until(lambda: queued(gateway) == 1)
    held.let_go(2)

    for client in (first, last):
        assert (await client.response()).status == 200
    assert [message.target for message in backend.requests] == ["/v1/nodes/first", "/v1/nodes/last"]


async def test_what_waits_for_a_version_does_not_hold_up_others(testbed: Testbed) -> None:
    """Only the new server serves 1.80. The first that waits cannot go to the old one, the second can."""
    new_held, old_held = Held(), Held()
    new, old = await testbed.backend(new_held), await testbed.backend(old_held, declared=OLD)
    gateway = await testbed.gateway(bounded(new), bounded(old))
    reload(gateway, policy=Policy.REACHABLE)
    busy = [await sent(gateway, "/v1/nodes/a", version_line("1.80"))]
    await new.received()
    busy.append(await sent(gateway, "/v1/nodes/b", version_line("1.20")))
    await old.received()
    waits_for_new = await sent(gateway, "/v1/nodes/c", version_line("1.80"))
    await until(lambda: queued(gateway) == 1)
    waits_for_any = await sent(gateway, "/v1/nodes/d", version_line("1.20"))
    await until(lambda: queued(gateway) == 2)

    old_held.let_go(2)

    assert (await waits_for_any.response()).status == 200
    assert old.requests[-1].target == "/v1/nodes/d"
    assert queued(gateway) == 1
    new_held.let_go(2)
    for client in (*busy, waits_for_new):
        assert (await client.response()).status == 200


async def test_a_drained_member_releases_its_queue_to_others(testbed: Testbed) -> None:
    """A backup does not help out while the other one is only full. Once it is drained, it gets the queue."""
    held = Held()
    one, backup = await testbed.backend(held), await testbed.backend()
    gateway = await testbed.gateway(bounded(one), replace(backup.backend, backup=True))
    first = await sent(gateway)
    await one.received()
    waiting = [await sent(gateway) for _ in range(3)]
    await until(lambda: queued(gateway) == 3)
    assert not backup.requests

    gateway.snapshot_holder.apply("baremetal", Drain("api-1"))

    for client in waiting:
        assert (await client.response()).status == 200
    assert len(backup.requests) == 3
    held.let_go()
    assert (await first.response()).status == 200


async def test_where_nobody_is_left_the_queue_ends(testbed: Testbed) -> None:
    """Its last member is drained: nobody serves the version any more."""
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend))
    first = await sent(gateway)
    await backend.received()
    waiting = await sent(gateway)
    await until(lambda: queued(gateway) == 1)

    gateway.snapshot_holder.apply("baremetal", Drain("api-1"))

    assert_ironic_error(await waiting.response(), 503)
    assert gateway.records[0].reason == "version"
    held.let_go()
    assert (await first.response()).status == 200


async def test_what_waits_during_a_reload_goes_by_the_old_bound(testbed: Testbed) -> None:
    """As any request that is under way: its service stays the one that it came to."""
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend))
    clients = [await sent(gateway) for _ in range(3)]
    await until(lambda: queued(gateway) == 2)

    reconfigure(gateway.snapshot_holder, [service_of(bounded(backend, 9))])
    clients.append(await sent(gateway))

    await backend.received(2)  # the newcomer
    held.let_go(4)
    for client in clients:
        assert (await client.response()).status == 200
    assert held.most_at_once <= 2


async def test_what_waits_since_before_a_reload_does_not_hold_up_what_came_after_it(testbed: Testbed) -> None:
    """The one waits for the members that it knows, the other also for a new one."""
    old_held, new_held = Held(), Held()
    old, new = await testbed.backend(old_held), await testbed.backend(new_held)
    gateway = await testbed.gateway(bounded(old))
    before = [await sent(gateway) for _ in range(2)]
    await until(lambda: queued(gateway) == 1)

    reconfigure(gateway.snapshot_holder, [service_of(bounded(old), bounded(new))])
    after = [await sent(gateway) for _ in range(2)]
    await until(lambda: queued(gateway) == 2)
    new_held.let_go(2)

    for client in after:
        assert (await client.response()).status == 200
    assert (len(old.requests), len(new.requests)) == (1, 2)
    old_held.let_go(2)
    for client in before:
        assert (await client.response()).status == 200


@pytest.mark.parametrize("size", [10, 200 * KIB], ids=["held", "streamed"])
async def test_a_body_waits_as_well(testbed: Testbed, size: int) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend))
    first = await sent(gateway)
    await backend.received()
    client = await gateway.client()
    upload = asyncio.ensure_future(client.request(request("POST", body=b"x" * size)))
    await until(lambda: queued(gateway) == 1)

    held.let_go(2)

    assert (await upload).status == 200
    assert (await first.response()).status == 200
    assert len(backend.requests[1].body) == size


async def test_after_a_failed_connection_it_waits_for_another_member(testbed: Testbed) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(refusing_backend(), bounded(backend))
    gateway.prefer(1, of=2)
    first = await sent(gateway)
    await backend.received()
    gateway.prefer(0, of=2)

    second = await sent(gateway)
    await until(lambda: gateway.stages.count(Stage.QUEUED) == 1)
    held.let_go(2)

    for client in (first, second):
        assert (await client.response()).status == 200
    assert (await gateway.recorded(2)).attempts == 2


async def test_what_may_have_been_executed_is_not_told_to_be_refused(testbed: Testbed) -> None:
    """A request that was sent once waits for another attempt in vain: it gets the 502 of the first."""

    async def no_reply(upstream: UpstreamConnection) -> None:
        await upstream.request()

    held = Held()
    dying, busy = await testbed.backend(no_reply), await testbed.backend(held)
    gateway = await testbed.gateway(dying, bounded(busy, timeout=0.05))
    gateway.prefer(1, of=2)
    first = await sent(gateway)
    await busy.received()
    gateway.prefer(0, of=2)

    assert_ironic_error(await gateway.request(request()), 502)

    assert gateway.records[0].reason == "no_reply"
    held.let_go()
    assert (await first.response()).status == 200


async def test_the_drain_of_the_gateway_is_not_held_up(testbed: Testbed) -> None:
    held = Held()
    backend = await testbed.backend(held)
    gateway = await testbed.gateway(bounded(backend))
    clients = [await sent(gateway) for _ in range(2)]
    await until(lambda: queued(gateway) == 1)

    await gateway.drain(0.05)

    for client in clients:
        assert (await client.ended()).rest == b""
    assert queued(gateway) == 0


async def test_an_unbounded_service_is_not_touched(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    answers: list[Message] = await asyncio.gather(*(gateway.request(request()) for _ in range(30)))
    assert {answer.status for answer in answers} == {200}
    assert len(backend.requests) == 30
