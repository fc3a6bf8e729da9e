"""A request while it is put together: its parts as text, in latin-1. Mutations change a draft in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tests.differential.apis import Api

L = TypeVar("L")

SPELLINGS: Final = Path(__file__).parent / "spellings"


def spellings(name: str) -> tuple[str, ...]:
    """The lines of a list of spellings, in which `{…}` stand for names and versions; `\\x20` and the like are
    read as in Python."""
    lines = (SPELLINGS / f"{name}.txt").read_text("ascii").removesuffix("\n").split("\n")
    return tuple(line.encode().decode("unicode_escape") for line in lines)


class Case(NamedTuple):
    """One request, and what the backend adds to its response."""

    number: int
    api: Api
    start_line: str
    lines: tuple[str, ...]
    """Field lines without their ends."""
    body: bytes
    response_lines: tuple[str, ...]
    """Further field lines of the backend's response."""
    mutations: tuple[str, ...]
    """The names of those that were applied."""

    @property
    def raw(self) -> bytes:
        """The bytes that the client sends."""
        return "\r\n".join((self.start_line, *self.lines, "", "")).encode("latin-1") + self.body

    @property
    def method(self) -> str:
        return self.start_line.partition(" ")[0]


@dataclass
class Draft:
    """The parts of a case."""

    api: Api
    version: str
    """The requested version, without any spelling; another one in each mutation is `other`."""
    other: str
    """A second version: what a request must not be executed at."""
    method: str = "GET"
    path: str = "/"
    query: list[str] = field(default_factory=list)
    """Parameters, which are joined with `&`."""
    lines: list[str] = field(default_factory=list)
    pieces: tuple[bytes, ...] = ()
    """The body."""
    chunked: bool = False
    http: str = "1.1"
    authority: str = ""
    """`http://host` before the path."""
    response_lines: list[str] = field(default_factory=list)

    def add(self, random: Random, line: str) -> None:
        """Put a field line anywhere between the others."""
        self.lines.insert(random.randint(0, len(self.lines)), line)

    def replace(self, random: Random, name: str, line: str) -> None:
        """Put a field line in place of the first one of the field, or anywhere if there is none."""
        at = self.find(name)
        if at < 0:
            self.add(random, line)
        else:
            self.lines[at] = line

    def location(self, random: Random, kind: type[L]) -> L:
        """One of the places of this kind in which servers look."""
        return random.choice([each for each in self.api.locations if isinstance(each, kind)])

    def find(self, name: str) -> int:
        """The index of the first line of this field; -1: there is none."""
        start = f"{name.lower()}:"
        return next((at for at, line in enumerate(self.lines) if line.lower().startswith(start)), -1)

    def case(self, number: int, mutations: tuple[str, ...]) -> Case:
        """The finished request. `Host` is the first line, as most clients send it."""
        query = "?" + "&".join(self.query) if self.query else ""
        lines = [f"Host: {self.api.host}", *self.lines]
        body = b"".join(self.pieces)
        if self.chunked and self.http == "1.1":
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in self.pieces if piece)
            body += b"0\r\n\r\n"
        elif body or self.method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        return Case(
            number,
            self.api,
            f"{self.method} {self.authority}{self.path}{query} HTTP/{self.http}",
            tuple(lines),
            body,
            tuple(self.response_lines),
            mutations,
        )


Mutation: TypeAlias = Callable[[Draft, Random], None]
