"""The rest of a request body that arrives after the response: whatever is wrong with it, no second response.

A client with two requests on their way would take it for the response to the second one.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from tests.kit.backends import UpstreamConnection, serve
from tests.kit.clients import Client
from tests.kit.messages import SMUGGLED, request, request_head, response, version_line
from tests.kit.workers import Gateway, Testbed

POST = "POST /v1/nodes HTTP/1.1"


async def refused_before_its_body(
    testbed: Testbed, *, limits: dict[str, int] | None = None, client_idle: float = 10.0
) -> tuple[Gateway, Client]:
    """A client that has got a refusal while its chunked body is still on the way. The connection is kept."""
    gateway = await testbed.gateway(await testbed.backend(serve), limits=limits, client_idle=client_idle)
    client = await gateway.client()
    await client.send(request_head(version_line("1.999"), "Transfer-Encoding: chunked", start=POST))
    answer = await client.response("POST")
    assert (answer.status, answer.every("connection")) == (406, [])
    return gateway, client


async def assert_only_closed(testbed: Testbed, gateway: Gateway, client: Client) -> None:
    assert (await client.ended()).rest == b""
    assert len(gateway.records) == 1
    assert not testbed.backends[0].requests


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"5\r\nhelloX", b"5;" + b"e" * 9000, b"-1\r\n", b"0\r\nX: y\rz\r\n\r\n"]
)
async def test_R_A16_a_body_that_breaks_after_the_response_gets_no_second_one(
    testbed: Testbed, rest: bytes
) -> None:
    gateway, client = await refused_before_its_body(testbed)

    await client.send(b"3\r\nabc\r\n" + rest + SMUGGLED)

    await assert_only_closed(testbed, gateway, client)
    reasons = ("chunk", "chunk_overhead")
    assert sum(gateway.metric("skewgate_client_errors_total", reason=reason) for reason in reasons) == 1


async def test_R_A16_a_body_that_grows_after_the_response_is_discarded_up_to_the_limit(
    testbed: Testbed,
) -> None:
    gateway, client = await refused_before_its_body(testbed, limits={"replay_body": 1024})

    for _ in range(4):
        await client.send(b"200\r\n" + b"x" * 512 + b"\r\n")
    await client.send(b"0\r\n\r\n" + request("GET", "/v1/nodes", "Connection: close"))

    await assert_only_closed(testbed, gateway, client)


async def test_R_A16_a_body_that_stops_after_the_response_gets_no_second_one(testbed: Testbed) -> None:
    gateway, client = await refused_before_its_body(testbed, client_idle=0.3)

    await client.send(b"3\r\nab")

    await assert_only_closed(testbed, gateway, client)


async def test_R_A16_a_body_that_breaks_after_the_response_of_a_backend_gets_no_second_one(
    testbed: Testbed,
) -> None:
    """The backend did not wait for the body, which streams."""

    async def hasty(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(response(200, version_line("1.1"), body=b"done"))
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(hasty, limits={"replay_body": 1024})
    client = await gateway.client()
    streamed = b"800\r\n" + b"x" * 2048 + b"\r\n"
    await client.send(request_head("Transfer-Encoding: chunked", start=POST), streamed)
    answer = await client.response("POST")
    assert (answer.status, answer.body, answer.one("connection")) == (200, b"done", "close")

    await client.send(b"zz\r\n" + SMUGGLED)

    assert (await client.ended()).rest == b""
    assert len(gateway.records) == 1
