"""What an operator may say about an API of the `header` dialect: every key with its default, and why.

Values only, as they were written. What they amount to, and what is wrong with them, is `_header_reading`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.dialects._header_telling_options import DocumentOptions, LearnOptions, ReplyOptions, told


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """One place of a request in which a version may stand: exactly one of the four."""

    header: str | None = field(
        default=None,
        metadata=told(
            "A header whose whole value is the version.",
            "Each place is of one kind: header, query, path or parameter.",
            "Stripe-Version",
        ),
    )
    query: str | None = field(
        default=None,
        metadata=told(
            "A query parameter whose value is the version.",
            "Each place is of one kind: header, query, path or parameter.",
            "api-version",
        ),
    )
    path: str | None = field(
        default=None,
        metadata=told(
            "A path whose last segment holds the version: `/v{version}` at the start, "
            "`/admin/api/{version}` after a prefix. Whatever follows is the rest of the path.",
            "Each place is of one kind: header, query, path or parameter.",
            "/v{version}",
        ),
    )
    parameter: str | None = field(
        default=None,
        metadata=told(
            "A media-type parameter of Accept and Content-Type, which must agree.",
            "Each place is of one kind: header, query, path or parameter.",
            "compatible-with",
        ),
    )
    media_types: tuple[str, ...] = field(
        default=(),
        metadata=told(
            "The media types that have the `parameter`; the first is asked for where a client names none of "
            "them. None: every media type has it.",
            "The same parameter of another type may mean something else.",
            ("application/vnd.elasticsearch+json",),
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=told(
            "What stands around the version in a header, query or parameter. (A path says it itself.)",
            "Most APIs write the version alone.",
            "v{version}",
        ),
    )
    sent: bool = field(
        default=True,
        metadata=told(
            "Whether the backends read this place: the settled version is written there. `false`: it is "
            "taken off.",
            "A place that clients use is mostly one that backends read.",
            False,  # noqa: FBT003
        ),
    )


@dataclass(frozen=True, slots=True)
class RefusalOptions:
    """What the gateway says to a version that is not on offer, or is none."""

    status: int = field(
        default=400,
        metadata=told("Status for a version that is not on offer.", "Most APIs say 400.", 406),
    )
    malformed_status: int = field(
        default=400, metadata=told("Status for what is no version.", "A bad request.", 404)
    )
    content_type: str = field(
        default="application/problem+json",
        metadata=told("Type of the body: JSON, or a text.", "RFC 9457.", "application/json"),
    )
    body: str | None = field(
        default=None,
        metadata=told(
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
        metadata=told(
            "The body for a version older than the offer.",
            "`body` tells all.",
            "too old: {asked}",
            lines=True,
        ),
    )
    too_new: str | None = field(
        default=None,
        metadata=told(
            "The body for a version newer than the offer.",
            "`body` tells all.",
            "too new: {asked}",
            lines=True,
        ),
    )
    malformed: str | None = field(
        default=None,
        metadata=told(
            "The body for what is no version.", "`body` tells all.", "no version: {asked}", lines=True
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=told(
            "JSON path of the oldest version in a backend's own refusal: a reply of this `status` in "
            "which it is found refuses the version, and goes to another backend.",
            "Without one, only the headers in `reply` can tell.",
            "$.minimum",
        ),
    )
    maximum: str | None = field(
        default=None,
        metadata=told(
            "The same of the newest version.",
            "Without one, only the headers in `reply` can tell.",
            "$.maximum",
        ),
    )
    list: str | None = field(
        default=None,
        metadata=told(
            "The same of all versions, instead of both.",
            "Without one, only the headers in `reply` can tell.",
            "$.supported[*]",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=told(
            "What stands around a version there, as in `learn`.",
            "Mostly the version stands alone.",
            "v{version}",
        ),
    )


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What the gateway says when it must fail: 503 while nobody serves a version, 502, 504, 413."""

    content_type: str = field(
        default="application/problem+json",
        metadata=told("Type of the body: JSON, or a text.", "RFC 9457, too.", "text/plain"),
    )
    body: str | None = field(
        default=None,
        metadata=told(
            "The body, with {status}, {title} and {detail}. Left out: an RFC 9457 problem document.",
            "One shape of errors for all APIs.",
            '{"message": "{detail}"}',
            lines=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class HeaderOptions:
    """What an operator says about one API."""

    places: tuple[PlaceOptions, ...] = field(
        default=(PlaceOptions(header="API-Version"),),
        metadata=told(
            "Where a version stands in a request. Of several, those that say something must agree; the "
            "first that does is quoted.",
            "A header is the most common place.",
            ({"header": "X-GitHub-Api-Version"},),
        ),
    )
    scheme: Literal["integer", "major.minor", "semver", "date", "named"] = field(
        default="integer",
        metadata=told("How a version is spelled.", "The simplest.", "date"),
    )
    date_form: Literal["day", "month"] = field(
        default="day",
        metadata=told("Dates as 2024-01-31 or as 2024-01.", "Most dates have a day.", "month"),
    )
    names: tuple[str, ...] = field(
        default=(),
        metadata=told(
            "With the scheme `named`: every name, oldest first.",
            "Other schemes have none.",
            ("v1beta1", "v1"),
        ),
    )
    match: Literal["exact", "nearest_earlier", "nearest_later"] = field(
        default="exact",
        metadata=told(
            "What an ask gets: just that; or, of dates and names, the newest on offer that is not newer "
            "(nearest_earlier), or the oldest that is not older (nearest_later).",
            "A client gets what it was written for, or is told.",
            "nearest_earlier",
        ),
    )
    silence: str = field(
        default="minimum",
        metadata=told(
            "What a request without a version means: minimum, maximum, refused, or a version.",
            "What was written before there were versions goes on as it was.",
            "maximum",
            version=True,
        ),
    )
    newest: str | None = field(
        default=None,
        metadata=told("The word for the newest version on offer.", "Not every API has one.", "latest"),
    )
    unversioned: tuple[str, ...] = field(
        default=(),
        metadata=told(
            "Paths (with all below them) where a version means nothing. `/` is the root alone.",
            "Elsewhere every request has a version.",
            ("/healthz", "/_ping"),
        ),
    )
    learn: LearnOptions = field(
        default_factory=LearnOptions,
        metadata=told(
            "Where a backend says what it serves. Nowhere: each backend's `versions` says it.",
            "Nothing is guessed.",
            {"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},
        ),
    )
    reply: ReplyOptions = field(
        default_factory=ReplyOptions,
        metadata=told(
            "Reply headers that tell versions.", "Not every API has any.", {"served": "Api-Version"}
        ),
    )
    refusal: RefusalOptions = field(
        default_factory=RefusalOptions,
        metadata=told("What is said to a version that is not on offer.", "RFC 9457.", {"status": 406}),
    )
    failure: FailureOptions = field(
        default_factory=FailureOptions,
        metadata=told(
            "What is said when the gateway must fail.",
            "RFC 9457, too.",
            {"content_type": "text/plain", "body": "{detail}"},
        ),
    )
    documents: tuple[DocumentOptions, ...] = field(
        default=(),
        metadata=told(
            "Documents that tell versions. One path may stand here twice, with another spelling.",
            "Not every API has any.",
            ({"path": "/version", "minimum": "$.MinAPIVersion", "maximum": "$.ApiVersion"},),
        ),
    )

    @property
    def paths(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Every path that clients ask for, with where it stands."""
        places = ((("places", at, "path"), each.path) for at, each in enumerate(self.places) if each.path)
        documents = ((("documents", at, "path"), each.path) for at, each in enumerate(self.documents))
        return (
            *places,
            *((("unversioned", at), each) for at, each in enumerate(self.unversioned)),
            *documents,
        )
