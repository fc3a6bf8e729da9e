"""The verbs that change a running gateway: `pin`, `unpin`, `drain`, `enable`."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.demo.ironic import HIGHEST, SERVED
from gateway.settings import read_file
from tests.cli.conftest import Call, Running, Write
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT, Ended, finish, ready, start
from tests.kit.servers import serving
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

ONCE = {"Connection": "close"}
"""Leaves no idle connection for which the gateway would wait at its end."""
NOT_SAVED = "skewgate: warning: this will not survive a restart: the gateway has no writable `state` file\n"


async def highest(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(f"{url}/v1/nodes", headers={SERVED: "latest", **ONCE}) as response:
        assert response.status == 200
        return response.headers[HIGHEST]


async def test_a_pin_limits_the_offer_until_it_is_removed(
    running: Running, session: aiohttp.ClientSession, call_main: Call
) -> None:
    pinned = await call_main("pin", "--admin", running.admin, "baremetal", "1.31")
    assert pinned == Ended(0, "baremetal: offers 1.1-1.31, pinned to 1.31, phase mixed\n", NOT_SAVED)
    assert await highest(session, running.url) == "1.31"
    assert "1.1-1.31 (pin 1.31)" in (await call_main("status", "--admin", running.admin)).out

    by_release = await call_main("pin", "--admin", running.admin, "baremetal", "--release", "stein")
    assert by_release.out == "baremetal: offers 1.1-1.56, pinned to 1.56, phase mixed\n"

    unpinned = await call_main("unpin", "--admin", running.admin, "baremetal")
    assert unpinned == Ended(0, "baremetal: offers 1.1-1.58, phase mixed\n", NOT_SAVED)
    assert await highest(session, running.url) == "1.58"


async def test_a_run_time_pin_overrides_the_files_ceiling_and_outlives_a_reload(
    running: Running, write: Write, call_main: Call
) -> None:
    write(more="access_log: {format: off}", offer="{ceiling: '1.40'}")
    assert (await call_main("reload", "--admin", running.admin)).code == 0
    by_pin = await call_main("pin", "--admin", running.admin, "baremetal", "1.50")
    drained = await call_main("drain", "--admin", running.admin, "baremetal/api-2")
    write(more="access_log: {format: off}", offer="{ceiling: '1.45'}")
    assert (await call_main("reload", "--admin", running.admin)).code == 0
    after = await call_main("status", "--admin", running.admin)
    unpinned = await call_main("unpin", "--admin", running.admin, "baremetal")

    assert by_pin.out.startswith("baremetal: offers 1.1-1.50, pinned to 1.50, ")
    assert drained.code == 0
    assert "1.1-1.50 (pin 1.50)" in after.out
    assert "fresh drained" in after.out
    assert unpinned.out.startswith("baremetal: offers 1.1-1.45, ceiling 1.45, ")


async def test_a_drained_backend_gets_no_request_and_does_not_limit_the_offer(
    running: Running, fleet: Fleet, session: aiohttp.ClientSession, call_main: Call
) -> None:
    drained = await call_main("drain", "--admin", running.admin, "baremetal/api-1")
    assert drained == Ended(0, "baremetal/api-1: drained, 0 requests in flight\n", NOT_SAVED)
    fleet.old.received.clear()
    for _ in range(8):
        async with session.get(f"{running.url}/v1/nodes", headers={SERVED: "1.31", **ONCE}) as response:
            assert response.status == 200
    assert fleet.old.received["1.31"] == 0
    assert fleet.new.received["1.31"] == 8

    enabled = await call_main("enable", "--admin", running.admin, "baremetal/api-1")
    assert enabled == Ended(0, "baremetal/api-1: in service\n", NOT_SAVED)


async def test_as_json_the_output_is_the_new_state(running: Running, call_main: Call) -> None:
    where = ("--admin", running.admin, "-o", "json")
    pinned = json.loads((await call_main("pin", "baremetal", "1.31", *where)).out)
    unpinned = json.loads((await call_main("unpin", "baremetal", *where)).out)
    drained = json.loads((await call_main("drain", "baremetal/api-2", "--wait", *where)).out)
    enabled = json.loads((await call_main("enable", "baremetal/api-2", *where)).out)

    assert [state["services"]["baremetal"]["pin"] for state in (pinned, unpinned)] == ["1.31", None]
    backends = [state["services"]["baremetal"]["backends"]["api-2"] for state in (drained, enabled)]
    assert [backend["drained"] for backend in backends] == [True, False]


async def test_a_drain_with_a_name_keeps_others_with_a_name_away(running: Running, call_main: Call) -> None:
    where = ("--admin", running.admin)
    drained = await call_main("drain", "baremetal/api-1", "--by", "ansible", *where)
    other = await call_main("drain", "baremetal/api-2", "--by", "cron", *where)

    assert "baremetal/api-1: drained by ansible, 0 requests in flight" in drained.out
    assert other.code == 1
    assert "responded 409: ansible has drained api-1" in other.err


@pytest.mark.parametrize(
    "argv, message",
    [
        (("pin", "metal", "1.31"), "responded 404: there is no service 'metal'; there are: baremetal"),
        (("pin", "baremetal", "spam"), "responded 400: 'spam' is not a version of the form 1.31"),
        (("pin", "baremetal", "1.0"), "responded 409: the ceiling 1.0 is below the minimum 1.1 on offer"),
        (("pin", "baremetal", "--release", "zed-9"), "responded 404: neither the dialect ironic nor"),
        (("unpin", "met al/../x"), "responded 404: there is no service 'met al/../x'"),
        (
            ("drain", "baremetal/api-9"),
            "responded 404: baremetal has no backend 'api-9'; it has: api-1, api-2",
        ),
        (
            ("enable", "baremetal/api-9"),
            "responded 404: baremetal has no backend 'api-9'; it has: api-1, api-2",
        ),
    ],
)
async def test_a_refusal_is_one_sentence(
    running: Running, call_main: Call, argv: tuple[str, ...], message: str
) -> None:
    ended = await call_main(*argv, "--admin", running.admin)

    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ("pin", "baremetal"),
        ("pin",),
        ("pin", "baremetal", "1.31", "--release", "train"),
        ("drain", "baremetal"),
        ("drain", "/api-1"),
        ("enable", "baremetal/"),
        ("drain", "baremetal/api-1", "--timeout", "5"),
        ("drain", "baremetal/api-1", "--wait", "--timeout", "soon"),
    ],
)
async def test_bad_usage_is_exit_2_without_a_request(call_main: Call, argv: tuple[str, ...]) -> None:
    ended = await call_main(*argv, "--admin", f"http://127.0.0.1:{free_port()}")

    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize(
    "argv", [("pin", "a", "1.1"), ("unpin", "a"), ("drain", "a/b", "--wait"), ("enable", "a/b")]
)
async def test_no_gateway_is_one_sentence(call_main: Call, argv: tuple[str, ...]) -> None:
    where = f"http://127.0.0.1:{free_port()}"

    ended = await call_main(*argv, "--admin", where)

    assert ended == Ended(1, "", f"skewgate: no gateway responds at {where}: Connection refused\n")


class SlowBackend:
    """A backend that serves 1.1-1.58 and responds when the test allows it."""

    def __init__(self) -> None:
        self.requested, self.allowed = asyncio.Event(), asyncio.Event()
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requested.set()
        await self.allowed.wait()
        writer.write(f"HTTP/1.1 200 OK\r\n{SERVED}: 1.1\r\nContent-Length: 4\r\n\r\nlate".encode())
        await writer.drain()


@asynccontextmanager
async def busy(
    write: Write, session: aiohttp.ClientSession
) -> AsyncIterator[tuple[Path, SlowBackend, Process]]:
    """A gateway as a process, with one request in flight."""
    slow = SlowBackend()
    port, admin_port = free_port(), free_port()
    async with serving(slow.answer) as server:
        file = write(port, admin_port)
        head = file.read_text().partition("      - {name: api-1")[0]
        slow.port = server.port
        file.write_text(
            f"{head}      - {{name: api-1, url: 'http://127.0.0.1:{slow.port}', versions: 1.1-1.58}}\n"
        )
        process = await start("run", "-c", str(file))
        await ready(session, f"http://127.0.0.1:{admin_port}")
        request = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/v1/nodes"))
        await slow.requested.wait()
        try:
            yield file, slow, process
        finally:
            slow.allowed.set()
            await asyncio.wait([request], timeout=TIMEOUT)
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def until_drained(session: aiohttp.ClientSession, file: Path) -> None:
    """Wait until api-1 is drained."""
    admin = read_file(file, environ=os.environ).require().admin

    async def is_drained() -> bool:
        async with session.get(f"http://{admin.listen}/status") as response:
            status = await response.json()
            drained: bool = status["services"]["baremetal"]["backends"]["api-1"]["drained"]
            return drained

    await until(is_drained, "the drain")


async def test_drain_wait_returns_when_the_last_request_is_finished(
    write: Write, session: aiohttp.ClientSession, call_main: Call
) -> None:
    async with busy(write, session) as (file, slow, _):
        impatient = await call_main("drain", "-c", str(file), "baremetal/api-1", "--wait", "--timeout", "0")
        waiting = await start("drain", "-c", str(file), "baremetal/api-1", "--wait")
        again = await call_main("drain", "-c", str(file), "baremetal/api-1")
        assert waiting.returncode is None
        slow.allowed.set()
        done = await finish(waiting)

    assert (impatient.code, impatient.out) == (1, "")
    assert "baremetal/api-1: drained, 1 request in flight, and it still waits: api-1 may" in impatient.err
    assert again.out == "baremetal/api-1: drained, 1 request in flight\n"
    assert (done.code, done.out) == (0, "baremetal/api-1: drained, 0 requests in flight\n")
    assert done.err.startswith(NOT_SAVED)
    assert "1.1-1.58 stays on offer, but no backend in service serves it" in done.err


async def test_drain_wait_ends_when_the_backend_is_enabled(
    write: Write, session: aiohttp.ClientSession, call_main: Call
) -> None:
    async with busy(write, session) as (file, _, _):
        waiting = await start("drain", "-c", str(file), "baremetal/api-1", "--wait")

        await until_drained(session, file)
        await call_main("enable", "-c", str(file), "baremetal/api-1")
        ended = await finish(waiting)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("skewgate: baremetal/api-1 was enabled or removed while waiting\n")


async def test_drain_wait_fails_when_the_gateway_goes_away(
    write: Write, session: aiohttp.ClientSession
) -> None:
    async with busy(write, session) as (file, _, gateway):
        waiting = await start("drain", "-c", str(file), "baremetal/api-1", "--wait")

        await until_drained(session, file)
        gateway.kill()
        ended = await finish(waiting)

    assert (ended.code, ended.out) == (1, "")
    assert "no gateway responds at" in ended.err
