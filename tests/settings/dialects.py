"""Two dialects for settings that must hold for every dialect: a plain one, and one with options and dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from gateway.core.dialect import (
    ASK_SILENT,
    NO_HEADERS,
    Advert,
    Ask,
    Bounds,
    Dialect,
    Failure,
    Place,
    ProbeAnswer,
    ProbeStep,
    Refusal,
    Served,
    Silence,
    SilenceKind,
)
from gateway.core.message import Header, Reply
from gateway.core.ranges import VersionSet
from gateway.core.version import CalendarDate, MajorMinor, Scheme, Version
from gateway.errors import OptionsError, VersionTextError


@dataclass(frozen=True, slots=True)
class StepOptions:
    """A part of the options."""

    name: str = field(metadata={"description": "A text that must be there.", "examples": ("first",)})
    days: tuple[str, ...] = field(default=(), metadata={"description": "Texts.", "examples": (("mon",),)})
    since: str | None = field(
        default=None, metadata={"description": "A version.", "examples": ("2024-01-31",), "version": True}
    )


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """Another part, which has a default."""

    size: int = field(default=4, metadata={"description": "A number.", "examples": (5,)})
    note: str | None = field(
        default=None, metadata={"description": "A long text.", "examples": ("a\nb",), "lines": True}
    )


@dataclass(frozen=True, slots=True)
class DatedOptions:
    days: bool = field(default=True, metadata={"description": "Whether dates have days."})
    shape: Literal["short", "long"] = field(default="short", metadata={"description": "Of errors."})
    retries: int = field(default=1, metadata={"description": "A number.", "examples": (2,)})
    title: str = field(default="x", metadata={"description": "A text.", "examples": ("y",)})
    steps: tuple[StepOptions, ...] = field(
        default=(StepOptions("only"),),
        metadata={"description": "Parts.", "examples": (({"name": "first"},),)},
    )
    paper: PaperOptions = field(
        default_factory=PaperOptions, metadata={"description": "A part.", "examples": ({"size": 5},)}
    )


class Plain(Dialect):
    """X.Y versions, two releases, no options."""

    name = "plain"
    scheme: Scheme = MajorMinor()
    reads = owned_request = owned_reply = frozenset[str]()
    vary: tuple[str, ...] = ()
    silence = Silence(SilenceKind.MINIMUM)
    releases: Mapping[str, Version] = {"old": Version(1, 10), "2024.1": Version(1, 90)}

    def place(self, method: str, path: str, query: str) -> Place:
        return Place("resource")

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        return ASK_SILENT

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        return ()

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        raise NotImplementedError

    def fail(self, failure: Failure) -> Reply:
        raise NotImplementedError

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        return Served()

    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        return ()

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        return Advert(VersionSet())


class Dated(Plain):
    """Dates, and an option of each kind."""

    name = "dated"
    Options: ClassVar[type] = DatedOptions
    releases: Mapping[str, Version] = {}

    def __init__(self, options: DatedOptions) -> None:
        self.options = options
        self.scheme = CalendarDate(day=options.days)
        self.own_paths = ((("title",), options.title),)

    @classmethod
    def configured(cls, options: object) -> Self:
        assert isinstance(options, DatedOptions)
        problems: list[tuple[tuple[str | int, ...], str, str]] = [
            (("steps", at, "name"), "this step is impossible", "take another")
            for at, step in enumerate(options.steps)
            if step.name == "impossible"
        ]
        if options.paper.size == 0:
            problems.append((("paper", "size"), "no paper is so small", ""))
        if problems:
            raise OptionsError(tuple(problems))
        if options.title == "impossible":
            raise VersionTextError("this title is impossible")
        return cls(options)


DIALECTS: Mapping[str, type[Dialect]] = {"plain": Plain, "dated": Dated}
