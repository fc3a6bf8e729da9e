"""Few files may be open: who keeps a connection, who gets one, and who is closed for it.

The limit here leaves 32 files to clients and backends, 12 more when all of them are in use, and 16 places of
idle clients to newcomers.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import resource
from typing import Final

import pytest

from gateway.dataplane.edge.client_room import MIN_FILES, UNUSED, file_room
from tests.dataplane.test_slow_clients import established, is_closed
from tests.kit.backends import Script, UpstreamConnection, serve
from tests.kit.clients import Client
from tests.kit.messages import request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, settle

FILES: Final = MIN_FILES
OVERFLOW: Final = 12
NEWCOMERS: Final = FILES // 2
LATER: Final = UNUSED + 1.0
PATIENT: Final = {"client_head": 900.0, "client_idle": 900.0, "backend_head": 900.0, "backend_idle": 900.0}


@pytest.fixture(autouse=True)
def _few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert file_room() == (FILES, OVERFLOW)


async def gateway_with(testbed: Testbed, idle: int) -> tuple[Gateway, list[Client]]:
    """A gateway whose clock only the test turns, and clients that have sent one request each."""
    gateway, _ = await testbed.gateway_and_backend(serve, **PATIENT)
    gateway.clock.stop()
    return gateway, [await established_later(gateway) for _ in range(idle)]


async def established_later(gateway: Gateway) -> Client:
    """One that is idle for less time than those before it."""
    gateway.turn(0.01)
    return await established(gateway)


async def newcomer(gateway: Gateway) -> Client:
    """One that sends nothing, once the gateway knows it."""
    before = set(gateway.worker._clients)
    client = await gateway.client()
    await until(lambda: bool(gateway.worker._clients - before) or is_closed(client))
    return client


def serve_when(go_on: asyncio.Event) -> Script:
    """Respond to each request once `go_on` is set."""

    async def script(upstream: UpstreamConnection) -> None:
        while await upstream.request():
            await go_on.wait()
            await upstream.send(response(200))

    return script


async def test_R3_V8_idle_clients_keep_their_places_while_there_are_files(testbed: Testbed) -> None:
    gateway, clients = await gateway_with(testbed, FILES - 1)
    gateway.turn(LATER)

    await settle()
    assert [is_closed(client) for client in clients] == [False] * len(clients)


async def test_R3_V8_the_client_that_is_idle_for_longest_makes_room_for_a_newcomer(testbed: Testbed) -> None:
    gateway, clients = await gateway_with(testbed, FILES - 1)
    gateway.turn(LATER)
    assert (await clients[0].request(request())).status == 200

    for _ in range(2):
        assert (await gateway.request(request())).status == 200

    await until(lambda: is_closed(clients[1]))
    assert not is_closed(clients[0])
    assert sum(is_closed(client) for client in clients) <= 4  # each newcomer needs two files at most
    assert gateway.metric("skewgate_client_errors_total", reason="too_many_connections") >= 1


async def test_R3_V8_a_client_that_was_silent_yields_before_idle_ones(testbed: Testbed) -> None:
    gateway, clients = await gateway_with(testbed, FILES - 4)
    silent = [await newcomer(gateway) for _ in range(2)]
    gateway.turn(LATER)

    assert (await gateway.request(request())).status == 200
    await until(lambda: is_closed(silent[0]))
    assert not any(is_closed(client) for client in clients)


async def test_R3_V8_silent_newcomers_take_no_more_than_their_share(testbed: Testbed) -> None:
    gateway, clients = await gateway_with(testbed, FILES - 1)
    gateway.turn(LATER)
    for _ in range(4 * FILES):
        await newcomer(gateway)

    assert sum(not is_closed(client) for client in clients) >= FILES - 1 - NEWCOMERS


async def test_R3_V8_a_client_in_use_is_never_closed(testbed: Testbed) -> None:
    """Those that have sent more than one request, the last one a moment ago, send the next one soon."""
    gateway, clients = await gateway_with(testbed, FILES - 1)
    for client in clients:
        assert (await client.request(request())).status == 200
    late = [await newcomer(gateway) for _ in range(FILES)]

    await until(lambda: sum(is_closed(client) for client in late) >= FILES - OVERFLOW)
    assert not any(is_closed(client) for client in clients)


async def test_R3_V8_where_all_are_busy_newcomers_are_closed(testbed: Testbed) -> None:
    go_on = asyncio.Event()
    gateway, backend = await testbed.gateway_and_backend(serve_when(go_on), **PATIENT)
    clients = [await gateway.client() for _ in range(FILES // 2)]
    for client in clients:
        await client.send(request())
    await backend.received(len(clients))

    late = [await newcomer(gateway) for _ in range(OVERFLOW)]
    await until(lambda: any(is_closed(client) for client in late))
    go_on.set()
    assert [(await client.response()).status for client in clients] == [200] * len(clients)


async def test_R3_V8_a_request_makes_room_for_its_connection_to_a_backend(testbed: Testbed) -> None:
    go_on = asyncio.Event()
    go_on.set()
    gateway, backend = await testbed.gateway_and_backend(serve_when(go_on), **PATIENT)
    gateway.clock.stop()
    clients = [await established_later(gateway) for _ in range(FILES - 1)]
    gateway.turn(LATER)
    go_on.clear()
    busy = clients[-4:]
    for client in busy:
        await client.send(request())
    await backend.received(len(clients) + len(busy))
    go_on.set()

    assert [(await client.response()).status for client in busy] == [200] * len(busy)
    await until(lambda: [is_closed(client) for client in clients[:3]] == [True] * 3)


async def test_R3_V8_a_client_whose_request_has_come_is_not_closed(testbed: Testbed) -> None:
    gateway, clients = await gateway_with(testbed, 2)
    gateway.turn(LATER)
    clients[0].writer.write(request())  # at once, into the socket: the gateway has not read it yet

    assert gateway.worker._room._close_idle(used_once=False)
    assert (await clients[0].response()).status == 200
    await until(lambda: is_closed(clients[1]))


async def test_R3_V8_without_any_file_a_request_is_503_and_the_others_go_on(testbed: Testbed) -> None:
    go_on = asyncio.Event()
    go_on.set()
    gateway, _ = await testbed.gateway_and_backend(serve_when(go_on), **PATIENT)
    clients = [await established(gateway) for _ in range(24)]
    go_on.clear()
    for client in clients:
        client.writer.write(request())
    answers = [asyncio.create_task(client.response()) for client in clients]
    refused = len(clients) - (FILES + OVERFLOW - len(clients))
    await until(lambda: sum(answer.done() for answer in answers) >= refused)
    go_on.set()

    statuses = sorted([(await answer).status for answer in answers])
    assert statuses == [200] * (len(clients) - refused) + [503] * refused
    assert (await clients[0].request(request())).status == 200
