"""Names in the background: what is known stays known, and no lookup is in the way of anything."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.name_lookup import NO_ANSWER, NO_SUCH_NAME, Addresses, Failed, Found, Result
from gateway.controlplane.resolver import (
    JITTER,
    LINES_PER_INTERVAL,
    LOG_INTERVAL,
    LONGEST_RETRY,
    LONGEST_TTL,
    SHORTEST_TTL,
    Resolver,
    UnresolvedError,
    addresses_only,
)
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from tests.controlplane.fakes import service
from tests.kit.waiting import PATIENCE

NAME = "api.fleet.test"
ADDRESS = "192.0.2.7"
FOUND = Found((), (ADDRESS,), 30.0)
SILENT = Failed(NO_ANSWER)


class Lookups:
    """Lookups with the results that the test sets, and the pauses between them, which end when it says so."""

    def __init__(self, *results: Result) -> None:
        self.results = list(results)
        """In turn; the last one stays."""
        self.names: list[str] = []
        self.pauses: list[float] = []
        self._paused = asyncio.Semaphore(0)
        self._go = asyncio.Semaphore(0)

    async def lookup(self, name: str) -> Result:
        self.names.append(name)
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._paused.release()
        await self._go.acquire()

    async def ended(self) -> None:
        """Wait for the end of one more lookup."""
        await asyncio.wait_for(self._paused.acquire(), PATIENCE)

    async def next(self) -> None:
        """Let the next lookup begin, and wait for its end."""
        self._go.release()
        await self.ended()

    def resolver(self, clock: Callable[[], float] = lambda: 0.0) -> Resolver:
        return Resolver(self.lookup, sleep=self.sleep, clock=clock, rng=random.Random(7))


def services(*hosts: str) -> list[Service]:
    return [service(*(Backend(f"api-{number}", host, 80) for number, host in enumerate(hosts)))]


def resolved(resolver: Resolver, host: str = NAME) -> Awaitable[Addresses]:
    return asyncio.wait_for(resolver.resolve(host), PATIENCE)


async def never(name: str) -> Result:
    """The lookup of a name server that says nothing."""
    await asyncio.Event().wait()
    raise AssertionError(name)


async def test_a_request_waits_for_the_first_lookup_only() -> None:
    release = asyncio.Event()

    async def lookup(name: str) -> Result:
        await release.wait()
        return Found(("2001:db8::7",), (ADDRESS, "192.0.2.8"), 30.0)

    async with Resolver(lookup) as resolver:
        resolver.retarget(services(NAME))
        waiting = asyncio.ensure_future(resolver.resolve(NAME))
        await asyncio.sleep(0)
        assert not waiting.done()
        release.set()

        assert await waiting == ("2001:db8::7", ADDRESS, "192.0.2.8")


async def test_an_address_is_its_own_and_never_looked_up() -> None:
    lookups = Lookups(FOUND)
    async with lookups.resolver() as resolver:
        resolver.retarget(services("192.0.2.1", "::1"))

        assert await resolved(resolver, "192.0.2.1") == ("192.0.2.1",)
        assert await resolved(resolver, "::1") == ("::1",)
    assert lookups.names == []
    assert await addresses_only("::1") == ("::1",)
    with pytest.raises(UnresolvedError):
        await addresses_only(NAME)


@pytest.mark.parametrize("problem", [SILENT, Failed(NO_SUCH_NAME), Failed("the name servers fail")])
async def test_R_B9_the_last_addresses_stay_while_there_are_no_newer_ones(problem: Failed) -> None:
    lookups = Lookups(FOUND, problem)
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        for _ in range(50):
            await lookups.next()
            assert await resolved(resolver) == (ADDRESS,)
        lookups.results = [Found((), ("192.0.2.9",), 30.0)]
        await lookups.next()

        assert await resolved(resolver) == ("192.0.2.9",)


async def test_a_name_that_was_never_found_fails_at_once_after_its_first_lookup() -> None:
    lookups = Lookups(SILENT, Failed("no descriptor", errno.EMFILE))
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        with pytest.raises(UnresolvedError, match=f"no address of {NAME}: {NO_ANSWER}") as error:
            await resolved(resolver)
        assert error.value.errno is None
        await lookups.ended()
        await lookups.next()
        with pytest.raises(UnresolvedError) as error:
            await resolved(resolver)

        assert error.value.errno == errno.EMFILE


async def test_a_family_of_which_nothing_was_learned_keeps_its_addresses() -> None:
    both = Found(("2001:db8::7",), (ADDRESS,), 30.0)
    lookups = Lookups(both, Found(None, ("192.0.2.8",), 30.0), Found((), ("192.0.2.8",), 30.0))
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        await lookups.next()
        assert await resolved(resolver) == ("2001:db8::7", "192.0.2.8")
        await lookups.next()
        assert await resolved(resolver) == ("192.0.2.8",)


async def test_a_name_is_looked_up_again_when_its_ttl_ends_and_less_and_less_often_while_it_fails() -> None:
    found = [Found((), (ADDRESS,), ttl) for ttl in (0.0, 30.0, 86400.0)]
    lookups = Lookups(*found, *[SILENT] * 6, found[1], SILENT)
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        for _ in range(10):
            await lookups.next()

    assert lookups.pauses[:3] == [SHORTEST_TTL, 30.0, LONGEST_TTL]
    plain = [1.0, 2.0, 4.0, *[LONGEST_RETRY] * 3]
    for pause, wanted in zip(lookups.pauses[3:9], plain, strict=True):
        assert wanted * (1 - JITTER) <= pause <= wanted * (1 + JITTER)
    assert len(set(lookups.pauses[6:9])) == 3, "many gateways would ask in step"
    assert lookups.pauses[9] == 30.0
    assert lookups.pauses[10] <= 1 + JITTER, "the failures before the last success count no more"


async def test_R_B9_a_lookup_without_an_end_delays_no_other() -> None:
    async def lookup(name: str) -> Result:
        return FOUND if name == NAME else await never(name)

    async with Resolver(lookup) as resolver:
        resolver.retarget(services(*(f"{number}.silent.test" for number in range(200)), NAME))

        assert await resolved(resolver) == (ADDRESS,)


async def test_R_B9_closing_waits_for_no_lookup() -> None:
    """Not even for one in which the cancellation is lost, as in `asyncio.wait_for` of Python 3.11."""

    async def deaf(name: str) -> Result:
        try:
            return await never(name)
        except asyncio.CancelledError:
            return SILENT

    for lookup in (never, deaf):
        resolver = Resolver(lookup)
        resolver.retarget(services(NAME))
        waiting = asyncio.ensure_future(resolver.resolve(NAME))
        await asyncio.sleep(0)
        await asyncio.wait_for(resolver.close(), PATIENCE)
        with pytest.raises(UnresolvedError):
            await waiting


async def test_a_reload_adds_and_removes_names() -> None:
    lookups = Lookups(FOUND)
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME, "192.0.2.1"))
        await lookups.ended()
        resolver.retarget(services("other.test"))
        await lookups.ended()

        assert lookups.names == [NAME, "other.test"]
        assert await resolved(resolver, "other.test") == (ADDRESS,)
        # Requests under way may still be sent to a backend that was removed.
        assert await resolved(resolver, NAME) == (ADDRESS,)
        assert await resolved(resolver, "192.0.2.1") == ("192.0.2.1",)
        resolver.retarget(services("other.test"))
        with pytest.raises(UnresolvedError, match="not configured"):
            await resolved(resolver, NAME)
        assert lookups.names == [NAME, "other.test"], "a name that stays is not looked up anew"


async def test_a_name_that_is_removed_during_its_first_lookup_leaves_nobody_waiting() -> None:
    async with Resolver(never) as resolver:
        resolver.retarget(services(NAME))
        waiting = asyncio.ensure_future(resolver.resolve(NAME))
        await asyncio.sleep(0)
        resolver.retarget([])

        with pytest.raises(UnresolvedError, match="not configured any more"):
            await asyncio.wait_for(waiting, PATIENCE)


async def test_a_bug_in_a_lookup_does_not_end_the_lookups(caplog: pytest.LogCaptureFixture) -> None:
    lookups = Lookups(FOUND)
    failed = False

    async def lookup(name: str) -> Result:
        nonlocal failed
        if not failed:
            failed = True
            raise ZeroDivisionError
        return await lookups.lookup(name)

    async with Resolver(lookup, sleep=lookups.sleep) as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        with pytest.raises(UnresolvedError, match="a bug in the gateway"):
            await resolved(resolver)
        await lookups.next()

        assert await resolved(resolver) == (ADDRESS,)
    assert "ZeroDivisionError" in caplog.text


async def test_each_change_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="skewgate.resolver")
    lookups = Lookups(SILENT, SILENT, FOUND, FOUND, SILENT, SILENT, Failed(NO_SUCH_NAME), FOUND, FOUND)
    now = 0.0
    async with lookups.resolver(lambda: now) as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        for _ in range(8):
            now += LOG_INTERVAL
            await lookups.next()

    kept = f"(its last known addresses stay in use: {ADDRESS})"
    assert caplog.messages == [
        f"no address of {NAME}: {NO_ANSWER} (none is known so far)",
        f"{NAME} is at {ADDRESS}",
        f"no address of {NAME}: {NO_ANSWER} {kept}",
        f"no address of {NAME}: {NO_SUCH_NAME} {kept}",
        f"{NAME} is at {ADDRESS}",
    ]


async def test_a_name_that_changes_all_the_time_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="skewgate.resolver")
    lookups = Lookups(*(Found((), (f"192.0.2.{number}",), 1.0) for number in range(100)))
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        for _ in range(99):
            await lookups.next()

    assert len(caplog.messages) == LINES_PER_INTERVAL


async def test_another_order_of_the_same_addresses_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="skewgate.resolver")
    addresses = (ADDRESS, "192.0.2.8")
    lookups = Lookups(Found((), addresses, 1.0), Found((), addresses[::-1], 1.0))
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        await lookups.next()

        assert await resolved(resolver) == addresses[::-1]
    assert len(caplog.messages) == 1


def family(version: Literal[4, 6]) -> st.SearchStrategy[Addresses | None]:
    address = st.ip_addresses(v=version).map(str)
    return st.none() | st.lists(address, max_size=2).map(tuple)


results = st.one_of(
    st.just(SILENT),
    st.just(Failed(NO_SUCH_NAME)),
    st.builds(Found, family(6), family(4), st.just(1.0)).filter(lambda found: found.ipv6 or found.ipv4),
)


@given(st.lists(results, min_size=1, max_size=12))
def test_R_B9_what_is_known_is_what_was_last_learned_of_each_family(history: list[Result]) -> None:
    async def run() -> None:
        lookups = Lookups(*history)
        last: list[Addresses] = [(), ()]
        async with lookups.resolver() as resolver:
            resolver.retarget(services(NAME))
            await lookups.ended()
            for number, result in enumerate(history):
                if number:
                    await lookups.next()
                if isinstance(result, Found):
                    last = [
                        before if now is None else now
                        for before, now in zip(last, (result.ipv6, result.ipv4), strict=True)
                    ]
                if any(last):
                    assert await resolved(resolver) == last[0] + last[1]
                else:
                    with pytest.raises(UnresolvedError):
                        await resolved(resolver)

    asyncio.run(run())


# --- names that a source lists -----------------------------------------------------------------------------


def discovered(*networks: str) -> list[Service]:
    backend = Backend("api", NAME, 80, source="file x", networks=tuple(map(ip_network, networks)))
    return [service(backend)]


async def test_R3_T9_a_name_that_a_source_lists_may_not_be_at_a_special_address() -> None:
    special = Found(("fe80::1",), ("169.254.169.254",), 30.0)
    lookups = Lookups(special, Found((), ("169.254.169.254", ADDRESS), 30.0), special)
    async with lookups.resolver() as resolver:
        resolver.retarget(discovered())
        await lookups.ended()
        with pytest.raises(UnresolvedError, match="fe80::1 is not taken: it is a link-local address"):
            await resolved(resolver)
        assert resolver.report()[0].failures == 1
        await lookups.next()
        assert await resolved(resolver) == (ADDRESS,)
        await lookups.next()
        assert await resolved(resolver) == (ADDRESS,), "the last one stays"


async def test_R3_T9_networks_of_the_source_hold_for_names_too() -> None:
    lookups = Lookups(Found((), (ADDRESS, "10.0.0.1", "169.254.0.1"), 30.0))
    async with lookups.resolver() as resolver:
        resolver.retarget(discovered("10.0.0.0/8", "169.254.0.0/16"))
        await lookups.ended()
        assert await resolved(resolver) == ("10.0.0.1", "169.254.0.1")
        resolver.retarget(discovered("10.0.0.0/8"))
        assert await resolved(resolver) == ("10.0.0.1",)


async def test_R3_T9_a_name_of_the_configuration_may_be_anywhere() -> None:
    lookups = Lookups(Found((), ("169.254.169.254",), 30.0))
    async with lookups.resolver() as resolver:
        resolver.retarget(services(NAME))
        await lookups.ended()
        assert await resolved(resolver) == ("169.254.169.254",)
