"""Shared code of the OpenStack dialects: version headers, discovery documents, texts of errors, a base class.

Nothing here knows one service, its default or its options: each dialect chooses the functions that its
servers need. Nothing here raises on input from the network.

Which text of a request counts is decided as in microversion-parse (Nova since 14, Senlin since 2, Placement,
Ironic since 25.0), so clients get the result that such a server would give. What that text may be is
stricter: `int()` also accepts `1_0`, `+9`, blanks and digits of other scripts, and two lax readers read one
text as two versions.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import unquote

from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    DefaultKind,
    DefaultVersion,
    Dialect,
    Endpoint,
    Links,
    ProbeFault,
    RequestedKind,
    RequestedVersion,
    VersionRefusal,
)
from gateway.core.fleet.lifecycle import Line
from gateway.core.http.json_body import read_json
from gateway.core.http.message import Header, all_values, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Scheme, Version

MICROVERSION = MajorMinor()
"""The version scheme X.Y of all OpenStack microversions."""

STANDARD = "OpenStack-API-Version"
"""The version header that all services share: `compute 2.1, baremetal 1.58`."""

STANDARD_FOLDED = normalize_name(STANDARD)

REQUEST_ID = "X-Openstack-Request-Id"
"""The header of request ids that all services share. They also read a client's id in it."""

ACCEPT_JSON: tuple[Header, ...] = (("Accept", "application/json"),)

CONTENT_JSON: Header = ("Content-Type", "application/json")

_LONGEST_PAIR = 64
"""Longest minimum and maximum version together, in characters; real ones have at most 13 each."""

_BLANK = " \t"  # what HTTP calls blank; str.strip() alone would also remove U+00A0

Document: TypeAlias = dict[str, object]


class Latest(Enum):
    """Spelling by which a service means "the newest version you have"."""

    OFF = "off"
    """Spelling of the newest version: the service has none (Manila)."""
    EXACT = "exact"
    """Spelling of the newest version: `latest` only (Nova, Cinder, Placement)."""
    ANY_CASE = "any_case"
    """Spelling of the newest version: `latest`, `LATEST`, `Latest` (Ironic, Senlin, Magnum)."""


def read_standard(headers: Mapping[str, str], service_types: frozenset[str]) -> str | None:
    """The version text of the last item of `OpenStack-API-Version` that names one of `service_types`, never
    empty. Types are compared as a whole and in any case. Items without a version are ignored."""
    for line in reversed(all_values(headers, STANDARD_FOLDED)):
        for item in reversed(line.split(",")):
            words = item.split(maxsplit=1)
            if len(words) == 2 and words[0].lower() in service_types:
                # Not words[1]: a separator that HTTP does not call blank stays, and makes the text malformed.
                return item.strip()[len(words[0]) :].strip(_BLANK)
    return None


