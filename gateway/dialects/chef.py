"""Chef Server (erchef) and what looks like it, goiardi and chef-zero: RFC 041 as servers do it.

Versions are whole numbers in `X-Ops-Server-API-Version`; no header is the constant 0. Replies carry one JSON
object under the same name. Chef clients keep the first range they are shown for ever and take a reply without
the header for a server that has only 0, so every reply gets it as soon as there is an offer, whoever made it.

What this must not do: touch a request that is signed over its version (protocol 1.3), nor the path or body of
any; and take a 406 for a version refusal because it is one: erchef also marks those about `Accept` with the
served version -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, Self

from gateway.core.dialect import (
    ASK_SILENT,
    NO_HEADERS,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Dialect,
    Failure,
    Place,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    ProbeStep,
    Refusal,
    Refused,
    Served,
    Silence,
    SilenceKind,
)
from gateway.core.message import Header, Reply, RequestHead, all_values, as_mapping, fold
from gateway.core.negotiation import settle
from gateway.core.operations import NO_OPERATIONS, Operations
from gateway.core.ranges import VersionSet
from gateway.core.version import Scheme, Version
from gateway.dialects._chef_documents import document_place, tell
from gateway.dialects._chef_object import (
    HEADER,
    HEADER_FOLDED,
    INTEGER,
    NO_VERSION,
    ZERO,
    agreed,
    answered_as,
    asked_of,
    compact,
    load_object,
    range_between,
    read_integer,
    read_object,
    write_object,
)

SIGN_FOLDED = fold("X-Ops-Sign")
GOIARDI_FOLDED = fold("X-Goiardi")

ERROR = "invalid-x-ops-server-api-version"
"""The `error` of a version refusal; nothing else has it."""

RESOURCE = Place("resource")
ASIDE = Place("aside", negotiated=False)
"""What never reaches erchef's version check: health, the manifest, the presigned URLs of the file store."""

_ASIDE = frozenset({"_status", "_stats", "_route", "version", "bookshelf"})
_JSON: Header = ("Content-Type", "application/json")

_UNSEALED = frozenset({"1.0", "1.1", "1.2"})
"""Signing protocols that leave the version header out."""

_SILENT_STATUSES = frozenset({400, 401, 404})
"""What servers before 12.1, and the nginx before them, say to an unsigned `GET /users`."""

RELEASES: Mapping[str, Version] = MappingProxyType(
    {
        "12.0": ZERO,
        **{f"12.{minor}": Version(1) for minor in range(1, 17)},
        "12.17.33": Version(1),
        **dict.fromkeys(("12.17.60", "12.18", "12.19", "13.0", "14.0", "15.0", "15.10"), Version(2)),
    }
)
"""What releases of Chef Server serve at most. 12.17 changed under way, so there its builds are named."""


@dataclass(frozen=True, slots=True)
class ChefOptions:
    """What a service of this dialect may configure."""

    error_keys: Literal["server", "rfc041"] = field(
        default="server",
        metadata={
            "description": "How a version refusal names the range in its body: `server` as Chef Server does, "
            "min_version and max_version; `rfc041` as the RFC and chef-zero do, min_api_version and "
            "max_api_version.",
            "examples": ("rfc041",),
        },
    )


