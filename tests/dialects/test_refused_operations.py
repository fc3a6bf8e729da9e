"""How each dialect refuses an operation outside its versions, byte for byte like its own servers.

Recorded from Senlin 5.0.1 and 16.0.0, Nova 34.0.0, Ironic 39.0.0 and Placement 16.0.0.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.decision.decision import decide
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    Dialect,
    MissingOperation,
    RequestedKind,
    RequestedVersion,
)
from gateway.core.http.message import RequestHead, Response
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Version
from gateway.dialects import discover
from tests.core.builders import snapshot

JSON = ("Content-Type", "application/json")


def configured(name: str, **options: Any) -> Dialect:
    kind = discover()[name]
    dialect: Dialect = kind.configured(kind.Options(**options))
    return dialect


def refused(
    name: str,
    version: Version,
    status: int | None = None,
    requested: RequestedVersion | None = None,
    **options: Any,
) -> Response:
    dialect = configured(name, **options)
    text = dialect.scheme.format(version)
    offered = VersionSet.between(version.step(-1), version.step(9))
    missing = MissingOperation(
        version, requested or RequestedVersion(RequestedKind.EXACT, version, text), offered, status
    )
    return dialect.refuse_operation(missing)


def test_S6_trap_11_senlin() -> None:
    response = refused("senlin", Version(1, 3))

    assert (response.status, response.headers) == (400, (JSON,))
    assert response.body == (
        b'{"code": 400, "error": {"code": 400, "message": "API version \'1.3\' is not supported on this '
        b'method.", "type": "MethodVersionNotFound"}, "explanation": "The server could not comply with the '
        b'request since it is either malformed or otherwise incorrect.", "title": "Bad Request"}'
    )
    assert len(response.body) == 275, "the length that real servers send"
    assert refused("senlin", Version(1, 3), 400) == response


def test_SENLIN_2_senlin_as_in_its_guide() -> None:
    response = refused("senlin", Version(1, 3), 404)

    body = json.loads(response.body)
    assert (response.status, body["code"], body["title"]) == (404, 404, "Not Found")
    assert body["error"]["type"] == "MethodVersionNotFound"


def test_N11_nova() -> None:
    response = refused("nova", Version(2, 50))

    assert (response.status, response.headers) == (
        404,
        (
            ("OpenStack-API-Version", "compute 2.50"),
            ("X-OpenStack-Nova-API-Version", "2.50"),
            ("Content-Type", "application/json; charset=UTF-8"),
        ),
    )
    assert response.body == b'{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}'
    assert set(json.loads(refused("nova", Version(2, 50), 400).body)) == {"badRequest"}


@pytest.mark.parametrize("status", [None, 404, 400])
def test_I16_ironic(status: int | None) -> None:
    response = refused("ironic", Version(1, 5), status)

    own = "X-OpenStack-Ironic-API"
    lines = ((f"{own}-Minimum-Version", "1.4"), (f"{own}-Maximum-Version", "1.14"), (f"{own}-Version", "1.5"))
    assert (response.status, response.headers) == (status or 404, (*lines, JSON))
    assert response.body == (
        b'{"error_message": "{\\"faultcode\\": \\"Client\\", '
        b'\\"faultstring\\": \\"The API is not supported for this version\\", \\"debuginfo\\": null}"}'
    )


@pytest.mark.parametrize(
    "options, headers, body",
    [
        (
            {"service_type": "placement"},
            {("openstack-api-version", "placement 1.5")},
            {"errors": [{"status": 404, "title": "Not Found", "detail": "The resource could not be found."}]},
        ),
        (
            {"service_type": "volume"},
            {("openstack-api-version", "volume 1.5")},
            {"itemNotFound": {"code": 404, "message": "The resource could not be found."}},
        ),
        (
            {"service_type": "baremetal-introspection"},
            {
                ("x-openstack-ironic-inspector-api-minimum-version", "1.4"),
                ("x-openstack-ironic-inspector-api-maximum-version", "1.14"),
            },
            {"error": {"message": "The resource could not be found."}},
        ),
    ],
)
def test_openstack(options: dict[str, Any], headers: set[tuple[str, str]], body: object) -> None:
    response = refused("openstack", Version(1, 5), **options)

    assert response.status == 404
    assert {(name.lower(), value) for name, value in response.headers} == {
        *headers,
        ("content-type", "application/json"),
    }
    assert json.loads(response.body) == body
    assert refused("openstack", Version(1, 5), 400, **options).status == 400


@pytest.mark.parametrize(
    "requested, number",
    [(RequestedVersion(RequestedKind.EXACT, Version(1), "+1"), 1), (NO_VERSION_REQUESTED, 0)],
    ids=["requested", "default"],
)
def test_chef_with_the_object(requested: RequestedVersion, number: int) -> None:
    response = refused("chef", Version(1), requested=requested)

    version_object = (
        f'{{"min_version":"0","max_version":"10","request_version":"{number}","response_version":"{number}"}}'
    )
    assert (response.status, response.headers) == (404, (("X-Ops-Server-API-Version", version_object), JSON))
    assert response.body == b'{"error":["This operation does not exist in the requested API version."]}'
    assert refused("chef", Version(1), 400).status == 400


@pytest.mark.parametrize(
    "path, plain",
    [
        ("/v1/nodes/x/vifs", "/v1/nodes/x/vifs"),
        ("/v1/nodes/x/vifs.json", "/v1/nodes/x/vifs"),
        ("/v1/nodes/x/vifs%2Ejson/", "/v1/nodes/x/vifs"),
        ("/nodes/x/vifs", "/v1/nodes/x/vifs"),
        ("//nodes/x/", "/v1//nodes/x"),
        ("/%76%31/nodes", "/v1/nodes"),
        ("/v1/nodes/100%25", "/v1/nodes/100%25"),
        ("/", "/"),
        ("/v1/", "/v1"),
    ],
)
def test_I16_paths_that_are_the_same_to_ironic_have_the_same_operations(path: str, plain: str) -> None:
    assert configured("ironic").operation_path(path) == plain


def test_cinder_and_manila_ignore_json_at_the_end_of_a_path() -> None:
    assert (
        configured("openstack", service_type="volume").operation_path("/v3/p/volumes/x/action.json")
        == "/v3/p/volumes/x/action"
    )


RULES = Operations.of(
    [
        OperationRule(("DELETE",), PathTemplate.read(path), VersionSet.read_open(">=9.0", MajorMinor()))
        for path in ("/v1/nodes/{id}", "/v2.1/servers/{id}", "/v1/clusters/{id}", "/v3/volumes/{id}")
    ]
)
BY_DIALECT = {
    "ironic": (configured("ironic"), "/v1/nodes/x", Version(1, 5)),
    "nova": (configured("nova"), "/v2.1/servers/x", Version(2, 5)),
    "senlin": (configured("senlin"), "/v1/clusters/x", Version(1, 5)),
    "cinder": (configured("openstack", service_type="volume"), "/v3/volumes/x", Version(3, 5)),
}


def decided(name: str, method: str, query: str, *, suffix: str = "") -> str:
    """What happens to a request without a version, where DELETE exists only from 9.0 on."""
    dialect, path, version = BY_DIALECT[name]
    serves = Advertisement(VersionSet.between(version, version.step(9)))
    fleet = snapshot({"a": serves}, dialect=dialect, operations=RULES)
    head = RequestHead(method, path + suffix, query, ())
    return type(decide(fleet, head, "", {}, 0, {})).__name__


@pytest.mark.parametrize("name", BY_DIALECT)
def test_R_A17_an_operation_outside_its_versions_is_refused(name: str) -> None:
    assert decided(name, "DELETE", "") == "Refuse"
    assert decided(name, "POST", "") == "Forward"
    assert decided(name, "POST", "_methods=DELETE&method=DELETE&_method=PUT") == "Forward"


@pytest.mark.parametrize(
    "query",
    [
        *(
            "_method=DELETE",
            "_method=delete",
            "a=b&_method=DELETE&c",
            "%5Fmethod=DELETE",
            "%5fmetho%64=DELETE",
        ),
        *("_method=GET&_method=DELETE", "_method=DELETE&_method=GET", "a=b;_method=DELETE"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "PATCH"])
@pytest.mark.parametrize("name", BY_DIALECT)
def test_R_A17_a_method_in_the_query_does_not_avoid_the_rule(name: str, method: str, query: str) -> None:
    assert decided(name, method, query) == "Refuse"


@pytest.mark.parametrize("suffix", [".json", ".json/", "%2Ejson"])
@pytest.mark.parametrize("name", ["nova", "senlin"])
def test_R_A17_a_format_at_the_end_of_a_path_does_not_avoid_the_rule(name: str, suffix: str) -> None:
    """In the collection: the name of one resource matches with any suffix."""
    dialect, path, version = BY_DIALECT[name]
    collection = path.rpartition("/")[0]
    rules = [OperationRule(("GET",), PathTemplate.read(collection), VersionSet())]
    serves = Advertisement(VersionSet.between(version, version.step(9)))
    fleet = snapshot({"a": serves}, dialect=dialect, operations=Operations.of(rules))

    decision = decide(fleet, RequestHead("GET", collection + suffix, "", ()), "", {}, 0, {})

    assert type(decision).__name__ == "Refuse"
