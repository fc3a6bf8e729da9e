"""How a configuration is read again and given to the parts. Nothing is started here: `watching` asks for
reloads, and the admin listener does.
"""

from __future__ import annotations

import os
from typing import Final

from gateway.assembly.plan import Plan
from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.settings import Loaded, Settings, read_file
from gateway.tls.client import ClientContexts
from gateway.workers.data_plane import DataPlane

READ_AGAIN: Final = 3
"""Times that the configuration is read anew because a file has changed meanwhile."""


def make_reloader(
    plan: Plan,
    *,
    prober: Prober,
    plane: DataPlane,
    certificates: CertificateWatch,
    client_contexts: ClientContexts,
) -> Reloader:
    """The reloader of these parts."""

    def applied(settings: Settings) -> None:
        """Parts of a configuration that no other part of the gateway asks for."""
        plane.configured(settings)
        if plan.process_log is not None:
            plan.process_log.configure(settings.log)

    return Reloader(
        lambda: read_again(plan),
        plan.settings,
        snapshot_holder=plan.known.snapshot_holder,
        resolver=plan.resolver,
        prober=prober,
        metrics=plan.metrics,
        certificates=certificates,
        client_contexts=client_contexts,
        discovery=plan.discovery,
        announce=plan.service_manager.reloading,
        applied=applied,
        seen=plan.seen,
    )


def read_again(plan: Plan) -> Loaded:
    """The files as they are together: of one moment, also when somebody swaps them meanwhile. Without a file
    the settings are the same again."""
    if plan.source is None:
        return Loaded("", plan.settings, ())
    loaded = read_file(plan.source, environ=os.environ, again=True)
    for _ in range(READ_AGAIN):
        if loaded.seen == loaded.seen.again():
            break
        loaded = read_file(plan.source, environ=os.environ, again=True)
    return loaded
