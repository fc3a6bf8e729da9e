"""`default_version: refused`: every dialect accepts it and has a refusal for a request without a version.

The response is the one to a malformed version whose text is empty. None of it depends on a backend.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.fleet.snapshot import Snapshot
from gateway.settings import load
from tests.core.builders import explained as explained_request
from tests.scenarios.fakes import Head


def explained(dialect: str, versions: str, target: str, options: str = "{}") -> Any:
    """A request without a version, where the one backend declares `versions`."""
    text = (
        f"listen: 127.0.0.1:8080\nservices:\n  api:\n    dialect: {dialect}\n    default_version: refused\n"
        f"    backends: [{{url: 'http://127.0.0.1:6385', versions: '{versions}'}}]\n"
        + ("" if options == "{}" else f"    {dialect}: {options}\n")
    )
    settings = load(text, filename="x.yaml", environ={}).require()
    return explained_request(Snapshot.configured(settings.services, now=0.0), "GET", target, [])


def response_to(dialect: str, versions: str, target: str, options: str = "{}") -> Head:
    explanation = explained(dialect, versions, target, options)
    response = explanation.response
    assert (explanation.decision, response is not None) == ("refuse", True)
    assert response is not None
    return Head(f"HTTP/1.1 {response.status}", response.headers, response.body.encode())


def test_custom_refuses_with_the_status_and_body_of_a_malformed_version() -> None:
    options = "{places: [{query: v}], scheme: date, refusal: {malformed_status: 404}}"
    response = response_to("custom", "2023-11-28, 2024-01-01", "/a", options)

    assert (response.status, response.get("Content-Type")) == (404, "application/problem+json")
    assert response.body == (
        b'{"type": "about:blank", "title": "Not Found", "status": 404, '
        b'"detail": "A version must be named. Supported: 2023-11-28, 2024-01-01.", '
        b'"minimum": "2023-11-28", "maximum": "2024-01-01", "versions": ["2023-11-28", "2024-01-01"]}'
    )


def test_ironic_refuses_as_its_servers_refuse_a_malformed_version() -> None:
    response = response_to("ironic", "1.1-1.90", "/v1/nodes")
    error = json.loads(json.loads(response.body)["error_message"])

    assert response.status == 406
    assert error["description"] == "Invalid value for X-OpenStack-Ironic-API-Version header"
    assert response.versions == {}, "a malformed version gets no range"


NO_MICROVERSION = "API Version String  is of invalid format. Must be of format MajorNum.MinorNum."


@pytest.mark.parametrize(
    "dialect, versions, target, status, text",
    [
        ("nova", "2.1-2.90", "/v2.1/servers", 400, NO_MICROVERSION),
        ("senlin", "1.0-1.14", "/v1/clusters", 400, "API Version String '' is of invalid format."),
        ("openstack", "3.0-3.70", "/v3/volumes", 400, NO_MICROVERSION),
        ("chef", "0-1", "/users", 406, "Specified version -1 not supported"),
    ],
)
def test_every_other_dialect_has_a_refusal_for_it(
    dialect: str, versions: str, target: str, status: int, text: str
) -> None:
    options = "{service_type: volume}" if dialect == "openstack" else "{}"
    response = response_to(dialect, versions, target, options)

    assert response.status == status
    assert text in response.body.decode()


def test_the_endpoints_without_a_version_need_none() -> None:
    assert explained("ironic", "1.1-1.90", "/").decision == "forward"
    assert explained("custom", "1-5", "/health", "{unversioned: [/health]}").decision == "forward"
