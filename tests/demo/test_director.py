"""The course of the demonstration inside this process: commands, and what becomes of the requests meanwhile.

Everything is real: servers, gateway, clients. The tests wait for what the scene tells, never for time.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.demo import director as module
from gateway.demo.clients import ApiResponse, Judgement, NewClient, Result
from gateway.demo.director import DemoOptions, Director
from gateway.demo.haproxy import find_program
from gateway.demo.scene import BackendScene, KeyCommand, Scene
from gateway.demo.servers import ServerState
from tests.kit.waiting import until


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Director]:
    """One without an end, that stands still but for commands."""
    monkeypatch.setattr(module, "ROUND", 4.0)  # probes are as frequent as in so short a one
    async with Director(DemoOptions(None, 3, admin_port=0)) as director:
        director.do(KeyCommand.PAUSE)
        yield director


def backends(scene: Scene) -> dict[str, BackendScene]:
    return {each.name: each for service in scene.fronts[0].services for each in service.backends}


def offers(scene: Scene) -> tuple[str, ...]:
    return tuple(service.offer for service in scene.fronts[0].services)


def told(director: Director, pattern: str) -> list[str]:
    """What the log of events tells by this pattern, the newest last."""
    return [each.text for each in director.scene().events if re.search(pattern, each.text)]


async def seen(director: Director, holds: Callable[[Scene], bool], description: str) -> None:
    await until(lambda: holds(director.scene()), description)


async def upgraded(director: Director, names: list[str]) -> None:
    """Take steps until these servers, the next in order, are upgraded."""
    for name in names:
        director.do(KeyCommand.NEXT)
        director.do(KeyCommand.NEXT)
        await until(lambda name=name: bool(told(director, f"{name} is upgraded")), f"{name} is upgraded")  # type: ignore[misc]


async def test_it_begins_with_a_uniform_fleet_and_shows_all_of_it(running: Director) -> None:
    scene = running.scene()

    assert offers(scene) == ("1.1-1.82", "1-4")
    assert [each.phase for each in scene.fronts[0].services] == ["uniform", "uniform"]
    assert {each.freshness for each in backends(scene).values()} == {"fresh"}
    assert list(backends(scene)) == [*(f"api-{number}" for number in range(1, 5)), "catalog-1", "catalog-2"]
    assert scene.paused
    assert scene.step == "0 of 12: nothing is upgraded yet"
    assert [each.share for each in scene.fronts[0].services] == [82 / 90, 4 / 7]
    await seen(running, lambda scene: scene.fronts[0].answered > 0, "clients are answered")


async def test_next_takes_one_step_and_the_offer_waits_for_all(running: Director) -> None:
    running.do(KeyCommand.NEXT)
    await seen(running, lambda scene: backends(scene)["api-1"].state == "upgrading", "api-1 stops")
    running.do(KeyCommand.NEXT)
    await seen(running, lambda scene: backends(scene)["api-1"].serves == "1.1-1.90", "api-1 is upgraded")

    scene = running.scene()
    service = scene.fronts[0].services[0]
    assert (service.offer, service.phase) == ("1.1-1.82", "mixed")
    assert service.held == "1.83-1.90 waits for api-2, api-3, api-4"
    assert scene.step == "2 of 12: api-1 is upgraded to Caracal (24.1)"
    assert running.lost == 0


async def test_a_complete_upgrade_that_is_rolled_back_loses_nothing(running: Director) -> None:
    await upgraded(running, ["api-1", "catalog-1", "api-2", "api-3", "catalog-2", "api-4"])
    await seen(running, lambda scene: offers(scene) == ("1.1-1.90", "1-7"), "everything new is offered")
    for name in ["api-4", "catalog-2", "api-3", "api-2", "catalog-1"]:
        running.do(KeyCommand.ROLL_BACK)
        await until(lambda name=name: bool(told(running, f"{name} is rolled back")), name)  # type: ignore[misc]
    await seen(running, lambda scene: backends(scene)["catalog-1"].serves == "1-4", "the old one answers")
    await seen(running, lambda scene: offers(scene) == ("1.1-1.90", "1-4"), "no catalog is new any more")
    running.do(KeyCommand.ROLL_BACK)
    await seen(running, lambda scene: offers(scene) == ("1.1-1.82", "1-4"), "nothing new is left")

    assert running.scene().step.startswith("0 of 12: api-1 is rolled back to Antelope")
    assert running.scene().fronts[0].lost == 0
    running.do(KeyCommand.ROLL_BACK)
    await until(lambda: bool(told(running, "nothing to roll back")), "it says so")


@pytest.mark.parametrize(
    "command, state", [(KeyCommand.KILL, ServerState.KILLED), (KeyCommand.HANG, ServerState.HANGING)]
)
async def test_a_server_that_is_struck_costs_no_client_anything_and_comes_back(
    running: Director, monkeypatch: pytest.MonkeyPatch, command: KeyCommand, state: ServerState
) -> None:
    monkeypatch.setattr(module, "AWAY", 2.0)
    running.do(command)
    running.do(command)
    await seen(
        running,
        lambda scene: any(
            each.state == state and each.freshness != "fresh" for each in backends(scene).values()
        ),
        "the gateway has seen it",
    )
    answered = running.scene().fronts[0].answered
    await seen(
        running,
        lambda scene: all(
            each.state == "running" and each.freshness == "fresh" for each in backends(scene).values()
        ),
        "it is back",
    )

    await seen(running, lambda scene: scene.fronts[0].answered > answered + 20, "clients go on")
    assert running.lost == 0
    assert running.scene().fronts[0].refused <= sum(
        each.refused for each in running.scene().fronts[0].clients if each.kind == "new"
    )


async def test_the_last_server_of_a_service_is_not_struck(running: Director) -> None:
    for _ in range(4):
        running.do(KeyCommand.KILL)
    await until(lambda: len(told(running, "is killed|comes back")) >= 4, "four are killed")
    running.do(KeyCommand.KILL)
    await until(lambda: bool(told(running, "the last running servers are kept")), "the last ones stay")

    states = {name: each.state for name, each in backends(running.scene()).items()}
    assert "running" in {state for name, state in states.items() if name.startswith("api")}
    assert "running" in {state for name, state in states.items() if name.startswith("catalog")}


async def test_quit_ends_it_and_the_scene_stays(running: Director) -> None:
    await seen(running, lambda scene: scene.fronts[0].answered > 0, "clients are answered")

    running.do(KeyCommand.QUIT)
    await running.over.wait()

    scene = running.scene()
    assert scene.fronts[0].requests == sum(
        each.answered + each.refused + each.lost for each in scene.fronts[0].clients
    )
    assert running.scene() is scene


async def test_a_step_waits_while_the_only_other_server_is_away(
    running: Director, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY", 1.0)
    await upgraded(running, ["api-1"])
    monkeypatch.setattr(running._victims, "choice", lambda names: "catalog-2")
    running.do(KeyCommand.KILL)
    running.do(KeyCommand.NEXT)
    await until(lambda: bool(told(running, "catalog-1 stops")), "catalog-1 stops")

    assert told(running, "catalog-2 (is killed|comes back)|catalog-1 stops") == [
        "catalog-2 is killed",
        "catalog-2 comes back",
        "catalog-1 stops for its upgrade",
    ]
    assert running.lost == 0


async def test_more_keys_than_can_be_obeyed_are_forgotten(running: Director) -> None:
    for _ in range(50):
        running.do(KeyCommand.NEXT)
    await seen(running, lambda scene: scene.step.startswith("4 of 12"), "the first four are obeyed")
    running.do(KeyCommand.HANG)
    await until(lambda: bool(told(running, "hangs$")), "a later one is obeyed, too")

    assert running.scene().step.startswith("4 of 12")


async def test_it_can_be_ended_before_it_has_begun() -> None:
    director = Director(DemoOptions(None, 3, admin_port=0))
    director.quit()
    async with director:
        await director.over.wait()

    assert director.lost == 0


async def test_a_pause_holds_the_course_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND", 4.0)
    async with Director(DemoOptions(None, 3, admin_port=0)) as director:
        await seen(director, lambda scene: len(told(director, "stops|upgraded")) == 1, "the first step")
        director.do(KeyCommand.PAUSE)
        answered = director.scene().fronts[0].answered
        await seen(director, lambda scene: scene.fronts[0].answered > answered + 60, "clients go on")
        assert len(told(director, "stops|upgraded")) == 1
        director.do(KeyCommand.PAUSE)
        await seen(director, lambda scene: len(told(director, "stops|upgraded")) == 2, "the next step")


async def test_without_an_end_it_rolls_back_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND", 1.0)
    async with Director(DemoOptions(None, 3, admin_port=0)) as director:
        await until(lambda: bool(told(director, "api-1 is rolled back")), "all is rolled back")
        assert offers(director.scene())[1] == "1-4"
        await until(lambda: len(told(director, "api-1 stops")) == 2, "it begins anew")

        assert director.lost == 0


@pytest.mark.engines
async def test_what_haproxy_loses_is_no_loss_of_the_gateway() -> None:
    async with Director(DemoOptions(1.0, 5, haproxy=find_program(), admin_port=0)) as director:
        await director.over.wait()
        gateway, balancer = director.scene().fronts

        assert (gateway.name, gateway.lost, director.lost) == ("skewgate", 0, 0)
        assert "round robin" in balancer.name
        assert {each.serves for each in balancer.services[0].backends} == {"1.1-1.90"}
        assert balancer.requests > 0


async def test_what_the_gateway_loses_is_counted_and_told(running: Director) -> None:
    running._sides[0].add(NewClient, "1.82", ApiResponse(0), Judgement(Result.LOST, "no response"))

    scene = running.scene().fronts[0]
    assert (running.lost, scene.lost, scene.losses) == (1, 1, (("no response", 1),))
    assert next(each for each in scene.clients if each.kind == "new").last_loss == "1.82: no response"


async def test_the_usual_admin_port_is_taken_if_it_is_free(capfd: pytest.CaptureFixture[str]) -> None:
    """So that `skewgate status` beside it finds it. If it is taken, nobody asked for it: nothing is said."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        async with Director(DemoOptions(1.0, 5, admin_port=port)) as beside:
            assert f":{port}/" not in beside.page
    async with Director(DemoOptions(1.0, 5, admin_port=port)) as usual:
        assert usual.page == usual.scene().page == f"http://127.0.0.1:{port}/ui/"

    assert capfd.readouterr().err == ""
