"""UPGRADE-0 to UPGRADE-stale, and what else happens to a fleet that moves: one truth all the way."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import pytest

from tests.scenarios.fakes import OWN, Ironic
from tests.scenarios.openstack_fleet import PlacementServer, SenlinServer, in_front_of, other, senlin
from tests.scenarios.stand import Stand, told
from tests.scenarios.upgrading import (
    FROM,
    NEW,
    OLD,
    SETTLE,
    TO,
    Upgrade,
    from_ver,
    to_ver,
    to_ver_pinned,
    upgrade_of,
)

TRIES = 300
"""Requests after which each of two equal backends has had one, but for a chance of 2 in 2 ** 300."""

WARNING = ("skewgate.offer", "WARNING")

ALL_OLD = (from_ver, from_ver, from_ver)
ALL_PINNED = (to_ver_pinned, to_ver_pinned, to_ver_pinned)
ALL_NEW = (to_ver, to_ver, to_ver)


@pytest.mark.parametrize(
    "fleet, expected",
    [
        pytest.param(ALL_OLD, (FROM, "uniform", None, ()), id="UPGRADE-0"),
        pytest.param(ALL_OLD, (FROM, "uniform", None, ()), id="UPGRADE-4.1"),
        pytest.param(ALL_OLD, (FROM, "uniform", None, ()), id="UPGRADE-4.2"),
        pytest.param((to_ver_pinned, from_ver, from_ver), (FROM, "uniform", None, ()), id="UPGRADE-5.1"),
        pytest.param(ALL_PINNED, (FROM, "uniform", None, ()), id="UPGRADE-5.2"),
        pytest.param(ALL_PINNED, (FROM, "uniform", None, ()), id="UPGRADE-6.1"),
        pytest.param(ALL_PINNED, (FROM, "uniform", None, ()), id="UPGRADE-6.2"),
        pytest.param(
            (to_ver, to_ver_pinned, to_ver_pinned),
            (FROM, "mixed", "guaranteed", ("api-1",)),
            id="UPGRADE-6.3",
        ),
        pytest.param(ALL_NEW, (TO, "uniform", None, ()), id="UPGRADE-6.4"),
    ],
)
async def test_a_gateway_that_starts_in_the_middle_tells_what_its_fleet_can_keep(
    fleet: tuple[Callable[[], Ironic], ...], expected: tuple[str, str, str | None, tuple[str, ...]]
) -> None:
    """The conductors, which are all that differs in 4.1, 4.2, 6.1 and 6.2, are invisible here."""
    async with upgrade_of(*(server() for server in fleet)) as upgrade:
        assert upgrade.now() == expected
        await upgrade.clients_are_told(NEW if expected[0] == TO else OLD)


async def test_UPGRADE_0_to_6_4_the_specifications_own_path() -> None:
    """FromVer, then ToVer pinned, then unpinned, one API server at a time: the range moves once."""
    async with upgrade_of(*(server() for server in ALL_OLD)) as upgrade:
        await upgrade.clients_are_told(OLD)
        for number in (1, 2, 3):  # 5.1, 5.2
            await upgrade.becomes(number, to_ver_pinned())
            assert upgrade.now() == (FROM, "uniform", None, ())
            await upgrade.clients_are_told(OLD)
        for number in (1, 2):  # 6.3
            await upgrade.becomes(number, to_ver())
            assert upgrade.now()[:3] == (FROM, "mixed", "guaranteed")
            assert upgrade.now()[3] == ("api-1", "api-2")[:number]
            await upgrade.clients_are_told(OLD)
        await upgrade.becomes(3, to_ver())  # 6.4
        await upgrade.until(TO, "uniform")
        await upgrade.clients_are_told(NEW)

        assert upgrade.course == [(FROM, "uniform"), (FROM, "mixed"), (FROM, "settling"), (TO, "uniform")]


async def test_UPGRADE_B_without_a_pin_of_the_servers() -> None:
    async with upgrade_of(*(server() for server in ALL_OLD)) as upgrade:
        for number in (1, 2):
            await upgrade.becomes(number, to_ver())
            assert upgrade.now()[:3] == (FROM, "mixed", "guaranteed")
            await upgrade.clients_are_told(OLD)
        await upgrade.becomes(3, to_ver())
        await upgrade.until(TO, "uniform")
        await upgrade.clients_are_told(NEW)

        assert upgrade.course == [(FROM, "uniform"), (FROM, "mixed"), (FROM, "settling"), (TO, "uniform")]


@pytest.mark.parametrize("ceiling", [{"version": f"1.{OLD}"}, {"release": "train"}])
async def test_UPGRADE_C_the_operator_holds_it_with_the_gateways_ceiling(ceiling: dict[str, str]) -> None:
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        await upgrade.order("PUT", "/ceiling", ceiling)
        assert upgrade.now() == (FROM, "uniform", None, ())
        for number in (1, 2):
            await upgrade.becomes(number, to_ver())
            await upgrade.clients_are_told(OLD)
        await upgrade.until(FROM, "capped")
        assert upgrade.now()[2:] == ("ceiling", ("api-1", "api-2"))
        status = await upgrade.status()
        assert (status["phase"], status["offer"]["max"], status["offer"]["ceiling"]) == (
            "capped",
            f"1.{OLD}",
            f"1.{OLD}",
        )
        await upgrade.clients_are_told(OLD)

        await upgrade.order("DELETE", "/ceiling")
        assert upgrade.now() == (TO, "uniform", None, ()), "at the word, without settle"
        await upgrade.clients_are_told(NEW)


async def test_UPGRADE_back_from_6_3_the_range_never_moves() -> None:
    async with upgrade_of(*(server() for server in ALL_PINNED)) as upgrade:
        for number in (1, 2):
            await upgrade.becomes(number, to_ver())
        for number in (2, 1):
            await upgrade.clients_are_told(OLD)
            await upgrade.becomes(number, from_ver())
        await upgrade.becomes(3, from_ver())

        assert upgrade.now() == (FROM, "uniform", None, ())
        assert upgrade.course == [(FROM, "uniform"), (FROM, "mixed"), (FROM, "uniform")]
        await upgrade.clients_are_told(OLD)


async def test_UPGRADE_back_late_the_new_range_stands_while_one_serves_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        for number in (1, 2):
            await upgrade.becomes(number, from_ver())
            assert upgrade.now()[:3] == (TO, "mixed", "memory")
            assert upgrade.now()[3] == ("api-1", "api-2")[:number]
            await upgrade.clients_are_told(NEW)
        assert (await upgrade.status())["offer"]["held_rule"] == "memory"
        above = sum(head.get(OWN) == f"1.{NEW}" for head in upgrade.stand.asked)
        await upgrade.becomes(3, from_ver())

        assert upgrade.now() == (FROM, "uniform", None, ()), "at once"
        assert upgrade.course == [(TO, "uniform"), (TO, "mixed"), (FROM, "uniform")]
        await upgrade.clients_are_told(OLD)
        [warning] = [each for each in caplog.records if (each.name, each.levelname) == WARNING]
        assert above > 0
        assert f"nobody serves 1.{OLD + 1}-1.{NEW} any more" in warning.getMessage()
        assert f" {above} requests above 1.{OLD} served since the start" in warning.getMessage()


async def test_UPGRADE_back_late_with_the_last_one_down_it_is_503_and_not_406() -> None:
    """Nobody can say whether it comes back with the new release: clients are told to try again."""
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.becomes(1, from_ver())
        await upgrade.stop(2)

        assert upgrade.now()[:3] == (TO, "mixed", "memory")
        above = await upgrade.stand.at(f"1.{NEW}")
        assert (above.status, above.get("Retry-After")) == (503, "2")
        assert (await upgrade.stand.at(f"1.{OLD}")).status == 200


async def test_UPGRADE_stale_an_old_server_rejoins_and_gets_only_what_it_serves() -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        await upgrade.becomes(3, from_ver())
        assert upgrade.now() == (TO, "mixed", "memory", ("api-3",))
        status = await upgrade.status()
        assert (status["phase"], status["offer"]["held_by"], status["offer"]["held_rule"]) == (
            "mixed",
            ["api-3"],
            "memory",
        )
        stray: Ironic = upgrade.stand.servers[2]
        for _ in range(TRIES):
            await upgrade.clients_are_told(NEW)
            if stray.asked:
                break

        assert stray.asked
        assert {head.get(OWN) for head in stray.asked} <= {"1.1", "1.31"}


async def test_draining_an_old_server_lets_the_others_go_on_and_it_may_come_back() -> None:
    async with upgrade_of(to_ver(), to_ver(), from_ver()) as upgrade:
        assert upgrade.now()[:2] == (FROM, "mixed")
        await upgrade.order("POST", "/backends/api-3/drain")
        await upgrade.until(TO, "uniform")
        old: Ironic = upgrade.stand.servers[2]
        before = len(old.asked)
        await upgrade.clients_are_told(NEW)
        assert len(old.asked) == before

        await upgrade.order("POST", "/backends/api-3/enable")
        assert upgrade.now() == (TO, "mixed", "memory", ("api-3",))
        await upgrade.clients_are_told(NEW)


@pytest.mark.parametrize(
    "policy, enough", [("policy: at_least, at_least: 2", 2), ("policy: at_least, at_least: 50%", 2)]
)
async def test_at_least_so_many_must_serve_it_before_it_is_offered(policy: str, enough: int) -> None:
    async with upgrade_of(*(server() for server in ALL_OLD), policy=policy) as upgrade:
        for number in range(1, enough):
            await upgrade.becomes(number, to_ver())
            assert upgrade.now()[:2] == (FROM, "mixed")
            await upgrade.clients_are_told(OLD)
        await upgrade.becomes(enough, to_ver())
        await upgrade.until(TO, "mixed")
        await upgrade.clients_are_told(NEW)

        old: Ironic = upgrade.stand.servers[2]
        assert upgrade.now()[3] == ("api-3",)
        assert f"1.{NEW}" not in {head.get(OWN) for head in old.asked}


async def test_an_upgrade_from_servers_that_know_no_versions() -> None:
    async with upgrade_of(Ironic(None), Ironic(None)) as upgrade:
        assert upgrade.stand.view.offer.transparent
        assert (await upgrade.stand.at("1.31")).versions == {}

        await upgrade.becomes(1, to_ver())
        assert upgrade.now() == ("1.1", "mixed", "guaranteed", ("api-1",))
        for _ in range(20):
            for version in (None, "latest", "1.1"):
                reply = await upgrade.stand.at(version)
                assert (reply.status, told(reply)) == (200, ("1.1", "1.1", "1.1"))
        assert (await upgrade.stand.at("1.31")).status == 406

        await upgrade.becomes(2, to_ver())
        await upgrade.until(TO, "uniform")
        await upgrade.clients_are_told(NEW)


# --- when things go wrong in the middle ----------------------------------------------------------------


async def test_a_new_server_that_crashes_leaves_no_trace() -> None:
    """It serves, dies and is seen again: nobody is told a range that nobody could keep."""
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        await upgrade.becomes(1, to_ver())
        await upgrade.stop(1, lost=True)
        assert upgrade.now() == (FROM, "mixed", "guaranteed", ("api-1",))
        await upgrade.clients_are_told(OLD)
        await upgrade.start(1, to_ver())
        await upgrade.becomes(2, to_ver())
        await upgrade.until(TO, "uniform")

        assert upgrade.offers == [FROM, TO]


async def test_a_server_that_is_rolled_back_before_settle_has_run_does_not_raise_the_offer() -> None:
    """It comes back as the old one. (While it is merely down its last word would count.)"""
    async with upgrade_of(to_ver(), from_ver(), settle="20s") as upgrade:
        await upgrade.becomes(2, to_ver())
        assert upgrade.now() == (FROM, "settling", "settle", ("api-1", "api-2"))
        assert (await upgrade.status())["offer"]["held_rule"] == "settle"
        await upgrade.clients_are_told(OLD)
        await upgrade.becomes(2, from_ver())

        assert upgrade.now() == (FROM, "mixed", "guaranteed", ("api-1",))
        assert upgrade.offers == [FROM]


async def test_all_new_servers_down_is_503_for_their_versions_and_the_others_keep_working() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.becomes(1, from_ver())
        await upgrade.stop(2)

        for newer in ("latest", f"1.{NEW}", f"1.{OLD + 1}"):
            reply = await upgrade.stand.at(newer)
            assert (reply.status, reply.get("Retry-After")) == (503, "2")
        for version, served in ((None, 1), ("1.31", 31), (f"1.{OLD}", OLD)):
            reply = await upgrade.stand.at(version)
            assert (reply.status, told(reply)) == (200, ("1.1", f"1.{NEW}", f"1.{served}"))
        assert (await upgrade.stand.at(f"1.{NEW + 1}")).status == 406

        await upgrade.start(2, to_ver())
        assert (await upgrade.stand.at(f"1.{NEW}")).status == 200
        assert upgrade.offers == [TO]


async def test_a_downgrade_of_the_whole_fleet_moves_the_range_once() -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        for number in (1, 2, 3):
            await upgrade.stop(number)
        assert upgrade.now() == (TO, "uniform", None, ())
        for number in (1, 2, 3):
            await upgrade.start(number, from_ver())

        assert upgrade.offers == [TO, FROM]
        assert upgrade.now() == (FROM, "uniform", None, ())
        await upgrade.clients_are_told(OLD)


async def test_a_lost_backend_that_comes_back_is_used_again_and_moves_nothing() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.stop(2, lost=True)
        await upgrade.clients_are_told(NEW)
        await upgrade.start(2, to_ver())
        again: Ironic = upgrade.stand.servers[1]
        before = len(again.asked)
        for _ in range(TRIES):
            assert (await upgrade.stand.at(f"1.{NEW}")).status == 200
            if len(again.asked) > before:
                break

        assert len(again.asked) > before
        assert upgrade.course == [(TO, "uniform")]


async def test_a_maximum_that_rises_without_a_restart_is_seen_in_passing() -> None:
    """Ironic's SIGHUP: `pin_release_version` is read anew. No probe comes by meanwhile."""
    async with upgrade_of(to_ver_pinned(), to_ver_pinned(), interval="60s") as upgrade:
        for server in upgrade.stand.servers:
            server.highest = NEW
        for _ in range(TRIES):
            reply = await upgrade.stand.at("latest")
            assert reply.status == 200
            if upgrade.now()[:2] != (FROM, "uniform") and upgrade.now()[1] != "mixed":
                break
        await upgrade.until(TO, "uniform")

        await upgrade.clients_are_told(NEW)
        assert upgrade.course[-2:] == [(FROM, "settling"), (TO, "uniform")]


