"""What the operations page shows, as values: made from a snapshot and what is known beside it."""

from __future__ import annotations

import asyncio
import logging
import string
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.admin.ui.backend_rows import CROWD
from gateway.admin.ui.contents import ROWS, SERVICES, PageContents
from gateway.admin.ui.model import BackendRow, Bar, DemandRow, Overview, RefusalRow, ReplicaRow, ServicePage
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import Advertisement
from gateway.core.fleet.admission import Maintenance
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Drain, HealthChecked, Pin, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.history import History
from gateway.telemetry.neighbours import AgreementReport, EngineReport, ReplicaReport, ServiceReport
from gateway.telemetry.process_log import about, by_operator
from gateway.telemetry.recent import SPAN, LastHour, ServiceRates
from gateway.telemetry.series.service import OfService
from gateway.telemetry.status import BackendStatus, ServiceStatus, WorkerState
from gateway.telemetry.worker_report import Ejected, WorkerReport
from tests.admin.testbed import AdminTestbed, mixed_fleet, unknown_fleet
from tests.core.builders import Toy, service
from tests.kit import ironic
from tests.kit.ironic import holder_of, learn, upto
from tests.telemetry.builders import record


def fails(holder: SnapshotHolder, backend: str, error: str = "no connection", times: int = 3) -> None:
    for at in range(times):
        holder.observe("baremetal", backend, ProbeFailed(error, 2.0 + at))


async def overview(testbed: AdminTestbed) -> Overview:
    return await PageContents(testbed.context()).overview()


async def page(testbed: AdminTestbed, name: str = "baremetal") -> ServicePage:
    found = await PageContents(testbed.context()).service_page(name)
    assert found is not None
    return found


async def backend(testbed: AdminTestbed, name: str) -> BackendRow:
    [found] = [each for each in (await page(testbed)).backends if each.name == name]
    return found


# --- the offer ----------------------------------------------------------------------------------------------


async def test_in_an_upgrade_the_page_says_what_is_offered_why_and_who_must_move() -> None:
    found = await page(AdminTestbed(mixed_fleet()))
    offer = found.offer
    assert (offer.range, offer.phase, offer.who, offer.then) == ("1.1-1.58", "mixed", ("api-1",), "1.1-1.90")
    assert offer.why == (
        "the offer rises to what every backend in service serves; "
        "1.59-1.90 is held back by api-1 (1.1-1.58): upgrade or drain"
    )
    assert (offer.pin, offer.ceiling) == ("", "")
    assert (found.guaranteed, found.reachable) == ("1.1-1.58", "1.1-1.90")
    assert offer.bars == (Bar(0.0, 58 / 90, "1.1-1.58"),)
    assert [(label.text, round(label.at, 2)) for label in found.labels] == [
        *(("1.1", 0.01), ("1.90", 0.99), ("1.58", 0.64), ("1.59", 0.65)),
    ]


async def test_under_a_pin_and_a_ceiling_of_the_configuration() -> None:
    holder = mixed_fleet(ceiling=Version(1, 50))
    holder.apply("baremetal", Pin(Version(1, 31)))
    offer = (await page(AdminTestbed(holder))).offer
    assert (offer.range, offer.pin, offer.ceiling, offer.who, offer.then) == (
        *("1.1-1.31", "1.31", "1.50"),
        *((), ""),
    )
    assert offer.why.endswith("; held by the pin; `skewgate unpin baremetal` offers 1.1-1.50")


async def test_what_waits_for_its_stabilization_is_told_without_a_countdown() -> None:
    holder = mixed_fleet(stabilization=3600.0)
    learn(holder, "api-1", upto(90), 2.0)
    offer = (await page(AdminTestbed(holder))).offer
    assert (offer.range, offer.phase, offer.then) == ("1.1-1.58", "stabilizing", "1.1-1.90")
    assert offer.why.endswith("; 1.59-1.90 is offered once it has been served for 3600 s")


