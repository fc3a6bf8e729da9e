"""A real HAProxy takes the map and the configuration, and does what they say."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import pytest

from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.engines.haproxy.configuration import (
    HaproxyOptions,
    configuration_text,
    encoded,
    map_text,
    server_name,
)
from gateway.engines.table import EngineServer, compile_table
from gateway.settings import load
from tests.engines.equality.haproxy import program, running_haproxy
from tests.kit.clients import Answer, ByteClient
from tests.kit.messages import head_of
from tests.kit.networks import LOOPBACK, free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(60)]

SERVICES: Final = """
  ironic: {{dialect: ironic, match: {{host: ironic.test}}, {common}}}
  nova: {{dialect: nova, match: {{host: nova.test}}, {nova}}}
"""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
RANGE: Final = (
    b"X-OpenStack-Ironic-API-Minimum-Version: 1.1\r\nX-OpenStack-Ironic-API-Maximum-Version: 1.99\r\n"
)
OWN: Final = "X-OpenStack-Ironic-API-Version"
SERVED: Final = b"X-OpenStack-Ironic-API-Version: 1.5\r\n"
REFUSED: Final = b"HTTP/1.1 406 Not Acceptable\r\nContent-Length: 2\r\n"


@final
class Server:
    """Answers every request with `response` and keeps its head. Without a response it closes connections."""

    def __init__(self) -> None:
        self.port = 0
        self.response = OK
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        try:
            while more := await reader.read(65536):
                data += more
                while head := head_of(data):
                    data = data[len(head) :]
                    self.heads.append(head.decode("latin-1"))
                    if not self.response:
                        return
                    body = b"" if head.startswith(b"HEAD ") else b"{}"
                    writer.write(self.response + b"\r\n" + body)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def lines(self, name: str) -> list[str]:
        """The values of a header in the last request."""
        pairs = (line.partition(":") for line in self.heads[-1].split("\r\n")[1:])
        return [value.strip() for each, _, value in pairs if each.lower() == name.lower()]


class Running(NamedTuple):
    backend: Server
    gateway: Server
    client: ByteClient
    configuration: str

    async def ask(self, *lines: str, host: str = "ironic.test", target: str = "GET /v1/nodes") -> Answer:
        head = [f"{target} HTTP/1.1", f"Host: {host}", *lines, "", ""]
        return await self.client.exchange("\r\n".join(head).encode("latin-1"))


@asynccontextmanager
async def serving(*servers: Server) -> AsyncIterator[None]:
    listening = []
    try:
        for server in servers:
            one = await asyncio.start_server(server.serve, LOOPBACK, 0)
            listening.append(one)
            server.port = one.sockets[0].getsockname()[1]
        yield
    finally:
        for one in listening:
            one.close()


def snapshot(ports: Mapping[str, int], retry: str = "{}") -> Snapshot:
    """Both services, with the members at these ports."""
    backends = [
        ", ".join(
            f"{{name: {name}, url: 'http://127.0.0.1:{port}', versions: '{versions}'}}"
            for name, port in ports.items()
        )
        for versions in ("1.1-1.9", "2.1-2.9")
    ]
    common, nova = (f"offer: {{stabilization: 0s}}, retry: {retry}, backends: [{each}]" for each in backends)
    text = "listen: 127.0.0.1:0\nservices:" + SERVICES.format(common=common, nova=nova)
    services = load(text, filename="haproxy.yaml", environ={}).require().services
    return Snapshot.configured(services, now=0.0)


@asynccontextmanager
async def running(folder: Path, *more: int, **changes: Any) -> AsyncIterator[Running]:
    """HAProxy before a member (and closed ones at the ports of `more`), with a stand-in for the gateway."""
    backend, gateway = Server(), Server()
    gateway.response = b"HTTP/1.1 299 Gateway\r\nContent-Length: 2\r\n"
    async with serving(backend, gateway):
        ports = {"here": backend.port, **{f"closed-{at}": port for at, port in enumerate(more)}}
        table, port = compile_table(snapshot(ports)), free_port()
        (folder / "map").write_text(map_text(table))
        options = HaproxyOptions(
            str(folder / "map"), f"127.0.0.1:{gateway.port}", (f"127.0.0.1:{port}",), **changes
        )
        text = configuration_text(table, options)
        (folder / "haproxy.cfg").write_text(text)
        async with running_haproxy(folder / "haproxy.cfg", port):
            client = ByteClient(port)
            try:
                yield Running(backend, gateway, client, text)
            finally:
                client.close()


async def test_haproxy_takes_the_configuration(tmp_path: Path) -> None:
    """Without a warning, and what goes through templates of Ansible stays what it is."""
    table = compile_table(snapshot({"a": 1, "b.c_d": 2, "e": 3}))
    (tmp_path / "map").write_text(map_text(table))
    socket = f"{tmp_path}/socket mode 660 level admin"
    text = configuration_text(table, HaproxyOptions(str(tmp_path / "map"), "127.0.0.1:9", socket=socket))
    (tmp_path / "haproxy.cfg").write_text(text)
    process = await asyncio.create_subprocess_exec(
        program(),
        "-c",
        "-dW",
        "-f",
        tmp_path / "haproxy.cfg",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    assert re.search(r"\{[{%#]", text) is None
    assert "defaults" not in text


async def test_a_plain_request_goes_straight_to_a_backend(tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        haproxy.backend.response = OK + RANGE + SERVED + b"Vary: Accept, OpenStack-API-Version\r\n"
        for lines, version in (
            (["X-OpenStack-Ironic-API-Version: 1.5"], "1.5"),
            (["OpenStack-API-Version: baremetal 1.5"], "1.5"),
            (["x-openstack-ironic-api-version: 1.5", "OpenStack-API-Version: baremetal 1.5"], "1.5"),
            (["X-OpenStack-Ironic-API-Version: latest"], "1.9"),
            ([], "1.1"),
        ):
            answer = await haproxy.ask(*lines)
            assert answer.status == 200
            assert answer.values("X-OpenStack-Ironic-API-Minimum-Version") == ["1.1"]
            assert answer.values("X-OpenStack-Ironic-API-Maximum-Version") == ["1.9"]
            assert answer.values("X-OpenStack-Ironic-API-Version") == ["1.5"]
            assert answer.values("Vary") == [
                "Accept, OpenStack-API-Version",
                "X-OpenStack-Ironic-API-Version",
            ]
            assert haproxy.backend.lines("X-OpenStack-Ironic-API-Version") == [version]
            assert haproxy.backend.lines("OpenStack-API-Version") == [f"baremetal {version}"]
            assert haproxy.backend.lines("Host") == ["ironic.test"]
            assert len(haproxy.backend.lines("X-Forwarded-For")) == 1
        assert not haproxy.gateway.heads


async def test_a_response_without_versions_gets_only_vary(tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        haproxy.backend.response = OK + b"Vary: *\r\n"
        answer = await haproxy.ask()
        assert answer.values("Vary") == ["*"]
        assert not answer.values("X-OpenStack-Ironic-API-Maximum-Version")


@pytest.mark.parametrize(
    "target, lines",
    [
        ("GET /", ()),
        ("GET /v1", ()),
        ("GET /v1/", ()),
        ("GET /v1.json", ()),
        ("GET /v1//nodes", ()),
        ("GET //v1/nodes", ()),
        ("GET /v1/../v1", ()),
        ("GET /%76%31", ()),
        ("GET /v1/%2e%2e", ()),
        ("GET /v1/a;b", ()),
        ("GET http://ironic.test/v1/nodes", ()),
        ("OPTIONS /v1/nodes", ()),
        ("BREW /v1/nodes", ()),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.10",)),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.05",)),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version:",)),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.5|0:",)),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.5, 1.5",)),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.5", "X-OpenStack-Ironic-API-Version: 1.5")),
        ("GET /v1/nodes", ("X-OpenStack-Ironic-API-Version: 1.5", "OpenStack-API-Version: baremetal 1.6")),
        ("GET /v1/nodes", ("X_OpenStack-Ironic-API-Version: 1.5",)),
        ("GET /v1/nodes", ("X.OpenStack.Ironic.API.Version: 1.5",)),
        ("GET /v1/nodes", ("OpenStack-API-Version: compute 2.1, baremetal 1.5",)),
        ("GET /v1/nodes", ("OpenStack-API-Version: baremetal%201.5",)),
        ("GET /v1/nodes", ("Connection: keep-alive, X-OpenStack-Ironic-API-Version",)),
        ("GET /v1/nodes", ("Connection: Upgrade", "Upgrade: other")),
        ("POST /v1/nodes", ("Transfer-Encoding: chunked",)),
    ],
)
async def test_all_else_goes_to_the_gateway(target: str, lines: tuple[str, ...], tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        body = "0\r\n\r\n" if "Transfer-Encoding: chunked" in lines else ""
        head = "\r\n".join((f"{target} HTTP/1.1", "Host: ironic.test", *lines, "", ""))
        answer = await haproxy.client.exchange((head + body).encode())
        assert answer.status == 299
        assert not haproxy.backend.heads
        for line in lines:
            name, _, value = line.partition(":")
            if "version" in name.lower():
                assert value.strip() in haproxy.gateway.lines(name)


@pytest.mark.parametrize("configured", [UNTRUSTED_HEADERS, ("X-Acme-*",)], ids=["default", "a list"])
async def test_R3_T8_the_gateway_gets_no_spelling_of_a_header_that_strangers_may_not_send(
    configured: tuple[str, ...], tmp_path: Path
) -> None:
    """The gateway trusts HAProxy, so HAProxy must drop them."""
    names = {name.replace("*", "User") for name in (*configured, "Client-Cert", "X-Real-IP", "Forwarded")}
    aliases = {name.replace("-", sign) for name in names for sign in "_.-"}
    spellings = aliases | {name.lower() for name in aliases} | {name.upper() for name in aliases}
    async with running(tmp_path, untrusted_headers=configured) as haproxy:
        for name in sorted(spellings):
            assert (await haproxy.ask(f"{name}: 6.6.6.6", "X_Odd: 1", "X-Own: 1")).status == 299
            assert haproxy.gateway.lines("X_Odd") == haproxy.gateway.lines("X-Own") == ["1"]
            assert "6.6.6.6" not in haproxy.gateway.heads[-1], name


@pytest.mark.parametrize(
    "host", ["ironic.test.", "other.test", "127.0.0.1", "[::1]", "ironic.test:x", "ironic.test:99999"]
)
async def test_a_host_that_is_none_of_a_service_goes_to_the_gateway(host: str, tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        assert (await haproxy.ask(host=host)).status in (299, 400)
        assert not haproxy.backend.heads


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_refusal_of_the_version_by_a_backend_becomes_503(method: str, tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        haproxy.backend.response = REFUSED + RANGE
        answer = await haproxy.ask("X-OpenStack-Ironic-API-Version: 1.5", target=f"{method} /v1/nodes")
        assert answer.status == 503
        assert answer.values("X-OpenStack-Ironic-API-Maximum-Version") == ["1.9"]
        assert answer.values("Vary") == ["OpenStack-API-Version", "X-OpenStack-Ironic-API-Version"]
        if method == "GET":
            assert json.loads(json.loads(answer.body)["error_message"])["code"] == 503
        haproxy.backend.response = REFUSED + RANGE + SERVED  # about a feature: it passes
        answer = await haproxy.ask("X-OpenStack-Ironic-API-Version: 1.5", target=f"{method} /v1/nodes")
        assert answer.status == 406
        assert answer.values("X-OpenStack-Ironic-API-Maximum-Version") == ["1.9"]
        haproxy.backend.response = REFUSED  # Nova: only the body would say what it is about
        answer = await haproxy.ask(host="nova.test", target=f"{method} /v2.1/servers")
        assert answer.status == 503
        assert answer.values("Retry-After") == ["2"]


async def test_a_member_that_takes_no_connection_is_left_for_another(tmp_path: Path) -> None:
    async with running(tmp_path, free_port()) as haproxy:
        for _ in range(20):
            answer = await haproxy.ask(target="POST /v1/nodes")
            assert answer.status == 200


async def test_a_broken_reply_is_told_in_the_shape_of_the_api(tmp_path: Path) -> None:
    async with running(tmp_path) as haproxy:
        haproxy.backend.response = b"what\r\n"
        answer = await haproxy.ask("X-OpenStack-Ironic-API-Version: 1.5")
        assert answer.status == 502
        assert json.loads(json.loads(answer.body)["error_message"])["title"] == "Bad Gateway"
        assert answer.values("Vary") == ["OpenStack-API-Version", "X-OpenStack-Ironic-API-Version"]
        assert not answer.values("Retry-After")


@asynccontextmanager
async def before(folder: Path, *servers: Server, retry: str = "{}") -> AsyncIterator[ByteClient]:
    """A client of HAProxy before these members."""
    async with serving(*servers):
        table = compile_table(snapshot({f"m{at}": each.port for at, each in enumerate(servers)}, retry))
        (folder / "map").write_text(map_text(table))
        port = free_port()
        options = HaproxyOptions(str(folder / "map"), "127.0.0.1:9", (f"127.0.0.1:{port}",))
        (folder / "haproxy.cfg").write_text(configuration_text(table, options))
        async with running_haproxy(folder / "haproxy.cfg", port):
            client = ByteClient(port)
            try:
                yield client
            finally:
                client.close()


def silent(*, number: int = 1) -> list[Server]:
    """Members that read requests and close the connection without a reply."""
    servers = [Server() for _ in range(number)]
    for server in servers:
        server.response = b""
    return servers


def message(method: str) -> bytes:
    return f"{method} /v1/nodes HTTP/1.1\r\nHost: ironic.test\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("members", [2, 5])
async def test_R3_V14_a_get_without_a_reply_is_sent_to_another_member(members: int, tmp_path: Path) -> None:
    here, (dead,) = [Server() for _ in range(members - 1)], silent()
    async with before(tmp_path, *here, dead) as client:
        for method in ("GET", "HEAD"):
            for _ in range(50):
                answer = await client.exchange(message(method))
                assert (answer.status, answer.values("Vary")) == (200, ["OpenStack-API-Version", OWN])
    assert dead.heads


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_R3_V14_no_unsafe_request_is_sent_twice(method: str, tmp_path: Path) -> None:
    here, (dead,) = Server(), silent()
    async with before(tmp_path, here, dead) as client:
        answers = [(await client.exchange(message(method))).status for _ in range(60)]
    assert len(here.heads) + len(dead.heads) == 60
    assert answers.count(200) == len(here.heads)
    assert dead.heads


async def test_R3_V14_where_no_member_replies_the_first_request_of_a_connection_is_told_so(
    tmp_path: Path,
) -> None:
    """HAProxy closes a kept connection without a byte then, as a server does that ends an idle one, and the
    page says so."""
    servers = silent(number=2)
    async with before(tmp_path, *servers) as client:
        answer = await client.exchange(message("GET"))
        assert answer.status == 502
        assert json.loads(json.loads(answer.body)["error_message"])["title"] == "Bad Gateway"
        for server in servers:
            server.response = OK
        assert (await client.exchange(message("GET"))).status == 200
        for server in servers:
            server.response = b""
        assert (await client.exchange(message("GET"))).status == 0
        assert (await client.exchange(message("POST"))).status == 502  # on a new connection


@pytest.mark.parametrize("retry", ["{on: [connect]}", "{attempts: 1}"])
async def test_R3_V14_who_wants_no_request_repeated_has_none_repeated(retry: str, tmp_path: Path) -> None:
    here, (dead,) = Server(), silent()
    async with before(tmp_path, here, dead, retry=retry) as client:
        for _ in range(60):
            await client.exchange(message("GET"))
    assert len(here.heads) + len(dead.heads) == 60
    assert dead.heads


async def test_R3_V14_without_connect_a_get_without_a_reply_is_still_sent_elsewhere(tmp_path: Path) -> None:
    here, (dead,) = Server(), silent()
    async with before(tmp_path, here, dead, retry="{on: [no_reply]}") as client:
        for _ in range(60):
            assert (await client.exchange(message("GET"))).status == 200
    assert dead.heads


async def test_without_a_member_the_answer_has_the_shape_of_the_api(tmp_path: Path) -> None:
    backend_less = snapshot({"closed": free_port()})
    table, port = compile_table(backend_less), free_port()
    (tmp_path / "map").write_text(map_text(table))
    options = HaproxyOptions(str(tmp_path / "map"), "127.0.0.1:9", (f"127.0.0.1:{port}",))
    (tmp_path / "haproxy.cfg").write_text(configuration_text(table, options))
    async with running_haproxy(tmp_path / "haproxy.cfg", port):
        client = ByteClient(port)
        try:
            answer = await client.exchange(b"GET /v1/nodes HTTP/1.1\r\nHost: ironic.test\r\n\r\n")
        finally:
            client.close()
    assert answer.status == 503
    assert json.loads(json.loads(answer.body)["error_message"])["title"] == "Service Unavailable"
    assert answer.values("X-OpenStack-Ironic-API-Minimum-Version") == ["1.1"]


def test_names_of_servers_are_words() -> None:
    assert server_name(EngineServer("s/a b", "a b", "h", 1)) == "a:20b"
    assert encoded("compute 2.1") == "compute%202.1"
