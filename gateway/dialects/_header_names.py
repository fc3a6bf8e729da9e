"""The order that names tell by themselves: v1alpha1, v1beta1, v1, v2; r1, r2, r10. A brick of the `header`
dialect, by which a list that was written in another order is noticed.
"""

from __future__ import annotations

import re
from typing import Final

_STAGES: Final = {"alpha": 0, "beta": 1, "rc": 2, "": 3}
_STAGED: Final = re.compile(r"v([0-9]{1,6})(?:(alpha|beta|rc)([0-9]{1,6}))?", re.ASCII)


def is_older(name: str, before: str) -> bool:
    """Whether `name` cannot come after `before`: of names that tell their own order by their numbers."""
    one, other = _order(name), _order(before)
    return one is not None and other is not None and one[0] == other[0] and one < other


def _order(name: str) -> tuple[str, tuple[int, ...]] | None:
    """A family of names, and the place in it: v1alpha1 < v1beta1 < v1 < v2; r1 < r2 < r10."""
    staged = _STAGED.fullmatch(name)
    if staged is not None:
        return "v", (int(staged[1]), _STAGES[staged[2] or ""], int(staged[3] or 0))
    numbers = re.findall(r"[0-9]{1,18}", name)
    return (re.sub(r"[0-9]{1,18}", "#", name), tuple(map(int, numbers))) if numbers else None
