"""The kinds of server that are put behind the gateway in pairs, and all that runs of them.

What it does: says of each kind which two releases there are, how they speak and which versions tell them
apart (`KINDS`); starts servers and pairs when a test first asks for them and ends them all at the end.

Rules: a kind's servers run once for the whole group, however many gateways stand before them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real import nova, placement, senlin
from tests.real.environments import build_all
from tests.real.launching import Launcher, Release, RunningServer, run_all
from tests.real.pairs import Pair, Wire


@dataclass(frozen=True, slots=True)
class Kind:
    """Two releases of one server. `resource` is a list that every version has; `inside` a version that
    both releases serve, `above` one that only the newer does."""

    old: Release
    new: Release
    launcher: Launcher
    wire: Wire
    resource: str
    inside: str
    above: str

    def offer(self, policy: str) -> Release:
        """Whose range clients are told under this policy: what both serve, or what one of them does."""
        return {"guaranteed": self.old, "reachable": self.new}[policy]


KINDS: Mapping[str, Kind] = {
    "nova": Kind(
        nova.OLD,
        nova.NEW,
        nova.nova_server,
        Wire(
            service="compute",
            dialect=("dialect: nova",),
            service_type="compute",
            silence="2.1",
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
        Wire(
            service="placement",
            dialect=("dialect: openstack", "openstack: {service_type: placement}"),
            service_type="placement",
            silence="1.0",
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
        Wire(
            service="clustering",
            dialect=("dialect: senlin",),
            service_type="clustering",
            silence="1.0",
            documents=frozenset({"/", "/versions", "/v1", "/v1/"}),
        ),
        resource="/v1/clusters",
        inside="1.5",
        above="1.12",
    ),
}


class Park:
    """All that runs, by kind and policy; everything lies in `folder`. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = contextlib.ExitStack()
        self._servers: dict[str, dict[str, RunningServer]] = {}
        self._pairs: dict[tuple[str, str], Pair] = {}

    def __enter__(self) -> Park:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def servers(self, kind: str) -> dict[str, RunningServer]:
        """The two servers of this kind: `old` and `new`, each with a database of its own."""
        if kind not in self._servers:
            releases = {"old": KINDS[kind].old, "new": KINDS[kind].new}
            environments = build_all(release.environment for release in releases.values())
            lent = run_all(releases, environments, self._folder, KINDS[kind].launcher)
            self._servers[kind] = self._running.enter_context(lent)
        return self._servers[kind]

    def pair(self, kind: str, policy: str) -> Pair:
        """Both servers of this kind behind a gateway with this policy."""
        if (kind, policy) not in self._pairs:
            offer = KINDS[kind].offer(policy)
            pair = Pair(KINDS[kind].wire, policy, self._folder, self.servers(kind), offer)
            self._pairs[kind, policy] = self._running.enter_context(pair.running())
        return self._pairs[kind, policy]

    def figures(self) -> list[tuple[str, ...]]:
        """The rows of every pair for the table at the end."""
        return [row for pair in self._pairs.values() for row in pair.figures()]
