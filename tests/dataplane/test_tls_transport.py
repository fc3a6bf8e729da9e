"""The gateway's own TLS transport: the order at the end of a connection, and what follows that end."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path
from typing import cast, final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from gateway.dataplane.edge.accept_phase import AcceptPhase, PendingConnection
from gateway.dataplane.edge.tls_transport import MAX_WITHOUT_CONTENT
from tests.dataplane.listener_tls import raw_client, tls_listener
from tests.dataplane.test_tls_listeners import GET
from tests.dataplane.tls_in_memory import TlsClient
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.certificates import authority, client_context
from tests.kit.messages import KIB, response
from tests.kit.waiting import until
from tests.kit.workers import Testbed


async def test_what_follows_the_end_of_tls_is_not_kept(testbed: Testbed, tmp_path: Path) -> None:
    """A client has said that it sends no more, waits for a slow response, and sends without end."""
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await go_on.wait()
        await upstream.send(response(200, body=b"served"))

    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(script)
    loop = asyncio.get_running_loop()
    async with raw_client(gateway) as client:
        await client.send(GET)
        await client.half_close()
        await backend.received(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(800):
            await loop.sock_sendall(client.socket, bytes(64 * KIB))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        go_on.set()
        assert (await gateway.recorded()).status == 200

    assert grown < 16 * KIB, "kibibytes, of the 51200 that were sent"


@final
class Listening(asyncio.Protocol):
    """Takes what comes in steps: after each it pauses."""

    def __init__(self) -> None:
        self.got = b""
        self.ended_after = -1
        self.transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transport.pause_reading()  # type: ignore[attr-defined]

    def eof_received(self) -> bool:
        self.ended_after = len(self.got)
        return True


@final
class Refusing(asyncio.Protocol):
    """Closes its sending side at the first byte, and reads on."""

    def __init__(self) -> None:
        self.got = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self.got:
            self.transport.write_eof()
        self.got += data


def connected(folder: Path, protocol: asyncio.Protocol) -> TlsClient:
    """A client whose handshake is complete. Its secrets are in `folder`."""
    certificates = tls_listener(folder).certificates
    assert certificates is not None
    context = client_context(authority())
    context.keylog_filename = str(folder / "secrets")
    return TlsClient(certificates.context, context, protocol)


def records(client: TlsClient, count: int, size: int) -> bytes:
    """So many records of the client, each with `size` bytes."""
    for _ in range(count):
        client.send(size)
    return client.records()


async def test_what_waits_is_passed_on_before_the_end(tmp_path: Path) -> None:
    """The end of the socket may be reported while records wait that came before it."""
    protocol = Listening()
    client = connected(tmp_path, protocol)
    size = 200 * KIB

    client.transport.data_received(records(client, 200, KIB))
    assert 0 < len(protocol.got) < size
    client.transport.resume_reading()
    client.transport.eof_received()  # before it has read on

    for _ in range(10):
        await asyncio.sleep(0)
        client.transport.resume_reading()
    assert (len(protocol.got), protocol.ended_after) == (size, size)


@pytest.mark.parametrize("more", [0, 1, 100])
@pytest.mark.parametrize("record", [100, KIB, 16 * KIB])
async def test_who_closes_its_side_reads_on(tmp_path: Path, record: int, more: int) -> None:
    """Records wait in OpenSSL when it closes its side, the last of them perhaps not whole."""
    protocol = Refusing()
    client = connected(tmp_path, protocol)
    sent, rest = records(client, 200 * KIB // record, record), records(client, 1, record)

    client.transport.data_received(sent + rest[:more])
    client.transport.data_received(rest[more:])

    assert not client.broken
    assert protocol.got == client.sent


@final
class Stepping:
    """Its steps are counted; `fails`: each of them raises."""

    def __init__(self, *, fails: bool) -> None:
        self.source = "127.0.0.1"
        self.queued = False
        self.fails = fails
        self.steps = 0
        self.refused = ""

    def step(self) -> None:
        self.steps += 1
        if self.fails:
            raise ValueError("a fault of the gateway")

    def refuse(self, reason: str) -> None:
        self.refused = reason


@pytest.mark.interpreted("compiled code takes an object of the declared class only")
async def test_a_step_that_fails_is_no_reason_to_forget_the_others() -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    accept_phase = AcceptPhase(8)
    connections = [Stepping(fails=fails) for fails in (True, False, True, False)]
    for one in connections:
        pending = cast(PendingConnection, one)
        accept_phase.add(pending)
        accept_phase.queue(pending)

    await until(lambda: connections[-1].steps > 0)

    assert [one.steps for one in connections] == [1, 1, 1, 1]
    assert [one.refused for one in connections] == ["other", "", "other", ""]
    assert len(reported) == 2


def key_updates(count: int, secrets: Path, *, ask: bool = False) -> bytes:
    """So many messages KeyUpdate (RFC 8446 4.6.3) of a client whose log of traffic secrets this is, each a
    record of its own, its first ones. `ask`: for one in return. Python's ssl cannot send one.
    TLS_AES_256_GCM_SHA384."""

    def expand(label: bytes, length: int) -> bytes:
        info = length.to_bytes(2, "big") + bytes([6 + len(label)]) + b"tls13 " + label + b"\0"
        return HKDFExpand(SHA384(), length, info).derive(secret)

    lines = secrets.read_text().splitlines()
    secret = bytes.fromhex(
        next(line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
    )
    records = b""
    for _ in range(count):
        key, nonce = expand(b"key", 32), expand(b"iv", 12)  # the number of each record is 0
        message = b"\x18\0\0\1" + bytes([ask]) + b"\x16"
        head = b"\x17\3\3" + (len(message) + 16).to_bytes(2, "big")
        records += head + AESGCM(key).encrypt(nonce, message, head)
        secret = expand(b"traffic upd", 48)
    return records


async def test_a_client_that_sends_nothing_but_key_updates_is_cut_off(
    testbed: Testbed, tmp_path: Path
) -> None:
    """OpenSSL works off all that it is given in one call, in which the event loop stands still."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    assert testbed.listener.client_tls is not None
    testbed.listener.client_tls.keylog_filename = str(tmp_path / "secrets")
    loop = asyncio.get_running_loop()
    async with raw_client(gateway) as client:
        assert await client.do(lambda tls: tls.cipher()) == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        updates = key_updates(3000, tmp_path / "secrets")
        assert len(updates) > 4 * MAX_WITHOUT_CONTENT
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(client.socket, updates)
            while await loop.sock_recv(client.socket, 65536):
                pass

    assert gateway.metric("skewgate_client_errors_total", reason="tls_record") == 1


@pytest.mark.parametrize("count", [2, 640], ids=["few", "many"])
async def test_key_updates_get_no_answer_after_the_end(tmp_path: Path, count: int) -> None:
    """OpenSSL makes answers even after its close_notify. A transport whose side is closed refuses them by an
    error, which would end the tick of all deadlines."""
    client = connected(tmp_path, Listening())
    client.transport.write_eof()
    written = client.socket.written

    client.socket.read(key_updates(count, tmp_path / "secrets", ask=True))
    client.transport.close()

    assert client.socket.closed
    assert not client.broken
    assert client.socket.written == written
