"""What ordinary replies teach a whole gateway between two probes, and at what rate."""

from __future__ import annotations

from time import monotonic

from gateway.controlplane.overhearing import A_SECOND
from tests.scenarios.client import IronicClient
from tests.scenarios.fakes import Ironic
from tests.scenarios.stand import in_front_of, told

SELDOM = "30s"
"""No probe brings news while these tests run."""


async def test_a_maximum_that_rises_without_a_restart_is_offered_once_it_has_stood() -> None:
    """Ironic reads its pin again on SIGHUP."""
    server = Ironic(58)
    async with in_front_of(server, offer="{settle: 100ms}", interval=SELDOM) as stand:
        client = IronicClient(stand, "1.31")
        server.highest = 90
        await client.get("/v1/nodes")

        await stand.until(lambda view: view.offer.bounds is not None and view.offer.bounds.highest[1] == 90)

        assert told(await stand.at("latest")) == ("1.1", "1.90", "1.90")


async def test_two_servers_behind_one_address_cost_few_snapshots_and_no_request() -> None:
    """Every reply contradicts the one before."""
    server = Ironic(90)
    async with in_front_of(server, interval=SELDOM) as stand:
        client = IronicClient(stand, "1.31")
        changes = 0

        def count(*_: object) -> None:
            nonlocal changes
            changes += 1

        stand.gateway.cell.subscribe(count)
        began = monotonic()
        for number in range(300):
            server.highest = 58 if number % 2 else 90
            assert told(await client.get("/v1/nodes"))[2] == "1.31"
        seconds = monotonic() - began

        assert A_SECOND <= changes <= A_SECOND * (2 + seconds)
        text = stand.gateway.metrics.exposition("")[0].decode()
        deferred = [line for line in text.splitlines() if line.startswith("skewgate_deferred_facts_total{")]
        assert len(deferred) == 1
        assert float(deferred[0].rsplit(" ", 1)[1]) > 0
