"""Inference of an unknown API's versioning from its documents and response headers, for `skewgate init`.

    documents of each server -> where versions are, how they are written, where requests carry them

Pure. What the documents do not show is left open, never guessed: `init_file` asks the operator. Texts from
servers are kept only if the configuration takes them without quotation marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, final
from urllib.parse import urlsplit

from gateway.cli.own_api_versions import (
    MOST,
    Notation,
    Steps,
    VersionField,
    notation_of,
    version_fields,
    words_of,
)
from gateway.core.dialect import ProbeResponse
from gateway.core.http.json_body import Json, read_json
from gateway.core.http.message import HEADER_NAME, normalize_name

OPENAPI: Final = "/openapi.json"
DOCUMENTS: Final = ("/versions", "/api/versions", "/version", "/")
"""Paths of discovery documents of APIs, the most informative first."""
PATHS: Final = ("/", "/versions", "/version", "/api/versions", OPENAPI)
"""Paths that `init` requests from each server, in order."""

MOST_OTHERS: Final = 4
"""Maximum number of further versioned paths that are named."""

_STATUSES: Final = frozenset({200, 300})
_SEGMENT: Final = re.compile(
    r"v[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}|v[0-9]{1,4}(?:alpha|beta)[0-9]{1,4}|[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?",
    re.ASCII,
)
"""Pattern of a path segment that is a version."""
_PLAIN_PATH: Final = re.compile(r"/|(?:/[A-Za-z0-9._~-]{1,64}){1,8}", re.ASCII)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}", re.ASCII)
_OTHER_HEADERS: Final = frozenset(
    {
        *("asp", "net", "aspnet", "mvc", "mime", "runtime", "app", "application", "build", "server", "sec"),
        *("software", "release", "websocket", "git", "schema", "db", "database", "client", "deprecated"),
        *("product", "deployment", "image", "commit", "package", "drupal", "generator", "powered", "http"),
        *("tls", "content", "object", "resource", "etag", "amz", "goog", "envoy", "service", "cli", "sdk"),
        *("sunset", "browser", "php", "java", "python", "go", "node", "user", "if", "entity", "document"),
    }
)
"""Words in the name of a header whose version is not that of the API."""

Documents: TypeAlias = Mapping[str, ProbeResponse]
"""Responses of one server by path, without failed requests."""


class Evidence(NamedTuple):
    """A place, such as a JSON field or a response header, that shows which versions the servers serve."""

    where: str
    """Description, for operators, of the place that shows the versions."""
    texts: tuple[tuple[str, ...], ...]
    """Versions that each server names, as it spells them."""
    notation: Notation
    learn: Mapping[str, str | int] | None = None
    """The dialect's options `learn` with which probes read the place; None: probes cannot."""
    response: Mapping[str, str] | None = None
    """The dialect's options `reply` with which probes read the place in response headers."""
    certain: bool = True
    """Whether the versions found are the API's for sure, and not perhaps releases of the software."""
    is_range: bool = False
    """Whether the versions found are the oldest and the newest one of a range."""


class VersionLocation(NamedTuple):
    """A place where requests carry their version."""

    kind: str
    """Kind of the version's place in a request: `path`, `header` or `query`."""
    text: str
    """Name of the header or parameter, or the path prefix before the version."""
    notation: Notation | None
    """Notation of the versions in requests; None if no document shows it."""
    why: str
    """Evidence that requests carry their version in this place, as operators see it."""
    is_guess: bool = False
    """Whether the version's place in requests is a guess: its name was seen in responses only."""
    others: tuple[str, ...] = ()
    """Other path prefixes with versions below them."""


@final
@dataclass(frozen=True, slots=True)
class ApiFindings:
    """Everything that `init` inferred about an API."""

    evidence: tuple[Evidence, ...]
    """Places that show the served versions, the best first."""
    places: tuple[VersionLocation, ...]
    served: tuple[str, str] | None
    """Name and value of a response header that may name the served version."""
    unversioned: tuple[str, ...]
    """Paths of the API that exist without a version."""


class _Document(NamedTuple):
    """A usable response to `init`, with its server and path."""

    server: int
    path: str
    response: ProbeResponse
    json: Json


