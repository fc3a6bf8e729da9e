"""The usage counter of one process: which client has asked for which version of which operation.

    decision  ->  UsageSubtotal, by all but the path  ->  operations  ->  rows  ->  report: UsageReport

A request costs the append of its path. Operations are found for many paths together: in a tick of the worker
where many wait, else for the next report. That has all requests from before it was asked for, and counts
subtotal by subtotal, in parts between which others are forwarded. A client without a name counts under the
product of its User-Agent once a request of that product has got a response below 400: whoever invents
products without being served stays in `OTHER`. Nothing is dropped without a `Gap`. The bounds here keep a
process small; those of the record are the database's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias, final

from gateway.core.clients import product_of
from gateway.core.days import DAY
from gateway.core.decision.decision import EXECUTED, NegotiationResult, Resolution
from gateway.core.http.message import SAFE_METHODS
from gateway.core.usage.operations import count_paths, operation_of
from gateway.core.usage.record import NO_PRODUCT, OTHER, Count, Gap, RowKey, Scope, UsageReport
from gateway.runtime.parts import in_parts
from gateway.telemetry.request_record import RequestRecord

DENIED: Final = "denied"
"""Result of requests that an access list has refused."""
MAX_ROWS: Final = 20_000
"""Rows between two reports, some 10 MB. Further ones have no operation, twice as many have no client."""
MAX_PRODUCTS: Final = 1_000
"""Products of one service that get rows of their own on one day."""
MANY_PATHS: Final = 64
"""Paths of one subtotal that become one text, while they are in the processor's caches."""
MANY_TEXTS: Final = 16
"""Texts of one subtotal that do not wait for the next report. A tick has cold caches: to find the operation
of one path costs it nearly as much as that of a hundred."""
MAX_LINE: Final = 2_048
"""Bytes of a `User-Agent` that are read, and of a line by which a subtotal is found again."""

_MAX_KNOWN: Final = 64
_MAX_KNOWN_SIZE: Final = 256
_ERRORS: Final = 400
_AGENT: Final = b"\r\nuser-agent:"
_VERSIONED: Final = EXECUTED | {NegotiationResult.UNAVAILABLE, NegotiationResult.BROWNOUT}
_Key: TypeAlias = tuple[Resolution, bytes, str, str, str, str]
"""Resolution, User-Agent, client's name, method, result if it is not that of the resolution, address."""

_log = logging.getLogger("skewgate.usage")


@final
class UsageSubtotal:
    """Requests that differ in nothing but their paths, whose operations are not found yet."""

    __slots__ = (
        *("addresses", "began", "begins", "client_name", "ends", "line", "method", "path", "paths"),
        *("product", "repeats", "resolution", "row", "rows", "service", "texts"),
    )

    def __init__(self, key: _Key, row: RowKey, product: str, began: float) -> None:
        self.resolution: Resolution | None = key[0]
        """Resolution of the requests; None: the subtotal is closed, and further requests count elsewhere."""
        self.service = key[0].view.service
        self.client_name, self.method = key[2], key[3]
        self.addresses = (key[5],) if key[5] else ()
        self.row = row
        """Row of the requests, but for the operation."""
        self.product = product
        """Product that gets a row of its own with the first response below 400; empty: nothing changes."""
        self.began = began
        self.path, self.repeats = "", 0
        """A path that came often, and how many requests with it wait: a number costs less than paths."""
        self.paths: list[str] = []
        """The other paths of requests that wait."""
        self.texts: list[str] = []
        """More such paths, `MANY_PATHS` in each, with a line end between them."""
        self.rows: dict[str, RowKey] = {}
        """Rows of paths that came before. A bounded table: clients choose paths."""
        self.line, self.begins, self.ends = b"-", 0, 0
        """The line of the last request's User-Agent, and its place. At first no request can have it."""

    @property
    def waits(self) -> bool:
        """Whether requests wait whose operations are not found yet."""
        return bool(self.paths or self.texts or self.repeats)

    def count(self, path: str) -> None:
        """Count a request. Its operation is found later."""
        if path == self.path:
            self.repeats += 1
            return
        self.paths.append(path)
        if len(self.paths) >= MANY_PATHS:  # as one text they need a third of the memory
            self.texts.append("\n".join(self.paths))
            self.paths.clear()

    def row_of(self, path: str) -> RowKey:
        """Row of requests with a path, as `count_paths` has it."""
        row = self.rows.get(path)
        if row is None:
            row = self.row._replace(operation=operation_of(self.service, self.method, path))
            if len(path) <= _MAX_KNOWN_SIZE:
                if len(self.rows) >= _MAX_KNOWN:
                    self.rows.clear()
                self.rows[path] = row
        return row