def read_legacy(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Text of a requested version: the last in the first present header of `names`; None: all are absent. It
    may be empty, which Nova refuses and Ironic (since 25.0) treats as absent."""
    for name in names:
        values = all_values(headers, name)
        if values:
            return values[-1].rpartition(",")[2].strip(_BLANK)
    return None


def parse_microversion(text: str) -> Version | None:
    """Read a version X.Y by the guideline, whose major is at least 1: to Nova, Senlin `0.9` is malformed."""
    version = MICROVERSION.parse(text)
    return version if version is not None and version[0] > 0 else None


def parse_requested(
    text: str | None, parse: Callable[[str], Version | None], latest: Latest
) -> RequestedVersion:
    """The version that `text` requests; None: the request names no version."""
    if text is None:
        return NO_VERSION_REQUESTED
    if (text.lower() if latest is Latest.ANY_CASE else text) == "latest" and latest is not Latest.OFF:
        return RequestedVersion(RequestedKind.LATEST, text=text)
    version = parse(text)
    return (
        RequestedVersion(RequestedKind.MALFORMED, text=text)
        if version is None
        else RequestedVersion(RequestedKind.EXACT, version, text)
    )


def without_json(path: str) -> str:
    """The decoded path without the `.json` at its end, which Ironic ignores (`json_ext`), and which the
    routers of Nova, Cinder and Manila take for the format of the response."""
    plain = unquote(path) if "%" in path else path
    return plain.rstrip("/").removesuffix(".json").rstrip("/")


def write_standard(service_type: str, version_text: str) -> Header:
    """The standard version header with one item, for requests and responses alike."""
    return (STANDARD, f"{service_type} {version_text}")


def write_range_headers(names: tuple[str, str], offered: VersionSet) -> tuple[Header, Header]:
    """The response headers of minimum and maximum, `names` in that order, with the offer."""
    lowest, highest = names
    return (lowest, MICROVERSION.format(offered.lowest)), (highest, MICROVERSION.format(offered.highest))


def read_range(lowest: str, highest: str) -> Advertisement | None:
    """The advertisement of a minimum and a maximum; None unless both are versions of one major, in order."""
    # What is too long for a version must not stay in the cache: a document may hold 256 KiB of it.
    return _read_range(lowest, highest) if len(lowest) + len(highest) <= _LONGEST_PAIR else None


@lru_cache(maxsize=256)  # every response of a fleet carries one of the same few pairs
def _read_range(lowest: str, highest: str) -> Advertisement | None:
    low, high = MICROVERSION.parse(lowest), MICROVERSION.parse(highest)
    if low is None or high is None or low.major != high.major or low > high:
        return None
    return Advertisement(VersionSet.between(low, high))


def refusal_in_body(endpoint: Endpoint, status: int) -> VersionRefusal:
    """Whether a backend's response refuses the version: after a 406 only its body can say."""
    return VersionRefusal.READ_BODY if status == 406 and endpoint.negotiated else VersionRefusal.NO


def load_document(body: bytes) -> Document | None:
    """The JSON object in a message's `body`; None for anything else, or outside the limits of `read_json`."""
    document: object = read_json(body)
    return document if isinstance(document, dict) else None


def dump_document(document: Document, links: Links) -> bytes | None:
    """The discovery document as the servers write it, with every `href` as a link that the client can follow.
    None: it holds NaN or infinity."""
    for entry in _objects_below(document):
        href = entry.get("href")
        if isinstance(href, str):
            entry["href"] = links.rewrite(href)
    try:
        return json.dumps(document, allow_nan=False).encode("ascii")
    except ValueError:
        return None


def version_entries(document: Document) -> list[Document] | None:
    """The versions in a discovery document: the list `versions`, or the one under `version`; None: none."""
    versions, version = document.get("versions"), document.get("version")
    if isinstance(versions, list):
        return objects(versions)
    return [version] if isinstance(version, dict) else None


def objects(listed: object) -> list[Document] | None:
    """The elements of a JSON list that holds nothing but objects; None for anything else."""
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return None
    return listed


def read_range_values(lowest: object, highest: object) -> Advertisement | None:
    """The advertisement of a minimum and a maximum from a document, which may be anything; None: no range."""
    return read_range(lowest, highest) if isinstance(lowest, str) and isinstance(highest, str) else None


RANGE_KEYS = ("min_version", "max_version", "version")
"""Keys of versions in documents of the family: the minimum, and two spellings of the maximum."""


def write_ranges(document: Document, offered: VersionSet) -> bool:
    """Replace every range in `document` by the offer; in place. False: a place of a version has a value that
    clients might misread. An empty text (Nova's v2.0) and versions of another major stay."""
    lowest, highest = offered.lowest, offered.highest
    texts = {key: MICROVERSION.format(lowest if key == "min_version" else highest) for key in RANGE_KEYS}
    for entry in _objects_below(document):
        for key in RANGE_KEYS:
            value = entry.get(key)
            if value is None or value == "" or (key == "version" and isinstance(value, dict)):
                continue
            present = MICROVERSION.parse(value) if isinstance(value, str) else None
            if present is None:
                return False
            if present.major == highest.major:
                entry[key] = texts[key]
    return True


def _objects_below(document: Document) -> list[Document]:
    """A JSON document and every object in it. A loop, because recursion has a limit."""
    found: list[Document] = []
    pending: list[object] = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found.append(node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


UNSUPPORTED = "Version {version} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
"""Error text for a version outside the offer, in the guideline, Nova, Cinder and Manila."""

UNSUPPORTED_MINOR = (
    "Version {version} was requested but the minor version is not supported by this service. "
    "The supported version range is: [{lowest}, {highest}]."
)
"""Error text for a version outside the offer, in Ironic and Magnum."""

MALFORMED = "API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum."
"""Error text for a text that is not a version, in the guideline, Nova, Cinder and Manila."""

BAD_REQUEST = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
NOT_FOUND = "The resource could not be found."
"""Text that WebOb, the library below most services, writes with a 400 and a 404."""


def refusal_text(template: str, version: Version, offered: VersionSet) -> str:
    """The text of a refusal: `template` filled with the refused version and the range on offer."""
    refused, lowest, highest = map(MICROVERSION.format, (version, offered.lowest, offered.highest))
    return template.format(version=refused, lowest=lowest, highest=highest)


NO_RANGE_IN_HEADERS = ProbeFault(
    "range", "the version headers do not make a range from a minimum up to a maximum"
)


def is_json(headers: Mapping[str, str]) -> bool:
    """Whether a response to a probe is JSON, as all of these APIs answer one."""
    kinds = {line.partition(";")[0].strip().lower() for line in all_values(headers, "content-type")}
    return kinds == {"application/json"}


def release_table(names_by_highest: Mapping[str, str]) -> Mapping[str, Version]:
    """Highest version by release name, from `{"1.82": "21.4 antelope 2023.1"}`, for ceilings. Raises
    `VersionTextError` and `ValueError` for mistakes in a dialect's own table."""
    table: dict[str, Version] = {}
    for highest, names in names_by_highest.items():
        for name in names.split():
            if name in table:
                raise ValueError(f"the release {name!r} occurs twice in a release table")
            table[name] = MICROVERSION.require(highest)
    return MappingProxyType(table)


class MicroversionDialect(Dialect):
    """Abstract base class of all OpenStack dialects."""

    scheme: Scheme = MICROVERSION
    release_order = tuple(  # of the last one no version is known yet
        "kilo liberty mitaka newton ocata pike queens rocky stein train ussuri victoria wallaby "  # noqa: SIM905
        "xena yoga zed 2023.1 2023.2 2024.1 2024.2 2025.1 2025.2 2026.1 2026.2 2027.1".split()
    )
    skip_level: tuple[str, ...] = ("2023.1", "2024.1", "2025.1", "2026.1", "2027.1")  # SLURP releases
    default_version = DefaultVersion(DefaultKind.MINIMUM)
    method_parameter: str | None = "_method"

    def operation_path(self, path: str) -> str:
        """The path of an operation without `.json`. `%` stays escaped, because the look-up decodes paths."""
        return without_json(path).replace("%", "%25") or "/"

    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        """The request headers for backends with the version, at negotiated endpoints."""
        return self.version_headers(version) if endpoint.negotiated else ()

    def announce_sunset(self, body: bytes, sunset: Line) -> bytes:
        """The document with `next_min_version` and `not_before` beside each minimum, by the guideline."""
        document = load_document(body) or {}
        for entry in _objects_below(document):
            text = entry.get("min_version")
            lowest = self.scheme.parse(text) if isinstance(text, str) else None
            if lowest is not None and lowest.major == sunset.below.major and lowest < sunset.below:
                entry.setdefault("next_min_version", self.scheme.format(sunset.below))
                entry.setdefault("not_before", sunset.day.isoformat())
        return json.dumps(document).encode("ascii")

    @abstractmethod
    def version_headers(self, version: Version) -> tuple[Header, ...]:
        """The request headers with a version, each in the form that the service's servers read."""
