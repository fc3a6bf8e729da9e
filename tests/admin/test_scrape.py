"""A scrape of a large fleet: in pieces, between which the event loop turns, and never ahead of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.telemetry.exposition import PIECE
from gateway.telemetry.metrics import Metrics
from tests.admin.testbed import StartAdmin, mixed_fleet
from tests.kit.ironic import holder_of, service

BACKENDS = 100
OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}


def large_fleet() -> SnapshotHolder:
    return holder_of(service(*(Backend(f"api-{number}", "10.0.0.1", 6385) for number in range(BACKENDS))))


async def test_a_large_scrape_is_whole(admin: StartAdmin) -> None:
    testbed = await admin(large_fleet())
    for _ in range(2):  # on one connection
        response = await testbed.send("GET", "/metrics", headers=OPEN_METRICS)
        text = await response.text()
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert {"Server", "Content-Length"}.isdisjoint(response.headers)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        families = {family.name: family for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
        assert len(families["skewgate_backend_up"].samples) == BACKENDS
        assert len(text) > 4 * PIECE


async def test_a_small_scrape_has_a_length(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    response = await testbed.send("GET", "/metrics")
    assert int(response.headers["Content-Length"]) == len(await response.read()) < PIECE


async def test_head_has_no_body(admin: StartAdmin) -> None:
    testbed = await admin(large_fleet())
    response = await testbed.send("HEAD", "/metrics", headers=OPEN_METRICS)
    assert (response.status, await response.read()) == (200, b"")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")


async def test_a_scraper_of_http_1_0_gets_all_and_then_the_end(admin: StartAdmin) -> None:
    testbed = await admin(large_fleet())
    reader, writer = await asyncio.open_connection("127.0.0.1", testbed.port)
    writer.write(f"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:{testbed.port}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"chunked" not in head.lower()
    assert body.count(b"\nskewgate_backend_up{") == BACKENDS


async def test_however_many_scrapes_there_are_a_turn_of_the_loop_makes_one_piece(
    admin: StartAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, turn = asyncio.get_running_loop(), 0
    made_in: list[int] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(made_in) < 40:
            loop.call_soon(next_turn)

    def pieces(number: int = 10) -> Iterator[bytes]:
        for _ in range(number):
            made_in.append(turn)
            yield b"x" * PIECE

    monkeypatch.setattr(Metrics, "exposition", lambda *_: (pieces(), "text/plain"))
    testbed = await admin(mixed_fleet())
    next_turn()
    responses = await asyncio.gather(*(testbed.send("GET", "/metrics") for _ in range(4)))
    assert {len(await response.read()) for response in responses} == {10 * PIECE}
    assert len(made_in) == len(set(made_in)) == 40
