"""When backends or clients fail: what is tried again, what is told, and that nothing is executed twice."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace

import pytest

from gateway.core.service import RetryPlan
from gateway.core.snapshot import Snapshot
from tests.dataplane.stand import (
    NEW,
    OLD,
    House,
    Hop,
    ScriptedBackend,
    Stand,
    always,
    nobody,
    serve,
    service_of,
    until,
    versions,
)
from tests.dataplane.wire import HIGHEST, LOWEST, SERVED, Message, asks, chunked, reply, request

KIB = 1024


def told_as_ironic(answer: Message, status: int) -> None:
    """An error of the gateway in Ironic's shape, with the range on offer."""
    assert answer.status == status
    assert json.loads(json.loads(answer.body)["error_message"])["code"] == status
    assert (answer.one(LOWEST), answer.one(HIGHEST)) == ("1.1", "1.90")


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


async def test_a_connection_that_takes_too_long_is_given_up(house: House) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
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


# --- sent, no reply ----------------------------------------------------------------------------------------


async def dying(hop: Hop) -> None:
    """Executes one request and dies before the reply."""
    await hop.request()


async def pair(house: House, **more: RetryPlan) -> tuple[Stand, ScriptedBackend, ScriptedBackend]:
    """One that dies and one that is honest."""
    bad, good = await house.backend(dying), await house.backend(serve)
    return await house.gateway(bad, good, **more), bad, good


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


async def test_retries_have_a_budget(house: House) -> None:
    """All backends die at once under 30 requests: far fewer than 30 are sent again."""
    release = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        await release.wait()

    backends = [await house.backend(script) for _ in range(2)]
    gateway = await house.gateway(*backends)
    clients = [await gateway.client() for _ in range(30)]
    for client in clients:
        await client.send(request())
    await until(lambda: sum(len(each.requests) for each in backends) == 30)
    release.set()
    answers = [await client.reply() for client in clients]

    assert {each.status for each in answers} == {502}
    assert 0 < gateway.metric("skewgate_retries_total", reason="no_reply") <= 6


async def test_sending_again_can_be_switched_off(house: House) -> None:
    first, second = await house.backend(dying), await house.backend(dying)
    gateway = await house.gateway(first, second, retry=RetryPlan(on_no_reply=False))

    assert (await gateway.ask(request())).status == 502
    assert len(first.requests) + len(second.requests) == 1


# --- too slow ----------------------------------------------------------------------------------------------


async def hold(hop: Hop) -> None:
    """Takes a request and says nothing."""
    await hop.request()
    await hop.ended()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_backend_without_a_head_in_time_is_504_in_the_dialects_shape(house: House, method: str) -> None:
    gateway, backend = await house.behind(hold, backend_head=0.1)
    client = await gateway.client()

    told_as_ironic(await client.ask(request(method)), 504)
    await backend.gone()
    assert len(backend.requests) == 1
    assert (await gateway.told()).error == "reply_timeout"


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked", "X-Until: close"])
async def test_a_backend_that_stalls_in_the_body_is_cut_and_so_is_the_client(house: House, framing: str) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        begun = b"5\r\nbegun\r\n" if "chunked" in framing else b"begun"
        await hop.say(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + begun)
        await hop.ended()

    gateway, backend = await house.behind(script, backend_body_idle=0.1)
    client = await gateway.client()
    await client.send(request())

    end = await client.ended()

    assert end.rest.count(b"HTTP/1.1") == 1
    assert end.rest.rstrip(b"\r\n").endswith(b"begun")
    assert (await gateway.told()).error == "reply_stalled"
    await backend.gone()


async def test_an_unused_backend_connection_is_closed_in_time(house: House) -> None:
    gateway, backend = await house.behind(serve, backend_idle=0.1)

    assert (await gateway.ask(request())).status == 200
    await backend.gone()
    await until(lambda: gateway.worker.connections() == {("baremetal", "api-1"): (0, 0)})
    assert (await gateway.ask(request())).status == 200


async def test_an_idle_client_is_closed_quietly(house: House) -> None:
    gateway, _ = await house.behind(serve, client_idle=0.1)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    assert await client.ended() == (b"", False)


async def test_a_client_that_never_says_anything_is_closed_quietly(house: House) -> None:
    gateway, _ = await house.behind(serve, client_head=0.1)
    client = await gateway.client()

    assert await client.ended() == (b"", False)


