"""The files of a configuration: read for `load`, and remembered by checksum, so that a change is noticed.

Modification times do not count: a volume of Kubernetes swaps a symbolic link, and some editors write the same
text again. Reading blocks. This module knows no key.
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
"""Largest file that is read, in bytes. A whole configuration may have a quarter as many characters."""
MAX_VALUE: Final = 64 << 10
"""Largest file whose content is one value, in bytes."""
MAX_FILES: Final = 1000
"""Largest number of files that a glob pattern of the configuration may match."""

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags of `os.open` with which no pipe or device makes the gateway wait."""


class SourceError(SkewgateError):
    """Raised when a configuration file cannot be read. `code`: one of `problem.CODES`; `hint`: what to do."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """The files and patterns of a configuration as they were when it was read."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Checksum of each file's content, or the reason why it could not be read, by path."""
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths of files that each glob pattern of the configuration matched, by pattern."""

    def again(self) -> Seen:
        """The configuration's files and patterns as they are now, read again from the disk. Blocks."""
        return Seen(
            {path: _checksum(path) for path in self.files},
            {pattern: _matches(pattern) for pattern in self.patterns},
        )


@final
class Sources:
    """Reader of the files of one configuration. Relative paths begin in `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, str] = {}
        self._patterns: dict[str, tuple[str, ...]] = {}

    @property
    def folder(self) -> str:
        return str(self._folder)

    @property
    def seen(self) -> Seen:
        """The files and patterns of the configuration that were read so far."""
        return Seen(dict(self._files), dict(self._patterns))

    def resolve(self, path: str) -> str:
        return str(self._folder / path)

    def read_main(self, path: str | Path) -> bytes:
        """Read the configuration file; a pipe in its place is never watched. Raises `SourceError`."""
        if not is_stream(path):
            return self.read(str(path))
        try:
            with Path(path).open("rb") as file:
                return _bounded(file.read(MAX_SIZE + 1))
        except OSError as error:
            raise _unreadable(error, str(path)) from None

    def read(self, path: str) -> bytes:
        """Read a regular file of the configuration and remember its checksum. Raises `SourceError`."""
        try:
            data = _read(path)
        except SourceError as error:
            self._files[path] = str(error)
            raise
        self._files[path] = sha256(data).hexdigest()
        return data

    def read_value(self, path: str, folders: Sequence[str] | None = None) -> str:
        """Read a file that holds one value, without the last line end, beneath one of `folders` (None:
        anywhere), with all links resolved. Raises `SourceError`."""
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
        self.note(path)
        return _content(_open_beneath(path, map(self.resolve, folders)), path)

    def match(self, pattern: str) -> tuple[str, ...]:
        """The paths that a glob pattern matches, sorted. They are remembered, so that a change is noticed."""
        resolved = self.resolve(pattern)
        found = self._patterns[resolved] = _matches(resolved)
        return found

    def note(self, path: str) -> None:
        """Remember the checksum of a file that another reader is about to open."""
        self._files[path] = _checksum(path)


def folder_of(path: str | Path) -> Path:
    """The folder in which relative paths of a configuration begin. A pipe has none: the working folder."""
    return Path() if is_stream(path) else Path(path).parent


def reader_of(path: str | Path) -> str:
    """A hint for a file that cannot be read: its absolute path and the user who tries."""
    user = os.geteuid()
    try:
        name = getpwuid(user).pw_name
    except KeyError:  # as in a container
        name = str(user)
    place = str(Path(path).absolute())
    return f"user {name} reads it at {place if place.isprintable() else ascii(place)}"


def is_stream(path: str | Path) -> bool:
    """Whether a path is a pipe or a device, which can be read once and never be replaced."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _matches(pattern: str) -> tuple[str, ...]:
    """The paths that a glob pattern matches, sorted. A hidden file needs a dot in the pattern."""
    return tuple(sorted(glob(pattern))[: MAX_FILES + 1])  # noqa: PTH207 - `Path.glob` takes no absolute one


def _checksum(path: str) -> str:
    try:
        return sha256(_read(path)).hexdigest()
    except SourceError as error:
        return str(error)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        raise _unreadable(error, path) from None
    return _content(fd, path)


def _open_beneath(path: str, folders: Iterable[str]) -> int:
    """Open a file beneath one of these folders. Links are resolved first. Each step then follows none, so
    that no other user can put one there in between. Raises `SourceError`."""
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
    """Read an open regular file to its end and close its descriptor. Raises `SourceError`."""
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
