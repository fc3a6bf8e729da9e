"""Operations with ranges, through a whole gateway: SENLIN-2 and its three examples, CHEF-6, and who is asked.

The examples of Senlin's guide speak of 2.4; so does the fleet here, whose servers serve 2.0 to 2.9 and know
every method at every version. What is refused was refused by the gateway.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.dataplane.metering import BURST
from tests.scenarios.chef_fleet import OWN, SIGNED_1_3, ChefStand, Erchef, told
from tests.scenarios.chef_fleet import in_front_of as in_front_of_chef
from tests.scenarios.fakes import STANDARD, Head
from tests.scenarios.openstack_fleet import (
    SenlinServer,
    in_front_of,
    senlin,
    senlin_error,
)
from tests.scenarios.stand import Stand

VARY = ("Vary", STANDARD)


class Lax(SenlinServer):
    """A Senlin that serves 2.0 and up, and executes whatever it is asked for at whatever version."""

    major = 2

    def entry(self, link: str, highest: str | None = None) -> dict[str, object]:
        return {**super().entry(link, highest), "min_version": self.bounds[0]}

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        return 200, {"path": path, "version": f"2.{minor}"}, True


GUIDE = (
    "{methods: [GET], path: '/v1/added/{id}', versions: '>=2.4'}",
    "{methods: [GET, DELETE], path: '/v1/removed/{id}', versions: 2.1-2.4}",
    "{methods: [PUT], path: '/v1/changed/{id}', versions: 1.0-2.3}",
    "{methods: [PUT], path: '/v1/changed/{id}', versions: '>=2.4'}",
    "{methods: [GET], path: '/v1/added/summary', versions: '>=2.2', refusal: 404}",
    "{methods: [POST], path: /v1/coming, versions: next, status: unstable}",
)


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with in_front_of(senlin(Lax(9), Lax(9), operations=GUIDE)) as stand:
        yield stand


async def at(stand: Stand, version: str | None, path: str, method: str = "GET") -> Head:
    lines = () if version is None else ((STANDARD, f"clustering {version}"),)
    return await stand.ask(f"/clustering/v1/{path}", *lines, method=method, bodiless=method == "HEAD")


@pytest.mark.parametrize(
    "path, method, served, refused",
    [
        ("added/x", "GET", ["2.4", "2.5", "2.9", "latest"], ["2.0", "2.3", None]),
        ("removed/x", "GET", ["2.1", "2.4"], ["2.0", "2.5", "2.9", "latest", None]),
        ("changed/x", "PUT", ["2.0", "2.3", "2.4", "2.9", None], []),
    ],
    ids=["added at 2.4", "removed after 2.4", "changed at 2.4"],
)
async def test_SENLIN_2_the_three_examples_of_the_guide(
    stand: Stand, path: str, method: str, served: list[str | None], refused: list[str | None]
) -> None:
    """Senlin's own answer is 400, byte for byte (S6), where its guide says 404; no server is asked."""
    for version in served:
        reply = await at(stand, version, path, method)
        number = {"latest": "2.9", None: "2.0"}.get(version, version)
        assert (reply.status, json.loads(reply.body)["version"]) == (200, number)
    asked = len(stand.asked)
    for version in refused:
        reply = await at(stand, version, path, method)
        number = {"latest": "2.9", None: "2.0"}.get(version, version)
        message = f"API version '{number}' is not supported on this method."
        error = json.dumps(senlin_error(400, "Bad Request", "MethodVersionNotFound", message)).encode()
        assert (reply.status, reply.body) == (400, error)
        assert VARY in reply.lines
        assert reply.versions == {}
    assert len(stand.asked) == asked == len(served)


async def test_SENLIN_2_the_status_of_the_guide_by_setting(stand: Stand) -> None:
    """And a literal segment goes before a placeholder."""
    assert (await at(stand, "2.1", "added/summary")).status == 404
    assert (await at(stand, "2.2", "added/summary")).status == 200
    assert (await at(stand, "2.2", "added/other")).status == 400


async def test_what_nobody_restricted_is_served_at_every_version(stand: Stand) -> None:
    for version in ("2.0", "2.4", "2.9"):
        for path, method in (("added/x", "POST"), ("added", "GET"), ("added/x/y", "GET"), ("other", "GET")):
            assert (await at(stand, version, path, method)).status == 200


async def test_head_is_where_get_is_and_other_spellings_are_held_to_the_same(stand: Stand) -> None:
    assert (await at(stand, "2.3", "added/x", "HEAD")).status == 400
    assert (await at(stand, "2.3", "/added//%78/")).status == 400
    assert (await at(stand, "2.3", "%61dded/x?y=1")).status == 400
    assert stand.asked == []


async def test_what_is_still_to_come_is_in_no_version(stand: Stand) -> None:
    assert {(await at(stand, version, "coming", "POST")).status for version in ("2.0", "latest")} == {400}


async def test_an_ask_outside_the_offer_is_refused_as_such(stand: Stand) -> None:
    assert (await at(stand, "2.10", "added/x")).status == 406


async def test_a_body_is_read_over_and_the_connection_goes_on(stand: Stand) -> None:
    body = b"x" * 5000
    reply = await stand.ask("/clustering/v1/coming", (STANDARD, "clustering 2.4"), method="POST", body=body)

    assert reply.status == 400
    assert stand.asked == []