def infer(hosts: Sequence[str], seen: Sequence[Documents]) -> ApiFindings:
    """Infer the versioning of an API from its servers' responses. `hosts`: HOST:PORT of each server."""
    documents = [
        _Document(server, path, responses[path], read_json(responses[path].body))
        for path in (*DOCUMENTS, OPENAPI)
        for server, responses in enumerate(seen)
        if path in responses and responses[path].status in _STATUSES
    ]
    described = [each for each in documents if each.path == OPENAPI and isinstance(each.json, dict)]
    others = [each for each in documents if each.path != OPENAPI]
    count = len(seen)
    headers = list(_version_headers(documents))
    served = [each for each in headers if each.role == "served"]
    parameters = list(_parameters(described, count))
    of_paths = _of_paths(_paths(described, others, frozenset(hosts)), count)
    in_documents = list(_in_documents(others, count))
    evidence = (
        *(each for each in in_documents if each.certain),
        *_in_headers(headers, count),
        *(each for _, found in [*parameters, *of_paths] for each in found),
        *_served(served, count),
        *(each for each in in_documents if not each.certain),
        *_title(described, count),
    )
    places = (*(place for place, _ in [*parameters, *of_paths]), *_header_places(served, documents))
    named = (served[0].name, served[0].text) if served else None
    return ApiFindings(evidence, places, named, _unversioned(described, others))


def _evidence(
    where: str,
    texts: Mapping[int, Iterable[str]],
    count: int,
    *,
    certain: bool = True,
    is_range: bool = False,
) -> Iterator[Evidence]:
    """Yield a place as evidence of the API's versions if all servers' texts there have one notation."""
    stated = tuple(tuple(dict.fromkeys(texts.get(server, ()))) for server in range(count))
    notation = notation_of([text for each in stated for text in each])
    if notation is not None and sum(map(len, stated)) <= MOST:
        yield Evidence(where, stated, notation, certain=certain, is_range=is_range)


def _in_documents(documents: Sequence[_Document], count: int) -> Iterator[Evidence]:
    """Find lists, ranges and single versions in documents; the same field of all servers is one evidence."""
    found: dict[tuple[str, str, tuple[Steps, ...]], list[tuple[_Document, VersionField]]] = {}
    for document in documents:
        for field in version_fields(document.json, named="version" in document.path):
            found.setdefault((field.kind, document.path, field.paths), []).append((document, field))
    for kind in ("list", "range", "single"):
        for (of_kind, path, steps), hits in found.items():
            if of_kind != kind:
                continue
            written = [_json_path(each) for each in steps]
            where = f"{' and '.join(written)} of GET {path}"
            texts = {document.server: field.texts for document, field in hits}
            for each in _evidence(where, texts, count, certain=kind != "single", is_range=kind == "range"):
                yield each._replace(learn=_learn(kind, written, hits[0][0], each.notation))


def _learn(
    kind: str, written: list[str], document: _Document, notation: Notation
) -> dict[str, str | int] | None:
    """Return the options `learn` for a field. A range of dates or X.Y.Z has none: its members are unknown."""
    content_type = ",".join(_values(document.response, "content-type")).partition(";")[0].strip().lower()
    if kind == "single" or (kind == "range" and not notation.scheme.contiguous):
        return None
    if re.fullmatch(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}", content_type, re.ASCII) is None:
        return None
    options: dict[str, str | int] = {"path": document.path, **_named(written, notation)}
    if document.response.status != 200:
        options["statuses"] = document.response.status
    if content_type != "application/json":
        options["content_type"] = content_type
    return options


def _named(places: Sequence[str], notation: Notation) -> dict[str, str]:
    """Return the dialect's options that name a list of versions, or both ends of a range."""
    keys = ("list",) if len(places) == 1 else ("minimum", "maximum")
    spelling = {"spelling": notation.spelling} if notation.before else {}
    return dict(zip(keys, places, strict=True)) | spelling


def _json_path(steps: Steps) -> str:
    return "$" + "".join("[*]" if step is None else f".{step}" for step in steps)


class _VersionHeader(NamedTuple):
    role: str
    """Role of a header that names versions: `minimum`, `maximum`, `list` or `served`."""
    name: str
    text: str
    server: int
    path: str


def _version_headers(documents: Sequence[_Document]) -> Iterator[_VersionHeader]:
    for document in documents:
        for name in dict.fromkeys(document.response.headers):
            values = _values(document.response, name)
            role = _role(name)
            if role is not None and len(set(values)) == 1 and HEADER_NAME.fullmatch(name):
                yield _VersionHeader(role, name, values[0].strip(), document.server, document.path)


