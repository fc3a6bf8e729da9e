"""What the log says of offers and backends: each change one line, with what holds it and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.controlplane.cell import Cell
from gateway.controlplane.journal import Journal
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Contradicted, Drain, Failed, Pin, Unreached
from gateway.core.memory import Kept
from gateway.core.ranges import NOTHING, VersionSet
from gateway.core.service import Policy, Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.telemetry.recent import LastHour
from tests.controlplane.fakes import service

BACKENDS = tuple(Backend(f"api-{number}", "127.0.0.1", number) for number in range(1, 7))
V58, V90 = Version(1, 58), Version(1, 90)


class Log:
    """A cell with a journal, and the lines that came since somebody looked."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *names: str, **more: Any) -> None:
        self.caplog, self.now = caplog, 0.0
        self.served: Mapping[str, int] = {}
        self.seconds = 3600.0
        kept = more.pop("kept", None)
        self.backends = tuple(each for each in BACKENDS if each.name in names)
        self.more = more
        first = Snapshot.configured([self.service()], now=0.0, kept={"baremetal": kept} if kept else None)
        self.cell = Cell(first, lambda: self.now)
        self.journal = Journal(lambda: self.now, lambda _: LastHour(self.served, self.seconds))
        self.cell.subscribe(self.journal.note_changes)
        caplog.set_level(logging.INFO)

    def service(self, *names: str, **more: Any) -> Service:
        backends = tuple(each for each in BACKENDS if each.name in names) if names else self.backends
        return service(*backends, **{"settle": 5.0, **self.more, **more})

    def serves(self, **highest: int) -> None:
        """Adverts of api_N: 1.1 up to 1.`highest`."""
        for name, top in highest.items():
            versions = VersionSet.between(Version(1, 1), Version(1, top))
            self.cell.observe("baremetal", name.replace("_", "-"), Answered(Advert(versions), self.now))

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.cell.advance()

    def said(self, logger: str = "skewgate.offer") -> list[str]:
        found = [
            f"{record.levelname} {record.getMessage()}"
            for record in self.caplog.records
            if record.name == logger
        ]
        self.caplog.clear()
        return found


@pytest.fixture
def pair(caplog: pytest.LogCaptureFixture) -> Log:
    """Two backends that both served 1.1-1.58."""
    log = Log(caplog, "api-1", "api-2")
    log.serves(api_1=58, api_2=58)
    log.said()
    return log


def test_an_upgrade_is_told_line_by_line(pair: Log) -> None:
    pair.serves(api_1=90)
    assert pair.said() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase mixed; "
            "1.59-1.90 is held back by api-2 (1.1-1.58): upgrade or drain"
        )
    ]
    pair.serves(api_2=90)
    assert pair.said() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase settling; "
            "1.59-1.90 will be offered in 5 s, unless the fleet changes"
        )
    ]
    pair.passes(5.0)
    assert pair.said() == ["INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform"]


def test_what_holds_the_offer_is_told_again_when_others_hold_it(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, *(each.name for each in BACKENDS))
    log.serves(**{f"api_{number}": 58 for number in range(1, 7)})
    log.said()
    log.serves(api_6=90)
    log.serves(api_5=90)
    assert [line.partition("; ")[2] for line in log.said()] == [
        (
            "1.59-1.90 is held back by api-1 (1.1-1.58), api-2 (1.1-1.58), api-3 (1.1-1.58), "
            "api-4 (1.1-1.58) and 1 more: upgrade or drain"
        ),
        (
            "1.59-1.90 is held back by api-1 (1.1-1.58), api-2 (1.1-1.58), api-3 (1.1-1.58) and "
            "api-4 (1.1-1.58): upgrade or drain"
        ),
    ]


def test_a_pin_and_its_end(pair: Log) -> None:
    pair.cell.obey("baremetal", Pin(Version(1, 31)))
    pair.cell.obey("baremetal", Pin(Version(1, 40)))
    pair.cell.obey("baremetal", Pin(None))
    capped = "phase capped; the pin holds it; `skewgate unpin baremetal` offers 1.1-1.58"
    assert pair.said() == [
        f"INFO baremetal: pinned to 1.31, offer 1.1-1.58 -> 1.1-1.31, {capped}",
        f"INFO baremetal: pinned to 1.40, offer 1.1-1.31 -> 1.1-1.40, {capped}",
        "INFO baremetal: unpinned, no ceiling, offer 1.1-1.40 -> 1.1-1.58, phase uniform",
    ]


def test_what_the_fleet_does_beneath_a_pin_is_told_when_unpinning_would_show_it(pair: Log) -> None:
    """Once for each change of what the line says, not for each backend that comes to differ."""
    pair.cell.obey("baremetal", Pin(Version(1, 31)))
    pair.serves(api_1=90)
    pair.serves(api_2=90)
    pair.said()
    pair.passes(5.0)
    assert pair.said() == [
        (
            "INFO baremetal: offer 1.1-1.31, phase capped; the pin holds it; "
            "`skewgate unpin baremetal` offers 1.1-1.90"
        )
    ]
    pair.cell.obey("baremetal", Drain("api-1"))
    pair.cell.obey("baremetal", Drain("api-1", drained=False))
    assert pair.said() == []


