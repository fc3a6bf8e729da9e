"""`skewgate wait`: a condition holds only by probes sent after it began, on every live replica.

The gateway here probes once an hour by itself: whatever else it learns, a wait has asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import aiohttp
import pytest
from aiohttp import web

from gateway.assembly import Gateway
from gateway.cli.admin_client import AdminClient
from gateway.cli.wait import until_holds
from gateway.demo.ironic import NEW, SERVED, IronicServer
from gateway.demo.servers import Release
from gateway.settings import read_file
from tests.cli.conftest import Call
from tests.controlplane.fakes import ironic
from tests.controlplane.fakes import serving as backend_serving
from tests.kit.fleets import OLD, Fleet, running_fleet
from tests.kit.networks import free_port
from tests.kit.processes import Ended, ready
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

WAIT = ("wait", "baremetal", "--timeout")
AT_ONCE = (*WAIT, "1s")
PATIENT = (*WAIT, "30s")


@asynccontextmanager
async def gateway_of(
    folder: Path, entries: list[str], session: aiohttp.ClientSession
) -> AsyncIterator[Gateway]:
    file = folder / "gateway.yaml"
    file.write_text(
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
        "services:\n  baremetal:\n    dialect: ironic\n    probe: {interval: 1h}\n"
        f"    offer: {{stabilization: 20ms}}\n    backends: [{', '.join(entries)}]\n"
    )
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        await ready(session, gateway.admin_url)
        yield gateway


@pytest.fixture
async def old_fleet() -> AsyncIterator[Fleet]:
    async with running_fleet(OLD, OLD) as fleet:
        yield fleet


@pytest.fixture
async def gateway(tmp_path: Path, old_fleet: Fleet, session: aiohttp.ClientSession) -> AsyncIterator[Gateway]:
    async with gateway_of(tmp_path, old_fleet.entries, session) as gateway:
        yield gateway


async def upgrade(server: IronicServer, release: Release = NEW) -> None:
    await server.stop()
    await server.start(release)


async def refused(call_main: Call, *argv: str) -> Ended:
    """The result after a second. A busy machine may take longer for the probes: then it is asked again."""
    ended = await call_main(*AT_ONCE, *argv)
    while "no probe that was sent since" in ended.err:
        ended = await call_main(*AT_ONCE, *argv)
    return ended


async def test_uniform_does_not_hold_by_what_was_known_before(
    gateway: Gateway, old_fleet: Fleet, call_main: Call
) -> None:
    before = await call_main(*PATIENT, "--phase", "uniform", "--admin", gateway.admin_url)
    await upgrade(old_fleet.new)
    after = await refused(call_main, "--phase", "uniform", "--admin", gateway.admin_url)
    waiting = asyncio.ensure_future(call_main(*PATIENT, "--phase", "uniform", "--admin", gateway.admin_url))
    await upgrade(old_fleet.old)
    at_last = await waiting

    assert (before.code, before.out) == (0, "baremetal: offers 1.1-1.58, phase uniform\n")
    assert (after.code, after.out) == (1, "")
    assert after.err == (
        "skewgate: baremetal: the time is over, and it still waits: the phase is mixed: "
        "1.59-1.90 is held back by api-1 (1.1-1.58): upgrade or drain\n"
    )
    assert (at_last.code, at_last.out) == (0, "baremetal: offers 1.1-1.90, phase uniform\n")


async def test_a_server_that_does_not_answer_is_not_what_it_was(
    gateway: Gateway, old_fleet: Fleet, call_main: Call
) -> None:
    await old_fleet.new.stop()
    serves = ("--backend", "api-2", "--serves", "1.58", "--admin", gateway.admin_url)
    down = await call_main(*AT_ONCE, *serves)
    uniform = await call_main(*AT_ONCE, "--phase", "uniform", "--admin", gateway.admin_url)
    silent = await call_main(*AT_ONCE, "--backend", "api-2", "--admin", gateway.admin_url)
    offered = await call_main(*PATIENT, "--offer", "1.58", "--admin", gateway.admin_url)
    waiting = asyncio.ensure_future(call_main(*PATIENT, *serves))
    await old_fleet.new.start(NEW)
    back = await waiting

    assert (down.code, uniform.code, silent.code) == (1, 1, 1)
    assert "no probe that was sent since is answered by api-2" in down.err
    assert "api-2" in uniform.err
    assert offered.code == 0  # its last report counts for the offer
    assert (back.code, back.out) == (0, "baremetal/api-2: serves 1.1-1.90\n")


async def test_an_offer_that_is_about_to_fall_does_not_hold(
    tmp_path: Path, session: aiohttp.ClientSession, call_main: Call
) -> None:
    async with running_fleet(NEW, NEW) as fleet, gateway_of(tmp_path, fleet.entries, session) as gateway:
        offered = ("--offer", "1.90", "--admin", gateway.admin_url)
        before = await call_main(*PATIENT, *offered)
        for server in fleet:
            await upgrade(server, OLD)
        after = await refused(call_main, *offered)

    assert (before.code, before.out) == (0, "baremetal: offers 1.1-1.90, phase uniform\n")
    assert after.code == 1
    assert "1.90 is not on offer" in after.err


async def test_drained_holds_when_the_last_request_is_done(
    tmp_path: Path, session: aiohttp.ClientSession, call_main: Call
) -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/nodes":
            asked.set()
            await done.wait()
            return web.Response(headers={SERVED: "1.1"})
        return await ironic()(request)

    async with backend_serving(slow) as backend:
        entry = f"{{name: api-1, url: 'http://127.0.0.1:{backend.port}'}}"
        async with gateway_of(tmp_path, [entry], session) as gateway:
            host, port = gateway.addresses[0]
            request = asyncio.create_task(session.get(f"http://{host}:{port}/v1/nodes"))
            await asked.wait()
            drained = ("--backend", "api-1", "--drained", "--admin", gateway.admin_url)
            not_drained = await call_main(*AT_ONCE, *drained)
            await call_main("drain", "baremetal/api-1", "--admin", gateway.admin_url)
            busy = await call_main(*AT_ONCE, *drained)
            waiting = asyncio.ensure_future(call_main(*PATIENT, *drained))
            done.set()
            (await request).release()
            idle = await waiting

    assert (not_drained.code, busy.code, idle.code) == (1, 1, 0)
    assert "api-1 is not drained" in not_drained.err
    assert "api-1 may have requests in flight" in busy.err
    assert idle.out == "baremetal/api-1: serves 1.1-1.58, drained\n"


async def test_all_that_are_given_must_hold_and_json_is_the_state(gateway: Gateway, call_main: Call) -> None:
    both = await call_main(
        *PATIENT, "--phase", "uniform", "--offer", "1.58", "--admin", gateway.admin_url, "-o", "json"
    )
    one = await call_main(*AT_ONCE, "--phase", "uniform", "--offer", "1.90", "--admin", gateway.admin_url)

    assert json.loads(both.out)["services"]["baremetal"]["phase"] == "uniform"
    assert one.code == 1


async def test_a_gateway_that_is_replaced_meanwhile_is_asked_anew(
    tmp_path: Path, old_fleet: Fleet, session: aiohttp.ClientSession
) -> None:
    """The next process knows nothing of the first one's probes, and sends its own."""
    async with gateway_of(tmp_path, old_fleet.entries, session) as first:
        url, begun = first.admin_url, monotonic()
        waiting = asyncio.create_task(
            asyncio.to_thread(until_holds, AdminClient(url), "baremetal", [("offer", "1.90")], 30.0)
        )
        await until(lambda: first.parts.prober.has_ended(("baremetal", "api-1"), begun))
    file = tmp_path / "gateway.yaml"
    file.write_text(file.read_text().replace("admin: {listen: 127.0.0.1:0}", f"admin: {{listen: {url[7:]}}}"))
    for server in old_fleet:
        await upgrade(server)
    async with Gateway(read_file(file, environ=os.environ).require(), source=file):
        state, waits_for = await waiting

    assert (state is not None, waits_for) == (True, ())


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--serves", "1.58"),
        ("--drained",),
        ("--phase", "uniform", "--timeout", "soon"),
        ("--phase", "finished"),
        ("--offer", "spam"),
        ("--backend", "api-9", "--drained"),
    ],
)
async def test_bad_usage_is_exit_2(gateway: Gateway, call_main: Call, argv: tuple[str, ...]) -> None:
    ended = await call_main("wait", "baremetal", *argv, "--admin", gateway.admin_url)

    assert (ended.code, ended.out) == (2, "")


async def test_no_gateway_is_one_sentence(call_main: Call) -> None:
    where = f"http://127.0.0.1:{free_port()}"

    ended = await call_main(*PATIENT, "--phase", "uniform", "--admin", where)

    assert (ended.code, ended.err) == (1, f"skewgate: no gateway responds at {where}: Connection refused\n")
