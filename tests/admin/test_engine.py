"""What operators see of an engine beside the gateway."""

from __future__ import annotations

import io
from typing import Any

from gateway.admin import views
from gateway.cli.status import page
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.terminal import Paint
from gateway.telemetry.neighbours import EngineReport
from gateway.telemetry.worker_report import WorkerReport
from tests.admin.testbed import AdminTestbed, StartAdmin, mixed_fleet

REPORT = EngineReport("haproxy", "2.6.12", 7, "", {"a": 3, "b": 0}, {"a": 1}, 1, ("p1",), {"b": "why"}, 5, 2)


def status(report: EngineReport | None) -> dict[str, Any]:
    bed = AdminTestbed(SnapshotHolder(Snapshot.configured([], now=0.0)), engine=report)
    return views.status(bed.status(), {})


def test_status_says_what_goes_past_the_gateway_and_why_something_does_not() -> None:
    assert status(None)["engine"] is None
    assert status(REPORT)["engine"] == {
        "name": "haproxy",
        "release": "2.6.12",
        "pid": 7,
        "problem": None,
        "draining": 1,
        "missing_pools": ["p1"],
        "services": {"a": {"rows": 3}, "b": {"rows": 0, "reason": "why"}},
    }


def test_the_table_says_whether_it_follows() -> None:
    def last_line(report: EngineReport) -> list[str]:
        return page(status(report), 0.0, Paint(io.StringIO())).splitlines()[-1].split(maxsplit=5)

    assert last_line(REPORT) == ["haproxy", "2.6.12", "7", "3", "1", "in sync"]
    absent = REPORT._replace(release="", pid=None, problem="nobody listens at \x1b[1m/x")
    assert last_line(absent) == ["haproxy", "-", "-", "3", "1", "nobody listens at \ufffd[1m/x"]


async def test_a_backend_has_the_requests_of_the_gateway_and_of_the_engine(admin: StartAdmin) -> None:
    site = await admin(
        mixed_fleet(), engine=REPORT._replace(in_flight={"baremetal/api-1": 2, "baremetal/api-2": 0})
    )
    site.report = WorkerReport(in_flight_by_member={"baremetal/api-1": 1, "baremetal/api-2": 3})
    backends = (await site.json("/status"))["services"]["baremetal"]["backends"]
    assert {name: backend["in_flight"] for name, backend in backends.items()} == {"api-1": 3, "api-2": 3}
