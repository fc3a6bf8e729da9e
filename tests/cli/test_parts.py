"""The parts of a gateway: what a start leaves behind that fails half way, and orders of an end that matter.

All of them are the real ones; a gateway that is not started lends its plan to a part that is tried alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import aiohttp
import pytest

from gateway.assembly import Gateway, learning
from gateway.assembly.agreements import LateParts, make_agreement
from gateway.assembly.listeners import listening
from gateway.assembly.plan import Plan
from gateway.assembly.state import begin_saving, state
from gateway.controlplane.passive_observation import CHANGES_PER_SECOND
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.demo.ironic import SERVED
from gateway.errors import StartupError
from gateway.settings import Loaded, read_file
from gateway.telemetry.process_log import GATEWAY
from gateway.workers.supervisor import WorkerProcesses
from tests.cli.conftest import Write
from tests.kit.certificates import Authority
from tests.kit.processes import ready
from tests.kit.waiting import until


def gateway_of(file: Path) -> Gateway:
    return Gateway(read_file(file, environ=os.environ).require(), source=file)


def descriptors() -> list[str]:
    """What this process has open, sorted."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            found.append(str(each.readlink()))
    return sorted(each for each in found if not each.startswith("/proc/"))


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Within it something is tried. Afterwards no task, descriptor, process or handler is left of it."""
    await asyncio.to_thread(int)  # the loop keeps its thread and what that has open

    def held() -> tuple[object, ...]:
        names = sorted(
            task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-")
        )
        children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text()
        return names, descriptors(), children, list(logging.getLogger(GATEWAY).handlers)

    before = held()
    yield

    async def is_as_before() -> bool:
        return held() == before

    try:
        await until(is_as_before, "nothing is left")
    except AssertionError:
        assert held() == before  # which shows what it is


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
@pytest.mark.parametrize("fails", ["clients", "admin", "metrics", "access log", "backend certificates"])
async def test_a_start_that_fails_leaves_nothing(
    write: Write, tmp_path: Path, fails: str, workers: int
) -> None:
    """With workers it is one of them that cannot open the access log."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, authority = other.getsockname()[1], Authority().write(tmp_path)
        more = f"workers: {workers}\nstate: {tmp_path}/state.json"
        if fails == "access log":
            more += f"\naccess_log: {{path: {tmp_path}/missing/access.log}}"
        file = write(taken if fails == "clients" else 0, taken if fails == "admin" else 0, more)
        text = file.read_text()
        if fails == "metrics":
            text = text.replace("admin: {", f"admin: {{metrics_listen: '127.0.0.1:{taken}', ", 1)
        if fails == "backend certificates":
            text = text.replace("http:", "https:").replace("'}", f"', tls: {{ca: {authority}}}}}")
        file.write_text(text)
        gateway = gateway_of(file)
        authority.unlink()  # after it was checked
        async with nothing_left():
            with pytest.raises(StartupError):
                await gateway.__aenter__()


@pytest.mark.processes
async def test_workers_that_cannot_start_leave_nothing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that is entered before them has run for a while."""
    defaults = WorkerProcesses.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "program", (str(tmp_path / "missing"),))
    gateway = gateway_of(write(more=f"workers: 2\nstate: {tmp_path}/state.json"))

    async with nothing_left():
        with pytest.raises(StartupError, match="could not start"):
            await gateway.__aenter__()


@pytest.mark.processes
async def test_a_start_that_is_cancelled_leaves_nothing_and_signals_do_nothing_meanwhile(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gateway = gateway_of(write(more=f"workers: 2\nstate: {tmp_path}/state.json"))
    gateway.on_second_stop()  # there is no other process yet
    async with nothing_left():
        starting = asyncio.create_task(gateway.__aenter__())
        await _pids(gateway)
        gateway.on_sighup()
        gateway.on_sigusr1()
        assert "reload" not in {task.get_name() for task in asyncio.all_tasks()}
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        gateway.on_sighup()

    assert "reloaded" not in caplog.text
    assert "draining" not in caplog.text


@pytest.mark.processes
async def test_a_second_stop_during_the_start_leaves_no_worker(write: Write) -> None:
    gateway = gateway_of(write(more="workers: 2"))
    async with nothing_left():
        starting = asyncio.create_task(gateway.__aenter__())
        pids = await _pids(gateway)
        gateway.on_second_stop()

        async def gone() -> bool:
            return not any(map(os.path.exists, map("/proc/{}".format, pids)))

        await until(gone, "no worker is left")
        starting.cancel()  # the process would have ended
        with suppress(asyncio.CancelledError, StartupError):
            await starting


async def test_the_sockets_of_clients_are_closed_if_that_of_operators_is_taken(write: Write) -> None:
    """The part alone."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        plan = plan_of(write(0, other.getsockname()[1]))
        async with nothing_left():
            with pytest.raises(StartupError, match="the admin listener cannot listen"):
                async with listening(plan):
                    pytest.fail("it listens")


