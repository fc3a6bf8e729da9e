"""While the servers are away, a client can still find out what is offered."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from collections.abc import Awaitable

import pytest

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.fleet import Drain, Pin
from gateway.core.versions.version import Version
from tests.scenarios import nova_fleet, openstack_fleet
from tests.scenarios.fakes import Head, Ironic
from tests.scenarios.openstack_fleet import (
    CinderServer,
    Fleet,
    ManilaServer,
    PlacementServer,
    SenlinServer,
    other,
    senlin,
)
from tests.scenarios.testbed import Testbed, comparable, in_front_of, version_fields


async def stop_all(testbed: Testbed, service: str | None = None) -> None:
    """Stop every server, and wait until the gateway has noticed it by three failed probes."""
    for server in testbed.servers:
        await server.stop()
    testbed.service = service or testbed.service
    await testbed.until(lambda view: all(member.freshness is Freshness.DOWN for member in view.members.all))


async def assert_still_answered(testbed: Testbed, targets: tuple[str, ...], stopped: Awaitable[None]) -> None:
    """Each document is answered as before, once every server has stopped."""
    before = {target: await testbed.send(target) for target in targets}
    asked = len(testbed.forwarded)
    await stopped

    for target, response in before.items():
        assert response.status in {200, 300}
        again = await testbed.send(target)
        assert again.status == response.status
        assert comparable(again)[1:] == comparable(response)[1:], "the same fields and content"
        head = await testbed.send(target, method="HEAD", bodiless=True)
        assert (head.status, head.body) == (response.status, b"")
    assert len(testbed.forwarded) == asked


async def test_R_D7_Ironic_is_away_and_its_documents_are_answered() -> None:
    async with in_front_of(Ironic(82), Ironic(90), match="{path: /metal}") as testbed:
        await assert_still_answered(testbed, ("/", "/v1", "/v1/"), stop_all(testbed))

        assert (await testbed.send("/v1/nodes")).status == 503
        testbed.gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 50)))
        assert json.loads((await testbed.send("/")).body)["default_version"]["version"] == "1.50"


async def test_R_D7_Nova_is_away_and_its_documents_are_answered() -> None:
    async with nova_fleet.in_front_of(nova_fleet.Nova(90), nova_fleet.Nova(96)) as testbed:
        await assert_still_answered(testbed, ("/", "/v2.1/", "/v2/"), stop_all(testbed))

        assert (await testbed.send("/v2.1/servers")).status == 503


@pytest.mark.parametrize(
    "fleet, targets",
    [
        (senlin(SenlinServer(10), SenlinServer(14)), ("/clustering/", "/clustering/v1")),
        (other("volume", CinderServer(60), CinderServer(71)), ("/volume/",)),
        (other("placement", PlacementServer(30), PlacementServer(39)), ("/placement/",)),
        (other("shared-file-system", ManilaServer(60), ManilaServer(65)), ("/shared-file-system/",)),
    ],
    ids=["senlin", "cinder", "placement", "manila"],
)
async def test_R_D7_other_services_are_away_and_their_documents_are_answered(
    fleet: Fleet, targets: tuple[str, ...]
) -> None:
    async with openstack_fleet.in_front_of(fleet) as testbed:
        await assert_still_answered(testbed, targets, stop_all(testbed, fleet.name))


def shown(response: Head) -> list[dict[str, object]]:
    """The entries of a list of versions."""
    entries = json.loads(response.body)["versions"]
    assert isinstance(entries, list)
    return entries


@pytest.mark.parametrize("asked_before", [True, False])
async def test_NOVA_UC3B_without_a_server_that_has_v2_1_the_list_is_what_is_known(
    asked_before: bool,
) -> None:
    """A client has asked for it before, or only the probe has."""
    old, new = nova_fleet.Nova(None), nova_fleet.Nova(104)
    async with nova_fleet.in_front_of(old, new) as testbed:
        if asked_before:
            assert (await testbed.send("/")).status == 200
        testbed.gateway.snapshot_holder.apply(testbed.service, Drain("api-2"))

        response = await testbed.send("/")

        versions = [(entry["id"], entry.get("version")) for entry in shown(response)]
        assert versions == [("v2.0", ""), ("v2.1", "2.104")]
        assert not old.forwarded
        assert (await testbed.send("/v2.1/servers")).status == 503


async def test_R3_V16_documents_that_only_probes_have_read_are_answered() -> None:
    """Each under every spelling, with the offer and the links of this client. `/` has not been read."""
    servers = Ironic(82), Ironic(90)
    async with in_front_of(*servers, match="{path: /metal}") as testbed:
        await stop_all(testbed)

        for target in ("/v1", "/v1/", "/v1.json"):
            response = await testbed.send(target)
            document = json.loads(response.body)
            assert (response.status, document["version"]["version"]) == (200, "1.82")
            assert document["version"]["links"] == [{"href": f"{testbed.base}/v1/", "rel": "self"}]
            assert version_fields(response) == ("1.1", "1.82", "1.1"), "made at 1.1"
            assert not any(str(server.port) in response.body.decode() for server in servers)
        assert (await testbed.send("/")).status == 503
        assert testbed.forwarded == []


@pytest.mark.parametrize(
    "fleet, target",
    [
        (senlin(SenlinServer(10), SenlinServer(14)), "/clustering"),
        (other("volume", CinderServer(60), CinderServer(71)), "/volume/"),
        (other("placement", PlacementServer(30), PlacementServer(39)), "/placement"),
        (other("shared-file-system", ManilaServer(60), ManilaServer(65)), "/shared-file-system/"),
    ],
    ids=["senlin", "cinder", "placement", "manila"],
)
async def test_R3_V16_what_probes_of_other_services_have_read_is_answered(fleet: Fleet, target: str) -> None:
    async with openstack_fleet.in_front_of(fleet) as testbed:
        fetched = await testbed.send(target, ("X-Auth-Token", "t"))  # so it is not kept
        expected = json.loads(fetched.body)

        await stop_all(testbed, fleet.name)

        answer = await testbed.send(target)
        assert (answer.status, json.loads(answer.body)) == (fetched.status, expected)


async def test_R3_V16_Nova_is_away_and_only_probes_have_read_its_list() -> None:
    async with nova_fleet.in_front_of(nova_fleet.Nova(90), nova_fleet.Nova(96)) as testbed:
        await stop_all(testbed)

        response = await testbed.send("/")

        assert response.status == 200
        assert [(entry["id"], entry.get("version")) for entry in shown(response)][-1] == ("v2.1", "2.90")
        assert str(testbed.servers[0].port) not in response.body.decode()


async def test_R_D7_after_a_roll_back_to_legacy_servers_their_documents_are_shown() -> None:
    """Only 1.1 is on offer then, and a legacy Ironic is all that can give a document."""
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new) as testbed:
        assert testbed.offer == "1.1"
        assert (await testbed.send("/v1")).status == 200
        testbed.gateway.snapshot_holder.apply(testbed.service, Drain("api-2"))

        response = await testbed.send("/v1")

        assert (response.status, json.loads(response.body)["id"]) == (200, "v1")
        assert [head.target for head in old.forwarded] == ["/v1"]
        assert old.forwarded[0].versions == {}
