"""Runs cases through the gateway, and compares what all readers read from what it forwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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


def explain(report: Report) -> str:
    """The report, and one case of each kind of disagreement: a few of them."""
    kinds = {
        (finding.result.case.api.name, finding.disagreement.location): finding
        for finding in reversed(report.findings)
    }
    return "\n\n".join([str(report), *map(_text, list(kinds.values())[-8:])])


def _text(finding: Finding) -> str:
    result, case = finding.result, finding.result.case
    return (
        f"case {case.number} of {case.api.name} ({', '.join(case.mutations)}): {finding.disagreement}\n"
        f"  client sends    {case.raw!r}\n"
        f"  gateway sends   {result.forwarded!r}\n"
        f"  negotiated      {result.negotiated or 'nothing'}\n"
        f"  response        {result.response!r}"
    )
