"""Reads the configuration anew and puts it in force: all of it, or nothing.

    read -> Settings -> cell.configure -> prober.retarget

A file with a problem changes nothing; what is known of backends that stay is kept. What was fixed when the
process started (listeners, limits) is compared and reported, never half applied.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, final

from gateway.controlplane.cell import Cell
from gateway.core.service import Service
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

    def reloaded(self, ok: bool, at: float) -> None: ...  # noqa: FBT001 - the agreed interface


class Retargets(Protocol):
    """The part of `prober.Prober` that is used here."""

    def retarget(self, services: Iterable[Service]) -> None: ...


@final
@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """Which configuration is in force, for `/status`."""

    hash: str
    loaded_at: float
    """Wall-clock seconds."""


@final
@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload came to."""

    problems: tuple[str, ...] = ()
    """The errors of the file, each as `skewgate check` shows it; with any, the old configuration is still in
    force."""
    restart: tuple[str, ...] = ()
    """Keys whose new values need a restart."""

    @property
    def ok(self) -> bool:
        return not self.problems


@final
class Reloader:
    """`read` gives what comes of the file as it is now, and blocks; `settings` are those that the process was
    started with. For SIGHUP and `POST /-/reload`."""

    def __init__(
        self,
        read: Callable[[], Loaded],
        settings: Settings,
        *,
        cell: Cell,
        prober: Retargets,
        metrics: ReloadMetrics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._started = settings
        self._cell = cell
        self._prober = prober
        self._metrics = metrics
        self._wall = wall
        self._one_at_a_time = asyncio.Lock()
        self._config = ConfigInForce(settings.hash, wall())

    @property
    def config(self) -> ConfigInForce:
        """The configuration in force."""
        return self._config

    async def reload(self) -> Reloaded:
        """In force when this returns, unless there are problems. The file is read in a thread: requests go
        on."""
        async with self._one_at_a_time:
            loaded = await asyncio.to_thread(self._read)
            return self._refuse(loaded) if loaded.settings is None else self._apply(loaded.settings)

    def _refuse(self, loaded: Loaded) -> Reloaded:
        """Warnings do not stand in the way, so only errors are told."""
        for problem in loaded.errors:
            said = problem.sentence(loaded.filename)
            _log.error("reload refused, the old configuration stays in force: %s", said)
        self._metrics.reloaded(False, self._wall())  # noqa: FBT003 - the agreed interface
        return Reloaded(tuple(each.render(loaded.filename, loaded.lines) for each in loaded.errors))

    def _apply(self, settings: Settings) -> Reloaded:
        """No await in here: nobody may see the new snapshot with the old probes."""
        self._cell.configure(settings.services)
        self._prober.retarget(settings.services)
        self._config = ConfigInForce(settings.hash, self._wall())
        self._metrics.reloaded(True, self._config.loaded_at)  # noqa: FBT003 - the agreed interface
        restart = tuple(key for key in NEEDS_RESTART if getattr(settings, key) != getattr(self._started, key))
        _log.info("reloaded: configuration %s, generation %d", settings.hash, self._cell.current.generation)
        if restart:
            _log.warning("restart to put the new value of %s in force", ", ".join(restart))
        return Reloaded(restart=restart)
