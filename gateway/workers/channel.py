"""The channel between main process and worker: length-prefixed pickles over a pair of sockets.

Delivers each message to `on_message`, in order, and calls `on_closed` once when the other end is gone or has
sent an invalid message. It knows no message by name.

Pickling (`dumps`, `loads`) has two rules of its own. A frozen dataclass is made anew by its constructor:
derived fields are not sent, and a compiled class can be filled in no other way. A read-only mapping is sent
as a dictionary. `loads` executes what it gets, so nobody else may be able to write to the sockets.
"""

from __future__ import annotations

import asyncio
import copyreg
import logging
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from io import BytesIO
from operator import attrgetter
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast, final

MAX_SIZE: Final = 256 << 20
"""Maximum bytes of a message on a channel. A snapshot of 100,000 backends has some 50 MiB."""

_LENGTH: Final = Struct("!I")

_log = logging.getLogger("skewgate.workers")

_Reducer: TypeAlias = Callable[[Any], Any]


@final
class Channel(asyncio.Protocol):
    """A channel for pickled messages over the socket `sock`, connected and non-blocking, which it owns."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Any], None], on_closed: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._closed = False
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Open the channel: deliver received messages from now on, in the running event loop."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._sock)

    def send(self, message: object) -> None:
        """Send a message after all earlier ones. Never blocks. Does nothing unless the channel is open."""
        if self._transport is None or self._closed:
            return
        data = dumps(message)
        self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Close the channel: send what is buffered, if the other end takes it, and deliver nothing more."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()
        else:
            self._sock.close()
            self._ended.set()

    async def closed(self, seconds: float) -> bool:
        """Wait, after `close`, until all is sent or the other end is gone. False: not within `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has all its methods
        if self._closed:
            transport.close()

    def data_received(self, data: bytes) -> None:
        found = self._received
        found += data
        start = 0
        while len(found) - start >= _LENGTH.size and not self._closed:
            (length,) = _LENGTH.unpack_from(found, start)
            if length > MAX_SIZE:
                self._refuse("a message of %d bytes", length)
                return
            end = start + _LENGTH.size + length
            if len(found) < end:
                break
            message = bytes(found[start + _LENGTH.size : end])
            start = end
            self._deliver(message)
        del found[:start]

    def _deliver(self, data: bytes) -> None:
        try:
            message = loads(data)
        except Exception:  # noqa: BLE001 - whatever a wrong pickle raises
            self._refuse("an invalid message", exc_info=True)
            return
        self._on_message(message)

    def _refuse(self, what: str, *details: object, exc_info: bool = False) -> None:
        _log.error("the other end of a channel has sent " + what, *details, exc_info=exc_info)
        self.abort()

    def abort(self) -> None:
        """Cut the channel, as if the other end was gone. Does nothing unless it is open."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ended.set()
        if not self._closed:
            self._closed = True
            self._on_closed()


def dumps(value: object) -> bytes:
    """Pickle a value for a channel. Raises what `pickle` raises about a value that cannot be sent."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Unpickle a value from a channel. Raises whatever an invalid pickle raises."""
    return pickle.loads(data)  # noqa: S301 - from our own process


@final
class _Reducers(dict[type, _Reducer]):
    """Reducers (how `pickle` takes a value apart) by class, made when the first value of a class is sent."""

    def __missing__(self, kind: type) -> _Reducer:
        if is_dataclass(kind) and _is_frozen_without_own_way(kind):
            reducer = self[kind] = _by_constructor(kind)
            return reducer
        return copyreg.dispatch_table[kind]  # raises `KeyError`: as `pickle` does it


def _by_constructor(kind: type) -> _Reducer:
    names = [field.name for field in fields(kind) if field.init]
    if any(field.kw_only for field in fields(kind) if field.init):
        raise TypeError(f"{kind} takes its fields by name")
    if len(names) < 2:  # `attrgetter` gives a tuple for two and more
        return lambda value: (kind, tuple(getattr(value, name) for name in names))
    values = attrgetter(*names)
    return lambda value: (kind, values(value))


def _is_frozen_without_own_way(kind: Any) -> bool:  # noqa: ANN401 - a dataclass, which has no type
    has_own_way = kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__
    return bool(kind.__dataclass_params__.frozen) and not has_own_way


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)  # which has no name by which `pickle` finds it


_REDUCERS: Final = _Reducers({MappingProxyType: lambda proxy: (_read_only, (dict(proxy),))})
