"""TLS on listeners: which certificate, which client, and what happens to what is no TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.runtime.process import without_odd_names
from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates
from gateway.tls.values import ServerTls
from tests.dataplane.listener_tls import client_leaf, files_of, local_leaf, tls_listener
from tests.kit.backends import serve
from tests.kit.certificates import Authority, authority, client_context, new_key
from tests.kit.clients import Client, ended
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Listener, Testbed

GET = b"GET /v1/nodes HTTP/1.1\r\nHost: api.example\r\nX-OpenStack-Ironic-API-Version: 1.31\r\n\r\n"


async def plain_client(gateway: Gateway, source: str = LOOPBACK) -> Client:
    """A connection without TLS, whatever the listener has."""
    host, port = gateway.address
    client = Client(*await asyncio.open_connection(host, port, local_addr=(source, 0)))
    gateway.clients.append(client)
    return client


def handshakes(gateway: Gateway, result: str) -> float:
    return gateway.metric("skewgate_tls_handshakes_total", result=result)


async def test_a_request_over_tls_is_served_and_backends_are_told_https(
    testbed: Testbed, tmp_path: Path
) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(serve)

    client = await gateway.client()
    for _ in range(3):
        assert (await client.request(GET)).status == 200

    assert backend.requests[0].every("x-forwarded-proto") == ["https"]
    assert backend.requests[0].every("x-forwarded-port") == ["443"]
    assert handshakes(gateway, "full") == 1


async def test_large_bodies_pass_both_ways(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    body = bytes(range(256)) * 8192  # 2 MiB

    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    head = b"PUT /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)

    answer = await client.request(head, body)

    assert answer.status == 200
    assert backend.requests[0].body == body


async def test_each_name_gets_its_certificate(testbed: Testbed, tmp_path: Path) -> None:
    """Exact names, wildcards of one label, and the first certificate for everybody else."""
    middle = Authority("Middle CA", above=authority())
    leaves = [local_leaf(), middle.server("api.example"), authority().server("*.apps.example")]
    tls = ServerTls(tuple(files_of(leaf, tmp_path, str(index)) for index, leaf in enumerate(leaves)))
    testbed.listener = Listener(Listen(LOOPBACK, 0, tls=tls), ServerCertificates(tls))
    gateway, _ = await testbed.gateway_and_backend(serve)
    host, port = gateway.address
    context = client_context(authority())
    context.check_hostname = False

    shown = {}
    for name in ("api.example", "API.example", "x.apps.example", "x.y.apps.example", "other.example", None):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name or LOOPBACK)
        certificate = writer.get_extra_info("peercert")
        shown[name] = dict(pair[0] for pair in certificate["subject"])["commonName"]
        writer.close()
        await writer.wait_closed()

    assert shown == {
        "api.example": "api.example",
        "API.example": "api.example",
        "x.apps.example": "*.apps.example",
        "x.y.apps.example": "localhost",
        "other.example": "localhost",
        None: "localhost",
    }


async def test_of_one_name_the_kind_of_key_is_shown_that_the_client_takes(
    testbed: Testbed, tmp_path: Path
) -> None:
    leaves = [authority().server(), authority().server(key=new_key("RSA"))]
    tls = ServerTls(tuple(files_of(leaf, tmp_path, str(index)) for index, leaf in enumerate(leaves)))
    testbed.listener = Listener(Listen(LOOPBACK, 0, tls=tls), ServerCertificates(tls))
    gateway, _ = await testbed.gateway_and_backend(serve)
    host, port = gateway.address

    ciphers = []
    for offered in ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"):
        context = client_context(authority())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(offered)
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost")
        ciphers.append(writer.get_extra_info("cipher")[0])
        writer.close()
        await writer.wait_closed()

    assert ciphers == ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]


async def test_alpn_is_http_1_1_and_sessions_are_resumed(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    context = gateway.listener.client_tls
    assert context is not None
    context.set_alpn_protocols(["h2", "http/1.1"])
    loop = asyncio.get_running_loop()

    def once(session: ssl.SSLSession | None) -> tuple[str | None, bool | None, ssl.SSLSession | None]:
        """With a blocking socket: asyncio does not hand in a session."""
        assert context is not None
        with (
            socket.create_connection(gateway.address, 5) as raw,
            context.wrap_socket(raw, server_hostname="localhost", session=session) as sock,
        ):
            sock.sendall(GET)
            sock.recv(65536)
            return sock.selected_alpn_protocol(), sock.session_reused, sock.session

    _, _, session = await loop.run_in_executor(None, once, None)
    protocol, reused, _ = await loop.run_in_executor(None, once, session)

    assert (protocol, reused) == ("http/1.1", True)
    assert handshakes(gateway, "resumed") == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_versions_of_tls_are_refused(
    testbed: Testbed, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    context = client_context(authority())
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(*gateway.address, ssl=context, server_hostname="localhost")

    await until(lambda: handshakes(gateway, "version") == 1)


# --- clients' certificates ---------------------------------------------------------------------------------


async def test_a_client_with_a_certificate_is_known_to_the_log_and_the_backend(
    testbed: Testbed, tmp_path: Path
) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, forward=True, client=client_leaf())
    gateway, backend = await testbed.gateway_and_backend(serve)

    client = await gateway.client()
    forged = b"Client-Cert: :Zm9yZ2Vk:\r\nClient_Cert: x\r\nX-SSL-Client-S-DN: root\r\nX-Client-Cert: y\r\n"
    assert (await client.request(GET[:-2] + forged + b"\r\n")).status == 200
    assert (await client.request(GET)).status == 200

    certificate = client_leaf().certificate
    expected = f":{b64encode(certificate.public_bytes(Encoding.DER)).decode()}:"
    for request in backend.requests:
        assert request.every("client-cert") == [expected]
        assert not request.every("x-ssl-client-s-dn")
        assert not request.every("x-client-cert")
        assert not request.every("client_cert")
    record = await gateway.recorded()
    assert record.peer.certificate is not None
    assert record.peer.certificate.subject == "CN=alice"
    assert record.peer.certificate.fingerprint == certificate.fingerprint(SHA256()).hex()


async def test_without_forwarding_backends_get_no_certificate(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, client=client_leaf())
    gateway, backend = await testbed.gateway_and_backend(serve)

    await gateway.request(GET[:-2] + b"Client-Cert: :Zm9yZ2Vk:\r\n\r\n")

    assert not backend.requests[0].every("client-cert")


async def test_from_a_trusted_proxy_the_header_passes_where_no_listener_writes_it(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    await gateway.request(GET[:-2] + b"Client-Cert: :eA==:\r\n\r\n")

    assert backend.requests[0].every("client-cert") == [":eA==:"]


async def test_where_a_listener_writes_it_nobody_else_does(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, required=False, forward=True)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    await gateway.request(GET[:-2] + b"Client-Cert: :eA==:\r\n\r\n")

    assert not backend.requests[0].every("client-cert")
    assert (await gateway.recorded()).peer.certificate is None


@pytest.mark.parametrize("kind", ["none", "foreign", "expired"])
async def test_a_client_without_a_valid_certificate_is_refused(
    testbed: Testbed, tmp_path: Path, kind: str
) -> None:
    leaves = {
        "none": None,
        "foreign": Authority("Other CA").client("mallory"),
        "expired": authority().client("bob", days=-1),
    }
    testbed.listener = tls_listener(tmp_path, client_ca=True, client=leaves[kind])
    gateway, backend = await testbed.gateway_and_backend(serve)

    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await gateway.request(GET)  # in TLS 1.3 the client learns it when it reads

    await until(lambda: handshakes(gateway, "client_certificate") == 1)
    assert not backend.requests


@pytest.mark.parametrize("kind", ["none", "foreign"])
async def test_an_optional_certificate_that_is_given_must_be_valid(
    testbed: Testbed, tmp_path: Path, kind: str
) -> None:
    leaf = Authority("Other CA").client() if kind == "foreign" else None
    testbed.listener = tls_listener(tmp_path, client_ca=True, required=False, client=leaf)
    gateway, _ = await testbed.gateway_and_backend(serve)

    if leaf is None:
        assert (await gateway.request(GET)).status == 200
    else:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await (await gateway.client()).request(GET)
        await until(lambda: handshakes(gateway, "client_certificate") == 1)


# --- what is no TLS ----------------------------------------------------------------------------------------


async def test_plain_http_on_a_port_for_tls_is_told_so(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(serve)

    client = await plain_client(gateway)
    client.writer.write(
        b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000)
    )
    answer = await ended(client.reader)

    assert not answer.aborted
    assert answer.rest.startswith(b"HTTP/1.1 400 ")
    assert b"This port speaks TLS" in answer.rest
    assert handshakes(gateway, "plain_http") == 1
    assert not backend.requests


async def test_tls_on_a_plain_port_is_told_so(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)

    client = await plain_client(gateway)
    client.writer.write(b"\x16\x03\x01\x00\x80\x01" + bytes(64))
    answer = await ended(client.reader)

    assert answer.rest.startswith(b"HTTP/1.1 400 ")
    assert b"plain HTTP, not TLS" in answer.rest


GARBAGE = {
    "not_tls": b"\x00\x01\x02\x03",
    "ssl 2": b"\x80\x2e\x01\x00\x02",
    "protocol": b"\x16\x03\x01\x00\x05hello",
    "endless": b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(0x4000 - 4),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_closed_and_counted(testbed: Testbed, tmp_path: Path, sent: bytes) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, handshake=0.5)

    client = await plain_client(gateway)
    client.writer.write(sent)
    await ended(client.reader)

    await until(lambda: not gateway.worker.accept_phase)
    bad = ("not_tls", "protocol", "version", "timeout", "oversized")
    assert sum(handshakes(gateway, result) for result in bad) == 1


async def test_a_server_name_that_is_no_ascii_is_refused_without_a_traceback(
    testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    hook = without_odd_names(lambda unraisable: shown.append(unraisable.exc_value))
    monkeypatch.setattr(sys, "unraisablehook", hook)
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)

    client = await plain_client(gateway)
    client.writer.write(client_hello().replace(b"localhost", b"local\xff\x80st"))
    answer = await ended(client.reader)

    assert answer.rest.startswith(b"\x15"), "an alert"
    assert handshakes(gateway, "other") + handshakes(gateway, "protocol") == 1
    assert not shown


async def test_a_handshake_that_stops_is_closed_in_time(testbed: Testbed, tmp_path: Path) -> None:
    """Silent from the start, in the middle of the first message, and after the server's answer."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, handshake=0.3)
    hello = client_hello()

    for sent in (b"", hello[:20], hello):
        client = await plain_client(gateway)
        client.writer.write(sent)
    await until(lambda: len(gateway.worker.accept_phase) == 3)
    for client in gateway.clients:
        assert (await ended(client.reader)).rest[:1] in (b"", b"\x16")

    assert handshakes(gateway, "timeout") == 3
    assert not gateway.worker.accept_phase


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = client_context(authority()).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


