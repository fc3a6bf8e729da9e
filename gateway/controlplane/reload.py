"""Reads the configuration again and puts it in force, completely or not at all.

    read -> Settings -> Configured -> Resolver.retarget -> SnapshotHolder.put_in_force -> Prober.retarget

A file with an error changes nothing, and neither does one with a new value of a key that is fixed at the
start (listeners, limits): no configuration is ever in force in part. Reading the files and computing the
snapshot is done in a thread. Knowledge about backends that stay is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Final, final

from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.controlplane.discovery.discovery import Discovery, Retargetable
from gateway.controlplane.snapshot_holder import Configured, SnapshotHolder
from gateway.core.fleet.brownouts import Window
from gateway.core.fleet.lifecycle import Line
from gateway.core.fleet.limits import SERVICE_LIMITS
from gateway.core.fleet.service import Service
from gateway.core.fleet.timeouts import SERVICE_TIMEOUTS
from gateway.errors import CertificateError
from gateway.runtime import process
from gateway.runtime.service_manager import Moment
from gateway.settings import Loaded, Problem, Settings
from gateway.settings.files import Seen
from gateway.settings.yaml.tree import Position
from gateway.telemetry.series.declaring import Counting
from gateway.telemetry.series.process import OfConfiguration
from gateway.telemetry.status import ConfigInForce
from gateway.tls.client import ClientContexts, backends_tls, read_contexts

RELOADED: Final = frozenset({"services", "untrusted_headers", "clients", "log", "hash"})
"""Settings that a reload puts in force. All others are read once, at the start."""
PER_SERVICE: Final = {"timeouts": SERVICE_TIMEOUTS.keys, "limits": SERVICE_LIMITS.keys}
"""Configuration keys that a service can override, by section."""
_REFUSED: Final = "reload refused, the old configuration stays in force: "

_log = logging.getLogger("skewgate.reload")


@final
@dataclass(frozen=True, slots=True)
class ReloadResult:
    """Result of a reload of the configuration."""

    problems: tuple[str, ...] = ()
    """Reasons why the reload was refused, each as `skewgate check` prints it; empty: it is in force."""
    restart: tuple[str, ...] = ()
    """Changed configuration keys that need a restart; `problems` has them, too."""

    @property
    def ok(self) -> bool:
        return not self.problems


@final
class Reloader:
    """Reloads the configuration for SIGHUP, `POST /-/reload` and `ConfigWatch`.

    `read` reads and checks the files, and blocks. `settings`: the configuration at the start; `seen`: its
    files. `announce` is called when a reload begins and ends, `applied` with the new settings.
    """

    def __init__(
        self,
        read: Callable[[], Loaded],
        settings: Settings,
        *,
        snapshot_holder: SnapshotHolder,
        resolver: Retargetable,
        prober: Retargetable,
        metrics: Counting,
        certificates: CertificateWatch | None = None,
        client_contexts: ClientContexts | None = None,
        announce: Callable[[Moment], None] = lambda moment: None,
        applied: Callable[[Settings], None] = lambda settings: None,
        seen: Seen | None = None,
        discovery: Discovery | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._certificates = certificates
        self._client_contexts = client_contexts or ClientContexts()
        self._started = settings
        self.settings = settings
        """Settings of the configuration that is in force now."""
        self._announce = announce
        self._applied = applied
        self.seen = seen or Seen()
        """Configuration files that were read last, whether they were refused or not."""
        self._discovery = discovery or Discovery()
        self._snapshot_holder = snapshot_holder
        self._resolver = resolver
        self._prober = prober
        self._metrics = metrics
        self._wall = wall
        self._lock = asyncio.Lock()
        self._held = ""
        """Reason for refusing all reloads, a sentence; empty: they are allowed."""
        self.config = ConfigInForce(settings.hash, wall())
        """Hash, load time and last error of the configuration in force, for `/status`."""

    @property
    def held(self) -> bool:
        """Whether all reloads are refused at the moment."""
        return bool(self._held)

    def refuse(self, reason: str) -> None:
        """Refuse reloads from now on. `reason`: a sentence. A reload that is under way continues."""
        self._held = reason

    async def hold(self, reason: str) -> None:
        """Refuse reloads from now on. When this returns, none is under way."""
        self.refuse(reason)
        try:
            async with self._lock:
                return
        except asyncio.CancelledError:
            self._held = ""
            raise

    def go_on(self) -> None:
        """Allow reloads again."""
        self._held = ""

    async def reload(self) -> ReloadResult:
        """Read the configuration's files and put them in force, unless there are errors."""
        async with self._lock:
            if self._held:
                # The log alone answers SIGHUP. The file is not to blame: no metric and no `error` tell of it.
                _log.warning("%s%s", _REFUSED, self._held)
                return ReloadResult((self._held,))
            self._announce(Moment.BEGIN)
            try:
                with process.collector_paused():
                    result = await self._read_and_apply()
                    if result.ok:
                        process.keep_for_long()
            finally:
                self._announce(Moment.END)
            return result

    async def _read_and_apply(self) -> ReloadResult:
        loaded = await asyncio.to_thread(self._read)
        self.seen = loaded.seen
        settings = loaded.settings
        if settings is None:
            return self._refuse(loaded, loaded.errors)
        if restart := tuple(_changed(self._started, settings)):
            return self._refuse(loaded, [_needs_restart(key, loaded) for key in restart], restart)
        if opened := _brownouts(settings, self._wall()) - _brownouts(self.settings, self._wall()):
            text = "a brown-out would begin or change at once; write a later time, or restart the gateway"
            return self._refused([f"{name}: {text}" for name in sorted(name for name, *_ in opened)])
        try:
            contexts = await asyncio.to_thread(read_contexts, backends_tls(settings.services))
        except CertificateError as error:  # a file has changed since it was checked
            return self._refused((f"{error.path or error.part}: {error}",))
        # Until it is in force, discovery adds and removes no backend.
        async with self._discovery.changes:
            services = self._discovery.completed(settings.services)
            self._snapshot_holder.apply_batch()
            configured = await asyncio.to_thread(
                self._snapshot_holder.configured, services, settings.untrusted_headers, settings.clients
            )
            if self._certificates is not None:
                await self._certificates.reload(settings)
            self._client_contexts.put_in_force(contexts)
            result = self._apply(settings, services, configured)
        await self._snapshot_holder.notified()
        return result

    def _refuse(
        self, loaded: Loaded, problems: Sequence[Problem], restart: tuple[str, ...] = ()
    ) -> ReloadResult:
        self._refused([problem.sentence(loaded.filename) for problem in problems])
        return ReloadResult(tuple(map(loaded.shown, problems)), restart)

    def _refused(self, sentences: Sequence[str]) -> ReloadResult:
        for sentence in sentences:
            _log.error("%s%s", _REFUSED, sentence)
        self._metrics.count(OfConfiguration.config_reloads, "failure")
        self._metrics.set(OfConfiguration.config_last_reload_successful, 0)
        more = f", and {len(sentences) - 1} more" if len(sentences) > 1 else ""
        self.config = replace(self.config, error=sentences[0] + more)
        return ReloadResult(tuple(sentences))

    def _apply(self, settings: Settings, services: Sequence[Service], configured: Configured) -> ReloadResult:
        """Put a configuration in force. No `await`: no task may run between new snapshot and new probes."""
        self._resolver.retarget(services)
        self._snapshot_holder.put_in_force(configured)
        self._prober.retarget(services)
        self._discovery.retarget(services)
        self.settings = settings
        self._applied(settings)
        self.config = ConfigInForce(settings.hash, self._wall())
        self._metrics.count(OfConfiguration.config_reloads, "success")
        self._metrics.set(OfConfiguration.config_last_reload_successful, 1)
        self._metrics.set(OfConfiguration.config_last_reload_success_timestamp_seconds, self.config.loaded_at)
        generation = self._snapshot_holder.current.generation
        _log.info("reloaded: configuration %s, generation %d", settings.hash, generation)
        return ReloadResult()


