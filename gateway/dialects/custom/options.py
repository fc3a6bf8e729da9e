"""The options of the dialect `custom`: every key with its default and the reason for it.

Values only, as the operator wrote them. `option_reader` checks them and makes an `ApiDescription`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gateway.core.dialect import ProbePaths
from gateway.keys.kinds import ListOf, section
from gateway.keys.texts import COUNT, FLAG, LINE, LINES, VERSION, literal

_ONE_KIND = "Each place is of one kind: header, query, path or parameter."


@dataclass(frozen=True, slots=True)
class LocationOptions:
    """One place of a version in a request: exactly one of the four kinds."""

    header: str | None = LINE.key(
        None, "A header whose whole value is the version.", reason=_ONE_KIND, example="Stripe-Version"
    )
    query: str | None = LINE.key(
        None, "A query parameter whose value is the version.", reason=_ONE_KIND, example="api-version"
    )
    path: str | None = LINE.key(
        None,
        "A path whose last segment holds the version: `/v{version}` at the start, "
        "`/admin/api/{version}` after a prefix. The rest of the path follows it.",
        reason=_ONE_KIND,
        example="/v{version}",
    )
    parameter: str | None = LINE.key(
        None,
        "A parameter of the media types in Accept and Content-Type. Both headers must agree.",
        reason=_ONE_KIND,
        example="compatible-with",
    )
    media_types: tuple[str, ...] = ListOf(LINE).key(
        (),
        "The media types that have the `parameter`. Backends get the first one when a client accepts "
        "none of them. Empty: every media type has the parameter.",
        reason="The same parameter of another type may mean something else.",
        example=("application/vnd.elasticsearch+json",),
    )
    spelling: str = LINE.key(
        "{version}",
        "The text around the version in a header, query or parameter. A path holds this text itself.",
        reason="Most APIs write the version alone.",
        example="v{version}",
    )
    sent: bool = FLAG.key(
        default=True,
        meaning="Whether backends read this place: the negotiated version is written there. `false`: the "
        "version is removed there.",
        reason="Backends mostly read the places that clients use.",
        example=False,
    )


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """The place where a backend advertises its versions: a document, otherwise the range headers of
    `reply`."""

    path: str = LINE.key(
        "/",
        "The path that probes request, unless `probe.path` of the service is set.",
        reason="Every server answers at its root.",
        example="/version",
    )
    minimum: str | None = VERSION.key(
        None,
        "JSON path of the oldest version; or that version itself, if every server serves it and no document "
        "names it.",
        reason="Nothing is guessed.",
        example="$.MinAPIVersion",
    )
    maximum: str | None = LINE.key(
        None, "JSON path of the newest version.", reason="Nothing is guessed.", example="$.ApiVersion"
    )
    list: str | None = LINE.key(
        None,
        "JSON path of all versions, instead of the oldest and the newest.",
        reason="Nothing is guessed.",
        example="$.versions[*].id",
    )
    spelling: str = LINE.key(
        "{version}",
        "The text around a version in the document. A `*` at the end matches any rest: `{version}.*` "
        "reads 8 of 8.13.0.",
        reason="Most documents write the version alone.",
        example="{version}.*",
    )
    statuses: tuple[int, ...] = ListOf(COUNT).key(
        (200,),
        "Statuses of a response with versions.",
        reason="Any other is an error page.",
        example=(200, 300),
    )
    content_type: str = LINE.key(
        "application/json",
        "The media type that a document must have.",
        reason="A web page with status 200 is not such a document.",
        example="application/vnd.api+json",
    )


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Response headers that hold versions. The gateway writes those that are named here."""

    served: str | None = LINE.key(
        None, "The version that was served.", reason="Not every API sends it.", example="Api-Version"
    )
    minimum: str | None = LINE.key(
        None, "The oldest version.", reason="Not every API sends it.", example="X-Api-Min-Version"
    )
    maximum: str | None = LINE.key(
        None, "The newest version.", reason="Not every API sends it.", example="X-Api-Max-Version"
    )
    list: str | None = LINE.key(
        None,
        "All versions, separated by commas.",
        reason="Not every API sends it.",
        example="Api-Supported-Versions",
    )
    spelling: str = LINE.key(
        "{version}",
        "The text around a version in these headers.",
        reason="Most APIs write the version alone.",
        example="v{version}",
    )
    always: bool = FLAG.key(
        default=False,
        meaning="Whether every response has these headers. `false`: the range only where the backend sent "
        "it. Every response has the served version anyway if `match` may choose another version than the "
        "requested one.",
        reason="Clients get the headers that their servers send.",
        example=True,
    )


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """A document that shows clients the versions. The gateway writes the offer into it."""

    path: str = LINE.key(
        "/", "Its path, without a version.", reason="Many APIs have it at the root.", example="/version"
    )
    versioned: bool = FLAG.key(
        default=True,
        meaning="Whether the same document exists at its path with a version, too: `/v3/version` beside "
        "`/version`. `false`: that is another document, and passes unchanged.",
        reason="Otherwise one backend's own versions might be shown there.",
        example=False,
    )
    minimum: str | None = LINE.key(
        None,
        "JSON path of the oldest version.",
        reason="Not every document has it.",
        example="$.MinAPIVersion",
    )
    maximum: str | None = LINE.key(
        None, "JSON path of the newest version.", reason="Not every document has it.", example="$.ApiVersion"
    )
    list: str | None = LINE.key(
        None,
        "JSON path of all versions, with `[*]`. Items that are not on offer are removed.",
        reason="Not every document has it.",
        example="$.versions[*].id",
    )
    links: str | None = LINE.key(
        None,
        "JSON path of links. They are rewritten so that the client can follow them.",
        reason="A link without a host needs no rewriting.",
        example="$.versions[*].href",
    )
    spelling: str = LINE.key(
        "{version}",
        "The text around a version in the document.",
        reason="Most documents write the version alone.",
        example="apps/{version}",
    )