def test_an_upgrade_beneath_a_pin_promises_nothing_above_it(pair: Log) -> None:
    """Pinned to what is offered, as the guide to rolling upgrades advises."""
    pair.cell.obey("baremetal", Pin(V58))
    pair.serves(api_1=90)
    pair.said()
    pair.serves(api_2=90)
    pair.passes(5.0)
    assert pair.said() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase settling; "
            "1.59-1.90 could be offered in 5 s but for the pin, unless the fleet changes"
        ),
        (
            "INFO baremetal: offer 1.1-1.58, phase capped; the pin holds it; "
            "`skewgate unpin baremetal` offers 1.1-1.90"
        ),
    ]


def test_a_ceiling_in_the_middle_of_what_settles_parts_it(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, "api-1", ceiling=Version(1, 70))
    log.serves(api_1=58)
    log.said()
    log.serves(api_1=90)
    assert log.said() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase settling; 1.59-1.70 will be offered in 5 s, "
            "1.71-1.90 could be offered in 5 s but for offer.ceiling, unless the fleet changes"
        )
    ]


def test_a_pin_that_holds_nothing_back_is_told_as_well(pair: Log) -> None:
    pair.cell.obey("baremetal", Pin(V90))
    assert pair.said() == ["INFO baremetal: pinned to 1.90, offer 1.1-1.58, phase uniform"]


def test_a_pin_over_the_files_ceiling(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, "api-1", ceiling=Version(1, 50))
    log.serves(api_1=90)
    log.cell.obey("baremetal", Pin(V58))
    log.cell.obey("baremetal", Pin(None))
    assert log.said() == [
        (
            "INFO baremetal: offer none -> 1.1-1.50, phase capped; "
            "offer.ceiling holds it; without it the offer is 1.1-1.90"
        ),
        (
            "INFO baremetal: pinned to 1.58, offer 1.1-1.50 -> 1.1-1.58, phase capped; "
            "the pin holds it; `skewgate unpin baremetal` offers 1.1-1.50"
        ),
        (
            "INFO baremetal: unpinned, ceiling 1.50 of the configuration, offer 1.1-1.58 -> 1.1-1.50, "
            "phase capped; offer.ceiling holds it; without it the offer is 1.1-1.90"
        ),
    ]


@pytest.mark.parametrize(
    "ceiling, pin, advice",
    [
        (None, Version(1, 58), "`skewgate unpin baremetal` offers 1.60-1.90"),
        (Version(1, 50), Version(1, 58), "`skewgate pin baremetal 1.90` offers 1.60-1.90"),
        (Version(1, 50), None, "`skewgate pin baremetal 1.90` offers 1.60-1.90"),
    ],
)
def test_a_minimum_that_passes_the_ceiling_is_an_error(
    caplog: pytest.LogCaptureFixture, ceiling: Version | None, pin: Version | None, advice: str
) -> None:
    log = Log(caplog, "api-1", ceiling=ceiling)
    log.serves(api_1=70)
    log.cell.obey("baremetal", Pin(pin))
    before = log.cell.current.views["baremetal"].offer.versions.highest[1]
    log.said()
    log.cell.observe(
        "baremetal", "api-1", Answered(Advert(VersionSet.between(Version(1, 60), Version(1, 70))), 1.0)
    )
    log.cell.observe("baremetal", "api-1", Answered(Advert(VersionSet.between(Version(1, 60), V90)), 2.0))
    log.passes(5.0)
    first, *_, last = log.said()
    assert first.startswith(f"ERROR baremetal: offer 1.1-1.{before} -> none, phase capped; ")
    assert last.startswith("ERROR baremetal: offer none, phase ")
    assert last.endswith(f"the ceiling is below the minimum 1.60, requests get 503; {advice}")


def test_a_maximum_that_nobody_serves_any_more_is_a_warning_with_the_number(pair: Log) -> None:
    """UPGRADE-back-late."""
    pair.serves(api_1=90, api_2=90)
    pair.passes(5.0)
    pair.serves(api_1=58)
    assert pair.said()[-1] == (
        "INFO baremetal: offer 1.1-1.90, phase mixed; "
        "1.59-1.90 stays on offer although api-1 (1.1-1.58) would not serve it: upgrade or drain"
    )
    pair.served = {"1.58": 5000, "1.59": 2, "1.90": 130, "1.9": 7, "other": 3}
    pair.serves(api_2=58)
    assert pair.said() == [
        (
            "WARNING baremetal: offer 1.1-1.90 -> 1.1-1.58, phase uniform; nobody serves 1.59-1.90 any more, "
            "132 requests above 1.58 served in the last hour: their clients are refused now"
        )
    ]


def test_a_young_process_says_how_far_it_can_look_back(pair: Log) -> None:
    pair.served, pair.seconds = {"1.58": 1}, 600.0
    pair.serves(api_1=50, api_2=50)
    assert pair.said()[-1] == (
        "WARNING baremetal: offer 1.1-1.58 -> 1.1-1.50, phase uniform; nobody serves 1.51-1.58 any more, "
        "1 request above 1.50 served since the start: their clients are refused now"
    )


