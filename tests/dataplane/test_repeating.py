"""What was sent and got no reply: when it is sent again, how many at once, and how long it is waited for."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gateway.core.fleet import Drain
from tests.dataplane.stand import (
    Client,
    Hop,
    House,
    ScriptedBackend,
    Stand,
    ironic_reply,
    serve,
    until,
)
from tests.dataplane.troubles import hold
from tests.dataplane.wire import Message, request


async def under_way(gateway: Stand, number: int, *backends: ScriptedBackend) -> list[Client]:
    """So many clients whose requests have reached a backend."""
    clients = [await gateway.client() for _ in range(number)]
    for client in clients:
        await client.send(request())
    await until(lambda: sum(len(each.requests) for each in backends) == number)
    return clients


async def test_only_a_fifth_of_the_requests_is_sent_again_at_once_the_others_wait_and_are_given_up(
    house: House,
) -> None:
    """All backends die under 30 requests, and are slow when they are asked again."""
    dies, answers_now = asyncio.Event(), asyncio.Event()
    again: list[Message] = []

    async def script(hop: Hop) -> None:
        message = await hop.request()
        if not dies.is_set():
            await dies.wait()
            return
        again.append(message)
        await answers_now.wait()
        await hop.say(ironic_reply(message))

    backends = [await house.backend(script) for _ in range(2)]
    gateway = await house.gateway(*backends)
    clients = await under_way(gateway, 30, *backends)
    dies.set()
    await until(lambda: len(again) == 6)

    gateway.worker.context.budget.expire(float("inf"))  # as if the time had passed
    answers_now.set()
    answers = [await client.reply() for client in clients]

    assert sorted(each.status for each in answers) == [200] * 6 + [502] * 24
    assert gateway.metric("skewgate_retries_given_up_total", service="baremetal") == 24
    assert len(again) == gateway.metric("skewgate_retries_total", reason="no_reply") == 6


async def test_of_many_requests_on_a_backend_that_dies_none_is_lost_where_another_answers(
    house: House,
) -> None:
    """They take turns; at no time are more than three of these twelve sent again."""
    dies = asyncio.Event()
    most = 0

    async def mortal(hop: Hop) -> None:
        await hop.request()
        await dies.wait()

    async def good(hop: Hop) -> None:
        nonlocal most
        await dies.wait()
        message = await hop.request()
        most = max(most, int(gateway.metric("skewgate_backend_connections", backend="good", state="active")))
        await hop.say(ironic_reply(message))
        await serve(hop)

    bad, honest = await house.backend(mortal), await house.backend(good, name="good")
    gateway = await house.gateway(bad, honest)
    gateway.cell.obey("baremetal", Drain("good"))
    clients = await under_way(gateway, 12, bad)
    gateway.cell.obey("baremetal", Drain("good", drained=False))
    dies.set()

    assert [(await client.reply()).status for client in clients] == [200] * 12
    assert 0 < most <= 3
    assert gateway.metric("skewgate_retries_given_up_total", service="baremetal") == 0


async def test_who_is_replied_to_makes_room_for_the_next_however_long_the_reply_goes_on(
    house: House,
) -> None:
    dies, goes_on = asyncio.Event(), asyncio.Event()
    begun = 0

    async def mortal(hop: Hop) -> None:
        await hop.request()
        await dies.wait()

    async def slow(hop: Hop) -> None:
        nonlocal begun
        await hop.request()
        await hop.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhal")
        begun += 1
        await goes_on.wait()
        await hop.say(b"f")

    bad, good = await house.backend(mortal), await house.backend(slow, name="good")
    gateway = await house.gateway(bad, good)
    gateway.cell.obey("baremetal", Drain("good"))
    clients = await under_way(gateway, 12, bad)
    gateway.cell.obey("baremetal", Drain("good", drained=False))
    dies.set()
    await until(lambda: begun == 12)
    goes_on.set()

    assert [(await client.reply()).body for client in clients] == [b"half"] * 12


async def test_a_client_that_leaves_while_its_request_waits_for_its_turn_leaves_nothing(house: House) -> None:
    dies = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        if not dies.is_set():
            await dies.wait()
        else:
            await hop.ended()

    backends = [await house.backend(script) for _ in range(2)]
    gateway = await house.gateway(*backends)
    clients = await under_way(gateway, 10, *backends)
    dies.set()
    await until(lambda: gateway.metric("skewgate_retries_total", reason="no_reply") == 3)

    for client in clients:
        client.reset()
    await gateway.told(10)
    assert {each.error for each in gateway.outcomes} == {"client_gone"}


async def test_who_waits_for_its_turn_does_not_hold_up_the_end_of_the_gateway(house: House) -> None:
    """Nor does it go on to a backend after that."""
    dies = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        if not dies.is_set():
            await dies.wait()
        else:
            await hop.ended()

    backends = [await house.backend(script) for _ in range(2)]
    gateway = await house.gateway(*backends)
    clients = await under_way(gateway, 10, *backends)
    dies.set()
    await until(lambda: sum(len(each.requests) for each in backends) == 13)

    await asyncio.wait_for(gateway.worker.drain(0.1), 5)

    for client in clients:
        await client.ended()
    assert gateway.nothing_left()
    assert sum(each.connections for each in backends) == 13
    assert len(gateway.outcomes) == 10


@pytest.mark.parametrize("method, status, attempts", [("GET", 200, 2), ("POST", 504, 1)])
async def test_a_backend_that_hangs_costs_time_and_what_may_have_been_executed(
    house: House, method: str, status: int, attempts: int
) -> None:
    hangs, good = await house.backend(hold), await house.backend(serve)
    gateway = await house.gateway(hangs, good, backend_head=0.05)
    answers = []

    while not hangs.requests:
        answers.append(await gateway.ask(request(method, body=b"" if method == "GET" else b"create")))
    assert answers[-1].status == status
    assert gateway.outcomes[-1].attempts == attempts
    assert len(hangs.requests) + len(good.requests) == len(answers) + attempts - 1


async def test_a_reply_that_two_backends_owe_is_not_waited_for_a_third_time(house: House) -> None:
    backends = [await house.backend(hold) for _ in range(3)]
    gateway = await house.gateway(*backends, backend_head=0.05)

    assert (await gateway.ask(request())).status == 504
    assert sum(len(each.requests) for each in backends) == 2


@pytest.mark.parametrize("said", [b"HTTP/1.1 2", b"HTTP/1.1 102 Processing\r\n\r\n"], ids=["byte", "1xx"])
@pytest.mark.parametrize("then, status", [("closes", 502), ("hangs", 504)])
async def test_after_the_first_byte_nothing_is_sent_again_however_it_goes_on(
    house: House, said: bytes, then: str, status: int
) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(said)
        if then == "hangs":
            await hop.ended()

    first, second = await house.backend(script), await house.backend(script)
    gateway = await house.gateway(first, second, backend_head=0.05)

    assert (await gateway.ask(request())).status == status
    assert len(first.requests) + len(second.requests) == 1


async def test_a_backend_that_dies_under_traffic_takes_no_safe_request_along(house: House) -> None:
    """Half of the requests in flight were in its hands: more than may be sent again at once."""
    release = asyncio.Event()

    async def patient(hop: Hop, *, mortal: bool = False) -> None:
        while True:
            message = await hop.request()
            if message.target == "/v1/slow":
                await release.wait()
                if mortal:
                    return
            await hop.say(ironic_reply(message))

    backends = await house.backend(patient), await house.backend(partial(patient, mortal=True))
    gateway = await house.gateway(*backends)
    clients = [await gateway.client() for _ in range(20)]
    for client in clients:
        await client.send(request("GET", "/v1/slow"))
    await until(lambda: sum(len(each.requests) for each in backends) == 20)
    release.set()

    assert {(await client.reply()).status for client in clients} == {200}
    assert gateway.metric("skewgate_retries_total", reason="no_reply") > 20 // 5
