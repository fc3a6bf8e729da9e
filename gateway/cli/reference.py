"""Writes docs/cli.md and the man page from the commands, so that both always agree with them.

    python -m gateway.cli.reference > docs/cli.md
    python -m gateway.cli.reference man > docs/skewgate.1

A verb and its options are explained where they are declared, never here. What belongs to no single verb is
here: exit codes, variables, files, and the format of the file of `skewgate test`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

import click

from gateway import __version__
from gateway.cli import NAME, skewgate

EXIT_CODES: Final = (
    ("0", "fine; after `run`, a drain that was complete"),
    ("1", "failed at run time: no gateway responds, it refuses, a row of `test` differs"),
    ("2", "bad usage, or a configuration that cannot be used"),
)
VARIABLES: Final = (
    ("SKEWGATE_CONFIG", "the configuration, where none is named"),
    ("SKEWGATE_ADMIN_TOKEN", "the token for the admin listener; it goes before that of `-c FILE`"),
    ("SKEWGATE_ADMIN_CA, SKEWGATE_ADMIN_CERT, SKEWGATE_ADMIN_KEY", "stand for --ca, --cert and --key"),
    ("SKEWGATE_LOOP", "`asyncio` or `uvloop`; without it, uvloop if it is installed"),
    ("SKEWGATE_COMPILED", "`0`: no compiled build is used; `1`: nothing else is"),
    ("NO_COLOR", "if it is set, nothing is coloured"),
    ("SKEWGATE_VENV", "for `./run` in a checkout: the folder of its environment; default: .venv"),
    ("SKEWGATE_PYTHON", "the interpreter with which `./run` makes the environment"),
    ("SKEWGATE_WHEELS", "a folder of wheels from which `./run` makes it, without a network"),
)
FILES: Final = (
    ("./skewgate.yaml", "the configuration, where neither a file nor SKEWGATE_CONFIG names one"),
    ("/etc/skewgate/skewgate.yaml", "the same, after that"),
)

_OPENING: Final = """\
# The command

<!-- Written by `python -m gateway.cli.reference`; a test compares. Change the commands, not this page. -->

`skewgate VERB` runs the gateway, checks its configuration, and looks into a gateway that runs. In a checkout,
`./run` takes the same verbs. `skewgate VERB --help` shows what is here, and so does the man page,
`man ./docs/skewgate.1`.
`skewgate completion bash`, `zsh` or `fish` prints a script that completes verbs, options and file
names, and the services and backends of the gateway that runs, or else of the configuration.
Verbs that talk to a running gateway find its admin listener in `-c FILE`, or take `--admin URL`; otherwise it
is `http://127.0.0.1:9900`.
"""

_CLOSING: Final = """\
## The output of `check -o json`

One object: `files`, a list with one object for each file. Each has `file`, `usable` (no error), and
`problems` in file order. A problem has `file` (an included file is named here), `line`, `column`, `severity`
(`error` or `warning`), `code`, `message` and `hint` (or null). The codes are listed in
[configuration](configuration.md#problem-codes). `notes` has the lines that `check` prints about services of
which nothing is wrong. With `--fix` there is `fixed` as well: of each token that was replaced `file`, `line`,
`column`, `code`, and the texts `was` and `now`.

## The file of `test`

A table of requests, in YAML that is read as configurations are: a value is the text that was written.

```yaml
config: skewgate.yaml            # from the folder of this file; -c on the command line goes before it
backends:                        # what each serves; without this key, each is probed once
  baremetal/api-1: 1.1-1.58      # versions, as in `versions` of the configuration
  baremetal/api-2: 1.1-1.90
  baremetal/api-3: down          # has never answered; so are those that are not in this list
requests:
  - request: GET /v1/nodes
    headers: {X-OpenStack-Ironic-API-Version: latest}
    expect: {decision: forward, version: "1.58", backends: [api-1, api-2]}
  - request: GET /v1/nodes
    headers: {X-OpenStack-Ironic-API-Version: "1.90"}
    expect: {decision: refuse, status: 406}
```

`headers` may have a list as a value: the header stands there several times. `expect` has at least one of:

| key | what is compared |
|---|---|
| `decision` | `forward`, `refuse`, `answer` (by the gateway itself) or `unrouted`, as in `explain` |
| `status` | the status of a response that the gateway makes itself |
| `service` | the name of the service |
| `version` | the negotiated version |
| `backends` | all backends that may get the request, in any order |

The offer is the first one: nothing waits for `stabilization`, and nothing was offered before. With `--admin`
a running gateway decides, under its present offer; `config` and `backends` are not looked at then.
"""


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


def page() -> str:
    """docs/cli.md."""
    parts = [_OPENING, "## Exit codes\n\n| code | meaning |\n|---|---|\n" + _rows(EXIT_CODES)]
    for name, command, context in verbs():
        text = f"## `{name}`\n\n```text\n{usage(command, context)}\n```\n\n{_prose(command.help or '')}\n"
        if options := records(command, context):
            text += "\n| option | meaning |\n|---|---|\n" + _rows(options)
        parts.append(text)
    parts += [
        _CLOSING,
        "## Environment\n\n| variable | meaning |\n|---|---|\n" + _rows(VARIABLES),
        "## Files\n\n| file | meaning |\n|---|---|\n" + _rows(FILES),
    ]
    return "\n".join(parts)


def _prose(text: str) -> str:
    return text.replace("<", "\\<")


def _rows(pairs: object) -> str:
    assert isinstance(pairs, tuple | list)
    return "".join(f"| {_code(term)} | {_cell(text)} |\n" for term, text in pairs)


def _code(term: str) -> str:
    return ", ".join(f"`{_cell(part)}`" for part in term.split(", "))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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
    sys.stdout.write(man_page() if sys.argv[1:] == ["man"] else page())
