"""How a text of the file becomes a value: refusing it, and a reader with its JSON Schema as one annotation.

Knows no key and no kind of value but a choice of words. Messages never quote the text: it may come from the
environment; the caret shows it as written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Generic, NoReturn, TypeVar

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VARIABLE_PATTERN: Final = r"\$\{"
"""What lets the schema accept a value that the environment completes."""
TEXT: Final = {"type": "string", "minLength": 1}
"""The schema of a text of any kind."""

T = TypeVar("T")


def reject(message: str, hint: str = "", code: str = "bad-value") -> NoReturn:
    """Refuse a text. The message must not quote it."""
    # Braces would be taken for places to fill in.
    raise PydanticCustomError(code, "{said}", {"said": message, "hint": hint})


def text_of(value: object) -> str:
    """The text itself; anything else than a text is refused."""
    if not isinstance(value, str):
        reject(f"a text is expected here, not {shape_of(value)}", code="wrong-type")
    if not value:
        reject("the value is empty", "remove the key to get its default")
    return value


def shape_of(value: object) -> str:
    """What a part of the tree is, for messages."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "a text" if value else "nothing"


@dataclass(frozen=True, eq=False)
class Reads(Generic[T]):
    """An annotation: pydantic reads the text with `read`, and the schema of the place is `schema`.

    Values of the types `made` are taken as they are: defaults, and settings that code makes by itself.
    """

    read: Callable[[str], T]
    schema: Mapping[str, object]
    made: tuple[type, ...] = ()
    key: bool = False
    """True: it stands left of a colon, where no variable is replaced."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> dict[str, Any]:
        schema = dict(self.schema)
        if self.key or (schema.get("type") in ("string", ["string", "integer"]) and "enum" not in schema):
            if "pattern" in schema and not self.key:
                schema["pattern"] = f"{schema['pattern']}|{VARIABLE_PATTERN}"
            return schema
        return {"anyOf": [schema, {"type": "string", "pattern": VARIABLE_PATTERN}]}

    def _validate(self, value: object) -> object:
        return value if isinstance(value, self.made) else self.read(text_of(value))


def matching(pattern: str) -> dict[str, object]:
    """The schema of a text that a pattern matches as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def words(*known: str) -> Reads[str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in known:
            close = [word for word in known if word.lower() == text.lower()]
            close = close or get_close_matches(text, known, n=1)
            reject(
                "this is none of the words that may stand here",
                f"did you mean {close[0]}?" if close else "one of: " + ", ".join(known),
            )
        return text

    return Reads(read, {"type": "string", "enum": list(known)})
