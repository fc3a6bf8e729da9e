"""The shape of one item of `services.NAME.operations`: its keys, and how their texts are read.

What needs the dialect, or more than one key, is in `checks.operations`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from gateway.core.decision.operations import PathTemplate
from gateway.core.http.message import METHODS
from gateway.errors import PathTemplateError
from gateway.keys.kinds import ListOf, Text, reject, section
from gateway.keys.texts import VERSION, one_of, read_count

_PATH_TEMPLATE: Final = r"/|(?:/(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z0-9._~!$&'()*+,=:@-]+))+"
REFUSAL_STATUSES: Final = (400, 404)


def read_path_template(text: str) -> PathTemplate:
    """A path in which `{name}` stands for one segment."""
    try:
        return PathTemplate.read(text)
    except PathTemplateError as error:
        reject(str(error), "write /v1/nodes/{node}/vifs")


PATH_PATTERN: Final = Text(read_path_template, {"type": "string", "pattern": f"^(?:{_PATH_TEMPLATE})$"})


def read_refusal_status(text: str) -> int | None:
    """400 or 404."""
    status = read_count(text)
    if status not in REFUSAL_STATUSES:
        reject("the status must be 400 or 404", "clients expect one of these for a missing operation")
    return status


REFUSAL_STATUS: Final = Text(read_refusal_status, {"type": "integer", "enum": list(REFUSAL_STATUSES)})


@final
@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, or several with the same path, that exists in these versions only."""

    methods: tuple[str, ...] = field(
        metadata=ListOf(one_of(*METHODS), least=1).required(
            "The methods. HEAD is included with GET, unless it is named itself.",
            reason="An operation is a method and a path.",
            example=["GET"],
        )
    )
    path: PathTemplate = field(
        metadata=PATH_PATTERN.required(
            "The path as the API knows it, without `match.path`. `{name}` stands for any one segment; a "
            "literal segment takes precedence over it.",
            reason="An operation is a method and a path.",
            example="/v1/nodes/{node}/vifs",
        )
    )
    versions: str = field(
        metadata=VERSION.required(
            'The versions in which it exists: `">=1.58"`, `"<=2.4"`, `1.1-1.58` (dates and names `a..b`), '
            "one version, or several separated by commas. `next`: in development, in no version yet. Items "
            "with the same method and path add up. YAML needs quotation marks around `>`.",
            reason="Without versions the item would restrict nothing.",
            example=">=1.28",
        )
    )
    status: str = one_of("active", "deprecated", "unstable").key(
        "active",
        "What the Chef dialect says about it at `/server_api_version/extended`. An operation of `next` is "
        "unstable or active.",
        reason="An operation that exists may be used.",
        example="deprecated",
    )
    refusal: int | None = REFUSAL_STATUS.key(
        None,
        "The status of the refusal outside these versions. Without it: the status that the dialect's servers "
        "use, 400 for Senlin, 404 for the others.",
        reason="Clients were written for what their servers do.",
        example=404,
    )


OPERATION: Final = section(Operation)
