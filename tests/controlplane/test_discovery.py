"""Sources are looked at in the background, and what they list is in force; whatever they say, nothing is
lost."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.discovery.listers import FILE_INTERVAL, Answer, FileLister, Listed, Lister
from gateway.controlplane.name_lookup import NO_ANSWER, NO_SUCH_NAME, Failed
from gateway.controlplane.resolver import (
    FIRST_RETRY,
    JITTER,
    LINES_PER_INTERVAL,
    LONGEST_RETRY,
    LONGEST_TTL,
    SHORTEST_TTL,
)
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.text import format_state, parse_state
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Drain, ProbeSucceeded
from gateway.core.fleet.offer_state import SavedAdvertisement, SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.fleet.source import MAX_BACKENDS, Address, Source, SourceKind
from gateway.keys.addresses import Address as ListenAddress
from gateway.settings.own_addresses import OwnAddress, own_address_of, own_addresses
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.listen import Listen
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, upto
from tests.kit.waiting import PATIENCE

SOURCE = Source(SourceKind.DNS, "http://api.svc:80", "api.svc", 80, leave_grace=60.0)
KNOWN = upto(58)


def listed(*numbers: int, ttl: float = 5.0) -> Listed:
    return Listed(tuple(Address(f"10.0.0.{number}", 80) for number in numbers), ttl)


class Script(Lister):
    """Gives the answers of a test in turn; the last one stays. An exception is raised."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.polls = 0

    async def poll(self) -> Answer:
        self.polls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Targets:
    """Stands in for resolver and prober, and keeps whom they were told."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []

    def retarget(self, services: Iterable[Service]) -> None:
        self.names.append([each.name for one in services for each in one.backends])


class Running:
    """A discovery in front of a snapshot holder, and time, which passes when the test says so."""

    def __init__(
        self, *services: Service, scripts: dict[str, Lister], own: Sequence[OwnAddress] = ()
    ) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._paused = asyncio.Semaphore(0)
        self._go = asyncio.Semaphore(0)
        self.discovery = Discovery(
            lambda source: scripts[source.key],
            clock=lambda: self.now,
            wall=lambda: 1000.0 + self.now,
            rng=random.Random(7),
            sleep=self._sleep,
        )
        self.holder = SnapshotHolder(
            Snapshot.configured(self.discovery.completed(services), now=0.0), lambda: self.now
        )
        self.resolver, self.prober = Targets(), Targets()
        self.discovery.connect(self.holder, resolver=self.resolver, prober=self.prober, own=own)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._paused.release()
        await self._go.acquire()
        self.now += seconds

    async def ended(self) -> None:
        """Wait for the beginning of a pause."""
        await asyncio.wait_for(self._paused.acquire(), PATIENCE)

    async def next(self, times: int = 1) -> None:
        """Let the pause end, and wait for the next one."""
        for _ in range(times):
            self._go.release()
            await self.ended()

    @property
    def backends(self) -> dict[str, bool]:
        """ReplicaInfo is there, and who of them is leaving."""
        members = self.holder.current.fleet.member_sets["baremetal"].all
        return {member.backend.name.partition(":")[0][7:]: member.backend.leaving for member in members}

    def hear(self, *numbers: int) -> None:
        for number in numbers:
            self.holder.observe("baremetal", f"10.0.0.{number}:80", ProbeSucceeded(KNOWN, self.now))


@asynccontextmanager
async def running(
    *answers: Answer | Exception, source: Source = SOURCE, own: Sequence[OwnAddress] = ()
) -> AsyncIterator[Running]:
    """With one service and one source, after its first look."""
    one = replace(service(), sources=(source,), undiscovered=True, written="x")
    it = Running(one, scripts={source.key: Script(*answers)}, own=own)
    it.discovery.retarget(it.discovery.completed([one]))
    try:
        await it.ended()
        yield it
    finally:
        await asyncio.wait_for(it.discovery.close(), PATIENCE)


async def test_what_is_listed_is_probed_resolved_and_in_the_snapshot() -> None:
    async with running(listed(1, 2)) as it:
        assert it.backends == {"1": False, "2": False}
        assert it.prober.names == it.resolver.names == [["10.0.0.1:80", "10.0.0.2:80"]]
        assert it.pauses == [5.0]
        await it.next()
        assert len(it.prober.names) == 1, "nothing is told twice"


@pytest.mark.parametrize(
    "ttl, pause",
    [(0.0, SHORTEST_TTL), (1.0, 1.0), (7.0, 7.0), (86_400.0, LONGEST_TTL), (float("inf"), LONGEST_TTL)],
)
async def test_the_ttl_is_honoured_within_bounds(ttl: float, pause: float) -> None:
    async with running(listed(1, ttl=ttl)) as it:
        assert it.pauses == [pause]


@pytest.mark.parametrize(
    "bad", [Failed(NO_SUCH_NAME), Failed(NO_ANSWER), Listed((), 5.0), ValueError("a bug")], ids=str
)
async def test_the_last_answer_stays_whatever_goes_wrong(
    bad: Answer | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(listed(1, 2), bad, bad, bad, listed(1, 2)) as it:
        it.hear(1, 2)
        before = it.holder.current.views
        await it.next(3)
        assert it.holder.current.views is before, "nobody even notices"
        report = it.discovery.report()[0]
        assert report.error is not None
        assert (report.listed, report.answers, report.failures) == (2, 1, 3)
        assert len([line for line in caplog.messages if "no backends from" in line]) == 1
        await it.next()
        assert it.discovery.report()[0].error is None
        assert it.discovery.report()[0].answered_at == 1000.0 + it.now


async def test_failures_are_retried_soon_and_then_less_often() -> None:
    async with running(Failed(NO_ANSWER)) as it:
        await it.next(5)
        for at, pause in enumerate(it.pauses):
            plain = min(FIRST_RETRY * 2**at, LONGEST_RETRY)
            assert plain * (1 - JITTER) <= pause <= plain * (1 + JITTER)


async def test_a_file_that_is_broken_for_long_is_looked_at_as_often_as_ever(tmp_path: Path) -> None:
    one = replace(service(), sources=(SOURCE,), undiscovered=True, written="x")
    it = Running(one, scripts={SOURCE.key: FileLister(str(tmp_path / "absent.json"))})
    it.discovery.retarget(it.discovery.completed([one]))
    try:
        await it.ended()
        await it.next(5)
        assert it.pauses == [FILE_INTERVAL] * 6, "an operator who mends it does not wait for the gateway"
    finally:
        await it.discovery.close()


async def test_a_failed_first_look_ends_the_wait_for_the_others() -> None:
    own = replace(service(Backend("own", "127.0.0.1", 1)), sources=(SOURCE,), undiscovered=True)
    it = Running(own, scripts={SOURCE.key: Script(Failed(NO_ANSWER))})
    it.holder.observe("baremetal", "own", ProbeSucceeded(KNOWN, 0.0))
    assert not it.holder.current.views["baremetal"].offer.versions
    it.discovery.retarget(it.discovery.completed([own]))
    await it.ended()
    assert it.holder.current.views["baremetal"].offer.versions == KNOWN.versions
    await it.discovery.close()


async def test_who_left_is_removed_when_its_time_has_come_also_between_two_looks() -> None:
    async with running(listed(1, 2), listed(2, ttl=50.0), source=replace(SOURCE, leave_grace=20.0)) as it:
        it.hear(1, 2)
        await it.next()
        assert it.backends == {"1": True, "2": False}
        assert it.pauses == [5.0, 20.0]
        await it.next()
        assert it.backends == {"2": False}
        assert it.pauses == [5.0, 20.0, 30.0], "the TTL goes on"
        assert it.prober.names[-1] == ["10.0.0.2:80"]


async def test_who_left_is_removed_while_the_source_fails() -> None:
    async with running(listed(1, 2), listed(2), Failed(NO_ANSWER)) as it:
        it.hear(1, 2)
        await it.next()
        while it.now < 70:
            await it.next()
        assert it.backends == {"2": False}


async def test_a_flapping_source_loses_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    flaps = [listed(1 + at % 2, ttl=1.0) for at in range(40)]
    async with running(listed(1, 2), *flaps) as it:
        it.hear(1, 2)
        for _ in range(40):
            await it.next()
            assert it.backends.keys() == {"1", "2"}
            assert list(it.backends.values()).count(True) <= 1
        assert it.holder.current.views["baremetal"].offer.versions == KNOWN.versions
        told = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert len(told) <= LINES_PER_INTERVAL


async def test_more_than_anybody_has_are_not_taken() -> None:
    many = [Address(f"10.1.{at // 250}.{at % 250}", 80) for at in range(MAX_BACKENDS)]
    more = [Address(f"10.2.{at // 250}.{at % 250}", 80) for at in range(MAX_BACKENDS)]
    others = [Address(f"10.3.{at // 250}.{at % 250}", 80) for at in range(MAX_BACKENDS)]
    lists = [Listed(tuple(each), 1.0) for each in (many, more, others)]
    async with running(*lists) as it:
        for one in many:
            it.holder.observe("baremetal", one.name, ProbeSucceeded(KNOWN, 0.0))
        await it.next()
        assert len(it.holder.current.fleet.member_sets["baremetal"].all) == MAX_BACKENDS
        report = it.discovery.report()[0]
        assert (
            report.error == f"{MAX_BACKENDS} of its backends are not taken: there are {MAX_BACKENDS} already"
        )
        assert (report.listed, report.unlisted, report.leaving) == (0, MAX_BACKENDS // 2, MAX_BACKENDS // 2)
        await it.next()
        [watched] = it.discovery._watched.values()
        assert len(watched.addresses) == MAX_BACKENDS


async def test_a_source_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Lister):
        async def poll(self) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("gateway.controlplane.resolver.LONGEST_LOOKUP", 0.01)
    one = replace(service(), sources=(SOURCE,), undiscovered=True)
    it = Running(one, scripts={SOURCE.key: Hanging()})
    it.discovery.retarget(it.discovery.completed([one]))
    await it.ended()
    assert it.discovery.report()[0].error == NO_ANSWER
    await it.discovery.close()


async def test_the_end_waits_for_no_source() -> None:
    class Hanging(Lister):
        async def poll(self) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

    one = replace(service(), sources=(SOURCE,), undiscovered=True)
    it = Running(one, scripts={SOURCE.key: Hanging()})
    it.discovery.retarget(it.discovery.completed([one]))
    await asyncio.sleep(0)
    await asyncio.wait_for(it.discovery.close(), PATIENCE)
    assert it.holder.current.views["baremetal"].members.undiscovered


async def test_two_sources_share_a_name_and_the_first_has_it() -> None:
    other = replace(SOURCE, text="http://other.svc:80")
    own = replace(service(Backend("10.0.0.9:80", "10.0.0.9", 80)), sources=(SOURCE, other), undiscovered=True)
    scripts: dict[str, Lister] = {SOURCE.key: Script(listed(1, 9)), other.key: Script(listed(1, 2, 9))}
    it = Running(own, scripts=scripts)
    it.discovery.retarget(it.discovery.completed([own]))
    await it.ended()
    await it.ended()
    members = it.holder.current.fleet.member_sets["baremetal"].all
    assert {member.backend.name: member.backend.source for member in members} == {
        "10.0.0.9:80": "",
        "10.0.0.1:80": SOURCE.key,
        "10.0.0.2:80": other.key,
    }
    await it.discovery.close()


async def test_a_reload_keeps_what_is_discovered_and_applies_what_has_changed() -> None:
    async with running(listed(1, 2), listed(2, ttl=50)) as it:
        it.hear(1, 2)
        await it.next()
        heavier = replace(SOURCE, template=Backend("", "", 0, weight=7), leave_grace=1.0)
        again = replace(service(), sources=(heavier,), undiscovered=True)
        async with it.discovery.changes:
            completed = it.discovery.completed([again])
            it.holder.put_in_force(it.holder.configured(completed))
            it.discovery.retarget(completed)
        assert it.backends == {"1": True, "2": False}
        members = it.holder.current.fleet.member_sets["baremetal"].all
        assert [member.weight for member in members] == [7, 7]
        assert [member.advertisement for member in members] == [KNOWN, KNOWN]
        assert not it.holder.current.views["baremetal"].members.undiscovered


async def test_a_source_that_is_configured_no_more_takes_its_backends_with_it() -> None:
    """An operator's word acts at once."""
    async with running(listed(1, 2)) as it:
        it.hear(1, 2)
        own = service(Backend("own", "127.0.0.1", 1))
        async with it.discovery.changes:
            completed = it.discovery.completed([own])
            it.holder.put_in_force(it.holder.configured(completed))
            it.discovery.retarget(completed)
        assert [member.backend.name for member in it.holder.current.fleet.member_sets["baremetal"].all] == [
            "own"
        ]
        assert it.discovery.report() == ()


