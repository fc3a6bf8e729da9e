"""What many clients at once cost in memory: bodies that are held, and responses that are not read.

All bodies that are held are together bounded by `limits.replay_total`. Beyond it a body is streamed, and its
request is not sent again. The tests of the group `load` measure a whole gateway as a process.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, cast, final

import pytest

from tests.kit.backends import UpstreamConnection, refusing_backend, serve
from tests.kit.clients import Client
from tests.kit.messages import KIB, request, response
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed, settle

MIB = KIB * KIB


# --- the rule ----------------------------------------------------------------------------------------------

BEGIN: Final = b"x" * 40 * KIB
END: Final = b"and so on to the end"
BY_LENGTH: Final = (request("PUT", "/v1/x", f"Content-Length: {len(BEGIN + END)}") + BEGIN, END)
CHUNKED: Final = (
    request("PUT", "/v1/x", "Transfer-Encoding: chunked") + b"a000\r\n" + BEGIN + b"\r\n",
    b"14\r\n" + END + b"\r\n0\r\n\r\n",
)


@final
class Uploads:
    """A backend that notes when a request with a body begins."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def script(self, upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.head()
            if message.method == "PUT":
                self.begun.set()
                await upstream.reader.readuntil(END)
                if "transfer-encoding" in message.names:
                    await upstream.reader.readuntil(b"0\r\n\r\n")
            await upstream.send(response(200, body=b"done"))


async def begin_upload(gateway: Gateway, data: bytes) -> Client:
    """Send this part of a request; return when the gateway has read it."""
    client = await gateway.client()
    await client.send(data)
    for _ in range(3):  # these come later, so they are served later
        assert (await gateway.request(request())).status == 200
    return client


@pytest.mark.parametrize("begin, end", [BY_LENGTH, CHUNKED], ids=["length", "chunked"])
async def test_R_B13_bodies_beyond_the_total_are_streamed(testbed: Testbed, begin: bytes, end: bytes) -> None:
    uploads = Uploads()
    gateway, _ = await testbed.gateway_and_backend(uploads.script, limits={"replay_total": 100 * KIB})
    held = [await begin_upload(gateway, begin) for _ in range(2)]
    assert not uploads.begun.is_set()

    streamed = await begin_upload(gateway, begin)

    assert uploads.begun.is_set()  # before it is complete
    for client in (streamed, *held):
        assert (await client.request(end, method="PUT")).body == b"done"


@pytest.mark.parametrize("line", ["X-Framed: by length", "Transfer-Encoding: chunked"])
async def test_R_B13_a_request_whose_body_is_beyond_the_total_is_not_sent_again(
    testbed: Testbed, line: str
) -> None:
    async def dies(upstream: UpstreamConnection) -> None:
        await upstream.request()

    first, other = await testbed.backend(dies), await testbed.backend(serve)
    gateway = await testbed.gateway(
        replace(first.backend, weight=1_000_000), other, limits={"replay_total": 1000}
    )
    body = b"x" * 2000
    if "chunked" in line:
        body = b"7d0\r\n" + body + b"\r\n0\r\n\r\n"

    assert (await gateway.request(request("PUT", "/v1/x", line, body=body))).status == 502
    assert not other.requests
    assert len(first.only_request.body) == 2000
    assert (await gateway.recorded()).attempts == 1


async def test_a_request_whose_body_is_within_the_total_is_sent_again(testbed: Testbed) -> None:
    async def dies(upstream: UpstreamConnection) -> None:
        await upstream.request()

    first, other = await testbed.backend(dies), await testbed.backend(serve)
    gateway = await testbed.gateway(
        replace(first.backend, weight=1_000_000), other, limits={"replay_total": 1000}
    )

    assert (await gateway.request(request("PUT", body=b"x" * 900))).status == 200
    assert len(other.only_request.body) == 900


async def test_a_request_of_which_nothing_was_sent_moves_on_without_any_total(testbed: Testbed) -> None:
    other = await testbed.backend(serve)
    gateway = await testbed.gateway(refusing_backend(weight=1_000_000), other, limits={"replay_total": 0})

    assert (await gateway.request(request("POST", body=b"x" * 900))).status == 200
    assert len(other.only_request.body) == 900


