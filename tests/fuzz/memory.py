"""A worker without sockets: transports in memory, and an event loop that connects it to a server there.

Everything happens in turns of the loop and nothing waits for time, so an input takes a fraction of a
millisecond. What raises in a callback is raised again at the end.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeAlias, cast, final

from gateway.controlplane.resolver import addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.context import Context
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.worker import Worker
from gateway.runtime.process import without_odd_names
from gateway.settings import Settings, load
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord

QUIET: Final = 6
"""Turns of the loop without a byte or an end after which nothing more happens."""
MOST_TURNS: Final = 20_000


@final
class MemoryTransport(asyncio.Transport):
    """One connection of the gateway, whose other end is this object as well. `on_bytes` gets what the gateway
    writes."""

    def __init__(self, loop: MemoryLoop, protocol: object, address: str) -> None:
        super().__init__(
            {"peername": (address, 9) if address else None, "socket": loop.idle_socket, "sslcontext": None}
        )
        self._loop = loop
        self._protocol = cast(asyncio.Protocol, protocol)
        self._waiting: list[bytes] = []
        self._paused = False
        self._ended = False
        """The other end sends nothing more."""
        self.written = b""
        self.closing = False
        self.wrote_eof = False
        self.on_bytes: Callable[[bytes], None] = lambda _: None
        loop.transports.append(self)
        self._protocol.connection_made(self)

    # -- what the other end does

    def deliver(self, data: bytes) -> None:
        """Bytes from the other end."""
        self._waiting.append(data)
        self._go_on()

    def deliver_eof(self) -> None:
        """The other end has closed its sending side."""
        self._ended = True
        self._go_on()

    def lose(self) -> None:
        """The other end is gone."""
        if not self.closing:
            self._close()

    def _go_on(self) -> None:
        while self._waiting and not self._paused and not self.closing:
            data = self._waiting.pop(0)
            protocol: object = self._protocol
            self._loop.stirred = True
            if isinstance(protocol, asyncio.BufferedProtocol):
                while data and not self.closing:
                    buffer = memoryview(protocol.get_buffer(len(data)))
                    size = min(len(buffer), len(data))
                    buffer[:size] = data[:size]
                    protocol.buffer_updated(size)
                    data = data[size:]
            else:
                self._protocol.data_received(data)
        if self._ended and not self._waiting and not self._paused and not self.closing:
            self._ended = False
            if not self._protocol.eof_received():
                self._close()

    # -- what the gateway does

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.wrote_eof, "written after the end"
        if not self.closing:
            self.written += data
            self._loop.stirred = True
            self._loop.call_soon(self.on_bytes, bytes(data))

    def write_eof(self) -> None:
        self.wrote_eof = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closing:
            self._close()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def _close(self) -> None:
        self.closing = True
        self._loop.stirred = True
        self._loop.call_soon(lambda: self._protocol.connection_lost(None))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return not self._paused and not self.closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._go_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def get_write_buffer_size(self) -> int:
        return 0


@final
class MemoryLoop(asyncio.SelectorEventLoop):
    """Connects every client in it with `serve`."""

    def __init__(self) -> None:
        super().__init__()
        self.idle_socket, self._other_socket = socket.socketpair()
        """Whoever looks whether something can be read finds nothing."""
        self.stirred = False
        self.transports: list[MemoryTransport] = []
        self.serve: Callable[[MemoryTransport], None] = lambda _: None
        self._errors: list[BaseException] = []
        self.set_exception_handler(self._keep_error)

    def _keep_error(self, _: object, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or AssertionError(context["message"]))

    def keep_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """What an extension could raise to nobody."""
        self._errors.append(unraisable.exc_value or AssertionError(unraisable.err_msg))

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        protocol = protocol_factory()
        transport = MemoryTransport(self, protocol, host)
        self.serve(transport)
        return transport, protocol

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, and then until nothing more happens."""
        self.run_until_complete(coroutine)
        self.run_until_complete(self.settle())
        if self._errors:
            raise self._errors[0]

    async def settle(self, turns: int = QUIET) -> None:
        """Until nothing more happens in so many turns."""
        quiet = 0
        for _ in range(MOST_TURNS):
            self.stirred = False
            await asyncio.sleep(0)
            quiet = 0 if self.stirred else quiet + 1
            if quiet == turns:
                return
        raise AssertionError("it never ends")

    def close(self) -> None:
        super().close()
        self.idle_socket.close()
        self._other_socket.close()


@contextmanager
def memory_loop() -> Iterator[MemoryLoop]:
    """A loop for one input."""
    loop, before = MemoryLoop(), sys.unraisablehook
    sys.unraisablehook = without_odd_names(loop.keep_unraisable)
    try:
        yield loop
    finally:
        sys.unraisablehook = before
        loop.close()


Configured: TypeAlias = tuple[Settings, Snapshot]


def configured(text: str) -> Configured:
    """A configuration, and its services at the beginning."""
    settings = load(text, filename="fuzz.yaml", environ={}).require()
    return settings, Snapshot.configured(settings.services, now=monotonic())


@final
class Gateway:
    """A worker in a loop of memory. One for each input: nothing of it depends on the inputs before."""

    def __init__(self, loop: MemoryLoop, settings: Settings, snapshot: Snapshot) -> None:
        self.loop = loop
        self.records: list[RequestRecord] = []
        context = Context(
            limits=settings.limits,
            timeouts=settings.timeouts,
            trusted=settings.trusted_proxies,
            snapshots=SnapshotHolder(snapshot),
            observe=lambda *_: None,
            metrics=Metrics(),
            record=self.records.append,
        )
        self.worker = Worker(context, addresses_only)

    def client(self, address: str = "127.0.0.1") -> MemoryTransport:
        """A connection from a client."""
        return MemoryTransport(self.loop, ClientConnection(self.worker), address)

    async def deliver(self, client: MemoryTransport, data: bytes, size: int) -> None:
        """Bytes from the other end of `client` in pieces of this size, and all that they lead to."""
        for at in range(0, len(data), size or 1):
            if not client.closing:
                client.deliver(data[at : at + size])
                await self.loop.settle(1)
        await self.loop.settle()

    async def lose_all(self) -> None:
        """Every connection ends, and nothing remains in use."""
        for transport in self.loop.transports:
            transport.lose()
        self.loop.transports.clear()
        await self.loop.settle()
        context = self.worker.context
        assert not self.worker._clients
        assert not len(self.worker.accept_phase)
        assert not self.worker.accept_phase.active
        assert not context.tunnels
        assert not any(context.in_flight_by_member.values()), context.in_flight_by_member
        assert not any(context.in_flight_by_service.values()), context.in_flight_by_service
        assert not any(active for _, active in self.worker.report().connections.values())


def run_with_gateway(
    configuration: Configured, script: Callable[[Gateway], Coroutine[Any, Any, None]]
) -> None:
    """One input: `script` with a gateway of its own, and its end."""

    async def all_of_it() -> None:
        gateway = Gateway(loop, *configuration)
        await script(gateway)
        await gateway.lose_all()
        await gateway.worker.abort()

    with memory_loop() as loop:
        loop.run(all_of_it())
