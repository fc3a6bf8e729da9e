"""When a replica is attached, what it answers, and which record it follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import (
    Answer,
    Attachment,
    LastAttached,
    adopts,
    answer,
    attachment_at,
    beat_interval,
    deadline,
    has_lost,
    joined_record,
    may_end_registration,
    may_remove,
    may_resume,
    seconds_to_forget,
)
from gateway.core.agreement.record import AgreedRecord, Level
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version

TTL, FORGET = 3.0, 86400.0
ONE = VersionSet.only(Version(1, 1))
RECORD = AgreedRecord(7, "guaranteed", ONE, ONE, ONE, ONE)


@pytest.mark.parametrize(
    "level, attached, detached",
    [
        (Level.OFFERED, Answer.SERVE, Answer.SERVE),
        (Level.ACCEPTED, Answer.SERVE, Answer.SERVE),
        (Level.UNDECIDED, Answer.UNAVAILABLE, Answer.UNAVAILABLE),
        (Level.REFUSED, Answer.REFUSE, Answer.UNAVAILABLE),
    ],
)
def test_a_detached_replica_refuses_nothing(level: Level, attached: Answer, detached: Answer) -> None:
    assert answer(level, attached=True) is attached
    assert answer(level, attached=False) is detached


@pytest.mark.parametrize(
    "after, forget, expected",
    [
        (0.0, FORGET, Attachment.ATTACHED),
        (2.69, FORGET, Attachment.ATTACHED),
        (2.71, FORGET, Attachment.DETACHED),
        (FORGET - 1, FORGET, Attachment.DETACHED),
        (FORGET, FORGET, Attachment.FORGOTTEN),
        (100 * FORGET, None, Attachment.DETACHED),
    ],
)
def test_a_replica_is_attached_until_its_deadline(
    after: float, forget: float | None, expected: Attachment
) -> None:
    assert attachment_at(50.0 + after, 50.0, TTL, forget) is expected


RATE = st.floats(0.9, 1.1)
FASTER = st.floats(1 / 1.1, 1.1)
"""The rate of the other clock, as a multiple."""
TIMES = st.floats(0.0, 1e6)
LAG = st.floats(0.0, 60.0)


@given(rate=RATE, faster=FASTER, start=TIMES, other_start=TIMES, lag=LAG, seconds=st.floats(0.0, 10.0))
def test_nobody_removes_what_may_still_refuse(
    rate: float, faster: float, start: float, other_start: float, lag: float, seconds: float
) -> None:
    """Two clocks whose rates differ by 10 % at most: where one allows a removal, the other is past the
    deadline."""
    other_rate = rate * faster
    seen_at = other_start + other_rate * lag
    other_now, now = other_start + other_rate * (lag + seconds), start + rate * (lag + seconds)

    if may_remove(other_now, seen_at, TTL):
        assert now >= deadline(start, TTL) - 1e-6


@given(rate=RATE, faster=FASTER, lag=LAG, share=st.floats(0.0, 3.0))
def test_nobody_ends_the_registration_of_one_that_still_answers(
    rate: float, faster: float, lag: float, share: float
) -> None:
    seconds, other_rate = share * FORGET, rate * faster
    if may_end_registration(other_rate * (lag + seconds), other_rate * lag, FORGET):
        assert rate * (lag + seconds) >= FORGET - 1e-6
    assert not may_end_registration(1e12, 0.0, None)


def test_several_beats_fit_before_the_deadline() -> None:
    assert 3 * beat_interval(TTL) < deadline(0.0, TTL)


def test_a_warning_stands_from_half_of_it_on() -> None:
    assert seconds_to_forget(FORGET / 2 - 1, 0.0, FORGET) is None
    assert seconds_to_forget(FORGET / 2, 0.0, FORGET) == FORGET / 2
    assert seconds_to_forget(2 * FORGET, 0.0, FORGET) == 0.0
    assert seconds_to_forget(2 * FORGET, 0.0, None) is None


@pytest.mark.parametrize(
    "boot, boot_time, wall_time, forget, resumes",
    [
        ("a", 1000.0 + FORGET - 1, 0.0, FORGET, True),  # the wall clock of the same start does not count
        ("a", 1000.0 + FORGET, 5000.0, FORGET, False),
        ("a", 999.0, 5000.0, FORGET, False),
        ("b", 10.0, 5000.0 + FORGET - 1, FORGET, True),
        ("b", 10.0, 5000.0 + FORGET, FORGET, False),
        ("b", 10.0, 4999.0, FORGET, False),  # set back
        ("b", 10.0, 5000.0 + 100 * FORGET, None, True),
    ],
)
def test_a_restart_goes_on_within_forget(
    boot: str, boot_time: float, wall_time: float, forget: float | None, resumes: bool
) -> None:
    last = LastAttached("a", 1000.0, 5000.0)

    assert may_resume(last, boot, boot_time, wall_time, forget) is resumes


def test_a_replica_adopts_newer_records_only() -> None:
    assert adopts(None, RECORD)
    assert adopts(RECORD, replace(RECORD, seq=8))
    assert not adopts(RECORD, RECORD)
    assert not adopts(RECORD, replace(RECORD, seq=6))


@pytest.mark.parametrize(
    "held, stored, lost, joined",
    [
        (None, None, False, None),
        (None, 7, False, 7),
        (7, 7, False, 7),
        (7, 9, False, 9),
        (7, None, True, 8),
        (7, 6, True, 8),
    ],
    ids=["nothing anywhere", "a first join", "the same", "a newer one", "an emptied store", "an older copy"],
)
def test_a_store_that_has_lost_the_record_gets_it_back(
    held: int | None, stored: int | None, lost: bool, joined: int | None
) -> None:
    def of(seq: int | None) -> AgreedRecord | None:
        return None if seq is None else replace(RECORD, seq=seq)

    assert has_lost(of(held), of(stored)) is lost
    assert joined_record(of(held), of(stored)) == of(joined)