class Chef(Dialect):
    """Chef Infra Server."""

    name = "chef"
    Options: ClassVar[type] = ChefOptions

    scheme: Scheme = INTEGER
    reads = frozenset({HEADER_FOLDED, SIGN_FOLDED})
    owned_request = frozenset({HEADER_FOLDED})
    owned_reply = frozenset({HEADER_FOLDED})
    vary: tuple[str, ...] = (HEADER,)
    silence = Silence(SilenceKind.CONSTANT, ZERO)
    silent_serves = VersionSet.only(ZERO)
    releases = RELEASES
    path_is_signed = True

    def __init__(self, options: ChefOptions) -> None:
        infix = "api_" if options.error_keys == "rfc041" else ""
        self._keys = f"min_{infix}version", f"max_{infix}version"

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service."""
        assert isinstance(options, ChefOptions)
        return cls(options)

    # -- 1. the request

    def place(self, method: str, path: str, query: str) -> Place:
        """`/server_api_version` is answered here; what nginx serves past erchef is not negotiated."""
        first, _, rest = path.lstrip("/").partition("/")
        if first in _ASIDE:
            return ASIDE
        return (document_place(rest) or RESOURCE) if first == "server_api_version" else RESOURCE

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """One integer. Repeated lines are one value with a comma, as webmachine joins them: no integer."""
        sealed = _is_sealed(headers)
        values = all_values(headers, HEADER_FOLDED)
        if not values:
            # A signature over no version is one over 0, whatever silence means in this service.
            return Ask(AskKind.EXACT, ZERO, "0", sealed=True) if sealed else ASK_SILENT
        text = ", ".join(values)
        number = read_integer(text)
        if number is None:
            return Ask(AskKind.GARBLED, None, text, sealed)
        return Ask(AskKind.EXACT, Version(number), text, sealed)

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """The shortest spelling, 0 too: goiardi knows `0` and `1` only, and says nothing to silence."""
        return () if silent or not place.negotiated else ((HEADER, self.scheme.format(version)),)

    # -- 2. replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """406 as erchef says it: the ask verbatim in the text, the range as numbers in the body."""
        asked = NO_VERSION if refusal.version is None else self.scheme.format(refusal.version)
        text = asked if refusal.ask.kind is AskKind.SILENT else refusal.ask.text
        lowest, highest = self._keys
        body = {
            "error": ERROR,
            "message": f"Specified version {text} not supported",
            lowest: refusal.bounds.lowest[0],
            highest: refusal.bounds.highest[0],
        }
        # Servers name no type here; a body that repeats what the client sent must not be guessed to be HTML.
        return Reply(406, (write_object(refusal.bounds, asked, NO_VERSION), _JSON), compact(body))

    def fail(self, failure: Failure) -> Reply:
        """An error in Chef's shape, with the object once there is a range."""
        headers: tuple[Header, ...] = (_JSON,)
        if failure.bounds is not None:
            asked = asked_of(failure.ask)
            headers = (write_object(failure.bounds, asked, answered_as(failure.status, asked)), _JSON)
        return Reply(failure.status, headers, compact({"error": [failure.detail]}))

    def answer(
        self, place: Place, head: RequestHead, bounds: Bounds | None, operations: Operations = NO_OPERATIONS
    ) -> Reply:
        """`/server_api_version`: the offer, or below `/extended` the operations in it. Erchef checks the
        version first, then the method; so is it here.

        Silence is 0 here even when 0 is no longer on offer: whoever asks what there is may not know yet.
        """
        headers = as_mapping(head.fields)
        ask = self.read_ask(place, headers)
        if bounds is None:
            detail = "No API version is offered at the moment."
            return self.fail(Failure(503, "Service Unavailable", detail, ask=ask))
        if HEADER in headers:
            settled = settle(ask, bounds, self.silence)
            if isinstance(settled, Refusal):
                return self.refuse(settled, place, headers)
        if head.method not in {"GET", "HEAD"}:
            detail = "The API versions can only be read."
            reply = self.fail(Failure(405, "Method Not Allowed", detail, bounds=bounds, ask=ask))
            return reply.with_headers(("Allow", "GET, HEAD"))
        body = tell(place, head.path, bounds, operations)
        if body is None:
            detail = "There is no such endpoint."
            return self.fail(Failure(404, "Not Found", detail, bounds=bounds, ask=ask))
        asked = asked_of(ask)
        return Reply(200, (write_object(bounds, asked, asked), _JSON), compact(body))

    # -- 3. the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """A version refusal is a 406 whose own object says that it was asked for what is outside its range.

        Without a usable object only the body can tell.
        """
        lines = all_values(headers, HEADER_FOLDED)
        text = agreed(lines)
        said = read_object(text)
        refused = Refused.NO
        if status == 406 and place.negotiated:
            if said.request is None or not said.versions:
                refused = Refused.READ_BODY
            elif said.response == NO_VERSION and Version(int(said.request)) not in said.versions:
                refused = Refused.YES
        return Served(
            version=None if said.response is None else self.scheme.parse(said.response),
            advert=Advert(said.versions) if said.versions else None,
            refused=refused,
            ranged=bool(lines),
            said=text,
        )

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """The range of a refusal, by the keys of either kind of server."""
        told = load_object(body)
        if told.get("error") != ERROR:
            return None
        versions = range_between(told, "min_version", "max_version") or range_between(
            told, "min_api_version", "max_api_version"
        )
        return Advert(versions) if versions else None

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
        """The object on every reply: the offer, and what was asked and served as the backend said it.

        Where it says nothing (silent servers, the nginx before erchef, goiardi now and then): what a new one
        would have said.
        """
        if status < 200:
            return ()
        said = read_object(served.said)
        asked = said.request or self.scheme.format(ZERO if settled is None else settled)
        return (write_object(bounds, asked, said.response or answered_as(status, asked)),)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """Unsigned `GET /users` at -1: erchef refuses that before it looks for a signature, naming its range.

        Goiardi says nothing to a version that it has not; it is asked again, at 0.
        """
        if not answers:
            return _question(path, NO_VERSION)
        answer = answers[-1]
        if answer.status == 429 or answer.status >= 500:
            return ProbeFault("status", f"answered {answer.status}, which tells nothing about versions")
        lines = all_values(answer.headers, HEADER_FOLDED)
        if lines:
            versions = read_object(agreed(lines)).versions
            fault = ProbeFault("range", f"{HEADER} does not hold a range from a minimum up to a maximum")
            return Advert(versions) if versions else fault
        if all_values(answer.headers, GOIARDI_FOLDED):
            # Goiardi that has no word for its version 0 either is older than versions.
            return _question(path, "0") if len(answers) == 1 else Advert(self.silent_serves, silent=True)
        if answer.status in _SILENT_STATUSES:
            return Advert(self.silent_serves, silent=True)
        if answer.status == 200:
            return ProbeFault("document", "answered 200 without versions: a welcome page, or no Chef Server")
        return self.read_refusal(answer.status, answer.headers, answer.body) or ProbeFault(
            "status", f"answered {answer.status} where 406, 400 or 401 was expected"
        )


def _is_sealed(headers: Mapping[str, str]) -> bool:
    """Whether the signature covers the version. A protocol that is not known to leave it out is taken to."""
    for line in all_values(headers, SIGN_FOLDED):
        items = (item.partition("=") for item in line.replace(",", ";").split(";"))
        versions = {value.strip() for name, _, value in items if name.strip().lower() == "version"}
        if not versions or versions - _UNSEALED:
            return True
    return False


def _question(path: str | None, version: str) -> ProbeRequest:
    """The nginx before erchef wants the first two headers, or shows a welcome page."""
    return ProbeRequest(
        path or "/users",
        (
            ("X-Chef-Version", "12.0.0"),
            ("X-Ops-Userid", "probe"),
            ("Accept", "application/json"),
            (HEADER, version),
        ),
    )