async def test_it_is_counted_by_the_side_on_which_it_lies(stand: Stand) -> None:
    for version, path in (("2.3", "added/x"), ("2.5", "removed/x"), ("2.4", "added/x")):
        await at(stand, version, path)

    counted = stand.gateway.metrics.exposition("")[0].decode().splitlines()
    for outcome in ("below_min", "above_max", "served"):
        labels = {'ask="exact"', f'outcome="{outcome}"', 'service="clustering"'}
        (line,) = (each for each in counted if each.startswith(NEGOTIATIONS) and labels <= parts(each))
        assert line.endswith("} 1.0")


NEGOTIATIONS = "skewgate_negotiations_total{"


def parts(line: str) -> set[str]:
    """The labels of a series."""
    return set(line.partition("{")[2].partition("}")[0].split(","))


# --- Chef --------------------------------------------------------------------------------------------------

OPERATIONS = (
    "[{methods: [GET], path: '/users/{user}', versions: '0', status: deprecated},"
    " {methods: [GET], path: '/users/{user}', versions: '>=1'},"
    " {methods: [GET], path: '/users/{user}', versions: next, status: unstable},"
    " {methods: [POST], path: /users, versions: '>=2'}]"
)
USER = {
    "name": "/users/:user",
    "versions": [
        {"method": "GET", "version": 0, "status": "deprecated"},
        {"method": "GET", "version": 1, "status": "active"},
        {"method": "GET", "version": "next", "status": "unstable"},
    ],
}
EXTENDED = "/server_api_version/extended"


@pytest.fixture
async def chef() -> AsyncIterator[ChefStand]:
    """A mixed fleet that offers 0 and 1."""
    async with in_front_of_chef(Erchef(1), Erchef(2), operations=OPERATIONS) as stand:
        assert stand.offer == "0-1"
        yield stand


@pytest.mark.parametrize("sign", [(), SIGNED_1_3], ids=["unsigned", "signed"])
async def test_CHEF_6_the_list_tells_what_is_on_offer(
    chef: ChefStand, sign: tuple[tuple[str, str], ...]
) -> None:
    reply = await chef.ask(EXTENDED, *sign, (OWN, "1"))

    assert (reply.status, reply.get(OWN), reply.get("Content-Type")) == (
        200,
        told(0, 1, 1, 1),
        "application/json",
    )
    assert json.loads(reply.body) == {"endpoints": [USER]}, "POST /users exists from 2 on only"
    assert ("Vary", OWN) in reply.lines
    assert chef.asked == []


async def test_CHEF_6_one_endpoint_404_405_and_406(chef: ChefStand) -> None:
    for path in ("/users/:user", "/users/bob"):
        reply = await chef.ask(f"{EXTENDED}/GET{path}")
        assert (reply.status, json.loads(reply.body)) == (200, USER)
    for target, method, lines, status, asked, served in (
        ("/GET/nodes", "GET", (), 404, 0, 0),
        ("/POST/users", "GET", (), 404, 0, 0),
        ("", "POST", (), 405, 0, 0),
        ("/GET/users/bob", "DELETE", ((OWN, "1"),), 405, 1, 1),
        ("", "PUT", ((OWN, "2"),), 406, 2, -1),
        ("", "GET", ((OWN, "spam"),), 406, -1, -1),
    ):
        reply = await chef.ask(EXTENDED + target, *lines, method=method)
        assert (reply.status, reply.get(OWN)) == (status, told(0, 1, asked, served))
    assert chef.asked == []


async def test_CHEF_6_it_is_rate_limited_and_nothing_else_is(chef: ChefStand) -> None:
    """After a burst it is 429 in Chef's shape; when the time that it names has gone by it answers again."""
    replies = [await chef.ask(EXTENDED, (OWN, "1")) for _ in range(3 * BURST)]

    answered = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status == 429]
    assert {reply.status for reply in replies[:BURST]} == {200}
    assert len(answered) + len(refused) == len(replies)
    assert refused, "sixty requests on loopback take less time than it takes to answer sixty times"
    for reply in refused:
        assert (reply.get(OWN), reply.get("Retry-After")) == (told(0, 1, 1, 1), "1")
        assert json.loads(reply.body) == {"error": ["This document was asked for too often."]}
    assert (await chef.ask("/server_api_version")).status == 200
    assert (await chef.at("1")).status == 200

    while (again := await chef.ask(EXTENDED)).status != 200:
        assert again.status == 429


async def test_chef_refuses_an_operation_outside_its_versions_with_the_object() -> None:
    async with in_front_of_chef(Erchef(2), Erchef(2), operations=OPERATIONS) as stand:
        for sign in ((), SIGNED_1_3):
            reply = await stand.ask("/users", *sign, (OWN, "1"), method="POST", body=b"{}")
            assert (reply.status, reply.get(OWN)) == (404, told(0, 2, 1, 1))
            assert json.loads(reply.body)["error"]
        assert stand.asked == []
        assert (await stand.ask("/users", *SIGNED_1_3, (OWN, "2"), method="POST", body=b"{}")).status == 200
