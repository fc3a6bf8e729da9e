"""Upgrades: which protocols are read and agreed; a tunnel passes every byte on, and nothing else does.

`upgrade`: values of `Upgrade`, one a line, and after an empty line the head of a 101. `tunnel`: the bytes of
a client and, after a line `--`, those of the backend as its answer.
"""

from __future__ import annotations

import contextlib
import re
from functools import cache
from typing import Final, final

import h11

from gateway.core.http.message import allowed_protocols, carries_requests, read_protocols
from gateway.dataplane.exchange.tunnel import agreed_protocol
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.dataplane.http1.fields import CHUNKED, HEAD_END
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.response_head import read_response_head
from gateway.errors import FramingError
from tests.fuzz.exchanges import sent_requests
from tests.fuzz.heads import head_in
from tests.fuzz.memory import Configured, Gateway, MemoryTransport, configured, run_with_gateway

_ALLOWED: Final = ("websocket", "tcp", "spdy/3.1", "h2c", "tls/1.0")
"""More than a configuration can allow."""
_RESPONSES: Final = NameTable.for_responses(frozenset())
_LATER: Final = b"\0later\xff"


def upgrade(data: bytes) -> None:
    values, _, answer = data.partition(b"\n\n")
    lines = values.decode("latin-1").split("\n")
    asked = read_protocols(lines)
    assert read_protocols([", ".join(asked)]) == asked
    allowed = allowed_protocols(asked, _ALLOWED)
    assert not any(re.match(r"(?i)(h2c?|h3|https?|tls)(/|\Z)", name) for name in allowed), allowed
    assert {name.lower() for name in allowed} <= {name.lower() for name in asked} & set(_ALLOWED)
    head = head_in(answer)
    try:
        status = read_response_head(head, _RESPONSES, is_head_request=False).status
    except FramingError:
        return
    agreed = agreed_protocol(head, asked, _ALLOWED)
    if status != 101 or not agreed:
        return
    assert agreed.lower() in {name.lower() for name in allowed}
    assert not carries_requests(agreed)
    event = _switched(head).next_event()
    assert isinstance(event, h11.InformationalResponse), f"h11 finds {event}"
    named = [value.strip().decode("latin-1") for name, value in event.headers if name == b"upgrade"]
    assert [name for name in ", ".join(named).replace(",", " ").split() if name] == [agreed]


def _switched(written: bytes) -> h11.Connection:
    """h11 as a client that has asked for an upgrade and got `written`."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    fields = [(b"Host", b"x"), (b"Connection", b"upgrade"), (b"Upgrade", b"websocket")]
    connection.send(h11.Request(method=b"GET", target=b"/", headers=fields))
    connection.send(h11.EndOfMessage())
    connection.receive_data(written)
    return connection


def _rest_after_switch(written: bytes) -> bytes | None:
    """What came behind the 101 in `written`; None: there is none."""
    connection = _switched(written)
    with contextlib.suppress(h11.RemoteProtocolError):
        while isinstance(event := connection.next_event(), h11.InformationalResponse):
            if event.status_code == 101:
                return bytes(connection.trailing_data[0])
    return None


# --- tunnels ------------------------------------------------------------------------------------------------

_TUNNELS: Final = """
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
access_log: {format: off}
services:
  events:
    dialect: custom
    custom: {places: [{path: '/v{version}'}], scheme: major.minor}
    upgrade: [websocket, tcp]
    backends: [{name: a, url: 'http://127.0.0.1:9', versions: 1.1-1.40}]
"""


@cache
def _configured() -> Configured:
    return configured(_TUNNELS)


@final
class _Backend:
    """Answers the first head on each connection with the input, and keeps what comes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.received: list[bytearray] = []
        self.transports: list[MemoryTransport] = []

    def __call__(self, transport: MemoryTransport) -> None:
        received = bytearray()
        self.received.append(received)
        self.transports.append(transport)

        def receive(data: bytes) -> None:
            begun = HEAD_END in received
            received.extend(data)
            if not begun and HEAD_END in received:
                transport.deliver(self._answer)

        transport.on_bytes = receive


def tunnel(data: bytes) -> None:
    sent, _, answer = data.partition(b"\n--\n")

    async def script(gateway: Gateway) -> None:
        for size in (len(sent), 7):
            gateway.loop.serve = backend = _Backend(answer)
            client = gateway.client()
            await gateway.deliver(client, sent, size)
            if _rest_after_switch(client.written) is not None:
                await _passes_everything_on(gateway, client, backend, sent, answer)
            else:
                _passes_nothing_on(client, backend, sent)
            await gateway.lose_all()

    run_with_gateway(_configured(), script)


async def _passes_everything_on(
    gateway: Gateway, client: MemoryTransport, backend: _Backend, sent: bytes, answer: bytes
) -> None:
    (received,), (transport,) = backend.received, backend.transports
    begin = sent.removeprefix(b"\r\n")
    asked = sent_requests(begin)[0]
    assert asked.head.upgrade, "nobody has asked for it"
    assert asked.complete
    if not client.closing and not transport.closing:
        client.deliver(_LATER)
        transport.deliver(_LATER)
        await gateway.loop.settle()
        begin, answer = begin + _LATER, answer + _LATER
    head, _, rest = bytes(received).partition(HEAD_END)
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(head + HEAD_END)
    request = server.next_event()
    assert isinstance(request, h11.Request), f"h11 finds {request}"
    fields = [(name, value.lower()) for name, value in request.headers if name in (b"connection", b"upgrade")]
    assert (b"connection", b"upgrade") in fields
    asked_for = [value for name, value in fields if name == b"upgrade"]
    assert len(fields) == 2
    assert set(asked_for[0].replace(b" ", b"").split(b",")) <= {b"websocket", b"tcp"}
    body = begin.partition(HEAD_END)[2]
    if asked.head.framing == CHUNKED:
        decoder = ChunkedDecoder()
        decoder.feed(body)
        body = decoder.rest
    assert asked.body or rest == body or client.closing or transport.closing, "bytes to the backend differ"
    passed = _rest_after_switch(client.written)
    assert passed is not None
    assert answer.partition(b"HTTP/1.1 101")[2].endswith(passed), "bytes to the client differ"


def _passes_nothing_on(client: MemoryTransport, backend: _Backend, sent: bytes) -> None:
    """What came behind the request is read as requests or not at all."""
    complete = sent_requests(sent)
    for received in backend.received:
        server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        server.receive_data(bytes(received))
        request = server.next_event()
        assert isinstance(request, h11.Request), f"h11 finds {request}"
        while isinstance(event := server.next_event(), h11.Data):
            pass
        if isinstance(event, h11.EndOfMessage):
            rest = server.trailing_data[0]
            assert rest == b"" or (len(complete) > 1 and b" HTTP/1.1\r\n" in rest), rest
