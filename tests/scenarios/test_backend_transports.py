"""A whole gateway in front of backends on a unix socket, on IPv6 and over TLS: links, reasons, reload."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.kit.certificates import Authority, authority
from tests.kit.waiting import PATIENCE

TIMEOUT = PATIENCE
RANGE = {
    "X-OpenStack-Ironic-API-Minimum-Version": "1.1",
    "X-OpenStack-Ironic-API-Maximum-Version": "1.58",
}


class Server:
    """An Ironic that writes links with an address of its own, as one behind Apache does."""

    def __init__(self, own: str = "http://localhost") -> None:
        self.own = own
        self.hosts: list[str] = []
        app = web.Application()
        app.router.add_get("/v1", self._document)
        app.router.add_get("/v1/nodes", self._nodes)
        app.router.add_post("/v1/nodes", self._create)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    def _headers(self, request: web.Request) -> dict[str, str]:
        self.hosts.append(request.headers["Host"])
        served = request.headers.get("X-OpenStack-Ironic-API-Version", "1.1")
        return {**RANGE, "X-OpenStack-Ironic-API-Version": served}

    async def _document(self, request: web.Request) -> web.Response:
        links = [{"href": f"{self.own}/v1/", "rel": "self"}]
        version = {"id": "v1", "links": links, "min_version": "1.1", "version": "1.58", "status": "CURRENT"}
        return web.json_response(
            {"id": "v1", "links": links, "version": version}, headers=self._headers(request)
        )

    async def _nodes(self, request: web.Request) -> web.Response:
        return web.json_response({"nodes": []}, headers=self._headers(request))

    async def _create(self, request: web.Request) -> web.Response:
        headers = {**self._headers(request), "Location": f"{self.own}/v1/nodes/1"}
        return web.json_response({}, status=201, headers=headers)

    @asynccontextmanager
    async def running(self, site: Callable[[web.AppRunner], web.BaseSite]) -> AsyncIterator[int]:
        """`site`: where it listens. Gives its port, if it has one."""
        await self.runner.setup()
        await site(self.runner).start()
        address = self.runner.addresses[0]
        try:
            yield 0 if isinstance(address, str) else int(address[1])
        finally:
            await self.runner.cleanup()


def write(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "gateway.yaml"
    file.write_text(
        f"""\
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 50ms}}
    backends:
      - name: api-1
        url: {url}
{more}"""
    )
    return file


@asynccontextmanager
async def gateway_of(file: Path) -> AsyncIterator[Gateway]:
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        yield gateway


async def until(gateway: Gateway, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What `/status` says of the backend, once it holds."""
    async with asyncio.timeout(TIMEOUT), aiohttp.ClientSession() as session:
        while True:
            status = await (await session.get(f"{gateway.admin_url}/status")).json()
            backend: dict[str, Any] = status["services"]["baremetal"]["backends"]["api-1"]
            if holds(backend):
                return backend
            await asyncio.sleep(0.01)


def fresh(backend: dict[str, Any]) -> bool:
    return bool(backend["freshness"] == "fresh")


async def raw(gateway: Gateway, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*gateway.addresses[0])
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_backend_on_a_unix_socket(tmp_path: Path) -> None:
    server, path = Server(), tmp_path / "api.sock"
    async with (
        server.running(lambda runner: web.UnixSite(runner, path)),
        gateway_of(write(tmp_path, f"unix:{path}")) as gateway,
    ):
        assert (await until(gateway, fresh))["url"] == f"unix:{path}"
        probed = set(server.hosts)
        del server.hosts[:]
        base = "http://{}:{}".format(*gateway.addresses[0])
        async with aiohttp.ClientSession() as session:
            document = await (await session.get(f"{base}/v1")).json()
            created = await session.post(f"{base}/v1/nodes", json={})
            host = f"127.0.0.1:{gateway.addresses[0][1]}"
            assert host in server.hosts
        old = await raw(gateway, b"GET /v1/nodes HTTP/1.0\r\n\r\n")

    assert probed == {"localhost"}
    assert document["links"] == [{"href": f"{base}/v1/", "rel": "self"}]
    assert created.headers["Location"] == f"{base}/v1/nodes/1"
    assert old.startswith(b"HTTP/1.1 200 ")
    assert "localhost" in server.hosts


