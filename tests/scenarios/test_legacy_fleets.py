"""`legacy: refuse` in front of legacy servers alone: Ironic (IRONIC-UC3B), Senlin and Chef on real sockets.

Without the key such a service is transparent; that is in the tests of each API.
"""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.gateways import gateway_of
from tests.kit.waiting import PATIENCE
from tests.scenarios import chef_fleet, openstack_fleet
from tests.scenarios.chef_fleet import Erchef, version_object
from tests.scenarios.fakes import OWN, STANDARD, Ironic, running
from tests.scenarios.ironic_client import IronicClient, UnsupportedVersion
from tests.scenarios.openstack_fleet import SenlinServer, senlin
from tests.scenarios.testbed import (
    VARY,
    Testbed,
    configuration,
    description,
    in_front_of,
    service_of,
    version_fields,
)

ALONE = ("1.1", "1.1", "1.1")
CLUSTERS = "/clustering/v1/clusters"


@pytest.mark.parametrize("version", [None, "1.1", "latest"])
async def test_IRONIC_UC3A_goes_on_with_the_range_in_every_response(version: str | None) -> None:
    async with in_front_of(Ironic(None), Ironic(None), legacy="refuse") as testbed:
        response = await testbed.at(version)

        assert (response.status, version_fields(response), response.get("Vary")) == (200, ALONE, VARY)
        assert [head.versions for head in testbed.forwarded] == [{}], "they would ignore it"


async def test_IRONIC_UC3B_another_version_is_refused_with_the_range() -> None:
    async with in_front_of(Ironic(None), legacy="refuse") as testbed:
        response = await testbed.at("1.31")

        assert (response.status, version_fields(response)) == (406, ("1.1", "1.1", None))
        assert "The supported version range is: [1.1, 1.1]." in description(response)
        assert (await testbed.at("spam")).status == 406
        assert testbed.forwarded == []


async def test_IRONIC_UC3A_UC3B_the_client_by_default_negotiates_and_with_an_explicit_version_stops() -> None:
    async with in_front_of(Ironic(None), Ironic(None), legacy="refuse") as testbed:
        by_default, latest = IronicClient(testbed), IronicClient(testbed, "latest")
        assert version_fields(await by_default.get("/v1/nodes")) == ALONE
        assert [status for path, _, status in by_default.log if path == "/v1/nodes"] == [406, 200]
        assert version_fields(await latest.get("/v1/nodes")) == ALONE
        with pytest.raises(UnsupportedVersion):
            await IronicClient(testbed, "1.31").get("/v1/nodes")
        assert by_default.ranges == {("1.1", "1.1")}


async def test_IRONIC_UC3A_the_document_of_v1_shows_the_range() -> None:
    async with in_front_of(Ironic(None), legacy="refuse") as testbed:
        response = await testbed.at(None, "/v1")

        version = json.loads(response.body)["version"]
        assert (version["min_version"], version["version"]) == ("1.1", "1.1")


async def test_SENLIN_1_legacy_servers_alone_are_1_0() -> None:
    fleet = senlin(SenlinServer(None), SenlinServer(None))
    refusing = fleet._replace(keys={**fleet.keys, "legacy": "refuse"})
    async with openstack_fleet.in_front_of(refusing) as testbed:
        for asked in ((), ((STANDARD, "clustering 1.0"),), ((STANDARD, "clustering latest"),)):
            response = await testbed.send(CLUSTERS, *asked)
            assert (response.status, response.get(STANDARD)) == (200, "clustering 1.0")
        assert all(head.versions == {} for head in testbed.forwarded)

        refused = await testbed.send(CLUSTERS, (STANDARD, "clustering 1.14"))
        assert (refused.status, len(testbed.forwarded)) == (406, 3)
        assert json.loads(refused.body)["error"]["type"] == "InvalidGlobalAPIVersion"


async def test_CHEF_1_CHEF_2_legacy_servers_alone_are_0() -> None:
    async with chef_fleet.in_front_of(Erchef(None), Erchef(None), legacy="refuse") as testbed:
        for asked in (None, "0"):
            response = await testbed.at(asked)
            assert (response.status, response.get(chef_fleet.OWN)) == (200, version_object(0, 0, 0, 0))
        assert all(head.versions in ({}, {chef_fleet.OWN: "0"}) for head in testbed.forwarded)

        for text, number in (("1", 1), ("latest", -1)):
            refused = await testbed.at(text)
            assert (refused.status, refused.get(chef_fleet.OWN)) == (406, version_object(0, 0, number, -1))
        assert len(testbed.forwarded) == 2


async def test_a_reload_changes_it_in_both_directions(tmp_path: Path) -> None:
    server, file = Ironic(None), tmp_path / "gateway.yaml"
    async with in_front_of(server, source=file) as testbed:
        for _ in range(2):
            file.write_text(configuration(service_of("baremetal", [server.port], legacy="refuse")))
            testbed.gateway.on_sighup()
            await testbed.until(lambda view: not view.offer.transparent)
            response = await testbed.at("1.31")
            assert (response.status, version_fields(response)) == (406, ("1.1", "1.1", None))

            file.write_text(configuration(service_of("baremetal", [server.port], legacy="transparent")))
            testbed.gateway.on_sighup()
            await testbed.until(lambda view: view.offer.transparent)
            response = await testbed.at("1.31")
            assert (response.status, response.versions, response.all("Vary")) == (200, {}, [])


@pytest.mark.processes
async def test_two_workers_follow_a_reload_in_both_directions(tmp_path: Path) -> None:
    """While they change, a worker passes on, refuses or answers 503. In the end both do the same."""
    server, file = Ironic(None), tmp_path / "gateway.yaml"

    def text(rule: str) -> str:
        return "workers: 2\n" + configuration(service_of("baremetal", [server.port], legacy=rule))

    async with running(server):
        file.write_text(text("transparent"))
        async with gateway_of(text("transparent"), source=file) as gateway:
            testbed = Testbed(gateway, [server], "")
            for rule, alike in (("transparent", 200), ("refuse", 406), ("transparent", 200)):
                file.write_text(text(rule))
                gateway.on_sighup()
                seen: Counter[int] = Counter()
                async with asyncio.timeout(PATIENCE):
                    while seen[alike] < 40:
                        status = (await testbed.at("1.31")).status
                        assert status in {200, 406, 503}
                        seen = seen + Counter([status]) if status == alike else Counter()
    assert all(head.get(OWN) == "1.31" for head in server.forwarded), "passed on unchanged, or not at all"
