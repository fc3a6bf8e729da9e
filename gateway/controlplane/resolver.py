"""Resolves the names of all backends in the background, again and again.

    task of each name -> NameLookup -> Found: its addresses, until the TTL ends | Failed: the last ones stay

A connection never waits for a name server, except while the first lookup of a name is under way, and only
within its own deadline. After that the last addresses stay in use until there are newer ones: a name server
that is away, or wrong for a while, is no reason to lose a backend that works (threats R-B9). The callers
decide what an unresolved name means.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from time import monotonic
from typing import Final, Self, TypeAlias, TypeVar, final

from gateway.controlplane.name_lookup import NO_ANSWER, NOTHING, Addresses, Failed, Found, NameLookup, Result
from gateway.core.fleet.admission import Network
from gateway.core.fleet.service import Service
from gateway.core.fleet.source import why_refused
from gateway.runtime.process import end_tasks
from gateway.telemetry.neighbours import NameReport

SHORTEST_TTL: Final = 1.0
LONGEST_TTL: Final = 60.0
"""Bounds of the pause after a successful lookup, in seconds; within them it is the TTL. A TTL of 0 is no
reason to ask all the time, and one of a day would hide a new entry in the hosts file."""
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 8.0
"""Seconds until the next lookup after the first that failed, doubled with each further one up to the longest.
A name that is back is soon found, and a name server that has just come back is not overrun."""
JITTER: Final = 0.2
"""Relative variation of the pause after failed lookups, so that many gateways do not ask in step."""
LONGEST_LOOKUP: Final = 60.0
"""Time limit of a lookup in seconds, whatever resolv.conf says."""
LOG_INTERVAL: Final = 60.0
LINES_PER_INTERVAL: Final = 4
"""Maximum number of log lines about one name in `LOG_INTERVAL` seconds: frequent changes are no news."""

_Result = TypeVar("_Result")
Resolve: TypeAlias = Callable[[str], Awaitable[Addresses]]
"""Returns the addresses of a host in the order to try them. Raises `UnresolvedError`."""

_log = logging.getLogger("skewgate.resolver")


class UnresolvedError(OSError):
    """Error: a name has no known address. `errno` is set where the system is the cause."""


async def addresses_only(host: str) -> Addresses:
    """Resolve IP addresses only: a `Resolve` for callers whose backends have no names."""
    if _is_address(host):
        return (host,)
    raise UnresolvedError(f"no address of {host}: names are not resolved here")


def pause_after(ttl: float) -> float:
    """Seconds until the next lookup of a name after a success with this TTL."""
    return min(max(ttl, SHORTEST_TTL), LONGEST_TTL)


def pause_after_failures(failures: int, rng: random.Random) -> float:
    """Seconds until the next lookup of a name after so many consecutive failures."""
    pause = min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), LONGEST_RETRY)
    return pause * rng.uniform(1 - JITTER, 1 + JITTER)


async def in_time(lookup: Awaitable[_Result], what: str) -> _Result | Failed:
    """Await a lookup or a poll for at most `LONGEST_LOOKUP`. Any error is its failure: a bug of ours, or of
    the library, must not end the lookups of a name."""
    try:
        async with asyncio.timeout(LONGEST_LOOKUP):
            return await lookup
    except TimeoutError:
        return Failed(NO_ANSWER)
    except Exception:  # noqa: BLE001 - logged
        _log.exception("%s failed because of a bug in the gateway", what)
        return Failed("it failed because of a bug in the gateway, see its log")


@final
class FewLines:
    """Rate limit for log lines about one thing: further lines get the level DEBUG."""

    def __init__(self) -> None:
        self._number = 0
        self._since = float("-inf")

    def level(self, level: int, now: float) -> int:
        """Return the level for the next log line: DEBUG when there have been too many."""
        if now >= self._since + LOG_INTERVAL:
            self._number, self._since = 0, now
        self._number += 1
        return level if self._number <= LINES_PER_INTERVAL else logging.DEBUG


@final
@dataclass(eq=False, slots=True)
class _Name:
    """State of the lookups of one name of backends."""

    host: str
    last: Found = NOTHING
    problem: Failed | None = None
    """Reason why the last lookup of the name failed; None: it succeeded."""
    failures: int = 0
    """Number of consecutive failed lookups of the name."""
    all_failures: int = 0
    found_at: float | None = None
    """Unix time of the last lookup of the name that found addresses."""
    looked_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set when the name's first lookup has ended, or it is no longer configured."""
    removed: bool = False
    task: asyncio.Task[None] | None = None
    lines: FewLines = field(default_factory=FewLines)


