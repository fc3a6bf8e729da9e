"""Everything that the admin listener needs from the gateway, as one value, which `gateway.assembly` makes.

No request and no endpoint is known here. Callables are called on every request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.reload import ReloadResult
from gateway.controlplane.usage.keeper import UsageKeeper
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
    """Type of `DataPlane.collect`, which collects the reports of all workers within a second."""

    def __call__(self, *, counters: bool) -> Awaitable[None]:
        """Collects the gauges of all workers and, with `counters`, also their counts."""


@final
class Explaining(NamedTuple):
    """Inputs to the explanation of a request, beside the status of the gateway."""

    limits: Limits
    cached_documents: Container[DocumentKey] = ()
    """Keys of the discovery documents that can be served without a backend."""
    held_back: Mapping[str, int] = {}
    """Share of the requests that a backend may get, by member key, as for `selection.select`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Functions that carry out commands of operators, and wait for their effect."""

    apply: Callable[[str, OperatorCommand], Awaitable[None]]
    """Gives a command about a service, to all replicas if there are several. Raises `StoreError`."""
    reload: Callable[[], Awaitable[ReloadResult]]
    in_force: Callable[[str | None], Awaitable[Sequence[str]]]
    """Waits until all commands about a service (None: about any) are in force in every worker and replica.
    Returns those that have not acknowledged after some seconds."""
    saved: Callable[[], Awaitable[bool]]
    """Waits until the present state is in the state file; False: it cannot be written, or there is none."""
    forget: Callable[[str], Awaitable[bool]] | None = None
    """Ends the registration of a replica; False: it is live, or not registered. Raises `StoreError`. The
    attribute is None if there are no replicas."""
    frozen: Callable[[], str] = str
    """Returns a sentence that says why commands and reloads are refused now; empty: they are not."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """Conditions for access to the admin listener."""

    hosts: tuple[str, ...] | None = ()
    """Valid names in `Host` besides loopback and the bound address; None: any, for public content."""
    token: Callable[[], Secret | None] = lambda: None
    """Returns the admin token in force, which a reload may change; None: there is none."""
    by_certificate: Callable[[], bool] = lambda: False
    """Returns whether the listener verifies client certificates, which then replace the token."""

    @property
    def identifies(self) -> bool:
        """Whether each request must show a token, certificate or session. Else nobody may give commands."""
        return self.token() is not None or self.by_certificate()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """Everything that the admin listener shows and may change."""

    snapshots: SnapshotSource
    not_serving: Callable[[], str]
    """Returns a sentence that says why no client is accepted now; empty: clients are accepted."""
    agreement: Callable[[], AgreementReport | None]
    """Returns the state of the agreement of replicas; None: there are no replicas."""
    refresh: Refresh
    """Collects reports of all workers, so that status and metrics are of this moment."""
    status: Callable[[], GatewayStatus]
    """Makes the gateway's status of this moment. Costs some milliseconds for a thousand backends."""
    metrics: Metrics
    history: History
    last_hour: Callable[[str], LastHour]
    """Returns the requests that a service has served in the last hour."""
    traffic: Callable[[str], Sequence[TrafficCounts]]
    """Returns the requests of a service in each minute of the last hour, the oldest first."""
    explaining: Callable[[], Explaining]
    commands: Commands
    access: AdminAccess
    facts: FreshFacts
    usage: UsageKeeper | None = None
