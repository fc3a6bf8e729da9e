"""Compares what came through HAProxy with what came through the gateway.

Of a response: the status, every version header, `Vary`, the body, and whether a member answered.
Of a request that a member got: its version headers. Two members that can serve the same version are the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.engines.equality.apis import kind_of
from tests.engines.equality.members import MEMBER_HEADER, RECEIVED_HEADER
from tests.engines.equality.requests import Asked
from tests.kit.clients import Answer

_REQUEST_ID: Final = re.compile(rb'(?:, "request_id": "req-[0-9a-f-]{36}")|req-[0-9a-f-]{36}')
"""HAProxy gives none to its own errors, of which some APIs have one in the body, too."""
_SHOWN: Final = 12
"""Differences that are shown whole."""


class Pair(NamedTuple):
    """A request, and both answers. `past`: HAProxy did not ask the gateway."""

    asked: Asked
    gateway: Answer
    haproxy: Answer
    past: bool


class Difference(NamedTuple):
    pair: Pair
    what: str
    gateway: object
    haproxy: object

    def __str__(self) -> str:
        return (
            f"{self.pair.asked.fleet.api.name}, {self.pair.asked.kind}: {self.what}\n"
            f"  request   {self.pair.asked.raw[:600]!r}\n"
            f"  gateway   {self.gateway!r}\n"
            f"  HAProxy   {self.haproxy!r}"
        )


def is_http(pair: Pair) -> bool:
    """Whether both take the bytes for a request. Each has its own words for what breaks HTTP."""
    refused = pair.gateway.body.startswith(b"This request is not valid HTTP") or (
        # To HEAD.
        (pair.gateway.status, pair.gateway.body) == (400, b"")
        and pair.gateway.values("Content-Type") == ["text/plain; charset=utf-8"]
    )
    return not (
        refused or (pair.haproxy.status == 400 and pair.haproxy.values("Content-Type") == ["text/html"])
    )


def differences(pair: Pair) -> Iterator[Difference]:
    """Nothing: both ways are the same to the client and to the member."""
    if not is_http(pair):
        return
    seen = (_seen(pair.asked, pair.gateway), _seen(pair.asked, pair.haproxy))
    for what, gateway in seen[0].items():
        if gateway != seen[1][what]:
            yield Difference(pair, what, gateway, seen[1][what])


def _seen(asked: Asked, answer: Answer) -> dict[str, object]:
    member = "".join(answer.values(MEMBER_HEADER))
    seen: dict[str, object] = {
        "status": answer.status,
        "who answered": "a member" if member else "the gateway",
        "version that the member got": sorted(
            line.lower() for line in "".join(answer.values(RECEIVED_HEADER)).split("|")
        ),
        "Vary": sorted(_tokens(answer.values("Vary"))),
        "body": _REQUEST_ID.sub(b"", answer.body),
        "Retry-After": answer.values("Retry-After"),
        "Content-Type": answer.values("Content-Type"),
    }
    for name in sorted(asked.fleet.version_headers):
        seen[name] = answer.values(name)
    return seen


def _tokens(values: Sequence[str]) -> list[str]:
    return [token.strip().lower() for value in values for token in value.split(",")]


def members_seen(pairs: Sequence[Pair]) -> Counter[str]:
    """How many answers through HAProxy came from which kind of member; `gateway`: from none."""
    found = Counter[str]()
    for pair in pairs:
        member = "".join(pair.haproxy.values(MEMBER_HEADER))
        found[kind_of(member) if member else "gateway"] += 1
    return found


def report(found: Sequence[Difference]) -> str:
    """How many of each kind, and the first of each."""
    kinds = Counter((each.pair.asked.fleet.api.name, each.what) for each in found)
    lines = [f"{number:5} {service}: {what}" for (service, what), number in kinds.most_common()]
    shown: dict[tuple[str, str], Difference] = {}
    for each in sorted(found, key=lambda each: len(each.pair.asked.raw)):
        shown.setdefault((each.pair.asked.fleet.api.name, each.what), each)
    return "\n".join([*lines, "", *(str(each) for each in list(shown.values())[:_SHOWN])])
