"""Two dialects for tests of rules that hold for every dialect: one plain, and one with options and dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, Self, TypeAlias

from gateway.core.dialect import ConfigurationRules, Dialect
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Version
from gateway.errors import OptionProblem, OptionsError, VersionTextError
from gateway.keys.kinds import ListOf, section
from gateway.keys.texts import COUNT, FLAG, LINE, LINES, VERSION, literal
from tests.core.builders import Toy

_AS_SERVERS_DO: Final = "What the dialect's servers do."


@dataclass(frozen=True, slots=True)
class StepOptions:
    """A part of the options."""

    name: str = field(
        metadata=LINE.required("A text that must be there.", reason=_AS_SERVERS_DO, example="first")
    )
    days: tuple[str, ...] = ListOf(LINE).key((), "Texts.", reason=_AS_SERVERS_DO, example=("mon",))
    since: str | None = VERSION.key(None, "A version.", reason=_AS_SERVERS_DO, example="2024-01-31")


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """Another part, which has a default."""

    size: int = COUNT.key(4, "A number.", reason=_AS_SERVERS_DO, example=5)
    note: str | None = LINES.key(None, "A long text.", reason=_AS_SERVERS_DO, example="a\nb")


Shape: TypeAlias = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class DatedOptions:
    days: bool = FLAG.key(
        default=True,
        meaning="Whether dates have days.",
        reason=_AS_SERVERS_DO,
        example=True,
    )
    shape: Shape = literal(Shape).key("short", "Of errors.", reason=_AS_SERVERS_DO, example="short")
    retries: int = COUNT.key(1, "A number.", reason=_AS_SERVERS_DO, example=2)
    title: str = LINE.key("x", "A text.", reason=_AS_SERVERS_DO, example="y")
    steps: tuple[StepOptions, ...] = ListOf(section(StepOptions)).key(
        ({"name": "only"},), "Parts.", reason=_AS_SERVERS_DO, example=({"name": "first"},)
    )
    paper: PaperOptions = section(PaperOptions).key({}, "A part.", reason=_AS_SERVERS_DO, example={"size": 5})


class Plain(Toy):
    """X.Y versions, two releases, no options."""

    name = "plain"
    reads = owned_request = owned_response = frozenset[str]()
    releases: Mapping[str, Version] = {"old": Version(1, 10), "2024.1": Version(1, 90)}
    legacy_versions = VersionSet.only(Version(1, 1))


class Dated(Plain):
    """Dates, and an option of each kind."""

    name = "dated"
    Options: ClassVar[type] = DatedOptions
    releases: Mapping[str, Version] = {}

    def __init__(self, options: DatedOptions) -> None:
        super().__init__(scheme=CalendarDate(day=options.days))
        self.options = options
        self.configuration_rules = ConfigurationRules(option_paths=((("title",), options.title),))

    @classmethod
    def configured(cls, options: object) -> Self:
        assert isinstance(options, DatedOptions)
        problems = [
            OptionProblem(("steps", at, "name"), "this step is impossible", "take another")
            for at, step in enumerate(options.steps)
            if step.name == "impossible"
        ]
        if options.paper.size == 0:
            problems.append(OptionProblem(("paper", "size"), "no paper is so small"))
        if problems:
            raise OptionsError(tuple(problems))
        if options.title == "impossible":
            raise VersionTextError("this title is impossible")
        return cls(options)


DIALECTS: Mapping[str, type[Dialect]] = {"plain": Plain, "dated": Dated}
