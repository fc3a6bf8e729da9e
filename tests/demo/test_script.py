"""The steps of the upgrade: all in order, and back."""

from __future__ import annotations

from gateway.demo import script
from gateway.demo.script import LAST, ORDER, Action, Step


def upgrade() -> list[Step]:
    steps: list[Step] = []
    while (step := script.forward(steps[-1].position if steps else 0)) is not None:
        steps.append(step)
    return steps


def test_each_server_stops_and_starts_with_the_new_release() -> None:
    steps = upgrade()

    assert [(step.action, step.server) for step in steps] == [
        (action, server) for server in ORDER for action in (Action.STOP, Action.UPGRADE)
    ]
    assert steps[-1].position == LAST
    assert script.START_SHARE + script.STEP_SHARE * (LAST - 1) < 0.8


def test_a_roll_back_takes_the_server_that_was_upgraded_last_or_is_about_to_be() -> None:
    upgraded, stopped = script.back(LAST), script.back(LAST - 1)

    assert upgraded == stopped == Step(Action.ROLL_BACK, "api-4", LAST - 2)
    assert script.back(1) == Step(Action.ROLL_BACK, "api-1", 0)
    assert script.back(0) is None


def test_a_step_is_told_in_one_sentence() -> None:
    stop, start, *_ = upgrade()
    back = script.back(2)
    assert back is not None

    assert script.sentence(stop, "Train") == "api-1 stops for its upgrade"
    assert script.sentence(start, "Caracal") == "api-1 is upgraded to Caracal"
    assert script.sentence(back, "Train") == "api-1 is rolled back to Train"
