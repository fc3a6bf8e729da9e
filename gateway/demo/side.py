"""One side of the comparison: a fleet, the gateway or HAProxy in front of it, and its clients.

It counts the outcomes of requests, describes the present as a scene, and checks whether the gateway has
learned the latest change of the fleet. What is done to the fleet, and when, is up to `director`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Final, TypeAlias, final

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.demo.clients import KINDS, PROGRAMS, ApiResponse, Client, ClientContext, Judgement, Result
from gateway.demo.fleet import EmbeddedFleet, ServiceFleet
from gateway.demo.front import GatewayFront
from gateway.demo.haproxy import HAProxyFront
from gateway.demo.scene import BackendScene, ClientScene, FrontScene, ServiceScene
from gateway.demo.servers import ApiServer, ServerState
from gateway.telemetry.status import ServiceStatus

NOTHING: Final = "nothing yet"
Front: TypeAlias = GatewayFront | HAProxyFront
"""A proxy in front of the demonstration's API servers: the gateway or HAProxy."""


@final
class Side:
    """A running fleet, the proxy that `start` puts in front of it, and the counts of clients' requests."""

    def __init__(self, fleet: EmbeddedFleet, front: Front, seed: int) -> None:
        self.fleet = fleet
        self.front = front
        self._seed = seed
        self._results: Counter[tuple[str, Result]] = Counter()
        """Number of requests by kind of client and outcome."""
        self._losses: Counter[str] = Counter()
        """Number of lost requests by reason."""
        self._last_loss: dict[str, str] = {}
        """Latest lost request, in a few words, by kind of client."""
        self._shown: dict[str, VersionSet] = {}
        """Range of versions that a client was shown last, by service."""

    async def start(self, stack: AsyncExitStack) -> tuple[Client, ...]:
        """Start the proxy, to be stopped when `stack` ends, and return the clients, which do not run yet."""
        await self.front.start(stack)
        clients = []
        for kind in KINDS:
            for program in range(PROGRAMS):
                random = Random(f"{self._seed}/{kind.kind}/{program}")  # noqa: S311 - of a demonstration
                could_serve = partial(self.fleet.could_serve, kind.service)
                clients.append(
                    kind(ClientContext(self.front.url(kind.service), random, could_serve, self.add))
                )
        return tuple(clients)

    def add(self, client: type[Client], version: str, answer: ApiResponse, judgement: Judgement) -> None:
        """Count a request of a client. `version`: the requested one, or empty."""
        self._results[client.kind, judgement.result] += 1
        if judgement.result is Result.LOST:
            self._losses[judgement.reason] += 1
            self._last_loss[client.kind] = f"{version or 'no version'}: {judgement.reason}"
        scheme = self.fleet.service(client.service).scheme
        lowest, highest = scheme.parse(answer.lowest), scheme.parse(answer.highest)
        if lowest is not None and highest is not None and lowest <= highest:
            self._shown[client.service] = VersionSet.between(lowest, highest)

    @property
    def lost(self) -> int:
        return self._losses.total()

    def learned(self) -> bool:
        """Whether the gateway knows the present state of every server. Always true for HAProxy."""
        for each in self.fleet.services:
            knows = self.front.status(each.name)
            if knows is not None and not all(_is_known(server, each, knows) for server in each.servers):
                return False
        return True

    def steady(self) -> bool:
        """Whether the gateway knows every server and no offer is about to change."""
        statuses = [self.front.status(each.name) for each in self.fleet.services]
        moves = {Phase.UNKNOWN, Phase.STABILIZING}
        return self.learned() and not any(
            knows is not None and knows.view.offer.phase in moves for knows in statuses
        )

    def can_do_without(self, name: str) -> bool:
        """Whether a server may stop: another one of its service runs, and the gateway knows all servers."""
        others = [each for each in self.fleet.service_of(name).servers if each.name != name]
        return any(each.state is ServerState.RUNNING for each in others) and self.learned()

    def scene(self) -> FrontScene:
        clients = tuple(
            ClientScene(
                kind=each.kind,
                program=each.program,
                answered=self._results[each.kind, Result.ANSWERED],
                refused=self._results[each.kind, Result.REFUSED],
                lost=self._results[each.kind, Result.LOST],
                last_loss=self._last_loss.get(each.kind, ""),
            )
            for each in KINDS
        )
        services = tuple(self._service(each) for each in self.fleet.services)
        return FrontScene(self.front.name, services, clients, tuple(self._losses.most_common()))

    def _service(self, each: ServiceFleet) -> ServiceScene:
        """Describe a service. HAProxy makes no offer: the range of the last response is shown instead."""
        knows = self.front.status(each.name)
        offer = self._shown.get(each.name, NO_VERSIONS) if knows is None else knows.view.offer.versions
        return ServiceScene(
            name=each.name,
            offer=offer.format(each.scheme) if offer else NOTHING,
            share=each.share(offer),
            phase="" if knows is None else knows.view.offer.phase.value,
            held="" if knows is None else _held(knows.view),
            backends=tuple(_server(server, each, knows) for server in each.servers),
        )


def _server(server: ApiServer, each: ServiceFleet, knows: ServiceStatus | None) -> BackendScene:
    """Describe a server. `knows`: the gateway's knowledge; None behind HAProxy."""
    known = None if knows is None else knows.backend(server.name)
    serves = each.serves(server.release) if known is None else known.versions
    return BackendScene(
        name=server.name,
        release=server.release.name,
        serves=serves.format(each.scheme) if serves else "",
        share=each.share(serves),
        freshness="" if known is None else known.member.freshness.value,
        state=str(server.state),
        requests=server.requests,
    )


def _is_known(server: ApiServer, each: ServiceFleet, knows: ServiceStatus) -> bool:
    known = knows.backend(server.name)
    if server.state is not ServerState.RUNNING:
        return known.member.freshness is not Freshness.FRESH
    return known.member.freshness is Freshness.FRESH and known.versions == each.serves(server.release)


def _held(view: ServiceView) -> str:
    """Return a short sentence on what holds the offer of a service, and whose; empty if nothing does."""
    held = view.offer.held
    versions = held.versions.format(view.service.dialect.scheme) if held.versions else ""
    who = ", ".join(held.by)
    match held.rule:
        case None:
            return ""
        case HeldRule.STATE:
            return f"{versions} stays on offer because {who} last reported it"
        case HeldRule.STABILIZATION:
            return f"{versions} will be offered after the stabilization time"
        case HeldRule.CEILING:
            return f"{versions} is above the ceiling"
        case _:
            return f"{versions} waits for {who}"
