"""Brown-outs over real sockets: Ironic, Nova, Chef and an API of its own, a reload, and two workers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from tests.kit.gateways import gateway_of
from tests.kit.metrics import Scrape
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.custom_fleet import Versioned
from tests.scenarios.custom_fleet import in_front_of as in_front_of_custom
from tests.scenarios.fakes import Ironic, running
from tests.scenarios.ironic_client import IronicClient, UnsupportedVersion
from tests.scenarios.testbed import (
    VARY,
    Testbed,
    configuration,
    description,
    in_front_of,
    service_of,
    version_fields,
)

LINK = "https://docs.example/old"


def window(hours: int) -> str:
    """A window of a day that begins in so many hours."""
    return f"{{at: {datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%MZ}, for: 24h}}"


def keys(below: str, *, begins: int = -1, more: str = "") -> str:
    line = f"deprecated: {{below: '{below}', since: 2023-07-01, link: '{LINK}'}}"
    return f"{{{line}, brownouts: [{window(begins)}]{more}}}"


def assert_says_why(text: str, below: str) -> None:
    assert text.startswith(f"API versions below {below} are deprecated since 2023-07-01, and refused until 2")
    assert text.endswith(f"Z (brown-out). See {LINK}")


async def test_ironic_refuses_readers_of_deprecated_versions_and_nobody_else() -> None:
    async with in_front_of(Ironic(58), Ironic(90), lifecycle=keys("1.30")) as testbed:
        refused = await testbed.at("1.29")
        assert (refused.status, version_fields(refused)) == (406, ("1.1", "1.58", None))
        assert_says_why(description(refused), "1.30")
        assert (refused.get("Cache-Control"), refused.get("Vary")) == ("no-store", VARY)
        assert refused.get("Retry-After") is None, "clients of Ironic break on it"
        assert (await testbed.at(None)).status == 406, "1.1 would be executed"
        assert testbed.forwarded == []

        for version in ("1.30", "latest"):
            assert (await testbed.at(version)).status == 200
        for target in ("/", "/v1"):
            document = json.loads((await testbed.at("1.1", target)).body)
            entry = document["versions"][0] if target == "/" else document["version"]
            assert (entry["min_version"], entry["version"]) == ("1.1", "1.58")
        own = (("X-OpenStack-Ironic-API-Version", "1.29"),)
        assert (await testbed.send("/v1/nodes", *own, method="POST", body=b"{}")).status != 406
        with pytest.raises(UnsupportedVersion):
            await IronicClient(testbed, "1.20").get("/v1/nodes")
        assert (await IronicClient(testbed, "latest").get("/v1/nodes")).status == 200


async def test_metrics_status_page_and_explain_tell_it_from_other_refusals() -> None:
    async with in_front_of(Ironic(58), lifecycle=keys("1.30")) as testbed, aiohttp.ClientSession() as session:
        for version in ("1.29", None, "1.30", "1.99"):
            await testbed.at(version)
        gateway = testbed.gateway
        scrape = Scrape(b"".join(gateway.metrics.exposition("")[0]).decode())
        for result, number in (("brownout", 2), ("served", 1), ("above_max", 1)):
            assert scrape.total("skewgate_negotiations_total", result=result) == number
        async with session.get(f"{gateway.admin_url}/status") as response:
            status = await response.json()
        async with session.get(f"{gateway.admin_url}/ui/services/baremetal") as response:
            page = await response.text()
        async with session.get(f"{gateway.admin_url}/usage?service=baremetal&below=1.30") as response:
            usage = await response.json()
    announced = status["services"]["baremetal"]["lifecycle"]["announced"]
    assert announced.startswith("below 1.30 deprecated from 2023-07-01; brown-out until 2")
    assert f"B{announced[1:]}." in page
    assert [(row["requests"], row["refused"]) for row in usage["rows"]] == [(1, 1), (1, 1)]


async def test_nova_lets_a_client_ask_for_the_range() -> None:
    """`2.latest` of python-novaclient asks for the version's document at 2.1 explicitly."""
    async with nova_fleet.in_front_of(
        nova_fleet.Nova(60), nova_fleet.Nova(104), lifecycle=keys("2.30")
    ) as testbed:
        refused = await testbed.at("2.29")
        assert (refused.status, refused.get(nova_fleet.OWN)) == (406, "2.29")
        assert_says_why(json.loads(refused.body)["computeFault"]["message"], "2.30")
        assert 80_000 < int(refused.get("Retry-After") or 0) <= 86_400
        assert [(await testbed.at("2.1", target)).status for target in ("/", "/v2.1/", "/v2.1")] == [200] * 3
        assert [(await testbed.at(version)).status for version in ("2.30", "latest", None)] == [200, 200, 406]


