"""What a gateway with two real worker processes tells about requests: in /metrics, /status and both logs."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, final

import aiohttp
import pytest

from gateway.assembly import Gateway
from tests.kit.backends import Script, ScriptedBackend, UpstreamConnection, serve
from tests.kit.gateways import gateway_of
from tests.kit.metrics import Sample, Scrape
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.processes

CONFIGURATION: Final = """
workers: 2
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{path: {log}}}
services:
  baremetal:
    dialect: ironic
    backends: [{{name: api-1, url: "http://127.0.0.1:{port}", versions: 1.1-1.58}}]
"""


@final
class Seen:
    """A gateway, its clients and its scraper."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession, log: Path) -> None:
        self.gateway = gateway
        self.log = log
        self._session = session

    async def request(self, times: int) -> None:
        """Each over a connection of its own, so that both workers get some."""
        host, port = self.gateway.addresses[0]
        for _ in range(times):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            finally:
                writer.close()

    async def scrape(self) -> Scrape:
        async with self._session.get(f"{self.gateway.admin_url}/metrics") as response:
            return Scrape(await response.text())

    async def workers(self) -> list[dict[str, Any]]:
        """As `/status` has them."""
        async with self._session.get(f"{self.gateway.admin_url}/status") as response:
            document = await response.json()
        found: list[dict[str, Any]] = document["workers"]
        return found

    async def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until it holds of the workers."""
        async with asyncio.timeout(PATIENCE):
            while not holds(found := await self.workers()):  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(0.01)
        return found

    async def lines(self, number: int) -> list[dict[str, Any]]:
        """Wait until the access log has so many: a line waits for a quarter of a second."""
        async with asyncio.timeout(PATIENCE):
            while len(found := _whole_lines(self.log)) < number:  # noqa: ASYNC110 - others write it
                await asyncio.sleep(0.01)
        return [json.loads(line) for line in found]


def _whole_lines(path: Path) -> list[bytes]:
    return (
        [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        if path.exists()
        else []
    )


@asynccontextmanager
async def seen(folder: Path, answer: Script = serve) -> AsyncIterator[Seen]:
    backend = ScriptedBackend(answer, "api-1", "1.1-1.58")
    await backend.start()
    try:
        text = CONFIGURATION.format(log=folder / "access.log", port=backend.backend.port)
        async with gateway_of(text) as gateway, aiohttp.ClientSession() as session:
            yield Seen(gateway, session, folder / "access.log")
    finally:
        await backend.close()


def has_fallen(before: Scrape, after: Scrape) -> list[Sample]:
    return [series for series, value in before.counters.items() if after.counters.get(series, -1.0) < value]


async def test_counters_are_of_all_workers_and_do_not_fall_when_one_is_replaced(tmp_path: Path) -> None:
    async with seen(tmp_path) as each:
        await each.request(20)
        first = await each.scrape()
        assert first.total("skewgate_requests_total") == 20
        assert set(first.by("worker", "skewgate_worker_up").values()) == {1}

        victim = (await each.workers())[1]
        os.kill(victim["pid"], signal.SIGKILL)
        found = await each.until(lambda workers: workers[1]["pid"] != victim["pid"] and _all_serve(workers))
        assert [worker["restarts"] for worker in found] == [0, 1]
        second = await each.scrape()
        assert has_fallen(first, second) == []

        await each.request(20)
        third = await each.scrape()
        assert third.total("skewgate_requests_total") == 40
        assert has_fallen(second, third) == []
        assert third.by("worker", "skewgate_worker_restarts_total") == {"0": 0, "1": 1}


def _all_serve(workers: list[dict[str, Any]]) -> bool:
    return all(worker["state"] == "serving" for worker in workers)


async def test_gauges_forget_a_worker_at_once(tmp_path: Path) -> None:
    async with seen(tmp_path) as each:
        host, port = each.gateway.addresses[0]
        clients = [await asyncio.open_connection(host, port) for _ in range(8)]
        try:
            found = await each.until(lambda workers: sum(worker["connections"] for worker in workers) == 8)
            os.kill(found[0]["pid"], signal.SIGKILL)
            left = await each.until(lambda workers: workers[0]["restarts"] == 1 and _all_serve(workers))
            assert sum(worker["connections"] for worker in left) == found[1]["connections"]
            gauges = await each.scrape()
            assert sum(gauges.by("worker", "skewgate_client_connections").values()) == found[1]["connections"]
        finally:
            for _, writer in clients:
                writer.close()


async def test_R3_V7_requests_of_a_worker_that_is_killed_are_counted_and_have_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One request that never ends, in one of the workers. The page says what is lost with it."""
    asked = asyncio.Event()

    async def hang(connection: UpstreamConnection) -> None:
        await connection.request()
        asked.set()
        await asyncio.Event().wait()

    async with seen(tmp_path, hang) as each:
        host, port = each.gateway.addresses[0]
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            await asyncio.wait_for(asked.wait(), PATIENCE)
            (busy,) = [worker for worker in await each.workers() if worker["connections"]]
            os.kill(busy["pid"], signal.SIGKILL)
            await each.until(lambda workers: workers[busy["slot"]]["restarts"] == 1 and _all_serve(workers))
            assert await reader.read() == b""
        finally:
            writer.close()
        counters = await each.scrape()
        cut = counters.by("worker", "skewgate_worker_cut_requests_total")
        assert cut == {"0": 0, "1": 0} | {str(busy["slot"]): 1}
        assert set(counters.by("worker", "skewgate_worker_cut_tunnels_total").values()) == {0}
        assert counters.total("skewgate_requests_total") == 0
        report = "(by its last report: requests under way 1, tunnels 0)"
        assert f"has ended: SIGKILL; its connections are cut {report};" in caplog.text
    assert _whole_lines(each.log) == []


async def test_both_workers_write_one_access_log_and_open_it_anew_together(tmp_path: Path) -> None:
    async with seen(tmp_path) as each:
        await each.request(12)
        lines = await each.lines(12)
        old = each.log.rename(tmp_path / "access.log.1")
        each.gateway.on_sigusr1()
        await each.workers()  # what they are told comes before what they are asked
        await each.request(12)
        anew = await each.lines(12)

        assert len(lines) == len(_whole_lines(old)) == len(anew) == 12
        assert {line["backend"] for line in (*lines, *anew)} == {"api-1"}
