"""The gateway's own TLS transport, however the bytes are cut and whoever closes first."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, TypeAlias, cast, final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.edge.tls_transport import RECORD
from gateway.dataplane.sockets.bounded_reads import READ_SIZE, bound_reads
from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.tls_in_memory import TlsClient
from tests.kit import clocks
from tests.kit.certificates import authority, client_context
from tests.kit.messages import KIB

Step: TypeAlias = tuple[str, int]
"""What is done, and how many bytes it takes."""

MOST: Final = 4 * READ_SIZE
"""Bytes that uvloop reads at once, at most."""
ANY: Final = st.integers(1, MOST)
SIZES: Final = {
    "send": st.sampled_from((1, RECORD, READ_SIZE)) | ANY,
    "send records": st.sampled_from((100, KIB, RECORD)) | st.integers(1, RECORD),
    "deliver": st.sampled_from((1, READ_SIZE, MOST)) | ANY,
    "write": ANY,
}
"""Of the steps that have a size. What is read at once often holds many records."""


def step(*names: str) -> st.SearchStrategy[Step]:
    """One of these."""
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), SIZES.get(name, st.just(0))))


def steps(*each: st.SearchStrategy[Step], most: int) -> st.SearchStrategy[list[Step]]:
    """Up to so many, each kind as often as the others."""
    return st.lists(st.one_of(*each), max_size=most)


COURSES: Final = st.builds(
    lambda begin, others: [*begin, *others],
    st.tuples(step("send", "send records"), step("deliver")),  # without data nothing happens
    steps(
        step("send", "send records", "write"),
        step("deliver"),
        step("turn", "pause", "resume", "bound"),
        step("close side", "end", "end socket", "close"),
        most=20,
    ),
)
REACTIONS: Final = steps(
    step("nothing", "pause", "resume", "bound"), step("close side"), step("write", "close"), most=8
)


@final
class Served(asyncio.Protocol):
    """Takes what comes, and with each piece does the next of `reactions`."""

    def __init__(self, reactions: Sequence[Step]) -> None:
        self._reactions = list(reactions)
        self.transport: asyncio.Transport
        self.got = b""
        self.ended_after: list[int] = []
        """Bytes that had come at the end, each time that it was reported."""
        self.wrote = b""
        self.closed_side = self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert data
        self.got += data
        if self._reactions:
            self.do(*self._reactions.pop(0))

    def eof_received(self) -> bool:
        self.ended_after.append(len(self.got))
        return True

    def do(self, action: str, size: int) -> None:
        """Do something with the transport, as far as it still can be done."""
        transport = self.transport
        if action == "pause":
            transport.pause_reading()
        elif action == "resume":
            transport.resume_reading()
        elif action == "bound":
            bound_reads(transport, self, bytearray(READ_SIZE))
        elif action == "write" and not self.closed_side:
            piece = bytes([len(self.wrote) % 256]) * size
            transport.write(piece)
            self.wrote += piece
        elif action == "close side" and not self.closed_side:
            self.closed_side = True
            transport.write_eof()
        elif action == "close":
            self.closed_side = self.closed = True
            transport.close()


class Course:
    """One connection from its handshake on, step by step."""

    def __init__(self, client: TlsClient, protocol: Served) -> None:
        self._client, self._protocol = client, protocol
        self._under_way = b""
        self._socket_ends = self._socket_ended = False

    async def do(self, action: str, size: int) -> None:
        """Do something at one of the ends, or let bytes come."""
        client = self._client
        if action == "send":
            if not client.has_ended and not self._socket_ends:
                client.send(size)
        elif action == "send records":
            if not client.has_ended and not self._socket_ends:
                for _ in range(min(1000, MOST // size)):
                    client.send(size)
        elif action == "end":
            if not client.has_ended and not self._socket_ends:
                client.end()
        elif action == "end socket":
            self._socket_ends = True
        elif action == "deliver":
            self._deliver(size)
        elif action == "turn":
            await asyncio.sleep(0)
        else:
            self._protocol.do(action, size)

    def _deliver(self, size: int) -> None:
        """Let so many bytes come at once, and the end after the last one."""
        self._under_way += self._client.records()
        socket = self._client.socket
        if socket.closed or not socket.reads:
            return
        if self._under_way:
            data, self._under_way = self._under_way[:size], self._under_way[size:]
            socket.read(data)
        elif self._socket_ends and not self._socket_ended:
            self._socket_ended = True
            socket.read_end()

    async def finish(self) -> None:
        """Let everything come, in pieces of all sizes."""
        for size in (1, 7, *[READ_SIZE] * 100):
            if not self._protocol.closed:
                self._protocol.do("resume", 0)
            await asyncio.sleep(0)
            self._deliver(size)
        assert self._client.socket.closed or not self._under_way


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_all_content_arrives_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, version: ssl.TLSVersion
) -> None:
    """What either side has sent before its end arrives, unless the protocol has closed the connection."""
    certificates = tls_listener(tmp_path_factory.mktemp("tls")).certificates
    assert certificates is not None
    server, of_client = certificates.context, client_context(authority())
    of_client.maximum_version = version

    async def law(early: int, course_steps: Sequence[Step], reactions: Sequence[Step]) -> None:
        protocol = Served(reactions)
        client = TlsClient(server, of_client, protocol, lambda one: one.send(early) if early else None)
        course = Course(client, protocol)
        for step in course_steps:
            await course.do(*step)
        await course.finish()

        assert not client.broken
        if not protocol.closed:
            assert protocol.got == client.sent
            ends = client.has_ended or course._socket_ends
            assert protocol.ended_after == ([len(client.sent)] if ends else [])
        else:
            assert client.sent.startswith(protocol.got)
            assert len(protocol.ended_after) <= 1
        assert client.received() == (protocol.wrote, protocol.closed_side)

    @given(st.just(0) | SIZES["send"], COURSES, REACTIONS)
    def whole(early: int, course_steps: list[Step], reactions: list[Step]) -> None:
        clocks.run(law(early, course_steps, reactions))

    whole()
