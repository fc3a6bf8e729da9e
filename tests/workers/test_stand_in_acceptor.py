"""The main process accepts for slots without a worker: what it does with sockets, when it does it at all, and
what the clients of a gateway see whose worker is dead and cannot be replaced."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, final

import pytest

from gateway.assembly import Gateway
from gateway.dataplane.edge.balance import ConnectionCounts
from gateway.dataplane.edge.listening_sockets import Inherited, ListeningSockets
from gateway.settings.sections.listen import Listen
from gateway.workers import stand_in_acceptor
from gateway.workers.stand_in_acceptor import StandInAcceptor
from tests.dataplane.listener_tls import local_leaf
from tests.kit.backends import ScriptedBackend, serve
from tests.kit.certificates import authority, client_context
from tests.kit.gateways import gateway_of
from tests.kit.waiting import PATIENCE, until
from tests.workers.fakes import Plane

# --- accepting and giving


@final
class Inboxes:
    """the connection counts, and what the workers of its slots find in their inboxes."""

    def __init__(self, slots: int) -> None:
        self.connection_counts = ConnectionCounts(slots)
        self._inboxes = [
            socket.socket(fileno=os.dup(self.connection_counts.descriptors(slot).inbox))
            for slot in range(slots)
        ]

    def take(self, slot: int) -> tuple[int, socket.socket] | None:
        """The position of a listener, and a connection of it; None: there is none."""
        try:
            data, [number], _, _ = socket.recv_fds(self._inboxes[slot], 1, 1)
        except BlockingIOError:
            return None
        return data[0], socket.socket(fileno=number)

    async def taken(self, slot: int) -> tuple[int, socket.socket]:
        async with asyncio.timeout(PATIENCE):
            while (found := self.take(slot)) is None:  # noqa: ASYNC110 - it is no reader of this loop
                await asyncio.sleep(0.001)
        return found

    def close(self) -> None:
        self.connection_counts.close()
        for inbox in self._inboxes:
            inbox.close()


@final
class Desk:
    """A stand-in acceptor of workers that are only inboxes."""

    def __init__(self, sockets: ListeningSockets, inboxes: Inboxes) -> None:
        self.sockets = sockets
        self.inboxes = inboxes
        self.stand_in = StandInAcceptor(sockets, inboxes.connection_counts)
        self.clients: list[socket.socket] = []

    def connect(self, slot: int, position: int = 0) -> socket.socket:
        """A client that has come to this slot's socket, and is not accepted yet. The kernel chooses."""
        listening = [dict(self.sockets.of_slot(each))[position] for each in range(self.sockets.slots)]
        while True:
            client = socket.socket(listening[slot].family)
            client.connect(listening[slot].getsockname())
            self.clients.append(client)
            found, _, _ = select.select(listening, [], [], PATIENCE)
            if listening[slot] in found:
                return client
            for sock in found:
                sock.accept()[0].close()


@asynccontextmanager
async def desk(*listen: Listen, slots: int = 2) -> AsyncIterator[Desk]:
    sockets = await ListeningSockets.bind(listen or (Listen("127.0.0.1", 0),), slots)
    inboxes = Inboxes(slots)
    made = Desk(sockets, inboxes)
    try:
        yield made
    finally:
        made.stand_in.close()
        for client in made.clients:
            client.close()
        inboxes.close()
        sockets.close()


def waits(listening: socket.socket) -> bool:
    """Whether somebody waits there to be accepted."""
    return bool(select.select([listening], [], [], 0)[0])


