"""The upgrade in the specification of Ironic's rolling upgrades by `skewgate roll`, with real Ironic servers.

As `test_rolling_upgrade`, but each server is drained first: nothing is in doubt, and no POST gets 502. The
command fails at the third server, and the same command goes on there.
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
from itertools import groupby
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

CALL = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=120)"


@dataclass
class Installer:
    """Replaces a server when the command of `roll` calls it, as a package manager would."""

    fleet: RollingFleet
    testbed: Testbed
    run: UpgradeRun
    release: Release = TO_PINNED
    fails_at: str = ""
    calls: list[str] = field(default_factory=list)
    port: int = 0

    def install(self, name: str) -> bool:
        self.calls.append(name)
        if name == self.fails_at:
            return False
        if name == "conductor":
            began = time.monotonic()
            self.fleet.restart_conductor(TO)
            self.run.without_conductor = Window("conductor", began, time.monotonic())
            return True
        recorder = self.testbed.recorders[name]
        began = time.monotonic()
        recorder.refuse()
        self.fleet.take_down(name)
        self.run.windows.append(Window(name, began, time.monotonic()))
        recorder.stop()
        self.fleet.bring_up(name, self.release)
        self.run.releases[name].append((recorder.count(), self.release))
        recorder.start()
        return True

    def command(self, what: str = "{name}") -> str:
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
        command = [sys.executable, "-m", "gateway", "roll", SERVICE, *where, "--exec", self.command()]
        command += ["--gate", "1s", *more]
        return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Rolled:
    ended: list[subprocess.CompletedProcess[str]]
    installer: Installer
    ledger: Ledger
    journals: list[dict[str, Any]]
    tops: list[str]


@pytest.fixture(scope="module")
def rolled(folder: Path, pytestconfig: pytest.Config) -> Iterator[Rolled]:
    environments = build_all([FROM.environment, TO.environment, "client-new"])
    fleet = RollingFleet(environments, folder / "roll")
    try:
        fleet.start()
        policy = {"policy": "guaranteed", "stabilization": f"{STABILIZATION:g}s"}
        with Testbed("roll", folder, fleet.members, policy, FROM).running() as testbed:
            run = UpgradeRun(fleet, testbed)
            installer = Installer(fleet, testbed, run)
            clients = ContinuousClients(environments["client-new"], testbed.front.port, folder / "roll")
            reports = [folder / "pinned.md", folder / "unpinned.md"]
            with installer.listening(), clients.running(), run.poller:
                run.await_clients()
                installer.fails_at = "three"
                pinned = ("--expect", TO_PINNED.top, "--report", str(reports[0]))
                after = ("--after", installer.command("conductor"))
                ended = [installer.roll(*pinned, *after)]
                installer.fails_at = ""
                ended.append(installer.roll(*pinned, *after))
                installer.release = TO
                ended.append(installer.roll("--expect", TO.top, "--report", str(reports[1])))
                run.await_clients()
                tops = [sample.offer.highest for sample in run.poller.changes()]
            excuses = [
                Excuse(FROM, ONCE, UNREADABLE),
                Excuse(TO_PINNED, WRITES, NO_CONDUCTOR, run.without_conductor),
                Excuse(TO_PINNED, WRITES, CONDUCTOR_ENDED, run.without_conductor),
                Excuse(TO_PINNED, WRITES, LOCK_CLEARED, run.without_conductor, status=400),
            ]
            ranges = [(IRONIC.default_version, FROM.top), (IRONIC.default_version, TO.top)]
            ledger = judge(clients.calls, testbed.seen(), run.arrivals(), run.windows, excuses, ranges)
            pytestconfig.stash[NOTES] += [each for path in reports for each in path.read_text().splitlines()]
            journals = [json.loads(path.with_suffix(".json").read_text()) for path in reports]
            yield Rolled(ended, installer, ledger, journals, tops)
    finally:
        fleet.stop()


def test_it_stops_at_the_third_and_goes_on_there(rolled: Rolled) -> None:
    assert [each.returncode for each in rolled.ended] == [1, 0, 0], [each.stderr for each in rolled.ended]
    assert "three failed: the command ended with 1" in rolled.ended[0].stderr
    once = [*MEMBERS[:2], "three", *MEMBERS[2:], "conductor"]
    assert rolled.installer.calls == [*once, *MEMBERS]
    assert all(journal["complete"] for journal in rolled.journals)


def test_nothing_was_lost_or_executed_twice_or_is_in_doubt(rolled: Rolled) -> None:
    ledger = rolled.ledger
    found = (ledger.lost, ledger.duplicated, ledger.misdirected, ledger.desynced, ledger.forgotten)
    assert found == ([], [], [], [], [])
    assert len(ledger.in_doubt) == 0
    assert [sum(step["lost"] for step in journal["steps"]) for journal in rolled.journals] == [0, 0]


def test_the_offer_moves_once(rolled: Rolled) -> None:
    assert [top for top, _ in groupby(rolled.tops)] == [FROM.top, TO.top]
