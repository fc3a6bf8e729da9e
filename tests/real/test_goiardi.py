"""A real Chef server, Debian's goiardi (0 to 1), with pychef and with signed requests.

First one by itself: goiardi executes what it does not serve and says nothing (C12), which is why a gateway
must not send it there. Then two of them, which know the same user by the same key, behind the gateway. There
is no second Chef server to be had whose range is another: both serve the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.real.clients import Clients
from tests.real.environments import build_all
from tests.real.goiardi import HEADER, USER, WIRE, ChefServer
from tests.real.hop import Hop
from tests.real.pairs import Pair, ask
from tests.real.service_clients import ChefClients

pytestmark = pytest.mark.real

NODES = "/nodes"
RANGE = ("0", "1")
EVERY_SIGNATURE = pytest.mark.parametrize("sign", ["1.0", "1.1", "1.3"])


@pytest.fixture(scope="module")
def chef_clients() -> ChefClients:
    built = build_all(["client-chef", "client-new"])
    return ChefClients(Clients(built["client-chef"]), Clients(built["client-new"]), USER)


@pytest.fixture(scope="module")
def key(chefs: dict[str, ChefServer]) -> Path:
    return chefs["one"].key


# -- the server by itself -----------------------------------------------------------------------------------


@EVERY_SIGNATURE
def test_c12_it_executes_what_it_does_not_serve_and_says_nothing(
    chefs: dict[str, ChefServer], key: Path, chef_clients: ChefClients, sign: str
) -> None:
    one = chefs["one"]
    inside, above = chef_clients.signed(
        one.url, key,
        {"path": NODES, "sign": sign, "version": "1"}, {"path": NODES, "sign": sign, "version": "2"},
    )  # fmt: skip
    assert (inside["status"], inside["said"]["response_version"]) == (200, "1")
    assert (inside["said"]["min_version"], inside["said"]["max_version"]) == RANGE
    assert (above["status"], above["said"]) == (200, None)
    assert ask(one.port, NODES, WIRE.headers(None)).headers["X-Goiardi"] == "yes"


@pytest.mark.parametrize("sign, status", [("1.0", 200), ("1.1", 200), ("1.3", 401)])
def test_only_the_newest_protocol_signs_over_the_version(
    chefs: dict[str, ChefServer], key: Path, chef_clients: ChefClients, sign: str, status: int
) -> None:
    """Why the gateway may not rewrite it: what a rewritten one comes to."""
    rewritten = {"path": NODES, "sign": sign, "version": "1", "sent": "0"}
    (reply,) = chef_clients.signed(chefs["one"].url, key, rewritten)
    assert reply["status"] == status


def test_pychef_reaches_a_server_by_itself(
    chefs: dict[str, ChefServer], key: Path, chef_clients: ChefClients
) -> None:
    with Hop("direct-goiardi", chefs["one"].port) as hop:
        calls = [("create", "direct"), ("list", None), ("delete", "direct"), ("list", None)]
        _, listed, _, left = chef_clients.pychef(hop.url, key, calls).values()
        assert (listed, left) == (["direct"], [])
        assert {one.request.get(HEADER) for one in hop.exchanges()} == {None}


# -- two of them behind the gateway -------------------------------------------------------------------------


def test_pychef_reads_from_both(kitchen: Pair, key: Path, chef_clients: ChefClients) -> None:
    assert chef_clients.pychef(kitchen.url, key, [("list", None)] * 24).values() == [[]] * 24
    assert set(kitchen.served()) == {"0.0"}
    assert kitchen.reached("one")
    assert kitchen.reached("two")


@EVERY_SIGNATURE
@pytest.mark.parametrize("version", ["0", "1"])
def test_what_both_serve_passes_with_its_signature_whole(
    kitchen: Pair, key: Path, chef_clients: ChefClients, sign: str, version: str
) -> None:
    call = {"path": NODES, "sign": sign, "version": version}
    for reply in chef_clients.signed(kitchen.url, key, *[call] * 4):
        assert (reply["status"], reply["said"]["response_version"]) == (200, version)
        assert (reply["said"]["min_version"], reply["said"]["max_version"]) == RANGE
    assert kitchen.served() == [f"0.{version}"] * 4


@pytest.mark.parametrize("sign, sent", [("1.0", "0"), ("1.1", "0"), ("1.3", None)])
def test_silence_is_made_explicit_only_where_it_is_not_signed(
    kitchen: Pair, key: Path, chef_clients: ChefClients, sign: str, sent: str | None
) -> None:
    """goiardi reads a missing version in a 1.3 signature unlike Chef's clients: 401 without it too."""
    (reply,) = chef_clients.signed(kitchen.url, key, {"path": NODES, "sign": sign, "version": None})
    assert reply["status"] == (401 if sent is None else 200)
    (forwarded,) = [*kitchen.reached("one"), *kitchen.reached("two")]
    assert forwarded.request.get(HEADER) == sent


@EVERY_SIGNATURE
@pytest.mark.parametrize("version", ["2", "7"])
def test_what_neither_serves_is_refused_and_reaches_neither(
    kitchen: Pair, key: Path, chef_clients: ChefClients, sign: str, version: str
) -> None:
    (reply,) = chef_clients.signed(kitchen.url, key, {"path": NODES, "sign": sign, "version": version})
    assert reply["status"] == 406
    assert reply["said"] == {
        "min_version": "0", "max_version": "1", "request_version": version, "response_version": "-1",
    }  # fmt: skip
    assert json.loads(reply["body"])["error"] == "invalid-x-ops-server-api-version"
    assert kitchen.reached("one") == kitchen.reached("two") == []


def test_a_garbled_version_is_refused_and_reaches_neither(
    kitchen: Pair, key: Path, chef_clients: ChefClients
) -> None:
    (reply,) = chef_clients.signed(kitchen.url, key, {"path": NODES, "sign": "1.1", "version": "pineapple"})
    assert (reply["status"], reply["said"]["request_version"]) == (406, "-1")
    assert kitchen.reached("one") == kitchen.reached("two") == []


def test_the_gateway_answers_for_what_goiardi_does_not_have(
    kitchen: Pair, key: Path, chef_clients: ChefClients
) -> None:
    call = {"path": "/server_api_version", "sign": "1.1", "version": None}
    (reply,) = chef_clients.signed(kitchen.url, key, call)
    assert (reply["status"], json.loads(reply["body"])) == (200, {"min_api_version": 0, "max_api_version": 1})
    assert json.loads(kitchen.ask("/server_api_version").body) == {"min_api_version": 0, "max_api_version": 1}
