"""The kinds of servers that the group runs in pairs, and the pool of all that run.

What it does: `KINDS` names two releases of each kind, their API, and the versions that distinguish them. The
pool starts servers and pairs when a test first needs them, and ends all of them at the end.

Rules: the servers of a kind run once for the whole group, behind any number of gateways.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real import nova, placement, senlin
from tests.real.apis import ServiceApi
from tests.real.environments import build_all
from tests.real.launcher import Launcher, Release, RunningServer, run_all
from tests.real.testbed import Testbed


@dataclass(frozen=True, slots=True)
class Kind:
    """Two releases of one server. `resource`: a list that every version has. `inside`: a version that both
    releases serve. `above`: one that only the newer release serves."""

    old: Release
    new: Release
    launcher: Launcher
    api: ServiceApi
    resource: str
    inside: str
    above: str

    def offer(self, policy: str) -> Release:
        """The release whose range is the offer under this policy: what both serve, or what one serves."""
        return {"guaranteed": self.old, "reachable": self.new}[policy]


KINDS: Mapping[str, Kind] = {
    "nova": Kind(
        nova.OLD,
        nova.NEW,
        nova.nova_server,
        ServiceApi(
            service="compute",
            dialect=("dialect: nova",),
            service_type="compute",
            default_version="2.1",
            documents=frozenset({"/", "/v2.1", "/v2.1/"}),
            own_header="X-OpenStack-Nova-API-Version",
        ),
        resource="/v2.1/flavors",
        inside="2.55",
        above="2.70",
    ),
    "placement": Kind(
        placement.OLD,
        placement.NEW,
        placement.placement_server,
        ServiceApi(
            service="placement",
            dialect=("dialect: openstack", "openstack: {service_type: placement}"),
            service_type="placement",
            default_version="1.0",
            documents=frozenset({"/", ""}),
        ),
        resource="/resource_providers",
        inside="1.10",
        above="1.35",
    ),
    "senlin": Kind(
        senlin.OLD,
        senlin.NEW,
        senlin.senlin_server,
        ServiceApi(
            service="clustering",
            dialect=("dialect: senlin",),
            service_type="clustering",
            default_version="1.0",
            documents=frozenset({"/", "/versions", "/v1", "/v1/"}),
        ),
        resource="/v1/clusters",
        inside="1.5",
        above="1.12",
    ),
}


class ServerPool:
    """All running servers and pairs, with their files in `folder`. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = contextlib.ExitStack()
        self._servers: dict[str, dict[str, RunningServer]] = {}
        self._pairs: dict[tuple[str, str], Testbed] = {}

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def servers(self, kind: str) -> dict[str, RunningServer]:
        """The two servers of this kind, `old` and `new`, each with its own database."""
        if kind not in self._servers:
            releases = {"old": KINDS[kind].old, "new": KINDS[kind].new}
            environments = build_all(release.environment for release in releases.values())
            running = run_all(releases, environments, self._folder, KINDS[kind].launcher)
            self._servers[kind] = self._running.enter_context(running)
        return self._servers[kind]

    def pair(self, kind: str, policy: str) -> Testbed:
        """Both servers of this kind behind a gateway with this policy."""
        if (kind, policy) not in self._pairs:
            offer = KINDS[kind].offer(policy)
            api, servers = KINDS[kind].api, self.servers(kind)
            name, choice = f"{api.service}-{policy}", {"policy": policy}
            pair = Testbed(name, self._folder, servers, choice, offer, api=api)
            self._pairs[kind, policy] = self._running.enter_context(pair.running())
        return self._pairs[kind, policy]

    def figures(self) -> list[tuple[str, ...]]:
        return [row for pair in self._pairs.values() for row in pair.figures()]
