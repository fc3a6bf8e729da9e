"""Senlin behind the gateway: the golden examples S1 to S7 as bytes, the rows SENLIN-1 to SENLIN-4, and K7.

Of SENLIN-2 this proves what passes through: what a backend says about a method outside its range. Ranges that
the gateway keeps itself are in test_operations.py.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import STANDARD, Head
from tests.scenarios.openstack_fleet import EXPLANATION, SenlinServer, in_front_of, senlin, senlin_error
from tests.scenarios.stand import Stand

CLUSTERS = "/clustering/v1/clusters"
VARY = ("Vary", STANDARD)
JSON = ("Content-Type", "application/json")
TRIES = 12
"""Requests: enough that every server has answered, nearly always; no assertion rests on that."""


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """A mixed fleet: of 5.0 (to 1.9) and of 16.0 (to 1.14). The offer is 1.0 to 1.9."""
    async with in_front_of(senlin(SenlinServer(9), SenlinServer(14))) as stand:
        yield stand


async def same(stand: Stand, target: str, *lines: tuple[str, str]) -> Head:
    """The reply, which is the same every time, whichever server made it."""
    replies = [await stand.ask(target, *lines) for _ in range(TRIES)]
    assert len({(each.status, each.body, *sorted(each.lines)) for each in replies}) == 1
    return replies[0]


def about_versions(reply: Head) -> set[tuple[str, str]]:
    return {line for line in reply.lines if line[0] in reply.versions or line[0] == "Vary"}


async def test_S1_the_list_is_300_and_tells_the_offer(stand: Stand) -> None:
    for target in ("/clustering/", "/clustering/versions"):
        reply = await same(stand, target, (STANDARD, "clustering 99.99"))

        link = f"http://{stand.authority}/clustering/v1"
        assert (reply.status, about_versions(reply)) == (300, {VARY})
        assert json.loads(reply.body) == {"versions": [SenlinServer(14).entry(link, "1.9")]}
    assert all(head.versions == {} for head in stand.asked)


async def test_S2_K7_the_sdk_finds_the_API_by_the_link_of_v1(stand: Stand) -> None:
    """The catalog says `…/v1`. The servers' own link is `…/v1/v1`, with which the SDK gets 404."""
    version = json.loads((await same(stand, "/clustering/v1")).body)["version"]
    (link,) = (each["href"] for each in version["links"] if each["rel"] == "self")
    assert link == f"http://{stand.authority}/clustering/v1"

    reply = await stand.ask(f"{link.removeprefix(f'http://{stand.authority}')}/clusters")

    assert (reply.status, reply.body) == (200, b'{"clusters": []}')


async def test_S3_served_stands_on_a_success(stand: Stand) -> None:
    reply = await same(stand, CLUSTERS, (STANDARD, "clustering 1.5"))

    assert (reply.status, reply.body) == (200, b'{"clusters": []}')
    assert about_versions(reply) == {(STANDARD, "clustering 1.5"), VARY}
    assert all(head.versions == {STANDARD: "clustering 1.5"} for head in stand.asked)


@pytest.mark.parametrize("text", ["1.99", "1.10", "2.0"])
async def test_S4_out_of_range(stand: Stand, text: str) -> None:
    reply = await same(stand, CLUSTERS, (STANDARD, f"clustering {text}"))

    told = f"Version '{text}' is not supported by the API. Minimum is '1.0' and maximum is '1.9'."
    body = json.dumps(senlin_error(406, "Not Acceptable", "InvalidGlobalAPIVersion", told)).encode()
    assert (reply.status, reply.body) == (406, body)
    assert about_versions(reply) == {VARY}
    assert JSON in reply.lines
    assert stand.asked == []


async def test_S5_malformed_as_Accept_wants_it(stand: Stand) -> None:
    ask = (STANDARD, "clustering spam")
    fault = "API Version String 'spam' is of invalid format. It must be of format 'major.minor'."

    as_json = await same(stand, CLUSTERS, ask, ("Accept", "application/json"))
    as_text = await same(stand, CLUSTERS, ask)

    message = f"{EXPLANATION}<br /><br />\n{fault}\n\n"
    assert json.loads(as_json.body) == {"message": message, "code": "400 Bad Request", "title": "Bad Request"}
    assert as_text.body == f"400 Bad Request\n\n{EXPLANATION}\n\n {fault}  ".encode()
    assert as_text.get("Content-Type") == "text/plain; charset=UTF-8"
    assert {as_json.status, as_text.status} == {400}
    assert stand.asked == []


async def test_S6_SENLIN_2_a_method_outside_its_range_is_answered_by_the_backend(stand: Stand) -> None:
    target = "/clustering/v1/profile-types/os.heat.stack-1.0/ops"

    before = await same(stand, target, (STANDARD, "clustering 1.3"))
    after = await same(stand, target, (STANDARD, "clustering 1.4"))

    told = "API version '1.3' is not supported on this method."
    assert before.status == 400
    assert json.loads(before.body) == senlin_error(400, "Bad Request", "MethodVersionNotFound", told)
    assert about_versions(before) == {VARY}
    assert (after.status, after.get(STANDARD)) == (200, "clustering 1.4")


