"""The upgrade in the specification of Ironic's rolling upgrades by one `skewgate roll`, with real servers.

As `test_rolling_upgrade`, but from state 0 on, and each server is drained first: nothing is in doubt, and no
POST gets 502. The command fails at the third server, and the same command goes on there. In the second pass
another gateway takes over. One conductor cannot be new in part: 4.1 and 6.1 are the time without it.

The same upgrade then is made behind three replicas, and behind HAProxy as engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engines.equality.haproxy import program
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.waiting import wait_until
from tests.real.apis import IRONIC
from tests.real.conftest import NOTES
from tests.real.continuous_clients import ContinuousClients
from tests.real.environments import build_all
from tests.real.gateway_process import CHECKOUT, SERVICE, Gateway
from tests.real.ironic import Release
from tests.real.ledger import ONCE, Excuse, Ledger, Window, judge
from tests.real.processes import Process
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.rolling_upgrade import STABILIZATION, TIMEOUT, UpgradeRun
from tests.real.test_rolling_upgrade import (
    CONDUCTOR_ENDED,
    LOCK_CLEARED,
    LOCKS_LOST,
    NO_CONDUCTOR,
    UNREADABLE,
    WRITES,
)
from tests.real.testbed import Testbed

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

State = tuple[str, str, str]
"""A state of the specification, with the phase and the highest version on offer."""
POLICY = {"policy": "guaranteed", "stabilization": f"{STABILIZATION:g}s"}
CALL = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=120)"


@dataclass
class Installer:
    """Replaces a server when the command of `roll` calls it, as a package manager would."""

    fleet: RollingFleet
    testbed: Testbed
    run: UpgradeRun
    report: Path
    fails_at: str = ""
    taken_over_at: str = ""
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
        if call == self.taken_over_at:
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

    def roll(self) -> subprocess.CompletedProcess[str]:
        options = ["--expect", TO.top, "--report", str(self.report), "--gate", "1s"]
        for kind in ("pinned", "unpinned"):
            options += ["--before", self.command(f"conductor/{kind}")]
            options += ["--exec", self.command(f"{{name}}/{kind}")]
        return self.call("roll", *options)

    def call(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        where = ("--admin", f"http://{LOOPBACK}:{self.testbed.gateway.admin_port}")
        command = [sys.executable, "-m", "gateway", verb, SERVICE, *where, *options]
        return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Rolled:
    ended: list[subprocess.CompletedProcess[str]]
    installer: Installer
    ledger: Ledger
    changes: list[tuple[str, str]]
    """The phase and the highest version on offer, from change to change."""
    carried: dict[str, int]
    """The calls that each carrier between clients and servers has taken."""

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.installer.report.with_suffix(".json").read_text())
        return found


class Carriers(NamedTuple):
    """What stands between clients and servers."""

    are_ready: Callable[[], bool]
    carried: Callable[[], dict[str, int]]
    """Count the calls that each of them has taken, by its name."""


Arrange = Callable[[Testbed, Path], AbstractContextManager[Carriers]]
"""Starts the carriers that a testbed lacks."""


@contextmanager
def one_gateway(testbed: Testbed, _folder: Path) -> Iterator[Carriers]:
    yield Carriers(lambda: True, lambda: {"gateway": len(testbed.seen())})


@contextmanager
def three_replicas(testbed: Testbed, folder: Path) -> Iterator[Carriers]:
    """Clients' connections go to each in turn, and `roll` talks to the first."""
    client, peer = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
    command = ["etcd", "--data-dir", str(folder / "etcd"), "--name", "one"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"one={peer}", "--unsafe-no-fsync"]
    urls = {name: recorder.url for name, recorder in testbed.recorders.items()}
    others = [Gateway(f"{number}", folder / f"replica-{number}", urls, POLICY) for number in (2, 3)]
    replicas = {"replica 1": testbed.gateway, "replica 2": others[0], "replica 3": others[1]}
    for each in replicas.values():
        # A machine that stands still for less than that detaches nobody.
        each.configure(f"agreement: {{etcd: {{endpoints: [{client}]}}, cluster: c, ttl: 5s}}")
    testbed.front.targets = cycle(each.port for each in replicas.values())
    with ExitStack() as stack:
        for process in (Process("etcd", command, folder), *(each.process for each in others)):
            stack.callback(process.stop)
            process.start()
        yield Carriers(
            lambda: all(each.is_ready() and each.knows_all() for each in others),
            lambda: {
                name: int(each.metrics().total("skewgate_requests_total")) for name, each in replicas.items()
            },
        )