async def test_a_slow_head_on_a_kept_connection_gets_408(house: House) -> None:
    gateway, _ = await house.behind(serve, client_head=0.1)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    assert (await client.ask(b"GET /v1/nod")).status == 408
    assert await client.ended() == (b"", False)


@pytest.mark.parametrize("size", [100, 100 * KIB])
async def test_a_body_that_stops_coming_gets_408(house: House, size: int) -> None:
    gateway, backend = await house.behind(hold, client_body_idle=0.1)
    client = await gateway.client()

    answer = await client.ask(request("POST", "/v1/x", f"Content-Length: {size}"), b"x" * (size - 50))

    told_as_ironic(answer, 408)
    assert answer.one("connection") == "close"
    assert await client.ended() == (b"", False)
    await backend.gone()
    assert (await gateway.told()).error == "client_stalled"


async def clock(gateway: Stand, ticks: int = 3) -> None:
    """Wait until the gateway's coarse clock has moved on: a client that says nothing is closed by it."""
    for _ in range(ticks):
        before = gateway.worker.context.now
        await until(lambda before=before: gateway.worker.context.now != before)  # type: ignore[misc]


async def test_a_slow_client_is_no_stalled_backend(house: House) -> None:
    """The backend is not read while the client takes nothing: that is not the backend's silence."""
    size = 32 * KIB * KIB
    gateway, _ = await house.behind(always(reply(200, body=b"x" * size)), backend_body_idle=0.1)
    client = await gateway.client(small_buffer=16 * KIB)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())
    await clock(gateway)
    assert not gateway.outcomes
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert len((await client.reply()).body) == size


async def test_a_slow_backend_is_no_stalled_client(house: House) -> None:
    """The client is not read while the backend takes nothing: that is not the client's silence."""
    size = 32 * KIB * KIB
    go_on = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.head()
        await go_on.wait()
        left = size
        while left:
            left -= len(await hop.reader.read(1 << 20))
        await hop.say(reply(200, body=b"all there"))

    gateway, backend = await house.behind(script, client_body_idle=0.1)
    client = await gateway.client()
    sending = asyncio.get_running_loop().create_task(client.send(request("PUT", body=b"x" * size)))
    await backend.came()
    await clock(gateway)
    begun = list(gateway.outcomes)
    go_on.set()
    await asyncio.wait([sending])

    assert not begun
    assert (await client.reply("PUT")).body == b"all there"


# --- clients that leave ------------------------------------------------------------------------------------


async def test_D6_a_client_that_resets_after_its_request_ends_the_exchange(house: House) -> None:
    gateway, backend = await house.behind(hold)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await backend.came()
    client.reset()

    await backend.gone()
    seen = await gateway.told()
    assert (seen.status, seen.error) == (0, "client_gone")
    assert len(backend.requests) == 1


async def test_D6_a_client_that_resets_in_the_middle_of_its_body(house: House) -> None:
    ends: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        ends.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    head = request("PUT", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"20000\r\n" + b"x" * 131072 + b"\r\n")
    await backend.came()
    client.reset()

    await backend.gone()
    assert not ends[0].endswith(b"0\r\n\r\n")
    assert (await gateway.told()).error == "client_gone"


async def test_D6_a_client_that_resets_in_the_middle_of_its_reply(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, "Content-Length: 1000") + b"begun")
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"begun")
    client.reset()

    await backend.gone()
    assert (await gateway.told()).error == "client_gone"


async def test_D6_churn_leaves_nothing_behind(house: House) -> None:
    gateway, _ = await house.behind(serve)
    for number in range(60):
        client = await gateway.client()
        if number % 3 == 0:
            client.writer.write(request()[: number % 50 + 1])
        elif number % 3 == 1:
            client.writer.write(request("POST", "/v1/x", "Content-Length: 9999") + b"x" * number)
        else:
            client.writer.write(request() * 5)
        if number % 2:
            await asyncio.sleep(0)
        client.reset()

    assert (await gateway.ask(request())).status == 200


async def test_D6_a_client_that_only_stops_talking_still_gets_its_reply(house: House) -> None:
    may_answer = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        await may_answer.wait()
        await hop.say(reply(200, body=b"late"))

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    client.finish()
    await backend.came()
    may_answer.set()

    assert (await client.reply()).body == b"late"
    assert await client.ended() == (b"", False)


async def test_D6_a_client_that_stops_talking_in_the_middle_of_a_request_is_closed(house: House) -> None:
    gateway, backend = await house.behind(serve)
    for begun in (b"GET /v1/no", request("POST", "/v1/x", "Content-Length: 9") + b"x"):
        client = await gateway.client()
        await client.send(begun)
        client.finish()
        assert not (await client.ended()).aborted
    assert not backend.requests


