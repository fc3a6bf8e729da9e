"""One client's connection: HTTP/1.1 as an honest client speaks it.

What it does: sends a request once, on the connection that it keeps or on a new one, and reads the reply whole
by the strict reader of the data plane's tests. A body that streams is written while the reply is waited for,
since one may come before the body has gone.

Rules: nothing is ever sent twice. After anything but a whole reply that leaves the connection open it is
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, final

from tests.dataplane.wire import Message, chunked, read_message
from tests.load.wares import BETWEEN

HOST: Final = "127.0.0.1"

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Reply(NamedTuple):
    """What came back; without a message `why` says how it went wrong."""

    message: Message | None
    why: str = ""


def framed(pieces: Sequence[bytes], *, by_length: bool) -> tuple[str, list[bytes]]:
    """The header line of a body in pieces, and the pieces as they go over the wire."""
    if by_length:
        return f"Content-Length: {sum(map(len, pieces))}", list(pieces)
    coded = [chunked(piece).removesuffix(chunked()) for piece in pieces]
    return "Transfer-Encoding: chunked", [*coded, chunked()]


@final
class Connection:
    """To a gateway on a port of loopback; made when it is first needed, and again after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Streams | None = None

    async def exchange(self, method: str, head: bytes, body: Sequence[bytes] = ()) -> Reply:
        """One request with its body in pieces, which are sent one after another."""
        try:
            streams = await self._open()
            message = await self._converse(streams, method, head, body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as problem:
            self.close()
            return Reply(None, f"{type(problem).__name__}: {problem}")
        except AssertionError as problem:
            self.close()
            return Reply(None, f"not what a gateway may write: {problem}")
        if message.every("Connection") == ["close"]:
            self.close()
        return Reply(message)

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    async def _open(self) -> Streams:
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        return self._streams

    async def _converse(self, streams: Streams, method: str, head: bytes, body: Sequence[bytes]) -> Message:
        reader, writer = streams
        answer = asyncio.create_task(read_message(reader, reply_to=method))
        try:
            writer.write(head)
            for number, piece in enumerate(body):
                if number:
                    await asyncio.sleep(BETWEEN)
                if answer.done():  # what was not sent of the body would be read as the next request
                    self.close()
                    break
                writer.write(piece)
            return await answer
        finally:
            if not answer.done():
                answer.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await answer
