"""`services.NAME.operations`: each item read in the dialect's scheme, and what contradicts another one found.

Paths, methods and words were read by the model; here is what needs the dialect, or more than one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.core.dialect import Dialect
from gateway.core.operations import NEXT, Entry, Extent, Operations, PathTemplate, Status
from gateway.core.version import Scheme
from gateway.errors import VersionTextError
from gateway.settings.operation_model import Operation
from gateway.settings.problem import quoted
from gateway.settings.shape import Findings
from gateway.settings.yaml_tree import Node, child


def read_operations(
    written: Sequence[Operation], dialect: Dialect, node: Node | None, findings: Findings
) -> Operations:
    """The operations of one service; `node` is the list in the file. Complaints go to the findings."""
    scheme = dialect.scheme
    made: list[Entry] = []
    for index, each in enumerate(written):
        item = child(node, index)
        entry = _entry(each, dialect, item, findings)
        if entry is not None:
            for place, message, hint in _contradictions(entry, made, scheme):
                findings.add(child(item, place) or child(item, "path"), "contradiction", message, hint)
            made.append(entry)
    return Operations.of(made)


def _entry(written: Operation, dialect: Dialect, item: Node | None, findings: Findings) -> Entry | None:
    scheme, status = dialect.scheme, Status(written.status)
    if written.versions == NEXT:
        extent = Extent()
        if status is Status.DEPRECATED:
            findings.add(
                child(item, "status"),
                "contradiction",
                "what is still being developed cannot be deprecated",
                "`next` is unstable or active",
            )
    else:
        try:
            extent = Extent.read(written.versions, scheme)
        except VersionTextError as error:
            hint = f"write >={scheme.example}, <={scheme.example}, a range, one version or {NEXT}"
            findings.refused(child(item, "versions"), error, hint)
            return None
    # As the paths of requests will be; shown as it was written.
    plain = PathTemplate.read(dialect.plain_path(written.path.text)).segments
    path = PathTemplate(written.path.text, plain)
    return Entry(written.methods, path, extent, status, written.refusal)


def _contradictions(entry: Entry, before: Sequence[Entry], scheme: Scheme) -> Iterator[tuple[str, str, str]]:
    """Where `entry` says otherwise of the same operation than one before it: the key, what is wrong, a
    hint."""
    for other in before:
        shared = [method for method in entry.methods if method in other.methods]
        if not shared or entry.path != other.path:
            continue
        what = f"{shared[0]} {quoted(entry.path.text)}"
        refusals = {entry.refusal, other.refusal} - {None}
        if len(refusals) > 1:
            yield "refusal", f"{what} is refused with {other.refusal} above", "one operation has one refusal"
        common = entry.versions & other.versions
        coming = not entry.versions and not other.versions
        if entry.status is not other.status and (common or coming):
            where = NEXT if coming else common.format(scheme)
            yield "status", f"{what} is {other.status} in {where} above", "a version of it has one status"
