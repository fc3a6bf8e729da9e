"""The log about offers and backends: one line per change, with what holds the offer and what to do."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.worker_agreement import WorkerAgreement
from gateway.core.agreement.attachment import NOTHING_AGREED
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Drain,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.offer_state import SavedAdvertisement, SavedState
from gateway.core.fleet.service import Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from gateway.telemetry.process_log import OUTAGE
from gateway.telemetry.recent import LastHour
from tests.controlplane.fakes import service
from tests.kit.ironic import learn, reconfigure, upto
from tests.kit.waiting import PATIENCE

BACKENDS = tuple(Backend(f"api-{number}", "127.0.0.1", number) for number in range(1, 7))
V58, V90 = Version(1, 58), Version(1, 90)


class LoggedFleet:
    """A fleet with a change log, a clock, and the lines since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *names: str, **options: Any) -> None:
        self.caplog, self.now = caplog, 0.0
        self.served: Mapping[str, int] = {}
        self.seconds = 3600.0
        saved, replicas = options.pop("saved", None), options.pop("replicas", None)
        self.backends = tuple(backend for backend in BACKENDS if backend.name in names)
        self.options = options
        first = Snapshot.configured([self.service()], now=0.0, saved={"baremetal": saved} if saved else None)
        self.snapshot_holder = SnapshotHolder(first, lambda: self.now)
        self.change_log = ChangeLog(lambda: self.now, lambda _: LastHour(self.served, self.seconds), replicas)
        self.snapshot_holder.subscribe(self.change_log.log_changes)
        caplog.set_level(logging.INFO)

    def service(self, *names: str, **options: Any) -> Service:
        backends = tuple(b for b in BACKENDS if b.name in names) if names else self.backends
        return service(*backends, **{"stabilization": 5.0, **self.options, **options})

    def advertise(self, **highest: int) -> None:
        """Let api_N advertise 1.1 up to 1.`highest`."""
        for name, top in highest.items():
            learn(self.snapshot_holder, name.replace("_", "-"), upto(top), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.snapshot_holder.advance()
        self.change_log.log_due()

    def lines(self, logger: str = "skewgate.offer") -> list[str]:
        lines = [
            f"{record.levelname} {record.getMessage()}"
            for record in self.caplog.records
            if record.name == logger
        ]
        self.caplog.clear()
        return lines


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> LoggedFleet:
    """Two backends that both served 1.1-1.58."""
    log = LoggedFleet(caplog, "api-1", "api-2")
    log.advertise(api_1=58, api_2=58)
    log.lines()
    return log


def test_an_upgrade_is_logged_line_by_line(log: LoggedFleet) -> None:
    log.advertise(api_1=90)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase mixed; "
            "1.59-1.90 is held back by api-2 (1.1-1.58): upgrade or drain"
        )
    ]
    log.advertise(api_2=90)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase stabilizing; "
            "1.59-1.90 will be offered in 5 s, unless the fleet changes"
        )
    ]
    log.wait(5.0)
    assert log.lines() == ["INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform"]


async def test_the_steps_of_several_workers_are_one_line(log: LoggedFleet) -> None:
    holds = {"baremetal": 0}
    holder = log.snapshot_holder
    agreement = WorkerAgreement(holder, holds.get)

    def acknowledge() -> None:
        agreed = holder.current.views["baremetal"].agreed
        assert agreed is not None
        assert agreed.record is not None
        holds["baremetal"] = agreed.record.seq
        agreement.acknowledged()

    agreement.start()
    acknowledge()
    assert log.lines() == []
    log.advertise(api_1=90, api_2=90)
    log.wait(5.0)
    log.lines()
    for _ in range(2):
        acknowledge()
        assert log.lines() == []
    acknowledge()
    assert log.lines() == ["INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform"]
    holder.apply("baremetal", Pin(Version(1, 31)))
    for _ in range(4):
        acknowledge()
    [line] = log.lines()
    assert line.startswith("INFO baremetal: pinned to 1.31, offer 1.1-1.90 -> 1.1-1.31, phase capped")
    holder.apply("baremetal", Pin(None))
    log.change_log.close()
    [line] = log.lines()
    assert line.startswith("INFO baremetal: unpinned, no ceiling, offer 1.1-1.31")
    assert line.endswith("some workers, or another process that still serves, have not acknowledged it yet")
    await agreement.close()