def _needs_restart(key: str, loaded: Loaded) -> Problem:
    """Report a key that needs a restart, at its position or at that of its section."""
    at = loaded.positions.get(key) or loaded.positions.get(key.partition(".")[0]) or Position()
    message = f"`{key}` cannot change while the gateway runs"
    hint = "restart the gateway, or restore the old value; the old file stays in force"
    return Problem(at.line, at.column, "needs-restart", message, hint, width=at.width)


def _brownouts(settings: Settings, now: float) -> set[tuple[str, Window, Line | None, bool]]:
    """Open brown-outs: service, window, and what is refused."""
    return {
        (one.name, window, one.lifecycle.deprecated, one.lifecycle.unsafe)
        for one in settings.services
        if one.lifecycle and (window := one.lifecycle.brownout_at(now))
    }


def _changed(started: Settings, wanted: Settings) -> Iterator[str]:
    """Keys that have changed since the start and that a reload does not read."""
    for each in fields(Settings):
        if each.name in RELOADED:
            continue
        before, after = (_read_at_start(settings, each.name) for settings in (started, wanted))
        if isinstance(before, dict) and isinstance(after, dict):
            yield from (f"{each.name}.{key}" for key in before if before[key] != after[key])
        elif before != after:
            yield each.name


def _read_at_start(settings: Settings, name: str) -> object:
    """The part of a setting that is read only at the start; for a section a dict by key."""
    value = getattr(settings, name)
    if name == "listen":  # certificates are read again
        return [each.fixed for each in settings.listen]
    if name == "admin":  # certificates and tokens are read again
        admin = settings.admin.fixed
        keys = {key: getattr(admin, key) for key in ("token", "tls", "hosts", "metrics_listen")}
        return {"listen": admin.listen, **keys}
    if is_dataclass(value):
        names = [each.name for each in fields(value) if each.name not in PER_SERVICE.get(name, ())]
        return {key: getattr(value, key) for key in names}
    return value
