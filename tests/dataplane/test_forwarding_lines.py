"""Laws of the lines that describe the client: what a connection or a worker remembers changes none of them.

The reference is a peer that has sent nothing before. What the lines say is in `test_forwarding`.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.limits import Limits
from gateway.dataplane.http1.fields import MAX_LOOPS, is_loop
from gateway.dataplane.http1.forwarding import ForwardingLines, Peer
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from tests.kit.messages import request

TABLE: Final = NameTable.for_requests(frozenset())
BACKEND: Final = Backend("api-1", "10.9.9.9", 6385)
TRUSTED: Final = (ip_network("10.0.0.0/8"),)
PEERS: Final = (
    ("10.0.0.1", "http", TRUSTED, False),
    ("10.0.0.1", "https", TRUSTED, False),
    ("10.0.0.1", "http", (), False),
    ("203.0.113.7", "http", TRUSTED, False),
    ("unix:", "http", TRUSTED, True),
    ("unix:", "http", TRUSTED, False),
)
"""Address, scheme, trusted networks, and whether the socket is trusted: all peers of one worker."""

LINES: Final = (
    *("Via: 1.1 edge", "via:1.0 a, 1.1 skewgate ", "Via: 1.1 " + "x" * 1100),
    *("X-Forwarded-For: 203.0.113.9", "X-Forwarded-For:", "x-forwarded-for: 10.0.0.7, 203.0.113.8"),
    *("X-Forwarded-Proto: https", "X-Forwarded-Proto: gopher", "X-Forwarded-Port: 8443"),
    *("X-Forwarded-Host: public.example", "X-Forwarded-Host: a b", "X-Forwarded-Prefix: /outer/"),
    *("X-Real-IP: 203.0.113.5", "Forwarded: for=203.0.113.5", "X_Forwarded_Host: alias.example"),
)


@st.composite
def heads(draw: st.DrawFn) -> RequestHead:
    """Heads of few kinds, so that a peer often sends the same one again."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=4))
    host = draw(st.sampled_from(["a.example", "b.example:6385", None]))
    data = request("GET", "/v1/nodes", *lines, host=host, http="1.1" if host else "1.0")
    return read_request_head(data, TABLE, Limits())


def new_peer(number: int, shared: ForwardingLines) -> Peer:
    address, scheme, trusted, trusted_socket = PEERS[number]
    return Peer(address, scheme, trusted, shared, trusted_socket=trusted_socket)


def head_with(*lines: str) -> RequestHead:
    return read_request_head(request("GET", "/v1/nodes", *lines), TABLE, Limits())


PLAIN: Final = head_with()
EDGE: Final = head_with("Via: 1.1 edge", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https")


@given(
    st.lists(st.tuples(st.integers(0, len(PEERS) - 1), heads(), st.sampled_from(["", "/metal"])), max_size=8)
)
@example([(0, PLAIN, ""), (0, PLAIN, "/metal")])
@example([(0, PLAIN, ""), (1, PLAIN, "")])  # another scheme
@example([(2, PLAIN, ""), (3, PLAIN, "")])  # another address
@example([(4, EDGE, ""), (5, EDGE, "")])  # trusted or not
@example([(0, EDGE, ""), (0, head_with("X-Forwarded-For: 203.0.113.9"), ""), (0, EDGE, "")])
def test_O11_lines_do_not_depend_on_the_requests_before(sent: list[tuple[int, RequestHead, str]]) -> None:
    shared = ForwardingLines()
    peers = [new_peer(number, shared) for number in range(len(PEERS))]
    for number, head, prefix in sent:
        expected = new_peer(number, ForwardingLines()).lines(head, BACKEND, prefix)
        assert peers[number].lines(head, BACKEND, prefix) == expected


@given(heads(), st.integers(0, len(PEERS) - 1))
def test_O11_a_list_of_clients_is_continued_for_trusted_peers_only(head: RequestHead, number: int) -> None:
    peer = new_peer(number, ForwardingLines())
    line = next(
        line for line in peer.lines(head, BACKEND, "").split(b"\r\n") if line.startswith(b"X-Forwarded-For")
    )

    received = head.forwarded_for if peer.is_trusted else None
    before = b"" if received is None else received + b", "
    assert line == b"X-Forwarded-For: " + before + peer.address.encode()


NAMES: Final = st.sampled_from([b"Via", b"VIA", b"X-Forwarded-Host", b"X-Forwarded-Proto"])
VALUES: Final = st.lists(st.sampled_from([b"skewgate", b"SkewGate", b"1.1 edge", b", "])).map(b"".join)


@given(st.lists(st.tuples(NAMES, VALUES)))
@example([(b"Via", b"skewgate" * MAX_LOOPS)])
@example([(b"Via", b"1.1 skewgate")] * MAX_LOOPS)
@example([(b"X-Forwarded-Host", b"skewgate." * MAX_LOOPS)])
def test_H9_only_via_tells_of_a_loop(fields: list[tuple[bytes, bytes]]) -> None:
    passed = sum(value.lower().count(b"skewgate") for name, value in fields if name.lower() == b"via")

    assert is_loop(b"".join(b"\r\n%b: %b" % field for field in fields)) == (passed >= MAX_LOOPS)
