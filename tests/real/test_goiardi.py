"""A real Chef server, Debian's goiardi (0 to 1), with pychef and with signed requests.

First, one server without the gateway: goiardi executes versions that it does not serve, without a notice
(C12). That is why a gateway must not send it such versions. Then, two servers behind the gateway, which know
the same user with the same key. No Chef server with another range is available, so both serve the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.real.clients import Clients
from tests.real.environments import build_all
from tests.real.goiardi import API, HEADER, USER, ChefServer
from tests.real.processes import send
from tests.real.recorder import Recorder
from tests.real.service_clients import ChefClients
from tests.real.testbed import Testbed
from tests.real.usage import assert_complete, product, versions_of

pytestmark = pytest.mark.real

NODES = "/nodes"
RANGE = ("0", "1")
EVERY_SIGNATURE = pytest.mark.parametrize("sign", ["1.0", "1.1", "1.3"])


@pytest.fixture(scope="module")
def chef_clients() -> ChefClients:
    built = build_all(["client-chef", "client-new"])
    return ChefClients(Clients(built["client-chef"]), Clients(built["client-new"]), USER)


@pytest.fixture(scope="module")
def key(goiardis: dict[str, ChefServer]) -> Path:
    return goiardis["one"].key


# -- one server without the gateway -------------------------------------------------------------------------


@EVERY_SIGNATURE
def test_c12_it_executes_versions_that_it_does_not_serve_without_a_notice(
    goiardis: dict[str, ChefServer], key: Path, chef_clients: ChefClients, sign: str
) -> None:
    one = goiardis["one"]
    inside, above = chef_clients.signed(
        one.url,
        key,
        {"path": NODES, "sign": sign, "version": "1"},
        {"path": NODES, "sign": sign, "version": "2"},
    )
    assert (inside["status"], inside["version_field"]["response_version"]) == (200, "1")
    assert (inside["version_field"]["min_version"], inside["version_field"]["max_version"]) == RANGE
    assert (above["status"], above["version_field"]) == (200, None)
    assert send(one.port, NODES, API.headers(None)).headers["X-Goiardi"] == "yes"


@pytest.mark.parametrize("sign, status", [("1.0", 200), ("1.1", 200), ("1.3", 401)])
def test_only_the_newest_protocol_signs_over_the_version(
    goiardis: dict[str, ChefServer], key: Path, chef_clients: ChefClients, sign: str, status: int
) -> None:
    """What happens to a request whose version is rewritten: why the gateway must not rewrite it."""
    rewritten = {"path": NODES, "sign": sign, "version": "1", "sent": "0"}
    (response,) = chef_clients.signed(goiardis["one"].url, key, rewritten)
    assert response["status"] == status


def test_pychef_works_with_a_server_without_the_gateway(
    goiardis: dict[str, ChefServer], key: Path, chef_clients: ChefClients
) -> None:
    with Recorder("direct-goiardi", goiardis["one"].port) as recorder:
        calls = [("create", "direct"), ("list", None), ("delete", "direct"), ("list", None)]
        _, listed, _, left = chef_clients.pychef(recorder.url, key, calls).values()
        assert (listed, left) == (["direct"], [])
        assert {one.request.get(HEADER) for one in recorder.exchanges()} == {None}


# -- two of them behind the gateway -------------------------------------------------------------------------


def test_pychef_reads_from_both(chef_pair: Testbed, key: Path, chef_clients: ChefClients) -> None:
    assert chef_clients.pychef(chef_pair.url, key, [("list", None)] * 24).values() == [[]] * 24
    assert set(chef_pair.served()) == {"0.0"}
    assert chef_pair.forwarded("one")
    assert chef_pair.forwarded("two")


@EVERY_SIGNATURE
@pytest.mark.parametrize("version", ["0", "1"])
def test_a_version_of_both_is_served_with_its_signature_intact(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients, sign: str, version: str
) -> None:
    call = {"path": NODES, "sign": sign, "version": version}
    for response in chef_clients.signed(chef_pair.url, key, *[call] * 4):
        assert (response["status"], response["version_field"]["response_version"]) == (200, version)
        assert (response["version_field"]["min_version"], response["version_field"]["max_version"]) == RANGE
    assert chef_pair.served() == [f"0.{version}"] * 4


@pytest.mark.parametrize("sign, sent", [("1.0", "0"), ("1.1", "0"), ("1.3", None)])
def test_a_missing_version_is_added_only_where_it_is_not_signed(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients, sign: str, sent: str | None
) -> None:
    """goiardi and Chef's clients sign a missing version differently in 1.3: 401 without the gateway too."""
    (response,) = chef_clients.signed(chef_pair.url, key, {"path": NODES, "sign": sign, "version": None})
    assert response["status"] == (401 if sent is None else 200)
    (forwarded,) = [*chef_pair.forwarded("one"), *chef_pair.forwarded("two")]
    assert forwarded.request.get(HEADER) == sent


@EVERY_SIGNATURE
@pytest.mark.parametrize("version", ["2", "7"])
def test_a_version_of_neither_is_refused_by_the_gateway(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients, sign: str, version: str
) -> None:
    (response,) = chef_clients.signed(chef_pair.url, key, {"path": NODES, "sign": sign, "version": version})
    assert response["status"] == 406
    assert response["version_field"] == {
        "min_version": "0",
        "max_version": "1",
        "request_version": version,
        "response_version": "-1",
    }
    assert json.loads(response["body"])["error"] == "invalid-x-ops-server-api-version"
    assert chef_pair.forwarded("one") == chef_pair.forwarded("two") == []


def test_a_malformed_version_is_refused_by_the_gateway(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients
) -> None:
    (response,) = chef_clients.signed(
        chef_pair.url, key, {"path": NODES, "sign": "1.1", "version": "pineapple"}
    )
    assert (response["status"], response["version_field"]["request_version"]) == (406, "-1")
    assert chef_pair.forwarded("one") == chef_pair.forwarded("two") == []


def test_the_gateway_responds_to_a_path_that_goiardi_does_not_have(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients
) -> None:
    call = {"path": "/server_api_version", "sign": "1.1", "version": None}
    (response,) = chef_clients.signed(chef_pair.url, key, call)
    assert (response["status"], json.loads(response["body"])) == (
        200,
        {"min_api_version": 0, "max_api_version": 1},
    )
    assert json.loads(chef_pair.send("/server_api_version").body) == {
        "min_api_version": 0,
        "max_api_version": 1,
    }


def test_usage_lists_what_pychef_and_signed_requests_have_asked_for(
    chef_pair: Testbed, key: Path, chef_clients: ChefClients
) -> None:
    """pychef never sends a version."""
    chef_clients.pychef(chef_pair.url, key, [("list", None)]).values()
    client = product(chef_pair.seen()[-1])
    chef_clients.signed(chef_pair.url, key, {"path": NODES, "sign": "1.3", "version": "1"})

    assert versions_of(chef_pair, client)["0"] >= 1
    assert versions_of(chef_pair, product(chef_pair.seen()[-1]))["1"] >= 1
    assert_complete(chef_pair)
