"""Request ids: form and headers, by API family. Servers log them, so that a request can be found.

Nothing here makes an id or reads a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import Final, final

from gateway.core.http.message import normalize_name
from gateway.core.http.patterns import Pattern, literal, span

_DIGIT = rb"[0-9a-f]"
_FOUR_DIGITS = literal(b"-") + span(_DIGIT, 4, 4)
_OPENSTACK_ID = (
    literal(b"req-")
    + span(_DIGIT, 8, 8)
    + _FOUR_DIGITS
    + _FOUR_DIGITS
    + _FOUR_DIGITS
    + literal(b"-")
    + span(_DIGIT, 12, 12)
)
_PLAIN_CHARACTERS: Final = f"{digits}{ascii_letters}._:/+=-".encode()
_MAX_PLAIN: Final = 128
_PLAIN_AS_LETTERS: Final = bytes(ord("a") if byte in _PLAIN_CHARACTERS else ord("-") for byte in range(256))
"""Table by which each character of a plain id becomes a letter, and every other byte none."""
_PLAIN_ID = span(b"[%b]" % re.escape(_PLAIN_CHARACTERS), 1, _MAX_PLAIN)


@final
@dataclass(frozen=True, slots=True)
class RequestIds:
    """Request id headers and format of an API family."""

    request_header: str
    """Canonical name of the header in which clients and the gateway send the id to backends."""
    response_headers: tuple[str, ...]
    """Canonical names of the headers in which responses made by the gateway name the id."""
    prefix: str = "req-"
    """Prefix of a request id that the gateway makes. A UUID follows."""
    form: Pattern = _OPENSTACK_ID
    """Pattern of a valid request id. Its characters need no quotes, in a header or in a log line."""
    normalized_header: str = field(init=False)
    line_start: bytes = field(init=False)
    """Header line of the request id for backends up to its value, as bytes."""
    _expression: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "normalized_header", normalize_name(self.request_header))
        object.__setattr__(self, "line_start", f"{self.request_header}: ".encode("ascii"))
        object.__setattr__(self, "_expression", re.compile(self.form.source.decode("ascii")))

    def is_valid(self, text: str) -> bool:
        """Whether servers of this family accept `text` as an id."""
        return self._expression.fullmatch(text) is not None


PLAIN_IDS = RequestIds("X-Request-Id", ("X-Request-Id",), prefix="", form=_PLAIN_ID)
OPENSTACK_IDS = RequestIds("X-Openstack-Request-Id", ("X-Openstack-Request-Id",))
"""Request id header and format of OpenStack's services: `req-` and a UUID."""


def is_plain_id(value: bytes) -> bool:
    """Whether a value has the form of `PLAIN_IDS`. It takes half of what a match takes, and the log
    asks for every response."""
    return len(value) <= _MAX_PLAIN and value.translate(_PLAIN_AS_LETTERS).isalpha()
