"""The options of the dialect `custom`: every key with its default and the reason for it.

Values only, as the operator wrote them. `option_reader` checks them and makes the parts of a dialect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.core.configuration_rules import ProbePaths


def documented(description: str, reason: str, *examples: object, **more: object) -> dict[str, Any]:
    """The metadata of a field, from which the schema and the reference are made."""
    return {"description": description, "reason": reason, "examples": examples, **more}


# --- requests ----------------------------------------------------------------------------------------------

_ONE_KIND = "Each place is of one kind: header, query, path or parameter."


@dataclass(frozen=True, slots=True)
class LocationOptions:
    """One place of a request in which a version may stand: exactly one of the four kinds."""

    header: str | None = field(
        default=None,
        metadata=documented("A header whose whole value is the version.", _ONE_KIND, "Stripe-Version"),
    )
    query: str | None = field(
        default=None,
        metadata=documented("A query parameter whose value is the version.", _ONE_KIND, "api-version"),
    )
    path: str | None = field(
        default=None,
        metadata=documented(
            "A path whose last segment holds the version: `/v{version}` at the start, "
            "`/admin/api/{version}` after a prefix. The rest of the path follows it.",
            _ONE_KIND,
            "/v{version}",
        ),
    )
    parameter: str | None = field(
        default=None,
        metadata=documented(
            "A parameter of the media types in Accept and Content-Type. Both headers must agree.",
            _ONE_KIND,
            "compatible-with",
        ),
    )
    media_types: tuple[str, ...] = field(
        default=(),
        metadata=documented(
            "The media types that have the `parameter`. Backends get the first one when a client accepts "
            "none of them. Empty: every media type has the parameter.",
            "The same parameter of another type may mean something else.",
            ("application/vnd.elasticsearch+json",),
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=documented(
            "The text around the version in a header, query or parameter. A path holds this text itself.",
            "Most APIs write the version alone.",
            "v{version}",
        ),
    )
    sent: bool = field(
        default=True,
        metadata=documented(
            "Whether backends read this place: the negotiated version is written there. `false`: the version "
            "is removed there.",
            "Backends mostly read the places that clients use.",
            False,  # noqa: FBT003
        ),
    )


# --- backends ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """Where a backend advertises its versions: in a document, otherwise in the range headers of `reply`."""

    path: str = field(
        default="/",
        metadata=documented(
            "The path that probes request, unless `probe.path` of the service is set.",
            "Every server answers at its root.",
            "/version",
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of the oldest version; or that version itself, where every server serves it and no "
            "document says so.",
            "Nothing is guessed.",
            "$.MinAPIVersion",
            version=True,
        ),
    )
    maximum: str | None = field(
        default=None,
        metadata=documented("JSON path of the newest version.", "Nothing is guessed.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of all versions, instead of the oldest and the newest.",
            "Nothing is guessed.",
            "$.versions[*].id",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=documented(
            "The text around a version in the document. A `*` at the end matches any rest: `{version}.*` "
            "reads 8 of 8.13.0.",
            "Most documents write the version alone.",
            "{version}.*",
        ),
    )
    statuses: tuple[int, ...] = field(
        default=(200,),
        metadata=documented(
            "Statuses of a response that is believed.", "Any other is an error page.", (200, 300)
        ),
    )
    content_type: str = field(
        default="application/json",
        metadata=documented(
            "The media type that a document must have.",
            "A web page with status 200 is not such a document.",
            "application/vnd.api+json",
        ),
    )


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Response headers that hold versions. The gateway writes those that are named here."""

    served: str | None = field(
        default=None,
        metadata=documented("The version that was served.", "Not every API sends it.", "Api-Version"),
    )
    minimum: str | None = field(
        default=None,
        metadata=documented("The oldest version.", "Not every API sends it.", "X-Api-Min-Version"),
    )
    maximum: str | None = field(
        default=None,
        metadata=documented("The newest version.", "Not every API sends it.", "X-Api-Max-Version"),
    )
    list: str | None = field(
        default=None,
        metadata=documented(
            "All versions, separated by commas.", "Not every API sends it.", "Api-Supported-Versions"
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=documented(
            "The text around a version in these headers.", "Most APIs write the version alone.", "v{version}"
        ),
    )
    always: bool = field(
        default=False,
        metadata=documented(
            "Whether these headers stand on every response. `false`: the range only where the backend sent "
            "it. The served version stands on every response anyway when `match` may choose another version "
            "than the requested one.",
            "Clients get what their servers send.",
            True,  # noqa: FBT003
        ),
    )


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """A document that shows clients which versions there are. The gateway writes the offer into it."""

    path: str = field(
        default="/",
        metadata=documented(
            "Its path, without a version.",
            "Many APIs have it at the root.",
            "/version",
        ),
    )
    versioned: bool = field(
        default=True,
        metadata=documented(
            "Whether the same document stands at its path with a version, too: `/v3/version` beside "
            "`/version`. `false`: what stands there is another document, and passes as it is.",
            "Otherwise one backend's own versions might be shown there.",
            False,  # noqa: FBT003
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of the oldest version.", "Not every document has it.", "$.MinAPIVersion"
        ),
    )
    maximum: str | None = field(
        default=None,
        metadata=documented("JSON path of the newest version.", "Not every document has it.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of all versions, with `[*]`. Items that are not on offer are removed.",
            "Not every document has it.",
            "$.versions[*].id",
        ),
    )
    links: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of links. They are rewritten so that the client can follow them.",
            "A link without a host needs no rewriting.",
            "$.versions[*].href",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=documented(
            "The text around a version in the document.",
            "Most documents write the version alone.",
            "apps/{version}",
        ),
    )


