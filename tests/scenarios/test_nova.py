"""Nova through the gateway, as bytes on both sides.

Here are the golden examples N1 to N14, the use cases NOVA-UC1 to UC8, the sequence K5, and the two kinds of
old servers: those without microversions, and those before Newton.

Unless a test says otherwise, the fleet is a server of 17 (2.1 to 2.60) and one of 34 (2.1 to 2.104).
"""

# ruff: noqa: N802 -- ids of examples, scenarios and sequences are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.core.fleet.offer import Phase
from tests.scenarios.fakes import STANDARD, Head
from tests.scenarios.nova_fleet import (
    FAULT,
    NOT_FOUND,
    OWN,
    SERVERS,
    TOKEN,
    Nova,
    NovaTestbed,
    in_front_of,
    malformed,
    pair,
    rejected,
    varies,
    version_fields,
)
from tests.scenarios.testbed import MAX_ATTEMPTS, REPEATS

BOTH = sorted([STANDARD, OWN])


@pytest.fixture
async def testbed() -> AsyncIterator[NovaTestbed]:
    async with in_front_of(Nova(60, redirects=True), Nova(104)) as testbed:
        yield testbed


def assert_refused_by_gateway(response: Head, status: int, body: bytes, versions: dict[str, str]) -> None:
    """The gateway wrote this refusal."""
    assert (response.status, response.body, response.get("Content-Length")) == (status, body, str(len(body)))
    assert (version_fields(response), varies(response), response.get("Content-Type")) == (
        versions,
        BOTH,
        FAULT,
    )


# --- golden examples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [None, (STANDARD, "compute 2.999"), (OWN, "spam")])
async def test_N1_the_root_contains_the_offer_and_ignores_versions(
    testbed: NovaTestbed, line: tuple[str, str] | None
) -> None:
    response = await testbed.same_response("/", *([line] if line else []))

    assert response.status == 200
    assert response.body == testbed.servers[1].root(testbed.base, "2.60")
    assert (version_fields(response), varies(response)) == ({}, BOTH)
    assert all(head.versions == {} for head in testbed.forwarded)


async def test_N2_the_version_document_contains_the_offer(testbed: NovaTestbed) -> None:
    new = testbed.servers[1]
    assert isinstance(new, Nova)

    response = await testbed.same_response("/v2.1/")

    assert (response.status, response.body) == (200, new.v2_1(testbed.base, "2.60"))
    assert (version_fields(response), response.all("Vary")) == (pair("2.1"), [STANDARD, OWN])
    assert all(head.versions == pair("2.1") for head in testbed.forwarded)


@pytest.mark.parametrize("text", ["2.999", "2.61", "2.0", "3.1"])
@pytest.mark.parametrize("target", [SERVERS, "/v2.1/", "/v2.1"])
async def test_N3_NOVA_UC5_UC6_trap_9_outside_the_offer_both_fields_echo_the_requested_version(
    testbed: NovaTestbed, text: str, target: str
) -> None:
    """One of the two servers serves 2.61, but it is not in the offer that the documents contain."""
    response = await testbed.same_response(target, (STANDARD, f"compute {text}"))

    assert_refused_by_gateway(response, 406, rejected(text, "2.1", "2.60"), pair(text))
    assert testbed.forwarded == []


@pytest.mark.parametrize("text", ["spam", "1.2.3.4.5", "2.", "02.1", "", "LATEST", "2.latest"])
async def test_N4_N9_NOVA_UC4_NOVA_X_trap_10_a_malformed_version_is_400(
    testbed: NovaTestbed, text: str
) -> None:
    assert_refused_by_gateway(await testbed.same_response(SERVERS, (OWN, text)), 400, malformed(text), {})
    assert testbed.forwarded == []


