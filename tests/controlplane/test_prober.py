"""Probes against real sockets: what is believed, what is not, and that nothing known is ever erased."""

from __future__ import annotations

import asyncio
import gzip
import random

import pytest
from aiohttp import web

from gateway.controlplane.cell import Cell
from gateway.controlplane.journal import Journal
from gateway.controlplane.prober import LONGEST_PAUSE, Prober, pause
from gateway.core.backend import Backend, BackendTls, Standing
from gateway.core.dialect import Advert, ProbeRequest
from gateway.core.fleet import Contradicted, Overheard, Unreached
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.telemetry.recent import LastHour
from tests.controlplane.fakes import (
    Behaviour,
    cell_of,
    ironic,
    member,
    service,
    serving,
    until_member,
)


class Counted:
    """Stands where metrics stand: every probe's end, in order."""

    def __init__(self) -> None:
        self.ends: list[str | None] = []

    def probed(self, service: str, backend: str, seconds: float, failure: str | None) -> None:
        assert (service, seconds >= 0) == ("baremetal", True)
        self.ends.append(failure)


class Steps:
    """A sleep that lasts until the test lets the next probe go; remembers how long it should have been."""

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


def versions(highest: int) -> VersionSet:
    return VersionSet.between(Version(1, 1), Version(1, highest))


async def test_an_answer_becomes_the_advert() -> None:
    async with serving(ironic("1.1", "1.90")) as backend:
        cell = cell_of(service(backend.backend()))
        async with Prober(cell, Counted(), [service(backend.backend())], wall=lambda: 1790000000.5) as prober:
            await until_member(cell, lambda one: one.advert is not None)

            assert member(cell).advert == Advert(versions(90))
            assert member(cell).standing is Standing.FRESH
            assert prober.last_probe_at == {("baremetal", "api-1"): 1790000000.5}


