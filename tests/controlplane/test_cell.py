"""The cell: one word, swapped at once, told in order."""

from __future__ import annotations

import logging

import pytest

from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Failed, Overheard
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from tests.controlplane.fakes import cell_of, member, service

API = Backend("api-1", "127.0.0.1", 1)


def advert(highest: int) -> Advert:
    return Advert(VersionSet.between(Version(1, 1), Version(1, highest)))


def test_a_fact_that_says_something_new_makes_a_new_snapshot() -> None:
    cell = cell_of(service(API))
    told: list[tuple[Snapshot, Snapshot]] = []
    cell.subscribe(lambda before, after: told.append((before, after)))
    first = cell.current

    cell.observe("baremetal", "api-1", Answered(advert(58), 1.0))

    assert told == [(first, cell.current)]
    assert cell.current.generation == first.generation + 1
    assert member(cell).advert == advert(58)


def test_the_same_knowledge_heard_again_is_no_news_but_its_time_counts() -> None:
    cell = cell_of(service(API))
    cell.observe("baremetal", "api-1", Answered(advert(58), 1.0))
    told: list[object] = []
    cell.subscribe(lambda before, after: told.append(after))
    known = cell.current

    cell.observe("baremetal", "api-1", Answered(advert(58), 5.0))

    assert told == []
    assert cell.current.generation == known.generation
    assert cell.current.views["baremetal"] is known.views["baremetal"]

    cell.observe("baremetal", "api-1", Overheard(advert(90), 4.0))
    assert member(cell).advert == advert(58), "sent before what is known was: older"


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_fact_about_nobody_changes_nothing(name: str) -> None:
    cell = cell_of(service(API))
    before = cell.current

    cell.observe("baremetal", name, Failed("x", 1.0))
    cell.observe(name, "api-1", Failed("x", 1.0))

    assert cell.current is before


def test_subscribers_hear_every_change_in_order_also_those_made_by_a_subscriber() -> None:
    cell = cell_of(service(API))
    heard: list[int] = []

    def answers_back(before: Snapshot, after: Snapshot) -> None:
        if after.generation == 2:
            cell.observe("baremetal", "api-1", Failed("x", 2.0))

    cell.subscribe(answers_back)
    cell.subscribe(lambda before, after: heard.append(after.generation))

    cell.observe("baremetal", "api-1", Answered(advert(58), 1.0))

    assert heard == [2, 3]


def test_a_subscriber_that_fails_does_not_keep_the_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cell = cell_of(service(API))
    heard: list[int] = []

    def broken(before: Snapshot, after: Snapshot) -> None:
        raise ValueError("broken")

    cell.subscribe(broken)
    cell.subscribe(lambda before, after: heard.append(after.generation))

    with caplog.at_level(logging.ERROR, "skewgate.cell"):
        cell.observe("baremetal", "api-1", Answered(advert(58), 1.0))

    assert heard == [2]
    assert "a subscriber of the snapshot failed" in caplog.text


def test_who_unsubscribed_hears_no_more() -> None:
    cell = cell_of(service(API))
    heard: list[object] = []
    unsubscribe = cell.subscribe(lambda before, after: heard.append(after))

    unsubscribe()
    unsubscribe()
    cell.observe("baremetal", "api-1", Answered(advert(58), 1.0))

    assert heard == []
