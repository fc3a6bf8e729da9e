"""What requests and connections take: bytes of bodies in the record, and what is used of the limits."""

from __future__ import annotations

import pytest

from tests.dataplane.upgrades import ALLOWED, UPGRADE, echo
from tests.kit.backends import never_respond, serve
from tests.kit.messages import KIB, request, version_line
from tests.kit.waiting import until
from tests.kit.workers import Testbed

POST = ("POST", "/v1/nodes", version_line("1.31"))


@pytest.mark.parametrize(
    "lines, body, size",
    [
        ((), b"", 0),
        (("Content-Length: 0",), b"", 0),
        (("Content-Length: 5",), b"hello", 5),
        (("Transfer-Encoding: chunked",), b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", 6),
        ((f"Content-Length: {200 * KIB}",), b"x" * 200 * KIB, 200 * KIB),
    ],
    ids=["none", "empty", "held", "chunked", "streamed"],
)
async def test_the_bytes_of_a_request_body_are_recorded(
    testbed: Testbed, lines: tuple[str, ...], body: bytes, size: int
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    response = await gateway.request(request(*POST, *lines), body)

    (record,) = gateway.records
    assert response.status == 200
    assert (record.bytes_in, record.bytes_out) == (size, len(response.body))


async def test_of_a_refused_body_what_came_is_recorded(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"body": KIB})
    response = await gateway.request(
        request(*POST, "Transfer-Encoding: chunked"), b"800\r\n" + b"x" * (KIB + 1)
    )

    (record,) = gateway.records
    assert response.status == 413
    assert record.bytes_in == KIB + 1


async def test_in_a_tunnel_all_bytes_are_those_of_its_body(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(echo, upgrade=ALLOWED)
    client = await gateway.client()
    assert (await client.request(UPGRADE)).status == 101
    await client.send(b"hello")
    assert await client.reader.readexactly(5) == b"hello"
    client.half_close()
    await client.ended()
    await until(lambda: bool(gateway.records))

    (record,) = gateway.records
    assert (record.bytes_in, record.bytes_out) == (5, 5)


async def test_connections_and_held_bodies_are_counted_beside_their_limits(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond)
    before = gateway.worker.report().use["0"]
    assert (before.clients, before.handshakes, before.held_body_bytes) == (0, 0, 0)
    limits = gateway.worker.context.limits
    assert before.max_handshakes == limits.handshakes
    assert before.max_held_body_bytes == limits.replay_total
    assert before.max_clients > 0

    clients = [await gateway.client() for _ in range(3)]
    await clients[0].send(request(*POST, "Content-Length: 5"), b"hello")
    await backend.received()
    await until(lambda: gateway.worker.report().use["0"].clients == 3)
    assert gateway.worker.report().use["0"].held_body_bytes == 5

    for client in clients:
        client.reset()
    await until(lambda: gateway.worker.report().use["0"] == before)