# --- bodies that are too large -----------------------------------------------------------------------------


async def test_a_body_that_grows_too_large_is_413_and_the_end(house: House) -> None:
    gateway, backend = await house.behind(serve, limits={"body": 10000})
    client = await gateway.client()

    answer = await client.ask(
        request("POST", "/v1/x", "Transfer-Encoding: chunked"), b"2711\r\n" + b"x" * 10001, method="POST"
    )

    told_as_ironic(answer, 413)
    assert answer.one("connection") == "close"
    assert (await client.ended()).rest == b""
    assert not backend.requests


async def test_a_streamed_body_that_grows_too_large_is_not_finished_for_the_backend(house: House) -> None:
    ends: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        ends.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script, limits={"body": 200 * KIB})
    client = await gateway.client()
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"19000\r\n" + b"x" * 100 * KIB)
    await backend.came()
    answer = await client.ask(b"\r\n", b"19001\r\n" + b"x" * (100 * KIB + 1) + b"\r\n", method="POST")

    told_as_ironic(answer, 413)
    await backend.gone()
    assert not ends[0].endswith(b"0\r\n\r\n")


async def test_a_body_of_exactly_the_limit_is_not_too_large(house: House) -> None:
    gateway, _ = await house.behind(serve, limits={"body": 1000})
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")

    assert (await gateway.ask(request("POST", body=b"x" * 1000))).status == 200
    assert (await gateway.ask(head, chunked(b"x" * 1000))).status == 200


# --- reloads under way -------------------------------------------------------------------------------------


async def test_a_backend_removed_by_a_reload_finishes_what_it_has_begun(house: House) -> None:
    may_answer = asyncio.Event()

    async def script(hop: Hop) -> None:
        message = await hop.request()
        await may_answer.wait()
        await hop.say(reply(200, f"{SERVED}: {message.one(SERVED)}", body=b"finished"))
        await hop.ended()

    leaving, staying = await house.backend(script), await house.backend(serve)
    gateway = await house.gateway(leaving)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await leaving.came()
    gateway.cell.update(Snapshot.configured([service_of(staying)], after=gateway.cell.current))
    await clock(gateway)
    may_answer.set()

    assert (await client.reply("POST")).body == b"finished"
    await leaving.gone()
    assert await client.is_open()
    assert (len(leaving.requests), len(staying.requests)) == (1, 1)


async def test_idle_connections_to_a_removed_backend_are_closed(house: House) -> None:
    leaving, staying = await house.backend(serve), await house.backend(serve)
    gateway = await house.gateway(leaving)
    assert (await gateway.ask(request())).status == 200
    gateway.cell.update(Snapshot.configured([service_of(staying)], after=gateway.cell.current))

    await leaving.gone()


async def test_a_backend_that_moved_is_asked_at_its_new_address(house: House) -> None:
    before, after = await house.backend(name="api"), await house.backend(name="api")
    gateway = await house.gateway(before)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200
    gateway.cell.update(Snapshot.configured([service_of(after)], after=gateway.cell.current))

    assert (await client.ask(request())).status == 200
    assert (len(before.requests), len(after.requests)) == (1, 1)
    await before.gone()


# --- too many ----------------------------------------------------------------------------------------------


async def test_the_client_that_has_been_idle_longest_makes_room(house: House) -> None:
    gateway, _ = await house.behind(serve, limits={"connections": 3})
    clients = [await gateway.client() for _ in range(3)]
    for client in clients:
        assert (await client.ask(request())).status == 200
        await clock(gateway, 1)

    newcomer = await gateway.client()
    assert (await newcomer.ask(request())).status == 200
    assert await clients[0].ended() == (b"", False)
    for client in (*clients[1:], newcomer):
        assert await client.is_open()


async def test_connections_in_use_do_not_make_room(house: House) -> None:
    gateway, backend = await house.behind(hold, limits={"connections": 2})
    busy = [await gateway.client() for _ in range(2)]
    for client in busy:
        await client.send(request())
    await backend.came(2)

    newcomer = await gateway.client()
    assert not (await newcomer.ended()).rest
    assert gateway.metric("skewgate_client_errors_total", reason="too_many_connections") == 1
    assert gateway.worker.in_flight() == {"baremetal": 2}


def test_versions_of_the_stand_are_what_they_say() -> None:
    assert versions(NEW).highest > versions(OLD).highest