async def test_S7_a_path_without_v1_is_the_backends_404(stand: Stand) -> None:
    assert (await same(stand, "/clustering/clusters", ("Accept", "application/json"))).status == 404


@pytest.mark.parametrize(
    "value,served",
    [
        (None, "1.0"),
        ("clustering latest", "1.9"),
        ("CLUSTERING LATEST", "1.9"),
        ("compute 2.20", "1.0"),
        ("compute 2.20, clustering 1.5, volume 3.1", "1.5"),
        ("clustering 1.2, clustering 1.3", "1.3"),
    ],
)
async def test_SENLIN_1_what_is_asked_and_what_is_sent(stand: Stand, value: str | None, served: str) -> None:
    """Of a header that names several services the backend gets its own item alone."""
    reply = await same(stand, CLUSTERS, *(() if value is None else ((STANDARD, value),)))

    assert (reply.status, reply.get(STANDARD)) == (200, f"clustering {served}")
    assert all(head.versions == {STANDARD: f"clustering {served}"} for head in stand.asked)


async def test_SENLIN_3_1_10_is_newer_than_1_9() -> None:
    old, new = SenlinServer(9), SenlinServer(10)
    async with in_front_of(senlin(old, new, policy="reachable")) as stand:
        reply = await same(stand, CLUSTERS, (STANDARD, "clustering 1.10"))

        assert reply.get(STANDARD) == "clustering 1.10"
        assert (len(old.asked), len(new.asked)) == (0, TRIES)
        assert (await stand.ask(CLUSTERS, (STANDARD, "clustering latest"))).get(STANDARD) == "clustering 1.10"


async def test_SENLIN_4_every_version_is_served_by_a_member_that_has_it() -> None:
    servers = [SenlinServer(highest) for highest in range(1, 15)]
    async with in_front_of(senlin(*servers, policy="reachable")) as stand:
        for minor in range(15):
            for _ in range(3):
                reply = await stand.ask(CLUSTERS, (STANDARD, f"clustering 1.{minor}"))
                assert (reply.status, reply.get(STANDARD)) == (200, f"clustering 1.{minor}")

    assert [server.refused for server in servers] == [[]] * 14


async def test_a_server_of_Mitaka_serves_1_0_without_being_sent_a_version() -> None:
    silent, new = SenlinServer(None), SenlinServer(14)
    async with in_front_of(senlin(silent, new, policy="reachable")) as stand:
        replies = [await stand.ask(CLUSTERS) for _ in range(TRIES)]
        newer = [await stand.ask(CLUSTERS, (STANDARD, "clustering 1.14")) for _ in range(TRIES)]
        documents = [await stand.ask("/clustering/v1") for _ in range(TRIES)]

    assert {(each.status, each.get(STANDARD)) for each in replies} == {(200, "clustering 1.0")}
    assert {(each.status, each.get(STANDARD)) for each in newer} == {(200, "clustering 1.14")}
    assert {each.status for each in documents} == {200}
    assert all(head.versions == {} for head in silent.asked)
    assert {head.target for head in silent.asked} <= {"/v1/clusters"}


async def test_a_fleet_of_Mitaka_is_left_alone() -> None:
    async with in_front_of(senlin(SenlinServer(None), SenlinServer(None))) as stand:
        reply = await stand.ask(CLUSTERS, (STANDARD, "clustering 1.14, compute 2.1"))

        assert (reply.status, about_versions(reply)) == (200, set())
        assert stand.asked[0].get(STANDARD) == "clustering 1.14, compute 2.1"


async def test_a_backends_refusal_is_understood_and_another_one_serves() -> None:
    """One server is rolled back behind the gateway's back; between probes only its 406 can tell."""
    rolled_back, new = SenlinServer(14), SenlinServer(14)
    async with in_front_of(senlin(rolled_back, new, policy="reachable"), interval="60s") as stand:
        rolled_back.highest = 9
        replies = [await stand.ask(CLUSTERS, (STANDARD, "clustering 1.12")) for _ in range(3 * TRIES)]

    assert {(each.status, each.get(STANDARD)) for each in replies} == {(200, "clustering 1.12")}
    assert len(rolled_back.refused) <= 1


async def test_the_real_client_with_its_fixed_version_meets_a_mixed_fleet() -> None:
    """python-senlinclient 3.1 looks at `/` and `/v1` and then always asks for 1.14: behind a plain load
    balancer every second call is refused."""
    async with in_front_of(senlin(SenlinServer(9), SenlinServer(14), policy="reachable")) as stand:
        for _ in range(TRIES):
            listed = json.loads((await stand.ask("/clustering/")).body)["versions"][0]
            alone = json.loads((await stand.ask("/clustering/v1")).body)["version"]
            assert listed == alone
            assert (listed["min_version"], listed["max_version"]) == ("1.0", "1.14")
            for what in ("clusters", "profile-types/os.heat.stack-1.0/ops"):
                reply = await stand.ask(f"/clustering/v1/{what}", (STANDARD, "clustering 1.14"))
                assert (reply.status, reply.get(STANDARD)) == (200, "clustering 1.14")
