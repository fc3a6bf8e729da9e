"""Layouts: heads with one sequence of field names, read in one step.

A layout is one regular expression, made from a head that the strict reader and llhttp have accepted. Its
field names are literal, and so are the values of `Connection`, `Transfer-Encoding` and `Expect`; all other
values are as strict as the grammar. One match checks a whole head, and cuts out what matters and the runs of
fields that pass on. A layout accepts nothing that the strict reader refuses, and gives the same value
(tests/dataplane compares the two). `head_readers` decides which layouts are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, final

from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    HEAD_END,
    HOST,
    MAX_LENGTH_DIGITS,
    NO_BODY,
    OWS,
    TEXT,
    UNTIL_CLOSE,
    connection_options,
    is_loop,
    listed_fields,
)
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import KNOWN_METHODS, ORIGIN_LINE, RequestHead
from gateway.dataplane.http1.response_head import (
    BODILESS,
    MAX_RESPONSE_HEAD,
    ResponseHead,
    is_request_id_name,
    read_status_line,
)
from gateway.errors import FramingError
from gateway.telemetry.trace_context import PARENT, TRACEPARENT, TRACESTATE

MAX_LAYOUT_FIELDS: Final = 64
MAX_LAYOUT_SIZE: Final = 4096
"""Maximum bytes of a layout's regular expression. Its compiled form takes about four times as much."""

# CPython 3.11.2 reads some possessive groups wrongly, so only single characters are possessive here.
_BLANKS: Final = rb"[ \t]*+"
_VALUE: Final = _BLANKS + b"(" + TEXT + rb")(?<![ \t])"
"""Pattern of a field value without the blanks around it. A blank at its end is for the strict reader."""
_HOST: Final = _BLANKS + b"(" + HOST.pattern + b")" + _BLANKS
_LENGTH: Final = _BLANKS + rb"([0-9]{1,%d})" % MAX_LENGTH_DIGITS + _BLANKS
_LITERAL: Final = frozenset({names.CONNECTION, names.CODING, names.EXPECT})
"""Kinds of fields whose value is a literal part of a layout."""

_Groups: TypeAlias = tuple[bytes, ...]
_Cut: TypeAlias = Callable[[_Groups], tuple[bytes, ...]]
"""Function that takes at least two groups out of all groups of a layout's match."""


class _Ids(NamedTuple):
    """An id field that passes on and is also cut out of the head, for those who read ids."""

    is_name: Callable[[bytes], bool]
    """Whether a field name, in lower case, is that of an id."""
    value: bytes
    """Pattern of the id field's value, with one group."""


_TRACE: Final = _Ids(TRACEPARENT.__eq__, _BLANKS + b"(" + PARENT + b")" + _BLANKS)
_RESPONSE_ID: Final = _Ids(is_request_id_name, _VALUE)


@final
class _Expression:
    """The regular expression of a layout in the making, and its groups, counted from 0."""

    def __init__(self, start: bytes, groups: int, ids: _Ids) -> None:
        self._ids = ids
        self.runs: list[int] = []
        """Numbers of a layout's groups with field lines that pass on."""
        self.passed: set[bytes] = set()
        """Names of a layout's fields that pass on, in lower case."""
        self.values: dict[int, list[int]] = {}
        """Numbers of a layout's groups with field values, by kind of field."""
        self.names: dict[int, list[bytes]] = {}
        """Names of a layout's fields whose values are groups, by kind of field."""
        self.literals: dict[int, list[bytes]] = {}
        """Values of a layout's literal fields, by kind of field."""
        self.id = -1
        """Number of the group with a request's trace context, or a response's request id; -1: none."""
        self._parts = [start]
        self._groups = groups
        self._run = b""

    def add(self, name: bytes, value: bytes, kind: int) -> None:
        """Add the next field line of a head to the expression. `value`: as it came."""
        line = rb"\r\n" + re.escape(name) + b":"
        if kind == names.PASSED:
            self._run += line + TEXT
            self.passed.add(name.lower())
            return
        self._end_run()
        if kind in _LITERAL:
            self._parts.append(line + re.escape(value))
            self.literals.setdefault(kind, []).append(value.strip(OWS))
        elif kind == names.DROP:
            self._parts.append(line + TEXT)
        else:
            pattern = _HOST if kind == names.HOST else _LENGTH if kind == names.LENGTH else _VALUE
            self._add_value(kind, name, line + pattern)

    def is_id(self, name: bytes) -> bool:
        """Whether a field that passes on is the first with an id (`name` in lower case)."""
        return self.id < 0 and self._ids.is_name(name)

    def add_id(self, name: bytes) -> None:
        """Add a field line with an id to the expression. It passes on: its value is a group inside a run."""
        self._run += rb"\r\n" + re.escape(name) + b":" + self._ids.value
        self.id = self._groups + 1  # the run itself is the group before

    def _add_value(self, kind: int, name: bytes, pattern: bytes) -> None:
        self._parts.append(pattern)
        self.values.setdefault(kind, []).append(self._groups)
        self.names.setdefault(kind, []).append(name)
        self._groups += 1

    def _end_run(self) -> None:
        if self._run:
            self._parts.append(b"(" + self._run + b")")
            self.runs.append(self._groups)
            self._groups += 2 if self.id > self._groups else 1
            self._run = b""

    def compile(self) -> Callable[[bytes], re.Match[bytes] | None] | None:
        """Match function of the layout's finished regular expression; None: it is too large."""
        self._end_run()
        source = b"".join(self._parts) + HEAD_END
        return re.compile(source).match if len(source) <= MAX_LAYOUT_SIZE else None

    def value_of(self, kind: int) -> int:
        """Number of the layout's group with the value of the only field of this kind; -1: there is none."""
        return self.values.get(kind, [-1])[0]

    def selected(self) -> tuple[tuple[bytes, ...], _Cut | None]:
        """The names of the selected fields, and what takes name, value, name, value out of all groups and
        these names behind them; None: there are none. A name is the same object for every head, so that its
        hash, by which a decision is found again, is computed once."""
        written, values = tuple(self.names.get(names.SELECTED, ())), self.values.get(names.SELECTED, [])
        found = [place for at, value in enumerate(values) for place in (at - len(values), value)]
        return written, itemgetter(*found) if found else None

    def normalized(self, kind: int) -> tuple[tuple[str, bytes, int], ...]:
        """Normalized name, name and number of the value's group, for each field of this kind in a layout."""
        pairs = zip(self.names.get(kind, ()), self.values.get(kind, ()), strict=True)
        return tuple((name.decode().lower(), name, group) for name, group in pairs)


