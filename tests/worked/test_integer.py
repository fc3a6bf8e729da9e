"""config/examples/integer.yaml: a plain API with whole numbers in a header."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import Head
from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed, running
from tests.worked.header_servers import Orders

VERSION = "API-Version"


@pytest.fixture
async def testbed() -> AsyncIterator[WorkedTestbed]:
    """1 to 3 and 2 to 4. Both serve 2 and 3."""
    async with running("integer", Orders("1", "2", "3"), Orders("2", "3", "4")) as testbed:
        assert testbed.offer == "2-3"
        yield testbed


def version_headers(response: Head) -> tuple[str | None, str | None, str | None]:
    return response.get("API-Version-Min"), response.get("API-Version-Max"), response.get(VERSION)


@pytest.mark.parametrize("requested, served", [("2", "2"), ("3", "3"), ("latest", "3"), (None, "2")])
async def test_versions_on_offer(testbed: WorkedTestbed, requested: str | None, served: str) -> None:
    response = await testbed.repeated("/orders", *([] if requested is None else [(VERSION, requested)]))

    assert (response.status, version_headers(response), response.get("Vary")) == (
        200,
        ("2", "3", served),
        VERSION,
    )
    assert testbed.executed() == [served] * REPEATS
    assert all(head.versions == {VERSION: served} for head in testbed.forwarded)


@pytest.mark.parametrize(
    "requested, detail",
    [
        ("4", "Version 4 is not supported. Supported: 2 to 3."),
        ("1", "Version 1 is not supported. Supported: 2 to 3."),
        ("99", "Version 99 is not supported. Supported: 2 to 3."),
        ("03", "03 is no version. Supported: 2 to 3."),
        ("LATEST", "LATEST is no version. Supported: 2 to 3."),
    ],
)
async def test_a_version_that_not_both_serve_gets_a_problem_document(
    testbed: WorkedTestbed, requested: str, detail: str
) -> None:
    response = await testbed.repeated("/orders", (VERSION, requested))

    assert (response.status, response.get("Content-Type"), version_headers(response)) == (
        400,
        "application/problem+json",
        ("2", "3", None),
    )
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": detail,
        "minimum": "2",
        "maximum": "3",
    }
    assert testbed.forwarded == []


async def test_the_document_shows_the_offer_as_numbers(testbed: WorkedTestbed) -> None:
    response = await testbed.repeated("/versions", (VERSION, "99"))

    assert (response.status, json.loads(response.body)) == (200, {"oldest": 2, "newest": 3})
    assert all(head.versions == {} for head in testbed.forwarded)


async def test_the_offer_moves_once_all_are_upgraded(testbed: WorkedTestbed) -> None:
    testbed.servers[0].versions = ("2", "3", "4")
    await testbed.until_offered("2-4")

    assert version_headers(await testbed.repeated("/orders", (VERSION, "latest"))) == ("2", "4", "4")
    assert testbed.executed() == ["4"] * REPEATS
    assert version_headers(await testbed.repeated("/orders")) == ("2", "4", "2")


async def test_503_while_no_server_can_be_reached(testbed: WorkedTestbed) -> None:
    """An outage does not change the offer."""
    for server in testbed.servers:
        await server.stop()

    response = await testbed.send("/orders", (VERSION, "3"))

    assert (response.status, response.get("Retry-After"), version_headers(response)) == (
        503,
        "2",
        ("2", "3", None),
    )
    assert json.loads(response.body)["title"] == "Service Unavailable"
