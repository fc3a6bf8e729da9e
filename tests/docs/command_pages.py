"""Writes the reference of the commands in docs/cli.md and the man page from their declarations.

    python -m tests.docs.command_pages

In the page that is what stands between marks; the rest of it is written by hand. A verb and its options are
explained where they are declared, never here. What belongs to no single verb is here: exit codes, variables
and files. For a checkout: no verb uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from gateway import __version__
from gateway.cli import NAME, skewgate
from tests.docs.pages import table, with_parts

EXIT_CODES: Final = (
    ("0", "success; after `run`, a complete drain"),
    ("1", "failure at run time: no gateway responds, it refuses; `roll` is not complete; `wait`: too late"),
    ("2", "bad usage, or a configuration with an error"),
    ("3", "`simulate`: somebody is affected; `rehearse`: something is changed or refused"),
    ("4", "`simulate`: nobody is affected as far as is known"),
)
VARIABLES: Final = (
    ("SKEWGATE_CONFIG", "default configuration file"),
    ("SKEWGATE_ADMIN_TOKEN", "token for the admin listener; overrides the one in `-c FILE`"),
    ("SKEWGATE_ADMIN_CA, SKEWGATE_ADMIN_CERT, SKEWGATE_ADMIN_KEY", "defaults of --ca, --cert and --key"),
    ("SKEWGATE_LOOP", "event loop, `asyncio` or `uvloop`; default: uvloop if it is installed"),
    (
        "SKEWGATE_COMPILED",
        "`0`: use nothing compiled; `matcher`: only the matcher, `1`: the whole build, or fail",
    ),
    ("NO_COLOR", "any value: no colours"),
    ("SKEWGATE_VENV", "for `./run` in a checkout: folder of its environment; default: .venv"),
    ("SKEWGATE_PYTHON", "for `./run`: Python interpreter for the environment"),
    ("SKEWGATE_WHEELS", "for `./run`: folder of wheels to install from, without a network"),
)
FILES: Final = (
    ("./skewgate.yaml", "configuration file, if neither an argument nor SKEWGATE_CONFIG gives one"),
    ("/etc/skewgate/skewgate.yaml", "configuration file, if the former does not exist"),
)

PAGE: Final = Path("docs/cli.md")
MAN_PAGE: Final = Path("docs/skewgate.1")
COMMAND: Final = "python -m tests.docs.command_pages"


def verbs() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every verb with a context in which it can be asked for its help."""
    above = click.Context(skewgate, info_name=NAME)
    for name in skewgate.list_commands(above):
        command = skewgate.get_command(above, name)
        assert command is not None
        yield name, command, click.Context(command, info_name=name, parent=above)


def records(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The options of a verb, each with its explanation."""
    found = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
    ]
    return [record for record in found if record is not None and "--help" not in record[0]]


def usage(command: click.Command, context: click.Context) -> str:
    """`skewgate check [OPTIONS] [FILE]...`."""
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def page_as_it_should_be(page: str) -> str:
    """docs/cli.md with its generated parts written anew; everything else stays."""
    parts = {
        "exit codes": _table("code", EXIT_CODES),
        "verbs": "\n".join(_section(*each) for each in verbs()),
        "environment": _table("variable", VARIABLES),
        "files": _table("file", FILES),
    }
    return with_parts(page, COMMAND, parts)


def _section(name: str, command: click.Command, context: click.Context) -> str:
    text = f"## `{name}`\n\n```text\n{usage(command, context)}\n```\n\n{_prose(command.help or '')}\n"
    options = records(command, context)
    return f"{text}\n{_table('option', options)}" if options else text


def _prose(text: str) -> str:
    return text.replace("<", "\\<")


def _table(head: str, pairs: Sequence[tuple[str, str]]) -> str:
    return table((head, "meaning"), ((_code(term), " ".join(text.split())) for term, text in pairs))


def _code(terms: str) -> str:
    return ", ".join(f"`{' '.join(term.split())}`" for term in terms.split(", "))


def man_page() -> str:
    """The man page, in roff."""
    lines = [
        f'.TH SKEWGATE 1 "" "skewgate {__version__}" "User Commands"',
        ".SH NAME",
        f"{NAME} \\- reverse proxy for fleets of mixed API versions",
        ".SH SYNOPSIS",
        f".B {NAME}",
        "VERB [OPTIONS] ...",
        ".SH DESCRIPTION",
        _roff(skewgate.help or ""),
        ".SH VERBS",
    ]
    for _, command, context in verbs():
        lines += [f".SS {_roff(usage(command, context))}"]
        for number, paragraph in enumerate((command.help or "").split("\n\n")):
            lines += [".PP"] * (number > 0) + [_roff(" ".join(paragraph.split()))]
        for term, text in records(command, context):
            lines += [".TP", f"\\fB{_roff(term)}\\fR", _roff(" ".join(text.split()))]
    for title, pairs in (("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", VARIABLES), ("FILES", FILES)):
        lines.append(f".SH {title}")
        for term, text in pairs:
            lines += [".TP", f"\\fB{_roff(term)}\\fR", _roff(text)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    text = re.sub(r"`([^`]*)`", r"\1", text)
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    PAGE.write_text(page_as_it_should_be(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    MAN_PAGE.write_text(man_page(), encoding="utf-8")
