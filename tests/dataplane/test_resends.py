"""Requests that were sent and got no response: when they are sent again, how many at once, and until when."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import pytest

from gateway.core.fleet.fleet import Drain
from tests.kit.backends import (
    ScriptedBackend,
    UpstreamConnection,
    ironic_response,
    never_respond,
    no_reply,
    serve,
)
from tests.kit.clients import Client
from tests.kit.messages import HOST, Message, request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, settle

HEAD_TIME: Final = 900.0
"""Seconds for a response head, which pass only when the test says so."""


async def in_flight_clients(gateway: Gateway, number: int, *backends: ScriptedBackend) -> list[Client]:
    """`number` clients whose requests have reached a backend."""
    clients = [await gateway.client() for _ in range(number)]
    for client in clients:
        await client.send(request())
    await until(lambda: sum(len(backend.requests) for backend in backends) == number)
    return clients


async def test_R4_a_fifth_of_the_requests_is_sent_again_at_once_and_others_are_given_up(
    testbed: Testbed,
) -> None:
    """All backends die with 30 requests, and are slow when these are sent again."""
    dies, answers_now = asyncio.Event(), asyncio.Event()
    again: list[Message] = []

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        if not dies.is_set():
            await dies.wait()
            return
        again.append(message)
        await answers_now.wait()
        await upstream.send(ironic_response(message))

    backends = [await testbed.backend(script) for _ in range(2)]
    gateway = await testbed.gateway(*backends)
    clients = await in_flight_clients(gateway, 30, *backends)
    dies.set()
    await until(lambda: len(again) == 6)

    gateway.worker.context.retry_budget.expire(float("inf"))  # as if their time were over
    answers_now.set()
    answers = [await client.response() for client in clients]

    assert sorted(answer.status for answer in answers) == [200] * 6 + [502] * 24
    assert gateway.metric("skewgate_retries_given_up_total", service="baremetal") == 24
    assert len(again) == gateway.metric("skewgate_retries_total", reason="no_reply") == 6


async def test_R4_requests_of_a_dead_backend_take_turns_and_none_is_lost(
    testbed: Testbed,
) -> None:
    """At no time are more than three of these twelve in flight again."""
    dies = asyncio.Event()
    highest = 0

    async def mortal(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await dies.wait()

    async def good(upstream: UpstreamConnection) -> None:
        nonlocal highest
        await dies.wait()
        message = await upstream.request()
        highest = max(
            highest, int(gateway.metric("skewgate_backend_connections", backend="good", state="active"))
        )
        await upstream.send(ironic_response(message))
        await serve(upstream)

    bad, other = await testbed.backend(mortal), await testbed.backend(good, name="good")
    gateway = await testbed.gateway(bad, other)
    gateway.snapshot_holder.apply("baremetal", Drain("good"))
    clients = await in_flight_clients(gateway, 12, bad)
    gateway.snapshot_holder.apply("baremetal", Drain("good", drained=False))
    dies.set()

    assert [(await client.response()).status for client in clients] == [200] * 12
    assert 0 < highest <= 3
    assert gateway.metric("skewgate_retries_given_up_total", service="baremetal") == 0


async def test_R4_a_retry_is_over_when_its_response_begins(
    testbed: Testbed,
) -> None:
    dies, goes_on = asyncio.Event(), asyncio.Event()
    begun = 0

    async def mortal(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await dies.wait()

    async def slow(upstream: UpstreamConnection) -> None:
        nonlocal begun
        await upstream.request()
        await upstream.send(response(200, "Content-Length: 4") + b"hal")
        begun += 1
        await goes_on.wait()
        await upstream.send(b"f")

    bad, good = await testbed.backend(mortal), await testbed.backend(slow, name="good")
    gateway = await testbed.gateway(bad, good)
    gateway.snapshot_holder.apply("baremetal", Drain("good"))
    clients = await in_flight_clients(gateway, 12, bad)
    gateway.snapshot_holder.apply("baremetal", Drain("good", drained=False))
    dies.set()
    await until(lambda: begun == 12)
    goes_on.set()

    assert [(await client.response()).body for client in clients] == [b"half"] * 12


async def queued(testbed: Testbed) -> tuple[Gateway, list[Client], list[ScriptedBackend]]:
    """Ten clients whose backends have died, and do not answer what is sent again: three at once may be."""
    dies = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        if not dies.is_set():
            await dies.wait()
        else:
            await upstream.ended()

    backends = [await testbed.backend(script) for _ in range(2)]
    gateway = await testbed.gateway(*backends)
    clients = await in_flight_clients(gateway, 10, *backends)
    dies.set()
    return gateway, clients, backends


async def test_a_client_that_leaves_while_its_request_is_queued_leaves_nothing_behind(
    testbed: Testbed,
) -> None:
    gateway, clients, _ = await queued(testbed)
    await until(lambda: gateway.metric("skewgate_retries_total", reason="no_reply") == 3)

    for client in clients:
        client.reset()
    await gateway.recorded(10)
    assert {record.reason for record in gateway.records} == {"client_gone"}


async def test_queued_requests_do_not_delay_the_end_of_the_gateway(testbed: Testbed) -> None:
    """And they are not sent to a backend after that."""
    gateway, clients, backends = await queued(testbed)
    await until(lambda: sum(len(backend.requests) for backend in backends) == 13)

    await asyncio.wait_for(gateway.drain(0.1), 5)

    for client in clients:
        await client.ended()
    assert gateway.nothing_left()
    assert sum(backend.connections for backend in backends) == 13
    assert len(gateway.records) == 10


@pytest.mark.parametrize("method, status, attempts", [("GET", 200, 2), ("POST", 504, 1)])
async def test_a_backend_that_hangs_fails_only_requests_that_are_not_idempotent(
    testbed: Testbed, method: str, status: int, attempts: int
) -> None:
    hangs, good = await testbed.backend(never_respond), await testbed.backend(serve)
    gateway = await testbed.gateway(hangs, good, backend_head=HEAD_TIME)
    gateway.clock.stop()
    loop, answers = asyncio.get_running_loop(), []

    while not hangs.requests:
        body = b"" if method == "GET" else b"create"
        asking = loop.create_task(gateway.request(request(method, body=body)))
        await until(lambda: asking.done() or bool(hangs.requests))  # noqa: B023 - awaited at once
        while hangs.requests and not asking.done():
            gateway.turn(HEAD_TIME)
            await settle()
        answers.append(await asking)
    assert answers[-1].status == status
    assert gateway.records[-1].attempts == attempts
    assert len(hangs.requests) + len(good.requests) == len(answers) + attempts - 1


async def test_R6_after_two_timeouts_there_is_no_third_attempt(testbed: Testbed) -> None:
    backends = [await testbed.backend(never_respond) for _ in range(3)]
    gateway = await testbed.gateway(*backends, backend_head=0.05)

    assert (await gateway.request(request())).status == 504
    assert sum(len(backend.requests) for backend in backends) == 2


@pytest.mark.parametrize("data", [b"HTTP/1.1 2", b"HTTP/1.1 102 Processing\r\n\r\n"], ids=["byte", "1xx"])
@pytest.mark.parametrize("end, status", [("closes", 502), ("hangs", 504)])
async def test_R3_after_the_first_byte_of_a_response_nothing_is_sent_again(
    testbed: Testbed, data: bytes, end: str, status: int
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(data)
        if end == "hangs":
            await upstream.ended()

    first, second = await testbed.backend(script), await testbed.backend(script)
    gateway = await testbed.gateway(first, second, backend_head=HEAD_TIME)
    gateway.clock.stop()
    client = await gateway.client()

    await client.send(request())
    if end == "hangs":
        pools = gateway.worker.pools.by_key.values()
        await until(lambda: any(one._any_byte_received for pool in pools for one in pool.connections))
        gateway.turn(HEAD_TIME)
    answer = await client.response()
    assert (answer.status if data.count(b"\r\n\r\n") == 0 else (await client.response()).status) == status
    assert len(first.requests) + len(second.requests) == 1


async def test_a_backend_that_dies_under_traffic_loses_no_safe_request(testbed: Testbed) -> None:
    """It had half of the requests in flight, which is more than may be sent again at once."""
    release = asyncio.Event()

    async def patient(upstream: UpstreamConnection, *, mortal: bool = False) -> None:
        while True:
            message = await upstream.request()
            if message.target == "/v1/slow":
                await release.wait()
                if mortal:
                    return
            await upstream.send(ironic_response(message))

    backends = await testbed.backend(patient), await testbed.backend(partial(patient, mortal=True))
    gateway = await testbed.gateway(*backends)
    clients = [await gateway.client() for _ in range(20)]
    for client in clients:
        await client.send(request("GET", "/v1/slow"))
    await until(lambda: sum(len(backend.requests) for backend in backends) == 20)
    release.set()

    assert {(await client.response()).status for client in clients} == {200}
    assert gateway.metric("skewgate_retries_total", reason="no_reply") > 20 // 5


@pytest.mark.parametrize("target", ["/v1/nodes?_method=POST", "/v1/nodes?a=b;%5Fmethod=patch"])
async def test_R_A17_a_get_that_servers_execute_as_a_post_is_not_sent_again(
    testbed: Testbed, target: str
) -> None:
    """OpenStack servers take the method from `_method` in the query."""
    dead = await testbed.backend(no_reply)
    other = await testbed.backend(no_reply)
    gateway = await testbed.gateway(dead, other)

    response = await gateway.request(f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())

    assert response.status == 502
    assert len(dead.requests) + len(other.requests) == 1
