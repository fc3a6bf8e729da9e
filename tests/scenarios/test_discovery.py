"""Backends that come and go behind a whole gateway: clients notice nothing, and neither does the offer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from gateway.controlplane import resolver
from tests.kit.name_servers import SILENT, NameServer, name_server
from tests.scenarios.fakes import OWN
from tests.scenarios.pods import (
    NAME,
    NEW,
    OLD,
    Pods,
    configuration,
    discovery,
    gateway,
    is_leaving,
    known,
    pods,
    there,
)
from tests.scenarios.testbed import Testbed


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((resolver, "SHORTEST_TTL"), (resolver, "FIRST_RETRY"), (resolver, "LONGEST_RETRY")):
        monkeypatch.setattr(module, name, 0.02)


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with name_server() as running:
        running.ttl = 0
        yield running


@pytest.fixture
async def fleet() -> AsyncIterator[Pods]:
    async with pods() as running:
        yield running


async def document(bed: Testbed, path: str) -> Any:
    async with ClientSession() as session, session.get(f"{bed.gateway.admin_url}{path}") as response:
        assert response.status == 200
        return await response.json() if path == "/status" else await response.text()


async def test_pods_are_replaced_and_no_client_notices(
    server: NameServer, fleet: Pods, tmp_path: Path
) -> None:
    server.addresses[NAME] = tuple([await fleet.start(number) for number in (2, 3)])
    async with gateway(
        configuration(f"dns: 'http://{NAME}:{fleet.port}'"), discovery(server.port, tmp_path)
    ) as bed:
        await bed.until(lambda view: bool(view.offer.versions) and known(view) == 2)
        assert bed.offer == "1.1-1.58"
        for old, new in ((2, 4), (3, 5)):
            address = await fleet.start(new)
            server.addresses[NAME] = (
                *(each for each in server.addresses[NAME] if each != f"127.0.0.{old}"),
                address,
            )
            await bed.until(is_leaving(old))
            await bed.until(lambda view: known(view) == 2)
            await fleet.servers[old].stop()
            for _ in range(10):
                response = await bed.at("1.58")
                assert (response.status, response.get(OWN)) == (200, "1.58")
            assert bed.offer == "1.1-1.58"
        assert not fleet.servers[4].refused
        assert fleet.servers[4].forwarded or fleet.servers[5].forwarded


async def test_an_upgrade_by_new_pods_raises_the_offer_when_the_old_ones_have_gone(
    server: NameServer, fleet: Pods, tmp_path: Path
) -> None:
    server.addresses[NAME] = (await fleet.start(2, OLD),)
    text = configuration(f"dns: 'http://{NAME}:{fleet.port}'", grace="250ms")
    async with gateway(text, discovery(server.port, tmp_path)) as bed:
        await bed.until(lambda view: known(view) == 1)
        server.addresses[NAME] = (await fleet.start(3, NEW),)
        await bed.until(lambda view: known(view) == 1 and there(view).get("127.0.0.2") is True)
        assert bed.offer == "1.1-1.58"
        await bed.until(lambda view: there(view) == {"127.0.0.3": False} and bool(view.offer.versions))
        await bed.until(lambda view: view.offer.versions.highest.minor == NEW)
        assert (await bed.at("1.90")).status == 200


async def test_srv_records_bring_the_ports(server: NameServer, fleet: Pods, tmp_path: Path) -> None:
    address = await fleet.start(2)
    server.services["_api._tcp.fleet.test"] = ((0, 1, fleet.port, "pod-1.fleet.test"),)
    server.addresses["pod-1.fleet.test"] = (address,)
    async with gateway(
        configuration("srv: http://_api._tcp.fleet.test"), discovery(server.port, tmp_path)
    ) as bed:
        await bed.until(lambda view: known(view) == 1)
        assert (await bed.at("1.58")).status == 200


async def test_a_file_is_watched(server: NameServer, fleet: Pods, tmp_path: Path) -> None:
    path = tmp_path / "backends.json"
    one, two = await fleet.start(2), await fleet.start(3)
    targets = [f"{one}:{fleet.port}", f"{two}:{fleet.port}"]
    path.write_text(json.dumps([{"targets": targets}]))
    async with gateway(configuration(f"file: {path}"), discovery(server.port, tmp_path)) as bed:
        await bed.until(lambda view: known(view) == 2)
        path.write_text(json.dumps([{"targets": targets[:1]}]))
        await bed.until(lambda view: there(view) == {one: False, two: True})
        path.unlink()
        assert (await bed.at("1.58")).status == 200


async def test_a_restart_while_the_name_server_is_silent_serves_as_before(
    server: NameServer, fleet: Pods, tmp_path: Path
) -> None:
    server.addresses[NAME] = tuple([await fleet.start(number) for number in (2, 3, 4)])
    text = configuration(f"dns: 'http://{NAME}:{fleet.port}'", f"state: {tmp_path / 'state.json'}")
    async with gateway(text, discovery(server.port, tmp_path)) as bed:
        await bed.until(lambda view: known(view) == 3)
        server.addresses[NAME] = server.addresses[NAME][1:]
        await bed.until(lambda view: there(view)["127.0.0.2"])
    server.code = SILENT

    async with gateway(text, discovery(server.port, tmp_path)) as bed:
        assert there(bed.view) == {"127.0.0.2": True, "127.0.0.3": False, "127.0.0.4": False}
        assert bed.offer == "1.1-1.58"
        await bed.until(lambda view: known(view) == 2)
        assert (await bed.at("1.58")).status == 200
        status = await document(bed, "/status")
        backends = status["services"]["baremetal"]["backends"]
        leaving = backends[f"127.0.0.2:{fleet.port}"]
        assert 0 < leaving["leaving"]["until"] - status["config"]["loaded_at"] <= 301
        assert leaving["source"] == f"dns http://{NAME}:{fleet.port}"


async def test_what_people_see(server: NameServer, fleet: Pods, tmp_path: Path) -> None:
    server.addresses[NAME] = tuple([await fleet.start(number) for number in (2, 3)])
    key = f"dns http://{NAME}:{fleet.port}"
    async with gateway(
        configuration(f"dns: 'http://{NAME}:{fleet.port}'"), discovery(server.port, tmp_path)
    ) as bed:
        await bed.until(lambda view: known(view) == 2)
        server.addresses[NAME] = ("127.0.0.3",)
        await bed.until(lambda view: there(view)["127.0.0.2"])
        service = (await document(bed, "/status"))["services"]["baremetal"]
        assert service["sources"].keys() == {key}
        source = service["sources"][key]
        assert (source["listed"], source["unlisted"], source["leaving"], source["error"]) == (1, 0, 1, None)
        assert source["answered_at"] is not None
        assert "leaving" not in service["backends"][f"127.0.0.3:{fleet.port}"]
        metrics = await document(bed, "/metrics")
        labels = f'backend="127.0.0.2:{fleet.port}",service="baremetal"'
        assert f"skewgate_backend_leaving{{{labels}}} 1" in metrics
        assert (
            f'skewgate_discovery_backends{{service="baremetal",source="{key}",state="leaving"}} 1' in metrics
        )
        assert f'result="success",service="baremetal",source="{key}"' in metrics


async def test_a_reload_keeps_what_is_discovered(server: NameServer, fleet: Pods, tmp_path: Path) -> None:
    server.addresses[NAME] = tuple([await fleet.start(number) for number in (2, 3)])
    place, path = f"dns: 'http://{NAME}:{fleet.port}'", tmp_path / "skewgate.yaml"
    path.write_text(configuration(place))
    async with gateway(configuration(place), discovery(server.port, tmp_path), path) as bed:
        await bed.until(lambda view: known(view) == 2)
        server.code = SILENT
        path.write_text(configuration(f"{place}, weight: 5", grace="1m"))
        assert (await bed.gateway.parts.reloader.reload()).ok
        assert [member.weight for member in bed.view.members.all] == [5, 5]
        assert known(bed.view) == 2
        assert bed.offer == "1.1-1.58"
        assert (await bed.at("1.58")).status == 200
