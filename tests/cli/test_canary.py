"""Secrets of every kind, in a gateway that does everything that it can: no output shows one (threats O9)."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import pytest

from gateway.demo.ironic import SERVED
from gateway.settings import read_file
from tests.cli.conftest import Call
from tests.cli.test_service_manager import Manager, listening
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import ROOT, finish, ready, start

CANARIES = tuple(
    f"c4n4ry-{kind}-0123456789" for kind in ("token", "probe", "key", "written", "added", "wrong")
)
TOKEN, PROBE, KEY, WRITTEN, ADDED, WRONG = CANARIES
CONFIGURATION = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}", token: "${{FILE:token}}"}}
state: {folder}/state.json
access_log: {{query: redact}}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 100ms, headers: {{X-Probe: "${{FILE:probe}}"}}}}
    headers:
      request: {{set: {{X-Key: "${{KEY}}", X-Written: {written}}}, add: {{X-Added: "a ${{FILE:added}}"}}}}
      response: {{set: {{X-Frame-Options: DENY}}}}
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{old}"}}
      - {{name: api-2, url: "http://127.0.0.1:{new}"}}
{more}"""
BROKEN = (
    "    ofer: {}\n",
    "    default_version: ${FILE:token}\n",
    "    match: {path: '${FILE:probe}'}\n",
    "    timeouts: {connect: '${KEY}'}\n",
    f"    header: {{request: {{set: {{X: {WRITTEN}}}}}}}\n",
    "    headers: {request: {set: {X-Auth-Token: '${FILE:added} \u00e4'}}}\n",
    "limits: {connections: 7}\n",
    "include: '${FILE:token}'\n",
    f"tokens: {WRITTEN}\n",
    "a: [\n",
)
"""Ends of the file that make it wrong, each in another way."""


class Outputs:
    """All that anybody could read, with where it was."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def add(self, where: str, text: str) -> None:
        self.texts.append((where, text))

    def leaks(self) -> list[tuple[str, str]]:
        return [(where, each) for where, text in self.texts for each in CANARIES if each in text]


def read(path: Path) -> str:
    return path.read_text()


def write(path: Path, text: str) -> None:
    path.write_text(text)


def command_line(process: asyncio.subprocess.Process) -> str:
    """As the list of processes shows it to everybody."""
    return read(Path(f"/proc/{process.pid}/cmdline"))


async def command(outputs: Outputs, call: Call, codes: set[int], *argv: str) -> None:
    ended = await call(*argv)
    assert ended.code in codes, ended
    outputs.add(f"output of {argv}", ended.out + ended.err)


async def fetch(
    outputs: Outputs, session: aiohttp.ClientSession, method: str, url: str, **more: object
) -> int:
    async with session.request(method, url, **more) as response:  # type: ignore[arg-type]
        outputs.add(f"{method} {url}", f"{response.headers!r}\n{await response.text()}")
        return response.status


@pytest.fixture
def file(tmp_path: Path, fleet: Fleet) -> Path:
    for name, text in (("token", TOKEN), ("probe", PROBE), ("added", ADDED)):
        (tmp_path / name).write_text(text + "\n")
    path = tmp_path / "gateway.yaml"
    path.write_text(text_of(path, fleet, free_port(), free_port()))
    return path


def text_of(path: Path, fleet: Fleet, port: int, admin: int, more: str = "") -> str:
    return CONFIGURATION.format(
        port=port,
        admin=admin,
        folder=path.parent,
        written=WRITTEN,
        old=fleet.old.port,
        new=fleet.new.port,
        more=more,
    )


@pytest.mark.processes
async def test_no_output_of_a_gateway_shows_a_secret(
    file: Path,
    session: aiohttp.ClientSession,
    tmp_path: Path,
    call_main: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEY", KEY)
    outputs, text = Outputs(), read(file)
    admin = text.split('listen: "')[1].split('"')[0]
    with listening(str(tmp_path / "notify")) as manager:
        gateway = await start("run", "-c", str(file), KEY=KEY, NOTIFY_SOCKET=manager.address)
        try:
            await ready(session, f"http://{admin}")
            outputs.add("command line", command_line(gateway))
            await read_everything(outputs, session, call_main, monkeypatch, (text.split()[1], admin), file)
            for number, more in enumerate(BROKEN):
                write(file, text + more)
                outputs.add(f"check of {more}", read_file(file, environ={"KEY": KEY}).render())
                right = {"Authorization": f"Bearer {TOKEN}"}
                assert await fetch(outputs, session, "POST", f"http://{admin}/-/reload", headers=right) == 400
                if number < 2:
                    await command(outputs, call_main, {2}, "reload", "-c", str(file))
                    await command(outputs, call_main, {2}, "check", str(file))
            gateway.send_signal(signal.SIGQUIT)  # the stacks of all that runs
        finally:
            gateway.send_signal(signal.SIGTERM)
            ended = await finish(gateway)
        outputs.add("status of the unit", repr(told(manager)))
    outputs.add("standard output", ended.out)
    outputs.add("standard error", ended.err)
    outputs.add("state", read(tmp_path / "state.json"))

    assert ended.code == 0
    assert ended.err.count("reload refused") >= len(BROKEN)
    assert '"target": "/v1/nodes' in ended.out
    assert "stacks of threads" in ended.err
    assert outputs.leaks() == []


def told(manager: Manager) -> list[dict[str, str]]:
    found = manager.waiting()
    assert any("refused" in message.get("STATUS", "") for message in found)
    return found


async def read_everything(
    outputs: Outputs,
    session: aiohttp.ClientSession,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    listeners: tuple[str, str],
    file: Path,
) -> None:
    """All that a gateway with a good configuration shows, to whom it trusts and to whom it does not."""
    clients, admin = listeners
    for path in ("/v1/nodes", f"/v1/nodes?token={WRONG}", "/", "/v1", "/nowhere"):
        for version in ("1.31", "1.99", "nonsense", "latest"):
            await fetch(outputs, session, "GET", f"http://{clients}{path}", headers={SERVED: version})
    right, wrong = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {WRONG}"}
    for path in ("/livez", "/readyz?verbose", "/metrics", "/status", "/explain?path=/v1/nodes", "/nowhere"):
        assert await fetch(outputs, session, "GET", f"http://{admin}{path}", headers=right) in {200, 404}
        await fetch(outputs, session, "GET", f"http://{admin}{path}", headers=wrong)
    openmetrics = {**right, "Accept": "application/openmetrics-text"}
    await fetch(outputs, session, "GET", f"http://{admin}/metrics", headers=openmetrics)
    named = ("-c", str(file))
    for argv in (
        ("status", *named),
        ("status", *named, "-o", "json"),
        ("explain", *named, "GET", "/v1/nodes"),
        ("explain", "--offline", *named, "GET", "/v1/nodes"),
        ("pin", *named, "baremetal", "1.40"),
        ("drain", *named, "baremetal/api-2"),
        ("healthcheck", *named),
        ("reload", *named),
        ("check", str(file)),
        ("check", "-o", "json", str(file)),
        ("schema",),
    ):
        await command(outputs, call, {0}, *argv)
    with monkeypatch.context() as patch:
        patch.setenv("SKEWGATE_ADMIN_TOKEN", WRONG)
        await command(outputs, call, {1}, "status", *named)


def test_the_canaries_are_where_they_should_be() -> None:
    """A test that greps for something else would always pass."""
    found = json.dumps(
        CONFIGURATION.format(port=1, admin=1, folder="", written=WRITTEN, old=1, new=1, more="")
    )

    assert WRITTEN in found
    assert (ROOT / "gateway").is_dir()
