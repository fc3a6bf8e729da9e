"""One worker of the data plane between a client and a backend that keeps what arrives, all on loopback.

Cases run one after another, so what the gateway recorded and forwarded belongs to the case without doubt. The
backend answers as real servers do: it says that it served the version that it was sent. What the gateway
learns from responses is not fed back, so a case never depends on another one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Final, NamedTuple, final

from gateway.core.decision.decision import NegotiationResult
from gateway.settings import load
from tests.differential.apis import APIS, DOMAIN, Api, Header, Query, configuration
from tests.differential.draft import Case
from tests.kit.clients import ByteClient
from tests.kit.messages import read_raw
from tests.kit.servers import serving
from tests.kit.workers import Gateway, worker_of

_HOST: Final = re.compile(rb"\r\nHost: *([a-z]+)\.%b" % DOMAIN.encode(), re.IGNORECASE)


_AFTER_NEGOTIATION: Final = (NegotiationResult.SERVED, NegotiationResult.UNAVAILABLE, None)


class Result(NamedTuple):
    """What became of a case."""

    case: Case
    response: bytes
    """The head of the response to the client; empty: the connection was closed without one."""
    forwarded: bytes
    """The request as the backend got it; empty: it got none."""
    negotiated: str
    """The version that the gateway logged as negotiated; empty: none was."""


def version_in(api: Api, head: bytes) -> str:
    """The version that the gateway wrote, where servers of this API look first; empty: none."""
    for location in api.locations:
        match location:
            case Header(name, spelling):
                before, _, after = map(re.escape, spelling.partition("{}"))
                found = re.search(rf"\r\n{re.escape(name)}: {before}([^\r\n]*){after}\r\n".encode(), head)
            case Query(name):
                found = re.search(rf"[?&]{re.escape(name)}=([^& ]*)".encode(), head)
            case _:
                continue
        if found is not None:
            return found[1].decode("latin-1")
    return ""


@final
class Testbed:
    """The gateway with its client and its backend."""

    __test__ = False  # pytest: not a class of tests

    def __init__(self) -> None:
        self._case: Case
        self._worker: Gateway
        self._client: ByteClient
        self._received: list[bytes] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Testbed]:
        async with serving(self._serve) as backend:
            services = load(configuration(backend.port), filename="test.yaml", environ={}).require().services
            async with worker_of(*services, learns=False) as self._worker:
                self._client = ByteClient(self._worker.address[1])
                with closing(self._client):
                    yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from the gateway, which sends no request before it has the last answer."""
        while (request := await read_raw(reader)).whole:
            writer.write(self.respond(request.head + request.body, request.head))

    async def run(self, case: Case) -> Result:
        """Send one case through the gateway."""
        self._received.clear()
        self._worker.records.clear()
        self._case = case
        response = (await self._client.exchange(case.raw)).head
        assert len(self._received) <= 1, f"sent twice: {case.raw!r}"
        records = [(record.result, record.version) for record in self._worker.records]
        assert len(records) <= 1, f"recorded twice: {case.raw!r}"
        forwarded = self._received[0] if self._received else b""
        result, version = records[0] if records else (None, "")
        if forwarded:
            assert records, f"forwarded, but not recorded: {case.raw!r}"
            # `unavailable`: the response that came did not satisfy the gateway. The version stands.
            assert result in _AFTER_NEGOTIATION, f"forwarded, but recorded as {result}: {case.raw!r}"
        return Result(case, response, forwarded, version)

    def respond(self, request: bytes, head: bytes) -> bytes:
        """Keep the request, and make the response of a server that served the version in it."""
        self._received.append(request)
        found = _HOST.search(head)
        assert found is not None, head
        api = APIS[found[1].decode().lower()]
        version = version_in(api, head)
        lines = [
            f"{name}: {value.replace('{}', version)}"
            for name, value in api.response.items()
            if version or "{}" not in value
        ]
        lines += self._case.response_lines
        start = ("HTTP/1.1 200 OK", "Content-Type: text/plain", "Content-Length: 2")
        body = b"" if head.startswith(b"HEAD ") else b"ok"
        return "\r\n".join((*start, *lines, "", "")).encode("latin-1") + body
