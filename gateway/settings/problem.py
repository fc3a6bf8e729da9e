"""What is wrong with a configuration, where, and how it is shown to a person.

A problem's words never hold a value that came out of the environment or stands under a secret key; the source
line beside it is cut where a secret begins (hardening O9). Nothing here decides what a problem is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

HIDDEN: Final = "***"
"""Stands where a secret stood. Always of one length: a length is a hint, too."""

_LINE_END: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What YAML 1.1 (and so PyYAML's line count) takes for the end of a line."""

# Works on the text alone, because a file whose YAML cannot be read may hold a secret, too.
_SECRET_WORD: Final = re.compile(
    r"(?i)(?:token|password|passwd|secret|authorization|credential)s?[\"']?\s*[:=\s]\s*(?=\S)"
)
_USERINFO: Final = re.compile(r"://(?=[^/\s]*@)")
_SECRET_BLOCK: Final = re.compile(
    r"(?i)^(?P<indent>[ \t-]*)[\"']?"
    r"(?:[\w-]*(?:token|password|passwd|secret|authorization)|headers)[\"']?\s*:"
)


CODES: Final[Mapping[str, str]] = {
    "address-taken": "two listeners cannot both have their address",
    "admin-exposed": "the admin listener is open to other machines and has no token",
    "alias": "an anchor or alias of YAML",
    "bad-character": "a character that may not stand in YAML",
    "bad-key": "a key that is not a word",
    "bad-value": "a value that cannot be read, or out of its bounds",
    "bad-variable": "`${` that begins no variable",
    "ceiling-below-minimum": "a ceiling under which nothing could be offered",
    "contradiction": "two values that exclude each other",
    "duplicate-backend": "two backends of a service have one name",
    "duplicate-key": "a key stands twice in a mapping",
    "duplicate-match": "two services match the same requests",
    "duplicate-release": "a release that the dialect knows with another version",
    "duplicate-url": "two backends of a service have one URL (warning)",
    "empty-file": "nothing stands in the file",
    "missing-key": "a key that must be there is not",
    "multiple-documents": "a second YAML document in the file",
    "not-utf-8": "the file is not UTF-8",
    "number": "a version that other tools read as a number (warning)",
    "repeated-prefix": "a path of the API with match.path before it (warning)",
    "tag": "a tag of YAML",
    "too-deep": "too many levels inside each other",
    "too-large": "the file is too large to be a configuration",
    "trusts-everyone": "forwarding headers of every client are believed (warning)",
    "unknown-dialect": "no dialect has this name",
    "unknown-key": "a key that does not exist here",
    "unknown-release": "a release that nobody knows",
    "unreadable": "the file cannot be opened or read",
    "unset-variable": "the environment lacks a variable that has no default",
    "unsupported": "part of the contract, but not of this release",
    "wrong-dialect": "options of another dialect than the service's",
    "wrong-type": "a text, a list or a mapping where another of them belongs",
    "yaml-syntax": "not YAML",
}
"""Every code and what it stands for. Stable: scripts may look for them."""


class Severity(StrEnum):
    """Whether the file can be used in spite of it."""

    ERROR = "error"
    WARNING = "warning"


@final
@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One finding. Ordered by position; `line` and `column` count from 1, in characters."""

    line: int
    column: int
    code: str
    """One of `CODES`."""
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    width: int = 1
    """How many characters of the line the carets stand under."""

    def headline(self, filename: str) -> str:
        """`FILE:LINE:COL: error[CODE]: message`."""
        return f"{filename}:{self.line}:{self.column}: {self.severity}[{self.code}]: {self.message}"

    def sentence(self, filename: str) -> str:
        """The headline and the hint on one line, for a log."""
        return self.headline(filename) + (f" (hint: {self.hint})" if self.hint else "")

    def render(self, filename: str, lines: Sequence[str]) -> str:
        """The headline, the source line with carets, and the hint. `lines` are those of `shown_lines`."""
        parts = [self.headline(filename)]
        if self.line <= len(lines) and lines[self.line - 1].strip():
            source = lines[self.line - 1]
            gutter = f"{self.line:>5} | "
            start = min(self.column - 1, len(source))
            if source.endswith(HIDDEN):
                start = min(start, len(source) - len(HIDDEN))
            # Tabs stay tabs, so that the carets stand where a terminal shows the token.
            blanks = "".join("\t" if character == "\t" else " " for character in source[:start])
            carets = "^" * max(1, min(self.width, len(source) - start))
            parts += [gutter + source, " " * (len(gutter) - 2) + "| " + blanks + carets]
        if self.hint:
            parts.append(f"      = hint: {self.hint}")
        return "\n".join(parts)


def split_lines(text: str) -> list[str]:
    """The lines of a text as YAML counts them, without their ends."""
    return _LINE_END.split(text)


def shown_lines(text: str, secrets: Iterable[tuple[int, int]] = ()) -> list[str]:
    """The lines of a file as they may be shown: each cut where a secret begins, nothing unprintable in them.

    `secrets` are places (line and column, from 1) at which one is known to begin.
    """
    lines = split_lines(text)
    cuts: dict[int, int] = {}

    def cut(index: int, at: int) -> None:
        cuts[index] = min(at, cuts.get(index, at))

    for secret_line, secret_column in secrets:
        cut(secret_line - 1, secret_column - 1)
    block: int | None = None  # the indent of a key whose deeper lines are all secret
    for index, line in enumerate(lines):
        for pattern in (_SECRET_WORD, _USERINFO):
            if found := pattern.search(line):
                cut(index, found.end())
        indent = len(line) - len(line.lstrip(" \t-"))
        if block is not None and (not line.strip() or indent > block):
            # Keys may be shown (a problem may point at one), values may not.
            key = re.match(r"[ \t-]*[\w.-]+\s*:\s*(?=\S)|[ \t-]*", line)
            cut(index, key.end() if key else 0)
        elif opened := _SECRET_BLOCK.match(line):
            block = len(opened["indent"])
        elif line.strip():
            block = None
    return [
        _printable(line[: cuts[index]]) + HIDDEN
        if index in cuts and line[cuts[index] :].strip()
        else _printable(line)
        for index, line in enumerate(lines)
    ]


def quoted(text: str) -> str:
    """`text` in quotes, short, on one line and harmless to a terminal."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() or character == "\t" else "\ufffd" for character in line
    )
