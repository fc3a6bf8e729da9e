"""The certificates of this gateway: those of its listeners, and those that it shows to backends.

Read once at the start, when files may have changed since they were checked. Who reads them again is
`CertificateWatch`, which is started with everything else that changes what is configured (`watching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, final

from gateway.controlplane.certificate_watch import ADMIN, CertificateWatch, tls_of
from gateway.errors import CertificateError, StartupError
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics
from gateway.tls.client import ClientContexts, backends_tls, read_contexts
from gateway.tls.server import ServerCertificates
from gateway.workers.data_plane import DataPlane


@final
class Certificates(NamedTuple):
    """Certificates in force."""

    of_listeners: Mapping[str, ServerCertificates]
    """Certificates of the listeners with TLS, by the name of the listener."""
    for_backends: ClientContexts

    @property
    def of_admin(self) -> ServerCertificates | None:
        """Certificates of the admin listener; None: it has no TLS."""
        return self.of_listeners.get(ADMIN)

    def watch(self, metrics: Metrics, plane: DataPlane) -> CertificateWatch:
        """What will read them again, and tell `plane` so. It is not started."""
        return CertificateWatch(
            self.of_listeners, metrics, self.for_backends.expiry, on_read=plane.read_certificates
        )


async def read_certificates(settings: Settings) -> Certificates:
    """Read all of them. Raises `StartupError`."""
    for_backends = ClientContexts()
    try:
        for_backends.put_in_force(await asyncio.to_thread(read_contexts, backends_tls(settings.services)))
        of_listeners = {
            # Operators' sessions are not resumed: each handshake verifies their certificate.
            name: await asyncio.to_thread(ServerCertificates, tls, resumption=name != ADMIN)
            for name, tls in tls_of(settings).items()
        }
    except CertificateError as error:
        raise StartupError(f"{error.path or error.part}: {error}") from error
    return Certificates(of_listeners, for_backends)
