"""Real senlin, 5.0.1 (1.0 to 1.9) and 16.0.0 (1.0 to 1.14), with python-senlinclient 3.1.0.

First each server by itself: what it answers to the golden examples (ids as in the dialect's tests), and
that the client works with it. Then the client at both of them behind the gateway."""

from __future__ import annotations

import json

import pytest

from tests.real.hop import STANDARD_HEADER, Hop
from tests.real.pairs import Pair, ask
from tests.real.park import KINDS, Park
from tests.real.senlin import OLD
from tests.real.service_clients import ClusteringClients

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("senlin", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("senlin", "reachable")], indirect=True, ids=["reachable"])

WIRE = KINDS["senlin"].wire
CLUSTERS = "/v1/clusters"
COMPLAINT = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
READ = [("clusters", None), ("profile types", None)]
A_LIFE = [("create profile", "life"), ("profiles", None), ("delete profile", "life"), ("profiles", None)]
# What this release of the client asks for whatever the server has.
CLIENT_VERSION = "1.14"


# -- the servers by themselves ------------------------------------------------------------------------------


@BOTH
def test_s1_the_root_names_the_range_with_300(park: Park, name: str) -> None:
    server = park.servers("senlin")[name]
    reply = ask(server.port, "/", {"Accept": "application/json"})
    (entry,) = json.loads(reply.body)["versions"]
    assert (reply.status, entry["id"]) == (300, "1.0")
    assert (entry["min_version"], entry["max_version"]) == ("1.0", server.release.top)


@BOTH
def test_s2_the_version_document_and_its_link(park: Park, name: str) -> None:
    server = park.servers("senlin")[name]
    reply = ask(server.port, "/v1", {"Accept": "application/json"})
    (link,) = [one["href"] for one in json.loads(reply.body)["version"]["links"] if one["rel"] == "self"]
    assert (reply.status, reply.headers[STANDARD_HEADER]) == (200, None)
    assert link == {"old": "/v1", "new": f"{server.url}/v1/v1"}[name]


@BOTH
def test_s3_success_names_the_version(park: Park, name: str) -> None:
    reply = ask(park.servers("senlin")[name].port, CLUSTERS, WIRE.headers("1.5"))
    assert (reply.status, reply.headers[STANDARD_HEADER]) == (200, "clustering 1.5")
    assert reply.headers["Vary"] == STANDARD_HEADER


@BOTH
def test_s4_what_is_too_new_is_refused_without_a_version(park: Park, name: str) -> None:
    server = park.servers("senlin")[name]
    reply = ask(server.port, CLUSTERS, WIRE.headers("1.99"))
    text = (
        f"Version '1.99' is not supported by the API. Minimum is '1.0' and maximum is '{server.release.top}'."
    )
    assert (reply.status, reply.headers[STANDARD_HEADER]) == (406, None)
    assert json.loads(reply.body) == {
        "code": 406,
        "error": {"code": 406, "message": text, "type": "InvalidGlobalAPIVersion"},
        "explanation": COMPLAINT,
        "title": "Not Acceptable",
    }


@BOTH
def test_the_client_reaches_a_server_by_itself(
    park: Park, clustering_clients: ClusteringClients, name: str
) -> None:
    server = park.servers("senlin")[name]
    with Hop(f"direct-senlin-{name}", server.port) as hop:
        found, clusters, types = clustering_clients.senlin(
            hop.url, [("discover", None), *READ], version=server.release.top
        ).values()
        assert found["maximum"] == server.release.top
        assert (clusters, "os.nova.server" in types) == ([], True)
        asked = [WIRE.versions(one.request) for one in hop.exchanges() if one.path == CLUSTERS]
        assert asked == [[server.release.top]]


# -- both behind the gateway --------------------------------------------------------------------------------


@GUARANTEED
def test_the_client_s_fixed_version_is_refused_where_not_both_serve_it(
    pair: Pair, clustering_clients: ClusteringClients
) -> None:
    """It insists on 1.14, learns from the document that 1.9 is the end, and gives up by itself."""
    error = clustering_clients.senlin(pair.url, [("clusters", None)]).only_error()
    assert error.error == "ConfigException"
    assert f"a maximum of {OLD.top}" in error.text
    assert pair.reached("old") == pair.reached("new") == []


@GUARANTEED
@pytest.mark.parametrize("version", ["1.0", "1.5", OLD.top])
def test_the_client_gets_what_both_serve(
    pair: Pair, clustering_clients: ClusteringClients, version: str
) -> None:
    clustering_clients.senlin(pair.url, READ * 3, version=version).values()
    assert pair.served() == [version] * 6


@GUARANTEED
def test_the_client_discovers_what_both_serve(pair: Pair, clustering_clients: ClusteringClients) -> None:
    (found,) = clustering_clients.senlin(pair.url, [("discover", None)], version="1.5").values()
    assert (found["minimum"], found["maximum"]) == ("1.0", OLD.top)
    assert found["url"].rstrip("/") == f"{pair.url}/v1"


@REACHABLE
def test_the_client_s_fixed_version_goes_to_the_new_one(
    pair: Pair, clustering_clients: ClusteringClients
) -> None:
    clustering_clients.senlin(pair.url, READ * 3).values()
    assert pair.served() == [CLIENT_VERSION] * 6
    assert pair.reached("old") == []


@REACHABLE
@pytest.mark.parametrize("base", ["", "/v1"], ids=["root", "v1"])
def test_the_client_s_profile_lives_at_a_version_of_the_new_one(
    pair: Pair, clustering_clients: ClusteringClients, base: str
) -> None:
    """From the address of `/v1` too, where the new server's own link leads to `/v1/v1` (K7)."""
    created, listed, _, left = clustering_clients.senlin(pair.url + base, A_LIFE).values()
    assert (created["name"], listed, left) == ("life", ["life"], [])
    assert set(pair.served()) == {CLIENT_VERSION}
    assert pair.reached("old") == []


@REACHABLE
def test_the_client_gets_what_both_serve_from_either(
    pair: Pair, clustering_clients: ClusteringClients
) -> None:
    clustering_clients.senlin(pair.url, READ * 12, version="1.5").values()
    assert pair.served() == ["1.5"] * 24
    assert pair.reached("old")
    assert pair.reached("new")
