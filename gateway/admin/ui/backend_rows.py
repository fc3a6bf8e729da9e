"""Groups and order of many backends: those that serve the same versions, and those with problems first.

Pure: views in, values of `model` out. `contents` makes the row of one backend.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from gateway.admin.ui.model import BackendGroup, BackendRow
from gateway.admin.ui.offer import Drawing, ranges
from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet

CROWD: Final = 20
"""Number of backends from which on they are grouped by their versions, and listed with problems first."""

MAX_GROUPS: Final = 8
"""Maximum groups of backends shown; the backends of the others are counted together."""

RANKS: Final = (Freshness.DOWN, "not in service", Freshness.UNKNOWN, Freshness.STALE, Freshness.FRESH)
"""Order of many rows of backends: by freshness, or for others than those that are down, by their state."""


def groups(view: ServiceView, drawing: Drawing) -> tuple[BackendGroup, ...]:
    """Groups backends by their versions, the largest group first. Empty for fewer than `CROWD` backends."""
    if len(view.members.all) < CROWD:
        return ()
    counts: Counter[VersionSet | None] = Counter()
    for group in view.members.groups:
        counts[group.summary.advertised] += group.number
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    shown = [
        BackendGroup(number, _text(versions, number, drawing), drawing.bars(versions) if versions else ())
        for versions, number in ranked[:MAX_GROUPS]
    ]
    if rest := sum(number for _, number in ranked[MAX_GROUPS:]):
        shown.append(BackendGroup(rest, "serve other ranges", ()))
    return tuple(shown)


def _text(versions: VersionSet | None, number: int, drawing: Drawing) -> str:
    if versions is None:
        return "is unknown" if number == 1 else "are unknown"
    return f"{'serves' if number == 1 else 'serve'} {ranges(versions, drawing.scheme)}"


def worst_first(backends: tuple[BackendRow, ...]) -> tuple[BackendRow, ...]:
    """Sorts many rows of backends, problems first. Fewer keep their order: none moves under the pointer."""
    if len(backends) < CROWD:
        return backends
    return tuple(sorted(backends, key=_severity))


def _severity(backend: BackendRow) -> int:
    counts = backend.state == "in service" or backend.freshness == Freshness.DOWN
    return RANKS.index(backend.freshness if counts else "not in service")
