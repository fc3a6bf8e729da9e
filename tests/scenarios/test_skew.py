"""Releases in service that are too far apart: on real sockets, as status, page, log and metric show it."""

from __future__ import annotations

import io
import logging
from functools import partial
from typing import Any

import aiohttp
import pytest

from gateway.cli.status import page as status_page
from gateway.core.fleet.snapshot import ServiceView
from gateway.runtime.terminal import Paint
from tests.kit.gateways import gateway_of
from tests.kit.metrics import Scrape
from tests.scenarios.custom_fleet import Versioned
from tests.scenarios.custom_fleet import in_front_of as in_front_of_custom
from tests.scenarios.fakes import Ironic, running
from tests.scenarios.testbed import Testbed, configuration, in_front_of, service_of

PROBLEM = (
    "too new for api-1 (train): api-2; the newest is 2024.1, 8 upgrade steps ahead, 1 supported: "
    "drain what is too new, or upgrade the oldest first"
)


def metric(testbed: Testbed) -> dict[str, float]:
    scrape = Scrape(b"".join(testbed.gateway.metrics.exposition("")[0]).decode())
    return dict(scrape.by("service", "skewgate_skew_releases"))


async def status_of(testbed: Testbed) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{testbed.gateway.admin_url}/status") as response,
    ):
        document: dict[str, Any] = await response.json()
        return document


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [record for record in caplog.records if "too new" in record.getMessage()]
    return [(record.levelname, record.getMessage()) for record in records]


async def test_what_is_too_new_is_shown_until_the_oldest_is_drained(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with in_front_of(Ironic(58), Ironic(90), skew="{releases: 1}") as testbed:
        await testbed.until(lambda view: bool(view.skew and view.skew.problem))
        assert metric(testbed) == {"baremetal": 7}
        status = await status_of(testbed)
        assert status["services"]["baremetal"]["skew"] == {
            "releases": 8,
            "supported": 1,
            "too_new": ["api-2"],
            "problem": PROBLEM,
        }
        shown = status_page(status, 0.0, Paint(io.StringIO())).splitlines()
        assert f"baremetal: {PROBLEM}" in shown
        admin = testbed.gateway.admin_url
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{admin}/ui/services/baremetal") as response:
                assert PROBLEM in await response.text()
            async with session.post(f"{admin}/services/baremetal/backends/api-1/drain") as response:
                assert response.status == 200
        assert metric(testbed) == {"baremetal": 0}
        assert (await status_of(testbed))["services"]["baremetal"]["skew"]["problem"] is None
    assert logged(caplog) == [
        ("WARNING", f"baremetal: {PROBLEM}"),
        ("INFO", "baremetal: no release is too new any more"),
    ]


async def test_an_upgrade_by_supported_steps_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    servers = Ironic(82), Ironic(82)

    def serves(view: ServiceView, number: int) -> bool:
        known = view.members.all[number].advertisement
        return known is not None and known.versions.highest.minor == servers[number].highest

    async with in_front_of(*servers, skew="{}") as testbed:
        for highest in (90, 96, 111):
            for number, server in enumerate(servers):
                server.highest = highest
                await testbed.until(partial(serves, number=number))
                assert metric(testbed) == {"baremetal": 0}
    assert logged(caplog) == []


async def test_an_api_of_its_own_counts_by_its_releases() -> None:
    def server(*versions: str) -> Versioned:
        return Versioned(versions, lambda head: head.get("X-Number"))

    custom = (
        "{places: [{header: X-Number}], reply: {served: X-Served}, "
        "learn: {path: /versions, minimum: $.oldest, maximum: $.newest}}"
    )
    releases = "{alpha: 1, beta: 2, gamma: 3}"
    servers = server("1"), server("1", "2"), server("1", "2", "3")
    more = {"custom": custom, "releases": releases, "skew": "{releases: 1}"}
    async with in_front_of_custom(*servers, **more) as testbed:
        await testbed.until(lambda view: bool(view.skew and view.skew.too_new == ("api-3",)))
        assert metric(testbed) == {"api": 1}


async def test_the_oldest_is_first_also_where_versions_are_names() -> None:
    def server(*versions: str) -> Versioned:
        return Versioned(versions, lambda head: head.get("X-Name"))

    custom = (
        "{places: [{header: X-Name}], reply: {served: X-Served}, scheme: named, names: [zed, abc, mid], "
        "learn: {path: /versions, minimum: $.oldest, maximum: $.newest}}"
    )
    servers = server("zed", "abc", "mid"), server("zed", "abc"), server("zed")
    async with in_front_of_custom(*servers, custom=custom, offer="{policy: reachable}") as testbed:
        await testbed.until(lambda view: bool(view.offer.versions))
        service = (await status_of(testbed))["services"]["api"]
    assert service["oldest_first"] == ["api-3", "api-2", "api-1"]
    assert service["served_alone"] == {"api-1": "mid"}


@pytest.mark.processes
async def test_with_two_workers_it_is_shown_once() -> None:
    servers = Ironic(58), Ironic(90)
    async with running(*servers):
        service = service_of("baremetal", [each.port for each in servers], skew="{releases: 8}")
        async with gateway_of("workers: 2\n" + configuration(service)) as gateway:
            testbed = Testbed(gateway, servers, "")
            await testbed.until(lambda view: bool(view.skew and view.skew.releases == 8))
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{gateway.admin_url}/metrics") as response,
            ):
                scrape = Scrape(await response.text())
    assert scrape.by("service", "skewgate_skew_releases") == {"baremetal": 0}
