"""What clients do one after the other (K1 to K4, K6), through the gateway and over the servers' upgrade.

The promise: one range, everywhere and for as long as it stands. A client that has settled on a version is
served at it by whichever server gets the request, which no plain load balancer can give it.
"""

# ruff: noqa: N802 -- ids of sequences are written with capitals

from __future__ import annotations

import json

import pytest

from tests.scenarios.client import IronicClient, UnsupportedVersion
from tests.scenarios.fakes import OWN, STANDARD, Head, Ironic
from tests.scenarios.stand import Stand, in_front_of, told

NODES = "/v1/nodes"
CALLS = 40


def own_calls(stand: Stand) -> list[list[Head]]:
    """What each server was asked for clients, apart from documents."""
    return [[head for head in server.asked if head.target == NODES] for server in stand.servers]


async def test_K1_a_default_above_the_offer_comes_down_once_and_stays_there() -> None:
    async with in_front_of(Ironic(6), Ironic(6)) as stand:
        client = IronicClient(stand)
        for _ in range(4):
            assert (await client.get(NODES)).status == 200

        assert client.log == [(NODES, "1.9", 406), ("/v1", None, 200), *[(NODES, "1.6", 200)] * 4]
        assert client.told == {("1.1", "1.6")}


async def test_K2_latest_is_read_from_v1_and_then_asked_for_by_number() -> None:
    async with in_front_of(Ironic(82), Ironic(82)) as stand:
        client = IronicClient(stand, "latest")
        await client.get(NODES)
        await client.get(NODES)

        assert client.log == [("/v1", None, 200), (NODES, "1.82", 200), (NODES, "1.82", 200)]


async def test_K3_an_explicit_version_above_the_offer_ends_the_client() -> None:
    async with in_front_of(Ironic(58), Ironic(82)) as stand:
        client = IronicClient(stand, "1.99")
        with pytest.raises(UnsupportedVersion):
            await client.get(NODES)

        assert client.log == [(NODES, "1.99", 406), ("/v1", None, 200)]
        assert own_calls(stand) == [[], []]


@pytest.mark.parametrize("policy, top", [("guaranteed", "1.61"), ("reachable", "1.82")])
async def test_K4_what_a_client_has_settled_on_is_served_whichever_server_answers(
    policy: str, top: str
) -> None:
    """Behind a plain balancer this ends in UnsupportedVersion at the first request to the older one."""
    async with in_front_of(Ironic(61), Ironic(82), offer=f"{{policy: {policy}}}") as stand:
        client = IronicClient(stand, "latest")
        for _ in range(CALLS):
            reply = await client.get(NODES)
            assert (reply.status, told(reply)) == (200, ("1.1", top, top))

        assert client.log == [("/v1", None, 200), *[(NODES, top, 200)] * CALLS]
        old, new = own_calls(stand)
        assert len(old) + len(new) == CALLS
        assert new
        assert bool(old) is (policy == "guaranteed")
        assert not any(server.refused for server in stand.servers)


async def test_K6_the_sdk_reads_both_documents_and_sends_both_headers() -> None:
    async with in_front_of(Ironic(61), Ironic(82, reads_standard=True)) as stand:
        root = json.loads((await stand.ask("/", ("Accept", "application/json"))).body)
        entry = root["versions"][0]
        assert (entry["min_version"], entry["version"]) == ("1.1", "1.61")
        base = f"http://{stand.authority}"
        assert entry["links"] == [{"href": f"{base}/v1/", "rel": "self"}]
        path = entry["links"][0]["href"].removeprefix(base)

        v1 = json.loads((await stand.ask(path, ("Accept", "application/json"))).body)
        assert v1["version"] == entry, "one truth in both documents"

        version = entry["version"]
        for _ in range(CALLS):
            reply = await stand.ask(NODES, (STANDARD, f"baremetal {version}"), (OWN, version))
            assert (reply.status, told(reply)) == (200, ("1.1", "1.61", "1.61"))