def _passthrough(runs: list[int]) -> tuple[int, _Cut | None]:
    """Number of the group with all fields to forward, or function for several groups; (-1, None): none."""
    if len(runs) == 1:
        return runs[0], None
    return -1, itemgetter(*runs) if runs else None


@final
class RequestLayout:
    """Reads the request heads of one layout."""

    def __init__(
        self, match: Callable[[bytes], re.Match[bytes] | None], found: _Expression, signature: int
    ) -> None:
        self._match = match
        self.signature = signature
        """Signature by which heads of this layout were counted before it was made."""
        self.uses = 0
        """Use count of this layout, halved now and then."""
        options = connection_options(found.literals.get(names.CONNECTION, ()))
        self._closes = "close" in options
        self._keeps = "keep-alive" in options
        self._expects = any(found.literals.get(names.EXPECT, ()))
        self._chunked = names.CODING in found.literals
        self._host = found.value_of(names.HOST)
        self._length = found.value_of(names.LENGTH)
        self._has_content = self._chunked or self._length >= 0
        self._run, self._runs = _passthrough(found.runs)
        self._names, self._selected = found.selected()
        self._request_ids = found.normalized(names.REQUEST_ID)
        self._trace = found.id
        self._identified = bool(self._request_ids) or self._trace >= 0
        self._forwarded = found.normalized(names.FORWARDED)
        self._via = tuple(found.values.get(names.VIA, ()))
        self._proxied = bool(self._forwarded or self._via)

    def read(self, data: bytes, max_size: int) -> RequestHead | None:
        """Read the request head at the start of `data`; None: it has another layout, more than `max_size`
        bytes, or is for the strict reader. Raises `FramingError` for a target that is refused."""
        match = self._match(data)
        if match is None:
            return None
        groups: _Groups = match.groups()
        method, size = KNOWN_METHODS.get(groups[0]), match.end()
        if method is None or size > max_size:
            return None
        head = RequestHead()  # without arguments, which would double its cost
        head.method = method
        head.size = size
        head.host = groups[self._host].decode()
        if groups[2] == b"1":
            head.minor, head.close = 1, self._closes
        else:
            head.minor, head.close = 0, not self._keeps
        head.framing, head.length, head.expects_continue = NO_BODY, 0, False
        head.selected = () if self._selected is None else self._selected(groups + self._names)
        if self._runs is not None:
            head.passthrough = b"".join(self._runs(groups))
        else:
            head.passthrough = groups[self._run] if self._run >= 0 else b""
        head.request_ids = head.forwarded = head.via = head.max_forwards = head.upgrade = ()
        head.trace = b""
        if self._identified:
            self._set_ids(head, groups)
        if (self._has_content and not self._set_framing(head, groups)) or (
            self._proxied and not self._set_hops(head, groups)
        ):
            return None
        head.set_origin_target(groups[1])
        return head

    def _set_ids(self, head: RequestHead, groups: _Groups) -> None:
        if self._trace >= 0:
            head.trace = groups[self._trace]
        ids = self._request_ids
        if len(ids) == 1:
            normalized, name, group = ids[0]
            head.request_ids = ((normalized, name, groups[group]),)
        else:
            head.request_ids = tuple([(norm, name, groups[group]) for norm, name, group in ids])

    def _set_framing(self, head: RequestHead, groups: _Groups) -> bool:
        """Set how the request's content ends; False: the head is for the strict reader."""
        if self._chunked:
            head.framing, head.length = CHUNKED, -1
        elif self._length >= 0:
            head.length = int(groups[self._length])
            head.framing = BY_LENGTH if head.length else NO_BODY
        head.expects_continue = self._expects and head.minor == 1 and head.framing != NO_BODY
        return not self._chunked or head.minor == 1

    def _set_hops(self, head: RequestHead, groups: _Groups) -> bool:
        """Set the fields that proxies in front have written; False: the head is for the strict reader."""
        head.forwarded = tuple([(norm, groups[group]) for norm, _, group in self._forwarded])
        head.via = tuple([groups[group] for group in self._via])
        return not is_loop(head.via)


