"""Every dialect with every preset, and requests, responses and documents for it. The conformance tests use
them.

Nothing here knows what a dialect reads or writes, except for two tables: options worth testing
(`OPTION_SAMPLES`), and documents of its servers (`DOCUMENT_SAMPLES`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from random import Random
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    Dialect,
    Endpoint,
    RequestedVersion,
    Served,
)
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import Header, as_mapping, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import (
    CalendarDate,
    MajorMinor,
    Named,
    Scheme,
    Semantic,
    Version,
    WholeNumber,
)
from gateway.dialects import discover
from gateway.dialects.openstack.services import PRESETS
from tests.core.builders import snapshot
from tests.dialects import custom_samples

# --- every dialect with every preset -----------------------------------------------------------------------


def option_variants(defaults: Any, label: str = "") -> Iterator[tuple[str, object]]:
    """These options, and one more set for each other value of every option that is boolean or a literal."""
    yield label, defaults
    hints = get_type_hints(type(defaults))
    for field in fields(defaults):
        hint = hints[field.name]
        choices = (False, True) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
        for choice in choices:
            if choice != getattr(defaults, field.name):
                changed = f"{field.name}={choice}"
                yield (
                    f"{label},{changed}" if label else changed,
                    replace(defaults, **{field.name: choice}),
                )


def openstack_samples(options: type) -> Iterator[tuple[str, object]]:
    """Every preset, a service without one, and every value that an option may replace."""
    for service_type in (*PRESETS, "key-manager"):
        yield service_type, options(service_type=service_type)
    own = ("X-OpenStack-Volume-API-Version", "X-OpenStack-Volume-Version")
    yield from option_variants(
        options(service_type="volume", legacy_headers=own), "volume with headers of its own"
    )


OPTION_SAMPLES: Final[Mapping[str, Callable[[type], Iterable[tuple[str, object]]]]] = {
    "openstack": openstack_samples,
    "custom": custom_samples.samples,
}
"""By name of the dialect: labels and instances of its `Options`, for dialects whose defaults and literals are
not all there is to test."""


class DialectSample(NamedTuple):
    """One dialect with one set of options, and versions to test it with."""

    label: str
    dialect: Dialect
    options: Any
    """What it was made from."""
    versions: tuple[Version, ...]
    """Six versions, oldest first, with gaps between them where the scheme has any."""

    @property
    def offered(self) -> VersionSet:
        """From the second to the fourth version."""
        return self.offered_between(1, 3)

    @property
    def backend_versions(self) -> VersionSet:
        """What one backend serves: more than is offered, at both ends."""
        return self.offered_between(0, 5)

    def offered_between(self, low: int, high: int) -> VersionSet:
        """The versions between two positions in `versions`, both included."""
        if self.dialect.scheme.contiguous:
            return VersionSet.between(self.versions[low], self.versions[high])
        return VersionSet.only(*self.versions[low : high + 1])

    def text(self, version: Version) -> str:
        return self.dialect.scheme.format(version)

    def snapshot(self, offered: VersionSet) -> Snapshot:
        """A service `toy` with two backends that serve exactly these versions."""
        advertisement = Advertisement(offered)
        return snapshot({"a": advertisement, "b": advertisement}, dialect=self.dialect)

    def view(self, offered: VersionSet) -> ServiceView:
        """That service as a request sees it."""
        return self.snapshot(offered).views["toy"]

    def request_field_lines(self, version: Version, endpoint: Endpoint) -> tuple[Header, ...]:
        """How a client requests `version`: with the lines that the gateway itself would write."""
        return self.dialect.write_request(endpoint, version)

    def endpoint_with(self, endpoint: Endpoint, version: Version) -> Endpoint:
        """The endpoint of the target with `version` in it, for dialects whose targets have versions."""
        if not self.dialect.target_has_version:
            return endpoint
        method, path = targets_by_endpoint(self.dialect)[endpoint]
        path, _, query = self.dialect.write_target(endpoint, path, version).partition("?")
        return self.dialect.endpoint(method, path, query)

    def requested(self, endpoint: Endpoint, lines: Iterable[Header]) -> RequestedVersion:
        return self.dialect.read_requested(endpoint, folded_headers(lines))


def sample_versions(dialect: Dialect) -> tuple[Version, ...]:
    scheme: Scheme = dialect.scheme
    match scheme:
        case MajorMinor():
            known = [*dialect.releases.values(), *dialect.legacy_versions]
            major = known[0].major if known else (2,)
            return tuple(Version(*major, minor) for minor in (3, 17, 29, 43, 71, 96))
        case WholeNumber():
            return tuple(Version(number) for number in (3, 17, 29, 43, 71, 96))
        case Semantic():
            return tuple(Version(2, minor, 1) for minor in (3, 17, 29, 43, 71, 96))
        case CalendarDate(day=day):
            return tuple(Version(year, 5, 17) if day else Version(year, 5) for year in range(2017, 2023))
        case Named(names=names):
            return tuple(Version(at) for at in range(len(names)))
        case _:
            raise TypeError(f"the scheme {scheme.name!r} has no sample versions")


def dialect_samples() -> Iterator[DialectSample]:
    for name, kind in discover().items():
        make = OPTION_SAMPLES.get(name)
        samples = option_variants(kind.Options()) if make is None else make(kind.Options)
        for label, options in samples:
            dialect = kind.configured(options)
            yield DialectSample(
                f"{name}[{label}]" if label else name, dialect, options, sample_versions(dialect)
            )


DIALECT_SAMPLES: Final = tuple(dialect_samples())


# --- requests ----------------------------------------------------------------------------------------------

_SEGMENTS = ("", "v1", "v1.0", "v2", "v2.0", "v2.1", "v3", "versions", "server_api_version", "anything")
_BELOW = ("", "/", "/extended", "/extended/GET/x", "/nodes", "/organizations/one/nodes")
TARGETS: Final = ("", "//", "/v1.json", *(f"/{first}{rest}" for first in _SEGMENTS for rest in _BELOW))
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


@cache
def targets_by_endpoint(dialect: Dialect) -> Mapping[Endpoint, tuple[str, str]]:
    """Every endpoint that the targets above have, with one method and path for it."""
    found: dict[Endpoint, tuple[str, str]] = {}
    for path in TARGETS:
        for method in METHODS:
            found.setdefault(dialect.endpoint(method, path, ""), (method, path))
    return found


def endpoints(sample: DialectSample) -> tuple[Endpoint, ...]:
    return tuple(targets_by_endpoint(sample.dialect))


def negotiated_endpoints(sample: DialectSample) -> tuple[Endpoint, ...]:
    """The endpoints where a version is negotiated and the target has none."""
    found = tuple(
        endpoint
        for endpoint in endpoints(sample)
        if endpoint.negotiated and not endpoint.answered and endpoint.version_in_target is None
    )
    assert found
    return found


def folded_headers(lines: Iterable[Header]) -> CIMultiDictProxy[str]:
    """Header lines as the data plane passes them to a dialect."""
    return as_mapping((normalize_name(name), value) for name, value in lines)


class WatchedHeaders(CIMultiDict[str]):
    """Records which names were looked up."""

    def __init__(self, lines: Iterable[Header] = ()) -> None:
        super().__init__((normalize_name(name), value) for name, value in lines)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.seen.add(normalize_name(key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(normalize_name(str(key)))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(normalize_name(key))
        return super().get(key, default)

    def getone(self, key: str, *default: Any) -> Any:
        self.seen.add(normalize_name(key))
        return super().getone(key, *default)

    def getall(self, key: str, *default: Any) -> Any:
        self.seen.add(normalize_name(key))
        return super().getall(key, *default)


# --- strategies --------------------------------------------------------------------------------------------

ODD_TEXTS: Final = (
    *("", "latest", "LATEST", "spam", "1.05", "+1.5", "1.5, 1.6", ",", " ", "0", "-1", "1 0", "null", "{}"),
    *("compute", "compute 2.1", "baremetal 1.5, compute 2.1", "volume 3.0", "placement latest"),
    *("algorithm=sha256;version=1.3;", "algorithm=sha1;version=1.1", "text/html", "application/json", "true"),
    *('{"min_version":"0"}', '{"min_version":0,"max_version":{}}', "[" * 200, "9" * 300, '{"a":NaN}', "\xa0"),
)

VALUES: Final = st.sampled_from(ODD_TEXTS) | st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=24
)
"""Header values as a strict parser lets them through: Latin-1 without control bytes."""

STATUSES: Final = st.sampled_from([200, 201, 204, 300, 400, 401, 404, 405, 406, 500, 503]) | st.integers(
    100, 599
)

KEYS: Final = st.sampled_from(
    [
        *("versions", "version", "min_version", "max_version", "id", "links", "href", "status", "choices"),
        *("values", "default_version", "errors", "error", "computeFault", "message", "min_api_version"),
        *("max_api_version", "code", "title", "detail", "rel"),
    ]
)
DOCUMENTS: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["v2.1", "v1", "2.3", "", "CURRENT"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=16,
)
BODIES: Final = (
    st.binary(max_size=80)
    | DOCUMENTS.map(lambda document: json.dumps(document).encode())
    | st.sampled_from([b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"versions": ' + b"[" * 60])
)


def header_values(sample: DialectSample) -> st.SearchStrategy[str]:
    """Texts, versions of this dialect, and the values that its clients and servers write."""
    endpoint = negotiated_endpoints(sample)[0]
    valid = [
        value for version in sample.versions for _, value in sample.request_field_lines(version, endpoint)
    ]
    valid += [value for version in sample.versions for _, value in response_lines(sample, endpoint, version)]
    return VALUES | st.sampled_from([*valid, *map(sample.text, sample.versions)])


def response_lines(
    sample: DialectSample, endpoint: Endpoint, version: Version, status: int = 200
) -> tuple[Header, ...]:
    """The version headers of a backend that served `version`.

    They are what the gateway adds to the response of a legacy backend, and where it adds nothing, what it
    passes on from another one.
    """
    added = sample.dialect.write_response(
        BackendResponse(endpoint, status, Served(), version, sample.backend_versions, legacy=True)
    )
    if added:
        return added
    advertisement = Advertisement(sample.backend_versions)
    served = Served(version, advertisement, has_range=True, text=sample.text(version))
    return sample.dialect.write_response(
        BackendResponse(endpoint, status, served, version, sample.backend_versions)
    )


def any_request_lines(sample: DialectSample) -> st.SearchStrategy[list[Header]]:
    names = sorted(sample.dialect.reads | sample.dialect.owned_request) or ["x-none"]
    return st.lists(st.tuples(st.sampled_from(names), header_values(sample)), max_size=5)


def disguised_name(name: str, random: Random) -> str:
    """The name with letters of any case, and some `_` for `-`: WSGI folds both (threats V4)."""
    name = "".join(random.choice((letter.lower(), letter.upper())) for letter in name)
    return name.replace("-", "_", random.choice((0, 0, 1, 9)))


# --- documents ---------------------------------------------------------------------------------------------

DocumentWriter = Callable[[str, str], Iterable[dict[str, Any]]]
"""Makes documents as a backend would write them, from its minimum and its maximum."""


def version_lists(name: str, maximum_key: str, *, with_default: bool = False) -> DocumentWriter:
    """Documents of the OpenStack family: of all versions, and of one. The minimum is always `min_version`.

    `with_default`: a list repeats its default entry outside of the list.
    """

    def write(low: str, high: str) -> Iterator[dict[str, Any]]:
        links = [{"rel": "self", "href": "http://10.0.0.5:8774/v1/"}]
        entry = {"id": name, "status": "CURRENT", "min_version": low, maximum_key: high, "links": links}
        older = {"id": "v0.9", "status": "DEPRECATED", "links": []}
        yield {"versions": [entry]}
        yield {"versions": [older, entry], **({"default_version": entry} if with_default else {})}
        yield {"version": entry}
        yield {"id": name, "version": entry, "links": links}

    return write


def inspector_documents(low: str, high: str) -> Iterator[dict[str, Any]]:
    """Documents of ironic-inspector, where the maximum is the `id` of a version."""
    links = [{"rel": "self", "href": "http://10.0.0.5:8774/v1"}]
    yield {"versions": [{"id": high, "status": "CURRENT", "links": links}]}


def guideline_documents(low: str, high: str) -> Iterator[dict[str, Any]]:
    """Documents of the OpenStack family with either key of the maximum."""
    for key in ("version", "max_version"):
        yield from version_lists("v2.0", key)(low, high)
        yield {"versions": {"values": next(iter(version_lists("v3", key)(low, high)))["versions"]}}


DOCUMENT_SAMPLES: Final[dict[str, DocumentWriter]] = {
    "ironic": version_lists("v1", "version", with_default=True),
    "nova": version_lists("v2.1", "version"),
    "senlin": version_lists("1.0", "max_version"),
    "openstack": guideline_documents,
    "openstack[baremetal-introspection]": inspector_documents,
    **custom_samples.SPECIMENS,
}
"""By label, or by name of the dialect for all its samples. Dialects that rewrite documents need an entry."""
