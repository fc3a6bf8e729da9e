"""What an operator may say about an API of the `header` dialect: every key with its default, and why.

Values only, as they were written. What they amount to, and what is wrong with them, is `_header_reading`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def _told(description: str, reason: str, *examples: object, **more: object) -> dict[str, Any]:
    return {"description": description, "reason": reason, "examples": examples, **more}


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """One place of a request in which a version may stand: exactly one of the four."""

    header: str | None = field(
        default=None,
        metadata=_told(
            "A header whose whole value is the version.",
            "Each place is of one kind: header, query, path or parameter.",
            "Stripe-Version",
        ),
    )
    query: str | None = field(
        default=None,
        metadata=_told(
            "A query parameter whose value is the version.",
            "Each place is of one kind: header, query, path or parameter.",
            "api-version",
        ),
    )
    path: str | None = field(
        default=None,
        metadata=_told(
            "A path whose last segment holds the version: `/v{version}` at the start, "
            "`/admin/api/{version}` after a prefix. Whatever follows is the rest of the path.",
            "Each place is of one kind: header, query, path or parameter.",
            "/v{version}",
        ),
    )
    parameter: str | None = field(
        default=None,
        metadata=_told(
            "A media-type parameter of Accept and Content-Type, which must agree.",
            "Each place is of one kind: header, query, path or parameter.",
            "compatible-with",
        ),
    )
    media_types: tuple[str, ...] = field(
        default=(),
        metadata=_told(
            "The media types that have the `parameter`; the first is asked for where a client names none of "
            "them. None: every media type has it.",
            "The same parameter of another type may mean something else.",
            ("application/vnd.elasticsearch+json",),
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=_told(
            "What stands around the version in a header, query or parameter. (A path says it itself.)",
            "Most APIs write the version alone.",
            "v{version}",
        ),
    )
    sent: bool = field(
        default=True,
        metadata=_told(
            "Whether the backends read this place: the settled version is written there. `false`: it is "
            "taken off.",
            "A place that clients use is mostly one that backends read.",
            False,  # noqa: FBT003
        ),
    )


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """Where a backend says what it serves: in a document, else in the range headers of `reply`."""

    path: str = field(
        default="/",
        metadata=_told(
            "What is asked for, unless the service's `probe.path` says it.", "The root answers.", "/version"
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=_told("JSON path of the oldest version.", "Nothing is guessed.", "$.MinAPIVersion"),
    )
    maximum: str | None = field(
        default=None,
        metadata=_told("JSON path of the newest version.", "Nothing is guessed.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=_told(
            "JSON path of all versions, instead of the oldest and the newest.",
            "Nothing is guessed.",
            "$.versions[*].id",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=_told(
            "What stands around a version in the document. A `*` at the end is any rest: `{version}.*` reads "
            "8 of 8.13.0.",
            "Most documents write the version alone.",
            "{version}.*",
        ),
    )
    statuses: tuple[int, ...] = field(
        default=(200,),
        metadata=_told(
            "Statuses of an answer that is believed.", "Anything else is an error page.", (200, 300)
        ),
    )
    content_type: str = field(
        default="application/json",
        metadata=_told(
            "The media type that a document must have.",
            "A web page with status 200 is no document.",
            "application/vnd.api+json",
        ),
    )


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """Reply headers that tell versions; those that are named are the gateway's to write."""

    served: str | None = field(
        default=None,
        metadata=_told("Tells the version that was served.", "Not every API says it.", "Api-Version"),
    )
    minimum: str | None = field(
        default=None,
        metadata=_told("Tells the oldest version.", "Not every API says it.", "X-Api-Min-Version"),
    )
    maximum: str | None = field(
        default=None,
        metadata=_told("Tells the newest version.", "Not every API says it.", "X-Api-Max-Version"),
    )
    list: str | None = field(
        default=None,
        metadata=_told(
            "Tells all versions, with commas between.", "Not every API says it.", "Api-Supported-Versions"
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=_told(
            "What stands around a version in them.", "Most write the version alone.", "v{version}"
        ),
    )
    always: bool = field(
        default=False,
        metadata=_told(
            "Whether they stand on every reply. `false`: the range where the backend sent it. The served "
            "version stands on every reply anyway where `match` may give another one than was asked for.",
            "Clients get what their servers send.",
            True,  # noqa: FBT003
        ),
    )


@dataclass(frozen=True, slots=True)
class RefusalOptions:
    """What the gateway says to a version that is not on offer, or is none."""

    status: int = field(
        default=400,
        metadata=_told("Status for a version that is not on offer.", "Most APIs say 400.", 406),
    )
    malformed_status: int = field(
        default=400, metadata=_told("Status for what is no version.", "A bad request.", 404)
    )
    content_type: str = field(
        default="application/problem+json",
        metadata=_told("Type of the body: JSON, or a text.", "RFC 9457.", "application/json"),
    )
    body: str | None = field(
        default=None,
        metadata=_told(
            "The body. In it {asked} is what the client said, {minimum} and {maximum} the ends of the offer, "
            "{versions} all of it, {array} all of it as a JSON list, {status}, {title} and {detail} what a "
            "problem document has. Left out: an RFC 9457 problem document with the range.",
            "A client of any API can read it.",
            '{"message": "{detail}"}',
            lines=True,
        ),
    )
    too_old: str | None = field(
        default=None,
        metadata=_told(
            "The body for a version older than the offer.",
            "`body` tells all.",
            "too old: {asked}",
            lines=True,
        ),
    )
    too_new: str | None = field(
        default=None,
        metadata=_told(
            "The body for a version newer than the offer.",
            "`body` tells all.",
            "too new: {asked}",
            lines=True,
        ),
    )
    malformed: str | None = field(
        default=None,
        metadata=_told(
            "The body for what is no version.", "`body` tells all.", "no version: {asked}", lines=True
        ),
    )


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What the gateway says when it must fail: 503 while nobody serves a version, 502, 504, 413."""

    content_type: str = field(
        default="application/problem+json",
        metadata=_told("Type of the body: JSON, or a text.", "RFC 9457, too.", "text/plain"),
    )
    body: str | None = field(
        default=None,
        metadata=_told(
            "The body, with {status}, {title} and {detail}. Left out: an RFC 9457 problem document.",
            "One shape of errors for all APIs.",
            '{"message": "{detail}"}',
            lines=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """A document that tells clients which versions there are; the gateway writes the offer there."""

    path: str = field(
        default="/",
        metadata=_told(
            "Its path, without a version; with one it is the same document.", "The root.", "/version"
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=_told("JSON path of the oldest version.", "Not every document has it.", "$.MinAPIVersion"),
    )
    maximum: str | None = field(
        default=None,
        metadata=_told("JSON path of the newest version.", "Not every document has it.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=_told(
            "JSON path of all versions, with `[*]`: items that are not on offer are left out.",
            "Not every document has it.",
            "$.versions[*].id",
        ),
    )
    links: str | None = field(
        default=None,
        metadata=_told(
            "JSON path of links, which are made such that the client can follow them.",
            "Links to paths alone can be followed as they are.",
            "$.versions[*].href",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=_told(
            "What stands around a version in the document.", "Mostly nothing does.", "apps/{version}"
        ),
    )


@dataclass(frozen=True, slots=True)
class HeaderOptions:
    """What an operator says about one API."""

    places: tuple[PlaceOptions, ...] = field(
        default=(PlaceOptions(header="API-Version"),),
        metadata=_told(
            "Where a version stands in a request. Of several, those that say something must agree; the "
            "first that does is quoted.",
            "A header is the most common place.",
            ({"header": "X-GitHub-Api-Version"},),
        ),
    )
    scheme: Literal["integer", "major.minor", "semver", "date", "named"] = field(
        default="integer",
        metadata=_told("How a version is spelled.", "The simplest.", "date"),
    )
    date_form: Literal["day", "month"] = field(
        default="day",
        metadata=_told("Dates as 2024-01-31 or as 2024-01.", "Most dates have a day.", "month"),
    )
    names: tuple[str, ...] = field(
        default=(),
        metadata=_told(
            "With the scheme `named`: every name, oldest first.",
            "Other schemes have none.",
            ("v1beta1", "v1"),
        ),
    )
    match: Literal["exact", "nearest_earlier"] = field(
        default="exact",
        metadata=_told(
            "What an ask gets: just that, or the newest version on offer that is not newer (dates and "
            "names).",
            "A client gets what it was written for, or is told.",
            "nearest_earlier",
        ),
    )
    silence: str = field(
        default="minimum",
        metadata=_told(
            "What a request without a version means: minimum, maximum, refused, or a version.",
            "What was written before there were versions goes on as it was.",
            "maximum",
            version=True,
        ),
    )
    newest: str | None = field(
        default=None,
        metadata=_told("The word for the newest version on offer.", "Not every API has one.", "latest"),
    )
    unversioned: tuple[str, ...] = field(
        default=(),
        metadata=_told(
            "Paths (with all below them) where a version means nothing. `/` is the root alone.",
            "Elsewhere every request has a version.",
            ("/healthz", "/_ping"),
        ),
    )
    learn: LearnOptions = field(
        default_factory=LearnOptions,
        metadata=_told(
            "Where a backend says what it serves. Nowhere: each backend's `versions` says it.",
            "Nothing is guessed.",
            {"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},
        ),
    )
    reply: ReplyOptions = field(
        default_factory=ReplyOptions,
        metadata=_told(
            "Reply headers that tell versions.", "Not every API has any.", {"served": "Api-Version"}
        ),
    )
    refusal: RefusalOptions = field(
        default_factory=RefusalOptions,
        metadata=_told("What is said to a version that is not on offer.", "RFC 9457.", {"status": 406}),
    )
    failure: FailureOptions = field(
        default_factory=FailureOptions,
        metadata=_told(
            "What is said when the gateway must fail.",
            "RFC 9457, too.",
            {"content_type": "text/plain", "body": "{detail}"},
        ),
    )
    documents: tuple[DocumentOptions, ...] = field(
        default=(),
        metadata=_told(
            "Documents that tell versions. One path may stand here twice, with another spelling.",
            "Not every API has any.",
            ({"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},),
        ),
    )
