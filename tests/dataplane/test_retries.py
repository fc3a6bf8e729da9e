"""Which requests are sent to another backend, and that no request may be executed twice."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from dataclasses import replace

import pytest

from gateway.core.fleet.failures import DEFAULT_RETRY, Retry, RetryCause
from gateway.core.fleet.fleet import ConnectFailed
from gateway.dataplane.exchange.stages import Stage
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import (
    ScriptedBackend,
    UpstreamConnection,
    ironic_response,
    no_reply,
    refusing_backend,
    serve,
)
from tests.kit.ironic import OLD, versions
from tests.kit.messages import (
    KIB,
    MAX_FIELD,
    MIN_FIELD,
    VERSION_FIELD,
    chunked,
    request,
    response,
    version_line,
)
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, probe_succeeded

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
    testbed: Testbed, parts: tuple[bytes, ...]
) -> None:
    alive = await testbed.backend()
    gateway = await testbed.gateway(refusing_backend(), alive)
    gateway.prefer(0, of=2)

    assert (await gateway.request(*parts)).status == 200
    record = await gateway.recorded()
    assert (record.attempts, record.backend) == (2, "api-1")
    assert gateway.metric("skewgate_retries_total", service="baremetal", reason="connect") == 1
    assert len(alive.only_request.body) in (0, 5, 200 * KIB)


async def test_without_any_connection_the_response_is_503(testbed: Testbed) -> None:
    gateway = await testbed.gateway(refusing_backend("one"), refusing_backend("two"))
    client = await gateway.client()

    answer = await client.request(request("GET", "/v1/nodes", version_line("1.31")))

    assert_ironic_error(answer, 503)
    assert "retry-after" not in answer.names, "the clients of Ironic break on it"
    assert "connection" not in answer.names
    record = await gateway.recorded()
    assert (record.backend, record.attempts, record.reason, record.result) == (
        "none",
        2,
        "connect",
        "unavailable",
    )


async def test_a_backend_that_does_not_serve_the_version_is_never_tried(testbed: Testbed) -> None:
    old = await testbed.backend(declared=OLD)
    new = refusing_backend(declared="1.1-1.90")
    gateway = await testbed.gateway(old, replace(new, declared=versions("1.59-1.90")))

    assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.80")))).status == 503
    assert not old.requests


async def test_retries_after_failed_connections_can_be_switched_off(testbed: Testbed) -> None:
    gateway = await testbed.gateway(
        refusing_backend("one"),
        refusing_backend("two"),
        retry=Retry(on=DEFAULT_RETRY.on - {RetryCause.CONNECT}),
    )

    assert (await gateway.request(request())).status == 503
    assert (await gateway.recorded()).attempts == 1


def fill_backlog(full: socket.socket) -> list[socket.socket]:
    """Make `full` a listener that accepts no further connection while the returned sockets are open."""
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = [socket.socket() for _ in range(3)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    return fillers


async def test_a_connection_that_takes_too_long_is_given_up(testbed: Testbed) -> None:
    with socket.socket() as full:
        fillers = fill_backlog(full)
        gateway = await testbed.gateway(replace(refusing_backend(), port=full.getsockname()[1]), connect=0.1)

        assert_ironic_error(await gateway.request(request("POST", body=b"x")), 503)
        assert (await gateway.recorded()).reason == "connect_timeout"
        for filler in fillers:
            filler.close()


async def test_a_client_that_leaves_while_a_connection_is_made_leaves_nothing_behind(
    testbed: Testbed,
) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend)
    for _ in range(20):
        client = await gateway.client()
        client.writer.write(request())
        client.reset()

    assert (await gateway.request(request())).status == 200


async def test_an_upload_goes_on_when_a_connect_timeout_moves_it_to_an_idle_connection(
    testbed: Testbed,
) -> None:
    """The client is not read while a connection is made, and must be read again without one."""
    alive, size = await testbed.backend(), 1 << 20
    with socket.socket() as full:
        fillers = fill_backlog(full)
        gateway = await testbed.gateway(
            replace(refusing_backend(), port=full.getsockname()[1]), alive, connect=0.2
        )
        gateway.prefer(1, of=2)
        assert (await gateway.request(request())).status == 200
        gateway.prefer(0, of=2)
        client = await gateway.client()
        await client.send(request("POST", "/v1/x", f"Content-Length: {size}"), b"x" * (size // 2))
        await until(lambda: gateway.stages == [Stage.AWAITING_RESPONSE])
        await client.send(b"x" * (size // 2))

        assert (await client.response("POST")).status == 200
        assert len(alive.requests[1].body) == size
        assert gateway.records[1].attempts == 2
        for filler in fillers:
            filler.close()


async def test_a_backend_that_refused_a_connection_is_tried_last_until_a_probe(testbed: Testbed) -> None:
    alive, dead = await testbed.backend(declared=None), replace(refusing_backend(), declared=None)
    gateway = await testbed.gateway(alive, dead)
    probe_succeeded(gateway, alive, "1.1-1.90")
    probe_succeeded(gateway, dead, "1.1-1.90")

    gateway.prefer(1, of=2)
    for _ in range(2):
        assert (await gateway.request(request("POST", body=b"create"))).status == 200
    assert [record.attempts for record in gateway.records] == [2, 1], "no further request tries it first"

    probe_succeeded(gateway, dead, "1.1-1.90")
    assert (await gateway.request(request())).status == 200
    assert (await gateway.recorded(3)).attempts == 2


async def test_backends_that_all_refuse_connections_are_all_still_tried(testbed: Testbed) -> None:
    dead = [replace(refusing_backend(name), declared=None) for name in ("one", "two")]
    gateway = await testbed.gateway(*dead)
    for backend in dead:
        probe_succeeded(gateway, backend, "1.1-1.90")

    for _ in range(3):
        assert_ironic_error(await gateway.request(request()), 503)
    assert [record.attempts for record in gateway.records] == [2, 2, 2]
    assert len(gateway.facts) == 6


async def test_a_connect_timeout_is_dated_by_its_begin(testbed: Testbed) -> None:
    """A probe that succeeded in between is the newer fact."""
    with socket.socket() as full:
        fillers = fill_backlog(full)
        slow = replace(refusing_backend("slow"), port=full.getsockname()[1], declared=None)
        gateway = await testbed.gateway(slow, connect=0.1)
        probe_succeeded(gateway, slow, "1.1-1.90")
        client = await gateway.client()
        await client.send(request())
        await until(lambda: bool(gateway.worker.report().in_flight_by_member.get("baremetal/slow")))
        probe_succeeded(gateway, slow, "1.1-1.90")

        assert (await client.response()).status == 503
        (member,) = gateway.snapshot_holder.current.fleet.member_sets["baremetal"].all
        assert [type(fact) for _, _, fact in gateway.facts] == [ConnectFailed]
        assert not member.connect_failed
        for filler in fillers:
            filler.close()


async def test_a_lack_of_descriptors_is_not_counted_against_a_backend(testbed: Testbed) -> None:
    backend = await testbed.backend(declared=None)
    gateway = await testbed.gateway(backend)
    probe_succeeded(gateway, backend, "1.1-1.90")
    client = await gateway.client()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        answer = await client.request(request())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert answer.status == 503
    assert gateway.facts == []
    assert (await client.request(request())).status == 200


# --- sent, no response -------------------------------------------------------------------------------------


async def dying_and_serving(testbed: Testbed) -> tuple[Gateway, ScriptedBackend, ScriptedBackend]:
    """A gateway with two backends: one that dies with each request, and one that serves."""
    bad, good = await testbed.backend(no_reply), await testbed.backend(serve)
    return await testbed.gateway(bad, good), bad, good


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_an_idempotent_request_without_a_response_is_sent_again(testbed: Testbed, method: str) -> None:
    gateway, bad, good = await dying_and_serving(testbed)
    body = b"whole" if method == "PUT" else b""

    while not bad.requests:
        assert (await gateway.request(request(method, body=body))).status == 200
    assert (bad.only_request.body, good.requests[-1].body) == (body, body)
    assert gateway.records[-1].attempts == 2
    assert gateway.metric("skewgate_retries_total", service="baremetal", reason="no_reply") == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
async def test_a_request_that_is_not_idempotent_is_never_sent_twice(testbed: Testbed, method: str) -> None:
    gateway, bad, good = await dying_and_serving(testbed)
    answers = []

    while not bad.requests:
        answers.append(await gateway.request(request(method, body=b"create")))
    assert_ironic_error(answers[-1], 502)
    assert len(bad.requests) + len(good.requests) == len(answers)
    assert gateway.records[-1].reason == "no_reply"


async def test_a_post_on_a_reused_connection_is_not_sent_twice_either(testbed: Testbed) -> None:
    """The backend closes the idle connection just as the request arrives. It may have executed it."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.send(response(200, body=b"first")) if await upstream.request() else None
        await upstream.request()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    assert (await client.request(request("POST", body=b"create"))).status == 502
    assert [message.method for message in backend.requests] == ["GET", "POST"]


