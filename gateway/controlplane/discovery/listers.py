"""Listers: the sources of backends, which are DNS names, SRV records (RFC 2782) and files.

    NameLookup -> Found or Services -> Listed
    daemon thread -> file, if it has changed -> Listed

A lister returns the list of one source, and keeps what it needs of its earlier answers. `discovery` decides
when to poll again, and what happens to backends that are listed no more. A family of addresses, or a target,
that a lookup did not learn keeps its last answer. Names of targets come from others: they are never shown as
they are, and a backend is named by its address. Changes of a file are found by its status, through symbolic
links: a file that is renamed over the old one, and the links of a Kubernetes ConfigMap, are noticed, too.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import reduce
from ipaddress import ip_address
from math import gcd
from typing import Final, NamedTuple, TypeAlias, final

from gateway.controlplane.name_lookup import NOTHING, Addresses, Failed, Found, NameLookup, Result, SrvRecord
from gateway.core.fleet.source import MAX_BACKENDS, MAX_WEIGHT, Address, Source, SourceKind
from gateway.settings.target_file import MAX_SIZE, TargetsError, read_targets

LOOKUPS_AT_ONCE: Final = 16
"""Largest number of SRV targets that are looked up at the same time."""
FILE_INTERVAL: Final = 1.0
"""Seconds between two polls of a file. One takes about 50 µs, in a thread."""
PATIENCE: Final = 5.0
"""Seconds after which a file system that does not answer is reported."""
RECENT: Final = 2.0
"""Seconds after a change of a file in which every poll reads it: a second change may leave the same times."""


class Listed(NamedTuple):
    """List of backends from a source."""

    addresses: tuple[Address, ...]
    ttl: float
    """Seconds for which the source's list of backends is valid."""


Answer: TypeAlias = Listed | Failed


class Lister:
    """Base class of the listers. `poll` reports failures of the source as values, not as exceptions."""

    pause_after_failure: float | None = None
    """Seconds until the poll after a failure. None: a growing pause, which spares shared servers."""

    async def poll(self) -> Answer:
        """Get the source's list of backends once. May take long, and may be cancelled."""
        raise NotImplementedError


def _too_many(number: int) -> Failed:
    """Refuse a list of too many backends as a whole: a part of it would remove the other backends."""
    return Failed(f"it lists {number} backends, more than {MAX_BACKENDS}")


def lister_of(source: Source, lookup: NameLookup) -> Lister:
    """Make the lister that polls a source of backends of this kind."""
    match source.kind:
        case SourceKind.DNS:
            return DnsLister(lookup, source.name, source.port)
        case SourceKind.SRV:
            return SrvLister(lookup, source.name)
        case SourceKind.FILE:
            return FileLister(source.text)


@final
class DnsLister(Lister):
    """Lister of the addresses of a name, all at the same port."""

    def __init__(self, lookup: NameLookup, name: str, port: int) -> None:
        self._lookup = lookup
        self._name = name
        self._port = port
        self._last = NOTHING

    async def poll(self) -> Answer:
        found = await self._lookup(self._name)
        if isinstance(found, Failed):
            return found
        self._last = found.after(self._last)
        hosts = _in_order(self._last.all)
        if len(hosts) > MAX_BACKENDS:
            return _too_many(len(hosts))
        return Listed(tuple(Address(host, self._port) for host in hosts), found.ttl)


