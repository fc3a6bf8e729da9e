"""config/examples/elasticsearch.yaml: a parameter of the media type, in two headers that must agree."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed, running
from tests.worked.header_servers import Elasticsearch

VENDOR = "application/vnd.elasticsearch+json"
SEARCH = "/orders/_search"


def compatible(version: int, kind: str = VENDOR) -> str:
    return f"{kind}; compatible-with={version}"


@pytest.fixture
async def testbed() -> AsyncIterator[WorkedTestbed]:
    """Release 8 serves 7 and 8, release 9 serves 8 and 9. Both serve only 8."""
    async with running("elasticsearch", Elasticsearch("8.19.0"), Elasticsearch("9.1.0")) as testbed:
        assert testbed.offer == "8"
        yield testbed


async def test_a_version_that_both_serve_is_executed_as_requested(testbed: WorkedTestbed) -> None:
    response = await testbed.repeated(SEARCH, ("Accept", compatible(8)))

    assert (response.status, response.get("Content-Type")) == (200, f"{VENDOR};compatible-with=8")
    assert response.get("Vary") == "Accept, Content-Type"
    assert testbed.executed() == ["8"] * REPEATS


async def test_a_request_with_a_body_has_the_version_in_both_headers(testbed: WorkedTestbed) -> None:
    kind = compatible(8, "application/vnd.elasticsearch+x-ndjson")
    lines = [("Accept", compatible(8)), ("Content-Type", kind)]

    for _ in range(REPEATS):
        response = await testbed.send("/_bulk", *lines, method="POST", body=b'{"index": {}}\n{}\n')
        assert (response.status, json.loads(response.body)["errors"]) == (200, False)

    assert testbed.executed() == ["8"] * REPEATS
    assert {(head.get("Accept"), head.get("Content-Type")) for head in testbed.forwarded} == {
        (compatible(8), kind)
    }


@pytest.mark.parametrize(
    "accept, sent",
    [
        (None, VENDOR),
        ("*/*", VENDOR),
        ("application/json", VENDOR),
        ("application/json, text/plain, */*", VENDOR),
        ("text/plain", "text/vnd.elasticsearch+plain"),
        ("text/plain, application/json;q=0.5", "text/vnd.elasticsearch+plain"),
        ("text/html;q=0.1, application/yaml;q=0.5, */*;q=0.8", VENDOR),
        (f"text/plain;q=0, {VENDOR}", VENDOR),
    ],
)
async def test_a_request_without_a_version_gets_one_in_the_single_type_that_servers_read(
    testbed: WorkedTestbed, accept: str | None, sent: str
) -> None:
    """Otherwise the new server would execute it at 9 and the old one at 8."""
    response = await testbed.repeated(SEARCH, *([] if accept is None else [("Accept", accept)]))

    assert (response.status, response.get("Content-Type")) == (200, f"{sent};compatible-with=8")
    assert testbed.executed() == ["8"] * REPEATS
    assert {head.get("Accept") for head in testbed.forwarded} == {compatible(8, sent)}


async def test_a_plain_body_gets_the_version_in_both_headers(testbed: WorkedTestbed) -> None:
    lines = [("Content-Type", "application/json"), ("Accept", "*/*")]

    for _ in range(REPEATS):
        assert (await testbed.send(SEARCH, *lines, method="POST", body=b"{}")).status == 200

    assert testbed.executed() == ["8"] * REPEATS
    assert {head.get("Content-Type") for head in testbed.forwarded} == {compatible(8)}


@pytest.mark.parametrize("version", [7, 9, 10, 4])
async def test_a_version_that_not_both_serve_is_refused(testbed: WorkedTestbed, version: int) -> None:
    response = await testbed.repeated(SEARCH, ("Accept", compatible(version)))

    document = json.loads(response.body)
    assert (response.status, document["status"]) == (400, 400)
    assert document["error"]["reason"] == f"Version {version} is not supported. Supported: 8."
    assert testbed.forwarded == []


@pytest.mark.parametrize(
    "lines",
    [
        [("Accept", compatible(8)), ("Content-Type", compatible(9))],
        [("Accept", f"{VENDOR}; compatible-with=08")],
        [("Accept", f"{VENDOR}; compatible-with=eight")],
        [("Accept", f"{VENDOR}; compatible-with")],
        [("Accept", f'{VENDOR}; compatible-with="8')],
        [("Accept", f"{compatible(8)}, {compatible(7)}")],
    ],
)
async def test_differing_and_malformed_versions_are_refused(
    testbed: WorkedTestbed, lines: list[tuple[str, str]]
) -> None:
    response = await testbed.repeated(SEARCH, *lines)

    assert (response.status, json.loads(response.body)["error"]["type"]) == (
        400,
        "media_type_header_exception",
    )
    assert testbed.forwarded == []


async def test_the_offer_moves_once_all_are_upgraded(testbed: WorkedTestbed) -> None:
    old, _ = testbed.servers
    assert isinstance(old, Elasticsearch)
    old.upgrade("9.1.0")
    await testbed.until_offered("8-9")

    assert (await testbed.repeated(SEARCH, ("Accept", compatible(9)))).status == 200
    assert testbed.executed() == ["9"] * REPEATS
    assert (await testbed.repeated(SEARCH, ("Accept", compatible(8)))).status == 200
    assert testbed.executed() == ["8"] * REPEATS
    response = await testbed.repeated(SEARCH)
    assert (response.get("Content-Type"), testbed.executed()) == (
        f"{VENDOR};compatible-with=9",
        ["9"] * REPEATS,
    )


async def test_the_root_passes_through_with_the_release_of_the_server_that_responds(
    testbed: WorkedTestbed,
) -> None:
    response = await testbed.send("/", ("Accept", compatible(8)))

    assert json.loads(response.body)["version"]["number"] in ("8.19.0", "9.1.0")
    assert testbed.executed() == ["8"]
