"""What the models are made of: sections, keys, and the types of texts that become values.

A section is a mapping of the file. A key brings its default, the reason for it, a description and an example.
A `TextReader` reads one text strictly (`1_000`, `5.0` and ` 5` are not whole numbers here) and brings its
JSON Schema. Messages never quote the text, because it may come from the environment; the caret shows it as it
was written. This module knows no key. Addresses, URLs and paths of requests are in `addresses`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gateway.core.fleet.service import AtLeast
from gateway.settings.model.secret import MaskedText, Secret

# -- sections and keys


class Section(BaseModel):
    """A mapping of the file. It is frozen, and an unknown key in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


def key(default: object, description: str, *, reason: str, example: object) -> Any:  # noqa: ANN401
    """An optional key. `reason` says why its default is what it is."""
    return Field(default, description=description, examples=[example], json_schema_extra={"x-reason": reason})


def required(description: str, *, reason: str, example: object, **schema: int) -> Any:  # noqa: ANN401
    """A required key. `reason` says why it has no default. `schema` adds to its JSON Schema."""
    return Field(
        description=description, examples=[example], json_schema_extra={"x-reason": reason, **schema}
    )


TEXT_SHAPE: Final = "<text>"
OTHER_SHAPE: Final = "<other>"
"""Tags of the two shapes that one key may have. They appear in pydantic's locations, where `yaml.document`
skips them."""
by_shape: Final = Discriminator(lambda value: TEXT_SHAPE if isinstance(value, str | tuple) else OTHER_SHAPE)


# -- reading a text

VARIABLE_PATTERN: Final = r"\$\{"
"""With this pattern the schema accepts a value that contains a variable."""
TEXT: Final = {"type": "string", "minLength": 1}
"""The schema of any text."""

T = TypeVar("T")


def reject(message: str, hint: str = "", code: str = "bad-value") -> NoReturn:
    """Refuse a text. The message must not quote it."""
    # The message is a parameter of the template, because pydantic fills in braces in the template itself.
    raise PydanticCustomError(code, "{message}", {"message": message, "hint": hint})


def text_of(value: object) -> str:
    """The value, which must be a text that is not empty."""
    if not isinstance(value, str):
        reject(f"a text is expected here, not {shape_of(value)}", code="wrong-type")
    if not value:
        reject("the value is empty", "remove the key to use its default")
    return value


def shape_of(value: object) -> str:
    """What a part of the tree is, for messages."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "a text" if value else "nothing"


@dataclass(frozen=True, eq=False)
class TextReader(Generic[T]):
    """An annotation: pydantic reads the text with `read`, and `schema` is the JSON Schema of the text.

    Values of the types in `accepted` are taken as they are: defaults, and settings that code makes itself.
    """

    read: Callable[[str], T]
    schema: Mapping[str, object]
    accepted: tuple[type, ...] = ()
    is_key: bool = False
    """True: the text is a key, in which no variable is replaced."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> dict[str, Any]:
        schema = dict(self.schema)
        if self.is_key or (schema.get("type") in ("string", ["string", "integer"]) and "enum" not in schema):
            if "pattern" in schema and not self.is_key:
                schema["pattern"] = f"{schema['pattern']}|{VARIABLE_PATTERN}"
            return schema
        return {"anyOf": [schema, {"type": "string", "pattern": VARIABLE_PATTERN}]}

    def _validate(self, value: object) -> object:
        return value if isinstance(value, self.accepted) else self.read(text_of(value))


def matching(pattern: str) -> dict[str, object]:
    """The schema of a text that matches a pattern as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def one_of(*words: str) -> TextReader[str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in words:
            close = [word for word in words if word.lower() == text.lower()]
            close = close or get_close_matches(text, words, n=1)
            reject(
                "not one of the allowed values",
                f"did you mean {close[0]}?" if close else "write one of: " + ", ".join(words),
            )
        return text

    return TextReader(read, {"type": "string", "enum": list(words)})


# -- numbers, durations, sizes

_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_duration(text: str) -> float:
    """`250ms`, `5s`, `2m` as seconds."""
    seconds = read_wait(text)
    if not seconds:
        reject("a duration must be more than 0")
    return seconds


def read_wait(text: str) -> float:
    """A duration that may be zero, `0s`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        reject("not a valid duration", "write a whole number and its unit: 250ms, 5s or 2m")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400:
        reject("a duration must be at most 1440m (a day)")
    return seconds


def read_share(text: str) -> AtLeast:
    """A number of backends, `2`, or a percentage of them, `50%`."""
    number = text.removesuffix("%")
    percent = number != text
    if re.fullmatch("[1-9][0-9]{0,2}", number, re.ASCII) is None or (percent and int(number) > 100):
        reject("not a valid number of backends", "write a number such as 2, or a percentage from 1% to 100%")
    return AtLeast(int(number), percent)


