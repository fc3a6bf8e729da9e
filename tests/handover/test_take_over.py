"""A gateway goes on in place of another one: nothing is lost, and whatever goes wrong changes nothing."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.assembly import Gateway
from gateway.controlplane.replication.replication import Replication
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.usage.reading import read_files
from gateway.errors import StartupError
from gateway.handover import handover
from gateway.handover.take_over import take_over
from tests.handover.conftest import House, OtherRelease
from tests.kit.waiting import PATIENCE, until

TAKE_OVER = {"kind": "take_over", "forms": [1], "release": "0.0.9", "pid": 4711}


class Clients:
    """Ask all the time, on a new connection each, until told to stop."""

    def __init__(self, house: House, gateway: Gateway, count: int = 4) -> None:
        self.statuses: list[int] = []
        self._house, self._gateway = house, gateway
        self._stop = False
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(count)]

    async def _ask(self) -> None:
        url = self._gateway.urls[0]
        while not self._stop:
            async with self._house.session.get(
                f"{url}/v1/nodes", headers={"Connection": "close"}
            ) as response:
                self.statuses.append(response.status)

    async def at_least(self, more: int) -> None:
        wanted = len(self.statuses) + more
        await until(lambda: len(self.statuses) >= wanted or any(task.done() for task in self._tasks))

    async def all_served(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)
        assert set(self.statuses) == {200}


async def taken_over(house: House, file: Path) -> Gateway:
    gateway = await house.start(file, takes_over=True)
    await house.one_ended()
    return gateway


async def test_nothing_is_lost_in_two_take_overs(house: House) -> None:
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    clients = Clients(house, old)
    await clients.at_least(20)

    middle = await taken_over(house, file)
    await clients.at_least(20)
    new = await taken_over(house, file)
    await clients.at_least(20)

    await clients.all_served()
    assert old.urls == ()
    assert middle.urls == ()
    assert (await house.offer(new))["max"] == "1.58"


async def test_usage_is_recorded_without_a_gap(house: House) -> None:
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    clients = Clients(house, old)
    await clients.at_least(20)
    middle = await taken_over(house, file)
    await clients.at_least(20)
    new = await taken_over(house, file)
    await clients.at_least(20)
    await clients.all_served()
    await house.end(new)
    assert middle.urls == ()

    record = read_files([Path(f"{house.state}.usage")], "baremetal", None)

    assert sum(count.requests for count in record.rows.values()) == len(clients.statuses)
    assert record.gaps == ()
    assert len(record.sources[0].periods) == 3


async def test_pins_and_drains_survive(house: House) -> None:
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
    await house.admin(old, "POST", "/services/baremetal/backends/api-2/drain")

    new = await taken_over(house, file)

    _, document = await house.admin(new, "GET", "/status")
    service = document["services"]["baremetal"]
    assert (service["pin"], service["backends"]["api-2"]["drained"]) == ("1.31", True)
    assert service["offer"]["max"] == "1.31"
    status, document = await house.admin(new, "DELETE", "/services/baremetal/ceiling")
    assert (status, document.get("kept")) == (200, True), document
    assert "document" not in json.loads(house.state.read_text())["services"]["baremetal"]


async def test_a_drained_backend_is_not_idle_while_the_old_gateway_has_requests(house: House) -> None:
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    _, writer = await asyncio.open_connection(*old.addresses[0])
    writer.write(b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" + b" " * 1_000_000)
    busy: list[str] = []
    while not busy:
        _, status = await house.admin(old, "GET", "/status")
        backends = status["services"]["baremetal"]["backends"]
        busy = [name for name, backend in backends.items() if backend["in_flight"]]

    new = await house.start(file, takes_over=True)
    await house.admin(new, "POST", f"/services/baremetal/backends/{busy[0]}/drain")

    async def is_idle(seconds: int) -> bool:
        query = f"backend={busy[0]}&drained&seconds={seconds}"
        _, answer = await house.admin(new, "POST", f"/services/baremetal/wait?{query}")
        return bool(answer["holds"])

    assert not await is_idle(1)
    writer.transport.abort()
    await house.one_ended()
    assert await is_idle(5)


async def test_the_state_file_may_be_gone(house: House) -> None:
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
    taken = await take_over(house.path)
    house.state.unlink()

    gateway = house.gateway(file, taken)
    async with gateway:
        await house.one_ended()
        _, document = await house.admin(gateway, "GET", "/status")

        assert document["services"]["baremetal"]["pin"] == "1.31"
        await until(house.state.exists)


async def test_addresses_may_come_and_go(house: House) -> None:
    path = house.folder / "http.sock"
    old = await house.start(house.write("127.0.0.1:0", f"unix:{path}"))
    await house.known(old)

    middle = await taken_over(house, house.write("127.0.0.1:0", "[::1]:0"))
    urls = middle.urls
    new = await taken_over(house, house.write("[::1]:0", "127.0.0.1:0"))

    assert new.urls == (urls[1], urls[0])  # the same ports
    assert await house.get(new) == 200
    assert not path.exists()


async def test_a_unix_socket_stays_where_it_is(house: House) -> None:
    path = house.folder / "http.sock"
    file = house.write(f"unix:{path}")
    old = await house.start(file)
    await house.known(old)
    inode = path.lstat().st_ino

    new = await taken_over(house, file)
    assert path.lstat().st_ino == inode
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await house.end(new)

    assert not path.exists()


@pytest.mark.parametrize("listens_on", ["listen", "admin"])
async def test_a_start_that_fails_changes_nothing(house: House, listens_on: str) -> None:
    old = await house.start(house.write())
    await house.known(old)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        if listens_on == "listen":
            file = house.write("127.0.0.1:0", f"127.0.0.1:{port}", name="other.yaml")
        else:
            file = house.write(name="other.yaml")
            file.write_text(
                file.read_text().replace("{listen: '127.0.0.1:0'}", f"{{listen: '127.0.0.1:{port}'}}")
            )

        with pytest.raises(StartupError, match="address already in use"):
            await house.start(file, takes_over=True)

    assert await house.get(old) == 200
    await until(lambda: not old.parts.plan.handover.frozen())
    status, _ = await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
    assert status == 200


@pytest.mark.parametrize("step", ["connected", "asked", "offered", "ready", "stopped"])
async def test_one_that_is_killed_at_any_step_changes_nothing(house: House, step: str) -> None:
    old = await house.start(house.write())
    await house.known(old)
    clients = Clients(house, old)
    new = await OtherRelease.at(house.path)
    if step != "connected":
        new.say(TAKE_OVER)
    if step in {"offered", "ready", "stopped"}:
        offer = await new.hear()
        await new.hear_descriptors(len(offer["sockets"]))
    if step in {"ready", "stopped"}:
        new.say({"kind": "ready"})
    if step == "stopped":
        assert await new.hear() == {"kind": "stopped"}
    new.close()

    await clients.at_least(10)
    await until(lambda: not old.parts.plan.handover.frozen())
    await clients.all_served()
    status, document = await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
    assert (status, document["kept"]) == (200, True)
    assert await taken_over(house, house.write()) is not old


async def test_meanwhile_nothing_is_commanded(house: House) -> None:
    old = await house.start(house.write())
    await house.known(old)
    new = await OtherRelease.at(house.path)
    new.say(TAKE_OVER)
    await new.hear()

    refused = [
        await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"}),
        await house.admin(old, "POST", "/services/baremetal/backends/api-1/drain"),
        await house.admin(old, "POST", "/-/reload"),
    ]
    new.close()

    assert refused == [(503, {"error": "another gateway is taking over: try again in a moment"})] * 3
    assert (await house.offer(old))["max"] == "1.58"


async def test_what_is_reloaded_too_late_is_told_who_serves_now(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGHUP to a gateway that only finishes what it has."""
    old = await house.start(house.write())
    await house.known(old)
    host, port = old.addresses[0]
    _, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    caplog.set_level(logging.INFO, "skewgate.handover")
    await house.start(house.write(), takes_over=True)
    await until(lambda: "serves now; this one finishes its requests" in caplog.text)

    old.on_sighup()
    await until(lambda: "reload refused" in caplog.text)
    writer.close()

    assert f"process {os.getpid()} has taken over: reload that one" in caplog.text
    await house.one_ended()


