"""Clients that leave, bodies that are too large, reloads, too many connections: nothing is left behind."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio

from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import UpstreamConnection, never_respond, serve
from tests.kit.ironic import NEW, OLD, reconfigure, versions
from tests.kit.messages import KIB, VERSION_FIELD, chunked, request, response
from tests.kit.workers import Testbed, service_of, wait_ticks

# --- clients that leave ------------------------------------------------------------------------------------


async def test_D6_a_client_that_resets_after_its_request_ends_the_exchange(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await backend.received()
    client.reset()

    await backend.disconnected()
    record = await gateway.recorded()
    assert (record.status, record.reason) == (0, "client_gone")
    assert len(backend.requests) == 1


async def test_D6_a_client_that_resets_in_the_middle_of_its_body(testbed: Testbed) -> None:
    rests: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        rests.append((await upstream.ended()).rest)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    head = request("PUT", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"20000\r\n" + b"x" * 131072 + b"\r\n")
    await backend.received()
    client.reset()

    await backend.disconnected()
    assert not rests[0].endswith(b"0\r\n\r\n")
    assert (await gateway.recorded()).reason == "client_gone"


async def test_D6_a_client_that_resets_in_the_middle_of_its_response(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, "Content-Length: 1000") + b"begun")
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"begun")
    client.reset()

    await backend.disconnected()
    assert (await gateway.recorded()).reason == "client_gone"


async def test_D6_churn_leaves_nothing_behind(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
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

    assert (await gateway.request(request())).status == 200


async def test_D6_a_client_that_half_closes_still_gets_its_response(testbed: Testbed) -> None:
    may_answer = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await may_answer.wait()
        await upstream.send(response(200, body=b"late"))

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    client.half_close()
    await backend.received()
    may_answer.set()

    assert (await client.response()).body == b"late"
    assert await client.ended() == (b"", False)


async def test_D6_a_client_that_half_closes_in_the_middle_of_a_request_is_closed(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    for begun in (b"GET /v1/no", request("POST", "/v1/x", "Content-Length: 9") + b"x"):
        client = await gateway.client()
        await client.send(begun)
        client.half_close()
        assert not (await client.ended()).aborted
    assert not backend.requests


# --- bodies that are too large -----------------------------------------------------------------------------


async def test_a_body_that_grows_too_large_is_413_and_the_end(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits={"body": 10000})
    client = await gateway.client()

    answer = await client.request(
        request("POST", "/v1/x", "Transfer-Encoding: chunked"), b"2711\r\n" + b"x" * 10001, method="POST"
    )

    assert_ironic_error(answer, 413)
    assert answer.one("connection") == "close"
    assert (await client.ended()).rest == b""
    assert not backend.requests


async def test_a_streamed_body_that_grows_too_large_is_not_finished_for_the_backend(testbed: Testbed) -> None:
    rests: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        rests.append((await upstream.ended()).rest)

    gateway, backend = await testbed.gateway_and_backend(script, limits={"body": 200 * KIB})
    client = await gateway.client()
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")
    await client.send(head, b"19000\r\n" + b"x" * 100 * KIB)
    await backend.received()
    answer = await client.request(b"\r\n", b"19001\r\n" + b"x" * (100 * KIB + 1) + b"\r\n", method="POST")

    assert_ironic_error(answer, 413)
    await backend.disconnected()
    assert not rests[0].endswith(b"0\r\n\r\n")


async def test_a_body_of_exactly_the_limit_is_not_too_large(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"body": 1000})
    head = request("POST", "/v1/x", "Transfer-Encoding: chunked")

    assert (await gateway.request(request("POST", body=b"x" * 1000))).status == 200
    assert (await gateway.request(head, chunked(b"x" * 1000))).status == 200


# --- reloads -----------------------------------------------------------------------------------------------


async def test_a_backend_removed_by_a_reload_finishes_what_it_has_begun(testbed: Testbed) -> None:
    may_answer = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        await may_answer.wait()
        await upstream.send(response(200, f"{VERSION_FIELD}: {message.one(VERSION_FIELD)}", body=b"finished"))
        await upstream.ended()

    leaving, staying = await testbed.backend(script), await testbed.backend(serve)
    gateway = await testbed.gateway(leaving)
    client = await gateway.client()
    await client.send(request("POST", body=b"create"))
    await leaving.received()
    reconfigure(gateway.snapshot_holder, [service_of(staying)])
    await wait_ticks(gateway)
    may_answer.set()

    assert (await client.response("POST")).body == b"finished"
    await leaving.disconnected()
    assert await client.is_open()
    assert (len(leaving.requests), len(staying.requests)) == (1, 1)


async def test_idle_connections_to_a_removed_backend_are_closed(testbed: Testbed) -> None:
    leaving, staying = await testbed.backend(serve), await testbed.backend(serve)
    gateway = await testbed.gateway(leaving)
    assert (await gateway.request(request())).status == 200
    reconfigure(gateway.snapshot_holder, [service_of(staying)])

    await leaving.disconnected()


async def test_a_backend_that_moved_is_used_at_its_new_address(testbed: Testbed) -> None:
    before, after = await testbed.backend(name="api"), await testbed.backend(name="api")
    gateway = await testbed.gateway(before)
    client = await gateway.client()
    assert (await client.request(request())).status == 200
    reconfigure(gateway.snapshot_holder, [service_of(after)])

    assert (await client.request(request())).status == 200
    assert (len(before.requests), len(after.requests)) == (1, 1)
    await before.disconnected()


# --- too many connections ----------------------------------------------------------------------------------


async def test_connections_in_use_do_not_make_room(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond, limits={"connections": 2})
    busy = [await gateway.client() for _ in range(2)]
    for client in busy:
        await client.send(request())
    await backend.received(2)

    newcomer = await gateway.client()
    assert not (await newcomer.ended()).rest
    assert gateway.metric("skewgate_client_errors_total", reason="too_many_connections") == 1
    assert gateway.worker.report().in_flight_by_service == {"baremetal": 2}


def test_the_two_ranges_of_the_testbed_differ() -> None:
    assert versions(NEW).highest > versions(OLD).highest
