"""What a worker counts for the record of usage: each decided request once, under the name or product of its
client, with what it asked for and what became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final

from gateway.core.days import DAY
from gateway.core.fleet.admission import Access, ClientLimits, Maintenance
from gateway.core.usage.record import Count, Gap, RowKey, Scope
from gateway.runtime.parts import SMALL
from gateway.telemetry.usage import MANY_PATHS, UsageCounter, UsageSubtotal
from tests.dataplane.test_passive_observations import rolled_back
from tests.dataplane.upgrades import ALLOWED, ASKS, echo
from tests.kit.backends import serve
from tests.kit.messages import VERSION_FIELD, request, version_line
from tests.kit.workers import Gateway, Testbed, reload

NOON: Final = 20_000.0 * DAY + DAY / 2
ROW: Final = RowKey(
    service="baremetal",
    client="toolbox",
    named=False,
    requested="exact",
    asked="1.31",
    result="served",
    version="1.31",
    endpoint="resource",
    signed=False,
    safe=True,
    operation="GET /v1/nodes",
)
AGENT: Final = "User-Agent: toolbox/1.2 (linux)"


class Record:
    """The counter of a gateway, and all that was taken from it."""

    def __init__(self, gateway: Gateway, **options: Any) -> None:
        self.now = NOON
        self.counter = UsageCounter("one", lambda: self.now, **options)
        gateway.worker.context.usage = self.counter
        self.counts: dict[tuple[int, RowKey], Count] = {}
        self.gaps: list[Gap] = []

    async def take(self) -> Mapping[tuple[int, RowKey], Count]:
        """All rows so far that have requests."""
        report = await self.counter.report()
        if report is not None:
            for key, count in report.rows.items():
                before = self.counts.get(key)
                self.counts[key] = count if before is None else before.plus(count)
            self.gaps += report.gaps
        return {key: count for key, count in self.counts.items() if count.requests}

    async def rows(self) -> Mapping[RowKey, int]:
        """Requests by row, of all days."""
        found: Counter[RowKey] = Counter()
        for (_, row), count in (await self.take()).items():
            found[row] += count.requests
        return found


def nodes(version: str = "1.31", agent: str = AGENT, method: str = "GET", path: str = "/v1/nodes") -> bytes:
    return request(method, path, version_line(version), *filter(None, [agent]))


async def recorded(testbed: Testbed, **options: Any) -> tuple[Gateway, Record]:
    gateway, _ = await testbed.gateway_and_backend(serve)
    return gateway, Record(gateway, **options)


async def test_a_request_is_one_of_its_row(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)

    for _ in range(2):
        assert (await gateway.request(nodes())).status == 200

    assert await record.take() == {(20_000, ROW): Count(2, NOON, NOON)}
    assert await record.counter.report() is None


async def test_a_row_says_what_was_asked_and_what_became_of_it(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    await gateway.request(nodes())  # from here on the product has a row of its own

    for version in ("1.91", "latest", "nonsense"):
        await gateway.request(nodes(version))
    await gateway.request(request("POST", "/v1/nodes", AGENT, body=b"{}"))
    await gateway.request(request("GET", "/", AGENT))

    assert await record.rows() == {
        ROW: 1,
        ROW._replace(asked="1.91", result="above_max", version=""): 1,
        ROW._replace(requested="latest", asked="", version="1.90"): 1,
        ROW._replace(requested="malformed", asked="", result="malformed", version=""): 1,
        ROW._replace(requested="none", asked="", version="1.1", safe=False, operation="POST /v1/nodes"): 1,
        ROW._replace(requested="", asked="", result="", version="", endpoint="root", operation="GET /"): 1,
    }


async def test_a_product_that_was_never_served_is_one_of_the_others(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)

    for number in range(3):
        assert (await gateway.request(nodes("1.91", f"User-Agent: invented{number}/1"))).status == 406
    await gateway.request(nodes("1.91"))
    await gateway.request(nodes())
    await gateway.request(nodes("1.91"))

    refused = ROW._replace(asked="1.91", result="above_max", version="")
    assert await record.rows() == {refused._replace(client="other"): 4, ROW: 1, refused: 1}


async def test_a_product_may_have_no_version(testbed: Testbed) -> None:
    """Wherever its line stands, among others or at the end of the head."""
    gateway, record = await recorded(testbed)

    for lines in (["User-Agent: plain", "Accept: */*"], ["Accept: */*", "User-Agent: plain"]):
        await gateway.request(request("GET", "/v1/nodes", version_line("1.31"), *lines))

    assert await record.rows() == {ROW._replace(client="plain"): 2}


async def test_a_client_without_a_product_is_none(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)

    await gateway.request(nodes("1.91", ""))
    await gateway.request(nodes("1.31", ""))

    refused = ROW._replace(client="none", asked="1.91", result="above_max", version="")
    assert await record.rows() == {refused: 1, ROW._replace(client="none"): 1}


async def test_one_connection_may_carry_requests_of_several_clients(testbed: Testbed) -> None:
    """A proxy in front of the gateway does that. Lines before and behind the product move its place."""
    gateway, record = await recorded(testbed)
    client = await gateway.client()
    lines: list[tuple[str, ...]] = [
        (AGENT,),
        ("user-agent:toolbox",),
        ("User-Agent: toolboxes/1",),
        ("User-Agent: toolboxes",),
        ("Accept: */*", AGENT),
        ("Accept: */*", "User-Agent: toolboxes/2", AGENT),
        (AGENT, "Accept: */*"),
        ("X-Note: toolboxes", AGENT),
        ("X-Note: toolbox/1.2 (linux)", "User-Agent: toolboxes"),
        ("Accept: */*",),
        (),
        (f"User-Agent: toolbox/{'x' * 3000}",),
        (f"User-Agent: toolbox/{'x' * 3000}", "Accept: */*"),
    ]

    for _ in range(3):
        for some in lines:
            assert (
                await client.request(request("GET", "/v1/nodes", version_line("1.31"), *some))
            ).status == 200

    of_client = {"toolbox": 7 * 3, "toolboxes": 4 * 3, "none": 2 * 3}
    assert await record.rows() == {ROW._replace(client=name): number for name, number in of_client.items()}


async def test_a_named_client_is_known_by_its_name_alone(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    gateway.worker.context.usage = None
    await gateway.request(nodes())
    gateway.worker.context.usage = counter = record.counter
    refused = gateway.records[-1]
    resolution = next(iter(gateway.worker.context.decision_cache.values()))
    refused.client_name = "nightly"

    found = counter.find(resolution, refused, refused.head.passthrough, "GET")
    found.count("/v1/nodes")

    assert await record.rows() == {ROW._replace(client="nightly", named=True): 1}


async def test_many_ids_are_one_operation(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    client = await gateway.client()

    for number in range(20):
        await client.request(nodes(path=f"/v1/nodes/{number}"))

    assert await record.rows() == {ROW._replace(operation="GET /v1/nodes/{id}"): 20}


async def test_a_request_that_is_decided_anew_moves(testbed: Testbed) -> None:
    """The backend refuses the first version, so `latest` is another one then."""
    gateway, backend = await rolled_back(testbed)
    record = Record(gateway)

    assert (await gateway.request(nodes("latest"))).status == 200
    assert (await gateway.request(nodes("1.80"))).status == 406

    assert [message.one(VERSION_FIELD) for message in backend.requests] == ["1.90", "1.58"]
    assert await record.rows() == {
        ROW._replace(requested="latest", asked="", version="1.58"): 1,
        ROW._replace(asked="1.80", result="above_max", version=""): 1,
    }


async def test_a_refused_request_moves_from_what_it_was_before(testbed: Testbed) -> None:
    gateway, _ = await rolled_back(testbed)
    record = Record(gateway)

    assert (await gateway.request(nodes("1.80"))).status == 406

    refused = ROW._replace(client="other", asked="1.80", result="above_max", version="")
    assert await record.rows() == {refused: 1}


async def test_a_client_that_may_not_come_is_denied(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    await gateway.request(nodes())

    reload(gateway, access=Access([], [ip_network("127.0.0.0/8")]))
    assert (await gateway.request(nodes())).status == 403

    assert await record.rows() == {ROW: 1, ROW._replace(result="denied", version=""): 1}


async def test_a_client_over_its_limits_has_asked_all_the_same(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    reload(gateway, client_limits=ClientLimits(rate=1.0, burst=1))

    assert [(await gateway.request(nodes())).status for _ in range(2)] == [200, 429]

    assert await record.rows() == {ROW: 2}


async def test_in_maintenance_no_version_is_read(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    await gateway.request(nodes())
    reload(gateway, maintenance=Maintenance())

    assert (await gateway.request(nodes())).status == 503

    closed = ROW._replace(requested="", asked="", result="unavailable", version="")
    assert await record.rows() == {ROW: 1, closed: 1}


async def test_a_tunnel_counts_when_it_is_decided(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(echo, upgrade=ALLOWED)
    record = Record(gateway)
    client = await gateway.client()

    asked = request("GET", "/v1/nodes", *ASKS, version_line("1.31"), AGENT)
    assert (await client.request(asked)).status == 101

    assert await record.rows() == {ROW: 1}
    client.reset()
    await gateway.recorded()
    assert await record.rows() == {ROW: 1}


async def test_many_requests_are_counted_before_the_report_and_the_rest_with_it(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    client = await gateway.client()

    for requests in (MANY_PATHS, 1, MANY_PATHS - 1):
        for _ in range(requests):
            await client.request(nodes())
        record.counter.tick()

    assert await record.rows() == {ROW: 2 * MANY_PATHS}


async def subtotals_of(gateway: Gateway, record: Record, number: int) -> Sequence[UsageSubtotal]:
    """So many clients, each with a request that waits for the report."""
    await gateway.request(nodes())
    await record.take()
    resolution, one = next(iter(gateway.worker.context.decision_cache.values())), gateway.records[-1]
    found = []
    for each in range(number):
        one.client_name = f"team {each}"
        found.append(record.counter.find(resolution, one, one.head.passthrough, "GET"))
        found[-1].count("/v1/nodes")
    return found


async def test_a_report_on_a_thousand_subtotals_lets_requests_pass_and_misses_none(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    subtotals = await subtotals_of(gateway, record, 1000)

    report = asyncio.ensure_future(record.counter.report())
    counted = []
    while not report.done():
        before = sum(each.waits for each in subtotals)
        await asyncio.sleep(0)
        counted.append(before - sum(each.waits for each in subtotals))
        for each in subtotals[0], subtotals[-1]:
            each.count("/v1/nodes")
    first, then = await report, await record.counter.report()

    assert max(counted) <= SMALL, "so many are counted in one turn of the event loop"
    assert first is not None
    assert len(first.rows) == 1000, "nothing from before the report waits for the next one"
    assert then is not None
    requests = sum(count.requests for each in (first, then) for count in each.rows.values())
    assert requests == 1000 + 2 * len(counted)


async def test_a_subtotal_without_requests_is_closed_and_one_with_requests_stays(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    idle, busy = await subtotals_of(gateway, record, 2)

    for _ in range(2):
        assert await record.counter.report() is not None
        busy.count("/v1/nodes")

    assert idle.resolution is None
    assert busy.resolution is not None


async def test_a_product_that_is_new_leaves_what_others_have_asked_for_the_report(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    subtotals = await subtotals_of(gateway, record, 3)

    await gateway.request(nodes(agent="User-Agent: newcomer/1"))

    assert all(each.waits and each.resolution is not None for each in subtotals)
    rows = await record.rows()
    assert rows[ROW._replace(client="newcomer")] == 1
    assert sum(rows.values()) == 1 + 3 + 1


async def test_paths_that_come_again_and_others_between_them_are_counted_alike(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    client = await gateway.client()

    for often, seldom in (("nodes", "ports"), ("ports", "nodes")):
        for path in [often] * MANY_PATHS + [seldom, often, often, seldom]:
            await client.request(nodes(path=f"/v1/{path}"))
        record.counter.tick()

    assert await record.rows() == {
        ROW: MANY_PATHS + 4,
        ROW._replace(operation="GET /v1/ports"): MANY_PATHS + 4,
    }


async def test_what_is_known_of_paths_stays_small(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    await gateway.request(nodes())
    one = gateway.records[-1]
    resolution = next(iter(gateway.worker.context.decision_cache.values()))
    subtotal = record.counter.find(resolution, one, one.head.passthrough, "GET")

    for _ in range(2):
        subtotal.paths += [f"/v1/x-{number}" for number in range(1000)] + ["/v1/" + "x" * 300]
        await record.take()

    assert sum((await record.rows()).values()) == 1 + 2 * 1001
    assert len(subtotal.rows) < 100
    assert max(map(len, subtotal.rows)) < 300


async def test_a_day_has_its_own_rows_and_its_own_products(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed)
    client = await gateway.client()
    await client.request(nodes())
    record.now = before = 20_001.0 * DAY - 1
    record.counter.tick()
    await client.request(nodes())
    record.now = 20_001.0 * DAY
    record.counter.tick()
    await client.request(nodes("1.91"))
    await client.request(nodes())

    refused = ROW._replace(client="other", asked="1.91", result="above_max", version="")
    assert await record.take() == {
        (20_000, ROW): Count(2, NOON, before),
        (20_001, refused): Count(1, record.now, record.now),
        (20_001, ROW): Count(1, record.now, record.now),
    }


async def test_addresses_are_there_if_they_are_wanted(testbed: Testbed) -> None:
    gateway, record = await recorded(testbed, addresses=True)
    client = await gateway.client()

    for _ in range(2):
        await client.request(nodes())

    assert await record.take() == {(20_000, ROW): Count(2, NOON, NOON, ("127.0.0.1",))}


async def test_without_anybody_who_takes_it_the_record_stays_small_and_says_so(
    testbed: Testbed,
) -> None:
    gateway, record = await recorded(testbed, max_rows=10)
    await gateway.request(nodes())
    resolution, one = next(iter(gateway.worker.context.decision_cache.values())), gateway.records[-1]

    for number in range(30):
        fields = b"\r\nUser-Agent: toolbox" if number % 2 else b""
        if number >= 10:
            one.client_name = f"team {number}"
        record.counter.find(resolution, one, fields, "GET").count(f"/v1/part-{number}")

    rows = await record.rows()
    assert sum(rows.values()) == 31
    assert sum(row.named for row in rows) == 20, "names are never folded"
    assert {(gap.day, gap.service, gap.scope) for gap in record.gaps} == {
        (20_000, "baremetal", Scope.OPERATIONS),
        (20_000, "baremetal", Scope.ALL),
    }