def _role(name: str) -> str | None:
    """Return the role of a response header by its name; None: it holds no version of the API."""
    words = set(words_of(name))
    if not words & {"version", "versions"} or words & _OTHER_HEADERS:
        return None
    for role, known in (
        ("minimum", {"min", "minimum", "oldest", "lowest"}),
        ("maximum", {"max", "maximum", "newest", "highest", "latest"}),
        ("list", {"versions", "supported", "available"}),
    ):
        if words & known:
            return role
    return "served"


def _values(response: ProbeResponse, name: str) -> tuple[str, ...]:
    """Return the values of all lines of a header, whatever its letter case."""
    items = response.headers.items()
    return tuple(value for key, value in items if normalize_name(key) == normalize_name(name))


def _in_headers(headers: Sequence[_VersionHeader], count: int) -> Iterator[Evidence]:
    """Find lists of versions and both ends of ranges in the response headers of one path."""
    by_path: dict[str, dict[str, dict[int, _VersionHeader]]] = {}
    for each in headers:
        by_path.setdefault(each.path, {}).setdefault(each.role, {}).setdefault(each.server, each)
    for path, roles in by_path.items():
        lists, lows, highs = (roles.get(role, {}) for role in ("list", "minimum", "maximum"))
        stated: dict[tuple[str, ...], dict[int, list[str]]] = {}
        for server, each in lists.items():
            stated.setdefault((each.name,), {})[server] = [part.strip() for part in each.text.split(",")]
        for server, low in lows.items():
            if (high := highs.get(server)) is not None:
                stated.setdefault((low.name, high.name), {})[server] = [low.text, high.text]
        for names, texts in stated.items():
            is_range = len(names) == 2
            where = f"the response header{'s' if is_range else ''} {' and '.join(names)} of GET {path}"
            for found in _evidence(where, texts, count, is_range=is_range):
                if not is_range or found.notation.scheme.contiguous:
                    yield found._replace(learn={"path": path}, response=_named(names, found.notation))


def _served(headers: Sequence[_VersionHeader], count: int) -> Iterator[Evidence]:
    """Find single served versions in response headers. Other versions may be served, too."""
    texts: dict[str, dict[int, list[str]]] = {}
    for each in headers:
        texts.setdefault(each.name, {}).setdefault(each.server, []).append(each.text)
    for name, stated in texts.items():
        yield from _evidence(f"the response header {name}", stated, count, certain=False)


def _header_places(
    headers: Sequence[_VersionHeader], documents: Sequence[_Document]
) -> Iterator[VersionLocation]:
    """Derive request headers: those in `Vary`, and those named like a response header with a version."""
    for document in documents:
        for line in _values(document.response, "vary"):
            for name in map(str.strip, line.split(",")):
                if HEADER_NAME.fullmatch(name) and _role(name) == "served":
                    yield VersionLocation("header", name, None, f"`Vary: {name}` of a response")
    for each in headers:
        asked = re.sub("-(selected|served|used)$", "", each.name, flags=re.IGNORECASE)
        why = f"the response header {each.name}"
        yield VersionLocation("header", asked, notation_of([each.text]), why, is_guess=True)


