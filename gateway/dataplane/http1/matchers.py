"""Matchers: what a pattern, of a layout or of an id, finds at the beginning of some bytes.

The matcher in C (`layout_matcher.c`) is taken if it is there, else one that uses `re`; both give the same
result (tests/dataplane compares them). Which rules a head obeys, and what is cut out of it, is for `layouts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
        self._fields = [(name, groups[0]) for name, groups in zip(fields[::2], fields[1::2], strict=True)]
        self._values = values

    def match(self, data: bytes) -> Match | None:
        """Match the beginning of `data`; None: it is another head, or incomplete."""
        found = self._match(data)
        if found is None:
            return None
        cut: tuple[bytes, ...] = found.groups()
        fields = [part for name, group in self._fields for part in (name, cut[group])]
        values = [
            cut[groups[0]] if len(groups) == 1 else b"".join([cut[group] for group in groups])
            for groups in self._values
        ]
        return found.end(), tuple(fields), tuple(values)
