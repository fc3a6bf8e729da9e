"""A backend connection on which requests and responses have come apart.

Every later response would be the one before, mostly that of another client. What leads there, what shows it,
and for how long one connection is used at all.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.core.fleet.connections import Reuse
from gateway.dataplane.backends.pool import ConnectionPool
from gateway.dataplane.http1.request_ids import MAX_SENT_IDS
from tests.dataplane.desync import HIDDEN, unread_body_backend
from tests.dataplane.test_reuse import client_socket, first_response, raw_backend
from tests.kit.backends import Script, UpstreamConnection, serve
from tests.kit.clients import Client
from tests.kit.ironic import reconfigure
from tests.kit.messages import VERSION_FIELD, Message, request, response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

UNREAD = request("POST", "/v1/start", body=HIDDEN)
ID = "X-Openstack-Request-Id"
COUNTED = "skewgate_out_of_step_total"


def answer_to(message: Message, *lines: str, status: int = 200, body: bytes = b"{}") -> bytes:
    """A response at the version that was asked for."""
    return response(status, f"{VERSION_FIELD}: {message.one(VERSION_FIELD)}", *lines, body=body)


def pool_of(gateway: Gateway) -> ConnectionPool:
    [pool] = gateway.worker.pools.by_key.values()
    return pool


async def assert_own_responses(*clients: Client, times: int) -> None:
    """Each client gets the response to its own request, in turn."""
    for turn in range(times):
        for number, client in enumerate(clients):
            target = f"/v1/client-{number}/{turn}"
            assert (await client.request(request("GET", target))).body == target.encode()


# --- bodies that are left unread ---------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 40], ids=["new", "used once", "in use"])
async def test_R3_T1_an_unread_body_that_is_answered_as_a_request_reaches_no_client(
    testbed: Testbed, before: int
) -> None:
    """The second response leaves the backend when the first one is acknowledged: with the next request, if
    that is left to the kernel."""
    async with unread_body_backend() as backend:
        gateway = await testbed.gateway(backend.backend)
        one, other = await gateway.client(), await gateway.client()
        await assert_own_responses(one, times=before)
        for _ in range(5):
            assert (await one.request(UNREAD)).body == b"/v1/start"
            await assert_own_responses(other, one, times=5)
            pool_of(gateway)._once_until = 0.0  # as if ten minutes had passed

    assert backend.targets.count("/hidden") == 5
    assert gateway.metric(COUNTED, service="baremetal", backend="unread", reason="surplus") >= 1


@pytest.mark.parametrize("status", [400, 411, 413, 415, 501])
async def test_R3_T1_a_connection_is_not_used_again_after_a_body_was_refused(
    testbed: Testbed, status: int
) -> None:
    async def refuse(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.send(answer_to(await upstream.request(), status=status))

    gateway, backend = await testbed.gateway_and_backend(refuse)
    client = await gateway.client()

    for _ in range(2):
        assert (await client.request(request("GET", "/v1/nodes"))).status == status
    assert backend.connections == 1
    for _ in range(3):
        assert (await client.request(request("POST", "/v1/nodes", body=b"{}"))).status == status
    assert backend.connections == 3


async def test_R3_T1_a_connection_is_used_again_after_a_body_was_taken(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(3):
        assert (await client.request(request("POST", "/v1/nodes", body=b"{}"))).status == 200

    assert backend.connections == 1


async def test_R3_T1_a_response_that_came_with_the_last_piece_of_a_body_ends_the_connection(
    testbed: Testbed,
) -> None:
    """The gateway reads the last piece first, and then the response, which the backend sent without it."""
    whole = request("POST", "/v1/nodes", body=b"x" * 100_000)
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        client = await gateway.client()
        await client.send(whole[:-1])
        connection = await backend.accept()
        data = b""
        async with asyncio.timeout(PATIENCE):
            while data.count(b"x") < 99_999:
                data += await asyncio.get_running_loop().sock_recv(connection, 1 << 20)
        with client_socket(client) as sock:
            sock.send(whole[-1:])
            connection.send(response(200, body=b"early"))

        assert (await client.response("POST")).body == b"early"
        await until(lambda: gateway.worker.report().connections == {("baremetal", "raw"): (0, 0)})


# --- how long one connection is used -----------------------------------------------------------------------


def reuse(gateway: Gateway, value: Reuse) -> None:
    service = gateway.snapshot_holder.current.views["baremetal"].service
    reconfigure(gateway.snapshot_holder, [replace(service, reuse=value)])


async def test_R3_T1_a_connection_carries_so_many_requests(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    reuse(gateway, Reuse(requests=3))
    client = await gateway.client()

    for _ in range(7):
        assert (await client.request(request())).status == 200

    assert backend.connections == 3


async def test_R3_T1_a_reload_changes_how_often_a_connection_is_used(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    for _ in range(3):
        await client.request(request())
    assert backend.connections == 1

    reuse(gateway, Reuse(requests=1))
    for _ in range(3):
        await client.request(request())

    assert backend.connections == 3


async def test_R3_T1_an_idle_connection_ends_at_its_age(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, backend_idle=3600.0)
    reuse(gateway, Reuse(time=0.1))

    await gateway.request(request())

    await backend.disconnected()


async def test_R3_T1_a_connection_never_ends_at_its_age_in_the_middle_of_a_request(testbed: Testbed) -> None:
    go_on = asyncio.Event()

    async def wait(upstream: UpstreamConnection) -> None:
        while True:
            whole = answer_to(await upstream.request(), body=b"ab")
            await upstream.send(whole[:-1])
            await go_on.wait()
            await upstream.send(whole[-1:])

    gateway, backend = await testbed.gateway_and_backend(wait)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"\r\n\r\na")
    [connection] = pool_of(gateway).connections
    connection.made_at -= 300
    before = gateway.worker.context.now
    await until(lambda: gateway.worker.context.now > before)  # it has looked at every deadline
    go_on.set()

    assert await client.reader.readexactly(1) == b"b"
    assert (await client.request(request())).body == b"ab"
    assert backend.connections == 2


# --- responses to earlier requests -------------------------------------------------------------------------


def respond_with_id(choose: Callable[[list[Message]], str], field: str = ID) -> Script:
    """Name the id that `choose` gives, of the requests that have come on the connection."""

    async def script(upstream: UpstreamConnection) -> None:
        messages: list[Message] = []
        while True:
            messages.append(await upstream.request())
            await upstream.send(answer_to(messages[-1], f"{field}: {choose(messages)}"))

    return script


def id_of_the_first(messages: list[Message]) -> str:
    return messages[0].one(ID)


async def test_R3_T1_a_response_to_an_earlier_request_of_the_connection_is_502(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(respond_with_id(id_of_the_first))
    client, other = await gateway.client(), await gateway.client()
    assert (await client.request(request("GET", "/v1/nodes/1"))).status == 200

    answer = await other.request(request("GET", "/v1/nodes/2?fields=uuid"))

    assert answer.status == 502
    assert b"another request" in answer.body
    assert (await gateway.recorded(2)).reason == "misplaced"
    assert gateway.metric(COUNTED, service="baremetal", backend="api-1", reason="misplaced") == 1
    await backend.disconnected()
    assert (await other.request(request("GET", "/v1/nodes/2"))).status == 200
    assert len(backend.requests) == 3, "what may have been executed is not sent again"


@pytest.mark.parametrize(
    "choose, first, second",
    [
        (
            lambda messages: messages[-1].one(ID),
            request("GET", "/v1/a"),
            request("POST", "/v1/b", body=b"{}"),
        ),
        (id_of_the_first, request("GET", "/v1/a"), request("GET", "/v1/a")),
        (id_of_the_first, request("PUT", "/v1/a?x=1", body=b"1"), request("PUT", "/v1/a?x=2", body=b"1")),
        (
            id_of_the_first,
            request("GET", "/v1/a", f"{ID}: req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f"),
            request("GET", "/v1/b"),
        ),
        (
            lambda _: "req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f",
            request("GET", "/v1/a"),
            request("GET", "/v1/b"),
        ),
    ],
    ids=["its own id", "a cache", "an idempotent replay", "an id of the client", "an id of the backend"],
)
async def test_R3_T1_other_ids_in_responses_pass(
    testbed: Testbed, choose: Callable[[list[Message]], str], first: bytes, second: bytes
) -> None:
    gateway, backend = await testbed.gateway_and_backend(respond_with_id(choose))
    client = await gateway.client()

    for data in (first, second, second):
        assert (await client.request(data)).status == 200

    assert backend.connections == 1


async def test_R3_T1_an_id_in_a_field_of_another_api_says_nothing(testbed: Testbed) -> None:
    """A client chooses what a backend may echo there."""
    gateway, _ = await testbed.gateway_and_backend(respond_with_id(id_of_the_first, "X-Trace-Of-Request-Id"))
    client = await gateway.client()

    for path in ("/v1/a", "/v1/b"):
        assert (await client.request(request("GET", path))).status == 200


async def test_R3_T1_the_last_requests_of_a_connection_are_remembered(testbed: Testbed) -> None:
    """Not more: a connection holds little."""

    def late(messages: list[Message]) -> str:
        return messages[0 if messages[-1].target in {"/v1/end", "/v1/beyond"} else -1].one(ID)

    for others, status in ((MAX_SENT_IDS - 2, 502), (MAX_SENT_IDS - 1, 200)):
        gateway, _ = await testbed.gateway_and_backend(respond_with_id(late))
        client = await gateway.client()
        for number in range(others + 1):
            assert (await client.request(request("GET", f"/v1/{number}"))).status == 200
        assert (await client.request(request("GET", "/v1/end"))).status == status


async def test_R3_T1_an_interim_response_to_an_earlier_request_is_502(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        first = await upstream.request()
        await upstream.send(answer_to(first))
        await upstream.request()
        await upstream.send(f"HTTP/1.1 103 Early Hints\r\n{ID}: {first.one(ID)}\r\n\r\n".encode())
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.request(request("GET", "/v1/a"))

    assert (await client.request(request("GET", "/v1/b"))).status == 502


# --- a backend that was found out of step ------------------------------------------------------------------


async def test_R3_T1_a_backend_out_of_step_gets_one_request_per_connection_for_ten_minutes(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    surplus = [True]

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            more = response(200, body=b"surplus") if surplus and surplus.pop() else b""
            await upstream.send(answer_to(message) + more)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    with caplog.at_level(logging.WARNING, "skewgate.backend"):
        for _ in range(4):
            assert (await client.request(request())).body == b"{}"
        assert backend.connections == 4
        pool = pool_of(gateway)
        assert pool._once_until > gateway.worker.context.now
        surplus.append(True)
        await client.request(request())
        assert len(caplog.records) == 1, "one line in ten minutes"

        pool._once_until = gateway.worker.context.now
        for _ in range(4):
            await client.request(request())
        assert backend.connections == 6
        surplus.append(True)
        await client.request(request())

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "backend api-1 of service baremetal gets one request per connection for 10 min"
    ] * 2
    assert gateway.metric(COUNTED, reason="surplus") == 3


async def test_R3_T1_idle_connections_of_a_backend_out_of_step_are_closed(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        first = await first_response(gateway, backend)
        slow = await gateway.client()
        await slow.send(request())
        await until(lambda: gateway.worker.report().connections == {("baremetal", "raw"): (0, 1)})
        await first_response(gateway, backend, active=1)

        first.send(response(200, body=b"one") + response(200, body=b"surplus"))

        assert (await slow.response()).body == b"one"
        await until(lambda: gateway.worker.report().connections == {("baremetal", "raw"): (0, 0)})


async def test_R3_T1_a_backend_that_closes_idle_connections_is_not_out_of_step(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        idle = await first_response(gateway, backend)
        client = await gateway.client()
        with client_socket(client) as sock:
            sock.send(request("POST"))
            idle.close()
        connection = await backend.accept()
        await asyncio.get_running_loop().sock_recv(connection, 65536)
        connection.send(response(200, body=b"second"))
        assert (await client.response("POST")).body == b"second"

    assert gateway.metric(COUNTED, reason="surplus") == 0
