"""A whole gateway at an edge: new certificates, the client's certificate in the log, and docs/edge.md."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.hashes import SHA256

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.cli.conftest import Call
from tests.docs.pages import blocks, page
from tests.kit.certificates import authority, client_context
from tests.kit.messages import Message, read_message, request
from tests.kit.servers import serving
from tests.kit.waiting import until

FOLDER: Final = "/etc/skewgate/"
SERVED: Final = "X-OpenStack-Ironic-API-Version: 1.1"
FILE: Final = """\
listen:
  - address: 127.0.0.1:0
    tls:
      certificates: [{{certificate: {folder}/tls.crt, key: {folder}/tls.key}}]
      client_ca: {folder}/ca.crt
      client: optional
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: {log}, path: {folder}/access.log}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: api-1, url: "https://127.0.0.1:{port}", tls: {{ca: {folder}/ca.crt}}, versions: 1.1-1.58}}
"""


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its own body, once that is complete."""
    while True:
        try:
            message = await read_message(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        head = f"HTTP/1.1 200 OK\r\n{SERVED}\r\nContent-Length: {len(message.body)}\r\n\r\n"
        writer.write(head.encode() + message.body)


@asynccontextmanager
async def edge(folder: Path, log: str = "off") -> AsyncIterator[Gateway]:
    """A gateway with TLS on both sides."""
    authority().write(folder)
    authority().server(subject="before").write(folder)
    backend = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    backend.load_cert_chain(*authority().server().write(folder, "backend"))
    async with serving(answer, tls=backend) as server:
        file = folder / "gateway.yaml"
        file.write_text(FILE.format(folder=folder, log=log, port=server.port))
        async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
            yield gateway


class Client:
    """One connection over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def subject(self) -> str:
        """Of the certificate that the gateway has shown."""
        name: str = self.writer.get_extra_info("peercert")["subject"][0][0][1]
        return name

    async def request(self, method: str = "GET", body: bytes = b"") -> Message:
        self.writer.write(request(method, "/v1/nodes", body=body))
        return await read_message(self.reader, response_to=method)


@asynccontextmanager
async def connected(gateway: Gateway, pair: tuple[Path, Path] | None = None) -> AsyncIterator[Client]:
    host, port = gateway.addresses[0]
    context = client_context(authority(), pair)
    client = Client(*await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost"))
    try:
        yield client
    finally:
        client.writer.close()


async def test_reload_takes_new_certificates_and_loses_no_connection(tmp_path: Path, call_main: Call) -> None:
    async with edge(tmp_path) as gateway, connected(gateway) as idle, connected(gateway) as busy:
        assert (await idle.request()).status == 200
        busy.writer.write(b"PUT /v1/nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nbef")
        await busy.writer.drain()

        authority().server(subject="after").write(tmp_path)
        assert (await call_main("reload", "--admin", gateway.admin_url)).code == 0
        async with connected(gateway) as new:
            assert (idle.subject, busy.subject, new.subject) == ("before", "before", "after")
            assert (await new.request()).status == 200

        busy.writer.write(b"ore")
        assert (await read_message(busy.reader, response_to="PUT")).body == b"before"
        for old in (idle, busy):
            assert (await old.request("PUT", b"after")).body == b"after"


async def test_reload_with_a_wrong_certificate_changes_nothing(tmp_path: Path, call_main: Call) -> None:
    async with edge(tmp_path) as gateway, connected(gateway) as old:
        assert (await old.request()).status == 200
        authority().server(subject="after", days=-1).write(tmp_path)

        ended = await call_main("reload", "--admin", gateway.admin_url)

        assert ended.code == 1
        assert "gateway.yaml:4:36: error[bad-certificate]: the certificate expired on" in ended.err
        async with connected(gateway) as new:
            assert new.subject == "before"
            assert (await new.request()).status == (await old.request()).status == 200


@pytest.mark.parametrize("log", ["json", "text"])
async def test_a_line_of_the_access_log_has_the_certificate_of_its_client(tmp_path: Path, log: str) -> None:
    leaf = authority().client('alice "the" first')
    pair = leaf.write(tmp_path, "alice")
    async with edge(tmp_path, log) as gateway:
        async with connected(gateway, pair) as known:
            assert (await known.request()).status == 200
        async with connected(gateway) as unknown:
            assert (await unknown.request()).status == 200
        file = tmp_path / "access.log"

        async def both() -> bool:
            return file.exists() and file.read_text().count("\n") == 2

        await until(both, "two lines")
    first, second = file.read_text().splitlines()

    assert "client_subject" not in second
    fingerprint = leaf.certificate.fingerprint(SHA256()).hex()
    subject = r"CN=alice \"the\" first"  # as RFC 4514 writes it
    if log == "json":
        line = json.loads(first)
        assert (line["client_subject"], line["client_fingerprint"]) == (subject, fingerprint)
    else:
        assert f"client_subject={json.dumps(subject)} client_fingerprint={fingerprint}" in first


# --- docs/edge.md ------------------------------------------------------------------------------------------

CONFIGURATIONS: Final = [block.text for block in blocks(page("docs/edge.md")) if block.language == "yaml"]


@pytest.mark.parametrize("number", range(len(CONFIGURATIONS)))
async def test_check_finds_nothing_in_the_configurations_of_the_page(
    number: int, tmp_path: Path, call_main: Call
) -> None:
    for name in ("clients-ca", "operators-ca", "backends-ca"):
        authority().write(tmp_path, name)
    for name in ("api", "jobs", "admin"):
        authority().server(f"{name}.example.org").write(tmp_path, name)
    file = tmp_path / "skewgate.yaml"
    file.write_text(CONFIGURATIONS[number].replace(FOLDER, f"{tmp_path}/"))

    first, *notes = (await call_main("check", str(file))).out.splitlines()
    assert first == f"{file}: fine"
    assert not any("`default_version` changes" in note for note in notes)


def test_the_messages_of_the_page_are_those_of_the_gateway() -> None:
    """Each one stands in the source."""
    source = "".join(path.read_text() for path in Path("gateway").rglob("*.py"))
    for message in (
        "This port speaks TLS",
        "its certificate is not valid",
        "requires a client certificate",
    ):
        assert f"`{message}" in page("docs/edge.md")
        assert message in source
