"""Reads the configuration anew and puts it in force: all of it, or nothing.

    read -> Settings -> Snapshot.configured(after the current one) -> cell.update -> prober.retarget

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
from gateway.core.snapshot import Snapshot
from gateway.errors import SettingsError
from gateway.settings.problem import Problem, Severity
from gateway.settings.values import Settings

NEEDS_RESTART: Final = (
    "listen",
    "admin",
    "workers",
    "access_log",
    "trusted_proxies",
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
    """One sentence each; with any, the old configuration is still in force."""
    restart: tuple[str, ...] = ()
    """Keys whose new values need a restart."""

    @property
    def ok(self) -> bool:
        return not self.problems


@final
class Reloader:
    """`read` gives the settings of the file as it is now, or raises `SettingsError`; `settings` are those
    that the process was started with. For SIGHUP and `POST /-/reload`."""

    def __init__(
        self,
        read: Callable[[], Settings],
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
            try:
                settings = await asyncio.to_thread(self._read)
            except SettingsError as error:
                return self._refuse(_problems(error))
            except OSError as error:
                return self._refuse((f"the configuration cannot be read: {error.strerror or error}",))
            return self._apply(settings)

    def _refuse(self, problems: tuple[str, ...]) -> Reloaded:
        for problem in problems:
            _log.error("reload refused, the old configuration stays in force: %s", problem)
        self._metrics.reloaded(False, self._wall())  # noqa: FBT003 - the agreed interface
        return Reloaded(problems)

    def _apply(self, settings: Settings) -> Reloaded:
        """No await in here: nobody may see the new snapshot with the old probes."""
        self._cell.update(Snapshot.configured(settings.services, after=self._cell.current))
        self._prober.retarget(settings.services)
        self._config = ConfigInForce(settings.hash, self._wall())
        self._metrics.reloaded(True, self._config.loaded_at)  # noqa: FBT003 - the agreed interface
        restart = tuple(key for key in NEEDS_RESTART if getattr(settings, key) != getattr(self._started, key))
        _log.info("reloaded: configuration %s, generation %d", settings.hash, self._cell.current.generation)
        if restart:
            _log.warning("restart to put the new value of %s in force", ", ".join(restart))
        return Reloaded(restart=restart)


def _problems(error: SettingsError) -> tuple[str, ...]:
    """Every error of the file, each on one line with its position; warnings do not stand in the way."""
    found = tuple(
        f"{problem.line}:{problem.column}: {problem.message}"
        for problem in error.problems
        if isinstance(problem, Problem) and problem.severity is Severity.ERROR
    )
    return found or (str(error),)