async def test_what_stays_on_offer_by_a_last_report_names_who_keeps_it() -> None:
    holder = mixed_fleet()
    learn(holder, "api-1", upto(90), 2.0)
    holder.apply("baremetal", Drain("api-1"))
    fails(holder, "api-2")
    found = await page(AdminTestbed(holder))
    assert (found.offer.range, found.offer.who, found.offer.then) == ("1.1-1.90", ("api-1", "api-2"), "")
    assert found.health.level == "bad"
    assert found.health.problems[0] == "all backends for 1.1-1.90 are down: requests get 503"
    assert (found.offer.bars, [bar.text for bar in found.offer.unserved]) == ((), ["1.1-1.90"])


async def test_dates_that_nobody_serves_between_are_one_bar_and_others_are_two() -> None:
    drawing_fleet = holder_of(dated_service("a", "b"))
    dates = [Version(2024, month) for month in (1, 3, 5, 8)]
    for name, served in (("a", dates), ("b", [dates[0], dates[1], dates[3]])):
        drawing_fleet.observe("toy", name, ProbeSucceeded(Advertisement(VersionSet.only(*served)), 1.0))
    found = await page(AdminTestbed(drawing_fleet), "toy")
    assert found.backends[0].bars == (Bar(0.0, 1.0, "2024-01..2024-08"),)
    assert [(bar.begin, bar.end, bar.text) for bar in found.backends[1].bars] == [
        *((0.0, 0.5, "2024-01..2024-03"), (0.75, 1.0, "2024-08")),
    ]
    assert found.backends[1].serves == "2024-01, 2024-03, 2024-08"


def dated_service(*names: str) -> Service:
    return service(*names, dialect=Toy(scheme=CalendarDate(day=False)))


async def test_labels_of_the_ends_and_of_the_offer_come_first() -> None:
    backends = tuple(Backend(f"api-{highest}", "10.0.0.1", highest) for highest in range(40, 91))
    holder = holder_of(ironic.service(*backends))
    for each in backends:
        learn(holder, each.name, upto(each.port))
    labels = (await page(AdminTestbed(holder))).labels
    assert [label.text for label in labels[:4]] == ["1.1", "1.90", "1.40", "1.41"]
    assert len(labels) == len(set(labels)) == 52


# --- backends -----------------------------------------------------------------------------------------------


async def test_a_backend_has_what_it_serves_its_state_and_its_requests() -> None:
    testbed = AdminTestbed(
        mixed_fleet(),
        report=WorkerReport(in_flight_by_member={"baremetal/api-2": 3}),
        last_probe_at={("baremetal", "api-2"): 1790000000.5},
        rates={"baremetal": ServiceRates(7.5, {"api-2": 6.5})},
    )
    assert await backend(testbed, "api-2") == BackendRow(
        key=(await backend(testbed, "api-2")).key,
        name="api-2",
        url="http://10.0.0.2:6385",
        serves="1.1-1.90",
        bars=(Bar(0.0, 1.0, "1.1-1.90"),),
        freshness="fresh",
        state="in service",
        drained=False,
        note="",
        in_flight=3,
        queued=None,
        rate=6.5,
        last_probe_at=1790000000.5,
    )
    found = await page(testbed)
    assert (found.rate, found.in_flight) == (7.5, 3)


async def test_keys_are_stable_distinct_and_fit_into_markup() -> None:
    names = ("<b>", "a b", "ä\x1b", "x" * 500, "api-1")
    holder = holder_of(hostile_service(*names))
    first, second = [(await page(AdminTestbed(holder))).backends for _ in range(2)]
    keys = [each.key for each in first]
    assert keys == [each.key for each in second]
    assert len({*keys}) == len(names)
    assert set("".join(keys)) <= {*string.ascii_lowercase, *string.digits, "-"}
    assert [each.name for each in first] == [*names]


def hostile_service(*names: str) -> Service:
    backends = tuple(Backend(name, "10.0.0.1", 1 + at) for at, name in enumerate(names))
    return Service("baremetal", Ironic(), backends)


@pytest.mark.parametrize("error", ["<script>alert(1)</script>", "a\x00b\x1b[31m", "\u202e\u2028", "'\"&amp;"])
async def test_texts_from_outside_pass_unchanged_because_the_renderer_escapes_them(error: str) -> None:
    holder = mixed_fleet()
    fails(holder, "api-1", error)
    found = await backend(AdminTestbed(holder), "api-1")
    assert (found.note, found.freshness) == (error, "down")


