"""Real placement, 1.1.0 (1.0 to 1.31) and 16.0.0 (1.0 to 1.39), with the `openstack` command's osc-placement.

First, each server without the gateway: its responses to the golden examples (ids as in the tests of the
dialect), and that the client works with it. Then, the client with both behind the gateway.
"""

from __future__ import annotations

import json

import pytest

from tests.real.clients import Clients
from tests.real.placement import NEW, OLD
from tests.real.processes import send
from tests.real.recorder import STANDARD_HEADER, Recorder
from tests.real.server_pool import KINDS, ServerPool
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("placement", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("placement", "reachable")], indirect=True, ids=["reachable"])

API = KINDS["placement"].api
PROVIDERS = "/resource_providers"
# osc-placement 4.9.1 knows 1.0 to 1.29 and 1.37 to 1.39, and sends no other version.
CLIENT_NEWEST = {"old": "1.29", "new": NEW.top}
LIST = ("resource", "provider", "list", "-f", "json")


# -- the servers without the gateway ------------------------------------------------------------------------


@BOTH
def test_p1_what_is_too_new_is_refused_with_the_range(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("placement")[name]
    response = send(server.port, PROVIDERS, API.headers("1.99"))
    (error,) = json.loads(response.body)["errors"]
    assert (response.status, error["status"], error["title"]) == (406, 406, "Not Acceptable")
    assert (error["min_version"], error["max_version"]) == ("1.0", server.release.top)
    assert "Unacceptable version header: 1.99" in error["detail"]
    assert response.headers[STANDARD_HEADER] is None


@BOTH
def test_p2_what_is_malformed_is_refused(server_pool: ServerPool, name: str) -> None:
    response = send(server_pool.servers("placement")[name].port, PROVIDERS, API.headers("spam"))
    (error,) = json.loads(response.body)["errors"]
    assert (response.status, error["title"]) == (400, "Bad Request")
    assert "invalid version string: spam" in error["detail"]


@BOTH
def test_p3_a_success_names_the_version_in_a_lower_case_field(server_pool: ServerPool, name: str) -> None:
    response = send(server_pool.servers("placement")[name].port, PROVIDERS, API.headers("1.10"))
    assert response.status == 200
    assert ("openstack-api-version", "placement 1.10") in response.headers.items()
    assert ("vary", "openstack-api-version") in response.headers.items()


@BOTH
def test_the_root_names_the_range(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("placement")[name]
    (entry,) = json.loads(send(server.port, "/", {}).body)["versions"]
    assert (entry["min_version"], entry["max_version"]) == ("1.0", server.release.top)


@BOTH
def test_the_client_works_with_a_server_without_the_gateway(
    server_pool: ServerPool, clients: Clients, name: str
) -> None:
    server = server_pool.servers("placement")[name]
    with Recorder(f"direct-placement-{name}", server.port) as recorder:
        assert clients.placement(recorder.url, *LIST, version=CLIENT_NEWEST[name]).json() == []
        requested = [
            API.versions(exchange.request) for exchange in recorder.exchanges() if exchange.path == PROVIDERS
        ]
        assert requested == [[CLIENT_NEWEST[name]]]


# -- both behind the gateway --------------------------------------------------------------------------------


@GUARANTEED
@pytest.mark.parametrize("version", ["1.0", "1.10", "1.29"])
def test_the_client_gets_a_version_of_both(pair: Testbed, clients: Clients, version: str) -> None:
    clients.placement(pair.url, *LIST, version=version).json()
    assert set(pair.served()) == {version}


@GUARANTEED
def test_the_default_of_the_client_becomes_a_version_of_both(pair: Testbed, clients: Clients) -> None:
    clients.placement(pair.url, *LIST).json()
    assert all(OLD.serves(version) for version in pair.served())
    assert pair.served()


@GUARANTEED
def test_the_client_is_refused_a_version_that_not_both_serve(pair: Testbed, clients: Clients) -> None:
    done = clients.placement(pair.url, *LIST, version="1.37")
    assert done.code != 0
    assert "Unacceptable version header: 1.37" in done.errors
    assert pair.forwarded("old") == pair.forwarded("new") == []


@REACHABLE
@pytest.mark.parametrize("version", ["1.10", "1.37", NEW.top])
def test_the_client_gets_a_version_of_one_server(pair: Testbed, clients: Clients, version: str) -> None:
    clients.placement(pair.url, *LIST, version=version).json()
    assert set(pair.served()) == {version}


@REACHABLE
def test_the_lifecycle_of_a_provider_at_a_version_of_the_new_server(pair: Testbed, clients: Clients) -> None:
    words = ("resource", "provider")
    created = clients.placement(pair.url, *words, "create", "life", "-f", "json", version="1.37").json()
    shown = clients.placement(pair.url, *words, "show", created["uuid"], "-f", "json", version="1.37").json()
    deleted = clients.placement(pair.url, *words, "delete", created["uuid"], version="1.37")
    assert (created["name"], shown["uuid"], deleted.code) == ("life", created["uuid"], 0)
    assert set(pair.served()) == {"1.37"}
    assert pair.forwarded("old") == []
