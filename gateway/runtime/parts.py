"""Work on many things in parts, between which the event loop does something else.

What a thousand services need, each a little, holds up every request if it is done at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

SMALL: Final = 32
"""Fewest things in a part: a turn of the event loop costs as much as the work on one or two."""
PARTS: Final = 32
"""Most parts: who waits for all of them does so for a bounded number of turns."""

_T = TypeVar("_T")


def in_parts(things: Iterable[_T]) -> Iterator[Sequence[_T]]:
    """Copy things now, and return the copy part by part."""
    copied = list(things)
    size = max(SMALL, -(-len(copied) // PARTS))
    for begin in range(0, len(copied), size):
        yield copied[begin : begin + size]