async def test_a_long_error_is_cut() -> None:
    holder = mixed_fleet()
    fails(holder, "api-1", "x" * 100_000)
    found = await page(AdminTestbed(holder))
    assert max(len(each.note) for each in found.backends) == 300
    assert sum(map(len, found.health.problems)) < 1000


async def test_the_states_of_backends_and_why() -> None:
    holder = mixed_fleet()
    testbed = AdminTestbed(holder, report=WorkerReport(waiting_by_member={"baremetal/api-1": 2}))
    assert (await backend(testbed, "api-1")).state == "in service"
    holder.observe("baremetal", "api-1", HealthChecked("says 503", 2.0))
    assert ((await backend(testbed, "api-1")).state, (await backend(testbed, "api-1")).note) == (
        *("unhealthy", "says 503"),
    )
    testbed.report = WorkerReport(ejected={"baremetal/api-1": Ejected("5 failures in a row", 30.0)})
    found = await backend(testbed, "api-1")
    assert found.state == "ejected"
    assert found.note.startswith("ejected until ")
    assert found.note.endswith(" UTC: 5 failures in a row; says 503")
    holder.apply("baremetal", Drain("api-1"))
    found = await backend(testbed, "api-1")
    assert (found.state, found.drained, found.queued) == ("drained", True, None)


async def test_leaving_backup_and_bounded_backends() -> None:
    leaves_at = time.monotonic() + 60.0
    backends = (
        Backend("gone", "10.0.0.1", 1, leaves_at=leaves_at, declared=upto(58).versions),
        Backend("spare", "10.0.0.2", 1, backup=True, max_requests=4, declared=upto(58).versions),
    )
    holder = holder_of(ironic.service(*backends))
    testbed = AdminTestbed(holder, report=WorkerReport(waiting_by_member={"baremetal/spare": 2}))
    gone, spare = (await page(testbed)).backends
    assert (gone.state, spare.state, gone.queued, spare.queued) == ("leaving", "backup", None, 2)
    assert gone.note.startswith("leaves at ")


async def test_what_is_unknown_and_what_is_legacy() -> None:
    holder = unknown_fleet()
    legacy = Advertisement(VersionSet.only(Version(1, 1)), legacy=True)
    learn(holder, "api-2", legacy)
    unknown, old = (await page(AdminTestbed(holder))).backends
    assert (unknown.serves, unknown.bars, unknown.freshness) == ("nothing known", (), "unknown")
    assert (old.serves, old.freshness) == ("1.1 (legacy)", "fresh")


# --- requests -----------------------------------------------------------------------------------------------


async def test_demand_is_the_most_frequent_versions_and_the_rest_together() -> None:
    served = {f"1.{minor}": minor for minor in range(1, 31)} | {"other": 35, "1.99": 0}
    found = await page(AdminTestbed(mixed_fleet(), last_hour={"baremetal": LastHour(served, SPAN)}))
    assert found.demand[0] == DemandRow("1.30", 30, 30 / 500)
    assert found.demand[-1] == DemandRow("other", 35 + sum(range(1, 11)), 90 / 500)
    assert len(found.demand) == 21
    assert sum(each.share for each in found.demand) == pytest.approx(1.0)
    assert found.demand_seconds == SPAN
    assert (await page(AdminTestbed(mixed_fleet()))).demand == ()


@pytest.mark.parametrize(
    "seconds, shown", [(0.0, 0.0), (6.0, 10.0), (59.9, 60.0), (61.0, 60.0), (3540.0, 3540.0), (3659.0, SPAN)]
)
async def test_how_far_demand_goes_back_does_not_change_with_every_second(
    seconds: float, shown: float
) -> None:
    last_hour = {"baremetal": LastHour({}, seconds)}
    assert (await page(AdminTestbed(mixed_fleet(), last_hour=last_hour))).demand_seconds == shown


