"""The steps of the demonstration's rolling upgrade: their order, and their descriptions. Pure.

An upgrade has two steps for each server: it stops, and it starts with the new release. A roll-back is one
step. The position of the upgrade is the number of its steps that were taken.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

START_SHARE: Final = 0.06
"""Share of the demonstration's length before the first step of the upgrade."""
STEP_SHARE: Final = 0.065
"""Share of the demonstration's length between two steps; the last, at 78 %, is early enough to be seen."""


class Action(Enum):
    """Change of a server in one step, with its description."""

    STOP = "{server} stops for its upgrade"
    UPGRADE = "{server} is upgraded to {release}"
    ROLL_BACK = "{server} is rolled back to {release}"


class Step(NamedTuple):
    """A step of the upgrade or of its roll-back."""

    action: Action
    server: str
    position: int
    """Position of the upgrade after this step."""


ORDER: Final = ("api-1", "catalog-1", "api-2", "api-3", "catalog-2", "api-4")
"""Servers in the order of their upgrade. The offer of a service rises with its last one."""

LAST: Final = 2 * len(ORDER)


def forward(position: int) -> Step | None:
    """Return the upgrade's next step; None if it is complete."""
    if position == LAST:
        return None
    return Step(Action.UPGRADE if position % 2 else Action.STOP, ORDER[position // 2], position + 1)


def back(position: int) -> Step | None:
    """Return the step that rolls back the latest upgraded or stopped server; None if there is none."""
    if position == 0:
        return None
    number = (position - 1) // 2
    return Step(Action.ROLL_BACK, ORDER[number], 2 * number)


def sentence(step: Step, release: str) -> str:
    """Describe a step of the upgrade. `release`: name of the release with which the server starts."""
    return step.action.value.format(server=step.server, release=release)
