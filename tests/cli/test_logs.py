"""The two logs of a running gateway: the same keys, UTC, one line an event; rotated, redacted, turned up."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.demo.ironic import SERVED
from gateway.settings import read_file
from tests.cli.conftest import Write
from tests.docs.log_fields import ACCESS_LOG, LEFT_OUT, PROCESS_LOG
from tests.kit.networks import free_port
from tests.kit.processes import call, finish, ready, start
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

PROCESS_NAMES = [field.name for field in PROCESS_LOG]
ACCESS_NAMES = [field.name for field in ACCESS_LOG if field.name not in LEFT_OUT]
TIME = re.compile(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z")


def events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Process-log events of lines of JSON, each as the table of fields says."""
    found = [json.loads(line) for line in lines]
    for event in found:
        assert list(event) == [name for name in PROCESS_NAMES if name in event]
        assert {"time", "level", "logger", "message"} <= event.keys()
        assert TIME.fullmatch(event["time"])
    return found


async def test_in_json_all_of_both_streams_is_json_with_the_same_keys(
    write: Write, session: aiohttp.ClientSession
) -> None:
    port, admin_port = free_port(), free_port()
    process = await start(
        "run", "-c", str(write(port, admin_port, more="log: {format: json}")), TZ="Asia/Tokyo"
    )
    await ready(session, f"http://127.0.0.1:{admin_port}")
    url = f"http://127.0.0.1:{port}/v1/nodes?token=secret"
    headers = {
        SERVED: "1.31",
        "User-Agent": "it's me",
        "Traceparent": f"00-{'4bf92f35' * 4}-00f067aa0ba902b7-01",
    }
    async with session.post(url, headers=headers, data=b"abc") as response:
        await response.read()
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert ended.code == 0
    logged = events(ended.err.splitlines())
    about = [event for event in logged if "backend" in event]
    assert {(event["service"], event["backend"]) for event in about} == {
        ("baremetal", "api-1"),
        ("baremetal", "api-2"),
    }
    (line,) = map(json.loads, ended.out.splitlines())
    assert list(line) == ACCESS_NAMES
    assert (line["service"], line["backend"] in {"api-1", "api-2"}) == ("baremetal", True)
    assert (line["target"], line["user_agent"], line["bytes_in"]) == ("/v1/nodes?token=*", "it's me", 3)
    assert (line["host"], line["version"]) == (f"127.0.0.1:{port}", "1.31")
    assert line["trace_id"] == "4bf92f35" * 4
    assert "secret" not in ended.out + ended.err
    assert logged[0]["time"] <= line["time"] <= logged[-1]["time"], "the same clock"


async def test_a_warning_about_the_file_is_one_event(write: Write, session: aiohttp.ClientSession) -> None:
    port, admin_port = free_port(), free_port()
    file = write(port, admin_port, more="log: {format: json}")
    file.write_text(
        file.read_text().replace("    backends:\n", "    backends:\n      - file: /nowhere.json\n")
    )
    process = await start("run", "-c", str(file))
    await ready(session, f"http://127.0.0.1:{admin_port}")
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    about = [each["message"] for each in events(ended.err.splitlines()) if "bad-targets" in each["message"]]
    assert len(about) == 1
    assert "(hint: " in about[0]
    assert "\n" not in about[0]


async def test_why_it_cannot_start_is_json_as_well(write: Write, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "access.log"
    ended = await call(
        "run", "-c", str(write(more=f"log: {{format: json}}\naccess_log: {{path: {missing}}}"))
    )

    assert ended.code == 1
    (event,) = events(ended.err.splitlines())
    assert (event["level"], event["logger"]) == ("error", "stderr")
    assert "cannot open the access log" in event["message"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_sigquit_writes_all_stacks_and_nothing_else_happens(
    write: Write, session: aiohttp.ClientSession, loop: str, tmp_path: Path
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    port, admin_port = free_port(), free_port()
    file = write(port, admin_port, more="log: {format: json}\naccess_log: {format: off}")
    with (tmp_path / "err").open("wb") as err:
        process = await start("run", "-c", str(file), stderr=err, SKEWGATE_LOOP=loop)
    await ready(session, f"http://127.0.0.1:{admin_port}")
    process.send_signal(signal.SIGQUIT)

    async def shown() -> bool:
        return '"message": "task ' in (tmp_path / "err").read_text()

    try:
        await until(shown, "stacks of tasks in the log")
    except AssertionError as error:
        error.add_note(f"{process.returncode} {(tmp_path / 'err').read_text()}")
        raise
    async with session.get(f"http://127.0.0.1:{port}/v1/nodes", headers={SERVED: "1.31"}) as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0
    logged = events((tmp_path / "err").read_text().splitlines())
    stacks = {event["message"]: event["stack"] for event in logged if "stack" in event}
    assert {"thread MainThread", "thread skewgate-stall"} <= stacks.keys()
    assert any(message.startswith("task ") for message in stacks)
    assert ", in _serve\n" in "".join(stacks.values())


async def test_a_reload_changes_format_and_level(
    write: Write, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    port, admin_port = free_port(), free_port()
    quiet = "access_log: {format: off}"
    file = write(port, admin_port, more=quiet)
    with (tmp_path / "err").open("wb") as err:
        process = await start("run", "-c", str(file), stderr=err)
    await ready(session, f"http://127.0.0.1:{admin_port}")
    write(port, admin_port, more=f"log: {{format: json, level: warning}}\n{quiet}", offer="{ceiling: '1.40'}")
    before = len((tmp_path / "err").read_text().splitlines())
    async with session.post(f"http://127.0.0.1:{admin_port}/-/reload") as response:
        assert response.status == 200
    write(port, admin_port, more="nonsense: 1")
    async with session.post(f"http://127.0.0.1:{admin_port}/-/reload") as response:
        assert response.status == 400
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0

    lines = (tmp_path / "err").read_text().splitlines()
    assert all(TIME.match(line) for line in lines[:before])
    after = [line for line in lines[before:] if line.startswith("{")]
    assert {event["level"] for event in events(after)} == {"error"}
    assert lines[-1] == after[-1], "`stopped` is below the level"


async def test_what_needs_a_restart_is_refused(write: Write, session: aiohttp.ClientSession) -> None:
    file = write(more="access_log: {format: off}")
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        await ready(session, gateway.admin_url)
        write(more="access_log: {format: off, query: keep}")
        async with session.post(f"{gateway.admin_url}/-/reload") as response:
            assert response.status == 400
            assert "access_log.query" in await response.text()
