"""Flap damping: what laws hold for any history of changes."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.flap_damping import BURST, FIRST_PAUSE, LONGEST_PAUSE, QUIET, REFILL, FlapDamping

PAUSES = st.lists(st.one_of(st.floats(0.0, 5.0), st.floats(0.0, 100.0)), max_size=200)
"""Seconds before each change."""

STEP = 0.5


def told(pauses: list[float]) -> tuple[list[tuple[float, int]], float]:
    """When something was told and how many changes that were, and the time of the last change. The clock is
    looked at as a timer would do it."""
    damping, now, lines = FlapDamping(), 0.0, []
    for pause in pauses:
        at = now + pause
        while (due := damping.next_due) is not None and due <= at:
            lines += [(due, damped.changes) for damped in damping.take_due(due)]
        now = at
        if damping.change("key", now):
            lines.append((now, 1))
    while (due := damping.next_due) is not None:
        lines += [(due, damped.changes) for damped in damping.take_due(due)]
    return lines, now


@given(PAUSES)
def test_R_B8_every_change_is_told_once(pauses: list[float]) -> None:
    lines, _ = told(pauses)
    assert sum(number for _, number in lines) == len(pauses)


@given(PAUSES)
def test_R_B8_the_last_change_is_told_as_soon_as_it_has_settled(pauses: list[float]) -> None:
    lines, last = told(pauses)
    if pauses:
        assert last <= lines[-1][0] <= last + QUIET


@given(PAUSES)
def test_R_B8_the_rate_is_bounded(pauses: list[float]) -> None:
    lines, last = told(pauses)
    assert len(lines) <= BURST + 2 * (last + QUIET) / min(REFILL, QUIET) + 1 + (last + QUIET) / FIRST_PAUSE


def test_R_B8_changes_without_end_are_told_at_a_falling_rate() -> None:
    lines, _ = told([STEP] * 20_000)
    pauses = [
        after - before for (before, _), (after, _) in zip(lines[BURST:], lines[BURST + 1 :], strict=False)
    ]
    assert pauses[:-1] == sorted(pauses[:-1])
    assert max(pauses) == LONGEST_PAUSE
    assert len(lines) < 35


def test_keys_do_not_know_each_other() -> None:
    damping = FlapDamping()
    for _ in range(BURST):
        assert damping.change("one", 0.0)
    assert not damping.change("one", 0.0)
    assert damping.change("two", 0.0)
    damping.forget("one")
    assert damping.next_due is None
    assert damping.change("one", 0.0)


def test_what_was_told_for_another_reason_is_not_due() -> None:
    damping = FlapDamping()
    for _ in range(BURST + 3):
        damping.change("key", 0.0)
    due = damping.next_due
    damping.clear("key", 1.0)
    damping.clear("unknown", 1.0)
    assert (due, damping.next_due) == (FIRST_PAUSE, None)
    assert list(damping.take_due(2.0, everything=True)) == []
