"""Layouts: heads with one sequence of field names, read in one step.

A layout is one pattern, made from a head that the strict reader and llhttp have accepted. Its field names are
literal, and so are the values of `Connection`, `Transfer-Encoding` and `Expect`; all other values are as
strict as the grammar. One match checks a whole head, and cuts out what matters and the runs of fields that
pass on. A layout accepts nothing that the strict reader refuses, and gives the same value (tests/dataplane
compares the two). `head_readers` decides which layouts are made, `matchers` how their patterns are matched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.http.message import normalize_name
from gateway.core.http.patterns import NOTHING, Pattern, group, literal, not_after, span
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    HEAD_END,
    MAX_LENGTH_DIGITS,
    NO_BODY,
    OWS,
    TEXT,
    UNTIL_CLOSE,
    connection_options,
    is_host,
    is_loop,
    listed_fields,
)
from gateway.dataplane.http1.matchers import MatchFunction, match_function
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
MAX_REMEMBERED_HOPS: Final = 512
"""Maximum bytes of the lines of other proxies that one layout remembers."""
MAX_HOSTS: Final = 16
"""Maximum values of `Host` that one layout remembers as valid: clients choose them."""

_Value: TypeAlias = tuple[Pattern, Pattern, Pattern]
"""What is before a field value, the value, and what is after it."""
_BLANK: Final = rb"[ \t]"
_BLANKS: Final = span(_BLANK)
_VALUE: Final[_Value] = _BLANKS, TEXT, not_after(_BLANK)
"""Pattern of a field value. A blank at its end is for the strict reader."""
_HOST: Final[_Value] = _BLANKS, span(rb"[!-~]"), _BLANKS
"""Pattern of what may be a host. `is_host` decides, once for each."""
_LENGTH: Final[_Value] = _BLANKS, span(rb"[0-9]", 1, MAX_LENGTH_DIGITS), _BLANKS
_LITERAL: Final = frozenset({names.CONNECTION, names.CODING, names.EXPECT})
"""Kinds of fields whose value is a literal part of a layout."""
_RUNS: Final = frozenset({names.PASSED, names.HOP})
"""Kinds of fields that are cut out as whole lines, joined."""
_REQUEST_LINE_GROUPS: Final = 3
"""Number of groups in a request line: method, target, minor version."""

MatcherFactory: TypeAlias = Callable[[Pattern, tuple[bytes, ...], tuple[bytes, ...]], MatchFunction]
"""Function that makes the matcher of a layout: `match_function`, or another one in tests."""


class _Ids(NamedTuple):
    """An id field that passes on and is also cut out of the head, for those who read ids."""

    is_name: Callable[[bytes], bool]
    """Whether a field name, in lower case, is that of an id."""
    value: _Value
    """Pattern of the id field's value."""


_TRACE: Final = _Ids(TRACEPARENT.__eq__, (_BLANKS, PARENT, _BLANKS))
_RESPONSE_ID: Final = _Ids(is_request_id_name, _VALUE)


