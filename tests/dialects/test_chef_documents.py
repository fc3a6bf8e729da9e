"""`/server_api_version/extended` (RFC 041; CHEF-6, trap 19): the configured operations within the offer."""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json

import pytest

from gateway.core.decision.operations import (
    NO_OPERATIONS,
    OperationRule,
    Operations,
    OperationStatus,
    PathTemplate,
)
from gateway.core.http.message import Header, RequestHead, Response, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version, WholeNumber
from gateway.dialects.chef.dialect import (
    EXTENDED_DOCUMENT,
    MAX_VERSIONS,
    RESOURCE,
    VERSION_DOCUMENT,
    Chef,
    ChefOptions,
)

CHEF = Chef.configured(ChefOptions())
HEADER = "X-Ops-Server-API-Version"
BASE = "/server_api_version/extended"
CLIENT = "/organizations/:orgname/clients/:client"


def operation(
    methods: str, path: str, versions: str, status: OperationStatus = OperationStatus.ACTIVE
) -> OperationRule:
    exists = VersionSet() if versions == "next" else VersionSet.read_open(versions, WholeNumber())
    return OperationRule(tuple(methods.split()), PathTemplate.read(path), exists, status)


CLIENTS = "/organizations/{orgname}/clients/{client}"
SAMPLE = Operations.of(
    [
        operation("GET", CLIENTS, "0", OperationStatus.DEPRECATED),
        operation("GET", CLIENTS, "1", OperationStatus.ACTIVE),
        operation("GET", CLIENTS, "next", OperationStatus.UNSTABLE),
        operation("GET", "/users/{user}", "0", OperationStatus.DEPRECATED),
        operation("GET", "/users/{user}", ">=1"),
    ]
)
"""The operations in the sample of the RFC."""
CLIENT_ENTRY = {
    "name": CLIENT,
    "versions": [
        {"method": "GET", "version": 0, "status": "deprecated"},
        {"method": "GET", "version": 1, "status": "active"},
        {"method": "GET", "version": "next", "status": "unstable"},
    ],
}
USER_ENTRY = {
    "name": "/users/:user",
    "versions": [
        {"method": "GET", "version": 0, "status": "deprecated"},
        {"method": "GET", "version": 1, "status": "active"},
    ],
}


def upto(highest: int, lowest: int = 0) -> VersionSet:
    return VersionSet.between(Version(lowest), Version(highest))


def respond(
    below: str = "",
    *lines: Header,
    method: str = "GET",
    offered: VersionSet | None = upto(1),  # noqa: B008 -- a constant
    operations: Operations = SAMPLE,
) -> Response:
    fields = tuple((normalize_name(name), value) for name, value in lines)
    return CHEF.answer(EXTENDED_DOCUMENT, RequestHead(method, BASE + below, "", fields), offered, operations)


def json_of(response: Response) -> object:
    assert response.status == 200, response
    return json.loads(response.body)


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
def test_the_gateway_answers_it(path: str, extended: bool) -> None:
    assert CHEF.endpoint("GET", path, "") == (EXTENDED_DOCUMENT if extended else RESOURCE)
    assert EXTENDED_DOCUMENT.answered
    assert EXTENDED_DOCUMENT.rate_limited
    assert not VERSION_DOCUMENT.rate_limited


def test_CHEF_6_the_sample_of_the_RFC() -> None:
    response = respond()

    assert json_of(response) == {"endpoints": [CLIENT_ENTRY, USER_ENTRY]}
    assert response.body.startswith(
        b'{"endpoints":[{"name":"/organizations/:orgname/clients/:client","versions":['
    )
    assert dict(response.headers)["Content-Type"] == "application/json"
    assert dict(response.headers)[HEADER] == (
        '{"min_version":"0","max_version":"1","request_version":"0","response_version":"0"}'
    )


@pytest.mark.parametrize(
    "below, found",
    [
        (f"/GET{CLIENT}", CLIENT_ENTRY),
        ("/GET/organizations/acme/clients/one", CLIENT_ENTRY),
        ("/GET//organizations/acme/clients/%6fne/", CLIENT_ENTRY),
        ("/GET/users/:user", USER_ENTRY),
        ("/HEAD/users/bob", USER_ENTRY),
    ],
)
def test_CHEF_6_one_endpoint_by_its_spelling_or_by_a_real_path(below: str, found: object) -> None:
    assert json_of(respond(below)) == found


@pytest.mark.parametrize("below", ["/GET", "/GET/users", "/PUT/users/bob", "/get/users/bob", "/users/bob"])
def test_CHEF_6_an_unknown_endpoint_is_404_with_the_object(below: str) -> None:
    response = respond(below, (HEADER, "1"))

    assert (response.status, response.body) == (404, b'{"error":["There is no such endpoint."]}')
    assert '"request_version":"1"' in dict(response.headers)[HEADER]


@pytest.mark.parametrize("below", ["", "/GET/users/bob", "/GET/nothing"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_CHEF_6_other_methods_are_405(below: str, method: str) -> None:
    response = respond(below, method=method)

    assert response.status == 405
    assert dict(response.headers)["Allow"] == "GET, HEAD"
    assert HEADER in dict(response.headers)


def test_CHEF_6_a_version_outside_the_offer_is_refused_first() -> None:
    assert [respond("", (HEADER, text), method="PUT").status for text in ("2", "-1", "spam")] == [
        406,
        406,
        406,
    ]
    assert respond("", (HEADER, "1")).status == 200
    assert respond("", offered=upto(2, 1)).status == 200, (
        "a request without a version is answered even where 0 is gone"
    )
    assert respond("", offered=None).status == 503


def test_only_versions_on_offer_are_listed() -> None:
    response = json_of(respond(offered=upto(2, 1)))

    assert response == {
        "endpoints": [
            {"name": CLIENT, "versions": CLIENT_ENTRY["versions"][1:]},
            {
                "name": "/users/:user",
                "versions": [
                    {"method": "GET", "version": 1, "status": "active"},
                    {"method": "GET", "version": 2, "status": "active"},
                ],
            },
        ]
    }


def test_an_operation_without_a_version_on_offer_is_not_listed() -> None:
    operations = Operations.of([operation("GET", "/old", "<=1"), operation("GET", "/new", ">=3")])

    assert json_of(respond(offered=upto(2, 2), operations=operations)) == {"endpoints": []}
    assert respond("/GET/old", offered=upto(2, 2), operations=operations).status == 404


def test_methods_of_one_path_are_one_endpoint() -> None:
    operations = Operations.of(
        [
            operation("GET PUT", "/users/{user}", "0"),
            operation("GET", "/users", "1"),
            operation("DELETE", "/users/{name}", "1"),
            operation("GET", "/users/{user}", "0-1"),
        ]
    )

    assert json_of(respond(operations=operations)) == {
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
    assert json_of(respond(operations=NO_OPERATIONS)) == {"endpoints": []}


def test_a_backend_that_claims_a_million_versions_gets_a_short_document() -> None:
    operations = Operations.of([operation("GET", "/x", ">=0")])

    response = respond("/GET/x", offered=upto(999_999), operations=operations)

    versions = json.loads(response.body)["versions"]
    assert [element["version"] for element in versions] == list(range(1_000_000 - MAX_VERSIONS, 1_000_000))
