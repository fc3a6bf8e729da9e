"""Heads and bodies: read with and without layouts, in one piece and in many, and by h11, alike.

h11 is a reader that others wrote. What we accept, it accepts, and reads as the same message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache, partial
from typing import Final, TypeVar

import h11

from gateway.core.fleet.limits import Limits
from gateway.core.http.message import normalize_name
from gateway.dataplane.http1.chunked import ChunkedDecoder, encode_chunk
from gateway.dataplane.http1.fields import BY_LENGTH, CHUNKED, HEAD_END, NO_BODY, UNTIL_CLOSE
from gateway.dataplane.http1.head_readers import LayoutBudget, RequestReader, ResponseReader
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.dataplane.http1.response_head import MAX_RESPONSE_HEAD, ResponseHead, read_response_head
from gateway.errors import FramingError
from tests.dataplane.test_layouts import values
from tests.fuzz.targets import corpus

_OWNED: Final = frozenset(map(normalize_name, ("X-OpenStack-Ironic-API-Version", "OpenStack-API-Version")))
_IDS: Final = frozenset({"x-openstack-request-id"})
_LIMITS: Final = Limits()
_UNTRUSTED: Final = NameTable.for_requests(_OWNED, _IDS, ("Forwarded", "X-Forwarded-*", "X-Real-IP"))
_TRUSTED: Final = NameTable.for_requests(_OWNED, _IDS)
_RESPONSES: Final = NameTable.for_responses(_OWNED | {"vary"})
Read = TypeVar("Read")
_MOST: Final = 256
"""Bytes of content that are made for a message whose head is read."""


def head_in(data: bytes) -> bytes:
    """The first head in `data`, which is ended if it has no end."""
    data += HEAD_END
    return data[: data.index(HEAD_END) + len(HEAD_END)]


def outcome(read: Callable[..., Read], *arguments: object) -> Read | FramingError:
    """What is read, or why it is refused."""
    try:
        return read(*arguments)
    except FramingError as error:
        return error


# --- requests ----------------------------------------------------------------------------------------------


@cache
def _request_readers() -> tuple[tuple[RequestReader, NameTable], ...]:
    """A reader for each kind of peer, with layouts of all heads of the corpus."""
    readers = []
    for table in (_UNTRUSTED, _TRUSTED):
        reader = RequestReader(table, _LIMITS, budget := LayoutBudget())
        for path in corpus("request_head"):
            for _ in range(3):
                budget.refill()
                with contextlib.suppress(FramingError):
                    reader.read(head_in(path.read_bytes()))
        readers.append((reader, table))
    return tuple(readers)


def request_head(data: bytes) -> None:
    head = head_in(data)
    for reader, table in _request_readers():
        strict = outcome(read_request_head, head, table, _LIMITS)
        known = outcome(reader.read_known, head)
        assert known is None or values(known) == values(strict), "a layout reads something else"
        if isinstance(strict, RequestHead):
            _means_the_same(strict, head, table)


def _means_the_same(read: RequestHead, head: bytes, table: NameTable) -> None:
    """h11 reads the whole head as one request with the same meaning, and so it reads what is passed on."""
    request = _read_by_h11(head + _content(read.framing, read.length), read.framing, read.length)
    assert request.method.decode() == read.method
    assert request.http_version == b"1.%d" % read.minor
    received = request.target
    assert received == read.target or received.lower().startswith((b"http://", b"https://"))
    if received == read.target:
        assert [value.decode() for name, value in request.headers if name == b"host"] == [read.host] * (
            read.minor or bool(read.host)
        )
    fields = {name for name, _ in request.headers}
    passed = _read_by_h11(
        b"GET / HTTP/1.1%b\r\nHost: x\r\n\r\n" % read.passthrough, NO_BODY, 0, passed_on=True
    )
    for name, value in passed.headers:
        assert name == b"host" or (name, value) in set(request.headers), "made up"
        assert name not in {b"connection", b"keep-alive", b"content-length", b"upgrade", b"proxy-connection"}
        assert name.decode() not in table.selected, "an owned field is passed on as it came"
    assert (b"content-length" in fields) or read.framing != BY_LENGTH
    assert (b"transfer-encoding" in fields) == (read.framing == CHUNKED)


def _content(framing: int, length: int) -> bytes:
    if framing == CHUNKED:
        return b"3\r\nabc\r\n0\r\n\r\n"
    return b"c" * min(length, _MOST) if framing == BY_LENGTH else b""


def _read_by_h11(message: bytes, framing: int, length: int, *, passed_on: bool = False) -> h11.Request:
    """The request in `message`, which must be all there is in it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(message)
    request = connection.next_event()
    assert isinstance(request, h11.Request), f"h11 finds {request}"
    size = 0
    while isinstance(event := connection.next_event(), h11.Data):
        size += len(event.data)
    if framing == BY_LENGTH and length > _MOST:
        assert event is h11.NEED_DATA
        return request
    assert isinstance(event, h11.EndOfMessage), f"h11 finds {event}"
    assert size == (3 if framing == CHUNKED else length)
    assert connection.trailing_data[0] == b""
    return request