@final
class HeadPattern:
    """The pattern of a layout in the making, its groups, counted from 0, and the values that are cut out."""

    def __init__(self, start: Pattern, groups: int, ids: _Ids) -> None:
        self._ids = ids
        self.passed: set[bytes] = set()
        """Names of a layout's fields that pass on, in lower case."""
        self.listed: set[str] = set()
        """Normalized names of a layout's fields that pass on or are selected."""
        self.values: dict[int, list[int]] = {}
        """Numbers of a layout's groups with field values, by kind of field."""
        self.names: dict[int, list[bytes]] = {}
        """Names of a layout's fields whose values are groups, by kind of field."""
        self.literals: dict[int, list[bytes]] = {}
        """Values of a layout's literal fields, by kind of field."""
        self.id = -1
        """Number of the group with a request's trace context, or a response's request id; -1: none."""
        self.pattern = start
        self.cuts = [bytes([number]) for number in range(groups)]
        """Numbers of the groups that each value of a match is made of. The first values are the groups of the
        start line."""
        self._groups = groups
        self._runs: dict[int, list[int]] = {}
        self._run = NOTHING
        self._run_kind = names.PASSED

    def add(self, name: bytes, value: bytes, kind: int) -> None:
        """Add the next field line of a head to the pattern. `value`: as it came."""
        start = literal(b"\r\n" + name + b":")
        if kind in {names.PASSED, names.SELECTED}:
            self.listed.add(normalize_name(name.decode()))
        if kind in _RUNS:
            self._begin_run(kind)
            self._run += start + TEXT
            if kind == names.PASSED:
                self.passed.add(name.lower())
            return
        self._end_run()
        if kind in _LITERAL:
            self.pattern += start + literal(value)
            self.literals.setdefault(kind, []).append(value.strip(OWS))
        elif kind == names.DROP:
            self.pattern += start + TEXT
        else:
            before, cut, after = _HOST if kind == names.HOST else _LENGTH if kind == names.LENGTH else _VALUE
            self.values.setdefault(kind, []).append(self._groups)
            self.names.setdefault(kind, []).append(name)
            self._add_group(start + before, cut, after)

    def is_id(self, name: bytes) -> bool:
        """Whether a field that passes on is the first with an id (`name` in lower case)."""
        return self.id < 0 and self._ids.is_name(name)

    def add_id(self, name: bytes) -> None:
        """Add a field line with an id to the pattern. It passes on, so its value is a part of a run."""
        self.listed.add(normalize_name(name.decode()))
        before, cut, after = self._ids.value
        self._begin_run(names.PASSED)
        self._run += literal(b"\r\n" + name + b":") + before
        self._end_run()
        self.id = self._groups
        self._run = cut
        self._end_run()
        self._run = after

    def end(self) -> None:
        """Add the end of a head to the pattern."""
        self._end_run()
        self.pattern += literal(HEAD_END)

    def _begin_run(self, kind: int) -> None:
        if kind != self._run_kind:
            self._end_run()
            self._run_kind = kind

    def _end_run(self) -> None:
        if self._run.steps:
            self._runs.setdefault(self._run_kind, []).append(self._groups)
            self._add_group(NOTHING, self._run, NOTHING)
            self._run = NOTHING

    def _add_group(self, before: Pattern, cut: Pattern, after: Pattern) -> None:
        self.pattern += before + group(cut) + after
        self._groups += 1

    def cut(self, *groups: int) -> int:
        """Cut out a value that is made of these groups. Returns its place among the values of a match."""
        self.cuts.append(bytes(groups))
        return len(self.cuts) - 1

    def has(self, kind: int) -> bool:
        """Whether there is such a field whose value or line is cut out."""
        return kind in self.values or kind in self._runs

    def cut_run(self, kind: int) -> int:
        """Cut out the whole lines of this kind of fields. Returns their place among the values of a match."""
        return self.cut(*self._runs.get(kind, ()))

    def cut_id(self) -> int:
        """Cut out the id. Returns its place among the values of a match; -1: there is none."""
        return self.cut(self.id) if self.id >= 0 else -1

    def cut_only(self, kind: int) -> int:
        """Cut out the value of the only field of this kind. Returns its place among the values of a match;
        -1: there is no such field."""
        return self.cut(self.values[kind][0]) if kind in self.values else -1

    def cut_all(self, kind: int) -> tuple[tuple[str, bytes, int], ...]:
        """Cut out the values of this kind. Returns normalized name, name and place of each."""
        pairs = zip(self.names.get(kind, ()), self.values.get(kind, ()), strict=True)
        return tuple((name.decode().lower(), name, self.cut(value)) for name, value in pairs)

    def selected(self) -> tuple[bytes, ...]:
        """Name and number of the group, for each selected field. A name is the same object for every head, so
        that its hash, by which a decision is found again, is computed once."""
        pairs = zip(self.names.get(names.SELECTED, ()), self.values.get(names.SELECTED, ()), strict=True)
        return tuple(part for name, value in pairs for part in (name, bytes([value])))


