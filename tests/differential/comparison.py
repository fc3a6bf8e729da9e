"""Runs cases through the gateway, and compares what all readers read from what it forwards.

When a reader disagrees, a smaller case is looked for: one field line, one query parameter or the body is left
out at a time, as long as the same reader still disagrees about the same location.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from tests.differential.draft import Case
from tests.differential.judge import Disagreement, disagreements, request_aliases, response_disagreements
from tests.differential.readers.readers import Reader
from tests.differential.readers.view import Unreadable
from tests.differential.testbed import Result, Testbed

BATCH: Final = 1000
"""Cases that are held in memory at once."""


class Finding(NamedTuple):
    """One disagreement and its case."""

    result: Result
    disagreement: Disagreement


@dataclass
class Report:
    """What came of all cases."""

    cases: Counter[str] = field(default_factory=Counter)
    """By API; so is the next."""
    forwarded: Counter[str] = field(default_factory=Counter)
    negotiated: int = 0
    """Forwarded cases with a version."""
    readable: Counter[str] = field(default_factory=Counter)
    """By reader: forwarded cases that it does not refuse."""
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        cases, forwarded = self.cases.total(), self.forwarded.total()
        readable = ", ".join(f"{name} {number}" for name, number in self.readable.items())
        lines = [
            f"{cases} cases, {forwarded} forwarded, {self.negotiated} with a version; readable: {readable}"
        ]
        kinds = Counter(
            (finding.result.case.api.name, finding.disagreement.reader, finding.disagreement.location)
            for finding in self.findings
        )
        for (api, reader, location), number in kinds.most_common():
            lines.append(f"{number:6} {api}: {reader} about {location}")
        return "\n".join(lines)


async def compare(testbed: Testbed, readers: Sequence[Reader], cases: Iterable[Case]) -> Report:
    """Run all cases, and collect every disagreement."""
    report = Report()
    remaining = iter(cases)
    while batch := list(islice(remaining, BATCH)):
        results = [await testbed.run(case) for case in batch]
        for result in results:
            report.cases[result.case.api.name] += 1
            if result.forwarded:
                report.forwarded[result.case.api.name] += 1
                report.negotiated += bool(result.negotiated)
        report.findings += await _findings(results, readers, report.readable)
    return report


async def _findings(
    results: Sequence[Result], readers: Sequence[Reader], readable: Counter[str]
) -> list[Finding]:
    found = [
        Finding(result, each)
        for result in results
        for each in (*request_aliases(result), *response_disagreements(result))
    ]
    forwarded = [result for result in results if result.forwarded]
    for reader in readers:
        views = await reader.read([result.forwarded for result in forwarded])
        for result, view in zip(forwarded, views, strict=True):
            if view is None:
                continue
            try:
                found += [Finding(result, each) for each in disagreements(result, reader.name, view)]
            except Unreadable:
                continue
            readable[reader.name] += 1
    return found


# --- a smaller case ----------------------------------------------------------------------------------------


async def explain(testbed: Testbed, readers: Sequence[Reader], report: Report) -> str:
    """The report, and a small case of each kind of disagreement: a few of them."""
    texts = [str(report)]
    shown: set[tuple[str, str]] = set()
    for finding in report.findings:
        kind = finding.result.case.api.name, finding.disagreement.location
        if kind not in shown and len(shown) < 8:
            shown.add(kind)
            texts.append(_text(await minimize(testbed, readers, finding)))
    return "\n\n".join(texts)


async def minimize(testbed: Testbed, readers: Sequence[Reader], finding: Finding) -> Finding:
    """A finding of the same kind whose case is as small as leaving parts out can make it."""
    progress = True
    while progress:
        progress = False
        for case in _smaller(finding.result.case):
            results = [await testbed.run(case)]
            found = await _findings(results, readers, Counter())
            same = [each for each in found if _kind(each) == _kind(finding)]
            if same:
                finding, progress = same[0], True
                break
    return finding


def _kind(finding: Finding) -> tuple[str, str]:
    return finding.disagreement.reader, finding.disagreement.location


def _smaller(case: Case) -> Iterator[Case]:
    """The case without one of its parts."""
    for at, line in enumerate(case.lines):
        if not line.startswith(("Host:", "Content-Length:", "Transfer-Encoding:")):
            yield case._replace(lines=case.lines[:at] + case.lines[at + 1 :])
    for at in range(len(case.response_lines)):
        yield case._replace(response_lines=case.response_lines[:at] + case.response_lines[at + 1 :])
    if case.body or case.method != "GET":
        lines = tuple(
            line for line in case.lines if not line.startswith(("Content-Length:", "Transfer-Encoding:"))
        )
        start = f"GET {case.start_line.partition(' ')[2]}"
        yield case._replace(start_line=start, lines=lines, body=b"")
    method, target, http = case.start_line.split(" ")
    path, _, query = target.partition("?")
    parameters = query.split("&") if query else []
    for at in range(len(parameters)):
        rest = "&".join(parameters[:at] + parameters[at + 1 :])
        yield case._replace(start_line=f"{method} {path}{f'?{rest}' if rest else ''} {http}")


def _text(finding: Finding) -> str:
    result, case = finding.result, finding.result.case
    return (
        f"case {case.number} of {case.api.name} ({', '.join(case.mutations)}): {finding.disagreement}\n"
        f"  client sends    {case.raw!r}\n"
        f"  gateway sends   {result.forwarded!r}\n"
        f"  negotiated      {result.negotiated or 'nothing'}\n"
        f"  response        {result.response!r}"
    )
