"""Documents that were rewritten before: what they are kept by, and how many are kept."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Final

from gateway.core.dialect import Endpoint, Links
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.documents.rewrite_cache import MAX_DOCUMENTS, MAX_SIZE, RewriteCache
from gateway.dialects.openstack.ironic import ROOT, V1, Ironic
from tests.core.builders import service

LINKS: Final = Links("http://10.0.0.5:6385", "a.example", "http://a.example/metal")
BODY: Final = b'{"id": "v1", "versions": [{"version": "1.90", "href": "http://10.0.0.5:6385/v1"}]}'


class CountingIronic(Ironic):
    """Counts how often it rewrites a document."""

    def __init__(self) -> None:
        self.rewritten = 0

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        self.rewritten += 1
        return super().rewrite_document(endpoint, body, offered, links)


def offer(highest: int) -> VersionSet:
    return VersionSet.between(Version(1, 1), Version(1, highest))


def test_R_B12_everything_that_changes_the_result_is_in_the_key() -> None:
    documents, dialect, plain = RewriteCache(), CountingIronic(), Ironic()
    calls = [
        (dialect, V1, BODY, offer(58), LINKS),
        (CountingIronic(), V1, BODY, offer(58), LINKS),
        (dialect, ROOT, BODY, offer(58), LINKS),
        (dialect, V1, BODY + b" ", offer(58), LINKS),
        (dialect, V1, BODY, offer(58), replace(LINKS, host="10.0.0.5:6385")),
        (dialect, V1, BODY, offer(58), replace(LINKS, public="http://b.example")),
        (dialect, V1, BODY, offer(58), replace(LINKS, backend="http://10.0.0.6:6385")),
        (dialect, V1, BODY, offer(58), replace(LINKS, moved_to="http://c.example")),
        (dialect, V1, b"[]", offer(58), LINKS),
    ]

    for _ in range(3):
        for one, *arguments in calls:
            assert documents.rewrite(service(dialect=one), *arguments) == plain.rewrite_document(*arguments)  # type: ignore[arg-type]
    assert (dialect.rewritten, len(documents)) == (len(calls) - 1, len(calls))


def test_R_B12_each_range_has_its_document() -> None:
    documents, dialect = RewriteCache(), CountingIronic()

    for highest in (58, 58, 60, 60, 58):
        written = documents.rewrite(service(dialect=dialect), V1, BODY, offer(highest), LINKS)
        assert written is not None
        assert json.loads(written)["versions"][0]["version"] == f"1.{highest}"

    assert (dialect.rewritten, len(documents)) == (2, 2)


def test_R_B12_what_clients_and_backends_choose_is_bounded() -> None:
    documents, dialect = RewriteCache(), Ironic()

    for number in range(3 * MAX_DOCUMENTS):
        documents.rewrite(
            service(dialect=dialect), V1, BODY, offer(58), replace(LINKS, host=f"host-{number}")
        )
        assert len(documents) <= MAX_DOCUMENTS
    assert len(documents) == MAX_DOCUMENTS

    for number in range(40):
        body = json.dumps({"id": "v1", "x": "x" * 200_000, "y": number}).encode()
        documents.rewrite(service(dialect=dialect), V1, body, offer(58), LINKS)
        assert documents.size <= MAX_SIZE
    assert documents.size > MAX_SIZE / 2
    assert len(documents) < MAX_DOCUMENTS


def test_R_B12_a_document_that_is_too_large_to_be_kept_displaces_no_other() -> None:
    documents, dialect = RewriteCache(), CountingIronic()
    documents.rewrite(service(dialect=Ironic()), V1, BODY, offer(58), LINKS)
    size = documents.size
    body = json.dumps({"id": "v1", "x": "x" * MAX_SIZE}).encode()

    for _ in range(2):
        assert documents.rewrite(service(dialect=dialect), V1, body, offer(58), LINKS) is not None
        assert (len(documents), documents.size) == (1, size)

    assert dialect.rewritten == 2


def test_R_B12_what_was_used_last_stays() -> None:
    documents, dialect = RewriteCache(), CountingIronic()
    documents.rewrite(service(dialect=dialect), V1, BODY, offer(58), LINKS)

    for number in range(2 * MAX_DOCUMENTS):
        documents.rewrite(
            service(dialect=Ironic()), V1, BODY, offer(58), replace(LINKS, host=f"host-{number}")
        )
        documents.rewrite(service(dialect=dialect), V1, BODY, offer(58), LINKS)

    assert dialect.rewritten == 1


def test_a_sunset_that_is_announced_is_a_part_of_the_key() -> None:
    documents, dialect = RewriteCache(), CountingIronic()
    line = Line(dialect.scheme.require("1.20"), date(2030, 1, 1))
    body = BODY.replace(b'"version": ', b'"min_version": "1.1", "version": ', 1)
    announcing = service(dialect=dialect, lifecycle=Lifecycle(None, line))

    for one, expected in ((announcing, "2030-01-01"), (service(dialect=dialect), None)) * 2:
        written = documents.rewrite(one, V1, body, offer(58), LINKS)
        assert written is not None
        assert json.loads(written)["versions"][0].get("not_before") == expected
    assert (dialect.rewritten, len(documents)) == (2, 2)
