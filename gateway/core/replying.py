"""What a backend's reply head says about versions, and the header lines that the client gets instead.

Pure, and the same for every equal reply to one resolution, so the data plane remembers it. Bodies (documents,
refusals that only a body can tell) are the data plane's to hold and the dialect's to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from gateway.core.backend import Member
from gateway.core.decision import Resolution, vary_header
from gateway.core.dialect import Advert, Refused, Served
from gateway.core.message import Header, all_values, as_mapping, render


@final
@dataclass(frozen=True, slots=True, eq=False)
class Marking:
    """What follows from one reply head."""

    lines: bytes
    """Owned headers and `Vary` for the client."""
    served: Served
    fact: Advert | None
    """The backend's own range, when it is not what we know of that member: to be observed."""
    contradicts: bool
    """The backend says it served another version than it was asked for (hardening V9): the client is told
    what it said, and it is counted."""
    plain: bool = field(init=False)
    """Nothing to learn, to count or to hold: mostly."""

    def __post_init__(self) -> None:
        plain = self.fact is None and not self.contradicts and self.served.refused is Refused.NO
        object.__setattr__(self, "plain", plain)


def mark(resolution: Resolution, member: Member, status: int, fields: Iterable[Header]) -> Marking:
    """Read the owned lines of a reply head (`fields`: folded names) and write the client's.

    In a transparent service, and where the backend is silent outside a mixed fleet, nothing is added or taken
    away.
    """
    view, bounds = resolution.view, resolution.bounds
    dialect = view.service.dialect
    fields = tuple(fields)
    headers = as_mapping(fields)
    served = dialect.read_reply(resolution.place, status, headers)
    if view.offer.transparent or bounds is None:
        return Marking(render(fields), served, _fact(member, served), contradicts=False)
    written = dialect.write_reply(
        resolution.place, status, served, resolution.version, bounds, silent=member.silent
    )
    lines = [*written, *vary_lines(all_values(headers, "vary"), dialect.vary, apart=dialect.vary_apart)]
    contradicts = None not in (served.version, resolution.version) and served.version != resolution.version
    kept = ((name, value) for name, value in fields if name not in dialect.owned_reply and name != "vary")
    return Marking(
        render((*lines, *kept)), served, _fact(member, served), contradicts and served.refused is Refused.NO
    )


def vary_lines(said: tuple[str, ...], ours: tuple[str, ...], *, apart: bool = False) -> tuple[Header, ...]:
    """The backend's own `Vary` lines and those of our names that they lack; `*` says it all."""
    named = {name.strip().lower() for value in said for name in value.split(",")}
    missing = [] if "*" in named else [name for name in ours if name.lower() not in named]
    return (*(("Vary", value) for value in said), *vary_header(missing, apart=apart))


def _fact(member: Member, served: Served) -> Advert | None:
    """An in-band advert only where it differs: a flood of replies that say nothing new costs nothing. What is
    declared is not learned."""
    if served.advert is None or member.backend.declared is not None:
        return None
    known = member.advert
    if known is not None and not known.silent and known.versions == served.advert.versions:
        return None
    return served.advert
