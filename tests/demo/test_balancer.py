"""The balancers that the gateway is compared with: servers in turn, only healthy ones, another when refused.

What holds for the built-in one holds for HAProxy: the same tests run against both.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from gateway.demo import haproxy_balancer
from gateway.demo.balancer import LOOPBACK, Balancer, Pool, Rotation, RoundRobin, Target, Timing
from gateway.demo.haproxy_balancer import HAProxy, program
from gateway.errors import StartupError
from tests.kit.waiting import PATIENCE

SLOW: Final = Timing(check_interval=60.0, timeout=10.0)
"""No health check comes in time to matter."""
ONE, TWO, THREE = (Target(name, port) for port, name in enumerate(("one", "two", "three"), 1))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def round_robin(pools: list[Pool], timing: Timing) -> Balancer:
    return RoundRobin(pools, timing)


def haproxy(pools: list[Pool], timing: Timing) -> Balancer:
    path = program()
    assert path is not None
    return HAProxy(path, pools, timing)


BOTH: Final = pytest.mark.parametrize("make", [round_robin, pytest.param(haproxy, marks=pytest.mark.engines)])
Make = Callable[[list[Pool], Timing], Balancer]


@asynccontextmanager
async def server(name: str, handler: Handler | None = None, *, well: bool = True) -> AsyncIterator[Target]:
    """A server that answers with its name, or by `handler`. One that is well answers each health check."""

    async def named(request: web.Request) -> web.StreamResponse:
        return web.Response(text=name)

    application = web.Application()
    if well:
        application.router.add_get("/", named)
    application.router.add_route("*", "/{path:.*}", handler or named)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    try:
        yield Target(name, runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def balanced(
    make: Make, *targets: Target, timing: Timing = SLOW
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a balancer in front of `targets`."""
    balancer = make([Pool("pool", targets)], timing)
    await balancer.start()
    try:
        async with aiohttp.ClientSession(f"http://{LOOPBACK}:{balancer.port('pool')}") as client:
            yield client
    finally:
        await balancer.close()


