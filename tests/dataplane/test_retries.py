"""What is tried again and where, and that nothing is executed twice."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from dataclasses import replace

import pytest

from gateway.core.fleet import Unreached
from gateway.core.service import RetryPlan
from tests.dataplane.stand import (
    OLD,
    Hop,
    House,
    ScriptedBackend,
    Stand,
    heard,
    ironic_reply,
    nobody,
    serve,
    until,
    versions,
)
from tests.dataplane.troubles import KIB, told_as_ironic
from tests.dataplane.wire import asks, chunked, reply, request

# --- no connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (request(),),
        (request("POST", body=b"small"),),
        (request("POST", body=b"x" * 200 * KIB),),
        (request("PATCH", "/v1/x", "Transfer-Encoding: chunked"), chunked(*[b"y" * KIB] * 200)),
        (request("DELETE"),),
    ],
    ids=["GET", "POST", "large POST", "large chunked PATCH", "DELETE"],
)
async def test_without_a_connection_any_method_moves_to_another_backend(
    house: House, parts: tuple[bytes, ...]
) -> None:
    alive = await house.backend()
    gateway = await house.gateway(nobody(weight=10000), alive)

    for _ in range(50):
        assert (await gateway.ask(*parts)).status == 200
        if gateway.metric("skewgate_retries_total", service="baremetal", reason="connect"):
            break
    assert gateway.outcomes[-1].attempts == 2
    assert gateway.outcomes[-1].backend == "api-1"
    assert len(alive.requests) == len(gateway.outcomes)
    assert len(alive.requests[-1].body) in (0, 5, 200 * KIB)


async def test_without_any_connection_the_answer_is_503_and_try_again(house: House) -> None:
    gateway = await house.gateway(nobody("one"), nobody("two"))
    client = await gateway.client()

    answer = await client.ask(request("GET", "/v1/nodes", asks("1.31")))

    told_as_ironic(answer, 503)
    assert answer.one("retry-after") == "2"
    assert "connection" not in answer.names
    seen = await gateway.told()
    assert (seen.backend, seen.attempts, seen.error, seen.verdict) == ("none", 2, "connect", "unavailable")


async def test_nobody_who_does_not_serve_the_version_is_asked_instead(house: House) -> None:
    old = await house.backend(declared=OLD)
    new = nobody(declared="1.1-1.90")
    gateway = await house.gateway(old, replace(new, declared=versions("1.59-1.90")))

    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.80")))).status == 503
    assert not old.requests


async def test_moving_on_can_be_switched_off(house: House) -> None:
    gateway = await house.gateway(nobody("one"), nobody("two"), retry=RetryPlan(on_connect=False))

    assert (await gateway.ask(request())).status == 503
    assert (await gateway.told()).attempts == 1


def fill(full: socket.socket) -> list[socket.socket]:
    """Make it a listener that takes no further connection while the sockets are kept."""
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = [socket.socket() for _ in range(3)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    return fillers


async def test_a_connection_that_takes_too_long_is_given_up(house: House) -> None:
    with socket.socket() as full:
        fillers = fill(full)
        gateway = await house.gateway(replace(nobody(), port=full.getsockname()[1]), connect=0.1)

        told_as_ironic(await gateway.ask(request("POST", body=b"x")), 503)
        assert (await gateway.told()).error == "connect_timeout"
        for filler in fillers:
            filler.close()


async def test_a_client_that_leaves_while_a_connection_is_made_leaves_nothing(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend)
    for _ in range(20):
        client = await gateway.client()
        client.writer.write(request())
        client.reset()

    assert (await gateway.ask(request())).status == 200


async def refused_once(gateway: Stand) -> None:
    """Ask until somebody has refused a connection."""
    while not gateway.metric("skewgate_retries_total", reason="connect"):
        assert (await gateway.ask(request())).status == 200


async def test_who_refused_a_connection_is_tried_last_until_a_probe_answers(house: House) -> None:
    alive, dead = await house.backend(declared=None), replace(nobody(), declared=None)
    gateway = await house.gateway(alive, dead)
    heard(gateway, alive, "1.1-1.90")
    heard(gateway, dead, "1.1-1.90")

    await refused_once(gateway)
    asked = len(gateway.outcomes)
    for _ in range(30):
        assert (await gateway.ask(request("POST", body=b"create"))).status == 200
    assert {each.attempts for each in gateway.outcomes[asked:]} == {1}, "nobody waits for its refusal"

    heard(gateway, dead, "1.1-1.90")
    while gateway.metric("skewgate_retries_total", reason="connect") == 1:
        assert (await gateway.ask(request())).status == 200


async def test_where_everybody_refuses_everybody_is_still_tried(house: House) -> None:
    dead = [replace(nobody(name), declared=None) for name in ("one", "two")]
    gateway = await house.gateway(*dead)
    for each in dead:
        heard(gateway, each, "1.1-1.90")

    for _ in range(3):
        told_as_ironic(await gateway.ask(request()), 503)
    assert [each.attempts for each in gateway.outcomes] == [2, 2, 2]
    assert len(gateway.facts) == 6


async def test_a_connection_that_took_too_long_is_dated_by_when_it_was_begun(house: House) -> None:
    """A probe that answered in between knows better."""
    with socket.socket() as full:
        fillers = fill(full)
        slow = replace(nobody("slow"), port=full.getsockname()[1], declared=None)
        gateway = await house.gateway(slow, connect=0.1)
        heard(gateway, slow, "1.1-1.90")
        client = await gateway.client()
        await client.send(request())
        await until(lambda: bool(gateway.worker.load["baremetal/slow"]))
        heard(gateway, slow, "1.1-1.90")

        assert (await client.reply()).status == 503
        (member,) = gateway.cell.current.fleet.pools["baremetal"].members
        assert [type(fact) for _, _, fact in gateway.facts] == [Unreached]
        assert not member.refusing
        for filler in fillers:
            filler.close()


async def test_that_we_have_no_descriptor_left_is_not_held_against_a_backend(house: House) -> None:
    backend = await house.backend(declared=None)
    gateway = await house.gateway(backend)
    heard(gateway, backend, "1.1-1.90")
    client = await gateway.client()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        answer = await client.ask(request())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert answer.status == 503
    assert gateway.facts == []
    assert (await client.ask(request())).status == 200


# --- sent, no reply ----------------------------------------------------------------------------------------


async def dying(hop: Hop) -> None:
    """Executes one request and dies before the reply."""
    await hop.request()


async def pair(house: House) -> tuple[Stand, ScriptedBackend, ScriptedBackend]:
    """One that dies and one that is honest."""
    bad, good = await house.backend(dying), await house.backend(serve)
    return await house.gateway(bad, good), bad, good


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_an_idempotent_request_without_a_reply_is_sent_again(house: House, method: str) -> None:
    gateway, bad, good = await pair(house)
    body = b"whole" if method == "PUT" else b""

    while not bad.requests:
        assert (await gateway.ask(request(method, body=body))).status == 200
    assert (bad.only.body, good.requests[-1].body) == (body, body)
    assert gateway.outcomes[-1].attempts == 2
    assert gateway.metric("skewgate_retries_total", service="baremetal", reason="no_reply") == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
async def test_what_may_have_been_executed_is_never_sent_twice(house: House, method: str) -> None:
    gateway, bad, good = await pair(house)
    answers = []

    while not bad.requests:
        answers.append(await gateway.ask(request(method, body=b"create")))
    told_as_ironic(answers[-1], 502)
    assert len(bad.requests) + len(good.requests) == len(answers)
    assert gateway.outcomes[-1].error == "no_reply"


async def test_a_post_on_a_connection_that_had_been_used_is_not_sent_twice_either(house: House) -> None:
    """The backend closes a kept connection just as the request arrives: whether it was read, nobody knows."""

    async def script(hop: Hop) -> None:
        await hop.say(reply(200, body=b"first")) if await hop.request() else None
        await hop.request()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    assert (await client.ask(request("POST", body=b"create"))).status == 502
    assert [each.method for each in backend.requests] == ["GET", "POST"]


async def test_a_get_on_a_connection_that_had_been_used_is_sent_again_also_to_the_same_backend(
    house: House,
) -> None:
    """It closes what it thinks idle, by its own clock, and listens still."""

    async def script(hop: Hop) -> None:
        message = await hop.request()
        await hop.say(ironic_reply(message))
        if backend.connections == 1:
            await hop.request()

    gateway, backend = await house.behind(script)
    client = await gateway.client()

    assert [(await client.ask(request())).status for _ in range(2)] == [200, 200]
    assert (len(backend.requests), backend.connections) == (3, 2)
    assert gateway.outcomes[-1].attempts == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_kept_connection_that_the_backend_has_just_closed_costs_no_request(
    house: House, method: str
) -> None:
    """As a server does on SIGTERM. The request and the end of the connection arrive together."""
    hops: list[Hop] = []

    async def script(hop: Hop) -> None:
        hops.append(hop)
        await serve(hop)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    client.writer.write(request(method, body=b"create"))
    hops[0].half_close()

    assert (await client.reply()).status == 200
    assert [each.method for each in backend.requests] == ["GET", method]
    assert gateway.outcomes[-1].attempts == 1


async def test_kept_connections_that_all_died_cost_a_safe_request_one_attempt(house: House) -> None:
    """A backend that is killed leaves several behind, and the loop has not come to look at them yet."""
    begun = asyncio.Event()

    async def script(hop: Hop) -> None:
        message = await hop.request()
        await begun.wait()
        await hop.say(ironic_reply(message))
        await hop.request()

    gateway, backend = await house.behind(script)
    clients = [await gateway.client() for _ in range(5)]
    for client in clients:
        await client.send(request())
    await until(lambda: backend.connections == len(clients))
    begun.set()
    assert [(await client.reply()).status for client in clients] == [200] * 5

    assert (await gateway.ask(request())).status == 200
    assert (await gateway.told(6)).attempts == 2


async def test_a_body_that_was_passed_on_is_gone(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.head()

    first, second = await house.backend(script), await house.backend(script)
    gateway = await house.gateway(first, second)

    assert (await gateway.ask(request("PUT", body=b"x" * 100 * KIB))).status == 502
    assert len(first.requests) + len(second.requests) == 1


async def test_after_the_first_byte_of_a_reply_nothing_is_sent_again(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(b"HTTP/1.1 2")

    first, second = await house.backend(script), await house.backend(script)
    gateway = await house.gateway(first, second)

    told_as_ironic(await gateway.ask(request()), 502)
    assert len(first.requests) + len(second.requests) == 1


async def test_attempts_are_bounded(house: House) -> None:
    backends = [await house.backend(dying) for _ in range(5)]
    gateway = await house.gateway(*backends, retry=RetryPlan(attempts=3))

    assert (await gateway.ask(request())).status == 502
    assert sum(len(each.requests) for each in backends) == 3
    assert (await gateway.told()).attempts == 3


async def test_sending_again_can_be_switched_off(house: House) -> None:
    first, second = await house.backend(dying), await house.backend(dying)
    gateway = await house.gateway(first, second, retry=RetryPlan(on_no_reply=False))

    assert (await gateway.ask(request())).status == 502
    assert len(first.requests) + len(second.requests) == 1
