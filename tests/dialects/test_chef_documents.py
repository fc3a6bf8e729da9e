"""`/server_api_version/extended` (RFC 041; CHEF-6, trap 19): what is configured, within the offer."""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json

import pytest

from gateway.core.dialect import Bounds
from gateway.core.message import Header, Reply, RequestHead, fold
from gateway.core.operations import NO_OPERATIONS, Entry, Extent, Operations, PathTemplate, Status
from gateway.core.ranges import VersionSet
from gateway.core.version import Version, WholeNumber
from gateway.dialects._chef_documents import EXTENDED, MOST_VERSIONS, OWN_DOCUMENT
from gateway.dialects.chef import RESOURCE, Chef, ChefOptions

CHEF = Chef.configured(ChefOptions())
HEADER = "X-Ops-Server-API-Version"
BASE = "/server_api_version/extended"
CLIENT = "/organizations/:orgname/clients/:client"


def entry(methods: str, path: str, versions: str, status: Status = Status.ACTIVE) -> Entry:
    extent = Extent() if versions == "next" else Extent.read(versions, WholeNumber())
    return Entry(tuple(methods.split()), PathTemplate.read(path), extent, status)


CLIENTS = "/organizations/{orgname}/clients/{client}"
SAMPLE = Operations.of(
    [
        entry("GET", CLIENTS, "0", Status.DEPRECATED),
        entry("GET", CLIENTS, "1", Status.ACTIVE),
        entry("GET", CLIENTS, "next", Status.UNSTABLE),
        entry("GET", "/users/{user}", "0", Status.DEPRECATED),
        entry("GET", "/users/{user}", ">=1"),
    ]
)
"""What the RFC's own sample tells."""
CLIENT_TOLD = {
    "name": CLIENT,
    "versions": [
        {"method": "GET", "version": 0, "status": "deprecated"},
        {"method": "GET", "version": 1, "status": "active"},
        {"method": "GET", "version": "next", "status": "unstable"},
    ],
}
USER_TOLD = {
    "name": "/users/:user",
    "versions": [
        {"method": "GET", "version": 0, "status": "deprecated"},
        {"method": "GET", "version": 1, "status": "active"},
    ],
}


def upto(highest: int, lowest: int = 0) -> Bounds:
    return Bounds(VersionSet.between(Version(lowest), Version(highest)))


def say(
    below: str = "",
    *lines: Header,
    method: str = "GET",
    bounds: Bounds | None = upto(1),  # noqa: B008 -- a constant
    operations: Operations = SAMPLE,
) -> Reply:
    fields = tuple((fold(name), value) for name, value in lines)
    return CHEF.answer(EXTENDED, RequestHead(method, BASE + below, "", fields), bounds, operations)


def told(reply: Reply) -> object:
    assert reply.status == 200, reply
    return json.loads(reply.body)


@pytest.mark.parametrize(
    "path, extended",
    [
        (BASE, True),
        (f"{BASE}/", True),
        (f"/{BASE}//GET//users", True),
        (f"{BASE}/GET/users/bob", True),
        ("/server_api_version/extendedly", False),
        ("/server_api_version/other", False),
        ("/users/server_api_version/extended", False),
    ],
)
def test_it_is_the_gateways_to_answer(path: str, extended: bool) -> None:
    assert CHEF.place("GET", path, "") == (EXTENDED if extended else RESOURCE)
    assert EXTENDED.answered
    assert EXTENDED.metered
    assert not OWN_DOCUMENT.metered


def test_CHEF_6_the_sample_of_the_RFC() -> None:
    reply = say()

    assert told(reply) == {"endpoints": [CLIENT_TOLD, USER_TOLD]}
    assert reply.body.startswith(
        b'{"endpoints":[{"name":"/organizations/:orgname/clients/:client","versions":['
    )
    assert dict(reply.headers)["Content-Type"] == "application/json"
    assert dict(reply.headers)[HEADER] == (
        '{"min_version":"0","max_version":"1","request_version":"0","response_version":"0"}'
    )