@final
class Resolver:
    """Resolver for the names of backends; `retarget` and `close`, or `async with`. For one event loop."""

    def __init__(
        self,
        lookup: Callable[[str], Awaitable[Result]] | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lookup = lookup or NameLookup()
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, protects no secret
        self._sleep = sleep
        self._names: dict[str, _Name] = {}
        self._known: dict[str, Addresses] = {}
        """Known addresses by host, never empty. An address is its own."""
        self._networks: dict[str, set[tuple[Network, ...] | None]] = {}
        """Allowed networks by name, for each of its sources; None: the configuration names it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def retarget(self, services: Iterable[Service]) -> None:
        """Set the backends whose names are resolved. The lookups of new names begin at once."""
        backends = [backend for service in services for backend in service.backends]
        hosts = {backend.host for backend in backends if not backend.socket_path}
        addresses = {host for host in hosts if _is_address(host)}
        configured = hosts - addresses
        self._networks = {}
        for backend in backends:
            self._networks.setdefault(backend.host, set()).add(backend.networks)
        # Requests under way may still connect to what has just been removed.
        usable = configured | self._names.keys()
        known = {host: self._taken(host, each)[0] for host, each in self._known.items() if host in usable}
        self._known = {host: each for host, each in known.items() if each} | {
            address: (address,) for address in addresses
        }
        for host in self._names.keys() - configured:
            self._remove(self._names.pop(host))
        for host in configured - self._names.keys():
            name = self._names[host] = _Name(host)
            # Owned by `_names` until the name is removed.
            name.task = asyncio.get_running_loop().create_task(self._keep(name), name=f"resolve {host}")

    async def close(self) -> None:
        """Cancel all lookups of names."""
        for name in self._names.values():
            self._remove(name)
        await end_tasks(*(name.task for name in self._names.values()))
        self._names.clear()

    async def resolve(self, host: str) -> Addresses:
        """Return the known addresses, IPv6 before IPv4, otherwise as the name server orders them. Waits only
        while the first lookup is under way. Raises `UnresolvedError`."""
        addresses = self._known.get(host)
        if addresses is not None:
            return addresses
        name = self._names.get(host)
        if name is None:
            if _is_address(host):
                return (host,)
            raise UnresolvedError(f"no address of {host}: the name is not configured")
        await name.looked_up.wait()
        addresses = self._known.get(host)
        if addresses is not None:
            return addresses
        reason, errno = name.problem or Failed("the name is not configured any more")
        text = f"no address of {host}: {reason}"
        raise UnresolvedError(errno, text) if errno else UnresolvedError(text)

    def report(self) -> tuple[NameReport, ...]:
        """State of each name, for `/status` and metrics."""
        return tuple(NameReport(each.host, each.found_at, each.all_failures) for each in self._names.values())

    def _remove(self, name: _Name) -> None:
        name.removed = True
        name.looked_up.set()
        if name.task is not None:
            name.task.cancel()

    async def _keep(self, name: _Name) -> None:
        while True:
            result = await in_time(self._lookup(name.host), f"the lookup of {name.host}")
            if name.removed:  # Python 3.11 may lose a cancellation inside `asyncio.wait_for`
                return
            pause = self._found(name, result) if isinstance(result, Found) else self._failed(name, result)
            name.looked_up.set()
            await self._sleep(pause)

    def _found(self, name: _Name, found: Found) -> float:
        """Store a lookup's addresses and return the pause. A family not learned keeps its addresses."""
        before, failed = self._known.get(name.host, ()), name.problem is not None
        name.last = found.after(name.last)
        after, refused = self._taken(name.host, name.last.all)
        if not after and refused is not None:
            return self._failed(name, Failed(refused))
        name.problem, name.failures, name.found_at = None, 0, time.time()
        self._known[name.host] = after
        if failed or set(before) != set(after):
            level = name.lines.level(logging.INFO, self._clock())
            _log.log(level, "%s is at %s", name.host, ", ".join(after))
        return pause_after(found.ttl)

    def _taken(self, host: str, addresses: Addresses) -> tuple[Addresses, str | None]:
        """Filter addresses of a name by the networks of the sources that list it. Returns the allowed ones,
        and a reason for one that is refused. Everything is allowed for a name in the configuration."""
        rules = self._networks.get(host, {None})
        if None in rules:
            return addresses, None
        reasons = {
            each: next((why for one in rules if (why := why_refused(each, one)) is not None), None)
            for each in addresses
        }
        refused = (f"{each} is not taken: {why}" for each, why in reasons.items() if why is not None)
        return tuple(each for each, why in reasons.items() if why is None), next(refused, None)

    def _failed(self, name: _Name, problem: Failed) -> float:
        """Log and count a failed lookup; return the pause until the next one. The last addresses stay."""
        if problem != name.problem:
            known = ", ".join(self._known.get(name.host, ()))
            rest = f"its last known addresses stay in use: {known}" if known else "none is known so far"
            level = name.lines.level(logging.WARNING, self._clock())
            _log.log(level, "no address of %s: %s (%s)", name.host, problem.reason, rest)
        name.problem = problem
        name.failures += 1
        name.all_failures += 1
        return pause_after_failures(name.failures, self._rng)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
