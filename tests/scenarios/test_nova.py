"""Nova through the gateway, as bytes on both sides: the golden examples N1 to N14, the rows NOVA-UC1 to UC8,
the sequence K5, and what follows from Nova's two ways of being old.

Unless a test says otherwise a server of 17 (2.1 to 2.60) and one of 34 (2.1 to 2.104) stand behind it.
"""

# ruff: noqa: N802 -- ids of examples, scenarios and sequences are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.core.offer import Phase
from tests.scenarios.fakes import STANDARD, Head
from tests.scenarios.nova_fleet import (
    FAULT,
    NOT_FOUND,
    OWN,
    SERVERS,
    TOKEN,
    ComputeStand,
    Nova,
    in_front_of,
    malformed,
    pair,
    rejected,
    told,
    varies,
)

BOTH = sorted([STANDARD, OWN])
TRIES = 12
"""Requests: enough that both servers have answered, nearly always; no assertion rests on that."""
MANY = 300
"""Requests after which each of two equal backends has had one, but for a chance of 2 in 2 ** 300."""


@pytest.fixture
async def stand() -> AsyncIterator[ComputeStand]:
    async with in_front_of(Nova(60, redirects=True), Nova(104)) as stand:
        yield stand


async def same(stand: ComputeStand, target: str, *lines: tuple[str, str]) -> Head:
    """The reply, which is the same every time, whichever server made it."""
    replies = [await stand.ask(target, *lines) for _ in range(TRIES)]
    one = {
        (each.status, each.body, *sorted(line for line in each.lines if line[0].lower() != "date"))
        for each in replies
    }
    assert len(one) == 1, "the client can tell the servers apart"
    return replies[0]


def refuses(reply: Head, status: int, body: bytes, versions: dict[str, str]) -> None:
    """The gateway said this by itself."""
    assert (reply.status, reply.body, reply.get("Content-Length")) == (status, body, str(len(body)))
    assert (told(reply), varies(reply), reply.get("Content-Type")) == (versions, BOTH, FAULT)


# --- golden examples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [None, (STANDARD, "compute 2.999"), (OWN, "spam")])
async def test_N1_the_root_tells_the_offer_and_hears_no_version(
    stand: ComputeStand, line: tuple[str, str] | None
) -> None:
    reply = await same(stand, "/", *([line] if line else []))

    assert reply.status == 200
    assert reply.body == stand.servers[1].root(stand.base, "2.60")
    assert (told(reply), varies(reply)) == ({}, BOTH)
    assert all(head.versions == {} for head in stand.asked)


async def test_N2_the_version_document_tells_the_offer(stand: ComputeStand) -> None:
    new = stand.servers[1]
    assert isinstance(new, Nova)

    reply = await same(stand, "/v2.1/")

    assert (reply.status, reply.body) == (200, new.v2_1(stand.base, "2.60"))
    assert (told(reply), reply.all("Vary")) == (pair("2.1"), [STANDARD, OWN])
    assert all(head.versions == pair("2.1") for head in stand.asked)


@pytest.mark.parametrize("text", ["2.999", "2.61", "2.0", "3.1"])
@pytest.mark.parametrize("target", [SERVERS, "/v2.1/", "/v2.1"])
async def test_N3_NOVA_UC5_UC6_trap_9_outside_the_offer_the_pair_echoes_the_ask(
    stand: ComputeStand, text: str, target: str
) -> None:
    """2.61 is served by one of the two; the documents have already said that it is not to be had."""
    reply = await same(stand, target, (STANDARD, f"compute {text}"))

    refuses(reply, 406, rejected(text, "2.1", "2.60"), pair(text))
    assert stand.asked == []


@pytest.mark.parametrize("text", ["spam", "1.2.3.4.5", "2.", "02.1", "", "LATEST", "2.latest"])
async def test_N4_N9_NOVA_UC4_NOVA_X_trap_10_what_is_no_version_is_400(
    stand: ComputeStand, text: str
) -> None:
    refuses(await same(stand, SERVERS, (OWN, text)), 400, malformed(text), {})
    assert stand.asked == []


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
async def test_N5_to_N10_one_version_is_settled_on_sent_in_both_headers_and_echoed_in_both(
    stand: ComputeStand, lines: list[tuple[str, str]], served: str
) -> None:
    reply = await same(stand, SERVERS, *lines)

    assert (reply.status, reply.body) == (200, b'{"servers": []}')
    assert (told(reply), reply.all("Vary")) == (pair(served), [STANDARD, OWN])
    assert all(head.versions == pair(served) for head in stand.asked)