@final
class RequestLayout:
    """Reads the request heads of one layout."""

    def __init__(self, found: HeadPattern, signature: int, make: MatcherFactory) -> None:
        self.signature = signature
        """Signature by which heads of this layout were counted before it was made."""
        self.uses = 0
        """Use count of this layout, halved now and then."""
        options = connection_options(found.literals.get(names.CONNECTION, ()))
        self._closes = "close" in options
        self._keeps = "keep-alive" in options
        self._expects = any(found.literals.get(names.EXPECT, ()))
        self._chunked = names.CODING in found.literals
        self._hosts: dict[bytes, str] = {}
        found.cut_only(names.HOST)
        found.cut_run(names.PASSED)
        self._length = found.cut_only(names.LENGTH)
        self._has_content = self._chunked or self._length >= 0
        self._request_ids = found.cut_all(names.REQUEST_ID)
        self._trace = found.cut_id()
        self._identified = bool(self._request_ids) or self._trace >= 0
        self._forwarded_for = tuple(place for _, _, place in found.cut_all(names.FORWARDED_FOR))
        self._proxied = found.has(names.FORWARDED_FOR) or found.has(names.HOP)
        self._hops = found.cut_run(names.HOP) if self._proxied else -1
        self._last_hops = b""
        """Lines of other proxies that came last and are no loop."""
        self._names = frozenset(found.listed)
        self._match = make(found.pattern, found.selected(), tuple(found.cuts))

    def read(self, data: bytes, max_size: int) -> RequestHead | None:
        """Read the request head at the start of `data`; None: it has another layout, more than `max_size`
        bytes, or is for the strict reader. Raises `FramingError` for a target that is refused."""
        match = self._match(data)
        if match is None:
            return None
        size, selected, cut = match
        method, host = KNOWN_METHODS.get(cut[0]), self._hosts.get(cut[3])
        if method is None or size > max_size or (host is None and not self._is_new_host(cut[3])):
            return None
        head = RequestHead()  # without arguments, which would double its cost
        head.method = method
        head.size = size
        head.host = host if host is not None else cut[3].decode()
        if cut[2] == b"1":
            head.minor, head.close = 1, self._closes
        else:
            head.minor, head.close = 0, not self._keeps
        head.framing, head.length, head.expects_continue = NO_BODY, 0, False
        head.selected = selected
        head.names, head.passthrough = self._names, cut[4]
        head.request_ids = head.max_forwards = head.upgrade = ()
        head.trace, head.hops, head.forwarded_for = b"", b"", None
        if self._identified:
            self._set_ids(head, cut)
        if (self._has_content and not self._set_framing(head, cut)) or (
            self._proxied and not self._set_hops(head, cut)
        ):
            return None
        head.set_origin_target(cut[1])
        return head

    def _is_new_host(self, text: bytes) -> bool:
        """Whether a `Host` that is not remembered is valid; remembers it then."""
        if not is_host(text):
            return False
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts.clear()
        self._hosts[text] = text.decode()
        return True

    def _set_ids(self, head: RequestHead, cut: tuple[bytes, ...]) -> None:
        if self._trace >= 0:
            head.trace = cut[self._trace]
        ids = self._request_ids
        if len(ids) == 1:
            normalized, name, place = ids[0]
            head.request_ids = ((normalized, name, cut[place]),)
        else:
            head.request_ids = tuple([(norm, name, cut[place]) for norm, name, place in ids])

    def _set_framing(self, head: RequestHead, cut: tuple[bytes, ...]) -> bool:
        """Set how the request's content ends; False: the head is for the strict reader."""
        if self._chunked:
            head.framing, head.length = CHUNKED, -1
        elif self._length >= 0:
            head.length = int(cut[self._length])
            head.framing = BY_LENGTH if head.length else NO_BODY
        head.expects_continue = self._expects and head.minor == 1 and head.framing != NO_BODY
        return not self._chunked or head.minor == 1

    def _set_hops(self, head: RequestHead, cut: tuple[bytes, ...]) -> bool:
        """Set the fields that proxies in front have written; False: the head is for the strict reader."""
        lists, hops = self._forwarded_for, cut[self._hops]
        if len(lists) == 1:
            head.forwarded_for = cut[lists[0]]
        elif lists:
            head.forwarded_for = b", ".join([cut[place] for place in lists])
        if hops != self._last_hops:
            if is_loop(hops):
                return False
            if len(hops) <= MAX_REMEMBERED_HOPS:
                self._last_hops = hops
        head.hops = hops
        return True


