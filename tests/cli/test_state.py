"""Pins, drains and offers outlive the process of the gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.conftest import Call, Write
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import finish, ready, start
from tests.kit.waiting import until

pytestmark = pytest.mark.processes


class RestartableGateway:
    """A configuration with a state file. Its gateway can be started again and again."""

    def __init__(self, write: Write, session: aiohttp.ClientSession, folder: Path) -> None:
        self.state = folder / "state.json"
        self.port = free_port()
        self.admin = f"http://127.0.0.1:{self.port}"
        self.file = write(admin_port=self.port, more=f"access_log: {{format: off}}\nstate: {self.state}")
        self.session = session

    async def start(self) -> Process:
        """Start the gateway and wait until its admin listener responds."""
        process = await start("run", "-c", str(self.file))

        async def responds() -> bool:
            try:
                async with self.session.get(f"{self.admin}/livez") as response:
                    return response.status == 200
            except aiohttp.ClientConnectionError:
                assert process.returncode is None
                return False

        await until(responds, "a response of the admin listener")
        return process

    async def service(self) -> Any:
        async with self.session.get(f"{self.admin}/status") as response:
            return (await response.json())["services"]["baremetal"]


@pytest.fixture
def restartable(write: Write, session: aiohttp.ClientSession, tmp_path: Path) -> RestartableGateway:
    return RestartableGateway(write, session, tmp_path)


async def test_offers_pins_and_drains_survive_being_killed(
    restartable: RestartableGateway, fleet: Fleet, call_main: Call
) -> None:
    process = await restartable.start()
    await ready(restartable.session, restartable.admin)
    pinned = await call_main("pin", "-c", str(restartable.file), "baremetal", "1.31")
    drained = await call_main("drain", "-c", str(restartable.file), "baremetal/api-1")
    before = (await restartable.service())["offer"]
    process.kill()
    await finish(process)
    # No backend can be probed: the versions are known from the last run, or not at all.
    await fleet.old.stop()
    await fleet.new.stop()

    process = await restartable.start()
    after = await restartable.service()
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert (pinned.err, drained.err) == ("", ""), "no warning: they are saved"
    assert (before["min"], before["max"], before["ceiling"]) == ("1.1", "1.31", "1.31")
    assert (after["offer"]["min"], after["offer"]["max"], after["pin"]) == ("1.1", "1.31", "1.31")
    assert [after["backends"][name]["drained"] for name in ("api-1", "api-2")] == [True, False]
    assert ended.code == 0
    assert "baremetal: pinned to 1.31, offer 1.1-1.31, phase capped" in ended.err
    assert "baremetal/api-1: drained" in ended.err


async def test_the_end_of_a_pin_and_of_a_drain_survives_as_well(
    restartable: RestartableGateway, call_main: Call
) -> None:
    process = await restartable.start()
    for argv in (
        *(("pin", "baremetal", "1.31"), ("drain", "baremetal/api-1")),
        *(("unpin", "baremetal"), ("enable", "baremetal/api-1")),
    ):
        assert (await call_main(*argv, "-c", str(restartable.file))).code == 0
    process.send_signal(signal.SIGTERM)
    await finish(process)

    process = await restartable.start()
    after = await restartable.service()
    process.kill()
    await finish(process)

    assert (after["pin"], after["backends"]["api-1"]["drained"]) == (None, False)


@pytest.mark.parametrize("content", ["{", '{"skewgate_state": 99}'])
async def test_a_damaged_file_is_a_warning_and_the_gateway_starts(
    restartable: RestartableGateway, content: str
) -> None:
    restartable.state.write_text(content)

    process = await restartable.start()
    await ready(restartable.session, restartable.admin)
    assert (await restartable.service())["offer"]["max"] == "1.58"
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert ended.code == 0
    assert f"WARNING skewgate.state: {restartable.state} is ignored" in ended.err
    assert restartable.state.with_name("state.json.damaged").read_text() == content
    assert json.loads(restartable.state.read_text())["services"]["baremetal"]["versions"] == [["1.1", "1.58"]]


async def test_requests_go_on_where_the_file_cannot_be_written(
    restartable: RestartableGateway, call_main: Call
) -> None:
    process = await restartable.start()
    await ready(restartable.session, restartable.admin)
    restartable.state.unlink()
    restartable.state.mkdir()
    pinned = await call_main("pin", "-c", str(restartable.file), "baremetal", "1.31")
    assert (await restartable.service())["offer"]["max"] == "1.31"
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert pinned.code == 0
    assert "this will not survive a restart: the gateway has no writable `state` file" in pinned.err
    assert f"ERROR skewgate.state: {restartable.state} cannot be written" in ended.err
    assert ended.code == 0


async def test_a_reload_with_another_path_needs_a_restart(
    restartable: RestartableGateway, tmp_path: Path, call_main: Call
) -> None:
    process = await restartable.start()
    other = tmp_path / "other.json"
    restartable.file.write_text(restartable.file.read_text().replace(str(restartable.state), str(other)))
    reloaded = await call_main("reload", "--admin", restartable.admin)
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(finish(process), 20)

    assert reloaded.code == 1
    assert ":4:1: error[needs-restart]: `state` cannot change while the gateway runs\n" in reloaded.err
    assert reloaded.err.endswith("skewgate: reload refused, the old configuration stays in force\n")
    assert not other.exists()


async def test_without_a_state_file_one_line_says_that_nothing_is_saved(
    write: Write, session: aiohttp.ClientSession
) -> None:
    port = free_port()
    process = await start("run", "-c", str(write(admin_port=port)))
    await ready(session, f"http://127.0.0.1:{port}")
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    line = "skewgate.state: no `state` file is configured: offers, pins and drains do not survive a restart\n"
    assert ended.err.count(line) == 1
