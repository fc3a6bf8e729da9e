"""The name server of a fault run, in a thread: it stops answering or denies every name when it should.

What it does: it serves addresses by name, and counts the queries during each of its faults, so that a run can
prove that somebody wanted a name meanwhile.

Rules: one fault at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Final, Self

from tests.kit.name_servers import NO_ERROR, NXDOMAIN, SILENT, NameServer, name_server

PORT: Final = 53


class Names:
    """Serves `addresses`. Use it as a context manager."""

    def __init__(self, addresses: Mapping[str, str], host: str, port: int = PORT) -> None:
        self.queries: dict[str, int] = {}
        """The queries that met each fault."""
        self._addresses = addresses
        self._place = (host, port)
        self._started: Future[tuple[NameServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="name-server")

    def __enter__(self) -> Self:
        self._thread.start()
        self._server, self._loop, self._ended = self._started.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    @property
    def port(self) -> int:
        return self._server.port

    @contextlib.contextmanager
    def ignoring(self, fault: str, names: frozenset[str] | None = None) -> Iterator[None]:
        """Inside, queries for these names get no response; None: for all."""
        wanted = frozenset(self._addresses) if names is None else names
        with self._counting(fault, wanted):
            self._server.codes = dict.fromkeys(wanted, SILENT)
            yield

    @contextlib.contextmanager
    def denying(self, fault: str) -> Iterator[None]:
        with self._counting(fault, frozenset(self._addresses)):
            self._server.code = NXDOMAIN
            yield

    def count(self, names: frozenset[str] | None = None) -> int:
        """The queries for these names until now; None: for all."""
        queries = tuple(self._server.queries)
        return sum(names is None or name in names for name, _ in queries)

    @contextlib.contextmanager
    def _counting(self, fault: str, names: frozenset[str]) -> Iterator[None]:
        before = self.count(names)
        try:
            yield
        finally:
            self._server.code, self._server.codes = NO_ERROR, {}
            self.queries[fault] = self.queries.get(fault, 0) + self.count(names) - before

    async def _serve(self) -> None:
        try:
            async with name_server(*self._place) as server:
                server.addresses = {name: (address,) for name, address in self._addresses.items()}
                ended = asyncio.Event()
                self._started.set_result((server, asyncio.get_running_loop(), ended))
                await ended.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
