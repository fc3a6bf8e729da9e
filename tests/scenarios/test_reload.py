"""A new configuration under traffic: the gateway keeps its knowledge and its offer."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from tests.scenarios.fakes import LOOPBACK, Ironic
from tests.scenarios.ironic_client import IronicClient
from tests.scenarios.testbed import configuration, in_front_of, version_fields


async def test_a_backend_that_joins_and_never_responds_does_not_lower_the_offer(tmp_path: Path) -> None:
    """It accepts connections and never responds. Until its first probe times out, nothing is known of it."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    with socket.create_server((LOOPBACK, 0)) as unresponsive:
        async with in_front_of(server, source=file) as testbed:
            client = IronicClient(testbed, "latest")
            await client.get("/v1/nodes")
            file.write_text(configuration([server.port, unresponsive.getsockname()[1]]))

            testbed.gateway.on_sighup()
            await testbed.until(lambda view: len(view.pool.members) == 2)

            members = testbed.gateway.snapshot_holder.current.views["baremetal"].pool.members
            assert [member.probed for member in members] == [True, False]
            for _ in range(20):
                assert version_fields(await client.get("/v1/nodes")) == ("1.1", "1.58", "1.58")


async def test_a_reload_under_traffic_loses_no_request(tmp_path: Path) -> None:
    first, second, file = Ironic(58), Ironic(90), tmp_path / "gateway.yaml"
    async with in_front_of(first, second, source=file) as testbed:
        changes = iter([([first.port], "{}"), ([first.port, second.port], '{ceiling: "1.40"}')])
        client = IronicClient(testbed, "1.31")
        changed = asyncio.Event()
        testbed.gateway.snapshot_holder.subscribe(lambda before, after: changed.set())

        for ports, offer in changes:
            file.write_text(configuration(ports, offer=offer))
            changed.clear()
            testbed.gateway.on_sighup()
            while not changed.is_set():
                assert version_fields(await client.get("/v1/nodes"))[2] == "1.31"
            for _ in range(20):
                assert version_fields(await client.get("/v1/nodes"))[2] == "1.31"

        await testbed.until(lambda view: all(member.probed for member in view.pool.members))
        assert version_fields(await testbed.at("latest")) == ("1.1", "1.40", "1.40")
        assert {status for _, _, status in client.log} == {200}