@pytest.mark.parametrize(
    "below, found",
    [
        (f"/GET{CLIENT}", CLIENT_TOLD),
        ("/GET/organizations/acme/clients/one", CLIENT_TOLD),
        ("/GET//organizations/acme/clients/%6fne/", CLIENT_TOLD),
        ("/GET/users/:user", USER_TOLD),
        ("/HEAD/users/bob", USER_TOLD),
    ],
)
def test_CHEF_6_one_endpoint_by_its_spelling_or_by_a_real_path(below: str, found: object) -> None:
    assert told(say(below)) == found


@pytest.mark.parametrize("below", ["/GET", "/GET/users", "/PUT/users/bob", "/get/users/bob", "/users/bob"])
def test_CHEF_6_an_unknown_endpoint_is_404_with_the_object(below: str) -> None:
    reply = say(below, (HEADER, "1"))

    assert (reply.status, reply.body) == (404, b'{"error":["There is no such endpoint."]}')
    assert '"request_version":"1"' in dict(reply.headers)[HEADER]


@pytest.mark.parametrize("below", ["", "/GET/users/bob", "/GET/nothing"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_CHEF_6_other_methods_are_405(below: str, method: str) -> None:
    reply = say(below, method=method)

    assert reply.status == 405
    assert dict(reply.headers)["Allow"] == "GET, HEAD"
    assert HEADER in dict(reply.headers)


def test_CHEF_6_a_version_outside_the_offer_goes_first() -> None:
    assert [say("", (HEADER, text), method="PUT").status for text in ("2", "-1", "spam")] == [406, 406, 406]
    assert say("", (HEADER, "1")).status == 200
    assert say("", bounds=upto(2, 1)).status == 200, "silence is answered even where 0 is gone"
    assert say("", bounds=None).status == 503


def test_only_what_is_on_offer_is_told() -> None:
    reply = told(say(bounds=upto(2, 1)))

    assert reply == {
        "endpoints": [
            {"name": CLIENT, "versions": CLIENT_TOLD["versions"][1:]},
            {
                "name": "/users/:user",
                "versions": [
                    {"method": "GET", "version": 1, "status": "active"},
                    {"method": "GET", "version": 2, "status": "active"},
                ],
            },
        ]
    }


def test_what_exists_in_no_version_on_offer_is_no_endpoint() -> None:
    operations = Operations.of([entry("GET", "/old", "<=1"), entry("GET", "/new", ">=3")])

    assert told(say(bounds=upto(2, 2), operations=operations)) == {"endpoints": []}
    assert say("/GET/old", bounds=upto(2, 2), operations=operations).status == 404


def test_methods_of_one_path_are_one_endpoint() -> None:
    operations = Operations.of(
        [
            entry("GET PUT", "/users/{user}", "0"),
            entry("GET", "/users", "1"),
            entry("DELETE", "/users/{name}", "1"),
            entry("GET", "/users/{user}", "0-1"),
        ]
    )

    assert told(say(operations=operations)) == {
        "endpoints": [
            {
                "name": "/users/:user",
                "versions": [
                    {"method": "GET", "version": 0, "status": "active"},
                    {"method": "GET", "version": 1, "status": "active"},
                    {"method": "PUT", "version": 0, "status": "active"},
                    {"method": "DELETE", "version": 1, "status": "active"},
                ],
            },
            {"name": "/users", "versions": [{"method": "GET", "version": 1, "status": "active"}]},
        ]
    }


def test_without_operations_there_are_no_endpoints() -> None:
    assert told(say(operations=NO_OPERATIONS)) == {"endpoints": []}


def test_a_backend_that_claims_a_million_versions_makes_no_document_of_a_million() -> None:
    operations = Operations.of([entry("GET", "/x", ">=0")])

    reply = say("/GET/x", bounds=upto(999_999), operations=operations)

    versions = json.loads(reply.body)["versions"]
    assert [each["version"] for each in versions] == list(range(1_000_000 - MOST_VERSIONS, 1_000_000))
