"""The parts of the gateway that the admin listener works with, as one value. `gateway.assembly` makes it.

Knows no request and no endpoint. Callables are called on every request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

from gateway.controlplane.reload import ReloadResult
from gateway.core.decision.decision import DocumentKey
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.snapshot import SnapshotSource
from gateway.keys.secrets import Secret
from gateway.telemetry.history import History
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.neighbours import AgreementReport
from gateway.telemetry.recent import LastHour, TrafficCounts
from gateway.telemetry.status import GatewayStatus


class Refresh(Protocol):
    """`DataPlane.collect`: brings what workers have reported up to date."""

    def __call__(self, *, counters: bool) -> Awaitable[None]:
        """Takes a second at most. `counters`: whatever the workers have counted, too."""


@final
class Explaining(NamedTuple):
    """Facts of this moment on which the explanation of a request depends, beside the status."""

    limits: Limits
    """Limits of request heads."""
    cached_documents: Container[DocumentKey] = ()
    """Discovery documents that can be answered without a backend."""
    held_back: Mapping[str, int] = {}
    """Shares of the requests by member key, as for `selection.select`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Commands of an operator, and what becomes of them."""

    apply: Callable[[str, OperatorCommand], Awaitable[None]]
    """Gives a command about a service, to all replicas where there are several. Raises `StoreError`."""
    reload: Callable[[], Awaitable[ReloadResult]]
    in_force: Callable[[str | None], Awaitable[Sequence[str]]]
    """Waits until what was commanded about a service (None: about any) is in force in every worker and
    replica. Returns those for which it still waits after some seconds."""
    saved: Callable[[], Awaitable[bool]]
    """Waits until the present state is in the state file. False: it cannot be written, or there is none."""
    forget: Callable[[str], Awaitable[bool]] | None = None
    """Ends the registration of a replica. False: it is live, or not registered. Raises `StoreError`. None:
    this gateway stands alone."""
    frozen: Callable[[], str] = str
    """Returns why commands and reloads are refused at this moment, a sentence; empty: they are not."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """Conditions under which somebody may use the admin listener."""

    hosts: tuple[str, ...] | None = ()
    """Names that `Host` may hold besides loopback and the bound address. None: any name, for a listener whose
    content is for everybody."""
    token: Callable[[], Secret | None] = lambda: None
    """Returns the token in force, which a reload may change; None: there is none."""
    by_certificate: Callable[[], bool] = lambda: False
    """Returns whether the listener verifies certificates of clients: then one stands for the token."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """Everything that the admin listener shows and may change."""

    snapshots: SnapshotSource
    not_serving: Callable[[], str]
    """Returns why no client is accepted at this moment; empty: they are."""
    agreement: Callable[[], AgreementReport | None]
    """Returns how this replica stands to the others; None: this gateway stands alone."""
    refresh: Refresh
    """Asks all workers how they are, so that the status and the metrics are of this moment."""
    status: Callable[[], GatewayStatus]
    """Makes the status of this moment. Costs some milliseconds for a thousand backends."""
    metrics: Metrics
    history: History
    """The last events."""
    last_hour: Callable[[str], LastHour]
    """Returns what a service has served lately."""
    traffic: Callable[[str], Sequence[TrafficCounts]]
    """Returns the requests of a service in each minute of the last hour, the oldest first."""
    explaining: Callable[[], Explaining]
    commands: Commands
    access: AdminAccess
