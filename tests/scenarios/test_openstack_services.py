"""Cinder, Placement, Manila and Senlin behind one gateway: each reads its own item of one field.

Here are the golden examples P1 to P3 as bytes, and what plain load balancers do wrong with mixed fleets of
these services.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.core.fleet.fleet import Drain
from tests.scenarios.fakes import STANDARD, Head, message
from tests.scenarios.openstack_fleet import (
    MANILA_OWN,
    CinderServer,
    ManilaServer,
    PlacementServer,
    SenlinServer,
    Server,
    in_front_of,
    other,
    senlin,
)
from tests.scenarios.testbed import REPEATS, Testbed

JSON = ("Content-Type", "application/json")


@pytest.fixture
async def testbed() -> AsyncIterator[Testbed]:
    """Mixed fleets. The offers are volume 3.0 to 3.50, placement 1.0 to 1.31, shares 2.0 to 2.51."""
    async with in_front_of(
        other("volume", CinderServer(50), CinderServer(71)),
        other("placement", PlacementServer(31), PlacementServer(39)),
        other("shared-file-system", ManilaServer(51), ManilaServer(99)),
        senlin(SenlinServer(9), SenlinServer(14)),
    ) as testbed:
        yield testbed


async def test_each_service_gets_only_its_own_item_of_one_field(testbed: Testbed) -> None:
    several = (STANDARD, "compute 2.20, volume 3.27, placement 1.10, clustering 1.5")
    for _ in range(REPEATS):
        for target, served in (
            ("/volume/v3/volumes", "volume 3.27"),
            ("/placement/resource_providers", "placement 1.10"),
            ("/clustering/v1/clusters", "clustering 1.5"),
        ):
            response = await testbed.send(target, several)
            assert (response.status, response.get(STANDARD)) == (200, served)

    for server in testbed.servers:
        expected = {"volume": "volume 3.27", "placement": "placement 1.10", "clustering": "clustering 1.5"}
        assert all(head.versions == {STANDARD: expected[server.service]} for head in server.forwarded)


@pytest.mark.parametrize("value", ["compute 2.20", "nonesuch", "3.20", ""])
async def test_R_D5_a_field_without_an_item_for_cinder_is_400_as_from_cinder(
    testbed: Testbed, value: str
) -> None:
    response = await testbed.send("/volume/v3/volumes", (STANDARD, value))

    assert (response.status, response.get(STANDARD)) == (400, None)
    assert list(json.loads(response.body)) == ["badRequest"]
    assert testbed.forwarded == []


async def test_without_the_field_cinder_gets_its_item_with_the_minimum(testbed: Testbed) -> None:
    for _ in range(REPEATS):
        response = await testbed.send("/volume/v3/volumes")
        assert (response.status, response.get(STANDARD)) == (200, "volume 3.0")

    assert all(head.versions == {STANDARD: "volume 3.0"} for head in testbed.forwarded)


async def test_P1_out_of_range(testbed: Testbed) -> None:
    response = await testbed.send("/placement/resource_providers", (STANDARD, "placement 1.99"))

    assert (response.status, response.versions) == (406, {})
    assert JSON in response.lines
    request_id = response.get("X-Openstack-Request-Id") or ""
    before, after = response.body.decode().split(request_id)
    assert before == (
        '{"errors": [{"status": 406, "title": "Not Acceptable", "detail": "The resource could not be '
        "generated that was acceptable to your browser (content of type application/json. \\n\\n Invalid "
        'microversion: Unacceptable version header: 1.99", "request_id": "'
    )
    assert after == '", "max_version": "1.31", "min_version": "1.0"}]}'
    assert request_id.startswith("req-")
    assert testbed.forwarded == []


async def test_P1_R_D4_on_the_root_where_placement_and_cinder_negotiate(testbed: Testbed) -> None:
    assert (await testbed.send("/placement/", (STANDARD, "placement 1.99"))).status == 406
    assert (await testbed.send("/volume/", (STANDARD, "volume 3.99"))).status == 406
    assert (await testbed.send("/shared-file-system/", (MANILA_OWN, "2.999"))).status == 300


async def test_P2_malformed(testbed: Testbed) -> None:
    response = await testbed.send("/placement/resource_providers", (STANDARD, "placement spam"))

    (error,) = json.loads(response.body)["errors"]
    assert (response.status, response.versions, error["title"]) == (400, {}, "Bad Request")
    assert "Invalid microversion: invalid version string: spam; " in error["detail"]
    assert testbed.forwarded == []


async def test_P3_the_field_of_the_served_version_is_in_lower_case(testbed: Testbed) -> None:
    response = await testbed.send("/placement/resource_providers", (STANDARD, "placement 1.10"))

    assert ("openstack-api-version", "placement 1.10") in response.lines
    assert response.get("Vary") == STANDARD


@pytest.mark.parametrize(
    "target, name, requested, served",
    [
        ("/volume/v3/volumes", STANDARD, "volume latest", "volume 3.50"),
        ("/placement/resource_providers", STANDARD, "placement latest", "placement 1.31"),
        ("/placement/resource_providers", STANDARD, "PLACEMENT 1.31", "placement 1.31"),
        ("/shared-file-system/v2/shares", MANILA_OWN, "2.51", "2.51"),
        ("/shared-file-system/v2/shares", STANDARD, "shared-file-system 2.51", None),
    ],
)
async def test_a_mixed_fleet_serves_one_version_for_one_requested_version(
    testbed: Testbed, target: str, name: str, requested: str, served: str | None
) -> None:
    """Manila does not read the standard field: it serves its minimum then."""
    responses = [await testbed.send(target, (name, requested)) for _ in range(REPEATS)]

    assert {response.status for response in responses} == {200}
    if served is None:
        assert {response.get(MANILA_OWN) for response in responses} == {"2.0"}
        assert all(head.versions == {MANILA_OWN: "2.0"} for head in testbed.forwarded)
    else:
        assert {response.get(name) for response in responses} == {served}


async def test_manila_has_no_latest(testbed: Testbed) -> None:
    response = await testbed.send("/shared-file-system/v2/shares", (MANILA_OWN, "latest"))

    assert (response.status, list(json.loads(response.body))) == (400, ["badRequest"])
    assert testbed.forwarded == []


async def test_the_experimental_flag_of_manila_is_forwarded(testbed: Testbed) -> None:
    flag = ("X-OpenStack-Manila-API-Experimental", "true")

    await testbed.send("/shared-file-system/v2/shares", (MANILA_OWN, "2.5"), flag)

    assert flag in testbed.forwarded[0].lines


async def test_documents_contain_the_offer_and_links_to_the_gateway(testbed: Testbed) -> None:
    for _ in range(REPEATS):
        (volume,) = json.loads((await testbed.send("/volume/")).body)["versions"]
        (placement,) = json.loads((await testbed.send("/placement/")).body)["versions"]
        (share,) = json.loads((await testbed.send("/shared-file-system/")).body)["versions"]

        assert (volume["min_version"], volume["version"]) == ("3.0", "3.50")
        assert volume["links"] == [{"rel": "self", "href": f"http://{testbed.authority}/volume/v3/"}]
        assert (placement["min_version"], placement["max_version"]) == ("1.0", "1.31")
        assert placement["links"] == [{"rel": "self", "href": ""}]
        assert share["version"] == "2.51"


async def test_a_newer_version_is_served_by_the_server_that_has_it() -> None:
    old, new = CinderServer(50), CinderServer(71)
    async with in_front_of(other("volume", old, new, policy="reachable")) as testbed:
        for _ in range(REPEATS):
            response = await testbed.send("/volume/v3/volumes", (STANDARD, "volume 3.60"))
            assert (response.status, response.get(STANDARD)) == (200, "volume 3.60")

    assert (len(old.forwarded), len(new.forwarded)) == (0, REPEATS)


@pytest.mark.parametrize(
    "service_type,kind,text",
    [("volume", CinderServer, "volume 3.60"), ("placement", PlacementServer, "placement 1.39")],
)
async def test_after_a_refusal_by_a_backend_another_one_serves(
    service_type: str, kind: type[CinderServer | PlacementServer], text: str
) -> None:
    rolled_back, new = kind(71), kind(71)
    async with in_front_of(
        other(service_type, rolled_back, new, policy="reachable"), interval="60s"
    ) as testbed:
        rolled_back.highest = 31
        responses = [await testbed.send(f"/{service_type}/x", (STANDARD, text)) for _ in range(3 * REPEATS)]

    assert {(response.status, response.get(STANDARD)) for response in responses} == {(200, text)}
    assert len(rolled_back.refused) <= 1


class ManilaWithV1(ManilaServer):
    """Manila until 2023: whatever is asked below `/v1`, it answers that it served 1.0."""

    def _response(self, head: Head) -> bytes:
        if not head.target.startswith("/v1/"):
            return super()._response(head)
        return message(200, b'{"shares": []}', lines=self.echo("1.0"))


async def test_R_D1_requests_below_v1_of_manila_take_no_server_out() -> None:
    async with in_front_of(other("shared-file-system", ManilaWithV1(51), ManilaWithV1(51))) as testbed:
        for target, served in (("/v1/t/shares", None), ("/v2/shares", "2.10")) * REPEATS:
            response = await testbed.send(f"/shared-file-system{target}", (MANILA_OWN, "2.10"))
            assert (response.status, response.get(MANILA_OWN)) == (200, served)

        below_v1 = [head for head in testbed.forwarded if head.target.startswith("/v1/")]
        assert len(below_v1) == REPEATS
        assert all(head.versions == {} for head in below_v1)


@pytest.mark.parametrize(
    "service, old, new",
    [
        ("shared-file-system", ManilaServer(51), ManilaServer(91)),
        ("volume", CinderServer(60), CinderServer(71)),
    ],
    ids=["manila v1", "cinder v2"],
)
async def test_R3_V17_a_mount_that_newer_releases_lack_is_asked_of_the_older_ones(
    service: str, old: Server, new: Server
) -> None:
    old.has_old_mount = True
    mount = f"/{service}/{old.old_mount}"
    async with in_front_of(other(service, old, new)) as testbed:
        testbed.service = service
        for target in (f"{mount}/tenant/things", f"{mount}/", mount) * REPEATS:
            assert (await testbed.send(target)).status == 200
        assert new.forwarded == []

        holder = testbed.gateway.snapshot_holder
        first = testbed.view.members.all[0].backend.name
        holder.apply(service, Drain(first))
        assert (await testbed.send(f"{mount}/tenant/things")).status == 503, "the one that has it may be back"

        holder.apply(service, Drain(first, drained=False))
        old.has_old_mount = False
        await testbed.until(lambda view: not any(one.has_mount(old.old_mount) for one in view.members.all))
        assert (await testbed.send(f"{mount}/tenant/things")).status == 404, "a server says so"
