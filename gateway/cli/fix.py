"""Corrects configuration files in place, for `check --fix`.

    problems that carry a correction -> their tokens -> a new file beside the old one, renamed over it

The checks of `settings` say which problems have a correction, and which. Every byte outside of those tokens
is kept, and so are the file's permissions, its owner and symbolic links to it. This module reads no YAML and
prints nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from codecs import BOM_UTF8
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from gateway.errors import FixError
from gateway.settings import read_file
from gateway.settings.yaml.problem import Problem, line_starts


class Fixed(NamedTuple):
    """A token that was replaced. Line and column count from 1, in the old file."""

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


def fix(file: Path) -> list[Fixed]:
    """Correct a configuration and the files that it includes. Raises `FixError`."""
    loaded = read_file(file, environ=os.environ)
    mendable: dict[str, list[Problem]] = {}
    for problem in loaded.problems:
        if problem.mend:
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
            raise FixError(f"{name} was changed meanwhile; run the command again")
        mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
        text = data.decode("utf-8-sig")
        starts = line_starts(text)
        fixed, pieces, end = [], [], 0
        for problem in problems:
            start = starts[problem.line - 1] + problem.column - 1
            pieces += [text[end:start], problem.mend]
            end = start + problem.width
            at = problem.line, problem.column
            fixed.append(Fixed(name, *at, problem.code, text[start:end], problem.mend))
        _replace(target, mark + "".join([*pieces, text[end:]]).encode("utf-8"))
    except OSError as error:
        raise FixError(f"{name} cannot be written: {error.strerror}") from None
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
