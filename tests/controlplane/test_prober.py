"""Probes against real sockets: which ones succeed, which ones fail, and that nothing known is erased."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
import gc
import gzip
import random
from itertools import pairwise

import pytest
from aiohttp import web

from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.prober import (
    AT_ONCE,
    BEGUN_PER_TURN,
    LONGEST_PAUSE,
    TOGETHER,
    Prober,
    pause,
    until_others,
)
from gateway.controlplane.resolver import UnresolvedError
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.dialect import ProbeRequest
from gateway.core.fleet.backend import Backend, Freshness
from gateway.core.fleet.fleet import (
    ConnectFailed,
    PassiveObservation,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from gateway.telemetry.recent import LastHour
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.series.declaring import Counter, Gauge, HistogramSeries
from tests.controlplane.fakes import Behaviour, ironic, service, serving, until_member
from tests.kit.ironic import holder_of, member, reconfigure, until_snapshot, upto
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.telemetry.builders import NobodyCounts


class ProbeResults(NobodyCounts):
    """Stands in for the metrics: the result of every probe, in order."""

    def __init__(self) -> None:
        self.reasons: list[str | None] = []
        self.expiry: dict[str, float] = {}
        """Of the certificates that were seen, by backend."""
        self._ended = asyncio.Semaphore(0)

    def observe(
        self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
    ) -> None:
        assert (series, service, seconds >= 0) == (OfBackend.probe_duration_seconds, "baremetal", True)
        self.reasons.append(None)
        self._ended.release()

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        assert (series, service) == (OfBackend.probe_failures, "baremetal")
        (self.reasons[-1],) = key

    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None:
        assert series is OfBackend.backend_certificate_expiry_timestamp_seconds
        self.expiry[backend] = value

    async def probe_ended(self) -> None:
        """Wait for one more result. Its fact is known then: a batch is applied one iteration later."""
        await asyncio.wait_for(self._ended.acquire(), 10)
        for _ in range(3):  # `wait_for` takes none itself since Python 3.12
            await asyncio.sleep(0)


class Steps:
    """A sleep that lasts until the test starts the next probe; records how long it should have lasted."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._go = asyncio.Semaphore(0)
        self._asleep = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._asleep.release()
        await self._go.acquire()

    async def probe_ended(self) -> None:
        await asyncio.wait_for(self._asleep.acquire(), 10)

    def next(self) -> None:
        self._go.release()


async def test_a_response_becomes_the_advertisement() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        snapshot_holder = holder_of(service(backend.backend()))
        async with Prober(
            snapshot_holder, ProbeResults(), [service(backend.backend())], wall=lambda: 1790000000.5
        ) as prober:
            await until_member(snapshot_holder, lambda one: one.advertisement is not None)

            assert member(snapshot_holder).advertisement == upto(90)
            assert member(snapshot_holder).freshness is Freshness.FRESH
            assert prober.last_probe_at == {("baremetal", "api-1"): 1790000000.5}


async def test_a_probe_carries_nothing_but_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No header of a client, no credentials or proxy of the environment, no cookie, no gzip (threats O4)."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def with_cookie(request: web.Request) -> web.StreamResponse:
        response = await ironic()(request)
        response.headers["Set-Cookie"] = "a=b"
        return response

    async with serving(with_cookie) as backend:
        one = service(backend.backend(), headers=(("X-Auth-Token", "t"), ("accept", "text/x")))
        async with Prober(holder_of(one), ProbeResults(), [one]):
            await backend.received(3)

    sent = backend.requests[2]
    assert (sent.method, sent.raw_path) == ("GET", "/v1")
    assert {name.lower(): value for name, value in sent.headers.items()} == {
        "host": f"127.0.0.1:{backend.port}",
        "user-agent": "skewgate",
        "accept": "text/x",
        "accept-encoding": "identity",
        "connection": "close",
        "x-auth-token": "t",
    }


def responds(**response: object) -> Behaviour:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(**response)  # type: ignore[arg-type]

    return respond


