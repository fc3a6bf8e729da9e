"""`demo`: the whole story in a few seconds; and that it would notice if something were lost."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest
from aiohttp import web

from gateway.cli.demo.clients import KINDS, Client, Exchange, Latest, Negotiating, OverEager, Pinned, Silent
from gateway.cli.demo.fleet import HIGHEST, LOWEST, OLD, SERVED, Database, Server
from gateway.cli.demo.narration import Narrator, Tally
from gateway.cli.demo.story import Story
from gateway.cli.gateway import Gateway
from gateway.cli.printing import Paint
from gateway.settings import read_file
from tests.cli.conftest import Fleet, Write
from tests.cli.processes import PATIENCE, call, finish, ready, start


async def test_it_shows_requests_the_upgrade_and_the_sum_and_loses_nothing() -> None:
    ended = await call("demo", "--for", "6", "--seed", "5", NO_COLOR="1")

    out = ended.out
    assert (ended.code, ended.err) == (0, ""), out
    assert re.search(r"^  gateway  http://127\.0\.0\.1:\d+$", out, re.MULTILINE)
    assert re.search(r"curl -i -H '\S+: latest' http://127\.0\.0\.1:\d+/v1/nodes$", out, re.MULTILINE)
    for kind in KINDS:
        assert re.search(rf"^\S+  {re.escape(kind.kind)} +(GET|POST) /v1", out, re.MULTILINE), kind
    assert re.search(r"silent .* 200 by api-\d at 1\.1 +silence means 1\.1", out)
    assert re.search(r"latest .* 200 by api-\d at 1\.58 +latest is the offer's maximum", out)
    assert re.search(r"over-eager .* 406 by the gateway +above the offer 1\.1-1\.58, no backend", out)
    assert re.search(r"negotiating .* asks 1\.58 +200 by api-\d at 1\.58", out)
    story = [
        "The offer is 1.1-1.58, the fleet is mixed",
        "Upgrade: api-1 stops",
        "another backend was tried first, nothing was executed there",
        "Upgrade: api-1 is back",
        "The offer stays 1.1-1.58, the fleet is settling: all serve the same now, 1.59-1.90 is offered once",
        "The offer goes from 1.1-1.58 to 1.1-1.90, the fleet is uniform",
        "Summary",
        "the offer  1.1-1.58 at the start, 1.1-1.90 at the end",
        "Nothing was lost.",
    ]
    places = [out.index(turn) for turn in story]
    assert places == sorted(places)
    counts = re.search(r"requests   (\d+): (\d+) served, (\d+) refused, 0 failed", out)
    assert counts is not None
    total, served, refused = map(int, counts.groups())
    moved = re.search(r"moved      (\d+) to the other backend", out)
    assert moved is not None
    assert int(moved[1]) > 0
    lines = len(re.findall(r"^\S+  \S.*  asks ", out, re.MULTILINE))
    assert lines == total == served + refused > 10


async def test_ctrl_c_ends_it_early_with_the_sum() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" asks " not in (line := await process.stdout.readline()):
        assert line, "ended before the first request"
    process.send_signal(signal.SIGINT)
    ended = await finish(process)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("Nothing was lost.\n")


async def test_without_a_reader_it_ends_quietly() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" asks " not in await process.stdout.readline():
        pass
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined] # no other way
    transport.close()

    ended = await finish(process)

    assert (ended.code, ended.err) == (1, "")


async def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = await call("demo", "--for", "1", "--port", str(port))

    assert ended.code == 0
    assert f"cannot listen on 127.0.0.1:{port}" in ended.err
    assert "taking a free port instead" in ended.err


# --- clients, each straight at a server


async def acts(kind: type[Client], url: str, times: int = 1, seed: int = 1) -> list[Exchange]:
    """What a client of this kind is told in so many actions."""
    told: list[Exchange] = []
    client = kind(url, "192.0.2.1", Random(seed), told.append)
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(PATIENCE)) as session:
        for _ in range(times):
            await client.act(session)
    return told


def at(server: Server) -> str:
    return f"http://127.0.0.1:{server.port.number}"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_honest_server_breaks_no_promise(kind: type[Client], fleet: Fleet) -> None:
    for server in fleet:
        assert not [each.fault for each in await acts(kind, at(server), 6) if each.fault]


async def test_the_negotiating_client_does_as_ironicclient_does(fleet: Fleet) -> None:
    told = await acts(Negotiating, at(fleet.old), 3)

    assert [(each.path, each.asked, each.status) for each in told] == [
        ("/v1/nodes", "1.115", 406),
        ("/v1", "", 200),
        ("/v1/nodes", "1.58", 200),
        ("/v1/nodes", "1.58", 200),
        ("/v1/nodes", "1.58", 200),
    ]


async def test_equal_seeds_make_equal_choices(fleet: Fleet) -> None:
    one, same, other = [
        [each.method for each in await acts(Pinned, at(fleet.new), 12, seed)] for seed in (4, 4, 5)
    ]

    assert one == same != other


@asynccontextmanager
async def liar(status: int, **headers: str) -> AsyncIterator[str]:
    """A server that says the same to everybody."""

    async def say(request: web.BaseRequest) -> web.Response:
        spelled = {"served": SERVED, "lowest": LOWEST, "highest": HIGHEST}
        return web.Response(status=status, headers={spelled[name]: value for name, value in headers.items()})

    runner = web.ServerRunner(web.Server(say))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@pytest.mark.parametrize(
    "kind, status, headers",
    [
        (Silent, 200, {"served": "1.58", "lowest": "1.1", "highest": "1.58"}),
        (Silent, 503, {}),
        (Pinned, 200, {"served": "1.1", "lowest": "1.1", "highest": "1.58"}),
        (Pinned, 406, {"lowest": "1.1", "highest": "1.58"}),
        (Latest, 200, {"served": "1.58", "lowest": "1.1", "highest": "1.90"}),
        (Negotiating, 406, {}),
        (OverEager, 200, {"served": "1.999"}),
        (OverEager, 406, {"lowest": "1.1", "highest": "1.58"}),
    ],
)
async def test_a_broken_promise_is_noticed(kind: type[Client], status: int, headers: dict[str, str]) -> None:
    async with liar(status, **headers) as url:
        told = await acts(kind, url)

    tally = Tally()
    for exchange in told:
        tally.add(exchange, None)
    assert len(tally.faults) == 1


@pytest.mark.parametrize("misled", [False, True])
def test_what_is_lost_is_told_and_makes_the_demo_fail(
    misled: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    story = Story(1.0, 1, 0, Paint(sys.stdout))
    if misled:
        story._new.refused.append("1.91")
    else:
        lost = Exchange(
            "silent", "192.0.2.11", "GET", "/v1/nodes", "", 502, "", "", "", "", "502 at no version"
        )
        story._narrator.tell(lost)
        story._narrator.close()

    assert story._sum_up("1.1-1.58", "1.1-1.90")

    out = capfd.readouterr().out
    assert out.endswith("Something was lost.\n")
    assert ("misled     api-2 got 1.91" in out) == misled
    assert ("LOST       silent: GET /v1/nodes: 502 at no version" in out) != misled


async def test_a_visitors_request_is_told_from_the_gateways_record_alone(
    write: Write, session: aiohttp.ClientSession
) -> None:
    lines: list[str] = []
    narrator = Narrator("baremetal", {"192.0.2.11": "silent"}, Paint(io.StringIO()), lines.append)
    configured = read_file(write(), environ=os.environ).require()
    async with Gateway(configured, listeners=[narrator.hear]) as gateway:
        narrator.follow(gateway.cell)
        await ready(session, gateway.admin_url)
        host, port = gateway.addresses[0]
        for version in ("1.31", "1.70", "latest"):
            async with session.get(f"http://{host}:{port}/v1/nodes", headers={SERVED: version}):
                pass

    served, refused, latest = lines
    assert re.search(r"visitor +GET /v1/nodes +asks 1\.31 +200 by api-\d at 1\.31 +on offer", served)
    assert re.search(
        r"visitor +GET /v1/nodes +asks 1\.70 +406 by the gateway +above the offer 1\.1-1\.58", refused
    )
    assert re.search(r"visitor +GET /v1/nodes +asks latest -> 1\.58 +200 by api-\d at 1\.58", latest)
    assert narrator.tally.requests == 0


async def test_no_reply_at_all_is_noticed(fleet: Fleet) -> None:
    await fleet.old.stop()

    (told,) = await acts(Silent, at(fleet.old))

    assert told.status == 0
    assert told.fault.startswith("no reply: ")


# --- the fleet


@pytest.mark.parametrize(
    "path, version, expected, text",
    [
        ("/", "", (200, None), '"min_version": "1.1", "version": "1.58"'),
        ("/", "1.999", (200, None), '"version": "1.58"'),
        ("/v1", "", (200, "1.1"), '"version": "1.58"'),
        ("/v1/nodes", "", (200, "1.1"), '{"nodes": []}'),
        ("/v1/nodes", "1.31", (200, "1.31"), '{"nodes": []}'),
        ("/v1/nodes", "LATEST", (200, "1.58"), '{"nodes": []}'),
        ("/v1/nodes", "1.999", (406, None), "minor version is not supported by this service. The"),
        ("/v1/nodes", "2.1", (406, None), "Mutually exclusive versions requested."),
        ("/v1/nodes", "spam", (406, None), "Invalid value for X-OpenStack-Ironic-API-Version header"),
        ("/v1/nodes/nope", "1.31", (404, "1.31"), "Node nope could not be found."),
        ("/v1/bogus", "1.31", (404, None), '\\"title\\": \\"Not Found\\"'),
    ],
)
async def test_the_old_server_speaks_as_ironic_does(
    fleet: Fleet,
    session: aiohttp.ClientSession,
    path: str,
    version: str,
    expected: tuple[int, str | None],
    text: str,
) -> None:
    headers = {"OpenStack-API-Version": "baremetal 1.50", **({SERVED: version} if version else {})}
    async with session.get(at(fleet.old) + path, headers=headers) as reply:
        assert (reply.status, reply.headers.get(SERVED)) == expected
        assert text in await reply.text()
        ranged = (
            expected[1] is not None or "supported" in await reply.text() or "exclusive" in await reply.text()
        )
        assert (HIGHEST in reply.headers) == ranged


async def test_nodes_are_the_fleets_and_look_as_their_version_says(
    fleet: Fleet, session: aiohttp.ClientSession
) -> None:
    node = {"name": "rack-1", "driver": "fake-hardware"}
    async with session.post(f"{at(fleet.old)}/v1/nodes", json=node, headers={SERVED: "1.31"}) as reply:
        assert reply.status == 201
        made = await reply.json()
    async with session.get(f"{at(fleet.new)}/v1/nodes/{made['uuid']}") as reply:
        seen = await reply.json()
    async with session.post(f"{at(fleet.old)}/v1/nodes", json=node, headers={SERVED: "1.4"}) as reply:
        gated = reply.status, reply.headers[SERVED]

    assert (made["name"], made["provision_state"]) == ("rack-1", "enroll")
    assert seen["uuid"] == made["uuid"]
    assert "name" not in seen
    assert gated == (406, "1.4")


async def test_a_stopped_server_refuses_connections_and_its_port_stays_its_own(
    session: aiohttp.ClientSession,
) -> None:
    server = Server("api-1", Database(Random(1)))
    await server.start(OLD)
    await server.stop()

    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(at(server))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", server.port.number))
    await server.start(OLD)
    async with session.get(at(server)) as reply:
        assert reply.status == 200
    await server.close()
