"""Readers of heads: each uses a layout if there is one, else the strict reader, with the same result.

One reader serves all connections of a worker that read heads with the same table of names. It makes a layout
when a sequence of names comes for the second time. Peers choose these sequences, and a layout takes about a
millisecond to make, so their number and the rate of making them are bounded; the least used goes first.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar, final

from gateway.core.fleet.limits import Limits
from gateway.dataplane.http1.layouts import (
    RequestLayout,
    ResponseLayout,
    request_layout,
    response_layout,
)
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.dataplane.http1.response_head import ResponseHead, read_response_head

MAX_LAYOUTS: Final = 256
"""Maximum head layouts of one reader. A fleet has few kinds of servers, its clients some dozen libraries."""
MAX_LAYOUTS_OF_A_KEY: Final = 16
"""Maximum head layouts that are tried for one head: each costs up to a microsecond."""
MAX_NEW_LAYOUTS: Final = 16
"""Maximum layouts of heads made one after the other, after a pause. The largest take 3 ms each."""
NEW_LAYOUTS_A_TICK: Final = 2
"""Layouts that may be made for every tick of the worker's clock: 8 a second take 1 to 3 % of a core."""
MAX_LAYOUT_SOURCE: Final = 8 * 1024
"""Maximum bytes of a head from which a layout is made."""
_MAX_SIGNATURES: Final = 1024
_SIGNATURE: Final = re.compile(
    rb"\AHTTP/1[^\r]*|\r\n(?:(?:connection|transfer-encoding|expect):[^\r]*|[^:\r]+)", re.IGNORECASE
)
"""Pattern of what determines the layout of a head: status line, names, and the literal values."""


@final
class LayoutBudget:
    """Number of layouts of heads that may be made now. Requests and responses have separate budgets."""

    def __init__(self) -> None:
        self._left = MAX_NEW_LAYOUTS

    def take(self) -> bool:
        """Whether another head layout may be made; counts it."""
        if not self._left:
            return False
        self._left -= 1
        return True

    def refill(self) -> None:
        """Refill the budget by the layouts of another tick."""
        self._left = min(self._left + NEW_LAYOUTS_A_TICK, MAX_NEW_LAYOUTS)


@final
class Signatures:
    """Sequences of field names that came before and have no layout yet. Bounded, since peers choose them."""

    def __init__(self, budget: LayoutBudget) -> None:
        self._budget = budget
        self._seen: set[int] = set()
        self._made: set[int] = set()

    def of(self, head: bytes) -> int:
        """Signature (a hash for its layout) of a head whose layout is to be made now; else 0."""
        signature = hash(tuple(_SIGNATURE.findall(head)))
        if signature in self._made:
            return 0
        if signature not in self._seen:
            if len(self._seen) >= _MAX_SIGNATURES:
                self._seen.clear()
            self._seen.add(signature)
            return 0
        if not self._budget.take():
            return 0
        if len(self._made) >= _MAX_SIGNATURES:
            self._made.clear()
        self._made.add(signature)
        return signature

    def forget(self, signature: int) -> None:
        """Allow another layout for heads with this signature: theirs was given up."""
        self._made.discard(signature)


_Key = TypeVar("_Key")
_Layout = TypeVar("_Layout", bound="RequestLayout | ResponseLayout")