@final
class SrvLister(Lister):
    """Lister of the addresses of SRV targets. All but those with the best priority are backups."""

    def __init__(self, lookup: NameLookup, name: str) -> None:
        self._lookup = lookup
        self._name = name
        self._known: dict[str, Found] = {}
        """Last known addresses of each SRV target."""

    async def poll(self) -> Answer:
        found = await self._lookup.services(self._name)
        if isinstance(found, Failed):
            return found
        if len(found.records) > MAX_BACKENDS:
            return _too_many(len(found.records))
        known = {each.target: self._known.get(each.target, NOTHING) for each in found.records}
        at_once = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def look_up(target: str) -> Result:
            async with at_once:
                return await self._lookup.search(target, absolute=True)

        results = await asyncio.gather(*map(look_up, known))
        problems = [each for each in results if isinstance(each, Failed)]
        ttl = found.ttl
        for (target, last), result in zip(list(known.items()), results, strict=True):
            if isinstance(result, Found):
                known[target], ttl = result.after(last), min(ttl, result.ttl)
        self._known = known
        addresses = _addresses(found.records, known)
        if not addresses and problems:
            return Failed(f"no address of any of its {len(known)} targets: {problems[0].reason}")
        return _too_many(len(addresses)) if len(addresses) > MAX_BACKENDS else Listed(addresses, ttl)


def _addresses(records: Sequence[SrvRecord], known: dict[str, Found]) -> tuple[Address, ...]:
    """List every address of the SRV targets once, with its best priority and its largest weight."""
    if not records:
        return ()
    best = min(record.priority for record in records)
    weights = _weights([record.weight for record in records])
    found: dict[tuple[str, int], Address] = {}
    for record, weight in sorted(zip(records, weights, strict=True), key=lambda both: (both[0], both[1])):
        for host in _in_order(known[record.target].all):
            address = Address(host, record.port, weight, record.priority > best)
            found.setdefault((host, record.port), address)
    return tuple(found.values())


def _weights(weights: Sequence[int]) -> list[int]:
    """Scale weights to whole numbers from 1 to `MAX_WEIGHT`, as small as possible: equal replicas thus keep
    their weight when their number changes, unlike those of Kubernetes. 0 becomes 1."""
    divisor = reduce(gcd, weights) or 1
    small = [weight // divisor for weight in weights]
    largest = max(small)
    if largest > MAX_WEIGHT:
        small = [weight * MAX_WEIGHT // largest for weight in small]
    return [max(1, weight) for weight in small]


def _in_order(hosts: Addresses) -> list[str]:
    """Sort addresses, IPv6 before IPv4, each by number: name servers change their order with every answer."""
    parsed = {ip_address(host) for host in hosts}
    return [str(each) for each in sorted(parsed, key=lambda address: (-address.version, int(address)))]


Seen: TypeAlias = tuple[int, ...]
"""File status by which a change is recognized: times, size, inode and device."""


@final
class FileLister(Lister):
    """Lister of the targets in the file at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.pause_after_failure = FILE_INTERVAL  # a broken file costs nobody more than a good one
        self._seen: Seen | None = None
        self._answer: tuple[Address, ...] | Failed = Failed("it was not read yet")
        self._reading: asyncio.Future[None] | None = None

    async def poll(self) -> Answer:
        if self._reading is None:
            self._reading = _in_daemon_thread(self._read)
        done, _ = await asyncio.wait([self._reading], timeout=PATIENCE)
        if not done:
            return Failed("it cannot be read: the file system does not answer")
        reading, self._reading = self._reading, None
        reading.result()
        answer = self._answer
        return answer if isinstance(answer, Failed) else Listed(answer, FILE_INTERVAL)

    def _read(self) -> None:
        """Read the file that lists backends, in a thread. One read at a time."""
        try:
            # Without O_NONBLOCK a pipe of this name would block.
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            self._fail(error)
            return
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._seen, self._answer = None, Failed("it is not a regular file")
                return
            seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
            if seen == self._seen:
                return
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(MAX_SIZE + 1)
            self._seen = seen if time.time() - status.st_mtime > RECENT else None
            self._answer = read_targets(data, self._path)
        except TargetsError as error:
            self._answer = Failed(str(error))
        except OSError as error:
            self._fail(error)
        finally:
            os.close(fd)

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        self._seen, self._answer = None, Failed(f"it cannot be read: {reason.lower()}")


def _in_daemon_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run `work` in a daemon thread. The end of the process does not wait for it."""
    ended: Future[None] = Future()
    ended.set_running_or_notify_cancel()  # so that nobody can cancel it

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="skewgate-file", daemon=True).start()
    return asyncio.wrap_future(ended)