_ONE_BODY = "One `body` fits all refusals."
_BY_HEADERS = "Without it, only the headers in `reply` can show it."


@dataclass(frozen=True, slots=True)
class RefusalOptions:
    """The gateway's response to a requested version that is not on offer or malformed."""

    status: int = COUNT.key(
        400, "Status for a version that is not on offer.", reason="Most APIs use 400.", example=406
    )
    malformed_status: int = COUNT.key(
        400, "Status for a malformed version.", reason="It is a bad request.", example=404
    )
    content_type: str = LINE.key(
        "application/problem+json",
        "Type of the body: JSON, or a text.",
        reason="RFC 9457.",
        example="application/json",
    )
    body: str | None = LINES.key(
        None,
        "The body. Placeholders: {asked} is the client's own text, {minimum} and {maximum} are the ends "
        "of the offer, {versions} is all of it, {array} is all of it as a JSON list; {status}, {title} "
        "and {detail} are those of a problem document. Left out: an RFC 9457 problem document with the "
        "range.",
        reason="A client of any API can read it.",
        example='{"message": "{detail}"}',
    )
    too_old: str | None = LINES.key(
        None, "The body for a version older than the offer.", reason=_ONE_BODY, example="too old: {asked}"
    )
    too_new: str | None = LINES.key(
        None, "The body for a version newer than the offer.", reason=_ONE_BODY, example="too new: {asked}"
    )
    malformed: str | None = LINES.key(
        None, "The body for a malformed version.", reason=_ONE_BODY, example="no version: {asked}"
    )
    minimum: str | None = LINE.key(
        None,
        "JSON path of the oldest version in a backend's own refusal. A response with this `status` in "
        "which it is found refuses the version, and the request goes to another backend.",
        reason=_BY_HEADERS,
        example="$.minimum",
    )
    maximum: str | None = LINE.key(
        None, "The same for the newest version.", reason=_BY_HEADERS, example="$.maximum"
    )
    list: str | None = LINE.key(
        None, "The same for all versions, instead of both.", reason=_BY_HEADERS, example="$.supported[*]"
    )
    spelling: str = LINE.key(
        "{version}",
        "The text around a version there, as in `learn`.",
        reason="Most refusals write the version alone.",
        example="v{version}",
    )


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """The gateway's other errors: 503 while no backend can serve the version, 502, 504, 413."""

    content_type: str = LINE.key(
        "application/problem+json",
        "Type of the body: JSON, or a text.",
        reason="RFC 9457, too.",
        example="text/plain",
    )
    body: str | None = LINES.key(
        None,
        "The body, with the placeholders {status}, {title} and {detail}. Left out: an RFC 9457 problem "
        "document.",
        reason="All APIs get errors of one shape.",
        example='{"message": "{detail}"}',
    )