async def test_refusals_are_told_by_reason_in_words() -> None:
    testbed = AdminTestbed(
        mixed_fleet(), rates={"baremetal": ServiceRates(results={NegotiationResult.ABOVE_MAX: 1.5})}
    )
    context = testbed.context()
    for result in (NegotiationResult.ABOVE_MAX, NegotiationResult.ABOVE_MAX, NegotiationResult.MALFORMED):
        context.metrics.record(record(result=result, backend="none", status=406))
    context.metrics.count(OfService.requests_refused, "client_rate", service="baremetal")
    found = await PageContents(context).service_page("baremetal")
    assert found is not None
    assert found.refusals == (
        RefusalRow("above the offer", 2, 1.5),
        RefusalRow("not a version", 1, 0.0),
        RefusalRow("too many requests of one client per second", 1, 0.0),
    )


# --- health -------------------------------------------------------------------------------------------------


async def test_when_nothing_is_wrong_it_says_so() -> None:
    holder = mixed_fleet()
    learn(holder, "api-1", upto(90), 2.0)
    found = await page(AdminTestbed(holder))
    assert found.health == ("good", "healthy: all 2 backends are fresh", ())
    assert (await overview(AdminTestbed(holder))).health == ("good", "healthy: the service is served", ())


async def test_one_failed_probe_is_no_problem_and_is_not_called_an_answer() -> None:
    holder = mixed_fleet()
    learn(holder, "api-1", upto(90), 1.5)
    fails(holder, "api-1", times=1)
    assert (await page(AdminTestbed(holder))).health.sentence == (
        "healthy: 1 of 2 backends are fresh; the last probe of the others failed or has not ended"
    )


async def test_in_an_upgrade_it_says_how_far_it_is() -> None:
    found = await page(AdminTestbed(mixed_fleet()))
    assert found.health == ("upgrading", "upgrading: 1 of 2 serve 1.90", ())
    assert found.offer.progress == "1 of 2 serve 1.90"
    row = await overview(AdminTestbed(mixed_fleet()))
    assert row.health == ("upgrading", "1 of 1 services are upgrading; all services are served", ())
    assert row.services[0].progress == "1 of 2 serve 1.90"


async def test_backends_with_equal_errors_are_named_together() -> None:
    holder = thousand()
    for number in range(1000):
        learn(holder, f"api-{number}", upto(58))
    for number in range(5):
        error = f"no connection to 10.0.0.1:{number}: {'timed out' if number == 2 else 'connection refused'}"
        fails(holder, f"api-{number}", error)
    [problem] = (await page(AdminTestbed(holder))).health.problems
    assert problem.endswith(
        ": api-0, api-1, api-3, api-4 (no connection: connection refused); api-2 (no connection: timed out)"
    )


async def test_one_that_is_drained_and_restarted_is_no_problem() -> None:
    holder = mixed_fleet()
    fails(holder, "api-1")
    assert (await page(AdminTestbed(holder))).health.level == "attention"
    holder.apply("baremetal", Drain("api-1"))
    assert (await page(AdminTestbed(holder))).health.level == "good"


async def test_problems_come_in_the_order_in_which_they_matter() -> None:
    holder = mixed_fleet(maintenance=Maintenance(503))
    fails(holder, "api-1")
    testbed = AdminTestbed(
        holder,
        not_serving="it is draining",
        config_error="skewgate.yaml:3: no",
        report=WorkerReport(ejected={"baremetal/api-2": Ejected("failures", 9.0)}),
        certificate_expiry={"soon.pem": time.time() + 3600.0, "far.pem": time.time() + 1e9},
    )
    found = (await page(testbed)).health
    assert (found.level, found.sentence) == ("bad", "not healthy: 6 problems")
    assert found.problems[:2] == (
        "it is draining",
        "the last reload was refused, the old configuration is in force: skewgate.yaml:3: no",
    )
    assert found.problems[2].startswith("certificates expire soon, the first at ")
    assert found.problems[2].endswith(": soon.pem")
    assert found.problems[3:] == (
        "1 of 2 backends is down (3 failed probes) and used only as a last resort: api-1 (no connection)",
        "1 of 2 backends is ejected: api-2",
        "maintenance: every request gets 503",
    )


