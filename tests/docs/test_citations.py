"""Reasons that code and pages cite can be looked up inside the repository.

    threats V9      threats S1, S2     threats S1-S19      rows of docs/threats.md
    semantics, Offering                                    a heading of docs/semantics.md
    (dialects, nova)     (dialects, nova, What is read)    headings of docs/dialects.md
    decision 0012                                          a file of docs/decisions/
    docs/metrics.md      tests/core/test_offer.py          a file or folder

References to RFCs and CVEs pass. Words by which earlier texts cited documents outside the repository are
faults. Citations may be wrapped over lines, also in comments.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.architecture.source import ROOT, project_files, project_texts
from tests.docs.pages import page, prose, rows, section

THIS_FILE: Final = Path(__file__).resolve().relative_to(ROOT).as_posix()
"""Not read: its tables hold citations that lead nowhere."""

READ: Final = (
    *("gateway/*.py", "tests/*.py", "bench/*.py", "docs/*.md", "README.md"),
    *("config/*.yaml", "deploy/*", ".ci/*"),
)
"""`*` matches slashes, too."""

OUTSIDE: Final = {
    word: re.compile(pattern, re.IGNORECASE)
    for word, pattern in (
        ("hardening", r"\bhardening\b"),
        ("design", r"\bdesign +sections?\b"),
        ("protocols", r"\bprotocols +real\b"),
        ("protocols ", r"\bprotocols +(?!1\.[0-3]\b)[0-9][0-9.]*"),  # 1.0 to 1.3 are Chef's signing protocols
        ("style", r"\bstyle +A[0-9]+"),
        ("finding", r"\bfinding +[0-9]+"),
        ("shared", r"\bshared(?:/[\w.-]*| +(?:design|scenarios))"),
        (".md", r"\b(?:agreement|design|hardening|protocols|real-servers|scenarios|style)\.md\b"),
    )
}
"""By what a text must contain so that it can match: few do, and to find that out is quick."""

_ID: Final = re.compile(r"(?:R3?-)?[A-Z][0-9]{1,2}")
_SPAN: Final = rf"{_ID.pattern}(?:-(?:R3?-)?[A-Z]?[0-9]{{1,2}})?(?!\w)"
_PARTS: Final = re.compile(r"((?:R3?-)?[A-Z])([0-9]+)(?:-(.+))?")
"""The letter of an id, its number, and the end of a span."""
_THREATS: Final = re.compile(rf"\bthreats +({_SPAN}(?:(?:, and|,| and) +{_SPAN})*)")
_NO_THREAT: Final = re.compile(rf"[(;] *(threats\b)(?! +{_SPAN}|\.md\b)")
_SEMANTICS: Final = re.compile(r"\bsemantics, +(?=[A-Z])")
_NO_HEADING: Final = re.compile(r"[(;] *semantics\b(?!, +[A-Z]|\.md\b)")
_DIALECTS: Final = re.compile(r"[(;] *dialects, +(?=[A-Za-z])")
_DECISION: Final = re.compile(r"\bdecisions? +([0-9]{4})\b")
_PATH: Final = re.compile(r"(?<![\w./*-])((?:docs|tests)/[\w./*-]+)")
_WRAP: Final = re.compile(r"\s*\n[ \t]*(?:#:?(?= ))?")


class Targets(NamedTuple):
    """What can be cited."""

    threats: frozenset[str]
    semantics: frozenset[str]
    dialects: dict[str, frozenset[str]]
    """The headings below each dialect's own."""
    decisions: frozenset[str]
    paths: frozenset[str]
    """Files and folders below the project."""


class Fault(NamedTuple):
    """A citation that leads nowhere."""

    line: int
    citation: str


# --- the checker -------------------------------------------------------------------------------------------


def faults(text: str, targets: Targets) -> list[Fault]:
    """Every citation in `text` that `targets` does not hold, by line."""
    # Line ends become blanks, as many as there were, so that positions stay.
    joined = _WRAP.sub(lambda found: " " * len(found[0]), text)
    found = [*_outside(joined), *_threats(joined, targets), *_headings(joined, targets)]
    found += _decisions(joined, targets)
    found += _paths(joined, targets)
    return sorted(Fault(text.count("\n", 0, at) + 1, " ".join(citation.split())) for at, citation in found)


def _outside(text: str) -> Iterator[tuple[int, str]]:
    lowered = text.lower()
    for pattern in (pattern for word, pattern in OUTSIDE.items() if word in lowered):
        yield from ((found.start(), found[0]) for found in pattern.finditer(text))


def _threats(text: str, targets: Targets) -> Iterator[tuple[int, str]]:
    for found in _NO_THREAT.finditer(text):
        yield found.start(1), text[found.start(1) : found.end() + 20]
    for found in _THREATS.finditer(text):
        for each in re.split(r",? +and +|, +", found[1]):
            if not set(spanned(each)) <= targets.threats:
                yield found.start(), f"threats {each}"


def spanned(citation: str) -> list[str]:
    """The ids that `S1` or `S1-S19` stands for; one that does not exist for a span that is none."""
    parts = _PARTS.fullmatch(citation)
    assert parts is not None
    letter, low, last = parts[1], int(parts[2]), parts[3]
    if last is None:
        return [citation]
    last = last.removeprefix(letter)
    high = int(last) if last.isdigit() else -1
    return [f"{letter}{number}" for number in range(low, high + 1)] or [citation]


def _headings(text: str, targets: Targets) -> Iterator[tuple[int, str]]:
    for found in _NO_HEADING.finditer(text):
        yield found.start(), text[found.start() : found.end() + 20]
    for found in _SEMANTICS.finditer(text):
        if _heading_at(text, found.end(), targets.semantics) is None:
            yield found.start(), text[found.start() : found.end() + 20]
    for found in _DIALECTS.finditer(text):
        dialect = _heading_at(text, found.end(), targets.dialects)
        below = "" if dialect is None else text[found.end() + len(dialect) :]
        part = re.match(r", +(?=[A-Z])", below)
        if dialect is None or (part and _heading_at(below, part.end(), targets.dialects[dialect]) is None):
            yield found.start(), text[found.start() : found.end() + 40]


def _heading_at(text: str, at: int, headings: Iterable[str]) -> str | None:
    """The longest of `headings` that stands at this position as a whole."""
    for heading in sorted(headings, key=len, reverse=True):
        words = " +".join(map(re.escape, heading.split()))
        if re.compile(rf"{words}(?!\w)").match(text, at):
            return heading
    return None


def _decisions(text: str, targets: Targets) -> Iterator[tuple[int, str]]:
    for found in _DECISION.finditer(text):
        if found[1] not in targets.decisions:
            yield found.start(), found[0]


def _paths(text: str, targets: Targets) -> Iterator[tuple[int, str]]:
    for found in _PATH.finditer(text):
        path = found[1].rstrip("./-")
        if path not in targets.paths and not ("*" in path and fnmatch.filter(targets.paths, path)):
            yield found.start(), found[1]


_NAMED: Final = re.compile(r"([a-z]\w*(?:/\w+)+)(?:::(test_\w+))?(?: \((all|\d+)\))?")
"""`dataplane/framing` is tests/dataplane/test_framing.py; then one test, or how many with the row's id."""


def unnamed(row: str, cell: str) -> list[str]:
    """What is wrong with the last cell of a row of docs/threats.md: tests that do not exist, fewer tests with
    the id of the row in their name than the cell says, or neither a test nor the reason why there is none."""
    if re.match(r"none: \w", cell):
        return []
    spelled = re.sub(r"`tests/([\w/]+/)test_(\w+)\.py`", r"\1\2", cell)  # in full where it reads as a page
    named = [(part, _NAMED.fullmatch(part)) for part in spelled.split(", ")]
    return [part for part, found in named if found is None or not _is_test(row, *found.groups())]


def _is_test(row: str, name: str, function: str | None, number: str | None) -> bool:
    """Whether one test, or so many tests of the row, exist. `number`: `all` is the file as a whole."""
    folder, _, module = name.rpartition("/")
    path = f"tests/{folder}/test_{module}.py"
    if not (ROOT / path).is_file():
        return False
    if function is not None or number == "all":
        return function is None or function in _functions(path)
    prefix = f"test_{row.replace('-', '_')}_"
    return sum(each.startswith(prefix) for each in _functions(path)) >= int(number or 1)


@cache
def _functions(path: str) -> frozenset[str]:
    """The test functions of a module."""
    body = ast.parse(page(path)).body
    named = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in named if name.startswith("test_"))


def misplaced(text: str) -> list[str]:
    """Ids of a page like docs/threats.md that stand in it twice, or in another letter's section."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^## (.+)$", text, re.MULTILINE):
        ids = [row[0] for row in rows(section(text, heading)) if _ID.fullmatch(row[0])]
        seen.update(ids)
        found += [each for each in ids if not heading.startswith(f"{each.rstrip('0123456789')}: ")]
    return found + [each for each, times in seen.items() if times > 1]


# --- the repository ----------------------------------------------------------------------------------------

THREATS: Final = page("docs/threats.md")
THREAT_ROWS: Final = [row for row in rows(THREATS) if _ID.fullmatch(row[0])]


def _dialects() -> dict[str, frozenset[str]]:
    text = page("docs/dialects.md")
    names = re.findall(r"^## (.+)$", prose(text), re.MULTILINE)
    return {name: frozenset(re.findall(r"^###+ (.+)$", section(text, name), re.MULTILINE)) for name in names}


@cache
def targets() -> Targets:
    """What can be cited in this repository."""
    files = [path.relative_to(ROOT) for path in project_files()]
    folders = {folder for path in files for folder in path.parents}
    records = (path.name[:4] for path in files if path.parent.as_posix() == "docs/decisions")
    return Targets(
        frozenset(row[0] for row in THREAT_ROWS),
        frozenset(re.findall(r"^## (.+)$", page("docs/semantics.md"), re.MULTILINE)),
        _dialects(),
        frozenset(records),
        frozenset(path.as_posix() for path in (*files, *folders)),
    )


def test_every_citation_leads_somewhere() -> None:
    found = [
        f"{path}:{fault.line}: {fault.citation}"
        for path, text in project_texts()
        if path != THIS_FILE and any(fnmatch.fnmatch(path, pattern) for pattern in READ)
        for fault in faults(text, targets())
    ]

    assert not found, "\n".join([f"{len(found)} citations lead nowhere:", *found])


def test_ids_of_threats_are_unique_and_stand_below_their_letter() -> None:
    assert THREAT_ROWS
    assert misplaced(THREATS) == []


def test_every_letter_of_threats_is_explained() -> None:
    assert all(
        re.match(r"(?:R3?-)?[A-Z]: \w|Limits", heading)
        for heading in re.findall(r"^## (.+)$", THREATS, re.MULTILINE)
    )


def test_every_test_that_threats_names_exists() -> None:
    found = [f"{row[0]}: {name}" for row in THREAT_ROWS for name in unnamed(row[0], row[-1])]

    assert not found, "\n".join(found)
    assert {len(row) for row in THREAT_ROWS} == {4}


# --- the checker itself ------------------------------------------------------------------------------------

SAMPLE: Final = Targets(
    threats=frozenset({"S1", "S2", "S3", "V9"}),
    semantics=frozenset({"Offering", "Refusals by a backend"}),
    dialects={"nova": frozenset({"What is read", "Clients, and what to know"})},
    decisions=frozenset({"0012"}),
    paths=frozenset({"docs", "docs/metrics.md", "tests", "tests/core", "tests/core/test_offer.py"}),
)


@pytest.mark.parametrize(
    "text",
    [
        "Counted (threats V9).",
        "(RFC 9112 6.3, threats S1-S3)",
        "(threats S1-3, V9)",
        "(threats S1, S2 and V9; semantics, Offering)",
        "So that it is bounded (threats\n    S1,\n    S2).",
        "# Bounded (threats\n    # V9).",
        "(semantics, Refusals by a\n    backend)",
        "`(semantics, Offering)`",
        "(dialects, nova)",
        "(dialects, nova, What is read)",
        "(dialects, nova, Clients, and what to know)",
        "(dialects, nova, whatever the release)",
        "decision 0012, RFC 9110 9.2.2, CVE-2025-4366",
        "docs/metrics.md, `tests/core/test_offer.py::test_x`, tests/core/, docs/*.md and tests/core.",
        "The rules ([semantics](semantics.md)) and the attacks ([threats](threats.md)).",
        "All threats and semantics, whatever they are; dialects are pure.",
        "protocols 1.0, 1.1 and 1.2 leave it out; asyncio protocols; protocols before 1.2",
        "other/docs/nothing.md",
    ],
)
def test_good_citations_pass(text: str) -> None:
    assert faults(text, SAMPLE) == []


@pytest.mark.parametrize(
    "text, line, citation",
    [
        ("(threats V8)", 1, "threats V8"),
        ("\n(threats V9,\n   B1)", 2, "threats B1"),
        ("# a\n# (threats\n# V1)", 2, "threats V1"),
        ("(threats S1-S4)", 1, "threats S1-S4"),
        ("(threats S3-S1)", 1, "threats S3-S1"),
        ("(threats S1-V9)", 1, "threats S1-V9"),
        ("(threats V99)", 1, "threats V99"),
        ("(threats Retries)", 1, "threats Retries)"),
        ("(semantics, Settling)", 1, "semantics, Settling)"),
        ("as in semantics, Offerings", 1, "semantics, Offerings"),
        ("(semantics Offering)", 1, "(semantics Offering)"),
        ("(semantics, offering)", 1, "(semantics, offering)"),
        ("(dialects, novae)", 1, "(dialects, novae)"),
        ("(dialects, nova, What is said)", 1, "(dialects, nova, What is said)"),
        ("decisions 0099", 1, "decisions 0099"),
        ("docs/nothing.md", 1, "docs/nothing.md"),
        ("see\ntests/core/test_nothing.py.", 2, "tests/core/test_nothing.py."),
        ("docs/decisions/0099-*.md", 1, "docs/decisions/0099-*.md"),
        ("(hardening\n    O4)", 1, "hardening"),
        ("Design section 2", 1, "Design section"),
        ("(design\n    section 2, Replying)", 1, "design section"),
        ("(protocols 8)", 1, "protocols 8"),
        ("(protocols 14.8)", 1, "protocols 14.8"),
        ("protocols real-servers 12", 1, "protocols real"),
        ("(style A9)", 1, "style A9"),
        ("(finding 9)", 1, "finding 9"),
        ("/work/shared/notes", 1, "shared/notes"),
        ("(shared scenarios, Rolling upgrade)", 1, "shared scenarios"),
        ("design.md", 1, "design.md"),
    ],
)
def test_faulty_citations_are_noticed(text: str, line: int, citation: str) -> None:
    assert faults(text, SAMPLE) == [Fault(line, citation)]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "none",
        "none: ",
        "later",
        "docs/nothing",
        "docs/citations::test_nothing",
        "docs/citations::faults",
        "docs/citations",
        "docs/citations (3)",
        "docs/citations (all), docs/nothing",
        "docs/pages",
        "`gateway/errors.py`",
    ],
)
def test_a_row_without_a_test_that_exists_is_noticed(cell: str) -> None:
    assert unnamed("R-A1", cell)


@pytest.mark.parametrize(
    "cell",
    [
        "docs/citations (all)",
        "docs/citations::test_good_citations_pass, docs/citations (all)",
        "`tests/docs/test_citations.py` (all)",
        "none: not implemented",
    ],
)
def test_a_row_with_a_test_or_a_reason_passes(cell: str) -> None:
    assert unnamed("R-A1", cell) == []


def test_a_file_stands_for_its_tests_of_the_row() -> None:
    assert unnamed("S1", "dataplane/framing") == []
    assert unnamed("S5", "dataplane/framing (2)") == []
    assert unnamed("S5", "dataplane/framing (9)")


@pytest.mark.parametrize(
    "ids, wrong",
    [(("S1", "S2"), []), (("S1", "S1"), ["S1"]), (("S1", "V2"), ["V2"]), (("V1", "V1"), ["V1", "V1", "V1"])],
)
def test_ids_that_repeat_or_stand_elsewhere_are_noticed(ids: tuple[str, ...], wrong: list[str]) -> None:
    table = "".join(f"| {each} | tried | happens | test |\n" for each in ids)

    assert misplaced(f"# Page\n\n## S: framing\n\n| id | a | b | c |\n|---|---|---|---|\n{table}") == wrong