@contextmanager
def behind_haproxy(testbed: Testbed, folder: Path) -> Iterator[Carriers]:
    """HAProxy has the clients' connections, and the gateway is its control plane."""
    port, gateway = free_port(), testbed.gateway
    socket = gateway.file.with_name("haproxy.sock")
    verb = ("engine", "haproxy", "--bind", f"{LOOPBACK}:{port}", "--socket", str(socket))
    gateway.configure("trusted_proxies: [127.0.0.0/8]", verb)
    command = [sys.executable, "-m", "gateway", *verb, "-c", str(gateway.file), "--write"]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    file = gateway.file.with_name("both.cfg")
    own = f"global\n  stats socket {socket} mode 600 level admin\n"
    file.write_text(own + file.with_name("haproxy.cfg").read_text())
    testbed.front.targets = cycle([port])
    haproxy = Process("haproxy", [program(), "-db", "-f", str(file)], folder)
    with ExitStack() as stack:
        stack.callback(haproxy.stop)
        haproxy.start()
        yield Carriers(
            lambda: "HAProxy is in sync" in gateway.process.output.read_text(),
            lambda: {"HAProxy alone": sum(_passed_haproxy_alone(testbed))},
        )


def _passed_haproxy_alone(testbed: Testbed) -> Iterator[bool]:
    """Whether a call came to its server by HAProxy alone: the gateway behind it would have written `Via`."""
    for member in MEMBERS:
        for exchange in testbed.forwarded(member):
            yield exchange.request.get("Via") is None


def upgrade(
    name: str,
    folder: Path,
    config: pytest.Config,
    arrange: Arrange,
    roll: Callable[[Installer], list[subprocess.CompletedProcess[str]]],
) -> Rolled:
    """All FromVer to all ToVer behind a gateway that clients use all the time."""
    environments = build_all([FROM.environment, TO.environment, "client-new"])
    home = folder / name
    fleet = RollingFleet(environments, home, conductor=FROM)
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        fleet.start()
        testbed = Testbed(name, folder, fleet.members, POLICY, FROM, state=True)
        carriers = stack.enter_context(arrange(testbed, home))
        stack.enter_context(testbed.running())
        wait_until(carriers.are_ready, f"what else {name} needs is ready", TIMEOUT)
        run = UpgradeRun(fleet, testbed)
        installer = Installer(fleet, testbed, run, folder / f"{name}.md")
        clients = ContinuousClients(environments["client-new"], testbed.front.port, home)
        with installer.listening(), clients.running(), run.poller:
            run.await_clients()
            installer.record("0")
            ended = roll(installer)
            run.await_clients()
            carried = carriers.carried()
            changes = [(sample.phase, sample.offer.highest) for sample in run.poller.changes()]
        excuses = [
            Excuse(FROM, ONCE, UNREADABLE),
            *(
                Excuse(release, WRITES, text, window, status=status)
                for release, window in zip((FROM, TO_PINNED), installer.without_conductor, strict=True)
                for status, text in ((500, NO_CONDUCTOR), (500, CONDUCTOR_ENDED), (400, LOCK_CLEARED))
            ),
            *LOCKS_LOST,
        ]
        ranges = [(IRONIC.default_version, FROM.top), (IRONIC.default_version, TO.top)]
        ledger = judge(clients.calls, testbed.seen(), run.arrivals(), run.windows, excuses, ranges)
    config.stash[NOTES] += [f"{name}: {ledger.calls} calls", *installer.report.read_text().splitlines()]
    return Rolled(ended, installer, ledger, changes, carried)


