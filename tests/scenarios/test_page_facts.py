"""What the operations page is told by a whole gateway during an upgrade: events, demand, refusals, rates."""

from __future__ import annotations

import logging

import pytest

from gateway.admin import effects
from gateway.admin.ui.contents import PageContents
from gateway.assembly.admin import admin_context
from gateway.core.versions.version import Version
from tests.scenarios.upgrade import FROM, NEW, OLD, TO, from_ver, to_ver, upgrade_of


@pytest.fixture(autouse=True)
def _level_of_a_running_gateway(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate")


async def test_the_page_follows_an_upgrade() -> None:
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        facts = PageContents(admin_context(upgrade.testbed.gateway.parts))
        await upgrade.replace_backend(1, to_ver())
        assert (await upgrade.testbed.at(f"1.{NEW}")).status == 406
        page = await facts.service_page("baremetal")
        assert page is not None
        assert (page.offer.range, page.offer.who, page.offer.then) == (FROM, ("api-2",), TO)
        assert [(each.reason, each.count) for each in page.refusals] == [("above the offer", 1)]

        await upgrade.replace_backend(2, to_ver())
        await upgrade.until(TO, "uniform")
        for version in (f"1.{NEW}", f"1.{OLD}", f"1.{OLD}", f"1.{OLD}"):
            assert (await upgrade.testbed.at(version)).status == 200
        page = await facts.service_page("baremetal")
        assert page is not None
        assert page.health.level == "good"
        assert [(each.version, each.count, each.share) for each in page.demand] == [
            *((f"1.{OLD}", 3, 0.75), (f"1.{NEW}", 1, 0.25)),
        ]
        assert page.events[0].text == f"offer {FROM} -> {TO}, phase uniform"
        assert page.events[0].kind == "offer"
        assert {each.kind for each in page.events} >= {"offer", "backend"}


async def test_a_pin_does_what_was_said_before_and_stands_in_the_timeline() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        context = admin_context(upgrade.testbed.gateway.parts)
        for version in (f"1.{NEW}", "latest", f"1.{OLD}", f"1.{OLD}"):
            assert (await upgrade.testbed.at(version)).status == 200
        said = effects.pin(upgrade.testbed.view, Version(1, OLD), context.last_hour("baremetal"))
        assert said.startswith(
            f"1.{OLD + 1}-1.{NEW} will be refused; 50 % of the requests since the start asked"
        )
        await upgrade.command("PUT", "/ceiling", {"version": f"1.{OLD}"})
        assert (await upgrade.testbed.at(f"1.{NEW}")).status == 406
        assert (await upgrade.testbed.at(f"1.{OLD}")).status == 200
        page = await PageContents(context).service_page("baremetal")
        assert page is not None
        assert page.offer.pin == f"1.{OLD}"
        newest = page.events[0]
        assert (newest.kind, newest.service) == ("operator", "baremetal")
        assert newest.text.startswith(f"pinned to 1.{OLD}, offer {TO} -> {FROM}")


async def test_drains_stand_in_the_timeline_as_what_an_operator_did() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        facts = PageContents(admin_context(upgrade.testbed.gateway.parts))
        before = await facts.service_page("baremetal")
        await upgrade.command("POST", "/backends/api-1/drain")
        await upgrade.command("POST", "/backends/api-1/enable")
        after = await facts.service_page("baremetal")
    assert before is not None
    assert after is not None
    seen = {each.number for each in before.events}
    news = [(each.kind, each.text.partition(",")[0]) for each in after.events if each.number not in seen]
    assert news == [("operator", "api-1: in service again"), ("operator", "api-1: drained")]


async def test_the_gateway_samples_rates_while_it_runs() -> None:
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        context = admin_context(upgrade.testbed.gateway.parts)
        rates = upgrade.testbed.gateway.parts.samplers.rates
        assert rates._samples, "the first sample is taken at the start"
        rates._samples[0] = (rates._samples[0][0] - 2.0, rates._samples[0][1])  # as if it was taken earlier
        for _ in range(8):
            await upgrade.testbed.at(f"1.{OLD}")
        page = await PageContents(context).service_page("baremetal")
        assert page is not None
        assert 0.0 < page.rate <= 4.0
        assert sum(each.rate for each in page.backends) == pytest.approx(page.rate, abs=0.2)
    assert not rates._timer.is_set
