"""`status` with many backends, and of one service: what is wrong comes first, long lists are counted."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.cli.status import SHOWN, page
from gateway.runtime.terminal import Paint
from tests.cli.conftest import Call, Running
from tests.cli.test_known_names import completed
from tests.kit.processes import Ended


def member(number: int, **more: object) -> dict[str, Any]:
    return {"freshness": "fresh", "min": "1.1", "max": "1.58", "url": f"http://10.0.0.{number}:6385", **more}


def document(number: int, **more: Mapping[str, object]) -> dict[str, Any]:
    """One service with so many backends, all of which hold the offer. `more`: of backends by name."""
    names = [f"api-{each}" for each in range(1, number + 1)]
    backends = {name: member(each, **more.get(name, {})) for each, name in enumerate(names)}
    offer = {"min": "1.1", "max": "1.58", "held_by": names, "held_rule": "guaranteed"}
    return {
        "services": {
            "baremetal": {"phase": "mixed", "dialect": "ironic", "offer": offer, "backends": backends}
        }
    }


def shown(of: dict[str, Any], *, whole: bool = False) -> list[str]:
    return page(of, 0.0, Paint(io.StringIO()), whole=whole).splitlines()


def test_R3_N6_long_lists_are_counted_and_cut() -> None:
    lines = shown(document(200))

    assert lines[1].endswith("api-1, api-2, api-3 and 197 more (guaranteed)")
    assert max(map(len, lines)) < 160
    assert len(lines) < SHOWN + 10
    assert lines[-1] == "baremetal: 180 more without a problem; `skewgate status baremetal` shows all"


def test_R3_N6_one_more_is_named() -> None:
    assert shown(document(4))[1].endswith("api-1, api-2, api-3, api-4 (guaranteed)")


def test_R3_N6_what_is_wrong_comes_first_and_is_never_left_out() -> None:
    many = document(200, **{"api-150": {"error": "answered 500 " * 40}, "api-199": {"freshness": "down"}})
    quiet = document(2)["services"]["baremetal"]
    many["services"] = {"quiet": quiet, **many["services"]}

    lines = shown(many)

    assert [line.split()[0] for line in lines[1:3]] == ["baremetal", "quiet"]
    backends = lines[lines.index("") + 2 :]
    assert [line.split()[1] for line in backends[:3]] == ["api-150", "api-199", "api-1"]
    assert max(map(len, lines)) < 300


def test_R3_N6_of_one_service_every_backend_has_a_row() -> None:
    lines = shown(document(200), whole=True)

    assert len(lines) == 2 + 1 + 201


async def test_R3_N6_status_of_one_service(running: Running, call_main: Call) -> None:
    one = await call_main("status", "--admin", running.admin, "baremetal")
    whole = await call_main("status", "--admin", running.admin, "-o", "json")
    as_json = await call_main("status", "--admin", running.admin, "-o", "json", "baremetal")

    assert one.code == 0
    assert "api-2" in one.out
    assert json.loads(as_json.out)["services"].keys() == {"baremetal"}
    assert len(json.loads(whole.out)["services"]["baremetal"]["backends"]) == 2


async def test_R3_N6_an_unknown_service_is_said_with_what_could_be_meant(
    running: Running, call_main: Call
) -> None:
    async def call(service: str) -> Ended:
        return await call_main("status", "--admin", running.admin, service)

    begin = "skewgate: there is no service "
    assert await call("baremetl") == (1, "", f"{begin}'baremetl'; did you mean baremetal?\n")
    assert await call("xyz") == (1, "", f"{begin}'xyz'; there are: baremetal\n")
    assert await call("my.yaml") == (1, "", f"{begin}'my.yaml'; did you mean -c my.yaml?\n")


@pytest.mark.processes
async def test_R3_N6_a_shell_completes_the_service(running: Running) -> None:
    assert await completed(f"skewgate status --admin {running.admin} b") == {"baremetal"}
