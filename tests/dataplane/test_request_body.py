"""The body of a request: when it is held, when it streams, and what of it can be sent again."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from dataclasses import replace

from gateway.core.fleet.limits import Limits
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_body import HeldBodies, RequestBody
from gateway.dataplane.http1.request_head import read_request_head
from tests.kit.messages import request


def held_bodies(total: int = 1 << 20, told: list[None] | None = None) -> HeldBodies:
    """`told`: gets one item each time that they are full."""
    bodies = HeldBodies(total)
    if told is not None:
        bodies.on_full = lambda: told.append(None)
    return bodies


def request_body(*lines: str, held: HeldBodies | None = None, **limits: int) -> RequestBody:
    """The body of a request with these field lines."""
    head = read_request_head(request("POST", "/", *lines), NameTable.for_requests(frozenset()), Limits())
    return RequestBody(head, replace(Limits(), **limits), held or held_bodies())


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


def test_R_B13_beyond_what_all_may_hold_a_body_streams() -> None:
    held = held_bodies(12)
    first = request_body("Content-Length: 10", held=held)
    first.feed(b"0123456789")
    second = request_body("Content-Length: 10", held=held)
    second.feed(b"ab")
    assert (first.streams, second.streams, held.size) == (False, False, 12)
    second.feed(b"c")
    assert (first.streams, second.streams) == (False, True)
    assert (second.data_to_send(), second.replayable, held.size) == (b"abc", False, 10)

    first.release()
    second.feed(b"defghij")
    assert (second.data_to_send(), held.size) == (b"defghij", 0)


def test_R_B13_it_is_told_once_that_they_are_full_until_they_are_not_by_far() -> None:
    told: list[None] = []
    held = held_bodies(12, told)
    for size, full, times in ((12, False, 0), (1, True, 1), (5, True, 1), (-10, False, 1), (9, True, 1)):
        held.add(size)
        held.tick()
        assert (held.full, len(told)) == (full, times)
    held.add(-11)
    held.tick()
    held.add(7)
    assert (held.full, len(told)) == (True, 2)


def test_R_B13_a_chunked_body_that_is_complete_has_a_length_although_it_is_not_held() -> None:
    body = request_body("Transfer-Encoding: chunked", held=held_bodies(3))
    body.feed(b"5\r\nhello\r\n0\r\n\r\n")
    assert (body.streams, body.framing_line()) == (True, b"Content-Length: 5\r\n")
    assert (body.data_to_send(), body.data_to_send()) == (b"hello", b"")


def test_R_B13_a_body_in_tiny_pieces_costs_no_more_memory_than_its_content() -> None:
    body = request_body("Content-Length: 20000")
    for _ in range(10_000):
        body.feed(b"xy")

    assert len(body._pieces) < 30
    assert body.data_to_send() == b"xy" * 10_000
