"""Every dialect with every preset, and what can be said in it: the ground of the conformance tests.

Nothing here knows what a dialect speaks, but for two tables: options worth trying (`SAMPLES`), and how its
documents look (`SPECIMENS`).
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
    Advert,
    Ask,
    AskKind,
    Bounds,
    Dialect,
    Place,
    Served,
)
from gateway.core.message import Header, as_mapping, fold
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import CalendarDate, MajorMinor, Named, Scheme, Semantic, Version, WholeNumber
from gateway.dialects import discover
from gateway.dialects._openstack_services import PRESETS
from tests.core.stage import snapshot
from tests.dialects import header_samples

# --- every dialect with every preset -----------------------------------------------------------------------


def variants(defaults: Any, label: str = "") -> Iterator[tuple[str, object]]:
    """These options, and for every one that is a word of a closed set, or yes or no, each other choice."""
    yield label, defaults
    hints = get_type_hints(type(defaults))
    for field in fields(defaults):
        hint = hints[field.name]
        words = (False, True) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
        for word in words:
            if word != getattr(defaults, field.name):
                named = f"{field.name}={word}"
                yield f"{label},{named}" if label else named, replace(defaults, **{field.name: word})


def openstack_samples(options: type) -> Iterator[tuple[str, object]]:
    """Every preset, a service without one, and every habit that can be chosen."""
    for service_type in (*PRESETS, "key-manager"):
        yield service_type, options(service_type=service_type)
    own = ("X-OpenStack-Volume-API-Version", "X-OpenStack-Volume-Version")
    yield from variants(options(service_type="volume", legacy_headers=own), "volume with headers of its own")


SAMPLES: Final[Mapping[str, Callable[[type], Iterable[tuple[str, object]]]]] = {
    "openstack": openstack_samples,
    "header": header_samples.samples,
}
"""By a dialect's name: labels and instances of its `Options`, where its defaults and closed sets of words are
not all there is to try."""


class Speech(NamedTuple):
    """One dialect with one set of options, and versions to speak of."""

    label: str
    dialect: Dialect
    options: Any
    """What it was made from."""
    ladder: tuple[Version, ...]
    """Six versions, oldest first, with gaps wherever the scheme has any."""

    @property
    def offer(self) -> Bounds:
        """From the second to the fourth step."""
        return self._upto(1, 3)

    @property
    def own(self) -> Bounds:
        """What a backend serves by itself: more than is offered, at both ends."""
        return self._upto(0, 5)

    def _upto(self, low: int, high: int) -> Bounds:
        if self.dialect.scheme.contiguous:
            return Bounds(VersionSet.between(self.ladder[low], self.ladder[high]))
        return Bounds(VersionSet.only(*self.ladder[low : high + 1]))

    def text(self, version: Version) -> str:
        return self.dialect.scheme.format(version)

    def snapshot(self, bounds: Bounds) -> Snapshot:
        """A service `toy` with two backends that serve just that."""
        told = Advert(bounds.versions)
        return snapshot({"a": told, "b": told}, dialect=self.dialect)

    def view(self, bounds: Bounds) -> ServiceView:
        """What a request to that service sees."""
        return self.snapshot(bounds).views["toy"]

    def lines(self, version: Version, place: Place) -> tuple[Header, ...]:
        """How a client asks for `version`: as the gateway itself would."""
        ask = Ask(AskKind.EXACT, version, self.text(version))
        return self.dialect.write_request(place, version, ask, silent=False)

    def at(self, place: Place, version: Version) -> Place:
        """The place of the target in which the gateway has written `version`, where a target has room for
        one."""
        if not self.dialect.rewrites_target:
            return place
        method, path = targets(self.dialect)[place]
        path, _, query = self.dialect.write_target(place, path, version).partition("?")
        return self.dialect.place(method, path, query)

    def ask(self, place: Place, lines: Iterable[Header]) -> Ask:
        return self.dialect.read_ask(place, folded(lines))


def ladder(dialect: Dialect) -> tuple[Version, ...]:
    scheme: Scheme = dialect.scheme
    match scheme:
        case MajorMinor():
            known = [*dialect.releases.values(), *dialect.silent_serves]
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
            raise TypeError(f"no versions are known of the scheme {scheme.name!r}")


def speeches() -> Iterator[Speech]:
    for name, kind in discover().items():
        samples = SAMPLES[name](kind.Options) if name in SAMPLES else variants(kind.Options())
        for label, options in samples:
            dialect = kind.configured(options)
            yield Speech(f"{name}[{label}]" if label else name, dialect, options, ladder(dialect))


SPEECHES: Final = tuple(speeches())


# --- what there is to ask for ------------------------------------------------------------------------------

_SEGMENTS = ("", "v1", "v1.0", "v2", "v2.0", "v2.1", "v3", "versions", "server_api_version", "anything")
_BELOW = ("", "/", "/extended", "/extended/GET/x", "/nodes", "/organizations/one/nodes")
TARGETS: Final = ("", "//", "/v1.json", *(f"/{first}{rest}" for first in _SEGMENTS for rest in _BELOW))
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


@cache
def targets(dialect: Dialect) -> Mapping[Place, tuple[str, str]]:
    """Every place that the targets above lead to, with one method and path that does."""
    found: dict[Place, tuple[str, str]] = {}
    for path in TARGETS:
        for method in METHODS:
            found.setdefault(dialect.place(method, path, ""), (method, path))
    return found


def places(speech: Speech) -> tuple[Place, ...]:
    return tuple(targets(speech.dialect))


def negotiated(speech: Speech) -> tuple[Place, ...]:
    """The places in which a version is settled on, and whose target names none."""
    found = tuple(
        place for place in places(speech) if place.negotiated and not place.answered and place.carried is None
    )
    assert found
    return found


def folded(lines: Iterable[Header]) -> CIMultiDictProxy[str]:
    """Header lines as the data plane hands them on."""
    return as_mapping((fold(name), value) for name, value in lines)


class Watched(CIMultiDict[str]):
    """Remembers which names were looked at."""

    def __init__(self, lines: Iterable[Header] = ()) -> None:
        super().__init__((fold(name), value) for name, value in lines)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.seen.add(fold(key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(fold(str(key)))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(fold(key))
        return super().get(key, default)

    def getone(self, key: str, *default: Any) -> Any:
        self.seen.add(fold(key))
        return super().getone(key, *default)

    def getall(self, key: str, *default: Any) -> Any:
        self.seen.add(fold(key))
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


def values(speech: Speech) -> st.SearchStrategy[str]:
    """Texts, versions of this dialect, and the values that its own clients and servers write."""
    place = negotiated(speech)[0]
    honest = [value for version in speech.ladder for _, value in speech.lines(version, place)]
    honest += [value for version in speech.ladder for _, value in reply_lines(speech, place, version)]
    return VALUES | st.sampled_from([*honest, *map(speech.text, speech.ladder)])


def reply_lines(speech: Speech, place: Place, version: Version, status: int = 200) -> tuple[Header, ...]:
    """What a backend that speaks says about `version`: what the gateway adds for one that does not, and where
    that is nothing, what it passes on."""
    invented = speech.dialect.write_reply(place, status, Served(), version, speech.own, silent=True)
    if invented:
        return invented
    told = Served(version, Advert(speech.own.versions), ranged=True, said=speech.text(version))
    return speech.dialect.write_reply(place, status, told, version, speech.own, silent=False)


def request_lines(speech: Speech) -> st.SearchStrategy[list[Header]]:
    names = sorted(speech.dialect.reads | speech.dialect.owned_request) or ["x-none"]
    return st.lists(st.tuples(st.sampled_from(names), values(speech)), max_size=5)


def tricked(name: str, chance: Random) -> str:
    """The name with letters of any case, and `_` for `-` here and there: WSGI folds both (hardening V4)."""
    name = "".join(chance.choice((letter.lower(), letter.upper())) for letter in name)
    return name.replace("-", "_", chance.choice((0, 0, 1, 9)))


# --- documents ---------------------------------------------------------------------------------------------

Specimen = Callable[[str, str], Iterable[dict[str, Any]]]
"""From a backend's own minimum and maximum to documents as it would write them."""


