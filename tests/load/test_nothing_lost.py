"""No request is lost during a rolling upgrade, deaths, a hang, reloads, a pin and a roll-back.

Four fake backends and a gateway run as processes, and ten kinds of clients send more than 200 requests a
second. Afterwards, every request is judged by its response, by the executions of the backends and by the
events meanwhile. The rules are in `ledger`. All of it holds for one process and for several workers.
"""

from __future__ import annotations

import pytest

from tests.load import figures as run_figures
from tests.load.fleet import NAMES, NEW, OLD
from tests.load.ledger import End, Judgement
from tests.load.testbed import Testbed
from tests.real.gateway_process import SERVICE

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]

MINIMUM_RATE = 200
"""Requests per second that the test requires."""

SCENARIO: dict[str, list[tuple[str, ...]]] = {
    "at rest": [("uniform 1.58",)],
    # UPGRADE-B
    "upgrade": [("uniform 1.58", "mixed 1.58", "stabilizing 1.58", "uniform 1.90")],
    "deaths": [("uniform 1.90",)],
    "hang": [("uniform 1.90",)],
    "reloads": [("uniform 1.90",)],
    "pin and unpin": [("uniform 1.90", "capped 1.58", "uniform 1.90")],
    # UPGRADE-stale
    "old backend rejoins": [("uniform 1.90", "mixed 1.90", "uniform 1.90")],
    # UPGRADE-back-late
    "roll-back begins": [("uniform 1.90", "mixed 1.90")],
    "roll-back ends": [("mixed 1.90", "uniform 1.58")],
}
"""Every step with the allowed sequences of phases and offers in it (semantics, Rolling upgrade)."""


def test_no_request_is_lost_while_the_fleet_changes(testbed: Testbed, figures: list[str]) -> None:
    try:
        run_scenario(testbed)
    finally:  # the figures until then explain why a scenario ends early
        judgement = evaluate(testbed, figures)

    assert not judgement.breaches, f"{len(judgement.breaches)} breaches:\n{judgement}"
    assert [step.name for step in testbed.steps] == [*SCENARIO]
    for step in testbed.steps:
        phases = step.phases if testbed.workers == 1 else without_agreeing(step.phases)
        assert phases in SCENARIO[step.name], step
    assert run_figures.rate(testbed.requests()) >= MINIMUM_RATE
    # The scenario must include retries and every allowed failure, or it proves less than it claims.
    retries = {reason: testbed.retries(reason) for reason in ("connect", "no_reply", "reply_timeout")}
    assert all(retries.values()), f"a reason without a retry: {retries}"
    ends = set(judgement.ends.values())
    assert {End.SERVED, End.REFUSED, End.UNAVAILABLE} <= ends, ends
    # What the metrics of all workers say together is what all clients saw.
    assert testbed.gateway.metrics().total("skewgate_requests_total") == len(testbed.requests())


def without_agreeing(phases: tuple[str, ...]) -> tuple[str, ...]:
    """Without the moments in which a phase has begun, and workers are still agreeing on the offer in it."""
    pairs = [tuple(each.split()) for each in phases]
    between = {
        number
        for number, (before, now, after) in enumerate(zip(pairs, pairs[1:], pairs[2:], strict=False), start=1)
        if now == (after[0], before[1])
    }
    return tuple(each for number, each in enumerate(phases) if number not in between)


def run_scenario(testbed: Testbed) -> None:
    """All steps. Each waits for its effect."""
    with testbed.step("at rest"):
        testbed.wait_for_traffic()
    with testbed.step("upgrade"):
        upgrade(testbed)
    with testbed.step("deaths"):
        deaths(testbed)
    with testbed.step("hang"):
        hang(testbed)
        testbed.repeat_until_retried("reply_timeout", lambda: hang(testbed))
    with testbed.step("reloads"):
        reloads(testbed)
    with testbed.step("pin and unpin", falls=True):
        pin_and_unpin(testbed)
    with testbed.step("old backend rejoins"):
        old_backend_rejoins(testbed)
    with testbed.step("roll-back begins"):
        for name in NAMES[:-1]:
            restart(testbed, name, OLD)
        assert testbed.wait_for_offer(NEW, "mixed")["offer"]["held_rule"] == "state"
    with testbed.step("roll-back ends", falls=True):
        restart(testbed, NAMES[-1], OLD)
        testbed.wait_for_offer(OLD, "uniform")
        testbed.wait_for_traffic()


def restart(testbed: Testbed, name: str, highest: str, *, kill: bool = False) -> None:
    """Stop a backend and start it as this release, under load."""
    backend = testbed.backends[name]
    if kill:
        # Without requests in progress, its death would prove little.
        testbed.poller.until(lambda state: state["backends"][name]["in_flight"] >= 2, f"{name} has requests")
        backend.kill()
    else:
        backend.terminate()
    testbed.wait_for_traffic()
    backend.start(highest)
    testbed.wait_until_known(name)
    testbed.wait_for_traffic()


