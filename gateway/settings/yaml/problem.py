"""A problem of a configuration: what it is, where it is, and how it is shown.

A message never contains a value from the environment or of a secret key. The source line that is shown with
it is cut where a secret begins (threats O9). This module does not look for problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from gateway.keys.secrets import HIDDEN

MAX_SHOWN: Final = 90
"""Longest part of a source line that is shown, in characters: with the line number it fits a terminal."""
CUT: Final = "\u2026"
"""Mark that shows where a long source line was cut."""

_LINE_END: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line ends of YAML 1.1, and so of PyYAML's line count."""

# Applied to the text alone, because a file that is not valid YAML may contain a secret as well.
_SECRET_WORD: Final = re.compile(
    r"(?i)(?:token|password|passwd|secret|authorization|credential)s?[\"']?\s*[:=\s]\s*(?=\S)"
    r"|headers?[\"']?\s*:\s*(?=\{\s*[^}\s])"
)
_USERINFO: Final = re.compile(r"://(?=[^/\s]*@)")
_SECRET_BLOCK: Final = re.compile(
    r"(?i)^(?P<indent>[ \t-]*)[\"']?"
    r"(?:[\w-]*(?:token|password|passwd|secret|authorization)|headers?)[\"']?\s*:"
)


CODES: Final[Mapping[str, str]] = {
    "address-taken": "two listeners whose addresses conflict",
    "admin-exposed": "the admin listener is open to other machines and has no token",
    "alias": "a YAML anchor or alias",
    "bad-certificate": "a certificate, a key or a CA whose file cannot be used",
    "bad-character": "a character that YAML does not allow",
    "bad-key": "a key that is a list or a mapping",
    "bad-targets": "a file of backends that is not there or cannot be used (warning)",
    "bad-value": "a value that is not valid, or outside its limits",
    "bad-variable": "`${` that does not begin a variable",
    "brownout": "a brown-out that is open now (warning)",
    "ceiling-below-minimum": "a ceiling under which nothing could be offered",
    "contradiction": "two values that exclude each other",
    "divided": "a limit that is too small to be divided among the workers (warning)",
    "duplicate-backend": "two backends of a service with the same name",
    "duplicate-key": "a key that is set twice in a mapping",
    "duplicate-match": "two services that match the same requests, or a host that is listed twice",
    "duplicate-release": "a release that the dialect already has, with another version",
    "duplicate-url": "two backends of a service with the same URL (warning)",
    "ends-soon": "a bridge that ends within 30 days (warning)",
    "engine": "a service that an engine cannot serve (`check --engine` only)",
    "one-endpoint": "a store with one endpoint, whose loss stops every change (warning)",
    "own-address": "a backend that is the gateway itself",
    "password-exposed": "a password that goes to the store without TLS (warning)",
    "reserved-header": "a header that the dialect or the gateway itself needs",
    "empty-file": "a file without content",
    "expires-soon": "a certificate that expires within 14 days (warning)",
    "misleading": "an option of a dialect that misleads clients (warning)",
    "missing-key": "a required key is missing",
    "multiple-documents": "a second YAML document in the file",
    "needs-restart": "a value that cannot change while the gateway runs (reload only)",
    "never-matches": "a client known by certificate, while no listener asks for one (warning)",
    "no-effect": "a value that changes nothing (warning)",
    "no-state": "replicas without a state file (warning)",
    "not-per-service": "a key that has no meaning in a service",
    "not-verified": "a backend whose certificate is not verified (warning)",
    "not-writable": "a file that this user cannot write, or its folder (warning)",
    "not-allowed": "a variable or a file that an included file may not read",
    "not-utf-8": "a file that is not UTF-8",
    "number": "a version that other tools read as a number (warning)",
    "passed": "a day that has passed, so that what it limits is no longer in force (warning)",
    "repeated-prefix": "a path in a dialect's options that repeats match.path (warning)",
    "sent-in-clear": "a secret that probes send over http to discovered backends (warning)",
    "short-forget": "a time after which replicas are forgotten that an outage reaches (warning)",
    "sunset-passed": "a sunset whose day has come, while nothing refuses its versions (warning)",
    "tag": "a YAML tag",
    "too-deep": "too many nested levels",
    "too-large": "a file that is too large for a configuration",
    "trusts-everyone": "forwarding headers are accepted from every client (warning)",
    "unknown-dialect": "a dialect that does not exist",
    "unknown-key": "a key that does not exist at this place",
    "unknown-release": "a release that neither the dialect nor `releases` has",
    "unreadable": "a file that cannot be opened or read",
    "too-many-workers": "more workers than CPUs that the gateway may use (warning)",
    "unset-variable": "an environment variable that is not set and has no default",
    "untrusted": "a file that other users may change, or put there (warning)",
    "wrong-dialect": "options of another dialect than the service's",
    "wrong-type": "a text, a list or a mapping where one of the others is expected",
    "yaml-syntax": "not valid YAML",
}
"""Every code of a problem, with its meaning. Codes are stable: scripts may look for them."""