Scheme: TypeAlias = Literal["integer", "major.minor", "semver", "date", "named"]
DateForm: TypeAlias = Literal["day", "month"]
Match: TypeAlias = Literal["exact", "nearest_earlier", "nearest_later"]


@dataclass(frozen=True, slots=True)
class CustomOptions:
    """Options of the dialect `custom`: one API, as its operator describes it."""

    places: tuple[LocationOptions, ...] = ListOf(section(LocationOptions)).key(
        ({"header": "API-Version"},),
        "The places of a version in a request. All places that hold one must agree; errors quote the first "
        "of them.",
        reason="Most APIs use a header.",
        example=({"header": "X-GitHub-Api-Version"},),
    )
    scheme: Scheme = literal(Scheme).key(
        "integer", "How a version is written.", reason="It is the simplest.", example="date"
    )
    date_form: DateForm = literal(DateForm).key(
        "day", "Dates as 2024-01-31 or as 2024-01.", reason="Most dates have a day.", example="month"
    )
    names: tuple[str, ...] = ListOf(LINE).key(
        (),
        "With the scheme `named`: every name, oldest first.",
        reason="Other schemes have none.",
        example=("v1beta1", "v1"),
    )
    match: Match = literal(Match).key(
        "exact",
        "Which version a request gets: just the requested one; or, of dates and names, the newest on "
        "offer that is not newer (nearest_earlier) or the oldest on offer that is not older "
        "(nearest_later).",
        reason="A client gets the version that it was written for, or an error.",
        example="nearest_earlier",
    )
    newest: str | None = LINE.key(
        None, "The word for the newest version on offer.", reason="Not every API has one.", example="latest"
    )
    unversioned: tuple[str, ...] = ListOf(LINE).key(
        (),
        "Paths (with everything below them) where a version means nothing. `/` is the root alone.",
        reason="Everywhere else each request has a version.",
        example=("/healthz", "/_ping"),
    )
    suffixes: tuple[str, ...] = ListOf(LINE).key(
        (),
        "Endings of a path that servers take for the type that a client wants, and not for a part of the "
        "path: with `.json`, the path `/users.json` is `/users` in `operations`, `unversioned` and "
        "`documents`.",
        reason="To most servers it is another path.",
        example=(".json", ".xml"),
    )
    method_override: tuple[str, ...] = ListOf(LINE).key(
        (),
        "Request headers that servers take for the method of a POST. The first that is present names the "
        "method by which `operations` and `documents` are looked up. It reaches the backend unchanged.",
        reason="Most servers take the method from the request line alone.",
        example=("X-HTTP-Method-Override",),
    )
    learn: LearnOptions = section(LearnOptions).key(
        {},
        "Where a backend advertises its versions. If it does not, declare them in `versions` of each "
        "backend.",
        reason="Nothing is guessed.",
        example={"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},
    )
    reply: ResponseOptions = section(ResponseOptions).key(
        {},
        "Response headers that hold versions.",
        reason="Not every API has any.",
        example={"served": "Api-Version"},
    )
    refusal: RefusalOptions = section(RefusalOptions).key(
        {},
        "The response to a version that is not on offer or malformed.",
        reason="RFC 9457.",
        example={"status": 406},
    )
    failure: FailureOptions = section(FailureOptions).key(
        {},
        "The gateway's own errors that are no refusals, such as 502 and 503.",
        reason="RFC 9457, too.",
        example={"content_type": "text/plain", "body": "{detail}"},
    )
    documents: tuple[DocumentOptions, ...] | None = ListOf(section(DocumentOptions)).key(
        None,
        "Documents that show clients the versions. The same path may be listed twice, with another spelling. "
        "Left out: the document that `learn` reads, if it can be rewritten. `[]`: none.",
        reason="Otherwise clients that read what probes read would see the range of one server.",
        example=({"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},),
    )

    probes: ProbePaths = field(default_factory=ProbePaths)

    @property
    def paths(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Every path in the options that clients request, with its position there."""
        places = ((("places", at, "path"), place.path) for at, place in enumerate(self.places) if place.path)
        documents = (
            (("documents", at, "path"), document.path) for at, document in enumerate(self.documents or ())
        )
        return (
            *places,
            *((("unversioned", at), path) for at, path in enumerate(self.unversioned)),
            *documents,
        )
