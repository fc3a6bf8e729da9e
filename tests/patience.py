"""How long a test waits for what must happen.

A deadline that a busy machine misses says nothing about the program, so there is one, and it is long. It is
no assertion about time: those are made on a clock that the test turns.
"""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 30.0
"""Seconds."""
