"""Assertions that several files share: a refusal, a refused body, an error in the shape of Ironic."""

from __future__ import annotations

import json

from tests.kit.backends import serve
from tests.kit.messages import MAX_FIELD, MIN_FIELD, SMUGGLED, Message
from tests.kit.workers import Testbed


async def assert_refused(testbed: Testbed, data: bytes, *statuses: int) -> Message:
    """`data` with a valid request behind it gets one refusal and the end, and reaches no backend.

    The refusal is short and in plain text. Its status is one of `statuses`, or 400.
    """
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    answer = await client.request(data + SMUGGLED, method="GET")
    assert answer.status in (statuses or (400,)), answer
    assert answer.one("connection") == "close"
    assert answer.one("content-type").startswith("text/plain")
    assert len(answer.body) < 100
    assert (await client.ended()).rest == b""
    assert not backend.requests
    return answer


async def assert_body_refused(testbed: Testbed, data: bytes) -> None:
    """A body that is not framed as HTTP requires gets 400 and the end, and reaches no backend."""
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    answer = await client.request(data, method="POST")
    assert (answer.status, answer.one("connection")) == (400, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    reasons = ("chunk", "chunk_overhead")
    assert sum(gateway.metric("skewgate_client_errors_total", reason=reason) for reason in reasons)


def assert_ironic_error(answer: Message, status: int) -> None:
    """An error of the gateway in the shape of Ironic, with the range on offer."""
    assert answer.status == status
    assert json.loads(json.loads(answer.body)["error_message"])["code"] == status
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.90")
