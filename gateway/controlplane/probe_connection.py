"""One request of a probe on a connection of its own, and the response to it.

    create_connection -> connection_made: the request is sent -> llhttp reads the response -> `response`

A kept connection would show that an old process lives, not a new one. llhttp reads the response strictly.
Everything is bounded: head, interim responses, chunk framing, and body (threats O1). Deadlines, addresses,
and what a response means are up to `probe_client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, cast, final

import httptools
from multidict import CIMultiDict

from gateway.core.dialect import ProbeFault, ProbeResponse

MAX_HEAD: Final = 64 * 1024
"""Most bytes of a response before its body, with those of interim responses."""
MAX_FRAMING: Final = 8
"""Most bytes on the connection for each byte that a body may have: chunks of one byte take six."""

Headers: TypeAlias = CIMultiDict[str]
CheckHead: TypeAlias = Callable[[int, Headers], ProbeFault | None]
"""Returns why a response with this status and these headers cannot be used, before its body is read."""


@final
class ProbeConnection(asyncio.Protocol):
    """Connection of a probe. Sends `request` when it is made; a body has at most `max_body` bytes. It closes
    itself when `response` is done. `bodiless`: the response ends with its head, as that to a HEAD."""

    def __init__(
        self,
        request: bytes,
        max_body: int,
        check_head: CheckHead = lambda status, headers: None,
        *,
        bodiless: bool = False,
    ) -> None:
        self.response: asyncio.Future[ProbeResponse | ProbeFault]
        """The response, or what is wrong with it; an `OSError` if the connection broke."""
        self.response = asyncio.get_running_loop().create_future()
        self._request = request
        self._max_body = max_body
        self._check_head = check_head
        self._bodiless = bodiless
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        """llhttp; None when the connection has ended, since the two hold each other."""
        self._received = 0
        self._status = 0
        """Status of the final response; 0: its head has not come."""
        self._headers: Headers = CIMultiDict()
        self._body = bytearray()

    def abort(self) -> None:
        """Give the probe up, whether or not the connection has been made."""
        self.response.cancel()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has all its methods
        self.response.add_done_callback(self._close)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.response.done() or self._parser is None:
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._finish(_invalid("it switches protocols"))
        except httptools.HttpParserError:  # what follows a whole response does not matter
            self._finish(_invalid("malformed"))
        if self._received > MAX_HEAD + (MAX_FRAMING * self._max_body if self._status else 0):
            self._finish(_invalid("too large"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None
        if self.response.done():
            return
        if exc is not None:
            self.response.set_exception(exc)
        elif not self._received:
            self._finish(ProbeFault("protocol", "closed the connection without a response"))
        elif self._status and not ("Content-Length" in self._headers or "Transfer-Encoding" in self._headers):
            self.on_message_complete()  # only the end of the connection ends such a body
        else:
            self._finish(_invalid("cut off"))

    # -- callbacks of llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # later ones are trailers
            text = value.decode("utf-8", "surrogateescape")
            self._headers.add(name.decode("utf-8", "surrogateescape"), text.strip(" \t"))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:  # an interim response
            self._headers.clear()
            return
        self._status = status
        fault = self._check_head(status, self._headers)
        if fault is not None:
            self._finish(fault)
        elif self._bodiless:
            self.on_message_complete()

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > self._max_body:
            size = self._max_body // 1024
            self._finish(ProbeFault("too_large", f"the response is larger than limits.document ({size} KiB)"))

    def on_message_complete(self) -> None:
        if self._status:
            self._finish(ProbeResponse(self._status, self._headers, bytes(self._body)))

    # -- the end

    def _finish(self, result: ProbeResponse | ProbeFault) -> None:
        """Set the result of the connection. Only the first one counts."""
        if not self.response.done():
            self.response.set_result(result)

    def _close(self, response: asyncio.Future[ProbeResponse | ProbeFault]) -> None:
        if response.cancelled():
            self._transport.abort()
        else:
            self._transport.close()


def _invalid(reason: str) -> ProbeFault:
    return ProbeFault("protocol", f"sent no valid HTTP response: {reason}")
