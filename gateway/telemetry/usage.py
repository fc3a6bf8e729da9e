"""The usage counter of one process: which client has asked for which version of which operation.

    decision  ->  UsageSubtotal, by all but the path  ->  tick: operations  ->  rows  ->  take: UsageReport

A request costs the append of its path. Operations are found for all paths together, in each tick of the
worker. A client without a name counts under the product of its User-Agent, once a request of that product has
got a response below 400: whoever invents products without being served stays in `OTHER`.

Nothing is dropped here without a `Gap`. The bounds of what is kept are the database's; the ones here keep a
process small whose reports nobody takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias, final

from gateway.core.clients import product_of
from gateway.core.decision.decision import NegotiationResult, Resolution
from gateway.core.fleet.service import Service
from gateway.core.usage.operations import count_operations
from gateway.core.usage.record import NO_PRODUCT, OTHER, Count, Gap, RowKey, Scope, UsageReport
from gateway.telemetry.request_record import RequestRecord

DENIED: Final = "denied"
"""Result of requests that an access list has refused."""
DAY: Final = 86_400
MAX_ROWS: Final = 20_000
"""Rows between two reports, some 10 MB: as many as a worker can fill in a second."""
MAX_PRODUCTS: Final = 1_000
"""Products of one service that have got a response below 400 on one day."""
MAX_LINE: Final = 2_048
"""Bytes of a `User-Agent` line by which a subtotal is found again. Others are looked up each time."""

_AGENT: Final = b"\r\nuser-agent:"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_VERSIONED: Final = frozenset({NegotiationResult.SERVED, NegotiationResult.UNAVAILABLE})

_Key: TypeAlias = tuple[Resolution, bytes, str, str, str, str]
"""Resolution, User-Agent, client's name, method, result if it is not that of the resolution, address."""

_log = logging.getLogger("skewgate.usage")


@final
class UsageSubtotal:
    """Paths of requests that differ in nothing else, since the last tick."""

    __slots__ = (
        *("_address", "_begins", "_client_name", "_ends", "_line", "began", "method", "paths"),
        *("product", "resolution", "row", "service"),
    )

    def __init__(self, key: _Key, row: RowKey, product: str, began: float) -> None:
        resolution, _, self._client_name, self.method, _, self._address = key
        self.resolution: Resolution | None = resolution
        """Resolution of the requests; None: the subtotal is closed, and no further request counts here."""
        self.service: Service = resolution.view.service
        self.row = row
        """Row of the requests, but for the operation."""
        self.product = product
        """Product that gets a row of its own with the first response below 400; empty: nothing changes."""
        self.began = began
        """Time of the first request, by the ticks: all of them are of that day."""
        self.paths: list[str] = []
        self._line = b"\r\n"  # what no request has in no bytes
        self._begins = self._ends = 0

    def remember(self, line: bytes, begins: int) -> None:
        """Remember the `User-Agent` line of the last request and its place, to know the next one by it."""
        self._line, self._begins = line, begins
        # Two bytes more behind a value at the end of the head: a longer one must not be equal.
        self._ends = begins + len(line) + (0 if line.endswith(b"\r\n") else 2)

    def has(self, resolution: Resolution, fields: bytes, client_name: str, method: str) -> bool:
        """Whether a request of the same connection counts here."""
        return (
            self.resolution is resolution
            and fields[self._begins : self._ends] == self._line
            and self.method == method
            and self._client_name == client_name
        )

    def count(self, requests: int, first: float, last: float) -> Count:
        return Count(requests, first, last, (self._address,) if self._address else ())


