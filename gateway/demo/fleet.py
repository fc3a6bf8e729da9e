"""The fleet of the demonstration: four servers of one API and two of another, and what they could serve when.

`EmbeddedFleet.could_serve` is the measure of every loss: whether some server could serve a version all the
time. It looks at the servers alone, so it is the same for whatever stands in front of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, Self, final

from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Scheme, Version, WholeNumber
from gateway.demo.catalog import NEW_CATALOG, OLD_CATALOG, CatalogServer
from gateway.demo.ironic import NEW, OLD, IronicServer
from gateway.demo.servers import ApiServer, Release, ServerState

BAREMETAL: Final = "baremetal"
CATALOG: Final = "catalog"

REMEMBERED: Final = 1000
"""Changes of the servers that are looked back at: a few in a second at most, and promises stand for some
seconds."""


class ServiceFleet(NamedTuple):
    """The servers of one API."""

    name: str
    scheme: Scheme
    servers: tuple[ApiServer, ...]
    old: Release
    new: Release
    oldest: Version

    def serves(self, release: Release) -> VersionSet:
        """What a server of this release serves."""
        return VersionSet.between(self.oldest, self.oldest.step(release.highest - self.oldest.minor))

    def share(self, versions: VersionSet) -> float:
        """How much of what the new release serves this is, 0 to 1, if it begins at the oldest version."""
        return versions.highest.minor / self.new.highest if versions else 0.0


@final
class EmbeddedFleet:
    """All servers, inside `async with`. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.services = (
            ServiceFleet(
                name=BAREMETAL,
                scheme=MajorMinor(),
                servers=tuple(IronicServer(f"api-{number}") for number in range(1, 5)),
                old=OLD,
                new=NEW,
                oldest=Version(1, 1),
            ),
            ServiceFleet(
                name=CATALOG,
                scheme=WholeNumber(),
                servers=tuple(CatalogServer(f"catalog-{number}", OLD_CATALOG) for number in range(1, 3)),
                old=OLD_CATALOG,
                new=NEW_CATALOG,
                oldest=Version(1),
            ),
        )
        self._clock = clock
        self._newest = {each.name: deque([(clock(), 0)], REMEMBERED) for each in self.services}
        """By service: the last number of the newest version that is served from that time on; 0: none is."""
        for each in self.services:
            for server in each.servers:
                server.changed = self._changed

    @property
    def servers(self) -> tuple[ApiServer, ...]:
        """Those of all services."""
        return tuple(server for each in self.services for server in each.servers)

    def service(self, name: str) -> ServiceFleet:
        """The servers of one API."""
        return next(each for each in self.services if each.name == name)

    def service_of(self, server: str) -> ServiceFleet:
        """The servers of one API, by the name of one of them."""
        return next(each for each in self.services if server in {one.name for one in each.servers})

    def server(self, name: str) -> ApiServer:
        """One server. Raises `StopIteration` if there is none of this name."""
        return next(each for each in self.servers if each.name == name)

    async def __aenter__(self) -> Self:
        """Start all servers, with their old releases."""
        for each in self.services:
            for server in each.servers:
                await server.start(each.old)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all servers."""
        for server in self.servers:
            await server.close()

    def could_serve(self, service: str, number: int, since: float) -> bool:
        """Whether at each moment from `since`, in seconds of the clock, until now some server ran that serves
        the version whose last number is `number`."""
        for at, newest in reversed(self._newest[service]):
            if newest < number:
                return False
            if at <= since:
                return True
        return False

    def _changed(self, server: ApiServer) -> None:
        each = self.service_of(server.name)
        running = [one.release.highest for one in each.servers if one.state is ServerState.RUNNING]
        self._newest[each.name].append((self._clock(), max(running, default=0)))
