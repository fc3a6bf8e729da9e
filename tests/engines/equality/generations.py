"""Traffic while the offer moves: every answer must be of one generation, whichever it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final, final

from tests.engines.equality.apis import Fleet
from tests.engines.equality.members import MEMBER_HEADER, RECEIVED_HEADER
from tests.kit.clients import Answer, ByteClient

HEADER: Final = "X-OpenStack-Ironic-API-Version"
MINIMUM: Final = "x-openstack-ironic-api-minimum-version"
MAXIMUM: Final = "x-openstack-ironic-api-maximum-version"


@final
class Traffic:
    """Clients of an Ironic fleet, without a pause. `problems`: answers of no generation, or of two."""

    def __init__(self, fleet: Fleet, port: int, ranges: Collection[tuple[str, str]]) -> None:
        self._fleet = fleet
        self._port = port
        self._ranges = ranges
        self.problems: list[str] = []
        self.answers = Counter[str]()
        """By who answered with which maximum."""
        self._more = asyncio.Event()

    async def client(self, seed: int) -> None:
        """One client, until it is cancelled."""
        random, connection = Random(seed), ByteClient(self._port)
        try:
            while True:
                version = random.choice(
                    ("latest", "1.1", "1.31", self._fleet.old, "1.60", "1.72", self._fleet.new)
                )
                answer = await connection.exchange(self._request(version))
                self._judge(version, answer)
                self._more.set()
        finally:
            connection.close()

    def _request(self, version: str) -> bytes:
        lines = ("GET /v1/nodes HTTP/1.1", f"Host: {self._fleet.api.host}", f"{HEADER}: {version}", "", "")
        return "\r\n".join(lines).encode()

    async def answered(self, number: int) -> None:
        """Wait for so many more answers."""
        wanted = self.answers.total() + number
        while self.answers.total() < wanted:
            self._more.clear()
            await self._more.wait()

    def _judge(self, version: str, answer: Answer) -> None:
        member = "".join(answer.values(MEMBER_HEADER))
        served = "".join(answer.values(HEADER))
        told = "".join(answer.values(MINIMUM)), "".join(answer.values(MAXIMUM))
        self.answers[f"{'member' if member else 'gateway'} {told[1]}"] += 1
        found = ""
        if told not in self._ranges:
            found = f"the range {told} was never offered"
        elif answer.status == (406 if member else 200):
            found = f"{member or 'the gateway'} answered {answer.status}"
        elif member and not key(told[0]) <= key(served) <= key(told[1]):
            found = f"{served} was served and {told} told"
        elif member and served != (told[1] if version == "latest" else version):
            found = f"{served} was served for {version}, with {told}"
        elif member and f"{HEADER}: {served}".lower() not in "".join(answer.values(RECEIVED_HEADER)).lower():
            found = f"{served} was told and {answer.values(RECEIVED_HEADER)} sent"
        elif (
            not member
            and answer.status == 406
            and version != "latest"
            and key(told[0]) <= key(version) <= key(told[1])
        ):
            found = f"{version} was refused, with {told}"
        elif answer.status not in (200, 406):
            found = f"status {answer.status}: {answer.body[:200]!r}"
        if found:
            self.problems.append(f"{version}: {found}")


def key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