@final
class ResponseLayout:
    """Reads the response heads of one layout. The status line is part of it."""

    def __init__(
        self,
        match: Callable[[bytes], re.Match[bytes] | None],
        found: _Expression,
        status_line: bytes,
        signature: int,
    ) -> None:
        self._match = match
        self.signature = signature
        """Signature by which heads of this layout were counted before it was made."""
        self.uses = 0
        """Use count of this layout, halved now and then."""
        self._status, self._line, minor = read_status_line(status_line)
        options = connection_options(found.literals.get(names.CONNECTION, ()))
        self._close = "close" in options or (minor == 0 and "keep-alive" not in options)
        self._length = found.value_of(names.LENGTH)
        if self._status in BODILESS:
            self._framing = NO_BODY
        elif self._length >= 0:
            self._framing = BY_LENGTH
        else:
            self._framing = CHUNKED if names.CODING in found.literals else UNTIL_CLOSE
        self._run, self._runs = _passthrough(found.runs)
        self._has_date = b"date" in found.passed
        self._request_id = found.id
        self._names, self._selected = found.selected()
        self._location = found.normalized(names.LOCATION)

    def read(self, data: bytes, is_head_request: bool) -> ResponseHead | None:  # noqa: FBT001 - hot path
        """Read the response head at the beginning of `data`; None: it has another layout."""
        match = self._match(data)
        if match is None:
            return None
        size = match.end()
        if size > MAX_RESPONSE_HEAD:
            return None
        groups: _Groups = match.groups()
        head = ResponseHead()  # without arguments, which would double its cost
        head.status, head.line, head.size = self._status, self._line, size
        head.close, head.has_date = self._close, self._has_date
        head.length = int(groups[self._length]) if self._length >= 0 else -1
        framing = self._framing
        if is_head_request or (framing == BY_LENGTH and not head.length):
            framing = NO_BODY
        elif framing == UNTIL_CLOSE:
            head.close = True
        head.framing = framing
        head.selected = () if self._selected is None else self._selected(groups + self._names)
        if self._runs is not None:
            head.passthrough = b"".join(self._runs(groups))
        else:
            head.passthrough = groups[self._run] if self._run >= 0 else b""
        head.request_id = groups[self._request_id] if self._request_id >= 0 else b""
        links = self._location
        head.location = tuple([(name, groups[group]) for _, name, group in links]) if links else ()
        return head


def request_layout(head: bytes, table: NameTable, signature: int) -> RequestLayout | None:
    """Layout of a request head that the strict reader has accepted; None: heads with these names have none.
    This head itself need not match: a blank at the end of one of its values must not keep others from their
    layout. Our own grammar has accepted all its names."""
    found = _Expression(ORIGIN_LINE, 3, _TRACE)
    if not _add_lines(found, head, table) or not found.values.get(names.HOST):
        return None
    if table.reads_ids and (TRACEPARENT in found.passed or (found.id < 0 and TRACESTATE in found.passed)):
        return None  # a second trace context, or half of one: the strict reader handles it
    match = found.compile()
    return RequestLayout(match, found, signature) if match is not None else None


def response_layout(head: bytes, table: NameTable, signature: int) -> ResponseLayout | None:
    """Layout of a response head that the strict reader has accepted; None: such heads have none."""
    end = head.find(b"\r")
    status_line = head[:end]
    found = _Expression(re.escape(status_line), 0, _RESPONSE_ID)
    if status_line[9:10] == b"1" or not _add_lines(found, head, table):
        return None  # interim responses are rare, and have rules of their own
    match = found.compile()
    return ResponseLayout(match, found, status_line, signature) if match is not None else None


def _add_lines(found: _Expression, head: bytes, table: NameTable) -> bool:
    """Add the field lines of a head to the expression; False: such a head has no layout."""
    lines = head[: -len(HEAD_END)].split(b"\r\n")[1:]
    if len(lines) > MAX_LAYOUT_FIELDS:
        return False
    for line in lines:
        name, _, value = line.partition(b":")
        kind = table.kind(name)
        if kind in {names.MAX_FORWARDS, names.UPGRADE}:
            return False
        if table.reads_ids and kind == names.PASSED and found.is_id(name.lower()):
            found.add_id(name)
        else:
            found.add(name, value, kind)
    options = connection_options(found.literals.get(names.CONNECTION, ()))
    try:
        return not listed_fields(options, table)  # those that are listed would have to be removed
    except FramingError:
        return False
