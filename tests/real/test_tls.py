"""Real clients over TLS and mutual TLS through the gateway, to backends over mutual TLS.

The servers are fakes, old and new: what matters here is the way of the bytes. curl, openstacksdk and
python-ironicclient verify the gateway by a CA of its own, and show certificates of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.kit.certificates import authority
from tests.real.clients import Call, Clients
from tests.scenarios.fakes import Ironic, running

pytestmark = pytest.mark.real

CALLS: list[Call] = [("list", None)]


def configuration(folder: Path, servers: tuple[Ironic, ...]) -> Path:
    """Two listeners: one for everybody, one for clients with a certificate."""
    ca = authority().write(folder)
    certificate, key = authority().server().write(folder, "gateway")
    shown, shown_key = authority().client("the gateway").write(folder, "shown")
    pair = f"{{certificate: {certificate}, key: {key}}}"
    tls = f"tls: {{ca: {ca}, certificate: {shown}, key: {shown_key}}}"
    backends = "".join(
        f"      - {{name: api-{number}, url: https://127.0.0.1:{server.port}, {tls}}}\n"
        for number, server in enumerate(servers, 1)
    )
    file = folder / "gateway.yaml"
    file.write_text(
        f"""\
listen:
  - {{address: 127.0.0.1:0, tls: {{certificates: [{pair}]}}}}
  - {{address: 127.0.0.1:0, tls: {{certificates: [{pair}], client_ca: {ca}}}}}
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 100ms}}
    offer: {{stabilization: 0s}}
    backends:
{backends}"""
    )
    return file


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[Ironic, Ironic]]:
    servers = Ironic(58), Ironic(90)
    for server in servers:
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(*authority().server("127.0.0.1").write(tmp_path, "backend"))
        server.tls.verify_mode = ssl.CERT_REQUIRED
        server.tls.load_verify_locations(cadata=authority().pem.decode())
    async with running(*servers):
        yield servers


@pytest.fixture
async def gateway(tmp_path: Path, fleet: tuple[Ironic, Ironic]) -> AsyncIterator[Gateway]:
    async with Gateway(read_file(configuration(tmp_path, fleet), environ=os.environ).require()) as gateway:
        offered = asyncio.Event()
        gateway.snapshot_holder.subscribe(
            lambda _, after: offered.set() if after.views["baremetal"].offer.versions else None
        )
        async with asyncio.timeout(10):
            if not gateway.snapshot_holder.current.views["baremetal"].offer.versions:
                await offered.wait()
        yield gateway


def ways(gateway: Gateway, folder: Path) -> list[tuple[str, dict[str, str]]]:
    """The URL of each listener, and the files that a client needs for it."""
    certificate, key = authority().client("an operator").write(folder, "client")
    plain = {"cacert": str(authority().write(folder))}
    (_, first), (_, second) = gateway.addresses
    mutual = {**plain, "cert": str(certificate), "key": str(key)}
    return [(f"https://localhost:{first}", plain), (f"https://localhost:{second}", mutual)]


@pytest.mark.parametrize("way", [0, 1], ids=["TLS", "mutual TLS"])
@pytest.mark.parametrize("client", ["ironicclient", "sdk"])
async def test_python_clients(
    gateway: Gateway, fleet: tuple[Ironic, Ironic], tmp_path: Path, clients: Clients, client: str, way: int
) -> None:
    url, files = ways(gateway, tmp_path)[way]
    run: Any = getattr(clients, client)
    calls: list[Call] = [*CALLS] if client == "ironicclient" else [("discover", None), *CALLS]
    session = await asyncio.to_thread(run, url, calls, version=None, tls=files)

    values = session.values()
    assert values[-1] == []
    if client == "sdk":  # links lead to the gateway, over TLS
        assert values[0] == {"url": f"{url}/v1/", "minimum": "1.1", "maximum": "1.58"}
    assert [head for server in fleet for head in server.forwarded]
    assert not [head for server in fleet for head in server.refused]


async def test_a_client_without_a_certificate_gets_nothing(
    gateway: Gateway, fleet: tuple[Ironic, Ironic], tmp_path: Path, clients: Clients
) -> None:
    url, files = ways(gateway, tmp_path)[1]
    session = await asyncio.to_thread(
        clients.ironicclient, url, CALLS, tls={"cacert": files["cacert"]}, version="1.31"
    )

    assert session.only_error().error
    assert [head for server in fleet for head in server.forwarded] == []


@pytest.mark.parametrize("way", [0, 1], ids=["TLS", "mutual TLS"])
@pytest.mark.parametrize("version", ["--tlsv1.2", "--tlsv1.3"])
async def test_curl(gateway: Gateway, tmp_path: Path, way: int, version: str) -> None:
    url, files = ways(gateway, tmp_path)[way]
    most = ["--tls-max", version.removeprefix("--tlsv")]
    options = [f"--{name}={path}" for name, path in files.items()]
    process = await asyncio.create_subprocess_exec(
        *(
            "curl",
            "-sS",
            "--fail",
            version,
            *most,
            *(part for each in options for part in each.split("=", 1)),
        ),
        f"{url}/v1/",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()

    assert process.returncode == 0
    links = json.loads(output)["links"]
    assert links[0]["href"] == f"{url}/v1/"
