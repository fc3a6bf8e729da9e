"""What every mapping of the configuration has in common: frozen, no unknown keys, every key explained.

Knows no key.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Discriminator, Field


class Section(BaseModel):
    """A mapping of the file: frozen, and every key in it is known."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


def key(default: object, description: str, *, reason: str, example: object) -> Any:  # noqa: ANN401
    """A key that may be left out; `reason` says why its default is what it is."""
    return Field(default, description=description, examples=[example], json_schema_extra={"x-reason": reason})


def required(description: str, *, reason: str, example: object, **schema: int) -> Any:  # noqa: ANN401
    """A key that must be there; `reason` says why it has no default. `schema` adds to its JSON Schema."""
    return Field(
        description=description, examples=[example], json_schema_extra={"x-reason": reason, **schema}
    )


TEXT_SHAPE: Final = "<text>"
OTHER_SHAPE: Final = "<other>"
"""Tags of the two shapes that a key may have. They show up in pydantic's locations, where `load` skips
them."""
by_shape: Final = Discriminator(lambda value: TEXT_SHAPE if isinstance(value, str | tuple) else OTHER_SHAPE)
