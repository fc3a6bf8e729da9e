"""Patterns of bytes, each in two spellings: a regular expression, and steps for the matcher in C.

A rule about a message is stated once, by these parts, and holds for both. A part is never tried twice: a span
takes all bytes that it can, and gives none back. So both spellings match the same bytes in one pass.
`dataplane.http1.matchers` runs them. Nothing here reads a message.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Final, TypeAlias, final

LITERAL: Final = 0
"""Kind of step: these bytes come next."""
UNLESS: Final = 1
"""Kind of step: these bytes do not come next."""
SPAN: Final = 2
"""Kind of step: as many bytes of a table as there are, within bounds."""
NOT_AFTER: Final = 3
"""Kind of step: the byte before is not in a table."""
MARK: Final = 4
"""Kind of step: a group begins or ends here. Groups are not nested."""

MANY: Final = sys.maxsize

Step: TypeAlias = tuple[int, bytes, int, int]
"""Kind; the bytes of a literal, or a table with a byte for each of 256; bounds of a span's length."""


@final
class Pattern:
    """A pattern of bytes, an immutable value. Patterns are joined by `+`."""

    __slots__ = ("source", "steps")

    def __init__(self, source: bytes, *steps: Step) -> None:
        self.source = source
        """Source of the regular expression."""
        self.steps = steps
        """Steps of the matcher in C."""

    def __add__(self, other: Pattern) -> Pattern:
        return Pattern(self.source + other.source, *self.steps, *other.steps)


NOTHING: Final = Pattern(b"")


def literal(text: bytes) -> Pattern:
    """Pattern of exactly these bytes."""
    return Pattern(re.escape(text), (LITERAL, text, 0, 0))


def unless(text: bytes) -> Pattern:
    """Pattern of a place where these bytes do not come next."""
    return Pattern(b"(?!" + re.escape(text) + b")", (UNLESS, text, 0, 0))


def span(byte: bytes, least: int = 0, most: int = MANY) -> Pattern:
    """Pattern of a number of bytes. `byte`: a regular expression that matches one byte. Only such spans are
    possessive: CPython 3.11.2 reads other possessive patterns wrongly."""
    if most < MANY:
        number = b"{%d,%d}+" % (least, most)
    else:
        number = b"{%d,}+" % least if least else b"*+"
    return Pattern(byte + number, (SPAN, _table(byte), least, most))


def not_after(byte: bytes) -> Pattern:
    """Pattern of a place that is not behind such a byte. `byte`: a regular expression that matches one."""
    return Pattern(b"(?<!" + byte + b")", (NOT_AFTER, _table(byte), 0, 0))


def group(pattern: Pattern) -> Pattern:
    """The same pattern, whose bytes are cut out."""
    mark: Step = (MARK, b"", 0, 0)
    return Pattern(b"(" + pattern.source + b")", mark, *pattern.steps, mark)


@cache
def _table(byte: bytes) -> bytes:
    """For each of the 256 bytes 1 if the regular expression matches it, else 0."""
    matches = re.compile(byte).match
    return bytes([matches(bytes([each])) is not None for each in range(256)])
