"""The requests of the comparison: half of correct clients, half of hostile, old or broken ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from tests.differential.apis import Header
from tests.differential.cases import cases_of
from tests.engines.equality.apis import Fleet

_REPLIES: Final = ("", "", "", "", "reply=404", "reply=204", "reply=vary", "limit=5&marker=a%2Fb")
_METHODS: Final = ("GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MALFORMED: Final = ("x", "1.x", "01", "1.05", "+1", "", "1.2.3", "latest,1.1", "99999999999999999999")


class Asked(NamedTuple):
    """One request. `kind`: what was done to it; `plain` for a correct one."""

    fleet: Fleet
    kind: str
    raw: bytes


def requests(fleet: Fleet, seed: int, number: int) -> Iterator[Asked]:
    """The first requests of a seed, in turn a correct one and one that was changed."""
    changed = cases_of(fleet.api, seed, number)
    for at in range(number):
        if at % 2:
            yield _plain(fleet, Random(f"{seed}:{fleet.api.name}:plain:{at}"))
        else:
            case = next(changed)
            yield Asked(fleet, ", ".join(case.mutations) or "unchanged", case.raw)


def _plain(fleet: Fleet, random: Random) -> Asked:
    method, version = random.choice(_METHODS), _version(fleet, random)
    path, reply = random.choice(fleet.api.targets), random.choice(_REPLIES)
    lines = [f"{method} {path}{f'?{reply}' if reply else ''} HTTP/1.1", f"Host: {fleet.api.host}"]
    places = [place for place in fleet.api.locations if isinstance(place, Header)]
    if version is not None:
        chosen = places if random.random() < 0.2 else [random.choice(places)]
        lines += [f"{place.name}: {place.spelling.format(version)}" for place in chosen]
    if random.random() < 0.5:
        lines += ["User-Agent: client/1.0", "Accept: application/json", "X-Auth-Token: 0123456789abcdef"]
    body = b""
    if method in ("POST", "PUT", "PATCH"):
        body = b'{"name": "a"}' * random.choice((0, 1, 40))
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return Asked(fleet, "plain", "\r\n".join((*lines, "", "")).encode("latin-1") + body)


def _version(fleet: Fleet, random: Random) -> str | None:
    """Often one at an end of what a member serves. None: the request has no version."""
    chance = random.random()
    if chance < 0.12:
        return None
    if chance < 0.24:
        return fleet.api.newest
    if chance < 0.32:
        return random.choice(_MALFORMED)
    if chance < 0.6:
        return random.choice((fleet.lowest, fleet.old, fleet.new, _next(fleet.old), _next(fleet.new)))
    if chance < 0.7:
        return random.choice(fleet.api.outside)
    return _between(random, fleet.lowest, _next(fleet.new))


def _next(version: str) -> str:
    start, dot, last = version.rpartition(".")
    return f"{start}{dot}{int(last) + 1}"


def _between(random: Random, low: str, high: str) -> str:
    """One of the versions that differ in the last number only."""
    start, dot, last = high.rpartition(".")
    return f"{start}{dot}{random.randint(int(low.rpartition('.')[2]), int(last))}"
