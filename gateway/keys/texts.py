"""Readers of single texts of the file: words, numbers, durations, sizes, names, headers, paths.

Each reader takes one text strictly and returns its value, or refuses it with a message and a hint. Messages
never quote the text, because it may come from the environment; the caret shows it as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, TypeVar, get_args

from gateway.keys.kinds import TEXT, ListOf, PathText, Text, matching, reject
from gateway.keys.secrets import MaskedText, Secret

Word = TypeVar("Word", bound=StrEnum)

# --- words


def one_of(*words: str) -> Text[str]:
    """Kind of configuration key: one of `words`."""

    def read(text: str) -> str:
        if text not in words:
            close = [word for word in words if word.lower() == text.lower()]
            close = close or get_close_matches(text, words, n=1)
            hint = f"did you mean {close[0]}?" if close else "write one of: " + ", ".join(words)
            only = f"write {words[0]}, or leave the key out to get its defaults"
            reject("not one of the allowed values", hint if len(words) > 1 else only)
        return text

    return Text(read, {"type": "string", "enum": list(words)})


def literal(words: Any) -> Text[str]:  # noqa: ANN401 - a `Literal` is no class
    """Kind of configuration key: one of the words of a `Literal`, which is also the type of the value."""
    return one_of(*get_args(words))


def member_of(words: type[Word]) -> Text[Word]:
    """Kind of configuration key: one of the words of a `StrEnum`, whose member is the value."""
    word = one_of(*words)
    return Text(lambda text: words(word.read(text)), word.json)


def off() -> Text[None]:
    """Kind of configuration key: the word `off`, which stands for no value."""
    word = one_of("off")

    def read(text: str) -> None:
        word.read(text)

    return Text(read, word.json)


# --- numbers, durations, sizes

DURATION_PATTERN: Final = "[0-9]{1,9}(?:ms|s|m|h)"
DAY_PATTERN: Final = "(?:19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_NUMBER_WITH_UNIT: Final = re.compile(r"([0-9]{1,9}) ?([a-z]*)", re.ASCII | re.IGNORECASE)
_TIME_UNITS: Final = {
    "": "s",
    "ms": "ms",
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
}
_SIZE_UNITS: Final = {
    **dict.fromkeys(("", "b", "byte", "bytes"), "B"),
    **dict.fromkeys(("k", "kb", "kib"), "KiB"),
    **dict.fromkeys(("m", "mb", "mib"), "MiB"),
    **dict.fromkeys(("g", "gb", "gib"), "GiB"),
}


def _with_our_unit(text: str, units: Mapping[str, str]) -> str:
    """A hint with the same number and the unit that was probably meant; empty: it cannot be guessed."""
    found = _NUMBER_WITH_UNIT.fullmatch(text)
    unit = units.get(found[2].lower()) if found else None
    return f"did you mean `{found[1]}{unit}`?" if found and unit else ""


def read_duration(text: str, otherwise: str = "") -> float:
    """Read `250ms`, `5s`, `2m`, `24h` as seconds. `otherwise`: other allowed texts, for the hint."""
    seconds = read_wait(text, otherwise)
    if not seconds:
        reject("a duration must be more than 0")
    return seconds


def read_wait(text: str, otherwise: str = "") -> float:
    """Read a duration that may be zero: `0s`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        hint = f"write a whole number and its unit: 250ms, 5s, 2m or 24h{otherwise}"
        reject("not a valid duration", hint, _with_our_unit(text, _TIME_UNITS))
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400:
        reject("a duration must be at most 24h")
    return seconds


def read_day(text: str) -> date:
    """Read a day of the calendar: `2026-12-01`."""
    with suppress(ValueError):
        if re.fullmatch(DAY_PATTERN, text, re.ASCII):
            return date.fromisoformat(text)
    return reject("not a day of the calendar since 1970", "write YYYY-MM-DD; it begins at 00:00 UTC")


def read_percentage(text: str) -> int:
    """Read `50%` as 50."""
    if re.fullmatch("(?:[1-9][0-9]?|100)%", text, re.ASCII) is None:
        reject("not a valid percentage", "write a percentage from 1% to 100%")
    return int(text.removesuffix("%"))


