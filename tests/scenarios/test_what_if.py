"""`GET /simulate` agrees with what then really happens: fakes serve less, and every request is sent again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.fleets import brief_session
from tests.scenarios import chef_fleet, nova_fleet, openstack_fleet
from tests.scenarios.chef_fleet import Erchef
from tests.scenarios.fakes import OWN, STANDARD, ApiServer, Ironic
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.openstack_fleet import SenlinServer
from tests.scenarios.testbed import Testbed, configuration, in_front_of, service_of

Lines = tuple[tuple[str, str], ...]


class Fleet(NamedTuple):
    """One dialect: a server that serves much, what clients send to it, and how it says less."""

    server: ApiServer
    running: Callable[[Any], AbstractAsyncContextManager[Testbed]]
    service: str
    target: str
    version: Callable[[str], Lines]
    """Header lines that ask for a version."""
    asked: tuple[str, ...]
    more: Lines = ()


def field(name: str, before: str = "") -> Callable[[str], Lines]:
    return lambda version: ((name, f"{before}{version}"),)


def fleets() -> dict[str, Fleet]:
    """New ones for each test."""
    chef = "X-Ops-Server-API-Version"
    compute = "X-OpenStack-Nova-API-Version"
    openstack = ("1.0", "1.1", "1.4", "1.7", "1.9", "1.12", "1.13", "latest", "nonsense")
    return {
        "ironic": Fleet(Ironic(12), in_front_of, "baremetal", "/v1/nodes", field(OWN), openstack),
        "nova": Fleet(
            Nova(12),
            nova_fleet.in_front_of,
            "compute",
            "/v2.1/servers",
            field(compute),
            ("2.1", "2.4", "2.7", "2.9", "2.12", "2.13", "latest", "nonsense"),
        ),
        "senlin": Fleet(
            SenlinServer(12),
            lambda server: openstack_fleet.in_front_of(openstack_fleet.senlin(server)),
            "clustering",
            "/clustering/v1/clusters",
            field(STANDARD, "clustering "),
            openstack,
        ),
        "chef": Fleet(
            Erchef(12),
            chef_fleet.in_front_of,
            "chef",
            "/nodes",
            field(chef),
            ("0", "1", "4", "7", "9", "12", "13", "nonsense"),
            chef_fleet.SIGNED_1_1,
        ),
    }


async def executed(testbed: Testbed, fleet: Fleet, version: str | None) -> str | None:
    """Send a request of the client that is named for its version. The version that a backend got; None: the
    gateway has refused it."""
    before = len(testbed.forwarded)
    lines = () if version is None else fleet.version(version)
    await testbed.send(fleet.target, ("User-Agent", f"asks-{version}/1.0"), *fleet.more, *lines)
    after = testbed.forwarded[before:]
    if not after:
        return None
    [head] = after
    texts = [value for name, value in head.lines if name == fleet.version("1")[0][0]]
    return texts[0].rpartition(" ")[2] if texts else ""


async def simulated(testbed: Testbed, **query: str) -> dict[str, Any]:
    """The answer of `GET /simulate`."""
    async with brief_session() as session:
        url = f"{testbed.gateway.admin_url}/simulate"
        async with session.get(url, params={"service": testbed.service, **query}) as response:
            assert response.status == 200, await response.text()
            found: dict[str, Any] = json.loads(await response.text())
            return found


def affected(answer: dict[str, Any]) -> dict[str, str | None]:
    """The version at which requests of each affected client would be executed; None: they are refused."""
    return {one["client"]: one["then"] or None for one in answer["affected"]}


async def all_executed(testbed: Testbed, fleet: Fleet) -> dict[str, str | None]:
    """The version at which each client's request is executed now."""
    return {f"asks-{each}": await executed(testbed, fleet, each) for each in (None, *fleet.asked)}


def difference(before: dict[str, str | None], after: dict[str, str | None]) -> dict[str, str | None]:
    """What clients get that were served before and are not now, or at another version."""
    return {
        client: then
        for client, then in after.items()
        if before[client] is not None and before[client] != then
    }


@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("dialect", ["ironic", "nova", "senlin", "chef"])
async def test_servers_that_serve_less_refuse_and_move_whom_the_answer_names(dialect: str, end: str) -> None:
    fleet = fleets()[dialect]
    server: Any = fleet.server
    async with fleet.running(server) as testbed:
        testbed.service = fleet.service
        lowest, highest = testbed.offer.split("-")
        seventh = "7" if dialect == "chef" else f"{lowest.partition('.')[0]}.7"
        before = await all_executed(testbed, fleet)
        answer = await simulated(testbed, **{end: seventh})

        setattr(server, "lowest" if end == "min" else "highest", 7)
        then = f"{seventh}-{highest}" if end == "min" else f"{lowest}-{seventh}"
        await testbed.until(lambda _: testbed.offer == then)
        after = await all_executed(testbed, fleet)

    assert affected(answer) == difference(before, after) != {}
    assert (answer["offer_before"], answer["offer_after"]) == (f"{lowest}-{highest}", then)
    assert sum(one["requests"] for one in answer["affected"]) == len(affected(answer))


async def test_a_reload_without_a_backend_refuses_and_moves_whom_the_answer_names(tmp_path: Path) -> None:
    source = tmp_path / "gateway.yaml"
    old, new = Ironic(8), Ironic(12, 5)
    fleet = fleets()["ironic"]
    offer = "{policy: reachable, stabilization: 0s}"
    async with in_front_of(old, new, source=source, offer=offer) as testbed:
        await testbed.until(lambda _: testbed.offer == "1.1-1.12")
        before = await all_executed(testbed, fleet)
        answer = await simulated(testbed, remove_backend="api-1")

        source.write_text(
            configuration(service_of("baremetal", [new.port], offer=offer).replace("api-1", "api-2"))
        )
        async with brief_session() as session:
            response = await session.post(f"{testbed.gateway.admin_url}/-/reload")
            assert response.status == 200, await response.text()
        await testbed.until(lambda _: testbed.offer == "1.5-1.12")
        after = await all_executed(testbed, fleet)

    assert affected(answer) == difference(before, after) != {}
    assert answer["offer_after"] == "1.5-1.12"


@pytest.mark.parametrize(
    "query, status, words",
    [
        ({}, 400, "min, max, remove_backend"),
        ({"min": "1.4", "max": "1.9"}, 400, "min, max, remove_backend"),
        ({"min": "new"}, 400, "'new' is not a version"),
        ({"remove_backend": "api-9"}, 400, "has no backend 'api-9'"),
        ({"min": "1.4", "since": "soon"}, 400, "since"),
        ({"min": "1.4", "service": "nobody"}, 404, "there is no service 'nobody'"),
        ({"min": "1.4", "below": "1.4"}, 400, "the only parameters are"),
    ],
)
async def test_a_question_without_a_meaning(query: dict[str, str], status: int, words: str) -> None:
    async with in_front_of(Ironic(12)) as testbed, brief_session() as session:
        url = f"{testbed.gateway.admin_url}/simulate"
        async with session.get(url, params={"service": "baremetal", **query}) as response:
            assert (response.status, words in await response.text()) == (status, True)
