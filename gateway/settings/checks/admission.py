"""Checks of `access`, `client_limits` and `maintenance`; from the first to the tables of `core.fleet`."""

from __future__ import annotations

from gateway.core.dialect import Dialect
from gateway.core.fleet.admission import Access, ClientLimits, Maintenance
from gateway.settings.model import admission as model
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import Node, SequenceNode, child


def read_access(service: str, written: model.Access, node: Node | None, findings: Findings) -> Access | None:
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
    return Access(allow, deny) if allow or deny else None


def check_client_limits(service: str, limits: ClientLimits, node: Node | None, findings: Findings) -> None:
    """Report a burst without a rate. `node`: of `client_limits`."""
    dropped = findings.is_dropped("services", service, "client_limits", "rate")
    if limits.rate is None and limits.burst is not None and not dropped:
        findings.add(
            child(node, "burst"),
            "contradiction",
            "a burst needs a rate",
            "add `rate: 100/s`, or write `concurrency` for requests in flight",
        )


def check_maintenance(
    maintenance: Maintenance | None,
    dialect: Dialect,
    node: Node | None,
    findings: Findings,
    *,
    retry_after: bool | None,
) -> None:
    """Report a `retry_after` that is not sent. `node`: of `maintenance`. `retry_after`: the key of the
    service."""
    sent = dialect.retry_after if retry_after is None else retry_after
    if maintenance is not None and maintenance.retry_after is not None and not sent:
        findings.add(
            child(node, "retry_after"),
            "no-effect",
            "clients of this dialect break on Retry-After, so it is not sent",
            "remove it, or set `retry_after: true` for the service",
            severity=Severity.WARNING,
        )
