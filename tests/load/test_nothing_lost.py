"""Nothing is lost while everything moves: a rolling upgrade, deaths, a hang, reloads, a pin and a roll-back.

The story is told to four fake backends behind a gateway, all of them processes, while ten kinds of clients
ask more than 200 times a second. Every request is judged afterwards, by what its client was told, what the
backends executed and what had happened by then: the rules are in `ledger`.
"""

from __future__ import annotations

import pytest

from tests.load import figures as shown
from tests.load.fleet import NAMES, NEW, OLD
from tests.load.ledger import End, Judgement
from tests.load.stand import Stand
from tests.real.gateway_process import SERVICE

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]

LOAD = 200
"""Requests a second that issue and story ask for."""

STORY: dict[str, list[tuple[str, ...]]] = {
    "at rest": [("uniform 1.58",)],
    # UPGRADE-B
    "upgrade": [("uniform 1.58", "mixed 1.58", "settling 1.58", "uniform 1.90")],
    "deaths": [("uniform 1.90",)],
    "a hang": [("uniform 1.90",)],
    "reloads": [("uniform 1.90",)],
    "pin and unpin": [("uniform 1.90", "capped 1.58", "uniform 1.90")],
    # UPGRADE-stale
    "an old one rejoins": [("uniform 1.90", "mixed 1.90", "uniform 1.90")],
    # UPGRADE-back-late
    "roll-back begins": [("uniform 1.90", "mixed 1.90")],
    "roll-back ends": [
        ("mixed 1.90", "uniform 1.58"),
        # A refusal may tell what the last one serves now before its first good probe lets the offer fall.
        ("mixed 1.90", "settling 1.90", "uniform 1.58"),
    ],
}
"""Every chapter with the ways in which phase and offer may go in it (shared scenarios, Rolling upgrade)."""


def test_nothing_is_lost_while_everything_moves(stand: Stand, figures: list[str]) -> None:
    try:
        tell(stand)
    finally:  # what came of it until then explains why a story breaks off
        judgement = account(stand, figures)

    assert not judgement.breaches, f"{len(judgement.breaches)} breaches:\n{judgement}"
    assert [each.name for each in stand.chapters] == [*STORY]
    for chapter in stand.chapters:
        assert chapter.phases in STORY[chapter.name], chapter
    assert shown.rate(stand.requests()) >= LOAD
    # What the story is to have met: otherwise it has proved less than it says.
    retries = {reason: stand.retries(reason) for reason in ("connect", "no_reply", "reply_timeout")}
    assert all(retries.values()), f"no request had to be sent on: {retries}"
    ends = set(judgement.ends.values())
    assert {End.SERVED, End.REFUSED, End.UNAVAILABLE} <= ends, ends


def tell(stand: Stand) -> None:
    """The story, each step waited for."""
    with stand.chapter("at rest"):
        stand.traffic()
    with stand.chapter("upgrade"):
        upgrade(stand)
    with stand.chapter("deaths"):
        deaths(stand)
    with stand.chapter("a hang"):
        hang(stand)
        stand.until_retried("reply_timeout", lambda: hang(stand))
    with stand.chapter("reloads"):
        reloads(stand)
    with stand.chapter("pin and unpin", falls=True):
        pin_and_unpin(stand)
    with stand.chapter("an old one rejoins"):
        old_one_rejoins(stand)
    with stand.chapter("roll-back begins"):
        for name in NAMES[:-1]:
            restart(stand, name, OLD)
        assert stand.offered(NEW, "mixed")["offer"]["held_rule"] == "memory"
    with stand.chapter("roll-back ends", falls=True):
        restart(stand, NAMES[-1], OLD)
        stand.offered(OLD, "uniform")
        stand.traffic()


def restart(stand: Stand, name: str, highest: str, *, kill: bool = False) -> None:
    """A backend goes and comes back as this release, under load all the time."""
    backend = stand.backends[name]
    if kill:
        # It must have something in its hands, or its death would prove little.
        stand.watch.until(lambda state: state["backends"][name]["in_flight"] >= 2, f"{name} has work")
        backend.kill()
    else:
        backend.terminate()
    stand.traffic()
    backend.start(highest)
    stand.known(name)
    stand.traffic()


