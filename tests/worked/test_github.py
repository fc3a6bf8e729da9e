"""config/examples/github.yaml: dates in a header, and one of them as the default version."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed, running
from tests.worked.header_servers import GitHub

VERSION = "X-GitHub-Api-Version"
SELECTED = "X-GitHub-Api-Version-Selected"
OLD, NEW = "2022-11-28", "2026-03-10"


@pytest.fixture
async def testbed() -> AsyncIterator[WorkedTestbed]:
    async with running("github", GitHub(OLD), GitHub(OLD, NEW)) as testbed:
        assert testbed.offer == OLD
        yield testbed


@pytest.mark.parametrize(
    "lines", [[(VERSION, OLD)], [], [(VERSION.lower(), OLD)], [(VERSION, OLD), (VERSION, OLD)]]
)
async def test_the_version_that_both_serve_and_no_version(
    testbed: WorkedTestbed, lines: list[tuple[str, str]]
) -> None:
    response = await testbed.repeated("/user", *lines)

    assert (response.status, response.get(SELECTED), response.get("Vary")) == (200, OLD, VERSION)
    assert testbed.executed() == [OLD] * REPEATS
    assert all(head.versions == {VERSION: OLD} for head in testbed.forwarded)


@pytest.mark.parametrize(
    "requested", [NEW, "2024-01-01", "2010-01-01", "2022-11-31", "2022-11-1", "v3", "latest", '"']
)
async def test_any_other_version_is_refused_with_the_list(testbed: WorkedTestbed, requested: str) -> None:
    """One that only the new server serves, one that no server serves, and malformed ones."""
    response = await testbed.repeated("/user", (VERSION, requested))

    assert response.status == 400
    message = json.loads(response.body)["message"]
    assert message == (
        f"The version {requested} in X-GitHub-Api-Version is not supported. Supported versions: {OLD}."
    )
    assert testbed.forwarded == []


async def test_two_different_dates_are_malformed(testbed: WorkedTestbed) -> None:
    assert (await testbed.repeated("/user", (VERSION, OLD), (VERSION, NEW))).status == 400
    assert testbed.forwarded == []


async def test_the_document_lists_the_offer(testbed: WorkedTestbed) -> None:
    response = await testbed.repeated("/versions")

    assert (response.status, json.loads(response.body)) == (200, [OLD])


async def test_the_offer_moves_and_the_default_version_does_not(testbed: WorkedTestbed) -> None:
    testbed.servers[0].versions = (OLD, NEW)
    await testbed.until_offered(f"{OLD}, {NEW}")

    assert json.loads((await testbed.repeated("/versions")).body) == [OLD, NEW]
    assert (await testbed.repeated("/user", (VERSION, NEW))).get(SELECTED) == NEW
    assert testbed.executed() == [NEW] * REPEATS
    assert (await testbed.repeated("/user")).get(SELECTED) == OLD
    assert testbed.executed() == [OLD] * REPEATS
    between = await testbed.repeated("/user", (VERSION, "2024-01-01"))
    assert (between.status, f"Supported versions: {OLD}, {NEW}." in between.body.decode()) == (400, True)


async def test_a_request_without_a_version_is_refused_once_no_server_serves_the_default(
    testbed: WorkedTestbed,
) -> None:
    for server in testbed.servers:
        server.versions = (NEW,)
    await testbed.until_offered(NEW)

    response = await testbed.repeated("/user")
    assert (response.status, f"The version {OLD}" in response.body.decode()) == (400, True)
