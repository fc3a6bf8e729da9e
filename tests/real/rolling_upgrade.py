"""A rolling upgrade as operators make it, behind a gateway that clients never stop using.

What it does: `UpgradeRun` takes a fleet along the specification's path (UPGRADE-4.2, 5.1, 5.2, 6.2, 6.3,
6.4), one server at a time, and keeps what was to be seen from outside: /status all the while (`Watch`), a
`Step` for each server, the records of the recorders.

Rules: it asserts nothing about the gateway, it only waits for what must come; the tests judge. A recorder
refuses connections exactly while its server is not there to take them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.real.ironic import Release
from tests.real.ledger import ONCE, Arrival, Window
from tests.real.loops import NAMES, NEWEST_CLIENTS, client_of
from tests.real.processes import wait_for
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.stand import Stand

# How long the fleet must agree before the offer rises: long enough to be seen settling.
SETTLE = 2.0
GLANCE = 0.05  # seconds between two looks at /status
PATIENCE = 60.0  # seconds for what must come: a server's first answers, on a machine with other work


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator sees once a step is done: its scenario, the member that was exchanged (if any), what
    /status says of the service, and how long the step took (seconds)."""

    scenario: str
    member: str | None
    status: dict[str, Any]
    took: float

    @property
    def phase(self) -> str:
        return str(self.status["phase"])

    @property
    def top(self) -> str:
        return str(self.status["offer"]["max"])


@dataclass(frozen=True, slots=True)
class Glance:
    """Phase and highest version on offer at one moment (`time.monotonic`)."""

    at: float
    phase: str
    top: str


class Watch(threading.Thread):
    """Looks at /status all the while; `changes` has the first glance of everything new."""

    def __init__(self, look: Callable[[], dict[str, Any]]) -> None:
        super().__init__(name="watch", daemon=True)
        self.changes: list[Glance] = []
        self.broke: Exception | None = None
        self._look = look
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.wait(GLANCE):
                status = self._look()
                now = Glance(time.monotonic(), status["phase"], status["offer"]["max"])
                if not self.changes or (now.phase, now.top) != (self.changes[-1].phase, self.changes[-1].top):
                    self.changes.append(now)
        except Exception as error:  # noqa: BLE001 - told by `stop`, in the test's own thread
            self.broke = error

    def stop(self) -> None:
        """End it. Fails when it could not look at one moment."""
        self._enough.set()
        self.join(timeout=10)
        assert self.broke is None, f"/status did not answer: {self.broke!r}"


class UpgradeRun:
    """One upgrade of `fleet` behind `stand`. `run` makes it; the rest is what came of it."""

    def __init__(self, fleet: RollingFleet, stand: Stand) -> None:
        self.steps: list[Step] = []
        # When each member ended, and when there was no conductor.
        self.windows: list[Window] = []
        self.conductor_away: Window | None = None
        self.watch = Watch(stand.gateway.service)
        self._fleet = fleet
        self._stand = stand
        # What ran where: for each member the first request's number of each release.
        self._releases: dict[str, list[tuple[int, Release]]] = {name: [(0, FROM)] for name in MEMBERS}

    def run(self) -> None:
        """From all FromVer to all ToVer; returns when every client has been served by what came last."""
        self.watch.start()
        try:
            began = time.monotonic()
            self._await_clients()
            self._note("UPGRADE-4.2", None, began)
            for name in MEMBERS:
                self._exchange("UPGRADE-5.2" if name == MEMBERS[-1] else "UPGRADE-5.1", name, TO_PINNED)
            self._unpin_conductor()
            for name in MEMBERS[:-1]:
                self._exchange("UPGRADE-6.3", name, TO)
            self._exchange("UPGRADE-6.4", MEMBERS[-1], TO)
            began = time.monotonic()
            wait_for(
                lambda: self._stand.gateway.service()["offer"]["max"] == TO.top,
                "the offer has risen",
                PATIENCE,
            )
            self._note("UPGRADE-6.4 settled", None, began)
            self._await_clients()
            wait_for(
                self._newest_is_used, "every client that asks for the newest gets more than before", PATIENCE
            )
        finally:
            self.watch.stop()

    def arrivals(self) -> list[Arrival]:
        """All that arrived at the servers, with what ran there."""
        return [
            Arrival(name, self._release(name, number), exchange)
            for name in MEMBERS
            for number, exchange in enumerate(self._stand.arrived(name))
        ]

    def _release(self, name: str, number: int) -> Release:
        return [release for first, release in self._releases[name] if first <= number][-1]

    def _exchange(self, scenario: str, name: str, release: Release) -> None:
        """Stop this member, start the release on its port, and wait until it takes part."""
        began = time.monotonic()
        hop = self._stand.backends[name].hop
        hop.refuse()
        self._fleet.take_down(name)
        self.windows.append(Window(name, began, time.monotonic()))
        # What is left of connections to a process that has ended.
        hop.stop()
        self._fleet.bring_up(name, release)
        first = hop.count()
        self._releases[name].append((first, release))
        hop.start()
        wait_for(lambda: self._is_known(name, release), f"the gateway knows {name} as it is now", PATIENCE)
        self._note(scenario, name, began)
        wait_for(lambda: self._has_written(name, first), f"{name} takes part again", PATIENCE)

    def _has_written(self, name: str, since: int) -> bool:
        """True when clients had this member write something. It knows the conductor from then on: on SQLite
        an API that looks for it first while it is restarted finds none, and never looks again."""
        written = (one for one in self._stand.backends[name].hop.exchanges(since) if one.method in ONCE)
        return any(one.was_forwarded and one.reply for one in written)

    def _unpin_conductor(self) -> None:
        began = time.monotonic()
        self._fleet.restart_conductor(TO)
        self.conductor_away = Window("conductor", began, time.monotonic())
        self._await_clients()
        self._note("UPGRADE-6.2", None, began)

    def _is_known(self, name: str, release: Release) -> bool:
        member = self._stand.gateway.service()["backends"][name]
        return bool(member["standing"] == "fresh" and member["max"] == release.top)

    def _await_clients(self) -> None:
        """Until each client has got an answer to something that it asked from now on."""
        mark = self._stand.front.count()
        now = time.monotonic()

        def everybody() -> bool:
            answered = (one for one in self._stand.front.exchanges(mark) if one.reply and one.began >= now)
            return {client_of(one) for one in answered} >= set(NAMES)

        wait_for(everybody, "every client has been answered", PATIENCE)

    def _newest_is_used(self) -> bool:
        served = (one for one in self._stand.seen() if one.served and not FROM.serves(one.served))
        return {client_of(one) for one in served} >= set(NEWEST_CLIENTS)

    def _note(self, scenario: str, member: str | None, began: float) -> None:
        status = self._stand.gateway.service()
        self.steps.append(Step(scenario, member, status, time.monotonic() - began))
