"""The phases of both connections: every way from one to another is taken, and the page shows the same ones.

Connections with transports in memory, and no event loop beside them: a step is a call.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final, final

import hypothesis
import pytest
from hypothesis import strategies

from bench.lane import Lane
from gateway.core.fleet.limits import DEFAULT_LIMITS
from gateway.core.fleet.service import Service
from gateway.dataplane.backends import phases as backend_phases
from gateway.dataplane.backends.connection import BackendConnection, ResponseReceiver
from gateway.dataplane.edge import phases as client_phases
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_body import HeldBodies, RequestBody
from gateway.dataplane.http1.request_head import read_request_head
from gateway.dataplane.http1.response_head import ResponseHead
from gateway.dataplane.local_responses.failures import Failure
from tests.dataplane.stage_check import BACKEND_PHASES, CLIENT_PHASES, CheckedState

interpreted: Final = pytest.mark.interpreted("a compiled class has no derived one, and its attributes stay")


@final
class MemoryTransport(asyncio.Transport):
    """A connection whose other end takes what the test says. `waiting`: bytes that it does not take."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("127.0.0.1", 5)})
        self.waiting = 0
        self.closing = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closing, "written after the end"

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Noted by nobody."""

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """It stays the same connection."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """What waits is for the test to say."""

    def get_write_buffer_size(self) -> int:
        return self.waiting


@pytest.fixture
async def near() -> AsyncIterator[socket.socket]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        yield near


# --- a connection to a backend ------------------------------------------------------------------------------

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
UNTIL_CLOSE: Final = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
SWITCH: Final = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"


@final
class Waiting(ResponseReceiver):
    """Whoever waits for a response: counts its ends."""

    def __init__(self, connection: BackendConnection) -> None:
        self._connection = connection
        self.ends: list[str] = []
        self.pauses_at_interim = False

    def is_misplaced(self, response: ResponseHead, sent_ids: Any) -> bool:
        return False

    def on_interim(self, response: ResponseHead) -> None:
        assert not self.ends
        if self.pauses_at_interim:
            self._connection.pause_reading()

    def on_switch(self, response: ResponseHead, head: bytes, rest: bytes) -> Failure | None:
        assert not self.ends
        self._connection.hand_over()
        return None

    def on_response(self, response: ResponseHead, piece: bytes, *, done: bool) -> None:
        self.on_response_body(piece, done=done)

    def on_response_body(self, piece: bytes, *, done: bool) -> None:
        assert not self.ends
        if done:
            self.ends.append("done")

    def on_failure(self, failure: Failure) -> None:
        assert not self.ends
        self.ends.append(failure)

    def pause_request(self) -> None:
        """The client is not here."""

    def resume_request(self) -> None:
        """The client is not here."""


@final
class Backend:
    """A connection to a backend, and what may happen to it."""

    def __init__(self, near: socket.socket) -> None:
        self.lane = Lane(near)
        snapshot = self.lane.worker.context.snapshots.current
        self._service: Service = snapshot.views["baremetal"].service
        self._view = snapshot.views["baremetal"]
        self.pool = self.lane.worker.pools.of(self._view.members.all[0])
        self.pool.idle.clear()
        self.transport = MemoryTransport(near)
        self.connection = BackendConnection(self.pool)
        self.waiting: Waiting | None = None
        self._body: RequestBody | None = None

    @property
    def phase(self) -> backend_phases.BackendPhase:
        return self.connection.phase

    def made(self) -> None:
        self.connection.connection_made(self.transport)

    def given_up(self) -> None:
        self.connection.give_up()

    def begin(self, length: int = 0) -> None:
        if self.pool.idle:
            assert self.pool.acquire(verify=False) is self.connection
        head = read_request_head(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length,
            NameTable.for_requests(frozenset()),
            DEFAULT_LIMITS,
        )
        self._body = RequestBody(head, DEFAULT_LIMITS, HeldBodies(1 << 20)) if length else None
        self.waiting = Waiting(self.connection)
        reader = self.lane.worker.context.response_reader(self._view)
        self.connection.start(self.waiting, reader, self._service, self._body, is_head_request=False)

    def begin_with_body(self) -> None:
        self.begin(4)

    def written(self) -> None:
        if not self.transport.closing:
            self.connection.write(b"POST / HTTP/1.1\r\n\r\n")

    def body_comes(self) -> None:
        if self._body is not None and not self._body.done:
            self._body.feed(b"1234")
            self.connection.send_more(b"1234")

    def is_taken(self) -> None:
        self.transport.waiting = 0

    def is_not_taken(self) -> None:
        self.transport.waiting = 4

    def head_comes(self) -> None:
        self._deliver(HEAD)

    def content_comes(self) -> None:
        self._deliver(b"1234")

    def all_comes(self) -> None:
        self._deliver(HEAD + b"1234")

    def endless_comes(self) -> None:
        self._deliver(UNTIL_CLOSE)

    def nonsense_comes(self) -> None:
        self._deliver(b"nonsense\r\n\r\n")

    def switches(self) -> None:
        self._deliver(SWITCH)

    def _deliver(self, data: bytes) -> None:
        is_read = self.transport.reading and not self.transport.closing
        if is_read and self.phase is not backend_phases.TUNNELLING:
            self.connection.data_received(data)

    def ends_its_side(self) -> None:
        if not self.transport.closing:
            self.connection.eof_received()
            self.transport.close()

    def lost(self) -> None:
        if self.phase is backend_phases.TUNNELLING:
            self.connection.abandon()  # the tunnel ends first
        if self.phase is not backend_phases.CLOSED:
            self.transport.close()
            self.connection.connection_lost(None)

    def time_is_over(self) -> None:
        if self.phase is not backend_phases.TUNNELLING:
            self.lane.worker.context.now += 1000.0
            self.a_tick()

    def a_tick(self) -> None:
        if self.connection.deadline <= self.lane.worker.context.now:
            self.connection.on_deadline()

    def abandoned(self) -> None:
        if self.waiting is not None and not self.waiting.ends:
            self.connection.abandon()
            self.waiting.ends.append("abandoned")

    def paused(self) -> None:
        self.connection.pause_reading()

    def resumed(self) -> None:
        self.connection.resume_reading()


Step = Callable[[Any], None]
BEGUN: Final = (Backend.made, Backend.begin)
SENT: Final = (*BEGUN, Backend.written)
SENDING: Final = (Backend.made, Backend.begin_with_body, Backend.written)
SENT_WITH_BODY: Final = (*SENDING, Backend.body_comes)
EARLY: Final = (*SENDING, Backend.head_comes)
BACKEND_WAYS: Final[list[tuple[tuple[Step, ...], str]]] = [
    ((Backend.given_up, Backend.made, Backend.lost), "connecting unwanted closed"),
    ((Backend.made, Backend.given_up, Backend.lost), "connecting idle closing closed"),
    ((Backend.made, Backend.lost), "connecting idle closed"),
    ((*BEGUN, Backend.lost), "connecting idle unsent closed"),
    ((*BEGUN, Backend.time_is_over), "connecting idle unsent closing"),
    ((*SENT, Backend.all_comes), "connecting idle unsent awaiting_head idle"),
    ((*SENT, Backend.head_comes, Backend.content_comes), "connecting idle unsent awaiting_head reading idle"),
    (
        (*SENT, Backend.switches, Backend.lost),
        "connecting idle unsent awaiting_head tunnelling closing closed",
    ),
    ((*SENT, Backend.time_is_over), "connecting idle unsent awaiting_head closing"),
    ((*SENT, Backend.lost), "connecting idle unsent awaiting_head closed"),
    (
        (*SENT, Backend.head_comes, Backend.time_is_over),
        "connecting idle unsent awaiting_head reading closing",
    ),
    ((*SENT, Backend.head_comes, Backend.lost), "connecting idle unsent awaiting_head reading closed"),
    (
        (*SENT, Backend.endless_comes, Backend.ends_its_side, Backend.lost),
        "connecting idle unsent awaiting_head reading finished closed",
    ),
    (
        (*SENT, Backend.endless_comes, Backend.ends_its_side, Backend.abandoned),
        "connecting idle unsent awaiting_head reading finished closing",
    ),
    ((*SENT_WITH_BODY, Backend.a_tick), "connecting idle unsent sending awaiting_head"),
    ((*SENT_WITH_BODY, Backend.all_comes), "connecting idle unsent sending idle"),
    ((*SENT_WITH_BODY, Backend.switches), "connecting idle unsent sending tunnelling"),
    ((*SENDING, Backend.nonsense_comes), "connecting idle unsent sending closing"),
    ((*SENDING, Backend.lost), "connecting idle unsent sending closed"),
    ((*EARLY, Backend.body_comes, Backend.a_tick), "connecting idle unsent sending reading_early reading"),
    (
        (*SENT_WITH_BODY, Backend.head_comes, Backend.content_comes),
        "connecting idle unsent sending reading_early idle",
    ),
    (
        (*SENDING, Backend.endless_comes, Backend.ends_its_side),
        "connecting idle unsent sending reading_early finished",
    ),
    ((*EARLY, Backend.abandoned), "connecting idle unsent sending reading_early closing"),
    ((*EARLY, Backend.lost), "connecting idle unsent sending reading_early closed"),
]


def ways(text: str, phases: type[IntEnum]) -> list[tuple[IntEnum, IntEnum]]:
    """The transitions of one connection through these phases."""
    return list(pairwise(phases[name.upper()] for name in text.split()))


def shown(value: object) -> str:
    """The name of a case: its phases."""
    return value if isinstance(value, str) else ""


@interpreted
@pytest.mark.parametrize("steps, text", BACKEND_WAYS, ids=shown)
async def test_a_backend_connection_goes_through_these_phases(
    near: socket.socket,
    backend_phases: CheckedState[backend_phases.BackendPhase],
    steps: tuple[Step, ...],
    text: str,
) -> None:
    backend = Backend(near)
    backend_phases.made.clear()
    for step in steps:
        step(backend)
    backend.lane.close()

    expected = ways(text, type(backend.phase))
    assert backend_phases.made[: len(expected)] == expected
    assert not backend.waiting or len(backend.waiting.ends) <= 1


@interpreted
async def test_a_connection_that_is_not_read_is_not_kept(near: socket.socket) -> None:
    """Its client has taken no more of an interim response, and the final one came in the same piece."""
    backend = Backend(near)
    for step in SENT:
        step(backend)
    assert backend.waiting is not None
    backend.waiting.pauses_at_interim = True
    backend.connection.data_received(b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"1234")

    assert backend.waiting.ends == ["done"]
    assert backend.phase is backend_phases.CLOSING
    assert not backend.pool.idle


@interpreted
async def test_nothing_is_written_behind_a_head_that_is_held_back(near: socket.socket) -> None:
    backend = Backend(near)
    backend.made()
    backend.begin_with_body()
    backend.transport.write = lambda data: pytest.fail(f"written: {data!r}")  # type: ignore[method-assign]
    backend.body_comes()

    assert backend.phase is backend_phases.UNSENT


@interpreted
async def test_a_wrong_step_is_noticed(near: socket.socket) -> None:
    backend, client = Backend(near), Client(near)
    backend.made()

    with pytest.raises(AssertionError, match=r"from .*IDLE.* to .*READING"):
        backend.connection.phase = backend_phases.READING
    with pytest.raises(AssertionError, match=r"from .*IDLE.* to .*DISCARDING"):
        client.connection.phase = client_phases.DISCARDING


@interpreted
async def test_a_wrong_count_of_requests_in_flight_is_noticed(near: socket.socket) -> None:
    client = Client(near)
    client.lane.worker.context.in_flight_by_service["baremetal"] = 1

    with pytest.raises(AssertionError):
        client.a_request()


STEPS: Final = [
    *(Backend.made, Backend.given_up, Backend.written, Backend.body_comes, Backend.is_taken),
    *(Backend.is_not_taken, Backend.head_comes, Backend.content_comes, Backend.all_comes),
    *(Backend.endless_comes, Backend.nonsense_comes, Backend.switches, Backend.ends_its_side, Backend.lost),
    *(Backend.time_is_over, Backend.a_tick, Backend.abandoned, Backend.paused, Backend.resumed),
]
BEGINS: Final = (Backend.begin, Backend.begin_with_body)


def is_possible(backend: Backend, step: Step) -> bool:
    """Whether this may happen now: what the pool and the attempt do only in their turn."""
    phase = backend.phase
    under_way = backend.waiting is not None and not backend.waiting.ends
    if step is Backend.given_up:
        return phase is backend_phases.CONNECTING
    if step is Backend.made:
        return phase in (backend_phases.CONNECTING, backend_phases.UNWANTED) and not backend.transport.closing
    if phase in (backend_phases.CONNECTING, backend_phases.UNWANTED):
        return False
    if step in BEGINS:
        return phase is backend_phases.IDLE and not backend.transport.closing
    if step is Backend.written:
        return phase is backend_phases.UNSENT
    if step in (Backend.body_comes, Backend.paused, Backend.resumed, Backend.abandoned):
        return under_way and phase not in (backend_phases.TUNNELLING, backend_phases.CLOSED)
    return phase is not backend_phases.CLOSED


@interpreted
@hypothesis.given(strategies.lists(strategies.sampled_from([*STEPS, *BEGINS]), max_size=30))
@hypothesis.example([*SENT, Backend.all_comes, Backend.time_is_over])
@hypothesis.example([*SENT, Backend.all_comes, Backend.begin])
def test_whatever_happens_a_request_has_one_end(steps: list[Step]) -> None:
    """And a connection that is kept for the next one is idle, and is read."""

    async def all_of_it() -> None:
        near, far = socket.socketpair()
        with near, far:
            backend = Backend(near)
            for step in steps:
                if is_possible(backend, step):
                    step(backend)
                if backend.connection in backend.pool.idle:
                    assert backend.phase is backend_phases.IDLE
                    assert backend.transport.reading
            if backend.phase in (backend_phases.CONNECTING, backend_phases.UNWANTED):
                backend.made()
            switched = backend.phase is backend_phases.TUNNELLING
            backend.lost()
            assert backend.phase is backend_phases.CLOSED
            assert backend.waiting is None or switched or len(backend.waiting.ends) == 1
            backend.lane.close()

    asyncio.run(all_of_it())


# --- a client connection ------------------------------------------------------------------------------------

LOCAL: Final = b"OPTIONS /v1/nodes HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n"
FORWARDED: Final = b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nX-OpenStack-Ironic-API-Version: 1.31\r\n\r\n"


@final
class Client:
    """A client connection, and what may happen to it."""

    def __init__(self, near: socket.socket) -> None:
        self.lane = Lane(near)
        self.lane.backend.transport = backend = MemoryTransport(near)
        self.lane.backend.is_closing = backend.is_closing
        self.transport = MemoryTransport(near)
        self.connection = ClientConnection(self.lane.worker)
        self.connection.connection_made(self.transport)

    @property
    def phase(self) -> client_phases.ClientPhase:
        return self.connection.phase

    def sends(self, data: bytes) -> None:
        self.connection.data_received(data)

    def a_request(self) -> None:
        self.sends(FORWARDED)

    def half_a_request(self) -> None:
        self.sends(FORWARDED[:20])

    def its_other_half(self) -> None:
        self.sends(FORWARDED[20:])

    def an_empty_line(self) -> None:
        self.sends(b"\r\n")

    def half_an_empty_line(self) -> None:
        self.sends(b"\r")

    def its_end(self) -> None:
        self.sends(b"\n")

    def nonsense(self) -> None:
        self.sends(b"nonsense\r\n\r\n")

    def a_local_request(self) -> None:
        self.sends(LOCAL + b"\r\n")

    def its_last_request(self) -> None:
        self.sends(LOCAL + b"Connection: close\r\n\r\n")

    def a_request_without_its_body(self) -> None:
        self.sends(LOCAL + b"Transfer-Encoding: chunked\r\n\r\n")

    def that_body(self) -> None:
        self.sends(b"0\r\n\r\n")

    def waits_for_a_go_ahead(self) -> None:
        self.sends(LOCAL + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")

    def takes_nothing(self) -> None:
        self.connection.pause_writing()

    def takes_all(self) -> None:
        self.connection.resume_writing()

    def is_answered(self) -> None:
        self.lane.flush()
        self.lane.backend.data_received(HEAD + b"1234")

    def is_tunnelled(self) -> None:
        exchange = self.connection.exchange
        assert exchange is not None
        self.connection.hand_over()
        exchange.end("")

    def time_is_over(self) -> None:
        self.lane.worker.context.now += 10_000.0
        self.connection.on_deadline()

    def must_yield(self) -> None:
        self.connection.close()

    def lost(self) -> None:
        self.transport.close()
        self.connection.connection_lost(None)


PIPELINED: Final = (Client.takes_nothing, Client.half_a_request)
UNREAD: Final = (Client.a_request_without_its_body,)
REFUSED: Final = (Client.nonsense,)
CLIENT_WAYS: Final[list[tuple[tuple[Step, ...], str]]] = [
    ((Client.lost,), "idle closed"),
    ((Client.time_is_over, Client.lost), "idle closing closed"),
    ((Client.a_request, Client.is_answered), "idle serving idle"),
    ((Client.a_local_request, Client.a_local_request), "idle serving idle serving idle"),
    ((Client.its_last_request,), "idle serving closing"),
    ((Client.a_request, Client.lost), "idle serving closed"),
    ((Client.a_request, Client.is_tunnelled), "idle serving tunnelling closing"),
    ((Client.half_a_request, Client.its_other_half), "idle reading_head serving"),
    ((Client.half_a_request, Client.time_is_over), "idle reading_head lingering"),
    ((Client.half_a_request, Client.must_yield), "idle reading_head closing"),
    ((Client.half_a_request, Client.lost), "idle reading_head closed"),
    ((Client.half_an_empty_line, Client.its_end, Client.a_request), "idle reading_head idle serving"),
    ((*PIPELINED, Client.takes_all), "idle pipelined reading_head"),
    ((*PIPELINED, Client.time_is_over), "idle pipelined closing"),
    ((*PIPELINED, Client.lost), "idle pipelined closed"),
    ((Client.takes_nothing, Client.a_request, Client.takes_all), "idle pipelined serving"),
    ((Client.takes_nothing, Client.an_empty_line, Client.takes_all), "idle pipelined idle"),
    ((Client.takes_nothing, Client.nonsense, Client.takes_all), "idle pipelined lingering"),
    ((*UNREAD, Client.that_body), "idle serving discarding idle"),
    ((*UNREAD, Client.nonsense), "idle serving discarding lingering"),
    ((*UNREAD, Client.time_is_over), "idle serving discarding closing"),
    ((*UNREAD, Client.lost), "idle serving discarding closed"),
    ((Client.waits_for_a_go_ahead,), "idle serving lingering"),
    ((*REFUSED, Client.time_is_over), "idle lingering closing"),
    ((*REFUSED, Client.lost), "idle lingering closed"),
]


@interpreted
@pytest.mark.parametrize("steps, text", CLIENT_WAYS, ids=shown)
async def test_a_client_connection_goes_through_these_phases(
    near: socket.socket,
    client_phases: CheckedState[client_phases.ClientPhase],
    steps: tuple[Step, ...],
    text: str,
) -> None:
    client = Client(near)
    client_phases.made.clear()
    with closing(client.lane):
        for step in steps:
            step(client)

    assert client_phases.made == ways(text, type(client.phase))


async def test_an_empty_line_alone_is_no_request(near: socket.socket) -> None:
    """Some clients send one behind a body. It does not shorten the time for which they may be idle."""
    client = Client(near)
    client.a_local_request()
    deadline = client.connection.deadline
    client.an_empty_line()

    assert (client.phase, client.connection.deadline) == (client_phases.IDLE, deadline)


# --- the page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found, table", [(BACKEND_WAYS, BACKEND_PHASES), (CLIENT_WAYS, CLIENT_PHASES)], ids=["backend", "client"]
)
def test_every_transition_on_the_page_is_taken(
    found: list[tuple[tuple[Step, ...], str]], table: dict[IntEnum, frozenset[IntEnum]]
) -> None:
    phases = type(next(iter(table)))
    taken = {way for _, text in found for way in ways(text, phases)}
    assert taken == {(before, after) for before in table for after in table[before]}
