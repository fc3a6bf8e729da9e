"""What all verbs are made of: the class of their commands, and the options and types that several have.

A verb is a function that returns the exit code, with `@verb(NAME)` and the options of click above it. Texts
of the command line are read here or in the verb; what they mean is decided elsewhere. Imports neither
settings nor anything that a running gateway needs, unless `read_settings` is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

import click

from gateway.cli.verbs import VERBS

if TYPE_CHECKING:
    from gateway.settings import Settings

Function: TypeAlias = Callable[..., int]
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

CONFIG_VARIABLE: Final = "SKEWGATE_CONFIG"
DEFAULT_FILES: Final = ("skewgate.yaml", "/etc/skewgate/skewgate.yaml")
"""Where a configuration is looked for if none is named, the first that exists."""
STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
"""The name of standard input where a file may be named, and in messages."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class VerbCommand(click.Command):
    """A verb. Its usage begins as it always has, and a file without its option is told from a slip."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # reported here
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            takes_config = any("--config" in each.opts for each in self.params)
            meant = takes_config and rest[0].endswith((".yaml", ".yml"))
            hint = f"; did you mean -c {rest[0]}?" if meant else ""
            raise click.UsageError(f"unexpected argument {rest[0]!r}{hint}", ctx)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), prefix="usage: ")


def verb(name: str, details: str = "") -> Callable[[Function], VerbCommand]:
    """The command of a verb. `details`: what its help says beyond the sentence in `VERBS`, in paragraphs."""
    sentence = f"{VERBS[name][0].upper()}{VERBS[name][1:]}."
    text = f"{sentence}\n\n{details}" if details else sentence
    return click.command(name, cls=VerbCommand, help=text, short_help=VERBS[name], context_settings=CONTEXT)


def usage_error(message: str) -> NoReturn:
    """Bad usage of the verb that runs: its usage and one sentence, exit code 2."""
    raise click.UsageError(message, click.get_current_context(silent=True))


def output_option(function: Decorated) -> Decorated:
    """`-o json`, for verbs that print a table or a state."""
    formats = click.Choice(("text", "json"))
    return click.option("-o", "--output", type=formats, default="text", show_default=True, help="the format")(
        function
    )


def find_config(named: Path | None) -> Path:
    """The configuration that is named, or else the first of the usual places. Bad usage if there is none."""
    if named is not None:
        return named
    if configured := os.environ.get(CONFIG_VARIABLE):
        return Path(configured)
    for place in DEFAULT_FILES:
        if Path(place).exists():
            return Path(place)
    usage_error(
        f"there is no configuration: name a FILE, set {CONFIG_VARIABLE}, or write ./skewgate.yaml"
        " or /etc/skewgate/skewgate.yaml"
    )


def read_settings(path: Path) -> Settings:
    """The settings of a file. Raises `SettingsError` with every problem when there is an error. Warnings are
    ignored."""
    from gateway.settings import read_file  # noqa: PLC0415 - costs more than all the rest

    return read_file(path, environ=os.environ, check_files=False).require()


class FileName(click.Path):
    """The name of a file, which shells complete. Whether it can be read is said by whoever reads it."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401
        return Path(value)


def file_option(*names: str, text: str, default: str | None = None) -> Callable[[Decorated], Decorated]:
    """An option with the name of a file. `text`: its help, which shows a default."""
    shown = default is not None
    return click.option(
        *names, metavar="FILE", type=FileName(), default=default, show_default=shown, help=text
    )


def file_argument(function: Callable[..., int]) -> Callable[..., int]:
    """`[FILE]`, the same as `-c FILE`, for verbs with that option. Both are bad usage."""

    @wraps(function)
    def with_file(*, file: Path | None, config: Path | None, **rest: Any) -> int:  # noqa: ANN401 - other options
        if file is not None and config is not None:
            usage_error(f"{file} and -c {config}: name the configuration once")
        return function(config=config if file is None else file, **rest)

    argument = click.argument("file", metavar="[FILE]", required=False, type=FileName())
    return argument(with_file)


class ParsedText(click.ParamType[Any]):
    """A text that a function reads, which raises `ValueError` with one sentence. `complete`: what may be
    written, for shells."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


def seconds(low: float, high: float) -> ParsedText:
    """A number of seconds, `20` or `20s`."""

    def read(text: str) -> float:
        try:
            number = float(text.removesuffix("s"))
        except ValueError:
            number = -1.0
        if not low <= number <= high:
            raise ValueError(f"must be a number of seconds from {low:g} to {high:g}")
        return number

    return ParsedText("seconds", read)
