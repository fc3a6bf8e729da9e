"""`bridge` over real sockets: a pinned client in front of Ironic, Nova and Chef that have moved on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.kit.gateways import gateway_of
from tests.kit.metrics import Scrape
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.chef_fleet import Erchef, version_object
from tests.scenarios.fakes import OWN, Ironic, running
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.testbed import VARY, Testbed, configuration, service_of, version_fields

BRIDGED: Final = "X-Skewgate-Bridged"
CI: Final = ("X-Team", "ci")
IS_BRIDGED: Final = "ci is bridged to the nearest version until 2099-12-31"


def file_of(
    server: Ironic,
    name: str = "baremetal",
    *,
    match: str = "nearest",
    rule: str = "header: {X-Team: ci}",
    **keys: str,
) -> str:
    keys["bridge"] = f"[{{clients: [ci], match: {match}, until: 2099-12-31}}]"
    return f"{configuration(service_of(name, [server.port], **keys))}clients: [{{name: ci, {rule}}}]\n"


async def test_ironic_is_asked_for_and_shows_the_version_at_which_it_executes() -> None:
    server = Ironic(90, 30)
    async with running(server), gateway_of(file_of(server)) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        for _ in range(2):  # also from the caches of decisions and heads
            for asked, served in (("1.9", "1.30"), ("1.95", "1.90")):
                bridged = await testbed.send("/v1/nodes", CI, (OWN, asked))
                assert (bridged.status, version_fields(bridged)) == (200, ("1.30", "1.90", served))
                assert bridged.get(BRIDGED) == f"{asked} -> {served}"
                refused = await testbed.send("/v1/nodes", (OWN, asked))
                assert (refused.status, version_fields(refused)[:2]) == (406, ("1.30", "1.90"))
                assert {bridged.get("Vary"), refused.get("Vary")} == {f"{VARY}, X-Team"}
            for asked, served in (("1.40", "1.40"), ("latest", "1.90")):
                plain = await testbed.send("/v1/nodes", CI, (OWN, asked))
                assert (version_fields(plain)[2], plain.get(BRIDGED)) == (served, None)
            assert (await testbed.send("/v1/nodes", CI, (OWN, "nonsense"))).status == 406
            assert (await testbed.send("/v1", CI, (OWN, "1.9"))).status == 406, "never a document"
            document = json.loads((await testbed.send("/", CI)).body)["versions"][0]
            assert (document["min_version"], document["version"]) == ("1.30", "1.90")
    assert {head.get(OWN) for head in server.forwarded if head.target == "/v1/nodes"} == {
        *("1.30", "1.90", "1.40"),
    }


async def test_a_floor_is_bridged_and_the_end_of_the_version_is_announced() -> None:
    server = Ironic(90)
    keys = {"offer": '{floor: "1.46"}', "default_version": "minimum"}
    keys["lifecycle"] = '{deprecated: {below: "1.50", since: 2026-01-15}}'
    async with running(server), gateway_of(file_of(server, match="nearest_later", **keys)) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))

        bridged = await testbed.send("/v1/nodes", CI, (OWN, "1.9"))
        assert (bridged.get(BRIDGED), bridged.get("Deprecation")) == ("1.9 -> 1.46", "@1768435200")
        above = await testbed.send("/v1/nodes", CI, (OWN, "1.95"))
        assert (above.status, above.get(BRIDGED)) == (406, None)


async def test_a_failure_after_the_request_was_sent_names_both_versions() -> None:
    server = Ironic(90, 30)
    async with running(server), gateway_of(file_of(server)) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        await server.stop()

        failed = await testbed.send("/v1/nodes", CI, (OWN, "1.9"))
        assert (failed.status, failed.get(BRIDGED)) == (503, "1.9 -> 1.30")


async def test_nova_has_its_own_header_for_what_was_served() -> None:
    server = Nova(90)
    keys = {"match": "nearest_earlier", "dialect": "nova"}
    async with running(server), gateway_of(file_of(server, "compute", **keys)) as gateway:
        testbed = Testbed(gateway, [server], "", "compute")
        await testbed.until(lambda view: bool(view.offer.versions))

        for lines, status, served, bridged in (
            ((CI,), 200, "2.90", "2.96 -> 2.90"),
            ((), 406, None, None),
        ):
            response = await testbed.send(
                nova_fleet.SERVERS, *lines, (nova_fleet.OWN, "2.96"), nova_fleet.TOKEN
            )
            assert (response.status, response.get(BRIDGED)) == (status, bridged)
            if served is not None:
                assert response.get(nova_fleet.OWN) == served


async def test_chef_only_what_is_not_signed_is_bridged() -> None:
    """A signature of protocol 1.3 covers the version: another one would not be what the client has signed."""
    server = Erchef(2, 1)
    async with running(server), gateway_of(file_of(server, "chef", dialect="chef")) as gateway:
        testbed = Testbed(gateway, [server], "", "chef")
        await testbed.until(lambda view: bool(view.offer.versions))

        own = (chef_fleet.OWN, "3")
        plain = await testbed.send("/nodes", CI, *chef_fleet.SIGNED_1_1, own)
        assert (plain.status, plain.get(BRIDGED)) == (200, "3 -> 2")
        assert plain.get(chef_fleet.OWN) == version_object(1, 2, 2, 2)
        signed = await testbed.send("/nodes", CI, *chef_fleet.SIGNED_1_3, own)
        assert (signed.status, signed.get(BRIDGED)) == (406, None)
    assert {head.get(chef_fleet.OWN) for head in server.forwarded} == {"2"}


async def test_where_the_address_decides_every_response_is_private() -> None:
    server = Ironic(90, 30)
    async with running(server), gateway_of(file_of(server, rule="networks: [127.0.0.0/8]")) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        for asked in ("1.9", "1.40", "nonsense"):
            response = await testbed.at(asked)
            assert response.get("Cache-Control") == "private"


async def test_metrics_status_page_usage_and_explain_name_it() -> None:
    server = Ironic(90, 30)
    async with running(server), gateway_of(file_of(server)) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        for asked in ("1.9", "1.8", "1.95", "1.40"):
            await testbed.send("/v1/nodes", CI, (OWN, asked))
        scrape = Scrape(b"".join(gateway.metrics.exposition("")[0]).decode())
        async with aiohttp.ClientSession() as session:

            async def got(path: str) -> str:
                async with session.get(gateway.admin_url + path) as response:
                    return await response.text()

            status, page = json.loads(await got("/status")), await got("/ui/services/baremetal")
            usage = json.loads(await got("/usage?service=baremetal&by=client&below=1.20"))
            described = "/explain?method=GET&path=/v1/nodes&header=X-Team:ci&header=" + OWN + ":1.9"
            explained = json.loads(await got(described))
    assert scrape.by("direction", "skewgate_bridged_requests_total") == {"lifted": 2, "clamped": 1}
    assert scrape.total("skewgate_negotiations_total", result="bridged") == 3
    assert scrape.by("version", "skewgate_served_version_total")["1.30"] == 2
    assert status["services"]["baremetal"]["bridge"] == [
        {"clients": ["ci"], "match": "nearest", "until": "2099-12-31", "sentence": IS_BRIDGED}
    ]
    assert IS_BRIDGED[1:] in page
    assert [(row["client"], row["requests"], row["refused"]) for row in usage["rows"]] == [("ci", 2, 0)]
    assert (usage["rows"][0]["bridged"], usage["rows"][0]["versions"]) == (2, {"1.8": 1, "1.9": 1})
    assert (explained["bridged"], explained["decision"]) == ("1.9 -> 1.30", "forward")


@pytest.mark.processes
async def test_two_workers_bridge_alike_and_count_it(tmp_path: Path) -> None:
    server, file = Ironic(90, 30), tmp_path / "gateway.yaml"
    async with running(server):
        text = "workers: 2\n" + file_of(server)
        file.write_text(text)
        async with gateway_of(text, source=file) as gateway:
            testbed = Testbed(gateway, [server], "")
            await testbed.until(lambda view: bool(view.offer.versions))
            for _ in range(20):
                bridged = await testbed.send("/v1/nodes", CI, (OWN, "1.9"))
                assert (bridged.status, bridged.get(BRIDGED)) == (200, "1.9 -> 1.30")
                assert (await testbed.send("/v1/nodes", (OWN, "1.9"))).status == 406
