"""Two dialects for tests of rules that hold for every dialect: one plain, and one with options and dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from gateway.core.configuration_rules import ConfigurationRules
from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    DefaultKind,
    DefaultVersion,
    Dialect,
    Endpoint,
    GatewayError,
    OfferedVersions,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedVersion,
    Served,
)
from gateway.core.http.message import Header, Response
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme, Version
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
    reads = owned_request = owned_response = frozenset[str]()
    vary: tuple[str, ...] = ()
    default_version = DefaultVersion(DefaultKind.MINIMUM)
    releases: Mapping[str, Version] = {"old": Version(1, 10), "2024.1": Version(1, 90)}

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        return Endpoint("resource")

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        return NO_VERSION_REQUESTED

    def write_request(
        self,
        endpoint: Endpoint,
        version: Version,
        requested: RequestedVersion,
        *,
        legacy: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        return ()

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        raise NotImplementedError

    def error_response(self, error: GatewayError) -> Response:
        raise NotImplementedError

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        return Served()

    def write_response(
        self,
        endpoint: Endpoint,
        status: int,
        served: Served,
        negotiated: Version | None,
        offered: OfferedVersions,
        *,
        legacy: bool,
    ) -> tuple[Header, ...]:
        return ()

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        return Advertisement(VersionSet())


class Dated(Plain):
    """Dates, and an option of each kind."""

    name = "dated"
    Options: ClassVar[type] = DatedOptions
    releases: Mapping[str, Version] = {}

    def __init__(self, options: DatedOptions) -> None:
        self.options = options
        self.scheme = CalendarDate(day=options.days)
        self.configuration_rules = ConfigurationRules(option_paths=((("title",), options.title),))

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
