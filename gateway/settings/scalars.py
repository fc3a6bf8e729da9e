"""The other texts of a configuration as values: durations, sizes, numbers, names, headers, secrets.

Each type reads one text strictly (`1_000`, `5.0` and ` 5` are no whole numbers here) and brings its own JSON
Schema. Addresses, URLs and paths of requests are in `addresses`.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from gateway.core.service import AtLeast
from gateway.settings.reading import TEXT, Reads, matching, reject
from gateway.settings.secret import MaskedText, Secret

NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
BACKEND_NAME_PATTERN: Final = r"[A-Za-z0-9_.:\[\]-]{1,255}"
HEADER_NAME_PATTERN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_BACKEND_NAME: Final = re.compile(BACKEND_NAME_PATTERN, re.ASCII)
_TOKEN: Final = re.compile(HEADER_NAME_PATTERN, re.ASCII)
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
    """A duration that may be none at all, `0s`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        reject("this is no duration", "write a whole number and its unit: 250ms, 5s or 2m")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400:
        reject("a duration must be at most 1440m (a day)")
    return seconds


def read_share(text: str) -> AtLeast:
    """A number of backends, `2`, or a percentage of them, `50%`."""
    number = text.removesuffix("%")
    percent = number != text
    if re.fullmatch("[1-9][0-9]{0,2}", number, re.ASCII) is None or (percent and int(number) > 100):
        reject("this is no number of backends", "write a number, 2, or a percentage from 1% to 100%")
    return AtLeast(int(number), percent)


def read_size(text: str) -> int:
    """`512B`, `64KiB`, `1MiB`, `1GiB` as bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        reject("this is no size", "write a whole number and its unit: 512B, 64KiB, 1MiB or 1GiB")
    return int(found[1]) * _BYTES[found[2]]


def read_count(text: str) -> int:
    """A whole number in plain digits."""
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", text, re.ASCII) is None:
        reject("this is no whole number", "write digits only")
    return int(text)


def read_flag(text: str) -> bool:
    """`true` or `false`."""
    if text not in {"true", "false"}:
        reject("this is neither true nor false", "write true or false; other words are read as they stand")
    return text == "true"


def read_name(text: str) -> str:
    """The name of a service."""
    if _NAME.fullmatch(text) is None:
        reject(
            "a name is 1 to 64 letters, digits, `_`, `.` or `-`", "it becomes a part of URLs and of metrics"
        )
    return text


def read_backend_name(text: str) -> str:
    """The name of a backend; `HOST:PORT` is one."""
    if _BACKEND_NAME.fullmatch(text) is None:
        reject("a backend's name is 1 to 255 letters, digits, or one of `_ . : [ ] -`")
    return text


_NOT_PROBED_WITH: Final = frozenset(
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)


def read_header_name(text: str) -> str:
    """A header's name that a probe may carry."""
    if _TOKEN.fullmatch(text) is None:
        reject("this is no header name", "a name has no blanks and no colon")
    if text.lower() in _NOT_PROBED_WITH:
        reject("this header belongs to the connection, not to the question")
    return text


def read_header_value(text: str) -> MaskedText:
    """A header's value: visible ASCII with blanks inside."""
    if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", text) is None:
        reject("a header's value is visible ASCII without blanks around it")
    return MaskedText(text)


def read_secret(text: str) -> Secret:
    """A token that fits into an `Authorization: Bearer` line."""
    if re.fullmatch(r"[\x21-\x7e]+", text) is None:
        reject("a token is visible ASCII without blanks", "it is sent in a header")
    return Secret(text)


def read_text(text: str) -> str:
    """Any text on one line."""
    if not text.isprintable():
        reject("the text holds a character that cannot be printed")
    return text


def read_lines(text: str) -> str:
    """Any text, on one line or several."""
    if not text.replace("\n", " ").isprintable():
        reject("the text holds a character that cannot be printed")
    return text


def read_file_path(text: str) -> str:
    """Where a file of ours is or is to be."""
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("this names a folder, not a file", "add the file's name, such as state.json")
    return text


Duration: TypeAlias = Annotated[float, Reads(read_duration, matching("[0-9]{1,9}(?:ms|s|m)"), (float, int))]
Wait: TypeAlias = Annotated[float, Reads(read_wait, matching("[0-9]{1,9}(?:ms|s|m)"), (float, int))]
Share: TypeAlias = Annotated[
    AtLeast,
    Reads(
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
Flag: TypeAlias = Annotated[bool, Reads(read_flag, {"type": "boolean"}, (bool,))]
Name: TypeAlias = Annotated[str, Reads(read_name, matching(NAME_PATTERN), key=True)]
BackendName: TypeAlias = Annotated[str, Reads(read_backend_name, matching(BACKEND_NAME_PATTERN))]
HeaderName: TypeAlias = Annotated[str, Reads(read_header_name, matching(HEADER_NAME_PATTERN), key=True)]
HeaderValue: TypeAlias = Annotated[MaskedText, Reads(read_header_value, TEXT)]
SecretText: TypeAlias = Annotated[
    Secret, Reads(read_secret, {**matching("[\\x21-\\x7e]+"), "writeOnly": True}, (Secret,))
]
Text: TypeAlias = Annotated[str, Reads(read_text, TEXT)]
Lines: TypeAlias = Annotated[str, Reads(read_lines, TEXT)]
FilePath: TypeAlias = Annotated[str, Reads(read_file_path, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))]
VersionText: TypeAlias = Annotated[str, Reads(read_text, {"type": ["string", "integer"], "minLength": 1})]
"""A version as written. Whole numbers need no quotation marks; 1.90 does where other tools read the file,
too."""


def count(low: int, high: int) -> Reads[int]:
    """A whole number from `low` to `high`."""

    def read(text: str) -> int:
        value = read_count(text)
        if not low <= value <= high:
            reject(f"the number must be from {low} to {high}")
        return value

    return Reads(read, {"type": "integer", "minimum": low, "maximum": high}, (int,))


def size(low: str, high: str) -> Reads[int]:
    """Bytes, from `low` to `high` as an operator writes them."""
    bounds = read_size(low), read_size(high)

    def read(text: str) -> int:
        value = read_size(text)
        if not bounds[0] <= value <= bounds[1]:
            reject(f"the size must be from {low} to {high}")
        return value

    return Reads(read, matching("[0-9]{1,12}(?:B|KiB|MiB|GiB)"), (int,))