async def test_a_backend_on_ipv6(tmp_path: Path) -> None:
    server = Server()
    async with server.running(lambda runner: web.TCPSite(runner, "::1", 0)) as port:
        server.own = f"http://[::1]:{port}"
        async with gateway_of(write(tmp_path, f"http://[::1]:{port}")) as gateway:
            await until(gateway, fresh)
            base = "http://{}:{}".format(*gateway.addresses[0])
            async with aiohttp.ClientSession() as session:
                document = await (await session.get(f"{base}/v1")).json()
                created = await session.post(f"{base}/v1/nodes", json={})

    assert document["links"] == [{"href": f"{base}/v1/", "rel": "self"}]
    assert created.headers["Location"] == f"{base}/v1/nodes/1"


async def test_a_certificate_that_does_not_match_is_told_and_a_reload_mends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reload reads the file of the CA again although the configuration has not changed."""
    caplog.set_level(logging.INFO)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority().server("api.test").write(tmp_path))
    ca = Authority("Somebody").write(tmp_path)
    server = Server()
    async with server.running(
        lambda runner: web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    ) as port:
        server.own = f"https://127.0.0.1:{port}"
        file = write(tmp_path, server.own, f"        tls: {{ca: {ca}, server_name: api.test}}\n")
        async with gateway_of(file) as gateway:
            failed = await until(gateway, lambda backend: backend["error"] is not None)
            authority().write(tmp_path)
            gateway.on_sighup()
            mended = await until(gateway, fresh)
            base = "http://{}:{}".format(*gateway.addresses[0])
            async with aiohttp.ClientSession() as session:
                document = await (await session.get(f"{base}/v1")).json()
                created = await session.post(f"{base}/v1/nodes", json={})

    reason = "its certificate is not valid: unable to get local issuer certificate"
    assert reason in failed["error"]
    assert reason in caplog.text
    assert (mended["error"], mended["url"]) == (None, f"https://127.0.0.1:{port}")
    assert document["links"] == [{"href": f"{base}/v1/", "rel": "self"}]
    assert created.headers["Location"] == f"{base}/v1/nodes/1"


async def test_a_declared_backend_has_the_reason_from_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority().server("other.test").write(tmp_path))
    ca = authority().write(tmp_path)
    more = f"        tls: {{ca: {ca}}}\n        versions: 1.1-1.58\n"
    server = Server()
    async with server.running(
        lambda runner: web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    ) as port:
        file = write(tmp_path, f"https://127.0.0.1:{port}", more)
        file.write_text(file.read_text().replace("50ms", "60s"))
        async with gateway_of(file) as gateway:
            base = "http://{}:{}".format(*gateway.addresses[0])
            async with aiohttp.ClientSession() as session:
                assert (await session.get(f"{base}/v1/nodes")).status == 503
            failed = await until(gateway, lambda backend: backend["error"] is not None)

    reason = "its certificate is not valid: IP address mismatch"
    assert failed["error"].startswith(f"a request could not connect to it: {reason}")
    assert reason in caplog.text


async def test_a_reload_with_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority().server("127.0.0.1").write(tmp_path))
    ca = authority().write(tmp_path)
    server = Server()
    async with (
        server.running(lambda runner: web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)) as port,
        gateway_of(write(tmp_path, f"https://127.0.0.1:{port}", f"        tls: {{ca: {ca}}}\n")) as gateway,
    ):
        await until(gateway, fresh)
        ca.write_text("nothing")
        async with aiohttp.ClientSession() as session:
            answer = await session.post(f"{gateway.admin_url}/-/reload")
            assert answer.status == 400
            assert "no certificate in PEM" in (await answer.json())["error"]
            base = "http://{}:{}".format(*gateway.addresses[0])
            assert (await session.get(f"{base}/v1/nodes")).status == 200