async def test_facts_that_wait_are_a_part_of_the_last_state(write: Write, tmp_path: Path) -> None:
    """The observer is closed before the keeper, whose last write has what waited. The part alone."""
    plan, late_parts = plan_of(write(more=f"state: {tmp_path}/state.json")), LateParts()
    async with (
        nothing_left(),
        state(plan, make_agreement(plan, late_parts), late_parts) as observer,
    ):
        await begin_saving(late_parts.keeper)
        for number in range(CHANGES_PER_SECOND + 2):
            found = Advertisement(VersionSet.between(Version(1, 1), Version(1, 30 + number)))
            observer.observe("baremetal", "api-1", ProbeSucceeded(found, monotonic()))
            await asyncio.sleep(0)
        last = f'"1.{30 + CHANGES_PER_SECOND + 1}"'
        assert last not in (tmp_path / "state.json").read_text()

    assert last in (tmp_path / "state.json").read_text()


async def test_the_drain_comes_first_while_everything_else_runs(
    write: Write, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Backends are probed, operators see what happens, and a rotated log is opened again."""
    log = tmp_path / "access.log"
    file = write(more=f"access_log: {{path: {log}}}\ntimeouts: {{drain: 60s}}")
    gateway = gateway_of(file)
    await gateway.__aenter__()
    await ready(session, gateway.admin_url)
    host, port = gateway.addresses[0]
    reader, writer = await asyncio.open_connection(host, port)
    # So large that it is sent on before its end has come.
    body = b'{"name": "' + b"x" * 2 * gateway.settings.limits.replay_body + b'"}'
    head = f"POST /v1/nodes HTTP/1.1\r\nHost: a\r\n{SERVED}: 1.31\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[:-1])

    async def under_way() -> bool:
        return any(gateway.status().report.in_flight_by_member.values())

    await until(under_way, "a request is under way")
    ending = asyncio.create_task(gateway.__aexit__(None, None, None))
    probed_at = max(gateway.parts.prober.last_probe_at.values())

    async def probed() -> bool:
        return min(gateway.parts.prober.last_probe_at.values()) > probed_at

    await until(probed, "both backends are probed in the drain")
    async with session.get(f"{gateway.admin_url}/readyz") as response:
        assert response.status == 503
    log.rename(tmp_path / "rotated.log")
    gateway.on_sigusr1()
    assert not ending.done()
    writer.write(body[-1:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 2")
    await ending
    writer.close()

    assert "/v1/nodes" in log.read_text()  # of the new file, which is closed after the last request


async def test_a_command_under_way_ends_before_what_it_changes_is_closed(
    write: Write, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A reload by the admin listener, which waits for it for a moment: it finds everything running, and
    leaves nothing that looks for backends after the end."""
    file = write()
    members = tmp_path / "members.txt"
    members.write_text("127.0.0.1:1\n")
    gateway = gateway_of(file)
    changed = file.read_text().replace("    backends:\n", f"    backends:\n      - {{file: {members}}}\n", 1)
    reading, may_end = threading.Event(), threading.Event()

    def slowly(*_: object, **__: object) -> Loaded:
        reading.set()
        assert may_end.wait(10)
        return read_file(file, environ=os.environ)

    async with nothing_left():
        async with gateway:
            await ready(session, gateway.admin_url)
            monkeypatch.setattr(learning, "read_file", slowly)
            file.write_text(changed)
            asked = asyncio.create_task(session.post(f"{gateway.admin_url}/-/reload"))
            assert await asyncio.to_thread(reading.wait, 10)
            asyncio.get_running_loop().call_later(0.2, may_end.set)
        async with await asked as response:
            assert response.status == 200


def plan_of(file: Path) -> Plan:
    return gateway_of(file)._plan


async def _pids(gateway: Gateway) -> list[int]:
    """Those of the workers, once both are there."""
    found: list[int] = []

    async def there() -> bool:
        plane = gateway._late_parts.plane
        found[:] = [] if plane is None else [each.pid for each in plane.workers() if each.pid]
        return len(found) == 2

    await until(there, "both workers are there")
    return found
