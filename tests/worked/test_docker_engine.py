"""config/examples/docker-engine.yaml: versions in the path, and a document that tells the range twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.worked.fleet import TRIES, WorkedStand, running
from tests.worked.path_servers import DockerEngine

LIST = "/containers/json"


@pytest.fixture
async def stand() -> AsyncIterator[WorkedStand]:
    """An old and a new daemon: 1.24 to 1.43 is what both serve."""
    async with running("docker-engine", DockerEngine("1.12", "1.43"), DockerEngine("1.24", "1.47")) as stand:
        assert stand.offer == "1.24-1.43"
        yield stand


@pytest.mark.parametrize("version", ["1.24", "1.30", "1.43"])
async def test_what_both_serve_is_executed_as_asked_for(stand: WorkedStand, version: str) -> None:
    reply = await stand.same(f"/v{version}{LIST}?all=1")

    assert (reply.status, reply.get("Api-Version")) == (200, "1.43")
    assert stand.executed() == [version] * TRIES
    assert {head.target for head in stand.asked} == {f"/v{version}{LIST}?all=1"}


async def test_without_a_version_it_is_the_newest_that_all_serve(stand: WorkedStand) -> None:
    """The daemon's own newest, were there one daemon; the one that `Api-Version` tells."""
    reply = await stand.same(LIST)

    assert (reply.status, reply.get("Api-Version")) == (200, "1.43")
    assert stand.executed() == ["1.43"] * TRIES
    assert {head.target for head in stand.asked} == {f"/v1.43{LIST}"}


TOO_NEW = "client version {} is too new. Maximum supported API version is 1.43"
TOO_OLD = (
    "client version {} is too old. Minimum supported API version is 1.24, please upgrade your client to a "
    "newer version"
)


@pytest.mark.parametrize("version, said", [("1.44", TOO_NEW), ("1.47", TOO_NEW), ("1.12", TOO_OLD)])
async def test_what_only_one_or_none_serves_is_refused_as_a_daemon_would(
    stand: WorkedStand, version: str, said: str
) -> None:
    reply = await stand.same(f"/v{version}{LIST}")

    assert (reply.status, json.loads(reply.body)) == (400, {"message": said.format(version)})
    assert (reply.get("Api-Version"), stand.executed()) == ("1.43", [])


@pytest.mark.parametrize("segment", ["v1.043", "v1.x", "v1", "v1.43.1", "%761.43", "v1.43;x"])
async def test_what_only_looks_like_a_version_is_a_page_that_is_not_there(
    stand: WorkedStand, segment: str
) -> None:
    reply = await stand.same(f"/{segment}{LIST}")

    assert (reply.status, json.loads(reply.body)) == (404, {"message": "page not found"})
    assert stand.asked == []


async def test_a_path_that_begins_like_a_version_is_none(stand: WorkedStand) -> None:
    reply = await stand.same("/volumes/create", method="POST")

    assert reply.status == 201
    assert stand.executed() == ["1.43"] * TRIES


@pytest.mark.parametrize("target", ["/version", "/v1.30/version"])
async def test_the_document_tells_the_offer_in_both_its_places(stand: WorkedStand, target: str) -> None:
    reply = await stand.same(target)

    assert (reply.status, reply.get("Api-Version")) == (200, "1.43")
    assert json.loads(reply.body) == DockerEngine.told("1.24", "1.43")


async def test_a_ping_by_head_tells_what_to_negotiate(stand: WorkedStand) -> None:
    """How the `docker` command line begins."""
    reply = await stand.ask("/_ping", method="HEAD", bodiless=True)

    assert (reply.status, reply.get("Api-Version")) == (200, "1.43")


async def test_the_offer_moves_once_all_are_upgraded(stand: WorkedStand) -> None:
    old, _ = stand.servers
    assert (await stand.ask(f"/v1.45{LIST}")).status == 400

    old.versions = ("1.24", "1.47")
    await stand.until_offered("1.24-1.47")

    reply = await stand.same(f"/v1.45{LIST}")
    assert (reply.status, reply.get("Api-Version")) == (200, "1.47")
    assert stand.executed() == ["1.45"] * TRIES
    assert (await stand.same(LIST)).status == 200
    assert stand.executed() == ["1.47"] * TRIES
    assert json.loads((await stand.same("/version")).body) == DockerEngine.told("1.24", "1.47")


@pytest.mark.parametrize("strip", ["true", "false"])
@pytest.mark.parametrize(
    "target, sent",
    [
        (f"/v1.30{LIST}?all=1", f"/v1.30{LIST}?all=1"),
        (f"{LIST}?all=1", f"/v1.43{LIST}?all=1"),
        ("/v1.30//containers/%6Ason?", "/v1.30//containers/%6Ason?"),
    ],
)
async def test_below_a_prefix_that_backends_see_or_not(strip: str, target: str, sent: str) -> None:
    """The version is written where it was read: behind the prefix."""
    match = f"    match: {{path: /engine, strip_prefix: {strip}}}\n"
    kept = "" if strip == "true" else "/engine"
    async with running("docker-engine", DockerEngine("1.24", "1.43"), extra=match) as stand:
        await stand.ask(f"/engine{target}")
        refused = await stand.ask(f"/engine/v1.44{LIST}")

        assert [head.target for head in stand.asked] == [kept + sent]
        assert refused.status == 400