async def test_N11_a_resource_that_is_not_there_has_the_pair(stand: ComputeStand) -> None:
    reply = await same(stand, "/v2.1/servers/nope", (OWN, "2.30"))

    assert (reply.status, reply.body, told(reply)) == (404, NOT_FOUND, pair("2.30"))


async def test_N12_trap_22_a_route_that_is_not_there_has_none_and_nothing_is_learned_from_that(
    stand: ComputeStand,
) -> None:
    reply = await same(stand, "/v2.1/bogus", (OWN, "2.30"))

    assert (reply.status, told(reply), varies(reply)) == (404, {}, BOTH)
    assert stand.offer == "2.1-2.60"


@pytest.mark.parametrize("target", ["/servers", "/v3/servers"])
async def test_N13_what_is_below_no_mount_is_answered_with_choices(target: str) -> None:
    async with in_front_of(Nova(60), Nova(104), match="{path: /compute}") as stand:
        new = stand.servers[1]
        assert isinstance(new, Nova)

        reply = await same(stand, target, (OWN, "2.27"))

        assert (reply.status, reply.body) == (300, new.choices(stand.base, target))
        assert told(reply) == {}
        assert all(head.versions == {} for head in stand.asked)


async def test_what_a_media_type_makes_of_such_a_path_is_told_as_it_was_executed(stand: ComputeStand) -> None:
    """No header decides what a path is to the gateway, so no version is sent there, and none is claimed."""
    reply = await same(stand, "/servers", (OWN, "2.27"), ("Accept", "application/json;version=2.1"))

    assert (reply.status, told(reply)) == (200, pair("2.1"))
    assert all(head.versions == {} for head in stand.asked)


@pytest.mark.parametrize("line", [(STANDARD, "compute 2.999"), (OWN, "2.40"), (OWN, "spam")])
@pytest.mark.parametrize("target", ["/v2", "/v2/", "/v2/servers"])
async def test_N14_NOVA_UC3C_below_v2_there_are_no_versions_in_either_direction(
    stand: ComputeStand, target: str, line: tuple[str, str]
) -> None:
    new = stand.servers[1]
    assert isinstance(new, Nova)

    reply = await same(stand, target, line)

    body = b'{"servers": []}' if target == "/v2/servers" else new.v2(stand.base)
    assert (reply.status, reply.body, told(reply)) == (200, body, {})
    assert all(head.versions == {} for head in stand.asked)


# --- servers without microversions ---------------------------------------------------------------------


async def test_NOVA_UC1_UC3A_a_fleet_of_v2_0_alone_is_transparent() -> None:
    old = Nova(None)
    async with in_front_of(old, Nova(None)) as stand:
        for target, body in (("/v2/servers", b'{"servers": []}'), ("/", old.root(stand.base))):
            for version in (None, "2.30", "spam"):
                reply = await stand.at(version, target)
                assert (reply.status, reply.body) == (200, body)
                assert (told(reply), varies(reply)) == ({}, [])
        assert json.loads((await stand.ask("/")).body)["versions"][0].keys() == {"id", "status", "links"}

        asked = [[value for name, value in head.lines if name.lower() == OWN.lower()] for head in stand.asked]
        assert sorted(asked) == [[], [], [], ["2.30"], ["2.30"], ["spam"], ["spam"]], "as the client sent it"
        assert (stand.offer, stand.view.offer.transparent) == ("none", True)


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
async def test_NOVA_UC3B_a_mixed_fleet_lists_v2_1_with_the_offer_of_those_that_have_it(policy: str) -> None:
    old, new = Nova(None), Nova(104)
    async with in_front_of(old, new, offer=f"{{policy: {policy}}}") as stand:
        for target, body in (("/", new.root(stand.base)), ("/v2.1/", new.v2_1(stand.base))):
            assert (await same(stand, target)).body == body
        for version in ("2.1", "2.104", "latest", None):
            reply = await same(stand, SERVERS, *([(OWN, version)] if version else []))
            assert (reply.status, reply.body) == (200, b'{"servers": []}')

        assert stand.offer == "2.1-2.104", "a silent one takes no part in it"
        assert old.asked == []


