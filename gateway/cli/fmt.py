"""`skewgate fmt FILE…`: lays configurations out in one way (`layout`), in place.

A file is replaced as a whole or stays as it was, and keeps its permissions. With `-` the text goes from
standard input to standard output. What a layout is, and that it changes no meaning, is up to `layout`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from gateway.cli.command import STDIN, STDIN_NAME, FileName, find_config, verb
from gateway.cli.layout import NotYaml, laid_out
from gateway.errors import LayoutError, SettingsError
from gateway.runtime.terminal import print_error

DETAILS: Final = (
    "Values and comments stay as they are. Indentation, gaps and empty lines become those of this project's"
    " examples, and versions that other tools would read as numbers get quotation marks. FILE is - for"
    " standard input to standard output; without one it is that of SKEWGATE_CONFIG, ./skewgate.yaml or"
    " /etc/skewgate/skewgate.yaml."
)


@verb("fmt", DETAILS)
@click.option("--check", is_flag=True, help="change nothing; exit code 1 if a file has another layout")
@click.option("--diff", is_flag=True, help="change nothing; print what would change")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=FileName())
def command(*, check: bool, diff: bool, files: Sequence[Path]) -> int:
    """Lay out. 0, or with `--check` 1 if a file has another layout. Raises `SettingsError`, `LayoutError`."""
    other = 0
    for file in files or [find_config(None)]:
        before = _read(file)
        try:
            after = laid_out(before)
        except NotYaml:
            raise _problems(file, before) from None
        except LayoutError as problem:
            raise LayoutError(f"{_name(file)}: {problem}") from None
        if str(file) == STDIN and not (check or diff):
            print(after, end="")
        elif after != before:
            other += 1
            if diff:
                _print_diff(_name(file), before, after)
            if check:
                print_error(f"{_name(file)} has another layout")
            elif not diff:
                _replace(file, after)
                print(f"{file}: laid out anew")
    return 1 if check and other else 0


def _name(file: Path) -> str:
    return STDIN_NAME if str(file) == STDIN else str(file)


def _read(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{_name(file)} is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{_name(file)} cannot be read: {reason}") from None


def _problems(file: Path, text: str) -> SettingsError:
    """What `check` says of a text that is no configuration at all."""
    from gateway.settings.load import read_bytes  # noqa: PLC0415 - only for what cannot be laid out

    loaded = read_bytes(text.encode("utf-8"), filename=_name(file), environ=os.environ)
    if loaded.errors:
        return SettingsError(loaded.render(), loaded.problems)
    return SettingsError(f"{_name(file)} cannot be laid out")


def _print_diff(name: str, before: str, after: str) -> None:
    from difflib import unified_diff  # noqa: PLC0415 - only --diff needs it

    lines = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _replace(file: Path, text: str) -> None:
    """Write a file beside it, which takes its place. Raises `LayoutError`."""
    target = file.resolve()
    try:
        status = target.stat()
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="") as new:
                os.fchmod(new.fileno(), status.st_mode & 0o7777)
                with suppress(PermissionError):  # somebody else's file becomes the writer's
                    os.fchown(new.fileno(), status.st_uid, status.st_gid)
                new.write(text)
                new.flush()
                os.fsync(new.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LayoutError(f"{file} cannot be written: {error.strerror}") from None
