"""The demonstration: its course in a few seconds, and that it would notice a lost request."""

from __future__ import annotations

import io
import re
import signal
import socket
import sys
from random import Random

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpRawServer

from gateway import settings
from gateway.assembly import Gateway
from gateway.demo.clients import (
    KINDS,
    Client,
    ClientRecord,
    Latest,
    Negotiating,
    OverEager,
    Pinned,
    Unversioned,
)
from gateway.demo.fleet import HIGHEST, LOWEST, OLD, SERVED, Database, Server
from gateway.demo.narration import Narrator, Totals
from gateway.demo.story import Story
from gateway.terminal import Paint
from tests.cli.processes import TIMEOUT, call, finish, ready, start
from tests.demo.conftest import Fleet, url_of

# --- the command


async def test_the_usual_admin_port_is_taken_if_it_is_free(capfd: pytest.CaptureFixture[str]) -> None:
    """So that `skewgate status` beside it finds it. If it is taken, nobody asked for it: nothing is said."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        assert await Story(1.0, 5, 0, Paint(io.StringIO()), port).play()
        beside = capfd.readouterr()
    assert await Story(1.0, 5, 0, Paint(io.StringIO()), port).play()
    usual = capfd.readouterr()

    assert beside.err == usual.err == ""
    assert re.search(r"^  admin    http://127\.0\.0\.1:(\d+) ", beside.out, re.MULTILINE)
    assert f":{port} " not in beside.out
    assert f"  admin    http://127.0.0.1:{port} " in usual.out
    assert f"  look     skewgate status --admin http://127.0.0.1:{port}\n" in usual.out


async def test_it_shows_requests_the_upgrade_and_the_summary_and_loses_nothing() -> None:
    ended = await call("demo", "--for", "6", "--seed", "5", NO_COLOR="1")

    out = ended.out
    assert (ended.code, ended.err) == (0, ""), out
    assert re.search(r"^  gateway  http://127\.0\.0\.1:\d+$", out, re.MULTILINE)
    assert re.search(r"curl -i -H '\S+: latest' http://127\.0\.0\.1:\d+/v1/nodes$", out, re.MULTILINE)
    for kind in KINDS:
        assert re.search(rf"^\S+  {re.escape(kind.kind)} +(GET|POST) /v1", out, re.MULTILINE), kind
    assert re.search(
        r"unversioned .* requested none +200 by api-\d at 1\.1 +no version: the default 1\.1", out
    )
    assert re.search(r"latest .* 200 by api-\d at 1\.58 +latest is the offer's maximum", out)
    assert re.search(r"over-eager .* 406 by the gateway +above the offer 1\.1-1\.58, no backend", out)
    assert re.search(r"negotiating .* requested 1\.58 +200 by api-\d at 1\.58", out)
    events = [
        "The offer is 1.1-1.58, the fleet is mixed: api-1 holds back 1.59-1.90",
        "Upgrade: api-1 stops",
        "another backend was tried first, nothing was executed there",
        "Upgrade: api-1 is back",
        "The offer stays 1.1-1.58, the fleet is stabilizing: all backends serve the same, 1.59-1.90 is",
        "The offer goes from 1.1-1.58 to 1.1-1.90, the fleet is uniform",
        "Summary",
        "the offer  1.1-1.58 at the start, 1.1-1.90 at the end",
        "Nothing was lost.",
    ]
    places = [out.index(event) for event in events]
    assert places == sorted(places)
    counts = re.search(r"requests   (\d+): (\d+) served, (\d+) refused, 0 failed", out)
    assert counts is not None
    total, served, refused = map(int, counts.groups())
    retried = re.search(r"retried    (\d+) on the other backend", out)
    assert retried is not None
    assert int(retried[1]) > 0
    lines = len(re.findall(r"^\S+  \S.*  requested ", out, re.MULTILINE))
    assert lines == total == served + refused > 10


async def test_ctrl_c_ends_it_early_with_the_summary() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" requested " not in (line := await process.stdout.readline()):
        assert line, "ended before the first request"
    process.send_signal(signal.SIGINT)
    ended = await finish(process)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("Nothing was lost.\n")


async def test_without_a_reader_it_ends_quietly() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" requested " not in await process.stdout.readline():
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
    assert "a free port is used instead" in ended.err


# --- the clients, each directly at a server


async def records_of(kind: type[Client], url: str, times: int = 1, seed: int = 1) -> list[ClientRecord]:
    """The records of a client of this kind after so many actions."""
    records: list[ClientRecord] = []
    client = kind(url, "192.0.2.1", Random(seed), records.append)
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(TIMEOUT)) as session:
        for _ in range(times):
            await client.act(session)
    return records


@pytest.mark.parametrize("kind", KINDS)
async def test_a_correct_server_causes_no_fault(kind: type[Client], fleet: Fleet) -> None:
    for server in fleet:
        assert not [record.fault for record in await records_of(kind, url_of(server), 6) if record.fault]


async def test_the_negotiating_client_does_as_ironicclient_does(fleet: Fleet) -> None:
    records = await records_of(Negotiating, url_of(fleet.old), 3)

    assert [(record.path, record.requested, record.status) for record in records] == [
        ("/v1/nodes", "1.115", 406),
        ("/v1", "", 200),
        ("/v1/nodes", "1.58", 200),
        ("/v1/nodes", "1.58", 200),
        ("/v1/nodes", "1.58", 200),
    ]


async def test_equal_seeds_give_equal_choices(fleet: Fleet) -> None:
    one, same, other = [
        [record.method for record in await records_of(Pinned, url_of(fleet.new), 12, seed)]
        for seed in (4, 4, 5)
    ]

    assert one == same != other


@pytest.mark.parametrize(
    "kind, status, headers",
    [
        (Unversioned, 200, {SERVED: "1.58", LOWEST: "1.1", HIGHEST: "1.58"}),
        (Unversioned, 503, {}),
        (Pinned, 200, {SERVED: "1.1", LOWEST: "1.1", HIGHEST: "1.58"}),
        (Pinned, 406, {LOWEST: "1.1", HIGHEST: "1.58"}),
        (Latest, 200, {SERVED: "1.58", LOWEST: "1.1", HIGHEST: "1.90"}),
        (Negotiating, 406, {}),
        (OverEager, 200, {SERVED: "1.999"}),
        (OverEager, 406, {LOWEST: "1.1", HIGHEST: "1.58"}),
    ],
)
async def test_a_broken_promise_is_a_fault(
    kind: type[Client], status: int, headers: dict[str, str], aiohttp_raw_server: AiohttpRawServer
) -> None:
    async def respond(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers=headers)

    server = await aiohttp_raw_server(respond)
    records = await records_of(kind, f"http://{server.host}:{server.port}")

    totals = Totals()
    for record in records:
        totals.add(record, None)
    assert len(totals.faults) == 1


async def test_a_missing_response_is_a_fault(fleet: Fleet) -> None:
    url = url_of(fleet.old)
    await fleet.old.close()

    (record,) = await records_of(Unversioned, url)

    assert record.status == 0
    assert record.fault.startswith("no response: ")


# --- what is printed


@pytest.mark.parametrize("misrouted", [False, True])
def test_a_lost_request_is_printed_and_makes_the_demonstration_fail(
    misrouted: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    story = Story(1.0, 1, 0, Paint(sys.stdout))
    if misrouted:
        story._new.refused.append("1.91")
    else:
        sent = ("unversioned", "192.0.2.11", "GET", "/v1/nodes", "")
        lost = ClientRecord(*sent, 502, "", "", "", "", "502 at no version")
        story._narrator.on_client_record(lost)
        story._narrator.close()

    assert story._print_summary("1.1-1.58", "1.1-1.90")

    out = capfd.readouterr().out
    assert out.endswith("Something was lost.\n")
    assert ("misrouted  api-2 got 1.91" in out) == misrouted
    assert ("LOST       unversioned: GET /v1/nodes: 502 at no version" in out) != misrouted


CONFIGURATION = """\
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 100ms}}
    backends:
      - {{name: api-1, url: "{old}"}}
      - {{name: api-2, url: "{new}"}}
