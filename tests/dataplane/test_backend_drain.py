"""An operator drains a backend: it gets no new request, running ones finish, and it can be stopped."""

from __future__ import annotations

import asyncio

from gateway.core.fleet.fleet import Drain
from tests.kit.backends import UpstreamConnection, ironic_response, serve
from tests.kit.clients import Client, Ended
from tests.kit.messages import request
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed


async def half_sent(gateway: Gateway, number: int) -> list[Client]:
    """`number` clients that have sent a POST except for its last three bytes."""
    clients = [await gateway.client() for _ in range(number)]
    for client in clients:
        await client.send(request("POST", body=b"hello")[:-3])
    await until(lambda: gateway.worker.report().in_flight_by_service.get("baremetal") == number)
    return clients


async def test_a_backend_drained_while_a_body_came_does_not_get_it(testbed: Testbed) -> None:
    """After `drain --wait` the operator may have stopped it."""
    first, second = await testbed.backend(), await testbed.backend()
    gateway = await testbed.gateway(first, second)
    clients = await half_sent(gateway, 8)

    gateway.snapshot_holder.apply("baremetal", Drain(first.name))

    for client in clients:
        assert (await client.request(b"llo", method="POST")).status == 200
    assert (len(first.requests), len(second.requests)) == (0, 8)


async def test_a_body_for_the_only_backend_that_was_drained_meanwhile_is_503(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, client_idle=0.1)
    (client,) = await half_sent(gateway, 1)

    gateway.snapshot_holder.apply("baremetal", Drain(backend.name))

    answer = await client.request(b"llo", method="POST")
    assert (answer.status, answer.every("retry-after")) == (503, [])
    assert not backend.requests
    assert await client.ended() == Ended(b"", aborted=False), (
        "the connection is idle afterwards, like any other"
    )


async def test_idle_connections_of_a_drained_backend_are_closed_and_running_requests_finish(
    testbed: Testbed,
) -> None:
    may_respond = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            if message.method == "PUT":
                await may_respond.wait()
            await upstream.send(ironic_response(message))

    gateway, backend = await testbed.gateway_and_backend(script)
    client, slow = await gateway.client(), await gateway.client()
    await slow.send(request("PUT", body=b"x"))
    await backend.received()
    assert (await client.request(request())).status == 200
    assert gateway.worker.report().connections["baremetal", "api-1"] == (1, 1)

    gateway.snapshot_holder.apply("baremetal", Drain("api-1"))
    await until(lambda: gateway.worker.report().connections["baremetal", "api-1"] == (0, 1))
    may_respond.set()

    assert (await slow.response()).status == 200
    await backend.disconnected()