@pytest.mark.parametrize(
    "lines, served",
    [
        ([(STANDARD, "compute 2.30"), (OWN, "2.10")], "2.30"),
        ([(STANDARD, "compute 2.5, baremetal 1.9, compute 2.6")], "2.6"),
        ([(STANDARD, "compute 2.5"), (STANDARD.upper(), "compute 2.6")], "2.6"),
        ([(OWN, "2.5, 2.6")], "2.6"),
        ([(STANDARD, "baremetal 1.9")], "2.1"),
        ([(STANDARD, "2.5")], "2.1"),
        ([(STANDARD, "nova 2.6")], "2.1"),
        ([(STANDARD, "Compute   2.5")], "2.5"),
        ([(STANDARD, "compute latest")], "2.60"),
        ([(OWN, "latest")], "2.60"),
        ([], "2.1"),
        ([(OWN, "2.60")], "2.60"),
    ],
    ids=["N5", "N6", "N6 lines", "N6 own", "N7", "N7", "N7", "N8", "N10", "N10 own", "NOVA-UC2", "NOVA-UC7"],
)
async def test_N5_to_N10_one_version_is_negotiated_and_sent_and_echoed_in_both_fields(
    testbed: NovaTestbed, lines: list[tuple[str, str]], served: str
) -> None:
    response = await testbed.same_response(SERVERS, *lines)

    assert (response.status, response.body) == (200, b'{"servers": []}')
    assert (version_fields(response), response.all("Vary")) == (pair(served), [STANDARD, OWN])
    assert all(head.versions == pair(served) for head in testbed.forwarded)


async def test_N11_a_missing_resource_has_both_fields(testbed: NovaTestbed) -> None:
    response = await testbed.same_response("/v2.1/servers/nope", (OWN, "2.30"))

    assert (response.status, response.body, version_fields(response)) == (404, NOT_FOUND, pair("2.30"))


async def test_N12_trap_22_a_missing_route_has_no_version_and_teaches_nothing(
    testbed: NovaTestbed,
) -> None:
    response = await testbed.same_response("/v2.1/bogus", (OWN, "2.30"))

    assert (response.status, version_fields(response), varies(response)) == (404, {}, BOTH)
    assert testbed.offer == "2.1-2.60"


@pytest.mark.parametrize("target", ["/servers", "/v3/servers"])
async def test_N13_a_path_outside_the_mounts_gets_the_choices(target: str) -> None:
    async with in_front_of(Nova(60), Nova(104), match="{path: /compute}") as testbed:
        new = testbed.servers[1]
        assert isinstance(new, Nova)

        response = await testbed.same_response(target, (OWN, "2.27"))

        assert (response.status, response.body) == (300, new.choices(testbed.base, target))
        assert version_fields(response) == {}
        assert all(head.versions == {} for head in testbed.forwarded)


async def test_a_version_in_a_media_type_is_reported_as_executed(
    testbed: NovaTestbed,
) -> None:
    """The gateway decides by the path, not by fields: it neither sends nor adds a version here."""
    response = await testbed.same_response(
        "/servers", (OWN, "2.27"), ("Accept", "application/json;version=2.1")
    )

    assert (response.status, version_fields(response)) == (200, pair("2.1"))
    assert all(head.versions == {} for head in testbed.forwarded)


@pytest.mark.parametrize("line", [(STANDARD, "compute 2.999"), (OWN, "2.40"), (OWN, "spam")])
@pytest.mark.parametrize("target", ["/v2", "/v2/", "/v2/servers"])
async def test_N14_NOVA_UC3C_below_v2_there_are_no_versions_in_either_direction(
    testbed: NovaTestbed, target: str, line: tuple[str, str]
) -> None:
    new = testbed.servers[1]
    assert isinstance(new, Nova)

    response = await testbed.same_response(target, line)

    body = b'{"servers": []}' if target == "/v2/servers" else new.v2(testbed.base)
    assert (response.status, response.body, version_fields(response)) == (200, body, {})
    assert all(head.versions == {} for head in testbed.forwarded)


# --- servers without microversions ---------------------------------------------------------------------


async def test_NOVA_UC1_UC3A_a_fleet_with_v2_0_only_is_transparent() -> None:
    old = Nova(None)
    async with in_front_of(old, Nova(None)) as testbed:
        for target, body in (("/v2/servers", b'{"servers": []}'), ("/", old.root(testbed.base))):
            for version in (None, "2.30", "spam"):
                response = await testbed.at(version, target)
                assert (response.status, response.body) == (200, body)
                assert (version_fields(response), varies(response)) == ({}, [])
        assert json.loads((await testbed.send("/")).body)["versions"][0].keys() == {"id", "status", "links"}

        received = [
            [value for name, value in head.lines if name.lower() == OWN.lower()] for head in testbed.forwarded
        ]
        assert sorted(received) == [[], [], [], ["2.30"], ["2.30"], ["spam"], ["spam"]], (
            "the fields of the client"
        )
        assert (testbed.offer, testbed.view.offer.transparent) == ("none", True)


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
async def test_NOVA_UC3B_a_mixed_fleet_lists_v2_1_with_the_offer_of_the_servers_that_have_it(
    policy: str,
) -> None:
    old, new = Nova(None), Nova(104)
    async with in_front_of(old, new, offer=f"{{policy: {policy}}}") as testbed:
        for target, body in (("/", new.root(testbed.base)), ("/v2.1/", new.v2_1(testbed.base))):
            assert (await testbed.same_response(target)).body == body
        for version in ("2.1", "2.104", "latest", None):
            response = await testbed.same_response(SERVERS, *([(OWN, version)] if version else []))
            assert (response.status, response.body) == (200, b'{"servers": []}')

        assert testbed.offer == "2.1-2.104", "a legacy server does not lower it"
        assert old.forwarded == []


