"""From `access`, `client_limits` and `maintenance` of the document to values of `core.fleet.admission`."""

from __future__ import annotations

from math import ceil
from typing import Final

from gateway.core.dialect import Dialect
from gateway.core.fleet import admission as values
from gateway.settings.model import admission as model
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import Node, SequenceNode, child

MIN_BURST: Final = 10
"""Where the file has none."""
_BURST_SECONDS: Final = 2


def read_access(
    service: str, written: model.Access, node: Node | None, findings: Findings
) -> values.Access | None:
    """The rules for addresses; None: there are none. `node`: of `access`."""
    for name in ("allow", "deny"):
        listed, dropped = child(node, name), findings.is_dropped("services", service, "access", name)
        if isinstance(listed, SequenceNode) and not listed.items and not dropped:
            findings.add(
                listed,
                "bad-value",
                "the list is empty, which would change nothing",
                'name networks, or remove the key; `deny: [0.0.0.0/0, "::/0"]` allows nobody',
            )
    allow, deny = written.allow or (), written.deny or ()
    for index, network in enumerate(deny):
        if network in allow:
            findings.add(
                child(node, "deny", index),
                "contradiction",
                "this network is allowed and denied",
                "remove it from one of the lists",
            )
    return values.Access(allow, deny) if allow or deny else None


def read_client_limits(
    service: str, written: model.ClientLimits, node: Node | None, findings: Findings
) -> values.ClientLimits:
    """The limits of each client. `node`: of `client_limits`."""
    rate, burst = written.rate, written.burst
    if rate is None:
        if burst is not None and not findings.is_dropped("services", service, "client_limits", "rate"):
            findings.add(
                child(node, "burst"),
                "contradiction",
                "a burst needs a rate",
                "add `rate: 100/s`, or write `concurrency` for requests in flight",
            )
        return values.ClientLimits(concurrency=written.concurrency)
    if burst is None:
        burst = max(MIN_BURST, ceil(rate * _BURST_SECONDS))
    return values.ClientLimits(rate, burst, written.concurrency)


def read_maintenance(
    written: model.Maintenance | None,
    dialect: Dialect,
    node: Node | None,
    findings: Findings,
    *,
    retry_after: bool | None,
) -> values.Maintenance | None:
    """The answer of a service in maintenance; None: it is not. `node`: of `maintenance`. `retry_after`: the
    key of the service."""
    if written is None:
        return None
    seconds = None if written.retry_after is None else ceil(written.retry_after)
    sent = dialect.retry_after if retry_after is None else retry_after
    if seconds is not None and not sent:
        findings.add(
            child(node, "retry_after"),
            "no-effect",
            "clients of this dialect break on Retry-After, so it is not sent",
            "remove it, or set `retry_after: true` for the service",
            severity=Severity.WARNING,
        )
    return values.Maintenance(written.status, written.body, seconds)
