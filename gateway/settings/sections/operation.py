"""`operations` of a service: operations that exist in some versions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from gateway.core.decision.operations import (
    NEXT,
    OperationRule,
    Operations,
    OperationStatus,
    PathTemplate,
)
from gateway.core.dialect import Dialect
from gateway.core.http.message import METHODS
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme
from gateway.keys.kinds import ListOf, Text, reject
from gateway.keys.texts import VERSIONS, one_of, read_count
from gateway.settings.sections.versions import read_versions
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import quoted
from gateway.settings.yaml.tree import Node, child

_PATH_TEMPLATE: Final = r"/|(?:/(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z0-9._~!$&'()*+,=:@-]+))+"
REFUSAL_STATUSES: Final = (400, 404)
PATH_PATTERN: Final = Text(PathTemplate.read, {"type": "string", "pattern": f"^(?:{_PATH_TEMPLATE})$"})


def read_refusal_status(text: str) -> int | None:
    """Read the status with which a missing operation is refused, 400 or 404."""
    status = read_count(text)
    if status not in REFUSAL_STATUSES:
        reject("the status must be 400 or 404", "clients expect one of these for a missing operation")
    return status


REFUSAL_STATUS: Final = Text(read_refusal_status, {"type": "integer", "enum": list(REFUSAL_STATUSES)})


@final
@dataclass(frozen=True, slots=True)
class WrittenOperation:
    """An operation, or several with the same path, that exists in these versions only."""

    methods: tuple[str, ...] = field(
        metadata=ListOf(one_of(*METHODS), least=1).required(
            "The methods. HEAD is included with GET, unless it is named itself.",
            reason="An operation is a method and a path.",
            example=["GET"],
        )
    )
    path: PathTemplate = field(
        metadata=PATH_PATTERN.required(
            "The path as the API knows it, without `match.path`. `{name}` matches any one segment; a literal "
            "segment takes precedence.",
            reason="An operation is a method and a path.",
            example="/v1/nodes/{node}/vifs",
        )
    )
    versions: str = field(
        metadata=VERSIONS.required(
            'The versions in which it exists: `">=1.58"`, `"<=2.4"`, `1.1-1.58` (dates and names `a..b`), '
            "one version, or several separated by commas. `next`: in development, in no version yet. Items "
            "with the same method and path add up. YAML needs quotation marks around `>`.",
            reason="Without versions the item would restrict nothing.",
            example=">=1.28",
        )
    )
    status: str = one_of("active", "deprecated", "unstable").key(
        "active",
        "The status that the Chef dialect reports at `/server_api_version/extended`. An operation of `next` "
        "is unstable or active.",
        reason="An operation that exists may be used.",
        example="deprecated",
    )
    refusal: int | None = REFUSAL_STATUS.key(
        None,
        "The status of the refusal outside these versions. Without it: the status that the dialect's servers "
        "use, 400 for Senlin, 404 for the others.",
        reason="Clients were written for what their servers do.",
        example=404,
    )


def read_operations(
    written: Sequence[WrittenOperation], dialect: Dialect, node: Node | None, findings: Findings
) -> Operations:
    """The operations of a service that exist in some versions only. `node`: the list in the file."""
    rules: list[OperationRule] = []
    for index, operation in enumerate(written):
        item = child(node, index)
        rule = _rule(operation, dialect, item, findings)
        if rule is not None:
            for key, message, hint in _contradictions(rule, rules, dialect.scheme):
                findings.contradiction(child(item, key) or child(item, "path"), message, hint)
            rules.append(rule)
    return Operations.of(rules)


def _rule(
    written: WrittenOperation, dialect: Dialect, item: Node | None, findings: Findings
) -> OperationRule | None:
    scheme, status = dialect.scheme, OperationStatus(written.status)
    if written.versions == NEXT:
        versions = NO_VERSIONS
        if status is OperationStatus.DEPRECATED:
            message = "an operation that is in development cannot be deprecated"
            findings.contradiction(child(item, "status"), message, "write unstable or active for `next`")
    else:
        hint = f"write >={scheme.example}, <={scheme.example}, a range, one version or {NEXT}"
        place = child(item, "versions")
        found = read_versions(VersionSet.read_open, written.versions, dialect, hint, place, findings)
        if found is None:
            return None
        versions = found
    # The segments are as those of requests will be. The text is shown as it was written.
    plain = PathTemplate.read(dialect.operation_path(written.path.text)).segments
    path = PathTemplate(written.path.text, plain)
    return OperationRule(written.methods, path, versions, status, written.refusal)


def _contradictions(
    rule: OperationRule, before: Sequence[OperationRule], scheme: Scheme
) -> Iterator[tuple[str, str, str]]:
    """Contradictions of `rule` to earlier rules for the same operation, each as key, message and hint."""
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
