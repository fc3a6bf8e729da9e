"""Interim responses of backends: forwarded to clients that know them, at most 16, and final for the gateway.

100 stays the gateway's own, since it answers `Expect` itself. Owned version fields and hop-by-hop fields of
an interim response follow the rules for every response.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.kit.backends import UpstreamConnection, always, serve
from tests.kit.clients import Client
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, request, response, version_line
from tests.kit.workers import Testbed

LINK = "Link: </style.css>; rel=preload; as=style"
HINTS = f"HTTP/1.1 103 Early Hints\r\n{LINK}\r\n\r\n".encode()
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST = 16
"""Interim responses that a client gets before a final one."""


async def responses(client: Client, method: str = "GET") -> tuple[list[Message], Message]:
    """The interim responses, and the final one."""
    interim: list[Message] = []
    while (answer := await client.response(method)).status < 200:
        interim.append(answer)
    return interim, answer


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_R_B6_interim_responses_are_forwarded_in_order(testbed: Testbed, method: str) -> None:
    unknown = b"HTTP/1.1 199 Somewhat\r\nX-Progress: half\r\n\r\n"
    final = response(200, body=b"" if method == "HEAD" else b"done")
    gateway, backend = await testbed.gateway_and_backend(always(HINTS + PROCESSING + unknown + final))
    client = await gateway.client()

    for _ in range(2):  # the connection can be used again
        await client.send(request(method))
        interim, answer = await responses(client, method)
        assert [message.start_line for message in interim] == [
            "HTTP/1.1 103 Early Hints",
            "HTTP/1.1 102 Processing",
            "HTTP/1.1 199 Somewhat",
        ]
        assert interim[0].one("link") == LINK.partition(": ")[2]
        assert interim[2].one("x-progress") == "half"
        assert answer.status == 200
    assert backend.connections == 1
    assert [record.status for record in gateway.records] == [200, 200]


async def test_R_B6_an_interim_response_is_forwarded_when_it_comes(testbed: Testbed) -> None:
    """In pieces, with nothing behind it yet, and while the client still sends its body."""
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        for piece in (HINTS[:10], HINTS[10:-1], HINTS[-1:]):
            await upstream.send(piece)
            await asyncio.sleep(0)
        await upstream.reader.readexactly(200_000)
        await go_on.wait()
        await upstream.send(response(200, body=b"done"))

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("POST", "/v1/x", "Content-Length: 200000"), b"x" * 100_000)

    assert (await client.response("POST")).status == 103
    await client.send(b"x" * 100_000)
    go_on.set()
    assert (await client.response("POST")).body == b"done"


@pytest.mark.parametrize("framing", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_R_B6_the_fields_of_an_interim_response_follow_the_same_rules(
    testbed: Testbed, framing: str
) -> None:
    """Version fields are the gateway's, hop-by-hop fields are removed, and there is no content to frame."""
    lines = (
        LINK,
        framing,
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Upgrade: h2c",
        "Proxy-Connection: close",
        f"{VERSION_FIELD}: 1.77",
        f"{MIN_FIELD}: 1.7",
        f"{MAX_FIELD}: 1.99",
        "X_OpenStack_Ironic_API_Maximum_Version: 1.99",
    )
    hints = "\r\n".join(("HTTP/1.1 103 Early Hints", *lines, "", "")).encode()
    gateway, _ = await testbed.gateway_and_backend(always(hints + response(200, body=b"done")))
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", version_line("1.10")))

    (interim,), answer = await responses(client)

    assert interim.one("link") == LINK.partition(": ")[2]
    owned = {VERSION_FIELD.lower(), MIN_FIELD.lower(), MAX_FIELD.lower(), "vary"}
    assert interim.names - owned <= {"link", "date"}
    for value in (b"1.77", b"1.7\r", b"1.99"):
        assert value not in interim.head
    assert (answer.status, answer.body) == (200, b"done")
    await client.send(request())
    assert (await responses(client))[1].status == 200  # the connection can be used again