@asynccontextmanager
async def refusing() -> AsyncIterator[Target]:
    """A port on which connections are refused: it is bound, and nothing listens."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield Target("refusing", bound.getsockname()[1])


async def answers(client: aiohttp.ClientSession, count: int) -> list[tuple[int, str]]:
    """Status and text of so many requests, one after the other."""
    found = []
    for _ in range(count):
        async with client.get("/v1/nodes") as response:
            found.append((response.status, await response.text()))
    return found


# -- the rotation


def test_servers_are_taken_in_turn() -> None:
    rotation = Rotation([ONE, TWO, THREE])

    assert [rotation.take() for _ in range(5)] == [ONE, TWO, THREE, ONE, TWO]


def test_a_server_is_down_after_three_failed_checks_in_a_row_and_up_after_two_good_ones() -> None:
    rotation = Rotation([ONE, TWO])
    for healthy in (False, False, True, False, False):
        rotation.checked(ONE, healthy=healthy)
    assert {rotation.take() for _ in range(4)} == {ONE, TWO}

    rotation.checked(ONE, healthy=False)
    assert {rotation.take() for _ in range(4)} == {TWO}

    for healthy in (True, False, True):
        rotation.checked(ONE, healthy=healthy)
    assert {rotation.take() for _ in range(4)} == {TWO}

    rotation.checked(ONE, healthy=True)
    assert {rotation.take() for _ in range(4)} == {ONE, TWO}


def test_where_all_are_down_none_is_left_out() -> None:
    rotation = Rotation([ONE, TWO])
    for _ in range(3):
        rotation.checked(ONE, healthy=False)
        rotation.checked(TWO, healthy=False)

    assert {rotation.take() for _ in range(2)} == {ONE, TWO}


# -- both balancers


@BOTH
async def test_each_request_goes_to_the_next_server(make: Make) -> None:
    async with (
        server("one") as one,
        server("two") as two,
        server("three") as three,
        balanced(make, one, two, three) as client,
    ):
        found = await answers(client, 6)

    names = [name for _, name in found]
    assert Counter(names) == {"one": 2, "two": 2, "three": 2}
    assert names[:3] == names[3:]


@BOTH
async def test_a_refused_connection_is_tried_on_another_server(make: Make) -> None:
    async with refusing() as down, server("two") as two, balanced(make, down, two) as client:
        assert await answers(client, 4) == [(200, "two")] * 4


@BOTH
async def test_without_a_server_the_client_is_told_so(make: Make) -> None:
    async with refusing() as down, balanced(make, down) as client:
        assert [status for status, _ in await answers(client, 1)] == [503]


@BOTH
async def test_request_and_response_pass_as_they_came(make: Make) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        seen = [request.method, request.raw_path, request.headers["API-Version"], await request.text()]
        many = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("API-Version", "7")]
        return web.Response(status=299, reason="As Is", headers=many, text=repr(seen))

    async with server("one", handle) as one, balanced(make, one) as client:
        headers = {"API-Version": "latest"}
        async with client.post("/a%2Fb//c?d=%20&e", headers=headers, data="body") as response:
            assert (response.status, response.reason) == (299, "As Is")
            assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert response.headers["API-Version"] == "7"
            assert await response.text() == repr(["POST", "/a%2Fb//c?d=%20&e", "latest", "body"])


@BOTH
async def test_a_server_whose_check_fails_gets_no_requests(make: Make) -> None:
    checks = 0
    failed = asyncio.Event()

    async def ill(request: web.Request) -> web.StreamResponse:
        nonlocal checks
        checks += request.path == "/"
        if checks >= 5:  # the third has been read by then
            failed.set()
        return web.Response(status=500, text="ill")

    timing = Timing(check_interval=0.02, timeout=10.0)
    async with (
        server("ill", ill, well=False) as one,
        server("two") as two,
        balanced(make, one, two, timing=timing) as client,
    ):
        # HAProxy looks less often at a server that is down, and then a fifth check comes a little later.
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        assert await answers(client, 4) == [(200, "two")] * 4


@BOTH
async def test_a_server_that_does_not_answer_in_time_is_504(make: Make) -> None:
    released = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    timing = Timing(check_interval=60.0, timeout=0.2)
    async with server("one", hang) as one, balanced(make, one, timing=timing) as client:
        assert [status for status, _ in await answers(client, 1)] == [504]
        released.set()


@BOTH
async def test_a_server_that_breaks_off_is_502(make: Make) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with server("one", cut) as one, balanced(make, one) as client:
        assert [status for status, _ in await answers(client, 1)] == [502]


@BOTH
async def test_each_pool_has_servers_and_an_address_of_its_own(make: Make) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(server(name)) for name in ("one", "two")]
        balancer = make([Pool("first pool", (one,)), Pool("daemon; \n", (two,))], SLOW)
        await balancer.start()
        stack.push_async_callback(balancer.close)
        client = await stack.enter_async_context(aiohttp.ClientSession())
        for pool, name in (("first pool", "one"), ("daemon; \n", "two")):
            async with client.get(f"http://{LOOPBACK}:{balancer.port(pool)}/") as response:
                assert await response.text() == name


@BOTH
async def test_what_has_ended_listens_no_more(make: Make) -> None:
    async with server("one") as one:
        balancer = make([Pool("pool", (one,))], SLOW)
        await balancer.start()
        port = balancer.port("pool")
        await balancer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, port)


async def test_fields_of_one_connection_do_not_pass() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        names = [name for name in ("Keep-Alive", "X-Mine", "X-Passes") if name in request.headers]
        return web.Response(text=" ".join(names))

    async with server("one", handle) as one, balanced(round_robin, one) as client:
        headers = {"Connection": "keep-alive, X-Mine", "Keep-Alive": "9", "X-Mine": "1", "X-Passes": "1"}
        async with client.get("/v1", headers=headers) as response:
            assert await response.text() == "X-Passes"


# -- HAProxy's own


def script(folder: Path, text: str) -> str:
    path = folder / "haproxy"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_its_name_has_the_version_that_the_program_tells(tmp_path: Path) -> None:
    path = script(tmp_path, "echo 'HAProxy version 2.8.3-1ubuntu3 2023/09/07 - https://haproxy.org/'")

    assert HAProxy(path, [], SLOW).name == "HAProxy 2.8.3, round robin"
    assert HAProxy(script(tmp_path, "exit 1"), [], SLOW).name == "HAProxy, round robin"
    assert HAProxy(str(tmp_path / "none"), [], SLOW).name == "HAProxy, round robin"


async def test_why_it_does_not_start_is_said(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '[ALERT] (1) : config : no room' >&2; exit 1")
    with pytest.raises(StartupError, match="no room"):
        await HAProxy(path, [Pool("pool", (ONE,))], SLOW).start()
    with pytest.raises(StartupError, match="HAProxy cannot be started"):
        await HAProxy(str(tmp_path / "none"), [Pool("pool", (ONE,))], SLOW).start()


async def test_a_process_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_balancer, "STOP_WITHIN", 0.05)
    path = script(tmp_path, "trap '' USR1 TERM; echo ready; while :; do read -r line; done")
    process = await asyncio.create_subprocess_exec(path, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()

    await haproxy_balancer._end(process)

    assert process.returncode == -signal.SIGKILL


def test_nothing_of_its_configuration_is_about_versions() -> None:
    text = haproxy_balancer.configuration([Pool("baremetal", (ONE, TWO))], SLOW, [7])

    assert "balance roundrobin" in text
    assert "option redispatch" in text
    assert "ersion" not in text
    assert "baremetal" not in text