async def test_a_second_one_is_refused(house: House) -> None:
    old = await house.start(house.write())
    await house.known(old)
    first = await OtherRelease.at(house.path)
    first.say(TAKE_OVER)
    await first.hear()

    with pytest.raises(StartupError, match="cannot be taken over now: another take-over is under way"):
        await take_over(house.path)
    first.close()


async def test_a_disk_that_hangs_ends_the_take_over(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would refuse commands, and could not be stopped, until the disk is back."""
    monkeypatch.setattr("gateway.controlplane.state.keeper.MAX_WAIT", 0.05)
    monkeypatch.setattr("gateway.handover.predecessor.STOP_TIME", 0.05)
    old = await house.start(house.write())
    await house.known(old)
    goes_on, replace = threading.Event(), StateFile.replace

    def replace_late(file: StateFile, text: str) -> None:
        goes_on.wait(PATIENCE)
        replace(file, text)

    monkeypatch.setattr(StateFile, "replace", replace_late)
    try:
        await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
        new = await OtherRelease.at(house.path)
        new.say(TAKE_OVER)
        await new.hear_descriptors(len((await new.hear())["sockets"]))
        new.say({"kind": "ready"})

        assert await new.gone()
        await until(lambda: old.parts.plan.handover.frozen() == "")
        assert await house.get(old) == 200
    finally:
        goes_on.set()
    assert "this one goes on: a disk or a worker keeps it from stopping within 0.05 s" in caplog.text
    new.close()


async def test_the_socket_of_a_successor_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the old gateway has looked whose socket is there: two processes do both at once."""
    await house.start(house.write())
    new = await OtherRelease.at(house.path)
    new.say(TAKE_OVER)
    await new.hear_descriptors(len((await new.hear())["sockets"]))
    new.say({"kind": "ready"})
    await new.hear()
    look = Path.lstat
    with socket.socket(socket.AF_UNIX) as own:
        beside = house.path.with_name("new")
        own.bind(str(beside))
        own.listen()

        def looked(path: Path) -> os.stat_result:
            found = look(path)
            if path == house.path and beside.exists():
                beside.replace(path)
            return found

        monkeypatch.setattr(Path, "lstat", looked)
        new.say({"kind": "serving"})
        await house.one_ended()
        assert await new.gone()

        if beside.exists():
            beside.replace(house.path)
        (await OtherRelease.at(house.path)).close()
    new.close()


@pytest.mark.parametrize("left", ["nothing", "a socket"])
async def test_there_may_be_nobody(house: House, left: str) -> None:
    if left == "a socket":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(house.path))

    assert await take_over(house.path) is None
    gateway = await house.start(house.write())
    await house.known(gateway)
    assert await taken_over(house, house.write()) is not gateway


