"""Who is served: networks, limits of each client, maintenance and shedding. Each refusal has the dialect's
shape, is counted, has its reason in the log, and costs no backend anything."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import pytest

from gateway.core.fleet.admission import Access, ClientLimits, Maintenance
from gateway.core.fleet.timeouts import NO_TIMEOUT
from gateway.dataplane.limits.shedding import ALL, NEW, YOUNG
from gateway.telemetry.request_record import RequestRecord
from tests.dataplane.assertions import assert_ironic_error
from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.upgrades import ALLOWED, UPGRADE, echo
from tests.kit.backends import never_respond, serve
from tests.kit.clients import Client
from tests.kit.messages import Message, request, request_head, version_line
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, reload

NODES = request("GET", "/v1/nodes", version_line("1.31"))
LOOPBACK_ONLY = Access([ip_network("127.0.0.0/8")], [])
NOBODY_HERE = Access([], [ip_network("127.0.0.0/8")])


def assert_refused(answer: Message, record: RequestRecord, status: int, reason: str, error: str) -> None:
    assert_ironic_error(answer, status)
    assert answer.one("proxy-status") == f'skewgate; error={error}; details="{reason}"'
    assert (record.status, record.reason, record.backend) == (status, reason, "none")
    assert (record.requested, record.result, record.version, record.attempts) == (None, None, "", 0)


# --- networks ----------------------------------------------------------------------------------------------


async def test_an_address_that_is_not_allowed_gets_403(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    reload(gateway, access=NOBODY_HERE)

    answer = await gateway.request(NODES)

    assert_refused(answer, await gateway.recorded(), 403, "access", "http_request_denied")
    assert not backend.requests
    assert gateway.metric("skewgate_requests_refused_total", service="baremetal", reason="access") == 1
    assert gateway.metric("skewgate_requests_refused_total", service="baremetal", reason="client_rate") == 0
    assert gateway.metric("skewgate_negotiations_total", result="served") == 0


async def test_rules_for_addresses_come_and_go_with_a_reload_on_an_open_connection(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    statuses = []
    for access in (None, NOBODY_HERE, LOOPBACK_ONLY, NOBODY_HERE, None):
        reload(gateway, access=access)
        statuses.append((await client.request(NODES)).status)

    assert statuses == [200, 403, 200, 403, 200]


@pytest.mark.parametrize(
    "forwarded, status",
    [
        ("10.0.0.7", 200),
        ("192.0.2.1", 403),
        ("10.0.0.7, 192.0.2.1", 403),  # the client may have made up what is to the left
        ("192.0.2.1, 10.0.0.7, 127.0.0.1", 200),  # trusted peers are passed over
        ("10.0.0.7:4711", 200),
        ("::ffff:10.0.0.7", 200),
        ("[fd00::7]:4711", 200),
        ("[2001:db8::7]:4711", 403),
        ("unknown", 403),
    ],
)
async def test_behind_trusted_proxies_the_forwarded_address_counts(
    testbed: Testbed, forwarded: str, status: int
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    reload(gateway, access=Access([ip_network("10.0.0.0/8"), ip_network("fd00::/8")], []))

    answer = await gateway.request(
        request("GET", "/v1/nodes", version_line("1.31"), f"X-Forwarded-For: {forwarded}")
    )

    assert answer.status == status


NO_ADDRESSES = [
    *("unknown", "Unknown", "_hidden", "-", '""', "localhost", "client.example", "10.0.0", "10.0.0.300"),
    *(
        "10.0.0.7 10.0.0.7",
        "10.0.0.7:port",
        "10.0.0.7:",
        "10.0.0.7:470000",
        "[10.0.0.7]",
        "::g",
        ":",
        "%eth0",
    ),
    *("[fd00::7", "[fd00::7]4711", "[fd00::7]:port", "fd00::7]", "", ",", " , ", "10.0.0.7, unknown"),
    *("unknown, 127.0.0.1", "010.0.0.7", "0x0a000007", "167772167", "for=10.0.0.7", "unix:/run/x", "UNIX:"),
]


@pytest.mark.parametrize("forwarded", NO_ADDRESSES)
@pytest.mark.parametrize(
    "access",
    [
        Access([ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"), ip_network("fd00::/8")], []),
        Access([], [ip_network("192.0.2.0/24")]),
    ],
    ids=["allow", "deny"],
)
async def test_R3_T7_a_forwarded_text_that_is_no_address_is_refused(
    testbed: Testbed, access: Access, forwarded: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    reload(gateway, access=access)
    client = await gateway.client()
    nodes = ("GET", "/v1/nodes", version_line("1.31"))

    refused = await client.request(request(*nodes, f"X-Forwarded-For: {forwarded}"))

    assert_refused(refused, await gateway.recorded(), 403, "access", "http_request_denied")
    assert not backend.requests
    # The proxy itself, which forwards nobody, is as allowed as before.
    assert (await client.request(request(*nodes))).status == 200


@pytest.mark.parametrize("forwarded", [None, "10.0.0.7", "unix:"])
async def test_R3_T7_who_has_no_address_is_refused_only_where_that_was_always_so(
    testbed: Testbed, forwarded: str | None
) -> None:
    """The peer of a Unix socket has no address, as has the one that a proxy names `unix:`: such a proxy is on
    the machine of its client, and counts for it."""
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    lines = () if forwarded is None else (f"X-Forwarded-For: {forwarded}",)
    client = await gateway.client()

    statuses = []
    for access in (LOOPBACK_ONLY, NOBODY_HERE, Access([ip_network("10.0.0.0/8")], [])):
        reload(gateway, access=access)
        statuses.append((await client.request(request("GET", "/v1/nodes", *lines))).status)

    assert statuses == ([403, 200, 200] if forwarded == "10.0.0.7" else [200, 403, 403])


async def test_R3_T7_where_no_rules_are_a_text_that_is_no_address_is_served_and_counts_for_the_proxy(
    testbed: Testbed,
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    reload(gateway, client_limits=ClientLimits(rate=0.001, burst=1))
    client = await gateway.client()

    statuses = [
        (await client.request(request("GET", "/v1/nodes", f"X-Forwarded-For: {forwarded}"))).status
        for forwarded in ("unknown", "127.0.0.1", "10.0.0.7")
    ]

    assert statuses == [200, 429, 200]


async def test_a_peer_that_is_not_trusted_forwards_no_address(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, access=NOBODY_HERE)

    answer = await gateway.request(request_head(version_line("1.31"), "X-Forwarded-For: 10.0.0.7"))

    assert answer.status == 403


# --- maintenance -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/v1/nodes", "/v1", "/", "/v1/nodes/7/states/power"])
async def test_in_maintenance_every_request_gets_the_one_answer(testbed: Testbed, target: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    offered = gateway.snapshot_holder.current.views["baremetal"].offer.versions
    client = await gateway.client()
    assert (await client.request(NODES)).status == 200

    reload(gateway, maintenance=Maintenance())
    answer = await client.request(request("GET", target, version_line("1.31")))
    other = await client.request(request("POST", target, version_line("1.999"), body=b"{}"))

    assert_refused(answer, await gateway.recorded(2), 503, "maintenance", "proxy_internal_response")
    assert other.status == 503
    assert len(backend.requests) == 1
    assert gateway.snapshot_holder.current.views["baremetal"].offer.versions == offered
    reload(gateway, maintenance=None)
    assert (await client.request(NODES)).status == 200


@pytest.mark.parametrize(
    "body, content_type",
    [
        ('{"error": "soon"}', "application/json"),
        ("<h1>Soon</h1>", "text/html; charset=utf-8"),
        ("Soon: 14 h, \u00fcber Mittag", "text/plain; charset=utf-8"),
    ],
)
async def test_the_operators_body_is_sent_as_it_is(testbed: Testbed, body: str, content_type: str) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, maintenance=Maintenance(410, body, 600), retry_after=True)

    answer = await gateway.request(NODES)

    assert (answer.status, answer.body) == (410, body.encode())
    assert answer.one("content-type") == content_type
    assert answer.one("retry-after") == "600"
    assert "vary" in answer.names


async def test_retry_after_of_maintenance_is_left_out_where_clients_break_on_it(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, maintenance=Maintenance(retry_after=600))

    assert "retry-after" not in (await gateway.request(NODES)).names


async def test_an_address_that_is_not_allowed_does_not_learn_of_maintenance(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, maintenance=Maintenance(), access=NOBODY_HERE)

    assert (await gateway.request(NODES)).status == 403


# --- limits of each client ---------------------------------------------------------------------------------


async def test_a_client_beyond_its_rate_gets_429_until_it_has_a_token_again(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, trusted=["127.0.0.0/8"])
    now = 1000.0
    gateway.worker.context.clock = lambda: now
    reload(gateway, client_limits=ClientLimits(rate=0.5, burst=2), retry_after=True)
    client = await gateway.client()

    def of(address: str) -> bytes:
        return request("GET", "/v1/nodes", version_line("1.31"), f"X-Forwarded-For: {address}")

    answers = [await client.request(of("192.0.2.1")) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].one("retry-after") == "2"
    assert_refused(answers[2], await gateway.recorded(3), 429, "client_rate", "http_request_denied")
    assert (await client.request(of("192.0.2.2"))).status == 200
    now += 2.0
    assert [(await client.request(of("192.0.2.1"))).status for _ in range(2)] == [200, 429]
    assert gateway.metric("skewgate_requests_refused_total", reason="client_rate") == 2
    assert len(backend.requests) == 4


async def test_a_reload_keeps_what_clients_have_used(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    gateway.worker.context.clock = lambda: 1000.0
    client = await gateway.client()
    reload(gateway, client_limits=ClientLimits(rate=1.0, burst=1))
    assert (await client.request(NODES)).status == 200

    reload(gateway, retry_after=True)
    assert (await client.request(NODES)).one("retry-after") == "1"
    reload(gateway, client_limits=ClientLimits())
    assert (await client.request(NODES)).status == 200


async def test_429_of_ironic_has_no_retry_after(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, client_limits=ClientLimits(rate=0.001, burst=1))

    answers = [await gateway.request(NODES) for _ in range(2)]

    assert answers[1].status == 429
    assert "retry-after" not in answers[1].names


async def test_a_client_beyond_its_concurrency_gets_429_until_one_has_ended(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond)
    reload(gateway, client_limits=ClientLimits(concurrency=1))
    first = await gateway.client()
    await first.send(NODES)
    await backend.received()

    answer = await gateway.request(NODES)
    assert_refused(answer, await gateway.recorded(), 429, "client_concurrency", "http_request_denied")
    backend.script = serve
    first.reset()
    await until(gateway.nothing_left)

    assert [(await gateway.request(NODES)).status for _ in range(3)] == [200, 200, 200]


async def test_a_tunnel_is_in_flight_until_it_ends(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(echo, upgrade=ALLOWED)
    reload(gateway, client_limits=ClientLimits(concurrency=1))
    client = await gateway.client()
    assert (await client.request(UPGRADE)).status == 101

    assert (await gateway.request(NODES)).status == 429
    backend.script = serve
    client.half_close()
    await client.ended()
    await gateway.recorded(2)
    assert (await gateway.request(NODES)).status == 200


async def test_what_the_gateway_refuses_for_its_version_counts_for_its_client(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    reload(gateway, client_limits=ClientLimits(rate=0.001, burst=1, concurrency=1))
    client = await gateway.client()

    assert (await client.request(request("GET", "/v1/nodes", version_line("1.999")))).status == 406
    assert (await client.request(NODES)).status == 429


# --- shedding ----------------------------------------------------------------------------------------------


SHEDS: Final = {"shed_lag": 0.5}


def shed(gateway: Gateway, level: int) -> None:
    """Late ticks until this is shed; from now on there are no others."""
    context, tick = gateway.worker.context, gateway.worker._next_tick
    assert tick is not None
    tick.cancel()
    while context.admission.shedder.level < level:
        gateway.worker._shed(0.6, context.now)


def recover(gateway: Gateway) -> None:
    now = gateway.worker.context.now
    while gateway.worker.context.admission.shedder.level:
        now += 1.0
        gateway.worker._shed(0.0, now)


async def test_first_new_connections_are_refused_then_all(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits=SHEDS)
    old, young = await gateway.client(), await gateway.client()
    for client in (old, young):
        assert (await client.request(NODES)).status == 200
    by_port = {one.transport.get_extra_info("peername")[1]: one for one in gateway.worker._clients}
    by_port[old.writer.get_extra_info("sockname")[1]].opened -= 100.0
    by_port[young.writer.get_extra_info("sockname")[1]].opened -= 5.0

    shed(gateway, NEW)
    new = await gateway.client()
    answer = await new.request(NODES)
    assert_refused(answer, await gateway.recorded(3), 503, "overload", "proxy_internal_response")
    assert answer.one("connection") == "close"
    await new.ended()
    assert [(await client.request(NODES)).status for client in (young, old)] == [200, 200]

    shed(gateway, YOUNG)
    assert [(await client.request(NODES)).status for client in (young, old)] == [503, 200]
    newer = await gateway.client()  # closed before it has sent anything
    unread = (await newer.ended()).rest
    assert unread.startswith(b"HTTP/1.1 503 ")
    assert b'Proxy-Status: skewgate; error=proxy_internal_response; details="overload"\r\n' in unread
    assert gateway.metric("skewgate_client_errors_total", reason="overload") == 1

    shed(gateway, ALL)
    assert [(await client.request(NODES)).status for client in (young, old)] == [503, 503]
    assert gateway.metric("skewgate_shedding_level", worker="0") == ALL
    assert gateway.metric("skewgate_requests_refused_total", reason="overload") == 4

    recover(gateway)
    assert [(await client.request(NODES)).status for client in (young, old)] == [200, 200]
    assert (await gateway.request(NODES)).status == 200
    assert gateway.metric("skewgate_shedding_level", worker="0") == 0
    assert not gateway.worker.context.admission.checks
    assert len(backend.requests) == 8


async def test_a_new_connection_is_closed_before_its_handshake(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve, limits=SHEDS)
    old = await gateway.client()
    assert (await old.request(NODES)).status == 200
    for one in gateway.worker._clients:
        one.opened -= 100.0
    shed(gateway, YOUNG)

    host, port = gateway.address
    new = Client(*await asyncio.open_connection(host, port))
    gateway.clients.append(new)

    assert (await new.ended()).rest == b""
    assert gateway.metric("skewgate_client_errors_total", reason="overload") == 1
    assert (await old.request(NODES)).status == 200


async def test_shedding_is_said_once_a_minute(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits=SHEDS)
    shed(gateway, NEW)
    now = gateway.worker.context.now

    for seconds in (0.0, 1.0, 59.0, 61.0):
        assert (await gateway.request(NODES)).status == 503
        gateway.worker._shed(0.3, now + seconds)

    assert caplog.text.count("the event loop is ") == 2
    assert "1 requests and 0 new connections were refused with 503" in caplog.text
    assert "3 requests and 0 new connections were refused with 503" in caplog.text


async def test_it_can_be_switched_off(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"shed_lag": NO_TIMEOUT})
    for _ in range(10):
        gateway.worker._shed(9.0, gateway.worker.context.now)

    assert (await gateway.request(NODES)).status == 200
