"""Clients that leave, bodies that grow too large, reloads, too many at once: nothing is left behind."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio

from gateway.core.snapshot import Snapshot
from tests.dataplane.stand import (
    NEW,
    OLD,
    Hop,
    House,
    serve,
    service_of,
    versions,
)
from tests.dataplane.troubles import KIB, clock, hold, told_as_ironic
from tests.dataplane.wire import SERVED, chunked, reply, request

# --- clients that leave ------------------------------------------------------------------------------------


async def test_D6_a_client_that_resets_after_its_request_ends_the_exchange(house: House) -> None:
    gateway, backend = await house.behind(hold)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await backend.came()
    client.reset()

    await backend.gone()
    seen = await gateway.told()
    assert (seen.status, seen.error) == (0, "client_gone")
    assert len(backend.requests) == 1


async def test_D6_a_client_that_resets_in_the_middle_of_its_body(house: House) -> None:
    ends: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        ends.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    head = request("PUT", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"20000\r\n" + b"x" * 131072 + b"\r\n")
    await backend.came()
    client.reset()

    await backend.gone()
    assert not ends[0].endswith(b"0\r\n\r\n")
    assert (await gateway.told()).error == "client_gone"


async def test_D6_a_client_that_resets_in_the_middle_of_its_reply(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, "Content-Length: 1000") + b"begun")
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"begun")
    client.reset()

    await backend.gone()
    assert (await gateway.told()).error == "client_gone"


async def test_D6_churn_leaves_nothing_behind(house: House) -> None:
    gateway, _ = await house.behind(serve)
    for number in range(60):
        client = await gateway.client()
        if number % 3 == 0:
            client.writer.write(request()[: number % 50 + 1])
        elif number % 3 == 1:
            client.writer.write(request("POST", "/v1/x", "Content-Length: 9999") + b"x" * number)
        else:
            client.writer.write(request() * 5)
        if number % 2:
            await asyncio.sleep(0)
        client.reset()

    assert (await gateway.ask(request())).status == 200


async def test_D6_a_client_that_only_stops_talking_still_gets_its_reply(house: House) -> None:
    may_answer = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        await may_answer.wait()
        await hop.say(reply(200, body=b"late"))

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    client.finish()
    await backend.came()
    may_answer.set()

    assert (await client.reply()).body == b"late"
    assert await client.ended() == (b"", False)


async def test_D6_a_client_that_stops_talking_in_the_middle_of_a_request_is_closed(house: House) -> None:
    gateway, backend = await house.behind(serve)
    for begun in (b"GET /v1/no", request("POST", "/v1/x", "Content-Length: 9") + b"x"):
        client = await gateway.client()
        await client.send(begun)
        client.finish()
        assert not (await client.ended()).aborted
    assert not backend.requests


# --- bodies that are too large -----------------------------------------------------------------------------


async def test_a_body_that_grows_too_large_is_413_and_the_end(house: House) -> None:
    gateway, backend = await house.behind(serve, limits={"body": 10000})
    client = await gateway.client()

    answer = await client.ask(
        request("POST", "/v1/x", "Transfer-Encoding: chunked"), b"2711\r\n" + b"x" * 10001, method="POST"
    )

    told_as_ironic(answer, 413)
    assert answer.one("connection") == "close"
    assert (await client.ended()).rest == b""
    assert not backend.requests


async def test_a_streamed_body_that_grows_too_large_is_not_finished_for_the_backend(house: House) -> None:
    ends: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        ends.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script, limits={"body": 200 * KIB})
    client = await gateway.client()
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"19000\r\n" + b"x" * 100 * KIB)
    await backend.came()
    answer = await client.ask(b"\r\n", b"19001\r\n" + b"x" * (100 * KIB + 1) + b"\r\n", method="POST")

    told_as_ironic(answer, 413)
    await backend.gone()
    assert not ends[0].endswith(b"0\r\n\r\n")


async def test_a_body_of_exactly_the_limit_is_not_too_large(house: House) -> None:
    gateway, _ = await house.behind(serve, limits={"body": 1000})
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")

    assert (await gateway.ask(request("POST", body=b"x" * 1000))).status == 200
    assert (await gateway.ask(head, chunked(b"x" * 1000))).status == 200


# --- reloads under way -------------------------------------------------------------------------------------


async def test_a_backend_removed_by_a_reload_finishes_what_it_has_begun(house: House) -> None:
    may_answer = asyncio.Event()

    async def script(hop: Hop) -> None:
        message = await hop.request()
        await may_answer.wait()
        await hop.say(reply(200, f"{SERVED}: {message.one(SERVED)}", body=b"finished"))
        await hop.ended()

    leaving, staying = await house.backend(script), await house.backend(serve)
    gateway = await house.gateway(leaving)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await leaving.came()
    gateway.cell.update(Snapshot.configured([service_of(staying)], after=gateway.cell.current, now=0.0))
    await clock(gateway)
    may_answer.set()

    assert (await client.reply("POST")).body == b"finished"
    await leaving.gone()
    assert await client.is_open()
    assert (len(leaving.requests), len(staying.requests)) == (1, 1)


async def test_idle_connections_to_a_removed_backend_are_closed(house: House) -> None:
    leaving, staying = await house.backend(serve), await house.backend(serve)
    gateway = await house.gateway(leaving)
    assert (await gateway.ask(request())).status == 200
    gateway.cell.update(Snapshot.configured([service_of(staying)], after=gateway.cell.current, now=0.0))

    await leaving.gone()


async def test_a_backend_that_moved_is_asked_at_its_new_address(house: House) -> None:
    before, after = await house.backend(name="api"), await house.backend(name="api")
    gateway = await house.gateway(before)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200
    gateway.cell.update(Snapshot.configured([service_of(after)], after=gateway.cell.current, now=0.0))

    assert (await client.ask(request())).status == 200
    assert (len(before.requests), len(after.requests)) == (1, 1)
    await before.gone()


# --- too many ----------------------------------------------------------------------------------------------


async def test_the_client_that_has_been_idle_longest_makes_room(house: House) -> None:
    gateway, _ = await house.behind(serve, limits={"connections": 3})
    clients = [await gateway.client() for _ in range(3)]
    for client in clients:
        assert (await client.ask(request())).status == 200
        await clock(gateway, 1)

    newcomer = await gateway.client()
    assert (await newcomer.ask(request())).status == 200
    assert await clients[0].ended() == (b"", False)
    for client in (*clients[1:], newcomer):
        assert await client.is_open()


async def test_connections_in_use_do_not_make_room(house: House) -> None:
    gateway, backend = await house.behind(hold, limits={"connections": 2})
    busy = [await gateway.client() for _ in range(2)]
    for client in busy:
        await client.send(request())
    await backend.came(2)

    newcomer = await gateway.client()
    assert not (await newcomer.ended()).rest
    assert gateway.metric("skewgate_client_errors_total", reason="too_many_connections") == 1
    assert gateway.worker.in_flight() == {"baremetal": 2}


def test_versions_of_the_stand_are_what_they_say() -> None:
    assert versions(NEW).highest > versions(OLD).highest
