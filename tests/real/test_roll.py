"""The upgrade in the specification of Ironic's rolling upgrades by one `skewgate roll`, with real servers.

As `test_rolling_upgrade`, but from state 0 on, and each server is drained first: nothing is in doubt, and no
POST gets 502. The command fails at the third server, and the same command goes on there. In the second pass
another gateway takes over. One conductor cannot be new in part: 4.1 and 6.1 are the time without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kit.networks import LOOPBACK
from tests.real.apis import IRONIC
from tests.real.conftest import NOTES
from tests.real.continuous_clients import ContinuousClients
from tests.real.environments import build_all
from tests.real.gateway_process import CHECKOUT, SERVICE
from tests.real.ironic import Release
from tests.real.ledger import ONCE, Excuse, Ledger, Window, judge
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.rolling_upgrade import STABILIZATION, UpgradeRun
from tests.real.test_rolling_upgrade import CONDUCTOR_ENDED, LOCK_CLEARED, NO_CONDUCTOR, UNREADABLE, WRITES
from tests.real.testbed import Testbed

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

State = tuple[str, str, str]
"""A state of the specification, with the phase and the highest version on offer."""
CALL = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=120)"


@dataclass
class Installer:
    """Replaces a server when the command of `roll` calls it, as a package manager would."""

    fleet: RollingFleet
    testbed: Testbed
    run: UpgradeRun
    fails_at: str = ""
    calls: list[str] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    without_conductor: list[Window] = field(default_factory=list)
    port: int = 0

    def record(self, scenario: str) -> None:
        """Record the state in which the fleet is now."""
        service = self.testbed.gateway.service()
        self.states.append((scenario, service["phase"], service["offer"]["max"]))

    def restart_conductor(self, release: Release, *scenarios: str) -> None:
        began = time.monotonic()
        self.fleet.restart_conductor(release, lambda: self.record(scenarios[0]))
        self.without_conductor.append(Window("conductor", began, time.monotonic()))
        self.record(scenarios[1])

    def install(self, call: str) -> bool:
        self.calls.append(call)
        name, kind = call.split("/")
        release = TO if kind == "unpinned" else TO_PINNED
        if name == self.fails_at:
            return False
        if name == "conductor":
            self.restart_conductor(release, *(("4.1", "4.2") if release is TO_PINNED else ("6.1", "6.2")))
            return True
        if call == "two/unpinned":
            with self.run.poller.interrupted():
                self.testbed.gateway.take_over()
        recorder = self.testbed.recorders[name]
        began = time.monotonic()
        recorder.refuse()
        self.fleet.take_down(name)
        self.run.windows.append(Window(name, began, time.monotonic()))
        recorder.stop()
        self.fleet.bring_up(name, release)
        self.run.releases[name].append((recorder.count(), release))
        recorder.start()
        return True

    def command(self, what: str) -> str:
        return f"{sys.executable} -c '{CALL}' http://{LOOPBACK}:{self.port}/{what}"

    @contextmanager
    def listening(self) -> Iterator[None]:
        installer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if installer.install(self.path[1:]) else 500)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def roll(self, *more: str) -> subprocess.CompletedProcess[str]:
        where = ("--admin", f"http://{LOOPBACK}:{self.testbed.gateway.admin_port}")
        command = [sys.executable, "-m", "gateway", "roll", SERVICE, *where, "--gate", "1s", *more]
        for kind in ("pinned", "unpinned"):
            command += ["--before", self.command(f"conductor/{kind}")]
            command += ["--exec", self.command(f"{{name}}/{kind}")]
        return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Rolled:
    ended: list[subprocess.CompletedProcess[str]]
    installer: Installer
    ledger: Ledger
    journal: dict[str, Any]
    changes: list[tuple[str, str]]


@pytest.fixture(scope="module")
def rolled(folder: Path, pytestconfig: pytest.Config) -> Iterator[Rolled]:
    environments = build_all([FROM.environment, TO.environment, "client-new"])
    fleet = RollingFleet(environments, folder / "roll", conductor=FROM)
    try:
        fleet.start()
        policy = {"policy": "guaranteed", "stabilization": f"{STABILIZATION:g}s"}
        with Testbed("roll", folder, fleet.members, policy, FROM, state=True).running() as testbed:
            run = UpgradeRun(fleet, testbed)
            installer = Installer(fleet, testbed, run)
            clients = ContinuousClients(environments["client-new"], testbed.front.port, folder / "roll")
            report = folder / "roll.md"
            options = ("--expect", TO.top, "--report", str(report))
            with installer.listening(), clients.running(), run.poller:
                run.await_clients()
                installer.record("0")
                installer.fails_at = "three"
                ended = [installer.roll(*options)]
                installer.fails_at = ""
                ended.append(installer.roll(*options))
                run.await_clients()
                changes = [(sample.phase, sample.offer.highest) for sample in run.poller.changes()]
            excuses = [
                Excuse(FROM, ONCE, UNREADABLE),
                *(
                    Excuse(release, WRITES, text, window, status=status)
                    for release, window in zip((FROM, TO_PINNED), installer.without_conductor, strict=True)
                    for status, text in ((500, NO_CONDUCTOR), (500, CONDUCTOR_ENDED), (400, LOCK_CLEARED))
                ),
            ]
            ranges = [(IRONIC.default_version, FROM.top), (IRONIC.default_version, TO.top)]
            ledger = judge(clients.calls, testbed.seen(), run.arrivals(), run.windows, excuses, ranges)
            pytestconfig.stash[NOTES] += report.read_text().splitlines()
            journal = json.loads(report.with_suffix(".json").read_text())
            yield Rolled(ended, installer, ledger, journal, changes)
    finally:
        fleet.stop()


def test_it_stops_at_the_third_and_goes_on_there(rolled: Rolled) -> None:
    assert [each.returncode for each in rolled.ended] == [1, 0], [each.stderr for each in rolled.ended]
    assert "three failed: the command ended with 1" in rolled.ended[0].stderr
    order = ["conductor", *MEMBERS]
    pinned = [f"{name}/pinned" for name in (*order[:3], "three", *order[3:])]
    assert rolled.installer.calls == [*pinned, *(f"{name}/unpinned" for name in order)]
    assert rolled.journal["complete"]


def test_nothing_was_lost_or_executed_twice_or_is_in_doubt(rolled: Rolled) -> None:
    ledger = rolled.ledger
    found = (ledger.lost, ledger.duplicated, ledger.misdirected, ledger.desynced, ledger.forgotten)
    assert found == ([], [], [], [], [])
    assert len(ledger.in_doubt) == 0
    assert sum(step["lost"] for step in rolled.journal["steps"]) == 0


def test_the_nine_states_are_as_the_specification_has_them(rolled: Rolled) -> None:
    """Those of the conductor change nothing, and the offer moves once: beyond 6.3."""
    uniform = ("uniform", FROM.top)
    assert rolled.installer.states == [(each, *uniform) for each in ("0", "4.1", "4.2", "6.1", "6.2")]
    steps = [(step["pass"], step["result"], step["offer"]) for step in rolled.journal["steps"]]
    before = f"{IRONIC.default_version}-{FROM.top}"
    results = ("upgraded", "upgraded", "failed", "upgraded", "upgraded")
    assert steps[:-1] == [*((1, each, before) for each in results), *[(2, "upgraded", before)] * 3]
    assert rolled.changes == [uniform, ("mixed", FROM.top), ("stabilizing", FROM.top), ("uniform", TO.top)]
