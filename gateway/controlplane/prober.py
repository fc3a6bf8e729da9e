"""Probes every backend for the versions that it serves: regularly, and when a response casts doubt on them.

    task -> ProbeClient (HTTP) -> the dialect reads the responses -> fact -> SnapshotHolder.batch

Each backend has two tasks, one for prompted probes, and one probe at a time; all backends together have at
most `AT_ONCE`. `core.fleet` decides what a failed probe means. This module dates it, counts it, and makes the
next pause longer. No request ever waits for a probe.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias, final

from gateway.controlplane.probe_client import ProbeClient, Probed
from gateway.controlplane.resolver import Resolve, addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.dialect import Advertisement, ProbeFault
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.fleet import HealthChecked, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.timer import Timer
from gateway.telemetry.process_log import about
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.series.declaring import Counting
from gateway.tls.client import ClientContexts

JITTER: Final = 0.2
"""Relative variation of the pause between probes: many gateways must not probe in step (threats O4)."""
LONGEST_INTERVALS: Final = 8
LONGEST_PAUSE: Final = 30.0
"""Upper bounds of the pause after failures (semantics, Knowing), so that a recovery is noticed in time."""
AT_ONCE: Final = 256
"""Largest number of probes under way at the same time. A thousand backends that never answer are known after
a few timeouts, and use no more descriptors than these."""
BEGUN_PER_TURN: Final = 8
"""Number of first probes started in one event-loop iteration: about 3 ms, then requests are served."""
TOGETHER: Final = 0.02
"""Probes that are due within so many seconds begin together: four of a thousand backends. One alone costs a
third more, because it finds none of its code and data in the caches of the processor."""
PROMPTED_SPACING: Final = 0.25
"""Seconds between two prompted probes of one backend. A backend that contradicts itself with every response
is not probed for every request (threats O4, V11)."""

Key: TypeAlias = tuple[str, str]
"""Names of a backend: (service, backend)."""

_log = logging.getLogger("skewgate.prober")


def pause(failures: int, interval: float, rng: random.Random) -> float:
    """Seconds until the next probe: the interval with jitter, doubled with each consecutive failure after the
    first, which is thus soon confirmed or refuted. Never below the interval with its jitter."""
    longest = max(interval, min(LONGEST_INTERVALS * interval, LONGEST_PAUSE))
    plain = min(interval * 2.0 ** min(max(failures - 1, 0), LONGEST_INTERVALS), longest)
    jittered = plain * rng.uniform(1 - JITTER, 1 + JITTER)
    return jittered if plain == interval else max(interval, min(jittered, longest))


def until_others(seconds: float, now: float) -> float:
    """Seconds until the next probe after a pause, at most `TOGETHER` longer: others begin then, too."""
    return (math.floor((now + seconds) / TOGETHER) + 1) * TOGETHER - now


async def sleep_until_others(seconds: float) -> None:
    """Sleep for a pause, and then until the probes begin that are due at about the same time."""
    await asyncio.sleep(until_others(seconds, asyncio.get_running_loop().time()))


@final
@dataclass(eq=False, slots=True)
class _Target:
    """A probed backend and its tasks, which continue when a reload replaces its service."""

    service: Service
    backend: Backend
    tasks: tuple[asyncio.Task[None], ...] = ()
    failures: int = 0
    probed: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set when the first probe has ended, or the backend is no longer probed."""
    prompt: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set when a probe is wanted at once."""
    prompted_for: float = float("-inf")
    """Newest `Member.probe_wanted_at` that has set `prompt`: each prompts only one probe."""
    asked: bool = False
    """Whether an operator has asked for a probe that has not begun yet."""
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)


@final
class Prober:
    """Probes the backends of `services`; `start`, `retarget` and `close`, or `async with`.

    `resolve` returns the addresses of a host. `clock` must be the one by which the data plane dates passive
    observations: the loop's, in seconds. `wall`: Unix time, for people."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        metrics: Counting,
        services: Iterable[Service],
        *,
        resolve: Resolve = addresses_only,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = sleep_until_others,
        prompted_spacing: float = PROMPTED_SPACING,
        client_contexts: ClientContexts | None = None,
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._metrics = metrics
        self._services = tuple(services)
        self._resolve = resolve
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._wall = wall
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, protects no secret
        self._sleep = sleep
        self._prompted_spacing = prompted_spacing
        self._client_contexts = client_contexts
        self._unsubscribe: Callable[[], None] = lambda: None
        self._targets: dict[Key, _Target] = {}
        self._new: deque[Key] = deque()
        """Backends whose probing tasks have not been started yet."""
        self._beginning = Timer()
        self._under_way = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.last_probe_at: dict[Key, float] = {}
        """Unix time at which the last finished probe of each backend was sent."""
        self._ended: dict[Key, float] = {}
        """Time at which the last probe of each backend was sent whose result is known here."""
        self._answered: dict[Key, float] = {}
        """Time at which the last probe of each backend was sent that it has answered."""
        self._probe_client: ProbeClient | None = None

    async def start(self) -> None:
        """Begin to probe the backends. First probes are sent at once, a few in each event-loop iteration."""
        if self._probe_client is None:
            self._probe_client = ProbeClient(self._resolve, self._client_contexts, self._certificate_seen)
            self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
            self.retarget(self._services)

    def retarget(self, services: Iterable[Service]) -> None:
        """Probe the backends of these services from now on. Backends that stay keep the time of their next
        probe. Those that were removed, or have another address, are no longer probed there."""
        self._services = tuple(services)
        if self._probe_client is None:
            return
        configured = {
            (service.name, backend.name): (service, backend)
            for service in self._services
            for backend in service.backends
            if not backend.leaving  # another server may have its address already
        }
        for key, target in list(self._targets.items()):
            if key not in configured or not _is_unchanged(target, *configured[key]):
                self._drop(key)
        for key, (service, backend) in configured.items():
            if key in self._targets:
                self._targets[key].service, self._targets[key].backend = service, backend
            else:
                self._targets[key] = _Target(service, backend)
                self._new.append(key)
        if self._new and not self._beginning.is_set:
            self._begin_some()

    async def probed(self, services: Collection[str]) -> None:
        """Wait until each backend of these services has been probed once."""
        for target in [each for each in self._targets.values() if each.service.name in services]:
            await target.probed.wait()
        self._snapshot_holder.apply_batch()

    def probe_now(self, service: str, *, unanswered_since: float = math.inf) -> float:
        """Probe each backend of a service now, unless it has answered a probe that was sent at
        `unanswered_since` or later. Returns the present time."""
        for key, target in self._targets.items():
            if key[0] == service and not self.has_answered(key, unanswered_since):
                target.asked = True
                target.prompt.set()
        return self._clock()

    def has_ended(self, key: Key, since: float) -> bool:
        """Whether the result of a probe is known that was sent to a backend at `since` or later."""
        return self._ended.get(key, -math.inf) >= since

    def has_answered(self, key: Key, since: float) -> bool:
        """Whether a backend has answered a probe that was sent to it at `since` or later."""
        return self._answered.get(key, -math.inf) >= since

    async def close(self) -> None:
        """Stop all probes, also those under way."""
        self._unsubscribe()
        self._beginning.cancel()
        self._new.clear()
        for key in list(self._targets):
            self._drop(key)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._probe_client = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _begin_some(self) -> None:
        for _ in range(min(BEGUN_PER_TURN, len(self._new))):
            key = self._new.popleft()
            target = self._targets.get(key)
            if target is not None and not target.tasks:  # it may have been removed meanwhile, and come back
                self._begin(key, target)
        if self._new:
            # Not in the next turn: that would begin before what the probes have caused is read.
            self._beginning.set(0, self._begin_some)

    def _begin(self, key: Key, target: _Target) -> None:
        loop, name = asyncio.get_running_loop(), "/".join(key)
        target.tasks = (
            loop.create_task(self._probe_regularly(key, target), name=f"probe {name}"),
            loop.create_task(self._probe_when_prompted(key, target), name=f"prompted probe {name}"),
        )
        for task in target.tasks:
            # Owned by `_tasks` until it is done: `close` waits for it.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _drop(self, key: Key) -> None:
        target = self._targets.pop(key)
        target.probed.set()
        for times in (self.last_probe_at, self._ended, self._answered):
            times.pop(key, None)
        # A cancelled task keeps its frames, and they keep the target: together with its tasks it would be a
        # cycle, which only the collector frees.
        tasks, target.tasks = target.tasks, ()
        for task in tasks:
            task.cancel()

    async def _probe_regularly(self, key: Key, target: _Target) -> None:
        while True:
            async with target.probing:
                await self._probe(key, target, prompted=False)
            target.probed.set()
            await self._sleep(pause(target.failures, target.service.probe.interval, self._rng))

    async def _probe_when_prompted(self, key: Key, target: _Target) -> None:
        """Probe a backend whenever a response casts doubt on it, or an operator asks. Regular probes keep
        their times."""
        while True:
            await target.prompt.wait()
            async with target.probing:
                target.prompt.clear()
                asked, target.asked = target.asked, False
                member = self._member(key)
                if not asked and (member is None or member.probe_wanted_at is None):
                    continue  # the probe that was under way has cleared it up
                failures = target.failures
                await self._probe(key, target, prompted=True)
                if asked and target.failures:  # an operator may ask each second: regular pauses stay
                    target.failures = failures
            await asyncio.sleep(self._prompted_spacing)

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        """Prompt a probe of every backend on which a response has cast doubt."""
        for _, view in after.news_since(before):
            name = view.service.name
            known = before.fleet.member_sets.get(name)
            members = after.fleet.member_sets[name]
            for member in members.all if known is None else members.others_than(known):
                wanted_at = member.probe_wanted_at
                if wanted_at is None:
                    continue
                target = self._targets.get((name, member.backend.name))
                if target is not None and wanted_at > target.prompted_for:
                    target.prompted_for = wanted_at
                    target.prompt.set()

    def _member(self, key: Key) -> Member | None:
        """Return what is known of a backend now, after all facts of the batch."""
        self._snapshot_holder.apply_batch()
        members = self._snapshot_holder.current.fleet.member_sets.get(key[0])
        return None if members is None else members.member(key[1])

    async def _probe(self, key: Key, target: _Target, *, prompted: bool) -> None:
        """Send one probe to a backend and batch the fact from it, dated by the time of the first request."""
        assert self._probe_client is not None
        if target.backend.declared is not None:
            sent = self._clock()
            self._declare_again(key, target, sent, prompted=prompted)
            await self._check_health(key, target)
            self._ended[key] = self._answered[key] = sent
            return
        async with self._under_way:
            sent, sent_wall = self._clock(), self._wall()
            found, document = await self._send_probe(key, self._probe_client, target)
        self.last_probe_at[key] = sent_wall
        seconds = self._clock() - sent
        self._metrics.observe(OfBackend.probe_duration_seconds, seconds, service=key[0], backend=key[1])
        match found:
            case Advertisement():
                target.failures = 0
                self._snapshot_holder.batch(*key, ProbeSucceeded(found, sent, prompted, document))
                await self._check_health(key, target)
                self._answered[key] = sent
            case ProbeFault(reason, detail):
                target.failures += 1
                self._metrics.count(OfBackend.probe_failures, reason, service=key[0], backend=key[1])
                self._snapshot_holder.batch(*key, ProbeFailed(detail, sent))
        self._ended[key] = sent

    async def _check_health(self, key: Key, target: _Target) -> None:
        """Send a backend's health check, if it has one. Without an answer the last result stays."""
        check = target.service.probe.health
        if check is None:
            return
        assert self._probe_client is not None
        async with self._under_way:
            sent = self._clock()
            try:
                status = await self._probe_client.check_health(target.service, check, target.backend)
            except Exception:  # noqa: BLE001 - logged; as in `_send_probe`
                name = "/".join(key)
                _log.exception("%s: the health check failed because of a bug", name, extra=about(name))
                return
        if status is not None:
            error = None if status == check.status else f"its health check {check.path} answers {status}"
            self._snapshot_holder.batch(*key, HealthChecked(error, sent))

    async def _send_probe(self, key: Key, probe_client: ProbeClient, target: _Target) -> Probed:
        try:
            return await probe_client.probe(target.service, target.backend)
        # A bug of ours must not end the probes of a backend: what is known of it would be relied on for ever.
        except Exception:  # noqa: BLE001 - logged and counted
            name = "/".join(key)
            _log.exception("%s: the probe failed because of a bug in the gateway", name, extra=about(name))
            error = "the probe failed because of a bug in the gateway, see its log"
            return Probed(ProbeFault("internal", error))

    def _certificate_seen(self, service: str, backend: str, expiry: float) -> None:
        self._metrics.set(
            OfBackend.backend_certificate_expiry_timestamp_seconds, expiry, service=service, backend=backend
        )

    def _declare_again(self, key: Key, target: _Target, sent: float, *, prompted: bool) -> None:
        """Observe a backend's declared versions once more, in place of a probe. This clears what requests
        have made suspect. The pauses grow while it stays suspect."""
        assert target.backend.declared is not None
        if not prompted:
            member = self._member(key)
            target.failures = target.failures + 1 if member is not None and member.suspect else 0
        declared = Advertisement(target.backend.declared)
        self._snapshot_holder.batch(*key, ProbeSucceeded(declared, sent, prompted))


def _is_unchanged(target: _Target, service: Service, backend: Backend) -> bool:
    """Whether a backend's address, TLS and probe settings are unchanged, so that its tasks can continue."""
    before = target.backend
    return target.service.is_written_as(service) or (
        before.url == backend.url
        and before.tls == backend.tls
        and (before.declared is None) == (backend.declared is None)
        and target.service.probe == service.probe
    )
