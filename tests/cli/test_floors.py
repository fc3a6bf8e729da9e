"""The verbs `raise` and `lower`."""

from __future__ import annotations

import json

import aiohttp
import pytest

from gateway.demo.ironic import LOWEST, SERVED
from tests.cli.conftest import Call, Running, Write

pytestmark = pytest.mark.processes


async def lowest(session: aiohttp.ClientSession, url: str, version: str = "latest") -> tuple[int, str]:
    headers = {SERVED: version, "Connection": "close", "User-Agent": "rare/1"}
    async with session.get(f"{url}/v1/nodes", headers=headers) as response:
        return response.status, response.headers[LOWEST]


async def test_a_floor_that_is_certain_to_affect_nobody_is_raised_at_once(
    running: Running, session: aiohttp.ClientSession, call_main: Call
) -> None:
    """A record that begins today is not one whole day, so for one that hides something nothing is certain."""
    at = ("--admin", running.admin, "baremetal")
    unsure = await call_main("raise", *at, "1.20")
    assert unsure.code == 4
    assert "nobody is affected, as far as is known" in unsure.out
    assert "nothing was done: to raise the floor in spite of this, give --yes" in unsure.err
    assert await lowest(session, running.url) == (200, "1.1")

    raised = await call_main("raise", *at, "1.20", "--yes")
    assert raised.code == 0
    assert raised.out.endswith("\nbaremetal: offers 1.20-1.58, floor 1.20, phase mixed\n")
    assert await lowest(session, running.url) == (200, "1.20")
    assert await lowest(session, running.url, "1.19") == (406, "1.20")
    assert "1.20-1.58 (floor 1.20)" in (await call_main("status", "--admin", running.admin)).out
    explained = await call_main("explain", "--admin", running.admin, "GET", "/v1/nodes")
    assert "floor 1.20" in explained.out

    lowered = await call_main("lower", *at)
    assert lowered.out == "baremetal: offers 1.1-1.58, phase mixed\n"
    assert await lowest(session, running.url, "1.19") == (200, "1.1")


async def test_who_is_affected_is_said_and_nothing_is_done(
    running: Running, session: aiohttp.ClientSession, call_main: Call
) -> None:
    await lowest(session, running.url, "1.10")

    found = await call_main("raise", "--admin", running.admin, "baremetal", "1.20")

    assert found.code == 3
    assert "rare" in found.out
    assert await lowest(session, running.url, "1.10") == (200, "1.1")
    as_json = await call_main("raise", "--admin", running.admin, "baremetal", "1.20", "--yes", "-o", "json")
    assert "rare" in as_json.err
    assert json.loads(as_json.out)["services"]["baremetal"]["raised"] == "1.20"


async def test_a_refusal_is_one_sentence(running: Running, call_main: Call) -> None:
    found = await call_main("raise", "--admin", running.admin, "baremetal", "1.99", "--yes")
    assert found.code == 1
    assert "the floor 1.99 is above the maximum 1.58 on offer: nothing could be served" in found.err


async def test_without_a_record_nothing_is_certain(write: Write, running: Running, call_main: Call) -> None:
    unknown = await call_main("raise", "--admin", running.admin, "nowhere", "1.20")
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no service 'nowhere'" in unknown.err
