"""Keeps the backends of every service up to date with the lists of their sources.

    task of a source -> Lister.poll -> Listed -> after_answer -> SnapshotHolder.discover -> Prober, Resolver
                                       Failed or empty: the last answer stays

One poll of a source at a time, by its TTL. `core.fleet.source` decides which backends a list adds and
removes. A reload includes the discovered backends (`completed`), and no list comes into force during one
(`changes`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Protocol, TypeAlias, final

from gateway.controlplane.discovery.listers import Answer, Lister, lister_of
from gateway.controlplane.name_lookup import Failed, NameLookup
from gateway.controlplane.resolver import FewLines, in_time, pause_after, pause_after_failures
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.source import MAX_BACKENDS, Address, Source, after_answer, after_time, why_refused
from gateway.runtime.process import end_tasks
from gateway.settings.own_addresses import OwnAddress, own_address_of
from gateway.settings.target_file import restored_address
from gateway.telemetry.access_log import printable
from gateway.telemetry.neighbours import SourceReport
from gateway.telemetry.process_log import about, named

Key: TypeAlias = tuple[str, str]
"""Identity of a source of backends: (service, `Source.key`)."""

_log = logging.getLogger("skewgate.discovery")


class Retargetable(Protocol):
    """Interface of `prober.Prober` and `resolver.Resolver`, which discovery gives the current backends."""

    def retarget(self, services: Iterable[Service]) -> None: ...


@final
@dataclass(eq=False, slots=True)
class _Watched:
    """A source that lists backends of a service, and the backends from it."""

    service: str
    source: Source
    backends: tuple[Backend, ...] = ()
    addresses: dict[str, Address] = field(default_factory=dict)
    """Addresses in the source's last list, by the name of the backend."""
    unlisted: tuple[str, ...] = ()
    """Names of backends that stay although they are listed no more."""
    ended: bool = False
    """Whether the first poll of the source has ended."""
    problem: str | None = None
    failures: int = 0
    """Number of consecutive failed polls of the source."""
    answers: int = 0
    all_failures: int = 0
    answered_at: float | None = None
    """Unix time of the source's last list that was put in force."""
    task: asyncio.Task[None] | None = None
    removed: bool = False
    lines: FewLines = field(default_factory=FewLines)