async def test_no_list_comes_into_force_during_a_reload() -> None:
    async with running(listed(1), listed(1, 2)) as it:
        async with it.discovery.changes:
            it._go.release()
            for _ in range(10):
                await asyncio.sleep(0)
            assert it.backends == {"1": False}
        await it.ended()
        assert it.backends == {"1": False, "2": False}


async def test_an_empty_list_says_so() -> None:
    async with running(Listed((), 5.0)) as it:
        assert it.discovery.report()[0].error == "it lists no backend"
        assert it.pauses == [5.0]


async def test_hostile_text_reaches_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Failed("x\x1b[31m\nskewgate_up 1" + "y" * 5000)) as it:
        error = it.discovery.report()[0].error
        assert error is not None
        assert error.isprintable()
        assert all(line.isprintable() for line in caplog.messages)


# --- what survives a restart --------------------------------------------------------------------------------


def saved(*numbers: int, leaves_at: float | None = None, **more: object) -> dict[str, SavedAdvertisement]:
    fields = {"source": SOURCE.key, "leaves_at": leaves_at, **more}
    return {
        f"10.0.0.{number}:80": SavedAdvertisement(f"http://10.0.0.{number}:80", KNOWN, 0.0, **fields)  # type: ignore[arg-type]  # of its fields
        for number in numbers
    }


