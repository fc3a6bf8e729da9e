"""`ejection`, `backup`, the bounds of a backend with their queue, and `probe.health`."""

from __future__ import annotations

import pytest

from gateway.core.fleet.connections import NO_QUEUE, Queue
from gateway.core.fleet.failures import Ejection, EjectionReason
from gateway.core.fleet.service import Health
from tests.settings.texts import BASE, load_text

BACKENDS = f"{BASE}      - url: http://127.0.0.1:6386\n"


def test_by_default_backends_that_fail_are_ejected_and_nothing_is_bounded() -> None:
    (service,) = load_text(BASE).require().services
    (backend,) = service.backends

    assert service.ejection == Ejection(5, 10.0, 300.0, 50)
    assert (backend.backup, backend.bound, backend.queue) == (False, 0, NO_QUEUE)
    assert service.probe.health is None


def test_every_key_is_read() -> None:
    text = (
        f"{BACKENDS}        backup: true\n"
        "        max_requests: 8\n"
        "        max_connections: 6\n"
        "        queue: {length: 3, timeout: 250ms}\n"
        "    probe: {health: {path: /healthcheck, status: 204}}\n"
        "    ejection: {failures: 2, time: 1s, max_time: 4s, max_share: 34%, on: [timeout, server_error]}\n"
    )
    (service,) = load_text(text).require().services
    plain, backend = service.backends

    assert (backend.backup, backend.max_requests, backend.max_connections) == (True, 8, 6)
    assert (backend.bound, backend.queue) == (6, Queue(3, 0.25))
    assert (plain.backup, plain.bound) == (False, 0)
    assert service.probe.health == Health("/healthcheck", 204)
    on = frozenset({EjectionReason.TIMEOUT, EjectionReason.SERVER_ERROR})
    assert service.ejection == Ejection(2, 1.0, 4.0, 34, on)


def test_a_bound_brings_a_short_queue() -> None:
    (service,) = load_text(f"{BASE}        max_requests: 8\n").require().services

    assert service.backends[0].queue == Queue(32, 1.0)


def test_off() -> None:
    (service,) = load_text(f"{BASE}    ejection: off\n").require().services

    assert service.ejection is None


@pytest.mark.parametrize(
    "lines, where, message",
    [
        ("    ejection: on", (7, 15), "not one of the allowed values"),
        ("    ejection: {max_share: 0%}", (7, 27), "not a valid percentage"),
        ("    ejection: {max_share: 3}", (7, 27), "not a valid percentage"),
        ("    ejection: {failures: 0}", (7, 26), "from 1 to 1000"),
        ("    ejection: {on: [connect, everything]}", (7, 30), "not one of the allowed values"),
        ("    ejection: {on: []}", (7, 20), "no kind of failure is left"),
        ("    ejection: {time: 10m}", (7, 22), "max_time is shorter than time"),
        ("    ejection: {time: 2s, max_time: 1s}", (7, 36), "max_time is shorter than time"),
        ("    ejection: {tries: 3}", (7, 16), "there is no key 'tries'"),
        ("        max_requests: 0", (7, 23), "from 1 to 100000"),
        ("        max_connections: many", (7, 26), "not a whole number"),
        ("        queue: {length: 3}", (7, 16), "without a bound nothing waits"),
        ("        backup: yes", (7, 17), "not true or false"),
        ("    probe: {health: /healthcheck}", (7, 21), "mapping"),
        ("    probe: {health: {status: 200}}", (7, 13), "path"),
        ("    probe: {health: {path: healthcheck}}", (7, 28), "/"),
        ("    probe: {health: {path: /x, status: 503}}", (7, 40), "from 200 to 299"),
    ],
)
def test_errors_have_a_position_and_a_reason(lines: str, where: tuple[int, int], message: str) -> None:
    loaded = load_text(f"{BASE}{lines}\n")

    (problem,) = loaded.errors
    assert (problem.line, problem.column) == where, loaded.render()
    assert message in loaded.render()


def test_backups_alone_are_a_warning() -> None:
    loaded = load_text(f"{BASE}        backup: true\n")

    assert loaded.settings is not None
    assert "every backend of the service is a backup" in loaded.render()
    assert load_text(f"{BACKENDS}        backup: true\n").problems == ()


@pytest.mark.parametrize(
    "lines, hint",
    [
        ("    ejection: {on: [everything]}", "connect, bad_gateway, timeout, server_error"),
        ("    ejection: {on: connect}", "write it in brackets"),
        ("    ejection: on", "write off, or leave the key out"),
        ("    timeouts: {backend_head: never}", "; or off"),
    ],
)
def test_one_mistake_is_one_problem_with_a_way_out(lines: str, hint: str) -> None:
    (problem,) = load_text(f"{BASE}{lines}\n").problems

    assert problem.hint is not None
    assert hint in problem.hint
