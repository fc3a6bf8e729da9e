"""A replica refuses a version only until its deadline, which is looked at when a refusal is about to be
written and at no other time."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client, Clients, Naming
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.dataplane.limits.refusals import Refusals
from tests.kit.backends import serve
from tests.kit.ironic import versions
from tests.kit.messages import VERSION_FIELD, request
from tests.kit.workers import Gateway, Testbed, service_of

OFFERED = versions("1.1-1.90")
RECORD = AgreedRecord(3, "guaranteed", OFFERED, OFFERED, OFFERED, OFFERED)


class BootClock:
    """Stands still, and counts who looks."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


async def replica(testbed: Testbed, agreed: Agreed | None) -> tuple[Gateway, BootClock]:
    clock = BootClock()
    backend = await testbed.backend(serve)
    gateway = await testbed.gateway(backend)
    gateway.worker.context.refusals = Refusals(clock)
    gateway.snapshot_holder.agree({"baremetal": agreed})
    return gateway, clock


async def asked(gateway: Gateway, version: str, *lines: str) -> tuple[int, str]:
    """Status and range of the response."""
    answer = await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: {version}", *lines))
    maximum = answer.every(f"{VERSION_FIELD.removesuffix('-Version')}-Maximum-Version")
    return answer.status, maximum[0] if maximum else ""


async def test_until_its_deadline_it_refuses_and_then_it_answers_503(testbed: Testbed) -> None:
    gateway, clock = await replica(testbed, Agreed(RECORD, voting=True))
    gateway.worker.context.refusals.deadlines = {"baremetal": 100.5}
    assert (await asked(gateway, "1.91"))[0] == 406

    clock.now = 100.5
    status, maximum = await asked(gateway, "1.91")
    assert (status, maximum) == (503, "1.90")
    record = gateway.records[-1]
    assert (record.status, str(record.result), record.reason) == (503, "unavailable", "unavailable")

    gateway.worker.context.refusals.deadlines = {"baremetal": 101.0}
    assert (await asked(gateway, "1.91"))[0] == 406


@pytest.mark.parametrize("deadlines", [{}, {"another": 1e9}])
async def test_without_a_deadline_of_its_own_a_service_refuses_nothing(
    testbed: Testbed, deadlines: dict[str, float]
) -> None:
    gateway, _ = await replica(testbed, Agreed(RECORD, voting=True))
    gateway.worker.context.refusals.deadlines = deadlines

    assert (await asked(gateway, "1.91"))[0] == 503


async def test_what_is_no_refusal_of_a_version_is_answered_as_ever(testbed: Testbed) -> None:
    gateway, _ = await replica(testbed, Agreed(RECORD, voting=True))

    assert (await asked(gateway, "nonsense"))[0] == 406
    assert (await asked(gateway, "1.31"))[0] == 200
    assert (await asked(gateway, "latest"))[0] == 200


async def test_a_refusal_is_looked_at_whatever_comes_with_the_request(testbed: Testbed) -> None:
    gateway, _ = await replica(testbed, Agreed(RECORD, voting=True))
    late = request("POST", "/v1/nodes", f"{VERSION_FIELD}: 1.91", "Content-Length: 5") + b"hello"
    client = await gateway.client()
    await client.send(late)

    assert (await client.response()).status == 503


@pytest.mark.parametrize("agreed", [None, Agreed(RECORD)])
async def test_without_other_replicas_nobody_looks_at_the_clock(
    testbed: Testbed, agreed: Agreed | None
) -> None:
    gateway, clock = await replica(testbed, agreed)

    assert (await asked(gateway, "1.91"))[0] == 406
    assert (await asked(gateway, "1.31"))[0] == 200
    assert clock.looks == 0


async def test_a_request_is_bridged_until_the_deadline_and_then_it_gets_503(testbed: Testbed) -> None:
    """Others may offer the version by now, so neither is final: a refusal, or what takes its place."""
    bridge = Bridge(("ci",), BridgeMatch.NEAREST, date(2099, 12, 31))
    rules = (Client("ci", user_agent="ci"),)
    clock, backend = BootClock(), await testbed.backend(serve)
    gateway = await testbed.started(Gateway(service_of(backend, bridges=(bridge,), naming=Naming(rules))))
    gateway.worker.context.refusals = Refusals(clock)
    gateway.worker.context.refusals.deadlines = {"baremetal": 100.5}
    gateway.snapshot_holder.agree({"baremetal": Agreed(RECORD, voting=True)})
    gateway.snapshot_holder.current = replace(gateway.snapshot_holder.current, clients=Clients(rules))
    assert (await asked(gateway, "1.91", "User-Agent: ci/1"))[0] == 200

    clock.now = 100.5
    assert (await asked(gateway, "1.91", "User-Agent: ci/1"))[0] == 503
    record = gateway.records[-1]
    assert (str(record.result), record.reason) == ("unavailable", "unavailable")


async def test_what_is_served_costs_no_look_at_the_clock(testbed: Testbed) -> None:
    gateway, clock = await replica(testbed, Agreed(RECORD, voting=True))
    for version in ("1.31", "latest", "nonsense"):
        await asked(gateway, version)
    refusals = clock.looks

    assert refusals <= 1, "a malformed version at most"