def upgrade(stand: Stand) -> None:
    """One at a time, in every way in which operators do it."""
    first, second, third, fourth = NAMES
    restart(stand, first, NEW)
    stand.offered(OLD, "mixed")
    drain_and_restart(stand, second)
    restart(stand, third, NEW, kill=True)
    restart(stand, fourth, NEW)
    stand.offered(NEW, "uniform")
    stand.traffic()


def drain_and_restart(stand: Stand, name: str) -> None:
    """Drained first, as it should be: then there is not even a doubt about a request."""
    backend = stand.backends[name]
    backend.counts_no_more()
    stand.command("drain", f"{SERVICE}/{name}", "--wait")
    state = stand.watch.until(lambda state: state["backends"][name]["drained"], f"{name} drained")
    assert state["backends"][name]["in_flight"] == 0
    executed = len(backend.executions())
    stand.traffic()
    assert len(backend.executions()) == executed, f"{name} is drained and got requests"
    backend.terminate(drained=True)
    backend.start(NEW)
    stand.watch.until(lambda state: state["backends"][name]["max"] == NEW, f"{name} is probed while drained")
    assert len(backend.executions()) == executed, f"{name} is drained and got requests"
    stand.command("enable", f"{SERVICE}/{name}")
    stand.known(name)
    stand.traffic()


def deaths(stand: Stand) -> None:
    """SIGTERM, and SIGKILL until a safe request that a backend had in its hands had to be sent on."""
    first, second, *_ = NAMES
    restart(stand, first, NEW)
    restart(stand, second, NEW, kill=True)
    stand.until_retried("no_reply", lambda: restart(stand, second, NEW, kill=True))


def hang(stand: Stand) -> None:
    backend = stand.backends[NAMES[2]]
    backend.hang()
    stand.not_fresh(backend.name)
    backend.hang_was_noticed()
    stand.idle(backend.name)
    stand.traffic()
    backend.go_on()
    stand.known(backend.name)
    stand.traffic()


def reloads(stand: Stand) -> None:
    """By signal and by command; and a file that is refused changes nothing."""
    done = stand.reloads("success")
    generation = stand.watch.until_document(lambda document: True, "a reading")["generation"]
    stand.configure(weight=2)
    stand.hang_up()
    stand.watch.until_document(lambda document: document["generation"] > generation, "reloaded by SIGHUP")
    stand.traffic()
    stand.configure(weight=1)
    stand.command("reload")
    assert stand.reloads("success") == done + 2
    stand.configure(extra="nonsense: 1\n")
    assert "nonsense" in stand.command("reload", code=1)
    assert (stand.reloads("success"), stand.reloads("failure")) == (done + 2, 1)
    stand.configure()
    stand.traffic()


def pin_and_unpin(stand: Stand) -> None:
    stand.command("pin", SERVICE, OLD)
    state = stand.offered(OLD, "capped")
    assert (state["offer"]["ceiling"], state["offer"]["held_rule"]) == (OLD, "ceiling")
    stand.traffic()
    stand.command("unpin", SERVICE)
    stand.offered(NEW, "uniform")
    stand.traffic()


def old_one_rejoins(stand: Stand) -> None:
    """Nobody's version is taken away by it, and it gets only what it serves."""
    name = NAMES[-1]
    restart(stand, name, OLD, kill=True)
    offer = stand.offered(NEW, "mixed")["offer"]
    assert (offer["held_rule"], offer["held_by"]) == ("memory", [name])
    restart(stand, name, NEW)
    stand.offered(NEW, "uniform")


def account(stand: Stand, figures: list[str]) -> Judgement:
    """What came of it, for the table."""
    stand.end_traffic()
    requests, judgement = stand.requests(), stand.ledger().judge()
    refused = sum(each.refused for backend in stand.backends.values() for each in backend.executions())
    figures += shown.table(requests, judgement)
    figures += shown.summary(requests, judgement, stand.gateway.metrics(), refused)
    figures += shown.story(stand.chapters, requests)
    return judgement
