"""Asks every backend, on its own address, which versions it serves; one task a backend.

    task -> probing.Asker (HTTP) -> the dialect reads the answers -> fact -> cell.observe

What a failed probe means is `core.fleet`'s: here it is only dated, counted and followed by a longer pause. No
client and no request ever waits for a probe. Time and chance are passed in.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias, final

from gateway.controlplane.cell import Cell
from gateway.controlplane.probing import Asker
from gateway.core.backend import Backend
from gateway.core.dialect import Advert, ProbeFault
from gateway.core.fleet import Answered, Failed
from gateway.core.service import Service

JITTER: Final = 0.2
"""Part of a pause by which it is lengthened or shortened, so that many gateways do not ask in step (hardening
O4)."""

LONGEST_INTERVALS: Final = 8
LONGEST_PAUSE: Final = 30.0
"""Back-off: at most 8 intervals and at most 30 s (design section 2), so that recovery is seen in that
time."""

Key: TypeAlias = tuple[str, str]
"""(service, backend)"""

_log = logging.getLogger("skewgate.prober")


class ProbeMetrics(Protocol):
    """The part of `telemetry.metrics.Metrics` that is used here."""

    def probed(self, service: str, backend: str, seconds: float, failure: str | None) -> None: ...


def pause(failures: int, interval: float, chance: random.Random) -> float:
    """Seconds until the next probe after `failures` failed ones in a row: the interval, doubled with every
    failure after the first (which is to be confirmed or refuted soon), and jitter. Never shorter than the
    jittered interval.
    """
    longest = max(interval, min(LONGEST_INTERVALS * interval, LONGEST_PAUSE))
    plain = min(interval * 2.0 ** min(max(failures - 1, 0), LONGEST_INTERVALS), longest)
    jittered = plain * chance.uniform(1 - JITTER, 1 + JITTER)
    return jittered if plain == interval else max(interval, min(jittered, longest))


@final
@dataclass(eq=False, slots=True)
class _Target:
    """One backend that is probed, and its task. A reload may give it a new service (dialect, headers) in
    place."""

    service: Service
    backend: Backend
    task: asyncio.Task[None] | None = None
    failures: int = 0


@final
class Prober:
    """Probes the undeclared backends of `services`; `start`, `retarget` and `close`, or `async with`.

    `clock` must be the one by which the data plane dates what it overhears: the loop's, seconds. `wall` is
    for people.
    """

    def __init__(
        self,
        cell: Cell,
        metrics: ProbeMetrics,
        services: Iterable[Service],
        *,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
        chance: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cell = cell
        self._metrics = metrics
        self._services = tuple(services)
        self._clock = clock or _loop_time
        self._wall = wall
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._sleep = sleep
        self._targets: dict[Key, _Target] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_probe_at: dict[Key, float] = {}
        self._asker: Asker | None = None

    @property
    def last_probe_at(self) -> Mapping[Key, float]:
        """Wall-clock seconds at which the last finished probe of each backend was sent."""
        return self._last_probe_at

    async def start(self) -> None:
        """Begin to probe; the first probes are sent at once."""
        if self._asker is None:
            self._asker = Asker()
            self.retarget(self._services)

    def retarget(self, services: Iterable[Service]) -> None:
        """Probe what is configured now. Backends that stay keep their rhythm; gone and moved ones are asked
        no more."""
        self._services = tuple(services)
        if self._asker is None:
            return
        self._asker.forget_certificates()
        wanted = {
            (service.name, backend.name): (service, backend)
            for service in self._services
            for backend in service.backends
        }
        for key, target in list(self._targets.items()):
            if key not in wanted or not _stays(target, *wanted[key]):
                self._drop(key)
        for key, (service, backend) in wanted.items():
            if key in self._targets:
                self._targets[key].service, self._targets[key].backend = service, backend
            else:
                self._begin(key, _Target(service, backend))

    async def close(self) -> None:
        """End all probes, also those under way, and the connections."""
        for key in list(self._targets):
            self._drop(key)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._asker is not None:
            await self._asker.close()
            self._asker = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- tasks ----------------------------------------------------------------------------------------------

    def _begin(self, key: Key, target: _Target) -> None:
        self._targets[key] = target
        name = f"probe {key[0]}/{key[1]}"
        # Owned by `_tasks` until it is done: `close` waits for it.
        task = asyncio.create_task(self._watch(key, target), name=name)  # noqa: TID251 - owned, see above
        target.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop(self, key: Key) -> None:
        target = self._targets.pop(key)
        self._last_probe_at.pop(key, None)
        if target.task is not None:
            target.task.cancel()

    async def _watch(self, key: Key, target: _Target) -> None:
        """One backend, as long as it is configured. One probe at a time: the next begins after a pause."""
        while True:
            await self._probe(key, target)
            await self._sleep(pause(target.failures, target.service.probe.interval, self._chance))

    async def _probe(self, key: Key, target: _Target) -> None:
        """One probe and the fact that it brings, dated by when its first request was sent.

        A declared backend is not asked: what is declared is said once more, which ends the doubts that
        requests have raised, ever later while they come back.
        """
        assert self._asker is not None
        sent, sent_wall = self._clock(), self._wall()
        if target.backend.declared is not None:
            pool = self._cell.current.fleet.pools.get(key[0])
            member = pool.member(key[1]) if pool is not None else None
            target.failures = target.failures + 1 if member is not None and member.doubted else 0
            self._cell.observe(*key, Answered(Advert(target.backend.declared), sent))
            return
        try:
            found = await self._asker.ask(target.service, target.backend)
        # Our own bug must not end the probes of a backend: what is known of it would be trusted for ever.
        except Exception:  # noqa: BLE001 - logged and counted
            _log.exception("%s/%s: the probe failed by a bug of the gateway", *key)
            found = ProbeFault("internal", "the probe failed by a bug of the gateway, see its log")
        self._last_probe_at[key] = sent_wall
        seconds = self._clock() - sent
        match found:
            case Advert():
                target.failures = 0
                self._metrics.probed(*key, seconds, None)
                self._cell.observe(*key, Answered(found, sent))
            case ProbeFault(reason, detail):
                target.failures += 1
                self._metrics.probed(*key, seconds, reason)
                self._cell.observe(*key, Failed(detail, sent))


def _stays(target: _Target, service: Service, backend: Backend) -> bool:
    """Whether the same address is asked in the same rhythm: then its task goes on."""
    before = target.backend.url, target.backend.tls, target.backend.declared is None, target.service.probe
    return before == (backend.url, backend.tls, backend.declared is None, service.probe)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