def test_a_fall_by_a_pin_is_no_warning(pair: Log) -> None:
    pair.served = {"1.58": 5000}
    pair.cell.obey("baremetal", Pin(Version(1, 31)))
    assert all(line.startswith("INFO ") for line in pair.said())


def test_a_drain_and_its_end_are_a_line_each(pair: Log) -> None:
    pair.cell.obey("baremetal", Drain("api-1"))
    pair.cell.obey("baremetal", Drain("api-2"))
    pair.cell.obey("baremetal", Drain("api-1", drained=False))
    assert pair.said("skewgate.prober") == [
        "INFO baremetal/api-1: drained, gets no new requests; `skewgate enable baremetal/api-1` puts it back",
        (
            "WARNING baremetal/api-2: drained, gets no new requests; "
            "`skewgate enable baremetal/api-2` puts it back; no backend of baremetal is left in service"
        ),
        "INFO baremetal/api-1: in service again",
    ]


def test_the_drain_of_the_last_old_one_lets_the_offer_rise(pair: Log) -> None:
    pair.serves(api_1=90)
    pair.said()
    pair.cell.obey("baremetal", Drain("api-2"))
    pair.passes(5.0)
    assert pair.said() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase settling; "
            "1.59-1.90 will be offered in 5 s, unless the fleet changes"
        ),
        "INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform",
    ]


def test_a_policy_that_holds_nothing_back_names_who_differs(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, "api-1", "api-2", policy=Policy.REACHABLE)
    log.serves(api_1=58)
    log.serves(api_2=90)
    assert log.said() == ["INFO baremetal: offer none -> 1.1-1.90, phase mixed; differing: api-1 (1.1-1.58)"]


def test_silent_servers_are_told_as_transparent(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, "api-1")
    log.cell.observe("baremetal", "api-1", Answered(Advert(VersionSet.only(Version(1, 1)), silent=True), 1.0))
    [line] = log.said()
    assert line.startswith(
        "INFO baremetal: offer none -> transparent (every backend is silent about versions)"
    )


def test_the_start_says_what_is_in_force(caplog: pytest.LogCaptureFixture) -> None:
    """CHEF-8, also where nothing changes any more: declared versions, and what a state file brought."""
    fresh = Log(caplog, "api-1")
    fresh.journal.begin(fresh.cell.current)
    assert fresh.said() == ["INFO baremetal: offer none, phase unknown"]
    upto = VersionSet.between(Version(1, 1), V90)
    restored = Log(caplog, "api-1", "api-2", kept=Kept(upto, V58, frozenset({"api-2"})))
    restored.journal.begin(restored.cell.current)
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert lines == [
        "INFO baremetal/api-2: drained, gets no new requests; `skewgate enable baremetal/api-2` puts it back",
        (
            "INFO baremetal: pinned to 1.58, offer 1.1-1.58, phase capped; "
            "the pin holds it; `skewgate unpin baremetal` offers 1.1-1.90"
        ),
    ]


def test_a_reload_tells_what_it_took_away(pair: Log) -> None:
    pair.cell.obey("baremetal", Drain("api-2"))
    pair.caplog.clear()
    pair.cell.configure([pair.service("api-1")])
    assert pair.said("skewgate.prober") == [
        "INFO baremetal/api-2: is not configured any more, its drain is forgotten"
    ]
    pair.cell.configure([pair.service("api-1", ceiling=Version(1, 40))])
    pair.cell.configure([])
    assert pair.said() == [
        (
            "INFO baremetal: ceiling 1.40 of the configuration, offer 1.1-1.58 -> 1.1-1.40, phase capped; "
            "offer.ceiling holds it; without it the offer is 1.1-1.58"
        ),
        "INFO baremetal: is not configured any more",
    ]


def test_what_changes_nothing_of_the_offer_is_no_line_about_it(pair: Log) -> None:
    pair.cell.observe("baremetal", "api-1", Failed("no connection", 1.0))
    pair.cell.configure([pair.service()])
    pair.passes(60.0)
    assert pair.said() == []
    assert pair.cell.current.views["baremetal"].offer.versions != NOTHING


def test_what_requests_met_is_one_line_each_that_says_what_to_check(pair: Log) -> None:
    for at in (2.0, 3.0):
        pair.cell.observe("baremetal", "api-1", Unreached(at))
        pair.cell.observe("baremetal", "api-1", Contradicted(Version(1, 31), at))
    pair.cell.observe("baremetal", "api-1", Contradicted(Version(1, 40), 4.0))
    advert = Advert(VersionSet.between(Version(1, 1), V58))
    pair.cell.observe("baremetal", "api-1", Answered(advert, 5.0))

    refused, contradicted, again = pair.said("skewgate.prober")
    key = "baremetal/api-1"
    assert refused.startswith(f"WARNING {key}: refused a connection, tried last until a probe answers")
    assert refused.endswith("check http://127.0.0.1:1")
    assert contradicted.startswith(f"ERROR {key}: was asked for 1.31 and said that it served another")
    assert again.startswith(f"ERROR {key}: was asked for 1.40 and")