async def turns() -> None:
    """Of the loop, in which it would have accepted."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_goes_to_the_worker_with_fewest() -> None:
    async with desk(slots=3) as each:
        counts = each.inboxes.connection_counts._counts
        counts[1], counts[2] = 1, 0
        each.stand_in.cover([0], [1, 2])
        for expected in (2, 1, 2):  # each counts until the worker says so itself
            each.connect(0)
            _, given = await each.inboxes.taken(expected)
            given.close()
        assert each.inboxes.take(1) is None


async def test_it_is_the_same_connection_and_the_same_listener(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listen = (Listen("127.0.0.1", 0), Listen("::1", 0), Listen("", 0, str(path)))
    async with desk(*listen) as each:
        each.stand_in.cover([0], [1])
        for position in (0, 1):
            client = each.connect(0, position)
            found, given = await each.inboxes.taken(1)
            with given:
                client.sendall(b"hello")
                given.setblocking(True)
                assert (found, given.recv(5)) == (position, b"hello")

        each.connect(0, 2)  # the one socket of a path is the other worker's, too
        await turns()
        assert waits(dict(each.sockets.of_slot(0))[2])
        assert each.inboxes.take(1) is None


async def test_what_all_slots_share_is_left_to_those_that_serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        sockets = await ListeningSockets.bind(
            [Listen("127.0.0.1", port)], 2, [Inherited(one.dup(), managed=True)]
        )
        inboxes = Inboxes(2)
        stood_in = StandInAcceptor(sockets, inboxes.connection_counts)
        with socket.create_connection(("127.0.0.1", port)):
            stood_in.cover([0], [1])
            await turns()
            assert waits(one)
        stood_in.close()
        inboxes.close()
        sockets.close()


async def test_one_that_nobody_takes_is_kept_and_the_others_wait_in_the_socket() -> None:
    async with desk() as each:
        sock = dict(each.sockets.of_slot(0))[0]
        left, right = socket.socketpair()
        with left, right:
            full = 0
            while each.inboxes.connection_counts.give(1, 7, left):
                full += 1
        each.stand_in.cover([0], [1])
        first = each.connect(0)
        async with asyncio.timeout(PATIENCE):
            while not each.stand_in._untaken:  # noqa: ASYNC110
                await asyncio.sleep(0)
        second = each.connect(0)
        await turns()
        assert waits(sock)
        assert len(each.stand_in._untaken) == 1

        for _ in range(full):
            position, other = await each.inboxes.taken(1)
            assert position == 7
            other.close()
        for client, text in ((first, b"1"), (second, b"2")):
            _, given = await each.inboxes.taken(1)
            with given:
                client.sendall(text)
                given.setblocking(True)
                assert given.recv(1) == text
        assert not each.stand_in._untaken


async def test_another_worker_takes_what_the_first_one_cannot() -> None:
    async with desk(slots=3) as each:
        counts = each.inboxes.connection_counts._counts
        left, right = socket.socketpair()
        with left, right:
            while each.inboxes.connection_counts.give(1, 7, left):
                pass
        counts[1], counts[2] = 0, 5
        each.stand_in.cover([0], [1, 2])
        each.connect(0)
        _, given = await each.inboxes.taken(2)
        given.close()


async def test_what_is_kept_is_given_after_the_last_one_was_accepted() -> None:
    """Nobody is accepted any more: those that were are served by whoever takes them."""
    async with desk() as each:
        left, right = socket.socketpair()
        with left, right:
            while each.inboxes.connection_counts.give(1, 7, left):
                pass
        each.stand_in.cover([0], [1])
        each.connect(0)
        async with asyncio.timeout(PATIENCE):
            while not each.stand_in._untaken:  # noqa: ASYNC110
                await asyncio.sleep(0)
        each.stand_in.cover([], [1])
        position = 7
        while position == 7:
            position, given = await each.inboxes.taken(1)
            given.close()
        assert position == 0


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot open anything."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


async def test_without_descriptors_it_rests_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stand_in_acceptor, "CANNOT_ACCEPT", 0.01)
    async with desk() as each:
        client = each.connect(0)
        calls = 0

        def pause(seconds: float) -> None:
            nonlocal calls
            calls += 1
            assert seconds == 0.01
            StandInAcceptor._pause(each.stand_in, seconds)
            assert not each.stand_in._watched

        monkeypatch.setattr(each.stand_in, "_pause", pause, raising=False)
        with no_descriptors():
            each.stand_in.cover([0], [1])
            async with asyncio.timeout(PATIENCE):
                while calls < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        _, given = await each.inboxes.taken(1)
        with given:
            client.sendall(b"x")
            given.setblocking(True)
            assert given.recv(1) == b"x"
    assert [record.getMessage() for record in caplog.records] == [
        "cannot accept connections for a dead worker: Too many open files"
    ]


async def test_many_do_not_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in_acceptor, "BATCH", 2)
    async with desk(slots=1) as each:
        for _ in range(5):
            each.connect(0)
        given: list[socket.socket] = []

        def hand(position: int, sock: socket.socket) -> bool:
            given.append(sock)
            sock.close()
            return True

        monkeypatch.setattr(each.stand_in, "_hand", hand)
        each.stand_in._accept(0, dict(each.sockets.of_slot(0))[0])
        assert len(given) == 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_both_kinds_of_event_loop(loop: str) -> None:
    async def life() -> None:
        async with desk() as each:
            each.stand_in.cover([0], [1])
            each.connect(0)
            _, given = await each.inboxes.taken(1)
            given.close()
            each.stand_in.cover([], [1])
            each.connect(0)
            await turns()
            assert each.inboxes.take(1) is None
            each.stand_in.cover([0], [1])
            _, given = await each.inboxes.taken(1)
            given.close()

    factory = asyncio.new_event_loop if loop == "asyncio" else import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(life())


# --- when


def covered(plane: Plane) -> bool:
    return bool(plane.processes._stand_in._watched)


@pytest.mark.processes
async def test_it_accepts_from_the_end_of_a_worker_until_the_next_one_serves(plane: Plane) -> None:
    await plane.serve()
    assert not covered(plane)
    plane.control.silent = ("Start",)
    plane.control.workers[0].order("exit", 1)
    third = await plane.control.worker(2)
    assert covered(plane)

    third.order("silent", "Serve")
    third.say("Ack", 1)
    await plane.control.until(lambda: bool(third.of("Serve")))
    third.say("Serving")
    await plane.until(lambda: {plane.state(0), plane.state(1)} == {"serving"})
    assert not covered(plane)


@pytest.mark.processes
async def test_it_accepts_nobody_before_a_worker_serves(plane: Plane) -> None:
    plane.control.silent = ("Serve",)
    await plane.processes.start()
    listening = asyncio.create_task(plane.processes.listen())
    for worker in plane.control.workers:
        await plane.control.until(lambda worker=worker: bool(worker.of("Serve")))  # type: ignore[misc]
    assert not covered(plane)
    for worker in plane.control.workers:
        worker.say("Serving")
    await listening
    assert not covered(plane)


@pytest.mark.processes
async def test_it_accepts_nobody_while_no_worker_serves(plane: Plane) -> None:
    await plane.serve()
    plane.control.silent = ("Start",)
    for worker in list(plane.control.workers):
        worker.order("exit", 1)
    await plane.control.worker(3)
    assert not covered(plane)


@pytest.mark.processes
@pytest.mark.parametrize("how", ["stop_accepting", "drain", "abort", "kill"])
async def test_it_accepts_nobody_while_nobody_is_accepted(plane: Plane, how: str) -> None:
    await plane.serve()
    plane.control.silent = ("Start",)
    plane.control.workers[0].order("exit", 1)
    await plane.control.worker(2)
    assert covered(plane)

    match how:
        case "stop_accepting":
            stopping = plane.processes.stop_accepting()
        case "drain":
            stopping = plane.processes.drain(0.0)
        case "abort":
            stopping = plane.processes.abort()
        case _:
            plane.processes.kill()
            assert not covered(plane)
            return
    task = asyncio.create_task(stopping)
    await asyncio.sleep(0)  # from its first step on, before anybody has answered
    assert not covered(plane)
    await task
    assert not covered(plane)


@pytest.mark.processes
async def test_after_a_pause_it_goes_on_and_the_gateway_waits_for_no_worker_that_is_dead(
    plane: Plane,
) -> None:
    await plane.serve()
    plane.control.silent = ("Start",)
    plane.control.workers[0].order("exit", 1)
    await plane.control.worker(2)
    await plane.processes.stop_accepting()
    assert not covered(plane)

    async with asyncio.timeout(PATIENCE):
        await plane.processes.listen()
    assert covered(plane)


# --- what clients see

CONFIGURATION: Final = """
workers: 2
listen:
  - {{address: "127.0.0.1:0"}}
  - {{address: "127.0.0.1:0", tls: {{certificates: [{{certificate: {certificate}, key: {key}}}]}}}}
  - {{address: "127.0.0.1:0", proxy_protocol: on}}
  - {{address: "[::1]:0"}}
  - {{address: "unix:{folder}/clients"}}