def restored(one: Service, advertisements: dict[str, SavedAdvertisement]) -> dict[str, float | None]:
    discovery = Discovery(lambda source: Script(Failed("x")), clock=lambda: 100.0)
    discovery.restore([one], {"baremetal": SavedState(advertisements=advertisements)})
    (completed,) = discovery.completed([one])
    assert completed.undiscovered
    return {backend.name: backend.leaves_at for backend in completed.backends}


def test_backends_are_there_again_with_the_time_at_which_they_leave() -> None:
    one = replace(service(), sources=(SOURCE,), undiscovered=True)
    known = {**saved(1), **saved(2, leaves_at=120.0), **saved(3, leaves_at=90.0)}
    assert restored(one, known) == {"10.0.0.1:80": None, "10.0.0.2:80": 120.0}


def test_who_was_leaving_still_counts_with_its_last_advertisement_after_a_restart() -> None:
    one = replace(service(), sources=(SOURCE,), undiscovered=True)
    state = SavedState(advertisements={**saved(1), **saved(2, leaves_at=120.0)})
    discovery = Discovery(lambda source: Script(Failed("x")), clock=lambda: 100.0)
    discovery.restore([one], {"baremetal": state})

    snapshot = Snapshot.configured(discovery.completed([one]), now=100.0, saved={"baremetal": state})

    for name in ("10.0.0.1:80", "10.0.0.2:80"):
        member = snapshot.fleet.member_sets["baremetal"].member(name)
        assert member is not None
        assert member.advertisement == KNOWN
        assert not member.usable_versions


