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
from pathlib import PurePath
from typing import Annotated, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gateway.core.fleet.service import AtLeast
from gateway.core.http.upgrade import PROTOCOL_PATTERN, carries_requests
from gateway.settings.model.secret import MaskedText, Secret

# -- sections and keys


class Section(BaseModel):
    """A mapping of the file. It is frozen, and an unknown key in it is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
        defer_build=True,  # a section is mostly read as a part of the whole, which is built once
    )


DIVIDED: Final = "divided"
"""Each of several workers has an equal part, and no worker more."""
SHARED: Final = "shared"
"""It holds for all workers together."""
PER_WORKER: Final = "per worker"
"""Each worker has all of it."""


def key(default: object, description: str, *, reason: str, example: object, workers: str = "") -> Any:  # noqa: ANN401
    """An optional key. `reason` says why its default is what it is. `workers`: of what adds up over requests
    or connections what it means for several workers; it begins with one of the three words above."""
    extra: dict[str, Any] = {"x-reason": reason}
    if workers:
        extra["x-workers"] = workers
    return Field(default, description=description, examples=[example], json_schema_extra=extra)


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


@dataclass(frozen=True, eq=False)
class PathReader(TextReader[T]):
    """A text with the path of a file: a relative one begins in the folder of the configuration."""

    before: str = ""
    """What comes before the path. A text without it has no path."""
    unplaced: frozenset[str] = frozenset()
    """Texts that are no path."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._validate_in)

    def _validate_in(self, value: object, info: core_schema.ValidationInfo[Any]) -> object:
        found = self._validate(value)  # as it is written: `.` is no name of a file, whatever the folder
        if isinstance(value, self.accepted) or info.context is None:
            return found
        text = text_of(value)
        path = text.removeprefix(self.before)
        if path.startswith("/") or not text.startswith(self.before) or text in self.unplaced:
            return found
        return self.read(f"{self.before}{PurePath(info.context[FOLDER], path)}")


FOLDER: Final = "folder"
"""In the context of a validation: the folder in which relative paths begin."""


def matching(pattern: str) -> dict[str, object]:
    """The schema of a text that matches a pattern as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def one_of(*words: str) -> TextReader[str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in words:
            close = [word for word in words if word.lower() == text.lower()]
            close = close or get_close_matches(text, words, n=1)
            hint = f"did you mean {close[0]}?" if close else "write one of: " + ", ".join(words)
            only = f"write {words[0]}, or leave the key out to get its defaults"
            reject("not one of the allowed values", hint if len(words) > 1 else only)
        return text

    return TextReader(read, {"type": "string", "enum": list(words)})


# -- numbers, durations, sizes

DURATION_PATTERN: Final = "[0-9]{1,9}(?:ms|s|m|h)"
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_duration(text: str, otherwise: str = "") -> float:
    """`250ms`, `5s`, `2m`, `24h` as seconds. `otherwise`: what else may be written, for the hint."""
    seconds = read_wait(text, otherwise)
    if not seconds:
        reject("a duration must be more than 0")
    return seconds


def read_wait(text: str, otherwise: str = "") -> float:
    """A duration that may be zero, `0s`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        reject("not a valid duration", f"write a whole number and its unit: 250ms, 5s, 2m or 24h{otherwise}")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400:
        reject("a duration must be at most 24h")
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

MIN_SECRET: Final = 16
"""Characters: nobody guesses so many by trying."""
NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
BACKEND_NAME_PATTERN: Final = r"[A-Za-z0-9_.:\[\]-]{1,255}"
ENVIRONMENT_NAME: Final = "[A-Za-z_][A-Za-z0-9_]*"
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


def read_header_token(text: str) -> str:
    """The name of any header. Which may be changed depends on the dialect, and is checked in `checks`."""
    if _HEADER_NAME.fullmatch(text) is None:
        reject("not a valid header name", "a header name has no blanks and no colon")
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
    if len(text) < MIN_SECRET:
        reject(f"a token must have at least {MIN_SECRET} characters", "make one: openssl rand -hex 16")
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


def read_protocol(text: str) -> str:
    """A protocol of `Upgrade` that may be tunnelled, in lower case."""
    if re.fullmatch(PROTOCOL_PATTERN, text, re.ASCII) is None:
        reject("not a valid protocol", "write its name, and its version after a slash if it has one")
    if carries_requests(text):
        reject(
            "this protocol is never tunnelled: HTTP requests in it would reach a backend with no version "
            "negotiated",
            "write a protocol that is not HTTP, such as websocket",
        )
    return text.lower()


def read_file_path(text: str) -> str:
    """The path of a file that the gateway writes."""
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("the path names a folder, not a file", "add a file name, such as state.json")
    return text


def read_pattern(text: str) -> str:
    """The path of files that the gateway reads, with `*`, `?` and `[ ]` as in a shell."""
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("the path names a folder, not files", "add a pattern of file names, such as *.yaml")
    return text


def read_variable_name(text: str) -> str:
    """The name of an environment variable, as in `${NAME}`."""
    if re.fullmatch(ENVIRONMENT_NAME, text, re.ASCII) is None:
        reject("not a name of an environment variable", "write NAME without ${ }: letters, digits and _")
    return text


# -- the types that keys use

Duration: TypeAlias = Annotated[float, TextReader(read_duration, matching(DURATION_PATTERN), (float, int))]
Wait: TypeAlias = Annotated[float, TextReader(read_wait, matching(DURATION_PATTERN), (float, int))]
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
HeaderToken: TypeAlias = Annotated[
    str, TextReader(read_header_token, matching(HEADER_NAME_PATTERN), is_key=True)
]
HeaderTokenText: TypeAlias = Annotated[str, TextReader(read_header_token, matching(HEADER_NAME_PATTERN))]
HeaderPattern: TypeAlias = Annotated[str, TextReader(read_header_pattern, matching(HEADER_PATTERN))]
HeaderValue: TypeAlias = Annotated[MaskedText, TextReader(read_header_value, TEXT)]
SecretText: TypeAlias = Annotated[
    Secret,
    TextReader(read_secret, {**matching(f"[\\x21-\\x7e]{{{MIN_SECRET},}}"), "writeOnly": True}, (Secret,)),
]
Protocol: TypeAlias = Annotated[str, TextReader(read_protocol, matching(PROTOCOL_PATTERN))]
Text: TypeAlias = Annotated[str, TextReader(read_text, TEXT)]
Lines: TypeAlias = Annotated[str, TextReader(read_lines, TEXT)]
FilePath: TypeAlias = Annotated[str, PathReader(read_file_path, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))]
FilePattern: TypeAlias = Annotated[str, TextReader(read_pattern, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))]
VariableName: TypeAlias = Annotated[str, TextReader(read_variable_name, matching(ENVIRONMENT_NAME))]
VersionText: TypeAlias = Annotated[
    str, TextReader(read_text, {"type": ["string", "integer"], "minLength": 1})
]
"""A version as it was written. Whole numbers need no quotation marks. 1.90 needs them where other tools read
the file."""
