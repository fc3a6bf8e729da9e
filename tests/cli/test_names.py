"""A whole gateway in front of backends with names, and a name server that goes silent, denies and answers.

`tests/load/test_names.py` has the same with processes, the files of the system and the gateway's own pauses.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.controlplane.name_lookup import NameLookup
from gateway.controlplane.resolver import Resolver
from gateway.demo.ironic import SERVED
from gateway.settings import read_file
from tests.cli.closing_backend import backend
from tests.kit.name_servers import NXDOMAIN, SILENT, NameServer, name_server
from tests.kit.processes import TIMEOUT, ready
from tests.kit.waiting import until

FIRST, SECOND = "127.0.54.1", "127.0.54.2"
"""Two addresses of one backend."""
NAME = "api.fleet.test"
REQUESTS = 40
LONG = 30
"""Seconds of a lookup without a response: whatever waits for it fails."""

Assemble = Callable[[NameServer, int, str], Gateway]


async def shortly(_: float) -> None:
    """A pause between two lookups, without their TTL."""
    await asyncio.sleep(0.01)


@pytest.fixture
def assemble(tmp_path: Path) -> Assemble:
    """A gateway of these services that waits so many seconds for each response of this name server."""

    def assemble(server: NameServer, seconds: int, services: str) -> Gateway:
        file, hosts, resolv_conf = (tmp_path / name for name in ("gateway.yaml", "hosts", "resolv.conf"))
        hosts.write_text("127.0.0.1 live.fleet.test\n")
        resolv_conf.write_text(f"nameserver 127.0.0.1\nsearch .\noptions timeout:{seconds}\n")
        file.write_text(
            "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
            f"services:\n{services}"
        )
        lookup = NameLookup(hosts=hosts, resolv_conf=resolv_conf, port=server.port)
        return Gateway(
            read_file(file, environ=os.environ).require(), resolver=Resolver(lookup, sleep=shortly)
        )

    return assemble


def service(name: str, urls: Sequence[str]) -> str:
    backends = ", ".join(f"{{name: {name}-{number}, url: '{url}'}}" for number, url in enumerate(urls))
    return (
        f"  {name}:\n    dialect: ironic\n    match: {{host: {name}.example}}\n"
        "    probe: {interval: 100ms}\n    offer: {stabilization: 0s}\n"
        f"    backends: [{backends}]\n"
    )


async def test_R_B9_a_dead_name_server_is_in_nobodys_way(
    assemble: Assemble, session: aiohttp.ClientSession
) -> None:
    """Neither of the start, nor of another service's probes and requests, nor of the exit."""
    async with name_server() as server, backend("127.0.0.1") as (listening, received):
        server.code = SILENT
        silent = service("silent", [f"http://{number}.{NAME}:80" for number in range(40)])
        port = listening.sockets[0].getsockname()[1]
        live = service("live", [f"http://live.fleet.test:{port}"])
        async with asyncio.timeout(TIMEOUT):
            async with assemble(server, LONG, silent + live) as gateway:
                await ready(session, gateway.admin_url)
                await server.until(lambda: len(server.queries) >= 80)
                before = len(received)

                async def probed() -> bool:
                    return len(received) >= before + 3

                await until(probed, "three more probes")
                host, port = gateway.addresses[0]
                async with session.get(
                    f"http://{host}:{port}/v1/nodes", headers={SERVED: "1.90", "Host": "live.example"}
                ) as response:
                    assert response.status == 200


async def test_R_B9_a_backend_whose_name_is_lost_is_served_where_it_was(
    assemble: Assemble, session: aiohttp.ClientSession
) -> None:
    """Good; no answer; no such name; another address, after which the old one closes."""
    statuses: list[int] = []

    async def send() -> None:
        for _ in range(REQUESTS):
            async with session.get(
                f"http://{host}:{port}/v1/nodes", headers={SERVED: "1.1", "Host": "live.example"}
            ) as response:
                statuses.append(response.status)

    async with name_server() as server, backend(FIRST) as (first, _):
        server.addresses[NAME] = (FIRST,)
        backend_port = first.sockets[0].getsockname()[1]
        async with (
            backend(SECOND, backend_port) as (_, received),
            assemble(server, 1, service("live", [f"http://{NAME}:{backend_port}"])) as gateway,
        ):
            host, port = gateway.addresses[0]
            await ready(session, gateway.admin_url)
            await send()
            for code in (SILENT, NXDOMAIN):
                server.code = code
                await server.queried(NAME)
                await send()
            server.code = 0
            server.addresses[NAME] = (SECOND,)

            async def moved() -> bool:
                return bool(received)

            await until(moved, "a probe at the new address")
            first.close()
            await send()

    assert statuses == [200] * 4 * REQUESTS


async def test_status_says_why_a_name_has_no_address(
    assemble: Assemble, session: aiohttp.ClientSession
) -> None:
    error = ""

    async def failed() -> bool:
        nonlocal error
        async with session.get(f"{gateway.admin_url}/status") as response:
            status = await response.json()
        error = status["services"]["live"]["backends"]["live-0"]["error"] or ""
        return bool(error)

    async with (
        name_server() as server,
        assemble(server, 1, service("live", [f"http://{NAME}:80"])) as gateway,
    ):
        await until(failed, "a failed probe")

    assert error == f"no connection to {NAME}:80: no address of {NAME}: there is no such name"