@final
class UsageCounter:
    """Counter of the usage in one process. `incarnation`: an id that no other process has or had. `clock`:
    Unix time in seconds. `addresses`: whether rows have addresses of clients. `max_rows`: of a report that
    tells everything apart."""

    __slots__ = (
        *("_accepted", "_addresses", "_clock", "_gaps", "_incarnation", "_max_rows", "_now"),
        *("_rows", "_sequence", "_subtotals", "last"),
    )

    def __init__(
        self,
        incarnation: str,
        clock: Callable[[], float],
        *,
        addresses: bool = False,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self._max_rows = max_rows
        self._incarnation = incarnation
        self._clock = clock
        self._addresses = addresses
        self._now = float(int(clock()))
        """Time of the last tick: that of all requests up to the next one."""
        self._sequence = 0
        self._subtotals: dict[_Key, UsageSubtotal] = {}
        self.last: dict[Resolution, UsageSubtotal] = {}
        """Subtotal of the last request of each resolution that is found again by its line."""
        self._rows: dict[tuple[int, RowKey], Count] = {}
        self._gaps: dict[Gap, None] = {}
        self._accepted: dict[str, set[str]] = {}
        """Products that have rows of their own today, by service."""

    def find(
        self, resolution: Resolution, record: RequestRecord, fields: bytes, method: str, result: str = ""
    ) -> UsageSubtotal:
        """Find or make the subtotal of a request. `result`: if it is not that of the resolution."""
        begins = fields.lower().find(_AGENT)
        if begins < 0:
            begins, line, agent = 0, fields, b""
        else:
            end = fields.find(b"\r\n", begins + 2)
            line = fields[begins:] if end < 0 else fields[begins : end + 2]
            agent = line[len(_AGENT) :][:MAX_LINE].rstrip(b"\r\n")
        address = record.client if self._addresses else ""
        key = (resolution, agent, record.client_name, method, result, address)
        subtotal = self._subtotals.get(key)
        if subtotal is None:
            subtotal = self._subtotals[key] = self._new(key)
        if not (result or address or subtotal.product) and len(line) <= MAX_LINE:
            # Two bytes more behind a value at the end of the head: a longer one must not be equal.
            ends = begins + len(line) + (0 if line.endswith(b"\r\n") else 2)
            subtotal.line, subtotal.begins, subtotal.ends = line, begins, ends
            subtotal.client_name, subtotal.method = record.client_name, method
            self.last[resolution] = subtotal
        return subtotal

    def _new(self, key: _Key) -> UsageSubtotal:
        resolution, agent, name, method, result, _ = key
        requested, found = resolution.requested, resolution.result
        if found is None and resolution.endpoint.negotiated:
            found = NegotiationResult.UNAVAILABLE  # in maintenance no version is read
        version = None if requested is None else requested.version
        client, product = name or product_of(agent), ""
        if not name and client != NO_PRODUCT and client not in self._accepted.get(resolution.service, ()):
            client, product = OTHER, client
        row = RowKey(
            service=resolution.service,
            client=client,
            named=bool(name),
            requested="" if requested is None else requested.kind.value,
            asked="" if version is None else resolution.view.service.dialect.scheme.format(version),
            result=result or ("" if found is None else found.value),
            version="" if result or found not in _VERSIONED else resolution.version_text,
            endpoint=resolution.endpoint.name,
            signed=requested is not None and requested.signed,
            safe=method in SAFE_METHODS,
            operation="",
        )
        return UsageSubtotal(key, row, product, self._now)

    def take_back(self, subtotal: UsageSubtotal, path: str) -> None:
        """Take a request out of its subtotal again, because it was decided anew."""
        self._add(subtotal, f"{path}\n", -1)

    def prove(self, subtotal: UsageSubtotal, status: int, path: str) -> None:
        """Move a request of a product to the row of that product, if its response is below 400."""
        accepted, product = self._accepted.setdefault(subtotal.row.service, set()), subtotal.product
        if not 0 < status < _ERRORS:
            return
        if product not in accepted:
            if len(accepted) >= MAX_PRODUCTS:
                self._gap(subtotal, Scope.CLIENTS, f"more than {MAX_PRODUCTS} products on one day")
                return
            accepted.add(product)
            for key, each in list(self._subtotals.items()):
                if each.product == product and each.row.service == subtotal.row.service:
                    self._close(key, each)  # the next requests have a row of their own
        self._add(subtotal, f"{path}\n", 1, client=product)
        self._add(subtotal, f"{path}\n", -1)

    def tick(self) -> None:
        """Find the operations of requests, where many wait, and read the clock."""
        for subtotal in self._subtotals.values():
            if len(subtotal.texts) >= MANY_TEXTS:
                self._count_paths(subtotal)
        now = float(int(self._clock()))
        if now // DAY != self._now // DAY:
            for key, subtotal in list(self._subtotals.items()):
                self._close(key, subtotal)
            self._accepted.clear()
        self._now = now

    async def report(self) -> UsageReport | None:
        """Take what was counted since the last report, and close idle subtotals; None: nothing. Requests that
        come meanwhile may be left for the next report."""
        for part in in_parts(self._subtotals.items()):
            for key, subtotal in part:
                if subtotal.waits:
                    self._count_paths(subtotal)
                elif subtotal.resolution is not None:  # else it was closed between two parts
                    self._close(key, subtotal)
            await asyncio.sleep(0)
        rows, gaps, self._rows, self._gaps = self._rows, tuple(self._gaps), {}, {}
        for moved in [moved for moved, count in rows.items() if not count.requests]:
            del rows[moved]  # its requests have moved
        if not rows and not gaps:
            return None
        self._sequence += 1
        return UsageReport(self._incarnation, self._sequence, rows, gaps)

    def _count_paths(self, subtotal: UsageSubtotal) -> None:
        texts, repeats = [*subtotal.texts, *subtotal.paths], subtotal.repeats
        subtotal.texts, subtotal.paths, subtotal.repeats = [], [], 0
        try:
            if repeats:
                self._add(subtotal, f"{subtotal.path}\n", repeats)
            if texts:
                text = "\n".join(texts) + "\n"
                self._add(subtotal, text, 1)
                path = texts[-1].rpartition("\n")[2]
                if text.startswith(f"{path}\n"):  # first and last, so it comes often
                    subtotal.path = path
        except Exception:  # noqa: BLE001 - no bug in here may end the worker's tick
            _log.exception("requests of %s are missing in the record of usage", subtotal.row.service)
            self._gap(subtotal, Scope.ALL, "a bug in the gateway: requests could not be counted")

    def _close(self, key: _Key, subtotal: UsageSubtotal) -> None:
        """Close a subtotal, so that further requests count in another one."""
        self._count_paths(subtotal)
        subtotal.resolution = None
        del self._subtotals[key]
        if self.last.get(key[0]) is subtotal:
            del self.last[key[0]]

    def _add(self, subtotal: UsageSubtotal, text: str, times: int, client: str = "") -> None:
        """Add `times` requests with each path of a text. `client`: if it is not that of the subtotal."""
        began = subtotal.began  # all of its requests are of this day
        day = int(began // DAY)
        last = max(began, min(self._now, float((day + 1) * DAY - 1)))
        for path, requests in count_paths(subtotal.service, text).items():
            row = subtotal.row_of(path)
            if client:
                row = row._replace(client=client)
            full = day, row
            if len(self._rows) >= self._max_rows and full not in self._rows:
                full = day, self._folded(subtotal, row)
            count = Count(times * requests, began, last, subtotal.addresses)
            before = self._rows.setdefault(full, count)
            if before is not count:
                self._rows[full] = before.plus(count)

    def _folded(self, subtotal: UsageSubtotal, row: RowKey) -> RowKey:
        """The row with less detail: there are too many others."""
        if len(self._rows) < 2 * self._max_rows:
            self._gap(subtotal, Scope.OPERATIONS, "too many rows between two reports of a worker")
            return row._replace(operation=OTHER)
        self._gap(subtotal, Scope.ALL, "far too many rows between two reports of a worker")
        client, asked = row.client if row.named else OTHER, row.asked and OTHER
        return row._replace(operation=OTHER, client=client, asked=asked)

    def _gap(self, subtotal: UsageSubtotal, scope: Scope, reason: str) -> None:
        self._gaps[Gap(int(subtotal.began // DAY), subtotal.row.service, scope, reason)] = None
