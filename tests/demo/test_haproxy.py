"""HAProxy beside the gateway: set up as its manual says, and judged by the same clients."""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from gateway.demo import haproxy
from gateway.demo.clients import Client, LatestClient, NewClient, OldClient
from gateway.demo.fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.demo.front import GatewayFront
from gateway.demo.haproxy import HAProxyFront, find_program, version_of
from gateway.demo.scene import FrontScene
from gateway.demo.side import Front, Side
from gateway.errors import StartupError
from tests.kit.processes import call
from tests.kit.waiting import PATIENCE

SELDOM = 60.0
"""Seconds: no health check comes in time to matter."""
ROUNDS = 12
"""Requests of each client. A multiple of four: so many servers take turns."""

Make = Callable[[EmbeddedFleet, asyncio.Event], Front]


async def upgrade(fleet: EmbeddedFleet, name: str) -> None:
    await fleet.server(name).stop()
    await fleet.server(name).start(fleet.service(BAREMETAL).new)


def balanced(fleet: EmbeddedFleet, interval: float = SELDOM) -> HAProxyFront:
    return HAProxyFront(find_program(), fleet, interval=interval)


async def statuses(front: Front, service: str, path: str, count: int = 1) -> list[int]:
    async with aiohttp.ClientSession() as client:
        found = []
        for _ in range(count):
            async with client.get(front.url(service) + path) as response:
                found.append(response.status)
    return found


# --- with HAProxy


@pytest.mark.engines
async def test_each_service_is_reached_and_nothing_is_known_of_versions() -> None:
    async with EmbeddedFleet() as fleet, AsyncExitStack() as stack:
        front = balanced(fleet)
        await front.start(stack)

        assert front.name.startswith("HAProxy 2")
        as_any: Front = front
        assert [as_any.status(each) for each in (BAREMETAL, CATALOG)] == [None, None]
        assert await statuses(front, BAREMETAL, "/v1/nodes", 4) == [200] * 4
        assert await statuses(front, CATALOG, "/items", 2) == [200] * 2
        assert [server.requests for server in fleet.servers] == [1] * 6


@pytest.mark.engines
async def test_it_has_the_chances_that_the_gateway_has() -> None:
    async with EmbeddedFleet() as fleet, AsyncExitStack() as stack:
        front = balanced(fleet)
        await front.start(stack)

        await fleet.server("api-1").stop()
        assert await statuses(front, BAREMETAL, "/v1/nodes", 8) == [200] * 8  # another one is tried
        for server in fleet.service(CATALOG).servers:
            server.hang()
        assert await statuses(front, CATALOG, "/items") == [504]
        for server in fleet.service(BAREMETAL).servers:
            await server.stop()
        assert await statuses(front, BAREMETAL, "/v1/nodes") == [503]


@pytest.mark.engines
async def test_what_has_ended_listens_no_more() -> None:
    async with EmbeddedFleet() as fleet:
        front = balanced(fleet)
        async with AsyncExitStack() as stack:
            await front.start(stack)
        with pytest.raises(aiohttp.ClientConnectorError):
            await statuses(front, BAREMETAL, "/")


async def play(make: Make) -> FrontScene:
    """One of four servers is upgraded; then a client of each of some kinds acts, one after the other."""
    async with EmbeddedFleet() as fleet, AsyncExitStack() as stack:
        await upgrade(fleet, "api-1")
        news = asyncio.Event()
        front = make(fleet, news)
        side = Side(fleet, front, 1)
        clients = await side.start(stack)
        async with asyncio.timeout(PATIENCE):
            while (knows := front.status(BAREMETAL)) is not None and knows.view.offer.phase != "mixed":
                news.clear()
                await news.wait()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for client in _chosen(clients):
            for _ in range(ROUNDS):
                await client.act(session)
        return side.scene()


def _chosen(clients: Sequence[Client]) -> list[Client]:
    """One of each kind. The first two send a multiple of four requests, so they begin at the first server."""
    return [
        next(each for each in clients if isinstance(each, kind))
        for kind in (OldClient, LatestClient, NewClient)
    ]