async def test_NOVA_UC3B_lib_a_member_that_would_ignore_the_version_never_gets_it() -> None:
    """Executed silently at 2.0 is what would happen behind a plain balancer."""
    old, new = Nova(None), Nova(60)
    async with in_front_of(old, new) as stand:
        for _ in range(20):
            assert told(await stand.at("2.30")) == pair("2.30")
        assert (await stand.at("2.61")).status == 406
        await new.stop()
        reply = await stand.at("2.30")

        assert (reply.status, reply.get("Retry-After"), told(reply)) == (503, "2", {})
        assert json.loads(reply.body)["serviceUnavailable"]["code"] == 503
        assert old.asked == []


async def test_NOVA_UC3C_v2_goes_to_every_member_the_silent_ones_too() -> None:
    old, new = Nova(None), Nova(104)
    async with in_front_of(old, new) as stand:
        for _ in range(MANY):
            reply = await stand.at("2.999", "/v2/servers")
            assert (reply.status, told(reply), varies(reply)) == (200, {}, BOTH)
            if old.asked and new.asked:
                break

        assert old.asked
        assert new.asked
        assert all(head.versions == {} for head in stand.asked)


# --- servers before Newton -----------------------------------------------------------------------------


async def test_a_server_that_reads_only_its_own_header_is_sent_one_value_and_looks_like_a_new_one() -> None:
    """It would refuse `2.5, 2.6` and execute `OpenStack-API-Version: compute 2.12` at 2.1."""
    mitaka, new = Nova(25, newton=False), Nova(104)
    async with in_front_of(mitaka, new) as stand:
        for lines in ([(STANDARD, "compute 2.12")], [(OWN, "2.5, 2.12")]):
            for _ in range(MANY):
                reply = await stand.ask(SERVERS, *lines)
                assert (reply.status, told(reply), varies(reply)) == (200, pair("2.12"), BOTH)
                if mitaka.asked:
                    break
        assert mitaka.asked
        assert mitaka.refused == []


# --- documents -----------------------------------------------------------------------------------------


async def test_the_redirect_of_old_servers_leads_where_the_client_can_go() -> None:
    async with in_front_of(Nova(60, redirects=True), match="{path: /compute}") as stand:
        (server,) = stand.servers
        assert isinstance(server, Nova)

        reply = await stand.ask("/v2.1")
        assert (reply.status, reply.get("Location")) == (302, f"{stand.base}/v2.1/")

        followed = await stand.ask(str(reply.get("Location")).removeprefix(stand.base))
        assert (followed.status, followed.body) == (200, server.v2_1(stand.base))
        assert [head.target for head in stand.asked] == ["/v2.1", "/v2.1/"]


async def test_a_document_that_wants_a_token_is_rewritten_too_and_the_401_is_the_servers_own() -> None:
    async with in_front_of(Nova(60, wants_token=True), Nova(79, wants_token=True)) as stand:
        new = stand.servers[1]
        assert isinstance(new, Nova)

        without = await same(stand, "/v2.1/")
        assert (without.status, without.body, told(without)) == (401, b'{"error": {"code": 401}}', {})
        reply = await same(stand, "/v2.1/", TOKEN)
        assert (reply.status, reply.body) == (200, new.v2_1(stand.base, "2.60"))


async def test_a_server_whose_root_is_not_its_own_is_probed_at_v2_1_with_the_configured_token() -> None:
    probe = "interval: 100ms, headers: {X-Auth-Token: admin}"
    async with in_front_of(Nova(60, wants_token=True, rooted=False), probe=probe) as stand:
        assert stand.offer == "2.1-2.60"
        assert told(await stand.at("2.30")) == {}, "the client's own token is missing"
        assert told(await stand.ask(SERVERS, (OWN, "2.30"), TOKEN)) == pair("2.30")


