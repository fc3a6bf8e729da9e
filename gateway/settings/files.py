"""The files of a configuration: reads them for `load`, and remembers what it found, so that somebody can look
whether they still hold the same.

What is remembered is a checksum of each file's content, never its time: a volume of Kubernetes swaps a
symbolic link, and some editors write the same text again. Blocks. This module knows no key.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from hashlib import sha256
from pathlib import Path
from pwd import getpwuid
from typing import Final, final

from gateway.errors import SkewgateError

MAX_SIZE: Final = 4 << 20
"""Bytes that are read of any file: the configuration may have a quarter as many characters."""
MAX_VALUE: Final = 64 << 10
"""Bytes of a file whose content is a value."""
MAX_FILES: Final = 1000
"""Files that a pattern may match."""

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Neither a pipe nor a device is ever waited for."""


class SourceError(SkewgateError):
    """A file cannot be read. `code` is one of `problem.CODES`, `hint` what to do about it."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """What was found when a configuration was read."""

    files: Mapping[str, str] = field(default_factory=dict)
    """By path: a checksum of the content, or why it could not be read."""
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The paths that each pattern matched."""

    def again(self) -> Seen:
        """What there is now, in the same places. Blocks."""
        return Seen(
            {path: _checksum(path) for path in self.files},
            {pattern: _matches(pattern) for pattern in self.patterns},
        )


@final
class Sources:
    """Reads the files of one configuration. `folder`: what relative paths are relative to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, str] = {}
        self._patterns: dict[str, tuple[str, ...]] = {}

    @property
    def folder(self) -> str:
        """Where relative paths begin."""
        return str(self._folder)

    @property
    def seen(self) -> Seen:
        """What was found up to now."""
        return Seen(dict(self._files), dict(self._patterns))

    def resolve(self, path: str) -> str:
        """`path` as it is opened."""
        return str(self._folder / path)

    def read_main(self, path: str | Path) -> bytes:
        """The file of the configuration itself. It may be a pipe, which is read once and never watched.
        Raises `SourceError`, and `OSError` for a pipe."""
        if is_stream(path):
            with Path(path).open("rb") as file:
                return _bounded(file.read(MAX_SIZE + 1))
        return self.read(str(path))

    def read(self, path: str) -> bytes:
        """The content of a regular file. Raises `SourceError`."""
        try:
            data = _read(path)
        except SourceError as error:
            self._files[path] = str(error)
            raise
        self._files[path] = sha256(data).hexdigest()
        return data

    def read_value(self, path: str, folders: Sequence[str] | None = None) -> str:
        """The content of a file that is one value, without the end of its last line. Raises `SourceError`.

        `folders`: the file must be beneath one of these, with all symbolic links resolved; None: it may be
        anywhere.
        """
        place = self.resolve(path)
        data = self.read(place) if folders is None else self._read_beneath(place, folders)
        if len(data) > MAX_VALUE:
            raise SourceError("too-large", f"the file is larger than {MAX_VALUE >> 10} KiB")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise SourceError("not-utf-8", "the file is not UTF-8") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise SourceError("empty-file", "the file is empty")
        return text

    def _read_beneath(self, path: str, folders: Iterable[str]) -> bytes:
        """The content of a regular file beneath one of these folders. Raises `SourceError`."""
        self.note(path)
        return _content(_open_beneath(path, map(self.resolve, folders)), path)

    def match(self, pattern: str) -> tuple[str, ...]:
        """The paths that a pattern matches, in order."""
        resolved = self.resolve(pattern)
        found = self._patterns[resolved] = _matches(resolved)
        return found

    def note(self, path: str) -> None:
        """Remember a file that somebody else is about to read."""
        self._files[path] = _checksum(path)


def folder_of(path: str | Path) -> Path:
    """Where the relative paths in a configuration begin: in its folder, and for a pipe, which has none, in
    the working folder."""
    return Path() if is_stream(path) else Path(path).parent


def reader_of(path: str | Path) -> str:
    """A hint for a file that cannot be read: its absolute path, and the user who tries."""
    user = os.geteuid()
    try:
        name = getpwuid(user).pw_name
    except KeyError:  # as in a container
        name = str(user)
    place = str(Path(path).absolute())
    return f"user {name} reads it at {place if place.isprintable() else ascii(place)}"


def is_stream(path: str | Path) -> bool:
    """Whether it is a pipe or a device, which can be read once and not written anew."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _matches(pattern: str) -> tuple[str, ...]:
    """In order. Names that begin with a dot match only where the pattern has the dot."""
    return tuple(sorted(glob(pattern))[: MAX_FILES + 1])  # noqa: PTH207 - `Path.glob` takes no absolute one


def _checksum(path: str) -> str:
    try:
        return sha256(_read(path)).hexdigest()
    except SourceError as error:
        return str(error)


def _read(path: str) -> bytes:
    """Raises `SourceError`."""
    try:
        fd = os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        raise _unreadable(error, path) from None
    return _content(fd, path)


def _open_beneath(path: str, folders: Iterable[str]) -> int:
    """A descriptor of the file at `path`, if it is beneath one of these folders. Raises `SourceError`.

    Links are resolved first. Then each step follows none, so that nobody who may write in such a folder can
    put one there in between.
    """
    try:
        target = Path(path).resolve()
        tops = [Path(folder).resolve() for folder in folders]
        top = next((each for each in tops if each in target.parents), None)
        if top is None:
            message = "an included file may not read this file"
            raise SourceError("not-allowed", message, "add its folder to `include.folders` of the main file")
        *between, name = target.relative_to(top).parts
        folder = os.open(top, _OPEN | os.O_DIRECTORY)
        try:
            for part in between:
                below = os.open(part, _OPEN | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        raise _unreadable(error, path) from None


def _unreadable(error: Exception, path: str) -> SourceError:
    reason, hint = getattr(error, "strerror", None), reader_of(path)
    if not reason:
        reason, hint = "not a valid file name", ""
    return SourceError("unreadable", f"the file cannot be read: {reason}", hint)


def _content(fd: int, path: str) -> bytes:
    """Reads the file and closes the descriptor. Raises `SourceError`."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            raise OSError(0, "Is a directory" if is_folder else "not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise _unreadable(error, path) from None
    finally:
        os.close(fd)
    return _bounded(data)


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_SIZE:
        raise SourceError("too-large", f"the file is larger than {MAX_SIZE >> 20} MiB")
    return data
