"""A fleet, what stands in front of it, its clients and what became of their requests: one half of a
comparison, or all that there is.

It says what is to be seen now, and whether the front knows what was done to the fleet. What is done to the
fleet, and when, is up to `director`.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from random import Random
from time import monotonic
from typing import Final, final

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.offer import Phase
from gateway.core.versions.axis import Axis
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.demo.clients import KINDS, PROGRAMS, Client, Result, Surroundings
from gateway.demo.embedded_fleet import EmbeddedFleet, ServiceFleet
from gateway.demo.front import Front, held_sentence
from gateway.demo.scene import BackendScene, Bar, FrontScene, Label, ServiceScene
from gateway.demo.servers import ApiServer, ServerState
from gateway.demo.sums import Sums
from gateway.telemetry.status import ServiceStatus

SAMPLES: Final = 5
"""Of the requests that each server got. They are taken twice a second, so a rate is one of two seconds."""

NOTHING: Final = "nothing yet"


@final
class Performance:
    """`fleet` runs already; `start` starts `front`."""

    def __init__(self, fleet: EmbeddedFleet, front: Front, seed: int) -> None:
        self.fleet = fleet
        self.front = front
        self.sums = Sums()
        self._seed = seed
        self._shown: dict[str, VersionSet] = {}
        """By service the range that a client was shown last."""
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=SAMPLES)

    async def start(self, stack: AsyncExitStack) -> tuple[Client, ...]:
        """Let the front serve until `stack` ends. The clients, which are not running yet: equal seeds give
        them equal choices."""
        await self.front.start(stack)
        return tuple(
            kind(
                Surroundings(
                    self.front.url(kind.service),
                    Random(f"{self._seed}/{kind.kind}/{program}"),  # noqa: S311 - of a demonstration
                    self.fleet.could_serve,
                    self.sums.add,
                    shown=self._show,
                )
            )
            for kind in KINDS
            for program in range(PROGRAMS)
        )

    def learned(self) -> bool:
        """Whether the front knows what every server does now. One that knows nothing has nothing to learn."""
        return all(
            knows is None or all(_is_known(server, each, knows) for server in each.servers)
            for each in self.fleet.services
            for knows in (self.front.status(each.name),)
        )

    def steady(self) -> bool:
        """The same, and no offer moves any more."""
        return self.learned() and all(
            knows is None or knows.view.offer.phase not in {Phase.UNKNOWN, Phase.STABILIZING}
            for each in self.fleet.services
            for knows in (self.front.status(each.name),)
        )

    def sample(self) -> None:
        """Look at how many requests each server got. Called twice a second."""
        self._samples.append((monotonic(), {server.name: server.requests for server in self.fleet.servers}))

    def scene(self) -> FrontScene:
        """What is to be seen now."""
        return FrontScene(
            self.front.name,
            tuple(self._service(each) for each in self.fleet.services),
            self.sums.scenes(),
            self.sums.requests,
            self.sums.of(Result.ANSWERED),
            self.sums.of(Result.REFUSED),
            self.sums.of(Result.LOST),
            tuple(self.sums.losses.most_common()),
        )

    def _show(self, service: str, lowest: str, highest: str) -> None:
        scheme = self.fleet.service(service).scheme
        first, last = scheme.parse(lowest), scheme.parse(highest)
        if first is not None and last is not None and first <= last:
            self._shown[service] = VersionSet.between(first, last)

    def _service(self, each: ServiceFleet) -> ServiceScene:
        """Of a front that knows nothing of versions the offer is what the server said that answered last."""
        knows = self.front.status(each.name)
        offer = self._shown.get(each.name, NO_VERSIONS) if knows is None else knows.view.offer.versions
        axis = Axis((each.serves(each.old), each.serves(each.new)))
        return ServiceScene(
            each.name,
            _text(offer, each),
            _bars(axis, offer),
            "" if knows is None else knows.view.offer.phase.value,
            "" if knows is None else held_sentence(knows.view),
            tuple(Label(tick.at, tick.text) for tick in axis.ticks(each.scheme)),
            tuple(self._server(server, each, axis, knows) for server in each.servers),
        )

    def _server(
        self, server: ApiServer, each: ServiceFleet, axis: Axis, knows: ServiceStatus | None
    ) -> BackendScene:
        """Behind a front that knows nothing of versions the bar shows what the server itself serves."""
        known = None if knows is None else knows.backend(server.name)
        serves = each.serves(server.release) if known is None else known.versions
        return BackendScene(
            server.name,
            server.release.name,
            serves.format(each.scheme) if serves else "",
            _bars(axis, serves),
            "" if known is None else known.member.freshness.value,
            str(server.state),
            self._rate(server.name),
        )

    def _rate(self, server: str) -> float:
        if len(self._samples) < 2:
            return 0.0
        (begin, first), (end, last) = self._samples[0], self._samples[-1]
        return (last[server] - first[server]) / (end - begin) if end > begin else 0.0


def _is_known(server: ApiServer, each: ServiceFleet, knows: ServiceStatus) -> bool:
    known = knows.backend(server.name)
    if server.state is not ServerState.RUNNING:
        return known.member.freshness is not Freshness.FRESH
    return known.member.freshness is Freshness.FRESH and known.versions == each.serves(server.release)


def _text(offer: VersionSet, each: ServiceFleet) -> str:
    return offer.format(each.scheme) if offer else NOTHING


def _bars(axis: Axis, versions: VersionSet) -> tuple[Bar, ...]:
    return tuple(Bar(span.begin, span.end) for span in axis.spans(versions))
