"""One client connection from its first byte to its last, without sockets: cuts of its bytes change nothing.

The same bytes come plain or over TLS, with a PROXY header or without, cut anywhere, and each piece before or
after what the one before leads to; perhaps the end of the client's side follows at once. The responses, what
backends get, and the end are always those of the bytes in one piece.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple, final

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dataplane.edge.accept_phase import ListenerFilter
from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates
from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.tls_in_memory import ClientTls
from tests.fuzz.memory import Configured, Gateway, MemoryTransport, configured, run_with_gateway
from tests.kit.certificates import authority, client_context
from tests.kit.examples import examples
from tests.kit.messages import KIB, SMUGGLED, chunked, request, request_head, response, version_line

POST: Final = "POST /v1/nodes HTTP/1.1"
PEER: Final = "127.0.0.1"
PROXY_HEADER: Final = b"PROXY TCP4 192.0.2.7 192.0.2.8 40000 443\r\n"
TUNNELLED: Final = bytes(range(256)) * 200
SWITCHED: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

CONFIGURATION: Final = f"""
listen: {PEER}:0
admin: {{listen: {PEER}:0}}
access_log: {{format: off}}
trusted_proxies: [{PEER}]
limits: {{head: 8KiB, line: 1KiB, body: 200KiB, replay_body: 32KiB}}
services:
  ironic:
    dialect: ironic
    upgrade: [websocket]
    backends: [{{name: a, url: 'http://127.0.0.1:9', versions: 1.1-1.90}}]
"""


def upgrade(protocol: str) -> bytes:
    return request("GET", "/v1/console", "Connection: Upgrade", f"Upgrade: {protocol}")


REFUSED: Final = request("POST", "/v1/nodes", version_line("1.999"), body=b"x" * 2000)
FIELDS: Final = [f"X-Filler: {'x' * 500}"] * 15
LONGEST_HEAD: Final = request(
    "GET", "/v1/nodes", *FIELDS, "X: " + "x" * (8 * KIB - 15 * 512 - len(request()) - 5)
)
CASES: Final[dict[str, tuple[bytes, tuple[int, ...]]]] = {
    "pipelined": (b"".join(request("GET", f"/v1/nodes/{number}") for number in range(4)), (200,) * 4),
    "small-bodies": (
        request("POST", body=b"hello")
        + request_head("Transfer-Encoding: chunked", start=POST)
        + chunked(b"a", b"bc", b"d" * 100)
        + request(),
        (200, 200, 200),
    ),
    "streamed": (request("PUT", body=TUNNELLED * 3) + request(), (200, 200)),
    "streamed-chunks": (
        request_head("Transfer-Encoding: chunked", start=POST) + chunked(*[TUNNELLED] * 3) + request(),
        (200, 200),
    ),
    "empty-lines": (b"\r\n" + request() + b"\r\n" + request("HEAD"), (200, 200)),
    "expected": (
        request("POST", "/v1/nodes", "Expect: 100-continue", body=b"hello") + request(),
        (100, 200, 200),
    ),
    "refused-version": (REFUSED * 2 + request(), (406, 406, 200)),
    "refused-version-in-chunks": (
        request_head(version_line("1.999"), "Transfer-Encoding: chunked", start=POST)
        + chunked(b"x" * 1000, b"y")
        + request(),
        (406, 200),
    ),
    "no-http": (request() + b"\x16\3\1", (200, 400)),
    "long-line": (request() + b"GET /" + b"x" * 9 * KIB + b" HTTP/1.1\r\n\r\n" + SMUGGLED, (200, 414)),
    "longest-line": (request("GET", "/v1/" + "x" * (KIB - len("GET /v1/ HTTP/1.1"))) + request(), (200, 200)),
    "longest-head": (LONGEST_HEAD + request(), (200, 200)),
    "large-head": (request() + request_head("X-Filler: y", *["X: y"] * 2000) + SMUGGLED, (200, 431)),
    "broken-field": (request() + request_head("X : y") + SMUGGLED, (200, 400)),
    "broken-chunk": (
        request_head("Transfer-Encoding: chunked", start=POST) + b"5\r\nhello5\r\nhello\r\n" + SMUGGLED,
        (400,),
    ),
    "large-body": (request("PUT", body=b"x" * 201 * KIB) + SMUGGLED, (413,)),
    "large-body-in-chunks": (
        request_head("Transfer-Encoding: chunked", start=POST) + chunked(*[b"x" * 67 * KIB] * 3) + SMUGGLED,
        (413,),
    ),
    "last": (request("GET", "/v1/nodes", "Connection: close") + SMUGGLED, (200,)),
    "tunnel": (upgrade("websocket") + TUNNELLED, (101,)),
    "tunnel-behind-a-request": (REFUSED + request() + upgrade("websocket") + TUNNELLED * 3, (406, 200, 101)),
    "no-tunnel": (upgrade("other") + request(), (200, 200)),
}


class Course(NamedTuple):
    """How the bytes come."""

    tls: ssl.TLSVersion | None
    proxy_header: bool
    cuts: Sequence[tuple[int, int]]
    """Positions modulo the length, and after how many turns of the loop the bytes from there on come."""
    ends: bool
    """Whether the client closes its side, in the same turn as its last byte."""


WHOLE: Final = Course(None, proxy_header=False, cuts=(), ends=False)
POSITIONS: Final = st.integers(-300, 300) | st.integers(0, 1 << 18)


def courses(data: bytes) -> st.SearchStrategy[Course]:
    """Ways in which these bytes may come: lines and chunks are cut near their ends in particular."""
    ends = [found.start() + near for found in list(re.finditer(b"\n", data))[:64] for near in (-1, 0, 1)]
    positions = st.sampled_from(ends) | POSITIONS
    return st.builds(
        Course,
        st.sampled_from((None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)),
        st.booleans(),
        st.lists(st.tuples(positions, st.integers(0, 3)), max_size=8),
        st.booleans(),
    )


class Outcome(NamedTuple):
    """What came of the client's bytes."""

    responses: bytes
    """All that the client has got, without the fields that differ each time."""
    ended: bool
    """Whether the gateway has ended its side."""
    received: bytes
    """All whole requests that backends have got, and what came through a tunnel."""

    def difference(self, other: Outcome) -> str:
        """The first one, in few words: pytest would compare all bytes for minutes."""
        if self.ended != other.ended:
            return f"ended: {self.ended} and {other.ended}"
        for one, two in ((self.responses, other.responses), (self.received, other.received)):
            if one != two:
                pairs = enumerate(zip(one, two, strict=False))
                at = next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))
                return f"at {at}: {one[at : at + 300]!r} and {two[at : at + 300]!r}"
        return ""


