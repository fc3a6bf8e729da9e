"""Chef through the gateway: RFC 041 as real servers implement it (CHEF-1 to CHEF-9), and what clients do.

Unless a test says otherwise, the fleet is an old Chef Server (0 to 1) and a new one (0 to 2).
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.chef_fleet import (
    OWN,
    SIGNED_1_1,
    SIGNED_1_3,
    ChefTestbed,
    Erchef,
    Goiardi,
    in_front_of,
    version_object,
)
from tests.scenarios.fakes import Head, bound_socket
from tests.scenarios.testbed import REPEATS


@pytest.fixture
async def testbed() -> AsyncIterator[ChefTestbed]:
    async with in_front_of(Erchef(1), Erchef(2)) as testbed:
        assert testbed.offer == "0-1"
        yield testbed


async def same_response(testbed: ChefTestbed, version: str | None, target: str = "/nodes") -> Head:
    """The response to a signed request, which does not depend on the server."""
    return await testbed.same_response(target, *SIGNED_1_1, *(() if version is None else ((OWN, version),)))


# --- what is served ----------------------------------------------------------------------------------------


async def test_C1_CHEF_1_absent_is_0(testbed: ChefTestbed) -> None:
    response = await same_response(testbed, None)

    assert (response.status, response.get(OWN)) == (200, version_object(0, 1, 0, 0))
    assert all(head.versions == {OWN: "0"} for head in testbed.forwarded)


@pytest.mark.parametrize("text, number", [("0", 0), ("1", 1), ("01", 1), ("+1", 1), ("-0", 0)])
async def test_C2_an_integer_as_erlang_reads_it(testbed: ChefTestbed, text: str, number: int) -> None:
    response = await same_response(testbed, text)

    assert (response.status, response.get(OWN)) == (200, version_object(0, 1, number, number))
    assert all(head.versions == {OWN: str(number)} for head in testbed.forwarded)


async def test_C3_an_unsigned_request_is_refused_by_the_backend(testbed: ChefTestbed) -> None:
    response = await testbed.send("/users", (OWN, "1"))

    assert (response.status, response.get(OWN)) == (401, version_object(0, 1, 1, 1))


@pytest.mark.parametrize(
    "text, request_version",
    [
        ("2", 2),
        ("7", 7),
        ("-100", -100),
        ("-1", -1),
        ("pineapple", -1),
        ("latest", -1),
        ("1.0", -1),
        ("", -1),
    ],
)
async def test_C4_C5_C6_CHEF_2_refused_by_the_gateway(
    testbed: ChefTestbed, text: str, request_version: int
) -> None:
    response = await testbed.at(text)

    assert (response.status, response.get(OWN)) == (406, version_object(0, 1, request_version, -1))
    assert json.loads(response.body) == {
        "error": "invalid-x-ops-server-api-version",
        "message": f"Specified version {text} not supported",
        "min_version": 0,
        "max_version": 1,
    }
    assert testbed.forwarded == []


async def test_CHEF_2_the_keys_of_the_rfc_can_be_configured() -> None:
    async with in_front_of(Erchef(1), options="{error_keys: rfc041}") as testbed:
        body = json.loads((await testbed.at("7")).body)

    assert (body["min_api_version"], body["max_api_version"]) == (0, 1)


async def test_C7_a_bad_version_is_refused_before_anything_else(testbed: ChefTestbed) -> None:
    assert (await testbed.send("/license", (OWN, "7"), method="PUT")).status == 406


async def test_CHEF_1_without_a_version_is_refused_when_0_is_not_offered() -> None:
    async with in_front_of(Erchef(2, lowest=1)) as testbed:
        response = await testbed.at(None)
        unversioned = await testbed.send("/_status")

    assert (response.status, response.get(OWN)) == (406, version_object(1, 2, 0, -1))
    assert unversioned.status == 200
    assert [head.target for head in testbed.forwarded] == ["/_status"]


async def test_V2_several_lines_are_not_an_integer(testbed: ChefTestbed) -> None:
    response = await testbed.send("/nodes", *SIGNED_1_1, (OWN, "0"), ("x-ops-server-api-VERSION", "1"))

    assert (response.status, response.get(OWN)) == (406, version_object(0, 1, -1, -1))


TABLE = {
    (10, 14): {None: None, "10": 10, "14": 14, "15": None, "22": None, "30": None, "pineapple": None},
    (12, 20): {None: None, "10": None, "14": 14, "15": 15, "22": None, "30": None, "pineapple": None},
    (15, 22): {None: None, "10": None, "14": None, "15": 15, "22": 22, "30": None, "pineapple": None},
}
"""By the range of a uniform fleet and the requested version: the served version, None for 406."""


@pytest.mark.parametrize(
    "served, row", TABLE.items(), ids=[f"{low}-{high}" for low, high in TABLE]
)  # one gateway for each fleet, which gets the whole row
async def test_CHEF_3_the_worked_example(served: tuple[int, int], row: dict[str | None, int | None]) -> None:
    low, high = served
    async with in_front_of(Erchef(high, low), Erchef(high, low)) as testbed:
        for requested, expected in row.items():
            response = await testbed.at(requested)
            if expected is None:
                number = 0 if requested is None else -1 if requested == "pineapple" else int(requested)
                assert (response.status, response.get(OWN)) == (406, version_object(low, high, number, -1)), (
                    requested
                )
            else:
                assert (response.status, response.get(OWN)) == (
                    200,
                    version_object(low, high, expected, expected),
                ), requested


# --- the object in every response --------------------------------------------------------------------------


@pytest.mark.parametrize("target, status", [("/nodes", 200), ("/nodes/nosuch", 404)])
async def test_CHEF_4_with_the_range_of_the_offer(testbed: ChefTestbed, target: str, status: int) -> None:
    response = await same_response(testbed, "1", target) if status != 200 else await testbed.at("1", target)

    assert (response.status, response.get(OWN)) == (status, version_object(0, 1, 1, 1))


async def test_CHEF_4_trap_22_where_the_backend_sent_no_object(testbed: ChefTestbed) -> None:
    """The response comes from the nginx in front of erchef. Without the object, a client would conclude that
    the server serves 0 only."""
    assert (await testbed.at("1", "/nowhere")).get(OWN) == version_object(0, 1, 1, 1)
    assert (await testbed.send("/_status")).get(OWN) == version_object(0, 1, 0, 0)


async def test_CHEF_4_a_406_about_accept_comes_from_the_backend(testbed: ChefTestbed) -> None:
    response = await testbed.send("/nodes", *SIGNED_1_1, (OWN, "1"), ("Accept", "text/html"))

    assert (response.status, response.body, response.get(OWN)) == (406, b"", version_object(0, 1, 1, -1))
    assert len(testbed.forwarded) == 1


async def test_CHEF_4_on_the_gateways_own_503() -> None:
    """The last offer is known, although no backend is left."""
    server = Erchef(1)
    async with in_front_of(server) as testbed:
        await server.stop()
        response = await testbed.at("1")

    assert (response.status, response.get(OWN)) == (503, version_object(0, 1, 1, 1))
    assert list(json.loads(response.body)) == ["error"]


@pytest.mark.parametrize("target", ["/nodes", "/server_api_version"])
async def test_before_any_range_is_known_503_without_the_object(target: str) -> None:
    """A client keeps the first object that it sees for ever."""
    with bound_socket(0) as reserved:
        async with in_front_of(at=(reserved.getsockname()[1],)) as testbed:
            response = await testbed.at("1", target)

    assert (response.status, response.versions) == (503, {})
    assert response.get("Retry-After") == "2"


async def test_CHEF_7_vary(testbed: ChefTestbed) -> None:
    responses = [
        await testbed.at("1"),
        await testbed.at("7"),
        await testbed.at("1", "/nodes/nosuch"),
        await testbed.at("1", "/server_api_version"),
    ]

    assert {response.get("Vary") for response in responses} == {OWN}


# --- /server_api_version -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [(), SIGNED_1_1, SIGNED_1_3], ids=["unsigned", "1.1", "1.3"])
async def test_C8_CHEF_5_trap_20_the_offer_signed_or_not(
    testbed: ChefTestbed, sign: tuple[tuple[str, str], ...]
) -> None:
    response = await testbed.at("1", "/server_api_version", sign)

    assert (response.status, response.body) == (200, b'{"min_api_version":0,"max_api_version":1}')
    assert response.get(OWN) == version_object(0, 1, 1, 1)
    assert testbed.forwarded == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_C9_CHEF_5_405_for_other_methods(testbed: ChefTestbed, method: str) -> None:
    response = await testbed.send("/server_api_version", method=method)

    assert (response.status, response.get("Allow"), response.get(OWN)) == (
        405,
        "GET, HEAD",
        version_object(0, 1, 0, 0),
    )
    assert testbed.forwarded == []


async def test_CHEF_5_head(testbed: ChefTestbed) -> None:
    response = await testbed.send("/server_api_version", method="HEAD", bodiless=True)

    assert (response.status, response.get("Content-Length"), response.get(OWN)) == (
        200,
        "41",
        version_object(0, 1, 0, 0),
    )


# --- signatures --------------------------------------------------------------------------------------------


async def test_a_request_signed_with_1_3_is_forwarded_unchanged() -> None:
    async with in_front_of(Erchef(0), Erchef(1), offer="{policy: reachable}") as testbed:
        for _ in range(REPEATS):
            assert (await testbed.at("1", "/nodes//x%20y?q=%41", SIGNED_1_3)).status == 200
        old, new = testbed.servers

    assert old.forwarded == []
    assert len(new.forwarded) == REPEATS
    for head in new.forwarded:
        assert [value for name, value in head.lines if name.lower() == OWN.lower()] == ["1"]
        assert head.target == "/nodes//x%20y?q=%41"
        assert head.get("X-Ops-Sign") == SIGNED_1_3[0][1]


@pytest.mark.parametrize("text", ["01", "+1"])
async def test_R_A7_a_signed_version_that_is_not_canonical_reaches_no_server(text: str) -> None:
    """A server that computes the canonical text would execute it at another version, or refuse it."""
    async with in_front_of(Erchef(0), Erchef(1), offer="{policy: reachable}") as testbed:
        response = await testbed.at(text, "/nodes", SIGNED_1_3)

    assert (response.status, testbed.forwarded) == (406, [])


async def test_a_1_3_signature_without_a_version_gets_none(testbed: ChefTestbed) -> None:
    """goiardi signs a missing version as missing: an added 0 would break the signature."""
    response = await testbed.at(None, sign=SIGNED_1_3)

    assert (response.status, response.get(OWN)) == (200, version_object(0, 1, 0, 0))
    assert [head.versions for head in testbed.forwarded] == [{}]


async def test_path_and_body_are_never_changed(testbed: ChefTestbed) -> None:
    target, body = "//nodes//a%20b;c?x=1&&y", b'{"name": "n1"}'

    response = await testbed.send(target, *SIGNED_1_1, (OWN, "01"), method="POST", body=body)

    assert json.loads(response.body) == {"target": target, "body": body.decode()}


# --- fleets ------------------------------------------------------------------------------------------------


async def test_C11_a_mixed_fleet_with_a_legacy_server_offers_0_and_both_look_the_same() -> None:
    async with in_front_of(Erchef(None), Erchef(2)) as testbed:
        assert testbed.offer == "0"
        response = await same_response(testbed, "0")
        legacy, new = testbed.servers

    assert response.get(OWN) == version_object(0, 0, 0, 0)
    assert all(head.versions == {} for head in legacy.forwarded)
    assert all(head.versions == {OWN: "0"} for head in new.forwarded)


async def test_a_fleet_of_legacy_servers_is_transparent() -> None:
    async with in_front_of(Erchef(None)) as testbed:
        response = await testbed.at("7")

    assert (response.status, response.versions) == (200, {})
    assert [head.get(OWN) for head in testbed.forwarded] == ["7"]


async def test_C12_goiardi_gets_only_the_versions_that_it_serves() -> None:
    async with in_front_of(Goiardi(), Erchef(2), offer="{policy: reachable}") as testbed:
        assert testbed.offer == "0-2"
        for version, number in (("2", 2), ("01", 1), (None, 0)):
            for _ in range(REPEATS):
                response = await testbed.at(version)
                assert (response.status, response.get(OWN)) == (200, version_object(0, 2, number, number))
        goiardi, _ = testbed.servers

    assert {head.get(OWN) for head in goiardi.forwarded} <= {"0", "1"}


async def test_K8_chef_client_2_against_an_offer_up_to_1() -> None:
    """The client requests 2, reads the range from the 406 and repeats at the maximum, on any server."""
    async with in_front_of(Erchef(1), Erchef(2)) as testbed:
        for _ in range(REPEATS):
            first = await testbed.at("2", "/nodes/x")
            assert first.status == 406
            highest = json.loads(first.get(OWN) or "")["max_version"]
            again = await testbed.at(highest, "/nodes/x")
            assert (again.status, again.get(OWN)) == (200, version_object(0, 1, 1, 1))


async def test_K8_a_server_that_was_replaced_by_an_older_one_refuses_and_another_one_serves() -> None:
    """The gateway's knowledge was stale. Nothing was executed, and the client does not notice."""
    async with in_front_of(Erchef(2), Erchef(2), offer="{policy: reachable}", interval="60m") as testbed:
        replaced, _ = testbed.servers
        replaced.highest = 1
        responses = [await testbed.at("2") for _ in range(REPEATS)]
        assert {response.status for response in responses} == {200}

    assert {response.get(OWN) for response in responses} == {version_object(0, 2, 2, 2)}
    assert len([head for head in replaced.refused if head in replaced.forwarded]) <= 1


async def test_CHEF_8_the_range_is_logged_at_start_and_at_every_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server = Erchef(1)
    async with in_front_of(server, offer="{stabilization: 0s}") as testbed:
        assert "0-1" in caplog.text
        caplog.clear()
        server.highest = 2
        await testbed.until(lambda view: view.offer.versions.highest == (2,))
        assert "0-2" in caplog.text


async def test_CHEF_9_a_release_can_be_the_ceiling() -> None:
    async with in_front_of(Erchef(2), offer="{ceiling: {release: '12.1'}}") as testbed:
        assert testbed.offer == "0-1"
        assert (await testbed.at("2")).get(OWN) == version_object(0, 1, 2, -1)
