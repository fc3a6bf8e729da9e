"""What the admin listener looks at and may change, as one value; put together in `cli.gateway`.

Knows no request and no endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from gateway.admin import views
from gateway.controlplane.reload import ConfigInForce, Reloaded
from gateway.core.fleet import Order
from gateway.core.snapshot import SnapshotSource
from gateway.settings.secret import Secret
from gateway.telemetry.metrics import Metrics


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """All that the admin listener looks at and may change. Callables are asked on every request."""

    snapshots: SnapshotSource
    metrics: Metrics
    config: Callable[[], ConfigInForce]
    reload: Callable[[], Awaitable[Reloaded]]
    obey: Callable[[str, Order], None]
    """Put an order about a service in force: `Cell.obey`."""
    kept: Callable[[], Awaitable[bool]]
    """Wait until what is in force has been written to the state file; False: it has not, or there is none."""
    last_probe_at: Callable[[], Mapping[tuple[str, str], float]]
    """Wall-clock seconds by (service, backend): `Prober.last_probe_at`."""
    load: Callable[[], Mapping[str, int]]
    """Requests in flight by member key: `Worker.load`."""
    draining: Callable[[], bool]
    token: Secret | None = None
    hosts: tuple[str, ...] = ()
    """Names besides loopback and the bound address that a Host may hold: the configured listen host."""

    def status(self) -> dict[str, Any]:
        """The document of `/status`, of this moment."""
        config = self.config()
        return views.status(
            self.snapshots.current,
            {"hash": config.hash, "loaded_at": config.loaded_at},
            self.last_probe_at(),
            self.load(),
        )
