"""Real placement, 1.1.0 (1.0 to 1.31) and 16.0.0 (1.0 to 1.39), with the `openstack` command's osc-placement.

First each server by itself: what it answers to the golden examples (ids as in the dialect's tests), and
that the client works with it. Then the client at both of them behind the gateway."""

from __future__ import annotations

import json

import pytest

from tests.real.hop import STANDARD_HEADER, Hop
from tests.real.pairs import Pair, ask
from tests.real.park import KINDS, Park
from tests.real.placement import NEW, OLD
from tests.real.service_clients import PlacementClients

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("placement", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("placement", "reachable")], indirect=True, ids=["reachable"])

WIRE = KINDS["placement"].wire
PROVIDERS = "/resource_providers"
# osc-placement 4.9.1 knows 1.0 to 1.29 and 1.37 to 1.39, and sends nothing else.
CLIENT_NEWEST = {"old": "1.29", "new": NEW.top}
LIST = ("resource", "provider", "list", "-f", "json")


# -- the servers by themselves ------------------------------------------------------------------------------


@BOTH
def test_p1_what_is_too_new_is_refused_with_the_range(park: Park, name: str) -> None:
    server = park.servers("placement")[name]
    reply = ask(server.port, PROVIDERS, WIRE.headers("1.99"))
    (error,) = json.loads(reply.body)["errors"]
    assert (reply.status, error["status"], error["title"]) == (406, 406, "Not Acceptable")
    assert (error["min_version"], error["max_version"]) == ("1.0", server.release.top)
    assert "Unacceptable version header: 1.99" in error["detail"]
    assert reply.headers[STANDARD_HEADER] is None


@BOTH
def test_p2_what_is_malformed_is_refused(park: Park, name: str) -> None:
    reply = ask(park.servers("placement")[name].port, PROVIDERS, WIRE.headers("spam"))
    (error,) = json.loads(reply.body)["errors"]
    assert (reply.status, error["title"]) == (400, "Bad Request")
    assert "invalid version string: spam" in error["detail"]


@BOTH
def test_p3_success_names_the_version_in_lower_case_headers(park: Park, name: str) -> None:
    reply = ask(park.servers("placement")[name].port, PROVIDERS, WIRE.headers("1.10"))
    assert reply.status == 200
    assert ("openstack-api-version", "placement 1.10") in reply.headers.items()
    assert ("vary", "openstack-api-version") in reply.headers.items()


@BOTH
def test_the_root_names_the_range(park: Park, name: str) -> None:
    server = park.servers("placement")[name]
    (entry,) = json.loads(ask(server.port, "/", {}).body)["versions"]
    assert (entry["min_version"], entry["max_version"]) == ("1.0", server.release.top)


@BOTH
def test_the_client_reaches_a_server_by_itself(
    park: Park, placement_clients: PlacementClients, name: str
) -> None:
    server = park.servers("placement")[name]
    with Hop(f"direct-placement-{name}", server.port) as hop:
        assert placement_clients.openstack(hop.url, *LIST, version=CLIENT_NEWEST[name]).json() == []
        asked = [WIRE.versions(one.request) for one in hop.exchanges() if one.path == PROVIDERS]
        assert asked == [[CLIENT_NEWEST[name]]]


# -- both behind the gateway --------------------------------------------------------------------------------


@GUARANTEED
@pytest.mark.parametrize("version", ["1.0", "1.10", "1.29"])
def test_the_client_gets_what_both_serve(
    pair: Pair, placement_clients: PlacementClients, version: str
) -> None:
    placement_clients.openstack(pair.url, *LIST, version=version).json()
    assert set(pair.served()) == {version}


@GUARANTEED
def test_the_client_s_default_settles_on_what_both_serve(
    pair: Pair, placement_clients: PlacementClients
) -> None:
    placement_clients.openstack(pair.url, *LIST).json()
    assert all(OLD.serves(version) for version in pair.served())
    assert pair.served()


@GUARANTEED
def test_the_client_is_refused_what_not_both_serve(pair: Pair, placement_clients: PlacementClients) -> None:
    done = placement_clients.openstack(pair.url, *LIST, version="1.37")
    assert done.code != 0
    assert "Unacceptable version header: 1.37" in done.errors
    assert pair.reached("old") == pair.reached("new") == []


@REACHABLE
@pytest.mark.parametrize("version", ["1.10", "1.37", NEW.top])
def test_the_client_gets_what_one_of_them_serves(
    pair: Pair, placement_clients: PlacementClients, version: str
) -> None:
    placement_clients.openstack(pair.url, *LIST, version=version).json()
    assert set(pair.served()) == {version}


@REACHABLE
def test_a_provider_lives_at_a_version_of_the_new_one(
    pair: Pair, placement_clients: PlacementClients
) -> None:
    words = ("resource", "provider")
    created = placement_clients.openstack(
        pair.url, *words, "create", "life", "-f", "json", version="1.37"
    ).json()
    shown = placement_clients.openstack(
        pair.url, *words, "show", created["uuid"], "-f", "json", version="1.37"
    ).json()
    deleted = placement_clients.openstack(pair.url, *words, "delete", created["uuid"], version="1.37")
    assert (created["name"], shown["uuid"], deleted.code) == ("life", created["uuid"], 0)
    assert set(pair.served()) == {"1.37"}
    assert pair.reached("old") == []