async def served(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin)
    assert (await client.request(end, method="PUT")).status == 200


async def client_goes(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin)
    client.reset()
    await gateway.recorded(len(gateway.records) + 1)


async def client_goes_while_it_waits(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin.replace(b"/v1/x", b"/v1/never"))
    await client.send(end)
    for _ in range(3):
        assert (await gateway.request(request())).status == 200
    client.reset()
    await gateway.recorded(len(gateway.records) + 1)


async def client_stalls(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin)
    await settle()
    gateway.turn(31.0)  # `client_body_idle` is 30 s
    assert (await client.response("PUT")).status == 408


async def framing_breaks(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin)
    answer = await client.request(b"nonsense\r\n" if b"chunked" in begin else end, method="PUT")
    assert answer.status == (400 if b"chunked" in begin else 200)


async def backend_dies(gateway: Gateway, begin: bytes, end: bytes) -> None:
    client = await begin_upload(gateway, begin.replace(b"/v1/x", b"/v1/dies"))
    assert (await client.request(end, method="PUT")).status == 502


@pytest.mark.parametrize(
    "way", [served, client_goes, client_goes_while_it_waits, client_stalls, framing_breaks, backend_dies]
)
@pytest.mark.parametrize("begin, end", [BY_LENGTH, CHUNKED], ids=["length", "chunked"])
async def test_what_a_request_held_is_given_back_at_its_end(
    testbed: Testbed, begin: bytes, end: bytes, way: object
) -> None:
    """The total has room for one such body. So the next one is held again, whatever became of the first."""
    begun: list[str] = []

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.head()
            if message.method == "PUT":
                begun.append(message.target)
                await upstream.reader.readuntil(END)
                if "transfer-encoding" in message.names:
                    await upstream.reader.readuntil(b"0\r\n\r\n")
            if message.target == "/v1/never":
                await upstream.ended()
            if message.target == "/v1/dies":
                return
            await upstream.send(response(200, body=b"done"))

    gateway, _ = await testbed.gateway_and_backend(script, limits={"replay_total": 60 * KIB})
    for _ in range(2):
        assert callable(way)
        await way(gateway, begin, end)
    before = len(begun)

    last = await begin_upload(gateway, begin)
    assert len(begun) == before
    assert (await last.request(end, method="PUT")).body == b"done"


# --- what it costs -----------------------------------------------------------------------------------------

CONFIGURATION: Final = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin_port}"}}
access_log: {{format: "off"}}
limits: {{connections: 4000}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{url: "http://127.0.0.1:{backend_port}", versions: "1.1-1.90"}}
"""


@final
class Process:
    """A gateway as users start it."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def memory(self, name: str) -> int:
        """Bytes: `VmRSS` now, `VmHWM` at most."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * KIB
        raise AssertionError(name)

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, self.port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def serves(self) -> bool:
        """Whether it answers a request: also that it has read what came before."""
        loop = asyncio.get_running_loop()
        try:
            with await self.connect() as sock:
                await loop.sock_sendall(sock, request("GET", "/v1/quick"))
                async with asyncio.timeout(PATIENCE):
                    return (await loop.sock_recv(sock, KIB)).startswith(b"HTTP/1.1 200 ")
        except ConnectionError:
            return False


@asynccontextmanager
async def gateway_process(loop: str, folder: Path, backend_port: int) -> AsyncIterator[Process]:
    file, port = folder / "skewgate.yaml", free_port()
    file.write_text(
        CONFIGURATION.format(port=port, admin_port=free_port(), backend_port=backend_port), encoding="utf-8"
    )
    root = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway", "run", "-c", str(file)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root, "SKEWGATE_LOOP": loop},
    )
    gateway = Process(process.pid, port)
    try:
        await until(gateway.serves, "the gateway serves")
        yield gateway
    finally:
        process.kill()
        await process.wait()


@final
class QuietBackend(asyncio.Protocol):
    """Counts what arrives. Answers `/v1/quick`, streams `/v1/huge`, and keeps silent otherwise."""

    streams = 0
    """Connections that have begun to stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has all its methods
        self.left = 0

    def data_received(self, data: bytes) -> None:
        if b"GET /v1/quick" in data:
            self.transport.write(response(200))
        elif b"GET /v1/huge" in data:
            QuietBackend.streams += 1
            self.left = 256
            self.transport.write(response(200, f"Content-Length: {self.left * 64 * KIB}"))
            self.resume_writing()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        while self.left and not self.paused:
            self.left -= 1
            self.transport.write(b"x" * 64 * KIB)


