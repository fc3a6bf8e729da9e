"""Chef through the gateway: RFC 041 as real servers do it (CHEF-1 to CHEF-9), and what their clients do.

A fleet of an old Chef Server (0 to 1) and a new one (0 to 2) stands behind it unless a test says otherwise.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.chef_fleet import (
    OWN,
    SIGNED_1_1,
    SIGNED_1_3,
    ChefStand,
    Erchef,
    Goiardi,
    in_front_of,
    told,
)
from tests.scenarios.fakes import LOOPBACK, Head

TRIES = 12
"""Requests: enough that both servers have answered, nearly always; no assertion rests on that."""


@pytest.fixture
async def stand() -> AsyncIterator[ChefStand]:
    async with in_front_of(Erchef(1), Erchef(2)) as stand:
        assert stand.offer == "0-1"
        yield stand


async def same(stand: ChefStand, version: str | None, target: str = "/nodes") -> Head:
    """The reply, whose version lines are the same every time, whichever server made it."""
    replies = [await stand.at(version, target) for _ in range(TRIES)]
    assert len({(each.status, each.body, each.get(OWN)) for each in replies}) == 1
    return replies[0]


# --- what is served ----------------------------------------------------------------------------------------


async def test_C1_CHEF_1_absent_is_0(stand: ChefStand) -> None:
    reply = await same(stand, None)

    assert (reply.status, reply.get(OWN)) == (200, told(0, 1, 0, 0))
    assert all(head.versions == {OWN: "0"} for head in stand.asked)


@pytest.mark.parametrize("text, number", [("0", 0), ("1", 1), ("01", 1), ("+1", 1), ("-0", 0)])
async def test_C2_an_integer_as_erlang_reads_it(stand: ChefStand, text: str, number: int) -> None:
    reply = await same(stand, text)

    assert (reply.status, reply.get(OWN)) == (200, told(0, 1, number, number))
    assert all(head.versions == {OWN: str(number)} for head in stand.asked)


async def test_C3_an_unsigned_request_is_the_backends_to_refuse(stand: ChefStand) -> None:
    reply = await stand.ask("/users", (OWN, "1"))

    assert (reply.status, reply.get(OWN)) == (401, told(0, 1, 1, 1))


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
    stand: ChefStand, text: str, request_version: int
) -> None:
    reply = await stand.at(text)

    assert (reply.status, reply.get(OWN)) == (406, told(0, 1, request_version, -1))
    assert json.loads(reply.body) == {
        "error": "invalid-x-ops-server-api-version",
        "message": f"Specified version {text} not supported",
        "min_version": 0,
        "max_version": 1,
    }
    assert stand.asked == []


async def test_CHEF_2_the_rfcs_keys_by_setting() -> None:
    async with in_front_of(Erchef(1), options="{error_keys: rfc041}") as stand:
        body = json.loads((await stand.at("7")).body)

    assert (body["min_api_version"], body["max_api_version"]) == (0, 1)


async def test_C7_a_bad_version_is_refused_before_anything_else(stand: ChefStand) -> None:
    assert (await stand.ask("/license", (OWN, "7"), method="PUT")).status == 406


async def test_CHEF_1_when_0_is_no_longer_on_offer_silence_is_refused() -> None:
    async with in_front_of(Erchef(2, lowest=1)) as stand:
        reply = await stand.at(None)
        aside = await stand.ask("/_status")

    assert (reply.status, reply.get(OWN)) == (406, told(1, 2, 0, -1))
    assert aside.status == 200
    assert [head.target for head in stand.asked] == ["/_status"]


async def test_V2_several_lines_are_no_integer(stand: ChefStand) -> None:
    reply = await stand.ask("/nodes", *SIGNED_1_1, (OWN, "0"), ("x-ops-server-api-VERSION", "1"))

    assert (reply.status, reply.get(OWN)) == (406, told(0, 1, -1, -1))


TABLE = {
    (10, 14): {None: None, "10": 10, "14": 14, "15": None, "22": None, "30": None, "pineapple": None},
    (12, 20): {None: None, "10": None, "14": 14, "15": 15, "22": None, "30": None, "pineapple": None},
    (15, 22): {None: None, "10": None, "14": None, "15": 15, "22": 22, "30": None, "pineapple": None},
}
"""By the range of a uniform fleet and the ask: the version that answers, None for 406."""


@pytest.mark.parametrize(
    "served, row", TABLE.items(), ids=[f"{low}-{high}" for low, high in TABLE]
)  # each fleet once: its gateway answers the whole row
async def test_CHEF_3_the_worked_example(served: tuple[int, int], row: dict[str | None, int | None]) -> None:
    low, high = served
    async with in_front_of(Erchef(high, low), Erchef(high, low)) as stand:
        for ask, expected in row.items():
            reply = await stand.at(ask)
            if expected is None:
                asked = 0 if ask is None else -1 if ask == "pineapple" else int(ask)
                assert (reply.status, reply.get(OWN)) == (406, told(low, high, asked, -1)), ask
            else:
                assert (reply.status, reply.get(OWN)) == (200, told(low, high, expected, expected)), ask


# --- the object on every reply -----------------------------------------------------------------------------


@pytest.mark.parametrize("target, status", [("/nodes", 200), ("/nodes/nosuch", 404)])
async def test_CHEF_4_with_the_offers_range(stand: ChefStand, target: str, status: int) -> None:
    reply = await same(stand, "1", target) if status != 200 else await stand.at("1", target)

    assert (reply.status, reply.get(OWN)) == (status, told(0, 1, 1, 1))


async def test_CHEF_4_trap_22_where_the_backend_said_nothing(stand: ChefStand) -> None:
    """The nginx before erchef: a client would take the lack of it for a server that has only 0."""
    assert (await stand.at("1", "/nowhere")).get(OWN) == told(0, 1, 1, 1)
    assert (await stand.ask("/_status")).get(OWN) == told(0, 1, 0, 0)


async def test_CHEF_4_a_406_about_accept_is_the_backends_own(stand: ChefStand) -> None:
    reply = await stand.ask("/nodes", *SIGNED_1_1, (OWN, "1"), ("Accept", "text/html"))

    assert (reply.status, reply.body, reply.get(OWN)) == (406, b"", told(0, 1, 1, -1))
    assert len(stand.asked) == 1


async def test_CHEF_4_on_the_gateways_own_503() -> None:
    """Once there has been an offer, also when nobody is left."""
    server = Erchef(1)
    async with in_front_of(server) as stand:
        await server.stop()
        reply = await stand.at("1")

    assert (reply.status, reply.get(OWN)) == (503, told(0, 1, 1, 1))
    assert list(json.loads(reply.body)) == ["error"]


@pytest.mark.parametrize("target", ["/nodes", "/server_api_version"])
async def test_before_any_range_is_known_503_without_the_object(target: str) -> None:
    """Clients keep the first that they are shown for ever."""
    with socket.socket() as nobody:
        nobody.bind((LOOPBACK, 0))
        async with in_front_of(at=(nobody.getsockname()[1],)) as stand:
            reply = await stand.at("1", target)

    assert (reply.status, reply.versions) == (503, {})
    assert reply.get("Retry-After") == "2"


async def test_CHEF_7_vary(stand: ChefStand) -> None:
    replies = [
        await stand.at("1"),
        await stand.at("7"),
        await stand.at("1", "/nodes/nosuch"),
        await stand.at("1", "/server_api_version"),
    ]

    assert {each.get("Vary") for each in replies} == {OWN}


# --- /server_api_version -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [(), SIGNED_1_1, SIGNED_1_3], ids=["unsigned", "1.1", "1.3"])
async def test_C8_CHEF_5_trap_20_the_offer_signed_or_not(
    stand: ChefStand, sign: tuple[tuple[str, str], ...]
) -> None:
    reply = await stand.at("1", "/server_api_version", sign)

    assert (reply.status, reply.body) == (200, b'{"min_api_version":0,"max_api_version":1}')
    assert reply.get(OWN) == told(0, 1, 1, 1)
    assert stand.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_C9_CHEF_5_405_for_other_methods(stand: ChefStand, method: str) -> None:
    reply = await stand.ask("/server_api_version", method=method)

    assert (reply.status, reply.get("Allow"), reply.get(OWN)) == (405, "GET, HEAD", told(0, 1, 0, 0))
    assert stand.asked == []


async def test_CHEF_5_head(stand: ChefStand) -> None:
    reply = await stand.ask("/server_api_version", method="HEAD", bodiless=True)

    assert (reply.status, reply.get("Content-Length"), reply.get(OWN)) == (200, "41", told(0, 1, 0, 0))


# --- signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1", "01", "+1"])
async def test_a_request_signed_with_1_3_is_only_routed(text: str) -> None:
    async with in_front_of(Erchef(0), Erchef(1), offer="{policy: reachable}") as stand:
        for _ in range(TRIES):
            assert (await stand.at(text, "/nodes//x%20y?q=%41", SIGNED_1_3)).status == 200
        old, new = stand.servers

    assert old.asked == []
    assert len(new.asked) == TRIES
    for head in new.asked:
        assert [value for name, value in head.lines if name.lower() == OWN.lower()] == [text]
        assert head.target == "/nodes//x%20y?q=%41"
        assert head.get("X-Ops-Sign") == SIGNED_1_3[0][1]


async def test_a_1_3_signature_over_no_version_gets_none(stand: ChefStand) -> None:
    """goiardi signs absence as absence, so that even an added 0 would break it."""
    reply = await stand.at(None, sign=SIGNED_1_3)

    assert (reply.status, reply.get(OWN)) == (200, told(0, 1, 0, 0))
    assert [head.versions for head in stand.asked] == [{}]


async def test_path_and_body_are_never_touched(stand: ChefStand) -> None:
    target, body = "//nodes//a%20b;c?x=1&&y", b'{"name": "n1"}'

    reply = await stand.ask(target, *SIGNED_1_1, (OWN, "01"), method="POST", body=body)

    assert json.loads(reply.body) == {"target": target, "body": body.decode()}


# --- fleets ------------------------------------------------------------------------------------------------


async def test_C11_a_mixed_fleet_with_a_silent_server_offers_0_and_looks_the_same_from_both() -> None:
    async with in_front_of(Erchef(None), Erchef(2)) as stand:
        assert stand.offer == "0"
        reply = await same(stand, "0")
        silent, new = stand.servers

    assert reply.get(OWN) == told(0, 0, 0, 0)
    assert all(head.versions == {} for head in silent.asked)
    assert all(head.versions == {OWN: "0"} for head in new.asked)


async def test_a_fleet_of_silent_servers_is_transparent() -> None:
    async with in_front_of(Erchef(None)) as stand:
        reply = await stand.at("7")

    assert (reply.status, reply.versions) == (200, {})
    assert [head.get(OWN) for head in stand.asked] == ["7"]


async def test_C12_goiardi_is_asked_for_what_it_has_only() -> None:
    async with in_front_of(Goiardi(), Erchef(2), offer="{policy: reachable}") as stand:
        assert stand.offer == "0-2"
        for version, number in (("2", 2), ("01", 1), (None, 0)):
            for _ in range(TRIES):
                reply = await stand.at(version)
                assert (reply.status, reply.get(OWN)) == (200, told(0, 2, number, number))
        goiardi, _ = stand.servers

    assert {head.get(OWN) for head in goiardi.asked} <= {"0", "1"}


async def test_K8_chef_client_2_against_an_offer_up_to_1() -> None:
    """It asks at 2, reads the range of the 406, and repeats at the maximum; whichever server answers."""
    async with in_front_of(Erchef(1), Erchef(2)) as stand:
        for _ in range(TRIES):
            first = await stand.at("2", "/nodes/x")
            assert first.status == 406
            highest = json.loads(first.get(OWN) or "")["max_version"]
            again = await stand.at(highest, "/nodes/x")
            assert (again.status, again.get(OWN)) == (200, told(0, 1, 1, 1))


async def test_K8_a_server_that_was_replaced_by_an_older_one_refuses_and_another_answers() -> None:
    """The map was stale: nothing was executed, and the client does not see it."""
    async with in_front_of(Erchef(2), Erchef(2), offer="{policy: reachable}", interval="60m") as stand:
        replaced, _ = stand.servers
        replaced.highest = 1
        replies = [await stand.at("2") for _ in range(TRIES)]
        assert {each.status for each in replies} == {200}

    assert {each.get(OWN) for each in replies} == {told(0, 2, 2, 2)}
    assert len([head for head in replaced.refused if head in replaced.asked]) <= 1


async def test_CHEF_8_the_range_is_logged_at_start_and_at_every_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server = Erchef(1)
    async with in_front_of(server, offer="{settle: 0s}") as stand:
        assert "0-1" in caplog.text
        caplog.clear()
        server.highest = 2
        await stand.until(lambda view: view.offer.versions.highest == (2,))
        assert "0-2" in caplog.text


async def test_CHEF_9_a_release_in_the_configuration_is_a_range() -> None:
    async with in_front_of(Erchef(2), offer="{ceiling: {release: '12.1'}}") as stand:
        assert stand.offer == "0-1"
        assert (await stand.at("2")).get(OWN) == told(0, 1, 2, -1)
