"""The servers of the demonstration: what they answer, and what may happen to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from pytest_aiohttp import AiohttpClient

from gateway.demo import catalog
from gateway.demo.catalog import NEW_CATALOG, OLD_CATALOG, CatalogServer
from gateway.demo.fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.demo.ironic import HIGHEST, NEW, OLD, SERVED, IronicServer
from gateway.demo.servers import ApiServer, ServerState
from tests.demo.conftest import Fleet
from tests.kit.waiting import until

# --- of Ironic


@pytest.mark.parametrize(
    "path, version, expected, text",
    [
        ("/", "", (200, None), '"min_version": "1.1", "version": "1.82"'),
        ("/", "1.999", (200, None), '"version": "1.82"'),
        ("/v1", "", (200, "1.1"), '"version": "1.82"'),
        ("/v1/nodes", "", (200, "1.1"), '{"nodes": []}'),
        ("/v1/nodes", "1.31", (200, "1.31"), '{"nodes": []}'),
        ("/v1/nodes", "LATEST", (200, "1.82"), '{"nodes": []}'),
        ("/v1/nodes", "1.999", (406, None), "minor version is not supported by this service. The"),
        ("/v1/nodes", "2.1", (406, None), "Mutually exclusive versions requested."),
        ("/v1/nodes", "spam", (406, None), "Invalid value for X-OpenStack-Ironic-API-Version header"),
        ("/v1/nodes/nope", "1.31", (404, "1.31"), "Node nope could not be found."),
        ("/v1/bogus", "1.31", (404, None), '\\"title\\": \\"Not Found\\"'),
    ],
)
async def test_the_old_server_responds_as_ironic_does(
    fleet: Fleet,
    path: str,
    version: str,
    expected: tuple[int, str | None],
    text: str,
) -> None:
    headers = {"OpenStack-API-Version": "baremetal 1.50", **({SERVED: version} if version else {})}
    response = await fleet.old.get(path, headers=headers)
    body = await response.text()

    assert (response.status, response.headers.get(SERVED)) == expected
    assert text in body
    has_range = expected[1] is not None or "supported" in body or "exclusive" in body
    assert (HIGHEST in response.headers) == has_range


# --- of the other API


@pytest.mark.parametrize(
    "version, status, served",
    [("", 200, "1"), ("3", 200, "3"), ("latest", 200, "4"), ("5", 406, ""), ("0", 406, ""), ("+3", 406, "")],
)
async def test_the_other_api_counts_in_whole_numbers(
    version: str, status: int, served: str, aiohttp_client: AiohttpClient
) -> None:
    server = CatalogServer("catalog-1", OLD_CATALOG)
    client = await aiohttp_client(server.application())

    response = await client.get("/items", headers={catalog.VERSION: version} if version else {})

    assert (response.status, response.headers.get(catalog.VERSION, "")) == (status, served)
    assert (response.headers[catalog.OLDEST], response.headers[catalog.NEWEST]) == ("1", "4")
    assert server.refused == ([] if status == 200 else [version])


async def test_the_other_api_tells_its_range_in_a_document(aiohttp_client: AiohttpClient) -> None:
    server = CatalogServer("catalog-1", NEW_CATALOG)
    client = await aiohttp_client(server.application())

    document = await (await client.get("/")).json()

    assert (document["minimum"], document["maximum"]) == ("1", "7")
    assert server.requests == 0


# --- what may happen to a server


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    running = IronicServer("api-1")
    await running.start(OLD)
    yield running
    await running.close()


def url(server: ApiServer) -> str:
    return f"http://127.0.0.1:{server.port}/v1/nodes"


async def test_a_stopped_server_refuses_connections_and_keeps_its_port(server: ApiServer) -> None:
    await server.stop()

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url(server))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
        await server.start(NEW)
        async with session.get(url(server), headers={SERVED: "latest"}) as response:
            assert response.headers[SERVED] == "1.90"


async def test_a_server_that_hangs_answers_when_it_has_recovered(server: ApiServer) -> None:
    server.hang()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(session.get(url(server)))
        await until(lambda: server.requests > 0, "the request")
        assert server.state is ServerState.HANGING
        await server.come_back()
        response = await waiting
        assert response.status == 200
        response.release()


async def test_a_server_that_is_killed_cuts_its_connections(server: ApiServer) -> None:
    server.hang()
    async with aiohttp.ClientSession() as session:
        waiting = asyncio.ensure_future(session.get(url(server)))
        await until(lambda: server.requests > 0, "the request")
        await server.kill()
        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url(server))
        await server.come_back()
        async with session.get(url(server)) as response:
            assert response.status == 200


# --- what the fleet could serve when


async def test_a_promise_is_kept_while_some_server_serves_it() -> None:
    now = 0.0
    async with EmbeddedFleet(lambda: now) as fleet:
        first, second, *others = fleet.service(BAREMETAL).servers
        now = 10.0
        await _again(first)
        assert not fleet.could_serve(BAREMETAL, 90, 9.0)  # nobody served it then
        assert fleet.could_serve(BAREMETAL, 90, 10.0)
        now = 20.0
        await _again(second)
        await first.kill()
        assert fleet.could_serve(BAREMETAL, 90, 10.0)  # the second took over before
        now = 30.0
        second.hang()
        assert not fleet.could_serve(BAREMETAL, 90, 20.0)
        assert fleet.could_serve(BAREMETAL, 82, 10.0)
        await second.come_back()
        assert not fleet.could_serve(BAREMETAL, 90, 20.0)  # there was a moment without
        for each in others:
            await each.stop()
        second.hang()
        assert not fleet.could_serve(BAREMETAL, 1, 20.0)
        assert fleet.could_serve(CATALOG, 4, 0.0)


async def _again(server: ApiServer) -> None:
    await server.stop()
    await server.start(NEW)
