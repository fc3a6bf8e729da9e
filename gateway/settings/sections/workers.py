"""`workers`: the number of processes that serve requests, and warnings about limits too small to be divided.

`core.fleet.limits.share_of` has the part of one worker, `dataplane.limits.sharing` that of queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.core.fleet.limits import Limits, share_of
from gateway.core.fleet.service import Service
from gateway.keys.kinds import Text, reject
from gateway.keys.texts import read_count
from gateway.runtime.cpus import usable_cpus
from gateway.settings.sections.service import WrittenService
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, child

MAX_WORKERS: Final = 64


def read_workers(text: str) -> int | None:
    """Read the number of worker processes: a whole number, or `auto` (None)."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= MAX_WORKERS:
        reject(f"the number must be from 1 to {MAX_WORKERS}", "or write auto: one for each CPU")
    return value


WORKERS: Final = Text(
    read_workers, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_WORKERS}]}
)


def check_workers(workers: int | None, root: MappingNode, findings: Findings) -> None:
    """Warn of more worker processes than CPUs: they wait for each other."""
    node = child(root, "workers")
    if workers is None or workers == 1 or node is None or not findings.check_files:
        return
    if workers > (cpus := usable_cpus()):
        message = f"{workers} workers share {cpus} {'CPU' if cpus == 1 else 'CPUs'} here"
        hint = "write auto: one for each CPU that the gateway may use"
        findings.warn(node, "too-many-workers", message, hint)


def check_shares(
    workers: int | None,
    limits: Limits,
    written: Mapping[str, WrittenService],
    services: Sequence[Service],
    root: MappingNode,
    findings: Findings,
) -> None:
    """Warn of limits whose share for one worker process is not what the file suggests."""
    if workers is None:
        workers = usable_cpus() if findings.check_files else 1
    if workers == 1:
        return
    if limits.connections is not None and limits.connections < workers:
        message = f"each of {workers} workers takes at least one connection, so up to {workers} are open"
        _warn(child(root, "limits", "connections"), message, findings)
    part = share_of(limits, workers).replay_total
    largest = max((service.limits.replay_body for service in services), default=limits.replay_body)
    if part < largest <= limits.replay_total:
        _warn(
            child(root, "limits", "replay_total") or child(root, "limits", "replay_body"),
            f"the part of each of {workers} workers is {part} bytes, less than one body of replay_body: "
            "larger ones are streamed, and not sent again",
            findings,
        )
    for name, service in written.items():
        for index, backend in enumerate(service.backends):
            length = child(root, "services", name, "backends", index, "queue", "length")
            if length is not None and 0 < backend.queue.length < workers:
                message = f"each of {workers} workers has at least one place, so up to {workers} wait"
                _warn(length, message, findings)


def _warn(node: Node | None, message: str, findings: Findings) -> None:
    findings.warn(node, "divided", message, "raise it, or lower `workers`")
