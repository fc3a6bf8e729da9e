"""Probes over TLS and unix sockets: the same certificates as for requests, and the reason when one fails."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.controlplane.probe_client import ProbeClient
from gateway.controlplane.resolver import addresses_only
from gateway.core.dialect import Advertisement, ProbeFault
from gateway.core.fleet.backend import Backend, BackendTls
from gateway.core.fleet.service import Service
from gateway.dialects.openstack.ironic import Ironic
from tests.controlplane.fakes import ironic
from tests.kit.certificates import Leaf, authority
from tests.kit.networks import LOOPBACK

NAME = "api.test"
Serve = Callable[[ssl.SSLContext], Awaitable[int]]


def server_context(folder: Path, leaf: Leaf | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(leaf or authority().server(NAME)).write(folder))
    return context


def tls_of(folder: Path) -> BackendTls:
    return BackendTls(NAME, ca=str(authority().write(folder)))


@pytest.fixture
async def hosts() -> list[str]:
    """The Host of each request that came."""
    return []


def app_of(hosts: list[str]) -> web.Application:
    respond = ironic()

    async def handle(request: web.Request) -> web.StreamResponse:
        hosts.append(request.headers["Host"])
        return await respond(request)

    app = web.Application()
    app.router.add_get("/{any:.*}", handle)
    return app


@pytest.fixture
async def serve(hosts: list[str]) -> AsyncIterator[Serve]:
    runner = web.AppRunner(app_of(hosts), access_log=None, shutdown_timeout=0.1)
    await runner.setup()

    async def start(context: ssl.SSLContext) -> int:
        await web.TCPSite(runner, LOOPBACK, 0, ssl_context=context).start()
        return int(runner.addresses[-1][1])

    yield start
    await runner.cleanup()


async def probe(
    backend: Backend, on_certificate: Callable[[float], None] = lambda _: None
) -> Advertisement | ProbeFault:
    client = ProbeClient(
        addresses_only, certificate_seen=lambda service, backend, expiry: on_certificate(expiry)
    )
    probed = await client.probe(Service("baremetal", Ironic(), (backend,)), backend)
    return probed.found


async def test_a_probe_verifies_as_requests_do(tmp_path: Path, serve: Serve) -> None:
    port = await serve(server_context(tmp_path))

    assert isinstance(await probe(Backend("a", LOOPBACK, port, tls=tls_of(tmp_path))), Advertisement)


@pytest.mark.parametrize(
    "leaf, tls, reason",
    [
        (lambda: authority().server("other.test"), {}, "hostname mismatch"),
        (lambda: authority().server(NAME, days=-1), {}, "certificate has expired"),
        (lambda: authority().server(NAME), {"ca": None}, "unable to get local issuer certificate"),
        (lambda: authority().server(NAME), {"server_name": "127.0.0.1"}, "IP address mismatch"),
    ],
    ids=["name", "expired", "unknown CA", "address"],
)
async def test_a_wrong_certificate_is_a_fault_with_its_reason(
    tmp_path: Path, serve: Serve, leaf: Callable[[], Leaf], tls: dict[str, Any], reason: str
) -> None:
    port = await serve(server_context(tmp_path, leaf()))
    settings = replace(tls_of(tmp_path), **tls)

    fault = await probe(Backend("a", LOOPBACK, port, tls=settings))

    assert isinstance(fault, ProbeFault)
    assert fault.reason == "tls"
    assert fault.detail.startswith(f"no connection to {LOOPBACK}:{port}: its certificate is not valid: ")
    assert reason in fault.detail


async def test_a_backend_without_tls(tmp_path: Path, hosts: list[str]) -> None:
    runner = web.AppRunner(app_of(hosts), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    try:
        fault = await probe(Backend("a", LOOPBACK, runner.addresses[0][1], tls=tls_of(tmp_path)))
    finally:
        await runner.cleanup()

    assert isinstance(fault, ProbeFault)
    assert fault.reason == "tls"
    assert "it does not speak TLS" in fault.detail


async def test_the_expiry_of_a_certificate_that_was_verified_is_told(tmp_path: Path, serve: Serve) -> None:
    leaf = authority().server(NAME, days=9)
    port = await serve(server_context(tmp_path, leaf))
    seen: list[float] = []
    settings = tls_of(tmp_path)

    await probe(Backend("a", LOOPBACK, port, tls=settings), seen.append)
    assert set(seen) == {leaf.certificate.not_valid_after_utc.timestamp()}

    seen.clear()
    unverified = Backend("a", LOOPBACK, port, tls=replace(settings, verify=False))
    assert isinstance(await probe(unverified, seen.append), Advertisement)
    refused = Backend("a", LOOPBACK, port, tls=replace(settings, server_name="other.test"))
    assert isinstance(await probe(refused, seen.append), ProbeFault)
    assert seen == []


async def test_without_tls_no_expiry_is_told(tmp_path: Path, hosts: list[str]) -> None:
    path = str(tmp_path / "api.sock")
    runner = web.AppRunner(app_of(hosts), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    await web.UnixSite(runner, path).start()
    port = next(each[1] for each in runner.addresses if not isinstance(each, str))
    seen: list[float] = []
    try:
        for backend in (Backend("a", LOOPBACK, port), Backend("b", "localhost", 0, socket_path=path)):
            assert isinstance(await probe(backend, seen.append), Advertisement)
    finally:
        await runner.cleanup()

    assert seen == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_backend_that_wants_a_certificate(
    tmp_path: Path, serve: Serve, version: ssl.TLSVersion
) -> None:
    context = server_context(tmp_path)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority().pem.decode())
    port = await serve(context)
    certificate, key = map(str, authority().client().write(tmp_path, "gateway"))
    tls = tls_of(tmp_path)

    fault = await probe(Backend("a", LOOPBACK, port, tls=tls))
    found = await probe(Backend("a", LOOPBACK, port, tls=replace(tls, certificate=certificate, key=key)))

    assert isinstance(fault, ProbeFault)
    assert isinstance(found, Advertisement)


async def test_over_a_unix_socket_the_host_is_localhost(tmp_path: Path, hosts: list[str]) -> None:
    runner = web.AppRunner(app_of(hosts), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    path = str(tmp_path / "api.sock")
    await web.UnixSite(runner, path).start()
    try:
        found = await probe(Backend("a", "", 0, socket_path=path))
    finally:
        await runner.cleanup()

    assert isinstance(found, Advertisement)
    assert hosts == ["localhost"]


async def test_a_unix_socket_on_which_nobody_listens(tmp_path: Path) -> None:
    fault = await probe(Backend("a", "", 0, socket_path=str(tmp_path / "absent.sock")))

    assert fault == ProbeFault(
        "connect", f"no connection to unix:{tmp_path}/absent.sock: no such file or directory"
    )
