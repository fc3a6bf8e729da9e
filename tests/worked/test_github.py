"""config/examples/github.yaml: dates in a header, and a constant for silence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.worked.fleet import TRIES, WorkedStand, running
from tests.worked.header_servers import GitHub

ASK = "X-GitHub-Api-Version"
SELECTED = "X-GitHub-Api-Version-Selected"
OLD, NEW = "2022-11-28", "2026-03-10"


@pytest.fixture
async def stand() -> AsyncIterator[WorkedStand]:
    async with running("github", GitHub(OLD), GitHub(OLD, NEW)) as stand:
        assert stand.offer == OLD
        yield stand


@pytest.mark.parametrize("lines", [[(ASK, OLD)], [], [(ASK.lower(), OLD)], [(ASK, OLD), (ASK, OLD)]])
async def test_what_both_serve_and_silence(stand: WorkedStand, lines: list[tuple[str, str]]) -> None:
    reply = await stand.same("/user", *lines)

    assert (reply.status, reply.get(SELECTED), reply.get("Vary")) == (200, OLD, ASK)
    assert stand.executed() == [OLD] * TRIES
    assert all(head.versions == {ASK: OLD} for head in stand.asked)


@pytest.mark.parametrize(
    "said", [NEW, "2024-01-01", "2010-01-01", "2022-11-31", "2022-11-1", "v3", "latest", '"']
)
async def test_any_other_is_refused_with_the_list(stand: WorkedStand, said: str) -> None:
    """What only the new one serves, what none does, and what is no date."""
    reply = await stand.same("/user", (ASK, said))

    assert reply.status == 400
    message = json.loads(reply.body)["message"]
    assert message == (
        f"The version {said} in X-GitHub-Api-Version is not supported. Supported versions: {OLD}."
    )
    assert stand.asked == []


async def test_two_dates_are_none(stand: WorkedStand) -> None:
    assert (await stand.same("/user", (ASK, OLD), (ASK, NEW))).status == 400
    assert stand.asked == []


async def test_the_list_is_the_offer(stand: WorkedStand) -> None:
    reply = await stand.same("/versions")

    assert (reply.status, json.loads(reply.body)) == (200, [OLD])


async def test_the_offer_moves_and_silence_does_not(stand: WorkedStand) -> None:
    stand.servers[0].versions = (OLD, NEW)
    await stand.until_offered(f"{OLD}, {NEW}")

    assert json.loads((await stand.same("/versions")).body) == [OLD, NEW]
    assert (await stand.same("/user", (ASK, NEW))).get(SELECTED) == NEW
    assert stand.executed() == [NEW] * TRIES
    assert (await stand.same("/user")).get(SELECTED) == OLD
    assert stand.executed() == [OLD] * TRIES
    between = await stand.same("/user", (ASK, "2024-01-01"))
    assert (between.status, f"Supported versions: {OLD}, {NEW}." in between.body.decode()) == (400, True)


async def test_silence_is_refused_once_no_server_serves_its_date(stand: WorkedStand) -> None:
    for server in stand.servers:
        server.versions = (NEW,)
    await stand.until_offered(NEW)

    reply = await stand.same("/user")
    assert (reply.status, f"The version {OLD}" in reply.body.decode()) == (400, True)
