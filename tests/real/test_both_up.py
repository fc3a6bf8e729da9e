"""Both real servers are up: 21.4.0 (1.1 to 1.82) and 39.0.0 (1.1 to 1.115). Every kind of request and client.

Under `guaranteed`, clients see 1.1 to 1.82, and under `reachable` 1.1 to 1.115. After each test,
`testbed.violations` checks that no request reached a server that does not serve its version.
"""

from __future__ import annotations

import json

import pytest

from tests.real.clients import LIBRARY_DEFAULT, NEWEST_KNOWN, Clients
from tests.real.ironic import NEW, OLD
from tests.real.testbed import Testbed
from tests.real.usage import assert_complete, product, versions_of

pytestmark = pytest.mark.real

NODES = "/v1/nodes"
LIST = [("list", None)]

# The version that openstacksdk 4.22.0 requests when a server has newer ones: the newest one of its nodes.
SDK_NEWEST = "1.109"


def refusal(testbed: Testbed, requested: str) -> dict[str, object]:
    """The body of Ironic's own 406 for a version outside the offer."""
    minimum, maximum = testbed.offer.range
    text = (
        f"Version {requested} was requested but the minor version is not supported by this service."
        f" The supported version range is: [{minimum}, {maximum}]."
    )
    return {"error_message": json.dumps({"code": 406, "title": "Not Acceptable", "description": text})}


def assert_refused_by_the_gateway(testbed: Testbed, requested: str) -> None:
    """A version outside the offer is refused, and no server gets the request."""
    response = testbed.send(NODES, requested)
    assert (response.status, json.loads(response.body)) == (406, refusal(testbed, requested))
    assert testbed.seen()[-1].offered == testbed.offer.range
    assert testbed.seen()[-1].served is None
    forwarded = [exchange for member in testbed.recorders for exchange in testbed.forwarded(member)]
    assert [exchange for exchange in forwarded if exchange.path == NODES] == []


# -- guaranteed -----------------------------------------------------------------------------------------


def test_the_default_of_the_library_is_served(guaranteed: Testbed, clients: Clients) -> None:
    clients.ironicclient(guaranteed.url, LIST).values()
    assert guaranteed.conversation() == [("GET", NODES, LIBRARY_DEFAULT, 200)]


@pytest.mark.parametrize("version", ["1.1", "1.31", OLD.top])
def test_the_library_gets_its_requested_version(guaranteed: Testbed, clients: Clients, version: str) -> None:
    clients.ironicclient(guaranteed.url, LIST, version=version).values()
    (seen,) = guaranteed.seen()
    assert (seen.status, seen.served, seen.offered) == (200, version, ("1.1", OLD.top))


@pytest.mark.parametrize("version", ["1.0", "1.83", "1.90", NEW.top, "1.999"])
def test_the_library_is_refused_a_version_that_not_both_serve(
    guaranteed: Testbed, clients: Clients, version: str
) -> None:
    error = clients.ironicclient(guaranteed.url, LIST, version=version).only_error()
    assert error.error == "UnsupportedVersion"
    assert f"Supported version range is 1.1 to {OLD.top}" in error.text
    assert_refused_by_the_gateway(guaranteed, version)


def test_a_list_of_versions_of_the_library_becomes_the_newest_that_both_serve(
    guaranteed: Testbed, clients: Clients
) -> None:
    session = clients.ironicclient(guaranteed.url, LIST, version=["1.31", "1.58", "1.90"])
    session.values()
    assert session.version == "1.58"


def test_a_version_for_one_call_is_refused_and_the_session_continues(
    guaranteed: Testbed, clients: Clients
) -> None:
    calls = [("list", None), ("list at", "1.90"), ("list", None), ("list at", "1.50")]
    before, refused, after, other = clients.ironicclient(guaranteed.url, calls, version="latest").results
    assert refused.error == "UnsupportedVersion"
    assert (before.error, after.error, other.error) == (None, None, None)
    assert [one.served for one in guaranteed.seen() if one.status == 200 and one.path == NODES][-1] == "1.50"