async def redirects(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/\u00e9\u2028"})


async def compressed(request: web.Request) -> web.StreamResponse:
    response = await ironic()(request)
    assert isinstance(response, web.Response)
    response.body = gzip.compress(b'{"id": "v1"}')
    response.headers["Content-Encoding"] = "gzip"
    return response


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for _ in range(1025):
        await response.write(b" " * 1024)
    return response


async def slow(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.sleep(60)
    return response


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.close()
    return response


async def no_http(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    request.transport.close()
    return web.Response()


NONSENSE = [
    ("document", responds(text="<html>It works!</html>", content_type="text/html")),
    ("document", responds(text='{"id": "v2"}', content_type="application/json")),
    ("document", responds(body=b"[" * 100_000)),
    ("document", responds(body=b"\xff\xfe")),
    ("range", ironic("1.90", "1.1")),
    ("range", ironic("1.1", "2.9")),
    ("range", ironic("1.1", "1.٩")),
    ("status", responds(status=503)),
    ("status", responds(status=401)),
    ("redirect", redirects),
    ("encoding", compressed),
    ("too_large", responds(body=b" " * (1024 * 1024 + 1))),
    ("too_large", endless),
    ("timeout", slow),
    ("protocol", cut),
    ("protocol", no_http),
]


@pytest.mark.parametrize("reason, behaviour", NONSENSE, ids=[f"{n}-{r}" for n, (r, _) in enumerate(NONSENSE)])
async def test_nonsense_is_a_failed_probe_and_erases_nothing(reason: str, behaviour: Behaviour) -> None:
    """Counted, shown, and what was known stays known (threats O1, O2, O3)."""
    async with serving(ironic("1.1", "1.58")) as backend:
        one = service(backend.backend(), timeout=0.5)
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        async with Prober(snapshot_holder, results, [one], sleep=steps):
            await steps.probe_ended()
            backend.behaviour = behaviour
            steps.next()
            await steps.probe_ended()

        assert results.reasons == [None, reason]
        assert member(snapshot_holder).freshness is Freshness.STALE
        assert member(snapshot_holder).advertisement == upto(58)
        error = member(snapshot_holder).error
        assert error
        assert error.isascii()
        assert error.isprintable()


async def test_a_backend_that_refuses_connections_ages_and_comes_back() -> None:
    """fresh -> stale -> stale -> down -> fresh, while the advertisement stays."""
    async with serving(ironic()) as backend:
        one = service(backend.backend())
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        seen: list[Freshness] = []
        async with Prober(snapshot_holder, results, [one], sleep=steps):
            await steps.probe_ended()
            seen.append(member(snapshot_holder).freshness)
            await backend.stop()
            for _ in range(4):
                steps.next()
                await steps.probe_ended()
                seen.append(member(snapshot_holder).freshness)
                assert member(snapshot_holder).advertisement == upto(58)
            assert (
                member(snapshot_holder).error
                == f"no connection to 127.0.0.1:{backend.port}: connection refused"
            )
            backend.behaviour = ironic("1.1", "1.90")
            await backend.start()
            steps.next()
            await steps.probe_ended()
            seen.append(member(snapshot_holder).freshness)

        fresh, stale, down = Freshness.FRESH, Freshness.STALE, Freshness.DOWN
        assert seen == [fresh, stale, stale, down, down, fresh]
        assert results.reasons == [None, *["connect"] * 4, None]
        assert (member(snapshot_holder).advertisement, member(snapshot_holder).error) == (
            upto(90),
            None,
        )


async def test_a_smaller_range_is_a_fact() -> None:
    """A rollback must be seen (threats O3)."""
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend())
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_member(snapshot_holder, lambda it: it.advertisement == upto(90))
            backend.behaviour = ironic("1.1", "1.58")
            await until_member(snapshot_holder, lambda it: it.advertisement == upto(58))


async def test_a_backend_that_never_answered_is_unknown_and_probed_on() -> None:
    async with serving(responds(status=500)) as backend:
        one = service(backend.backend())
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_member(snapshot_holder, lambda it: it.failures == 3)
            assert (member(snapshot_holder).freshness, member(snapshot_holder).advertisement) == (
                Freshness.UNKNOWN,
                None,
            )
            backend.behaviour = ironic()
            await until_member(snapshot_holder, lambda it: it.freshness is Freshness.FRESH)


async def test_what_a_probe_brings_is_as_old_as_its_request() -> None:
    """A probe that was sent before a passive observation must not overwrite it."""
    arrived, may_respond = asyncio.Event(), asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await may_respond.wait()
        return await ironic("1.1", "1.58")(request)

    async with serving(late) as backend:
        one = service(backend.backend())
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        now = 10.0
        async with Prober(snapshot_holder, results, [one], sleep=steps, clock=lambda: now):
            await asyncio.wait_for(arrived.wait(), 10)
            now = 11.0
            snapshot_holder.observe("baremetal", "api-1", PassiveObservation(upto(90), now))
            may_respond.set()
            await steps.probe_ended()

        assert results.reasons == [None]
        assert member(snapshot_holder).advertisement == upto(90)


async def test_one_probe_at_a_time() -> None:
    """However short the interval (threats O4)."""
    under_way = most = 0

    async def counting(request: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return await ironic()(request)

    async with serving(counting) as backend:
        one = service(backend.backend(), interval=0.001)
        async with Prober(holder_of(one), ProbeResults(), [one]):
            await backend.received(5)

    assert most == 1


async def test_a_declared_backend_is_not_probed_and_declared_again_instead() -> None:
    """At once after a mismatch; what a second path contradicted, after an interval."""
    declared = Backend("declared", "127.0.0.1", 1, declared=upto(31).versions)
    one, steps, results = service(declared), Steps(), ProbeResults()
    snapshot_holder = holder_of(one)
    async with Prober(snapshot_holder, results, [one], sleep=steps, prompted_spacing=0.0) as prober:
        await steps.probe_ended()

        def contradict(path: str) -> None:
            at = asyncio.get_running_loop().time()
            snapshot_holder.observe("baremetal", "declared", VersionMismatch(Version(1, 31), at, path))
            assert Version(1, 31) not in member(snapshot_holder, "declared").usable_versions

        contradict("/v1/nodes")
        await until_member(snapshot_holder, lambda it: it.usable_versions == upto(31).versions, "declared")
        contradict("/v1/ports")
        steps.next()
        await steps.probe_ended()

        assert member(snapshot_holder, "declared").usable_versions == upto(31).versions
        assert (results.reasons, prober.last_probe_at) == ([], {})


async def test_a_declared_backend_that_is_suspect_again_and_again_is_cleared_ever_later() -> None:
    declared = Backend("declared", "127.0.0.1", 1, declared=upto(31).versions)
    one, steps = service(declared), Steps()
    snapshot_holder = holder_of(one)
    async with Prober(snapshot_holder, ProbeResults(), [one], sleep=steps):
        await steps.probe_ended()
        for _ in range(4):
            snapshot_holder.observe("baremetal", "declared", ConnectFailed(asyncio.get_running_loop().time()))
            steps.next()
            await steps.probe_ended()
            assert not member(snapshot_holder, "declared").connect_failed
        steps.next()
        await steps.probe_ended()

    first, *suspect, last = steps.pauses
    assert suspect[-1] > 3 * first
    assert last < 2 * first


async def test_every_backend_is_probed_at_its_own_address_and_a_declared_one_never() -> None:
    async with (
        serving(ironic("1.1", "1.58")) as old,
        serving(ironic("1.1", "1.90")) as new,
        serving(ironic()) as never_probed,
    ):
        declared = Backend("declared", "127.0.0.1", never_probed.port, declared=upto(31).versions)
        one = service(old.backend("old"), new.backend("new"), declared)
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_member(snapshot_holder, lambda it: it.advertisement == upto(58), "old")
            await until_member(snapshot_holder, lambda it: it.advertisement == upto(90), "new")
            await old.received(3)

        assert never_probed.requests == []
        assert member(snapshot_holder, "declared").freshness is Freshness.FRESH


def reload_to(snapshot_holder: SnapshotHolder, prober: Prober, *services: Service) -> None:
    reconfigure(snapshot_holder, services)
    prober.retarget(services)


async def test_after_a_reload_the_new_backends_are_probed_and_the_old_ones_no_more() -> None:
    async with serving(ironic("1.1", "1.58")) as old, serving(ironic("1.1", "1.90")) as new:
        before, after = service(old.backend("old")), service(new.backend("new"))
        snapshot_holder = holder_of(before)
        async with Prober(snapshot_holder, ProbeResults(), [before]) as prober:
            await until_member(snapshot_holder, lambda it: it.advertisement is not None, "old")
            reload_to(snapshot_holder, prober, after)
            probes = len(old.requests)
            await new.received(3)

            assert len(old.requests) <= probes + 1, "one may have been on its way"
            assert list(prober.last_probe_at) == [("baremetal", "new")]


async def test_what_is_left_of_removed_backends_is_freed_without_the_collector() -> None:
    """After a reload of a thousand backends it would be a pause, in which no request moves."""
    before = service(*[Backend(f"old-{number}", LOOPBACK, 1) for number in range(20)], interval=60.0)
    after = service(*[Backend(f"new-{number}", LOOPBACK, 1) for number in range(20)], interval=60.0)
    snapshot_holder = holder_of(before)
    async with Prober(snapshot_holder, ProbeResults(), [before]) as prober:
        await until_snapshot(snapshot_holder, lambda now: now.fleet.member_sets["baremetal"].all_probed)
        dropped = [task for task in asyncio.all_tasks() if " baremetal/old" in task.get_name()]
        gc.collect()
        gc.disable()
        try:
            reload_to(snapshot_holder, prober, after)
            await asyncio.wait(dropped)
            dropped.clear()
            del before
            await until_snapshot(snapshot_holder, lambda now: now.fleet.member_sets["baremetal"].all_probed)
            tasks = [one for one in gc.get_objects() if isinstance(one, asyncio.Task)]
            assert not [task for task in tasks if " baremetal/old" in task.get_name()]
        finally:
            gc.enable()


async def test_a_backend_that_stays_keeps_its_task_and_one_that_moved_is_probed_at_once() -> None:
    async with serving(ironic("1.1", "1.58")) as here, serving(ironic("1.1", "1.90")) as there:
        before = service(here.backend())
        snapshot_holder, steps = holder_of(before), Steps()
        async with Prober(snapshot_holder, ProbeResults(), [before], sleep=steps) as prober:
            await steps.probe_ended()

            reload_to(snapshot_holder, prober, service(here.backend()))
            assert len(here.requests) == 1
            steps.next()
            await steps.probe_ended()
            assert len(here.requests) == 2

            reload_to(snapshot_holder, prober, service(there.backend()))
            await steps.probe_ended()
            assert len(there.requests) == 1
            assert member(snapshot_holder).advertisement == upto(90)


async def test_a_bug_in_a_dialect_is_a_failed_probe_and_the_probes_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = service(Backend("api-1", "127.0.0.1", 1))

    def broken(responses: object, path: object) -> object:
        raise KeyError("bug")

    monkeypatch.setattr(one.dialect, "probe", broken)
    snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
    async with Prober(snapshot_holder, results, [one], sleep=steps):
        await steps.probe_ended()
        steps.next()
        await steps.probe_ended()

    assert results.reasons == ["internal", "internal"]
    assert "KeyError" in caplog.text


async def test_a_dialect_that_never_finishes_is_stopped_after_four_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(ironic()) as backend:
        one = service(backend.backend())
        monkeypatch.setattr(one.dialect, "probe", lambda responses, path: ProbeRequest(f"/{len(responses)}"))
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        async with Prober(snapshot_holder, results, [one], sleep=steps):
            await steps.probe_ended()

    assert results.reasons == ["steps"]
    assert [request.path for request in backend.requests] == ["/0", "/1", "/2", "/3"]


async def test_closing_ends_a_probe_that_is_under_way() -> None:
    async with serving(slow) as backend:
        one = service(backend.backend(), timeout=60.0)
        prober = Prober(holder_of(one), ProbeResults(), [one])
        await prober.start()
        await backend.received(1)

        await asyncio.wait_for(prober.close(), 5)

        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("probe ")]


async def test_the_log_has_one_line_a_change_and_none_a_probe(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving(ironic("1.1", "1.58")) as backend:
        one = service(backend.backend())
        snapshot_holder, steps = holder_of(one), Steps()
        snapshot_holder.subscribe(ChangeLog(lambda: 0.0, lambda _: LastHour({}, 0.0)).log_changes)

        async def probe() -> None:
            steps.next()
            await steps.probe_ended()

        async with Prober(snapshot_holder, ProbeResults(), [one], sleep=steps):
            await steps.probe_ended()
            await probe()
            await probe()
            backend.behaviour = ironic("1.1", "1.90")
            await probe()
            await backend.stop()
            for _ in range(4):
                await probe()
            await backend.start()
            await probe()

    lines = [
        record.getMessage() if record.name == "skewgate.prober" else record.getMessage().partition(";")[0]
        for record in caplog.records
        if record.name.startswith("skewgate.")
    ]
    where = f"127.0.0.1:{backend.port}"
    refused = f"no connection to {where}: connection refused"
    assert lines == [
        "baremetal/api-1: serves 1.1-1.58, fresh",
        "baremetal: offer none -> 1.1-1.58, phase uniform",
        "baremetal/api-1: serves 1.1-1.58 -> 1.1-1.90, fresh",
        "baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform",
        f"baremetal/api-1: stale (probe failed): {refused}",
        (
            "baremetal/api-1: down (3 failed probes), used only as a last resort; "
            f"check http://{where}: {refused}"
        ),
        "baremetal: offer 1.1-1.90, phase mixed",
        "baremetal: all backends for 1.1-1.90 are down: requests get 503",
        "baremetal/api-1: answers again, serves 1.1-1.90",
        "baremetal: offer 1.1-1.90, phase uniform",
        "baremetal: 1.1-1.90 is served again",
    ]


@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0, 29.0, 120.0])
def test_pauses_stay_within_their_bounds(interval: float) -> None:
    """Healthy: the interval ± 20 %. Failing: longer each time, at most 8 intervals and 30 s, never below the
    interval."""
    rng = random.Random(1)
    healthy = [pause(0, interval, rng) for _ in range(500)]
    assert all(0.8 * interval <= seconds <= 1.2 * interval for seconds in healthy)
    assert max(healthy) - min(healthy) > 0.3 * interval, "there is jitter"

    longest = max(1.2 * interval, min(8 * interval, LONGEST_PAUSE))
    for failures in range(2, 40):
        for _ in range(50):
            assert 0.8 * interval <= pause(failures, interval, rng) <= longest


def test_pauses_double_with_every_failure_after_the_first() -> None:
    class NoJitter(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return 1.0

    assert [pause(failures, 1.0, NoJitter()) for failures in range(7)] == [1, 1, 2, 4, 8, 8, 8]
    assert [pause(failures, 10.0, NoJitter()) for failures in range(5)] == [10, 10, 20, 30, 30]
    assert [pause(failures, 60.0, NoJitter()) for failures in range(3)] == [60, 60, 60]


async def test_failures_lengthen_the_pause_and_a_response_shortens_it_again() -> None:
    async with serving(responds(status=500)) as backend:
        one = service(backend.backend(), interval=1.0)
        steps = Steps()
        async with Prober(holder_of(one), ProbeResults(), [one], sleep=steps, rng=random.Random(7)):
            for _ in range(5):
                await steps.probe_ended()
                steps.next()
            await steps.probe_ended()
            backend.behaviour = ironic()
            steps.next()
            await steps.probe_ended()

    bases = (1, 2, 4, 8, 8, 8, 1)
    tolerances = [(0.8 * base, 1.2 * base) for base in bases]
    # The first failure is followed by a plain interval, the second by the first doubling.
    assert all(
        low <= seconds <= high
        for seconds, (low, high) in zip(steps.pauses, [(0.8, 1.2), *tolerances[1:]], strict=True)
    )


# --- probes that requests ask for ------------------------------------------------------------------------

LONG = 3600.0
"""An interval after which no test is still running."""


async def test_R_A12_a_mismatch_has_the_backend_probed_at_once() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_member(snapshot_holder, lambda it: it.advertisement is not None)
            backend.behaviour = ironic("1.1", "1.58")
            now = asyncio.get_running_loop().time()
            snapshot_holder.observe("baremetal", "api-1", VersionMismatch(Version(1, 90), now))

            async with asyncio.timeout(PATIENCE):
                await backend.received(2)
                await until_member(snapshot_holder, lambda it: it.advertisement == upto(58))


async def test_R_D1_one_path_takes_no_version_away_once_a_probe_still_advertises_it() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_member(snapshot_holder, lambda it: it.advertisement is not None)
            for _ in range(3):
                now = asyncio.get_running_loop().time()
                snapshot_holder.observe("baremetal", "api-1", VersionMismatch(Version(1, 90), now))
                async with asyncio.timeout(PATIENCE):
                    await until_member(snapshot_holder, lambda it: Version(1, 90) in it.usable_versions)

    assert len(backend.requests) == 2, "the same path again asks for nothing"


def mismatch(minor: int, path: str = "/v1/nodes") -> VersionMismatch:
    return VersionMismatch(Version(1, minor), asyncio.get_running_loop().time(), path)


async def test_R_D1_a_second_path_takes_the_version_away_until_the_next_regular_probe() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        async with Prober(snapshot_holder, results, [one], sleep=steps, prompted_spacing=0.0):
            await results.probe_ended()
            for path, left in (("/v1/nodes", upto(90).versions), ("/v1/ports", upto(89).versions)):
                snapshot_holder.observe("baremetal", "api-1", mismatch(90, path))
                await results.probe_ended()
                assert member(snapshot_holder).usable_versions == left

            assert len(steps.pauses) == 1, "prompted probes do not move the regular ones"
            steps.next()
            await results.probe_ended()
            assert member(snapshot_holder).usable_versions == upto(90).versions


async def test_a_backend_that_contradicts_itself_at_every_version_is_not_probed_for_every_response() -> None:
    """A probe, and within the spacing no other (threats O4, V11)."""
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder, steps = holder_of(one), Steps()
        async with Prober(snapshot_holder, ProbeResults(), [one], sleep=steps, prompted_spacing=LONG):
            await steps.probe_ended()
            snapshot_holder.observe("baremetal", "api-1", mismatch(1))
            await until_member(snapshot_holder, lambda it: it.mismatched == NO_VERSIONS)
            for minor in range(2, 60):
                snapshot_holder.observe("baremetal", "api-1", mismatch(minor, f"/v1/{minor % 3}"))
                snapshot_holder.observe(
                    "baremetal", "api-1", ServedVersionMissing(asyncio.get_running_loop().time())
                )
            steps.next()
            await steps.probe_ended()

    assert len(backend.requests) == 3, "two regular ones and one that was prompted"


async def test_a_prompted_probe_waits_for_the_one_under_way_which_may_have_answered() -> None:
    """Sent after the request in doubt: it is the answer. Sent before it: another one follows."""
    arrived, may_respond = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def held(request: web.Request) -> web.StreamResponse:
        arrived.release()
        await may_respond.acquire()
        return await ironic("1.1", "1.90")(request)

    async with serving(held) as backend:
        one = service(backend.backend(), interval=LONG, timeout=60.0)
        snapshot_holder, steps = holder_of(one), Steps()
        async with (
            Prober(snapshot_holder, ProbeResults(), [one], sleep=steps, prompted_spacing=0.0),
            asyncio.timeout(PATIENCE),
        ):
            await arrived.acquire()
            may_respond.release()
            await steps.probe_ended()

            before = mismatch(90)
            steps.next()
            await arrived.acquire()
            snapshot_holder.observe("baremetal", "api-1", before)
            may_respond.release()
            await steps.probe_ended()
            assert (len(backend.requests), member(snapshot_holder).mismatched) == (2, NO_VERSIONS)

            steps.next()
            await arrived.acquire()
            snapshot_holder.observe("baremetal", "api-1", mismatch(90))
            may_respond.release()
            await arrived.acquire()
            assert member(snapshot_holder).mismatched == VersionSet.only(Version(1, 90))
            may_respond.release()
            await until_member(snapshot_holder, lambda it: it.mismatched == NO_VERSIONS)

    assert len(backend.requests) == 4


async def test_a_prompted_probe_that_fails_is_not_repeated_before_the_regular_one() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder, results, steps = holder_of(one), ProbeResults(), Steps()
        async with Prober(snapshot_holder, results, [one], sleep=steps, prompted_spacing=0.0):
            await steps.probe_ended()
            backend.behaviour = responds(status=500)
            snapshot_holder.observe("baremetal", "api-1", mismatch(90))
            await until_member(snapshot_holder, lambda it: it.freshness is Freshness.STALE)
            assert member(snapshot_holder).usable_versions == upto(89).versions
            for _ in range(2):
                steps.next()
                await steps.probe_ended()

    assert results.reasons == [None, "status", "status", "status"]


async def test_R_A11_a_row_of_legacy_answers_is_probed_at_the_normal_interval() -> None:
    """With an error page in between it takes three more."""
    legacy = responds(text='{"id": "v1", "links": []}', content_type="application/json")
    html = responds(text="<html>starting</html>", status=404, content_type="text/html")
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=1.0)
        snapshot_holder, steps = holder_of(one), Steps()
        seen = []
        async with Prober(snapshot_holder, ProbeResults(), [one], sleep=steps):
            await steps.probe_ended()
            for behaviour in (html, legacy, legacy, html, legacy, legacy, legacy):
                backend.behaviour = behaviour
                steps.next()
                await steps.probe_ended()
                seen.append((member(snapshot_holder).legacy, member(snapshot_holder).error))

    first, second = (f"answers as a server without versions, {number} of 3" for number in (1, 2))
    assert [is_legacy for is_legacy, _ in seen] == [False] * 6 + [True]
    assert [error for _, error in seen[1:3] + seen[4:]] == [first, second, first, second, None]
    assert all(0.8 <= seconds <= 1.2 for seconds in steps.pauses)


async def test_R_A2_a_missing_served_version_has_the_backend_probed_at_once() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend(), interval=LONG)
        snapshot_holder, steps = holder_of(one), Steps()
        async with Prober(snapshot_holder, ProbeResults(), [one], sleep=steps):
            await steps.probe_ended()
            snapshot_holder.observe(
                "baremetal", "api-1", ServedVersionMissing(asyncio.get_running_loop().time())
            )
            assert member(snapshot_holder).usable_versions == NO_VERSIONS
            await until_member(snapshot_holder, lambda it: it.usable_versions == upto(90).versions)


