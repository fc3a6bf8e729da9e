"""Sockets of listeners: Unix sockets, IPv6, both stacks on one socket, and PROXY headers."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import os
import socket
import stat
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.core.fleet.admission import Access
from gateway.dataplane.edge.accept_phase import ListenerFilter
from gateway.dataplane.edge.proxy_protocol import SIGNATURE
from gateway.dataplane.sockets.tcp import IDLE
from gateway.errors import StartupError
from gateway.settings.sections.listen import Listen
from tests.dataplane.listener_tls import tls_listener
from tests.kit.backends import serve
from tests.kit.clients import Client, ended
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Listener, Testbed, reload

GET = b"GET /v1/nodes HTTP/1.1\r\nHost: api.example\r\nX-OpenStack-Ironic-API-Version: 1.31\r\n\r\n"
HEADER = b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"
BINARY = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 1, 198, 51, 100, 2, 18, 103, 1, 187])


async def client_at(gateway: Gateway, host: str, port: int) -> Client:
    client = Client(*await asyncio.open_connection(host, port))
    gateway.clients.append(client)
    return client


async def unix_client(gateway: Gateway, path: Path) -> Client:
    client = Client(*await asyncio.open_unix_connection(path))
    gateway.clients.append(client)
    return client


def listening(testbed: Testbed, listen: Listen) -> None:
    testbed.listener = Listener(listen)


# --- Unix sockets ------------------------------------------------------------------------------------------


async def test_a_unix_socket_serves_with_its_mode_and_goes_in_the_end(
    testbed: Testbed, tmp_path: Path
) -> None:
    path = tmp_path / "http.sock"
    listening(testbed, Listen("", 0, str(path), mode=0o600))
    gateway, backend = await testbed.gateway_and_backend(serve)

    client = await unix_client(gateway, path)
    assert (await client.request(GET)).status == 200

    status = path.lstat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert backend.requests[0].one("x-forwarded-for") == "unix:"
    assert (await gateway.recorded()).client == "unix:"
    assert gateway.sockets.addresses == ((f"unix:{path}", 0),)
    assert gateway.sockets.urls == (f"unix:{path}",)
    await gateway.drain(1)
    assert not path.exists()


async def test_a_socket_that_a_killed_process_left_is_replaced(testbed: Testbed, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    listening(testbed, Listen("", 0, str(path)))

    gateway, _ = await testbed.gateway_and_backend(serve)

    assert (await (await unix_client(gateway, path)).request(GET)).status == 200


@pytest.mark.parametrize("kind", ["listening", "busy", "file", "no folder"])
async def test_what_is_no_left_socket_stays(testbed: Testbed, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as waiting:
        if kind in {"listening", "busy"}:
            other.bind(str(path))
            other.listen(0)
            if kind == "busy":  # its backlog is full
                waiting.connect(str(path))
        elif kind == "file":
            path.write_text("precious")
        else:
            path = tmp_path / "absent" / "http.sock"
        listening(testbed, Listen("", 0, str(path)))

        with pytest.raises(StartupError, match=f"cannot listen on unix:{path}: ") as problem:
            await testbed.gateway_and_backend(serve)

    assert (kind == "no folder") is ("the directory of a Unix socket must exist" in str(problem.value))
    assert kind == "no folder" or path.exists()


async def test_the_socket_of_a_successor_stays(testbed: Testbed, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    listening(testbed, Listen("", 0, str(path)))
    gateway, _ = await testbed.gateway_and_backend(serve)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))

        await gateway.drain(0.1)

        assert path.exists()


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_unix_socket_may_be_trusted(testbed: Testbed, tmp_path: Path, trusted: bool) -> None:
    path = tmp_path / "http.sock"
    listening(testbed, Listen("", 0, str(path), trusted=trusted))
    gateway, backend = await testbed.gateway_and_backend(serve)

    client = await unix_client(gateway, path)
    await client.request(GET[:-2] + b"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n\r\n")

    received = backend.requests[0]
    assert received.one("x-forwarded-for") == ("192.0.2.9, unix:" if trusted else "unix:")
    assert received.one("x-forwarded-proto") == ("https" if trusted else "http")
    assert (await gateway.recorded()).client == ("192.0.2.9" if trusted else "unix:")


@pytest.mark.parametrize(
    "trusted, lines, statuses",
    [
        (False, b"", [403, 200]),
        (False, b"X-Forwarded-For: unknown\r\n", [403, 200]),
        (True, b"", [403, 200]),
        (True, b"X-Forwarded-For: unix:\r\n", [403, 200]),
        (True, b"X-Forwarded-For: unknown\r\n", [403, 403]),
        (True, b"X-Forwarded-For: 10.0.0.7\r\n", [200, 200]),
    ],
)
async def test_R3_T7_on_a_unix_socket_only_what_a_trusted_peer_forwards_must_be_an_address(
    testbed: Testbed, tmp_path: Path, trusted: bool, lines: bytes, statuses: list[int]
) -> None:
    path = tmp_path / "http.sock"
    listening(testbed, Listen("", 0, str(path), trusted=trusted))
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await unix_client(gateway, path)

    seen = []
    for access in (Access([ip_network("10.0.0.0/8")], []), Access([], [ip_network("192.0.2.0/24")])):
        reload(gateway, access=access)
        seen.append((await client.request(GET[:-2] + lines + b"\r\n")).status)

    assert seen == statuses


async def test_tls_and_proxy_headers_work_over_a_unix_socket(testbed: Testbed, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    testbed.listener = tls_listener(tmp_path, path=str(path))
    gateway, backend = await testbed.gateway_and_backend(serve)

    reader, writer = await asyncio.open_unix_connection(
        path, ssl=gateway.listener.client_tls, server_hostname="localhost"
    )
    gateway.clients.append(client := Client(reader, writer))
    assert (await client.request(GET)).status == 200

    assert backend.requests[0].one("x-forwarded-proto") == "https"


# --- IPv6 --------------------------------------------------------------------------------------------------


async def test_ipv6_is_served(testbed: Testbed) -> None:
    listening(testbed, Listen("::1", 0))
    gateway, backend = await testbed.gateway_and_backend(serve)

    host, port = gateway.address
    assert (await (await client_at(gateway, host, port)).request(GET)).status == 200

    assert backend.requests[0].one("x-forwarded-for") == "::1"
    assert gateway.sockets.urls == (f"http://[::1]:{port}",)


async def test_both_stacks_on_one_socket_and_ipv4_has_its_own_form(testbed: Testbed) -> None:
    listening(testbed, Listen("::", 0, dual_stack=True))
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    port = gateway.address[1]

    for host in ("127.0.0.1", "::1"):
        client = await client_at(gateway, host, port)
        assert (await client.request(GET[:-2] + b"X-Forwarded-For: 192.0.2.9\r\n\r\n")).status == 200

    seen = [request.one("x-forwarded-for") for request in backend.requests]
    assert seen == ["192.0.2.9, 127.0.0.1", "::1"]


async def test_without_dual_stack_ipv6_leaves_ipv4_to_others(testbed: Testbed) -> None:
    listening(testbed, Listen("::", 0))
    gateway, _ = await testbed.gateway_and_backend(serve)

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", gateway.address[1])


# --- PROXY headers -----------------------------------------------------------------------------------------


def expecting_proxy(testbed: Testbed) -> None:
    listening(testbed, Listen(LOOPBACK, 0, proxy_protocol=True))


@pytest.mark.parametrize("header", [HEADER, BINARY], ids=["1", "2"])
@pytest.mark.parametrize("pieces", [1, 3])
async def test_the_client_is_whom_the_balancer_names(testbed: Testbed, header: bytes, pieces: int) -> None:
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    client = await gateway.client()
    data = header + GET
    for index in range(pieces):
        part = data[index * len(data) // pieces : (index + 1) * len(data) // pieces]
        client.writer.write(part)
        await asyncio.sleep(0)
    assert (await client.response()).status == 200
    assert (await client.request(GET[:-2] + b"X-Forwarded-For: 10.1.1.1\r\n\r\n")).status == 200

    assert [request.one("x-forwarded-for") for request in backend.requests] == ["192.0.2.1", "192.0.2.1"]
    assert (await gateway.recorded()).client == "192.0.2.1"


async def test_a_client_behind_the_balancer_may_be_a_trusted_proxy(testbed: Testbed) -> None:
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8", "192.0.2.0/24"])

    await gateway.request(HEADER + GET[:-2] + b"X-Forwarded-For: 203.0.113.5\r\n\r\n")

    assert backend.requests[0].one("x-forwarded-for") == "203.0.113.5, 192.0.2.1"


async def test_a_balancer_that_names_nobody_is_the_client(testbed: Testbed) -> None:
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    await gateway.request(SIGNATURE + b"\x20\x00\x00\x00" + GET)

    assert backend.requests[0].one("x-forwarded-for") == "127.0.0.1"


async def test_R3_T7_a_balancer_that_names_nobody_is_as_allowed_as_its_address(testbed: Testbed) -> None:
    expecting_proxy(testbed)
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    reload(gateway, access=Access([ip_network("127.0.0.0/8")], []))
    client = await gateway.client()

    answers = [
        await client.request(SIGNATURE + b"\x20\x00\x00\x00" + GET),
        await client.request(GET[:-2] + b"X-Forwarded-For: unknown\r\n\r\n"),
    ]

    assert [answer.status for answer in answers] == [200, 403]


async def test_tls_that_ends_at_the_balancer_is_told_on(testbed: Testbed) -> None:
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    item = b"\x20\x00\x05\x01\x00\x00\x00\x00"
    header = BINARY[:15] + bytes([12 + len(item)]) + BINARY[16:] + item

    await gateway.request(header + GET)

    assert backend.requests[0].one("x-forwarded-proto") == "https"


async def test_who_is_not_trusted_has_no_proxy_header(testbed: Testbed) -> None:
    """Such a peer is served as on any listener, and a header of its own is no request."""
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["10.0.0.0/8"])

    assert (await gateway.request(GET)).status == 200
    assert (await gateway.request(HEADER + GET)).status == 400

    assert [request.one("x-forwarded-for") for request in backend.requests] == ["127.0.0.1"]


@pytest.mark.parametrize(
    "sent", [GET, b"PROXY TCP4 nonsense\r\n", b"\x16\x03\x01\x02\x00", SIGNATURE + b"\x99\x11\xff\xff"]
)
async def test_a_trusted_peer_without_a_valid_header_is_refused(testbed: Testbed, sent: bytes) -> None:
    expecting_proxy(testbed)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    client = await gateway.client()
    client.writer.write(sent)
    answer = await ended(client.reader)

    assert answer.rest == b""
    assert gateway.metric("skewgate_client_errors_total", reason="proxy_header") == 1
    assert not backend.requests
    assert not gateway.worker.accept_phase


async def test_half_a_proxy_header_is_closed_in_time(testbed: Testbed) -> None:
    expecting_proxy(testbed)
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"], handshake=0.3)

    clients = [await gateway.client() for _ in range(3)]
    for client, sent in zip(clients, (b"", HEADER[:10], BINARY[:14]), strict=True):
        client.writer.write(sent)
    for client in clients:
        await ended(client.reader)

    assert gateway.metric("skewgate_client_errors_total", reason="proxy_header") == 3
    assert not gateway.worker.accept_phase


@pytest.mark.parametrize("header", [HEADER, BINARY], ids=["1", "2"])
async def test_the_header_comes_before_tls(testbed: Testbed, tmp_path: Path, header: bytes) -> None:
    testbed.listener = tls_listener(tmp_path, proxy_protocol=True)
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, gateway.address)
    await loop.sock_sendall(sock, header)

    context = gateway.listener.client_tls
    streams = await asyncio.open_connection(sock=sock, ssl=context, server_hostname="localhost")
    gateway.clients.append(client := Client(*streams))
    assert (await client.request(GET)).status == 200

    assert backend.requests[0].one("x-forwarded-for") == "192.0.2.1"
    assert backend.requests[0].one("x-forwarded-proto") == "https"


async def test_a_client_that_connects_and_leaves_is_no_error(testbed: Testbed) -> None:
    """As the checks of a balancer do that only look whether the port is open."""
    expecting_proxy(testbed)
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])

    for _ in range(3):
        (await gateway.client()).writer.close()
    await until(lambda: not gateway.worker.accept_phase)

    assert gateway.metric("skewgate_client_errors_total", reason="proxy_header") == 0


def test_the_folder_of_tests_is_short_enough_for_a_socket(tmp_path: Path) -> None:
    assert len(os.fsencode(tmp_path / "http.sock")) < 107


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(4))
async def test_who_connects_just_before_a_drain_is_served(testbed: Testbed, turns: int) -> None:
    """However far the event loop has come with the connection by then."""
    gateway, _ = await testbed.gateway_and_backend(serve)
    with socket.create_connection(gateway.address) as sock:
        sock.sendall(GET)
        sock.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await gateway.drain(PATIENCE)
            answer = await asyncio.get_running_loop().sock_recv(sock, 4096)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nConnection: close\r\n" in answer


async def test_who_comes_after_the_end_is_closed(testbed: Testbed) -> None:
    """uvloop reports a connection a turn after it was accepted."""
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    await until(lambda: bool(gateway.worker._clients))
    await gateway.worker.abort()
    assert (await ended(client.reader)).rest == b""
    await until(lambda: not gateway.worker._clients)

    left, right = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(ListenerFilter(gateway.worker, Listen("", 0, "late")).connect, left)

    right.setblocking(False)
    with right:
        async with asyncio.timeout(PATIENCE):
            assert await loop.sock_recv(right, 1) == b""
    await until(lambda: not gateway.worker._clients)


# --- peers that vanish --------------------------------------------------------------------------------------


async def test_the_kernel_asks_silent_clients_and_backends_whether_they_are_there(testbed: Testbed) -> None:
    """Else a request without a deadline (`backend_head: off`) stays in flight when its client has gone."""
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(GET)).status == 200

    (downstream,) = gateway.worker._clients
    (upstream,) = next(iter(gateway.worker.pools.by_key.values())).connections
    for transport in (downstream.transport, upstream.transport):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE


@pytest.mark.parametrize("path", ["", "http.sock"])
async def test_who_connects_after_the_end_of_a_worker_waits_for_the_next_one(
    testbed: Testbed, tmp_path: Path, path: str
) -> None:
    """As long as somebody else has the listening socket open."""
    listen = Listen("", 0, str(tmp_path / path)) if path else Listen(LOOPBACK, 0)
    listening(testbed, listen)
    first, backend = await testbed.gateway_and_backend(serve)
    served = [(listen, sock) for _, sock in first.sockets.of_slot(0)]

    async def connected() -> Client:
        return await (unix_client(first, Path(listen.path)) if path else client_at(first, *first.address))

    assert (await (await connected()).request(GET)).status == 200
    await first.worker.stop_accepting()
    waiting = await connected()
    await waiting.send(GET)
    assert first.worker.not_serving
    await first.worker.listen(served)  # it goes on after all
    assert (await waiting.response()).status == 200
    assert not first.worker.not_serving

    await first.worker.drain(0.1)
    waiting = await connected()
    await waiting.send(GET)
    testbed.listener = Listener()
    second = await testbed.gateway(backend)
    await second.worker.listen(served)
    assert (await waiting.response()).status == 200
    assert len(second.records) == 1
