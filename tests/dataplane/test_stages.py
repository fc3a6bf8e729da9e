"""The stages of an exchange: every way from one to another is taken, and the page shows the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.connections import Queue
from gateway.dataplane.exchange.stages import Stage
from tests.dataplane.stage_check import STAGES, CheckedStage
from tests.kit.backends import (
    ScriptedBackend,
    UpstreamConnection,
    ironic_response,
    never_respond,
    no_reply,
    refusing_backend,
    serve,
)
from tests.kit.messages import request, version_line
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed

Transition = tuple[Stage, Stage]
Scenario = Callable[[Testbed], Awaitable[None]]

TABLE: Final = {(before, after) for before in Stage for after in STAGES[before]}
BODY: Final = b"x" * 10


def names(*stages: str) -> set[Transition]:
    """The transitions of one exchange through these stages."""
    path = [Stage[name.upper()] for name in stages]
    return set(pairwise(path))


SENT: Final = names("deciding", "admitted", "connecting", "awaiting_response", "responding", "ended")


async def fill_budget(gateway: Gateway) -> None:
    """Use up what the service may send again at the same time."""
    while gateway.worker.context.retry_budget.acquire("baremetal"):
        pass


def empty_budget(gateway: Gateway) -> None:
    """Give all of it back."""
    for _ in range(3):
        gateway.worker.context.retry_budget.release("baremetal")


async def a_refusal(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.99")))).status == 406


async def two_requests_on_one_connection(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    for _ in range(2):
        assert (await gateway.request(request())).status == 200


async def two_bodies(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    for _ in range(2):
        assert (await gateway.request(request("POST", body=BODY))).status == 200


async def a_body_that_does_not_come(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, client_body_idle=0.1)
    assert (await gateway.request(request("POST", "/v1/nodes", "Content-Length: 10"))).status == 408


async def no_connection_to_anybody(testbed: Testbed) -> None:
    gateway = await testbed.gateway(refusing_backend("one"), refusing_backend("two"))
    assert (await gateway.request(request())).status == 503


async def a_server_error_in_time(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(never_respond, backend_head=0.1)
    assert (await gateway.request(request("POST"))).status == 504


async def another_backend_on_a_new_connection(testbed: Testbed) -> None:
    dying, alive = await testbed.backend(no_reply), await testbed.backend()
    gateway = await testbed.gateway(dying, alive)
    gateway.prefer(0, of=2)
    assert (await gateway.request(request())).status == 200


async def another_backend_on_an_idle_connection(testbed: Testbed) -> None:
    dying, alive = await testbed.backend(no_reply), await testbed.backend()
    gateway = await testbed.gateway(dying, alive)
    for index in (1, 0):
        gateway.prefer(index, of=2)
        assert (await gateway.request(request())).status == 200


async def queued_until(
    testbed: Testbed, end: Callable[[Gateway], object], *, idle_connection: bool = False
) -> Gateway:
    """A request that waits for the retry budget, until `end` is done."""
    dying, alive = await testbed.backend(no_reply), await testbed.backend()
    gateway = await testbed.gateway(dying, alive)
    if idle_connection:
        gateway.prefer(1, of=2)
        assert (await gateway.request(request())).status == 200
    gateway.prefer(0, of=2)
    await fill_budget(gateway)
    client = await gateway.client()
    await client.send(request())
    await dying.received()
    await until(lambda: gateway.stages == [Stage.RETRY_QUEUED])
    end(gateway)
    await client.response()
    return gateway


async def a_retry_whose_turn_comes(testbed: Testbed) -> None:
    await queued_until(testbed, empty_budget)


async def a_retry_on_an_idle_connection(testbed: Testbed) -> None:
    await queued_until(testbed, empty_budget, idle_connection=True)


async def a_retry_that_is_given_up(testbed: Testbed) -> None:
    gateway = await queued_until(
        testbed, lambda gateway: gateway.worker.context.retry_budget.expire(float("inf"))
    )
    empty_budget(gateway)


async def a_tunnel(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script, upgrade=["x"])
    client = await gateway.client()
    assert (
        await client.request(request("GET", "/v1/nodes", "Connection: Upgrade", "Upgrade: x"))
    ).status == 101
    client.half_close()
    await client.ended()
    await gateway.recorded()


async def all_are_full(testbed: Testbed) -> None:
    backend = await testbed.backend(never_respond)
    full = replace(backend.backend, max_requests=1)
    gateway = await testbed.gateway(full)
    client = await gateway.client()
    await client.send(request())
    await backend.received()
    assert (await gateway.request(request())).status == 503
    assert (await gateway.request(request("POST", body=BODY))).status == 503


async def queued_behind_another(
    testbed: Testbed, *parts: bytes, before: ScriptedBackend | Backend | None = None, close: bool = False
) -> None:
    """A request that waits for the only backend, perhaps after one at another; with `close` on a connection
    that has to be made."""
    turn = asyncio.Event()

    async def one_by_one(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            await turn.wait()
            answer = ironic_response(message)
            await upstream.send(answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if close else answer)
            if close:
                return

    backend = await testbed.backend(one_by_one)
    bound = replace(backend.backend, max_requests=1, queue=Queue(1, 60.0))
    gateway = await testbed.gateway(*([before] if before is not None else []), bound)
    of = 1 if before is None else 2
    gateway.prefer(of - 1, of=of)
    first, second = await gateway.client(), await gateway.client()
    await first.send(request())
    await backend.received()
    gateway.prefer(0, of=of)
    await second.send(*(parts or (request(),)))
    await until(lambda: Stage.QUEUED in gateway.stages)
    turn.set()
    for client in (first, second):
        assert (await client.response()).status == 200


async def one_has_room(testbed: Testbed) -> None:
    await queued_behind_another(testbed)


async def one_has_room_after_a_close(testbed: Testbed) -> None:
    await queued_behind_another(testbed, close=True)


async def one_has_room_for_a_body(testbed: Testbed) -> None:
    await queued_behind_another(testbed, request("POST", body=BODY))


async def one_has_room_after_a_failed_connection(testbed: Testbed) -> None:
    await queued_behind_another(testbed, before=refusing_backend())


async def one_has_room_after_no_reply(testbed: Testbed) -> None:
    await queued_behind_another(testbed, before=await testbed.backend(no_reply))


async def the_retry_budget_and_the_queue(testbed: Testbed) -> None:
    """A retry waits for the budget, then for room; another one for room, then for the budget."""
    held = asyncio.Semaphore(0)

    async def one_by_one(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            await held.acquire()
            await upstream.send(ironic_response(message))

    dying, busy = await testbed.backend(no_reply), await testbed.backend(one_by_one)
    bound = replace(busy.backend, max_requests=1, queue=Queue(1, 60.0))
    gateway = await testbed.gateway(dying, bound)
    await fill_budget(gateway)
    gateway.prefer(0, of=2)
    retried = await gateway.client()
    await retried.send(request())
    await until(lambda: gateway.stages == [Stage.RETRY_QUEUED])
    gateway.prefer(1, of=2)
    other = await gateway.client()
    await other.send(request())
    await busy.received()
    gateway.worker.context.retry_budget.release("baremetal")
    await until(lambda: Stage.QUEUED in gateway.stages)
    held.release()
    await busy.received(2)
    held.release()
    for client in (retried, other):
        assert (await client.response()).status == 200
    # The other way round: the budget is used up again.
    await other.send(request())
    await busy.received(3)
    await fill_budget(gateway)
    gateway.prefer(0, of=2)
    await retried.send(request())
    await until(lambda: Stage.QUEUED in gateway.stages)
    held.release()
    await until(lambda: Stage.RETRY_QUEUED in gateway.stages)
    empty_budget(gateway)
    held.release()
    for client in (retried, other):
        assert (await client.response()).status == 200


QUEUED: Final = ("deciding", "admitted", "connecting", "awaiting_response", "retry_queued")
SCENARIOS: Final[dict[Scenario, set[Transition]]] = {
    a_refusal: names("deciding", "ended"),
    two_requests_on_one_connection: SENT | names("admitted", "awaiting_response"),
    two_bodies: (SENT - names("admitted", "connecting"))
    | names("admitted", "reading_body", "connecting")
    | names("reading_body", "awaiting_response"),
    a_body_that_does_not_come: names("deciding", "admitted", "reading_body", "ended"),
    no_connection_to_anybody: names("deciding", "admitted", "connecting", "connecting", "ended"),
    a_server_error_in_time: names("deciding", "admitted", "connecting", "awaiting_response", "ended"),
    another_backend_on_a_new_connection: SENT | names("awaiting_response", "connecting"),
    another_backend_on_an_idle_connection: SENT | names("awaiting_response", "awaiting_response"),
    a_retry_whose_turn_comes: SENT | names(*QUEUED, "connecting"),
    a_retry_on_an_idle_connection: SENT | names(*QUEUED, "awaiting_response"),
    a_retry_that_is_given_up: names(*QUEUED, "ended"),
    all_are_full: names("deciding", "admitted", "connecting", "awaiting_response")
    | names("deciding", "admitted", "queued", "ended")
    | names("deciding", "admitted", "reading_body", "queued"),
    one_has_room: SENT | names("deciding", "admitted", "queued", "awaiting_response"),
    one_has_room_after_a_close: SENT | names("deciding", "admitted", "queued", "connecting"),
    one_has_room_for_a_body: SENT | names("admitted", "reading_body", "queued", "awaiting_response"),
    one_has_room_after_a_failed_connection: SENT | names("connecting", "queued", "awaiting_response"),
    one_has_room_after_no_reply: SENT | names("awaiting_response", "queued", "awaiting_response"),
    the_retry_budget_and_the_queue: SENT
    | names("awaiting_response", "retry_queued", "queued", "awaiting_response")
    | names("deciding", "admitted", "awaiting_response", "queued", "retry_queued", "awaiting_response"),
    a_tunnel: names("deciding", "admitted", "connecting", "awaiting_response", "tunnelling", "ended"),
}


@pytest.mark.interpreted("the attribute of a compiled class cannot be replaced")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_an_exchange_goes_through_these_stages(
    testbed: Testbed, stages: CheckedStage, scenario: Scenario
) -> None:
    await scenario(testbed)

    assert set(stages.made) == SCENARIOS[scenario]


def test_every_transition_on_the_page_is_taken_by_a_scenario() -> None:
    assert set.union(*SCENARIOS.values()) == TABLE
