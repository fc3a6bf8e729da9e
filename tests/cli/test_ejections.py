"""What a whole gateway tells of a backend that is ejected: status, log, metrics, explain, and a reload."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.cli.conftest import Call
from tests.kit.servers import StreamServer
from tests.kit.waiting import until

FILE = """\
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    ejection: {ejection}
    retry: {{on: []}}
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{bad}", versions: 1.1-1.58}}
      - {{name: spare, url: "http://127.0.0.1:{good}", versions: 1.1-1.58, backup: true}}
"""


async def test_who_is_ejected_is_told_everywhere(
    tmp_path: Path, call_main: Call, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bad, good = StreamServer(hang_up), StreamServer(answer)
    await bad.start()
    await good.start()
    file = tmp_path / "gateway.yaml"

    def write(ejection: str) -> Path:
        file.write_text(FILE.format(ejection=ejection, bad=bad.port, good=good.port))
        return file

    try:
        configured = read_file(write("{failures: 2, time: 60s}"), environ={}).require()
        async with Gateway(configured, source=file) as gateway:
            host, port = gateway.addresses[0]
            statuses = []
            for _ in range(4):
                async with session.get(f"http://{host}:{port}/v1/nodes") as response:
                    statuses.append(response.status)
            admin = gateway.admin_url
            status = await call_main("status", "--admin", admin)
            explained = await call_main("explain", "GET", "/v1/nodes", "--admin", admin)
            async with session.get(f"{admin}/metrics") as response:
                metrics = await response.text()
            write("off")
            reloaded = await call_main("reload", "--admin", admin)

            async def is_told() -> bool:
                return "ejected" not in (await call_main("status", "--admin", admin)).out

            await until(is_told, "no longer ejected")
    finally:
        await bad.stop()
        await good.stop()

    assert statuses == [502, 502, 200, 200], "the backup serves"
    assert "fresh ejected" in status.out
    assert "s more: connections broke, or responses were invalid, 2 in a row" in status.out
    assert "ejected: connections broke" in explained.out
    assert 'skewgate_backend_ejected{backend="api-1",service="baremetal"} 1' in metrics
    assert reloaded.code == 0
    first, last = [record.getMessage() for record in caplog.records if record.name == "skewgate.ejection"]
    assert first.startswith("baremetal/api-1: ejected for 60 s: connections broke")
    assert last == "baremetal/api-1: no longer ejected: its configuration has changed"


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a request, and close."""
    await reader.readuntil(b"\r\n\r\n")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nX-OpenStack-Ironic-API-Version: 1.1\r\nContent-Length: 2\r\n\r\n{}")