@final
class LayoutTable(Generic[_Key, _Layout]):
    """Head layouts of one reader, by what can be seen of a head before it is read."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self.by_key: dict[_Key, list[_Layout]] = {}
        """Head layouts in the order in which they are tried: about the most used first."""

    def add(self, key: _Key, layout: _Layout) -> None:
        """Add a head layout, replacing the least used one if there is no room."""
        layouts = self.by_key.get(key, [])
        if len(layouts) >= MAX_LAYOUTS_OF_A_KEY:
            self._remove_one(layouts)
        elif sum(map(len, self.by_key.values())) >= MAX_LAYOUTS:
            self._remove_one([each for some in self.by_key.values() for each in some])
        self.by_key.setdefault(key, []).append(layout)

    def _remove_one(self, candidates: list[_Layout]) -> None:
        """Remove the least used of `candidates`, and halve the use counts of the others."""
        least = min(candidates, key=lambda layout: layout.uses)
        for key, layouts in list(self.by_key.items()):
            if least in layouts:
                layouts.remove(least)
                if not layouts:
                    del self.by_key[key]
        self._signatures.forget(least.signature)
        for layout in candidates:
            layout.uses //= 2

    def move_up(self, layouts: list[_Layout], place: int) -> None:
        """Move the head layout at `place` (not 0) forward if it is used more than the one before."""
        layout, before = layouts[place], layouts[place - 1]
        if layout.uses > before.uses:
            layouts[place], layouts[place - 1] = before, layout


@final
class RequestReader:
    """Reads request heads. The layout that fit last is tried first, then those with the number of lines."""

    __slots__ = ("_by_key", "_last", "_layouts", "_limits", "_max_size", "_signatures", "table")

    def __init__(self, table: NameTable, limits: Limits, budget: LayoutBudget) -> None:
        self.table = table
        self._limits = limits
        self._max_size = limits.line
        self._signatures = Signatures(budget)
        self._layouts: LayoutTable[int, RequestLayout] = LayoutTable(self._signatures)
        self._by_key = self._layouts.by_key
        self._last: RequestLayout | None = None

    def read_known(self, data: bytes) -> RequestHead | None:
        """Read the head at the beginning of `data` by a layout; None: it is incomplete, or is for `read`. A
        head that is longer than a line may be is for the strict reader, so no line has to be measured. Of
        longer pipelined requests each head is cut first. Raises `FramingError`."""
        max_size = self._max_size
        if len(data) > max_size:  # many requests, or a body: what is counted must be one head
            return None
        last = self._last
        if last is not None:
            head = last.read(data, max_size)
            if head is not None:
                last.uses += 1
                return head
        layouts = self._by_key.get(data.count(b"\r\n"))
        if layouts is None:
            return None
        for place, layout in enumerate(layouts):
            head = layout.read(data, max_size)
            if head is not None:
                layout.uses += 1
                self._last = layout
                if place:
                    self._layouts.move_up(layouts, place)
                return head
        return None

    def read(self, head: bytes) -> RequestHead:
        """Read a whole request head with its empty line. Raises `FramingError` with the status to respond."""
        request = self.read_known(head)
        if request is None:
            request = read_request_head(head, self.table, self._limits)
            if len(head) <= MAX_LAYOUT_SOURCE and (signature := self._signatures.of(head)):
                layout = request_layout(head, self.table, signature)
                if layout is not None:  # else no head with these names has one
                    self._layouts.add(head.count(b"\r\n"), layout)
                    self._last = layout  # the one before may have been removed
        return request


@final
class ResponseReader:
    """Reads response heads. The layout that fit last is tried first, then those with the status line."""

    __slots__ = ("_by_key", "_last", "_layouts", "_signatures", "table")

    def __init__(self, table: NameTable, budget: LayoutBudget) -> None:
        self.table = table
        self._signatures = Signatures(budget)
        self._layouts: LayoutTable[bytes, ResponseLayout] = LayoutTable(self._signatures)
        self._by_key = self._layouts.by_key
        self._last: ResponseLayout | None = None

    def read_known(self, data: bytes, is_head_request: bool) -> ResponseHead | None:  # noqa: FBT001 - hot path
        """Read the response head at the start of `data` by a layout; None: incomplete, or for `read`."""
        last = self._last
        if last is not None:
            head = last.read(data, is_head_request)
            if head is not None:
                last.uses += 1
                return head
        end = data.find(b"\r")
        layouts = self._by_key.get(data[:end])
        if layouts is None:
            return None
        for place, layout in enumerate(layouts):
            head = layout.read(data, is_head_request)
            if head is not None:
                layout.uses += 1
                self._last = layout
                if place:
                    self._layouts.move_up(layouts, place)
                return head
        return None

    def read(self, head: bytes, *, is_head_request: bool) -> ResponseHead:
        """Read a whole response head, its empty line included. Raises `FramingError`."""
        response = read_response_head(head, self.table, is_head_request=is_head_request)
        if len(head) <= MAX_LAYOUT_SOURCE and (signature := self._signatures.of(head)):
            layout = response_layout(head, self.table, signature)
            if layout is None:
                return response  # no head with these names has one
            if layout.read(head, is_head_request) is not None:
                end = head.find(b"\r")
                self._layouts.add(head[:end], layout)
                self._last = layout  # the one before may have been removed
            else:  # only llhttp has accepted these lines; another head with these names may match
                self._signatures.forget(signature)
        return response