async def test_a_get_on_a_reused_connection_is_sent_again_also_to_the_same_backend(
    testbed: Testbed,
) -> None:
    """The backend closes idle connections by its own clock, and still accepts new ones."""

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        await upstream.send(ironic_response(message))
        if backend.connections == 1:
            await upstream.request()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()

    assert [(await client.request(request())).status for _ in range(2)] == [200, 200]
    assert (len(backend.requests), backend.connections) == (3, 2)
    assert gateway.records[-1].attempts == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_an_idle_connection_that_the_backend_has_just_closed_costs_no_request(
    testbed: Testbed, method: str
) -> None:
    """Servers do so on SIGTERM. The request and the end of the connection arrive together."""
    upstreams: list[UpstreamConnection] = []

    async def script(upstream: UpstreamConnection) -> None:
        upstreams.append(upstream)
        await serve(upstream)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    client.writer.write(request(method, body=b"create"))
    upstreams[0].half_close()

    assert (await client.response()).status == 200
    assert [message.method for message in backend.requests] == ["GET", method]
    assert gateway.records[-1].attempts == 1


async def test_idle_connections_that_were_all_closed_cost_a_safe_request_one_attempt(
    testbed: Testbed,
) -> None:
    """A backend that is killed leaves several of them, and the event loop has not reported their end yet."""
    begun = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        await begun.wait()
        await upstream.send(ironic_response(message))
        await upstream.request()

    gateway, backend = await testbed.gateway_and_backend(script)
    clients = [await gateway.client() for _ in range(5)]
    for client in clients:
        await client.send(request())
    await until(lambda: backend.connections == len(clients))
    begun.set()
    assert [(await client.response()).status for client in clients] == [200] * 5

    assert (await gateway.request(request())).status == 200
    assert (await gateway.recorded(6)).attempts == 2


