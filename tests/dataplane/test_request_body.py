"""The body of a request: when it is held, when it streams, and what of it can be sent again."""

from __future__ import annotations

from gateway.dataplane.http1.heads import RequestReader
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.request_body import RequestBody
from gateway.settings import Limits
from tests.dataplane.messages import request


def request_body(*lines: str, **limits: int) -> RequestBody:
    """The body of a request with these field lines."""
    reader = RequestReader()
    reader.read(request("POST", "/", *lines), NameTable.for_requests(frozenset()), Limits())
    return RequestBody(reader.field_section, Limits().model_copy(update=limits))


def test_a_held_body_can_be_sent_again() -> None:
    body = request_body("Content-Length: 10")
    assert (body.feed(b"hello"), body.done) == (b"", False)
    assert (body.feed(b"world+rest"), body.done) == (b"+rest", True)

    assert body.data_to_send() == body.data_to_send() == b"helloworld"
    assert (body.replayable, body.framing_line()) == (True, b"Content-Length: 10\r\n")


def test_a_streaming_body_is_not_replayable_once_a_part_was_sent() -> None:
    body = request_body("Content-Length: 10", replay_body=9)
    body.feed(b"hello")
    assert (body.streams, body.replayable) == (True, True)

    assert body.data_to_send() == b"hello"
    assert (body.data_to_send(), body.replayable) == (b"", False)


def test_a_chunked_body_streams_only_once_it_outgrows_the_limit() -> None:
    body = request_body("Transfer-Encoding: chunked", replay_body=5)
    body.feed(b"5\r\nhello\r\n")
    assert not body.streams
    body.feed(b"1\r\n!\r\n")
    assert (body.streams, body.framing_line()) == (True, b"Transfer-Encoding: chunked\r\n")
    assert body.data_to_send() == b"6\r\nhello!\r\n"
    assert (body.feed(b"0\r\n\r\nrest"), body.data_to_send()) == (b"rest", b"0\r\n\r\n")


def test_a_body_is_too_large_as_soon_as_it_is_known() -> None:
    assert request_body("Content-Length: 11", body=10).too_large
    body = request_body("Transfer-Encoding: chunked", body=4)
    body.feed(b"5\r\nhel")
    assert not body.too_large
    body.feed(b"lo")
    assert body.too_large