"""


async def test_a_visitors_line_is_made_from_the_gateways_record_alone(fleet: Fleet) -> None:
    lines: list[str] = []
    narrator = Narrator("baremetal", {"192.0.2.11": "unversioned"}, Paint(io.StringIO()), lines.append)
    text = CONFIGURATION.format(old=url_of(fleet.old), new=url_of(fleet.new))
    configured = settings.load(text, filename="test", environ={}).require()
    # A kept connection would delay the end of the gateway (`worker.IDLE_GRACE`).
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        Gateway(configured, listeners=[narrator.on_request_record]) as gateway,
    ):
        narrator.follow(gateway.snapshot_holder)
        await ready(session, gateway.admin_url)
        host, port = gateway.addresses[0]
        for version in ("1.31", "1.70", "latest", None, "spam"):
            headers = {SERVED: version} if version else {}
            async with session.get(f"http://{host}:{port}/v1/nodes", headers=headers):
                pass

    served, refused, latest, unversioned, malformed = lines
    request = r"visitor +GET /v1/nodes +requested"
    assert re.search(rf"{request} 1\.31 +200 by api-\d at 1\.31 +on offer", served)
    assert re.search(rf"{request} 1\.70 +406 by the gateway +above the offer 1\.1-1\.58", refused)
    assert re.search(rf"{request} latest -> 1\.58 +200 by api-\d at 1\.58", latest)
    assert re.search(rf"{request} none +200 by api-\d at 1\.1 +no version: the default 1\.1", unversioned)
    assert re.search(rf"{request} malformed +406 by the gateway +not a valid version", malformed)
    assert narrator.totals.requests == 0


# --- the servers


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
async def test_the_old_server_responds_as_ironic_does(
    fleet: Fleet,
    path: str,
    version: str,
    expected: tuple[int, str | None],
    text: str,
) -> None:
    headers = {"OpenStack-API-Version": "baremetal 1.50", **({SERVED: version} if version else {})}
    response = await fleet.old.get(path, headers=headers)
    body = await response.text()

    assert (response.status, response.headers.get(SERVED)) == expected
    assert text in body
    has_range = expected[1] is not None or "supported" in body or "exclusive" in body
    assert (HIGHEST in response.headers) == has_range


async def test_both_servers_have_the_same_nodes_and_show_them_as_the_version_says(
    fleet: Fleet,
) -> None:
    old, new = fleet
    node = {"name": "rack-1", "driver": "fake-hardware"}

    created = await old.post("/v1/nodes", json=node, headers={SERVED: "1.31"})
    made = await created.json()
    seen = await (await new.get(f"/v1/nodes/{made['uuid']}")).json()
    too_old = await old.post("/v1/nodes", json=node, headers={SERVED: "1.4"})

    assert created.status == 201
    assert (made["name"], made["provision_state"]) == ("rack-1", "enroll")
    assert seen["uuid"] == made["uuid"]
    assert "name" not in seen
    assert (too_old.status, too_old.headers[SERVED]) == (406, "1.4")


async def test_a_stopped_server_refuses_connections_and_keeps_its_port() -> None:
    server = Server("api-1", Database(Random(1)))
    await server.start(OLD)
    await server.stop()
    url = f"http://127.0.0.1:{server.port.number}"

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port.number))
        await server.start(OLD)
        async with session.get(url) as response:
            assert response.status == 200
    await server.close()
