"""config/examples/elasticsearch.yaml: a parameter of the media type, in two headers that must agree."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.worked.fleet import TRIES, WorkedStand, running
from tests.worked.header_servers import Elasticsearch

VENDOR = "application/vnd.elasticsearch+json"
SEARCH = "/orders/_search"


def compatible(version: int, kind: str = VENDOR) -> str:
    return f"{kind}; compatible-with={version}"


@pytest.fixture
async def stand() -> AsyncIterator[WorkedStand]:
    """Releases 8 (of 7 and 8) and 9 (of 8 and 9): both serve 8 alone."""
    async with running("elasticsearch", Elasticsearch("8.19.0"), Elasticsearch("9.1.0")) as stand:
        assert stand.offer == "8"
        yield stand


async def test_what_both_serve_is_executed_as_asked_for(stand: WorkedStand) -> None:
    reply = await stand.same(SEARCH, ("Accept", compatible(8)))

    assert (reply.status, reply.get("Content-Type")) == (200, f"{VENDOR};compatible-with=8")
    assert reply.get("Vary") == "Accept, Content-Type"
    assert stand.executed() == ["8"] * TRIES


async def test_a_body_has_it_in_both_headers(stand: WorkedStand) -> None:
    kind = compatible(8, "application/vnd.elasticsearch+x-ndjson")
    lines = [("Accept", compatible(8)), ("Content-Type", kind)]

    for _ in range(TRIES):
        reply = await stand.ask("/_bulk", *lines, method="POST", body=b'{"index": {}}\n{}\n')
        assert (reply.status, json.loads(reply.body)["errors"]) == (200, False)

    assert stand.executed() == ["8"] * TRIES
    assert {(head.get("Accept"), head.get("Content-Type")) for head in stand.asked} == {(compatible(8), kind)}


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
async def test_silence_is_told_the_version_in_the_one_type_that_servers_read(
    stand: WorkedStand, accept: str | None, sent: str
) -> None:
    """The new one would execute it at 9 otherwise, the old one at 8."""
    reply = await stand.same(SEARCH, *([] if accept is None else [("Accept", accept)]))

    assert (reply.status, reply.get("Content-Type")) == (200, f"{sent};compatible-with=8")
    assert stand.executed() == ["8"] * TRIES
    assert {head.get("Accept") for head in stand.asked} == {compatible(8, sent)}


async def test_a_plain_body_is_told_the_version_in_both_headers(stand: WorkedStand) -> None:
    lines = [("Content-Type", "application/json"), ("Accept", "*/*")]

    for _ in range(TRIES):
        assert (await stand.ask(SEARCH, *lines, method="POST", body=b"{}")).status == 200

    assert stand.executed() == ["8"] * TRIES
    assert {head.get("Content-Type") for head in stand.asked} == {compatible(8)}


@pytest.mark.parametrize("version", [7, 9, 10, 4])
async def test_what_only_one_or_none_serves_is_refused(stand: WorkedStand, version: int) -> None:
    reply = await stand.same(SEARCH, ("Accept", compatible(version)))

    told = json.loads(reply.body)
    assert (reply.status, told["status"]) == (400, 400)
    assert told["error"]["reason"] == f"Version {version} is not supported. Supported: 8."
    assert stand.asked == []


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
async def test_disagreement_and_nonsense_are_refused(
    stand: WorkedStand, lines: list[tuple[str, str]]
) -> None:
    reply = await stand.same(SEARCH, *lines)

    assert (reply.status, json.loads(reply.body)["error"]["type"]) == (400, "media_type_header_exception")
    assert stand.asked == []


async def test_the_offer_moves_once_all_are_upgraded(stand: WorkedStand) -> None:
    old, _ = stand.servers
    assert isinstance(old, Elasticsearch)
    old.upgrade("9.1.0")
    await stand.until_offered("8-9")

    assert (await stand.same(SEARCH, ("Accept", compatible(9)))).status == 200
    assert stand.executed() == ["9"] * TRIES
    assert (await stand.same(SEARCH, ("Accept", compatible(8)))).status == 200
    assert stand.executed() == ["8"] * TRIES
    reply = await stand.same(SEARCH)
    assert (reply.get("Content-Type"), stand.executed()) == (f"{VENDOR};compatible-with=9", ["9"] * TRIES)


async def test_the_root_is_passed_on_with_the_release_of_whoever_answers(stand: WorkedStand) -> None:
    reply = await stand.ask("/", ("Accept", compatible(8)))

    assert json.loads(reply.body)["version"]["number"] in ("8.19.0", "9.1.0")
    assert stand.executed() == ["8"]