def upgrade(testbed: Testbed) -> None:
    """Upgrade one backend at a time, in every way that operators use."""
    first, second, third, fourth = NAMES
    restart(testbed, first, NEW)
    testbed.wait_for_offer(OLD, "mixed")
    drain_and_restart(testbed, second)
    restart(testbed, third, NEW, kill=True)
    restart(testbed, fourth, NEW)
    testbed.wait_for_offer(NEW, "uniform")
    testbed.wait_for_traffic()


def drain_and_restart(testbed: Testbed, name: str) -> None:
    """Drain the backend first: then no request is in doubt."""
    backend = testbed.backends[name]
    backend.mark_not_serving()
    testbed.command("drain", f"{SERVICE}/{name}", "--wait")
    state = testbed.poller.until(lambda state: state["backends"][name]["drained"], f"{name} drained")
    assert state["backends"][name]["in_flight"] == 0
    executed = len(backend.executions())
    testbed.wait_for_traffic()
    assert len(backend.executions()) == executed, f"{name} got requests although it is drained"
    backend.terminate(drained=True)
    backend.start(NEW)
    testbed.poller.until(
        lambda state: state["backends"][name]["max"] == NEW, f"{name} is probed while drained"
    )
    assert len(backend.executions()) == executed, f"{name} got requests although it is drained"
    testbed.command("enable", f"{SERVICE}/{name}")
    testbed.wait_until_known(name)
    testbed.wait_for_traffic()


def deaths(testbed: Testbed) -> None:
    """SIGTERM, and SIGKILL until a safe request at a killed backend was sent again."""
    first, second, *_ = NAMES
    restart(testbed, first, NEW)
    restart(testbed, second, NEW, kill=True)
    testbed.repeat_until_retried("no_reply", lambda: restart(testbed, second, NEW, kill=True))


def hang(testbed: Testbed) -> None:
    backend = testbed.backends[NAMES[2]]
    backend.hang()
    testbed.wait_until_not_fresh(backend.name)
    backend.mark_hang_noticed()
    testbed.wait_until_idle(backend.name)
    testbed.wait_for_traffic()
    backend.resume()
    testbed.wait_until_known(backend.name)
    testbed.wait_for_traffic()


def reloads(testbed: Testbed) -> None:
    """Reload by signal and by command. A malformed file changes nothing."""
    before = testbed.reloads("success")
    generation = testbed.poller.until_document(lambda document: True, "a reading")["generation"]
    testbed.configure(weight=2)
    testbed.send_sighup()
    testbed.poller.until_document(lambda document: document["generation"] > generation, "reloaded by SIGHUP")
    testbed.wait_for_traffic()
    testbed.configure(weight=1)
    testbed.command("reload")
    assert testbed.reloads("success") == before + 2
    testbed.configure(extra="nonsense: 1\n")
    assert "nonsense" in testbed.command("reload", code=1)
    assert (testbed.reloads("success"), testbed.reloads("failure")) == (before + 2, 1)
    testbed.configure()
    testbed.wait_for_traffic()


def pin_and_unpin(testbed: Testbed) -> None:
    testbed.command("pin", SERVICE, OLD)
    state = testbed.wait_for_offer(OLD, "capped")
    assert (state["offer"]["ceiling"], state["offer"]["held_rule"]) == (OLD, "ceiling")
    testbed.wait_for_traffic()
    testbed.command("unpin", SERVICE)
    testbed.wait_for_offer(NEW, "uniform")
    testbed.wait_for_traffic()


def old_backend_rejoins(testbed: Testbed) -> None:
    """The offer stays, and the old backend gets only versions that it serves."""
    name = NAMES[-1]
    restart(testbed, name, OLD, kill=True)
    offer = testbed.wait_for_offer(NEW, "mixed")["offer"]
    assert (offer["held_rule"], offer["held_by"]) == ("state", [name])
    restart(testbed, name, NEW)
    testbed.wait_for_offer(NEW, "uniform")


def evaluate(testbed: Testbed, figures: list[str]) -> Judgement:
    """Judge all requests, and write the table."""
    testbed.end_traffic()
    requests, judgement = testbed.requests(), testbed.ledger().judge()
    backends = testbed.backends.values()
    refused = sum(execution.refused for backend in backends for execution in backend.executions())
    figures += run_figures.table(run_figures.by_kind(requests, judgement))
    figures += run_figures.summary(requests, judgement, testbed.gateway.metrics(), refused)
    figures += run_figures.scenario(testbed.steps, requests)
    return judgement
