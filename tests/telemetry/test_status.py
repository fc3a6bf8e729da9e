"""The status: services and backends are made when they are asked for, from what is known at one moment."""

from __future__ import annotations

import pytest

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend, Freshness
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.runtime.compiled import build_info
from gateway.telemetry.neighbours import (
    AgreementReport,
    EngineReport,
    ReplicaReport,
    ServiceReport,
    SourceReport,
)
from gateway.telemetry.recent import ServiceRates
from gateway.telemetry.status import ConfigInForce, EjectionStatus, GatewayStatus
from gateway.telemetry.worker_report import Ejected, WorkerReport

NOW = 1_790_000_000.0
MONOTONIC = 500.0
SERVED = VersionSet.between(Version(1, 1), Version(1, 58))


class Rates:
    """Rates of a service, and which services were asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, service: str) -> ServiceRates:
        self.asked.append(service)
        return ServiceRates(3.0, {"api-1": 2.0})


def status(
    rates: Rates,
    report: WorkerReport,
    *,
    agreement: AgreementReport | None = None,
    engine: EngineReport | None = None,
    sources: tuple[SourceReport, ...] = (),
) -> GatewayStatus:
    backends = (
        Backend("api-1", "10.0.0.1", 1),
        Backend("api-2", "10.0.0.2", 1, max_requests=4, leaves_at=MONOTONIC + 30.0),
    )
    services = [Service(name, Ironic(), backends) for name in ("a", "b")]
    snapshot = Snapshot.configured(services, now=0.0)
    fleet = snapshot.fleet.observe("a", "api-1", ProbeSucceeded(Advertisement(SERVED), 1.0))
    return GatewayStatus(
        snapshot=snapshot.with_fleet(fleet, 1.0),
        build=build_info(),
        config=ConfigInForce("0123456789ab", NOW),
        report=report,
        rates=rates,
        now=NOW,
        monotonic=MONOTONIC,
        agreement=agreement,
        engine=engine,
        sources=sources,
        last_probe_at={("a", "api-1"): NOW - 1.0},
        certificate_expiry={},
    )


def test_a_service_is_made_when_it_is_asked_for() -> None:
    rates = Rates()
    found = status(rates, WorkerReport())
    assert rates.asked == []
    service = found.service("b")
    assert service is not None
    assert (service.name, rates.asked) == ("b", ["b"])
    assert found.service("nobody") is None
    assert [each.name for each in found.services()] == ["a", "b"]


def test_a_backend_has_what_is_known_of_it_and_its_load() -> None:
    report = WorkerReport(
        in_flight_by_member={"a/api-1": 2, "b/api-1": 9},
        waiting_by_member={"a/api-1": 5, "a/api-2": 1},
        ejected={"a/api-1": Ejected("5 failures in a row", 30.0)},
    )
    engine = EngineReport("haproxy", "", None, "", {}, {}, 0, (), {}, 0, 0, in_flight={"a/api-1": 1})
    service = status(Rates(), report, engine=engine).service("a")
    assert service is not None
    one, two = service.backends()

    assert (one.member.freshness, one.versions, one.last_probe_at) == (Freshness.FRESH, SERVED, NOW - 1.0)
    assert (one.in_flight, one.queued, one.rate) == (3, None, 2.0)
    assert (one.ejection, one.leaves_at) == (EjectionStatus(NOW + 30.0, "5 failures in a row"), None)
    assert (two.member.freshness, two.versions, two.last_probe_at) == (Freshness.UNKNOWN, NO_VERSIONS, None)
    assert (two.in_flight, two.queued, two.rate) == (0, 1, 0.0)
    assert (two.ejection, two.leaves_at) == (None, NOW + 30.0)
    assert service.requests == 3 + 5 + 1

    assert list(service.backends(1)) == [service.backend("api-2")] == [two]
    with pytest.raises(KeyError):
        service.backend("api-3")


def test_a_service_has_what_the_agreement_and_the_sources_say_about_it() -> None:
    replicas = tuple(
        ReplicaReport(id_, name, "", "", attached=True, seen_at=None, holds=holds)
        for id_, name, holds in (("r1", "gw-1", ()), ("r2", "gw-2", ("a",)))
    )
    about = ServiceReport(attached=True, since=NOW, seq=7)
    first, other, second = (
        SourceReport(service, source, 2, 0, 0, 1, 0, NOW, None)
        for service, source in (("a", "dns:one"), ("b", "dns:one"), ("a", "dns:two"))
    )
    found = status(
        Rates(),
        WorkerReport(),
        agreement=AgreementReport("r1", "", replicas, {"a": about}),
        sources=(first, other, second),
    )
    one, two = found.services()
    assert (one.agreement, one.held_by_replicas, one.sources) == (about, ("gw-2",), (first, second))
    assert (two.agreement, two.held_by_replicas, two.sources) == (None, (), (other,))
