"""The shape of one item of `services.NAME.operations`: its keys, and how their texts are read.

What needs the dialect, or more than one key, is in `operations`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import Field

from gateway.core.message import METHODS
from gateway.core.operations import PathTemplate
from gateway.errors import PathTemplateError
from gateway.settings.reading import Reads, reject, words
from gateway.settings.scalars import VersionText, read_count
from gateway.settings.section import Section, key, required

_PATH_TEMPLATE: Final = r"/|(?:/(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z0-9._~!$&'()*+,=:@-]+))+"
REFUSAL_STATUSES: Final = (400, 404)


def read_path_template(text: str) -> PathTemplate:
    """A path with `{name}` for any one segment."""
    try:
        return PathTemplate.read(text)
    except PathTemplateError as error:
        reject(str(error), "write /v1/nodes/{node}/vifs")


PathPattern: TypeAlias = Annotated[
    PathTemplate,
    Reads(read_path_template, {"type": "string", "pattern": f"^(?:{_PATH_TEMPLATE})$"}, (PathTemplate,)),
]


def read_refusal_status(text: str) -> int | None:
    """400 or 404."""
    status = read_count(text)
    if status not in REFUSAL_STATUSES:
        reject("an operation is refused with 400 or 404", "these are the statuses that clients know for it")
    return status


REFUSAL_STATUS: Final = Reads(
    read_refusal_status, {"type": "integer", "enum": list(REFUSAL_STATUSES)}, (int, type(None))
)


class Operation(Section):
    """An operation, or several of one path, that exists in these versions only."""

    methods: Annotated[tuple[Annotated[str, words(*METHODS)], ...], Field(min_length=1)] = required(
        "Its methods. HEAD is where GET is, unless it is named itself.",
        reason="An operation is a method at a path.",
        example=["GET"],
    )
    path: PathPattern = required(
        "The path as the API itself knows it, without `match.path`. `{name}` stands for any one segment; a "
        "literal one goes before it.",
        reason="An operation is a method at a path.",
        example="/v1/nodes/{node}/vifs",
    )
    versions: VersionText = required(
        'The versions in which it exists: `">=1.58"`, `"<=2.4"`, `1.1-1.58` (dates and names `a..b`), one '
        "version, several with commas; or `next`: being developed, in no version yet. Items of the same "
        "method and path add up. YAML wants `>` in quotation marks.",
        reason="Without a range there is nothing to hold to.",
        example=">=1.28",
    )
    status: Annotated[str, words("active", "deprecated", "unstable")] = key(
        "active",
        "What the Chef dialect tells of it at `/server_api_version/extended`. What is `next` is unstable or "
        "active.",
        reason="What exists may be used.",
        example="deprecated",
    )
    refusal: Annotated[int | None, REFUSAL_STATUS] = key(
        None,
        "The status of the refusal outside these versions. Left out: what the dialect's servers say, 400 in "
        "Senlin, 404 elsewhere.",
        reason="Clients were written against what their servers do.",
        example=404,
    )
