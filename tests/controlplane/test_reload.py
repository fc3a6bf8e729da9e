"""A reload is in force as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest

from gateway.controlplane.reload import RELOADED, Reloader
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.keys.addresses import Address
from gateway.keys.secrets import Secret
from gateway.runtime.service_manager import Moment
from gateway.settings import Loaded
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.settings.yaml.problem import Problem, Severity
from gateway.settings.yaml.tree import Position
from gateway.telemetry.series.declaring import Counter, Gauge
from gateway.telemetry.series.process import OfConfiguration
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, member, upto
from tests.telemetry.builders import NobodyCounts

ONE, TWO = Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2)
KNOWN = upto(58)


class Targets:
    """Stands in for prober or resolver, and keeps its calls."""

    def __init__(self) -> None:
        self.targets: list[tuple[Service, ...]] = []

    def retarget(self, services: Iterable[Service]) -> None:
        self.targets.append(tuple(services))


class Recorder(Targets, NobodyCounts):
    """Stands in for prober, resolver and metrics, and keeps their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.resolver = Targets()
        self.reloads: list[str] = []
        self.gauges: list[float] = []
        """Whether the last reload was successful, and when one was."""

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        assert series is OfConfiguration.config_reloads
        self.reloads.extend(key)

    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None:
        self.gauges.append(value)


def settings(*backends: Backend) -> Settings:
    return Settings(listen=(Listen("127.0.0.1", 0),), services=(service(*backends),), hash="abc")


def reloader(
    read: Callable[[], Settings | Loaded],
    started: Settings,
    wall: Callable[[], float] = lambda: 0.0,
    announce: Callable[[Moment], None] = lambda moment: None,
) -> tuple[Reloader, SnapshotHolder, Recorder]:
    snapshot_holder, recorder = holder_of(*started.services), Recorder()

    def load() -> Loaded:
        result = read()
        return result if isinstance(result, Loaded) else Loaded("x.yaml", result, ())

    return (
        Reloader(
            load,
            started,
            snapshot_holder=snapshot_holder,
            resolver=recorder.resolver,
            prober=recorder,
            metrics=recorder,
            announce=announce,
            wall=wall,
        ),
        snapshot_holder,
        recorder,
    )


async def test_what_is_known_of_a_backend_that_stays_is_kept() -> None:
    now = 1000.0
    new = replace(settings(ONE, TWO), hash="def")
    subject, snapshot_holder, recorder = reloader(lambda: new, settings(ONE), wall=lambda: now)
    snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(KNOWN, 1.0))
    generation = snapshot_holder.current.generation

    now = 2000.0
    result = await subject.reload()

    assert (result.ok, result.restart) == (True, ())
    assert snapshot_holder.current.generation == generation + 1
    assert (member(snapshot_holder).advertisement, member(snapshot_holder, "api-2").advertisement) == (
        KNOWN,
        None,
    )
    assert recorder.targets == recorder.resolver.targets == [new.services]
    assert (recorder.reloads, recorder.gauges) == (["success"], [1, 2000.0])
    assert (subject.config.hash, subject.config.loaded_at) == ("def", 2000.0)


PROBLEMS = (
    Problem(3, 1, "unknown-key", "there is no key `lisen`", "did you mean `listen`?", width=5),
    Problem(4, 1, "number", "other tools read this as a number", severity=Severity.WARNING),
    Problem(5, 1, "bad-value", "no"),
)


async def test_a_file_with_a_problem_changes_nothing_and_is_reported_as_by_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read() -> Loaded:
        return Loaded("x.yaml", None, PROBLEMS, ("", "", "lisen: x"))

    subject, snapshot_holder, recorder = reloader(read, settings(ONE))
    before, config = snapshot_holder.current, subject.config

    result = await subject.reload()

    assert not result.ok
    assert result.problems == (
        (
            "x.yaml:3:1: error[unknown-key]: there is no key `lisen`\n"
            "    3 | lisen: x\n"
            "      | ^^^^^\n"
            "      = hint: did you mean `listen`?"
        ),
        "x.yaml:5:1: error[bad-value]: no",
    )
    assert snapshot_holder.current is before
    first = "x.yaml:3:1: error[unknown-key]: there is no key `lisen` (hint: did you mean `listen`?)"
    assert subject.config == replace(config, error=f"{first}, and 1 more")
    assert (recorder.targets, recorder.resolver.targets, recorder.reloads) == ([], [], ["failure"])
    assert recorder.gauges == [0]
    refused = "reload refused, the old configuration stays in force: x.yaml:"
    assert [record.getMessage() for record in caplog.records] == [
        f"{refused}3:1: error[unknown-key]: there is no key `lisen` (hint: did you mean `listen`?)",
        f"{refused}5:1: error[bad-value]: no",
    ]