@pytest.mark.engines
async def test_what_a_balancer_loses_the_gateway_does_not_by_the_same_judges() -> None:
    theirs = await play(lambda fleet, news: balanced(fleet))
    ours = await play(
        lambda fleet, news: GatewayFront(fleet, interval=0.05, changed=lambda before, after: news.set())
    )

    reasons = dict(theirs.losses)
    # One of four is new: `latest` finds it at each fourth request, and goes back at the one after.
    assert reasons.pop("'latest' went backwards") >= ROUNDS // 4 - 1
    assert set(reasons) <= {"a version shown before was refused"}
    assert [each.lost for each in theirs.clients if each.kind == OldClient.kind] == [0]
    assert (ours.lost, ours.losses) == (0, ())
    assert ours.answered >= 3 * ROUNDS


@pytest.mark.engines
async def test_its_offer_is_what_the_server_said_that_answered_last() -> None:
    async with EmbeddedFleet() as fleet, AsyncExitStack() as stack:
        await upgrade(fleet, "api-1")
        side = Side(fleet, balanced(fleet), 1)
        clients = await side.start(stack)
        latest = next(each for each in clients if isinstance(each, LatestClient))
        session = await stack.enter_async_context(aiohttp.ClientSession())

        offers = [side.scene().services[0].offer]
        for _ in range(4):
            await latest.act(session)
            offers.append(side.scene().services[0].offer)

    assert offers[0] == "nothing yet"
    assert sorted(offers[1:]) == ["1.1-1.82"] * 3 + ["1.1-1.90"]


# --- without


async def test_without_haproxy_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)

    with pytest.raises(
        StartupError, match="needs HAProxy, which is not installed: `apt-get install haproxy`"
    ):
        find_program()


def test_it_is_found_where_ordinary_users_do_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {None: None, haproxy.SEARCH_PATH: "/usr/sbin/haproxy"}
    monkeypatch.setattr("shutil.which", lambda name, path=None: places[path])

    assert find_program() == "/usr/sbin/haproxy"


def script(folder: Path, text: str) -> str:
    path = folder / "haproxy"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_its_name_has_the_version_that_the_program_tells(tmp_path: Path) -> None:
    path = script(tmp_path, "echo 'HAProxy version 2.8.3-1ubuntu3 2023/09/07 - https://haproxy.org/'")

    assert version_of(path) == "2.8.3"
    assert version_of(script(tmp_path, "exit 1")) == ""
    assert version_of(str(tmp_path / "none")) == ""


async def test_why_it_does_not_start_is_said(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '[ALERT] (1) : config : no room' >&2; exit 1")
    async with EmbeddedFleet() as fleet:
        with pytest.raises(StartupError, match="no room"):
            async with AsyncExitStack() as stack:
                await HAProxyFront(path, fleet, interval=SELDOM).start(stack)
        with pytest.raises(StartupError, match="HAProxy cannot be started"):
            async with AsyncExitStack() as stack:
                await HAProxyFront(str(tmp_path / "none"), fleet, interval=SELDOM).start(stack)


async def test_a_process_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy, "STOP_WITHIN", 0.05)
    path = script(tmp_path, "trap '' USR1 TERM; echo ready; while :; do read -r line; done")
    process = await asyncio.create_subprocess_exec(path, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()

    await haproxy._end(process)

    assert process.returncode == -signal.SIGKILL


async def test_nothing_of_its_configuration_is_about_versions() -> None:
    async with EmbeddedFleet() as fleet:
        with socket.socket() as one, socket.socket() as two:
            text = haproxy.configuration(fleet.services, {BAREMETAL: one, CATALOG: two}, 0.25)

    assert "balance roundrobin" in text
    assert "option redispatch" in text
    assert "check inter 250ms" in text
    assert "ersion" not in text


@pytest.mark.engines
async def test_the_command_shows_both() -> None:
    ended = await call("demo", "--compare", "--for", "1", "--seed", "3")

    assert (ended.code, ended.err) == (0, "")
    assert "HAProxy" in ended.out