@pytest.mark.parametrize(
    "replicas, reason",
    [
        ("held back by gw-2", "held back by gw-2"),
        ("", "other replicas, or their workers, have not acknowledged it yet"),
    ],
)
async def test_replicas_that_hold_a_change_back_are_named(
    caplog: pytest.LogCaptureFixture, replicas: str, reason: str
) -> None:
    asked: list[str] = []

    def why_held(service: str) -> str:
        asked.append(service)
        return replicas

    log = LoggedFleet(caplog, "api-1", "api-2", replicas=why_held)
    agreement = WorkerAgreement(log.snapshot_holder, {"baremetal": 0}.get)
    agreement.start()
    log.lines()
    log.advertise(api_1=58, api_2=90)
    log.change_log.close()
    assert log.lines()[-1].endswith(f"; {reason}")
    assert set(asked) == {"baremetal"}
    await agreement.close()


def test_what_holds_the_offer_is_logged_again_when_others_hold_it(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggedFleet(caplog, *(backend.name for backend in BACKENDS))
    log.advertise(**{f"api_{number}": 58 for number in range(1, 7)})
    log.lines()
    log.advertise(api_6=90)
    log.advertise(api_5=90)
    assert [line.partition("; ")[2] for line in log.lines()] == [
        (
            "1.59-1.90 is held back by api-1 (1.1-1.58), api-2 (1.1-1.58), api-3 (1.1-1.58), "
            "api-4 (1.1-1.58) and 1 more: upgrade or drain"
        ),
        (
            "1.59-1.90 is held back by api-1 (1.1-1.58), api-2 (1.1-1.58), api-3 (1.1-1.58) and "
            "api-4 (1.1-1.58): upgrade or drain"
        ),
    ]


def test_a_pin_and_its_end(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    log.snapshot_holder.apply("baremetal", Pin(Version(1, 40)))
    log.snapshot_holder.apply("baremetal", Pin(None))
    capped = "phase capped; held by the pin; `skewgate unpin baremetal` offers 1.1-1.58"
    assert log.lines() == [
        f"INFO baremetal: pinned to 1.31, offer 1.1-1.58 -> 1.1-1.31, {capped}",
        f"INFO baremetal: pinned to 1.40, offer 1.1-1.31 -> 1.1-1.40, {capped}",
        "INFO baremetal: unpinned, no ceiling, offer 1.1-1.40 -> 1.1-1.58, phase uniform",
    ]


def test_changes_beneath_a_pin_are_logged_when_unpinning_would_show_them(log: LoggedFleet) -> None:
    """Once for each change of the line, not for each backend that comes to differ."""
    log.snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    log.advertise(api_1=90)
    log.advertise(api_2=90)
    log.lines()
    log.wait(5.0)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.31, phase capped; held by the pin; "
            "`skewgate unpin baremetal` offers 1.1-1.90"
        )
    ]
    log.snapshot_holder.apply("baremetal", Drain("api-1"))
    log.snapshot_holder.apply("baremetal", Drain("api-1", drained=False))
    assert log.lines() == []


def test_an_upgrade_beneath_a_pin_promises_nothing_above_it(log: LoggedFleet) -> None:
    """Pinned to what is offered, as docs/rolling-upgrades.md advises."""
    log.snapshot_holder.apply("baremetal", Pin(V58))
    log.advertise(api_1=90)
    log.lines()
    log.advertise(api_2=90)
    log.wait(5.0)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase stabilizing; "
            "1.59-1.90 could be offered in 5 s without the pin, unless the fleet changes"
        ),
        (
            "INFO baremetal: offer 1.1-1.58, phase capped; held by the pin; "
            "`skewgate unpin baremetal` offers 1.1-1.90"
        ),
    ]


def test_a_ceiling_inside_the_pending_versions_splits_them(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggedFleet(caplog, "api-1", ceiling=Version(1, 70))
    log.advertise(api_1=58)
    log.lines()
    log.advertise(api_1=90)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase stabilizing; 1.59-1.70 will be offered in 5 s, "
            "1.71-1.90 could be offered in 5 s without offer.ceiling, unless the fleet changes"
        )
    ]


def test_a_pin_that_holds_nothing_back_is_logged_as_well(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Pin(V90))
    assert log.lines() == ["INFO baremetal: pinned to 1.90, offer 1.1-1.58, phase uniform"]


