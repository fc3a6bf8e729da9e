"""What a whole gateway learns from ordinary responses between two probes, and how often."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
from time import monotonic

from gateway.controlplane.passive_observation import CHANGES_PER_SECOND
from gateway.core.versions.version import Version
from tests.kit.waiting import PATIENCE
from tests.scenarios.fakes import OWN, Ironic
from tests.scenarios.ironic_client import IronicClient
from tests.scenarios.testbed import REPEATS, in_front_of, version_fields

SELDOM = "30s"
"""No probe runs again during these tests."""


async def test_a_maximum_that_rises_without_a_restart_is_offered_after_stabilization() -> None:
    """Ironic reads its pin again on SIGHUP."""
    server = Ironic(58)
    async with in_front_of(server, offer="{stabilization: 100ms}", interval=SELDOM) as testbed:
        client = IronicClient(testbed, "1.31")
        server.highest = 90
        await client.get("/v1/nodes")

        await testbed.until(
            lambda view: view.offer.offered is not None and view.offer.offered.highest[1] == 90
        )

        assert version_fields(await testbed.at("latest")) == ("1.1", "1.90", "1.90")


async def test_two_servers_behind_one_address_cost_few_snapshots_and_no_request() -> None:
    """Every response contradicts the one before."""
    server = Ironic(90)
    async with in_front_of(server, interval=SELDOM) as testbed:
        client = IronicClient(testbed, "1.31")
        changes = 0

        def count(*_: object) -> None:
            nonlocal changes
            changes += 1

        testbed.gateway.snapshot_holder.subscribe(count)
        began = monotonic()
        for number in range(300):
            server.highest = 58 if number % 2 else 90
            assert version_fields(await client.get("/v1/nodes"))[2] == "1.31"
        seconds = monotonic() - began

        assert CHANGES_PER_SECOND <= changes <= CHANGES_PER_SECOND * (2 + seconds)
        text = b"".join(testbed.gateway.metrics.exposition("")[0]).decode()
        deferred = [line for line in text.splitlines() if line.startswith("skewgate_deferred_facts_total{")]
        assert len(deferred) == 1
        assert float(deferred[0].rsplit(" ", 1)[1]) > 0


async def test_R_A2_a_backend_that_became_legacy_between_probes_is_probed_at_its_first_response() -> None:
    """It got 1.72, executed 1.1, and its response names no version."""
    server = Ironic(72)
    async with in_front_of(server, interval=SELDOM) as testbed:
        probes = len(server.received)
        server.highest = None
        await testbed.at("1.72", "/v1/nodes")

        async with asyncio.timeout(PATIENCE):
            await testbed.until(lambda view: not view.by_version.candidates(Version(1, 72)).members)
        forwarded = len(server.forwarded)
        assert (await testbed.at("1.72", "/v1/nodes")).status == 503
        assert len(server.forwarded) == forwarded, "nobody knows at which version it executes"
        assert testbed.offer == "1.1-1.72", "its last report counts"
        async with asyncio.timeout(PATIENCE):
            await testbed.until(lambda view: "1 of 3" in str(view.members.all[0].error))
        assert len(server.received) - len(server.forwarded) == probes + 1


async def test_R_A2_a_server_that_became_a_legacy_one_gets_no_negotiated_request() -> None:
    """No connection was refused, and no regular probe runs: only the response to a POST shows it."""
    replaced, other = Ironic(90), Ironic(90)
    async with in_front_of(replaced, other, interval=SELDOM) as testbed:
        replaced.highest = None
        answer = await testbed.send("/v1/nodes", (OWN, "1.72"), method="POST", body=b"{}")
        while not replaced.forwarded:
            answer = await testbed.send("/v1/nodes", (OWN, "1.72"), method="POST", body=b"{}")
        assert version_fields(answer) == ("1.1", "1.90", "1.1"), "the client is told what was served"

        for version in ("1.1", "1.72", "latest") * REPEATS:
            answer = await testbed.send("/v1/nodes", (OWN, version), method="POST", body=b"{}")
            assert answer.get(OWN) == ("1.90" if version == "latest" else version)
        assert len(replaced.forwarded) == 1


async def test_R_A2_a_server_that_became_a_legacy_one_is_one_after_three_probes() -> None:
    replaced, other = Ironic(90), Ironic(90)
    async with in_front_of(replaced, other) as testbed:
        replaced.highest = None

        await testbed.until(lambda view: any(member.legacy for member in view.members.all))

        assert testbed.offer == "1.1-1.90", "the other one still serves them"
        async with asyncio.timeout(PATIENCE):
            while not replaced.forwarded:
                assert version_fields(await testbed.at("1.1")) == ("1.1", "1.90", "1.1")
        assert not replaced.forwarded[0].versions