# --- responses ---------------------------------------------------------------------------------------------


@cache
def _response_reader() -> ResponseReader:
    reader = ResponseReader(_RESPONSES, budget := LayoutBudget())
    for path in corpus("response_head"):
        for _ in range(3):
            budget.refill()
            with contextlib.suppress(FramingError):
                reader.read(head_in(path.read_bytes()), is_head_request=False)
    return reader


def response_head(data: bytes) -> None:
    head = head_in(data)
    if len(head) > MAX_RESPONSE_HEAD:  # the connection refuses it before
        return
    for to_head in (False, True):
        strict = outcome(partial(read_response_head, is_head_request=to_head), head, _RESPONSES)
        known = outcome(_response_reader().read_known, head, to_head)
        assert known is None or values(known) == values(strict), "a layout reads something else"
        if isinstance(strict, ResponseHead) and strict.status != 101:
            _is_the_same_response(strict, head, to_head=to_head)


def _is_the_same_response(read: ResponseHead, head: bytes, *, to_head: bool) -> None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    method = b"HEAD" if to_head else b"GET"
    connection.send(h11.Request(method=method, target=b"/", headers=[(b"Host", b"x")]))
    connection.send(h11.EndOfMessage())
    content = b"until" if read.framing == UNTIL_CLOSE else _content(read.framing, read.length)
    connection.receive_data(head + content)
    response = connection.next_event()
    if read.status < 200:
        assert isinstance(response, h11.InformationalResponse), f"h11 finds {response}"
        assert read.framing == NO_BODY
        assert connection.trailing_data[0] == b""
        return
    assert isinstance(response, h11.Response), f"h11 finds {response}"
    assert response.status_code == read.status
    if read.framing == UNTIL_CLOSE:
        connection.receive_data(b"")
    size = 0
    while isinstance(event := connection.next_event(), h11.Data):
        size += len(event.data)
    if read.framing == BY_LENGTH and read.length > _MOST:
        assert event is h11.NEED_DATA
    else:
        assert isinstance(event, h11.EndOfMessage), f"h11 finds {event}"
        expected = {NO_BODY: 0, CHUNKED: 3, UNTIL_CLOSE: len(b"until")}.get(read.framing, read.length)
        assert size == expected
        assert connection.trailing_data[0] == b""
    sent = {name for name, _ in response.headers}
    for line in read.passthrough.split(b"\r\n")[1:]:
        name = line.partition(b":")[0].lower()
        assert name in sent
        assert name not in {b"connection", b"keep-alive", b"content-length", b"transfer-encoding"}
        assert name.decode() not in _OWNED


# --- chunked bodies ----------------------------------------------------------------------------------------


def chunked(data: bytes) -> None:
    """The first byte says how large the pieces are."""
    size, data = (data[0] if data else 0) % 17 + 1, data[1:]
    whole = _decoded([data])
    assert whole == _decoded([data[at : at + size] for at in range(0, len(data), size)]), "cuts matter"
    if isinstance(whole, str) or not whole[1]:
        return
    content, _, rest = whole
    coded = data[: len(data) - len(rest)]
    assert coded + rest == data
    try:
        assert _chunked_by_h11(coded + rest) == (content, rest)
    except h11.RemoteProtocolError:
        assert _is_beyond_h11(coded), "h11 refuses it"
    assert _chunked_by_h11(encode_chunk(content) + b"0\r\n\r\n") == (content, b"")


def _is_beyond_h11(coded: bytes) -> bool:
    """Whether there is a trailer section, which h11 reads and we drop, or white space between a size and the
    semicolon after it, which h11 refuses (RFC 9112 7.1.1 allows it: "BWS ; BWS")."""
    position, size = 0, 1
    while size:
        end = coded.index(b"\r\n", position)
        digits = coded[position:end].partition(b";")[0]
        if digits != digits.rstrip(b" \t"):
            return True
        size = int(digits, 16)
        position = end + 2 + (size + 2 if size else 0)
    return coded[position:] != b"\r\n"


def _decoded(pieces: list[bytes]) -> str | tuple[bytes, bool, bytes]:
    """Content, whether it has ended, and what follows; or why it is refused."""
    decoder = ChunkedDecoder()
    content, rest = b"", b""
    for piece in pieces:
        if rest:
            rest += piece
            continue
        try:
            content += decoder.feed(piece)
        except FramingError as error:
            return error.reason
        rest = decoder.rest
    return content, decoder.done, rest


def _chunked_by_h11(coded: bytes) -> tuple[bytes, bytes]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + coded)
    assert isinstance(connection.next_event(), h11.Request)
    content = b""
    while isinstance(event := connection.next_event(), h11.Data):
        content += event.data
    assert isinstance(event, h11.EndOfMessage), f"h11 finds {event}"
    return content, connection.trailing_data[0]
