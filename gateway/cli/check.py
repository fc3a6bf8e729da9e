"""`skewgate check FILE…`: every problem of configurations, with position, source line, caret and hint.

It prints to standard output what `settings` found and finds nothing itself. With `--fix` it first replaces
the tokens of problems with only one correction; every other byte, the permissions and the owner are kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gateway.cli.command import FILE_NAME, STDIN, STDIN_NAME, find_config, output_option, usage_error, verb
from gateway.core.dialect import DefaultKind
from gateway.core.fleet.service import Service
from gateway.errors import SkewgateError
from gateway.settings import Loaded, load, read_file
from gateway.settings.files import is_stream
from gateway.settings.yaml.problem import NUMBER, Problem, line_starts
from gateway.settings.yaml.tree import Position

DETAILS: Final = (
    "FILE is a configuration, or - for standard input. The default is SKEWGATE_CONFIG, ./skewgate.yaml or"
    " /etc/skewgate/skewgate.yaml, whichever exists first. Exit code 0: every file can be used, perhaps with"
    " warnings. 2: a file has an error."
)

_WITHOUT_VERSION: Final[Mapping[DefaultKind, str]] = {
    DefaultKind.MINIMUM: "gets the oldest one on offer",
    DefaultKind.MAXIMUM: "gets the newest one on offer",
    DefaultKind.REFUSED: "is refused",
}


class Fixed(NamedTuple):
    """A token of a file that `--fix` replaced. Line and column count from 1, in the old file."""

    file: str
    line: int
    column: int
    code: str
    was: str
    now: str

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}:{self.column}: fixed[{self.code}]: replaced {self.was} with {self.now}"
        )


@verb("check", DETAILS)
@click.option("--strict", is_flag=True, help="treat warnings as errors")
@click.option(
    "--engine",
    type=click.Choice(["haproxy"]),
    help="report services of which this engine cannot forward any request itself as errors",
)
@click.option(
    "--fix",
    "fixes",
    is_flag=True,
    help="first correct in place what has only one correction: versions without quotation marks; nothing else"
    " in the file changes",
)
@output_option
@click.argument("files", metavar="[FILE]...", nargs=-1, type=FILE_NAME)
def check(*, strict: bool, engine: str | None, fixes: bool, output: str, files: Sequence[Path]) -> int:
    """Print the problems of all files. Returns 0 if all can be used, perhaps with warnings, otherwise 2."""
    files = files or [find_config(None)]
    for file in files:
        if fixes and (str(file) == STDIN or is_stream(file)):
            usage_error(f"--fix needs a regular file; {file} cannot be changed in place")
    found = []
    failed = False
    for file in files:
        fixed = _fix(file) if fixes else None
        if fixed and output == "text":
            print(*fixed, sep="\n")
        loaded = _read(file)
        if engine is not None:
            loaded = _for_engine(loaded)
        if output == "text":
            print(_as_text(loaded))
        else:
            found.append(_as_json(loaded, fixed))
        failed = failed or bool(loaded.errors or (strict and loaded.problems))
    if output == "json":
        print(json.dumps({"files": found}, ensure_ascii=False))
    return 2 if failed else 0


def _read(file: Path) -> Loaded:
    if str(file) != STDIN:
        return read_file(file, environ=os.environ)
    return load(sys.stdin.buffer.read(), filename=STDIN_NAME, environ=os.environ)


def _for_engine(loaded: Loaded) -> Loaded:
    """Add a problem for each service that no engine can serve. All engines use the same table of routes."""
    from gateway.engines.table import inexpressible  # noqa: PLC0415 - only `--engine` needs it

    found = []
    for service in loaded.settings.services if loaded.settings is not None else ():
        reason = inexpressible(service)
        if reason is not None:
            at = loaded.positions.get(f"services.{service.name}", Position())
            key = ".".join(map(str, reason.key))
            message = f"no engine can serve {service.name!r}: {reason.reason} (`{key}`)"
            hint = "without an engine the gateway serves it"
            found.append(Problem(at.line, at.column, "engine", message, hint, width=at.width, file=at.file))
    return replace(loaded, problems=(*loaded.problems, *found)) if found else loaded


def _as_text(loaded: Loaded) -> str:
    if loaded.errors:
        return loaded.render()
    warnings = len(loaded.problems)
    count = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    parts = [loaded.render()] if loaded.problems else []
    return "\n".join([*parts, f"{loaded.filename}: fine{count}", *(f"  {note}" for note in _notes(loaded))])


def _as_json(loaded: Loaded, fixed: Sequence[Fixed] | None) -> dict[str, Any]:
    return {
        "file": loaded.filename,
        "usable": not loaded.errors,
        "problems": [
            {
                "file": problem.file or loaded.filename,
                "line": problem.line,
                "column": problem.column,
                "severity": problem.severity.value,
                "code": problem.code,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in loaded.problems
        ],
        "notes": _notes(loaded),
        **({} if fixed is None else {"fixed": [each._asdict() for each in fixed]}),
    }


def _notes(loaded: Loaded) -> list[str]:
    """Return a line for each thing worth knowing about a valid service."""
    found = []
    for service in loaded.settings.services if loaded.settings is not None else ():
        rules = service.dialect.configuration_rules
        notes = (*([_what_no_version_gets(service)] if rules.says_default else ()), *rules.notes)
        found += [f"{service.name}: {note}" for note in notes]
    return found


def _what_no_version_gets(service: Service) -> str:
    default = service.effective_default_version
    if default.kind is DefaultKind.CONSTANT and default.constant is not None:
        text = service.dialect.scheme.format(default.constant)
        result = f"gets {text}, or is refused if that is not on offer"
    else:
        result = _WITHOUT_VERSION[default.kind]
    decide = "" if service.default_version is not None else "; `default_version` changes that"
    return f"a request without a version {result}{decide}"


def _fix(file: Path) -> list[Fixed]:
    """Correct a configuration and the files that it includes. Raises `SkewgateError`."""
    loaded = read_file(file, environ=os.environ)
    mendable: dict[str, list[Problem]] = {}
    for problem in loaded.problems:
        if problem.code == NUMBER:
            mendable.setdefault(problem.file or loaded.filename, []).append(problem)
    fixed: list[Fixed] = []
    for name, problems in mendable.items():
        fixed += _fix_file(name, problems, loaded.seen.files.get(name, ""))
    return fixed


def _fix_file(name: str, problems: Sequence[Problem], checksum: str) -> list[Fixed]:
    """Correct one file. `problems`: in the order of the file. `checksum`: SHA-256 of the checked text."""
    target = Path(name).resolve()
    try:
        data = target.read_bytes()
        if sha256(data).hexdigest() != checksum:
            raise SkewgateError(f"{name} was changed meanwhile; run the command again")
        mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
        text = data.decode("utf-8-sig")
        starts = line_starts(text)
        fixed, pieces, end = [], [], 0
        for problem in problems:
            start = starts[problem.line - 1] + problem.column - 1
            was = text[start : start + problem.width]
            pieces += [text[end:start], f'"{was}"']
            end = start + problem.width
            fixed.append(Fixed(name, problem.line, problem.column, problem.code, was, f'"{was}"'))
        _replace(target, mark + "".join([*pieces, text[end:]]).encode("utf-8"))
    except OSError as error:
        raise SkewgateError(f"{name} cannot be written: {error.strerror}") from None
    return fixed


def _replace(target: Path, data: bytes) -> None:
    """Replace a file atomically: a reader finds either the old text or the new one. Raises `OSError`."""
    status = target.stat()
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    new = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
            shutil.copystat(target, new)  # permissions, and extended attributes such as access control lists
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