def test_what_the_source_cannot_have_listed_is_not_there_again() -> None:
    one = replace(service(Backend("10.0.0.4:80", "10.0.0.4", 80)), sources=(SOURCE,), undiscovered=True)
    known = {
        **saved(1, source="dns http://other.svc:80"),
        **saved(4),
        "x": SavedAdvertisement("http://10.0.0.2:80", KNOWN, 0.0, SOURCE.key),
        "10.0.0.3:80": SavedAdvertisement("https://10.0.0.3:80", KNOWN, 0.0, SOURCE.key),
        "10.0.0.5:80": SavedAdvertisement("http://10.0.0.5:80/base", KNOWN, 0.0, SOURCE.key),
        "10.0.0.6:80": SavedAdvertisement("gopher://\x1b[31m", KNOWN, 0.0, SOURCE.key),
    }
    assert restored(one, known).keys() == {"10.0.0.4:80"}


def test_the_state_file_keeps_sources_and_times() -> None:
    one = replace(service(), sources=(SOURCE,), undiscovered=True)
    gone = replace(SOURCE.backend(Address("10.0.0.2", 80)), leaves_at=60.0)
    holder = holder_of(one.with_backends([SOURCE.backend(Address("10.0.0.1", 80)), gone], undiscovered=False))
    for number in (1, 2):
        holder.observe("baremetal", f"10.0.0.{number}:80", ProbeSucceeded(KNOWN, 1.0))
    holder.apply("baremetal", Drain("10.0.0.1:80"))
    text = format_state(holder.current, 1000.0)

    parsed = parse_state(text, [one], 2000.0)

    assert parsed.dropped == ()
    state = parsed.saved["baremetal"]
    assert [*state.drained] == ["10.0.0.1:80"]
    assert {name: (each.source, each.leaves_at) for name, each in state.advertisements.items()} == {
        "10.0.0.1:80": (SOURCE.key, None),
        "10.0.0.2:80": (SOURCE.key, -940.0),
    }
    without = parse_state(text, [service()], 2000.0)
    assert without.saved["baremetal"].advertisements == {}
    assert len(without.dropped) == 2


OWN = (OwnAddress("where the gateway itself serves clients", ("10.0.0.2",), 80),)