async def test_a_probe_goes_to_the_addresses_of_a_name_and_carries_the_name() -> None:
    """In their order; the first one that takes a connection is probed."""
    async with serving(ironic()) as backend:
        one = service(Backend("api-1", "api.fleet.test", backend.port))

        async def resolve(host: str) -> tuple[str, ...]:
            assert host == "api.fleet.test"
            return "127.0.0.9", "127.0.0.1"

        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one], resolve=resolve):
            await until_member(snapshot_holder, lambda one: one.advertisement is not None)

    assert backend.requests[0].headers["Host"] == f"api.fleet.test:{backend.port}"


async def test_a_name_without_an_address_is_a_failed_probe_that_says_why() -> None:
    one = service(Backend("api-1", "api.fleet.test", 80))

    async def resolve(host: str) -> tuple[str, ...]:
        raise UnresolvedError(f"no address of {host}: there is no such name")

    snapshot_holder, results = holder_of(one), ProbeResults()
    async with Prober(snapshot_holder, results, [one], resolve=resolve):
        await results.probe_ended()
        await until_member(snapshot_holder, lambda one: one.probe_error is not None)

    assert results.reasons[0] == "connect"
    assert member(snapshot_holder).probe_error == (
        "no connection to api.fleet.test:80: no address of api.fleet.test: there is no such name"
    )


