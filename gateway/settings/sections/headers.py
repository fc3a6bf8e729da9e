"""`headers` of a service: header fields that are set, added and removed.

The dialect writes versions, and the data plane writes the framing and what it knows of the client. A
configuration that wrote them, too, could make a backend execute another version than its client was shown.
Names are compared as servers compare them, so another spelling is no way around.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from gateway.core.dialect import Dialect
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import CLIENT_CERT, FORWARDING, HOP_BY_HOP, HTTPOXY, UNLISTABLE, normalize_name
from gateway.core.http.request_ids import PLAIN_IDS
from gateway.keys.kinds import ListOf, Table, section
from gateway.keys.secrets import MaskedText
from gateway.keys.texts import HEADER_TOKEN, HEADER_VALUE
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, SequenceNode, child

_CONNECTION: Final = "it belongs to the connection or to the framing, which the gateway handles"
_ABOUT_CLIENT: Final = "the gateway itself writes the headers about the client"
_REQUEST_ID: Final = "the access log, backends and responses must have the same request id"
_OF_MESSAGES: Final = dict.fromkeys(HOP_BY_HOP | UNLISTABLE | {"expect", "max-forwards"}, _CONNECTION)
_OF_REQUESTS: Final = (
    _OF_MESSAGES
    | dict.fromkeys(FORWARDING | set(map(normalize_name, CLIENT_CERT)), _ABOUT_CLIENT)
    | dict.fromkeys(HTTPOXY, "programs behind CGI take it for the proxy of their own requests")
)
_OF_RESPONSES: Final = _OF_MESSAGES | {
    "location": "the gateway rewrites it, so that clients can follow it",
    "content-location": "the gateway rewrites it, so that clients can follow it",
    "date": "the gateway adds it where a backend does not",
    "proxy-status": "the gateway writes it where it has made the response",
    "x-skewgate-bridged": "only a bridge writes it, so that clients may rely on it",
}
_VARY: Final = "the gateway lists the headers there on which versions depend; only `add` may be used"


@final
@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """Header fields to set, add or remove, in requests or in responses. Names that the dialect owns, that
    belong to the connection or the framing, or that the gateway itself writes are refused."""

    set: Mapping[str, MaskedText] = Table(HEADER_TOKEN, HEADER_VALUE).key(
        {},
        "Headers that replace all of the same name, each with its value.",
        reason="By default, headers pass as they came.",
        example={"X-Frame-Options": "DENY"},
    )
    add: Mapping[str, MaskedText] = Table(HEADER_TOKEN, HEADER_VALUE).key(
        {},
        "Headers that come in addition to those of the same name, each with its value.",
        reason="By default, headers pass as they came.",
        example={"Vary": "Origin"},
    )
    remove: tuple[str, ...] = ListOf(HEADER_TOKEN).key(
        (),
        "Headers that are removed, in every spelling that servers take for the same name (`X_User` with "
        "`X-User`).",
        reason="By default, headers pass as they came.",
        example=["X-Powered-By"],
    )


HEADER_CHANGES: Final = section(HeaderChanges)


@final
@dataclass(frozen=True, slots=True)
class Headers:
    """Changes in the heads of requests and responses."""

    request: HeaderChanges = HEADER_CHANGES.key(
        {},
        "In requests to backends. Probes have headers of their own (`probe.headers`). The values are never "
        "shown.",
        reason="The gateway adds only headers about the client.",
        example={"remove": ["X-Debug"]},
    )
    response: HeaderChanges = HEADER_CHANGES.key(
        {},
        "In responses to clients, also in those that the gateway makes for this service. Errors before a "
        "request has its service have none of them.",
        reason="The gateway adds nothing of its own but `Vary`.",
        example={"set": {"X-Frame-Options": "DENY"}},
    )


def read_by(dialect: Dialect) -> frozenset[str]:
    """The request headers (normalized names) that have a meaning for a dialect."""
    ids = () if dialect.request_ids is PLAIN_IDS else (dialect.request_ids.request_header,)
    names = (*ids, *dialect.method_override)
    return dialect.reads | dialect.owned_request | set(map(normalize_name, names))


def written_by(dialect: Dialect) -> frozenset[str]:
    """The response headers (normalized names) that a dialect writes."""
    return dialect.owned_response | set(map(normalize_name, dialect.request_ids.response_headers))


def read_header_edits(
    written: Headers, dialect: Dialect, node: Node | None, findings: Findings
) -> tuple[HeaderEdits | None, HeaderEdits | None]:
    """The header changes of a service, for requests and for responses; None: there are none."""
    owned = f"the dialect {dialect.name} reads or owns it"
    ids = {PLAIN_IDS.normalized_header: _REQUEST_ID}
    requests = _OF_REQUESTS | dict.fromkeys(read_by(dialect), owned) | ids
    responses = _OF_RESPONSES | dict.fromkeys(written_by(dialect), owned) | ids
    return (
        _edits(written.request, requests, child(node, "request"), findings),
        _edits(written.response, responses, child(node, "response"), findings, response=True),
    )


def _edits(
    written: HeaderChanges,
    reserved: dict[str, str],
    node: Node | None,
    findings: Findings,
    *,
    response: bool = False,
) -> HeaderEdits | None:
    seen: dict[str, tuple[str, Node | None]] = {}
    for verb, name, place in _changes(written, node):
        normalized = normalize_name(name)
        reason = reserved.get(normalized, "")
        if response and normalized == "vary" and verb != "add":
            reason = _VARY
        if reason:
            message = f"this header cannot be changed: {reason}"
            findings.add(place, "reserved-header", message, "remove it here")
        before, first = seen.setdefault(normalized, (verb, place))
        if first is not place:
            line = f" (line {first.position.line})" if first is not None else ""
            hint = "name it once: `set` replaces, `add` keeps what was sent, `remove` drops it"
            findings.contradiction(place, f"the same header is under `{before}`{line}", hint)
    if not seen:
        return None
    return HeaderEdits(tuple(written.set.items()), tuple(written.add.items()), written.remove)


def _changes(written: HeaderChanges, node: Node | None) -> Iterator[tuple[str, str, Node | None]]:
    for verb, names in (("set", written.set), ("add", written.add)):
        entries = child(node, verb)
        for name in names:
            yield verb, name, entries.entries[name].key if isinstance(entries, MappingNode) else None
    removed = child(node, "remove")
    items = removed.items if isinstance(removed, SequenceNode) else []
    for index, name in enumerate(written.remove):
        yield "remove", name, items[index] if index < len(items) else None
