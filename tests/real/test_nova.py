"""Real nova, 17.0.13 (2.1 to 2.60) and 34.0.0 (2.1 to 2.104), with its real clients.

First each server by itself: what it answers to the golden examples (ids as in the dialect's tests), and
that every client works with it. Then python-novaclient, openstacksdk and the `openstack` command at both
of them behind the gateway."""

from __future__ import annotations

import json

import pytest

from tests.real.hop import STANDARD_HEADER, Hop
from tests.real.nova import NEW, OLD
from tests.real.pairs import Pair, ask
from tests.real.park import KINDS, Park
from tests.real.service_clients import ComputeClients

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("nova", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("nova", "reachable")], indirect=True, ids=["reachable"])

WIRE = KINDS["nova"].wire
OWN_HEADER = "X-OpenStack-Nova-API-Version"
LIST = [("list", None)]
A_LIFE = [("create", "life"), ("list", None), ("delete", "life"), ("list", None)]
# The newest that python-novaclient 18.13.1 knows.
CLIENT_NEWEST = "2.96"


# -- the servers by themselves ------------------------------------------------------------------------------


@BOTH
def test_n1_the_root_names_the_range_and_takes_no_version(park: Park, name: str) -> None:
    server = park.servers("nova")[name]
    reply = ask(server.port, "/", {STANDARD_HEADER: "compute 2.999"})
    (entry,) = [one for one in json.loads(reply.body)["versions"] if one["id"] == "v2.1"]
    assert (reply.status, entry["min_version"], entry["version"]) == (200, "2.1", server.release.top)
    assert entry["links"] == [{"rel": "self", "href": f"{server.url}/v2.1/"}]
    assert reply.headers[STANDARD_HEADER] is None


@BOTH
def test_n2_the_version_document(park: Park, name: str) -> None:
    server = park.servers("nova")[name]
    reply = ask(server.port, "/v2.1/", WIRE.headers(None))
    document = json.loads(reply.body)["version"]
    assert (reply.status, document["min_version"], document["version"]) == (200, "2.1", server.release.top)
    assert (reply.headers[STANDARD_HEADER], reply.headers[OWN_HEADER]) == ("compute 2.1", "2.1")
    assert reply.headers.get_all("Vary") == [STANDARD_HEADER, OWN_HEADER]


@BOTH
def test_n3_what_is_too_new_is_refused_and_echoed(park: Park, name: str) -> None:
    server = park.servers("nova")[name]
    reply = ask(server.port, "/v2.1/servers", WIRE.headers("2.999"))
    text = f"Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is {server.release.top}."
    assert (reply.status, json.loads(reply.body)) == (406, {"computeFault": {"code": 406, "message": text}})
    assert (reply.headers[STANDARD_HEADER], reply.headers[OWN_HEADER]) == ("compute 2.999", "2.999")


@BOTH
def test_n4_what_is_malformed_is_refused_without_a_version(park: Park, name: str) -> None:
    reply = ask(park.servers("nova")[name].port, "/v2.1/servers", WIRE.headers("spam"))
    text = "API Version String spam is of invalid format. Must be of format MajorNum.MinorNum."
    assert (reply.status, json.loads(reply.body)) == (400, {"badRequest": {"code": 400, "message": text}})
    assert reply.headers[STANDARD_HEADER] is reply.headers[OWN_HEADER] is None


@BOTH
def test_the_clients_reach_a_server_by_itself(park: Park, compute_clients: ComputeClients, name: str) -> None:
    server = park.servers("nova")[name]
    with Hop(f"direct-nova-{name}", server.port) as hop:
        session = compute_clients.nova(hop.url, A_LIFE, version="2.latest")
        created, listed, _, left = session.values()
        assert (created["name"], listed[0]["name"], left) == ("life", "life", [])
        assert session.version == {"old": OLD.top, "new": CLIENT_NEWEST}[name]
        found, _ = compute_clients.compute_sdk(hop.url, [("discover", None), *LIST]).values()
        assert found["maximum"] == server.release.top
        assert compute_clients.openstack(hop.url, "flavor", "list", "-f", "json").json() == []
        assert {one.status for one in hop.exchanges()} <= {200, 202, 204, 302}


# -- both behind the gateway: guaranteed --------------------------------------------------------------------