def read_size(text: str) -> int:
    """Read `512B`, `64KiB`, `1MiB`, `1GiB` as bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        hint = "write a whole number and its unit: 512B, 64KiB, 1MiB or 1GiB"
        reject("not a valid size", hint, _with_our_unit(text, _SIZE_UNITS))
    return int(found[1]) * _BYTES[found[2]]


def read_count(text: str) -> int:
    """Read a whole number in plain digits."""
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", text, re.ASCII) is None:
        reject("not a whole number", "write digits only")
    return int(text)


def read_flag(text: str) -> bool:
    """Read `true` or `false`."""
    if text not in {"true", "false"}:
        reject("not true or false", "write true or false; yes, no, on and off are plain texts here")
    return text == "true"


def count(low: int, high: int, hint: str = "") -> Text[int]:
    """Kind of configuration key: a whole number, `low` to `high`. `hint`: the alternative to others."""

    def read(text: str) -> int:
        value = read_count(text)
        if not low <= value <= high:
            reject(f"the number must be from {low} to {high}", hint)
        return value

    return Text(read, {"type": "integer", "minimum": low, "maximum": high})


def size(low: str, high: str) -> Text[int]:
    """Kind of configuration key: a number of bytes, from `low` to `high` as an operator writes them."""
    lowest, highest = read_size(low), read_size(high)

    def read(text: str) -> int:
        value = read_size(text)
        if not lowest <= value <= highest:
            reject(f"the size must be from {low} to {high}")
        return value

    return Text(read, matching("[0-9]{1,12}(?:B|KiB|MiB|GiB)"))


# --- names, headers, secrets, other texts

MIN_SECRET: Final = 16
"""Fewest characters of a token: nobody guesses so many by trying."""
NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
BACKEND_NAME_PATTERN: Final = r"[A-Za-z0-9_.:\[\]-]{1,255}"
HEADER_NAME_PATTERN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONNECTION_HEADERS: Final = frozenset(
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)


def written_as(pattern: str, message: str, hint: str = "") -> Text[str]:
    """Kind of configuration key: a text of this pattern; `message` and `hint` refuse any other."""
    compiled = re.compile(pattern, re.ASCII)

    def read(text: str) -> str:
        if compiled.fullmatch(text) is None:
            reject(message, hint)
        return text

    return Text(read, matching(pattern))


def read_header_name(text: str) -> str:
    """Read the name of a header that a probe may carry."""
    HEADER_TOKEN.read(text)
    if text.lower() in _CONNECTION_HEADERS:
        reject("this header describes the connection; a probe cannot set it")
    return text


def read_header_value(text: str) -> MaskedText:
    """Read the value of a header: visible ASCII with blanks inside."""
    if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", text) is None:
        reject("a header value must be visible ASCII without blanks at its ends")
    return MaskedText(text)


def read_secret(text: str) -> Secret:
    """Read a token that fits into an `Authorization: Bearer` line."""
    if re.fullmatch(r"[\x21-\x7e]+", text) is None:
        reject("a token must be visible ASCII without blanks", "clients send it in a header")
    if len(text) < MIN_SECRET:
        reject(f"a token must have at least {MIN_SECRET} characters", "make one: openssl rand -hex 16")
    return Secret(text)


def read_text(text: str) -> str:
    """Read any text on one line."""
    if not text.isprintable():
        reject("the text contains a character that cannot be printed")
    return text


def read_lines(text: str) -> str:
    """Read any text, on one line or several."""
    if not text.replace("\n", " ").isprintable():
        reject("the text contains a character that cannot be printed")
    return text


def read_file_path(text: str) -> str:
    """Read the path of a file that the gateway writes."""
    return _not_a_folder(text, "a folder, not a file", "add a file name, such as state.json")


def read_pattern(text: str) -> str:
    """Read a path of files that the gateway reads, with `*`, `?` and `[ ]` as in a shell."""
    return _not_a_folder(text, "a folder, not files", "add a pattern of file names, such as *.yaml")


def _not_a_folder(text: str, what: str, hint: str) -> str:
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject(f"the path names {what}", hint)
    return text


# --- the kinds that keys use

COUNT: Final = Text(read_count, {"type": "integer", "minimum": 0})
DURATION: Final = Text(read_duration, matching(DURATION_PATTERN))
WAIT: Final = Text(read_wait, matching(DURATION_PATTERN))
PERCENTAGE: Final = Text(read_percentage, {"type": "string", "pattern": "^(?:[1-9][0-9]?|100)%$"})
FLAG: Final = Text(read_flag, {"type": "boolean"})
DAY: Final = Text(read_day, matching(DAY_PATTERN))
NAME: Final = written_as(
    NAME_PATTERN,
    "a name must have 1 to 64 letters, digits, `_`, `.` or `-`",
    "it is used in URLs and in metrics",
)
CLIENT_NAMES: Final = ListOf(NAME, least=1)
"""Kind of configuration key: names from `clients`."""
BACKEND_NAME: Final = written_as(
    BACKEND_NAME_PATTERN,
    "a backend's name must have 1 to 255 letters, digits, or characters of `_ . : [ ] -`",
)
HEADER_NAME: Final = Text(read_header_name, matching(HEADER_NAME_PATTERN))
HEADER_TOKEN: Final = written_as(
    HEADER_NAME_PATTERN, "not a valid header name", "a header name has no blanks and no colon"
)
"""Kind of configuration key: the name of a header. The dialect limits which may be changed."""
HEADER_PATTERN_TEXT: Final = written_as(
    r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\*?",
    "a header here must have 1 to 63 letters, digits and `-`, and perhaps one `*` at its end",
    "write X-Real-IP, which includes X_Real_IP, or X-Forwarded-*",
)
HEADER_VALUE: Final = Text(read_header_value, TEXT)
SECRET: Final = Text(read_secret, {**matching(f"[\\x21-\\x7e]{{{MIN_SECRET},}}"), "writeOnly": True})
LINE: Final = Text(read_text, TEXT)
LINES: Final = Text(read_lines, TEXT)
FILE_PATH: Final = PathText(read_file_path, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))
FILE_PATTERN: Final = Text(read_pattern, matching(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))
VARIABLE_NAME: Final = written_as(
    "[A-Za-z_][A-Za-z0-9_]*",
    "not a name of an environment variable",
    "write NAME without ${ }: letters, digits and _",
)
VERSION: Final = Text(read_text, {"type": ["string", "integer"], "minLength": 1})
"""Kind of configuration key: a version as written. Whole numbers need no quotation marks, but 1.90 does."""
VERSIONS: Final = Text(VERSION.read, VERSION.json, has_commas=True)
