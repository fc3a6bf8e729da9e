"""IRONIC-UC1 to UC9: each use case of the original specification, as bytes on both sides of the gateway."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

import json

import pytest

from gateway.core.fleet.offer import Phase
from tests.scenarios.fakes import OWN, STANDARD, Ironic, client_fault, fault, not_served
from tests.scenarios.ironic_client import IronicClient, UnsupportedVersion
from tests.scenarios.testbed import MAX_ATTEMPTS, VARY, Testbed, description, in_front_of, version_fields

BOTH = {OWN: "1.1", STANDARD: "baremetal 1.1"}


def sent_fields(version: str) -> dict[str, str]:
    """The version fields that the gateway sends to a backend with versions."""
    return {OWN: version, STANDARD: f"baremetal {version}"}


async def until_all_were_used(testbed: Testbed, version: str | None) -> list[tuple[str | None, ...]]:
    """Send requests until every backend has had one. Return what the client saw each time."""
    seen: list[tuple[str | None, ...]] = []
    for _ in range(MAX_ATTEMPTS):
        response = await testbed.at(version)
        seen.append((response.start, *version_fields(response), response.get("Vary"), response.body.decode()))
        if all(server.forwarded for server in testbed.servers):
            return seen
    raise AssertionError("some backend got no request")


# --- all old: transparent ------------------------------------------------------------------------------


async def test_IRONIC_UC1_an_old_client_and_old_servers_see_no_versions() -> None:
    async with in_front_of(Ironic(None), Ironic(None)) as testbed:
        response = await testbed.at(None)

        assert (response.status, response.body) == (200, b'{"nodes": []}')
        assert (response.versions, response.all("Vary")) == ({}, [])
        assert [head.versions for head in testbed.forwarded] == [{}]


@pytest.mark.parametrize("case", ["own default", "explicit version"])
async def test_IRONIC_UC3A_UC3B_a_new_client_and_old_servers_see_each_other_unchanged(case: str) -> None:
    version = None if case == "own default" else "1.31"
    async with in_front_of(Ironic(None), Ironic(None)) as testbed:
        client = IronicClient(testbed, version)
        response = await client.get("/v1/nodes")

        assert (response.status, response.versions, response.all("Vary")) == (200, {}, [])
        assert client.log == [("/v1/nodes", version or "1.9", 200)]
        (head,) = testbed.forwarded
        assert [(name.lower(), value) for name, value in head.versions.items()] == [
            (OWN.lower(), version or "1.9")
        ], "the fields of the client only"


async def test_R3_V15_a_transparent_service_shows_the_document_of_its_servers() -> None:
    async with in_front_of(Ironic(None), Ironic(None)) as testbed:
        assert "version" not in json.loads((await testbed.send("/v1")).body)


async def test_R3_V15_a_mixed_fleet_shows_one_document_of_v1() -> None:
    """Rocky writes no range into it."""
    async with in_front_of(Ironic(46, document_range=False), Ironic(90)) as testbed:
        response = await testbed.same_response("/v1")

        version = json.loads(response.body)["version"]
        assert (version["min_version"], version["version"]) == ("1.1", "1.46")
        assert version["links"] == [{"href": f"{testbed.base}/v1/", "rel": "self"}]


async def test_IRONIC_UC3A_a_malformed_version_is_forwarded_to_an_old_fleet_unchanged() -> None:
    async with in_front_of(Ironic(None)) as testbed:
        assert (await testbed.at("spam")).status == 200
        assert [list(head.versions.values()) for head in testbed.forwarded] == [["spam"]]


async def test_IRONIC_UC3A_documents_of_an_old_fleet_are_forwarded_unchanged() -> None:
    old = Ironic(None)
    async with in_front_of(old) as testbed:
        for target, body in (("/", old.root(testbed.base)), ("/v1", old.v1(testbed.base))):
            response = await testbed.at(None, target)
            assert (response.body, response.versions) == (body, {})


# --- an old client -------------------------------------------------------------------------------------


async def test_IRONIC_UC2_an_old_client_and_new_servers_get_an_explicit_minimum() -> None:
    async with in_front_of(Ironic(90), Ironic(90)) as testbed:
        response = await testbed.at(None)

        assert (response.status, version_fields(response)) == (200, ("1.1", "1.90", "1.1"))
        assert response.get("Vary") == VARY
        assert [head.versions for head in testbed.forwarded] == [BOTH]


async def test_IRONIC_UC2_M_an_old_client_sees_the_same_from_old_and_new() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new) as testbed:
        seen = await until_all_were_used(testbed, None)

        assert set(seen) == {("HTTP/1.1 200 X", "1.1", "1.1", "1.1", VARY, '{"nodes": []}')}
        assert all(head.versions == {} for head in old.forwarded)
        assert all(head.versions == BOTH for head in new.forwarded)


# --- a new client and a mixed fleet --------------------------------------------------------------------


async def test_IRONIC_UC3_M_guaranteed_refuses_and_the_client_negotiates_again() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new) as testbed:
        response = await testbed.at("1.9")
        assert (response.status, version_fields(response)) == (406, ("1.1", "1.1", None))
        assert description(response).endswith("The supported version range is: [1.1, 1.1].")
        assert testbed.forwarded == []

        client = IronicClient(testbed, default="1.9")
        assert (await client.get("/v1/nodes")).status == 200
        assert client.log == [("/v1/nodes", "1.9", 406), ("/v1", None, 200), ("/v1/nodes", "1.1", 200)]
        for _ in range(20):
            assert (await client.get("/v1/nodes")).status == 200


async def test_IRONIC_UC3_M_reachable_sends_it_to_the_new_server_only() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new, offer="{policy: reachable}") as testbed:
        for _ in range(20):
            response = await testbed.at("1.9")
            assert (response.status, version_fields(response)) == (200, ("1.1", "1.90", "1.9"))

        assert old.forwarded == []
        assert [head.versions for head in new.forwarded] == [sent_fields("1.9")] * 20


# --- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["spam", "l33t", "1.2.3.4.5"])
async def test_IRONIC_UC4_a_malformed_version_is_refused_as_by_ironic(text: str) -> None:
    async with in_front_of(Ironic(90)) as testbed:
        response = await testbed.at(text)

        assert (response.status, version_fields(response)) == (406, (None, None, None))
        assert response.get("Vary") == VARY
        assert response.get("Content-Type") == "application/json"
        assert response.body == fault(406, "Not Acceptable", f"Invalid value for {OWN} header")
        assert testbed.forwarded == []


@pytest.mark.parametrize(
    "case, lowest, highest, version",
    [("UC5", 8, 15, 6), ("UC6", 1, 5, 10), ("UC7B", 1, 10, 15)],
    ids=["IRONIC-UC5 too old", "IRONIC-UC6 too new", "IRONIC-UC7B explicit"],
)
async def test_IRONIC_UC5_UC6_UC7B_outside_the_range_is_406_with_the_range_and_the_client_stops(
    case: str, lowest: int, highest: int, version: int
) -> None:
    server = Ironic(highest, lowest)
    async with in_front_of(server, Ironic(highest, lowest)) as testbed:
        response = await testbed.at(f"1.{version}")

        assert (response.status, version_fields(response)) == (406, (f"1.{lowest}", f"1.{highest}", None))
        assert response.body == fault(406, "Not Acceptable", not_served(version, server))
        assert testbed.forwarded == []

        client = IronicClient(testbed, f"1.{version}")
        with pytest.raises(UnsupportedVersion, match=rf"1\.{lowest} to 1\.{highest}"):
            await client.get("/v1/nodes")
        assert client.log == [("/v1/nodes", f"1.{version}", 406), ("/v1", None, 200)]


@pytest.mark.parametrize("maxima", [(10, 10), (10, 12)], ids=["uniform", "mixed"])
async def test_IRONIC_UC7A_a_default_above_the_offer_is_lowered_once_and_served_afterwards(
    maxima: tuple[int, int],
) -> None:
    servers = tuple(Ironic(highest) for highest in maxima)
    async with in_front_of(*servers) as testbed:
        client = IronicClient(testbed, default="1.15")
        while not all(any(head.target == "/v1/nodes" for head in server.forwarded) for server in servers):
            response = await client.get("/v1/nodes")
            assert (response.status, version_fields(response)) == (200, ("1.1", "1.10", "1.10"))

        first = client.log[:3]
        assert first == [("/v1/nodes", "1.15", 406), ("/v1", None, 200), ("/v1/nodes", "1.10", 200)]
        assert set(client.log[3:]) <= {("/v1/nodes", "1.10", 200)}
        assert client.ranges == {("1.1", "1.10")}, "one range for every backend and every version"
        assert not any(server.refused for server in servers)


# --- served --------------------------------------------------------------------------------------------


async def test_IRONIC_UC8_a_compatible_version_is_served_and_echoed() -> None:
    async with in_front_of(Ironic(12), Ironic(12)) as testbed:
        response = await testbed.at("1.10")

        assert (response.status, version_fields(response)) == (200, ("1.1", "1.12", "1.10"))
        assert [head.versions for head in testbed.forwarded] == [sent_fields("1.10")]


@pytest.mark.parametrize("text", ["latest", "LATEST"])
@pytest.mark.parametrize(
    "maxima, offer, resolved, able",
    [
        ((90, 90), "{}", "1.90", (90,)),
        ((58, 90), "{}", "1.58", (58, 90)),
        ((58, 90), "{policy: reachable}", "1.90", (90,)),
        ((58, 90), '{ceiling: "1.31"}', "1.31", (58, 90)),
        ((None, 90), "{}", "1.1", (None, 90)),
    ],
    ids=["new", "mixed", "mixed reachable", "mixed capped", "mixed with a legacy one"],
)
async def test_IRONIC_UC9_latest_becomes_a_number_before_a_backend_is_chosen(
    text: str, maxima: tuple[int | None, int], offer: str, resolved: str, able: tuple[int | None, ...]
) -> None:
    servers = tuple(Ironic(highest) for highest in maxima)
    async with in_front_of(*servers, offer=offer) as testbed:
        for _ in range(20):
            response = await testbed.at(text)
            assert (response.status, version_fields(response)) == (200, ("1.1", resolved, resolved))

        for server in servers:
            wanted = {} if server.highest is None else sent_fields(resolved)
            assert all(head.versions == wanted for head in server.forwarded)
            assert server.highest in able or server.forwarded == []
            assert server.refused == []


# --- what holds in every case ------------------------------------------------------------------------------


async def test_before_any_probe_succeeds_it_is_503_in_the_shape_of_ironic() -> None:
    """Clients treat 406 and 404 as final. They retry a 503."""
    server = Ironic(90)
    await server.start()
    await server.stop()  # the port stays reserved, and nobody listens
    async with in_front_of(at=[server.port]) as testbed:
        for target in ("/v1/nodes", "/v1", "/"):
            response = await testbed.at("1.31", target)
            assert (response.status, response.get("Retry-After"), version_fields(response)) == (
                503,
                None,
                (None, None, None),
            )
            assert description(response).startswith("No backend that serves the requested API version")
        await server.start()
        try:
            await testbed.until(lambda view: view.offer.phase is Phase.UNIFORM)
            assert (await testbed.at("1.31")).status == 200
        finally:
            await server.close()


async def test_stale_knowledge_is_corrected_by_the_first_refusal_and_the_client_does_not_notice() -> None:
    """The server was rolled back between two probes. It executed nothing, so another one gets the request."""
    old, new = Ironic(90), Ironic(90)
    async with in_front_of(old, new, offer="{policy: reachable}", interval="30s") as testbed:
        old.highest = 58
        for _ in range(MAX_ATTEMPTS):
            response = await testbed.at("1.90")
            assert (response.status, version_fields(response)) == (200, ("1.1", "1.90", "1.90"))
            if old.refused:
                break
        before = len(old.forwarded)

        assert len(old.refused) == 1
        for _ in range(20):
            assert (await testbed.at("1.90")).status == 200
        assert len(old.forwarded) == before, "the gateway must not send it that version again"


async def test_bodies_are_forwarded_byte_for_byte_in_both_directions() -> None:
    body = bytes(range(256)) * 64
    async with in_front_of(Ironic(58), Ironic(90)) as testbed:
        response = await testbed.send("/v1/nodes", (OWN, "1.31"), method="POST", body=body)

        assert (response.status, response.body) == (201, body)
        assert [head.body for head in testbed.forwarded] == [body]


@pytest.mark.parametrize("target", ["/v1/nodes/nope", "/v1/bogus", "/v1/nodes"])
async def test_the_range_is_never_that_of_one_backend(target: str) -> None:
    async with in_front_of(Ironic(58), Ironic(90)) as testbed:
        for _ in range(20):
            assert version_fields(await testbed.at("1.31", target)) in {
                ("1.1", "1.58", "1.31"),
                (None, None, None),
            }


async def test_a_404_of_a_legacy_server_looks_like_one_of_a_new_server() -> None:
    old, new = Ironic(None), Ironic(58)
    async with in_front_of(old, new) as testbed:
        seen = set()
        for _ in range(MAX_ATTEMPTS):
            response = await testbed.at("1.1", "/v1/nodes/nope")
            seen.add((response.status, version_fields(response), response.body))
            if old.forwarded and new.forwarded:
                break

        assert old.forwarded
        assert new.forwarded
        assert seen == {(404, ("1.1", "1.1", "1.1"), client_fault("Node nope could not be found."))}