@pytest.mark.parametrize(
    "version, first", [(None, NEWEST_KNOWN), ("latest", None)], ids=["by-default", "latest"]
)
def test_the_command_line_negotiates_a_version_that_both_serve(
    guaranteed: Testbed, clients: Clients, version: str | None, first: str | None
) -> None:
    """By default, it requests the newest version that it knows, is refused once, and negotiates."""
    assert isinstance(
        clients.baremetal(guaranteed.url, "node", "list", "-f", "json", version=version).json(), list
    )
    expected = [("GET", "/v1", None, 200), ("GET", NODES, OLD.top, 200)]
    assert guaranteed.conversation() == ([("GET", NODES, first, 406)] if first else []) + expected


@pytest.mark.parametrize("version", ["1.31", OLD.top])
def test_the_command_line_gets_its_requested_version(
    guaranteed: Testbed, clients: Clients, version: str
) -> None:
    clients.baremetal(guaranteed.url, "node", "list", "-f", "json", version=version).json()
    assert guaranteed.conversation() == [("GET", NODES, version, 200)]


@pytest.mark.parametrize("version", ["1.0", "1.90"])
def test_the_command_line_is_refused_a_version_that_not_both_serve(
    guaranteed: Testbed, clients: Clients, version: str
) -> None:
    done = clients.baremetal(guaranteed.url, "node", "list", version=version)
    assert done.code == 1
    assert f"Supported version range is 1.1 to {OLD.top}" in " ".join(done.errors.split())
    assert_refused_by_the_gateway(guaranteed, version)


def test_the_sdk_discovers_and_uses_the_offer(guaranteed: Testbed, clients: Clients) -> None:
    found, _, refused = clients.sdk(
        guaranteed.url, [("discover", None), ("list", None), ("list at", "1.90")]
    ).values()
    assert found == {"url": f"{guaranteed.url}/v1/", "minimum": "1.1", "maximum": OLD.top}
    assert [one.served for one in guaranteed.seen() if one.path == NODES] == [OLD.top, None]
    assert refused["status"] == 406


def test_the_sdk_gets_its_configured_version(guaranteed: Testbed, clients: Clients) -> None:
    clients.sdk(guaranteed.url, LIST, version="1.31").values()
    assert guaranteed.seen()[-1].served == "1.31"


@pytest.mark.parametrize("version", ["1.0", "1.90"])
def test_the_sdk_sees_in_the_documents_that_its_configured_version_is_not_offered(
    guaranteed: Testbed, clients: Clients, version: str
) -> None:
    error = clients.sdk(guaranteed.url, LIST, version=version).only_error()
    assert error.error == "ConfigException"
    assert f"a minimum of 1.1 and a maximum of {OLD.top}" in error.text


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_the_documents_contain_the_offer_and_the_address_of_the_gateway(
    guaranteed: Testbed, path: str
) -> None:
    """Enough requests that both servers get some."""
    for _ in range(12):
        response = guaranteed.send(path)
        document = json.loads(response.body)
        (entry,) = document.get("versions", [document.get("version")])
        assert response.status == 200
        assert (entry["min_version"], entry["version"]) == guaranteed.offer.range
        links = [link["href"] for link in entry["links"] if link["rel"] == "self"]
        assert links == [f"{guaranteed.url}/v1/"]


# -- reachable ------------------------------------------------------------------------------------------


def test_a_version_of_the_new_server_goes_to_the_new_server(reachable: Testbed, clients: Clients) -> None:
    clients.ironicclient(reachable.url, LIST * 10, version="1.90").values()
    assert [one.requested for one in reachable.forwarded("new")] == ["1.90"] * 10
    assert reachable.forwarded("old") == []


def test_a_version_of_both_goes_to_both(reachable: Testbed, clients: Clients) -> None:
    clients.ironicclient(reachable.url, LIST * 24, version="1.31").values()
    assert {one.served for one in reachable.seen()} == {"1.31"}
    assert reachable.forwarded("old")
    assert reachable.forwarded("new")


def test_latest_is_the_maximum_of_the_new_server(reachable: Testbed, clients: Clients) -> None:
    session = clients.ironicclient(reachable.url, LIST * 10, version="latest")
    session.values()
    assert session.version == NEW.top
    assert [one for one in reachable.forwarded("old") if one.path == NODES] == []


def test_the_default_of_the_command_line_is_served_at_once(reachable: Testbed, clients: Clients) -> None:
    clients.baremetal(reachable.url, "node", "list", "-f", "json").json()
    assert reachable.conversation() == [("GET", NODES, NEWEST_KNOWN, 200)]


