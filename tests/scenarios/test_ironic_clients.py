"""Sequences of client requests (K1 to K4, K6), through the gateway and during an upgrade of the servers.

The gateway's promise: clients see one range everywhere, until the offer changes. A client that has
negotiated a version is served at it, whichever server gets the request. No plain load balancer can do that.
"""

# ruff: noqa: N802 -- ids of sequences are written with capitals

from __future__ import annotations

import json

import pytest

from tests.scenarios.fakes import OWN, STANDARD, Head, Ironic
from tests.scenarios.ironic_client import IronicClient, UnsupportedVersion
from tests.scenarios.testbed import Testbed, in_front_of, version_fields

NODES = "/v1/nodes"
CALLS = 40


def node_requests(testbed: Testbed) -> list[list[Head]]:
    """The requests for nodes that the gateway forwarded to each server."""
    return [[head for head in server.forwarded if head.target == NODES] for server in testbed.servers]


async def test_K1_a_default_above_the_offer_is_lowered_once_and_kept() -> None:
    async with in_front_of(Ironic(6), Ironic(6)) as testbed:
        client = IronicClient(testbed)
        for _ in range(4):
            assert (await client.get(NODES)).status == 200

        assert client.log == [(NODES, "1.9", 406), ("/v1", None, 200), *[(NODES, "1.6", 200)] * 4]
        assert client.ranges == {("1.1", "1.6")}


async def test_K2_latest_is_read_from_v1_and_then_requested_by_number() -> None:
    async with in_front_of(Ironic(82), Ironic(82)) as testbed:
        client = IronicClient(testbed, "latest")
        await client.get(NODES)
        await client.get(NODES)

        assert client.log == [("/v1", None, 200), (NODES, "1.82", 200), (NODES, "1.82", 200)]


async def test_K3_an_explicit_version_above_the_offer_ends_the_client() -> None:
    async with in_front_of(Ironic(58), Ironic(82)) as testbed:
        client = IronicClient(testbed, "1.99")
        with pytest.raises(UnsupportedVersion):
            await client.get(NODES)

        assert client.log == [(NODES, "1.99", 406), ("/v1", None, 200)]
        assert node_requests(testbed) == [[], []]


@pytest.mark.parametrize("policy, top", [("guaranteed", "1.61"), ("reachable", "1.82")])
async def test_K4_a_negotiated_version_is_served_by_every_server(policy: str, top: str) -> None:
    """Behind a plain load balancer, the first request to the older server ends in UnsupportedVersion."""
    async with in_front_of(Ironic(61), Ironic(82), offer=f"{{policy: {policy}}}") as testbed:
        client = IronicClient(testbed, "latest")
        for _ in range(CALLS):
            response = await client.get(NODES)
            assert (response.status, version_fields(response)) == (200, ("1.1", top, top))

        assert client.log == [("/v1", None, 200), *[(NODES, top, 200)] * CALLS]
        old, new = node_requests(testbed)
        assert len(old) + len(new) == CALLS
        assert new
        assert bool(old) is (policy == "guaranteed")
        assert not any(server.refused for server in testbed.servers)


async def test_K6_the_sdk_reads_both_documents_and_sends_both_headers() -> None:
    async with in_front_of(Ironic(61), Ironic(82, reads_standard=True)) as testbed:
        root = json.loads((await testbed.send("/", ("Accept", "application/json"))).body)
        entry = root["versions"][0]
        assert (entry["min_version"], entry["version"]) == ("1.1", "1.61")
        base = f"http://{testbed.authority}"
        assert entry["links"] == [{"href": f"{base}/v1/", "rel": "self"}]
        path = entry["links"][0]["href"].removeprefix(base)

        v1 = json.loads((await testbed.send(path, ("Accept", "application/json"))).body)
        assert v1["version"] == entry, "both documents must contain the same range"

        version = entry["version"]
        for _ in range(CALLS):
            response = await testbed.send(NODES, (STANDARD, f"baremetal {version}"), (OWN, version))
            assert (response.status, version_fields(response)) == (200, ("1.1", "1.61", "1.61"))