def _members(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()


def _title(described: Sequence[_Document], count: int) -> Iterator[Evidence]:
    texts = {
        each.server: [text]
        for each in described
        if isinstance(text := _members(_members(each.json).get("info")).get("version"), str)
    }
    yield from _evidence(f"info.version of GET {OPENAPI}", texts, count, certain=False)


def _parameters(
    described: Sequence[_Document], count: int
) -> Iterator[tuple[VersionLocation, list[Evidence]]]:
    """Find headers and query parameters with a version in OpenAPI documents, and their possible values."""
    found: dict[tuple[str, str], dict[int, list[str]]] = {}
    for document in described:
        for parameter in _all_parameters(_members(document.json)):
            kind, name = parameter.get("in"), parameter.get("name")
            if kind not in {"header", "query"} or not isinstance(name, str) or not isinstance(kind, str):
                continue
            fits = HEADER_NAME.fullmatch(name) if kind == "header" else _PLAIN_NAME.fullmatch(name)
            if fits and _role(name) == "served":
                schema = _members(parameter.get("schema")) or parameter
                values = [value for value in _items(schema.get("enum")) if isinstance(value, str)]
                found.setdefault((kind, name), {}).setdefault(document.server, []).extend(values)
    for (kind, name), texts in found.items():
        where = f"the values of the {kind} parameter {name} in GET {OPENAPI}"
        evidence = list(_evidence(where, texts, count))
        notation = evidence[0].notation if evidence else None
        yield VersionLocation(kind, name, notation, f"the description in GET {OPENAPI}"), evidence


def _all_parameters(document: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    yield from map(_members, _members(_members(document.get("components")).get("parameters")).values())
    yield from map(_members, _members(document.get("parameters")).values())
    for path in _members(document.get("paths")).values():
        for holder in (path, *_members(path).values()):
            yield from map(_members, _items(_members(holder).get("parameters")))


class _VersionedPath(NamedTuple):
    server: int
    prefix: str
    segment: str
    where: str


def _paths(
    described: Sequence[_Document], others: Sequence[_Document], hosts: frozenset[str]
) -> list[_VersionedPath]:
    """Find versioned paths in documents. Links to other hosts are ignored, except for OpenAPI's `servers`."""
    found = []
    for document in described:
        content = _members(document.json)
        base = _base(content)
        for path in _members(content.get("paths")):
            found += _versioned(document.server, base + path, f"the paths in GET {OPENAPI}")
        for path in _servers(content):
            found += _versioned(document.server, path, f"the servers in GET {OPENAPI}")
    for document in others:
        for text in _strings(document.json):
            path = _path_of(text, hosts)
            found += _versioned(document.server, path, f"links in GET {document.path}")
    return found


def _base(described: Mapping[str, Json]) -> str:
    """Return the prefix of every path in an OpenAPI document."""
    if servers := _servers(described):
        return servers[0].rstrip("/")
    base = described.get("basePath")
    return base.rstrip("/") if isinstance(base, str) and base.startswith("/") else ""


def _servers(described: Mapping[str, Json]) -> list[str]:
    """Return the path of each server URL in an OpenAPI document; empty for one without a path."""
    urls = [_members(server).get("url") for server in _items(described.get("servers"))]
    return [_path_of(url, None) if isinstance(url, str) else "" for url in urls]


def _path_of(url: str, hosts: frozenset[str] | None) -> str:
    """Return the path of a URL or a path reference; empty if it does not belong to this API."""
    if url.startswith("/") and not url.startswith("//"):
        return url.partition("?")[0]
    if not url.startswith(("http://", "https://")):
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.path if hosts is None or parts.netloc in hosts else ""


def _strings(document: Json) -> Iterator[str]:
    left = [document]
    while left:
        node = left.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            left += [*reversed(node.values()), *reversed(node)]
        elif isinstance(node, list):
            left += reversed(node)


def _versioned(server: int, path: str, where: str) -> list[_VersionedPath]:
    segments = path.split("/")
    for at, segment in enumerate(segments[1:5], 1):
        prefix = "/".join(segments[:at])
        if _SEGMENT.fullmatch(segment) and (not prefix or _PLAIN_PATH.fullmatch(prefix)):
            return [_VersionedPath(server, prefix, segment, where)]
    return []


def _of_paths(paths: Sequence[_VersionedPath], count: int) -> list[tuple[VersionLocation, list[Evidence]]]:
    """Return the most common prefix of versioned paths with the versions below it; empty without any."""
    if not paths:
        return []
    [(prefix, _)] = Counter(each.prefix for each in paths).most_common(1)
    common = [each for each in paths if each.prefix == prefix]
    notation = notation_of([each.segment for each in common])
    if notation is None:
        return []
    texts: dict[int, list[str]] = {}
    for each in common:
        texts.setdefault(each.server, []).append(each.segment)
    others = [each for each in dict.fromkeys(path.prefix for path in paths) if each != prefix]
    shown = tuple(each or "/" for each in others[:MOST_OTHERS])
    where = common[0].where
    return [
        (VersionLocation("path", prefix, notation, where, others=shown), list(_evidence(where, texts, count)))
    ]


def _unversioned(described: Sequence[_Document], others: Sequence[_Document]) -> tuple[str, ...]:
    """Return existing paths without a version, the shortest first, leaving out those below another one."""
    known = [each.path for each in (*others, *described)]
    for document in described:
        base = _base(_members(document.json))
        for path in _members(_members(document.json).get("paths")):
            plain = (base + path).partition("/{")[0].rstrip("/")
            if "{" not in plain and not _versioned(0, base + path, ""):
                known.append(plain)
    found: list[str] = []
    for path in sorted(dict.fromkeys(known), key=lambda path: (path.count("/"), path)):
        below = any(path.startswith(each.rstrip("/") + "/") for each in found if each != "/")
        if _PLAIN_PATH.fullmatch(path) and not below:
            found.append(path)
    return tuple(found)
