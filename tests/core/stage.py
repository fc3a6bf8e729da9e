"""A dialect as small as one can be that has every kind of place, and how to make fleets for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.core.backend import Backend
from gateway.core.dialect import (
    ASK_SILENT,
    NO_HEADERS,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Dialect,
    Failure,
    Match,
    Place,
    ProbeAnswer,
    ProbeStep,
    Refusal,
    Refused,
    Served,
    Silence,
    SilenceKind,
)
from gateway.core.fleet import Answered, Fact, Failed, Fleet, Pool
from gateway.core.message import Header, Reply, RequestHead, all_values
from gateway.core.operations import NO_OPERATIONS, Operations
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import MajorMinor, Scheme, Version

XY = MajorMinor()

ASK_LATEST = Ask(AskKind.LATEST, text="latest")

MINIMUM = Silence(SilenceKind.MINIMUM)

RESOURCE = Place("resource")
PLACES = {
    "/doc": Place("doc", negotiated=False, document=True, versioned_only=True),
    "/legacy": Place("legacy", negotiated=False),
    "/new": Place("new", versioned_only=True),
    "/own": Place("own", answered=True),
    "/dear": Place("dear", negotiated=False, answered=True, metered=True),
}


class Toy(Dialect):
    """X.Y in `X-Version`: `1.5`, `latest`, or `sealed 1.5` for a request that is signed over it."""

    name = "toy"
    reads = frozenset({"x-version", "accept"})
    owned_request = frozenset({"x-version", "x-kind"})
    owned_reply = frozenset({"x-version", "x-min", "x-max"})

    def __init__(
        self,
        silence: Silence = MINIMUM,
        *,
        scheme: Scheme = XY,
        match: Match = Match.EXACT,
        vary: tuple[str, ...] = ("X-Version",),
    ) -> None:
        self.silence, self.scheme, self.match, self.vary = silence, scheme, match, vary

    def place(self, method: str, path: str, query: str) -> Place:
        return PLACES.get(path, RESOURCE)

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        text = headers.get("X-Version")
        if text is None:
            return ASK_SILENT
        if text == "latest":
            return ASK_LATEST
        version = self.scheme.parse(text.removeprefix("sealed "))
        if version is None:
            return Ask(AskKind.GARBLED, text=text)
        return Ask(AskKind.EXACT, version, text, sealed=text.startswith("sealed "))

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """`X-Kind` is made from a header that the dialect reads and does not own."""
        kind = headers.get("Accept", "none")
        return () if silent else (("X-Version", self.scheme.format(version)), ("X-Kind", kind))

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        return Reply(406, body=refusal.reason.value.encode())

    def fail(self, failure: Failure) -> Reply:
        return Reply(failure.status, body=failure.title.encode())

    def answer(
        self, place: Place, head: RequestHead, bounds: Bounds | None, operations: Operations = NO_OPERATIONS
    ) -> Reply:
        if place.metered and bounds is None:
            return self.fail(Failure(503, "Service Unavailable", "Nothing is known."))
        known = "unknown" if bounds is None else self.scheme.format(bounds.highest)
        listed = "".join(f" {each.method} {each.path.text}" for each in operations.listed)
        return Reply(200, body=f"{head.method} {head.path}?{head.query} {known}{listed}".encode())

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        low, high = (self.scheme.parse(headers.get(name, "")) for name in ("X-Min", "X-Max"))
        said = "".join(all_values(headers, "X-Version"))
        return Served(
            self.scheme.parse(said),
            Advert(VersionSet.between(low, high)) if low and high else None,
            Refused.YES if status == 406 else Refused.NO,
            ranged=high is not None,
            said=said,
        )

    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        version = settled if silent else served.version
        said = () if version is None else (("X-Version", self.scheme.format(version)),)
        if not (served.ranged or silent):
            return said
        return (
            *said,
            ("X-Min", self.scheme.format(bounds.lowest)),
            ("X-Max", self.scheme.format(bounds.highest)),
        )

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        return Advert(VersionSet())


class OtherToy(Toy):
    """The same words in another language."""

    name = "other"


def v(text: str) -> Version:
    return XY.require(text)


def upto(highest: int, lowest: int = 1) -> Advert:
    """1.`lowest` to 1.`highest`."""
    return Advert(VersionSet.between(Version(1, lowest), Version(1, highest)))


def silent(*versions: str) -> Advert:
    return Advert(VersionSet.only(*map(v, versions)), silent=True)


def backend(name: str, **more: Any) -> Backend:
    return replace(Backend(name, f"{name}.test", 80), **more)


def service(*names: str, name: str = "toy", dialect: Dialect | None = None, **more: Any) -> Service:
    """A service with plain backends of these names, unless `backends` says otherwise."""
    backends = more.pop("backends", tuple(backend(each) for each in names))
    return Service(name, dialect or Toy(), backends, **more)


def observed(fleet: Fleet, told: Mapping[str, Advert | None], name: str = "toy") -> Fleet:
    """After a probe of each: what it answered, or None for one that failed."""
    for who, advert in told.items():
        fact: Fact = Failed("no connection", 1.0) if advert is None else Answered(advert, 1.0)
        fleet = fleet.observe(name, who, fact)
    return fleet


def drain(fleet: Fleet, *names: str, service: str = "toy") -> Fleet:
    pool = fleet.pools[service]
    members = tuple(replace(each, drained=each.backend.name in names) for each in pool.members)
    return Fleet(MappingProxyType({**fleet.pools, service: replace(pool, members=members)}))


def pool(told: Mapping[str, Advert | None], drained: Iterable[str] = (), **more: Any) -> Pool:
    one = service(*told, **more)
    return drain(observed(Fleet.of([one]), told), *drained).pools["toy"]


def snapshot(
    told: Mapping[str, Advert | None], drained: Iterable[str] = (), unasked: Iterable[str] = (), **more: Any
) -> Snapshot:
    """`told` as in `observed`; `unasked` backends have not been probed yet."""
    first = Snapshot.configured([service(*told, *unasked, **more)], now=0.0)
    return first.knowing(drain(observed(first.fleet, told), *drained), 0.0)
