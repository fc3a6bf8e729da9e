"""Listening sockets: bound all or none, and kept open as long as the gateway lives.

    Listen, inherited sockets  ->  ListeningSockets  ->  of_slot(0), of_slot(1), …  ->  whoever accepts

Each worker has a slot, and a TCP address has one socket for each slot (SO_REUSEPORT). A Unix socket is
shared. Whoever accepts uses a duplicate: a waiting connection is lost only when the last descriptor of its
socket is closed, so it outlives a worker that ends, and a gateway whose sockets were handed to the next one.
This module accepts no connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from gateway.dataplane.sockets.tcp import keep_asking
from gateway.errors import AddressTakenError, StartupError
from gateway.settings.sections.listen import Listen

BACKLOG: Final = 1024
HINTS: Final = {
    errno.EADDRINUSE: "is another gateway running? set {key} to another address",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "a port below 1024 needs CAP_NET_BIND_SERVICE, a Unix socket a directory that is writable",
    errno.ENOENT: "the directory of a Unix socket must exist",
}
_NO_SUCH_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


@final
class Inherited(NamedTuple):
    """A socket that listens already, taken over from another process."""

    sock: socket.socket
    written: str = ""
    """Address of the socket in the configuration of the former owner; needed for port 0."""
    managed: bool = False
    """Whether the service manager keeps this socket, and its file."""


@final
class _Address:
    """A listen address and its sockets."""

    def __init__(self, position: int, listen: Listen, sockets: list[socket.socket], *, managed: bool) -> None:
        self.position = position
        self.listen = listen
        self.sockets = sockets
        self.managed = managed
        self.inherited = False
        name = sockets[0].getsockname()
        self.host, self.port = (f"unix:{listen.path}", 0) if listen.path else (str(name[0]), int(name[1]))
        self.file: tuple[Path, tuple[int, int]] | None = None
        """Path, device and inode of the file of a Unix socket."""

    @property
    def url(self) -> str:
        if self.listen.path:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.listen.tls is None else 'https'}://{host}:{self.port}"


@final
class ListeningSockets:
    """All listening sockets of a gateway. Made by `bind`; then it belongs to one event loop."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        """Number of workers that accept from these sockets."""
        self._addresses: list[_Address] = []
        self._owned = False
        """Whether this object removes the files of inherited Unix sockets."""
        self._released = False
        self.surplus: list[str] = []
        """Addresses of inherited sockets that `listen` does not name any more."""
        self._left_files: list[Path] = []
        """Files of inherited Unix sockets that `listen` does not name any more."""

    @classmethod
    async def bind(
        cls,
        listen: Sequence[Listen],
        slots: int = 1,
        inherited: Iterable[Inherited] = (),
        *,
        whose: str = "",
        key: str = "`listen`",
    ) -> ListeningSockets:
        """Listen on every address, with inherited sockets where they fit. Raises `StartupError`, and
        `AddressTakenError` if another process has an address. Then everything bound here is closed, and the
        inherited sockets stay open. After a return they belong to this object, or are closed. `whose` and
        `key`: for messages."""
        found = cls(slots)
        left = list(inherited)
        bound: list[socket.socket] = []
        try:
            for position, each in enumerate(listen):
                try:
                    await found._listen(position, each, left, bound)
                except OSError as error:
                    taken = error.errno == errno.EADDRINUSE or isinstance(error, FileExistsError)
                    kind = AddressTakenError if taken else StartupError
                    raise kind(f"{whose}cannot listen on {each}: {reason_of(error, key)}") from error
        except BaseException:
            for sock in bound:
                sock.close()
            found._remove_files(bound)
            raise
        for one in left:
            found.surplus.append(one.written or name_of(one.sock))
            name = one.sock.getsockname()
            if one.sock.family == socket.AF_UNIX and isinstance(name, str) and name and not one.managed:
                found._left_files.append(Path(name))
            one.sock.close()
        return found

    # --- what there is

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Listen addresses with their real ports; for a Unix socket `unix:PATH` and 0."""
        return tuple((each.host, each.port) for each in self._addresses)

    @property
    def urls(self) -> tuple[str, ...]:
        """Listen addresses as URLs; a Unix socket as written in the configuration."""
        return tuple(each.url for each in self._addresses)

    @property
    def shared(self) -> tuple[str, ...]:
        """TCP addresses with fewer sockets than workers, over which connections are spread unevenly."""
        return tuple(
            each.url for each in self._addresses if not each.listen.path and len(each.sockets) < self.slots
        )

    def of_slot(self, slot: int) -> list[tuple[int, socket.socket]]:
        """Sockets from which the worker of this slot accepts: (position in `listen`, socket). After a
        hand-over from more workers there may be several for one address. They stay owned by this object."""
        return [
            (each.position, sock)
            for each in self._addresses
            for sock in (each.sockets[slot :: self.slots] or [each.sockets[slot % len(each.sockets)]])
        ]

    def all(self) -> list[Inherited]:
        """All listening sockets, for a hand-over. They stay owned by this object."""
        return [
            Inherited(sock, str(each.listen), each.managed)
            for each in self._addresses
            for sock in each.sockets
        ]

    # --- the end

    def own(self) -> None:
        """Take over the files of inherited Unix sockets: their former owner accepts no more. Files without a
        listener are removed now, the others in `close`."""
        self._owned = True
        for path in self._left_files:
            with suppress(OSError):
                if _is_socket(path):
                    path.unlink()

    def release(self) -> None:
        """Leave the files of Unix sockets to the next gateway."""
        self._released = True

    def close(self) -> None:
        """Close all listening sockets. Remove Unix socket files unless they were replaced or handed over."""
        sockets = [sock for each in self._addresses for sock in each.sockets]
        for sock in sockets:
            sock.close()
        if not self._released:
            self._remove_files(sockets)
        self._addresses.clear()

    def _remove_files(self, sockets: Sequence[socket.socket]) -> None:
        for each in self._addresses:
            if each.file is None or each.managed or each.sockets[0] not in sockets:
                continue
            if each.inherited and not self._owned:
                continue
            path, identity = each.file
            with suppress(OSError):
                if _identity(path) == identity:
                    path.unlink()

    # --- the beginning

    async def _listen(
        self, position: int, listen: Listen, left: list[Inherited], bound: list[socket.socket]
    ) -> None:
        """Listen on one address. Raises `OSError`. `left`: unused inherited sockets; those that fit are
        removed from it. `bound`: collects the sockets that are bound here."""
        if listen.path:
            self._listen_at_path(position, listen, left, bound)
            return
        infos = await _resolved(listen)
        problem: OSError | None = None
        for family, name in infos:
            found = _taken(left, listen, family, name)
            managed = any(one.managed for one in found)
            sockets = [one.sock for one in found]
            try:
                if not managed:
                    self._fill(sockets, listen, family, name, bound)
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                problem = error  # a name may have an address of a family that this machine does not have
                continue
            for sock in sockets:
                sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
                keep_asking(sock)
            self._addresses.append(_Address(position, listen, sockets, managed=managed))
        if problem is not None and not any(each.position == position for each in self._addresses):
            raise problem

    def _fill(
        self,
        sockets: list[socket.socket],
        listen: Listen,
        family: int,
        name: tuple[Any, ...],
        bound: list[socket.socket],
    ) -> None:
        """Bind the missing sockets of an address, up to one for each slot. The first one is bound without
        SO_REUSEPORT, so that it fails if another process listens there, and gets the option afterwards: two
        gateways never listen on one address without noticing."""
        if not sockets:
            sockets.append(_bound(listen, family, name, bound, shares=False))
        if self.slots == 1:
            return
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        real = sockets[0].getsockname()
        while len(sockets) < self.slots:
            sockets.append(_bound(listen, family, real, bound, shares=True))

    def _listen_at_path(
        self, position: int, listen: Listen, left: list[Inherited], bound: list[socket.socket]
    ) -> None:
        """Bind a Unix socket with its mode, replacing one on which nobody listens."""
        path = Path(listen.path)
        found = [
            one
            for one in left
            if one.sock.family == socket.AF_UNIX
            and one.sock.getsockname() == listen.path
            and _is_socket(path)
        ]
        for one in found:
            left.remove(one)
        managed = any(one.managed for one in found)
        sockets = [one.sock for one in found]
        if not sockets:
            remove_stale(path)
            sockets.append(sock := socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            bound.append(sock)
            sock.bind(listen.path)
        address = _Address(position, listen, sockets, managed=managed)
        address.inherited = bool(found)
        address.file = (path, _identity(path))
        self._addresses.append(address)
        if not managed:
            # Nobody can connect to a new one before `listen`: the mode is in force for the first one.
            os.chmod(path, listen.mode)  # noqa: PTH101 - a symbolic link is never here: `bind` has made it
        for sock in sockets:
            sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
            sock.listen(BACKLOG)


def reason_of(error: OSError, key: str = "`listen`") -> str:
    """Message why listening failed, and what to do. `key`: the configuration key of the address."""
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    hint = HINTS.get(number)
    return f"{reason.lower()}; {hint.format(key=key)}" if hint else reason.lower()


def name_of(sock: socket.socket) -> str:
    """Address to which a socket is bound, as it is written in the configuration."""
    name = sock.getsockname()
    if isinstance(name, bytes):
        return f"unix:@{name[1:].decode(errors='replace')}"
    return f"unix:{name}" if isinstance(name, str) else str(Listen(str(name[0]), int(name[1])))


def remove_stale(path: Path) -> None:
    """Remove a socket file on which nobody listens, left by a killed process. Raises `OSError` if somebody
    listens there, or if it is not a socket."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(None, "there is a file at this path that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:  # it listens, and its backlog is full
            pass
    raise FileExistsError(None, "another process listens on this socket")


async def _resolved(listen: Listen) -> list[tuple[int, tuple[Any, ...]]]:
    """Address families and names that a listen address resolves to. Raises `OSError`."""
    infos = await asyncio.get_running_loop().getaddrinfo(
        listen.host or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((int(family), tuple(name)) for family, _, _, _, name in infos))


def _taken(left: list[Inherited], listen: Listen, family: int, name: tuple[Any, ...]) -> list[Inherited]:
    """Take the inherited sockets of a listen address out of `left`. For port 0: those whose former
    configuration had the same text, so that the port stays."""
    found = [one for one in left if one.sock.family == family and _is_of(one, listen, name)]
    port = found[0].sock.getsockname()[1] if found else 0
    found = [one for one in found if one.sock.getsockname()[1] == port]  # a text may be configured twice
    for one in found:
        left.remove(one)
    return found


def _is_of(one: Inherited, listen: Listen, name: tuple[Any, ...]) -> bool:
    """Whether an inherited socket has this listen address and, on IPv6, takes IPv4 exactly if it should."""
    real = one.sock.getsockname()
    if real[0] != name[0]:
        return False
    if one.sock.family == socket.AF_INET6 and not one.managed:
        only_6 = one.sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        if bool(only_6) is listen.dual_stack:
            return False
    return one.written == str(listen) if name[1] == 0 else bool(real[1] == name[1])


def _bound(
    listen: Listen, family: int, name: tuple[Any, ...], bound: list[socket.socket], *, shares: bool
) -> socket.socket:
    """Bind a socket and listen on it. `shares`: with others at this address. Raises `OSError`."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if listen.dual_stack else 1)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    bound.append(sock)
    return sock


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
