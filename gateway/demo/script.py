"""The rolling upgrade of the demonstration, as values: which step follows which, and what each is called.

An upgrade has two steps for each server: it stops, and it starts with the new release. A roll-back is one
step: back to the old release. Where the upgrade stands is a number, how many of its steps were taken. Pure.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

START_SHARE: Final = 0.06
"""Share of the length before the first step: everything is as it was."""
STEP_SHARE: Final = 0.065
"""Share of the length between two steps. The last step is taken at 78 %, so that its effect is seen."""


class Action(Enum):
    """What is done to a server."""

    STOP = auto()
    UPGRADE = auto()
    """It starts with the new release."""
    ROLL_BACK = auto()
    """It stops if it runs, and starts with the old release."""


class Step(NamedTuple):
    """One thing that is done to the fleet."""

    action: Action
    server: str
    position: int
    """Where the upgrade stands after it."""


ORDER: Final = ("api-1", "catalog-1", "api-2", "api-3", "catalog-2", "api-4")
"""The servers in the order in which they are upgraded. The offer of a service rises with its last one."""

LAST: Final = 2 * len(ORDER)
"""Where the upgrade stands when it is complete."""


def forward(position: int) -> Step | None:
    """The step that follows; None: the upgrade is complete."""
    if position == LAST:
        return None
    return Step(Action.UPGRADE if position % 2 else Action.STOP, ORDER[position // 2], position + 1)


def back(position: int) -> Step | None:
    """The step that rolls back the server that was upgraded last, or is about to be; None: there is none."""
    if position == 0:
        return None
    number = (position - 1) // 2
    return Step(Action.ROLL_BACK, ORDER[number], 2 * number)


def sentence(step: Step, release: str) -> str:
    """What the step does. `release`: the name of that with which the server starts."""
    match step.action:
        case Action.STOP:
            return f"{step.server} stops for its upgrade"
        case Action.UPGRADE:
            return f"{step.server} is upgraded to {release}"
        case Action.ROLL_BACK:
            return f"{step.server} is rolled back to {release}"
