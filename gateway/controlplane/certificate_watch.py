"""Reloads the certificates of listeners when their files change, and warns before one expires.

    every few seconds, in a thread: stat -> changed? -> ServerCertificates.reload -> log, metrics

A pair that is wrong is logged with its reason and changes nothing: new connections continue with the old
certificate. Open connections never notice. This module does not read the configuration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from gateway.core.days import DAY
from gateway.errors import CertificateError
from gateway.runtime.process import end_tasks
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.telemetry.series.declaring import Counting
from gateway.telemetry.series.process import OfProcess
from gateway.tls.server import ServerCertificates
from gateway.tls.values import WARN_BEFORE, ServerTls

INTERVAL: Final = 5.0
"""Seconds between two checks for changed certificates. One takes a few microseconds for each file."""
ADMIN: Final = "the admin listener"
WARN_AGAIN: Final = float(DAY)
"""Seconds between two warnings that the same certificate is about to expire."""

_log = logging.getLogger("skewgate.tls")


@final
class CertificateWatch:
    """A task that watches the certificates of some listeners, by the names of the listeners.

    `shown_to_backends` returns the expiry of the client certificates that the gateway shows to backends (Unix
    time, by path). They are only warned of here: a reload reads them again. `on_read` is called when
    certificates were read again and are in force here."""

    def __init__(
        self,
        watched: Mapping[str, ServerCertificates],
        metrics: Counting,
        shown_to_backends: Callable[[], Mapping[str, float]] = dict,
        *,
        on_read: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._watched = dict(watched)
        self._metrics = metrics
        self._shown_to_backends = shown_to_backends
        self._on_read = on_read
        self._wall = wall
        self._warned_at: dict[str, float] = {}
        """Unix time of the last warning that a certificate is about to expire, by its path."""
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def start(self) -> None:
        """Begin to watch the certificates."""
        self._warn_of_expiry()
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="certificates")

    async def close(self) -> None:
        """Stop watching the certificates."""
        await end_tasks(self._task)

    def expiry(self) -> Mapping[str, float]:
        """Unix time at which each certificate in force expires, by path."""
        served = (each for certificates in self._watched.values() for each in certificates.certificates)
        return {**self._shown_to_backends(), **{each.path: each.not_after for each in served}}

    async def reload(self, wanted: Settings) -> None:
        """Read all certificates for a new configuration. Listeners with other changes need a restart."""
        for name, settings in tls_of(wanted).items():
            certificates = self._watched.get(name)
            if certificates is not None:
                await self._reload(name, certificates, settings)
        self._warn_of_expiry()

    async def check_for_changes(self) -> None:
        """Read the certificates again whose files have changed."""
        for name, certificates in self._watched.items():
            if await asyncio.to_thread(certificates.changed):
                await self._reload(name, certificates, None)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check_for_changes()
            self._warn_of_expiry()

    async def _reload(self, name: str, certificates: ServerCertificates, settings: ServerTls | None) -> None:
        async with self._lock:
            before = certificates.certificates
            try:
                await asyncio.to_thread(certificates.reload, settings)
            except CertificateError as error:
                self._metrics.count(OfProcess.certificate_reloads, "failure")
                hint = f"; {error.hint}" if error.hint else ""
                where = error.path or error.part
                _log.error("the certificates of %s were not reloaded: %s (%s)%s", name, error, where, hint)
                return
        self._metrics.count(OfProcess.certificate_reloads, "success")
        self._on_read()
        if certificates.certificates != before:
            _log.info("the certificates of %s were reloaded", name)

    def _warn_of_expiry(self) -> None:
        now = self._wall()
        for path, not_after in self.expiry().items():
            left = not_after - now
            if left > WARN_BEFORE:
                self._warned_at.pop(path, None)
            elif now >= self._warned_at.get(path, float("-inf")) + WARN_AGAIN:
                self._warned_at[path] = now
                if left <= 0:
                    _log.error("the certificate %s has expired: its peers refuse it", path)
                else:
                    _log.warning("the certificate %s expires in %d days", path, left // DAY)


def names_of(listen: Sequence[Listen]) -> tuple[str, ...]:
    """Names of the listeners, made unique: several may be on port 0 of one host."""
    texts = [str(each) for each in listen]
    return tuple(
        text if texts.count(text) == 1 else f"{text} ({number})" for number, text in enumerate(texts, start=1)
    )


def tls_of(settings: Settings) -> dict[str, ServerTls]:
    """TLS settings of the listeners that have them, by name, with the admin listener."""
    names = names_of(settings.listen)
    listeners = zip(names, settings.listen, strict=True)
    found = {name: each.tls for name, each in listeners if each.tls is not None}
    return found if settings.admin.tls is None else {**found, ADMIN: settings.admin.tls}