async def test_a_list_that_names_the_gateway_itself_is_taken_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A headless service that selects the gateways, too. Each would get its own requests again and again."""
    async with running(listed(1, 2), listed(1), listed(2), own=OWN) as it:
        assert it.backends == {"1": False}
        (report,) = it.discovery.report()
        assert report.error == "10.0.0.2:80 is not taken: it is where the gateway itself serves clients"
        assert report.error in caplog.text
        await it.next()
        (report,) = it.discovery.report()
        assert report.error is None
        await it.next()
        (report,) = it.discovery.report()
        assert report.error is not None
        assert report.error.startswith("it lists no other backend, and 10.0.0.2:80 is not taken")
        assert it.backends == {"1": False}, "the last answer stays"


def hosts(*texts: str) -> Listed:
    return Listed(tuple(Address(text, 80) for text in texts), 5.0)


def members(it: Running) -> list[str]:
    return [each.backend.host for each in it.holder.current.fleet.member_sets["baremetal"].all]


@pytest.mark.parametrize(
    "address, kind",
    [
        ("169.254.169.254", "a link-local"),
        ("fe80::1", "a link-local"),
        ("::ffff:169.254.169.254", "a link-local"),
        ("224.0.0.1", "a multicast"),
        ("ff02::1", "a multicast"),
        ("0.0.0.0", "an unspecified"),
        ("::", "an unspecified"),
        ("::ffff:0.0.0.0", "an unspecified"),
    ],
)
async def test_R3_T9_special_addresses_are_not_taken(
    address: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = hosts("10.0.0.1", address), hosts(address), hosts(address, "fe80::2", "10.0.0.1")
    async with running(*answers) as it:
        name = Address(address, 80).name
        (report,) = it.discovery.report()
        assert report.error is not None
        assert report.error.startswith(f"{name} is not taken: it is {kind} address, which only `networks`")
        assert report.error in caplog.text
        assert members(it) == ["10.0.0.1"]
        await it.next()
        (report,) = it.discovery.report()
        assert report.error is not None
        assert report.error.startswith(f"it lists no other backend, and {name} is not taken")
        assert report.failures == 1
        assert members(it) == ["10.0.0.1"], "the last answer stays"
        await it.next()
        (report,) = it.discovery.report()
        assert report.error is not None
        assert report.error.endswith("(1 more are not taken)")


@pytest.mark.parametrize(
    "networks, taken",
    [
        ((), ["10.0.0.1", "192.0.2.1", "2001:db8::1", "127.0.0.1"]),
        (("10.0.0.0/8",), ["10.0.0.1"]),
        (("10.0.0.0/8", "169.254.0.0/16"), ["10.0.0.1", "169.254.169.254", "::ffff:169.254.1.1"]),
        (("fe80::/10", "2001:db8::/32"), ["2001:db8::1", "fe80::1"]),
        (("0.0.0.0/0",), ["10.0.0.1", "192.0.2.1", "169.254.169.254", "::ffff:169.254.1.1", "127.0.0.1"]),
    ],
)
async def test_R3_T9_networks_of_a_source_decide_alone(networks: tuple[str, ...], taken: list[str]) -> None:
    source = replace(SOURCE, networks=tuple(map(ip_network, networks)))
    every = (
        "10.0.0.1",
        "192.0.2.1",
        "2001:db8::1",
        "169.254.169.254",
        "fe80::1",
        "::ffff:169.254.1.1",
        "127.0.0.1",
    )
    async with running(hosts(*every), source=source) as it:
        assert members(it) == [each for each in every if each in taken]


async def test_R3_T9_a_reload_with_other_networks_is_in_force_at_once() -> None:
    async with running(hosts("10.0.0.1", "192.0.2.1")) as it:
        assert members(it) == ["10.0.0.1", "192.0.2.1"]
        source = replace(SOURCE, networks=(ip_network("10.0.0.0/8"),))
        configured = replace(service(), sources=(source,))

        (completed,) = it.discovery.completed([configured])

        assert [each.host for each in completed.backends] == ["10.0.0.1"]


def test_where_the_gateway_listens() -> None:
    own = own_addresses(
        [Listen("0.0.0.0", 6385), Listen("10.0.0.9", 80)],
        Admin(ListenAddress("localhost", 9900)),
    )

    def name(host: str, port: int) -> str | None:
        found = own_address_of(SOURCE.backend(Address(host, port)), own)
        return None if found is None else found.name

    clients, admin = "where the gateway itself serves clients", "the gateway's own admin listener"
    assert [name("127.0.0.1", 6385), name("10.0.0.9", 80), name("::1", 9900)] == [clients, clients, admin]
    assert [name("10.0.0.9", 6385), name("10.0.0.8", 80), name("::1", 6385)] == [None, None, None]
