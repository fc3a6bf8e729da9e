"""Troubles that several files share."""

from __future__ import annotations

import json

from tests.dataplane.stand import Hop, Stand, until
from tests.dataplane.wire import HIGHEST, LOWEST, Message

KIB = 1024


def told_as_ironic(answer: Message, status: int) -> None:
    """An error of the gateway in Ironic's shape, with the range on offer."""
    assert answer.status == status
    assert json.loads(json.loads(answer.body)["error_message"])["code"] == status
    assert (answer.one(LOWEST), answer.one(HIGHEST)) == ("1.1", "1.90")


async def hold(hop: Hop) -> None:
    """Takes a request and says nothing."""
    await hop.request()
    await hop.ended()


async def clock(gateway: Stand, ticks: int = 3) -> None:
    """Wait until the gateway's coarse clock has moved on: a client that says nothing is closed by it."""
    for _ in range(ticks):
        before = gateway.worker.context.now
        await until(lambda before=before: gateway.worker.context.now != before)  # type: ignore[misc]