async def test_NOVA_UC3B_lib_a_server_that_would_ignore_the_version_never_gets_it() -> None:
    """Behind a plain load balancer, the request would be executed at 2.0 without notice."""
    old, new = Nova(None), Nova(60)
    async with in_front_of(old, new) as testbed:
        for _ in range(20):
            assert version_fields(await testbed.at("2.30")) == pair("2.30")
        assert (await testbed.at("2.61")).status == 406
        await new.stop()
        response = await testbed.at("2.30")

        assert (response.status, response.get("Retry-After"), version_fields(response)) == (503, "2", {})
        assert json.loads(response.body)["serviceUnavailable"]["code"] == 503
        assert old.forwarded == []


async def test_NOVA_UC3C_v2_goes_to_every_server_including_legacy_ones() -> None:
    old, new = Nova(None), Nova(104)
    async with in_front_of(old, new) as testbed:
        for _ in range(MAX_ATTEMPTS):
            response = await testbed.at("2.999", "/v2/servers")
            assert (response.status, version_fields(response), varies(response)) == (200, {}, BOTH)
            if old.forwarded and new.forwarded:
                break

        assert old.forwarded
        assert new.forwarded
        assert all(head.versions == {} for head in testbed.forwarded)


# --- servers before Newton -----------------------------------------------------------------------------


async def test_a_server_that_reads_only_its_own_field_gets_one_value_and_looks_like_a_new_one() -> None:
    """It would refuse `2.5, 2.6` and execute `OpenStack-API-Version: compute 2.12` at 2.1."""
    mitaka, new = Nova(25, newton=False), Nova(104)
    async with in_front_of(mitaka, new) as testbed:
        for lines in ([(STANDARD, "compute 2.12")], [(OWN, "2.5, 2.12")]):
            for _ in range(MAX_ATTEMPTS):
                response = await testbed.send(SERVERS, *lines)
                assert (response.status, version_fields(response), varies(response)) == (
                    200,
                    pair("2.12"),
                    BOTH,
                )
                if mitaka.forwarded:
                    break
        assert mitaka.forwarded
        assert mitaka.refused == []


# --- documents -----------------------------------------------------------------------------------------


async def test_the_redirect_of_old_servers_leads_to_the_gateway() -> None:
    async with in_front_of(Nova(60, redirects=True), match="{path: /compute}") as testbed:
        (server,) = testbed.servers
        assert isinstance(server, Nova)

        response = await testbed.send("/v2.1")
        assert (response.status, response.get("Location")) == (302, f"{testbed.base}/v2.1/")

        followed = await testbed.send(str(response.get("Location")).removeprefix(testbed.base))
        assert (followed.status, followed.body) == (200, server.v2_1(testbed.base))
        assert [head.target for head in testbed.forwarded] == ["/v2.1", "/v2.1/"]


async def test_a_document_that_needs_a_token_is_rewritten_and_its_401_is_not() -> None:
    async with in_front_of(Nova(60, wants_token=True), Nova(79, wants_token=True)) as testbed:
        new = testbed.servers[1]
        assert isinstance(new, Nova)

        without = await testbed.same_response("/v2.1/")
        assert (without.status, without.body, version_fields(without)) == (
            401,
            b'{"error": {"code": 401}}',
            {},
        )
        response = await testbed.same_response("/v2.1/", TOKEN)
        assert (response.status, response.body) == (200, new.v2_1(testbed.base, "2.60"))


async def test_a_server_without_the_root_is_probed_at_v2_1_with_the_configured_token() -> None:
    probe = "interval: 100ms, headers: {X-Auth-Token: admin}"
    async with in_front_of(Nova(60, wants_token=True, rooted=False), probe=probe) as testbed:
        assert testbed.offer == "2.1-2.60"
        assert version_fields(await testbed.at("2.30")) == {}, "the request has no token"
        assert version_fields(await testbed.send(SERVERS, (OWN, "2.30"), TOKEN)) == pair("2.30")