async def test_a_question_carries_nothing_but_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """O4: no client's headers, no credentials of the environment, no compression, no cookies, no proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def with_cookie(request: web.Request) -> web.StreamResponse:
        response = await ironic()(request)
        response.headers["Set-Cookie"] = "a=b"
        return response

    async with serving(with_cookie) as backend:
        one = service(backend.backend(), headers=(("X-Auth-Token", "t"), ("accept", "text/x")))
        async with Prober(cell_of(one), Counted(), [one]):
            await backend.came(3)

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


def says(**reply: object) -> Behaviour:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(**reply)  # type: ignore[arg-type]

    return answer


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
    ("document", says(text="<html>It works!</html>", content_type="text/html")),
    ("document", says(text='{"id": "v2"}', content_type="application/json")),
    ("document", says(body=b"[" * 100_000)),
    ("document", says(body=b"\xff\xfe")),
    ("range", ironic("1.90", "1.1")),
    ("range", ironic("1.1", "2.9")),
    ("range", ironic("1.1", "1.٩")),
    ("status", says(status=503)),
    ("status", says(status=401)),
    ("redirect", redirects),
    ("encoding", compressed),
    ("too_large", says(body=b" " * (1024 * 1024 + 1))),
    ("too_large", endless),
    ("timeout", slow),
    ("protocol", cut),
    ("protocol", no_http),
]


@pytest.mark.parametrize("reason, behaviour", NONSENSE, ids=[f"{n}-{r}" for n, (r, _) in enumerate(NONSENSE)])
async def test_nonsense_is_a_failed_probe_and_erases_nothing(reason: str, behaviour: Behaviour) -> None:
    """O1, O2, O3: counted, shown, and what was known stays known."""
    async with serving(ironic("1.1", "1.58")) as backend:
        one = service(backend.backend(), timeout=0.5)
        cell, counted, steps = cell_of(one), Counted(), Steps()
        async with Prober(cell, counted, [one], sleep=steps):
            await steps.probe_ended()
            backend.behaviour = behaviour
            steps.next()
            await steps.probe_ended()

        assert counted.ends == [None, reason]
        assert member(cell).standing is Standing.STALE
        assert member(cell).advert == Advert(versions(58))
        error = member(cell).error
        assert error
        assert error.isascii()
        assert error.isprintable()


async def test_a_backend_that_refuses_connections_ages_and_comes_back() -> None:
    """fresh -> stale -> stale -> lost -> fresh, the advert staying all the while."""
    async with serving(ironic()) as backend:
        one = service(backend.backend())
        cell, counted, steps = cell_of(one), Counted(), Steps()
        seen: list[Standing] = []
        async with Prober(cell, counted, [one], sleep=steps):
            await steps.probe_ended()
            seen.append(member(cell).standing)
            await backend.stop()
            for _ in range(4):
                steps.next()
                await steps.probe_ended()
                seen.append(member(cell).standing)
                assert member(cell).advert == Advert(versions(58))
            assert member(cell).error == f"no connection to 127.0.0.1:{backend.port}: connection refused"
            backend.behaviour = ironic("1.1", "1.90")
            await backend.start()
            steps.next()
            await steps.probe_ended()
            seen.append(member(cell).standing)

        fresh, stale, lost = Standing.FRESH, Standing.STALE, Standing.LOST
        assert seen == [fresh, stale, stale, lost, lost, fresh]
        assert counted.ends == [None, *["connect"] * 4, None]
        assert (member(cell).advert, member(cell).error) == (Advert(versions(90)), None)


async def test_a_smaller_range_is_a_fact() -> None:
    """O3: a roll-back must be seen."""
    async with serving(ironic("1.1", "1.90")) as backend:
        one = service(backend.backend())
        cell = cell_of(one)
        async with Prober(cell, Counted(), [one]):
            await until_member(cell, lambda it: it.advert == Advert(versions(90)))
            backend.behaviour = ironic("1.1", "1.58")
            await until_member(cell, lambda it: it.advert == Advert(versions(58)))


async def test_a_backend_that_was_never_heard_is_unknown_and_probed_on() -> None:
    async with serving(says(status=500)) as backend:
        one = service(backend.backend())
        cell = cell_of(one)
        async with Prober(cell, Counted(), [one]):
            await until_member(cell, lambda it: it.failures == 3)
            assert (member(cell).standing, member(cell).advert) == (Standing.UNKNOWN, None)
            backend.behaviour = ironic()
            await until_member(cell, lambda it: it.standing is Standing.FRESH)


async def test_what_a_probe_brings_is_as_old_as_its_question() -> None:
    """An answer that was asked for before what a reply has said since must not overwrite it."""
    arrived, answer_now = asyncio.Event(), asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await answer_now.wait()
        return await ironic("1.1", "1.58")(request)

    async with serving(late) as backend:
        one = service(backend.backend())
        cell, counted, steps = cell_of(one), Counted(), Steps()
        now = 10.0
        async with Prober(cell, counted, [one], sleep=steps, clock=lambda: now):
            await asyncio.wait_for(arrived.wait(), 10)
            now = 11.0
            cell.observe("baremetal", "api-1", Overheard(Advert(versions(90)), now))
            answer_now.set()
            await steps.probe_ended()

        assert counted.ends == [None]
        assert member(cell).advert == Advert(versions(90))


async def test_one_probe_at_a_time() -> None:
    """O4: single flight, however short the interval."""
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
        async with Prober(cell_of(one), Counted(), [one]):
            await backend.came(5)

    assert most == 1


async def test_a_declared_backend_is_not_asked_and_believed_again_in_its_rhythm() -> None:
    declared = Backend("declared", "127.0.0.1", 1, declared=versions(31))
    one, steps, counted = service(declared), Steps(), Counted()
    cell = cell_of(one)
    async with Prober(cell, counted, [one], sleep=steps) as prober:
        await steps.probe_ended()
        cell.observe("baremetal", "declared", Contradicted(Version(1, 31), asyncio.get_running_loop().time()))
        assert Version(1, 31) not in member(cell, "declared").usable

        steps.next()
        await steps.probe_ended()

        assert member(cell, "declared").usable == versions(31)
        assert (counted.ends, prober.last_probe_at) == ([], {})


async def test_a_declared_backend_that_is_doubted_again_and_again_is_believed_ever_later() -> None:
    declared = Backend("declared", "127.0.0.1", 1, declared=versions(31))
    one, steps = service(declared), Steps()
    cell = cell_of(one)
    async with Prober(cell, Counted(), [one], sleep=steps):
        await steps.probe_ended()
        for _ in range(4):
            cell.observe("baremetal", "declared", Unreached(asyncio.get_running_loop().time()))
            steps.next()
            await steps.probe_ended()
            assert not member(cell, "declared").refusing
        steps.next()
        await steps.probe_ended()

    first, *doubted, last = steps.pauses
    assert doubted[-1] > 3 * first
    assert last < 2 * first


async def test_every_backend_is_asked_on_its_own_address_and_a_declared_one_never() -> None:
    async with (
        serving(ironic("1.1", "1.58")) as old,
        serving(ironic("1.1", "1.90")) as new,
        serving(ironic()) as mute,
    ):
        declared = Backend("declared", "127.0.0.1", mute.port, declared=versions(31))
        one = service(old.backend("old"), new.backend("new"), declared)
        cell = cell_of(one)
        async with Prober(cell, Counted(), [one]):
            await until_member(cell, lambda it: it.advert == Advert(versions(58)), "old")
            await until_member(cell, lambda it: it.advert == Advert(versions(90)), "new")
            await old.came(3)

        assert mute.requests == []
        assert member(cell, "declared").standing is Standing.FRESH


def reload_to(cell: Cell, prober: Prober, *services: Service) -> None:
    cell.update(Snapshot.configured(services, after=cell.current, now=0.0))
    prober.retarget(services)


async def test_after_a_reload_the_new_backends_are_asked_and_the_old_ones_no_more() -> None:
    async with serving(ironic("1.1", "1.58")) as old, serving(ironic("1.1", "1.90")) as new:
        before, after = service(old.backend("old")), service(new.backend("new"))
        cell = cell_of(before)
        async with Prober(cell, Counted(), [before]) as prober:
            await until_member(cell, lambda it: it.advert is not None, "old")
            reload_to(cell, prober, after)
            asked = len(old.requests)
            await new.came(3)

            assert len(old.requests) <= asked + 1, "one may have been on its way"
            assert list(prober.last_probe_at) == [("baremetal", "new")]


async def test_a_backend_that_stays_keeps_its_rhythm_and_one_that_moved_is_asked_anew() -> None:
    async with serving(ironic("1.1", "1.58")) as here, serving(ironic("1.1", "1.90")) as there:
        before = service(here.backend())
        cell, steps = cell_of(before), Steps()
        async with Prober(cell, Counted(), [before], sleep=steps) as prober:
            await steps.probe_ended()

            reload_to(cell, prober, service(here.backend()))
            assert len(here.requests) == 1
            steps.next()
            await steps.probe_ended()
            assert len(here.requests) == 2

            reload_to(cell, prober, service(there.backend()))
            await steps.probe_ended()
            assert len(there.requests) == 1
            assert member(cell).advert == Advert(versions(90))


async def test_a_bug_in_a_dialect_is_a_failed_probe_and_the_probes_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = service(Backend("api-1", "127.0.0.1", 1))

    def broken(answers: object, path: object) -> object:
        raise KeyError("bug")

    monkeypatch.setattr(one.dialect, "probe", broken)
    cell, counted, steps = cell_of(one), Counted(), Steps()
    async with Prober(cell, counted, [one], sleep=steps):
        await steps.probe_ended()
        steps.next()
        await steps.probe_ended()

    assert counted.ends == ["internal", "internal"]
    assert "KeyError" in caplog.text


async def test_a_dialect_that_never_settles_is_stopped_after_four_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(ironic()) as backend:
        one = service(backend.backend())
        monkeypatch.setattr(one.dialect, "probe", lambda answers, path: ProbeRequest(f"/{len(answers)}"))
        cell, counted, steps = cell_of(one), Counted(), Steps()
        async with Prober(cell, counted, [one], sleep=steps):
            await steps.probe_ended()

    assert counted.ends == ["steps"]
    assert [request.path for request in backend.requests] == ["/0", "/1", "/2", "/3"]


@pytest.mark.parametrize("tls", [BackendTls(), BackendTls(verify=False), BackendTls(ca="/nowhere/ca.pem")])
async def test_a_backend_that_cannot_speak_tls_is_told_apart_from_one_that_is_down(tls: BackendTls) -> None:
    async with serving(ironic()) as backend:
        one = service(Backend("api-1", "127.0.0.1", backend.port, tls=tls))
        cell, counted, steps = cell_of(one), Counted(), Steps()
        async with Prober(cell, counted, [one], sleep=steps):
            await steps.probe_ended()

    assert counted.ends == ["tls"]
    assert "TLS" in (member(cell).error or "")


async def test_closing_ends_a_probe_that_is_under_way() -> None:
    async with serving(slow) as backend:
        one = service(backend.backend(), timeout=60.0)
        prober = Prober(cell_of(one), Counted(), [one])
        await prober.start()
        await backend.came(1)

        await asyncio.wait_for(prober.close(), 5)

        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("probe ")]


async def test_the_log_has_one_line_a_change_and_none_a_probe(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving(ironic("1.1", "1.58")) as backend:
        one = service(backend.backend())
        cell, steps = cell_of(one), Steps()
        cell.subscribe(Journal(lambda: 0.0, lambda _: LastHour({}, 0.0)).note_changes)

        async def probe() -> None:
            steps.next()
            await steps.probe_ended()

        async with Prober(cell, Counted(), [one], sleep=steps):
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

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("skewgate.")]
    where = f"127.0.0.1:{backend.port}"
    refused = f"no connection to {where}: connection refused"
    assert lines == [
        "baremetal/api-1: serves 1.1-1.58, fresh",
        "baremetal: offer none -> 1.1-1.58, phase uniform",
        "baremetal/api-1: serves 1.1-1.58 -> 1.1-1.90, fresh",
        "baremetal: offer 1.1-1.58 -> 1.1-1.90, phase uniform",
        f"baremetal/api-1: stale, its last probe failed: {refused}",
        (
            "baremetal/api-1: lost after three failed probes, tried last until it answers; "
            f"check http://{where}: {refused}"
        ),
        "baremetal/api-1: answers again, serves 1.1-1.90",
    ]


@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0, 29.0, 120.0])
def test_pauses_stay_within_their_bounds(interval: float) -> None:
    """Healthy: the interval ± 20 %. Failing: longer each time, at most 8 intervals and 30 s, never below the
    interval."""
    chance = random.Random(1)
    healthy = [pause(0, interval, chance) for _ in range(500)]
    assert all(0.8 * interval <= each <= 1.2 * interval for each in healthy)
    assert max(healthy) - min(healthy) > 0.3 * interval, "there is jitter"

    longest = max(1.2 * interval, min(8 * interval, LONGEST_PAUSE))
    for failures in range(2, 40):
        for _ in range(50):
            assert 0.8 * interval <= pause(failures, interval, chance) <= longest


def test_pauses_double_with_every_failure_after_the_first() -> None:
    class NoJitter(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return 1.0

    assert [pause(failures, 1.0, NoJitter()) for failures in range(7)] == [1, 1, 2, 4, 8, 8, 8]
    assert [pause(failures, 10.0, NoJitter()) for failures in range(5)] == [10, 10, 20, 30, 30]
    assert [pause(failures, 60.0, NoJitter()) for failures in range(3)] == [60, 60, 60]


async def test_failures_lengthen_the_pause_and_an_answer_shortens_it_again() -> None:
    async with serving(says(status=500)) as backend:
        one = service(backend.backend(), interval=1.0)
        steps = Steps()
        async with Prober(cell_of(one), Counted(), [one], sleep=steps, chance=random.Random(7)):
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
        low <= each <= high
        for each, (low, high) in zip(steps.pauses, [(0.8, 1.2), *tolerances[1:]], strict=True)
    )
