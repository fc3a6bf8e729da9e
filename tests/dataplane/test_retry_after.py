"""`Retry-After` on a 503: only where the clients of the dialect, or the operator, can use it."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

from dataclasses import replace

from gateway.core.fleet.snapshot import Snapshot
from tests.kit.backends import refusing_backend
from tests.kit.messages import Message, request, version_line
from tests.kit.workers import Testbed, service_of


async def unavailable(testbed: Testbed, *, retry_after: bool | None = None) -> list[Message]:
    """A 503 because no connection can be made, and one because nothing is on offer yet. `retry_after`: as an
    operator has configured it."""
    answers = []
    for backend in (refusing_backend(), replace(refusing_backend(), declared=None)):
        gateway = await testbed.gateway(backend)
        service = replace(service_of(backend), retry_after=retry_after)
        gateway.snapshot_holder.update(Snapshot.configured([service], now=0.0))
        answers.append(await gateway.request(request("GET", "/v1/nodes", version_line("1.31"))))
    assert [answer.status for answer in answers] == [503, 503]
    return answers


async def test_R_D2_a_503_of_ironic_has_no_retry_after(testbed: Testbed) -> None:
    for answer in await unavailable(testbed):
        assert "retry-after" not in answer.names


async def test_R_D2_an_operator_may_have_it_sent(testbed: Testbed) -> None:
    for answer in await unavailable(testbed, retry_after=True):
        assert answer.one("retry-after") == "2"


async def test_R_D2_an_operator_may_have_it_left_out(testbed: Testbed) -> None:
    for answer in await unavailable(testbed, retry_after=False):
        assert "retry-after" not in answer.names
