"""The clock opens and ends a brown-out on each replica, and a detached replica answers 503."""

from __future__ import annotations

from datetime import date
from time import time

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.brownouts import Schedule
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.versions.version import Version
from gateway.dataplane.limits.refusals import Refusals
from tests.kit.backends import serve
from tests.kit.ironic import versions
from tests.kit.messages import VERSION_FIELD, request
from tests.kit.workers import Gateway, Testbed, service_of

HOUR = 3_600.0
OFFERED = versions("1.1-1.90")
RECORD = AgreedRecord(3, "guaranteed", OFFERED, OFFERED, OFFERED, OFFERED)


async def replica(testbed: Testbed) -> Gateway:
    """One that stands alone, with a brown-out in an hour, for an hour."""
    line = Line(Version(1, 30), date(2023, 7, 1))
    lifecycle = Lifecycle(line, brownouts=(Schedule(int(time() + HOUR), (HOUR,)),))
    return await testbed.started(Gateway(service_of(await testbed.backend(serve), lifecycle=lifecycle)))


async def statuses(*gateways: Gateway, version: str = "1.29") -> list[int]:
    asked = request("GET", "/v1/nodes", f"{VERSION_FIELD}: {version}")
    return [(await gateway.request(asked)).status for gateway in gateways]


async def test_a_window_opens_and_ends_by_the_clock(testbed: Testbed) -> None:
    gateway = await replica(testbed)
    for minutes, status in {0: 200, 58: 200, 60: 406, 118: 406, 121: 200}.items():
        gateway.ahead = 60.0 * minutes
        gateway.worker.check_deadlines()
        assert await statuses(gateway) == [status]
        assert await statuses(gateway, version="1.30") == [200]

    assert [str(record.result) for record in gateway.records] == [
        *["served"] * 4,
        *["brownout", "served"] * 2,
        *["served"] * 2,
    ]
    assert {record.reason for record in gateway.records if record.status == 406} == {"brownout"}


async def test_three_replicas_of_which_one_is_detached(testbed: Testbed) -> None:
    gateways = [await replica(testbed) for _ in range(3)]
    for gateway in gateways:
        gateway.snapshot_holder.agree({"baremetal": Agreed(RECORD, voting=True)})
        gateway.worker.context.refusals = Refusals(lambda: 100.0)
        gateway.worker.context.refusals.deadlines = {"baremetal": 100.5}
    gateways[2].worker.context.refusals.deadlines = {"baremetal": 99.5}

    assert await statuses(*gateways) == [200] * 3
    for gateway in gateways:
        gateway.ahead = HOUR + 60
        gateway.worker.check_deadlines()
    assert await statuses(*gateways) == [406, 406, 503]
    assert await statuses(*gateways, version="1.30") == [200] * 3
