"""What clients of the admin listener can do without permission, and with it: too slow, too many, malformed.

Raw clients on loopback in front of a whole gateway (threats R-B7). Deadlines are shortened by name.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path
from random import Random

import pytest
from aiohttp import web

from gateway.admin import connection
from gateway.runtime import compiled
from gateway.telemetry.metrics import Metrics
from tests.admin.raw_clients import FILE, TOKEN, Admin, at_most, connections_to, running
from tests.kit.waiting import PATIENCE, until

SHORT = 0.3
"""Seconds for a deadline that a test waits for."""
AT_MOST = 64
"""Connections that the admin listener keeps."""
HALF_HEAD = b"GET /status HTTP/1.1\r\nHost: "


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running() as admin:
        yield admin


def shorten(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make these deadlines of the admin listener short, for connections that are made from here on."""
    for name in names:
        monkeypatch.setattr(connection, name, SHORT)


# --- slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent, answered",
    [
        (b"", False),
        (b"\r\n\r\n", False),
        (b"G", True),
        (HALF_HEAD, True),
        (b"GET /livez HTTP/1.1\r\nA: b\r\n", True),
    ],
    ids=["nothing", "blank lines", "one byte", "half a head", "all but the end"],
)
async def test_R_B7_a_head_that_does_not_come_in_time_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, answered: bool
) -> None:
    shorten(monkeypatch, "HEAD_TIME")
    async with running() as admin:
        peer = await admin.peer()
        peer.send(sent)
        assert (await peer.everything()).startswith(b"HTTP/1.1 408 ") == answered
        assert (await admin.counts())["timeout"] == 1


async def test_R_B7_a_head_in_drips_does_not_extend_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, "HEAD_TIME")
    async with running() as admin:
        peer = await admin.peer()

        async def drip() -> None:
            while True:
                peer.send(b"x")
                await asyncio.sleep(SHORT / 10)

        peer.send(b"GET /livez HTTP/1.1\r\nX: ")
        dripping = asyncio.create_task(drip())
        try:
            assert await peer.closed()
        finally:
            dripping.cancel()


@pytest.mark.parametrize("behind", [True, False], ids=["in one piece with a request", "after a response"])
async def test_R_B7_every_further_head_has_the_same_deadline(
    monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    shorten(monkeypatch, "HEAD_TIME")
    async with running() as admin:
        peer = await admin.peer()
        peer.send(admin.request("/status") + (HALF_HEAD if behind else b""))
        assert (await peer.response())[0] == 200
        if not behind:
            peer.send(HALF_HEAD)
        assert await peer.closed()


async def test_R_B7_every_further_head_has_the_same_bound(admin: Admin) -> None:
    peer = await admin.peer()
    peer.send(admin.request("/status"))
    assert (await peer.response())[0] == 200
    peer.send(b"\r\n" + HALF_HEAD)
    peer.send(b"a\r\n" + (b"X: " + b"x" * 1000 + b"\r\n") * 17)
    assert (await peer.everything()).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "its end later"])
async def test_R_B7_a_head_in_one_piece_has_the_same_bound(admin: Admin, pieces: int) -> None:
    """Its end in the same read does not make a long head a short one; bytes before that read count too."""
    begin, end = admin.request("/livez", more="X: a\r\n" + f"X: {'x' * 1000}\r\n" * 60).split(b"X: a", 1)
    peer = await admin.peer()
    if pieces == 2:
        peer.send(begin)
        await asyncio.sleep(0.05)
        begin = b""
    peer.send(begin + b"X: a" + end)
    assert (await peer.everything()).startswith(b"HTTP/1.1 431 ")
    assert (await admin.counts())["head_too_large"] == 1


@pytest.mark.parametrize(
    "method, path, body", [("GET", "/livez", b""), ("PUT", "/services/baremetal/ceiling", b"{}")]
)
@pytest.mark.parametrize("later", [False, True], ids=["in the same read", "its rest later"])
async def test_R_B7_a_second_head_has_the_same_bound(
    admin: Admin, later: bool, method: str, path: str, body: bytes
) -> None:
    """It comes behind a short request, in one read with it."""
    first = admin.request(path, method=method, more=f"Content-Length: {len(body)}\r\n") + body
    second = admin.request("/livez", more=f"X: {'x' * 1000}\r\n" * 60)
    peer = await admin.peer()
    middle = 8000 if later else len(second)
    peer.send(first + second[:middle])
    if later:
        status, _, _ = await peer.response()
        assert status in {200, 400}
        peer.send(second[middle:])
    assert b"HTTP/1.1 200 OK" not in (await peer.everything()).partition(b"\r\n\r\n")[2]
    assert (await admin.counts())["head_too_large"] == 1