def untaken(sock: socket.socket) -> int:
    """The bytes that the other side's kernel has not taken yet."""
    count: int = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]
    return count


async def until_quiet(gateway: Process) -> None:
    """Wait until the memory of the gateway has not changed for a second."""
    async with asyncio.timeout(2 * PATIENCE):
        quiet, before = 0, 0
        while quiet < 10:
            now = gateway.memory("VmRSS")
            quiet = quiet + 1 if now == before else 0
            before = now
            await asyncio.sleep(0.1)  # another process sets no event here


LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


async def growth_by_bodies(folder: Path, loop: str, *, complete: bool, paced: bool) -> int:
    """By how many bytes a gateway grows while 2,000 bodies wait. `paced`: they do not come all at once."""
    number, size = 2000, 60 * KIB
    running = asyncio.get_running_loop()
    backend = await running.create_server(QuietBackend, LOOPBACK, 0, backlog=1024)
    async with backend, gateway_process(loop, folder, backend.sockets[0].getsockname()[1]) as gateway:
        before = gateway.memory("VmRSS")
        head = request("PUT", "/v1/silent", f"Content-Length: {size if complete else size + 10}")
        with ExitStack() as stack:
            clients = [stack.enter_context(await gateway.connect()) for _ in range(number)]
            for position, client in enumerate(clients):
                await running.sock_sendall(client, head + b"x" * size)
                if paced and position % 20 == 0:
                    assert await gateway.serves()
            async with asyncio.timeout(2 * PATIENCE):
                while any(map(untaken, clients)) or not await gateway.serves():  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
            await until_quiet(gateway)
            return gateway.memory("VmHWM") - before


@pytest.mark.load
@LOOPS
@pytest.mark.parametrize("complete, most", [(False, 80 * MIB), (True, 96 * MIB)], ids=["held", "in flight"])
async def test_R_B13_2000_held_bodies_cost_at_most_80_mib(
    tmp_path: Path, complete: bool, most: int, loop: str
) -> None:
    """They wait for their end. Those that wait for their response have a backend connection each, too."""
    grown = await growth_by_bodies(tmp_path, loop, complete=complete, paced=True)

    print(f"2,000 bodies ({'in flight' if complete else 'held'}, {loop}): {grown / MIB:.0f} MiB")
    assert grown <= most


@pytest.mark.load
@LOOPS
async def test_R_B13_2000_bodies_in_one_moment_cost_at_most_80_mib(tmp_path: Path, loop: str) -> None:
    """One turn of the event loop reads from many of them, before any backend connection can be made."""
    grown = await growth_by_bodies(tmp_path, loop, complete=False, paced=False)

    print(f"2,000 bodies (in one moment, {loop}): {grown / MIB:.0f} MiB")
    assert grown <= 80 * MIB


@pytest.mark.load
@LOOPS
async def test_R_B13_200_stalled_readers_cost_at_most_34_mib(tmp_path: Path, loop: str) -> None:
    running = asyncio.get_running_loop()
    backend = await running.create_server(QuietBackend, LOOPBACK, 0, backlog=1024)
    async with backend, gateway_process(loop, tmp_path, backend.sockets[0].getsockname()[1]) as gateway:
        before, begun = gateway.memory("VmRSS"), QuietBackend.streams
        with ExitStack() as stack:
            for _ in range(200):
                client = stack.enter_context(await gateway.connect())
                await running.sock_sendall(client, request("GET", "/v1/huge"))
            await until(lambda: QuietBackend.streams == begun + 200)
            await until_quiet(gateway)
            grown = gateway.memory("VmHWM") - before

    print(f"200 stalled readers ({loop}): {grown / MIB:.0f} MiB")
    assert grown <= 34 * MIB