NUMBER: Final = "number"
"""The code of the problem that has only one correction: quotation marks around the `width` characters."""


class Severity(StrEnum):
    """Severity of a problem: errors keep the file from being used, warnings do not."""

    ERROR = "error"
    WARNING = "warning"


@final
@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of a configuration. Sorts by position; `line` and `column` count from 1, in characters."""

    line: int
    column: int
    code: str
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    width: int = 1
    """Number of characters of the source line that are underlined with carets."""
    file: str = ""
    """Path of the included file with the problem; empty: the main file."""

    def headline(self, filename: str) -> str:
        """The problem's first line: `FILE:LINE:COL: error[CODE]: message`."""
        at = f"{self.file or filename}:{self.line}:{self.column}"
        return f"{at}: {self.severity}[{self.code}]: {self.message}"

    def sentence(self, filename: str) -> str:
        """The problem as one line for a log: headline and hint."""
        return self.headline(filename) + (f" (hint: {self.hint})" if self.hint else "")

    def render(self, filename: str, lines: Sequence[str]) -> str:
        """The problem as text: headline, source line with carets, hint. `lines` come from `shown_lines`."""
        parts = [self.headline(filename)]
        if self.line <= len(lines) and lines[self.line - 1].strip():
            source = lines[self.line - 1]
            gutter = f"{self.line:>5} | "
            start = min(self.column - 1, len(source))
            if source.endswith(HIDDEN):
                start = min(start, len(source) - len(HIDDEN))
            source, start = _cut(source, start)
            # Tabs stay tabs, so that the carets are below the token in a terminal.
            blanks = "".join("\t" if character == "\t" else " " for character in source[:start])
            carets = "^" * max(1, min(self.width, len(source) - start))
            parts += [gutter + source, " " * (len(gutter) - 2) + "| " + blanks + carets]
        if self.hint:
            parts.append(f"      = hint: {self.hint}")
        return "\n".join(parts)


def _cut(source: str, start: int) -> tuple[str, int]:
    """The part of a source line around `start` that fits a terminal, and the index of `start` in it."""
    if len(source) <= MAX_SHOWN:
        return source, start
    begin = max(0, min(start - MAX_SHOWN // 3, len(source) - MAX_SHOWN))
    end = begin + MAX_SHOWN
    before, after = CUT if begin else "", CUT if end < len(source) else ""
    return before + source[begin + len(before) : end - len(after)] + after, start - begin


def split_lines(text: str) -> list[str]:
    """The lines of the file's text as YAML counts them, without line ends."""
    return _LINE_END.split(text)


def line_starts(text: str) -> list[int]:
    """Offsets in the file's text at which its lines begin, as `split_lines` counts them."""
    return [0, *(found.end() for found in _LINE_END.finditer(text))]


def shown_lines(text: str, secrets: Iterable[tuple[int, int]] = ()) -> list[str]:
    """The lines of a file for messages, printable and cut where a secret begins. `secrets`: their known
    positions (line and column, from 1)."""
    lines = split_lines(text)
    cuts: dict[int, int] = {}

    def cut(index: int, at: int) -> None:
        cuts[index] = min(at, cuts.get(index, at))

    for secret_line, secret_column in secrets:
        cut(secret_line - 1, secret_column - 1)
    block: int | None = None  # the indentation of a key whose deeper lines are all secret
    for index, line in enumerate(lines):
        for pattern in (_SECRET_WORD, _USERINFO):
            if found := pattern.search(line):
                cut(index, found.end())
        indent = len(line) - len(line.lstrip(" \t-"))
        if block is not None and (not line.strip() or indent > block):
            # Keys may be shown, because a problem may point at one. Values may not.
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
    """`text` in quotation marks: short, on one line, and safe for a terminal."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() or character == "\t" else "\ufffd" for character in line
    )
