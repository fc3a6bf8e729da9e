"""Real nova, 17.0.13 (2.1 to 2.60) and 34.0.0 (2.1 to 2.104), with its real clients.

First, each server without the gateway: its responses to the golden examples (ids as in the tests of the
dialect), and that every client works with it. Then, python-novaclient, openstacksdk and the `openstack`
command with both behind the gateway.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import json

import pytest

from tests.real.clients import Clients
from tests.real.nova import NEW, OLD
from tests.real.processes import send
from tests.real.recorder import STANDARD_HEADER, Recorder
from tests.real.server_pool import KINDS, ServerPool
from tests.real.testbed import Testbed
from tests.real.usage import assert_complete, product, versions_of

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])
GUARANTEED = pytest.mark.parametrize("pair", [("nova", "guaranteed")], indirect=True, ids=["guaranteed"])
REACHABLE = pytest.mark.parametrize("pair", [("nova", "reachable")], indirect=True, ids=["reachable"])

API = KINDS["nova"].api
OWN_HEADER = "X-OpenStack-Nova-API-Version"
LIST = [("list", None)]
LIFECYCLE = [("create", "life"), ("list", None), ("delete", "life"), ("list", None)]
# The newest that python-novaclient 18.13.1 knows.
CLIENT_NEWEST = "2.96"


# -- the servers without the gateway ------------------------------------------------------------------------


@BOTH
def test_n1_the_root_contains_the_range_and_ignores_versions(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("nova")[name]
    response = send(server.port, "/", {STANDARD_HEADER: "compute 2.999"})
    (entry,) = [one for one in json.loads(response.body)["versions"] if one["id"] == "v2.1"]
    assert (response.status, entry["min_version"], entry["version"]) == (200, "2.1", server.release.top)
    assert entry["links"] == [{"rel": "self", "href": f"{server.url}/v2.1/"}]
    assert response.headers[STANDARD_HEADER] is None


@BOTH
def test_n2_the_version_document(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("nova")[name]
    response = send(server.port, "/v2.1/", API.headers(None))
    document = json.loads(response.body)["version"]
    assert (response.status, document["min_version"], document["version"]) == (200, "2.1", server.release.top)
    assert (response.headers[STANDARD_HEADER], response.headers[OWN_HEADER]) == ("compute 2.1", "2.1")
    assert response.headers.get_all("Vary") == [STANDARD_HEADER, OWN_HEADER]


@BOTH
def test_n3_what_is_too_new_is_refused_and_echoed(server_pool: ServerPool, name: str) -> None:
    server = server_pool.servers("nova")[name]
    response = send(server.port, "/v2.1/servers", API.headers("2.999"))
    text = f"Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is {server.release.top}."
    assert (response.status, json.loads(response.body)) == (
        406,
        {"computeFault": {"code": 406, "message": text}},
    )
    assert (response.headers[STANDARD_HEADER], response.headers[OWN_HEADER]) == ("compute 2.999", "2.999")


@BOTH
def test_n4_what_is_malformed_is_refused_without_a_version(server_pool: ServerPool, name: str) -> None:
    response = send(server_pool.servers("nova")[name].port, "/v2.1/servers", API.headers("spam"))
    text = "API Version String spam is of invalid format. Must be of format MajorNum.MinorNum."
    assert (response.status, json.loads(response.body)) == (
        400,
        {"badRequest": {"code": 400, "message": text}},
    )
    assert response.headers[STANDARD_HEADER] is response.headers[OWN_HEADER] is None


@pytest.mark.parametrize("name, status", [("old", 302), ("new", 400)])
def test_R_D8_a_malformed_version_at_v2_1_without_a_slash(
    server_pool: ServerPool, name: str, status: int
) -> None:
    """The old one redirects before it looks at a version."""
    port = server_pool.servers("nova")[name].port
    assert send(port, "/v2.1", API.headers("spam")).status == status
    assert send(port, "/v2.1/", API.headers("spam")).status == 400


@GUARANTEED
def test_R_D8_the_gateway_is_like_the_new_one(pair: Testbed) -> None:
    assert [pair.send(path, "spam").status for path in ("/v2.1", "/v2.1/")] == [400, 400]


@BOTH
def test_the_clients_work_with_a_server_without_the_gateway(
    server_pool: ServerPool, clients: Clients, name: str
) -> None:
    server = server_pool.servers("nova")[name]
    with Recorder(f"direct-nova-{name}", server.port) as recorder:
        session = clients.nova(recorder.url, LIFECYCLE, version="2.latest")
        created, listed, _, left = session.values()
        assert (created["name"], listed[0]["name"], left) == ("life", "life", [])
        assert session.version == {"old": OLD.top, "new": CLIENT_NEWEST}[name]
        found, _ = clients.compute_sdk(recorder.url, [("discover", None), *LIST]).values()
        assert found["maximum"] == server.release.top
        assert clients.compute(recorder.url, "flavor", "list", "-f", "json").json() == []
        assert {one.status for one in recorder.exchanges()} <= {200, 202, 204, 302}


# -- both behind the gateway: guaranteed --------------------------------------------------------------------


@GUARANTEED
def test_latest_of_novaclient_becomes_the_newest_version_of_both(pair: Testbed, clients: Clients) -> None:
    session = clients.nova(pair.url, LIST * 6, version="2.latest")
    session.values()
    assert session.version == OLD.top
    assert pair.served() == [OLD.top] * 6


@GUARANTEED
@pytest.mark.parametrize("version", ["2.1", "2.26", "2.27", "2.55", OLD.top])
def test_novaclient_gets_a_version_of_both(pair: Testbed, clients: Clients, version: str) -> None:
    clients.nova(pair.url, LIST * 3, version=version).values()
    assert pair.served() == [version] * 3


@GUARANTEED
@pytest.mark.parametrize("version", ["2.61", "2.90"])
def test_novaclient_is_refused_a_version_that_not_both_serve(
    pair: Testbed, clients: Clients, version: str
) -> None:
    error = clients.nova(pair.url, LIST, version=version).only_error()
    assert error.error == "NotAcceptable"
    assert f"Minimum is 2.1 and maximum is {OLD.top}." in error.text
    assert pair.forwarded("old") == pair.forwarded("new") == []


@GUARANTEED
def test_the_sdk_discovers_and_uses_the_versions_of_both(pair: Testbed, clients: Clients) -> None:
    found, _ = clients.compute_sdk(pair.url, [("discover", None), *LIST]).values()
    assert (found["minimum"], found["maximum"]) == ("2.1", OLD.top)
    # It requests flavors at this version. The newest version of flavors that it knows is 2.61.
    assert pair.served() == [OLD.top]


@GUARANTEED
def test_the_sdk_does_not_request_a_version_that_not_both_serve(pair: Testbed, clients: Clients) -> None:
    error = clients.compute_sdk(pair.url, LIST, version="2.90").only_error()
    assert error.error == "ConfigException"
    assert pair.forwarded("old") == pair.forwarded("new") == []


@GUARANTEED
def test_the_command_line_at_its_default(pair: Testbed, clients: Clients) -> None:
    assert isinstance(clients.compute(pair.url, "flavor", "list", "-f", "json").json(), list)
    assert pair.served()


# -- both behind the gateway: reachable ---------------------------------------------------------------------


@REACHABLE
def test_latest_of_novaclient_goes_to_the_new_server(pair: Testbed, clients: Clients) -> None:
    session = clients.nova(pair.url, LIST * 6, version="2.latest")
    session.values()
    assert session.version == CLIENT_NEWEST
    assert (len(pair.forwarded("old")), len(pair.forwarded("new"))) == (0, 6)


@REACHABLE
def test_the_lifecycle_of_a_flavor_with_novaclient_at_a_version_of_the_new_server(
    pair: Testbed, clients: Clients
) -> None:
    created, listed, _, left = clients.nova(pair.url, LIFECYCLE, version="2.61").values()
    assert (created["name"], [one["name"] for one in listed], left) == ("life", ["life"], [])
    assert set(pair.served()) == {"2.61"}
    assert pair.forwarded("old") == []


@REACHABLE
def test_novaclient_gets_a_version_of_both_from_both(pair: Testbed, clients: Clients) -> None:
    clients.nova(pair.url, LIST * 24, version="2.55").values()
    assert pair.served() == ["2.55"] * 24
    assert pair.forwarded("old")
    assert pair.forwarded("new")


@REACHABLE
def test_the_lifecycle_of_a_flavor_with_the_sdk_at_a_version_of_the_new_server(
    pair: Testbed, clients: Clients
) -> None:
    calls = [("discover", None), *LIFECYCLE]
    found, created, listed, _, left = clients.compute_sdk(pair.url, calls).values()
    assert found["maximum"] == NEW.top
    assert (created["description"], listed, left) == ("by the sdk", ["life"], [])
    assert pair.forwarded("old") == []


@REACHABLE
@pytest.mark.parametrize("version", ["2.55", "2.90"])
def test_the_command_line_gets_a_version_of_the_new_server(
    pair: Testbed, clients: Clients, version: str
) -> None:
    done = clients.compute(pair.url, "flavor", "list", "-f", "json", version=version)
    assert isinstance(done.json(), list)
    assert set(pair.served()) == {version}


@GUARANTEED
def test_usage_lists_what_novaclient_and_the_sdk_have_asked_for(pair: Testbed, clients: Clients) -> None:
    clients.nova(pair.url, LIST, version="2.27").values()
    client = product(pair.seen()[-1])

    assert versions_of(pair, client)["2.27"] >= 1
    assert_complete(pair)