@final
class ResponseLayout:
    """Reads the response heads of one layout. The status line is part of it."""

    def __init__(
        self,
        found: HeadPattern,
        status_line: bytes,
        signature: int,
        make: MatcherFactory,
    ) -> None:
        self.signature = signature
        """Signature by which heads of this layout were counted before it was made."""
        self.uses = 0
        """Use count of this layout, halved now and then."""
        self._status, self._line, minor = read_status_line(status_line)
        options = connection_options(found.literals.get(names.CONNECTION, ()))
        self._close = "close" in options or (minor == 0 and "keep-alive" not in options)
        found.cut_run(names.PASSED)
        self._length = found.cut_only(names.LENGTH)
        if self._status in BODILESS:
            self._framing = NO_BODY
        elif self._length >= 0:
            self._framing = BY_LENGTH
        else:
            self._framing = CHUNKED if names.CODING in found.literals else UNTIL_CLOSE
        self._has_date = b"date" in found.passed
        self._request_id = found.cut_id()
        self._location = found.cut_all(names.LOCATION)
        self._match = make(found.pattern, found.selected(), tuple(found.cuts))

    def read(self, data: bytes, is_head_request: bool) -> ResponseHead | None:  # noqa: FBT001 - hot path
        """Read the response head at the beginning of `data`; None: it has another layout."""
        match = self._match(data)
        if match is None:
            return None
        size, selected, cut = match
        if size > MAX_RESPONSE_HEAD:
            return None
        head = ResponseHead()  # without arguments, which would double its cost
        head.status, head.line, head.size = self._status, self._line, size
        head.close, head.has_date = self._close, self._has_date
        head.length = int(cut[self._length]) if self._length >= 0 else -1
        framing = self._framing
        if is_head_request or (framing == BY_LENGTH and not head.length):
            framing = NO_BODY
        elif framing == UNTIL_CLOSE:
            head.close = True
        head.framing = framing
        head.selected = selected
        head.passthrough = cut[0]
        head.request_id = cut[self._request_id] if self._request_id >= 0 else b""
        links = self._location
        head.location = tuple([(name, cut[place]) for _, name, place in links]) if links else ()
        return head


def request_layout(
    head: bytes, table: NameTable, signature: int, make: MatcherFactory = match_function
) -> RequestLayout | None:
    """Layout of a request head that the strict reader has accepted; None: heads with these names have none.
    This head itself need not match: a blank at the end of one of its values must not keep others from their
    layout. Our own grammar has accepted all its names."""
    found = HeadPattern(ORIGIN_LINE, _REQUEST_LINE_GROUPS, _TRACE)
    if not _add_lines(found, head, table) or not found.values.get(names.HOST):
        return None
    if table.reads_ids and (TRACEPARENT in found.passed or (found.id < 0 and TRACESTATE in found.passed)):
        return None  # a second trace context, or half of one: the strict reader handles it
    return RequestLayout(found, signature, make)


def response_layout(
    head: bytes, table: NameTable, signature: int, make: MatcherFactory = match_function
) -> ResponseLayout | None:
    """Layout of a response head that the strict reader has accepted; None: such heads have none."""
    end = head.find(b"\r")
    status_line = head[:end]
    found = HeadPattern(literal(status_line), 0, _RESPONSE_ID)
    if status_line[9:10] == b"1" or not _add_lines(found, head, table):
        return None  # interim responses are rare, and have rules of their own
    return ResponseLayout(found, status_line, signature, make)


def _add_lines(found: HeadPattern, head: bytes, table: NameTable) -> bool:
    """Add the field lines of a head to the pattern; False: such a head has no layout."""
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
    found.end()
    options = connection_options(found.literals.get(names.CONNECTION, ()))
    try:
        return len(found.pattern.source) <= MAX_LAYOUT_SIZE and not listed_fields(options, table)
    except FramingError:
        return False  # one of those that are listed would have to be removed