# --- many backends ------------------------------------------------------------------------------------


async def test_first_probes_begin_a_few_in_each_turn_of_the_event_loop() -> None:
    """A thousand at once would hold it for as long as a thousand requests take to send."""
    backends = [Backend(f"api-{number}", LOOPBACK, 1) for number in range(5 * BEGUN_PER_TURN)]
    asked: list[str] = []
    turns: list[int] = []

    async def resolve(host: str) -> tuple[str, ...]:
        return (host,)

    class Slow(ProbeResults):
        def observe(
            self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
        ) -> None:
            asked.append(backend)
            self.reasons.append(None)

    snapshot_holder = holder_of(service(*backends))
    async with Prober(
        snapshot_holder, Slow(), [service(*backends, interval=60.0)], resolve=resolve
    ) as prober:
        while len(asked) < len(backends):
            turns.append(len([task for task in asyncio.all_tasks() if task.get_name().startswith("probe ")]))
            await asyncio.sleep(0)
        assert prober.last_probe_at.keys() == {("baremetal", backend.name) for backend in backends}
    begun = [after - before for before, after in pairwise([0, *turns])]
    assert max(begun) <= BEGUN_PER_TURN
    assert sorted(asked) == sorted(backend.name for backend in backends)


async def test_a_bounded_number_of_probes_is_under_way_at_a_time() -> None:
    """Backends that accept and say nothing take a descriptor each until the deadline."""
    answer = asyncio.Event()
    most = open_now = 0

    async def wait(request: web.Request) -> web.StreamResponse:
        nonlocal most, open_now
        open_now += 1
        most = max(most, open_now)
        if open_now == AT_ONCE:
            answer.set()
        await answer.wait()
        open_now -= 1
        return await ironic()(request)

    async with serving(wait) as backend:
        backends = [backend.backend(f"api-{number}") for number in range(AT_ONCE + 40)]
        one = service(*backends, interval=60.0, timeout=20.0)
        snapshot_holder = holder_of(one)
        async with Prober(snapshot_holder, ProbeResults(), [one]):
            await until_snapshot(snapshot_holder, lambda now: now.fleet.member_sets["baremetal"].all_probed)
    assert most == AT_ONCE


async def test_backends_that_are_removed_before_their_first_probe_are_not_probed() -> None:
    async with serving(ironic()) as backend:
        backends = [backend.backend(f"api-{number}") for number in range(4 * BEGUN_PER_TURN)]
        left = service(backends[-1], interval=60.0)
        snapshot_holder = holder_of(service(*backends))
        async with Prober(snapshot_holder, ProbeResults(), [service(*backends, interval=60.0)]) as prober:
            prober.retarget([left])
            await until_member(snapshot_holder, lambda one: one.probed, backends[-1].name)
            assert prober.last_probe_at.keys() == {("baremetal", backends[-1].name)}


@pytest.mark.parametrize("seconds", [0.016, 1.0, 5.3])
def test_probes_that_are_due_at_nearly_the_same_time_begin_together(seconds: float) -> None:
    """Each a little later than its pause says, never earlier."""
    began = [1000.0 + number * TOGETHER / 10 for number in range(100)]

    begin = [now + until_others(seconds, now) for now in began]

    assert all(0 < at - (now + seconds) <= TOGETHER * 1.001 for at, now in zip(begin, began, strict=True))
    assert len({round(at, 6) for at in begin}) <= 11
