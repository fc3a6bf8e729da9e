"""Operations with version ranges, through a whole gateway: SENLIN-2 with its three examples, and CHEF-6.

The examples in Senlin's guide use 2.4. So the servers here serve 2.0 to 2.9, and every method at every
version: whatever is refused was refused by the gateway.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.dataplane.limits.rate_limiter import BURST
from tests.scenarios.chef_fleet import OWN, SIGNED_1_3, ChefTestbed, Erchef, version_object
from tests.scenarios.chef_fleet import in_front_of as in_front_of_chef
from tests.scenarios.fakes import STANDARD, Head
from tests.scenarios.openstack_fleet import (
    SenlinServer,
    in_front_of,
    senlin,
    senlin_error,
)
from tests.scenarios.testbed import Testbed

VARY = ("Vary", STANDARD)


class Lax(SenlinServer):
    """A Senlin that serves 2.0 and newer, and executes every method at every version."""

    major = 2

    def entry(self, link: str, highest: str | None = None) -> dict[str, object]:
        return {**super().entry(link, highest), "min_version": self.offered[0]}

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
async def testbed() -> AsyncIterator[Testbed]:
    async with in_front_of(senlin(Lax(9), Lax(9), operations=GUIDE)) as testbed:
        yield testbed


async def at(testbed: Testbed, version: str | None, path: str, method: str = "GET") -> Head:
    lines = () if version is None else ((STANDARD, f"clustering {version}"),)
    return await testbed.send(f"/clustering/v1/{path}", *lines, method=method, bodiless=method == "HEAD")


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
    testbed: Testbed, path: str, method: str, served: list[str | None], refused: list[str | None]
) -> None:
    """Senlin itself responds 400, byte for byte as here (S6), although its guide says 404."""
    for version in served:
        response = await at(testbed, version, path, method)
        number = {"latest": "2.9", None: "2.0"}.get(version, version)
        assert (response.status, json.loads(response.body)["version"]) == (200, number)
    forwarded = len(testbed.forwarded)
    for version in refused:
        response = await at(testbed, version, path, method)
        number = {"latest": "2.9", None: "2.0"}.get(version, version)
        message = f"API version '{number}' is not supported on this method."
        error = json.dumps(senlin_error(400, "Bad Request", "MethodVersionNotFound", message)).encode()
        assert (response.status, response.body) == (400, error)
        assert VARY in response.lines
        assert response.versions == {}
    assert len(testbed.forwarded) == forwarded == len(served)


async def test_SENLIN_2_the_status_of_the_guide_can_be_configured(testbed: Testbed) -> None:
    """A literal segment takes precedence over a placeholder."""
    assert (await at(testbed, "2.1", "added/summary")).status == 404
    assert (await at(testbed, "2.2", "added/summary")).status == 200
    assert (await at(testbed, "2.2", "added/other")).status == 400


async def test_an_operation_without_a_rule_is_served_at_every_version(testbed: Testbed) -> None:
    for version in ("2.0", "2.4", "2.9"):
        for path, method in (("added/x", "POST"), ("added", "GET"), ("added/x/y", "GET"), ("other", "GET")):
            assert (await at(testbed, version, path, method)).status == 200


async def test_the_rules_of_get_hold_for_head_and_for_other_spellings_of_the_path(testbed: Testbed) -> None:
    assert (await at(testbed, "2.3", "added/x", "HEAD")).status == 400
    assert (await at(testbed, "2.3", "/added//%78/")).status == 400
    assert (await at(testbed, "2.3", "%61dded/x?y=1")).status == 400
    assert testbed.forwarded == []


async def test_a_future_operation_is_in_no_version(testbed: Testbed) -> None:
    assert {(await at(testbed, version, "coming", "POST")).status for version in ("2.0", "latest")} == {400}


async def test_a_version_outside_the_offer_is_refused_first(testbed: Testbed) -> None:
    assert (await at(testbed, "2.10", "added/x")).status == 406


async def test_a_refused_request_with_a_body_gets_its_response(testbed: Testbed) -> None:
    body = b"x" * 5000
    response = await testbed.send(
        "/clustering/v1/coming", (STANDARD, "clustering 2.4"), method="POST", body=body
    )

    assert response.status == 400
    assert testbed.forwarded == []


async def test_metrics_tell_versions_below_and_above_the_range_apart(testbed: Testbed) -> None:
    for version, path in (("2.3", "added/x"), ("2.5", "removed/x"), ("2.4", "added/x")):
        await at(testbed, version, path)

    counted = b"".join(testbed.gateway.metrics.exposition("")[0]).decode().splitlines()
    for result in ("below_min", "above_max", "served"):
        labels = {'requested="exact"', f'result="{result}"', 'service="clustering"'}
        (line,) = (
            series for series in counted if series.startswith(NEGOTIATIONS) and labels <= parts(series)
        )
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
async def chef() -> AsyncIterator[ChefTestbed]:
    """A mixed fleet that offers 0 and 1."""
    async with in_front_of_chef(Erchef(1), Erchef(2), operations=OPERATIONS) as testbed:
        assert testbed.offer == "0-1"
        yield testbed


@pytest.mark.parametrize("sign", [(), SIGNED_1_3], ids=["unsigned", "signed"])
async def test_CHEF_6_the_list_contains_the_operations_in_the_offer(
    chef: ChefTestbed, sign: tuple[tuple[str, str], ...]
) -> None:
    response = await chef.send(EXTENDED, *sign, (OWN, "1"))

    assert (response.status, response.get(OWN), response.get("Content-Type")) == (
        200,
        version_object(0, 1, 1, 1),
        "application/json",
    )
    assert json.loads(response.body) == {"endpoints": [USER]}, "POST /users exists from 2 on"
    assert ("Vary", OWN) in response.lines
    assert chef.forwarded == []


async def test_CHEF_6_one_endpoint_404_405_and_406(chef: ChefTestbed) -> None:
    for path in ("/users/:user", "/users/bob"):
        response = await chef.send(f"{EXTENDED}/GET{path}")
        assert (response.status, json.loads(response.body)) == (200, USER)
    for target, method, lines, status, requested, served in (
        ("/GET/nodes", "GET", (), 404, 0, 0),
        ("/POST/users", "GET", (), 404, 0, 0),
        ("", "POST", (), 405, 0, 0),
        ("/GET/users/bob", "DELETE", ((OWN, "1"),), 405, 1, 1),
        ("", "PUT", ((OWN, "2"),), 406, 2, -1),
        ("", "GET", ((OWN, "spam"),), 406, -1, -1),
    ):
        response = await chef.send(EXTENDED + target, *lines, method=method)
        assert (response.status, response.get(OWN)) == (status, version_object(0, 1, requested, served))
    assert chef.forwarded == []


async def test_CHEF_6_only_the_list_is_rate_limited(chef: ChefTestbed) -> None:
    """After a burst the response is 429 in Chef's shape. After the time in `Retry-After` it is 200 again."""
    responses = [await chef.send(EXTENDED, (OWN, "1")) for _ in range(3 * BURST)]

    served = [response for response in responses if response.status == 200]
    refused = [response for response in responses if response.status == 429]
    assert {response.status for response in responses[:BURST]} == {200}
    assert len(served) + len(refused) == len(responses)
    assert refused, "the limit allows sixty requests in more time than sixty requests on loopback take"
    for response in refused:
        assert (response.get(OWN), response.get("Retry-After")) == (version_object(0, 1, 1, 1), "1")
        assert json.loads(response.body) == {"error": ["This document was requested too often."]}
    assert (await chef.send("/server_api_version")).status == 200
    assert (await chef.at("1")).status == 200

    while (again := await chef.send(EXTENDED)).status != 200:
        assert again.status == 429


async def test_chef_refuses_an_operation_outside_its_versions_with_the_object() -> None:
    async with in_front_of_chef(Erchef(2), Erchef(2), operations=OPERATIONS) as testbed:
        for sign in ((), SIGNED_1_3):
            response = await testbed.send("/users", *sign, (OWN, "1"), method="POST", body=b"{}")
            assert (response.status, response.get(OWN)) == (404, version_object(0, 2, 1, 1))
            assert json.loads(response.body)["error"]
        assert testbed.forwarded == []
        assert (
            await testbed.send("/users", *SIGNED_1_3, (OWN, "2"), method="POST", body=b"{}")
        ).status == 200
