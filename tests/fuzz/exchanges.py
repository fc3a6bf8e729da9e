"""Whole exchanges, with a worker in memory: what is forwarded means what was decided.

`requests`: the bytes of a client, before a good backend. What the backend gets is read by h11, and by WebOb
for the version. `responses`: the bytes of a backend, as the answer to the first of two requests.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple, final
from urllib.parse import unquote_plus

import h11

from gateway.core.decision.decision import NegotiationResult
from gateway.core.fleet.limits import Limits
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.dataplane.http1.fields import CHUNKED, HEAD_END, NO_BODY
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.errors import FramingError
from gateway.telemetry.request_record import RequestRecord
from tests.differential import judge
from tests.differential.apis import APIS, DOMAIN, Api, Path, Query, configuration
from tests.differential.draft import Case
from tests.differential.readers import webob_reader
from tests.differential.readers.view import Unreadable
from tests.differential.testbed import Result, version_in
from tests.fuzz.memory import Configured, Gateway, MemoryTransport, configured, run_with_gateway

_TABLE: Final = NameTable.for_requests(frozenset())
_LIMITS: Final = Limits()
_AFTER_NEGOTIATION: Final = (NegotiationResult.SERVED, NegotiationResult.UNAVAILABLE, None)
"""`unavailable`: the response did not satisfy the gateway. The version stands."""
_HOP_BY_HOP: Final = {b"keep-alive", b"proxy-connection", b"trailer", b"http2-settings", b"connection"}


@cache
def _apis() -> Configured:
    """All APIs of the differential test, each chosen by its host."""
    return configured(configuration(9))


# --- reading ------------------------------------------------------------------------------------------------


class Received(NamedTuple):
    """One whole request."""

    method: str
    target: bytes
    host: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    raw: bytes = b""


class Sent(NamedTuple):
    """What a client means, by our own reader."""

    head: RequestHead
    body: bytes
    complete: bool


def sent_requests(data: bytes) -> list[Sent]:
    """The requests in `data` up to the first that is broken or the last on its connection."""
    found: list[Sent] = []
    while data:
        data = data.removeprefix(b"\r\n")
        end = data.find(HEAD_END) + len(HEAD_END)
        if end < len(HEAD_END):
            break
        try:
            head = read_request_head(data[:end], _TABLE, _LIMITS)
            data = data[end:]
            body, complete = b"", True
            if head.framing == CHUNKED:
                decoder = ChunkedDecoder()
                body, complete = decoder.feed(data), decoder.done
                data = decoder.rest
            elif head.framing != NO_BODY:
                body, data = data[: head.length], data[head.length :]
                complete = len(body) == head.length
        except FramingError:
            break
        found.append(Sent(head, body, complete))
        if not complete or head.close:
            break
    return found


@final
class Server:
    """A backend for one connection: whole requests by h11, each answered well, at the version in it.

    h11 raises for what is no request, and for anything behind one that is none.
    """

    def __init__(self, transport: MemoryTransport, requests: list[Received], api: str = "") -> None:
        """`api`: of all hosts; empty: each has its own."""
        self._transport = transport
        self._requests = requests
        self._api = api
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self._raw = b""
        self._request: h11.Request | None = None
        self._body = b""

    def begin(self) -> None:
        self._transport.on_bytes = self.receive

    def receive(self, data: bytes) -> None:
        self._raw += data
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert not event.headers, "trailers are never sent on"
                self._respond()

    def _respond(self) -> None:
        request = self._request
        assert request is not None
        rest = self._connection.trailing_data[0]
        raw = self._raw[: len(self._raw) - len(rest)]
        self._raw = rest
        hosts = [value.decode() for name, value in request.headers if name == b"host"]
        received = Received(
            *(request.method.decode(), request.target, hosts[0], self._body),
            tuple((bytes(name), bytes(value)) for name, value in request.headers),
            raw,
        )
        self._requests.append(received)
        self._body, self._request = b"", None
        self._transport.deliver(good_response(APIS[self._api] if self._api else _api(received), received))
        self._connection.send(h11.Response(status_code=200, headers=[(b"Content-Length", b"0")]))
        self._connection.send(h11.EndOfMessage())
        assert self._connection.our_state is not h11.MUST_CLOSE, "it asks to close the connection"
        self._connection.start_next_cycle()


def good_response(api: Api, received: Received) -> bytes:
    """Of a server that served the version in the request."""
    version = version_in(api, received.raw.partition(HEAD_END)[0] + HEAD_END)
    lines = [
        f"{name}: {value.replace('{}', version)}"
        for name, value in api.response.items()
        if version or "{}" not in value
    ]
    body = b"" if received.method == "HEAD" else b"ok"
    head = ("HTTP/1.1 200 OK", "Content-Type: text/plain", "Content-Length: 2", *lines, "", "")
    return "\r\n".join(head).encode("latin-1") + body


# --- requests -----------------------------------------------------------------------------------------------


def requests(data: bytes) -> None:
    """In one piece, in pieces, and once more in one piece: now layouts are there."""
    received: list[Received] = []

    async def script(gateway: Gateway) -> None:
        gateway.loop.serve = lambda transport: Server(transport, received).begin()
        for size in (len(data), len(data) % 29 + 1, len(data)):
            received.clear()
            gateway.records.clear()
            await _exchange(gateway, data, size, received)
            targets.append([each.target for each in received])

    targets: list[list[bytes]] = []
    run_with_gateway(_apis(), script)
    assert targets[0] == targets[1] == targets[2], "cuts or layouts matter"


async def _exchange(gateway: Gateway, data: bytes, size: int, received: list[Received]) -> None:
    client = gateway.client()
    await gateway.deliver(client, data, size)
    sent = sent_requests(data)
    _is_answered(client, sent, read_responses(client.written, [each.head.method for each in sent]))
    _means_what_was_sent(received, sent)
    await gateway.lose_all()
    _means_what_was_decided(received, gateway.records, sent, client.written)


def read_responses(written: bytes, methods: list[str]) -> list[tuple[h11.Response, bytes]]:
    """All responses in what a client has got, by h11: each to the request of its place, and nothing else."""
    found = []
    for method in [*methods, "GET"]:  # what is broken behind them gets an answer, too
        if not written:
            break
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        host = [(b"Host", b"x"), (b"Upgrade", b"x"), (b"Connection", b"upgrade")]
        connection.send(h11.Request(method=method, target=b"/", headers=host))
        connection.send(h11.EndOfMessage())
        connection.receive_data(written)
        while isinstance(event := connection.next_event(), h11.InformationalResponse):
            assert event.status_code != 101, "switched"
        assert isinstance(event, h11.Response), f"h11 finds {event}"
        response, body = event, b""
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
        assert isinstance(event, h11.EndOfMessage), f"h11 finds {event}"
        found.append((response, body))
        written = connection.trailing_data[0]
    assert not written, f"nobody has asked for {written!r}"
    return found


def _is_answered(
    client: MemoryTransport, sent: list[Sent], answers: list[tuple[h11.Response, bytes]]
) -> None:
    complete = sum(each.complete for each in sent)
    assert client.closing or len(answers) >= complete, "a whole request got no answer"
    for response, _ in answers[:-1]:
        assert (b"connection", b"close") not in response.headers, "an answer after the last one"


def _means_what_was_sent(received: list[Received], sent: list[Sent]) -> None:
    """What was forwarded are requests that the client has sent, in their order, each once."""
    rest = iter(sent)
    for each in received:
        for one in rest:
            if _is_forwarded_as(one, each):
                break
        else:
            raise AssertionError(f"nobody has sent {each.raw!r}")
        _has_good_fields(one, each)


def _is_forwarded_as(one: Sent, each: Received) -> bool:
    return (
        one.complete
        and (one.head.method, one.body, one.head.host.lower()) == (each.method, each.body, each.host.lower())
        and _plain(_api(each), one.head.target, strip=True) == _plain(_api(each), each.target)
    )


def _api(received: Received) -> Api:
    name, _, rest = received.host.lower().partition(".")
    assert rest.partition(":")[0] == DOMAIN, received.host
    return APIS[name]


def _plain(api: Api, target: bytes, *, strip: bool = False) -> bytes:
    """The target without what the gateway writes in it."""
    path, mark, query = target.decode().partition("?")
    if strip:
        path = path.removeprefix(api.strip) or "/"
    if any(isinstance(location, Path) for location in api.locations):
        path = re.sub(r"/v?[0-9][0-9.]*(?=/|\Z)", "", path) or "/"
    names = [location.name for location in api.locations if isinstance(location, Query)]
    if not names:
        return (path + mark + query).encode()
    known = re.compile("|".join(map(re.escape, names)))
    others = [part for part in query.split("&") if part and not known.match(unquote_plus(part))]
    return "&".join([path, *others]).encode()


def _has_good_fields(one: Sent, each: Received) -> None:
    names = [name for name, _ in each.headers]
    assert not _HOP_BY_HOP & set(names), names
    assert b"upgrade" not in names, "no service here allows one"
    framed = [name for name in names if name in (b"content-length", b"transfer-encoding")]
    assert len(framed) <= 1
    assert bool(framed) or not one.body
    assert b"via" in names


def _means_what_was_decided(
    received: list[Received], records: list[RequestRecord], sent: list[Sent], written: bytes
) -> None:
    """Each request has a record that says so, and a server reads the version that was negotiated."""
    answered = [record for record in records if record.attempts]
    head = written.partition(HEAD_END)[0] + HEAD_END
    for each, record in zip(received, answered, strict=True):
        assert (record.service, record.method) == (_api(each).name, each.method)
        assert record.attempts == 1
        assert record.result in _AFTER_NEGOTIATION, record.result
        start, *lines = each.raw.partition(HEAD_END)[0].decode("latin-1").split("\r\n")
        case = Case(0, _api(each), start, tuple(lines), each.body, (), ())
        result = Result(case, head if len(received) == len(sent) == 1 else b"", each.raw, record.version)
        try:
            found = [*judge.disagreements(result, "WebOb", webob_reader.read(each.raw))]
        except Unreadable:
            found = []
        found += judge.request_aliases(result)
        assert not found, "; ".join(map(str, found))


# --- responses ----------------------------------------------------------------------------------------------

_MARK: Final = b"second"
_VERSION: Final = "X-OpenStack-Ironic-API-Version: 1.9\r\n"
_TWO: Final = "".join(
    f"{{}} /v1/nodes/{number} HTTP/1.1\r\nHost: ironic.{DOMAIN}\r\n{_VERSION}\r\n"
    for number in ("one", "two")
)


def responses(data: bytes) -> None:
    """Without a mark it is the answer to a GET, after `HEAD\\n` to a HEAD. The backend then ends its side."""
    method = "HEAD" if data.startswith(b"HEAD\n") else "GET"
    data = data.removeprefix(b"HEAD\n")
    size = len(data) % 23 + 1

    async def script(gateway: Gateway) -> None:
        for pieces in ([data], [data[at : at + size] for at in range(0, len(data), size)], [data]):
            await _answer(gateway, method, pieces)

    run_with_gateway(_apis(), script)


@final
class _HostileServer:
    """Answers the first request with the input. On every other connection it is good."""

    def __init__(self, pieces: list[bytes], received: list[bytes]) -> None:
        self._pieces = pieces
        self._received = received

    def __call__(self, transport: MemoryTransport) -> None:
        transport.on_bytes = lambda data: self._receive(transport, data)

    def _receive(self, transport: MemoryTransport, data: bytes) -> None:
        self._received.append(data)
        assert data.count(b"HTTP/1.1\r\n") == 1
        if b" /v1/nodes/one " in data:
            for piece in self._pieces:
                transport.deliver(piece)
            transport.deliver_eof()
        else:
            body = b"" if data.startswith(b"HEAD") else _MARK
            version = b"X-OpenStack-Ironic-API-Version: 1.9\r\n"
            transport.deliver(
                b"HTTP/1.1 200 OK\r\n%bX-Mark: 2\r\nContent-Length: 6\r\n\r\n%b" % (version, body)
            )


async def _answer(gateway: Gateway, method: str, pieces: list[bytes]) -> None:
    received: list[bytes] = []
    gateway.loop.serve = _HostileServer(pieces, received)
    client = gateway.client()
    client.deliver(_TWO.replace("{}", method).encode())
    await gateway.loop.settle()
    _belongs_to_its_request(client, method, b"".join(pieces))
    await gateway.lose_all()
    assert [b"/v1/nodes/two " in each for each in received] in ([False, True], [False], [False, False, True])


def _belongs_to_its_request(client: MemoryTransport, method: str, data: bytes) -> None:
    written, number = client.written, 0
    bodies = []
    while written:
        number += 1
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        connection.send(h11.Request(method=method, target=b"/", headers=[(b"Host", b"x")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(written)
        if client.closing:
            connection.receive_data(b"")
        while isinstance(event := connection.next_event(), h11.InformationalResponse):
            assert event.status_code not in (100, 101), "nobody asked for it"
        assert isinstance(event, h11.Response), f"h11 finds {event}"
        assert ((b"x-mark", b"2") in event.headers) == (number == 2) or b"mark" in data.lower()
        body = b""
        try:
            while isinstance(event := connection.next_event(), h11.Data):
                body += event.data
        except h11.RemoteProtocolError:  # cut: the client can tell
            assert client.closing
            return
        assert isinstance(event, h11.EndOfMessage), f"h11 finds {event}"
        bodies.append(body)
        written = connection.trailing_data[0]
    assert len(bodies) == 2 or client.closing, "a request got no answer"
    if len(bodies) == 2:
        assert bodies[1] == (b"" if method == "HEAD" else _MARK), "mixed"