async def test_what_needs_a_restart_is_refused_whole_with_the_keys() -> None:
    started = settings(ONE)
    new = replace(
        started,
        services=(service(ONE, TWO),),
        listen=(Listen("127.0.0.1", 8081),),
        admin=Admin(Address("127.0.0.1", 9901), metrics_listen=Address("127.0.0.1", 1)),
        timeouts=replace(started.timeouts, drain=1.0, connect=7.0),
    )
    positions = {
        "listen": Position(1, 1, 6),
        "timeouts": Position(3, 1, 8),
        "timeouts.drain": Position(4, 3, 5),
    }
    text = ("listen: 127.0.0.1:8081", "x: y", "timeouts:", "  drain: 1s")
    subject, snapshot_holder, recorder = reloader(
        lambda: Loaded("x.yaml", new, (), text, positions=positions), started
    )
    before = snapshot_holder.current

    result = await subject.reload()

    keys = ("listen", "admin.listen", "admin.metrics_listen", "timeouts.drain")
    assert (result.ok, result.restart) == (False, keys)
    assert [problem.partition("\n")[0] for problem in result.problems] == [
        f"x.yaml:{at}: error[needs-restart]: `{key}` cannot change while the gateway runs"
        for at, key in zip(("1:1", "1:1", "1:1", "4:3"), keys, strict=True)
    ]
    assert "    4 |   drain: 1s\n      |   ^^^^^" in result.problems[3]
    assert snapshot_holder.current is before
    assert (recorder.targets, recorder.reloads, recorder.gauges) == ([], ["failure"], [0])
    assert subject.config.error is not None
    assert subject.config.error.startswith("x.yaml:1:1: error[needs-restart]: `listen` cannot change")
    assert subject.config.error.endswith(", and 3 more")

    new = started
    assert (await subject.reload()).ok
    assert subject.config.error is None


async def test_the_log_says_that_a_reload_is_refused_while_it_is_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SIGHUP has no other answer than the log."""
    subject, _, recorder = reloader(lambda: settings(ONE, TWO), settings(ONE))
    await subject.hold("another gateway is taking over")
    assert (await subject.reload()).problems == ("another gateway is taking over",)
    assert [record.getMessage() for record in caplog.records] == [
        "reload refused, the old configuration stays in force: another gateway is taking over"
    ]
    assert (recorder.reloads, subject.config.error) == ([], None)  # the file is not to blame

    subject.go_on()
    assert (await subject.reload()).ok


async def test_every_other_value_of_the_settings_needs_a_restart() -> None:
    """What nobody has thought of is refused, and never in force without a entry."""
    started = settings(ONE)
    for each in fields(Settings):
        if each.name in {*RELOADED, "listen", "admin"}:
            continue
        other: dict[str, Any] = {each.name: object()}
        subject, _, _ = reloader(partial(replace, started, **other), started)
        assert (await subject.reload()).restart == (each.name,)


async def test_a_token_is_read_again() -> None:
    started = replace(settings(ONE), admin=Admin(token=Secret("old")))
    new = replace(started, admin=Admin(token=Secret("new")))
    subject, _, _ = reloader(lambda: new, started)

    assert (await subject.reload()).ok
    assert subject.settings.admin.token == Secret("new")

    new = replace(started, admin=Admin())
    assert (await subject.reload()).restart == ("admin.token",)


async def test_a_reload_is_announced_at_its_begin_and_at_its_end() -> None:
    told: list[Moment] = []
    started = settings(ONE)
    subject, _, _ = reloader(lambda: Loaded("x.yaml", None, PROBLEMS), started, announce=told.append)

    await subject.reload()

    assert told == [Moment.BEGIN, Moment.END]
