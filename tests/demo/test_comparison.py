"""The balancer as a front: which one is chosen, what it knows, and that the same clients judge it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from gateway.demo import comparison, haproxy_balancer
from gateway.demo.balancer import Balancer, Pool, RoundRobin, Timing
from gateway.demo.clients import Client, Latest, New, Old
from gateway.demo.comparison import BalancerFront, best_balancer
from gateway.demo.embedded_fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.demo.front import Front, GatewayFront, Ports
from gateway.demo.haproxy_balancer import HAProxy
from gateway.demo.performance import Performance
from gateway.demo.scene import FrontScene
from tests.kit.waiting import PATIENCE

TIMING = Timing(60.0, 10.0)
ROUNDS = 8


def built_in(pools: Sequence[Pool], timing: Timing) -> Balancer:
    return RoundRobin(pools, TIMING)


@pytest.mark.parametrize("path, chosen", [("/usr/sbin/haproxy", HAProxy), (None, RoundRobin)])
def test_haproxy_is_chosen_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, path: str | None, chosen: type[Balancer]
) -> None:
    monkeypatch.setattr(comparison, "program", lambda: path)
    monkeypatch.setattr(haproxy_balancer, "version_of", lambda path: "2.6.12")

    assert type(best_balancer([], TIMING)) is chosen


def test_haproxy_is_found_where_ordinary_users_do_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str | None] = []

    def which(name: str, path: str | None = None) -> str | None:
        looked.append(path)
        return None if path is None else "/usr/sbin/haproxy"

    monkeypatch.setattr("shutil.which", which)

    assert haproxy_balancer.program() == "/usr/sbin/haproxy"
    assert looked[0] is None
    assert "/usr/sbin" in str(looked[1])


@asynccontextmanager
async def fleet_of(seed: int = 1) -> AsyncIterator[EmbeddedFleet]:
    fleet = EmbeddedFleet(seed)
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.close()


async def test_each_service_is_reached_and_nothing_is_known_of_versions() -> None:
    async with fleet_of() as fleet, BalancerFront(fleet, interval=60.0, make=built_in) as front:
        assert front.name == "plain round robin"
        as_any: Front = front
        assert [as_any.status(each) for each in (BAREMETAL, CATALOG)] == [None, None]
        async with aiohttp.ClientSession() as session:
            for service, path in ((BAREMETAL, "/v1/nodes"), (CATALOG, "/items")):
                async with session.get(front.url(service) + path) as response:
                    assert response.status == 200


async def play(make: type[GatewayFront] | type[BalancerFront]) -> FrontScene:
    """One of four servers is upgraded; then some clients act, one after the other."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(fleet_of())
        server = fleet.server("api-1")
        await server.stop()
        await server.start(fleet.service(BAREMETAL).new)
        news = asyncio.Event()
        front: Front = (
            GatewayFront(fleet, Ports(), interval=0.05, changed=lambda before, after: news.set())
            if make is GatewayFront
            else BalancerFront(fleet, interval=60.0, make=built_in)
        )
        performance = Performance(fleet, front, 1)
        clients = await performance.start(stack)
        async with asyncio.timeout(PATIENCE):
            while (knows := front.status(BAREMETAL)) is not None and knows.view.offer.phase != "mixed":
                news.clear()
                await news.wait()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for client in _chosen(clients):
            for _ in range(ROUNDS):
                await client.act(session)
        return performance.scene()


def _chosen(clients: Sequence[Client]) -> list[Client]:
    """One of each kind. The first two send a multiple of four requests, so they begin at the first server."""
    return [next(each for each in clients if isinstance(each, kind)) for kind in (Old, Latest, New)]


async def test_what_a_balancer_loses_the_gateway_does_not_by_the_same_judges() -> None:
    plain, ours = await play(BalancerFront), await play(GatewayFront)

    reasons = dict(plain.losses)
    # One of four is new: `latest` finds it at each fourth request, and goes back at the one after.
    assert reasons.pop("'latest' got an older version") == ROUNDS // 4
    assert set(reasons) <= {"a version shown before was refused"}
    assert [each.lost for each in plain.clients if each.kind == Old.kind] == [0]
    assert (ours.lost, ours.losses) == (0, ())
    assert ours.answered >= 3 * ROUNDS


async def test_the_offer_of_a_balancer_is_what_the_server_said_that_answered_last() -> None:
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(fleet_of())
        server = fleet.server("api-1")
        await server.stop()
        await server.start(fleet.service(BAREMETAL).new)
        performance = Performance(fleet, BalancerFront(fleet, interval=60.0, make=built_in), 1)
        clients = await performance.start(stack)
        latest = next(each for each in clients if isinstance(each, Latest))
        session = await stack.enter_async_context(aiohttp.ClientSession())

        offers = [performance.scene().services[0].offer]
        for _ in range(5):
            await latest.act(session)
            offers.append(performance.scene().services[0].offer)

    assert offers == ["nothing yet", "1.1-1.90", "1.1-1.58", "1.1-1.58", "1.1-1.58", "1.1-1.90"]
