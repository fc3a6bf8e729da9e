"""Real senlin, 5.0.1 (1.0 to 1.9) and 16.0.0 (1.0 to 1.14), with python-senlinclient 3.1.0.

First, each server without the gateway: its responses to the golden examples (ids as in the tests of the
dialect), and that the client works with it. Then, the client with both behind the gateway.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import json

import pytest

from tests.real.clients import Clients
from tests.real.processes import send
from tests.real.recorder import STANDARD_HEADER, Recorder
from tests.real.senlin import OLD
from tests.real.server_pool import KINDS, ServerPool
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("senlin", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("senlin", "reachable")], indirect=True, ids=["reachable"])

API = KINDS["senlin"].api
CLUSTERS = "/v1/clusters"
EXPLANATION = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
READ = [("clusters", None), ("profile types", None)]
LIFECYCLE = [("create profile", "life"), ("profiles", None), ("delete profile", "life"), ("profiles", None)]
# The version that this release of the client always requests by default.
CLIENT_VERSION = "1.14"


# -- the servers without the gateway ------------------------------------------------------------------------


@BOTH
def test_s1_the_root_contains_the_range_with_300(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("senlin")[name]
    response = send(server.port, "/", {"Accept": "application/json"})
    (entry,) = json.loads(response.body)["versions"]
    assert (response.status, entry["id"]) == (300, "1.0")
    assert (entry["min_version"], entry["max_version"]) == ("1.0", server.release.top)


@BOTH
def test_s2_the_version_document_and_its_link(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("senlin")[name]
    response = send(server.port, "/v1", {"Accept": "application/json"})
    (link,) = [one["href"] for one in json.loads(response.body)["version"]["links"] if one["rel"] == "self"]
    assert (response.status, response.headers[STANDARD_HEADER]) == (200, None)
    assert link == {"old": "/v1", "new": f"{server.url}/v1/v1"}[name]


@BOTH
def test_R_D4_v1_is_negotiated_before_it_is_made(server_pool: ServerPool, name: str) -> None:
    response = send(server_pool.servers("senlin")[name].port, "/v1", API.headers("1.999"))
    assert (response.status, response.headers[STANDARD_HEADER]) == (406, None)


@BOTH
def test_s3_a_success_names_the_version(server_pool: ServerPool, name: str) -> None:
    response = send(server_pool.servers("senlin")[name].port, CLUSTERS, API.headers("1.5"))
    assert (response.status, response.headers[STANDARD_HEADER]) == (200, "clustering 1.5")
    assert response.headers["Vary"] == STANDARD_HEADER


@BOTH
def test_s4_what_is_too_new_is_refused_without_a_version(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("senlin")[name]
    response = send(server.port, CLUSTERS, API.headers("1.99"))
    text = (
        f"Version '1.99' is not supported by the API. Minimum is '1.0' and maximum is '{server.release.top}'."
    )
    assert (response.status, response.headers[STANDARD_HEADER]) == (406, None)
    assert json.loads(response.body) == {
        "code": 406,
        "error": {"code": 406, "message": text, "type": "InvalidGlobalAPIVersion"},
        "explanation": EXPLANATION,
        "title": "Not Acceptable",
    }


@BOTH
def test_the_client_works_with_a_server_without_the_gateway(
    server_pool: ServerPool, clustering_clients: Clients, name: str
) -> None:
    server = server_pool.servers("senlin")[name]
    with Recorder(f"direct-senlin-{name}", server.port) as recorder:
        found, clusters, types = clustering_clients.senlin(
            recorder.url, [("discover", None), *READ], version=server.release.top
        ).values()
        assert found["maximum"] == server.release.top
        assert (clusters, "os.nova.server" in types) == ([], True)
        requested = [
            API.versions(exchange.request) for exchange in recorder.exchanges() if exchange.path == CLUSTERS
        ]
        assert requested == [[server.release.top]]


# -- both behind the gateway --------------------------------------------------------------------------------


@GUARANTEED
@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_R_D4_v1_is_refused_as_they_refuse_it(pair: Testbed, path: str) -> None:
    response = pair.send(path, "1.999")
    assert (response.status, response.headers[STANDARD_HEADER]) == (406, None)
    assert f"maximum is '{OLD.top}'" in response.body.decode()


@GUARANTEED
def test_the_fixed_version_of_the_client_is_refused_when_not_both_serve_it(
    pair: Testbed, clustering_clients: Clients
) -> None:
    """It requires 1.14, reads from the document that the maximum is 1.9, and gives up by itself."""
    error = clustering_clients.senlin(pair.url, [("clusters", None)]).only_error()
    assert error.error == "ConfigException"
    assert f"a maximum of {OLD.top}" in error.text
    assert pair.forwarded("old") == pair.forwarded("new") == []


@GUARANTEED
@pytest.mark.parametrize("version", ["1.0", "1.5", OLD.top])
def test_the_client_gets_a_version_of_both(pair: Testbed, clustering_clients: Clients, version: str) -> None:
    clustering_clients.senlin(pair.url, READ * 3, version=version).values()
    assert pair.served() == [version] * 6


@GUARANTEED
def test_the_client_discovers_the_versions_of_both(pair: Testbed, clustering_clients: Clients) -> None:
    (found,) = clustering_clients.senlin(pair.url, [("discover", None)], version="1.5").values()
    assert (found["minimum"], found["maximum"]) == ("1.0", OLD.top)
    assert found["url"].rstrip("/") == f"{pair.url}/v1"


@REACHABLE
def test_the_fixed_version_of_the_client_goes_to_the_new_server(
    pair: Testbed, clustering_clients: Clients
) -> None:
    clustering_clients.senlin(pair.url, READ * 3).values()
    assert pair.served() == [CLIENT_VERSION] * 6
    assert pair.forwarded("old") == []


@REACHABLE
@pytest.mark.parametrize("base", ["", "/v1"], ids=["root", "v1"])
def test_the_lifecycle_of_a_profile_at_a_version_of_the_new_server(
    pair: Testbed, clustering_clients: Clients, base: str
) -> None:
    """Also from the address of `/v1`, where the new server's own link leads to `/v1/v1` (K7)."""
    created, listed, _, left = clustering_clients.senlin(pair.url + base, LIFECYCLE).values()
    assert (created["name"], listed, left) == ("life", ["life"], [])
    assert set(pair.served()) == {CLIENT_VERSION}
    assert pair.forwarded("old") == []


@REACHABLE
def test_the_client_gets_a_version_of_both_from_both(pair: Testbed, clustering_clients: Clients) -> None:
    clustering_clients.senlin(pair.url, READ * 12, version="1.5").values()
    assert pair.served() == ["1.5"] * 24
    assert pair.forwarded("old")
    assert pair.forwarded("new")
