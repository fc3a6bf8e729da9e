"""What the admin listener reads and may change, as one value. `gateway.assembly` makes it.

Knows no request and no endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, final

from gateway.admin import views
from gateway.controlplane.reload import ConfigInForce, ReloadResult
from gateway.core.decision.decision import DocumentKey
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.snapshot import SnapshotSource
from gateway.dataplane.http1.heads import HeadLimits
from gateway.settings.model.secret import Secret
from gateway.telemetry.metrics import Metrics


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """Everything that the admin listener reads and may change. Callables are called on every request."""

    snapshots: SnapshotSource
    metrics: Metrics
    config: Callable[[], ConfigInForce]
    reload: Callable[[], Awaitable[ReloadResult]]
    apply: Callable[[str, OperatorCommand], None]
    """Apply an operator's command about a service: `SnapshotHolder.apply`."""
    state_saved: Callable[[], Awaitable[bool]]
    """Wait until the present state is in the state file. False: it cannot be written, or there is no file."""
    last_probe_at: Callable[[], Mapping[tuple[str, str], float]]
    """Wall-clock seconds by (service, backend): `Prober.last_probe_at`."""
    in_flight_by_member: Callable[[], Mapping[str, int]]
    """Requests in flight by member key: `Worker.in_flight_by_member`."""
    known_documents: Callable[[], Container[DocumentKey]]
    """Discovery documents that can be answered without a backend: `Context.known_documents`."""
    draining: Callable[[], bool]
    limits: Callable[[], HeadLimits]
    """Those of request heads, in force."""
    token: Secret | None = None
    hosts: tuple[str, ...] = ()
    """Names that `Host` may hold besides loopback and the bound address: the configured listen host."""

    def status(self) -> dict[str, Any]:
        """The document of `/status` at this moment."""
        config = self.config()
        return views.status(
            self.snapshots.current,
            {"hash": config.hash, "loaded_at": config.loaded_at},
            self.last_probe_at(),
            self.in_flight_by_member(),
        )
