"""The configuration as an argument: the verbs that need it take `FILE` as `check` does, and `-c FILE`."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
from pathlib import Path

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.cli.conftest import Call, Write
from tests.kit.networks import free_port
from tests.kit.processes import Ended, ready


async def test_R3_N7_reload_and_healthcheck_find_the_gateway_by_the_file(
    write: Write, session: aiohttp.ClientSession, call_main: Call
) -> None:
    file = write(admin_port=free_port())
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        await ready(session, gateway.admin_url)

        assert await call_main("healthcheck", str(file)) == Ended(0, "ready\n", "")
        assert (await call_main("reload", str(file))).code == 0


@pytest.mark.parametrize("verb", ["run", "reload", "healthcheck"])
async def test_R3_N7_a_configuration_is_named_once(verb: str, tmp_path: Path, call_main: Call) -> None:
    ended = await call_main(verb, str(tmp_path / "a.yaml"), "-c", str(tmp_path / "b.yaml"))

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(
        f"error: {tmp_path / 'a.yaml'} and -c {tmp_path / 'b.yaml'}: name the configuration once\n"
    )


@pytest.mark.parametrize("verb", ["reload", "healthcheck"])
async def test_R3_N7_an_address_and_a_file_are_one_too_many(verb: str, call_main: Call) -> None:
    ended = await call_main(verb, "a.yaml", "--admin", "http://127.0.0.1:1")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("error: --admin is not allowed with a configuration file\n")
