"""A reload is in force as a whole, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from gateway.controlplane.cell import Cell
from gateway.controlplane.reload import Reloader
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.version import Version
from gateway.errors import SettingsError
from gateway.settings.problem import Problem, Severity
from gateway.settings.values import AdminSettings, Listen, Settings
from tests.controlplane.fakes import cell_of, member, service

ONE, TWO = Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2)
KNOWN = Advert(VersionSet.between(Version(1, 1), Version(1, 58)))


class Recorder:
    """Stands where prober and metrics stand."""

    def __init__(self) -> None:
        self.targets: list[tuple[Service, ...]] = []
        self.reloads: list[tuple[bool, float]] = []

    def retarget(self, services: Iterable[Service]) -> None:
        self.targets.append(tuple(services))

    def reloaded(self, ok: bool, at: float) -> None:
        self.reloads.append((ok, at))


def settings(*backends: Backend) -> Settings:
    return Settings(listen=(Listen("127.0.0.1", 0),), services=(service(*backends),), hash="abc")


def reloader(
    read: Callable[[], Settings], started: Settings, wall: Callable[[], float] = lambda: 0.0
) -> tuple[Reloader, Cell, Recorder]:
    cell, recorder = cell_of(*started.services), Recorder()
    return Reloader(read, started, cell=cell, prober=recorder, metrics=recorder, wall=wall), cell, recorder


async def test_what_is_known_of_a_backend_that_stays_is_kept() -> None:
    now = 1000.0
    new = replace(settings(ONE, TWO), hash="def")
    subject, cell, recorder = reloader(lambda: new, settings(ONE), wall=lambda: now)
    cell.observe("baremetal", "api-1", Answered(KNOWN, 1.0))
    generation = cell.current.generation

    now = 2000.0
    result = await subject.reload()

    assert (result.ok, result.restart) == (True, ())
    assert cell.current.generation == generation + 1
    assert (member(cell).advert, member(cell, "api-2").advert) == (KNOWN, None)
    assert recorder.targets == [new.services]
    assert recorder.reloads == [(True, 2000.0)]
    assert (subject.config.hash, subject.config.loaded_at) == ("def", 2000.0)


PROBLEMS = (
    Problem(3, 5, "unknown-key", "there is no key `lisen`"),
    Problem(4, 1, "float", "other tools read this as a number", severity=Severity.WARNING),
)


@pytest.mark.parametrize(
    "error, problems",
    [
        (SettingsError("bad file", PROBLEMS), ("3:5: there is no key `lisen`",)),
        (SettingsError("the file is not UTF-8"), ("the file is not UTF-8",)),
        (
            FileNotFoundError(2, "No such file or directory"),
            ("the configuration cannot be read: No such file or directory",),
        ),
    ],
)
async def test_a_file_with_a_problem_changes_nothing(
    error: Exception, problems: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> Settings:
        raise error

    subject, cell, recorder = reloader(read, settings(ONE))
    before, config = cell.current, subject.config

    result = await subject.reload()

    assert (result.ok, result.problems) == (False, problems)
    assert cell.current is before
    assert subject.config is config
    assert (recorder.targets, recorder.reloads) == ([], [(False, 0.0)])
    assert all(problem in caplog.text for problem in problems)


async def test_what_needs_a_restart_is_said_until_it_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    started = settings(ONE)
    new = replace(started, listen=(Listen("127.0.0.1", 8081),), admin=AdminSettings(port=9901))
    subject, _, _ = reloader(lambda: new, started)

    with caplog.at_level(logging.WARNING, "skewgate.reload"):
        assert (await subject.reload()).restart == ("listen", "admin")
        assert (await subject.reload()).restart == ("listen", "admin"), "still not in force"

    assert "restart to put the new value of listen, admin in force" in caplog.text
    new = started
    assert (await subject.reload()).restart == ()