@final
class Server:
    """One connection of a backend: serves each whole request, and passes back what comes through a tunnel."""

    def __init__(self, transport: MemoryTransport, received: list[bytes]) -> None:
        self._transport = transport
        self._received = received
        self._connection = h11.Connection(h11.SERVER)
        self._request: h11.Request
        self._body = b""
        self._switched = False
        transport.on_bytes = self._receive

    def _receive(self, data: bytes) -> None:
        if self._switched:
            self._received.append(data)
            self._transport.deliver(data)
            return
        self._connection.receive_data(data)
        while (event := self._connection.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._respond(self._request)

    def _respond(self, asked: h11.Request) -> None:
        self._received.append(b"%b %b %b\n" % (asked.method, asked.target, self._body))
        self._body = b""
        if (b"upgrade", b"websocket") in asked.headers:
            self._switched = True
            self._transport.deliver(SWITCHED)
            return
        body = b"" if asked.method == b"HEAD" else asked.target
        self._transport.deliver(response(200, f"Content-Length: {len(asked.target)}", body=body))
        self._connection.send(h11.Response(status_code=200, headers=[(b"Content-Length", b"0")]))
        self._connection.send(h11.EndOfMessage())
        self._connection.start_next_cycle()


def serving(received: list[bytes]) -> Callable[[MemoryTransport], None]:
    """A backend whose connections are such servers."""

    def serve(transport: MemoryTransport) -> None:
        Server(transport, received)

    return serve


async def deliver(client: MemoryTransport, data: bytes, cuts: Sequence[tuple[int, int]]) -> None:
    """Let these bytes come, cut there."""
    turns = {position % len(data): number for position, number in cuts}
    for begin, end in pairwise(sorted({0, *turns, len(data)})):
        for _ in range(turns.get(begin, 0)):
            await asyncio.sleep(0)
        if not client.closing:
            client.deliver(data[begin:end])


def context_for(version: ssl.TLSVersion) -> ssl.SSLContext:
    """That of a client with at most this version."""
    context = client_context(authority())
    context.maximum_version = version
    return context


@cache
def _configured() -> Configured:
    return configured(CONFIGURATION)


_CHANGING: Final = re.compile(rb"(?:Date|Connection|[A-Za-z-]*Request-Id): [^\r]*\r\n")
"""Fields that differ each time. `Connection` tells whether the client's end was known."""


def outcome(data: bytes, course: Course, certificates: ServerCertificates) -> Outcome:
    """What comes of a client's bytes."""
    found: list[Outcome] = []

    async def script(gateway: Gateway) -> None:
        received: list[bytes] = []
        gateway.loop.serve = serving(received)
        listen = Listen(PEER, 0, proxy_protocol=course.proxy_header)
        listener = ListenerFilter(gateway.worker, listen, certificates if course.tls else None)
        client = MemoryTransport(gateway.loop, listener.connect(), PEER)
        begin = PROXY_HEADER if course.proxy_header else b""
        tls = None if course.tls is None else ClientTls(context_for(course.tls))
        if tls is None:
            cuts = [(position + len(begin), turns) for position, turns in course.cuts]
            await deliver(client, begin + data, cuts)
        else:
            while not tls.handshake(client.written):
                answer = tls.records()
                assert answer
                await deliver(client, begin + answer, course.cuts)
                await gateway.loop.settle()
                begin = b""
            tls.send(data)
            if course.ends:
                tls.end()
            await deliver(client, tls.records(), course.cuts)
        if course.ends and not client.closing:
            client.deliver_eof()
        await gateway.loop.settle()
        written, ended = client.written, client.wrote_eof or client.closing
        if tls is not None:
            written, announced = tls.received(written)
            assert announced == ended
        found.append(Outcome(_CHANGING.sub(b"", written), ended, b"".join(received)))
        await gateway.lose_all()

    run_with_gateway(_configured(), script)
    return found[0]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> ServerCertificates:
    found = tls_listener(tmp_path_factory.mktemp("tls")).certificates
    assert found is not None
    return found


def expected(case: str, certificates: ServerCertificates) -> Outcome:
    """What comes of the bytes in one piece, which is right."""
    data, statuses = CASES[case]
    whole = outcome(data, WHOLE, certificates)
    found = tuple(map(int, re.findall(rb"HTTP/1\.1 (\d+) ", whole.responses)))
    assert found == statuses
    assert b"/smuggled" not in whole.received
    if "tunnel" in case and 101 in statuses:
        assert whole.responses.endswith(TUNNELLED)
        assert whole.received.endswith(TUNNELLED)
    return whole


def test_requests_and_an_end_may_follow_the_handshake_at_once(certificates: ServerCertificates) -> None:
    """In TLS 1.3 the client may send them with its last message. The end is read before that is handled."""
    right = expected("pipelined", certificates)
    course = WHOLE._replace(tls=ssl.TLSVersion.TLSv1_3, ends=True)
    found = outcome(CASES["pipelined"][0], course, certificates)
    assert not found.difference(right._replace(ended=True))


def test_the_end_of_the_longest_line_may_be_cut(certificates: ServerCertificates) -> None:
    """A part of its CRLF does not count as a part of the line."""
    right = expected("longest-line", certificates)
    for length in (KIB, KIB + 1):
        course = WHOLE._replace(cuts=[(length, 1)])
        assert not outcome(CASES["longest-line"][0], course, certificates).difference(right)


@pytest.mark.parametrize("before", [b"", request()], ids=["first", "later"])
def test_an_empty_line_that_comes_cut_does_not_change_the_time_of_an_idle_client(before: bytes) -> None:
    """Its first byte could have been the beginning of a head, which has less time."""

    async def script(gateway: Gateway) -> None:
        gateway.loop.serve = serving([])
        deadlines = []
        for cuts in ([], [(1, 1)]):
            client = gateway.client()
            if before:
                client.deliver(before)
                await gateway.loop.settle()
            await deliver(client, b"\r\n", cuts)
            (connection,) = gateway.worker._clients
            deadlines.append(connection.deadline)
            await gateway.lose_all()
        assert deadlines[0] == deadlines[1]

    run_with_gateway(_configured(), script)


@pytest.mark.parametrize("case", CASES)
def test_cuts_change_nothing(certificates: ServerCertificates, case: str) -> None:
    """Neither do TLS, the PROXY header and the end of the client's side."""
    right, (data, statuses) = expected(case, certificates), CASES[case]

    @settings(max_examples=examples(15))
    @given(courses(data))
    def law(course: Course) -> None:
        found = outcome(data, course, certificates)
        ends = course.ends and 101 not in statuses  # one side of a tunnel may end alone
        assert not found.difference(right._replace(ended=right.ended or ends))

    law()
