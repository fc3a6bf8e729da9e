"""A new configuration under traffic: what was known and promised before stays good."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from tests.scenarios.client import IronicClient
from tests.scenarios.fakes import LOOPBACK, Ironic
from tests.scenarios.stand import configuration, in_front_of, told


async def test_a_backend_that_joins_and_says_nothing_takes_nothing_away(tmp_path: Path) -> None:
    """It takes connections and never answers: until its first probe has timed out nothing is known of it."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    with socket.create_server((LOOPBACK, 0)) as mute:
        async with in_front_of(server, source=file) as stand:
            client = IronicClient(stand, "latest")
            await client.get("/v1/nodes")
            file.write_text(configuration([server.port, mute.getsockname()[1]]))

            stand.gateway.hang_up()
            await stand.until(lambda view: len(view.pool.members) == 2)

            members = stand.gateway.cell.current.views["baremetal"].pool.members
            assert [member.probed for member in members] == [True, False]
            for _ in range(20):
                assert told(await client.get("/v1/nodes")) == ("1.1", "1.58", "1.58")


async def test_a_reload_under_traffic_loses_no_request(tmp_path: Path) -> None:
    first, second, file = Ironic(58), Ironic(90), tmp_path / "gateway.yaml"
    async with in_front_of(first, second, source=file) as stand:
        changes = iter([([first.port], "{}"), ([first.port, second.port], '{ceiling: "1.40"}')])
        client = IronicClient(stand, "1.31")
        changed = asyncio.Event()
        stand.gateway.cell.subscribe(lambda before, after: changed.set())

        for ports, offer in changes:
            file.write_text(configuration(ports, offer=offer))
            changed.clear()
            stand.gateway.hang_up()
            while not changed.is_set():
                assert told(await client.get("/v1/nodes"))[2] == "1.31"
            for _ in range(20):
                assert told(await client.get("/v1/nodes"))[2] == "1.31"

        await stand.until(lambda view: all(member.probed for member in view.pool.members))
        assert told(await stand.at("latest")) == ("1.1", "1.40", "1.40")
        assert {status for _, _, status in client.log} == {200}