def assert_nothing_is_missing(rolled: Rolled) -> None:
    ledger = rolled.ledger
    found = (ledger.lost, ledger.duplicated, ledger.misdirected, ledger.desynced, ledger.forgotten)
    assert found == ([], [], [], [], [])
    assert len(ledger.in_doubt) == 0
    assert rolled.journal["complete"]
    assert sum(step["lost"] for step in rolled.journal["steps"]) == 0


@pytest.fixture(scope="module")
def rolled(folder: Path, pytestconfig: pytest.Config) -> Rolled:
    def roll_twice(installer: Installer) -> list[subprocess.CompletedProcess[str]]:
        installer.fails_at, installer.taken_over_at = "three", "two/unpinned"
        failed = installer.roll()
        installer.fails_at = ""
        return [failed, installer.roll()]

    return upgrade("roll", folder, pytestconfig, one_gateway, roll_twice)


def test_it_stops_at_the_third_and_goes_on_there(rolled: Rolled) -> None:
    assert [each.returncode for each in rolled.ended] == [1, 0], [each.stderr for each in rolled.ended]
    assert "three failed: the command ended with 1" in rolled.ended[0].stderr
    order = ["conductor", *MEMBERS]
    pinned = [f"{name}/pinned" for name in (*order[:3], "three", *order[3:])]
    assert rolled.installer.calls == [*pinned, *(f"{name}/unpinned" for name in order)]


def test_nothing_was_lost_or_executed_twice_or_is_in_doubt(rolled: Rolled) -> None:
    assert_nothing_is_missing(rolled)


def test_the_nine_states_are_as_the_specification_has_them(rolled: Rolled) -> None:
    """Those of the conductor change nothing, and the offer moves once: beyond 6.3."""
    uniform = ("uniform", FROM.top)
    assert rolled.installer.states == [(each, *uniform) for each in ("0", "4.1", "4.2", "6.1", "6.2")]
    steps = [(step["pass"], step["result"], step["offer"]) for step in rolled.journal["steps"]]
    before = f"{IRONIC.default_version}-{FROM.top}"
    results = ("upgraded", "upgraded", "failed", "upgraded", "upgraded")
    assert steps[:-1] == [*((1, each, before) for each in results), *[(2, "upgraded", before)] * 3]
    assert rolled.changes == [uniform, ("mixed", FROM.top), ("stabilizing", FROM.top), ("uniform", TO.top)]


@pytest.mark.parametrize("arrange", [three_replicas, behind_haproxy])
def test_the_same_behind(arrange: Arrange, folder: Path, pytestconfig: pytest.Config) -> None:
    def roll_and_wait(installer: Installer) -> list[subprocess.CompletedProcess[str]]:
        return [installer.roll(), installer.call("wait", "--phase", "uniform")]

    name = f"roll-{arrange.__name__.replace('_', '-')}"
    rolled = upgrade(name, folder, pytestconfig, arrange, roll_and_wait)
    ended, uniform = rolled.ended
    assert ended.returncode == 0, ended.stderr
    assert f"-{TO.top}, phase uniform" in uniform.stdout, uniform.stderr
    order = ["conductor", *MEMBERS]
    assert rolled.installer.calls == [f"{name}/{kind}" for kind in ("pinned", "unpinned") for name in order]
    offers = [highest for _, highest in rolled.changes]
    assert [highest for highest, _ in groupby(offers)] == [FROM.top, TO.top], "the offer moves once"
    assert all(calls > 50 for calls in rolled.carried.values()), rolled.carried
    assert_nothing_is_missing(rolled)
