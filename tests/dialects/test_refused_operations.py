"""What each dialect says to an operation outside its versions, byte for byte as its own servers do.

Recorded from Senlin 5.0.1 and 16.0.0, Nova 34.0.0, Ironic 39.0.0 and Placement 16.0.0.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.dialect import ASK_SILENT, Absence, Ask, AskKind, Bounds, Dialect
from gateway.core.message import Reply
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover

JSON = ("Content-Type", "application/json")


def spoken(name: str, **options: Any) -> Dialect:
    kind = discover()[name]
    dialect: Dialect = kind.configured(kind.Options(**options))
    return dialect


def refused(
    name: str, version: Version, status: int | None = None, ask: Ask | None = None, **options: Any
) -> Reply:
    dialect = spoken(name, **options)
    text = dialect.scheme.format(version)
    bounds = Bounds(VersionSet.between(version.step(-1), version.step(9)))
    absence = Absence(version, ask or Ask(AskKind.EXACT, version, text), bounds, status)
    return dialect.refuse_operation(absence, dialect.place("GET", "/v2.1/os-networks", ""))


def test_S6_trap_11_senlin() -> None:
    reply = refused("senlin", Version(1, 3))

    assert (reply.status, reply.headers) == (400, (JSON,))
    assert reply.body == (
        b'{"code": 400, "error": {"code": 400, "message": "API version \'1.3\' is not supported on this '
        b'method.", "type": "MethodVersionNotFound"}, "explanation": "The server could not comply with the '
        b'request since it is either malformed or otherwise incorrect.", "title": "Bad Request"}'
    )
    assert len(reply.body) == 275, "the length that real servers send"
    assert refused("senlin", Version(1, 3), 400) == reply


def test_SENLIN_2_senlin_as_its_guide_has_it() -> None:
    reply = refused("senlin", Version(1, 3), 404)

    body = json.loads(reply.body)
    assert (reply.status, body["code"], body["title"]) == (404, 404, "Not Found")
    assert body["error"]["type"] == "MethodVersionNotFound"


def test_N11_nova() -> None:
    reply = refused("nova", Version(2, 50))

    assert (reply.status, reply.headers) == (
        404,
        (
            ("OpenStack-API-Version", "compute 2.50"),
            ("X-OpenStack-Nova-API-Version", "2.50"),
            ("Content-Type", "application/json; charset=UTF-8"),
        ),
    )
    assert reply.body == b'{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}'
    assert set(json.loads(refused("nova", Version(2, 50), 400).body)) == {"badRequest"}


@pytest.mark.parametrize("status", [None, 404, 400])
def test_I16_ironic(status: int | None) -> None:
    reply = refused("ironic", Version(1, 5), status)

    own = "X-OpenStack-Ironic-API"
    lines = ((f"{own}-Minimum-Version", "1.4"), (f"{own}-Maximum-Version", "1.14"), (f"{own}-Version", "1.5"))
    assert (reply.status, reply.headers) == (status or 404, (*lines, JSON))
    assert reply.body == (
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
    reply = refused("openstack", Version(1, 5), **options)

    assert reply.status == 404
    assert {(name.lower(), value) for name, value in reply.headers} == {
        *headers,
        ("content-type", "application/json"),
    }
    assert json.loads(reply.body) == body
    assert refused("openstack", Version(1, 5), 400, **options).status == 400


@pytest.mark.parametrize(
    "ask, number", [(Ask(AskKind.EXACT, Version(1), "+1"), 1), (ASK_SILENT, 0)], ids=["asked", "silent"]
)
def test_chef_with_the_object(ask: Ask, number: int) -> None:
    reply = refused("chef", Version(1), ask=ask)

    told = (
        f'{{"min_version":"0","max_version":"10","request_version":"{number}","response_version":"{number}"}}'
    )
    assert (reply.status, reply.headers) == (404, (("X-Ops-Server-API-Version", told), JSON))
    assert reply.body == b'{"error":["This operation does not exist in the requested API version."]}'
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
def test_I16_whatever_ironic_takes_for_the_same_path_is_held_to_the_same(path: str, plain: str) -> None:
    assert spoken("ironic").plain_path(path) == plain


def test_the_routers_of_cinder_and_manila_take_json_for_the_form_of_the_reply() -> None:
    assert (
        spoken("openstack", service_type="volume").plain_path("/v3/p/volumes/x/action.json")
        == "/v3/p/volumes/x/action"
    )
