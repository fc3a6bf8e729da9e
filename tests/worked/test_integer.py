"""config/examples/integer.yaml: a plain API with whole numbers in a header."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import Head
from tests.worked.fleet import TRIES, WorkedStand, running
from tests.worked.header_servers import Orders

ASK = "API-Version"


@pytest.fixture
async def stand() -> AsyncIterator[WorkedStand]:
    """1 to 3 and 2 to 4: 2 and 3 are what both serve."""
    async with running("integer", Orders("1", "2", "3"), Orders("2", "3", "4")) as stand:
        assert stand.offer == "2-3"
        yield stand


def told(reply: Head) -> tuple[str | None, str | None, str | None]:
    return reply.get("API-Version-Min"), reply.get("API-Version-Max"), reply.get(ASK)


@pytest.mark.parametrize("said, served", [("2", "2"), ("3", "3"), ("latest", "3"), (None, "2")])
async def test_what_is_on_offer(stand: WorkedStand, said: str | None, served: str) -> None:
    reply = await stand.same("/orders", *([] if said is None else [(ASK, said)]))

    assert (reply.status, told(reply), reply.get("Vary")) == (200, ("2", "3", served), ASK)
    assert stand.executed() == [served] * TRIES
    assert all(head.versions == {ASK: served} for head in stand.asked)


@pytest.mark.parametrize(
    "said, detail",
    [
        ("4", "Version 4 is not supported. Supported: 2 to 3."),
        ("1", "Version 1 is not supported. Supported: 2 to 3."),
        ("99", "Version 99 is not supported. Supported: 2 to 3."),
        ("03", "03 is no version. Supported: 2 to 3."),
        ("LATEST", "LATEST is no version. Supported: 2 to 3."),
    ],
)
async def test_what_only_one_or_none_serves_is_a_problem(stand: WorkedStand, said: str, detail: str) -> None:
    reply = await stand.same("/orders", (ASK, said))

    assert (reply.status, reply.get("Content-Type"), told(reply)) == (
        400,
        "application/problem+json",
        ("2", "3", None),
    )
    assert json.loads(reply.body) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": detail,
        "minimum": "2",
        "maximum": "3",
    }
    assert stand.asked == []


async def test_the_document_is_the_offer_in_numbers(stand: WorkedStand) -> None:
    reply = await stand.same("/versions", (ASK, "99"))

    assert (reply.status, json.loads(reply.body)) == (200, {"oldest": 2, "newest": 3})
    assert all(head.versions == {} for head in stand.asked)


async def test_the_offer_moves_once_all_are_upgraded(stand: WorkedStand) -> None:
    stand.servers[0].versions = ("2", "3", "4")
    await stand.until_offered("2-4")

    assert told(await stand.same("/orders", (ASK, "latest"))) == ("2", "4", "4")
    assert stand.executed() == ["4"] * TRIES
    assert told(await stand.same("/orders")) == ("2", "4", "2")


async def test_while_nobody_serves_a_version_on_offer_it_is_503(stand: WorkedStand) -> None:
    """An outage is no change of the offer."""
    for server in stand.servers:
        await server.stop()

    reply = await stand.ask("/orders", (ASK, "3"))

    assert (reply.status, reply.get("Retry-After"), told(reply)) == (503, "2", ("2", "3", None))
    assert json.loads(reply.body)["title"] == "Service Unavailable"