def test_a_pin_over_the_files_ceiling(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggedFleet(caplog, "api-1", ceiling=Version(1, 50))
    log.advertise(api_1=90)
    log.snapshot_holder.apply("baremetal", Pin(V58))
    log.snapshot_holder.apply("baremetal", Pin(None))
    assert log.lines() == [
        (
            "INFO baremetal: offer none -> 1.1-1.50, phase capped; "
            "held by offer.ceiling; without it the offer is 1.1-1.90"
        ),
        (
            "INFO baremetal: pinned to 1.58, offer 1.1-1.50 -> 1.1-1.58, phase capped; "
            "held by the pin; `skewgate unpin baremetal` offers 1.1-1.50"
        ),
        (
            "INFO baremetal: unpinned, configured ceiling 1.50, offer 1.1-1.58 -> 1.1-1.50, "
            "phase capped; held by offer.ceiling; without it the offer is 1.1-1.90"
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
def test_a_minimum_above_the_ceiling_is_an_error(
    caplog: pytest.LogCaptureFixture, ceiling: Version | None, pin: Version | None, advice: str
) -> None:
    log = LoggedFleet(caplog, "api-1", ceiling=ceiling)
    log.advertise(api_1=70)
    log.snapshot_holder.apply("baremetal", Pin(pin))
    before = log.snapshot_holder.current.views["baremetal"].offer.versions.highest[1]
    log.lines()
    log.snapshot_holder.observe(
        "baremetal",
        "api-1",
        ProbeSucceeded(upto(70, 60), 1.0),
    )
    log.snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(upto(90, 60), 2.0))
    log.wait(5.0)
    first, *_, last = log.lines()
    assert first.startswith(f"ERROR baremetal: offer 1.1-1.{before} -> none, phase unknown; ")
    assert last.startswith("ERROR baremetal: offer none, phase ")
    assert last.endswith(f"the ceiling is below the minimum 1.60, requests get 503; {advice}")


def test_a_maximum_that_no_backend_serves_any_more_is_a_warning_with_a_count(log: LoggedFleet) -> None:
    """UPGRADE-back-late."""
    log.advertise(api_1=90, api_2=90)
    log.wait(5.0)
    log.advertise(api_1=58)
    assert log.lines()[-1] == (
        "INFO baremetal: offer 1.1-1.90, phase mixed; "
        "1.59-1.90 stays on offer although it is not served by api-1 (1.1-1.58): upgrade or drain"
    )
    log.served = {"1.58": 5000, "1.59": 2, "1.90": 130, "1.9": 7, "other": 3}
    log.advertise(api_2=58)
    assert log.lines() == [
        (
            "WARNING baremetal: offer 1.1-1.90 -> 1.1-1.58, phase uniform; "
            "no backend serves 1.59-1.90 any more, requests for these versions are refused now; "
            "132 requests above 1.58 served in the last hour"
        )
    ]


def test_a_young_process_counts_since_its_start(log: LoggedFleet) -> None:
    log.served, log.seconds = {"1.58": 1}, 600.0
    log.advertise(api_1=50, api_2=50)
    assert log.lines()[-1] == (
        "WARNING baremetal: offer 1.1-1.58 -> 1.1-1.50, phase uniform; no backend serves 1.51-1.58 any more, "
        "requests for these versions are refused now; 1 request above 1.50 served since the start"
    )


def test_a_fall_by_a_pin_is_no_warning(log: LoggedFleet) -> None:
    log.served = {"1.58": 5000}
    log.snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    assert all(line.startswith("INFO ") for line in log.lines())


def test_a_drain_and_its_end_are_a_line_each(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Drain("api-1"))
    log.snapshot_holder.apply("baremetal", Drain("api-2", by="roll 1a2b3c4d"))
    log.snapshot_holder.apply("baremetal", Drain("api-1", drained=False))
    assert log.lines("skewgate.prober") == [
        "INFO baremetal/api-1: drained, gets no new requests; `skewgate enable baremetal/api-1` puts it back",
        (
            "WARNING baremetal/api-2: drained by roll 1a2b3c4d, gets no new requests; "
            "`skewgate enable baremetal/api-2` puts it back; no backend of baremetal is left in service"
        ),
        "INFO baremetal/api-1: in service again",
    ]


def test_an_outage_is_an_error_and_its_end_is_told(log: LoggedFleet) -> None:
    for name in ("api-1", "api-2"):
        for _ in range(3):
            log.snapshot_holder.observe("baremetal", name, ProbeFailed("no connection", log.now))
            log.wait(1.0)
    outages = [getattr(record, OUTAGE, None) for record in log.caplog.records]
    assert [each for each in outages if each is not None] == [True]
    assert "ERROR baremetal: all backends for 1.1-1.58 are down: requests get 503" in log.lines()
    log.advertise(api_1=58)
    outages = [getattr(record, OUTAGE, None) for record in log.caplog.records]
    assert [each for each in outages if each is not None] == [False]
    assert "INFO baremetal: 1.1-1.58 is served again" in log.lines()


def test_an_outage_ends_when_its_service_is_removed(log: LoggedFleet) -> None:
    for name in ("api-1", "api-2"):
        log.snapshot_holder.apply("baremetal", Drain(name))
    log.caplog.clear()
    reconfigure(log.snapshot_holder, [])
    [removed] = [each for each in log.caplog.records if each.name == "skewgate.offer"]
    assert (removed.getMessage(), getattr(removed, OUTAGE, None)) == (
        "baremetal: no longer configured",
        False,
    )


def test_versions_whose_backends_are_all_drained_are_an_outage(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Drain("api-1"))
    assert not any("requests get 503" in line for line in log.lines())
    log.snapshot_holder.apply("baremetal", Drain("api-2"))
    assert "ERROR baremetal: all backends for 1.1-1.58 are drained: requests get 503" in log.lines()


def test_a_restored_offer_is_no_outage_before_the_first_probes(caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedState(
        versions=upto(58).versions, advertisements={"api-1": SavedAdvertisement("127.0.0.1:1", upto(58))}
    )
    log = LoggedFleet(caplog, "api-1", saved=saved)
    log.snapshot_holder.observe("baremetal", "api-1", ProbeFailed("no connection", 0.0))
    assert not any("requests get 503" in line for line in log.lines())


def test_the_drain_of_the_last_old_one_lets_the_offer_rise(log: LoggedFleet) -> None:
    log.advertise(api_1=90)
    log.lines()
    log.snapshot_holder.apply("baremetal", Drain("api-2"))
    log.wait(5.0)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase stabilizing; "
            "1.59-1.90 will be offered in 5 s, unless the fleet changes"
        ),
        "INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform",
    ]


def test_a_policy_that_holds_nothing_back_names_nobody(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggedFleet(caplog, "api-1", "api-2", policy=Policy.REACHABLE)
    log.advertise(api_1=58)
    log.advertise(api_2=90)
    assert log.lines() == ["INFO baremetal: offer none -> 1.1-1.90, phase mixed"]


def test_who_keeps_versions_on_offer_by_a_last_report_is_logged(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Drain("api-2"))
    log.advertise(api_1=50)
    assert log.lines() == [
        (
            "INFO baremetal: offer 1.1-1.58, phase mixed; "
            "1.51-1.58 stays on offer because api-2 (1.1-1.58) last reported it: "
            "bring back, upgrade or remove"
        ),
        "ERROR baremetal: all backends for 1.51-1.58 are drained: requests get 503",
    ]


@pytest.mark.parametrize("policy", [Policy.GUARANTEED, Policy.AT_LEAST, Policy.REACHABLE])
def test_R_A14_the_log_names_the_same_backends_as_the_offer(
    caplog: pytest.LogCaptureFixture, policy: Policy
) -> None:
    log = LoggedFleet(caplog, "api-1", "api-2", "api-3", policy=policy)
    log.advertise(api_1=58, api_2=58, api_3=58)
    log.advertise(api_1=90)
    log.wait(5.0)
    log.advertise(api_2=70)
    log.wait(5.0)
    offer = log.snapshot_holder.current.views["baremetal"].offer
    line = log.lines()[-1]

    named = tuple(backend.name for backend in BACKENDS if f"{backend.name} (" in line)
    assert named == offer.held.by
    assert named == (() if policy is Policy.REACHABLE else ("api-2", "api-3"))


def test_R_A13_a_backend_that_flaps_is_named_from_the_second_fall_on(log: LoggedFleet) -> None:
    for _ in range(2):
        log.advertise(api_1=90, api_2=90)
        log.wait(20.0)
        log.advertise(api_2=58)
        log.lines()
        log.advertise(api_1=58)
    fell, flaps = log.lines()

    assert fell.startswith("WARNING baremetal: offer 1.1-1.90 -> 1.1-1.58, phase uniform; no backend serves")
    assert flaps == (
        "WARNING baremetal: 1.59-1.90 left the offer again and will wait 20 s once it is back; "
        "no longer served by api-1 (1.1-1.58): check whether it flaps, or two servers share its address"
    )


def test_a_reload_that_takes_versions_away_says_so(log: LoggedFleet) -> None:
    """They did not fall, and they are served."""
    reconfigure(log.snapshot_holder, [log.service(policy=Policy.REACHABLE)])
    log.advertise(api_1=90)
    log.wait(5.0)
    log.lines()
    reconfigure(log.snapshot_holder, [log.service()])
    [line] = log.lines()
    assert line.startswith(
        "WARNING baremetal: offer 1.1-1.90 -> 1.1-1.58, phase mixed; the policy no longer gives 1.59-1.90, "
        "requests for these versions are refused now; "
    )


def test_legacy_backends_are_logged_as_transparent(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggedFleet(caplog, "api-1")
    log.snapshot_holder.observe(
        "baremetal", "api-1", ProbeSucceeded(Advertisement(VersionSet.only(Version(1, 1)), legacy=True), 1.0)
    )
    [line] = log.lines()
    assert line.startswith("INFO baremetal: offer none -> transparent (every backend is legacy)")


def test_the_start_logs_what_is_in_force(caplog: pytest.LogCaptureFixture) -> None:
    """CHEF-8, also where nothing changes any more: declared versions, and what a state file brought."""
    fresh = LoggedFleet(caplog, "api-1")
    fresh.change_log.log_initial(fresh.snapshot_holder.current)
    assert fresh.lines() == ["INFO baremetal: offer none, phase unknown"]
    versions = VersionSet.between(Version(1, 1), V90)
    known = {
        backend.name: SavedAdvertisement(backend.url, Advertisement(versions)) for backend in BACKENDS[:2]
    }
    saved = SavedState(versions, V58, {"api-2": ""}, advertisements=known)
    restored = LoggedFleet(caplog, "api-1", "api-2", saved=saved)
    restored.change_log.log_initial(restored.snapshot_holder.current)
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert lines == [
        "INFO baremetal/api-2: drained, gets no new requests; `skewgate enable baremetal/api-2` puts it back",
        (
            "INFO baremetal: pinned to 1.58, offer 1.1-1.58, phase capped; "
            "held by the pin; `skewgate unpin baremetal` offers 1.1-1.90"
        ),
    ]


def test_a_ceiling_is_not_blamed_while_everybody_still_agrees_on_the_first_offer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LoggedFleet(caplog, "api-1", ceiling=Version(1, 40))
    log.snapshot_holder.agree({"baremetal": NOTHING_AGREED})
    log.lines()
    log.advertise(api_1=58)
    log.change_log.log_initial(log.snapshot_holder.current)
    lines = log.lines()
    assert lines
    assert not [line for line in lines if line.startswith("ERROR") or "below the minimum" in line]


def test_a_reload_logs_what_it_removed(log: LoggedFleet) -> None:
    log.snapshot_holder.apply("baremetal", Drain("api-2"))
    log.caplog.clear()
    reconfigure(log.snapshot_holder, [log.service("api-1")])
    assert log.lines("skewgate.prober") == [
        "INFO baremetal/api-2: no longer configured, its drain is forgotten"
    ]
    reconfigure(log.snapshot_holder, [log.service("api-1", ceiling=Version(1, 40))])
    reconfigure(log.snapshot_holder, [])
    assert log.lines() == [
        (
            "INFO baremetal: configured ceiling 1.40, offer 1.1-1.58 -> 1.1-1.40, phase capped; "
            "held by offer.ceiling; without it the offer is 1.1-1.58"
        ),
        "INFO baremetal: no longer configured",
    ]


def test_what_changes_nothing_of_the_offer_logs_nothing_about_it(log: LoggedFleet) -> None:
    log.snapshot_holder.observe("baremetal", "api-1", ProbeFailed("no connection", 1.0))
    reconfigure(log.snapshot_holder, [log.service()])
    log.wait(60.0)
    assert log.lines() == []
    assert log.snapshot_holder.current.views["baremetal"].offer.versions != NO_VERSIONS


def test_failures_of_requests_are_one_line_each_with_what_to_check(log: LoggedFleet) -> None:
    for at in (2.0, 3.0):
        log.snapshot_holder.observe("baremetal", "api-1", ConnectFailed(at))
        log.snapshot_holder.observe("baremetal", "api-1", VersionMismatch(Version(1, 31), at))
    log.snapshot_holder.observe("baremetal", "api-1", VersionMismatch(Version(1, 40), 4.0))
    learn(log.snapshot_holder, "api-1", upto(58), 5.0)

    unconnected, mismatched, again = log.lines("skewgate.prober")
    key = "baremetal/api-1"
    assert unconnected.startswith(
        f"WARNING {key}: a request could not connect, used only as a last resort until a probe answers"
    )
    assert unconnected.endswith("check http://127.0.0.1:1")
    assert mismatched.startswith(f"ERROR {key}: served another version than the requested 1.31, gets no")
    assert again.startswith(f"ERROR {key}: served another version than the requested 1.40,")


def test_a_backend_whose_version_is_unknown_is_one_line_a_change(log: LoggedFleet) -> None:
    legacy = Advertisement(VersionSet.only(Version(1, 1)), legacy=True)
    for fact in (
        ServedVersionMissing(2.0),
        ServedVersionMissing(3.0),
        ProbeSucceeded(legacy, 4.0, prompted=True),
        ProbeSucceeded(legacy, 5.0),
        ProbeSucceeded(upto(58), 6.0),
    ):
        log.snapshot_holder.observe("baremetal", "api-1", fact)

    known = "gets no negotiated requests, check what answers at http://127.0.0.1:1"
    assert log.lines("skewgate.prober") == [
        (
            "WARNING baremetal/api-1: a response lacked the served version, its versions are unknown until a "
            f"probe shows them; {known}"
        ),
        f"WARNING baremetal/api-1: answers as a server without versions, 1 of 3; {known}",
        f"WARNING baremetal/api-1: answers as a server without versions, 2 of 3; {known}",
        "INFO baremetal/api-1: reports its versions again, serves 1.1-1.58",
    ]


def flap_freshness(log: LoggedFleet, up: bool) -> None:
    fact = ProbeSucceeded(upto(58), log.now) if up else ProbeFailed("no connection", log.now)
    log.snapshot_holder.observe("baremetal", "api-1", fact)


def flap_versions(log: LoggedFleet, up: bool) -> None:
    log.advertise(api_1=58 if up else 90)


def flap_connections(log: LoggedFleet, up: bool) -> None:
    if up:
        flap_freshness(log, up)
    else:
        log.snapshot_holder.observe("baremetal", "api-1", ConnectFailed(log.now))


def flap_served_versions(log: LoggedFleet, up: bool) -> None:
    if up:
        flap_freshness(log, up)
    else:
        log.snapshot_holder.observe("baremetal", "api-1", VersionMismatch(Version(1, 31), log.now))


FLAPS = (flap_freshness, flap_versions, flap_connections, flap_served_versions)


@pytest.mark.parametrize("flap", FLAPS)
@pytest.mark.parametrize("policy", [Policy.GUARANTEED, Policy.REACHABLE])
def test_R_B8_a_backend_that_flaps_every_second_for_ten_minutes_is_a_few_lines(
    caplog: pytest.LogCaptureFixture, policy: Policy, flap: Callable[[LoggedFleet, bool], None]
) -> None:
    log = LoggedFleet(caplog, "api-1", "api-2", policy=policy, stabilization=0.0)
    log.advertise(api_1=58, api_2=58)
    log.lines()
    for second in range(600):
        flap(log, second % 2 == 1)
        log.wait(1.0)

    assert 5 < len(caplog.records) < 45


def flap(log: LoggedFleet, changes: int) -> None:
    """api-1 goes down and up, a change a second, after a while in which nothing has changed."""
    log.wait(60.0)
    for number in range(changes):
        flap_freshness(log, number % 2 == 1)
        log.wait(1.0)


def test_R_B8_the_first_flaps_are_told_at_once_and_then_ever_more_of_them_together(log: LoggedFleet) -> None:
    down = "WARNING baremetal/api-1: stale (probe failed): no connection"
    up = "INFO baremetal/api-1: answers again, serves 1.1-1.58"
    flap(log, 80)
    assert log.lines("skewgate.prober") == [
        *(down, up, down, up, down, up),
        "WARNING baremetal/api-1: changed 10 times in the last 10 s, now fresh, serves 1.1-1.58",
        "WARNING baremetal/api-1: changed 20 times in the last 20 s, now fresh, serves 1.1-1.58",
        "WARNING baremetal/api-1: changed 40 times in the last 40 s, now fresh, serves 1.1-1.58",
    ]


@pytest.mark.parametrize(
    "changes, last",
    [
        (9, "changed 3 times in the last 10 s, now stale (probe failed): no connection"),
        (36, "changed 20 times in the last 20 s, now fresh, serves 1.1-1.58"),
        (46, "changed 10 times in the last 39 s, now fresh, serves 1.1-1.58"),
        (57, "changed 21 times in the last 40 s, now stale (probe failed): no connection"),
        (81, "changed 5 times in the last 34 s, now stale (probe failed): no connection"),
    ],
)
def test_R_B8_the_last_line_about_a_backend_that_has_settled_is_true(
    log: LoggedFleet, changes: int, last: str
) -> None:
    flap(log, changes)
    for _ in range(100):
        log.wait(1.0)
    lines = log.lines("skewgate.prober")
    assert lines[-1] == f"WARNING baremetal/api-1: {last}"

    flap_freshness(log, changes % 2 == 1)
    assert len(log.lines("skewgate.prober")) == 1, "the next change is told at once"


def test_R_B8_one_backend_that_flaps_hides_no_other_and_no_command(log: LoggedFleet) -> None:
    flap(log, 21)
    log.lines("skewgate.prober")
    log.snapshot_holder.observe("baremetal", "api-2", ProbeFailed("no connection", log.now))
    log.snapshot_holder.apply("baremetal", Drain("api-1"))
    assert [line.partition(",")[0] for line in log.lines("skewgate.prober")] == [
        "WARNING baremetal/api-2: stale (probe failed): no connection",
        "INFO baremetal/api-1: drained",
    ]
    log.snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    assert len(log.lines()) == 1


def test_R_B8_holders_of_the_offer_that_flap_hide_no_new_offer(log: LoggedFleet) -> None:
    """api-1 changes its versions; then the upgrade is completed."""
    for second in range(60):
        flap_versions(log, second % 2 == 1)
        log.wait(1.0)
    held = log.lines()
    log.advertise(api_1=90, api_2=90)
    log.wait(5.0)
    rising = log.lines()
    for _ in range(100):
        log.wait(1.0)

    assert 12 < len(held) < 17
    assert held[-1].startswith("WARNING baremetal: offer 1.1-1.58, phase ")
    assert "; changed " in held[-1]
    assert rising == ["INFO baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform"]
    assert log.lines() == [], "that line has told everything"


def test_R_B8_what_is_not_told_is_told_at_the_end_unless_it_is_gone(log: LoggedFleet) -> None:
    flap(log, 9)
    log.lines()
    log.change_log.close()
    (line,) = log.lines("skewgate.prober")
    assert line.startswith(
        "WARNING baremetal/api-1: changed 3 times in the last 3 s, now stale (probe failed)"
    )
    flap_freshness(log, up=True)
    reconfigure(log.snapshot_holder, [log.service("api-2")])
    for _ in range(100):
        log.wait(1.0)
    assert log.lines("skewgate.prober") == ["INFO baremetal/api-1: no longer configured"]


async def test_R_B8_a_timer_tells_what_is_due(log: LoggedFleet) -> None:
    loop = asyncio.get_running_loop()
    flap_freshness(log, up=False)
    log.lines("skewgate.prober")
    began = loop.time()
    change_log = ChangeLog(lambda: log.now + loop.time() - began, lambda _: LastHour({}, 3600.0))
    unsubscribe = log.snapshot_holder.subscribe(change_log.log_changes)
    change_log.start(log.snapshot_holder.current)
    for number in range(9):
        flap_freshness(log, number % 2 == 0)
    log.now = 9.98
    flap_freshness(log, up=False)
    async with asyncio.timeout(PATIENCE):
        while not any("changed 4 times" in text for text in log.caplog.messages):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    unsubscribe()
    change_log.close()
