"""Building blocks of all verbs: the click command class, and the options and types that several verbs share.

A verb is a function that returns the exit code, with `@verb(NAME)` and click's options above it. This module
imports neither settings nor anything that a running gateway needs, unless `read_settings` is called.
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
"""Configuration files that are tried, in this order, if none is named."""
STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
"""File name that stands for standard input on the command line, and its name in messages."""
FILE_NAME: Final = click.Path(readable=False, path_type=Path)
"""Parameter type of a file name, which shells complete. The file is not opened or checked here."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class VerbCommand(click.Command):
    """A verb as a click command: a stray file name gets the hint `-c`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # reported here
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            takes_config = any("--config" in each.opts for each in self.params)
            meant = takes_config and rest[0].endswith((".yaml", ".yml"))
            hint = f"; did you mean -c {rest[0]}?" if meant else ""
            raise click.UsageError(f"unexpected argument {rest[0]!r}{hint}", ctx)
        return rest


def verb(name: str, details: str = "") -> Callable[[Function], VerbCommand]:
    """Make a function the command `name`. `details`: paragraphs of help after the sentence in `VERBS`."""
    sentence = f"{VERBS[name][0].upper()}{VERBS[name][1:]}."
    text = f"{sentence}\n\n{details}" if details else sentence
    return click.command(name, cls=VerbCommand, help=text, short_help=VERBS[name], context_settings=CONTEXT)


def usage_error(message: str) -> NoReturn:
    """Fail with exit code 2, the usage of the running verb and one sentence."""
    raise click.UsageError(message, click.get_current_context(silent=True))


def output_option(function: Decorated) -> Decorated:
    """Add `-o json` to a verb that prints a table or a state."""
    formats = click.Choice(("text", "json"))
    option = click.option(
        "-o", "--output", type=formats, default="text", show_default=True, help="output format"
    )
    return option(function)


def find_config(named: Path | None) -> Path:
    """Return the named configuration, or the first default one that exists. Bad usage if there is none."""
    if named is not None:
        return named
    if configured := os.environ.get(CONFIG_VARIABLE):
        return Path(configured)
    for place in DEFAULT_FILES:
        if Path(place).exists():
            return Path(place)
    usage_error(
        f"no configuration found: give -c FILE, set {CONFIG_VARIABLE}, or create ./skewgate.yaml"
        " or /etc/skewgate/skewgate.yaml"
    )


def read_settings(path: Path) -> Settings:
    """Read a configuration; warnings are ignored. Raises `SettingsError` with all problems of a wrong one."""
    from gateway.settings import read_file  # noqa: PLC0415 - costs more than all the rest

    return read_file(path, environ=os.environ, check_files=False).require()


def file_option(*names: str, text: str, default: str | None = None) -> Callable[[Decorated], Decorated]:
    """Add an option that takes a file name. `text`: its help; a default is appended to it."""
    shown = default is not None
    return click.option(
        *names, metavar="FILE", type=FILE_NAME, default=default, show_default=shown, help=text
    )


def file_argument(function: Callable[..., int]) -> Callable[..., int]:
    """Add the argument `[FILE]`, equivalent to `-c FILE`, to a verb with that option. Both are bad usage."""

    @wraps(function)
    def with_file(*, file: Path | None, config: Path | None, **rest: Any) -> int:  # noqa: ANN401 - other options
        if file is not None and config is not None:
            usage_error(f"{file} and -c {config}: name the configuration once")
        return function(config=config if file is None else file, **rest)

    argument = click.argument("file", metavar="[FILE]", required=False, type=FILE_NAME)
    return argument(with_file)


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Return the reader of a number of seconds, written `20` or `20s`."""
    return number(low, high, "s", f"a number of seconds from {low:g} to {high:g}")


def number(low: float, high: float, unit: str, what: str) -> Callable[[str], float]:
    """Return the reader of a number with or without its unit. `what`: words for a number that is allowed."""

    def read(text: str) -> float:
        try:
            found = float(text.removesuffix(unit))
        except ValueError:
            found = -1.0
        if not low <= found <= high:
            raise ValueError(f"must be {what}")
        return found

    return read


def header_line(text: str) -> tuple[str, str]:
    """Read a header, written `Name: value`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable() or not text.isascii():
        raise ValueError("must be 'Name: value'")
    return name.strip(), value.strip()
