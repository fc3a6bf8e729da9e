"""An operator drains a backend: it gets nothing more at once, what runs there ends, and it can be stopped."""

from __future__ import annotations

import asyncio

from gateway.core.fleet import Drain
from tests.dataplane.stand import Client, Hop, House, Stand, ironic_reply, serve, until
from tests.dataplane.wire import Ended, request


async def half_sent(gateway: Stand, number: int) -> list[Client]:
    """So many clients that have sent all of a POST but its last three bytes."""
    clients = [await gateway.client() for _ in range(number)]
    for client in clients:
        await client.send(request("POST", body=b"hello")[:-3])
    await until(lambda: gateway.worker.in_flight().get("baremetal") == number)
    return clients


async def test_who_was_drained_while_a_body_came_does_not_get_it(house: House) -> None:
    """With `drain --wait` it may be stopped by now."""
    first, second = await house.backend(), await house.backend()
    gateway = await house.gateway(first, second)
    clients = await half_sent(gateway, 8)

    gateway.cell.obey("baremetal", Drain(first.name))

    for client in clients:
        assert (await client.ask(b"llo", method="POST")).status == 200
    assert (len(first.requests), len(second.requests)) == (0, 8)


async def test_where_nobody_takes_the_place_of_who_was_drained_it_is_503(house: House) -> None:
    gateway, backend = await house.behind(serve, client_idle=0.1)
    (client,) = await half_sent(gateway, 1)

    gateway.cell.obey("baremetal", Drain(backend.name))

    answer = await client.ask(b"llo", method="POST")
    assert (answer.status, answer.one("retry-after")) == (503, "2")
    assert not backend.requests
    assert await client.ended() == Ended(b"", aborted=False), "it is as idle as any other afterwards"


async def test_idle_connections_of_a_drained_backend_are_closed_and_running_requests_finish(
    house: House,
) -> None:
    ends = asyncio.Event()

    async def script(hop: Hop) -> None:
        while True:
            message = await hop.request()
            if message.method == "PUT":
                await ends.wait()
            await hop.say(ironic_reply(message))

    gateway, backend = await house.behind(script)
    client, slow = await gateway.client(), await gateway.client()
    await slow.send(request("PUT", body=b"x"))
    await backend.came()
    assert (await client.ask(request())).status == 200
    assert gateway.worker.connections()["baremetal", "api-1"] == (1, 1)

    gateway.cell.obey("baremetal", Drain("api-1"))
    await until(lambda: gateway.worker.connections()["baremetal", "api-1"] == (0, 1))
    ends.set()

    assert (await slow.reply()).status == 200
    await backend.gone()
