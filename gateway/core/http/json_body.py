"""Bounded JSON: bodies of backends are read within limits on depth, number of values and length of numbers.

Every body of a backend that is parsed at all is parsed here: documents, refusals, answers to probes. The
caller bounds its size, but that is not enough. A parser recurses, and each value costs an object and a visit
of every reader of the document: 256 KiB hold 87,000 lists. So depth and number are measured on the text,
which costs far less than parsing. Nothing here knows a version or raises on network input.
"""

from __future__ import annotations

import json
from typing import Final, TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | None"

MAX_DEPTH: Final = 32
"""Most levels of lists and objects (threats O1, R-B12). Real documents have at most five (Nova 34)."""
MAX_VALUES: Final = 5_000
"""Most values in one document. So many can be rewritten in about 10 ms, in which nothing else is served. 500
versions with nine members each have as many; documents of known APIs have some hundred."""
MAX_DIGITS: Final = 300
"""Most digits of a whole number. Conversion costs the square of the length (Python's own limit is 4,300)."""

_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(each for each in range(256) if each not in b"[]{}")


def read_json(body: bytes | str) -> Json:
    """Parse `body`; None: it is no JSON, outside the limits, or `null`."""
    try:
        text = body if isinstance(body, str) else body.decode(json.detect_encoding(body), "surrogatepass")
        return _DECODER.decode(text) if is_within_limits(text) else None
    except ValueError:
        return None


def is_within_limits(text: str, *, depth: int = MAX_DEPTH, values: int = MAX_VALUES) -> bool:
    """Whether a JSON text has at most so many levels and values. Of text that is not JSON, the part before
    the mistake counts, so that a parser is always safe. An empty list or object counts as two values."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")  # now every quotation mark begins or ends a string
    if text.count('"') > 4 * values:  # a value has at most two strings: its name and itself
        return False
    outside = "".join(text.split('"')[::2])
    if outside.count(",") + outside.count("[") + outside.count("{") >= values:
        return False
    brackets = outside.encode("utf-8", "replace").translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(depth):  # each time the innermost level goes
        if not brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return not brackets


def _read_whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("a whole number has too many digits")
    return int(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_read_whole_number)
