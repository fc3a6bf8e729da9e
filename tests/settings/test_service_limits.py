"""`services.NAME.timeouts` and `.limits`: what a service writes counts for it, the rest is inherited."""

from __future__ import annotations

import pytest

from gateway.core.fleet.connections import Reuse
from gateway.core.fleet.limits import LIMITS, SERVICE_LIMITS, Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.timeouts import NO_TIMEOUT, SERVICE_TIMEOUTS, TIMEOUTS, Timeouts
from tests.settings.texts import BASE, load_text


def service_of(more: str, whole: str = "") -> Service:
    [service] = load_text(BASE + more + whole).require().services
    return service


def test_without_a_key_a_service_has_the_defaults() -> None:
    """Those of core are those of the file: tests and code without a file make services themselves."""
    service = service_of("")

    assert (service.timeouts, service.limits, service.reuse) == (Timeouts(), Limits(), Reuse())


def test_each_key_is_inherited_by_itself() -> None:
    whole = (
        "timeouts: {backend_head: 7s, connect: 1s}\nlimits: {body: 1MiB, replay_body: 1KiB, min_rate: 9}\n"
    )

    found = service_of(
        "    timeouts: {backend_head: 9s, backend_body_idle: off}\n    limits: {body: 2GiB}\n", whole
    )

    timeouts, limits = found.timeouts, found.limits
    assert (timeouts.backend_head, timeouts.connect, timeouts.client_write_idle) == (9.0, 1.0, 60.0)
    assert timeouts.backend_body_idle == NO_TIMEOUT
    assert (limits.body, limits.replay_body, limits.min_rate) == (2 * 1024**3, 1024, 9)


def test_the_whole_file_may_have_off_too() -> None:
    assert service_of("", "timeouts: {backend_body_idle: off}\n").timeouts.backend_body_idle == NO_TIMEOUT
    own = service_of("    timeouts: {backend_body_idle: 5s}\n", "timeouts: {backend_body_idle: off}\n")
    assert own.timeouts.backend_body_idle == 5.0


def test_what_is_inherited_belongs_to_the_service_as_it_is_written() -> None:
    """Otherwise a reload would keep the old view of a service, and its old time-outs."""
    text = BASE + "timeouts: {backend_head: %s}\n"
    [one], [same], [other] = (load_text(text % value).require().services for value in ("7s", "7s", "8s"))

    assert one.is_written_as(same)
    assert not one.is_written_as(other)


def test_every_key_of_the_whole_file_is_either_a_services_or_is_refused_there_with_a_reason() -> None:
    for whole, own in ((TIMEOUTS, SERVICE_TIMEOUTS), (LIMITS, SERVICE_LIMITS)):
        assert own.keys.keys() | own.whole_file.keys() == whole.keys.keys()
        assert not own.keys.keys() & own.whole_file.keys()
        assert all(own.whole_file.values())


@pytest.mark.parametrize(
    "group, name, reason",
    [
        *(("timeouts", *each) for each in SERVICE_TIMEOUTS.whole_file.items()),
        *(("limits", *each) for each in SERVICE_LIMITS.whole_file.items()),
    ],
)
def test_a_key_that_means_nothing_in_a_service_is_refused_with_the_reason(
    group: str, name: str, reason: str
) -> None:
    [problem] = load_text(f"{BASE}    {group}:\n      {name}: 1s\n").problems

    assert (problem.code, problem.line, problem.column) == ("not-per-service", 8, 7)
    assert reason in problem.message
    assert f"`{group}` of the whole file" in (problem.hint or "")


@pytest.mark.parametrize(
    "text, found",
    [
        ("    timeouts: {connect: off}\n", ("bad-value", 7, 25)),
        ("    timeouts: {client_write_idle: off}\n", ("bad-value", 7, 35)),
        ("    timeouts: {backend_head: never}\n", ("bad-value", 7, 30)),
        ("    timeouts: {backend_head: 0s}\n", ("bad-value", 7, 30)),
        ("    timeouts: {backend_heat: 1s}\n", ("unknown-key", 7, 16)),
        ("    timeouts: 5s\n", ("wrong-type", 7, 15)),
        ("    timeouts: {body: 1s}\n", ("unknown-key", 7, 16)),
        ("    limits: {body: 1}\n", ("bad-value", 7, 20)),
        ("    limits: {body: 1KiB, replay_body: 2KiB}\n", ("contradiction", 7, 39)),
    ],
)
def test_what_is_wrong_in_a_service_has_its_position(text: str, found: tuple[str, int, int]) -> None:
    [problem] = load_text(BASE + text).problems

    assert (problem.code, problem.line, problem.column) == found


def test_an_inherited_limit_contradicts_nothing() -> None:
    """`replay_body` of the whole file is larger: of a body that is refused nothing is held."""
    assert service_of("    limits: {body: 1KiB}\n").limits.body == 1024
