"""A rolling upgrade behind a whole gateway: servers change their release, operators send commands.

There are three kinds of servers. FromVer serves up to `OLD`, ToVer up to `NEW`. ToVer that is pinned by its
own setting serves up to `OLD`. Nothing here sleeps: every wait is for a state of the gateway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any, Final, Protocol, TypeAlias

import aiohttp

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from tests.kit.waiting import PATIENCE
from tests.scenarios.fakes import Ironic
from tests.scenarios.ironic_client import IronicClient
from tests.scenarios.testbed import Testbed, in_front_of, version_fields

OLD: Final = 58
NEW: Final = 90
FROM: Final = f"1.1-1.{OLD}"
TO: Final = f"1.1-1.{NEW}"
STABILIZATION: Final = "150ms"

OfferSummary: TypeAlias = tuple[str, str, str | None, tuple[str, ...]]
"""Offer, phase, the rule that holds the offer, and the backends that the rule names."""


class Server(Protocol):
    """A fake server of any service. The range holds minor versions only."""

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
    """A gateway, its servers `api-1`, `api-2` and so on, and every offer since the start."""

    def __init__(self, testbed: Testbed, session: aiohttp.ClientSession) -> None:
        self.testbed = testbed
        self._session = session
        self._summaries = [summarize(testbed.view)]
        testbed.gateway.snapshot_holder.subscribe(self._changed)

    def _changed(self, _: Snapshot, after: Snapshot) -> None:
        self._summaries.append(summarize(after.views[self.testbed.service]))

    # -- the offer

    def summary(self) -> OfferSummary:
        return summarize(self.testbed.view)

    @property
    def timeline(self) -> list[tuple[str, str]]:
        """Every (offer, phase) in order. Equal neighbours count once."""
        return [key for key, _ in groupby(self._summaries, key=lambda summary: summary[:2])]

    @property
    def offers(self) -> list[str]:
        """Every offer in order. Equal neighbours count once."""
        return [key for key, _ in groupby(summary[0] for summary in self._summaries)]

    async def status(self) -> Mapping[str, Any]:
        """This service in `GET /status`."""
        async with self._session.get(f"{self.testbed.gateway.admin_url}/status") as response:
            services: Mapping[str, Mapping[str, Any]] = (await response.json())["services"]
        return services[self.testbed.service]

    async def until(self, offer: str, phase: str) -> None:
        """Wait for this offer in this phase."""
        await self.testbed.until(lambda view: summarize(view)[:2] == (offer, phase))

    # -- changes of the fleet

    async def replace_backend(self, number: int, server: Server) -> None:
        """Stop `api-NUMBER` and start it with the release of `server`. Return when the gateway knows it."""
        await self.stop(number)
        await self.start(number, server)

    async def stop(self, number: int, *, down: bool = False) -> None:
        """Stop `api-NUMBER`. Return when one probe has failed, or with `down` when three have."""
        states = (Freshness.DOWN,) if down else (Freshness.STALE, Freshness.DOWN)
        await self.testbed.servers[number - 1].stop()
        await self.testbed.until(lambda view: view.members.all[number - 1].freshness in states)

    async def start(self, number: int, server: Server) -> None:
        """Start `api-NUMBER` with the release of `server`. Return when the gateway knows it."""
        started = self.testbed.servers[number - 1]
        for name in ("lowest", "highest", "reads_standard"):
            if hasattr(server, name):
                setattr(started, name, getattr(server, name))
        await started.start()
        await self.testbed.until(lambda view: is_known(view, number, started))

    async def command(self, method: str, path: str, body: object = None) -> None:
        """Send an operator's command. It is in force when this returns."""
        url = f"{self.testbed.gateway.admin_url}/services/{self.testbed.service}{path}"
        async with self._session.request(method, url, json=body) as response:
            assert response.status == 200, await response.text()

    # -- the clients' view

    async def assert_clients_see(self, highest: int, lowest: int = 1) -> None:
        """Every kind of client sees this range and is served in it, by any backend. Versions above it are
        refused by the gateway."""
        offered = (f"1.{lowest}", f"1.{highest}")
        for version, served in ((None, lowest), ("latest", highest), (f"1.{highest}", highest), ("1.31", 31)):
            response = await self.testbed.at(version)
            assert (response.status, version_fields(response)) == (200, (*offered, f"1.{served}"))
        before = len(self.testbed.forwarded)
        above = await self.testbed.at(f"1.{highest + 1}")
        assert (above.status, version_fields(above)) == (406, (*offered, None))
        assert len(self.testbed.forwarded) == before, "the refusal came from a backend"
        client = IronicClient(self.testbed, default=f"1.{NEW + 9}")
        assert (await client.get("/v1/nodes")).status == 200
        assert (client.version, client.ranges) == (offered[1], {offered})

    def assert_none_misrouted(self) -> None:
        """No server received a version that it did not serve at that time."""
        for server in self.testbed.servers:
            assert server.refused == []


def summarize(view: ServiceView) -> OfferSummary:
    offer, scheme = view.offer, view.service.dialect.scheme
    rule = None if offer.held.rule is None else offer.held.rule.value
    return offer.versions.format(scheme), offer.phase.value, rule, offer.held.by


def is_known(view: ServiceView, number: int, server: Server) -> bool:
    """Whether a probe has read the range that `server` serves now."""
    member = view.members.all[number - 1]
    if member.advertisement is None or member.freshness is not Freshness.FRESH:
        return False
    versions = member.advertisement.versions
    return (versions.lowest.minor, versions.highest.minor) == (server.lowest, server.highest)


@asynccontextmanager
async def upgrade_of(
    *servers: Ironic,
    stabilization: str = STABILIZATION,
    policy: str = "policy: guaranteed",
    interval: str = "50ms",
) -> AsyncIterator[Upgrade]:
    """A gateway that knows these servers. At the end, no server may have received a version in vain."""
    offer = f"{{stabilization: {stabilization}, {policy}}}"
    async with in_front_of(*servers, offer=offer, interval=interval) as testbed:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            upgrade = Upgrade(testbed, session)
            yield upgrade
            upgrade.assert_none_misrouted()