def nothing_configured() -> SnapshotHolder:
    return holder_of()


@pytest.mark.parametrize(
    "case, said",
    [
        ("unprobed", "no probe has ended yet"),
        ("failed", "no backend has reported its versions yet"),
        ("drained", "every backend is drained"),
        ("empty", "there is no backend"),
    ],
)
async def test_why_nothing_is_offered(case: str, said: str) -> None:
    holder = unknown_fleet()
    if case == "empty":
        holder = holder_of(ironic.service())
    for name in ("api-1", "api-2"):
        if case == "failed":
            fails(holder, name)
        if case == "drained":
            holder.apply("baremetal", Drain(name))
    found = await page(AdminTestbed(holder))
    assert found.health.level == "bad"
    assert found.health.problems[0] == f"nothing is offered, requests get 503: {said}"
    assert (found.offer.range, found.offer.bars, found.labels) == ("nothing", (), ())


async def test_a_ceiling_below_the_minimum_is_the_first_problem() -> None:
    holder = unknown_fleet(ceiling=Version(1, 5))
    for name in ("api-1", "api-2"):
        learn(holder, name, upto(20, 10))
    found = await page(AdminTestbed(holder))
    assert found.health.problems[0].startswith(
        "nothing is offered: the ceiling is below the minimum 1.10, requests get 503; "
    )
    assert found.labels  # what a ceiling hides is on the axis


async def test_a_transparent_service_is_healthy_and_not_negotiated() -> None:
    holder = unknown_fleet()
    for name in ("api-1", "api-2"):
        legacy = Advertisement(VersionSet.only(Version(1, 1)), legacy=True)
        learn(holder, name, legacy)
    found = await page(AdminTestbed(holder))
    assert (found.health.level, found.offer.range) == ("good", "not negotiated")
    assert found.offer.why.startswith("every backend in service is legacy: nothing is negotiated")


# --- all services, replicas and events ----------------------------------------------------------------------


async def test_the_overview_has_a_row_for_each_service_and_the_worst_health_of_all() -> None:
    services = [replace(each, name=name) for name in ("a", "b") for each in [hostile_service("api-1")]]
    holder = holder_of(*services)
    learn(holder, "api-1", upto(58), service="a")
    found = await overview(AdminTestbed(holder, rates={"a": ServiceRates(2.5)}))
    assert [(each.name, each.offer, each.phase, each.backends, each.rate) for each in found.services] == [
        ("a", "1.1-1.58", "uniform", "1 of 1 fresh", 2.5),
        ("b", "nothing", "unknown", "0 of 1 fresh", 0.0),
    ]
    assert [each.held for each in found.services] == [
        "",
        "no probe has ended yet",
    ]
    assert [each.is_served for each in found.services] == [True, False]
    assert [each.health.level for each in found.services] == ["good", "bad"]
    assert found.health == (
        *("bad", "not healthy: 1 problem"),
        ("b: nothing is offered, requests get 503: no probe has ended yet",),
    )
    assert len({each.key for each in found.services}) == 2


async def test_without_a_service_it_is_not_healthy() -> None:
    found = await overview(AdminTestbed(nothing_configured()))
    assert (found.services, found.health.problems) == ((), ("no service is configured",))


async def test_an_unknown_service_has_no_page() -> None:
    assert await PageContents(AdminTestbed(mixed_fleet()).context()).service_page("nobody") is None


def agreed(
    own: ReplicaReport, *others: ReplicaReport, about_it: ServiceReport, error: str = ""
) -> AgreementReport:
    return AgreementReport(own.id, error, (own, *others), {"baremetal": about_it})


OWN = ReplicaReport("a1", "gw-a", "host-a", "1.0", True, 1.0)
OTHER = ReplicaReport("b2", "gw-b", "host-b", "1.0", True, 1.0, holds=("baremetal",))


