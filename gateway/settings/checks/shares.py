"""Checks of the limits that are divided among several workers: some are too small for that.

Nothing is refused for it. `core.fleet.limits.share_of` says what the part of a worker is, and of queues
`dataplane.limits.sharing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.fleet.limits import share_of
from gateway.core.fleet.service import Service
from gateway.runtime.cpus import usable_cpus
from gateway.settings.model.document import Document
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Node, child


def check_shares(
    document: Document, services: Sequence[Service], root: MappingNode, findings: Findings
) -> None:
    """Report limits of which the part of a worker is not what the file lets expect."""
    workers = document.workers
    if workers is None:
        workers = usable_cpus() if findings.check_files else 1
    if workers == 1:
        return
    limits = document.limits
    if limits.connections is not None and limits.connections < workers:
        _warn(
            child(root, "limits", "connections"),
            f"each of {workers} workers takes at least one connection, so up to {workers} are open",
            findings,
        )
    part = share_of(limits, workers).replay_total
    largest = max((service.limits.replay_body for service in services), default=limits.replay_body)
    if part < largest <= limits.replay_total:
        _warn(
            child(root, "limits", "replay_total") or child(root, "limits", "replay_body"),
            f"the part of each of {workers} workers is {part} bytes, less than one body of replay_body: "
            "larger ones are streamed, and not sent again",
            findings,
        )
    for name, service in document.services.items():
        for index, backend in enumerate(service.backends):
            length = child(root, "services", name, "backends", index, "queue", "length")
            if length is not None and 0 < backend.queue.length < workers:
                _warn(
                    length,
                    f"each of {workers} workers has at least one place, so up to {workers} wait",
                    findings,
                )


def _warn(node: Node | None, message: str, findings: Findings) -> None:
    findings.add(node, "divided", message, "raise it, or lower `workers`", severity=Severity.WARNING)
