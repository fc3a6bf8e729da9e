"""Cinder, Placement, Manila and Senlin behind one gateway: each reads its own item of one header.

The golden examples P1 to P3 as bytes, and what load balancers get wrong with mixed fleets of these services.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import STANDARD
from tests.scenarios.openstack_fleet import (
    MANILA_OWN,
    CinderServer,
    ManilaServer,
    PlacementServer,
    SenlinServer,
    in_front_of,
    other,
    senlin,
)
from tests.scenarios.stand import Stand

JSON = ("Content-Type", "application/json")
TRIES = 12
"""Requests: enough that every server has answered, nearly always; no assertion rests on that."""


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """Mixed fleets; the offers are volume 3.0 to 3.50, placement 1.0 to 1.31, shares 2.0 to 2.51."""
    async with in_front_of(
        other("volume", CinderServer(50), CinderServer(71)),
        other("placement", PlacementServer(31), PlacementServer(39)),
        other("shared-file-system", ManilaServer(51), ManilaServer(99)),
        senlin(SenlinServer(9), SenlinServer(14)),
    ) as stand:
        yield stand


async def test_one_header_for_several_services_reaches_each_with_its_own_item_alone(stand: Stand) -> None:
    several = (STANDARD, "compute 2.20, volume 3.27, placement 1.10, clustering 1.5")
    for _ in range(TRIES):
        for target, served in (
            ("/volume/v3/volumes", "volume 3.27"),
            ("/placement/resource_providers", "placement 1.10"),
            ("/clustering/v1/clusters", "clustering 1.5"),
        ):
            reply = await stand.ask(target, several)
            assert (reply.status, reply.get(STANDARD)) == (200, served)

    for server in stand.servers:
        want = {"volume": "volume 3.27", "placement": "placement 1.10", "clustering": "clustering 1.5"}
        assert all(head.versions == {STANDARD: want[server.service]} for head in server.asked)


@pytest.mark.parametrize("value", ["compute 2.20", "nonesuch", ""])
async def test_cinder_is_always_named_and_so_never_answers_400(stand: Stand, value: str) -> None:
    for _ in range(TRIES):
        reply = await stand.ask("/volume/v3/volumes", (STANDARD, value))
        assert (reply.status, reply.get(STANDARD)) == (200, "volume 3.0")

    assert all(head.versions == {STANDARD: "volume 3.0"} for head in stand.asked)


async def test_P1_out_of_range(stand: Stand) -> None:
    reply = await stand.ask("/placement/resource_providers", (STANDARD, "placement 1.99"))

    assert (reply.status, reply.versions) == (406, {})
    assert JSON in reply.lines
    assert reply.body == (
        b'{"errors": [{"status": 406, "title": "Not Acceptable", "detail": "The resource could not be '
        b"generated that was acceptable to your browser (content of type application/json. \\n\\n Invalid "
        b'microversion: Unacceptable version header: 1.99", "max_version": "1.31", "min_version": "1.0"}]}'
    )
    assert stand.asked == []


async def test_P1_on_the_root_which_placement_negotiates(stand: Stand) -> None:
    assert (await stand.ask("/placement/", (STANDARD, "placement 1.99"))).status == 406
    assert (await stand.ask("/volume/", (STANDARD, "volume 3.99"))).status == 300


async def test_P2_malformed(stand: Stand) -> None:
    reply = await stand.ask("/placement/resource_providers", (STANDARD, "placement spam"))

    (error,) = json.loads(reply.body)["errors"]
    assert (reply.status, reply.versions, error["title"]) == (400, {}, "Bad Request")
    assert "Invalid microversion: invalid version string: spam; " in error["detail"]
    assert stand.asked == []


async def test_P3_the_served_version_stands_in_lower_case(stand: Stand) -> None:
    reply = await stand.ask("/placement/resource_providers", (STANDARD, "placement 1.10"))

    assert ("openstack-api-version", "placement 1.10") in reply.lines
    assert reply.get("Vary") == STANDARD


@pytest.mark.parametrize(
    "target,name,ask,served",
    [
        ("/volume/v3/volumes", STANDARD, "volume latest", "volume 3.50"),
        ("/placement/resource_providers", STANDARD, "placement latest", "placement 1.31"),
        ("/placement/resource_providers", STANDARD, "PLACEMENT 1.31", "placement 1.31"),
        ("/shared-file-system/v2/shares", MANILA_OWN, "2.51", "2.51"),
        ("/shared-file-system/v2/shares", STANDARD, "shared-file-system 2.51", None),
    ],
)
async def test_a_mixed_fleet_serves_one_version_to_one_ask(
    stand: Stand, target: str, name: str, ask: str, served: str | None
) -> None:
    """Manila does not read the standard header: it serves its minimum, whatever that says."""
    replies = [await stand.ask(target, (name, ask)) for _ in range(TRIES)]

    assert {each.status for each in replies} == {200}
    if served is None:
        assert {each.get(MANILA_OWN) for each in replies} == {"2.0"}
        assert all(head.versions == {MANILA_OWN: "2.0"} for head in stand.asked)
    else:
        assert {each.get(name) for each in replies} == {served}


async def test_manila_has_no_latest(stand: Stand) -> None:
    reply = await stand.ask("/shared-file-system/v2/shares", (MANILA_OWN, "latest"))

    assert (reply.status, list(json.loads(reply.body))) == (400, ["badRequest"])
    assert stand.asked == []


async def test_manilas_experimental_flag_crosses(stand: Stand) -> None:
    flag = ("X-OpenStack-Manila-API-Experimental", "true")

    await stand.ask("/shared-file-system/v2/shares", (MANILA_OWN, "2.5"), flag)

    assert flag in stand.asked[0].lines


async def test_documents_tell_the_offer_and_links_that_can_be_followed(stand: Stand) -> None:
    for _ in range(TRIES):
        (volume,) = json.loads((await stand.ask("/volume/")).body)["versions"]
        (placement,) = json.loads((await stand.ask("/placement/")).body)["versions"]
        (share,) = json.loads((await stand.ask("/shared-file-system/")).body)["versions"]

        assert (volume["min_version"], volume["version"]) == ("3.0", "3.50")
        assert volume["links"] == [{"rel": "self", "href": f"http://{stand.authority}/volume/v3/"}]
        assert (placement["min_version"], placement["max_version"]) == ("1.0", "1.31")
        assert placement["links"] == [{"rel": "self", "href": ""}]
        assert share["version"] == "2.51"


async def test_a_newer_version_is_served_by_the_member_that_has_it() -> None:
    old, new = CinderServer(50), CinderServer(71)
    async with in_front_of(other("volume", old, new, policy="reachable")) as stand:
        for _ in range(TRIES):
            reply = await stand.ask("/volume/v3/volumes", (STANDARD, "volume 3.60"))
            assert (reply.status, reply.get(STANDARD)) == (200, "volume 3.60")

    assert (len(old.asked), len(new.asked)) == (0, TRIES)


@pytest.mark.parametrize(
    "service_type,kind,text",
    [("volume", CinderServer, "volume 3.60"), ("placement", PlacementServer, "placement 1.39")],
)
async def test_a_backends_refusal_is_understood_and_another_one_serves(
    service_type: str, kind: type[CinderServer | PlacementServer], text: str
) -> None:
    rolled_back, new = kind(71), kind(71)
    async with in_front_of(
        other(service_type, rolled_back, new, policy="reachable"), interval="60s"
    ) as stand:
        rolled_back.highest = 31
        replies = [await stand.ask(f"/{service_type}/x", (STANDARD, text)) for _ in range(3 * TRIES)]

    assert {(each.status, each.get(STANDARD)) for each in replies} == {(200, text)}
    assert len(rolled_back.refused) <= 1
