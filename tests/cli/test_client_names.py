"""Names of clients, end to end: in the access log, after a reload, and in `explain` and `test`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import Gateway
from gateway.cli import main
from gateway.settings import read_file
from tests.cli.conftest import Call, Write
from tests.cli.test_edge import answer
from tests.kit.certificates import authority, client_context
from tests.kit.messages import read_message, request
from tests.kit.servers import serving
from tests.kit.waiting import until

CLIENTS = """\
clients:
  - {name: far, networks: [192.0.2.0/24]}
  - {name: team, header: {X-Team: "compute-*"}}
  - {name: curl, user_agent: curl}
"""


def written(log: Path) -> list[dict[str, Any]]:
    """The lines of an access log so far."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def lines_of(log: Path, number: int) -> list[dict[str, Any]]:
    """The lines of an access log, once it has so many."""

    async def are_there() -> bool:
        return len(written(log)) >= number

    await until(are_there, f"{number} lines")
    return written(log)


async def explained(call_main: Call, *argv: str) -> tuple[str | None, str]:
    """The name in an explanation, as JSON has it, and what is printed for people."""
    ended = await call_main("explain", *argv, "-o", "json")
    assert ended.code == 0, ended.err
    name: str | None = json.loads(ended.out)["client_name"]
    return name, (await call_main("explain", *argv)).out


async def test_a_reload_renames_clients_and_the_log_has_their_names(
    tmp_path: Path, write: Write, call_main: Call
) -> None:
    log = tmp_path / "access.log"
    base = f"access_log: {{path: {log}}}\n"
    file = write(more=base + CLIENTS)
    async with Gateway(read_file(file, environ={}).require(), source=file) as gateway:

        async def asks(*fields: str) -> None:
            reader, writer = await asyncio.open_connection(*gateway.addresses[0])
            writer.write(request("GET", "/v1/nodes", *fields))
            await read_message(reader, response_to="GET")
            writer.close()

        await asks("User-Agent: curl/8")
        await asks("User-Agent: wget/1")
        file.write_text(write(more=base + CLIENTS.replace("name: curl", "name: renamed")).read_text())
        assert (await call_main("reload", "--admin", gateway.admin_url)).code == 0
        await asks("User-Agent: curl/8")

        found = await lines_of(log, 3)
    assert [line.get("client_name") for line in found] == ["curl", None, "renamed"]


async def test_explain_says_the_name_of_a_described_client(write: Write, call_main: Call) -> None:
    file = write(more="access_log: {format: off}\n" + CLIENTS)
    async with Gateway(read_file(file, environ={}).require(), source=file) as gateway:
        for where in (("--admin", gateway.admin_url), ("--offline", "-c", str(file))):
            asked = (*where, "GET", "/v1/nodes")
            name, text = await explained(call_main, *asked, "-H", "User-Agent: curl/8")
            assert (name, "\n  client    curl\n" in text) == ("curl", True)
            assert (await explained(call_main, *asked, "-H", "X_Team: compute-1"))[0] == "team"
            assert (await explained(call_main, *asked, "--from", "192.0.2.7"))[0] == "far"
            name, text = await explained(call_main, *asked)
            assert (name, "client" in text) == (None, False)


def test_a_table_of_requests_may_expect_a_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gateway.yaml").write_text(
        "listen: 127.0.0.1:8080\nservices:\n  a: {dialect: ironic, backends: [{url: 'http://127.0.0.1:1'}]}\n"
        + CLIENTS
    )
    table = tmp_path / "table.yaml"
    table.write_text(
        "config: gateway.yaml\nbackends: {'a/127.0.0.1:1': 1.1-1.58}\nrequests:\n"
        "  - {request: GET /v1/nodes, headers: {User-Agent: curl/8}, expect: {client_name: curl}}\n"
        "  - {request: GET /v1/nodes, headers: {User-Agent: wget/1}, expect: {client_name: curl}}\n"
    )

    assert main(["test", str(table)]) == 1
    assert "client_name is none, not curl" in capfd.readouterr().out


EDGE = """\
listen:
  - address: 127.0.0.1:0
    tls:
      certificates: [{{certificate: {folder}/tls.crt, key: {folder}/tls.key}}]
      client_ca: {folder}/ca.crt
      client: optional
admin: {{listen: 127.0.0.1:0}}
access_log: {{path: {folder}/access.log}}
clients:
  - {{name: by-uri, certificate: {{san: "spiffe://example.org/nova"}}}}
  - {{name: by-mail, certificate: {{san: nova@example.org}}}}
  - {{name: by-host, certificate: {{san: Nova.Example.org}}}}
  - {{name: by-address, certificate: {{san: 10.0.0.9}}}}
  - {{name: by-subject, certificate: {{subject: "2.5.4.3 = nova\\\\2C cron"}}}}
services:
  a: {{dialect: ironic, backends: [{{url: "http://127.0.0.1:{port}", versions: 1.1-1.58}}]}}
"""


async def test_a_client_is_named_by_its_certificate(tmp_path: Path) -> None:
    authority().write(tmp_path)
    authority().server().write(tmp_path)
    shown = {
        "by-uri": ("nova, cron", "spiffe://example.org/nova", "NOVA.example.org"),
        "by-mail": ("x", "nova@example.org"),
        "by-host": ("x", "other.example.org", "NOVA.example.org"),
        "by-address": ("x", "10.0.0.9"),
        "by-subject": ("nova, cron", "spiffe://example.org/other"),
        None: ("nova",),
    }
    async with serving(answer) as server:
        file = tmp_path / "gateway.yaml"
        file.write_text(EDGE.format(folder=tmp_path, port=server.port))
        async with Gateway(read_file(file, environ={}).require(), source=file) as gateway:
            pairs = [authority().client(*names).write(tmp_path, str(name)) for name, names in shown.items()]
            for pair in (*pairs, None):
                reader, writer = await asyncio.open_connection(
                    *gateway.addresses[0],
                    ssl=client_context(authority(), pair),
                    server_hostname="localhost",
                )
                writer.write(request("GET", "/v1/nodes"))
                assert (await read_message(reader, response_to="GET")).status == 200
                writer.close()
            found = await lines_of(tmp_path / "access.log", len(shown) + 1)

    assert [line.get("client_name") for line in found] == [*shown, None]