@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "its end later"])
async def test_R_B7_a_body_does_not_count_as_a_head(admin: Admin, pieces: int) -> None:
    head = admin.request("/services/baremetal/ceiling", method="PUT", more="Content-Length: 99999\r\n")
    peer = await admin.peer()
    if pieces == 2:
        peer.send(head[:-2])
        await asyncio.sleep(0.05)
        head = head[-2:]
    peer.send(head + b"x" * 99999)
    assert (await peer.response())[0] == 413


@pytest.mark.parametrize("size", [70_000, 200_000])
async def test_R_B7_a_body_does_not_count_as_a_head_on_a_kept_connection(admin: Admin, size: int) -> None:
    peer = await admin.peer()
    for _ in range(2):
        peer.send(admin.request("/status"))
        assert (await peer.response())[0] == 200
    head = admin.request("/services/baremetal/ceiling", method="PUT", more=f"Content-Length: {size}\r\n")
    peer.send(head + b"x" * size)
    assert (await peer.response())[0] == 413
    assert (await admin.counts())["head_too_large"] == 0


async def test_R_B7_the_rest_of_a_body_that_comes_before_its_413_does_not_count_as_a_head(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is here when the response ends, and is not yet passed on."""
    rest = [b"x" * 30_000, b"x" * 70_000, b"x"]  # a handler that has read the first byte waits for more
    size = sum(map(len, rest))
    pass_on, loop = web.RequestHandler.data_received, asyncio.get_running_loop()

    def passed_on(protocol: web.RequestHandler, data: bytes) -> None:
        assert isinstance(protocol.transport, connection.AdminConnection)
        if data and rest:  # comes in the turn of the loop in which the handler reads `data`
            loop.call_soon(protocol.transport.data_received, rest.pop())
        pass_on(protocol, data)

    with monkeypatch.context() as patch:
        patch.setattr(web.RequestHandler, "data_received", passed_on)
        peer = await admin.peer()
        more = f"Content-Length: {size}\r\n"
        peer.send(admin.request("/services/baremetal/ceiling", method="PUT", more=more))
        assert (await peer.response())[0] == 413
        assert await peer.closed()
    assert not rest
    assert (await admin.counts())["head_too_large"] == 0


async def test_R_B7_a_body_that_does_not_come_in_time_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten(monkeypatch, "BODY_TIME")
    async with running() as admin:
        peer = await admin.peer()
        head = admin.request("/services/baremetal/ceiling", method="PUT", more="Content-Length: 30\r\n")
        peer.send(head + b'{"version"')
        assert (await peer.everything()).startswith(b"HTTP/1.1 408 ")
        assert (await admin.counts())["timeout"] == 1


async def test_R_B7_a_request_that_gets_to_no_handler_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if aiohttp had failed at a head that this side lets pass."""
    shorten(monkeypatch, "BODY_TIME")
    async with running() as admin:
        with monkeypatch.context() as patch:
            patch.setattr(web.RequestHandler, "data_received", lambda *_: None)
            peer = await admin.peer()
            peer.send(admin.request("/status"))
            assert (await peer.everything()).startswith(b"HTTP/1.1 408 ")
        assert (await admin.counts())["timeout"] == 1


async def test_R_B7_a_bug_beside_any_request_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("secret detail")

    async with running() as admin:
        with monkeypatch.context() as patch:
            patch.setattr(web.RequestHandler, "data_received", broken)
            peer = await admin.peer()
            peer.send(admin.request("/status"))
            assert (await peer.everything()).startswith(b"HTTP/1.1 500 ")
        assert (await admin.counts())["internal"] == 1
    assert caplog.text.count("Traceback") == 1


async def test_R_B7_an_idle_connection_is_kept_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, "IDLE_TIME")
    async with running() as admin:
        peer = await admin.peer()
        for _ in range(3):
            peer.send(admin.request("/metrics"))
            assert (await peer.response())[0] == 200
        assert await peer.everything() == b""
        assert (await admin.counts())["timeout"] == 0


