"""Matchers: what a pattern, of a layout or of an id, finds at the beginning of some bytes.

The matcher in C (`layout_matcher.c`) is taken if it is there, else one that uses `re`; both give the same
result (tests/dataplane compares them). Which rules a head obeys, and what is cut out of it, is for `layouts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeAlias, final

from gateway.core.http.patterns import Pattern

try:
    from gateway.dataplane.http1.layout_matcher import Matcher
except ImportError:
    HAS_MATCHER_IN_C = False
else:
    HAS_MATCHER_IN_C = True

Match: TypeAlias = tuple[int, tuple[bytes, ...], tuple[bytes, ...]]
"""Size of a head; its selected fields (name, value, name, value); other values that were cut out."""
MatchFunction: TypeAlias = Callable[[bytes], Match | None]


def match_function(pattern: Pattern, fields: tuple[bytes, ...], values: tuple[bytes, ...]) -> MatchFunction:
    """Function that matches the beginning of some bytes. `fields`: name, groups, name, groups. `values`: for
    each value its groups, whose bytes are joined. Groups are given by their numbers, as bytes."""
    if HAS_MATCHER_IN_C:
        return Matcher(pattern.steps, fields, values).match
    return ExpressionMatcher(pattern.source, fields, values).match


@final
class ExpressionMatcher:
    """The matcher that uses `re`."""

    def __init__(self, source: bytes, fields: tuple[bytes, ...], values: tuple[bytes, ...]) -> None:
        self._match = re.compile(source).match
        self._names = fields[::2]
        joined = [groups for groups in values if len(groups) != 1]
        self._joins = [_taker(groups) for groups in joined]
        # What is taken from is all groups, then the names, then the joined groups: both counted from the end.
        end = len(self._names) + len(joined)
        self._fields = _taker([at for n, cut in enumerate(fields[1::2]) for at in (n - end, cut[0])])
        self._values = _taker(
            [cut[0] if len(cut) == 1 else joined.index(cut) - len(joined) for cut in values]
        )

    def match(self, data: bytes) -> Match | None:
        """Match the beginning of `data`; None: it is another head, or incomplete."""
        found = self._match(data)
        if found is None:
            return None
        groups: tuple[bytes, ...] = found.groups()
        parts = groups + self._names
        if self._joins:
            parts += tuple([b"".join(take(groups)) for take in self._joins])
        return found.end(), self._fields(parts), self._values(parts)


def _taker(places: Sequence[int]) -> Callable[[tuple[bytes, ...]], tuple[bytes, ...]]:
    """Function that takes the items at these places; in C for two or more, as for nearly every head."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda parts: tuple([parts[place] for place in places])