def listed(name: str, highest: str, *, defaults: bool = False) -> Specimen:
    """Documents of the OpenStack family: of all versions, and of one. `highest`: the key of the maximum;
    the minimum is `min_version` everywhere. `defaults`: a list tells its default entry by itself, too."""

    def write(low: str, high: str) -> Iterator[dict[str, Any]]:
        links = [{"rel": "self", "href": "http://10.0.0.5:8774/v1/"}]
        entry = {"id": name, "status": "CURRENT", "min_version": low, highest: high, "links": links}
        older = {"id": "v0.9", "status": "DEPRECATED", "links": []}
        yield {"versions": [entry]}
        yield {"versions": [older, entry], **({"default_version": entry} if defaults else {})}
        yield {"version": entry}
        yield {"id": name, "version": entry, "links": links}

    return write


def titled(low: str, high: str) -> Iterator[dict[str, Any]]:
    """Documents of ironic-inspector, whose versions bear the maximum as their name."""
    links = [{"rel": "self", "href": "http://10.0.0.5:8774/v1"}]
    yield {"versions": [{"id": high, "status": "CURRENT", "links": links}]}


def either(low: str, high: str) -> Iterator[dict[str, Any]]:
    """Documents of the OpenStack family in both spellings of the maximum."""
    for key in ("version", "max_version"):
        yield from listed("v2.0", key)(low, high)
        yield {"versions": {"values": next(iter(listed("v3", key)(low, high)))["versions"]}}


SPECIMENS: Final[dict[str, Specimen]] = {
    "ironic": listed("v1", "version", defaults=True),
    "nova": listed("v2.1", "version"),
    "senlin": listed("1.0", "max_version"),
    "openstack": either,
    "openstack[baremetal-introspection]": titled,
    **header_samples.SPECIMENS,
}
"""By label, or for all of a dialect by its name: how documents look, for every dialect that rewrites any."""
