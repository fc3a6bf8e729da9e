"""Tunnels where the client, the backend or both speak TLS to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Final

import pytest

from tests.dataplane.backend_tls import both_sides
from tests.dataplane.listener_tls import raw_client, tls_listener
from tests.dataplane.upgrades import SWITCHES, UPGRADE, echo, exactly, waiting_in
from tests.kit.backends import Script, UpstreamConnection
from tests.kit.clients import Client
from tests.kit.messages import KIB
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Testbed

MUCH: Final = 8 * KIB * KIB
MOST: Final = 400 * KIB
"""Bytes that wait at most: what TLS has read and not passed on comes on top."""
SIDES: Final = ["client", "backend", "both"]


async def tunnel_to(testbed: Testbed, folder: Path, sides: str, script: Script) -> tuple[Gateway, Client]:
    """An open tunnel. `sides`: those that speak TLS."""
    if sides != "client":
        testbed.backend_tls = both_sides(folder)
    if sides != "backend":
        testbed.listener = tls_listener(folder)
    gateway, _ = await testbed.gateway_and_backend(script, upgrade=["echo"])
    client = await gateway.client()
    assert (await client.request(UPGRADE)).status == 101
    return gateway, client


@pytest.mark.parametrize("sides", SIDES)
async def test_bytes_pass_both_ways(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    gateway, client = await tunnel_to(testbed, tmp_path, sides, echo)
    data = b"0123456789abcdef" * (MUCH // 16)
    sending = asyncio.create_task(client.send(data))

    assert await exactly(client, MUCH) == data
    await sending
    client.writer.close()
    record = await gateway.recorded()
    assert (record.status, record.bytes_out) == (101, MUCH)
    assert record.reason in {"", "client_gone"}


@pytest.mark.parametrize("sides", SIDES)
async def test_what_a_backend_sends_at_its_end_arrives(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await upstream.send(b"x" * MUCH)

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)

    assert len((await client.ended()).rest) == MUCH
    client.writer.close()
    assert (await gateway.recorded()).bytes_out == MUCH


@pytest.mark.parametrize("sides", SIDES)
async def test_what_a_client_sends_at_its_end_arrives(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        got.set_result(len(await upstream.reader.read(-1)))

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)
    await client.send(b"x" * MUCH)
    client.writer.close()

    async with asyncio.timeout(PATIENCE):
        assert await got == MUCH
    await gateway.recorded()


@pytest.mark.parametrize("sides", SIDES)
async def test_a_client_that_does_not_read_holds_its_backend_back(
    testbed: Testbed, tmp_path: Path, sides: str
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        while True:
            await upstream.send(b"x" * 64 * KIB)

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]

    assert await waiting_in(gateway) <= MOST


async def test_a_client_of_tls_closes_one_side_and_still_reads(testbed: Testbed, tmp_path: Path) -> None:
    """As the `docker` command line does over TLS, at the end of standard input."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await upstream.send(b"all of " + await upstream.reader.read(-1) + b".")

    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(script, upgrade=["echo"])
    async with raw_client(gateway) as client:
        await client.send(UPGRADE)
        await client.read_until(b"\r\n\r\n")
        await client.send(b"standard input")
        await client.half_close()
        assert await client.read_until(b".") == b"all of standard input."

    assert (await gateway.recorded()).reason == ""


async def test_a_backend_closes_one_side_and_a_client_of_tls_still_sends(
    testbed: Testbed, tmp_path: Path
) -> None:
    got: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES + b"bye.")
        upstream.half_close()
        got.append(await upstream.reader.read(-1))

    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(script, upgrade=["echo"])
    async with raw_client(gateway) as client:
        await client.send(UPGRADE)
        await client.read_until(b"bye.")
        with contextlib.suppress(ssl.SSLZeroReturnError):
            await client.do(lambda tls: tls.read(1))
        await client.send(b"still here")
        await client.half_close()
        await backend.disconnected()

    assert got == [b"still here"]
    assert (await gateway.recorded()).reason == ""
