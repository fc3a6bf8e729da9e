"""Passive ejection: who is ejected, for how long, and how a member comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.selection import ALL_REQUESTS
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.failures import Ejection, EjectionReason
from gateway.core.fleet.fleet import ConnectFailed, Drain, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.backends.ejection import Ejections
from gateway.dataplane.local_responses.failures import FAILURES, Failure
from gateway.telemetry.metrics import Metrics
from tests.kit.backends import UpstreamConnection, always, no_reply, refusing_backend, serve
from tests.kit.examples import examples
from tests.kit.ironic import NEW, reconfigure, versions
from tests.kit.messages import request, response
from tests.kit.networks import closed_port
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, probe_succeeded, reload, service_of, wait_ticks

PLAN: Final = Ejection(failures=3, time=10.0, max_time=25.0, max_share=50)


class Fleet:
    """`Ejections` with a clock that stands, in front of members that are only names."""

    def __init__(self, number: int = 4, plan: Ejection | None = PLAN) -> None:
        self.now = 1000.0
        self.holder = SnapshotHolder(Snapshot.configured([service_with(number, plan)], now=0.0))
        self.told: list[str] = []
        self.metrics = Metrics()
        self.metrics.watch(self.holder)
        self.ejections = Ejections(
            self.holder,
            self.metrics,
            lambda: self.now,
            lambda key, text, _: self.told.append(f"{key}: {text}"),
        )
        self.ejections.tick()

    def member(self, number: int) -> Member:
        return self.holder.current.fleet.member_sets["baremetal"].all[number]

    def fail(self, number: int, failure: Failure = Failure.NO_REPLY, times: int = 3) -> None:
        for _ in range(times):
            self.ejections.failed(self.member(number), failure, reused=False)

    def respond(self, number: int, status: int = 200) -> None:
        if self.ejections.watching:
            self.ejections.responded(self.member(number), status)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.ejections.tick()

    def share(self, number: int) -> float:
        """Of the requests of a member."""
        return self.ejections.held_back.get(f"baremetal/b{number}", ALL_REQUESTS) / ALL_REQUESTS

    @property
    def ejected(self) -> list[int]:
        return sorted(int(key[-1]) for key in self.ejections.ejected())

    def reconfigure(self, number: int, plan: Ejection | None) -> None:
        service = service_with(number, plan)
        self.holder.update(Snapshot.configured([service], now=self.now, after=self.holder.current))


def service_with(number: int, plan: Ejection | None) -> Service:
    backends = [
        Backend(f"b{each}", "127.0.0.1", 6385 + each, declared=versions(NEW)) for each in range(number)
    ]
    return replace(service_of(*backends), ejection=plan)


# --- who is ejected ----------------------------------------------------------------------------------------


def test_so_many_failures_in_a_row_eject() -> None:
    fleet = Fleet()
    fleet.fail(0, times=2)
    fleet.respond(0)
    fleet.fail(0, times=2)
    assert fleet.ejected == []

    fleet.fail(0, times=1)

    assert fleet.ejected == [0]
    assert fleet.share(0) == 0
    (line,) = fleet.told
    assert line == (
        "baremetal/b0: ejected for 10 s: connections broke, or responses were invalid, "
        "3 in a row; check http://127.0.0.1:6385"
    )
    samples = b"".join(fleet.metrics.exposition("")[0]).decode()
    assert 'skewgate_ejections_total{backend="b0",reason="bad_gateway",service="baremetal"} 1' in samples


@pytest.mark.parametrize("failure", list(Failure))
def test_only_faults_of_the_backend_count(failure: Failure) -> None:
    fleet = Fleet()
    fleet.fail(0, failure)

    counts = failure in {
        *(Failure.NOT_SENT, Failure.NO_REPLY, Failure.BAD_REPLY, Failure.REPLY_CUT),
        *(Failure.REPLY_TIMEOUT, Failure.REPLY_STALLED, Failure.MISPLACED),
    }
    assert fleet.ejected == ([0] if counts else [])
    assert not counts or not FAILURES[failure].is_of_client


def test_a_closed_idle_connection_is_no_fault() -> None:
    fleet = Fleet()
    for failure in (Failure.NO_REPLY, Failure.NOT_SENT):
        for _ in range(9):
            fleet.ejections.failed(fleet.member(0), failure, reused=True)
    assert not fleet.ejections.watching


def test_what_is_counted_is_configured() -> None:
    fleet = Fleet(plan=replace(PLAN, on=frozenset({EjectionReason.TIMEOUT, EjectionReason.SERVER_ERROR})))
    fleet.fail(0)
    fleet.fail(1, Failure.REPLY_TIMEOUT)
    for _ in range(3):
        fleet.respond(2, 500)
        fleet.respond(3, 404)
    assert fleet.ejected == [1, 2]

    off = Fleet(plan=None)
    off.fail(0, times=99)
    assert off.ejected == []
    assert not off.ejections.watching


def test_an_answer_with_500_is_an_answer() -> None:
    fleet = Fleet()
    fleet.fail(0, times=2)
    fleet.respond(0, 500)
    fleet.fail(0, times=2)
    assert fleet.ejected == []


@pytest.mark.parametrize(
    "members, share, most", [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (4, 100, 4)]
)
def test_no_more_than_max_share_at_once(members: int, share: int, most: int) -> None:
    fleet = Fleet(members, replace(PLAN, max_share=share))
    for number in range(members):
        fleet.fail(number, times=9)
    assert fleet.ejected == list(range(most))


def test_the_next_failure_ejects_when_there_is_room_again() -> None:
    fleet = Fleet(2)
    fleet.fail(0)
    fleet.fail(1)
    assert fleet.ejected == [0]
    fleet.after(11)
    fleet.fail(1, times=1)
    assert fleet.ejected == [1]


def test_after_a_drain_those_that_were_ejected_first_come_back() -> None:
    fleet = Fleet(4)
    fleet.fail(0)
    fleet.after(1)
    fleet.fail(1)
    fleet.holder.apply("baremetal", Drain("b2"))
    fleet.after(0.25)
    assert fleet.ejected == [1]
    assert fleet.share(0) == pytest.approx(0.1, abs=0.01)


def test_a_drained_member_is_not_ejected() -> None:
    fleet = Fleet()
    fleet.holder.apply("baremetal", Drain("b0"))
    fleet.fail(0, times=9)
    assert fleet.ejected == []


# --- for how long, and how it comes back -------------------------------------------------------------------


def test_the_time_grows_up_to_its_cap_and_is_forgotten() -> None:
    fleet = Fleet()
    lengths = []
    for _ in range(4):
        fleet.fail(0, times=3)
        began = fleet.now
        while fleet.ejected:
            fleet.after(0.5)
        lengths.append(fleet.now - began)
    assert lengths == [10, 20, 25, 25]
    for _ in range(40):  # its share grows for 10 s; then one is forgotten in each 10 s
        fleet.after(0.5)
    fleet.fail(0)
    assert "ejected for 25 s" in fleet.told[-1]
    fleet.after(25)
    for _ in range(200):
        fleet.after(0.5)
    assert fleet.share(0) == 1
    assert not fleet.ejections.watching, "forgotten"
    fleet.fail(0)
    assert "ejected for 10 s" in fleet.told[-1]


def test_its_share_grows_when_it_comes_back() -> None:
    fleet = Fleet()
    fleet.fail(0)
    shares = []
    for _ in range(21):
        fleet.after(1)
        shares.append(round(fleet.share(0), 2))
    assert shares[:10] == [0] * 9 + [0.1]
    assert shares[10:20] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1], abs=0.01)
    assert fleet.ejections.held_back == {}, "costs nothing any more"
    assert fleet.told[-1] == "baremetal/b0: no longer ejected; back to its full share of requests within 10 s"


def test_one_that_comes_back_is_ejected_by_its_first_failure() -> None:
    fleet = Fleet()
    fleet.fail(0)
    fleet.after(10)
    fleet.respond(0)
    fleet.fail(0, times=1)
    assert fleet.ejected == [0]
    assert "ejected for 20 s" in fleet.told[-1]


def test_what_happens_to_an_ejected_one_does_not_make_it_longer() -> None:
    """It is used where nobody else is left."""
    fleet = Fleet()
    fleet.fail(0)
    fleet.after(5)
    fleet.fail(0, times=9)
    fleet.after(5)
    assert fleet.ejected == []


def known_by_probes(number: int = 2) -> Fleet:
    fleet = Fleet(number)
    service = service_of(*(Backend(f"b{each}", "127.0.0.1", 6385 + each) for each in range(number)))
    fleet.holder.update(
        Snapshot.configured([replace(service, ejection=PLAN)], now=fleet.now, after=fleet.holder.current)
    )
    for each in range(number):
        probe(fleet, each)
    return fleet


def probe(fleet: Fleet, number: int) -> None:
    advertisement = Advertisement(versions(NEW))
    fleet.holder.observe("baremetal", f"b{number}", ProbeSucceeded(advertisement, fleet.now))


def refuse_connections(fleet: Fleet, times: int = 3) -> None:
    fleet.holder.observe("baremetal", "b0", ConnectFailed(fleet.now))
    for _ in range(times):
        fleet.ejections.connect_failed("baremetal", "b0")


def test_a_probe_ends_the_first_ejection_for_connections() -> None:
    fleet = known_by_probes()
    refuse_connections(fleet)
    assert fleet.ejected == [0]
    fleet.after(1)
    assert fleet.ejected == [0]
    probe(fleet, 0)
    fleet.after(1)
    assert fleet.ejected == []
    refuse_connections(fleet, times=1)
    fleet.after(1)
    probe(fleet, 0)
    fleet.after(1)
    assert fleet.ejected == [0], "the second one lasts its time, or its growth would mean nothing"


def test_a_probe_does_not_end_one_for_time_outs() -> None:
    fleet = known_by_probes()
    fleet.fail(0, Failure.REPLY_TIMEOUT)
    fleet.after(1)
    probe(fleet, 0)
    fleet.after(1)
    assert fleet.ejected == [0]


@pytest.mark.parametrize("change", ["off", "removed", "another address"])
def test_a_reload_forgets_what_does_not_apply_any_more(change: str) -> None:
    fleet = Fleet(3)
    fleet.fail(2)
    assert fleet.ejected == [2]
    match change:
        case "off":
            fleet.reconfigure(3, None)
        case "removed":
            fleet.reconfigure(2, PLAN)
        case _:
            service = service_of(*(Backend(f"b{n}", "127.0.0.2", 1 + n) for n in range(3)))
            reconfigure(fleet.holder, [service])
    fleet.after(0.25)
    assert fleet.ejected == []
    assert fleet.ejections.held_back == {}
    assert not fleet.ejections.watching


def test_a_reload_keeps_what_still_applies() -> None:
    fleet = Fleet(3)
    fleet.fail(2)
    fleet.reconfigure(4, replace(PLAN, failures=9))
    fleet.after(0.25)
    assert fleet.ejected == [2]


class EjectionLaws(RuleBasedStateMachine):
    """Whatever happens: never more than `max_share`, and everything is over in the end."""

    @initialize(members=st.integers(1, 6), share=st.sampled_from([1, 34, 50, 100]))
    def begin(self, members: int, share: int) -> None:
        self.members, self.plan = members, replace(PLAN, max_share=share)
        self.fleet = Fleet(members, self.plan)

    @rule(number=st.integers(0, 5), failure=st.sampled_from(list(Failure)), times=st.integers(1, 4))
    def fails(self, number: int, failure: Failure, times: int) -> None:
        self.fleet.fail(number % self.members, failure, times)

    @rule(number=st.integers(0, 5), status=st.sampled_from([200, 503]))
    def responds(self, number: int, status: int) -> None:
        self.fleet.respond(number % self.members, status)

    @rule(seconds=st.sampled_from([0.25, 3.0, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.fleet.after(seconds)

    @rule(number=st.integers(0, 5), drained=st.booleans())
    def is_drained(self, number: int, drained: bool) -> None:
        self.fleet.holder.apply("baremetal", Drain(f"b{number % self.members}", drained))
        self.fleet.after(0.25)

    @rule(members=st.integers(1, 6))
    def is_reloaded(self, members: int) -> None:
        self.members = members
        self.fleet.reconfigure(members, self.plan)
        self.fleet.after(0.25)

    @invariant()
    def never_too_many(self) -> None:
        members = self.fleet.holder.current.fleet.member_sets["baremetal"].all
        in_service = sum(member.in_service for member in members)
        assert len(self.fleet.ejected) <= in_service * self.plan.max_share / 100
        held_back = self.fleet.ejections.held_back
        assert {key for key, share in held_back.items() if not share} == set(self.fleet.ejections.ejected())
        assert all(0 <= share < ALL_REQUESTS for share in held_back.values())

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            for number in range(self.members):
                self.fleet.respond(number)
            for _ in range(600):
                self.fleet.after(1)
                for number in range(self.members):
                    self.fleet.respond(number)
            assert self.fleet.ejections.held_back == {}
            assert not self.fleet.ejections.watching


TestEjectionLaws = EjectionLaws.TestCase
TestEjectionLaws.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)


# --- through a gateway -------------------------------------------------------------------------------------


def ejected(gateway: Gateway) -> set[str]:
    return {key.partition("/")[2] for key in gateway.worker.report().ejected}


async def no_http(upstream: UpstreamConnection) -> None:
    await upstream.request()
    await upstream.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


async def cut(upstream: UpstreamConnection) -> None:
    message = await upstream.request()
    version = message.one("X-OpenStack-Ironic-API-Version")
    head = f"HTTP/1.1 200 OK\r\nX-OpenStack-Ironic-API-Version: {version}\r\nContent-Length: 99\r\n\r\n{{"
    await upstream.send(head.encode())


@pytest.mark.parametrize("script", [no_reply, no_http, cut])
async def test_a_backend_that_breaks_connections_is_ejected(
    testbed: Testbed, script: Callable[[UpstreamConnection], object]
) -> None:
    bad, good = await testbed.backend(script), await testbed.backend()  # type: ignore[arg-type]
    gateway = await testbed.gateway(bad, good)
    gateway.prefer(0, of=2)
    for _ in range(5):
        client = await gateway.client()
        await client.send(request("DELETE"))
        await client.reader.read(1 << 16)
    assert ejected(gateway) == {"api-1"}

    offer = gateway.snapshot_holder.current.views["baremetal"].offer
    for _ in range(5):
        assert (await gateway.request(request())).status == 200

    assert len(bad.requests) == 5
    assert gateway.snapshot_holder.current.views["baremetal"].offer is offer
    assert gateway.metric("skewgate_ejections_total", backend="api-1", reason="bad_gateway") == 1


async def test_a_backend_that_refuses_connections_is_ejected(testbed: Testbed) -> None:
    good, dead = await testbed.backend(), refusing_backend()
    gateway = await testbed.gateway(dead, good)
    gateway.prefer(0, of=2)
    for _ in range(5):
        probe_succeeded(gateway, dead, NEW)  # its probes succeed, or it would be tried last
        assert (await gateway.request(request())).status == 200
    assert ejected(gateway) == {"dead"}
    assert gateway.metric("skewgate_retries_total", reason="connect") == 5

    probe_succeeded(gateway, dead, NEW)
    assert (await gateway.request(request())).status == 200

    assert gateway.metric("skewgate_retries_total", reason="connect") == 5


async def test_the_last_that_serves_a_version_is_used_all_the_same(testbed: Testbed) -> None:
    """Both are ejected: then none counts as ejected."""
    answers = iter([no_reply] * 3)

    async def recovers(upstream: UpstreamConnection) -> None:
        script = next(answers, None)
        await (serve if script is None else script)(upstream)

    backend = await testbed.backend(recovers)
    gateway = await testbed.gateway(backend)
    reload(gateway, ejection=Ejection(failures=3, max_share=100))
    for _ in range(3):
        assert (await gateway.request(request("POST"))).status == 502
    assert ejected(gateway) == {"api-1"}

    assert (await gateway.request(request("POST"))).status == 200


async def test_errors_of_the_api_count_only_if_they_are_configured_to(testbed: Testbed) -> None:
    broken, good = await testbed.backend(always(response(500, body=b"{}"))), await testbed.backend()
    gateway = await testbed.gateway(broken, good)
    gateway.prefer(0, of=2)
    for _ in range(6):
        assert (await gateway.request(request())).status == 500
    assert ejected(gateway) == set()
    reload(gateway, ejection=Ejection(failures=2, on=frozenset({EjectionReason.SERVER_ERROR})))
    await wait_ticks(gateway, 1)

    for _ in range(2):
        assert (await gateway.request(request())).status == 500

    assert (await gateway.request(request())).status == 200
    assert ejected(gateway) == {"api-1"}


async def test_it_comes_back_by_itself(testbed: Testbed) -> None:
    answers = iter([no_reply] * 2)

    async def recovers(upstream: UpstreamConnection) -> None:
        script = next(answers, None)
        await (serve if script is None else script)(upstream)

    bad, good = await testbed.backend(recovers), await testbed.backend()
    gateway = await testbed.gateway(bad, good)
    reload(gateway, ejection=Ejection(failures=2, time=0.2))
    gateway.prefer(0, of=2)
    for _ in range(2):
        assert (await gateway.request(request("POST"))).status == 502
    assert ejected(gateway) == {"api-1"}
    await until(lambda: not gateway.worker.context.held_back)

    assert (await gateway.request(request())).status == 200
    assert len(bad.requests) == 3


async def test_a_shortage_of_the_gateway_is_no_fault_of_the_backend(testbed: Testbed) -> None:
    """A port that nobody listens on is one; without an address to connect from it is the gateway's own."""
    good = await testbed.backend()
    dead = Backend("dead", "127.0.0.1", closed_port(), declared=versions(NEW))

    async def no_descriptors(host: str) -> tuple[str, ...]:
        raise OSError(24, "Too many open files")

    gateway = await testbed.gateway(dead, good, resolve=no_descriptors)
    for _ in range(6):
        assert (await gateway.request(request())).status == 503
    assert not gateway.worker.context.ejections.watching
