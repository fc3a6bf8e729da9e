"""What a document of a backend may cost: nothing else is served while it is parsed and rewritten.

Times are CPU times, and compared with another work of the same machine.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Final

import pytest

from gateway.core.dialect import (
    Advertisement,
    Dialect,
    Endpoint,
    Links,
    ProbeFault,
    ProbeResponse,
)
from gateway.core.http.message import as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.dialect import Custom
from gateway.dialects.custom.options import CustomOptions, DocumentOptions, LearnOptions
from gateway.dialects.openstack.ironic import V1, Ironic
from gateway.dialects.openstack.nova import Nova

SIZE: Final = 256 * 1024
"""The default of `limits.document`."""
VALUES: Final = 5_000
"""Values in a document that is read."""

IRONIC: Final = Ironic()
IRONIC_OFFER: Final = VersionSet.between(Version(1, 1), Version(1, 58))
NOVA: Final = Nova()
NOVA_ROOT: Final = NOVA.endpoint("GET", "/", "")
NOVA_OFFER: Final = VersionSet.between(Version(2, 1), Version(2, 58))
LINKS: Final = Links("http://10.0.0.5:6385", "api.test", "https://api.test/metal")

DOCUMENTS: Final = (
    DocumentOptions(path="/ends", minimum="$.x[*].min", maximum="$.x[*].max", links="$.x[*].href"),
    DocumentOptions(path="/end", minimum="$.min", maximum="$.max"),
    DocumentOptions(path="/list", list="$.x[*]"),
    DocumentOptions(path="/objects", list="$.x[*].id", links="$.x[*].href"),
    DocumentOptions(path="/lists", list="$.x[*][*]"),
)
CUSTOM: Final = Custom.configured(
    CustomOptions(learn=LearnOptions(path="/end", minimum="$.min", maximum="$.max"), documents=DOCUMENTS)
)
CUSTOM_OFFER: Final = VersionSet.between(Version(1), Version(1000))


def filled(
    item: str, *, before: str = '{"id": "v1", "versions": [], "x": [', values: int | None = None
) -> bytes:
    """A document of one list with as many `item` as fit into 256 KiB, or so many values."""
    number = (SIZE - len(before) - 2) // (len(item) + 1)
    if values is not None:
        commas = item.count(",") + item.count("[") + item.count("{")
        number = min(number, (values - 20) // (commas + 1))
    return f"{before}{','.join([item] * number)}]}}".encode()


def cost(work: Callable[[], object], runs: int = 3) -> float:
    """The least CPU time that it took."""
    times = []
    for _ in range(runs):
        begin = process_time()
        work()
        times.append(process_time() - begin)
    return min(times)


def unit() -> float:
    """What it takes to parse 256 KiB of numbers, and nothing else: 3 to 4 ms on a slow machine."""
    body = b"[" + b",".join([b"1"] * (SIZE // 2 - 1)) + b"]"
    return cost(lambda: json.loads(body))


def rewriting(dialect: Dialect, endpoint: Endpoint, offered: VersionSet, body: bytes) -> Callable[[], object]:
    return lambda: dialect.rewrite_document(endpoint, body, offered, LINKS)


def custom(path: str, body: bytes) -> Callable[[], object]:
    return rewriting(CUSTOM, CUSTOM.endpoint("GET", path, ""), CUSTOM_OFFER, body)


def ironic(body: bytes) -> Callable[[], object]:
    return rewriting(IRONIC, V1, IRONIC_OFFER, body)


HOSTILE: Final = {
    "lists": ironic(filled("[]")),
    "lists in lists": ironic(filled("[" * 10 + "]" * 10)),
    "objects in objects": ironic(filled('{"":' * 10 + "1" + "}" * 10)),
    "objects": ironic(filled("{}", before='{"id": "v1", "versions": [')),
    "numbers": ironic(filled("1")),
    "floats": ironic(filled("1e9")),
    "long numbers": ironic(filled("9" * 4300)),
    "texts": ironic(filled('""')),
    "members": ironic(b'{"id": "v1", ' + b", ".join(b'"%x": {}' % n for n in range(20_000)) + b"}"),
    "links": ironic(filled('{"href":"/"}')),
    "versions": ironic(filled('{"version":"1.1"}', before='{"id": "v1", "versions": [')),
    "custom minimum": custom("/ends", filled('{"min":1,"max":9}')),
    "custom list": custom("/list", filled("1")),
    "custom objects": custom("/objects", filled('{"id":2,"href":"/"}')),
}


@pytest.mark.load
@pytest.mark.parametrize("shape", HOSTILE)
def test_R_B12_a_document_with_too_many_values_costs_less_than_parsing_it(shape: str) -> None:
    assert cost(HOSTILE[shape]) < 2 * unit()


DENSE: Final = {
    "lists": ironic(filled("[]", values=VALUES)),
    "deep": ironic(filled("[" * 30 + "]" * 30, values=VALUES)),
    "floats": ironic(filled("1.12345678901234567e300", values=VALUES)),
    "long numbers": ironic(filled("9" * 300, values=VALUES)),
    "escapes": ironic(filled('"' + "\\u00e9" * 3 + '"', values=VALUES)),
    "one long text": ironic(filled('"' + "\\n" * 130_000 + '"')),
    "lone surrogates": ironic(filled('"' + "\\ud800" * 43_000 + '"')),
    "links": ironic(filled('{"href":"http://10.0.0.5:6385/v1"}', values=VALUES)),
    "versions": ironic(filled('{"version":"1.1","min_version":"1.1","max_version":"1.1"}', values=VALUES)),
    "choices": rewriting(
        NOVA, NOVA_ROOT, NOVA_OFFER, filled('{"id":"v2.1","href":"/"}', before='{"choices":[', values=VALUES)
    ),
    "custom minimum": custom("/ends", filled('{"min":1,"max":9,"href":"/"}', values=2000)),
    "a long word": custom("/end", b'{"max": 1, "min": "%b"}' % (b"z" * 250_000)),
    "custom list": custom("/list", filled("1", values=1000)),
    "custom objects": custom("/objects", filled('{"id":2,"href":"/"}', values=3000)),
}


@pytest.mark.load
@pytest.mark.parametrize("shape", DENSE)
def test_R_B12_the_densest_document_that_is_read_costs_little_more(shape: str) -> None:
    """About 10 ms."""
    assert cost(DENSE[shape]) < 6 * unit()


def test_R_B12_a_short_document_does_not_become_a_huge_one() -> None:
    body = filled("[1]", values=800)
    written = CUSTOM.rewrite_document(CUSTOM.endpoint("GET", "/lists", ""), body, CUSTOM_OFFER, LINKS)

    assert written is None


def test_R_B12_a_few_lists_get_the_whole_offer() -> None:
    def written(lists: int) -> bytes | None:
        body = json.dumps({"x": [[1]] * lists}).encode()
        return CUSTOM.rewrite_document(CUSTOM.endpoint("GET", "/lists", ""), body, CUSTOM_OFFER, LINKS)

    assert json.loads(written(5) or b"") == {"x": [list(range(1, 1001))] * 5}
    assert written(6) is None


def nested(levels: int) -> bytes:
    """A document that advertises 1 to 9, so many levels deep."""
    return b'{"min": 1, "max": 9, "x": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def end_of(levels: int) -> bytes | None:
    return CUSTOM.rewrite_document(CUSTOM.endpoint("GET", "/end", ""), nested(levels), CUSTOM_OFFER, LINKS)


def probed(body: bytes) -> object:
    response = ProbeResponse(200, as_mapping((("Content-Type", "application/json"),)), body)
    return CUSTOM.probe((response,), None)


def test_R_B12_a_document_may_nest_32_levels() -> None:
    assert end_of(32) is not None
    assert probed(nested(32)) == Advertisement(VersionSet.between(Version(1), Version(9)))


def test_R_B12_a_document_of_33_levels_is_none() -> None:
    assert end_of(33) is None
    assert isinstance(probed(nested(33)), ProbeFault)


def test_R_B12_a_probe_reads_no_document_with_too_many_values() -> None:
    assert isinstance(probed(filled("1", before='{"min": 1, "max": 9, "x": [')), ProbeFault)


ONES: Final = ",".join(["1"] * (VALUES - 4))


def test_R_B12_a_document_may_have_5000_values() -> None:
    assert isinstance(probed(f'{{"min": 1, "max": 9, "x": [{ONES}]}}'.encode()), Advertisement)