@pytest.mark.parametrize("requested, served", [("1.31", "1.31"), ("1.90", "1.90"), ("latest", NEW.top)])
def test_the_command_line_gets_a_version_of_one_server(
    reachable: Testbed, clients: Clients, requested: str, served: str
) -> None:
    clients.baremetal(reachable.url, "node", "list", "-f", "json", version=requested).json()
    assert reachable.conversation()[-1] == ("GET", NODES, served, 200)
    assert reachable.seen()[-1].served == served


@pytest.mark.parametrize("version", ["1.31", "1.90"])
def test_the_sdk_gets_a_version_of_one_server(reachable: Testbed, clients: Clients, version: str) -> None:
    clients.sdk(reachable.url, LIST, version=version).values()
    assert reachable.seen()[-1].served == version


def test_the_command_line_and_the_sdk_are_refused_a_version_that_no_server_has(
    reachable: Testbed, clients: Clients
) -> None:
    done = clients.baremetal(reachable.url, "node", "list", version="1.999")
    assert done.code == 1
    assert f"Supported version range is 1.1 to {NEW.top}" in " ".join(done.errors.split())
    assert clients.sdk(reachable.url, LIST, version="1.999").only_error().error == "ConfigException"
    assert_refused_by_the_gateway(reachable, "1.999")


@pytest.mark.parametrize("version", ["1.0", "1.116", "1.999"])
def test_a_version_that_no_server_has_is_refused(reachable: Testbed, clients: Clients, version: str) -> None:
    error = clients.ironicclient(reachable.url, LIST, version=version).only_error()
    assert error.error == "UnsupportedVersion"
    assert f"Supported version range is 1.1 to {NEW.top}" in error.text
    assert_refused_by_the_gateway(reachable, version)


def test_the_lifecycle_of_a_node_with_the_library_at_a_version_of_the_new_server(
    reachable: Testbed, clients: Clients
) -> None:
    calls = [("create", "lib"), ("show", "lib"), ("list", None), ("delete", "lib"), ("list", None)]
    created, shown, listed, _, left = clients.ironicclient(reachable.url, calls, version="1.90").values()
    assert created["uuid"] == shown["uuid"]
    assert "lib" in listed
    assert "lib" not in left


def test_the_lifecycle_of_a_node_with_the_command_line_at_its_default(
    reachable: Testbed, clients: Clients
) -> None:
    """Its default is 1.115, which only the new server serves. So the node is in the database of that one."""
    node = ("node", "create", "--driver", "fake-hardware", "--name", "cli")
    created = clients.baremetal(reachable.url, *node, "-f", "json").json()
    shown = clients.baremetal(reachable.url, "node", "show", "cli", "-f", "json").json()
    listed = clients.baremetal(reachable.url, "node", "list", "-f", "json").json()
    assert created["uuid"] == shown["uuid"]
    assert [one["uuid"] for one in listed] == [created["uuid"]]
    assert clients.baremetal(reachable.url, "node", "delete", "cli").code == 0
    assert clients.baremetal(reachable.url, "node", "list", "-f", "json").json() == []


def test_the_lifecycle_of_a_node_with_the_sdk_at_its_discovered_version(
    reachable: Testbed, clients: Clients
) -> None:
    calls = [("discover", None), ("create", "sdk"), ("show", "sdk"), ("list", None), ("delete", "sdk")]
    found, created, shown, listed, _ = clients.sdk(reachable.url, calls).values()
    assert found["maximum"] == NEW.top
    assert created["uuid"] == shown["uuid"]
    assert listed == ["sdk"]
    assert {one.served for one in reachable.seen() if one.path.startswith(NODES)} == {SDK_NEWEST}


def test_usage_lists_what_the_library_and_the_sdk_have_asked_for(
    guaranteed: Testbed, clients: Clients
) -> None:
    """And whatever other clients of this gateway have sent: the recorder knows them all."""
    clients.ironicclient(guaranteed.url, LIST, version="1.31").values()
    clients.sdk(guaranteed.url, LIST, version="1.11").values()
    library, sdk = (product(of) for of in (guaranteed.seen()[0], guaranteed.seen()[-1]))

    assert (library, sdk) == ("python-ironicclient", "openstacksdk")
    assert versions_of(guaranteed, library)["1.31"] >= 1
    assert versions_of(guaranteed, sdk)["1.11"] >= 1
    assert_complete(guaranteed)