async def test_R_B6_at_most_16_interim_responses_are_forwarded(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(HINTS * MOST + response(200, body=b"done")))
    client = await gateway.client()
    await client.send(request())

    interim, answer = await responses(client)

    assert len(interim) == MOST
    assert answer.body == b"done"


async def test_R_B6_one_more_is_502(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(HINTS * (MOST + 1) + response(200)))
    client = await gateway.client()
    await client.send(request())

    interim, answer = await responses(client)

    assert 1 <= len(interim) <= MOST
    assert answer.status == 502
    await backend.disconnected()


UNVERSIONED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
REFUSAL = response(
    406,
    f"{MIN_FIELD}: 1.1",
    f"{MAX_FIELD}: 1.58",
    "Content-Type: application/json",
    body=b'{"error_message": "Version was requested but is not supported"}',
)


@pytest.mark.parametrize(
    "end, status", [(b"", 502), (REFUSAL, 503), (UNVERSIONED, 200)], ids=["closes", "refuses", "unversioned"]
)
async def test_R_B6_after_a_forwarded_interim_response_nothing_is_sent_again(
    testbed: Testbed, end: bytes, status: int
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(HINTS + end)

    first, other = await testbed.backend(script), await testbed.backend(serve)
    gateway = await testbed.gateway(replace(first.backend, weight=1_000_000), other)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", version_line("1.80")))

    interim, answer = await responses(client)

    assert ([message.status for message in interim], answer.status) == ([103], status)
    assert (await gateway.recorded()).attempts == 1
    assert not other.requests


async def test_after_a_100_of_a_backend_a_refused_request_is_sent_again(testbed: Testbed) -> None:
    """The client has got nothing yet."""
    first, other = await testbed.backend(always(CONTINUE + REFUSAL)), await testbed.backend(serve)
    gateway = await testbed.gateway(replace(first.backend, weight=1_000_000), other)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", version_line("1.80")))

    interim, answer = await responses(client)

    assert (interim, answer.status) == ([], 200)
    assert len(other.requests) == 1


async def test_a_100_of_a_backend_is_not_forwarded(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(CONTINUE + response(200, body=b"done")))
    client = await gateway.client()
    await client.send(request())

    interim, answer = await responses(client)

    assert (interim, answer.body) == ([], b"done")


async def test_a_client_that_expects_100_gets_one(testbed: Testbed) -> None:
    """The gateway's own: `Expect` is not forwarded. A backend may send another one all the same."""
    gateway, backend = await testbed.gateway_and_backend(always(CONTINUE + response(200, body=b"done")))
    client = await gateway.client()
    await client.send(request("POST", "/v1/x", "Expect: 100-continue", "Content-Length: 5"))
    assert (await client.response("POST")).status == 100
    await client.send(b"hello")

    interim, answer = await responses(client, "POST")

    assert (interim, answer.body) == ([], b"done")
    assert "expect" not in backend.only_request.names


async def test_a_client_of_http_1_0_gets_no_interim_response(testbed: Testbed) -> None:
    """It could not tell one from the final response (RFC 9110 15.2)."""
    gateway, _ = await testbed.gateway_and_backend(always(HINTS + PROCESSING + response(200, body=b"done")))
    client = await gateway.client()
    await client.send(request("GET", http="1.0"))

    assert (await client.response()).body == b"done"


async def test_interim_responses_give_a_backend_no_more_time(testbed: Testbed) -> None:
    """`backend_head` is for the final head."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(PROCESSING)
        await half_time.wait()
        await upstream.send(PROCESSING)
        await upstream.ended()

    half_time = asyncio.Event()
    gateway, _ = await testbed.gateway_and_backend(script, backend_head=2.0)
    gateway.clock.stop()
    client = await gateway.client()
    await client.send(request())
    assert (await client.response()).status == 102
    gateway.turn(1.0)
    half_time.set()
    assert (await client.response()).status == 102
    gateway.turn(1.0)

    assert (await client.response()).status == 504
