"""The command `skewgate`: parses the command line, runs one verb, and turns errors into exit codes. The only
layer that may import all others.

A verb is a function with `@verb` (see `command`) that returns the exit code, in the module that `verbs`
names. It prints its result to standard output and raises `SkewgateError` on failure. Only this module turns
an error into one sentence and an exit code: 0 success, 1 failure at run time, 2 bad usage or configuration.

This package must not judge a configuration (`settings`) or decide about a request (`core`). Nothing heavy is
imported here, and only the module of the verb that is called: a health check must cost next to nothing.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, TextIO

import click

from gateway import __version__
from gateway.cli.command import CONTEXT
from gateway.cli.verbs import COMPILED, MODULES, VERBS
from gateway.errors import SettingsError, SkewgateError
from gateway.runtime import compiled
from gateway.runtime.terminal import open_standard_streams, print_error

FAILED: Final = 1
BAD_USAGE: Final = 2
NAME: Final = "skewgate"
COMPLETE_VARIABLE: Final = "_SKEWGATE_COMPLETE"
"""Environment variable by which a shell's completion script asks the command for completions."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Error numbers of a write to standard output that fails because of the disk, not because of the reader."""


class Verbs(click.Group):
    """The group of all verbs; the module of a verb is imported when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"gateway.cli.{MODULES.get(cmd_name, cmd_name)}")
        # No function has the name of a keyword, such as `raise`.
        command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            message = f"unknown command {args[0]!r} (`{NAME} --help` lists all)."
            raise click.exceptions.NoSuchCommand(args[0], message, VERBS, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs into the help from the table `VERBS`, so that no verb is imported."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


skewgate: Final = Verbs(
    NAME,
    help="Reverse proxy for fleets of mixed API versions: discovers, negotiates and routes versions.",
    epilog="Exit codes: 0 success, 1 failure at run time, 2 bad usage or configuration.",
    subcommand_metavar="VERB ...",
    no_args_is_help=False,
    context_settings=CONTEXT,
)
click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")(skewgate)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb with `argv` (default: `sys.argv[1:]`) and return the exit code. Raises only for bugs."""
    open_standard_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it
        _forget(sys.stdout)
        return FAILED
    except OSError as problem:
        if problem.errno not in FULL or problem.filename is not None:
            raise
        _forget(sys.stdout)
        try:
            print_error(f"the output cannot be written: {problem.strerror}")
        except OSError:  # standard error is full as well
            _forget(sys.stderr)
        return FAILED
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        if instruction := os.environ.get(COMPLETE_VARIABLE):
            from click.shell_completion import shell_complete  # noqa: PLC0415 - only shells need it

            return shell_complete(skewgate, {}, NAME, COMPLETE_VARIABLE, instruction)
        with skewgate.make_context(NAME, list(argv)) as context:
            name = argv[0] if argv else ""
            if name != "build":
                compiled.require(runs_gateway=name in COMPILED)
            code: int = skewgate.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as problem:
        _print_usage_error(problem)
        return BAD_USAGE
    except SettingsError as problem:
        if problem.problems:
            print(problem, file=sys.stderr)  # each problem with its position
        else:
            print_error(problem)
        return BAD_USAGE
    except SkewgateError as problem:
        print_error(problem)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return code


def _print_usage_error(problem: click.UsageError) -> None:
    context = problem.ctx
    usage = f"{context.get_usage()}\n" if context is not None else ""
    path = context.command_path if context is not None else NAME
    message = problem.format_message().rstrip(".")
    print(f"{usage}{path}: error: {message[:1].lower()}{message[1:]}", file=sys.stderr, flush=True)


def _forget(stream: TextIO) -> None:
    """Point a broken stream at /dev/null: otherwise Python flushes it again at exit, fails, and exits 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
