"""Checks of what the file says about failing and full backends: ejection, queues, backups."""

from __future__ import annotations

from gateway.core.fleet.ejection import Ejection
from gateway.settings.model import service as service_model
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import Node, child


def check_ejection(ejection: Ejection | None, node: Node | None, findings: Findings) -> None:
    """Report an ejection that contradicts itself. `node`: of the key `ejection`."""
    if ejection is None:
        return
    if ejection.max_time < ejection.time:
        findings.add(
            child(node, "max_time") or child(node, "time"),
            "contradiction",
            "max_time is shorter than time: every ejection would be cut to it",
            "raise max_time, or lower time",
        )
    if not ejection.on and not findings.is_any_dropped("ejection", "on"):
        findings.add(
            child(node, "on"),
            "contradiction",
            "no kind of failure is left, so no backend would be ejected",
            "write `ejection: off`",
        )


def check_queue(node: Node | None, findings: Findings) -> None:
    """Report the queue of a backend without a bound. `node`: of the backend."""
    if child(node, "queue") is not None:
        findings.add(
            child(node, "queue"),
            "contradiction",
            "without a bound nothing waits for this backend",
            "add max_requests or max_connections, or remove this key",
        )


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
