"""A rolling upgrade as operators do it, behind a gateway that clients use all the time.

What it does: `UpgradeRun` follows the path of the specification (UPGRADE-4.2, 5.1, 5.2, 6.2, 6.3, 6.4), one
server at a time. It keeps what a user can see: /status (`StatusPoller`), a `Step` for each server, and the
records of the recorders.

Rules: it asserts nothing about the gateway. It only waits for expected states, and the tests judge. A
recorder refuses connections exactly while its server is down.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.kit.status import StatusPoller
from tests.kit.waiting import wait_until
from tests.real.continuous_clients import NAMES, NEWEST_CLIENTS, client_of
from tests.real.gateway_process import SERVICE
from tests.real.ironic import Release
from tests.real.ledger import ONCE, Arrival, Window
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.testbed import Testbed

# `offer.stabilization` in seconds: long enough that /status shows the phase `stabilizing`.
STABILIZATION = 2.0
TIMEOUT = 60.0  # seconds for an expected state, also on a busy machine


@dataclass(frozen=True, slots=True)
class Step:
    """The state after one step: its scenario, the replaced member (if any), the service in /status, and the
    duration of the step in seconds."""

    scenario: str
    member: str | None
    status: dict[str, Any]
    seconds: float

    @property
    def phase(self) -> str:
        return str(self.status["phase"])

    @property
    def top(self) -> str:
        return str(self.status["offer"]["max"])


class UpgradeRun:
    """One upgrade of `fleet` behind `testbed`. `run` performs it, the rest is its record."""

    def __init__(self, fleet: RollingFleet, testbed: Testbed) -> None:
        self.steps: list[Step] = []
        # The times in which each member was stopped, and the time without a conductor.
        self.windows: list[Window] = []
        self.without_conductor: Window | None = None
        self.poller = StatusPoller(testbed.gateway.admin_port, SERVICE)
        self._fleet = fleet
        self._testbed = testbed
        # For each member: the releases that it had, each with the number of its first request.
        self.releases: dict[str, list[tuple[int, Release]]] = {name: [(0, FROM)] for name in MEMBERS}

    def run(self) -> None:
        """From all FromVer to all ToVer. Return when the last releases have served every client."""
        with self.poller:
            began = time.monotonic()
            self.await_clients()
            self._record_step("UPGRADE-4.2", None, began)
            for name in MEMBERS:
                self._replace("UPGRADE-5.2" if name == MEMBERS[-1] else "UPGRADE-5.1", name, TO_PINNED)
            self._unpin_conductor()
            for name in MEMBERS[:-1]:
                self._replace("UPGRADE-6.3", name, TO)
            self._replace("UPGRADE-6.4", MEMBERS[-1], TO)
            began = time.monotonic()
            wait_until(
                lambda: self._testbed.gateway.service()["offer"]["max"] == TO.top,
                "the offer is raised",
                TIMEOUT,
            )
            self._record_step("UPGRADE-6.4 stable", None, began)
            self.await_clients()
            wait_until(
                self._newest_is_used,
                "every client that requests the newest version gets a newer one than before",
                TIMEOUT,
            )
            self.poller.until(lambda state: True, "a reading after the last request")

    def arrivals(self) -> list[Arrival]:
        return [
            Arrival(name, self._release(name, number), exchange)
            for name in MEMBERS
            for number, exchange in enumerate(self._testbed.arrived(name))
        ]

    def _release(self, name: str, number: int) -> Release:
        return [release for first, release in self.releases[name] if first <= number][-1]

    def _replace(self, scenario: str, name: str, release: Release) -> None:
        """Stop this member, start the release on its port, and wait until clients use it."""
        began = time.monotonic()
        recorder = self._testbed.recorders[name]
        recorder.refuse()
        self._fleet.take_down(name)
        self.windows.append(Window(name, began, time.monotonic()))
        # Close the remaining connections to the ended process.
        recorder.stop()
        self._fleet.bring_up(name, release)
        first = recorder.count()
        self.releases[name].append((first, release))
        recorder.start()
        wait_until(
            lambda: self._is_known(name, release), f"the gateway knows the new release of {name}", TIMEOUT
        )
        self._record_step(scenario, name, began)
        wait_until(lambda: self._has_written(name, first), f"{name} is used again", TIMEOUT)

    def _has_written(self, name: str, since: int) -> bool:
        """True when this member has written something for clients.

        Then it knows the conductor. On SQLite, an API looks up the conductor only once: it never finds one
        when its first look-up happens while the conductor restarts.
        """
        writes = (
            exchange for exchange in self._testbed.recorders[name].exchanges(since) if exchange.method in ONCE
        )
        return any(write.was_forwarded and write.response for write in writes)

    def _unpin_conductor(self) -> None:
        began = time.monotonic()
        self._fleet.restart_conductor(TO)
        self.without_conductor = Window("conductor", began, time.monotonic())
        self.await_clients()
        self._record_step("UPGRADE-6.2", None, began)

    def _is_known(self, name: str, release: Release) -> bool:
        member = self._testbed.gateway.service()["backends"][name]
        return bool(member["freshness"] == "fresh" and member["max"] == release.top)

    def await_clients(self) -> None:
        """Wait until each client has a response to a request that it sends from now on."""
        first = self._testbed.front.count()
        now = time.monotonic()

        def all_have_responses() -> bool:
            completed = (
                exchange
                for exchange in self._testbed.front.exchanges(first)
                if exchange.response and exchange.began >= now
            )
            return {client_of(exchange) for exchange in completed} >= set(NAMES)

        wait_until(all_have_responses, "every client has a response", TIMEOUT)

    def _newest_is_used(self) -> bool:
        newer = (
            exchange
            for exchange in self._testbed.seen()
            if exchange.served and not FROM.serves(exchange.served)
        )
        return {client_of(exchange) for exchange in newer} >= set(NEWEST_CLIENTS)

    def _record_step(self, scenario: str, member: str | None, began: float) -> None:
        status = self._testbed.gateway.service()
        self.steps.append(Step(scenario, member, status, time.monotonic() - began))
