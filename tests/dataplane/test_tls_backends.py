"""TLS to backends: who is connected to, what a failed handshake means, and what TLS adds to a connection: an
end that can be told from a cut, and buffers of its own."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.fleet.backend import BackendTls
from gateway.core.fleet.fleet import ConnectFailed
from tests.dataplane.backend_tls import NAME, RawTlsBackend, TlsPeer, authority, both_sides, raw_backend
from tests.kit.backends import ScriptedBackend, UpstreamConnection, serve
from tests.kit.certificates import Authority, Leaf
from tests.kit.clients import Client
from tests.kit.messages import VERSION_FIELD, request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, settle


def reasons(gateway: Gateway) -> set[str]:
    """Why connections failed."""
    return {fact.reason for _, _, fact in gateway.facts if isinstance(fact, ConnectFailed)}


async def tls_backend(
    testbed: Testbed, folder: Path, *, leaf: Leaf | None = None, script: Callable[..., object] = serve
) -> ScriptedBackend:
    testbed.backend_tls = both_sides(folder, leaf)
    backend = await testbed.backend(script)  # type: ignore[arg-type]
    testbed.backend_tls = None
    return backend


async def test_requests_and_bodies_pass(testbed: Testbed, tmp_path: Path) -> None:
    backend = await tls_backend(testbed, tmp_path)
    gateway = await testbed.gateway(backend)
    client = await gateway.client()

    for _ in range(2):
        assert (await client.request(request())).status == 200
    assert (await client.request(request("POST", body=b"x" * 300_000))).status == 200

    assert backend.connections == 1
    assert backend.requests[2].body == b"x" * 300_000


@pytest.mark.parametrize(
    "leaf, reason",
    [
        (lambda: authority().server("other.test"), "hostname mismatch, certificate is not valid for"),
        (lambda: authority().server(NAME, days=-1), "certificate has expired"),
        (lambda: Authority("Somebody").server(NAME), "unable to get local issuer certificate"),
        (lambda: authority().client(), "unsuitable certificate purpose"),
    ],
    ids=["wrong name", "expired", "unknown CA", "wrong purpose"],
)
async def test_a_certificate_that_is_not_valid_is_a_failure_to_connect(
    testbed: Testbed, tmp_path: Path, leaf: Callable[[], Leaf], reason: str
) -> None:
    backend = await tls_backend(testbed, tmp_path, leaf=leaf())
    gateway = await testbed.gateway(backend)

    answer = await gateway.request(request("POST", body=b"x"))

    assert answer.status == 503
    assert (await gateway.recorded()).reason == "tls"
    (why,) = reasons(gateway)
    assert why.startswith("its certificate is not valid: ")
    assert reason in why
    assert backend.requests == []
    assert gateway.metric("skewgate_retries_total", service="baremetal", reason="tls") == 0


async def test_the_request_goes_to_another_backend(testbed: Testbed, tmp_path: Path) -> None:
    bad = await tls_backend(testbed, tmp_path, leaf=Authority("Somebody").server(NAME))
    good = await testbed.backend()
    gateway = await testbed.gateway(bad, good)
    gateway.prefer(0, 2)

    assert (await gateway.request(request("POST", body=b"once"))).status == 200

    assert good.only_request.body == b"once"
    assert gateway.metric("skewgate_retries_total", service="baremetal", reason="tls") == 1


async def test_without_verification_any_certificate_will_do(testbed: Testbed, tmp_path: Path) -> None:
    backend = await tls_backend(testbed, tmp_path, leaf=Authority("Somebody").server("other.test"))
    backend.tls = BackendTls(NAME, verify=False)
    gateway = await testbed.gateway(backend)

    assert (await gateway.request(request())).status == 200


async def test_the_name_of_the_certificate_is_sent(testbed: Testbed, tmp_path: Path) -> None:
    names: list[str | None] = []
    context, tls = both_sides(tmp_path)
    context.sni_callback = lambda _, name, __: names.append(name)
    testbed.backend_tls = context, tls
    gateway = await testbed.gateway(await testbed.backend())

    assert (await gateway.request(request())).status == 200

    assert names == [NAME]


async def test_a_backend_that_wants_a_certificate_gets_the_one_of_the_gateway(
    testbed: Testbed, tmp_path: Path
) -> None:
    context, tls = both_sides(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority().pem.decode())
    certificate, key = map(str, authority().client().write(tmp_path, "gateway"))
    testbed.backend_tls = context, replace(tls, certificate=certificate, key=key)
    gateway = await testbed.gateway(await testbed.backend())

    assert (await gateway.request(request("POST", body=b"x"))).status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_backend_that_refuses_the_gateway_has_executed_nothing(
    testbed: Testbed, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """In TLS 1.3 the refusal comes after the handshake has seemed complete, and the request may be written by
    then. Nevertheless even a POST goes elsewhere."""
    other = await testbed.backend()
    async with raw_backend(tmp_path) as strict:
        strict.context.minimum_version = strict.context.maximum_version = version
        strict.context.verify_mode = ssl.CERT_REQUIRED
        gateway = await testbed.gateway(strict.backend, other)
        gateway.prefer(0, 2)
        client = await gateway.client()
        await client.send(request("POST", body=b"once"))
        peer = await strict.accept()
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            await peer.handshake()
        peer.flush()
        peer.socket.shutdown(socket.SHUT_WR)

        assert (await client.response("POST")).status == 200

    assert other.only_request.body == b"once"
    (why,) = reasons(gateway)
    if version is ssl.TLSVersion.TLSv1_3:
        assert why == "it requires a certificate of the gateway"


async def test_a_backend_without_tls_is_told_apart(testbed: Testbed, tmp_path: Path) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.send(response(400))
        await upstream.ended()

    backend = await testbed.backend(script)
    _, backend.tls = both_sides(tmp_path)
    gateway = await testbed.gateway(backend)

    assert (await gateway.request(request())).status == 503

    assert reasons(gateway) == {"it does not speak TLS"}


async def test_the_deadline_to_connect_includes_the_handshake(testbed: Testbed, tmp_path: Path) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.ended()

    backend = await testbed.backend(script)
    _, backend.tls = both_sides(tmp_path)
    gateway = await testbed.gateway(backend, connect=0.2)

    assert (await gateway.request(request())).status == 503

    assert (await gateway.recorded()).reason == "connect_timeout"
    await backend.disconnected()


async def test_sessions_are_resumed(testbed: Testbed, tmp_path: Path) -> None:
    resumed: list[bool] = []

    async def script(upstream: UpstreamConnection) -> None:
        resumed.append(upstream.writer.get_extra_info("ssl_object").session_reused)
        await upstream.request()
        await upstream.send(response(200, "Connection: close", f"{VERSION_FIELD}: 1.1", body=b"x"))

    backend = await tls_backend(testbed, tmp_path, script=script)
    gateway = await testbed.gateway(backend)

    for _ in range(3):
        assert (await gateway.request(request())).status == 200
        await until(lambda: gateway.worker.report().connections == {("baremetal", backend.name): (0, 0)})

    assert resumed == [False, True, True]


# --- the end of a response, and what comes after it --------------------------------------------------------


async def asked(testbed: Testbed, backend: RawTlsBackend) -> tuple[Gateway, Client, TlsPeer]:
    """A client whose request has reached the backend."""
    gateway = await testbed.gateway(backend.backend)
    client = await gateway.client()
    await client.send(request())
    peer = await backend.accept()
    await peer.handshake()
    await peer.read_until(b"\r\n\r\n")
    return gateway, client, peer


@pytest.mark.parametrize("ends", [True, False], ids=["close_notify", "cut"])
async def test_a_response_that_ends_with_its_connection_must_end_with_close_notify(
    testbed: Testbed, tmp_path: Path, ends: bool
) -> None:
    """Somebody on the way can close the connection at any byte: half a text would be taken for a whole."""
    async with raw_backend(tmp_path) as backend:
        gateway, client, peer = await asked(testbed, backend)
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        if ends:
            await peer.half_close()
        peer.socket.close()

        if ends:
            assert (await client.response()).body == b"half"
        else:
            await client.reader.readuntil(b"half")
            assert not (await client.ended()).rest.endswith(b"0\r\n\r\n")
            assert (await gateway.recorded()).reason == "reply_cut"


async def test_a_broken_record_in_a_body_is_a_lost_connection(testbed: Testbed, tmp_path: Path) -> None:
    async with raw_backend(tmp_path) as backend:
        gateway, client, peer = await asked(testbed, backend)
        await peer.send(response(200, "Content-Length: 100") + b"begun")
        await client.reader.readuntil(b"begun")
        peer.socket.send(b"\x17\x03\x03\x00\x20" + b"nonsense" * 4)

        assert not (await client.ended()).rest
        assert (await gateway.recorded()).reason == "reply_cut"


@pytest.mark.parametrize("ends", [True, False], ids=["close_notify", "without"])
async def test_nothing_is_lost_of_a_response_that_ends_while_it_is_held_back(
    testbed: Testbed, tmp_path: Path, ends: bool
) -> None:
    """The client takes no more, so nothing is read; meanwhile the backend closes. Many servers do so without
    close_notify."""
    body = bytes(range(256)) * 800
    async with raw_backend(tmp_path) as backend:
        gateway, client, peer = await asked(testbed, backend)
        await peer.send(response(200, f"Content-Length: {len(body)}", "Connection: close") + body[:256])
        await client.reader.readuntil(body[:256])
        (pool,) = gateway.worker.pools.by_key.values()
        (connection,) = pool.connections
        connection.pause_reading()
        await peer.send(body[256:])
        if ends:
            await peer.half_close()
        peer.socket.shutdown(socket.SHUT_WR)
        for _ in range(20):  # turns in which the gateway could read
            await asyncio.sleep(0)
        connection.resume_reading()

        assert await client.reader.readexactly(len(body) - 256) == body[256:]
        assert (await gateway.recorded()).reason == ""


async def test_R_B5_bytes_on_a_used_connection_are_no_response(testbed: Testbed, tmp_path: Path) -> None:
    async with raw_backend(tmp_path) as backend:
        _, client, peer = await asked(testbed, backend)
        await peer.send(response(200, body=b"first"))
        assert (await client.response()).body == b"first"

        peer.tls.write(response(200, body=b"nobody asked for this"))
        peer.flush()
        await client.send(request())
        second = await backend.accept()
        await second.handshake()
        await second.read_until(b"\r\n\r\n")
        await second.send(response(200, body=b"second"))

        assert (await client.response()).body == b"second"


# --- a backend that reads slowly ---------------------------------------------------------------------------


UPLOAD = bytes(range(256)) * 16_384
SMALL_BUFFER = 16 * 1024


async def test_R_B2_a_backend_that_reads_a_body_slowly_may_take_its_time(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Less than the gateway's buffers hold is taken in every time-out: only the kernel sees that it moves."""
    async with raw_backend(tmp_path, receive_buffer=SMALL_BUFFER) as backend:
        gateway = await testbed.gateway(backend.backend, backend_head=10.0, backend_write_idle=10.0)
        gateway.clock.stop()
        client = await gateway.client()
        sending = asyncio.create_task(client.send(request("PUT", body=UPLOAD)))
        peer = await backend.accept()
        await peer.handshake()
        received = b""
        for _ in range(5):
            for _ in range(10):
                received += await peer.read_piece(4096)
            await settle()
            gateway.turn(7.0)
        while not received.endswith(UPLOAD[-1000:]) or len(received) < len(UPLOAD):
            received += await peer.read_piece(65536)
        await peer.send(response(200, body=b"thanks"))

        assert (await client.response("PUT")).body == b"thanks"
        await sending
        assert received.endswith(UPLOAD)


async def test_R_B2_a_backend_that_takes_nothing_is_504(testbed: Testbed, tmp_path: Path) -> None:
    async with raw_backend(tmp_path, receive_buffer=SMALL_BUFFER) as backend:
        gateway = await testbed.gateway(backend.backend, backend_write_idle=0.3)
        client = await gateway.client()
        sending = asyncio.create_task(client.send(request("PUT", body=UPLOAD)))
        await (await backend.accept()).handshake()

        assert (await client.response("PUT")).status == 504
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert (await gateway.recorded()).reason == "reply_timeout"
