"""Rewriting of response heads: the version headers of a backend become those that clients get.

Pure, and equal for equal heads under one resolution, so the data plane caches it. Nothing here reads a body:
the data plane buffers documents and refusals that only a body shows, and the dialect reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from gateway.core.decision.decision import Resolution
from gateway.core.decision.local_responses import vary_header
from gateway.core.dialect import Advertisement, BackendResponse, Served, VersionRefusal
from gateway.core.fleet.backend import Member
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import Header, all_values, as_mapping, render
from gateway.core.versions.version import Version


@final
@dataclass(frozen=True, slots=True, eq=False)
class ResponseRewrite:
    """Version headers of one backend response, rewritten for the client, and the facts read from them."""

    lines: bytes
    """Header lines for the client in place of those that were read: version headers, `Vary` and others."""
    served: Served
    fact: Advertisement | None
    """The backend's own version range, if it differs from the one known of it: a fact to observe."""
    mismatch: bool = False
    """Whether the backend names another served version than negotiated (threats V9). It is counted."""
    served_missing: bool = False
    """Whether the response lacks the served version that its API always names (semantics, Knowing)."""
    served_text: str = ""
    """Version that the client is shown if `mismatch` or `served_missing` is set, canonical; empty: none."""
    edits: HeaderEdits | None = None
    """Configured header changes of the service's responses; None: none."""
    plain: bool = field(init=False)
    """Whether a backend's response has nothing to observe, count or buffer, as nearly always."""

    def __post_init__(self) -> None:
        special = self.mismatch or self.served_missing or self.fact is not None
        plain = not special and self.served.version_refusal is VersionRefusal.NO
        object.__setattr__(self, "plain", plain)


def rewrite_head(
    resolution: Resolution, member: Member, status: int, fields: Iterable[Header]
) -> ResponseRewrite:
    """Read the selected lines of a response head (`fields`, names normalized) and write those for the client.
    In a transparent service, and while nothing is on offer, nothing is added or removed."""
    view, offered = resolution.view, resolution.offered
    service = view.service
    dialect = service.dialect
    edits = resolution.response_edits
    # What is selected here is not among the fields that the edits change later.
    fields = tuple(fields) if edits is None else edits.others(fields)
    headers = as_mapping(fields)
    served = dialect.read_response(resolution.endpoint, status, headers)
    fact = _fact(member, served)
    if view.offer.transparent or offered is None:
        return ResponseRewrite(render(fields), served, fact, edits=edits)
    named, negotiated = served.version, resolution.version
    mismatch = _contradicts(served, negotiated)
    missing = named is None and _always_named(resolution, member, status)
    written_for, legacy = negotiated, member.legacy
    if missing and not any(name in dialect.owned_response for name, _ in fields):
        # It answered as a legacy server does. So the client is told what such a server executes.
        written_for, legacy = dialect.legacy_versions.highest if dialect.legacy_versions else None, True
        named = written_for
    response = BackendResponse(resolution.endpoint, status, served, written_for, offered, legacy=legacy)
    written = dialect.write_response(response)
    vary = vary_lines(all_values(headers, "vary"), service.vary, separately=dialect.vary_separately)
    shown = named if mismatch or missing else negotiated
    announced = service.announcement(shown, fields)
    bridged = resolution.bridged_header if shown == negotiated else _bridged_to(resolution, shown)
    rest = [(name, value) for name, value in fields if name not in dialect.owned_response and name != "vary"]
    return ResponseRewrite(
        render((*written, *bridged, *vary, *service.naming.private, *announced, *rest)),
        served,
        fact,
        mismatch,
        missing,
        dialect.scheme.format(named) if named is not None and (mismatch or missing) else "",
        edits,
    )


def _bridged_to(resolution: Resolution, served: Version | None) -> tuple[Header, ...]:
    """The header of a bridged request that was executed at another version than negotiated."""
    text = "unknown" if served is None else resolution.view.service.dialect.scheme.format(served)
    asked = resolution.bridged.partition(" -> ")[0]
    return tuple((name, f"{asked} -> {text}") for name, _ in resolution.bridged_header)


def _contradicts(served: Served, negotiated: Version | None) -> bool:
    """Whether a response shows that our request was executed at another version. One that repeats another
    requested version than ours is not about our request (chef-zero always repeats 0)."""
    return (
        None not in (served.version, negotiated)
        and served.version != negotiated
        and served.repeated in (None, negotiated)
        and served.version_refusal is VersionRefusal.NO
    )


def _always_named(resolution: Resolution, member: Member, status: int) -> bool:
    """Whether every server of this API that has versions names the served one in such a response."""
    endpoint = resolution.endpoint
    return (
        endpoint.served_always
        and not endpoint.document
        and not member.legacy
        and resolution.version is not None
        and 200 <= status < 300
    )


def vary_lines(
    received: tuple[str, ...], names: tuple[str, ...], *, separately: bool = False
) -> tuple[Header, ...]:
    """The backend's own `Vary` lines, and those of `names` that they lack; none if one of them is `*`."""
    listed = {name.strip().lower() for value in received for name in value.split(",")}
    missing = [] if "*" in listed else [name for name in names if name.lower() not in listed]
    return (*(("Vary", value) for value in received), *vary_header(missing, separately=separately))


def _fact(member: Member, served: Served) -> Advertisement | None:
    """Versions that a response advertises, if not the known ones. Declared backends learn none."""
    if served.advertisement is None or member.backend.declared is not None:
        return None
    known = member.advertisement
    if known is not None and not known.legacy and known.versions == served.advertisement.versions:
        return None
    return served.advertisement