@GUARANTEED
def test_novaclient_s_latest_settles_on_what_both_serve(pair: Pair, compute_clients: ComputeClients) -> None:
    session = compute_clients.nova(pair.url, LIST * 6, version="2.latest")
    session.values()
    assert session.version == OLD.top
    assert pair.served() == [OLD.top] * 6


@GUARANTEED
@pytest.mark.parametrize("version", ["2.1", "2.26", "2.27", "2.55", OLD.top])
def test_novaclient_gets_what_both_serve(pair: Pair, compute_clients: ComputeClients, version: str) -> None:
    compute_clients.nova(pair.url, LIST * 3, version=version).values()
    assert pair.served() == [version] * 3


@GUARANTEED
@pytest.mark.parametrize("version", ["2.61", "2.90"])
def test_novaclient_is_refused_what_not_both_serve(
    pair: Pair, compute_clients: ComputeClients, version: str
) -> None:
    error = compute_clients.nova(pair.url, LIST, version=version).only_error()
    assert error.error == "NotAcceptable"
    assert f"Minimum is 2.1 and maximum is {OLD.top}." in error.text
    assert pair.reached("old") == pair.reached("new") == []


@GUARANTEED
def test_the_sdk_discovers_what_both_serve_and_keeps_to_it(
    pair: Pair, compute_clients: ComputeClients
) -> None:
    found, _ = compute_clients.compute_sdk(pair.url, [("discover", None), *LIST]).values()
    assert (found["minimum"], found["maximum"]) == ("2.1", OLD.top)
    # What it makes of that for flavors, of which it knows no newer version than 2.61.
    assert pair.served() == [OLD.top]


@GUARANTEED
def test_the_sdk_does_not_even_ask_for_what_not_both_serve(
    pair: Pair, compute_clients: ComputeClients
) -> None:
    error = compute_clients.compute_sdk(pair.url, LIST, version="2.90").only_error()
    assert error.error == "ConfigException"
    assert pair.reached("old") == pair.reached("new") == []


@GUARANTEED
def test_the_command_line_at_its_default(pair: Pair, compute_clients: ComputeClients) -> None:
    assert isinstance(compute_clients.openstack(pair.url, "flavor", "list", "-f", "json").json(), list)
    assert pair.served()


# -- both behind the gateway: reachable ---------------------------------------------------------------------


@REACHABLE
def test_novaclient_s_latest_goes_to_the_new_one(pair: Pair, compute_clients: ComputeClients) -> None:
    session = compute_clients.nova(pair.url, LIST * 6, version="2.latest")
    session.values()
    assert session.version == CLIENT_NEWEST
    assert (len(pair.reached("old")), len(pair.reached("new"))) == (0, 6)


@REACHABLE
def test_novaclient_s_flavor_lives_at_a_version_of_the_new_one(
    pair: Pair, compute_clients: ComputeClients
) -> None:
    created, listed, _, left = compute_clients.nova(pair.url, A_LIFE, version="2.61").values()
    assert (created["name"], [one["name"] for one in listed], left) == ("life", ["life"], [])
    assert set(pair.served()) == {"2.61"}
    assert pair.reached("old") == []


@REACHABLE
def test_novaclient_gets_what_both_serve_from_either(pair: Pair, compute_clients: ComputeClients) -> None:
    compute_clients.nova(pair.url, LIST * 24, version="2.55").values()
    assert pair.served() == ["2.55"] * 24
    assert pair.reached("old")
    assert pair.reached("new")


@REACHABLE
def test_the_sdk_s_flavor_lives_at_a_version_of_the_new_one(
    pair: Pair, compute_clients: ComputeClients
) -> None:
    calls = [("discover", None), *A_LIFE]
    found, created, listed, _, left = compute_clients.compute_sdk(pair.url, calls).values()
    assert found["maximum"] == NEW.top
    assert (created["description"], listed, left) == ("by the sdk", ["life"], [])
    assert pair.reached("old") == []


@REACHABLE
@pytest.mark.parametrize("version", ["2.55", "2.90"])
def test_the_command_line_gets_what_one_of_them_serves(
    pair: Pair, compute_clients: ComputeClients, version: str
) -> None:
    done = compute_clients.openstack(pair.url, "flavor", "list", "-f", "json", version=version)
    assert isinstance(done.json(), list)
    assert set(pair.served()) == {version}
