"""Reads `services.NAME.operations`: each item in the dialect's scheme, and which items contradict each other.

The model has read methods, paths and words. This module checks what needs the dialect, or more than one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.core.decision.operations import (
    NEXT,
    OperationRule,
    Operations,
    OperationStatus,
    PathTemplate,
)
from gateway.core.dialect import Dialect
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme
from gateway.errors import VersionTextError
from gateway.settings.model.operation import Operation
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import quoted
from gateway.settings.yaml.tree import Node, child


def read_operations(
    written: Sequence[Operation], dialect: Dialect, node: Node | None, findings: Findings
) -> Operations:
    """The operations of one service. `node` is the list in the file. Problems go to the findings."""
    rules: list[OperationRule] = []
    for index, operation in enumerate(written):
        item = child(node, index)
        rule = _rule(operation, dialect, item, findings)
        if rule is not None:
            for key, message, hint in _contradictions(rule, rules, dialect.scheme):
                findings.add(child(item, key) or child(item, "path"), "contradiction", message, hint)
            rules.append(rule)
    return Operations.of(rules)


def _rule(
    written: Operation, dialect: Dialect, item: Node | None, findings: Findings
) -> OperationRule | None:
    scheme, status = dialect.scheme, OperationStatus(written.status)
    if written.versions == NEXT:
        versions = NO_VERSIONS
        if status is OperationStatus.DEPRECATED:
            findings.add(
                child(item, "status"),
                "contradiction",
                "an operation that is in development cannot be deprecated",
                "write unstable or active for `next`",
            )
    else:
        try:
            versions = VersionSet.read_open(written.versions, scheme)
        except VersionTextError as error:
            hint = f"write >={scheme.example}, <={scheme.example}, a range, one version or {NEXT}"
            findings.refused(child(item, "versions"), error, hint)
            return None
    # The segments are as those of requests will be. The text is shown as it was written.
    plain = PathTemplate.read(dialect.operation_path(written.path.text)).segments
    path = PathTemplate(written.path.text, plain)
    return OperationRule(written.methods, path, versions, status, written.refusal)


def _contradictions(
    rule: OperationRule, before: Sequence[OperationRule], scheme: Scheme
) -> Iterator[tuple[str, str, str]]:
    """Where `rule` contradicts an earlier rule for the same operation: the key, a message, a hint."""
    for other in before:
        shared = [method for method in rule.methods if method in other.methods]
        if not shared or rule.path != other.path:
            continue
        name = f"{shared[0]} {quoted(rule.path.text)}"
        refusals = {rule.refusal, other.refusal} - {None}
        if len(refusals) > 1:
            message = f"{name} is refused with {other.refusal} above"
            yield "refusal", message, "an operation has one refusal status"
        common = rule.versions & other.versions
        both_next = not rule.versions and not other.versions
        if rule.status is not other.status and (common or both_next):
            where = NEXT if both_next else common.format(scheme)
            message = f"{name} is {other.status} in {where} above"
            yield "status", message, "an operation has one status in each version"
