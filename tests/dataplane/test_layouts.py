"""Layouts: a head is read by one as the strict reader reads it, or not at all.

The strict reader is the reference: both read every head, whatever layouts are there, and must give the same
value or the same refusal.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from inspect import getmembers, isgetsetdescriptor, ismemberdescriptor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.fleet.limits import Limits
from gateway.core.http.message import normalize_name
from gateway.dataplane.http1 import head_readers
from gateway.dataplane.http1.head_readers import LayoutBudget, RequestReader, ResponseReader
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.dataplane.http1.response_head import MAX_RESPONSE_HEAD, ResponseHead, read_response_head
from gateway.errors import FramingError
from tests.dataplane.damages import damaged
from tests.kit.messages import STANDARD_FIELD, VERSION_FIELD, request

OWNED = frozenset({normalize_name(VERSION_FIELD), normalize_name(STANDARD_FIELD)})
IDS = frozenset({"x-openstack-request-id"})
UNTRUSTED = NameTable.for_requests(OWNED, IDS, ("Forwarded", "X-Forwarded-*", "X-Real-IP"))
TRUSTED = NameTable.for_requests(OWNED, IDS)
TRACED = NameTable.for_requests(OWNED, IDS)
TRACED.reads_ids = True
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RESPONSES = NameTable.for_responses(frozenset({normalize_name(VERSION_FIELD), "vary"}))
IDENTIFIED = NameTable.for_responses(frozenset({normalize_name(VERSION_FIELD), "vary"}))
IDENTIFIED.reads_ids = True

REQUEST_HEADS = (
    request("GET", "/v1/nodes?limit=50", f"{VERSION_FIELD}: 1.31", "Accept: */*", "X-Auth-Token: abc"),
    request(
        "GET", "/v1/nodes", "User-Agent: x", f"{VERSION_FIELD}: 1.31", f"{STANDARD_FIELD}: baremetal 1.31"
    ),
    request("GET", "/a%20b?c=d", "X-Openstack-Request-Id: req-1", "Traceparent: 00-1-2-01", "TE: trailers"),
    request("POST", "/v1/nodes", "Content-Length: 12", "Content-Type: application/json", "X: y"),
    request("POST", "/v1/nodes", "Content-Length: 0", "Connection: keep-alive", "X: y"),
    request("PUT", "/v1/nodes", "Transfer-Encoding: chunked", "Expect: 100-continue", "X: y"),
    request("PUT", "/v1/nodes", "Content-Length: 7", "Expect: 100-Continue", "X: y"),
    request("GET", "/", "Connection: close, Keep-Alive", "Keep-Alive: timeout=5", "X: y", "X: z"),
    request("GET", "/", "Connection: x-hop", "X-Hop: 1", "X: y"),
    request("GET", "/", "Via: 1.1 a, 1.0 skewgate", "Via: 1.1 b", "X-Forwarded-For: 1.2.3.4", "X-Real-IP: 5"),
    request("OPTIONS", "*", "Max-Forwards: 3", "X: y"),
    request("GET", "/", "X_OpenStack-Ironic-API-Version: 1.5", f"{VERSION_FIELD}:   1.6  ", "Accept:"),
    request("PATCH", "/", "X-Forwarded-Proto: https", "X_Forwarded_For: 1", "Proxy: x", "X.Y: z"),
    request("GET", "http://other:80/x?y", f"{VERSION_FIELD}: latest"),
    request("DELETE", "/v1/nodes/1", f"{VERSION_FIELD.lower()}: 1.31", host="[::1]:6385"),
    request("GET", "/", "Accept: a", http="1.0"),
    request("GET", "/", "Connection: Keep-Alive", http="1.0"),
    request("GET", "/", "Accept: a", http="1.0", host=None),
    request("GET", "/", *(f"X-Custom-{number}: {number}" for number in range(50))),
    request("GET", "/", "Accept: a", f"traceparent:{PARENT}\t", "Tracestate: a=b", f"{VERSION_FIELD}: 1.31"),
    request("GET", "/", f"{VERSION_FIELD}: 1.31", f"Traceparent: {PARENT}", "X: y"),
    request("GET", "/", f"Traceparent: {PARENT}", f"TRACEPARENT: {PARENT}"),
    request("GET", "/", "tracestate: a=b"),
    request("GET", "/", f"traceparent: {PARENT}", f"{VERSION_FIELD}: 1.31", "Connection: traceparent"),
    request("GET", "/", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-For:", "X: y"),
    request("GET", "/", "X-Forwarded-Proto:https ", "X: y", "x-forwarded-for: ::1", "VIA: \t1.1 a"),
)


def response_head(status: str, *lines: str, http: str = "1.1") -> bytes:
    return "\r\n".join((f"HTTP/{http} {status}", *lines, "", "")).encode()


RESPONSE_HEADS = (
    response_head("200 OK", "Date: x", f"{VERSION_FIELD}: 1.31", "Vary: a, b", "X: y", "Content-Length: 2"),
    response_head("200 OK", "Server: y", "date: x", "X-Request-Id: 1", "Content-Length: 0"),
    response_head("204 No Content", "Date: x", f"{VERSION_FIELD}: 1.31"),
    response_head("304 Not Modified", "ETag: x", "Content-Length: 7"),
    response_head("200 OK", "Transfer-Encoding: chunked", "Date: x"),
    response_head("200 OK", "Date: x", "Connection: close"),
    response_head("200 OK", "Connection: Keep-Alive", "Keep-Alive: timeout=5", "Content-Length: 3"),
    response_head("301 Moved", "Location: http://x/y", "Content-Location: /z", "Content-Length: 3"),
    response_head("200 OK", "Connection: x-hop", "X-Hop: 1", "Content-Length: 3"),
    response_head("404 Not Found", "Vary: ", "Set-Cookie: a", "Set-Cookie: b", "Content-Length: 3"),
    response_head("200 OK", "Content-Length: 3", "Date: x", http="1.0"),
    response_head("200", "Connection: keep-alive", "Content-Length: 3", http="1.0"),
    response_head("103 Early Hints", "Link: x"),
    response_head("200 OK", "X-Compute-Request-Id:  1", "Date: x", "x-request-ID: 2", "Content-Length: 3"),
    response_head("200 OK", "X-About: request-id: z", f"{VERSION_FIELD}: 1.31", "Request-Id:1", "Date: x"),
    response_head("200 OK", f"{VERSION_FIELD}: 1.31", "X-Request-Id: not well-formed", "Date: x"),
)


def values(head: RequestHead | ResponseHead | FramingError) -> object:
    """All that a head says, or how it is refused. Only a layout lists its names, which must be those."""
    if isinstance(head, FramingError):
        return head.reason, head.status
    said = {name: getattr(head, name) for name in SLOTS[type(head).__name__]}
    listed = said.pop("names", None)
    if listed is not None:
        assert isinstance(head, RequestHead)
        lines = head.passthrough.split(b"\r\n")[1:]
        passed = {normalize_name(line.partition(b":")[0].decode()) for line in lines}
        assert listed == passed | {name for name, _ in head.fields}
    return said


def is_slot(member: object) -> bool:
    """Whether a class has it for an attribute that it stores, interpreted or compiled."""
    return ismemberdescriptor(member) or isgetsetdescriptor(member)


SLOTS = {
    kind.__name__: tuple(name for name, _ in getmembers(kind, is_slot) if name[:2] != "__")
    for kind in (RequestHead, ResponseHead)
}
"""The attributes that a head stores, by its class."""


def attempted(read: Callable[[bytes], RequestHead | ResponseHead | None], head: bytes) -> object:
    """What `read` gives, or how it refuses; None: it has no layout."""
    try:
        found = read(head)
    except FramingError as error:
        return values(error)
    return None if found is None else values(found)


def strictly(head: bytes, table: NameTable) -> object:
    return attempted(lambda head: read_request_head(head, table, Limits()), head)


def new_reader(table: NameTable) -> RequestReader:
    """A reader that has seen every good head often enough for a layout."""
    reader = RequestReader(table, Limits(), budget := LayoutBudget())
    for head in REQUEST_HEADS * 2:
        budget.refill()
        reader.read(head)
    return reader


def new_response_reader(table: NameTable) -> ResponseReader:
    reader = ResponseReader(table, LayoutBudget())
    for head in RESPONSE_HEADS * 2:
        reader.read(head, is_head_request=False)
    return reader


READERS = {
    "untrusted": (new_reader(UNTRUSTED), UNTRUSTED),
    "trusted": (new_reader(TRUSTED), TRUSTED),
    "traced": (new_reader(TRACED), TRACED),
}
RESPONSE_READERS = {
    "plain": (new_response_reader(RESPONSES), RESPONSES),
    "identified": (new_response_reader(IDENTIFIED), IDENTIFIED),
}

READ_BY_A_LAYOUT = [0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 14, 15, 16, 18, 19, 20, 21, 22, 24, 25]
"""The others are for the strict reader: fields that `Connection` lists, `Max-Forwards`, an empty value or
blanks at its end, no Host, a target in another form than a path."""
NOT_WHILE_TRACING = {2, 21, 22}
"""The trace context is malformed."""


@pytest.mark.parametrize("peer", READERS)
def test_the_heads_of_real_clients_are_read_by_a_layout(peer: str) -> None:
    reader, table = READERS[peer]
    found = [number for number, head in enumerate(REQUEST_HEADS) if reader.read_known(head) is not None]

    traced = NOT_WHILE_TRACING if table.reads_ids else set[int]()
    assert found == [number for number in READ_BY_A_LAYOUT if number not in traced]
    for number in found:
        known = reader.read_known(REQUEST_HEADS[number])
        assert known is not None
        assert values(known) == strictly(REQUEST_HEADS[number], table)


@pytest.mark.parametrize("which", RESPONSE_READERS)
def test_the_heads_of_real_servers_are_read_by_a_layout(which: str) -> None:
    reader, table = RESPONSE_READERS[which]
    for number, head in enumerate(RESPONSE_HEADS):
        for to_head in (False, True):
            known = reader.read_known(head, to_head)
            assert (known is None) == (number in (8, 9, 12))
            if known is not None:
                assert values(known) == values(read_response_head(head, table, is_head_request=to_head))


def test_the_id_of_a_response_is_the_first_one() -> None:
    reader, _ = RESPONSE_READERS["identified"]
    found = [reader.read(head, is_head_request=False).request_id for head in RESPONSE_HEADS]

    assert {at: each for at, each in enumerate(found) if each} == {
        1: b"1",
        13: b"1",
        14: b"1",
        15: b"not well-formed",
    }


@given(st.sampled_from(REQUEST_HEADS).flatmap(damaged), st.sampled_from(sorted(READERS)))
@example(REQUEST_HEADS[0].replace(b"1.1\r", b"1.0\r"), "untrusted")
@example(REQUEST_HEADS[5].replace(b"1.1\r", b"1.0\r"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"/v1", b"/v1/../v2"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"/v1", b"http://other"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"/v1", b"*"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"GET", b"TRACE"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"GET", b"get"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"GET", b"UNKNOWN"), "untrusted")
@example(REQUEST_HEADS[0].replace(b"abc", b"a" * 9000), "untrusted")
@example(REQUEST_HEADS[0].replace(b"api.example", b"a b"), "untrusted")
@example(REQUEST_HEADS[3].replace(b": 12", b": 00000000000000000012"), "untrusted")
@example(REQUEST_HEADS[9].replace(b"b\r", b"skewgate, 1.1 " * 8 + b"\r"), "trusted")
def test_S17_a_request_head_is_read_alike_with_and_without_layouts(head: bytes, peer: str) -> None:
    reader, table = READERS[peer]
    expected = strictly(head, table)
    for read in (reader.read_known, reader.read):
        assert attempted(read, head) in (None, expected)


@pytest.mark.parametrize("place", [b"/v1/%bnodes", b"/v1/nodes?a=%bb", b"%b"])
def test_every_byte_of_a_target_is_read_alike_with_and_without_layouts(place: bytes) -> None:
    reader, table = READERS["untrusted"]
    for byte in range(256):
        head = REQUEST_HEADS[0].replace(b"/v1/nodes?limit=50", place.replace(b"%b", bytes([byte])))
        assert attempted(reader.read_known, head) in (None, strictly(head, table))


@pytest.mark.parametrize("number", range(len(REQUEST_HEADS)))
def test_every_byte_of_a_value_is_read_alike_with_and_without_layouts(number: int) -> None:
    reader, table = READERS["trusted"]
    good = REQUEST_HEADS[number]
    for start in (at + 1 for at in range(len(good)) if good[at : at + 1] == b":"):
        for byte in range(256):
            for bad in (bytes([byte]), b" %b " % bytes([byte])):
                head = good[:start] + bad + good[start:]
                assert attempted(reader.read_known, head) in (None, strictly(head, table))


@given(
    st.sampled_from(RESPONSE_HEADS).flatmap(damaged), st.booleans(), st.sampled_from(sorted(RESPONSE_READERS))
)
@example(RESPONSE_HEADS[0].replace(b"Vary: a", b"Vary: " + b"a" * 70_000), False, "plain")
@example(RESPONSE_HEADS[0].replace(b": 2", b": 0"), False, "plain")
@example(RESPONSE_HEADS[0].replace(b"200 OK", b"204 OK"), False, "plain")
@example(RESPONSE_HEADS[13].replace(b"  1", b" \t "), False, "identified")
def test_S17_a_response_head_is_read_alike_with_and_without_layouts(
    head: bytes, to_head: bool, which: str
) -> None:
    reader, table = RESPONSE_READERS[which]
    expected = attempted(lambda head: read_response_head(head, table, is_head_request=to_head), head)
    if len(head) <= MAX_RESPONSE_HEAD:  # the connection refuses larger ones before
        assert attempted(lambda head: reader.read_known(head, to_head), head) in (None, expected)


@given(st.sampled_from(REQUEST_HEADS), st.binary(max_size=40))
def test_what_follows_a_head_is_left(head: bytes, rest: bytes) -> None:
    known = READERS["untrusted"][0].read_known(head + rest)
    if known is not None:
        assert known.size == len(head)


def test_a_part_of_a_head_is_no_head() -> None:
    reader = READERS["untrusted"][0]
    for head in REQUEST_HEADS:
        assert all(reader.read_known(head[:size]) is None for size in range(len(head)))
    for head in RESPONSE_HEADS:
        for reader_of_responses, _ in RESPONSE_READERS.values():
            assert all(
                reader_of_responses.read_known(head[:size], False) is None for size in range(len(head))
            )


def test_a_head_that_was_read_stays_as_it_is() -> None:
    """The exchange before may still be running, or be in the log, when the next head is read."""
    reader = READERS["untrusted"][0]
    first = reader.read(REQUEST_HEADS[0])
    before = values(first)
    assert reader.read(REQUEST_HEADS[0]) is not first
    for head in REQUEST_HEADS:
        reader.read(head)

    assert values(first) == before


def test_a_layout_is_made_when_its_names_come_for_the_second_time() -> None:
    reader = RequestReader(UNTRUSTED, Limits(), LayoutBudget())
    one, two = (request("GET", f"/{number}", f"X-Auth-Token: {number}") for number in (1, 2))
    reader.read(one)
    assert reader.read_known(two) is None
    reader.read(two)
    assert reader.read_known(one) is not None


def headers(number: int) -> tuple[str, ...]:
    """Field lines whose sequence of names no other number has, always of the same count."""
    return tuple(f"X-{place}-{number >> place & 1}: v" for place in range(14))


def test_L10_peers_choose_no_more_layouts_than_the_budget_allows() -> None:
    """Making one takes a millisecond: a hostile client would take the core with them."""
    made: list[bool] = []
    budget = LayoutBudget()
    reader = RequestReader(UNTRUSTED, Limits(), budget)
    for number in range(200):
        head = request("GET", "/", *headers(number))
        for _ in range(2):
            reader.read(head)
        made.append(reader.read_known(head) is not None)
    assert sum(made) == head_readers.MAX_NEW_LAYOUTS
    budget.refill()
    for number in range(200, 210):
        for _ in range(2):
            reader.read(request("GET", "/", *headers(number)))
        made.append(reader.read_known(request("GET", "/", *headers(number))) is not None)
    assert sum(made[200:]) == head_readers.NEW_LAYOUTS_A_TICK


def test_L10_the_least_used_layout_goes_first() -> None:
    """So what a hostile client sends displaces nothing that others use."""
    reader, budgets = RequestReader(UNTRUSTED, Limits(), budget := LayoutBudget()), 500
    honest = request("GET", "/", *headers(0))
    for _ in range(100):
        reader.read(honest)
    for number in range(1, 200):
        for _ in range(budgets):
            budget.refill()
        for _ in range(2):
            reader.read(request("GET", "/", *headers(number)))
        assert reader.read_known(honest) is not None
    known = [number for number in range(200) if reader.read_known(request("GET", "/", *headers(number)))]
    assert len(known) == head_readers.MAX_LAYOUTS_OF_A_KEY


def test_L10_the_layouts_of_a_reader_are_bounded() -> None:
    reader = RequestReader(UNTRUSTED, Limits(), budget := LayoutBudget())
    heads = [
        request("GET", "/", *(f"X-{place}-{number}: v" for place in range(count)))
        for number in range(10)
        for count in range(1, 40)
    ]
    for head in heads:
        budget.refill()
        for _ in range(2):
            reader.read(head)
    assert sum(reader.read_known(head) is not None for head in heads) == head_readers.MAX_LAYOUTS


def test_L10_one_client_cannot_keep_others_from_their_layout() -> None:
    """A blank at the end of a value is for the strict reader; the same names without it are not."""
    budget = LayoutBudget()
    reader = RequestReader(UNTRUSTED, Limits(), budget)
    good = request("GET", "/v1", f"{VERSION_FIELD}: 1.31", "Accept: a")
    for _ in range(2):
        reader.read(good.replace(b"1.31", b"1.31 "))
    for _ in range(3):
        budget.refill()
        reader.read(good)

    assert reader.read_known(good) is not None


def test_L10_one_response_cannot_keep_others_from_their_layout() -> None:
    budget = LayoutBudget()
    reader = ResponseReader(RESPONSES, budget)
    good = response_head("200 OK", "Vary: a", "Content-Length: 3")
    for _ in range(2):
        reader.read(good.replace(b"Vary: a", b"Vary: a "), is_head_request=False)
    for _ in range(3):
        budget.refill()
        reader.read(good, is_head_request=False)

    assert reader.read_known(good, False) is not None


def test_L10_a_layout_in_place_of_the_only_one_of_its_key_is_kept() -> None:
    budget = LayoutBudget()
    reader = RequestReader(UNTRUSTED, Limits(), budget)

    def learn(number: int, lines: int, times: int) -> bytes:
        head = request("GET", "/", *(f"a{number}-{line}: x" for line in range(lines)))
        for _ in range(times):
            budget.refill()
            reader.read(head)
        return head

    learn(0, 1, 2)
    for number in range(head_readers.MAX_LAYOUTS - 1):
        learn(number % 16 + 1, 2 + number // 16, 40)

    assert reader.read_known(learn(99, 1, 2)) is not None


def test_L10_no_layout_is_made_of_a_status_line_that_is_very_long() -> None:
    reader = ResponseReader(RESPONSES, LayoutBudget())
    for _ in range(3):
        reader.read(long := response_head("200 " + "r" * 6000, "Date: x"), is_head_request=False)
        assert reader.read_known(long, False) is None


def test_L10_no_layout_is_made_of_a_head_with_very_many_or_very_long_names() -> None:
    reader = RequestReader(UNTRUSTED, Limits(), LayoutBudget())
    many = request("GET", "/", *(f"X-{number}: v" for number in range(80)))
    long = request("GET", "/", *(f"X-{number}-{'n' * 400}: v" for number in range(12)))
    for head in (many, long) * 3:
        reader.read(head)
        assert reader.read_known(head) is None


@pytest.mark.load
def test_a_hostile_head_costs_a_layout_one_pass_over_its_bytes() -> None:
    """Nothing backtracks into what was matched before: four times the bytes cost about four times as much."""
    reader = READERS["untrusted"][0]

    def seconds(size: int) -> float:
        blanks = b" \t" * (size // 2)
        heads = [
            REQUEST_HEADS[0].replace(b": ", b": " + blanks).replace(b"\r\n\r\n", damage + b"\r\n\r\n")
            for damage in (b"\0", b"\r", b" ", b"")
        ]
        began = time.process_time()
        for _ in range(20):
            for head in heads:
                with contextlib.suppress(FramingError):
                    reader.read_known(head)
        return time.process_time() - began

    small, large = (min(seconds(size) for _ in range(5)) for size in (500, 2000))
    assert large < 12 * small