async def test_a_gateway_that_cannot_be_found_serves_all_the_same(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(house.path))
        other.listen(1)
        gateway = await house.start(house.write())
        await house.known(gateway)

        assert await house.get(gateway) == 200
    assert "this gateway cannot be taken over, only restarted" in caplog.text


async def test_it_can_be_found_when_the_gateway_before_it_has_ended(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one drained and had the socket: its successor could not be taken over all its life."""
    caplog.set_level(logging.INFO, "skewgate.handover")
    monkeypatch.setattr(handover, "OFFER_RETRY", 0.01)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(house.path))
        other.listen(1)
        gateway = await house.start(house.write())
        await house.known(gateway)
    await until(lambda: "can be taken over now" in caplog.text)

    assert await taken_over(house, house.write()) is not gateway
    assert caplog.text.count("this gateway cannot be taken over") == 1


NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def for_everybody(path: Path) -> None:
    path.chmod(0o666)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A path in a folder that every user reaches."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder, "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
async def test_another_user_gets_nothing(house: House) -> None:
    gateway = await house.start(house.write())
    await house.known(gateway)
    with open_folder() as path:
        house.path.rename(path)
        for_everybody(path)
        sock = socket.socket(socket.AF_UNIX)
        with as_nobody():
            sock.connect(str(path))
        sock.setblocking(False)
        other = OtherRelease(*await asyncio.open_unix_connection(sock=sock))
        other.say(TAKE_OVER)

        assert await other.gone()
        other.close()
    assert await house.get(gateway) == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
async def test_another_user_is_not_believed(house: House) -> None:
    with open_folder() as path:
        with as_nobody():
            other = socket.socket(socket.AF_UNIX)
            other.bind(str(path))
            other.listen(1)
        with other, pytest.raises(StartupError, match="of another user, 65534: not taken over"):
            await take_over(path)


async def test_a_stop_ends_the_take_over_that_is_under_way(house: House) -> None:
    """At once, and not when the last client is gone: until then clients would wait in sockets that the new
    gateway has, and from which nobody accepts."""
    gateway = await house.start(house.write())
    await house.known(gateway)
    host, port = gateway.addresses[0]
    _, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    other = await OtherRelease.at(house.path)
    other.say({"forms": [1], "kind": "take_over", "pid": 1, "release": "9.9"})
    await other.hear()
    await other.hear_descriptors(1)  # so few come with one byte

    ending = asyncio.create_task(house.end(gateway))
    assert await other.gone()

    assert not ending.done()  # a request is under way
    writer.close()
    other.close()
    await ending


async def test_R3_V3_a_replica_joins_before_the_other_gateway_stops(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards `/readyz` would be 503 until it has joined. Nobody listens where the store is to be."""
    etcd = "agreement: {etcd: {endpoints: ['http://127.0.0.1:1']}, cluster: c}"
    file = house.write(more=etcd)
    old = await house.start(file)
    awaited, joined = asyncio.Event(), asyncio.Event()

    async def over(_: Replication) -> None:
        awaited.set()
        await joined.wait()

    monkeypatch.setattr(Replication, "joined", over)
    starting = asyncio.create_task(house.start(file, takes_over=True))
    await awaited.wait()
    status, document = await house.admin(old, "GET", "/status")
    assert (status, len(old.urls)) == (200, 1), document

    joined.set()

    await starting
    await house.one_ended()
