"""Time-outs and limits of one service: they hold for its requests, whatever the rest of the gateway has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from gateway.core.fleet.service import Match, Service
from gateway.core.fleet.timeouts import NO_TIMEOUT, TIMEOUTS
from gateway.dataplane.exchange.stages import AWAITING_RESPONSE, READING_BODY, RESPONDING
from tests.dataplane.test_slow_readers import reader_with_small_buffer, turned_until_recorded
from tests.kit.backends import Script, ScriptedBackend, UpstreamConnection, always, never_respond, serve
from tests.kit.ironic import reconfigure
from tests.kit.messages import VERSION_FIELD, request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, service_of

VERSION = f"{VERSION_FIELD}: 1.31"
PATIENT: dict[str, Any] = {
    "backend_head": 60.0,
    "backend_body_idle": 60.0,
    "client_body_idle": 60.0,
    "backend_idle": 60.0,
}
"""The time-outs of the whole file here: a test that met one of them would fail."""


def with_limits(service: Service, **values: Any) -> Service:
    """The service with these time-outs and limits."""
    timeouts = {name: value for name, value in values.items() if name in TIMEOUTS.keys}
    limits = {name: value for name, value in values.items() if name not in timeouts}
    return replace(
        service,
        timeouts=replace(service.timeouts, **timeouts),
        limits=replace(service.limits, **limits),
    )


async def two_services(
    testbed: Testbed, script: Script, **limits: Any
) -> tuple[Gateway, ScriptedBackend, ScriptedBackend]:
    """A gateway with the service of the test bed, and at `/own` another one that has these limits."""
    backend, own = await testbed.backend(script), await testbed.backend(script)
    gateway = await testbed.gateway(backend, **PATIENT)
    whole = gateway.snapshot_holder.current.views["baremetal"].service
    other = replace(service_of(own, match=Match(path="/own")), name="own")
    other = replace(other, timeouts=whole.timeouts, limits=whole.limits)
    reconfigure(gateway.snapshot_holder, [whole, with_limits(other, **limits)])
    return gateway, backend, own


async def test_backend_head(testbed: Testbed) -> None:
    gateway, backend, _ = await two_services(testbed, never_respond, backend_head=0.1)
    waiting = await gateway.client()
    await waiting.send(request("POST", "/v1/nodes", VERSION))
    await backend.received()

    answer = await gateway.request(request("POST", "/own/v1/nodes", VERSION))

    assert answer.status == 504
    assert gateway.stages == [AWAITING_RESPONSE], "the other service has its own"


async def test_backend_body_idle(testbed: Testbed) -> None:
    begun = always(response(200, VERSION, "Content-Length: 10") + b"12345")
    gateway, _, _ = await two_services(testbed, begun, backend_body_idle=0.1)
    waiting, cut = await gateway.client(), await gateway.client()

    await waiting.send(request("GET", "/v1/nodes", VERSION))
    assert (await waiting.reader.readuntil(b"12345")).endswith(b"12345")
    await cut.send(request("GET", "/own/v1/nodes", VERSION))

    assert (await cut.ended()).aborted
    assert gateway.stages == [RESPONDING]


async def test_a_time_out_that_is_off_never_comes(testbed: Testbed) -> None:
    """A watch: nothing comes for longer than the other services have."""
    events: asyncio.Queue[bytes] = asyncio.Queue()

    async def watch(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, VERSION, "Transfer-Encoding: chunked"))
        while event := await events.get():
            await upstream.send(b"%x\r\n%b\r\n" % (len(event), event))
        await upstream.send(b"0\r\n\r\n")

    backend = await testbed.backend(watch)
    gateway = await testbed.gateway(backend, backend_body_idle=0.05, backend_head=0.05)
    service = gateway.snapshot_holder.current.views["baremetal"].service
    watched = with_limits(service, backend_body_idle=NO_TIMEOUT, backend_head=NO_TIMEOUT)
    reconfigure(gateway.snapshot_holder, [watched])
    client = await gateway.client()
    await client.send(request("GET", "/v1/watch", VERSION))
    await client.reader.readuntil(b"\r\n\r\n")

    began = gateway.worker.context.now
    await until(lambda: gateway.worker.context.now > began + 0.3)  # ticks that would have cut it
    await events.put(b"added")
    await events.put(b"")

    assert await client.reader.readuntil(b"0\r\n\r\n") == b"5\r\nadded\r\n0\r\n\r\n"


async def test_client_body_idle_and_min_rate(testbed: Testbed) -> None:
    gateway, _, _ = await two_services(testbed, serve, client_body_idle=0.1)
    waiting = await gateway.client()
    await waiting.send(request("POST", "/v1/nodes", VERSION, "Content-Length: 5"))

    answer = await gateway.request(request("POST", "/own/v1/nodes", VERSION, "Content-Length: 5"))

    assert answer.status == 408
    assert gateway.stages == [READING_BODY]


async def test_min_rate(testbed: Testbed) -> None:
    testbed.min_rate_grace = 0.1
    gateway, _, _ = await two_services(testbed, serve, min_rate=0)
    patient = await gateway.client()
    await patient.send(request("POST", "/own/v1/nodes", VERSION, "Content-Length: 5"))

    assert (await gateway.request(request("POST", "/v1/nodes", VERSION, "Content-Length: 5"))).status == 408
    assert gateway.stages == [READING_BODY]


async def test_body(testbed: Testbed) -> None:
    gateway, backend, own = await two_services(testbed, serve, body=4)
    large = request("POST", "/v1/nodes", VERSION, body=b"12345")

    assert (await gateway.request(large)).status == 200
    assert (await gateway.request(large.replace(b"/v1", b"/own/v1", 1))).status == 413
    assert (len(backend.requests), len(own.requests)) == (1, 0)


async def test_replay_body_of_the_service_decides_what_is_sent_with_a_length(testbed: Testbed) -> None:
    gateway, backend, own = await two_services(testbed, serve, replay_body=2)
    chunks = b"5\r\n12345\r\n0\r\n\r\n"
    head = request("POST", "/v1/nodes", VERSION, "Transfer-Encoding: chunked")

    await gateway.request(head, chunks)
    await gateway.request(head.replace(b"/v1", b"/own/v1", 1), chunks)

    assert backend.only_request.framing == "length"
    assert own.only_request.framing == "chunked"


async def test_document(testbed: Testbed) -> None:
    document = b'{"versions": [], "x": "%b"}' % (b"x" * 200)
    script = always(response(200, "Content-Type: application/json", body=document))
    gateway, _, _ = await two_services(testbed, script, document=100)

    assert (await gateway.request(request("GET", "/"))).status == 200
    assert (await gateway.request(request("GET", "/own/"))).status == 502


async def test_connect(testbed: Testbed) -> None:
    """The address is never found: only the time-out of the service ends that."""
    never = asyncio.Event()

    async def resolve(host: str) -> tuple[str, ...]:
        await never.wait()
        return (host,)

    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, resolve=resolve, connect=60.0)
    service = gateway.snapshot_holder.current.views["baremetal"].service
    reconfigure(gateway.snapshot_holder, [with_limits(service, connect=0.1)])

    assert (await gateway.request(request("GET", "/v1/nodes", VERSION))).status == 503


async def test_backend_idle(testbed: Testbed) -> None:
    gateway, backend, own = await two_services(testbed, serve, backend_idle=0.1)
    await gateway.request(request("GET", "/v1/nodes", VERSION))
    await gateway.request(request("GET", "/own/v1/nodes", VERSION))

    await own.disconnected()

    assert gateway.worker.report().connections["baremetal", backend.name] == (1, 0)


async def test_write_buffer(testbed: Testbed) -> None:
    """What waits for a client that reads nothing is bounded by its service, and by the next one after it."""
    pieces = 64

    async def endless(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(response(200, VERSION, f"Content-Length: {pieces * 65536}"))
            for _ in range(pieces):
                await upstream.send(bytes(65536))

    gateway, _, _ = await two_services(testbed, endless, write_buffer=4096)
    client = await gateway.client()
    [connection] = gateway.worker._clients
    for path, size in (("/own/v1/nodes", 4096), ("/v1/nodes", 65536), ("/own/v1/nodes", 4096)):
        await client.request(request("GET", path, VERSION))
        assert connection.transport.get_write_buffer_limits()[1] == size


async def test_client_write_idle(testbed: Testbed) -> None:
    """Two clients read nothing. Only the one of the service with the short time-out is reset."""
    script = always(response(200, VERSION, body=bytes(8 << 20)))
    gateway, _, _ = await two_services(testbed, script, client_write_idle=0.1)
    async with reader_with_small_buffer(gateway) as waiting, reader_with_small_buffer(gateway) as cut:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(waiting, request("GET", "/v1/nodes", VERSION))
        await until(lambda: any(one.congested for one in gateway.worker._clients))
        await loop.sock_sendall(cut, request("GET", "/own/v1/nodes", VERSION))

        record = await turned_until_recorded(gateway)

        assert (record.service, record.reason) == ("own", "client_stalled")
        assert gateway.stages == [RESPONDING]


async def test_a_reload_counts_for_the_next_request_and_for_connections_that_are_idle(
    testbed: Testbed,
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.send(response(200, VERSION, body=b"1") if await upstream.request() else b"")
        await never_respond(upstream)

    gateway, _ = await testbed.gateway_and_backend(script, **PATIENT)
    client = await gateway.client()
    assert (await client.request(request("POST", "/v1/nodes", VERSION))).status == 200

    service = gateway.snapshot_holder.current.views["baremetal"].service
    reconfigure(gateway.snapshot_holder, [with_limits(service, backend_head=0.1)])

    assert (await client.request(request("POST", "/v1/nodes", VERSION))).status == 504


async def test_a_body_that_no_service_gets_has_the_limits_of_the_whole_file(testbed: Testbed) -> None:
    gateway, _, own = await two_services(testbed, serve, body=4)
    [service] = [view.service for view in gateway.snapshot_holder.current.views.values()][1:]
    reconfigure(gateway.snapshot_holder, [service])
    client = await gateway.client()

    for _ in range(2):  # its rest is discarded, and the connection stays
        assert (await client.request(request("POST", "/v1", body=b"12345"))).status == 404
    assert (await client.request(request("POST", "/own/v1", VERSION, body=b"1234"))).status == 200
    assert own.only_request.body == b"1234"
