"""The assembly of a gateway: how its parts are connected, and that a failed start leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from dataclasses import replace

import aiohttp
import pytest

from gateway.assembly import Gateway, learning
from gateway.demo.ironic import SERVED
from gateway.errors import CLIENT_ERROR_REASONS, StartupError
from gateway.settings import Loaded, read_file
from tests.cli.conftest import Running, Write
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import ready
from tests.kit.waiting import PATIENCE


async def test_a_request_reaches_metrics_and_access_log(
    write: Write, session: aiohttp.ClientSession, capfd: pytest.CaptureFixture[str]
) -> None:
    configured = read_file(write(), environ=os.environ).require()
    async with Gateway(configured) as gateway:
        await ready(session, gateway.admin_url)
        host, port = gateway.addresses[0]
        async with session.get(f"http://{host}:{port}/v1/nodes", headers={SERVED: "1.31"}) as response:
            assert response.status == 200
        async with session.get(f"{gateway.admin_url}/metrics") as response:
            metrics = await response.text()

    assert 'skewgate_served_version_total{service="baremetal",version="1.31"} 1.0' in metrics
    assert '"version": "1.31"' in capfd.readouterr().out


async def test_backends_get_the_version_and_nothing_that_they_do_not_serve(
    running: Running, fleet: Fleet, session: aiohttp.ClientSession
) -> None:
    for version in ("1.58", "1.59", "latest", "1.90"):
        async with session.get(f"{running.url}/v1/nodes", headers={SERVED: version}) as response:
            assert response.status == (200 if version in ("1.58", "latest") else 406)

    sent = fleet.old.received + fleet.new.received
    del sent[""]
    assert sent == {"1.58": 2}
    assert fleet.old.refused == fleet.new.refused == []


async def test_a_start_that_fails_leaves_nothing_behind(write: Write) -> None:
    admin_port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = write(other.getsockname()[1], admin_port)
        gateway = Gateway(read_file(file, environ=os.environ).require())
        with pytest.raises(StartupError, match="cannot listen"):
            await gateway.__aenter__()

    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", admin_port))


async def test_a_reload_under_way_at_the_end_is_given_up(
    write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = write()
    configured = read_file(file, environ=os.environ).require()
    caplog.set_level("INFO")
    reading, may_end = threading.Event(), threading.Event()

    def slowly(*_: object, **__: object) -> Loaded:
        reading.set()
        assert may_end.wait(10)
        return read_file(file, environ=os.environ)

    monkeypatch.setattr(learning, "read_file", slowly)
    try:
        async with Gateway(configured, source=file) as gateway:
            gateway.on_sighup()
            assert await asyncio.to_thread(reading.wait, 10)
    finally:
        may_end.set()

    assert "reload" not in {task.get_name() for task in asyncio.all_tasks()}
    assert "reloaded" not in caplog.text


@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_a_file_that_became_a_pipe_or_a_device_is_refused_and_never_waited_for(
    running: Running, session: aiohttp.ClientSession, kind: str
) -> None:
    text = running.file.read_text()
    running.file.unlink()
    if kind == "pipe":
        os.mkfifo(running.file)
    else:
        running.file.symlink_to("/dev/zero")
    async with asyncio.timeout(PATIENCE), session.post(f"{running.admin}/-/reload") as response:
        assert response.status == 400
        assert "not a regular file" in (await response.json())["error"]
    running.file.unlink()
    running.file.write_text(text)
    async with asyncio.timeout(PATIENCE), session.post(f"{running.admin}/-/reload") as response:
        assert response.status == 200


async def test_an_error_does_not_wait_for_a_drain(write: Write, session: aiohttp.ClientSession) -> None:
    configured = read_file(write(), environ=os.environ).require()
    timeouts = replace(configured.timeouts, drain=3600.0)
    gateway = Gateway(replace(configured, timeouts=timeouts))
    await gateway.__aenter__()
    await ready(session, gateway.admin_url)
    host, port = gateway.addresses[0]
    async with session.get(f"http://{host}:{port}/v1"):  # leaves an idle connection behind
        pass

    await gateway.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(f"http://{host}:{port}/v1")


async def test_every_reason_of_a_client_error_is_counted_from_zero(
    running: Running, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{running.admin}/metrics") as response:
        metrics = await response.text()

    for reason in CLIENT_ERROR_REASONS:
        assert f'skewgate_client_errors_total{{reason="{reason}"}} 0.0\n' in metrics
