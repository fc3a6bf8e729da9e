"""Where an API of the `header` dialect tells its versions: every key with its default, and why.

Values only, as they were written; the other keys are in `_header_options`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def told(description: str, reason: str, *examples: object, **more: object) -> dict[str, Any]:
    return {"description": description, "reason": reason, "examples": examples, **more}


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """Where a backend says what it serves: in a document, else in the range headers of `reply`."""

    path: str = field(
        default="/",
        metadata=told(
            "What is asked for, unless the service's `probe.path` says it.", "The root answers.", "/version"
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=told("JSON path of the oldest version.", "Nothing is guessed.", "$.MinAPIVersion"),
    )
    maximum: str | None = field(
        default=None,
        metadata=told("JSON path of the newest version.", "Nothing is guessed.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=told(
            "JSON path of all versions, instead of the oldest and the newest.",
            "Nothing is guessed.",
            "$.versions[*].id",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=told(
            "What stands around a version in the document. A `*` at the end is any rest: `{version}.*` reads "
            "8 of 8.13.0.",
            "Most documents write the version alone.",
            "{version}.*",
        ),
    )
    statuses: tuple[int, ...] = field(
        default=(200,),
        metadata=told(
            "Statuses of an answer that is believed.", "Anything else is an error page.", (200, 300)
        ),
    )
    content_type: str = field(
        default="application/json",
        metadata=told(
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
        metadata=told("Tells the version that was served.", "Not every API says it.", "Api-Version"),
    )
    minimum: str | None = field(
        default=None,
        metadata=told("Tells the oldest version.", "Not every API says it.", "X-Api-Min-Version"),
    )
    maximum: str | None = field(
        default=None,
        metadata=told("Tells the newest version.", "Not every API says it.", "X-Api-Max-Version"),
    )
    list: str | None = field(
        default=None,
        metadata=told(
            "Tells all versions, with commas between.", "Not every API says it.", "Api-Supported-Versions"
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=told("What stands around a version in them.", "Most write the version alone.", "v{version}"),
    )
    always: bool = field(
        default=False,
        metadata=told(
            "Whether they stand on every reply. `false`: the range where the backend sent it. The served "
            "version stands on every reply anyway where `match` may give another one than was asked for.",
            "Clients get what their servers send.",
            True,  # noqa: FBT003
        ),
    )


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """A document that tells clients which versions there are; the gateway writes the offer there."""

    path: str = field(
        default="/",
        metadata=told(
            "Its path, without a version; with one it is the same document.", "The root.", "/version"
        ),
    )
    minimum: str | None = field(
        default=None,
        metadata=told("JSON path of the oldest version.", "Not every document has it.", "$.MinAPIVersion"),
    )
    maximum: str | None = field(
        default=None,
        metadata=told("JSON path of the newest version.", "Not every document has it.", "$.ApiVersion"),
    )
    list: str | None = field(
        default=None,
        metadata=told(
            "JSON path of all versions, with `[*]`: items that are not on offer are left out.",
            "Not every document has it.",
            "$.versions[*].id",
        ),
    )
    links: str | None = field(
        default=None,
        metadata=told(
            "JSON path of links, which are made such that the client can follow them.",
            "Links to paths alone can be followed as they are.",
            "$.versions[*].href",
        ),
    )
    spelling: str = field(
        default="{version}",
        metadata=told(
            "What stands around a version in the document.", "Mostly nothing does.", "apps/{version}"
        ),
    )
