"""docs/dialects.md: one section for every dialect, all in one form, and true of the dialects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from gateway.core.dialect import MissingOperation, Refusal, RefusalReason, RequestedKind, RequestedVersion
from gateway.core.http.message import as_mapping, normalize_name
from gateway.core.versions.version import Version
from gateway.dialects import discover
from tests.dialects.dialect_samples import DIALECT_SAMPLES, DialectSample, negotiated_endpoints
from tests.dialects.test_conformance import response_text
from tests.docs import releases_page
from tests.docs.pages import page, prose, rows, section

PAGE: Final = page("docs/dialects.md")

HEADINGS: Final = (
    "What is read",
    "What is written",
    "What is refused",
    "What a backend refuses",
    "How a backend is probed",
    "Clients, and what to know",
)
TABLES: Final = {
    "What is read": ["", ""],
    "What is written": ["to", ""],
    "What is refused": ["case", "status", "range", "text"],
}

every_dialect = pytest.mark.parametrize("name", list(discover()))


def part(name: str, heading: str) -> str:
    """The text below a heading in a dialect's section."""
    found = re.search(rf"^### {heading}\n(.*?)(?=^### |\Z)", section(PAGE, name), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name}: no {heading!r}"
    return found[1]


def samples_of(name: str) -> Iterator[DialectSample]:
    return (sample for sample in DIALECT_SAMPLES if sample.dialect.name == name)


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
    assert heads == TABLES


@every_dialect
def test_every_header_that_is_read_or_written_is_named(name: str) -> None:
    text = normalize_name(section(PAGE, name))
    for sample in samples_of(name):
        if sample.label == name or ("," not in sample.label and "headers of its own" not in sample.label):
            for header in sample.dialect.reads | sample.dialect.owned_request:
                assert header in text, f"{sample.label}: {header}"


def plain(text: str) -> str:
    """Without the numbers: those of the page differ from those of the tests."""
    return re.sub(r"\d+(\.\d+)?", "#", text)


def refusals(sample: DialectSample) -> Iterator[str]:
    """The refusals of versions below, above and of another major, and of the malformed texts of the page."""
    dialect, offered = sample.dialect, sample.offered
    endpoint = negotiated_endpoints(sample)[0]
    other = Version(sample.versions[0][0] + 1, *sample.versions[0][1:])
    for version in (sample.versions[0], sample.versions[5], other):
        reason = RefusalReason.BELOW_MIN if version < offered.lowest else RefusalReason.ABOVE_MAX
        requested = RequestedVersion(RequestedKind.EXACT, version, sample.text(version))
        response = dialect.refuse(Refusal(reason, requested, version, offered), endpoint, as_mapping([]))
        yield f"{response.status} {response_text(response)}"
    for text in ("spam", "nope"):
        refusal = Refusal(
            RefusalReason.MALFORMED, RequestedVersion(RequestedKind.MALFORMED, text=text), None, offered
        )
        response = dialect.refuse(refusal, endpoint, as_mapping([]))
        yield f"{response.status} {response_text(response)}"
    version = sample.versions[2]
    missing = MissingOperation(
        version, RequestedVersion(RequestedKind.EXACT, version, sample.text(version)), offered
    )
    response = dialect.refuse_operation(missing)
    yield f"{response.status} {response_text(response)}"


@every_dialect
def test_refusals_have_the_texts_of_the_page(name: str) -> None:
    responses = [text.replace("\\", "") for sample in samples_of(name) for text in refusals(sample)]
    plain_responses = [plain(response) for response in responses]
    table = rows(part(name, "What is refused"))
    (operation,) = (row for row in table if row[0].startswith("an operation outside its versions"))
    listed = [row for row in table if row is operation or row[1].startswith(("400", "406"))]

    assert len(listed) > 1
    text = operation[3].split("`")[1]
    assert any(
        plain(text) in plain(response) and response.startswith(operation[1][:3]) for response in responses
    )
    for case, _, _, text in listed:
        for quoted in re.findall(r"`([^`]+)`", text):
            assert any(plain(quoted) in response for response in plain_responses), f"{case}: {quoted}"


def test_the_releases_are_those_of_the_dialects() -> None:
    written = page("docs/releases.md")
    assert written == releases_page.page_as_it_should_be(written), f"run: {releases_page.COMMAND}"
