"""Listeners as others see them: testssl.sh and curl look at TLS, and HAProxy writes the PROXY headers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import Gateway
from tests.kit.backends import ScriptedBackend, serve
from tests.kit.certificates import Authority, Leaf, new_key
from tests.kit.gateways import gateway_of
from tests.kit.messages import request
from tests.kit.networks import closed_port
from tests.kit.workers import Testbed

pytestmark = pytest.mark.engines

ROOT = Authority()
MIDDLE = Authority("Middle CA", above=ROOT)
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


async def output_of(*command: object) -> str:
    """Standard output; the exit code is not looked at."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PATH": PATH},
    )
    output, _ = await process.communicate()
    return output.decode(errors="replace")


@pytest.fixture
async def backend() -> AsyncIterator[ScriptedBackend]:
    testbed = Testbed()
    yield await testbed.backend(serve, name="api-1")
    await testbed.close()


@asynccontextmanager
async def gateway(backend: ScriptedBackend, listen: str, more: str = "") -> AsyncIterator[Gateway]:
    """A whole gateway. `listen`: items of the list, in YAML."""
    text = f"""\
listen:
{listen}
admin: {{listen: "127.0.0.1:0"}}
access_log: {{format: "off"}}
timeouts: {{drain: 1s}}
{more}services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{backend.backend.port}", versions: "1.1-1.90"}}
"""
    async with gateway_of(text) as running:
        yield running


def pair(folder: Path, name: str, leaf: Leaf) -> str:
    certificate, key = leaf.write(folder, name)
    return f"{{certificate: {certificate}, key: {key}}}"


def tls_listener(folder: Path, more: str = "") -> str:
    pairs = [
        pair(folder, "localhost", ROOT.server("localhost", "127.0.0.1")),
        pair(folder, "api", MIDDLE.server("api.example", key=new_key("RSA"))),
    ]
    return f"""\
  - address: 127.0.0.1:0
    tls:
      certificates: [{", ".join(pairs)}]
{more}"""


# --- testssl.sh --------------------------------------------------------------------------------------------


async def look(folder: Path, name: str, port: int, *checks: str) -> dict[str, Any]:
    """What testssl.sh finds, by the ids of its checks."""
    program = shutil.which("testssl", path=PATH) or "testssl.sh"
    found = folder / f"{name}.json"
    said = await output_of(
        *(program, "--quiet", "--color", "0", "--warnings", "off", "--add-ca", ROOT.write(folder)),
        *("--jsonfile", found, *checks, "--ip", "127.0.0.1", f"https://{name}:{port}"),
    )
    assert found.exists(), said
    return {each["id"]: each["finding"] for each in json.loads(found.read_text())}


async def test_testssl_finds_nothing_old_and_the_right_chain_for_each_name(
    backend: ScriptedBackend, tmp_path: Path
) -> None:
    async with gateway(backend, tls_listener(tmp_path)) as running:
        port = running.addresses[0][1]
        first, second = await asyncio.gather(
            look(tmp_path, "localhost", port, "-p", "-S", "-R", "-C"),
            look(tmp_path, "api.example", port, "-S"),
        )

    for old in ("SSLv2", "SSLv3", "TLS1", "TLS1_1"):
        assert first[old] == "not offered", old
    assert first["TLS1_2"] == "offered"
    assert first["TLS1_3"].startswith("offered")
    assert first["ALPN"] == "http/1.1"
    assert first["secure_renego"] == "supported"
    assert first["secure_client_renego"].startswith(("not vulnerable", "likely not vulnerable"))
    assert first["CRIME_TLS"] == "not vulnerable"
    assert first["sessionresumption_ticket"] == "supported"
    for found, name, size, number in (
        (first, "localhost", "EC 256", "1"),
        (second, "api.example", "RSA 2048", "2"),
    ):
        assert found["cert_chain_of_trust"] == "passed."
        assert found["cert_commonName"] == name
        assert found["cert_trust"].startswith("Ok via SAN")
        assert found["cert_keySize"] == f"{size} bits"
        assert found["certs_countServer"] == number
        assert found["certs_list_ordering_problem"] == "no"


# --- curl --------------------------------------------------------------------------------------------------


async def curl(running: Gateway, folder: Path, *options: str | Path, scheme: str = "https") -> str:
    """Status, verification, version of HTTP, and the body or the error."""
    port = running.addresses[0][1]
    form = r"\n%{http_code} %{ssl_verify_result} %{http_version} %{errormsg}"
    return await output_of(
        *("curl", "--silent", "--max-time", "10", "--cacert", ROOT.write(folder), "--write-out", form),
        *("--resolve", f"api.example:{port}:127.0.0.1", *options, f"{scheme}://api.example:{port}/v1/nodes"),
    )


