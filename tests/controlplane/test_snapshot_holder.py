"""The snapshot holder: one reference, replaced at once; subscribers are notified in order."""

from __future__ import annotations

import logging

import pytest

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import PassiveObservation, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.controlplane.fakes import holder_of, member, service

API = Backend("api-1", "127.0.0.1", 1)


def advertisement(highest: int) -> Advertisement:
    return Advertisement(VersionSet.between(Version(1, 1), Version(1, highest)))


def test_a_fact_that_says_something_new_makes_a_new_snapshot() -> None:
    snapshot_holder = holder_of(service(API))
    changes: list[tuple[Snapshot, Snapshot]] = []
    snapshot_holder.subscribe(lambda before, after: changes.append((before, after)))
    first = snapshot_holder.current

    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 1.0))

    assert changes == [(first, snapshot_holder.current)]
    assert snapshot_holder.current.generation == first.generation + 1
    assert member(snapshot_holder).advertisement == advertisement(58)


def test_the_same_knowledge_again_is_no_change_but_its_time_counts() -> None:
    snapshot_holder = holder_of(service(API))
    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 1.0))
    changes: list[Snapshot] = []
    snapshot_holder.subscribe(lambda before, after: changes.append(after))
    known = snapshot_holder.current

    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 5.0))

    assert changes == []
    assert snapshot_holder.current.generation == known.generation
    assert snapshot_holder.current.views["baremetal"] is known.views["baremetal"]

    snapshot_holder.observe("baremetal", "api-1", PassiveObservation(advertisement(90), 4.0))
    assert member(snapshot_holder).advertisement == advertisement(58), "its request was sent earlier"


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_fact_about_an_unknown_backend_changes_nothing(name: str) -> None:
    snapshot_holder = holder_of(service(API))
    before = snapshot_holder.current

    snapshot_holder.observe("baremetal", name, ProbeFailed("x", 1.0))
    snapshot_holder.observe(name, "api-1", ProbeFailed("x", 1.0))

    assert snapshot_holder.current is before


def test_subscribers_are_notified_in_order_also_of_changes_by_a_subscriber() -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []

    def makes_a_change(before: Snapshot, after: Snapshot) -> None:
        if after.generation == 2:
            snapshot_holder.observe("baremetal", "api-1", ProbeFailed("x", 2.0))

    snapshot_holder.subscribe(makes_a_change)
    snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 1.0))

    assert generations == [2, 3]


def test_after_a_subscriber_has_failed_the_others_are_notified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []

    def broken(before: Snapshot, after: Snapshot) -> None:
        raise ValueError("broken")

    snapshot_holder.subscribe(broken)
    snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    with caplog.at_level(logging.ERROR, "skewgate.snapshot"):
        snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 1.0))

    assert generations == [2]
    assert "a subscriber failed" in caplog.text


def test_after_unsubscribing_no_change_is_notified() -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []
    unsubscribe = snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    unsubscribe()
    unsubscribe()
    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(advertisement(58), 1.0))

    assert generations == []