async def test_a_streamed_body_is_not_sent_again(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()

    first, second = await testbed.backend(script), await testbed.backend(script)
    gateway = await testbed.gateway(first, second)

    assert (await gateway.request(request("PUT", body=b"x" * 100 * KIB))).status == 502
    assert len(first.requests) + len(second.requests) == 1


async def test_a_cut_status_line_is_502_and_nothing_is_sent_again(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(b"HTTP/1.1 2")

    first, second = await testbed.backend(script), await testbed.backend(script)
    gateway = await testbed.gateway(first, second)

    assert_ironic_error(await gateway.request(request()), 502)
    assert len(first.requests) + len(second.requests) == 1


async def test_attempts_are_bounded(testbed: Testbed) -> None:
    backends = [await testbed.backend(no_reply) for _ in range(5)]
    gateway = await testbed.gateway(*backends, retry=Retry(attempts=3))

    assert (await gateway.request(request())).status == 502
    assert sum(len(backend.requests) for backend in backends) == 3
    assert (await gateway.recorded()).attempts == 3


async def test_retries_without_a_response_can_be_switched_off(testbed: Testbed) -> None:
    first, second = await testbed.backend(no_reply), await testbed.backend(no_reply)
    gateway = await testbed.gateway(first, second, retry=Retry(on=DEFAULT_RETRY.on - {RetryCause.NO_REPLY}))

    assert (await gateway.request(request())).status == 502
    assert len(first.requests) + len(second.requests) == 1


# --- what may have been executed, and is not known to have been ---------------------------------------------


async def test_what_may_have_been_executed_is_never_answered_as_not_sent(testbed: Testbed) -> None:
    bad = await testbed.backend(no_reply)
    gateway = await testbed.gateway(bad, refusing_backend())
    gateway.prefer(0, of=2)

    assert_ironic_error(await gateway.request(request("DELETE")), 502)
    assert len(bad.requests) == 1
    assert (gateway.records[-1].reason, gateway.records[-1].attempts) == ("no_reply", 2)


@pytest.mark.parametrize("asked", ["latest", "1.80"])
async def test_what_may_have_been_executed_at_one_version_is_not_sent_at_another(
    testbed: Testbed, asked: str
) -> None:
    """The second backend was rolled back. Its refusal says nothing of what the first one has done."""

    async def rolled_back(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            version = message.one(VERSION_FIELD)
            served = f"{VERSION_FIELD}: {version}"
            bounds = (f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: 1.58")
            refused = response(
                406, *bounds, "Content-Type: application/json", body=b'{"error_message": "not supported"}'
            )
            await upstream.send(response(200, served, *bounds) if version == "1.58" else refused)

    bad, old = (
        await testbed.backend(no_reply, declared=None),
        await testbed.backend(rolled_back, declared=None),
    )
    gateway = await testbed.gateway(bad, old)
    probe_succeeded(gateway, bad, "1.1-1.90")
    probe_succeeded(gateway, old, "1.1-1.90")
    gateway.prefer(0, of=2)

    answer = await gateway.request(request("PUT", "/v1/nodes", version_line(asked), body=b"x"))

    assert len(bad.requests) == len(old.requests) == 1
    assert_ironic_error(answer, 502)
    assert gateway.records[-1].reason == "no_reply"
    assert not any(gateway.worker.report().in_flight_by_member.values())