async def test_curl_over_tls_and_mutual_tls(backend: ScriptedBackend, tmp_path: Path) -> None:
    more = f"      client_ca: {ROOT.write(tmp_path, 'clients')}\n      forward_client_cert: true\n"
    certificate, key = ROOT.client("alice").write(tmp_path, "alice")
    async with gateway(backend, tls_listener(tmp_path, more)) as running:
        good = await curl(running, tmp_path, "--cert", certificate, "--key", key)
        old = await curl(
            running, tmp_path, "--cert", certificate, "--key", key, "--tls-max", "1.2", "--http2"
        )
        without = await curl(running, tmp_path)
        plain = await curl(running, tmp_path, scheme="http")

    assert good.splitlines()[-1].strip() == "200 0 1.1"
    assert old.splitlines()[-1].strip() == "200 0 1.1"
    assert without.splitlines()[-1].startswith("000 ")
    assert "This port speaks TLS: use https:// here." in plain
    assert plain.splitlines()[-1].startswith("400 ")
    assert [len(each.every("client-cert")) for each in backend.requests] == [1, 1]


async def test_curl_over_a_unix_socket(backend: ScriptedBackend, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with gateway(backend, f"  - address: unix:{path}\n"):
        said = await output_of(
            "curl", "--silent", "--unix-socket", path, "--write-out", " %{http_code}", "http://a/v1/nodes"
        )

    assert said.endswith(" 200")
    assert not path.exists()


# --- HAProxy -----------------------------------------------------------------------------------------------

HAPROXY = """\
global
    log stderr local0
defaults
    mode tcp
    timeout connect 5s
    timeout client 5s
    timeout server 5s
listen front
    bind 127.0.0.1:{front}{bind}
    server gateway 127.0.0.1:{port} {options}
"""


@asynccontextmanager
async def haproxy(folder: Path, port: int, options: str, bind: str = "") -> AsyncIterator[int]:
    """HAProxy in front of a port; gives its own port, once it answers."""
    front = closed_port()
    configuration = folder / "haproxy.cfg"
    configuration.write_text(HAPROXY.format(front=front, bind=bind, port=port, options=options))
    program = shutil.which("haproxy", path=PATH) or "haproxy"
    process = await asyncio.create_subprocess_exec(
        program,
        "-db",
        "-f",
        str(configuration),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", front)
                except OSError:
                    assert process.returncode is None, "haproxy has ended"
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                await writer.wait_closed()
                break
        yield front
    finally:
        process.kill()
        await process.wait()


PROXY_LISTENER = "  - {address: '127.0.0.1:0', proxy_protocol: on}\n"
TRUSTED = "trusted_proxies: ['127.0.0.1']\n"


@pytest.mark.parametrize(
    "options",
    ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy check check-send-proxy inter 200ms"],
)
async def test_haproxy_names_the_client(backend: ScriptedBackend, tmp_path: Path, options: str) -> None:
    """From another loopback address than HAProxy's own, which is the only trusted one."""
    async with (
        gateway(backend, PROXY_LISTENER, TRUSTED) as running,
        haproxy(tmp_path, running.addresses[0][1], options) as front,
    ):
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", front, local_addr=("127.0.0.7", 0))
            writer.write(request("GET", "/v1/nodes", "Connection: close"))
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer.startswith(b"HTTP/1.1 200 ")

    assert [each.one("x-forwarded-for") for each in backend.requests] == ["127.0.0.7"] * 3


async def test_haproxy_says_that_tls_ended_there(backend: ScriptedBackend, tmp_path: Path) -> None:
    leaf = ROOT.server("api.example")
    bundle = tmp_path / "haproxy.pem"
    bundle.write_bytes(leaf.pem + leaf.key_pem())
    async with (
        gateway(backend, PROXY_LISTENER, TRUSTED) as running,
        haproxy(tmp_path, running.addresses[0][1], "send-proxy-v2-ssl-cn", f" ssl crt {bundle}") as front,
    ):
        said = await output_of(
            *("curl", "--silent", "--cacert", ROOT.write(tmp_path), "--write-out", " %{http_code}"),
            *("--resolve", f"api.example:{front}:127.0.0.1", f"https://api.example:{front}/v1/nodes"),
        )

    assert said.endswith(" 200")
    assert backend.requests[0].one("x-forwarded-proto") == "https"


async def test_haproxy_passes_tls_on_behind_its_header(backend: ScriptedBackend, tmp_path: Path) -> None:
    listener = tls_listener(tmp_path) + "    proxy_protocol: on\n"
    async with (
        gateway(backend, listener, TRUSTED) as running,
        haproxy(tmp_path, running.addresses[0][1], "send-proxy-v2") as front,
    ):
        said = await output_of(
            *("curl", "--silent", "--interface", "127.0.0.7", "--cacert", ROOT.write(tmp_path)),
            *("--write-out", " %{http_code}", "--resolve", f"api.example:{front}:127.0.0.1"),
            f"https://api.example:{front}/v1/nodes",
        )

    assert said.endswith(" 200")
    assert backend.requests[0].one("x-forwarded-for") == "127.0.0.7"
    assert backend.requests[0].one("x-forwarded-proto") == "https"
