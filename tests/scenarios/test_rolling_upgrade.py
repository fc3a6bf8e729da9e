"""UPGRADE-0 to UPGRADE-stale, and other changes of a fleet: clients always see one range."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import pytest

from tests.scenarios.fakes import OWN, Ironic
from tests.scenarios.openstack_fleet import PlacementServer, SenlinServer, in_front_of, other, senlin
from tests.scenarios.testbed import MAX_ATTEMPTS, Testbed, version_fields
from tests.scenarios.upgrade import (
    FROM,
    NEW,
    OLD,
    STABILIZATION,
    TO,
    Upgrade,
    from_ver,
    to_ver,
    to_ver_pinned,
    upgrade_of,
)

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
            (FROM, "mixed", "guaranteed", ("api-2", "api-3")),
            id="UPGRADE-6.3",
        ),
        pytest.param(ALL_NEW, (TO, "uniform", None, ()), id="UPGRADE-6.4"),
    ],
)
async def test_a_gateway_that_starts_in_the_middle_offers_what_its_fleet_can_keep(
    fleet: tuple[Callable[[], Ironic], ...], expected: tuple[str, str, str | None, tuple[str, ...]]
) -> None:
    """Steps 4.1, 4.2, 6.1 and 6.2 change the conductors only, which a gateway does not see."""
    async with upgrade_of(*(server() for server in fleet)) as upgrade:
        assert upgrade.summary() == expected
        await upgrade.assert_clients_see(NEW if expected[0] == TO else OLD)


async def test_UPGRADE_0_to_6_4_the_path_of_the_specification() -> None:
    """FromVer, then ToVer pinned, then unpinned, one API server at a time: the offer changes once."""
    async with upgrade_of(*(server() for server in ALL_OLD)) as upgrade:
        await upgrade.assert_clients_see(OLD)
        for number in (1, 2, 3):  # 5.1, 5.2
            await upgrade.replace_backend(number, to_ver_pinned())
            assert upgrade.summary() == (FROM, "uniform", None, ())
            await upgrade.assert_clients_see(OLD)
        for number in (1, 2):  # 6.3
            await upgrade.replace_backend(number, to_ver())
            assert upgrade.summary()[:3] == (FROM, "mixed", "guaranteed")
            assert upgrade.summary()[3] == ("api-1", "api-2", "api-3")[number:]
            await upgrade.assert_clients_see(OLD)
        await upgrade.replace_backend(3, to_ver())  # 6.4
        await upgrade.until(TO, "uniform")
        await upgrade.assert_clients_see(NEW)

        assert upgrade.timeline == [
            (FROM, "uniform"),
            (FROM, "mixed"),
            (FROM, "stabilizing"),
            (TO, "uniform"),
        ]


async def test_UPGRADE_B_without_a_pin_of_the_servers() -> None:
    async with upgrade_of(*(server() for server in ALL_OLD)) as upgrade:
        for number in (1, 2):
            await upgrade.replace_backend(number, to_ver())
            assert upgrade.summary()[:3] == (FROM, "mixed", "guaranteed")
            await upgrade.assert_clients_see(OLD)
        await upgrade.replace_backend(3, to_ver())
        await upgrade.until(TO, "uniform")
        await upgrade.assert_clients_see(NEW)

        assert upgrade.timeline == [
            (FROM, "uniform"),
            (FROM, "mixed"),
            (FROM, "stabilizing"),
            (TO, "uniform"),
        ]


@pytest.mark.parametrize("ceiling", [{"version": f"1.{OLD}"}, {"release": "train"}])
async def test_UPGRADE_C_the_operator_holds_the_offer_with_a_ceiling(ceiling: dict[str, str]) -> None:
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        await upgrade.command("PUT", "/ceiling", ceiling)
        assert upgrade.summary() == (FROM, "uniform", None, ())
        for number in (1, 2):
            await upgrade.replace_backend(number, to_ver())
            await upgrade.assert_clients_see(OLD)
        await upgrade.until(FROM, "capped")
        assert upgrade.summary()[2:] == ("ceiling", ())
        status = await upgrade.status()
        assert (status["phase"], status["offer"]["max"], status["offer"]["ceiling"]) == (
            "capped",
            f"1.{OLD}",
            f"1.{OLD}",
        )
        await upgrade.assert_clients_see(OLD)

        await upgrade.command("DELETE", "/ceiling")
        assert upgrade.summary() == (TO, "uniform", None, ()), "unpin takes effect without stabilization"
        await upgrade.assert_clients_see(NEW)


async def test_UPGRADE_back_from_6_3_the_offer_does_not_change() -> None:
    async with upgrade_of(*(server() for server in ALL_PINNED)) as upgrade:
        for number in (1, 2):
            await upgrade.replace_backend(number, to_ver())
        for number in (2, 1):
            await upgrade.assert_clients_see(OLD)
            await upgrade.replace_backend(number, from_ver())
        await upgrade.replace_backend(3, from_ver())

        assert upgrade.summary() == (FROM, "uniform", None, ())
        assert upgrade.timeline == [(FROM, "uniform"), (FROM, "mixed"), (FROM, "uniform")]
        await upgrade.assert_clients_see(OLD)


async def test_UPGRADE_back_late_the_new_offer_is_kept_while_one_server_serves_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        for number in (1, 2):
            await upgrade.replace_backend(number, from_ver())
            assert upgrade.summary()[:3] == (TO, "mixed", "state")
            assert upgrade.summary()[3] == ("api-1", "api-2")[:number]
            await upgrade.assert_clients_see(NEW)
        assert (await upgrade.status())["offer"]["held_rule"] == "state"
        above = sum(head.get(OWN) == f"1.{NEW}" for head in upgrade.testbed.forwarded)
        await upgrade.replace_backend(3, from_ver())

        assert upgrade.summary() == (FROM, "uniform", None, ()), "at once"
        assert upgrade.timeline == [(TO, "uniform"), (TO, "mixed"), (FROM, "uniform")]
        await upgrade.assert_clients_see(OLD)
        [warning] = [record for record in caplog.records if (record.name, record.levelname) == WARNING]
        assert above > 0
        assert f"no backend serves 1.{OLD + 1}-1.{NEW} any more" in warning.getMessage()
        assert f" {above} requests above 1.{OLD} served since the start" in warning.getMessage()


async def test_UPGRADE_back_late_with_the_last_server_down_it_is_503_and_not_406() -> None:
    """The server may come back with the new release, so the response is one that clients retry."""
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.replace_backend(1, from_ver())
        await upgrade.stop(2)

        assert upgrade.summary()[:3] == (TO, "mixed", "state")
        above = await upgrade.testbed.at(f"1.{NEW}")
        assert (above.status, above.get("Retry-After")) == (503, None)
        assert (await upgrade.testbed.at(f"1.{OLD}")).status == 200


async def test_UPGRADE_stale_an_old_server_rejoins_and_gets_only_what_it_serves() -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        await upgrade.replace_backend(3, from_ver())
        assert upgrade.summary() == (TO, "mixed", "state", ("api-3",))
        status = await upgrade.status()
        assert (status["phase"], status["offer"]["held_by"], status["offer"]["held_rule"]) == (
            "mixed",
            ["api-3"],
            "state",
        )
        rejoined: Ironic = upgrade.testbed.servers[2]
        for _ in range(MAX_ATTEMPTS):
            await upgrade.assert_clients_see(NEW)
            if rejoined.forwarded:
                break

        assert rejoined.forwarded
        assert {head.get(OWN) for head in rejoined.forwarded} <= {"1.1", "1.31"}


async def test_draining_an_old_server_raises_the_offer_and_the_server_may_come_back() -> None:
    async with upgrade_of(to_ver(), to_ver(), from_ver()) as upgrade:
        assert upgrade.summary()[:2] == (FROM, "mixed")
        await upgrade.command("POST", "/backends/api-3/drain")
        await upgrade.until(TO, "uniform")
        old: Ironic = upgrade.testbed.servers[2]
        before = len(old.forwarded)
        await upgrade.assert_clients_see(NEW)
        assert len(old.forwarded) == before

        await upgrade.command("POST", "/backends/api-3/enable")
        assert upgrade.summary() == (TO, "mixed", "state", ("api-3",))
        await upgrade.assert_clients_see(NEW)


@pytest.mark.parametrize(
    "policy, enough", [("policy: at_least, at_least: 2", 2), ("policy: at_least, at_least: 50%", 2)]
)
async def test_at_least_n_servers_must_serve_a_version_before_it_is_offered(policy: str, enough: int) -> None:
    async with upgrade_of(*(server() for server in ALL_OLD), policy=policy) as upgrade:
        for number in range(1, enough):
            await upgrade.replace_backend(number, to_ver())
            assert upgrade.summary()[:2] == (FROM, "mixed")
            await upgrade.assert_clients_see(OLD)
        await upgrade.replace_backend(enough, to_ver())
        await upgrade.until(TO, "mixed")
        await upgrade.assert_clients_see(NEW)

        old: Ironic = upgrade.testbed.servers[2]
        assert upgrade.summary()[2:] == (None, ()), "the policy gives what is offered"
        assert f"1.{NEW}" not in {head.get(OWN) for head in old.forwarded}


async def test_an_upgrade_from_servers_without_versions() -> None:
    async with upgrade_of(Ironic(None), Ironic(None)) as upgrade:
        assert upgrade.testbed.view.offer.transparent
        assert (await upgrade.testbed.at("1.31")).versions == {}

        await upgrade.replace_backend(1, to_ver())
        assert upgrade.summary() == ("1.1", "mixed", "guaranteed", ("api-2",))
        for _ in range(20):
            for version in (None, "latest", "1.1"):
                response = await upgrade.testbed.at(version)
                assert (response.status, version_fields(response)) == (200, ("1.1", "1.1", "1.1"))
        assert (await upgrade.testbed.at("1.31")).status == 406

        await upgrade.replace_backend(2, to_ver())
        await upgrade.until(TO, "uniform")
        await upgrade.assert_clients_see(NEW)


# --- when things go wrong in the middle ----------------------------------------------------------------


async def test_a_new_server_that_crashes_does_not_change_the_offer() -> None:
    """It serves, crashes and comes back. Meanwhile, clients see no range that the fleet could not keep."""
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        await upgrade.replace_backend(1, to_ver())
        await upgrade.stop(1, down=True)
        assert upgrade.summary() == (FROM, "mixed", "guaranteed", ("api-2",))
        await upgrade.assert_clients_see(OLD)
        await upgrade.start(1, to_ver())
        await upgrade.replace_backend(2, to_ver())
        await upgrade.until(TO, "uniform")

        assert upgrade.offers == [FROM, TO]


async def test_a_server_that_is_rolled_back_during_stabilization_does_not_raise_the_offer() -> None:
    """It comes back as the old release. (While it is only down, its last advertisement counts.)"""
    async with upgrade_of(to_ver(), from_ver(), stabilization="20s") as upgrade:
        await upgrade.replace_backend(2, to_ver())
        assert upgrade.summary() == (FROM, "stabilizing", "stabilization", ())
        assert (await upgrade.status())["offer"]["held_rule"] == "stabilization"
        await upgrade.assert_clients_see(OLD)
        await upgrade.replace_backend(2, from_ver())

        assert upgrade.summary() == (FROM, "mixed", "guaranteed", ("api-2",))
        assert upgrade.offers == [FROM]


async def test_with_all_new_servers_down_their_versions_are_503_and_the_others_are_served() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.replace_backend(1, from_ver())
        await upgrade.stop(2)

        for newer in ("latest", f"1.{NEW}", f"1.{OLD + 1}"):
            response = await upgrade.testbed.at(newer)
            assert (response.status, response.get("Retry-After")) == (503, None)
        for version, served in ((None, 1), ("1.31", 31), (f"1.{OLD}", OLD)):
            response = await upgrade.testbed.at(version)
            assert (response.status, version_fields(response)) == (200, ("1.1", f"1.{NEW}", f"1.{served}"))
        assert (await upgrade.testbed.at(f"1.{NEW + 1}")).status == 406

        await upgrade.start(2, to_ver())
        assert (await upgrade.testbed.at(f"1.{NEW}")).status == 200
        assert upgrade.offers == [TO]


async def test_a_downgrade_of_the_whole_fleet_changes_the_offer_once() -> None:
    async with upgrade_of(*(server() for server in ALL_NEW)) as upgrade:
        for number in (1, 2, 3):
            await upgrade.stop(number)
        assert upgrade.summary() == (TO, "uniform", None, ())
        for number in (1, 2, 3):
            await upgrade.start(number, from_ver())

        assert upgrade.offers == [TO, FROM]
        assert upgrade.summary() == (FROM, "uniform", None, ())
        await upgrade.assert_clients_see(OLD)


async def test_a_lost_backend_that_comes_back_is_used_again_and_the_offer_stays() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        await upgrade.stop(2, down=True)
        await upgrade.assert_clients_see(NEW)
        await upgrade.start(2, to_ver())
        restarted: Ironic = upgrade.testbed.servers[1]
        before = len(restarted.forwarded)
        for _ in range(MAX_ATTEMPTS):
            assert (await upgrade.testbed.at(f"1.{NEW}")).status == 200
            if len(restarted.forwarded) > before:
                break

        assert len(restarted.forwarded) > before
        assert upgrade.timeline == [(TO, "uniform")]


async def test_a_maximum_that_rises_without_a_restart_is_seen_by_passive_observation() -> None:
    """Ironic reads `pin_release_version` again on SIGHUP. No probe runs meanwhile."""
    async with upgrade_of(to_ver_pinned(), to_ver_pinned(), interval="60s") as upgrade:
        for server in upgrade.testbed.servers:
            server.highest = NEW
        for _ in range(MAX_ATTEMPTS):
            response = await upgrade.testbed.at("latest")
            assert response.status == 200
            if upgrade.summary()[:2] != (FROM, "uniform") and upgrade.summary()[1] != "mixed":
                break
        await upgrade.until(TO, "uniform")

        await upgrade.assert_clients_see(NEW)
        assert upgrade.timeline[-2:] == [(FROM, "stabilizing"), (TO, "uniform")]


async def test_a_maximum_that_falls_without_a_restart_costs_one_retry_and_no_client_error() -> None:
    async with upgrade_of(to_ver(), to_ver(), interval="60s") as upgrade:
        lowered: Ironic = upgrade.testbed.servers[0]
        lowered.highest = OLD
        for _ in range(MAX_ATTEMPTS):
            assert (await upgrade.testbed.at(f"1.{NEW}")).status == 200
            if lowered.refused:
                break
        for _ in range(20):
            assert (await upgrade.testbed.at(f"1.{NEW}")).status == 200

        assert len(lowered.refused) == 1
        lowered.refused.clear()  # the gateway learned the new maximum from this refusal
        assert upgrade.summary() == (TO, "mixed", "state", ("api-1",))


async def test_two_services_upgrade_at_once_independently() -> None:
    fleets = (
        senlin(SenlinServer(4), SenlinServer(4), stabilization=STABILIZATION),
        other("placement", PlacementServer(10), PlacementServer(10), stabilization=STABILIZATION),
    )
    async with in_front_of(*fleets, interval="50ms") as both, aiohttp.ClientSession() as session:
        clusters, allocations = (
            Upgrade(Testbed(both.gateway, fleet.servers, f"/{fleet.name}", fleet.name), session)
            for fleet in fleets
        )
        await clusters.replace_backend(1, SenlinServer(14))
        await allocations.replace_backend(1, PlacementServer(39))
        assert clusters.summary()[:3] == ("1.0-1.4", "mixed", "guaranteed")
        assert allocations.summary()[:3] == ("1.0-1.10", "mixed", "guaranteed")

        await allocations.replace_backend(2, PlacementServer(39))
        await allocations.until("1.0-1.39", "uniform")
        assert clusters.summary()[:3] == ("1.0-1.4", "mixed", "guaranteed")

        await clusters.replace_backend(2, SenlinServer(14))
        await clusters.until("1.0-1.14", "uniform")
        assert clusters.offers == ["1.0-1.4", "1.0-1.14"]
        assert allocations.offers == ["1.0-1.10", "1.0-1.39"]
        for server in both.servers:
            assert server.refused == []
