"""IRONIC-UC1 to UC9: each case of the founding text in front of the gateway, as bytes on both sides of it."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

import pytest

from gateway.core.offer import Phase
from tests.scenarios.client import IronicClient, UnsupportedVersion
from tests.scenarios.fakes import OWN, STANDARD, Ironic, client_fault, fault, not_served
from tests.scenarios.stand import VARY, Stand, description, in_front_of, told

BOTH = {OWN: "1.1", STANDARD: "baremetal 1.1"}
TRIES = 300
"""Requests after which each of two equal backends has had one, but for a chance of 2 in 2 ** 300."""


def written(version: str) -> dict[str, str]:
    """The version lines that a backend with versions is sent."""
    return {OWN: version, STANDARD: f"baremetal {version}"}


async def until_all_were_asked(stand: Stand, version: str | None) -> list[tuple[str | None, ...]]:
    """Ask until every backend has had a request; what the client saw each time."""
    seen: list[tuple[str | None, ...]] = []
    for _ in range(TRIES):
        reply = await stand.at(version)
        seen.append((reply.start, *told(reply), reply.get("Vary"), reply.body.decode()))
        if all(server.asked for server in stand.servers):
            return seen
    raise AssertionError("some backend was never asked")


# --- all old: transparent ------------------------------------------------------------------------------


async def test_IRONIC_UC1_an_old_client_and_old_servers_nothing_is_added() -> None:
    async with in_front_of(Ironic(None), Ironic(None)) as stand:
        reply = await stand.at(None)

        assert (reply.status, reply.body) == (200, b'{"nodes": []}')
        assert (reply.versions, reply.all("Vary")) == ({}, [])
        assert [head.versions for head in stand.asked] == [{}]


@pytest.mark.parametrize("case", ["own default", "explicit version"])
async def test_IRONIC_UC3A_UC3B_a_new_client_and_old_servers_go_on_by_themselves(case: str) -> None:
    version = None if case == "own default" else "1.31"
    async with in_front_of(Ironic(None), Ironic(None)) as stand:
        client = IronicClient(stand, version)
        reply = await client.get("/v1/nodes")

        assert (reply.status, reply.versions, reply.all("Vary")) == (200, {}, [])
        assert client.log == [("/v1/nodes", version or "1.9", 200)]
        (head,) = stand.asked
        assert [(name.lower(), value) for name, value in head.versions.items()] == [
            (OWN.lower(), version or "1.9")
        ], "as the client sent it, and nothing that the gateway invents"


async def test_IRONIC_UC3A_even_what_is_no_version_passes_an_old_fleet_untouched() -> None:
    async with in_front_of(Ironic(None)) as stand:
        assert (await stand.at("spam")).status == 200
        assert [list(head.versions.values()) for head in stand.asked] == [["spam"]]


async def test_IRONIC_UC3A_documents_of_an_old_fleet_pass_untouched() -> None:
    old = Ironic(None)
    async with in_front_of(old) as stand:
        for target, body in (("/", old.root(stand.base)), ("/v1", old.v1(stand.base))):
            reply = await stand.at(None, target)
            assert (reply.body, reply.versions) == (body, {})


# --- an old client -------------------------------------------------------------------------------------


async def test_IRONIC_UC2_an_old_client_and_new_servers_get_an_explicit_minimum() -> None:
    async with in_front_of(Ironic(90), Ironic(90)) as stand:
        reply = await stand.at(None)

        assert (reply.status, told(reply)) == (200, ("1.1", "1.90", "1.1"))
        assert reply.get("Vary") == VARY
        assert [head.versions for head in stand.asked] == [BOTH]


async def test_IRONIC_UC2_M_an_old_client_sees_the_same_from_old_and_new() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new) as stand:
        seen = await until_all_were_asked(stand, None)

        assert set(seen) == {("HTTP/1.1 200 X", "1.1", "1.1", "1.1", VARY, '{"nodes": []}')}
        assert all(head.versions == {} for head in old.asked)
        assert all(head.versions == BOTH for head in new.asked)


# --- a new client and a mixed fleet --------------------------------------------------------------------


async def test_IRONIC_UC3_M_guaranteed_refuses_and_the_client_renegotiates_and_goes_on() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new) as stand:
        reply = await stand.at("1.9")
        assert (reply.status, told(reply)) == (406, ("1.1", "1.1", None))
        assert description(reply).endswith("The supported version range is: [1.1, 1.1].")
        assert stand.asked == []

        client = IronicClient(stand, default="1.9")
        assert (await client.get("/v1/nodes")).status == 200
        assert client.log == [("/v1/nodes", "1.9", 406), ("/v1", None, 200), ("/v1/nodes", "1.1", 200)]
        for _ in range(20):
            assert (await client.get("/v1/nodes")).status == 200


async def test_IRONIC_UC3_M_reachable_sends_it_to_a_new_one_only() -> None:
    old, new = Ironic(None), Ironic(90)
    async with in_front_of(old, new, offer="{policy: reachable}") as stand:
        for _ in range(20):
            reply = await stand.at("1.9")
            assert (reply.status, told(reply)) == (200, ("1.1", "1.90", "1.9"))

        assert old.asked == []
        assert [head.versions for head in new.asked] == [written("1.9")] * 20


# --- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["spam", "l33t", "1.2.3.4.5"])
async def test_IRONIC_UC4_what_is_no_version_is_refused_as_ironic_does(text: str) -> None:
    async with in_front_of(Ironic(90)) as stand:
        reply = await stand.at(text)

        assert (reply.status, told(reply)) == (406, (None, None, None))
        assert reply.get("Vary") == VARY
        assert reply.get("Content-Type") == "application/json"
        assert reply.body == fault(406, "Not Acceptable", f"Invalid value for {OWN} header")
        assert stand.asked == []


@pytest.mark.parametrize(
    "case, lowest, highest, version",
    [("UC5", 8, 15, 6), ("UC6", 1, 5, 10), ("UC7B", 1, 10, 15)],
    ids=["IRONIC-UC5 too old", "IRONIC-UC6 too new", "IRONIC-UC7B explicit"],
)
async def test_IRONIC_UC5_UC6_UC7B_outside_the_range_is_406_with_the_range_and_the_client_stops(
    case: str, lowest: int, highest: int, version: int
) -> None:
    server = Ironic(highest, lowest)
    async with in_front_of(server, Ironic(highest, lowest)) as stand:
        reply = await stand.at(f"1.{version}")

        assert (reply.status, told(reply)) == (406, (f"1.{lowest}", f"1.{highest}", None))
        assert reply.body == fault(406, "Not Acceptable", not_served(version, server))
        assert stand.asked == []

        client = IronicClient(stand, f"1.{version}")
        with pytest.raises(UnsupportedVersion, match=rf"1\.{lowest} to 1\.{highest}"):
            await client.get("/v1/nodes")
        assert client.log == [("/v1/nodes", f"1.{version}", 406), ("/v1", None, 200)]


@pytest.mark.parametrize("maxima", [(10, 10), (10, 12)], ids=["uniform", "mixed"])
async def test_IRONIC_UC7A_a_default_above_the_offer_comes_down_once_and_is_served_from_then_on(
    maxima: tuple[int, int],
) -> None:
    servers = tuple(Ironic(highest) for highest in maxima)
    async with in_front_of(*servers) as stand:
        client = IronicClient(stand, default="1.15")
        while not all(any(head.target == "/v1/nodes" for head in server.asked) for server in servers):
            reply = await client.get("/v1/nodes")
            assert (reply.status, told(reply)) == (200, ("1.1", "1.10", "1.10"))

        first = client.log[:3]
        assert first == [("/v1/nodes", "1.15", 406), ("/v1", None, 200), ("/v1/nodes", "1.10", 200)]
        assert set(client.log[3:]) <= {("/v1/nodes", "1.10", 200)}
        assert client.told == {("1.1", "1.10")}, "one range, whoever answers and whatever is asked"
        assert not any(server.refused for server in servers)


# --- served --------------------------------------------------------------------------------------------


async def test_IRONIC_UC8_a_compatible_version_is_served_and_echoed() -> None:
    async with in_front_of(Ironic(12), Ironic(12)) as stand:
        reply = await stand.at("1.10")

        assert (reply.status, told(reply)) == (200, ("1.1", "1.12", "1.10"))
        assert [head.versions for head in stand.asked] == [written("1.10")]


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
    ids=["new", "mixed", "mixed reachable", "mixed capped", "mixed with a silent one"],
)
async def test_IRONIC_UC9_latest_becomes_a_number_before_a_backend_is_chosen(
    text: str, maxima: tuple[int | None, int], offer: str, resolved: str, able: tuple[int | None, ...]
) -> None:
    servers = tuple(Ironic(highest) for highest in maxima)
    async with in_front_of(*servers, offer=offer) as stand:
        for _ in range(20):
            reply = await stand.at(text)
            assert (reply.status, told(reply)) == (200, ("1.1", resolved, resolved))

        for server in servers:
            wanted = {} if server.highest is None else written(resolved)
            assert all(head.versions == wanted for head in server.asked)
            assert server.highest in able or server.asked == []
            assert server.refused == []


# --- what holds in every one of them -------------------------------------------------------------------


async def test_before_anything_is_known_it_is_503_in_ironics_shape_and_then_it_is_served() -> None:
    """Never 406 or 404, which clients take for a final word; 503 they try again."""
    server = Ironic(90)
    await server.start()
    await server.stop()  # its port is known now, and nobody listens
    async with in_front_of(at=[server.port]) as stand:
        for target in ("/v1/nodes", "/v1", "/"):
            reply = await stand.at("1.31", target)
            assert (reply.status, reply.get("Retry-After"), told(reply)) == (503, "2", (None, None, None))
            assert description(reply).startswith("No backend that serves the requested API version")
        await server.start()
        try:
            await stand.until(lambda view: view.offer.phase is Phase.UNIFORM)
            assert (await stand.at("1.31")).status == 200
        finally:
            await server.stop()


async def test_a_stale_map_is_mended_by_the_first_refusal_and_the_client_never_sees_it() -> None:
    """The server was rolled back between two probes; nothing was executed, so the request goes elsewhere."""
    old, new = Ironic(90), Ironic(90)
    async with in_front_of(old, new, offer="{policy: reachable}", interval="30s") as stand:
        old.highest = 58
        for _ in range(TRIES):
            reply = await stand.at("1.90")
            assert (reply.status, told(reply)) == (200, ("1.1", "1.90", "1.90"))
            if old.refused:
                break
        before = len(old.asked)

        assert len(old.refused) == 1
        for _ in range(20):
            assert (await stand.at("1.90")).status == 200
        assert len(old.asked) == before, "learned: it gets no more of what it does not serve"


async def test_bodies_go_through_byte_for_byte_in_both_directions() -> None:
    body = bytes(range(256)) * 64
    async with in_front_of(Ironic(58), Ironic(90)) as stand:
        reply = await stand.ask("/v1/nodes", (OWN, "1.31"), method="POST", body=body)

        assert (reply.status, reply.body) == (201, body)
        assert [head.body for head in stand.asked] == [body]


@pytest.mark.parametrize("target", ["/v1/nodes/nope", "/v1/bogus", "/v1/nodes"])
async def test_the_range_is_never_a_backends_own(target: str) -> None:
    async with in_front_of(Ironic(58), Ironic(90)) as stand:
        for _ in range(20):
            assert told(await stand.at("1.31", target)) in {("1.1", "1.58", "1.31"), (None, None, None)}


async def test_a_404_of_a_silent_server_looks_like_one_of_a_new_one() -> None:
    old, new = Ironic(None), Ironic(58)
    async with in_front_of(old, new) as stand:
        seen = set()
        for _ in range(TRIES):
            reply = await stand.at("1.1", "/v1/nodes/nope")
            seen.add((reply.status, told(reply), reply.body))
            if old.asked and new.asked:
                break

        assert old.asked
        assert new.asked
        assert seen == {(404, ("1.1", "1.1", "1.1"), client_fault("Node nope could not be found."))}
