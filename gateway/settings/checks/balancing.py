"""From what the file says about failing and full backends to the values of `core.fleet`: ejection, bounds
with their queues, health checks. Reports what contradicts itself."""

from __future__ import annotations

from typing import NamedTuple, final

from gateway.core.fleet.service import EjectionPlan, EjectionReason, HealthPlan
from gateway.settings.model import service as service_model
from gateway.settings.model.balancing import Ejection, Health
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import Node, child


def read_ejection(written: Ejection | str, node: Node | None, findings: Findings) -> EjectionPlan | None:
    """The plan; None: `off`. `node`: of the key `ejection`."""
    if isinstance(written, str):
        return None
    if written.max_time < written.time:
        findings.add(
            child(node, "max_time") or child(node, "time"),
            "contradiction",
            "max_time is shorter than time: every ejection would be cut to it",
            "raise max_time, or lower time",
        )
    if not written.on and not findings.is_any_dropped("ejection", "on"):
        findings.add(
            child(node, "on"),
            "contradiction",
            "no kind of failure is left, so no backend would be ejected",
            "write `ejection: off`",
        )
    return EjectionPlan(
        written.failures,
        written.time,
        written.max_time,
        written.max_share,
        frozenset(map(EjectionReason, written.on)),
    )


@final
class Capacity(NamedTuple):
    """The bound of one backend in requests and connections, 0: none; and its queue."""

    max_requests: int
    max_connections: int
    queue_length: int
    queue_timeout: float


def read_capacity(written: service_model.Backend, node: Node | None, findings: Findings) -> Capacity:
    """How much a backend takes. `node`: of the backend."""
    requests, connections = written.max_requests or 0, written.max_connections or 0
    if not requests and not connections:
        if child(node, "queue") is not None:
            findings.add(
                child(node, "queue"),
                "contradiction",
                "without a bound nothing waits for this backend",
                "add max_requests or max_connections, or remove this key",
            )
        return Capacity(0, 0, 0, 0.0)
    return Capacity(requests, connections, written.queue.length, written.queue.timeout)


def read_health(written: Health | None) -> HealthPlan | None:
    """What is asked beside the versions; None: nothing."""
    return None if written is None else HealthPlan(written.path, written.status)


def check_backups(backends: tuple[service_model.Backend, ...], node: Node | None, findings: Findings) -> None:
    """Report a service that has backups only. `node`: of the key `backends`."""
    if backends and all(backend.backup for backend in backends):
        findings.add(
            child(node, 0, "backup"),
            "contradiction",
            "every backend of the service is a backup, so they get all requests",
            "remove the key from those that are to get the requests",
            severity=Severity.WARNING,
        )