# --- what a client knew before -------------------------------------------------------------------------


async def test_9_1_a_cached_version_is_used_without_negotiation() -> None:
    async with in_front_of(Ironic(58), Ironic(82)) as stand:
        cache: dict[str, str] = {}
        await IronicClient(stand, default="1.99", cache=cache).get(NODES)
        assert cache == {stand.authority: "1.58"}

        second = IronicClient(stand, cache=cache)
        await second.get(NODES)

        assert second.log == [(NODES, "1.58", 200)]


async def test_9_1_a_cached_version_that_is_gone_is_negotiated_anew_once() -> None:
    async with in_front_of(Ironic(31), Ironic(31)) as stand:
        client = IronicClient(stand, cache={stand.authority: "1.58"})
        await client.get(NODES)
        await client.get(NODES)

        assert client.log == [
            (NODES, "1.58", 406),
            ("/v1", None, 200),
            (NODES, "1.31", 200),
            (NODES, "1.31", 200),
        ]


async def test_9_1_a_default_below_the_offer_is_raised_to_its_minimum() -> None:
    async with in_front_of(Ironic(31, 12), Ironic(31, 10)) as stand:
        client = IronicClient(stand, default="1.9")
        await client.get(NODES)

        assert client.log == [(NODES, "1.9", 406), ("/v1", None, 200), (NODES, "1.12", 200)]


async def test_9_1_the_range_of_v1_is_the_range_that_is_enforced() -> None:
    """Answering `GET /v1` with another range than calls are held to breaks every client."""
    async with in_front_of(Ironic(58, 5), Ironic(90, 8)) as stand:
        for _ in range(CALLS):
            lowest, highest, _ = told(await stand.ask("/v1"))
            assert (lowest, highest) == ("1.8", "1.58")
        for version, status in (("1.7", 406), ("1.8", 200), ("1.58", 200), ("1.59", 406)):
            for _ in range(10):
                assert (await stand.at(version)).status == status


# --- over an upgrade -----------------------------------------------------------------------------------


async def test_a_client_outlives_the_upgrade_of_every_server_under_it() -> None:
    """It settled while all were old; one after the other is replaced, and it is served all the while."""
    first, second = Ironic(58), Ironic(58)
    async with in_front_of(first, second, offer="{settle: 0s}") as stand:
        client = IronicClient(stand, "latest")
        await client.get(NODES)
        for server in (first, second):
            await server.stop()
            for _ in range(10):
                await client.get(NODES)
            server.highest = 90
            await server.start()
            number = stand.servers.index(server)

            def is_new(view: object, number: int = number) -> bool:
                advert = view.pool.members[number].advert  # type: ignore[attr-defined]  # a ServiceView
                return advert is not None and advert.versions.highest == (1, 90)

            await stand.until(is_new)
            for _ in range(10):
                await client.get(NODES)

        assert {(version, status) for _, version, status in client.log[1:]} == {("1.58", 200)}
        await stand.until(lambda view: view.offer.versions.highest == (1, 90))
        newcomer = IronicClient(stand, "latest")
        await newcomer.get(NODES)
        assert newcomer.version == "1.90"


async def test_a_server_that_comes_back_old_gets_no_version_that_it_does_not_serve() -> None:
    """Whatever is on offer while one is rolled back: nobody is sent what it would refuse."""
    first, second = Ironic(90), Ironic(90)
    async with in_front_of(first, second) as stand:
        await first.stop()
        first.highest = 58
        await first.start()
        await stand.until(lambda view: view.pool.members[0].advert != view.pool.members[1].advert)

        for version in ("latest", "1.58", "1.59", "1.90", None) * 10:
            reply = await stand.at(version)
            assert reply.status == 200 or (reply.status, version) in {(406, "1.59"), (406, "1.90")}
        assert own_calls(stand)[0]
        assert first.refused == second.refused == []