# --- refusals and errors -----------------------------------------------------------------------------------

_ONE_BODY = "One `body` fits all refusals."
_BY_HEADERS = "Without it, only the headers in `reply` can show it."


@dataclass(frozen=True, slots=True)
class RefusalOptions:
    """What the gateway answers when a requested version is not on offer, or is malformed."""

    status: int = field(
        default=400,
        metadata=documented("Status for a version that is not on offer.", "Most APIs use 400.", 406),
    )
    malformed_status: int = field(
        default=400,
        metadata=documented("Status for a malformed version.", "It is a bad request.", 404),
    )
    content_type: str = field(
        default="application/problem+json",
        metadata=documented("Type of the body: JSON, or a text.", "RFC 9457.", "application/json"),
    )
    body: str | None = field(
        default=None,
        metadata=documented(
            "The body. Placeholders: {asked} is the client's own text, {minimum} and {maximum} are the ends "
            "of the offer, {versions} is all of it, {array} is all of it as a JSON list; {status}, {title} "
            "and {detail} are those of a problem document. Left out: an RFC 9457 problem document with the "
            "range.",
            "A client of any API can read it.",
            '{"message": "{detail}"}',
            lines=True,
        ),
    )
    too_old: str | None = field(
        default=None,
        metadata=documented(
            "The body for a version older than the offer.", _ONE_BODY, "too old: {asked}", lines=True
        ),
    )
    too_new: str | None = field(
        default=None,
        metadata=documented(
            "The body for a version newer than the offer.", _ONE_BODY, "too new: {asked}", lines=True
        ),
    )
    malformed: str | None = field(
        default=None,
        metadata=documented(
            "The body for a malformed version.", _ONE_BODY, "no version: {asked}", lines=True
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=documented(
            "JSON path of the oldest version in a backend's own refusal. A response with this `status` in "
            "which it is found refuses the version, and the request goes to another backend.",
            _BY_HEADERS,
            "$.minimum",
        ),
    )
    maximum: str | None = field(
        default=None,
        metadata=documented("The same for the newest version.", _BY_HEADERS, "$.maximum"),
    )
    list: str | None = field(
        default=None,
        metadata=documented("The same for all versions, instead of both.", _BY_HEADERS, "$.supported[*]"),
    )
    spelling: str = field(
        default="{version}",
        metadata=documented(
            "The text around a version there, as in `learn`.",
            "Most refusals write the version alone.",
            "v{version}",
        ),
    )


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """The gateway's own errors that are no refusals: 503 while no backend can serve the version, 502, 504,
    413."""

    content_type: str = field(
        default="application/problem+json",
        metadata=documented("Type of the body: JSON, or a text.", "RFC 9457, too.", "text/plain"),
    )
    body: str | None = field(
        default=None,
        metadata=documented(
            "The body, with the placeholders {status}, {title} and {detail}. Left out: an RFC 9457 problem "
            "document.",
            "All APIs get errors of one shape.",
            '{"message": "{detail}"}',
            lines=True,
        ),
    )


# --- the whole API -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CustomOptions:
    """One API, as its operator describes it."""

    places: tuple[LocationOptions, ...] = field(
        default=(LocationOptions(header="API-Version"),),
        metadata=documented(
            "Where a version stands in a request. All places that hold one must agree; errors quote the "
            "first of them.",
            "Most APIs use a header.",
            ({"header": "X-GitHub-Api-Version"},),
        ),
    )
    scheme: Literal["integer", "major.minor", "semver", "date", "named"] = field(
        default="integer",
        metadata=documented("How a version is written.", "It is the simplest.", "date"),
    )
    date_form: Literal["day", "month"] = field(
        default="day",
        metadata=documented("Dates as 2024-01-31 or as 2024-01.", "Most dates have a day.", "month"),
    )
    names: tuple[str, ...] = field(
        default=(),
        metadata=documented(
            "With the scheme `named`: every name, oldest first.",
            "Other schemes have none.",
            ("v1beta1", "v1"),
        ),
    )
    match: Literal["exact", "nearest_earlier", "nearest_later"] = field(
        default="exact",
        metadata=documented(
            "Which version a request gets: just the requested one; or, of dates and names, the newest on "
            "offer that is not newer (nearest_earlier) or the oldest on offer that is not older "
            "(nearest_later).",
            "A client gets the version that it was written for, or an error.",
            "nearest_earlier",
        ),
    )
    newest: str | None = field(
        default=None,
        metadata=documented("The word for the newest version on offer.", "Not every API has one.", "latest"),
    )
    unversioned: tuple[str, ...] = field(
        default=(),
        metadata=documented(
            "Paths (with everything below them) where a version means nothing. `/` is the root alone.",
            "Everywhere else each request has a version.",
            ("/healthz", "/_ping"),
        ),
    )
    suffixes: tuple[str, ...] = field(
        default=(),
        metadata=documented(
            "Endings of a path that servers take for the type that a client wants, and not for a part of the "
            "path: with `.json`, the path `/users.json` is `/users` in `operations`, `unversioned` and "
            "`documents`.",
            "To most servers it is another path.",
            (".json", ".xml"),
        ),
    )
    method_override: tuple[str, ...] = field(
        default=(),
        metadata=documented(
            "Request headers that servers take for the method of a POST. The first that is present names the "
            "method by which `operations` and `documents` are looked up. It reaches the backend unchanged.",
            "Most servers take the method from the request line alone.",
            ("X-HTTP-Method-Override",),
        ),
    )
    learn: LearnOptions = field(
        default_factory=LearnOptions,
        metadata=documented(
            "Where a backend advertises its versions. If nowhere, `versions` of each backend declares them.",
            "Nothing is guessed.",
            {"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},
        ),
    )
    reply: ResponseOptions = field(
        default_factory=ResponseOptions,
        metadata=documented(
            "Response headers that hold versions.", "Not every API has any.", {"served": "Api-Version"}
        ),
    )
    refusal: RefusalOptions = field(
        default_factory=RefusalOptions,
        metadata=documented(
            "The answer to a version that is not on offer, or is malformed.", "RFC 9457.", {"status": 406}
        ),
    )
    failure: FailureOptions = field(
        default_factory=FailureOptions,
        metadata=documented(
            "The gateway's own errors that are no refusals, such as 502 and 503.",
            "RFC 9457, too.",
            {"content_type": "text/plain", "body": "{detail}"},
        ),
    )
    documents: tuple[DocumentOptions, ...] | None = field(
        default=None,
        metadata=documented(
            "Documents that show clients the versions. The same path may stand here twice, with another "
            "spelling. Left out: the document that `learn` reads, if it can be rewritten. `[]`: none.",
            "Otherwise clients that read what probes read would see the range of one server.",
            ({"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},),
        ),
    )

    probes: ProbePaths = field(default_factory=ProbePaths)

    @property
    def paths(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Every path that clients request, with its position in the options."""
        places = ((("places", at, "path"), place.path) for at, place in enumerate(self.places) if place.path)
        documents = (
            (("documents", at, "path"), document.path) for at, document in enumerate(self.documents or ())
        )
        return (
            *places,
            *((("unversioned", at), path) for at, path in enumerate(self.unversioned)),
            *documents,
        )