trusted_proxies: [127.0.0.0/8]
access_log: {{path: {folder}/access.log, format: json}}
admin: {{listen: 127.0.0.1:0}}
services:
  baremetal:
    dialect: ironic
    backends: [{{name: api-1, url: "http://127.0.0.1:{port}", versions: 1.1-1.58}}]
"""
REQUEST: Final = b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
PROXY: Final = b"PROXY TCP4 192.0.2.9 192.0.2.1 1234 80\r\n"


@final
class House:
    """A gateway of two workers, whose certificate can be taken away."""

    def __init__(self, gateway: Gateway, folder: Path, certificate: Path) -> None:
        self.gateway = gateway
        self._folder = folder
        self._certificate = certificate
        self._elsewhere = folder / "elsewhere.pem"

    def take_certificate_away(self) -> None:
        """No worker can start."""
        self._certificate.rename(self._elsewhere)

    def bring_certificate_back(self) -> None:
        self._elsewhere.rename(self._certificate)

    async def until(self, *, serving: int) -> None:
        """Wait until so many workers serve."""
        await until(lambda: self._serving() == serving)

    async def could_not_start(self, slot: int) -> None:
        """Wait until a worker that should have taken the place of another one has ended, too."""
        await until(lambda: self._restarts(slot) >= 2)

    def _restarts(self, slot: int) -> int:
        return sum(each.restarts for each in self.gateway.parts.plane.workers() if each.slot == slot)

    def _serving(self) -> int:
        return sum(each.state == "serving" for each in self.gateway.parts.plane.workers())

    def kill(self, slot: int) -> None:
        [pid] = [each.pid for each in self.gateway.parts.plane.workers() if each.slot == slot]
        os.kill(pid, signal.SIGKILL)

    async def ask(self, position: int, before: bytes = b"", tls: ssl.SSLContext | None = None) -> bytes:
        """The status line of a request over a new connection to the listener at this position."""
        host, port = self.gateway.addresses[position]
        async with asyncio.timeout(PATIENCE):
            if host.startswith("unix:"):
                reader, writer = await asyncio.open_unix_connection(host.removeprefix("unix:"))
            else:
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(before + REQUEST)
                return (await reader.read()).partition(b"\r\n")[0]
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    backend = ScriptedBackend(serve, "api-1", "1.1-1.58")
    await backend.start()
    certificate, key = local_leaf().write(folder, "tls")
    try:
        text = CONFIGURATION.format(
            folder=folder, certificate=certificate, key=key, port=backend.backend.port
        )
        async with gateway_of(text) as gateway:
            yield House(gateway, folder, Path(certificate))
    finally:
        await backend.close()


OK: Final = b"HTTP/1.1 200 OK"


@pytest.mark.processes
async def test_clients_of_a_worker_that_cannot_start_are_served_by_the_other_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with house(tmp_path) as each:
        each.take_certificate_away()
        each.kill(1)
        await each.until(serving=1)
        kinds: list[dict[str, Any]] = [
            {"position": 0},
            {"position": 1, "tls": client_context(authority(), None)},
            {"position": 2, "before": PROXY},
            {"position": 3},
            {"position": 4},
        ]
        answers = await asyncio.gather(
            *(each.ask(0) for _ in range(60)), *(each.ask(**kind) for kind in kinds for _ in range(8))
        )
        assert set(answers) == {OK}
        await each.could_not_start(1)
        assert set(await asyncio.gather(*(each.ask(0) for _ in range(20)))) == {OK}
        assert each._serving() == 1

        each.bring_certificate_back()
        while each._serving() == 1:
            assert set(await asyncio.gather(*(each.ask(0) for _ in range(8)))) == {OK}
        assert set(await asyncio.gather(*(each.ask(0) for _ in range(20)))) == {OK}
    clients = {json.loads(line)["client"] for line in (tmp_path / "access.log").read_text().splitlines()}
    assert clients >= {"127.0.0.1", "::1", "192.0.2.9"}
    assert "a worker cannot start: " in (logged := capfd.readouterr().err)
    assert str(each._certificate) in logged


@pytest.mark.processes
async def test_who_comes_during_a_pause_waits_for_its_end(tmp_path: Path) -> None:
    async with house(tmp_path) as each:
        each.take_certificate_away()
        each.kill(1)
        await each.until(serving=1)
        plane = each.gateway.parts.plane
        await plane.stop_accepting()
        asked = [asyncio.create_task(each.ask(0)) for _ in range(20)]
        await plane.collect(counters=False)
        await plane.collect(counters=False)
        assert not any(task.done() for task in asked)

        await plane.listen()
        assert set(await asyncio.gather(*asked)) == {OK}