# --- versions that a client knew before --------------------------------------------------------------------


async def test_9_1_a_cached_version_is_used_without_negotiation() -> None:
    async with in_front_of(Ironic(58), Ironic(82)) as testbed:
        cache: dict[str, str] = {}
        await IronicClient(testbed, default="1.99", cache=cache).get(NODES)
        assert cache == {testbed.authority: "1.58"}

        second = IronicClient(testbed, cache=cache)
        await second.get(NODES)

        assert second.log == [(NODES, "1.58", 200)]


async def test_9_1_a_cached_version_that_is_not_offered_is_negotiated_again_once() -> None:
    async with in_front_of(Ironic(31), Ironic(31)) as testbed:
        client = IronicClient(testbed, cache={testbed.authority: "1.58"})
        await client.get(NODES)
        await client.get(NODES)

        assert client.log == [
            (NODES, "1.58", 406),
            ("/v1", None, 200),
            (NODES, "1.31", 200),
            (NODES, "1.31", 200),
        ]


async def test_9_1_a_default_below_the_offer_is_raised_to_its_minimum() -> None:
    async with in_front_of(Ironic(31, 12), Ironic(31, 10)) as testbed:
        client = IronicClient(testbed, default="1.9")
        await client.get(NODES)

        assert client.log == [(NODES, "1.9", 406), ("/v1", None, 200), (NODES, "1.12", 200)]


async def test_9_1_the_range_of_v1_is_the_range_that_is_enforced() -> None:
    """A range in `GET /v1` other than the one that is enforced breaks every client."""
    async with in_front_of(Ironic(58, 5), Ironic(90, 8)) as testbed:
        for _ in range(CALLS):
            lowest, highest, _ = version_fields(await testbed.send("/v1"))
            assert (lowest, highest) == ("1.8", "1.58")
        for version, status in (("1.7", 406), ("1.8", 200), ("1.58", 200), ("1.59", 406)):
            for _ in range(10):
                assert (await testbed.at(version)).status == status


# --- during an upgrade -------------------------------------------------------------------------------------


async def test_a_client_is_served_during_the_upgrade_of_every_server() -> None:
    """The client negotiates while all servers are old. It is served while they are replaced one by one."""
    first, second = Ironic(58), Ironic(58)
    async with in_front_of(first, second, offer="{stabilization: 0s}") as testbed:
        client = IronicClient(testbed, "latest")
        await client.get(NODES)
        for server in (first, second):
            await server.stop()
            for _ in range(10):
                await client.get(NODES)
            server.highest = 90
            await server.start()
            number = testbed.servers.index(server)

            def is_new(view: object, number: int = number) -> bool:
                advertisement = view.members.all[number].advertisement  # type: ignore[attr-defined]  # a ServiceView
                return advertisement is not None and advertisement.versions.highest == (1, 90)

            await testbed.until(is_new)
            for _ in range(10):
                await client.get(NODES)

        assert {(version, status) for _, version, status in client.log[1:]} == {("1.58", 200)}
        await testbed.until(lambda view: view.offer.versions.highest == (1, 90))
        newcomer = IronicClient(testbed, "latest")
        await newcomer.get(NODES)
        assert newcomer.version == "1.90"


async def test_a_server_that_comes_back_old_gets_only_versions_that_it_serves() -> None:
    """Whatever the offer is during the roll-back, no server receives a version that it would refuse."""
    first, second = Ironic(90), Ironic(90)
    async with in_front_of(first, second) as testbed:
        await first.stop()
        first.highest = 58
        await first.start()
        await testbed.until(
            lambda view: view.members.all[0].advertisement != view.members.all[1].advertisement
        )

        for version in ("latest", "1.58", "1.59", "1.90", None) * 10:
            response = await testbed.at(version)
            assert response.status == 200 or (response.status, version) in {(406, "1.59"), (406, "1.90")}
        assert node_requests(testbed)[0]
        assert first.refused == second.refused == []