@final
class Discovery:
    """Discovery of backends: call `restore`, `retarget` any number of times, `close`. For one event loop."""

    def __init__(
        self,
        make_lister: Callable[[Source], Lister] | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._make_lister = make_lister or partial(
            lister_of, lookup=NameLookup(max_addresses=MAX_BACKENDS + 1)
        )
        self._clock = clock
        self._wall = wall
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, protects no secret
        self._sleep = sleep
        self._watched: dict[Key, _Watched] = {}
        """Sources of backends, in the order of the configuration."""
        self._own: Sequence[OwnAddress] = ()
        self._snapshot_holder: SnapshotHolder | None = None
        self._before: Retargetable | None = None
        self._after: Retargetable | None = None
        self.changes = asyncio.Lock()
        """Lock that is held while a configuration is computed and put in force."""

    def connect(
        self,
        snapshot_holder: SnapshotHolder,
        *,
        resolver: Retargetable,
        prober: Retargetable,
        own: Sequence[OwnAddress] = (),
    ) -> None:
        """Set the receivers of new backends: the resolver before the new snapshot, the prober after it.
        `own`: the addresses of the gateway itself, which are no backends."""
        self._snapshot_holder, self._before, self._after = snapshot_holder, resolver, prober
        self._own = own

    def restore(self, services: Iterable[Service], saved: Mapping[str, SavedState]) -> None:
        """Restore the backends of the state file: they exist until their source says otherwise."""
        for service in services:
            state = saved.get(service.name)
            if state is None:
                continue
            for source in service.sources:
                watched = self._watched[service.name, source.key] = _Watched(service.name, source)
                for name, known in state.advertisements.items():
                    address = restored_address(known.url, source) if known.source == source.key else None
                    if (
                        address is not None
                        and address.name == name
                        and why_refused(address.host, source.networks) is None
                    ):
                        watched.addresses[name] = address
                        backend = replace(source.backend(address), leaves_at=known.leaves_at)
                        watched.backends = (*watched.backends, backend)
                restored = after_time(watched.backends, self._clock(), _own_names(service))
                watched.backends = restored[:MAX_BACKENDS]

    def completed(self, services: Iterable[Service]) -> tuple[Service, ...]:
        """Add the discovered backends to the services of a configuration."""
        return tuple(self._completed(service) if service.sources else service for service in services)

    def retarget(self, services: Iterable[Service]) -> None:
        """Poll the sources of these services, which `completed` has returned, and stop polling all others."""
        configured = {
            (service.name, source.key): source for service in services for source in service.sources
        }
        for key in self._watched.keys() - configured.keys():
            self._remove(self._watched[key])
        watched = {
            key: self._watched.get(key) or _Watched(key[0], source) for key, source in configured.items()
        }
        self._watched = watched
        for key, each in watched.items():
            each.backends = _anew(each, configured[key])
            each.source = configured[key]
            if each.task is None:
                # Owned by `_watched` until the source is removed.
                each.task = asyncio.get_running_loop().create_task(
                    self._watch(each), name=f"discover {key[0]} {key[1]}"
                )

    async def close(self) -> None:
        """Stop polling all sources of backends."""
        for each in self._watched.values():
            self._remove(each)
        await end_tasks(*(each.task for each in self._watched.values()))

    def _remove(self, watched: _Watched) -> None:
        watched.removed = True
        if watched.task is not None:
            watched.task.cancel()

    def _completed(self, service: Service) -> Service:
        """Add a service's discovered backends, unless the configuration or an earlier source has the name."""
        taken = _own_names(service)
        found: list[Backend] = []
        undiscovered = False
        for source in service.sources:
            watched = self._watched.get((service.name, source.key))
            undiscovered |= watched is None or not watched.ended
            for backend in _anew(watched, source) if watched is not None else ():
                if backend.name not in taken:
                    taken.add(backend.name)
                    found.append(backend)
        return service.with_backends(found, undiscovered=undiscovered)

    async def _watch(self, watched: _Watched) -> None:
        lister = self._make_lister(watched.source)
        while True:
            answer = await in_time(lister.poll(), f"{watched.service}: polling {watched.source.key}")
            async with self.changes:
                if watched.removed:  # Python 3.11 may lose a cancellation inside `asyncio.timeout`
                    return
                pause = self._take_in(watched, answer, lister.pause_after_failure)
            await self._pause(watched, pause)

    async def _pause(self, watched: _Watched, seconds: float) -> None:
        """Wait for the next poll of a source. Backends whose time to leave has come are removed meanwhile."""
        until = self._clock() + seconds
        while (now := self._clock()) < until and not watched.removed:
            next_departure = min(
                (each.leaves_at for each in watched.backends if each.leaves_at is not None), default=until
            )
            await self._sleep(max(0.0, min(until, next_departure) - now))
            if next_departure <= self._clock():
                async with self.changes:
                    if not watched.removed:
                        left = after_time(watched.backends, self._clock(), ())
                        self._put_in_force(watched, left, ended=watched.ended)

    def _take_in(self, watched: _Watched, answer: Answer, after_failure: float | None) -> float:
        """Put a source's answer in force and return the pause until its next poll."""
        refused = self._refused(watched.source, answer)
        if isinstance(answer, Failed) or all(each in refused for each in answer.addresses):
            reason = f"it lists no other backend, and {_not_taken(refused)}"
            if not refused:
                reason = answer.reason if isinstance(answer, Failed) else "it lists no backend"
            self._failed(watched, reason)
            self._put_in_force(watched, after_time(watched.backends, self._clock(), ()), ended=True)
            if not isinstance(answer, Failed):
                watched.failures = 0
                return pause_after(answer.ttl)
            watched.failures += 1
            return after_failure or pause_after_failures(watched.failures, self._rng)
        known, taken = self._known(watched)
        listed = {each.name: each for each in answer.addresses if each not in refused}
        membership = after_answer(
            watched.source, watched.backends, tuple(listed.values()), known, self._clock(), taken
        )
        watched.failures, watched.answers, watched.answered_at = 0, watched.answers + 1, self._wall()
        watched.unlisted = membership.unlisted
        # Only of those that are taken: a list may name other strangers every second.
        watched.addresses = {
            each.name: listed.get(each.name) or watched.addresses[each.name] for each in membership.backends
        }
        problem = (
            f"{membership.refused} of its backends are not taken: there are {MAX_BACKENDS} already"
            if membership.refused
            else _not_taken(refused)
        )
        self._answered(watched, problem)
        self._put_in_force(watched, membership.backends, ended=True)
        return pause_after(answer.ttl)

    def _refused(self, source: Source, answer: Answer) -> dict[Address, str]:
        """Listed addresses that are refused, and why: the gateway's own, or not allowed to the source."""
        if isinstance(answer, Failed):
            return {}
        ports = {each.port for each in self._own}
        found: dict[Address, str] = {}
        for each in answer.addresses:
            reason = why_refused(each.host, source.networks)
            if reason is not None:
                found[each] = reason
            elif each.port in ports:
                own = own_address_of(source.backend(each), self._own)
                if own is not None:
                    found[each] = f"it is {own.name}"
        return found

    def _known(self, watched: _Watched) -> tuple[dict[str, Member], set[str]]:
        """The service's members by name, and the names taken by the configuration and by earlier sources."""
        assert self._snapshot_holder is not None
        self._snapshot_holder.apply_batch()
        view = self._snapshot_holder.current.views[watched.service]
        taken = _own_names(view.service)
        for source in view.service.sources:
            if source.key == watched.source.key:
                break
            other = self._watched.get((watched.service, source.key))
            taken.update(each.name for each in (other.backends if other is not None else ()))
        members = self._snapshot_holder.current.fleet.member_sets[watched.service].all
        return {member.backend.name: member for member in members}, taken

    def _put_in_force(self, watched: _Watched, backends: tuple[Backend, ...], *, ended: bool) -> None:
        """Replace a source's backends. No `await`: no task may run between new snapshot and new probes."""
        assert self._snapshot_holder is not None
        assert self._before is not None
        assert self._after is not None
        if backends == watched.backends and ended == watched.ended:
            return
        self._log_changes(watched, watched.backends, backends)
        watched.backends, watched.ended = backends, ended
        names = {each.name for each in backends}
        watched.addresses = {name: each for name, each in watched.addresses.items() if name in names}
        service = self._completed(self._snapshot_holder.current.views[watched.service].service)
        views = self._snapshot_holder.current.views.values()
        services = [service if view.service.name == service.name else view.service for view in views]
        self._before.retarget(services)
        self._snapshot_holder.discover([service])
        self._after.retarget(services)

    def report(self) -> tuple[SourceReport, ...]:
        """State of each source of backends, for `/status` and metrics."""
        return tuple(map(_report, self._watched.values()))

    def _failed(self, watched: _Watched, reason: str) -> None:
        reason = printable(reason)
        if reason != watched.problem:
            number = len(watched.backends)
            rest = f"its last {number} stay" if number else "none is known so far"
            self._log_line(
                watched, logging.WARNING, f"no backends from {watched.source.key}: {reason} ({rest})"
            )
        watched.problem = reason
        watched.all_failures += 1

    def _answered(self, watched: _Watched, problem: str | None) -> None:
        if problem is not None and problem != watched.problem:
            self._log_line(watched, logging.WARNING, f"{watched.source.key}: {problem}")
        elif problem is None and watched.problem is not None:
            self._log_line(watched, logging.INFO, f"{watched.source.key} answers again")
        watched.problem = problem

    def _log_changes(self, watched: _Watched, before: Sequence[Backend], after: Sequence[Backend]) -> None:
        old, new = {each.name: each for each in before}, {each.name: each for each in after}
        grace = watched.source.leave_grace
        changes = (
            ("new", [name for name in new if name not in old]),
            ("back", [name for name in new if name in old and old[name].leaving and not new[name].leaving]),
            (
                f"leaving within {grace:g} s",
                [name for name in new if new[name].leaving and not (name in old and old[name].leaving)],
            ),
            ("gone", [name for name in old if name not in new]),
        )
        texts = [f"{what} {named(names)}" for what, names in changes if names]
        if texts:
            self._log_line(watched, logging.INFO, f"{watched.source.key}: {'; '.join(texts)}")

    def _log_line(self, watched: _Watched, level: int, text: str) -> None:
        level = watched.lines.level(level, self._clock())
        _log.log(level, "%s: %s", watched.service, text, extra=about(watched.service))


def _not_taken(refused: Mapping[Address, str]) -> str | None:
    """Describe the refused entries of a list; None: there are none."""
    more = f" ({len(refused) - 1} more are not taken)" if len(refused) > 1 else ""
    first = next(iter(refused.items()), None)
    return None if first is None else f"{first[0].name} is not taken: {first[1]}{more}"


def _own_names(service: Service) -> set[str]:
    """Names of the backends that are written in the configuration."""
    return {backend.name for backend in service.backends if not backend.source}


def _anew(watched: _Watched, source: Source) -> tuple[Backend, ...]:
    """Backends of a source with the options of `source`, which a reload may have changed."""
    if source == watched.source:
        return watched.backends
    return tuple(
        replace(source.backend(watched.addresses[each.name]), leaves_at=each.leaves_at)
        for each in watched.backends
        if why_refused(each.host, source.networks) is None
    )


def _report(watched: _Watched) -> SourceReport:
    staying = {each.name for each in watched.backends if not each.leaving}
    unlisted = len(staying.intersection(watched.unlisted)) if watched.answers else len(staying)
    return SourceReport(
        watched.service,
        watched.source.key,
        listed=len(staying) - unlisted,
        unlisted=unlisted,
        leaving=len(watched.backends) - len(staying),
        answers=watched.answers,
        failures=watched.all_failures,
        answered_at=watched.answered_at,
        error=watched.problem,
    )