async def test_R_B7_a_connection_without_an_authorised_request_is_not_kept(admin: Admin) -> None:
    for path, status in (("/livez", 200), ("/status", 401), ("/nowhere", 401)):
        peer = await admin.peer()
        peer.send(admin.request(path, token=None) * 2)
        received = await peer.everything()
        assert received.startswith(b"HTTP/1.1 %d " % status)
        assert received.count(b"HTTP/1.1 ") == 1


async def test_R_B7_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, "RESPONSE_TIME")
    asked = 0

    def pieces() -> Iterator[bytes]:
        nonlocal asked
        for _ in range(512):
            asked += 1
            yield b"x" * 65_536

    monkeypatch.setattr(Metrics, "exposition", lambda *_: (pieces(), "text/plain"))
    async with running() as admin:
        peer = await admin.peer()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(admin.request("/metrics"))

        # Nothing is read until the gateway has let go of the connection: then less than all has come.
        async def cut() -> bool:
            return not connections_to(admin.port)

        await until(cut)
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await peer.everything()) < 33_554_432
        assert asked < 200, "no more is made than the client and the sockets take"


async def test_R_B7_a_client_that_always_takes_a_little_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline for all of a response, from where the client first falls behind."""
    shorten(monkeypatch, "RESPONSE_TIME")
    monkeypatch.setattr(Metrics, "exposition", lambda *_: (repeat(b"x" * 262_144), "text/plain"))
    async with running() as admin:
        peer = await admin.peer()
        peer.send(admin.request("/metrics"))
        assert await peer.closed()
        monkeypatch.undo()
        assert (await admin.counts())["timeout"] == 1


# --- many ---------------------------------------------------------------------------------------------------


async def test_R_B7_an_operator_gets_through_400_half_heads(admin: Admin) -> None:
    scraper = await admin.peer()
    scraper.send(admin.request("/metrics"))
    assert (await scraper.response())[0] == 200

    half = [await admin.peer() for _ in range(400)]
    for peer in half:
        peer.send(HALF_HEAD)

    await at_most(AT_MOST, admin.port)
    operator = await admin.peer()
    operator.send(admin.request("/status"))
    assert (await operator.response())[0] == 200
    scraper.send(admin.request("/metrics"))
    assert (await scraper.response())[0] == 200
    operator.writer.close()
    await at_most(AT_MOST, admin.port)
    assert (await admin.counts())["too_many_connections"] >= 400 + 2 - AT_MOST


async def test_R_B7_who_has_to_go_learns_why(admin: Admin) -> None:
    """200 clients at once: some are served, and the others are told."""
    peers = [await admin.peer() for _ in range(200)]
    responses = [await peer.everything() for peer in peers[:-AT_MOST]]
    assert {response.split(b" ")[1] for response in responses} == {b"503"}
    assert responses[0].endswith(b'{"error": "too many connections to the admin listener"}\n')
    for peer in peers[-AT_MOST + 1 :]:
        peer.send(admin.request("/livez"))
    for peer in peers[-AT_MOST + 1 :]:
        assert (await peer.response())[0] == 200


async def test_R_B7_an_idle_authorised_connection_yields_last(admin: Admin) -> None:
    operators = [await admin.peer() for _ in range(AT_MOST - 1)]
    for operator in operators:
        operator.send(admin.request("/status"))
        assert (await operator.response())[0] == 200
    operators[0].send(admin.request("/status"))  # from here on the second one is idle for the longest time
    assert (await operators[0].response())[0] == 200

    stranger = await admin.peer()
    newcomers = [await admin.peer() for _ in range(2)]
    assert await stranger.closed()
    assert await newcomers[0].closed()
    newcomers[1].send(admin.request("/status"))
    assert (await newcomers[1].response())[0] == 200

    last = await admin.peer()
    assert await operators[1].closed()
    last.send(admin.request("/status"))
    assert (await last.response())[0] == 200
    del operators[1]
    for operator in operators:
        operator.send(admin.request("/livez"))
        assert (await operator.response())[0] == 200


async def test_R_B7_an_authorised_connection_never_yields(admin: Admin) -> None:
    """In the middle of a request, that is."""
    operators = [await admin.peer() for _ in range(AT_MOST)]
    for operator in operators:
        operator.send(admin.request("/status"))
    for operator in operators:
        assert (await operator.response())[0] == 200
    put = admin.request(
        "/services/baremetal/ceiling", method="PUT", more="Content-Length: 2\r\nExpect: 100-continue\r\n"
    )
    half = admin.request("/livez")
    for operator in operators[1:]:
        operator.send(put)
    for operator in operators[1:]:
        assert (await operator.response())[0] == 100
    operators[0].send(half[:-2])
    await asyncio.sleep(0.05)

    newcomer = await admin.peer()
    assert await newcomer.closed()
    operators[0].send(half[-2:])
    assert (await operators[0].response())[0] == 200
    for operator in operators[1:]:
        operator.send(b"{}")
    for operator in operators[1:]:
        assert (await operator.response())[0] == 400


async def test_R_B7_as_many_scrapes_at_once_as_there_are_connections(admin: Admin) -> None:
    scrapers = [await admin.peer() for _ in range(AT_MOST)]
    for _ in range(3):
        for scraper in scrapers:
            scraper.send(admin.request("/metrics"))
        for scraper in scrapers:
            status, _, body = await scraper.response()
            assert (status, b"skewgate_build_info" in body) == (200, True)


DESCRIPTORS = 128
"""Of the process: fewer than the connections that a kernel completes before any is accepted."""
SERVED = b"GET /v1 HTTP/1.1\r\nHost: a\r\nX-OpenStack-Ironic-API-Version: 1.99\r\nConnection: close\r\n\r\n"
"""A request that the gateway answers itself, with 406."""


@pytest.mark.processes
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_R_B7_half_heads_take_no_descriptors_of_the_data_plane(tmp_path: Path, loop: str) -> None:
    """The gateway as a process that may open few files; clients connect while 400 half heads come in."""
    file = tmp_path / "gateway.yaml"
    file.write_text(FILE)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SKEWGATE_") or name == compiled.VARIABLE
    }
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway", "run", "-c", str(file)),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2]), "SKEWGATE_LOOP": loop},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard)),
    )
    assert process.stderr is not None
    half: list[socket.socket] = []
    try:
        async with asyncio.timeout(PATIENCE):
            ports = [await _port_of(process.stderr, text) for text in ("serves on", "the admin listener is")]
        for _ in range(400):
            half.append(connection := socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", ports[1]))

        async def taken() -> bool:
            """Whether all of them are accepted, or nothing more can be."""
            return descriptors_of(process.pid) >= DESCRIPTORS - 1 or not connections_to(
                ports[1], accepted=False
            )

        await until(taken)
        for _ in range(20):
            assert await _status_of(ports[0], SERVED) == b"406"
        for connection in half:
            try:
                connection.send(HALF_HEAD)
            except OSError:  # it is closed already, or does not yet exist
                continue
        for _ in range(20):
            assert await _status_of(ports[0], SERVED) == b"406"
        authorised = f"Host: 127.0.0.1:{ports[1]}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        assert await _status_of(ports[1], b"GET /status HTTP/1.1\r\n" + authorised.encode()) == b"200"
    finally:
        for connection in half:
            connection.close()
        process.terminate()
        _, err = await process.communicate()
    assert b"Traceback" not in err
    assert b"Too many open files" not in err


def descriptors_of(process: int) -> int:
    """How many descriptors a process has open."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


