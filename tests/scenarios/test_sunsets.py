"""An enforced sunset on real sockets: Ironic, Nova, Chef, two workers, a restart, a `lower` that stands."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from gateway.cli.offline import explain_offline
from gateway.cli.status import page
from gateway.core.fleet.fleet import Raise
from gateway.core.versions.version import Version
from gateway.runtime.terminal import Paint
from gateway.settings import load
from tests.kit.gateways import gateway_of
from tests.kit.waiting import PATIENCE
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.chef_fleet import Erchef, version_object
from tests.scenarios.fakes import Ironic, running
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.testbed import Testbed, configuration, in_front_of, service_of, version_fields


def sunset(below: str, at: str = "2001-01-01") -> str:
    return f"{{sunset: {{below: '{below}', at: {at}, enforce: true}}}}"


async def test_ironic_shows_serves_and_refuses_by_it_and_says_what_raised_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    server = Ironic(90)
    async with (
        in_front_of(server, lifecycle=sunset("1.40"), default_version="minimum") as testbed,
        aiohttp.ClientSession(testbed.gateway.admin_url) as session,
    ):
        for asked, served in ((None, "1.40"), ("1.40", "1.40"), ("latest", "1.90")):
            assert version_fields(await testbed.at(asked)) == ("1.40", "1.90", served)
        refused = await testbed.at("1.39")
        assert (refused.status, version_fields(refused)) == (406, ("1.40", "1.90", None))

        async def offer() -> object:
            async with session.get("/status") as response:
                status = await response.json()
            service = status["services"]["baremetal"]
            by_clock = "1.40-1.90 (floor 1.40 by its sunset of 2001-01-01)"
            assert (by_clock in page(status, 0.0, Paint(io.StringIO()))) is (service["raised"] is not None)
            return service["raised"], service["offer"]["floor"], service["offer"].get("floor_sunset")

        assert await offer() == ("1.40", "1.40", "2001-01-01")
        async with session.get("/ui/services/baremetal") as response:
            assert "floor 1.40 by its sunset of 2001-01-01" in await response.text()
        async with session.get("/explain", params={"method": "GET", "path": "/v1/nodes"}) as response:
            assert (await response.json())["offer"]["floor_sunset"] == "2001-01-01"
        async with session.delete("/services/baremetal/floor") as response:
            assert response.status == 200
        assert await offer() == (None, None, None)
        assert version_fields(await testbed.at("1.39")) == ("1.1", "1.90", "1.39")
    lines = [record for record in caplog.records if "raised to 1.40 by its sunset" in record.getMessage()]
    assert lines
    assert not any("by_operator" in vars(record) for record in lines)


async def test_explain_without_a_gateway_sees_the_floor_of_a_new_one() -> None:
    async with running(server := Ironic(90)):
        more = {"lifecycle": sunset("1.40"), "default_version": "minimum"}
        text = configuration(service_of("baremetal", [server.port], **more))
        settings = load(text, filename="x.yaml", environ={}).require()
        found = await explain_offline(settings, "GET", "/v1/nodes", [])

    assert (found["offer"]["min"], found["offer"]["floor_sunset"]) == ("1.40", "2001-01-01")


async def test_nova_and_chef_show_serve_and_refuse_by_it() -> None:
    keys = {"lifecycle": sunset("2.30"), "default_version": "minimum"}
    async with nova_fleet.in_front_of(Nova(60), Nova(104), **keys) as testbed:
        assert [(await testbed.at(asked)).status for asked in ("2.30", "latest", "2.29")] == [200, 200, 406]
        root = json.loads((await testbed.at(None, "/")).body)["versions"]
        assert {each["min_version"] for each in root if each["id"] == "v2.1"} == {"2.30"}
    keys = {"lifecycle": sunset("1"), "default_version": "minimum"}
    async with chef_fleet.in_front_of(Erchef(2), Erchef(2), **keys) as testbed:
        assert [(await testbed.at(asked)).status for asked in ("1", "2", "0")] == [200, 200, 406]
        assert (await testbed.at("0")).get(chef_fleet.OWN) == version_object(1, 2, 0, -1)


async def test_a_reload_brings_it_and_a_lower_stands_until_the_file_changes(tmp_path: Path) -> None:
    server, file = Ironic(90), tmp_path / "gateway.yaml"

    async def written(testbed: Testbed, lifecycle: str) -> None:
        more = {"lifecycle": lifecycle, "default_version": "minimum"}
        file.write_text(configuration(service_of("baremetal", [server.port], **more)))
        before = testbed.view.service
        testbed.gateway.on_sighup()
        await testbed.until(lambda view: view.service is not before)

    async with in_front_of(server, source=file) as testbed:
        assert (await testbed.at("1.30")).status == 200
        await written(testbed, sunset("1.40", "2999-01-01"))
        assert (await testbed.at("1.30")).status == 200
        await written(testbed, sunset("1.40"))
        await testbed.until(lambda view: view.offer.floor == Version(1, 40))
        assert (await testbed.at("1.30")).status == 406
        testbed.gateway.snapshot_holder.apply("baremetal", Raise(None))
        await written(testbed, "{deprecated: {below: '1.40', since: 2001-01-01}}")
        await written(testbed, sunset("1.40"))
        assert (await testbed.at("1.30")).status == 200
        await written(testbed, sunset("1.40", "2001-01-02"))
        await testbed.until(lambda view: view.offer.floor == Version(1, 40))
        assert (await testbed.at("1.30")).status == 406


@pytest.mark.processes
async def test_two_workers_do_the_same_and_a_restart_keeps_what_was_lowered(tmp_path: Path) -> None:
    server = Ironic(90)
    async with running(server), aiohttp.ClientSession() as session:
        more = {"lifecycle": sunset("1.40"), "default_version": "minimum"}
        text = f"workers: 2\nstate: {tmp_path / 'state.json'}\n"
        text += configuration(service_of("baremetal", [server.port], **more))

        async def all_answer(testbed: Testbed, status: int) -> None:
            seen: Counter[int] = Counter()
            async with asyncio.timeout(PATIENCE):
                while seen[status] < 40:
                    found = (await testbed.at("1.30")).status
                    assert found in {200, 406, 503}
                    seen = seen + Counter([found]) if found == status else Counter()
                    assert (await testbed.at("1.60")).status == 200

        for lower in (True, False):
            async with gateway_of(text) as gateway:
                testbed = Testbed(gateway, [server], "")
                await testbed.until(lambda view: bool(view.offer.versions))
                await all_answer(testbed, 406 if lower else 200)
                if lower:
                    url = f"{gateway.admin_url}/services/baremetal/floor"
                    async with session.delete(url) as response:
                        assert (response.status, (await response.json())["kept"]) == (200, True)
                    await all_answer(testbed, 200)