async def test_without_a_token_such_a_server_is_unknown_and_not_silent() -> None:
    hidden = Nova(60, wants_token=True, rooted=False)
    async with in_front_of(hidden, Nova(104)) as stand:
        member = stand.view.pool.members[0]

        assert member.advert is None
        assert "token" in str(member.error)
        assert (await stand.at("2.104")).status == 200
        assert hidden.asked == []


async def test_a_head_request_has_the_same_headers_and_no_body(stand: ComputeStand) -> None:
    reply = await stand.ask(SERVERS, (OWN, "2.999"), method="HEAD", bodiless=True)

    assert (reply.status, told(reply), reply.get("Content-Length")) == (406, pair("2.999"), "124")


# --- clients -------------------------------------------------------------------------------------------


async def novaclient(stand: ComputeStand, highest: int = 96) -> str:
    """K5, as python-novaclient's command line does with `2.latest`: the version that it settles on."""
    first = await stand.ask("/v2.1", (OWN, "2.1"), TOKEN)
    if first.status == 302:
        target = str(first.get("Location")).removeprefix(stand.base)
        first = await stand.ask(target, (OWN, "2.1"), TOKEN)
    told_highest = json.loads(first.body)["version"]["version"]
    return f"2.{min(highest, int(told_highest.partition('.')[2]))}"


async def test_K5_NOVA_UC8_latest_is_read_from_the_document_and_served_by_whoever_gets_it(
    stand: ComputeStand,
) -> None:
    """Behind a plain balancer half of the clients settle on 2.96 and are refused by half of the servers."""
    for _ in range(TRIES):
        version = await novaclient(stand)
        assert version == "2.60"
        for _ in range(4):
            reply = await stand.ask(
                "/v2.1/servers/detail", (OWN, version), (STANDARD, f"compute {version}"), TOKEN
            )
            assert (reply.status, told(reply)) == (200, pair("2.60"))
    assert not any(server.refused for server in stand.servers)


async def test_K5_trap_8_no_echo_is_ever_another_than_the_version_that_was_asked_for(
    stand: ComputeStand,
) -> None:
    """The real client does not look; who does look finds it true."""
    for minor in (1, 2, 27, 59, 60) * 3:
        assert told(await stand.at(f"2.{minor}")) == pair(f"2.{minor}")


async def test_K5_a_ceiling_by_release_is_what_the_client_finds() -> None:
    async with in_front_of(Nova(104), Nova(104), offer='{ceiling: {release: "wallaby"}}') as stand:
        assert await novaclient(stand) == "2.88"
        refuses(await same(stand, SERVERS, (OWN, "2.89")), 406, rejected("2.89", "2.1", "2.88"), pair("2.89"))
        assert stand.view.offer.phase is Phase.CAPPED


# --- a stale map ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b'{"server": {}}')])
async def test_a_refusal_that_only_its_body_tells_mends_the_map_and_the_client_never_sees_it(
    method: str, body: bytes
) -> None:
    """The server was rolled back between two probes; nothing was executed, so the request goes elsewhere."""
    old, new = Nova(104), Nova(104)
    async with in_front_of(old, new, offer="{policy: reachable}", probe="interval: 30s") as stand:
        old.highest = 60
        for _ in range(MANY):
            reply = await stand.ask(SERVERS, (OWN, "2.90"), method=method, body=body)
            assert (reply.status, told(reply)) == (202 if body else 200, pair("2.90"))
            if old.refused:
                break
        before = len(old.asked)

        assert len(old.refused) == 1
        for _ in range(20):
            assert (await stand.at("2.90")).status == 200
        assert len(old.asked) == before, "learned: it gets no more of what it does not serve"


async def test_a_refusal_by_the_last_one_that_served_it_becomes_the_gateways_own() -> None:
    server = Nova(104)
    async with in_front_of(server, probe="interval: 30s") as stand:
        server.highest = 60

        reply = await stand.at("2.90")

        refuses(reply, 406, rejected("2.90", "2.1", "2.60"), pair("2.90"))
        assert stand.offer == "2.1-2.60"
