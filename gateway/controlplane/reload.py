"""Reads the configuration again and puts it in force: all of it, or nothing.

    read -> Settings -> Resolver.retarget -> SnapshotHolder.reconfigure -> Prober.retarget

A file with an error changes nothing. What is known of backends that stay is kept. What is fixed when the
process starts (listeners, limits) is compared and reported, never applied in part.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.service import Service
from gateway.settings import Loaded, Settings

NEEDS_RESTART: Final = (
    "listen",
    "admin",
    "workers",
    "access_log",
    "trusted_proxies",
    "state",
    "timeouts",
    "limits",
)
"""Keys that are read once, when the process starts."""

_log = logging.getLogger("skewgate.reload")


class ReloadMetrics(Protocol):
    """The part of `telemetry.metrics.Metrics` that is used here."""

    def reloaded(self, *, ok: bool, at: float) -> None: ...


class Retargetable(Protocol):
    """The part of `prober.Prober` and of `resolver.Resolver` that is used here."""

    def retarget(self, services: Iterable[Service]) -> None: ...


@final
@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """The configuration in force, for `/status`."""

    hash: str
    loaded_at: float
    """Wall-clock seconds."""


@final
@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The outcome of a reload."""

    problems: tuple[str, ...] = ()
    """The errors of the file, each as `skewgate check` shows it. If there are any, the old configuration
    stays in force."""
    restart: tuple[str, ...] = ()
    """Keys whose new values need a restart."""

    @property
    def ok(self) -> bool:
        return not self.problems


@final
class Reloader:
    """Reloads for SIGHUP and `POST /-/reload`. `read` reads and checks the file as it is now, and blocks.
    `settings` are those with which the process was started."""

    def __init__(
        self,
        read: Callable[[], Loaded],
        settings: Settings,
        *,
        snapshot_holder: SnapshotHolder,
        resolver: Retargetable,
        prober: Retargetable,
        metrics: ReloadMetrics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._started = settings
        self._snapshot_holder = snapshot_holder
        self._resolver = resolver
        self._prober = prober
        self._metrics = metrics
        self._wall = wall
        self._lock = asyncio.Lock()
        self._config = ConfigInForce(settings.hash, wall())

    @property
    def config(self) -> ConfigInForce:
        """The configuration in force."""
        return self._config

    async def reload(self) -> ReloadResult:
        """The new configuration is in force when this returns, unless there are errors. The file is read in a
        thread, so requests go on."""
        async with self._lock:
            loaded = await asyncio.to_thread(self._read)
            return self._refuse(loaded) if loaded.settings is None else self._apply(loaded.settings)

    def _refuse(self, loaded: Loaded) -> ReloadResult:
        """Reports errors only: warnings do not prevent a reload."""
        for problem in loaded.errors:
            sentence = problem.sentence(loaded.filename)
            _log.error("reload refused, the old configuration stays in force: %s", sentence)
        self._metrics.reloaded(ok=False, at=self._wall())
        return ReloadResult(tuple(problem.render(loaded.filename, loaded.lines) for problem in loaded.errors))

    def _apply(self, settings: Settings) -> ReloadResult:
        """Without `await`: nothing may run between the new snapshot and the new probes."""
        self._resolver.retarget(settings.services)
        self._snapshot_holder.reconfigure(settings.services, settings.untrusted_headers)
        self._prober.retarget(settings.services)
        self._config = ConfigInForce(settings.hash, self._wall())
        self._metrics.reloaded(ok=True, at=self._config.loaded_at)
        restart = tuple(key for key in NEEDS_RESTART if getattr(settings, key) != getattr(self._started, key))
        _log.info(
            "reloaded: configuration %s, generation %d",
            settings.hash,
            self._snapshot_holder.current.generation,
        )
        if restart:
            _log.warning("restart the gateway to apply the new value of %s", ", ".join(restart))
        return ReloadResult(restart=restart)