async def test_replicas_show_the_record_that_they_hold_and_who_is_awaited() -> None:
    report = agreed(OWN, OTHER, about_it=ServiceReport(True, 1.0, 12, awaited=("b2",)))
    found = await page(AdminTestbed(mixed_fleet(), agreement=report))
    assert found.replicas == (
        ReplicaRow("replica", "gw-a (this one)", "attached", "record 12", "host-a 1.0"),
        ReplicaRow(
            *("replica", "gw-b", "attached", "not yet record 12"),
            "the next step waits for it; host-b 1.0",
        ),
    )
    assert (await overview(AdminTestbed(mixed_fleet(), agreement=report))).replicas[0].level == "record 12"


async def test_a_detached_replica_and_a_store_that_does_not_answer() -> None:
    gone = OTHER._replace(attached=False, differs=("baremetal",))
    report = agreed(OWN, gone, about_it=ServiceReport(False, 1.0, 12, 90.0), error="<timeout>")
    found = await page(AdminTestbed(mixed_fleet(), agreement=report))
    assert found.health.problems[:4] == (
        "the store that replicas share does not respond: <timeout>",
        "this replica is detached for baremetal: it refuses no version, and it stops responding in 2 min",
        "replicas not attached: gw-b",
        "replicas whose configuration differs in what clients can notice: gw-b",
    )
    assert (found.replicas[1].state, found.replicas[1].level) == ("detached", "")


async def test_workers_are_shown_where_there_are_several() -> None:
    def worker(slot: int, state: str, restarts: int = 0, holds: Snapshot | None = None) -> WorkerState:
        return WorkerState(slot, 70 + slot, slot, state, restarts, holds)

    assert (await page(AdminTestbed(mixed_fleet(), workers=(worker(0, "serving"),)))).replicas == ()
    versions = VersionSet.between(Version(1, 1), Version(1, 58))
    record = AgreedRecord(3, "guaranteed", versions, versions, versions, versions)
    holds = mixed_fleet().current.with_agreed({"baremetal": Agreed(record)}, 1.0)
    workers = worker(0, "starting"), worker(1, "serving", 2, holds)
    testbed = AdminTestbed(mixed_fleet(), workers=workers)
    found = await page(testbed)
    assert found.replicas == (
        ReplicaRow("worker", "worker 0", "starting", "", "process 70, 0 connections"),
        ReplicaRow("worker", "worker 1", "serving", "record 3", "process 71, 1 connection, replaced 2 times"),
    )
    assert found.health.problems == ("1 of 2 workers are not serving: 0",)
    assert found.health.level == "attention"


async def test_an_engine_that_does_not_follow() -> None:
    engine = EngineReport(
        "haproxy", "2.6", 7, "it does not answer", {"baremetal": 4}, {"baremetal": 11}, 0, (), {}, 1, 1
    )
    found = await page(AdminTestbed(mixed_fleet(), engine=engine))
    assert found.replicas == (
        ReplicaRow(
            *("engine", "haproxy 2.6", "not in sync", "record 11"),
            "it does not answer; 4 table rows bypass the gateway",
        ),
    )
    assert found.health.problems == ("the engine haproxy is not in sync: it does not answer",)


@pytest.fixture
def history(caplog: pytest.LogCaptureFixture) -> Iterator[History]:
    caplog.set_level(logging.INFO, "skewgate")
    found = History()
    found.start()
    yield found
    found.close()


async def test_events_have_a_kind_and_lose_the_name_that_stands_beside_them(history: History) -> None:
    def log(logger: str, text: str, extra: Any = None, level: int = logging.INFO) -> None:
        logging.getLogger(logger).log(level, "%s", text, extra=extra)

    log("skewgate.offer", "baremetal: offer 1.1-1.58", about("baremetal"))
    log("skewgate.offer", "baremetal: pinned to 1.31", by_operator("baremetal"))
    log("skewgate.prober", "baremetal/api-1: down", about("baremetal/api-1"), logging.WARNING)
    log("skewgate.reload", "reload refused", level=logging.ERROR)
    log("skewgate.agreement", "gw-b has joined")
    log("skewgate.workers", "worker 1 serves", level=logging.CRITICAL)
    log("skewgate.offer", "other: offer 1", about("other"))
    testbed = AdminTestbed(mixed_fleet(), history=history)
    found = [(each.kind, each.level, each.service, each.text) for each in (await page(testbed)).events]
    assert found[::-1] == [
        ("offer", "info", "baremetal", "offer 1.1-1.58"),
        ("operator", "info", "baremetal", "pinned to 1.31"),
        ("backend", "warning", "baremetal", "api-1: down"),
        ("config", "error", "", "reload refused"),
        ("agreement", "info", "", "gw-b has joined"),
        ("other", "error", "", "worker 1 serves"),
    ]
    assert [each.text for each in (await overview(testbed)).events][:2] == ["offer 1", "worker 1 serves"]


