"""TLS of a worker process: the certificates of its listeners, and the contexts for its backends.

The parent watches the files, checks what a new configuration names, counts and warns. A worker reads again
when it is told to. What cannot be read changes nothing here: the pair that was in force stays so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import final

from gateway.errors import CertificateError, StartupError
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.tls.client import ClientContexts, backends_tls, read_contexts
from gateway.tls.server import ServerCertificates
from gateway.tls.values import ServerTls

_log = logging.getLogger("skewgate.tls")


@final
class WorkerTls:
    """`contexts` is for connections to backends. `read` comes first."""

    def __init__(self) -> None:
        self.contexts = ClientContexts()
        self._certificates: dict[int, ServerCertificates] = {}
        """By the position in `settings.listen`. Only certificates can change with a reload."""
        self._lock = asyncio.Lock()

    async def read(self, settings: Settings) -> None:
        """Everything, for the first time. Raises `StartupError`: files have changed since they were
        checked."""
        try:
            for position, listen in enumerate(settings.listen):
                if listen.tls is not None:
                    self._certificates[position] = await asyncio.to_thread(ServerCertificates, listen.tls)
        except CertificateError as error:
            raise StartupError(f"{error.path or error.part}: {error}") from error
        await self._read_contexts(settings)

    def of(self, listen: tuple[Listen, ...]) -> Mapping[Listen, ServerCertificates]:
        """Those of the addresses with TLS."""
        return {listen[position]: certificates for position, certificates in self._certificates.items()}

    async def configure(self, settings: Settings) -> None:
        """Read everything for a configuration that is about to be in force. New connections go by it when
        this returns."""
        for position, certificates in self._certificates.items():
            await self._reload(certificates, settings.listen[position].tls)
        await self._read_contexts(settings)

    async def look(self) -> None:
        """Read again the certificates whose files have changed."""
        for certificates in self._certificates.values():
            if await asyncio.to_thread(certificates.changed):
                await self._reload(certificates, None)

    async def _reload(self, certificates: ServerCertificates, settings: ServerTls | None) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(certificates.reload, settings)
            except CertificateError as error:
                _log.error("the certificates stay as they were: %s (%s)", error, error.path or error.part)

    async def _read_contexts(self, settings: Settings) -> None:
        """A context that cannot be read now is tried again when a connection needs it."""
        try:
            contexts = await asyncio.to_thread(read_contexts, backends_tls(settings.services))
        except CertificateError as error:
            _log.error("TLS to a backend cannot be prepared: %s (%s)", error, error.path or error.part)
            return
        self.contexts.put_in_force(contexts)
