"""A raised floor on real sockets: Ironic, Nova and Chef, two workers, a roll-back, and version roots."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from gateway.core.fleet.fleet import Raise
from gateway.core.versions.version import Version
from tests.kit.gateways import gateway_of
from tests.kit.waiting import PATIENCE
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.chef_fleet import Erchef, version_object
from tests.scenarios.fakes import Ironic, running
from tests.scenarios.ironic_client import IronicClient, UnsupportedVersion
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.testbed import (
    Testbed,
    configuration,
    description,
    in_front_of,
    service_of,
    version_fields,
)


def raise_to(testbed: Testbed, floor: Version | None) -> None:
    testbed.gateway.snapshot_holder.apply(testbed.service, Raise(floor))


async def test_ironic_shows_serves_and_refuses_by_the_floor() -> None:
    async with in_front_of(Ironic(58), Ironic(90)) as testbed:
        before = IronicClient(testbed, "1.30")
        assert version_fields(await before.get("/v1/nodes")) == ("1.1", "1.58", "1.30")
        raise_to(testbed, Version(1, 40))

        for asked, served in ((None, "1.40"), ("1.40", "1.40"), ("latest", "1.58")):
            response = await testbed.at(asked)
            assert (response.status, version_fields(response)) == (200, ("1.40", "1.58", served))
        refused = await testbed.at("1.39")
        assert (refused.status, version_fields(refused)) == (406, ("1.40", "1.58", None))
        assert "The supported version range is: [1.40, 1.58]." in description(refused)
        document = json.loads((await testbed.at(None, "/v1")).body)["version"]
        assert (document["min_version"], document["version"]) == ("1.40", "1.58")
        with pytest.raises(UnsupportedVersion):
            await IronicClient(testbed, "1.30").get("/v1/nodes")

        raise_to(testbed, None)
        assert version_fields(await testbed.at("1.39")) == ("1.1", "1.58", "1.39")


async def test_nova_shows_serves_and_refuses_by_the_floor() -> None:
    async with nova_fleet.in_front_of(Nova(60), Nova(104)) as testbed:
        raise_to(testbed, Version(2, 30))

        assert [(await testbed.at(asked)).status for asked in ("2.30", "latest", "2.29")] == [200, 200, 406]
        root = json.loads((await testbed.at(None, "/")).body)["versions"]
        assert [(each["min_version"], each["version"]) for each in root if each["id"] == "v2.1"] == [
            ("2.30", "2.60")
        ]


async def test_chef_shows_serves_and_refuses_by_the_floor() -> None:
    async with chef_fleet.in_front_of(Erchef(2), Erchef(2), default_version="minimum") as testbed:
        raise_to(testbed, Version(1))

        for asked, number in ((None, 0), ("1", 1), ("2", 2)):
            response = await testbed.at(asked)
            assert response.status == 200
            served = max(number, 1)  # `minimum` counts as if it were requested
            assert response.get(chef_fleet.OWN) == version_object(1, 2, served, served)
        refused = await testbed.at("0")
        assert (refused.status, refused.get(chef_fleet.OWN)) == (406, version_object(1, 2, 0, -1))


async def test_a_roll_back_beneath_the_floor_suspends_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    server = Ironic(90)
    async with in_front_of(server, offer="{stabilization: 0s}") as testbed:
        raise_to(testbed, Version(1, 60))
        assert (await testbed.at("1.59")).status == 406
        server.highest = 58
        await testbed.until(lambda view: view.offer.suspended)
        assert version_fields(await testbed.at("1.30")) == ("1.1", "1.58", "1.30")
        server.highest = 90
        await testbed.until(lambda view: not view.offer.suspended)
        assert version_fields(await testbed.at("1.70")) == ("1.60", "1.90", "1.70")
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    suspended = "baremetal: the floor 1.60 is suspended: all versions that could be on offer are beneath it"
    assert ("ERROR", suspended) in lines
    assert ("INFO", "baremetal: the floor is not suspended any more") in lines
    assert any("raised to 1.60, offer 1.1-1.90 -> 1.60-1.90" in text for _, text in lines)


async def test_a_reload_changes_the_floor_of_the_file_and_a_raised_one_stays(tmp_path: Path) -> None:
    server, file = Ironic(90), tmp_path / "gateway.yaml"

    def write(floor: str) -> None:
        offer = f"{{floor: '{floor}'}}"
        one = service_of("baremetal", [server.port], offer=offer, default_version="minimum")
        file.write_text(configuration(one))

    async with in_front_of(server, source=file) as testbed:
        write("1.40")
        testbed.gateway.on_sighup()
        await testbed.until(lambda view: view.offer.versions.lowest == Version(1, 40))
        assert (await testbed.at("1.39")).status == 406
        raise_to(testbed, Version(1, 50))
        write("1.60")
        testbed.gateway.on_sighup()
        await testbed.until(lambda view: view.service.floor == Version(1, 60))
        assert version_fields(await testbed.at(None)) == ("1.50", "1.90", "1.50")
        raise_to(testbed, None)
        assert version_fields(await testbed.at(None)) == ("1.60", "1.90", "1.60")


@pytest.mark.processes
async def test_two_workers_raise_and_lower_and_a_restart_keeps_it(tmp_path: Path) -> None:
    """While they change, a version beneath the floor is served, refused or 503. In the end both do the same;
    what is on offer throughout is always served."""
    server = Ironic(90)
    async with running(server), aiohttp.ClientSession() as session:
        text = f"workers: 2\nstate: {tmp_path / 'state.json'}\n"
        text += configuration(service_of("baremetal", [server.port]))

        async def all_answer(testbed: Testbed, status: int) -> None:
            seen: Counter[int] = Counter()
            async with asyncio.timeout(PATIENCE):
                while seen[status] < 40:
                    found = (await testbed.at("1.30")).status
                    assert found in {200, 406, 503}
                    seen = seen + Counter([found]) if found == status else Counter()
                    assert (await testbed.at("1.60")).status == 200

        async with gateway_of(text) as gateway:
            testbed = Testbed(gateway, [server], "")
            url = f"{gateway.admin_url}/services/baremetal/floor"
            await all_answer(testbed, 200)
            async with session.put(f"{url}?yes", json={"version": "1.40"}) as response:
                answer = await response.json()
                assert (response.status, answer["kept"], answer["pending"]) == (200, True, [])
            await all_answer(testbed, 406)
            async with session.delete(url) as response:
                assert response.status == 200
            await all_answer(testbed, 200)
            async with session.put(f"{url}?yes", json={"version": "1.50"}) as response:
                assert response.status == 200
        async with gateway_of(text) as gateway:
            testbed = Testbed(gateway, [server], "")
            await all_answer(testbed, 406)
            assert version_fields(await testbed.at("latest")) == ("1.50", "1.90", "1.90")
