"""The listeners of a gateway: their sockets and certificates, and the certificates for backends.

Sockets are bound before any backend is asked, so that a taken port is found first. Clients, operators and
scrapes wait in them until the data plane and the admin sites accept. Inherited sockets, of another gateway or
of systemd, are used where they fit. Certificates are read once here; `CertificateWatch` reads them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple, final

from gateway.admin import bind_site
from gateway.assembly.plan import Plan
from gateway.controlplane.certificate_watch import ADMIN, tls_of
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.errors import CertificateError, StartupError
from gateway.settings import Settings
from gateway.tls.client import ClientContexts, backends_tls, read_contexts
from gateway.tls.server import ServerCertificates


@final
class Sockets(NamedTuple):
    """The bound listening sockets of a gateway: for clients, for operators, for metrics."""

    clients: ListeningSockets
    admin: ListeningSockets
    metrics: ListeningSockets | None
    """Sockets for scrapes of the metrics; None: scrapes come to the admin listener."""


@asynccontextmanager
async def listening(plan: Plan) -> AsyncIterator[Sockets]:
    """Binds all listening sockets or none; closes them unless a drain has done so. Raises `StartupError`."""
    handover, settings, admin = plan.handover, plan.settings, plan.settings.admin
    with ExitStack() as stack:
        clients = await handover.bind(settings.listen, plan.workers, settings.timeouts.drain)
        stack.callback(clients.close)
        metrics = None
        if admin.metrics_listen is not None:
            metrics = await bind_site(
                *admin.metrics_listen,
                handover.inheritance.metrics,
                name="listener for metrics",
                key="admin.metrics_listen",
            )
            stack.callback(metrics.close)
        for_operators = await bind_site(*admin.listen, handover.inheritance.admin)
        stack.callback(for_operators.close)
        yield Sockets(clients, for_operators, metrics)


@final
class Certificates(NamedTuple):
    """The TLS certificates in force, of listeners and for connections to backends."""

    of_listeners: Mapping[str, ServerCertificates]
    """Certificates by the name of the listener, for each listener with TLS."""
    for_backends: ClientContexts

    @property
    def of_admin(self) -> ServerCertificates | None:
        """The certificates of the admin listener; None: it has no TLS."""
        return self.of_listeners.get(ADMIN)


async def read_certificates(settings: Settings) -> Certificates:
    """Read all certificates. Raises `StartupError`: files may have changed since they were checked."""
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
