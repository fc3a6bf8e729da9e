"""Secrets: texts that no dump, log or error may show (threats O9)."""

from __future__ import annotations

import hmac
from typing import Any, Final, NoReturn, final

HIDDEN: Final = "***"
"""Text shown for a secret. It always has the same length, because a length would be a hint."""


@final
class Secret:
    """A text that only `reveal` shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text of the secret itself. Never log it."""
        return self._text

    def matches(self, text: str) -> bool:
        """Whether `text` equals the secret. The time of comparing does not depend on how much is equal."""
        return hmac.compare_digest(self._text.encode(), text.encode(errors="replace"))

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other.reveal())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret must not be pickled")

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self


@final
class MaskedText(str):
    """Text that is sent unchanged, but hidden where a value is dumped: header values of probes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN
