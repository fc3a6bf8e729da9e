"""docs/dialects.md: one section for every dialect, in one form, and what it says is what the dialects do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

import pytest

from gateway.core.dialect import Absence, Ask, AskKind, Reason, Refusal
from gateway.core.message import as_mapping, fold
from gateway.core.version import Version
from gateway.dialects import discover
from tests.dialects.speeches import SPEECHES, Speech, negotiated
from tests.dialects.test_conformance import said_by
from tests.docs.pages import page, prose, rows, section

PAGE: Final = page("docs/dialects.md")

HEADINGS: Final = (
    "What is read",
    "What is written",
    "What is refused",
    "What a backend refuses",
    "How a backend is asked",
    "What can be configured",
    "Clients, and what to know",
    "Releases for ceilings",
)
TABLES: Final = {
    "What is read": ["", ""],
    "What is written": ["to", ""],
    "What is refused": ["case", "status", "range", "text"],
    "What can be configured": ["option", "default", ""],
    "Releases for ceilings": ["maximum", "releases"],
}

every_dialect = pytest.mark.parametrize("name", list(discover()))


def part(name: str, heading: str) -> str:
    """The text below a heading in a dialect's section."""
    found = re.search(rf"^### {heading}\n(.*?)(?=^### |\Z)", section(PAGE, name), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name}: no {heading!r}"
    return found[1]


def speeches(name: str) -> Iterator[Speech]:
    return (speech for speech in SPEECHES if speech.dialect.name == name)


def test_the_sections_are_those_of_the_dialects_in_their_order() -> None:
    found = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)

    assert found == [*discover(), "Another dialect"]


def test_the_first_table_has_them_all() -> None:
    listed = rows(PAGE.split("\n## ", 1)[0])

    assert [row[0] for row in listed] == [f"[{name}](#{name})" for name in discover()]


@every_dialect
def test_a_section_has_the_form_of_the_others(name: str) -> None:
    text = section(PAGE, name)
    heads = {
        heading: [cell.strip() for cell in found[1].strip("|").split("|")]
        for heading in TABLES
        if (found := re.search(r"^(\|.*)\n\|-", prose(part(name, heading)), re.MULTILINE))
    }

    assert tuple(re.findall(r"^### (.+)$", text, re.MULTILINE)) == HEADINGS
    wanted = dict(TABLES)
    if not any(speech.dialect.releases for speech in speeches(name)):
        del wanted["Releases for ceilings"]
    assert heads == wanted


@every_dialect
def test_every_header_that_is_read_or_written_is_named(name: str) -> None:
    told = fold(section(PAGE, name))
    for speech in speeches(name):
        if speech.label == name or ("," not in speech.label and "headers of its own" not in speech.label):
            for header in speech.dialect.reads | speech.dialect.owned_request:
                assert header in told, f"{speech.label}: {header}"


@every_dialect
def test_every_option_is_listed(name: str) -> None:
    listed = [row[0].strip("`") for row in rows(part(name, "What can be configured"))]

    assert listed == ([each.name for each in fields(discover()[name].Options)] or ["none of its own"])


def plain(text: str) -> str:
    """Without the numbers, of which the page has others than the tests."""
    return re.sub(r"\d+(\.\d+)?", "#", text)


def refusals(speech: Speech) -> Iterator[str]:
    """What the dialect says, to versions below, above and of another major, and to the page's garbage."""
    dialect, offer = speech.dialect, speech.offer
    place = negotiated(speech)[0]
    other = Version(speech.ladder[0][0] + 1, *speech.ladder[0][1:])
    for version in (speech.ladder[0], speech.ladder[5], other):
        reason = Reason.BELOW_MIN if version < offer.lowest else Reason.ABOVE_MAX
        ask = Ask(AskKind.EXACT, version, speech.text(version))
        reply = dialect.refuse(Refusal(reason, ask, version, offer), place, as_mapping([]))
        yield f"{reply.status} {said_by(reply)}"
    for text in ("spam", "nope"):
        refusal = Refusal(Reason.MALFORMED, Ask(AskKind.GARBLED, text=text), None, offer)
        reply = dialect.refuse(refusal, place, as_mapping([]))
        yield f"{reply.status} {said_by(reply)}"
    version = speech.ladder[2]
    absence = Absence(version, Ask(AskKind.EXACT, version, speech.text(version)), offer)
    reply = dialect.refuse_operation(absence, place)
    yield f"{reply.status} {said_by(reply)}"


@every_dialect
def test_refusals_say_what_the_page_says(name: str) -> None:
    replies = [each.replace("\\", "") for speech in speeches(name) for each in refusals(speech)]
    said = [plain(each) for each in replies]
    table = rows(part(name, "What is refused"))
    (operation,) = (row for row in table if row[0].startswith("an operation outside its versions"))
    listed = [row for row in table if row is operation or row[1].startswith(("400", "406"))]

    assert len(listed) > 1
    worded = operation[3].split("`")[1]
    assert any(plain(worded) in plain(each) and each.startswith(operation[1][:3]) for each in replies)
    for case, _, _, text in listed:
        for quoted in re.findall(r"`([^`]+)`", text):
            assert any(plain(quoted) in each for each in said), f"{case}: {quoted}"


@every_dialect
def test_the_releases_are_those_of_the_dialect(name: str) -> None:
    """Each table of releases, and no other; which of several is whose stands above it."""
    told = [
        {release: highest for highest, releases in rows(text) for release in releases.split(", ")}
        for text in part(name, "Releases for ceilings").split("\n#### ")
        if rows(text)
    ]
    own: list[dict[str, str]] = []
    for speech in speeches(name):
        table = {release: speech.text(highest) for release, highest in speech.dialect.releases.items()}
        if table and table not in own:
            own.append(table)

    assert told == own