async def test_chef_refuses_writers_too_where_the_file_says_so() -> None:
    async with chef_fleet.in_front_of(
        chef_fleet.Erchef(2), lifecycle=keys("1", more=", unsafe: true")
    ) as testbed:
        refused = await testbed.at("0")
        version_object = chef_fleet.version_object(0, 2, 0, -1)
        assert (refused.status, refused.get(chef_fleet.OWN)) == (406, version_object)
        assert_says_why(json.loads(refused.body)["message"], "1")
        signed = (*chef_fleet.SIGNED_1_3, (chef_fleet.OWN, "0"))
        assert (await testbed.send("/nodes", *signed, method="POST", body=b"{}")).status == 406
        assert (await testbed.at("1")).status == 200
        assert (await testbed.send("/server_api_version")).status == 200


async def test_an_api_of_its_own_refuses_by_its_dates() -> None:
    """In the form of its errors: what a refusal says by its template would be wrong."""
    options = "{places: [{header: X-Date}], scheme: date, reply: {served: X-Served}, "
    options += """refusal: {body: '{"is": "no {asked}"}'}, failure: {body: '{"is": "{detail}"}'}}"""
    versions = ("2024-01-01", "2024-06-01", "2025-01-01")
    server = Versioned(versions, lambda head: head.get("X-Date"))
    declared = f", versions: '{', '.join(versions)}'"
    more = {"custom": options, "backends": declared, "lifecycle": keys("2025-01-01")}
    async with in_front_of_custom(server, default_version="minimum", **more) as testbed:
        found = [await testbed.send("/x", ("X-Date", version)) for version in versions]

    assert [response.status for response in found] == [400, 400, 200]
    assert_says_why(json.loads(found[0].body)["is"], "2025-01-01")


async def test_a_reload_must_not_begin_a_window_and_may_end_one(tmp_path: Path) -> None:
    """A restart obeys the file: the gateway starts in an open window."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    in_force = keys("1.30")
    async with (
        in_front_of(server, source=file, lifecycle=in_force) as testbed,
        aiohttp.ClientSession() as session,
    ):

        async def reload(**more: str) -> tuple[int, int]:
            """Status of the reload, and of a request at 1.29."""
            file.write_text(configuration(service_of("baremetal", [server.port], **more)))
            async with session.post(f"{testbed.gateway.admin_url}/-/reload") as response:
                text = await response.text()
                assert response.status == 200 or "baremetal: a brown-out would begin or change" in text
                return response.status, (await testbed.at("1.29")).status

        assert await reload(lifecycle=in_force, retry_after="true") == (200, 406)
        for changed in (keys("1.31"), keys("1.30", begins=-2), keys("1.30", more=", unsafe: true")):
            assert (await reload(lifecycle=changed))[0] != 200
        assert await reload(lifecycle=keys("1.30", begins=1)) == (200, 200)
        refused, status = await reload(lifecycle=in_force)
        assert (refused != 200, status) == (True, 200)
        assert await reload() == (200, 200)


@pytest.mark.processes
async def test_both_workers_refuse_and_serve_alike() -> None:
    server = Ironic(58)
    async with running(server):
        service = service_of("baremetal", [server.port], lifecycle=keys("1.30"))
        async with gateway_of("workers: 2\n" + configuration(service)) as gateway:
            testbed = Testbed(gateway, [server], "")
            await testbed.until(lambda view: bool(view.offer.versions))
            seen = Counter[tuple[str, int]]()
            for _ in range(20):
                seen.update([(version, (await testbed.at(version)).status) for version in ("1.29", "1.30")])
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{gateway.admin_url}/metrics") as response,
            ):
                scrape = Scrape(await response.text())

    assert seen == {("1.29", 406): 20, ("1.30", 200): 20}
    assert scrape.total("skewgate_negotiations_total", result="brownout") == 20
