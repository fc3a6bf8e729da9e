"""The fleet of the demonstration: four servers of one API, two of another, and a history of what they served.

`EmbeddedFleet.could_serve` decides whether a failed request was lost: whether a server could have answered
it. It depends on the servers alone, so it is the same for whatever proxy is in front of them.
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
"""Maximum number of changes in the history: a few come in a second, and clients look back some seconds."""


class ServiceFleet(NamedTuple):
    """The servers of one API."""

    name: str
    scheme: Scheme
    servers: tuple[ApiServer, ...]
    old: Release
    new: Release
    oldest: Version

    def serves(self, release: Release) -> VersionSet:
        return VersionSet.between(self.oldest, self.oldest.step(release.highest - self.oldest.minor))

    def share(self, versions: VersionSet) -> float:
        """Return the share of the new release's versions, from 0 to 1, if `versions` begin at the oldest."""
        return versions.highest.minor / self.new.highest if versions else 0.0


@final
class EmbeddedFleet:
    """All servers of the demonstration, started inside `async with`. `clock`: monotonic seconds."""

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
        """Versions over time, by service: (time, minor number of the newest one served since; 0 for none)."""
        for each in self.services:
            for server in each.servers:
                server.changed = self._changed

    @property
    def servers(self) -> tuple[ApiServer, ...]:
        return tuple(server for each in self.services for server in each.servers)

    def service(self, name: str) -> ServiceFleet:
        return next(each for each in self.services if each.name == name)

    def service_of(self, server: str) -> ServiceFleet:
        return next(each for each in self.services if server in {one.name for one in each.servers})

    def server(self, name: str) -> ApiServer:
        """Return a server by name. Raises `StopIteration` if there is none."""
        return next(each for each in self.servers if each.name == name)

    async def __aenter__(self) -> Self:
        for each in self.services:
            for server in each.servers:
                await server.start(each.old)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            await server.close()

    def could_serve(self, service: str, number: int, since: float) -> bool:
        """Whether a running server has always served the version with this minor number since that time."""
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
