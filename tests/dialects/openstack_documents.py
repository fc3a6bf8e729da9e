"""Discovery documents at `/` as servers of OpenStack write them, cut to what tells the services apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway.core.dialect import ProbeResponse
from gateway.core.http.message import Header, as_mapping, normalize_name


class Answer(NamedTuple):
    """The response to `GET /`."""

    status: int
    document: Mapping[str, Any]
    lines: tuple[Header, ...] = ()

    @property
    def body(self) -> bytes:
        return json.dumps(self.document).encode()

    @property
    def response(self) -> ProbeResponse:
        lines = (("Content-Type", "application/json"), *self.lines)
        return ProbeResponse(
            self.status, as_mapping((normalize_name(name), value) for name, value in lines), self.body
        )


def entry(name: str, lowest: str, highest: str, media_type: str = "", **more: object) -> dict[str, object]:
    links = [{"rel": "self", "href": "http://127.0.0.1/"}]
    found: dict[str, object] = {"id": name, "status": "CURRENT", "links": links, "min_version": lowest}
    if media_type:
        kind = f"application/vnd.openstack.{media_type}"
        found["media-types"] = [{"base": "application/json", "type": kind}]
    return {**found, "version": highest, **more}


_INSPECTOR: Final = "X-OpenStack-Ironic-Inspector-API-{}-Version"

CINDER: Final = Answer(
    300,
    {"versions": [entry("v3.0", "3.0", "3.71", "volume+json;version=3")]},
    (("OpenStack-API-Version", "volume 3.0"), ("Vary", "OpenStack-API-Version")),
)
OLD_CINDER: Final = Answer(
    300,
    {
        "versions": [
            entry("v2.0", "", "", "volume+json;version=2"),
            entry("v3.0", "3.0", "3.50", "volume+json;version=3"),
        ]
    },
)
MANILA: Final = Answer(
    300,
    {
        "versions": [
            entry("v1.0", "", "", "share+json;version=1"),
            entry("v2.0", "2.0", "2.91", "share+json;version=1"),
        ]
    },
)
PLACEMENT: Final = Answer(
    200,
    {
        "versions": [
            {"id": "v1.0", "min_version": "1.0", "max_version": "1.39", "status": "CURRENT", "links": []}
        ]
    },
    (("openstack-api-version", "placement 1.0"), ("vary", "openstack-api-version")),
)
MAGNUM: Final = Answer(
    200,
    {
        "name": "OpenStack Magnum API",
        "versions": [
            {"id": "v1", "min_version": "1.1", "max_version": "1.11", "status": "CURRENT", "links": []}
        ],
    },
)
INSPECTOR: Final = Answer(
    200,
    {
        "versions": [
            {"id": "1.18", "links": [{"rel": "self", "href": "http://127.0.0.1/v1"}], "status": "CURRENT"}
        ]
    },
    ((_INSPECTOR.format("Minimum"), "1.0"), (_INSPECTOR.format("Maximum"), "1.18")),
)
NAMED: Final[Mapping[str, Answer]] = {
    "volume": OLD_CINDER,
    "shared-file-system": MANILA,
    "placement": PLACEMENT,
    "container-infra": MAGNUM,
    "baremetal-introspection": INSPECTOR,
}
"""By service type. Each names its service in one place only: a media type, a name, or headers."""
NAMELESS: Final = Answer(200, {"versions": [entry("v1.0", "1.0", "1.3")]})
"""As Masakari, and every service that follows the guideline and no more, may answer."""
NOVA: Final = Answer(
    200,
    {"versions": [entry("v2.0", "", ""), entry("v2.1", "2.1", "2.96", "compute+json;version=2.1")]},
    (("Vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version"),),
)