@final
class UsageCounter:
    """Counter of the usage in one process. `incarnation`: an id that no other process has or had. `clock`:
    Unix time in seconds. `addresses`: whether rows have addresses of clients. `max_rows`: rows between two
    reports from which operations of further rows are `OTHER`; from twice as many on, clients and versions are
    as well."""

    __slots__ = (
        *("_accepted", "_addresses", "_clock", "_gaps", "_incarnation", "_max_rows", "_now"),
        *("_rows", "_sequence", "_subtotals"),
    )

    def __init__(
        self,
        incarnation: str,
        clock: Callable[[], float],
        *,
        addresses: bool = False,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self._incarnation = incarnation
        self._clock = clock
        self._addresses = addresses
        self._max_rows = max_rows
        self._now = float(int(clock()))
        """Time of the last tick: that of all requests up to the next one."""
        self._sequence = 0
        self._subtotals: dict[_Key, UsageSubtotal] = {}
        self._rows: dict[tuple[int, RowKey], Count] = {}
        self._gaps: dict[Gap, None] = {}
        self._accepted: dict[str, set[str]] = {}
        """Products that have a row of their own today, by service."""

    # -- on the hot path

    def count(  # noqa: PLR0917 - names cost more than the rest
        self,
        last: UsageSubtotal | None,
        resolution: Resolution,
        record: RequestRecord,
        fields: bytes,
        method: str,
        path: str,
        result: str = "",
    ) -> UsageSubtotal:
        """Count a request that was decided. `last`: the subtotal of the request before on its connection.
        `fields`: its lines with the one of the User-Agent. `path`: as the client sent it. `result`: if it is
        not that of the resolution. Returns the subtotal, for `take_back` and `prove`."""
        if last is None or result or not last.has(resolution, fields, record.client_name, method):
            last = self._find(resolution, record, fields, method, result)
        last.paths.append(path)
        return last

    def _find(
        self, resolution: Resolution, record: RequestRecord, fields: bytes, method: str, result: str
    ) -> UsageSubtotal:
        begins = fields.lower().find(_AGENT)
        if begins < 0:
            begins, line, agent = 0, fields, b""
        else:
            end = fields.find(b"\r\n", begins + 2)
            line = fields[begins:] if end < 0 else fields[begins : end + 2]
            agent = line[len(_AGENT) :].rstrip(b"\r\n")
        address = record.client if self._addresses else ""
        key = (resolution, agent[:MAX_LINE], record.client_name, method, result, address)
        subtotal = self._subtotals.get(key)
        if subtotal is None:
            subtotal = self._subtotals[key] = self._new(key)
        if not result and not address and len(line) <= MAX_LINE:
            subtotal.remember(line, begins)
        return subtotal

    def _new(self, key: _Key) -> UsageSubtotal:
        resolution, agent, name, method, result, _ = key
        requested, scheme = resolution.requested, resolution.view.service.dialect.scheme
        found = resolution.result
        if found is None and resolution.endpoint.negotiated:
            found = NegotiationResult.UNAVAILABLE  # in maintenance no version is read
        client, product = name, ""
        if not name:
            client = product_of(agent)
            if client != NO_PRODUCT and client not in self._accepted.get(resolution.service, ()):
                client, product = OTHER, client
        row = RowKey(
            service=resolution.service,
            client=client,
            named=bool(name),
            requested="" if requested is None else requested.kind.value,
            asked="" if requested is None or requested.version is None else scheme.format(requested.version),
            result=result or ("" if found is None else found.value),
            version="" if result or found not in _VERSIONED else resolution.version_text,
            endpoint=resolution.endpoint.name,
            signed=requested is not None and requested.signed,
            safe=method in _SAFE,
            operation="",
        )
        return UsageSubtotal(key, row, product, self._now)

    def take_back(self, subtotal: UsageSubtotal, path: str) -> None:
        """Take a request out of its subtotal again, because it was decided anew."""
        self._add(subtotal, subtotal.row, path, -1)

    def prove(self, subtotal: UsageSubtotal, path: str) -> None:
        """Move a request of a product to the row of that product: it has got a response below 400."""
        service, product = subtotal.row.service, subtotal.product
        accepted = self._accepted.setdefault(service, set())
        if product not in accepted:
            if len(accepted) >= MAX_PRODUCTS:
                self._gap(subtotal, Scope.CLIENTS, f"more than {MAX_PRODUCTS} products on one day")
                return
            self._count_paths()
            self._close()
            accepted.add(product)
        self._add(subtotal, subtotal.row._replace(client=product), path, 1)
        self._add(subtotal, subtotal.row, path, -1)

    # -- from time to time

    def tick(self) -> None:
        """Find the operations of the requests since the last tick, and read the clock."""
        self._count_paths()
        now = float(int(self._clock()))
        if now // DAY != self._now // DAY:
            self._close()
            self._accepted.clear()
        self._now = now

    def take(self) -> UsageReport | None:
        """Take what was counted since the last report; None: nothing."""
        self.tick()
        rows = {key: count for key, count in self._rows.items() if count.requests}  # 0: they have moved
        gaps, self._rows, self._gaps = tuple(self._gaps), {}, {}
        if not rows and not gaps:
            return None
        self._sequence += 1
        return UsageReport(self._incarnation, self._sequence, rows, gaps)

    def _count_paths(self) -> None:
        for key, subtotal in list(self._subtotals.items()):
            if not subtotal.paths:
                subtotal.resolution = None
                del self._subtotals[key]
                continue
            paths, subtotal.paths = subtotal.paths, []
            try:
                self._add_paths(subtotal, subtotal.row, paths)
            except Exception:  # noqa: BLE001 - no bug in here may end the worker's tick
                _log.exception("requests of %s are missing in the record of usage", subtotal.row.service)
                self._gap(
                    subtotal, Scope.ALL, "requests could not be counted because of a bug in the gateway"
                )

    def _close(self) -> None:
        """Close all subtotals: the next requests count under other keys."""
        for subtotal in self._subtotals.values():
            subtotal.resolution = None
        self._subtotals.clear()

    def _add(self, subtotal: UsageSubtotal, row: RowKey, path: str, requests: int) -> None:
        self._add_paths(subtotal, row, [path], requests)

    def _add_paths(self, subtotal: UsageSubtotal, row: RowKey, paths: list[str], sign: int = 1) -> None:
        day = int(subtotal.began // DAY)
        last = max(subtotal.began, min(self._now, float((day + 1) * DAY - 1)))
        for operation, requests in count_operations(subtotal.service, subtotal.method, paths).items():
            full = day, self._bounded(subtotal, day, row._replace(operation=operation))
            count, before = subtotal.count(sign * requests, subtotal.began, last), self._rows.get(full)
            self._rows[full] = count if before is None else before.plus(count)

    def _bounded(self, subtotal: UsageSubtotal, day: int, row: RowKey) -> RowKey:
        """The row, with less detail if there are too many and it would be another one."""
        if len(self._rows) < self._max_rows or (day, row) in self._rows:
            return row
        if len(self._rows) < 2 * self._max_rows:
            self._gap(subtotal, Scope.OPERATIONS, "too many rows between two reports of a worker")
            return row._replace(operation=OTHER)
        self._gap(subtotal, Scope.ALL, "far too many rows between two reports of a worker")
        client = row.client if row.named else OTHER
        return row._replace(operation=OTHER, client=client, asked=OTHER if row.asked else "")

    def _gap(self, subtotal: UsageSubtotal, scope: Scope, reason: str) -> None:
        self._gaps[Gap(int(subtotal.began // DAY), subtotal.row.service, scope, reason)] = None
