"""Trust in files by their owner: this user, root, and the user of the gateway that is taken over.

In a folder that others may write, another user can put a file or a symbolic link where the gateway expects
its own. Open files are checked by their descriptor, so that nothing changes between check and use. This
module reads no content and changes nothing.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Final

from gateway.errors import StartupError

MAX_LINKS: Final = 40
"""Maximum of symbolic links in one path, as in Linux."""


class ForeignFileError(StartupError):
    """Raised for a file or link that belongs to another user or that everybody may write. Says what to do."""


def trusted_users(*more: int) -> frozenset[int]:
    """The ids of users whose files are trusted: the user of this process, root, and `more`."""
    return frozenset((os.geteuid(), 0, *more))


def others_write(folder: Path, users: Collection[int]) -> bool:
    """Whether other users may put files into a folder. Its group does not count: the owner chooses that."""
    try:
        found = folder.stat()
    except OSError:
        return False  # using it will fail with the reason
    return bool(found.st_mode & stat.S_IWOTH) or found.st_uid not in users


def real_path(path: str | os.PathLike[str], users: Collection[int]) -> Path:
    """A path without symbolic links, as `os.path.realpath` returns it. Raises `ForeignFileError` for a link
    of another user in a folder that others may write."""
    here, links = Path("/"), 0
    left = deque(os.path.join(os.getcwd(), path).split("/"))  # noqa: PTH109, PTH118 - parts as they are
    while left:
        part = left.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            here = here.parent
            continue
        place = here / part
        target = _target_of(place, here, users)
        if target is None:
            here = place
            continue
        links += 1
        if links > MAX_LINKS:
            return Path(os.path.realpath(path))  # opening it fails
        here = Path("/") if target.startswith("/") else here
        left.extendleft(reversed(target.split("/")))
    return here


def _target_of(place: Path, folder: Path, users: Collection[int]) -> str | None:
    """The target of a symbolic link; None: `place` is no link. Raises `ForeignFileError`."""
    try:
        before = place.lstat()
        if not stat.S_ISLNK(before.st_mode):
            return None
        target = str(place.readlink())
        after = place.lstat()
    except OSError:
        return None
    if others_write(folder, users):
        if before.st_uid not in users:
            raise ForeignFileError(
                f"{place} is a symbolic link of user {before.st_uid} in a folder that others may write, and "
                f"this gateway runs as user {os.geteuid()}: remove it, or name another file"
            )
        if (before.st_ino, before.st_ctime_ns) != (after.st_ino, after.st_ctime_ns):
            raise ForeignFileError(f"somebody replaces the symbolic link {place} while this gateway starts")
    return target


def require_own(path: Path, found: os.stat_result, users: Collection[int]) -> None:
    """Raise `ForeignFileError` unless the file belongs to one of these users, and nobody else may write it.
    `found`: of the descriptor, if the file is open."""
    if found.st_uid not in users:
        raise ForeignFileError(
            f"{path} belongs to user {found.st_uid}, and this gateway runs as user {os.geteuid()}: "
            f"remove it, or give it to that user (chown {os.geteuid()})"
        )
    if found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
        raise ForeignFileError(
            f"every user may write {path}, so it is not relied on: remove it, or change its mode (chmod o-w)"
        )


def require_all_own(paths: Collection[Path], users: Collection[int]) -> None:
    """Raise `ForeignFileError` if an existing file belongs to another user, or everybody may write it."""
    for path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue  # opening it will fail with the reason
        require_own(path, found, users)