def read_size(text: str) -> int:
    """`512B`, `64KiB`, `1MiB`, `1GiB` as bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        reject("not a valid size", "write a whole number and its unit: 512B, 64KiB, 1MiB or 1GiB")
    return int(found[1]) * _BYTES[found[2]]


def read_count(text: str) -> int:
    """A whole number in plain digits."""
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", text, re.ASCII) is None:
        reject("not a whole number", "write digits only")
    return int(text)


def read_flag(text: str) -> bool:
    """`true` or `false`."""
    if text not in {"true", "false"}:
        reject("not true or false", "write true or false; yes, no, on and off are plain texts here")
    return text == "true"


def count(low: int, high: int) -> TextReader[int]:
    """A whole number from `low` to `high`."""

    def read(text: str) -> int:
        value = read_count(text)
        if not low <= value <= high:
            reject(f"the number must be from {low} to {high}")
        return value

    return TextReader(read, {"type": "integer", "minimum": low, "maximum": high}, (int,))


def size(low: str, high: str) -> TextReader[int]:
    """A number of bytes, from `low` to `high` as an operator writes them."""
    lowest, highest = read_size(low), read_size(high)

    def read(text: str) -> int:
        value = read_size(text)
        if not lowest <= value <= highest:
            reject(f"the size must be from {low} to {high}")
        return value

    return TextReader(read, matching("[0-9]{1,12}(?:B|KiB|MiB|GiB)"), (int,))


# -- names, headers, secrets, other texts

NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
BACKEND_NAME_PATTERN: Final = r"[A-Za-z0-9_.:\[\]-]{1,255}"
HEADER_NAME_PATTERN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
HEADER_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\*?"
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_BACKEND_NAME: Final = re.compile(BACKEND_NAME_PATTERN, re.ASCII)
_HEADER_NAME: Final = re.compile(HEADER_NAME_PATTERN, re.ASCII)
_CONNECTION_HEADERS: Final = frozenset(
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)


def read_name(text: str) -> str:
    """The name of a service."""
    if _NAME.fullmatch(text) is None:
        reject(
            "a name must have 1 to 64 letters, digits, `_`, `.` or `-`", "it is used in URLs and in metrics"
        )
    return text


def read_backend_name(text: str) -> str:
    """The name of a backend. `HOST:PORT` is one."""
    if _BACKEND_NAME.fullmatch(text) is None:
        reject("a backend's name must have 1 to 255 letters, digits, or characters of `_ . : [ ] -`")
    return text


def read_header_name(text: str) -> str:
    """The name of a header that a probe may carry."""
    if _HEADER_NAME.fullmatch(text) is None:
        reject("not a valid header name", "a header name has no blanks and no colon")
    if text.lower() in _CONNECTION_HEADERS:
        reject("this header describes the connection; a probe cannot set it")
    return text


def read_header_pattern(text: str) -> str:
    """The name of a header; `*` at its end stands for any further characters."""
    if re.fullmatch(HEADER_PATTERN, text, re.ASCII) is None:
        reject(
            "a header here must have 1 to 63 letters, digits and `-`, and perhaps one `*` at its end",
            "write X-Real-IP, which includes X_Real_IP, or X-Forwarded-*",
        )
    return text


def read_header_value(text: str) -> MaskedText:
    """The value of a header: visible ASCII with blanks inside."""
    if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", text) is None:
        reject("a header value must be visible ASCII without blanks at its ends")
    return MaskedText(text)


def read_secret(text: str) -> Secret:
    """A token that fits into an `Authorization: Bearer` line."""
    if re.fullmatch(r"[\x21-\x7e]+", text) is None:
        reject("a token must be visible ASCII without blanks", "clients send it in a header")
    return Secret(text)


def read_text(text: str) -> str:
    """Any text on one line."""
    if not text.isprintable():
        reject("the text contains a character that cannot be printed")
    return text


def read_lines(text: str) -> str:
    """Any text, on one line or several."""
    if not text.replace("\n", " ").isprintable():
        reject("the text contains a character that cannot be printed")
    return text


def read_file_path(text: str) -> str:
    """The path of a file that the gateway writes."""
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("the path names a folder, not a file", "add a file name, such as state.json")
    return text


# -- the types that keys use

Duration: TypeAlias = Annotated[
    float, TextReader(read_duration, matching("[0-9]{1,9}(?:ms|s|m)"), (float, int))
]
Wait: TypeAlias = Annotated[float, TextReader(read_wait, matching("[0-9]{1,9}(?:ms|s|m)"), (float, int))]
Share: TypeAlias = Annotated[
    AtLeast,
    TextReader(
        read_share,
        {
            "type": ["string", "integer"],
            "minimum": 1,
            "maximum": 999,
            "pattern": "^(?:[1-9][0-9]{0,2}|100%|[1-9][0-9]?%)$",
        },
        (AtLeast,),
    ),
]
Flag: TypeAlias = Annotated[bool, TextReader(read_flag, {"type": "boolean"}, (bool,))]
Name: TypeAlias = Annotated[str, TextReader(read_name, matching(NAME_PATTERN), is_key=True)]
BackendName: TypeAlias = Annotated[str, TextReader(read_backend_name, matching(BACKEND_NAME_PATTERN))]
HeaderName: TypeAlias = Annotated[
    str, TextReader(read_header_name, matching(HEADER_NAME_PATTERN), is_key=True)
]
HeaderPattern: TypeAlias = Annotated[str, TextReader(read_header_pattern, matching(HEADER_PATTERN))]
HeaderValue: TypeAlias = Annotated[MaskedText, TextReader(read_header_value, TEXT)]
SecretText: TypeAlias = Annotated[
    Secret, TextReader(read_secret, {**matching("[\\x21-\\x7e]+"), "writeOnly": True}, (Secret,))
]
Text: TypeAlias = Annotated[str, TextReader(read_text, TEXT)]
Lines: TypeAlias = Annotated[str, TextReader(read_lines, TEXT)]
FilePath: TypeAlias = Annotated[str, TextReader(read_file_path, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))]
VersionText: TypeAlias = Annotated[
    str, TextReader(read_text, {"type": ["string", "integer"], "minLength": 1})
]
"""A version as it was written. Whole numbers need no quotation marks. 1.90 needs them where other tools read
the file."""