async def test_a_client_that_leaves_in_the_handshake_leaves_nothing(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)

    client = await plain_client(gateway)
    client.writer.write(client_hello()[:30])
    await until(lambda: len(gateway.worker.accept_phase) == 1)
    client.writer.close()

    await until(lambda: not gateway.worker.accept_phase)
    assert handshakes(gateway, "closed") == 1


async def test_broken_records_after_the_handshake_end_the_connection(
    testbed: Testbed, tmp_path: Path
) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(GET)).status == 200

    os.write(client.writer.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))

    await until(lambda: not gateway.worker._clients)
    assert gateway.metric("skewgate_client_errors_total", reason="tls_record") == 1


# --- many at once ------------------------------------------------------------------------------------------


async def test_half_of_a_first_message_takes_no_slot(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"handshakes": 8})
    hello = client_hello()
    for _ in range(40):
        (await plain_client(gateway)).writer.write(hello[:-1])
    await until(lambda: len(gateway.worker.accept_phase) == 40)

    assert (await gateway.request(GET)).status == 200

    assert gateway.worker.accept_phase.active == 0
    assert len(gateway.worker.accept_phase) == 40


async def test_one_that_floods_with_handshakes_does_not_starve_others(
    testbed: Testbed, tmp_path: Path
) -> None:
    """From one address more than the bound, which all stop in the middle: another address is served at once,
    and the same address as soon as silent ones have yielded."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"handshakes": 8})
    hello = client_hello()
    for _ in range(40):
        (await plain_client(gateway, "127.0.0.2")).writer.write(hello)
    await until(lambda: gateway.worker.accept_phase.active == 8)

    assert (await gateway.request(GET)).status == 200

    assert handshakes(gateway, "displaced") == 1
    assert gateway.worker.accept_phase.active == 8


async def test_silent_handshakes_yield_while_others_wait(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"handshakes": 8})
    hello = client_hello()
    for _ in range(8):
        (await plain_client(gateway)).writer.write(hello)
    await until(lambda: gateway.worker.accept_phase.active == 8)

    async with asyncio.timeout(PATIENCE):
        assert (await gateway.request(GET)).status == 200

    assert handshakes(gateway, "displaced") == 8


async def test_a_crowd_of_handshakes_is_served_whole(testbed: Testbed, tmp_path: Path) -> None:
    """More than the bound at once, all from one address: they wait, and nobody is turned away."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"handshakes": 8})

    answers = await asyncio.gather(*(gateway.request(GET) for _ in range(60)))

    assert {answer.status for answer in answers} == {200}
    assert handshakes(gateway, "full") == 60
    assert handshakes(gateway, "displaced") == 0