async def test_a_maximum_that_falls_without_a_restart_costs_one_detour_and_no_client_an_error() -> None:
    async with upgrade_of(to_ver(), to_ver(), interval="60s") as upgrade:
        fallen: Ironic = upgrade.stand.servers[0]
        fallen.highest = OLD
        for _ in range(TRIES):
            assert (await upgrade.stand.at(f"1.{NEW}")).status == 200
            if fallen.refused:
                break
        for _ in range(20):
            assert (await upgrade.stand.at(f"1.{NEW}")).status == 200

        assert len(fallen.refused) == 1
        fallen.refused.clear()  # that one was how the gateway learned of it
        assert upgrade.now() == (TO, "mixed", "memory", ("api-1",))


async def test_two_services_upgrade_at_once_and_neither_waits_for_the_other() -> None:
    fleets = (
        senlin(SenlinServer(4), SenlinServer(4), settle=SETTLE),
        other("placement", PlacementServer(10), PlacementServer(10), settle=SETTLE),
    )
    async with in_front_of(*fleets, interval="50ms") as both, aiohttp.ClientSession() as session:
        clusters, allocations = (
            Upgrade(Stand(both.gateway, each.servers, f"/{each.name}", each.name), session) for each in fleets
        )
        await clusters.becomes(1, SenlinServer(14))
        await allocations.becomes(1, PlacementServer(39))
        assert clusters.now()[:3] == ("1.0-1.4", "mixed", "guaranteed")
        assert allocations.now()[:3] == ("1.0-1.10", "mixed", "guaranteed")

        await allocations.becomes(2, PlacementServer(39))
        await allocations.until("1.0-1.39", "uniform")
        assert clusters.now()[:3] == ("1.0-1.4", "mixed", "guaranteed")

        await clusters.becomes(2, SenlinServer(14))
        await clusters.until("1.0-1.14", "uniform")
        assert clusters.offers == ["1.0-1.4", "1.0-1.14"]
        assert allocations.offers == ["1.0-1.10", "1.0-1.39"]
        for each in both.servers:
            assert each.refused == []
