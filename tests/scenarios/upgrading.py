"""An upgrade in front of a whole gateway: servers that change release, orders of an operator, what is told.

Three API servers; FromVer serves up to `OLD`, ToVer up to `NEW`, and ToVer that is pinned by its own setting
up to `OLD`. Nothing here sleeps: every wait is for a state of the gateway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any, Final, Protocol, TypeAlias

import aiohttp

from gateway.core.backend import Standing
from gateway.core.snapshot import ServiceView, Snapshot
from tests.scenarios.client import IronicClient
from tests.scenarios.fakes import Ironic
from tests.scenarios.stand import PATIENCE, Stand, in_front_of, told

OLD: Final = 58
NEW: Final = 90
FROM: Final = f"1.1-1.{OLD}"
TO: Final = f"1.1-1.{NEW}"
SETTLE: Final = "150ms"

Moment: TypeAlias = tuple[str, str, str | None, tuple[str, ...]]
"""Offer, phase, what holds it, and who."""


class Server(Protocol):
    """A fake of any service, minors only."""

    lowest: int
    highest: int | None


def from_ver() -> Ironic:
    return Ironic(OLD)


def to_ver() -> Ironic:
    return Ironic(NEW, reads_standard=True)


def to_ver_pinned() -> Ironic:
    """The code of ToVer with `pin_release_version`."""
    return Ironic(OLD, reads_standard=True)


class Upgrade:
    """A gateway, its servers `api-1` and so on, and all that was ever told about the offer."""

    def __init__(self, stand: Stand, session: aiohttp.ClientSession) -> None:
        self.stand = stand
        self._session = session
        self._course = [moment(stand.view)]
        stand.gateway.cell.subscribe(self._changed)

    def _changed(self, _: Snapshot, after: Snapshot) -> None:
        self._course.append(moment(after.views[self.stand.service]))

    # -- what was told

    def now(self) -> Moment:
        return moment(self.stand.view)

    @property
    def course(self) -> list[tuple[str, str]]:
        """Every (offer, phase) in order, each as long as it stood once."""
        return [key for key, _ in groupby(self._course, key=lambda each: each[:2])]

    @property
    def offers(self) -> list[str]:
        """Every offer in order."""
        return [key for key, _ in groupby(each[0] for each in self._course)]

    async def status(self) -> Mapping[str, Any]:
        """This service in `GET /status`."""
        async with self._session.get(f"{self.stand.gateway.admin_url}/status") as reply:
            services: Mapping[str, Mapping[str, Any]] = (await reply.json())["services"]
        return services[self.stand.service]

    async def until(self, offer: str, phase: str) -> None:
        await self.stand.until(lambda view: moment(view)[:2] == (offer, phase))

    # -- what happens

    async def becomes(self, number: int, server: Server) -> None:
        """`api-NUMBER` is stopped and started again as what `server` is; until the gateway knows."""
        await self.stop(number)
        await self.start(number, server)

    async def stop(self, number: int, *, lost: bool = False) -> None:
        """Until a probe has failed, or (`lost`) three have."""
        enough = (Standing.LOST,) if lost else (Standing.STALE, Standing.LOST)
        await self.stand.servers[number - 1].stop()
        await self.stand.until(lambda view: view.pool.members[number - 1].standing in enough)

    async def start(self, number: int, server: Server) -> None:
        it = self.stand.servers[number - 1]
        for name in ("lowest", "highest", "reads_standard"):
            if hasattr(server, name):
                setattr(it, name, getattr(server, name))
        await it.start()
        await self.stand.until(lambda view: knows(view, number, it))

    async def order(self, method: str, path: str, body: object = None) -> None:
        """One of an operator, in force when this returns."""
        url = f"{self.stand.gateway.admin_url}/services/{self.stand.service}{path}"
        async with self._session.request(method, url, json=body) as reply:
            assert reply.status == 200, await reply.text()

    # -- what clients see

    async def clients_are_told(self, highest: int, lowest: int = 1) -> None:
        """Every kind of client sees this range and is served in it, whoever answers; above it is refused
        here."""
        told_range = (f"1.{lowest}", f"1.{highest}")
        for version, served in ((None, lowest), ("latest", highest), (f"1.{highest}", highest), ("1.31", 31)):
            reply = await self.stand.at(version)
            assert (reply.status, told(reply)) == (200, (*told_range, f"1.{served}"))
        before = len(self.stand.asked)
        above = await self.stand.at(f"1.{highest + 1}")
        assert (above.status, told(above)) == (406, (*told_range, None))
        assert len(self.stand.asked) == before, "no backend was asked"
        client = IronicClient(self.stand, default=f"1.{NEW + 9}")
        assert (await client.get("/v1/nodes")).status == 200
        assert (client.version, client.told) == (told_range[1], {told_range})

    def nobody_was_misled(self) -> None:
        """No server ever got a version that it did not serve at that moment."""
        for server in self.stand.servers:
            assert server.refused == []


def moment(view: ServiceView) -> Moment:
    """What a view tells."""
    offer, scheme = view.offer, view.service.dialect.scheme
    rule = None if offer.held_rule is None else offer.held_rule.value
    return offer.versions.format(scheme), offer.phase.value, rule, offer.held_by


def knows(view: ServiceView, number: int, server: Server) -> bool:
    """Whether a probe brought what `server` serves now."""
    member = view.pool.members[number - 1]
    if member.advert is None or member.standing is not Standing.FRESH:
        return False
    versions = member.advert.versions
    return (versions.lowest.minor, versions.highest.minor) == (server.lowest, server.highest)


@asynccontextmanager
async def upgrade_of(
    *servers: Ironic, settle: str = SETTLE, policy: str = "policy: guaranteed", interval: str = "50ms"
) -> AsyncIterator[Upgrade]:
    """A gateway that knows these servers; at the end nobody may have been misled."""
    async with in_front_of(*servers, offer=f"{{settle: {settle}, {policy}}}", interval=interval) as stand:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            upgrade = Upgrade(stand, session)
            yield upgrade
            upgrade.nobody_was_misled()
