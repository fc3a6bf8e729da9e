"""The service from which a response to a probe comes, as far as the response names it.

Discovery documents of the family look alike: a Cinder document can be read with the profile of Placement, and
then clients and servers use headers that the gateway does not touch. So a document that names another service
is a failed probe, and `init` takes the service type from the document. Nothing here is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, final

from gateway.core.dialect import ProbeFault, ProbeResponse
from gateway.core.http.message import all_values, normalize_name
from gateway.dialects.openstack.microversion import (
    STANDARD,
    STANDARD_FOLDED,
    Document,
    is_json,
    load_document,
    objects,
    read_range_values,
    version_entries,
)

OWN_DIALECTS: Final[Mapping[str, str]] = {"compute": "nova", "baremetal": "ironic", "clustering": "senlin"}
"""Service types that have a dialect of their own, with its name."""

_MEDIA_NAMES: Final[Mapping[str, str]] = {
    "volume": "volume",
    "share": "shared-file-system",
    "compute": "compute",
    "clustering": "clustering",
    "ironic": "baremetal",
    "magnum": "container-infra",
    "zun": "container",
    "key-manager": "key-manager",
    "identity": "identity",
}
"""Service types by the name in the media type `application/vnd.openstack.NAME`."""
_API_NAMES: Final[Mapping[str, str]] = {
    "OpenStack Magnum API": "container-infra",
    "OpenStack Ironic API": "baremetal",
}
"""Service types by the `name` in a discovery document."""
_OWN_HEADERS: Final[Mapping[str, str]] = {
    "x-openstack-manila-api-": "shared-file-system",
    "x-openstack-ironic-inspector-api-": "baremetal-introspection",
    "x-openstack-ironic-api-": "baremetal",
    "x-openstack-nova-api-": "compute",
}
"""Service types by the beginning of a version header's normalized name."""
_STANDARD_HEADERS: Final = (
    STANDARD_FOLDED,
    normalize_name("OpenStack-API-Minimum-Version"),
    normalize_name("OpenStack-API-Maximum-Version"),
)
_WIRE_NAMES: Final[Mapping[str, str]] = {
    "container-infrastructure": "container-infra",
    "container-infrastructure-management": "container-infra",
}
"""Other names of a service type in the standard version header."""
_ITEM: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,62}) +[0-9]{1,6}\.[0-9]{1,6}", re.ASCII)
_MEDIA_TYPE: Final = re.compile(
    r"application/vnd\.openstack\.([a-z]+(?:-[a-z]+)*?)(?:-v[0-9.]+)?(?:[.+;]|\Z)", re.ASCII
)


@final
class Origin(NamedTuple):
    """The service that a response to a probe names, and the place where it does."""

    service_type: str
    evidence: str


def origin(headers: Mapping[str, str], document: Document) -> Origin | None:
    """The service that a probe's response names, in headers before the document; None: none, or several."""
    for named in (_in_standard_headers, _in_own_headers):
        found = {*named(headers)}
        if found:
            return found.pop() if len(found) == 1 else None
    found = {*_in_media_types(document)}
    if found:
        return found.pop() if len(found) == 1 else None
    name = document.get("name")
    service_type = _API_NAMES.get(name) if isinstance(name, str) else None
    return None if service_type is None else Origin(service_type, "the name in the document")


def probed_document(
    answer: ProbeResponse, own: frozenset[str], *, statuses: tuple[int, ...] = (200,), expected: str = "200"
) -> Document | ProbeFault:
    """The document in the response to a probe; empty: it is no object. A fault for another status, for
    anything but JSON, and for a server that names a service outside `own`."""
    if answer.status not in statuses:
        return ProbeFault("status", f"answered {answer.status} where {expected} was expected")
    if not is_json(answer.headers):
        # An error page, for example: it says nothing about the server, whatever headers it has.
        return ProbeFault("document", "answered something else than JSON")
    document = load_document(answer.body) or {}
    found = origin(answer.headers, document)
    if found is None or found.service_type in own:
        return document
    dialect = OWN_DIALECTS.get(found.service_type)
    mend = f"the dialect {dialect}" if dialect else f"service_type: {found.service_type}"
    return ProbeFault(
        "document",
        f"this is the service {found.service_type}, according to {found.evidence}: configure {mend}",
    )


def is_cinder(document: Document) -> bool:
    """Whether an entry v3.0 has a range of major 3 in `min_version` and `version`: only Cinder's has."""
    for entry in version_entries(document) or ():
        found = read_range_values(entry.get("min_version"), entry.get("version"))
        if found is not None and entry.get("id") == "v3.0":
            return found.versions.lowest[0] == 3 and "max_version" not in entry
    return False


def _in_standard_headers(headers: Mapping[str, str]) -> Iterator[Origin]:
    for name in _STANDARD_HEADERS:
        for line in all_values(headers, name):
            found = _ITEM.fullmatch(line.strip(" \t"))
            if found is not None:
                word = found[1].lower()
                yield Origin(_WIRE_NAMES.get(word, word), f"its header {STANDARD}")


def _in_own_headers(headers: Mapping[str, str]) -> Iterator[Origin]:
    listed = ",".join(all_values(headers, "vary")).split(",")
    for name in (*headers, *(each.strip(" \t") for each in listed)):
        service_type = _service_type_of(name)
        if service_type is not None:
            yield Origin(service_type, "its version header")


@lru_cache(maxsize=1024)
def _service_type_of(name: str) -> str | None:
    """The service type whose version header has such a name. Servers send the same names in each response."""
    folded = normalize_name(name)
    types = (service_type for beginning, service_type in _OWN_HEADERS.items() if folded.startswith(beginning))
    return next(types, None)


def _in_media_types(document: Document) -> Iterator[Origin]:
    entries = version_entries(document) or [document]
    for entry in entries:
        for key in ("media-types", "media_types"):
            for media_type in objects(entry.get(key)) or ():
                text = media_type.get("type")
                found = _MEDIA_TYPE.match(text) if isinstance(text, str) else None
                if found is not None and found[1] in _MEDIA_NAMES:
                    yield Origin(_MEDIA_NAMES[found[1]], "its media type")
