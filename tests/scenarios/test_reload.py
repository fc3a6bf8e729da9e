"""A new configuration under traffic: the gateway keeps its knowledge and its offer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import until
from tests.scenarios.fakes import Ironic
from tests.scenarios.ironic_client import IronicClient
from tests.scenarios.testbed import configuration, in_front_of, service_of, version_fields


def text_of(ports: Sequence[int], **keys: str) -> str:
    """The file of a gateway in front of these ports."""
    return configuration(service_of("baremetal", ports, **keys))


async def test_a_backend_that_joins_and_never_responds_does_not_lower_the_offer(tmp_path: Path) -> None:
    """It accepts connections and never responds. Until its first probe times out, nothing is known of it."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    with socket.create_server((LOOPBACK, 0)) as unresponsive:
        async with in_front_of(server, source=file) as testbed:
            client = IronicClient(testbed, "latest")
            await client.get("/v1/nodes")
            file.write_text(text_of([server.port, unresponsive.getsockname()[1]]))

            testbed.gateway.on_sighup()
            await testbed.until(lambda view: len(view.members.all) == 2)

            members = testbed.gateway.snapshot_holder.current.views["baremetal"].members.all
            assert [member.probed for member in members] == [True, False]
            for _ in range(20):
                assert version_fields(await client.get("/v1/nodes")) == ("1.1", "1.58", "1.58")


async def test_a_reload_under_traffic_loses_no_request(tmp_path: Path) -> None:
    first, second, file = Ironic(58), Ironic(90), tmp_path / "gateway.yaml"
    async with in_front_of(first, second, source=file) as testbed:
        changes = iter([([first.port], "{}"), ([first.port, second.port], '{ceiling: "1.40"}')])
        client = IronicClient(testbed, "1.31")
        changed = asyncio.Event()
        testbed.gateway.snapshot_holder.subscribe(lambda before, after: changed.set())

        for ports, offer in changes:
            file.write_text(text_of(ports, offer=offer))
            changed.clear()
            testbed.gateway.on_sighup()
            while not changed.is_set():
                assert version_fields(await client.get("/v1/nodes"))[2] == "1.31"
            for _ in range(20):
                assert version_fields(await client.get("/v1/nodes"))[2] == "1.31"

        await testbed.until(lambda view: all(member.probed for member in view.members.all))
        assert version_fields(await testbed.at("latest")) == ("1.1", "1.40", "1.40")
        assert {status for _, _, status in client.log} == {200}


async def test_a_reload_changes_limits_headers_and_hosts_of_a_service(tmp_path: Path) -> None:
    """What a service inherits takes effect with it. Only what is read at the start needs a restart."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    async with in_front_of(server, source=file) as testbed:
        file.write_text(
            text_of([server.port], match="{host: ['*.metal.example', other.example]}")
            + "    headers: {response: {set: {X-Frame-Options: DENY}}}\n"
            "    timeouts: {backend_body_idle: off}\n"
            "timeouts: {backend_head: 7s}\nlimits: {body: 1MiB}\n"
        )

        async with aiohttp.ClientSession() as session:
            answer = await session.post(f"{testbed.gateway.admin_url}/-/reload")

        assert answer.status == 200
        timeouts, limits = testbed.view.service.timeouts, testbed.view.service.limits
        assert (timeouts.backend_head, timeouts.backend_body_idle) == (7.0, float("inf"))
        assert limits.body == 1 << 20
        testbed.authority = "metal.example"
        unrouted = await testbed.at("1.31")
        assert (unrouted.status, unrouted.all("X-Frame-Options")) == (404, [])
        testbed.authority = "one.METAL.example:80"
        routed = await testbed.at("1.31")
        assert (routed.status, routed.all("X-Frame-Options")) == (200, ["DENY"])


async def test_maintenance_networks_and_limits_come_and_go_with_a_reload(tmp_path: Path) -> None:
    """The offer stands and probes go on; the connection of the client stays open."""
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    answers = (
        ("", 200, None),
        ("    maintenance: {status: 503, retry_after: 10m}\n    retry_after: true\n", 503, "maintenance"),
        ("    access: {deny: [127.0.0.0/8]}\n", 403, "access"),
        ("    client_limits: {rate: 1/h, burst: 1, concurrency: 5}\n", 200, None),
        (
            "    client_limits: {rate: 1/h, burst: 1, concurrency: 5}\n    retry_after: false\n",
            429,
            "client_rate",
        ),
        ("", 200, None),
    )
    async with in_front_of(server, source=file) as testbed, aiohttp.ClientSession() as session:
        host, port = testbed.gateway.addresses[0]
        for lines, status, reason in answers:
            file.write_text(text_of([server.port]) + lines)
            await (await session.post(f"{testbed.gateway.admin_url}/-/reload")).read()
            async with session.get(f"http://{host}:{port}/v1/nodes") as answer:
                assert answer.status == status
                field = answer.headers.get("Proxy-Status", "")
                assert field.endswith(f'details="{reason}"') if reason else not field
                assert answer.headers.get("Retry-After") == ("600" if status == 503 else None)
            assert testbed.view.offer.versions
            asked = len(server.received)
            await until(lambda: len(server.received) > asked, "a probe")  # noqa: B023 - awaited at once