async def test_without_a_token_such_a_server_is_unknown_and_not_legacy() -> None:
    hidden = Nova(60, wants_token=True, rooted=False)
    async with in_front_of(hidden, Nova(104)) as testbed:
        member = testbed.view.members.all[0]

        assert member.advertisement is None
        assert "token" in str(member.error)
        assert (await testbed.at("2.104")).status == 200
        assert hidden.forwarded == []


async def test_a_head_request_gets_the_same_fields_and_no_body(testbed: NovaTestbed) -> None:
    response = await testbed.send(SERVERS, (OWN, "2.999"), method="HEAD", bodiless=True)

    assert (response.status, version_fields(response), response.get("Content-Length")) == (
        406,
        pair("2.999"),
        "124",
    )


# --- clients -------------------------------------------------------------------------------------------


async def novaclient(testbed: NovaTestbed, highest: int = 96) -> str:
    """K5, as the command line of python-novaclient does it for `2.latest`. Return the negotiated version."""
    first = await testbed.send("/v2.1", (OWN, "2.1"), TOKEN)
    if first.status == 302:
        target = str(first.get("Location")).removeprefix(testbed.base)
        first = await testbed.send(target, (OWN, "2.1"), TOKEN)
    highest_offered = json.loads(first.body)["version"]["version"]
    return f"2.{min(highest, int(highest_offered.partition('.')[2]))}"


async def test_K5_NOVA_UC8_latest_is_read_from_the_document_and_served_by_every_server(
    testbed: NovaTestbed,
) -> None:
    """Behind a plain load balancer, half of the clients negotiate 2.96, and half of the servers refuse it."""
    for _ in range(REPEATS):
        version = await novaclient(testbed)
        assert version == "2.60"
        for _ in range(4):
            response = await testbed.send(
                "/v2.1/servers/detail", (OWN, version), (STANDARD, f"compute {version}"), TOKEN
            )
            assert (response.status, version_fields(response)) == (200, pair("2.60"))
    assert not any(server.refused for server in testbed.servers)


async def test_K5_trap_8_the_echo_is_always_the_requested_version(
    testbed: NovaTestbed,
) -> None:
    """python-novaclient does not check the echo. Other clients may."""
    for minor in (1, 2, 27, 59, 60) * 3:
        assert version_fields(await testbed.at(f"2.{minor}")) == pair(f"2.{minor}")


async def test_K5_a_ceiling_by_release_is_the_maximum_that_the_client_finds() -> None:
    async with in_front_of(Nova(104), Nova(104), offer='{ceiling: {release: "wallaby"}}') as testbed:
        assert await novaclient(testbed) == "2.88"
        assert_refused_by_gateway(
            await testbed.same_response(SERVERS, (OWN, "2.89")),
            406,
            rejected("2.89", "2.1", "2.88"),
            pair("2.89"),
        )
        assert testbed.view.offer.phase is Phase.CAPPED


# --- stale knowledge -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b'{"server": {}}')])
async def test_a_refusal_known_by_its_body_corrects_the_range_and_the_client_does_not_notice(
    method: str, body: bytes
) -> None:
    """The server was rolled back between two probes. It executed nothing, so another one gets the request."""
    old, new = Nova(104), Nova(104)
    async with in_front_of(old, new, offer="{policy: reachable}", probe="interval: 30s") as testbed:
        old.highest = 60
        for _ in range(MAX_ATTEMPTS):
            response = await testbed.send(SERVERS, (OWN, "2.90"), method=method, body=body)
            assert (response.status, version_fields(response)) == (202 if body else 200, pair("2.90"))
            if old.refused:
                break
        before = len(old.forwarded)

        assert len(old.refused) == 1
        for _ in range(20):
            assert (await testbed.at("2.90")).status == 200
        assert len(old.forwarded) == before, "the gateway must not send it that version again"


async def test_a_refusal_by_the_last_server_of_a_version_becomes_the_refusal_of_the_gateway() -> None:
    server = Nova(104)
    async with in_front_of(server, probe="interval: 30s") as testbed:
        server.highest = 60

        response = await testbed.at("2.90")

        assert_refused_by_gateway(response, 406, rejected("2.90", "2.1", "2.60"), pair("2.90"))
        assert testbed.offer == "2.1-2.60"