async def _port_of(log: asyncio.StreamReader, text: str) -> int:
    """The port in the next log line with `text`."""
    while text not in (line := (await log.readline()).decode()):
        assert line, f"it ended before it logged {text!r}"
    return int(line.rstrip().rpartition(":")[2])


async def _status_of(port: int, request: bytes) -> bytes:
    """The status of the response; `none` if none comes within a second."""
    try:
        async with asyncio.timeout(PATIENCE / 30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except (TimeoutError, OSError):
        return b"none"
    return line.split()[1] if line else b"none"


async def test_R_B7_it_stops_at_once_whatever_is_open() -> None:
    async with AsyncExitStack() as stack:
        before = asyncio.all_tasks()
        async with running() as admin:
            for data in (b"", HALF_HEAD, admin.request("/status"), b"\x16\x03\x01"):
                for _ in range(8):
                    peer = await Admin(admin.gateway, stack).peer()
                    peer.send(data)
            assert len(await admin.counts()) > 0

        async def nothing_is_left() -> bool:
            return asyncio.all_tasks() == before

        await until(nothing_is_left)


# --- malformed ----------------------------------------------------------------------------------------------

CANARY = b"Canary"
MALFORMED = {
    "a word": (b"Canary\r\n\r\n", 400),
    "an unknown method": (b"CANARY / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "an unknown version": (b"GET /Canary HTTP/7.7\r\nHost: Canary\r\n\r\n", 400),
    "no Host": (b"GET /Canary HTTP/1.1\r\nCanary: Canary\r\n\r\n", 400),
    "a wrong field name": (b"GET / HTTP/1.1\r\nHost: a\r\nCan ary: Canary\r\n\r\n", 400),
    "a control byte": (b"GET / HTTP/1.1\r\nHost: a\r\nX: Canary\x00\r\n\r\n", 400),
    "a bad length": (b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: Canary\r\n\r\n", 400),
    "length and coding": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a bad target": (b"GET http://[Canary HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a port that is none": (b"GET http://a:Canary/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a target that is none": (b"CONNECT \nCanary:1 HTTP/1.1\r\nHost: Canary\r\n\r\n", 400),
    "NULs": (b"\x00" * 64, 400),
    "TLS": (b"\x16\x03\x01\x00\x2aCanary", 400),
    "a long target": (b"GET /" + b"Canary" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    "a long field": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"Canary" * 2000 + b"\r\n\r\n", 431),
    "a long head": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: %b\r\n" % (CANARY * 500) * 20, 431),
    "many fields": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: Canary\r\n" * 400 + b"\r\n", 400),
    "an expectation": (b"GET /livez HTTP/1.1\r\nHost: {host}\r\nExpect: Canary\xa3\r\n\r\n", 417),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_R_B7_a_bad_request_gets_a_fixed_response(
    admin: Admin, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    data, status = MALFORMED[name]
    for _ in range(3):
        peer = await admin.peer()
        peer.send(data.replace(b"{host}", f"{admin.host}:{admin.port}".encode()))
        code, fields, body = await peer.response()
        assert code == status
        assert b"canary" not in body.lower() + repr(fields).lower().encode()
        assert (fields["content-type"], fields["connection"]) == ("application/json", "close")
        assert (fields["cache-control"], fields["x-content-type-options"]) == ("no-store", "nosniff")
        assert "server" not in fields
        assert await peer.closed()
    assert sum((await admin.counts()).values()) == 3
    assert "Traceback" not in caplog.text
    assert "anary" not in caplog.text


@pytest.mark.parametrize(
    "method, path, token, status",
    [
        ("PUT", "/services/baremetal/ceiling", TOKEN, 400),
        ("PUT", "/services/baremetal/ceiling", None, 401),
        ("POST", "/-/reload", TOKEN, 400),  # it needs no body, but must not reload for half a request
        ("POST", "/services/baremetal/backends/old/drain", TOKEN, 400),
    ],
)
async def test_R_B7_a_malformed_body_is_refused_at_once(
    admin: Admin, caplog: pytest.LogCaptureFixture, method: str, path: str, token: str | None, status: int
) -> None:
    head = admin.request(path, token, method, "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n")
    peer = await admin.peer()
    peer.send(head)
    assert (await peer.response())[0] == 100
    peer.send(b"5\r\nhello Canary\r\n")
    received = await peer.everything()
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert (received.count(b"HTTP/1.1 "), CANARY in received) == (1, False)
    assert not admin.gateway.snapshot_holder.current.views["baremetal"].members.all[0].drained
    assert "Traceback" not in caplog.text


async def test_R_B7_no_response_names_its_server(admin: Admin) -> None:
    big = "Content-Length: 99999\r\n"
    for request, status in [
        (admin.request("/livez"), 200),
        (admin.request("/metrics"), 200),
        (admin.request("/status", method="HEAD"), 200),
        (admin.request("/nowhere"), 404),
        (admin.request("/status", method="POST", more="Content-Length: 0\r\n"), 405),
        (admin.request("/services/baremetal/ceiling", method="PUT", more=big) + b"x" * 99999, 413),
        (admin.request("/status", token=None), 401),
        (admin.request("/status", more="Origin: http://a\r\n"), 403),
    ]:
        peer = await admin.peer()
        peer.send(request)
        async with asyncio.timeout(PATIENCE):
            head = (await peer.reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 %d " % status)
        assert b"\r\nserver:" not in head


async def test_R_B7_what_is_refused_is_counted_and_said_once_a_minute(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    for data in (b"nonsense\r\n\r\n", b"\x16\x03\x01", admin.request("/status", token="wrong")):
        for _ in range(3):
            peer = await admin.peer()
            peer.send(data)
            assert await peer.closed()

    counts = await admin.counts()
    assert {reason: count for reason, count in counts.items() if count} == {
        "malformed": 3,
        "tls": 3,
        "unauthorized": 3,
    }

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "skewgate.admin"]

    async def said() -> bool:
        return bool(lines())

    await until(said)
    assert len(lines()) == 1
    assert "malformed 3, tls 3, unauthorized 3" in lines()[0]


async def test_R_B7_a_bug_writes_one_traceback_a_minute(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr("gateway.admin.status_document.views.status", broken)
    for _ in range(5):
        peer = await admin.peer()
        peer.send(admin.request("/status"))
        status, fields, body = await peer.response()
        assert (status, "server" in fields, b"secret" in body) == (500, False, False)
    assert caplog.text.count("Traceback") == caplog.text.count("KeyError: 'secret detail'") == 1
    assert (await admin.counts())["internal"] == 5


async def test_R_B7_requests_ahead_of_a_response_are_bounded(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are kept, as they may be; beyond that, the connection is closed after the response."""
    for ahead, responses in ((3, 4), (300, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(Metrics, "exposition", lambda *_: (repeat(b"x" * 65_536, 256), "text/plain"))
            peer = await admin.peer()
            peer.send(admin.request("/metrics"))
            begin = await peer.reader.readexactly(9)  # the rest waits: a response is under way
            last = admin.request("/livez", more="Connection: close\r\n")
            peer.send(admin.request("/livez", more=f"X: {'x' * 100}\r\n") * (ahead - 1) + last)
            assert (begin + await peer.everything()).count(b"HTTP/1.1 ") == responses
    assert (await admin.counts())["head_too_large"] == 1


async def test_R_B7_whatever_comes_there_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests with bytes changed, doubled, left out or put in, whole and in pieces."""
    shorten(monkeypatch, "HEAD_TIME", "BODY_TIME", "IDLE_TIME")
    random = Random(7)
    async with running() as admin:
        chunked = "Transfer-Encoding: chunked\r\n"
        requests = [
            *(data for data, _ in MALFORMED.values() if len(data) < 200),
            *(
                admin.request(path)
                for path in ("/status", "/metrics", "/livez", "/explain?path=/v1&method=GET")
            ),
            admin.request("/services/baremetal/ceiling", method="PUT", more="Content-Length: 2\r\n") + b"{}",
            admin.request("/-/reload", method="POST", more=chunked) + b"5\r\nhello\r\n0\r\n\r\n",
            admin.request("/livez", more="Connection: upgrade\r\nUpgrade: websocket\r\n") + b"x",
        ]

        async def client() -> None:
            for _ in range(15):
                peer = await admin.peer()
                data = b"".join(changed(random, random.choice(requests)) for _ in range(2))
                middle = random.randrange(len(data) + 1)
                for piece in (data[:middle], data[middle:]):
                    peer.send(piece)
                    await asyncio.sleep(0)
                received = await peer.everything()
                assert b"aiohttp" not in received
                assert b"\r\nServer:" not in received

        async with asyncio.TaskGroup() as clients:
            for _ in range(40):
                clients.create_task(client())
        assert (await admin.counts())["internal"] == 0
    assert "Traceback" not in caplog.text


def changed(random: Random, data: bytes) -> bytes:
    """`data` with up to three changes."""
    for _ in range(random.randrange(4)):
        begin, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
        put = random.choice(
            [b"", b"\r\n", b"\n", b"\x00", b"\xff", b":", b" ", b"[", b"%", data[begin:end] * 2]
        )
        data = data[:begin] + put + data[random.choice([begin, begin + 1, end]) :]
    return data
