"""docs/rolling-upgrades.md against the source: phases, rules, series, and the table of the specification."""

from __future__ import annotations

import logging
import re

import pytest
import yaml

from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.service import Policy
from gateway.dialects.openstack.ironic import Ironic
from tests.docs.pages import blocks, page, rows, section
from tests.scenarios.upgrade import NEW, TO, from_ver, to_ver, upgrade_of

PAGE = page("docs/rolling-upgrades.md")
ALERTS = [block.text for block in blocks(PAGE) if block.language == "yaml"]
SERIES = {row[0].strip("`") for row in rows(section(page("docs/metrics.md"), "Series"))}


def first_column(heading: str) -> list[str]:
    """Of every table below it, up to the next heading of two levels."""
    return [row[0].strip("`") for row in rows(section(PAGE, heading))]


def test_every_phase_is_explained_in_the_order_in_which_they_hold() -> None:
    assert first_column("Phases")[: len(Phase)] == list(Phase)


def test_every_rule_that_holds_an_offer_is_explained() -> None:
    assert first_column("What holds the offer") == [*HeldRule, "none"]


def test_every_policy_can_be_chosen_by_this_page() -> None:
    settings = " ".join(row[0] for row in rows(section(PAGE, "Before")))

    assert all(f"`{policy}" in settings for policy in Policy)


def test_the_alerts_use_series_that_exist() -> None:
    [text] = ALERTS
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    queries = [rule["expr"] for rule in rules] + re.findall(r"`(sum by[^`]*)`", PAGE)

    assert len(queries) > len(rules) > 1
    for query in queries:
        names = set(re.findall(r"skewgate_\w+", query))
        assert names
        assert names <= SERIES
        for phases in re.findall(r'phase=~?"([^"]*)"', query):
            assert set(phases.split("|")) <= set(Phase)


@pytest.mark.parametrize("verb", ["pin", "unpin", "drain", "enable", "explain", "status", "reload"])
def test_the_commands_of_an_upgrade_are_shown(verb: str) -> None:
    assert f"./run {verb} " in PAGE or f"./run {verb}\n" in PAGE or f"`./run {verb}`" in PAGE


def test_the_release_of_the_example_is_the_version_of_the_example() -> None:
    version = Ironic.releases["train"]

    assert Ironic().scheme.format(version) == "1.58"


async def test_the_log_is_the_one_that_comes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    [shown] = [block.text.splitlines() for block in blocks(PAGE) if block.language == "text"]
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        caplog.clear()
        for number in (1, 2):
            await upgrade.replace_backend(number, to_ver())
        await upgrade.until(TO, "uniform")
        await upgrade.assert_clients_see(NEW)
        for number in (1, 2):
            await upgrade.replace_backend(number, from_ver())
    logged = [record.getMessage() for record in caplog.records if record.name == "skewgate.offer"]

    assert [same_pause(line) for line in logged] == [same_pause(line) for line in shown]


def same_pause(line: str) -> str:
    """The line with the pause of the page: the test waits less."""
    return re.sub(r"in [\d.]+ m?s,", "in 5 s,", line)


def test_every_step_of_ironics_specification_has_the_phase_of_its_scenario() -> None:
    """The scenarios are UPGRADE-0 to UPGRADE-6.4."""
    scenarios = page("tests/scenarios/test_rolling_upgrade.py")
    steps = rows(section(PAGE, "Ironic and its `pin_release_version`"))[-9:]

    assert [step[0] for step in steps] == ["0", "4.1", "4.2", "5.1", "5.2", "6.1", "6.2", "6.3", "6.4"]
    for step, *_, phase in steps:
        found = re.search(rf'"(\w+)", (?:None|"\w+"), \([^)]*\)\),?\s+id="UPGRADE-{step}"', scenarios)
        assert found is not None, step
        assert found[1] in phase
