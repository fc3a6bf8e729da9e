"""What an operator ordered and what clients were promised outlives the gateway's process."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.conftest import Call, Fleet, Write
from tests.cli.processes import finish, free_port, ready, start, until


class Stand:
    """A configuration with a state file, whose gateway is started again and again."""

    def __init__(self, write: Write, session: aiohttp.ClientSession, folder: Path) -> None:
        self.state = folder / "state.json"
        self.port = free_port()
        self.admin = f"http://127.0.0.1:{self.port}"
        self.file = write(admin_port=self.port, more=f"access_log: {{format: off}}\nstate: {self.state}")
        self.session = session

    async def start(self) -> Process:
        """Up to the moment in which its admin listener answers."""
        process = await start("run", "-c", str(self.file))

        async def answers() -> bool:
            try:
                async with self.session.get(f"{self.admin}/livez") as reply:
                    return reply.status == 200
            except aiohttp.ClientConnectionError:
                assert process.returncode is None
                return False

        await until(answers, "an answer")
        return process

    async def service(self) -> Any:
        async with self.session.get(f"{self.admin}/status") as reply:
            return (await reply.json())["services"]["baremetal"]


@pytest.fixture
def stand(write: Write, session: aiohttp.ClientSession, tmp_path: Path) -> Stand:
    return Stand(write, session, tmp_path)


async def test_offers_pins_and_drains_survive_being_killed(
    stand: Stand, fleet: Fleet, call_main: Call
) -> None:
    process = await stand.start()
    await ready(stand.session, stand.admin)
    pinned = await call_main("pin", "-c", str(stand.file), "baremetal", "1.31")
    drained = await call_main("drain", "-c", str(stand.file), "baremetal/api-1")
    before = (await stand.service())["offer"]
    process.kill()
    await finish(process)
    # Nobody can be asked for the versions: they are known from the last run or not at all.
    await fleet.old.stop()
    await fleet.new.stop()

    process = await stand.start()
    after = await stand.service()
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert (pinned.err, drained.err) == ("", ""), "no warning: it is kept"
    assert (before["min"], before["max"], before["ceiling"]) == ("1.1", "1.31", "1.31")
    assert (after["offer"]["min"], after["offer"]["max"], after["pin"]) == ("1.1", "1.31", "1.31")
    assert [after["backends"][name]["drained"] for name in ("api-1", "api-2")] == [True, False]
    assert ended.code == 0
    assert "baremetal: pinned to 1.31, offer 1.1-1.31, phase capped" in ended.err
    assert "baremetal/api-1: drained" in ended.err


async def test_the_end_of_an_order_survives_as_well(stand: Stand, call_main: Call) -> None:
    process = await stand.start()
    for argv in (
        *(("pin", "baremetal", "1.31"), ("drain", "baremetal/api-1")),
        *(("unpin", "baremetal"), ("enable", "baremetal/api-1")),
    ):
        assert (await call_main(*argv, "-c", str(stand.file))).code == 0
    process.send_signal(signal.SIGTERM)
    await finish(process)

    process = await stand.start()
    after = await stand.service()
    process.kill()
    await finish(process)

    assert (after["pin"], after["backends"]["api-1"]["drained"]) == (None, False)


@pytest.mark.parametrize("content", ["{", '{"skewgate_state": 99}'])
async def test_a_damaged_file_is_a_warning_and_the_gateway_starts(stand: Stand, content: str) -> None:
    stand.state.write_text(content)

    process = await stand.start()
    await ready(stand.session, stand.admin)
    assert (await stand.service())["offer"]["max"] == "1.58"
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert ended.code == 0
    assert f"WARNING skewgate.state: {stand.state} cannot be used" in ended.err
    assert stand.state.with_name("state.json.damaged").read_text() == content
    assert json.loads(stand.state.read_text())["services"]["baremetal"]["versions"] == [["1.1", "1.58"]]


async def test_requests_go_on_where_the_file_cannot_be_written(stand: Stand, call_main: Call) -> None:
    stand.state.mkdir()
    process = await stand.start()
    await ready(stand.session, stand.admin)
    pinned = await call_main("pin", "-c", str(stand.file), "baremetal", "1.31")
    assert (await stand.service())["offer"]["max"] == "1.31"
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert pinned.code == 0
    assert "this ends with the gateway, which has no `state` file or cannot write it" in pinned.err
    assert f"ERROR skewgate.state: {stand.state} cannot be written" in ended.err
    assert ended.code == 0


async def test_a_reload_with_another_path_needs_a_restart(
    stand: Stand, tmp_path: Path, call_main: Call
) -> None:
    process = await stand.start()
    other = tmp_path / "other.json"
    stand.file.write_text(stand.file.read_text().replace(str(stand.state), str(other)))
    reloaded = await call_main("reload", "--admin", stand.admin)
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(finish(process), 20)

    assert reloaded.err == "skewgate: warning: not in force before a restart: state\n"
    assert not other.exists()


async def test_without_a_file_one_line_says_that_nothing_is_kept(
    write: Write, session: aiohttp.ClientSession
) -> None:
    port = free_port()
    process = await start("run", "-c", str(write(admin_port=port)))
    await ready(session, f"http://127.0.0.1:{port}")
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    said = "skewgate.state: nothing is kept across a restart: offers, pins and drains need a `state` file\n"
    assert ended.err.count(said) == 1
