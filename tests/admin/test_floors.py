"""Floors at run time, as scripts set them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.pace import Pace
from gateway.core.versions.version import Version
from gateway.errors import CommandRefused
from tests.admin.test_commands import CEILING, offer, put, uniform
from tests.admin.testbed import StartAdmin
from tests.kit.ironic import learn, upto

FLOOR = "/services/baremetal/floor"
YES = f"{FLOOR}?yes"


async def error(response: Any, status: int) -> str:
    assert response.status == status
    text = (await response.json())["error"]
    assert isinstance(text, str)
    return text


async def test_a_floor_is_in_force_when_the_response_comes(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    raised = await offer(await put(testbed, {"version": "1.40"}, YES))
    assert (raised["min"], raised["floor"], raised["floor_suspended"]) == ("1.40", "1.40", False)
    assert (raised["phase"], raised["held_rule"]) == ("uniform", None)
    assert (await testbed.json("/status"))["services"]["baremetal"]["raised"] == "1.40"

    page = await (await testbed.send("GET", "/ui/services/baremetal")).text()
    assert "floor 1.40" in page
    lowered = await offer(await testbed.send("DELETE", FLOOR))
    assert (lowered["min"], lowered["floor"]) == ("1.1", None)


async def test_one_that_would_leave_nothing_is_409_and_so_is_a_pin_beneath_it(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    assert await error(await put(testbed, {"version": "1.91"}, YES), 409) == (
        "the floor 1.91 is above the maximum 1.90 on offer: nothing could be served"
    )
    await put(testbed, {"version": "1.50"}, CEILING)
    assert "above the maximum 1.50" in await error(await put(testbed, {"version": "1.51"}, YES), 409)
    await put(testbed, {"version": "1.40"}, YES)
    assert "the ceiling 1.39 is below the minimum 1.40" in await error(
        await put(testbed, {"version": "1.39"}, CEILING), 409
    )


PACES = (
    Pace(("cron", "loop"), Version(1, 50), date(2999, 12, 31)),
    Pace(("slow",), Version(1, 60)),
    Pace(("old",), Version(1, 20), date(2001, 1, 1)),
)


async def test_one_that_would_leave_nothing_to_a_client_with_an_own_pace_is_409(admin: StartAdmin) -> None:
    testbed = await admin(uniform(paces=PACES))
    assert await error(await put(testbed, {"version": "1.51"}, YES), 409) == (
        "the floor 1.51 is above the maximum 1.50 of cron, loop (`offer.for`): nothing could be served"
    )
    shown = await offer(await put(testbed, {"version": "1.50"}, YES))
    assert shown["floor"] == "1.50"
    sentences = [
        "ceiling 1.50 for cron, loop until 2999-12-31",
        "ceiling 1.60 for slow",
        "ceiling 1.20 for old until 2001-01-01",
    ]
    assert [each["sentence"] for each in shown["for"]] == sentences
    assert shown["for"][0] | {"sentence": ""} == {
        "clients": ["cron", "loop"],
        "ceiling": "1.50",
        "until": "2999-12-31",
        "sentence": "",
    }
    page = await (await testbed.send("GET", "/ui/services/baremetal")).text()
    assert all(f"C{each[1:]}." in page for each in sentences)


async def test_clients_without_a_version_need_a_rule_or_the_operators_word(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    assert await error(await put(testbed, {"version": "1.40"}, FLOOR), 409) == (
        "clients that name no version rely on 1.1, which is beneath the floor 1.40: "
        "set `default_version`, or confirm it (`--yes`, `?yes`)"
    )
    assert (await put(testbed, {"version": "1.1"}, FLOOR)).status == 200


@pytest.mark.parametrize(
    "document",
    [{"release": "2024.1"}, {"version": "1.40", "yes": True}, {"version": 1.4}, {"version": "x"}, []],
)
async def test_a_bad_value_is_400_and_changes_nothing(admin: StartAdmin, document: object) -> None:
    testbed = await admin(uniform())
    before = testbed.snapshot_holder.current
    await error(await put(testbed, document, YES), 400)
    assert testbed.snapshot_holder.current is before


async def test_a_replica_that_knows_no_floors_is_409(admin: StartAdmin) -> None:
    async def refuse(service: str, command: OperatorCommand) -> None:
        raise CommandRefused("a live replica knows no floors: update all replicas first")

    testbed = await admin(uniform(), command=refuse)
    assert "knows no floors" in await error(await put(testbed, {"version": "1.40"}, YES), 409)


async def test_a_suspended_floor_shows_in_status_and_metrics(admin: StartAdmin) -> None:
    testbed = await admin(uniform(floor=Version(1, 60)))
    assert "skewgate_floor_suspended{" in (text := await (await testbed.send("GET", "/metrics")).text())
    assert 'skewgate_floor_suspended{service="baremetal"} 0' in text
    for name in ("api-1", "10.0.0.2:6385"):
        learn(testbed.snapshot_holder, name, upto(50), 2.0)
    status = (await testbed.json("/status"))["services"]["baremetal"]["offer"]
    assert (status["max"], status["floor"], status["floor_suspended"]) == ("1.50", "1.60", True)
    text = await (await testbed.send("GET", "/metrics")).text()
    assert 'skewgate_floor_suspended{service="baremetal"} 1' in text
