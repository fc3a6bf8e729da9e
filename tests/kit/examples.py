"""How many examples a law gets that needs another number than most: in proportion to the profile.

It knows no test and no profile: `tests/conftest.py` chooses one before any test is imported.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings

WHOLE: Final = 100
"""Examples of a law of which nothing is said, on the main build of CI."""
FEWEST: Final = 5
"""With less than that hypothesis shows little but the simplest example."""


def examples(number: int) -> int:
    """`number` on the main build of CI, and less where all laws get less: at a desk, on other builds."""
    return max(min(number, FEWEST), number * settings().max_examples // WHOLE)
