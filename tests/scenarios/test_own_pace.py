"""`offer.for` over real sockets: a client with an own pace in front of Ironic, Nova and Chef."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.kit.gateways import gateway_of
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.chef_fleet import Erchef, version_object
from tests.scenarios.fakes import OWN, Head, Ironic, running
from tests.scenarios.ironic_client import IronicClient
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.testbed import (
    VARY,
    Testbed,
    configuration,
    description,
    service_of,
    version_fields,
)

CLIENTS: Final = """\
clients:
  - {name: other, user_agent: wget}
  - {name: cron, header: {X-Team: cron}}
"""
CRON: Final = ("X-Team", "cron")
VARIES: Final = f"{VARY}, X-Team, User-Agent"


def offer_for(ceiling: str, until: str = "2099-12-31") -> str:
    return f'{{for: [{{clients: [cron], ceiling: "{ceiling}", until: {until}}}]}}'


def file_of(server: Ironic, ceiling: str | None, until: str = "2099-12-31", clients: str = CLIENTS) -> str:
    keys = {} if ceiling is None else {"offer": offer_for(ceiling, until)}
    return configuration(service_of("baremetal", [server.port], **keys)) + clients


async def test_ironic_the_named_client_has_its_own_range_everywhere(tmp_path: Path) -> None:
    old, new = Ironic(90), Ironic(90)
    file = tmp_path / "gateway.yaml"
    async with running(old, new):
        keys = {"offer": offer_for("1.50")}
        text = configuration(service_of("baremetal", [old.port, new.port], **keys)) + CLIENTS
        async with gateway_of(text, source=file) as gateway:
            testbed = Testbed(gateway, [old, new], "")
            await testbed.until(lambda view: bool(view.offer.versions))
            for _ in range(3):  # also from the caches of decisions, heads and documents
                for lines, highest in (((CRON,), "1.50"), ((), "1.90"), ((("X_Team", "cron"),), "1.50")):
                    latest = await testbed.send("/v1/nodes", *lines, (OWN, "latest"))
                    assert version_fields(latest) == ("1.1", highest, highest)
                    plain = await testbed.send("/v1/nodes", *lines, (OWN, "1.40"))
                    assert version_fields(plain) == ("1.1", highest, "1.40")
                    for target in ("/", "/v1"):
                        document = await testbed.send(target, *lines)
                        body = json.loads(document.body)
                        entry = body["versions"][0] if target == "/" else body["version"]
                        assert (entry["min_version"], entry["version"]) == ("1.1", highest)
                        assert document.get("Vary") == VARIES
                    assert {latest.get("Vary"), plain.get("Vary")} == {VARIES}
                    assert latest.get("Cache-Control") is None
                    above = await testbed.send("/v1/nodes", *lines, (OWN, "1.60"))
                    assert above.get("Vary") == VARIES
                    if highest == "1.90":
                        assert version_fields(above) == ("1.1", "1.90", "1.60")
                    else:
                        assert version_fields(above)[:2] == ("1.1", "1.50")
                        assert "supported version range is: [1.1, 1.50]" in description(above)
    asked = {head.get(OWN) for server in (old, new) for head in server.forwarded if head.get("X-Team")}
    assert asked == {"1.50", "1.40", "1.1", None}, "a backend executes what the client is told"


async def test_ironic_a_client_that_negotiates_finds_its_own_highest_version() -> None:
    server = Ironic(90)
    async with running(server), gateway_of(file_of(server, "1.50")) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))

        class Named(Testbed):
            async def send(self, target: str, *lines: tuple[str, str], **more: object) -> Head:
                return await super().send(target, CRON, *lines, **more)  # type: ignore[arg-type]

        client = IronicClient(Named(gateway, [server], ""), "latest")
        assert version_fields(await client.get("/v1/nodes")) == ("1.1", "1.50", "1.50")
        assert client.ranges <= {("1.1", "1.50")}


async def test_nova_the_document_and_latest_are_those_of_the_client() -> None:
    server = Nova(90)
    async with running(server):
        keys = {"dialect": "nova", "offer": offer_for("2.60")}
        text = configuration(service_of("compute", [server.port], **keys)) + CLIENTS
        async with gateway_of(text) as gateway:
            testbed = Testbed(gateway, [server], "", "compute")
            await testbed.until(lambda view: bool(view.offer.versions))
            for lines, highest in (((), "2.90"), ((CRON,), "2.60")) * 2:
                latest = await testbed.send(
                    nova_fleet.SERVERS, *lines, (nova_fleet.OWN, "latest"), nova_fleet.TOKEN
                )
                assert latest.get(nova_fleet.OWN) == highest
                assert {"X-Team", "User-Agent", nova_fleet.OWN} <= set(latest.all("Vary"))
                document = await testbed.send("/v2.1/", *lines)
                assert json.loads(document.body)["version"]["version"] == highest
            refused = await testbed.send(nova_fleet.SERVERS, CRON, (nova_fleet.OWN, "2.61"))
            assert refused.status == 406
            assert "Minimum is 2.1 and maximum is 2.60." in refused.body.decode()


async def test_chef_the_object_and_the_answered_documents_are_those_of_the_client() -> None:
    server = Erchef(2)
    async with running(server):
        keys = {"dialect": "chef", "offer": offer_for("1")}
        text = configuration(service_of("chef", [server.port], **keys)) + CLIENTS
        async with gateway_of(text) as gateway:
            testbed = Testbed(gateway, [server], "", "chef")
            await testbed.until(lambda view: bool(view.offer.versions))
            signed = chef_fleet.SIGNED_1_3
            for lines, highest in (((), 2), ((CRON,), 1)) * 2:
                served = await testbed.send("/nodes", *lines, *signed, (chef_fleet.OWN, "1"))
                assert served.get(chef_fleet.OWN) == version_object(0, highest, 1, 1)
                document = await testbed.send("/server_api_version", *lines)
                assert json.loads(document.body) == {"min_api_version": 0, "max_api_version": highest}
                assert document.get("Vary") == f"{chef_fleet.OWN}, X-Team, User-Agent"
            refused = await testbed.send("/nodes", CRON, *signed, (chef_fleet.OWN, "2"))
            assert (refused.status, refused.get(chef_fleet.OWN)) == (406, version_object(0, 1, 2, -1))


async def test_a_cached_document_is_written_for_each_client() -> None:
    server = Ironic(90)
    async with running(server), gateway_of(file_of(server, "1.50")) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        assert (await testbed.send("/", CRON)).status == 200
        await server.stop()

        for lines, highest in (((), "1.90"), ((CRON,), "1.50")) * 2:
            document = await testbed.send("/", *lines)
            assert document.status == 200
            assert json.loads(document.body)["versions"][0]["version"] == highest
            assert document.get("Vary") == VARIES


async def test_where_the_address_decides_every_response_is_private() -> None:
    server = Ironic(90)
    clients = "clients: [{name: cron, networks: [127.0.0.0/8]}]\n"
    async with running(server), gateway_of(file_of(server, "1.50", clients=clients)) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))
        for target, version, status in (
            ("/v1/nodes", "latest", 200),
            ("/v1/nodes", "1.60", 406),
            ("/", None, 200),
            ("/v1", None, 200),
        ):
            response = await testbed.at(version, target)
            assert (response.status, response.get("Cache-Control")) == (status, "private")
            assert response.get("Vary") == VARY


async def test_a_day_that_has_passed_is_no_longer_in_force() -> None:
    server = Ironic(90)
    async with running(server), gateway_of(file_of(server, "1.50", "2001-01-01")) as gateway:
        testbed = Testbed(gateway, [server], "")
        await testbed.until(lambda view: bool(view.offer.versions))

        latest = await testbed.send("/v1/nodes", CRON, (OWN, "latest"))
        assert version_fields(latest) == ("1.1", "1.90", "1.90")


async def test_a_reload_changes_the_pace_and_who_has_it(tmp_path: Path) -> None:
    server, file = Ironic(90), tmp_path / "gateway.yaml"
    async with running(server):
        file.write_text(file_of(server, None))
        async with gateway_of(file.read_text(), source=file) as gateway:
            testbed = Testbed(gateway, [server], "")
            await testbed.until(lambda view: bool(view.offer.versions))
            for ceiling, clients, highest in (
                ("1.50", CLIENTS, "1.50"),
                ("1.40", CLIENTS, "1.40"),
                ("1.40", CLIENTS.replace("X-Team: cron", "X-Team: nova"), "1.90"),
                ("1.40", CLIENTS, "1.40"),
                (None, CLIENTS, "1.90"),
            ):
                before = testbed.view
                file.write_text(file_of(server, ceiling, clients=clients))
                gateway.on_sighup()
                await testbed.until(lambda view, before=before: view is not before)  # type: ignore[misc]
                latest = await testbed.send("/v1/nodes", CRON, (OWN, "latest"))
                assert version_fields(latest) == ("1.1", highest, highest)


@pytest.mark.processes
async def test_two_workers_tell_and_serve_the_same(tmp_path: Path) -> None:
    server, file = Ironic(90), tmp_path / "gateway.yaml"
    async with running(server):
        text = "workers: 2\n" + file_of(server, "1.50")
        file.write_text(text)
        async with gateway_of(text, source=file) as gateway:
            testbed = Testbed(gateway, [server], "")
            await testbed.until(lambda view: bool(view.offer.versions))
            for _ in range(20):
                for lines, highest, status in (((), "1.90", 200), ((CRON,), "1.50", 406)):
                    latest = await testbed.send("/v1/nodes", *lines, (OWN, "latest"))
                    assert version_fields(latest) == ("1.1", highest, highest)
                    above = await testbed.send("/v1/nodes", *lines, (OWN, "1.51"))
                    assert (above.status, version_fields(above)[:2]) == (status, ("1.1", highest))