async def test_pending_connections_count_as_clients(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 20})

    for _ in range(30):
        await plain_client(gateway)
    await until(lambda: gateway.metric("skewgate_client_errors_total", reason="too_many_connections") == 10)

    assert len(gateway.worker.accept_phase) == 20


# --- certificates that change ------------------------------------------------------------------------------


async def test_new_certificates_are_for_new_connections(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    certificates = gateway.listener.certificates
    assert certificates is not None
    old = await gateway.client()
    assert (await old.request(GET)).status == 200

    authority().server(subject="renewed").write(tmp_path)
    assert certificates.changed()
    certificates.reload()

    assert not certificates.changed()
    assert (await old.request(GET)).status == 200
    new = await gateway.client()
    subject = new.writer.get_extra_info("peercert")["subject"]
    assert subject == ((("commonName", "renewed"),),)
    assert old.writer.get_extra_info("peercert")["subject"] == ((("commonName", "localhost"),),)


# --- the end -----------------------------------------------------------------------------------------------


async def test_a_drain_waits_for_nobody_in_a_handshake(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await plain_client(gateway)
    client.writer.write(client_hello()[:30])
    await until(lambda: len(gateway.worker.accept_phase) == 1)

    async with asyncio.timeout(PATIENCE):
        await gateway.drain(0.2)

    assert not gateway.worker.accept_phase


async def test_the_gateway_ends_tls_in_order(testbed: Testbed, tmp_path: Path) -> None:
    """Without close_notify a client could not tell the end of a response from a cut."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    client.writer.write(GET[:-2] + b"Connection: close\r\n\r\n")
    answer = await ended(client.reader)

    assert answer.rest.startswith(b"HTTP/1.1 200")
    assert not answer.aborted


async def test_a_client_that_has_closed_its_side_in_tls_still_gets_its_answer(
    testbed: Testbed, tmp_path: Path
) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    raw = await plain_client(gateway)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = client_context(authority()).wrap_bio(incoming, outgoing, server_hostname="localhost")

    async def run(step: Callable[[], object]) -> object:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                raw.writer.write(outgoing.read())
                data = await raw.reader.read(65536)
                assert data, "the gateway has closed the connection"
                incoming.write(data)
            finally:
                raw.writer.write(outgoing.read())

    await run(connection.do_handshake)
    connection.write(GET)
    with pytest.raises(ssl.SSLWantReadError):
        connection.unwrap()  # sends close_notify
    answer = await run(lambda: connection.read(65536))

    assert isinstance(answer, bytes)
    assert answer.startswith(b"HTTP/1.1 200")