# --- a thousand backends ------------------------------------------------------------------------------------


def thousand() -> SnapshotHolder:
    backends = tuple(Backend(f"api-{number}", "10.0.0.1", 1 + number) for number in range(1000))
    return holder_of(ironic.service(*backends))


async def test_a_thousand_backends_are_made_in_slices_from_one_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holder = thousand()
    made: list[int] = []
    turns = 0

    make = ServiceStatus.backends

    def counted(*slice_: Any) -> Iterator[BackendStatus]:
        made.append(turns)
        return make(*slice_)

    monkeypatch.setattr(ServiceStatus, "backends", counted)

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1
            if turns == 8:  # in the middle: the page does not show it
                holder.apply("baremetal", Drain("api-999"))

    task = asyncio.create_task(others())
    found = await page(AdminTestbed(holder))
    task.cancel()
    assert len(found.backends) == 1000
    assert len(made) == 1000 / ROWS
    assert len({*made}) == len(made)  # never two slices in one turn
    assert not found.backends[999].drained
    assert (await backend(AdminTestbed(holder), "api-999")).drained


async def test_many_services_are_made_in_slices_too() -> None:
    services = [
        replace(hostile_service("api-1"), name=f"service-{number}") for number in range(10 * SERVICES)
    ]
    holder = holder_of(*services)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    found = await overview(AdminTestbed(holder))
    task.cancel()
    assert len(found.services) == 10 * SERVICES
    assert turns >= 9
    [problem] = found.health.problems
    assert problem == (
        "service-0, service-1, service-2, service-3 and 196 more: "
        "nothing is offered, requests get 503: no probe has ended yet"
    )


async def test_a_crowd_is_grouped_and_its_problems_come_first() -> None:
    backends = tuple(Backend(f"api-{number}", "10.0.0.1", 1 + number) for number in range(CROWD))
    holder = holder_of(ironic.service(*backends))
    for number in range(1, CROWD):
        learn(holder, f"api-{number}", upto(90 if number < 8 else 58))
    holder.apply("baremetal", Drain("api-9"))
    fails(holder, "api-19")
    found = await page(AdminTestbed(holder))
    assert [(each.number, each.text) for each in found.groups] == [
        (12, "serve 1.1-1.58"),
        (7, "serve 1.1-1.90"),
        (1, "is unknown"),
    ]
    assert found.groups[0].bars == (Bar(0.0, 58 / 90, "1.1-1.58"),)
    assert [each.name for each in found.backends[:5]] == ["api-19", "api-9", "api-0", "api-1", "api-2"]


async def test_a_few_backends_keep_the_order_of_the_configuration() -> None:
    holder = mixed_fleet()
    fails(holder, "api-2")
    found = await page(AdminTestbed(holder))
    assert ([each.name for each in found.backends], found.groups) == (["api-1", "api-2"], ())


async def test_what_names_backends_names_some_of_a_thousand() -> None:
    holder = thousand()
    for number in range(1000):
        learn(holder, f"api-{number}", upto(90 if number == 999 else 58))
    for at in range(3):
        for number in range(500):
            holder.observe("baremetal", f"api-{number}", ProbeFailed("no connection", 2.0 + at))
    found = await page(AdminTestbed(holder))
    assert len(found.offer.who) == 9
    assert found.offer.who[-1] == "991 more"
    [down] = found.health.problems
    assert down == (
        "500 of 1000 backends are down (3 failed probes) and used only as a last resort: "
        "api-0, api-1, api-2, api-3 and 496 more (no connection)"
    )
