"""All processes of a load run: the gateway as users start it, four backends behind it, and the load.

What it does: it starts and ends them, offers the operations of the scenario (`wait_for_traffic`, `command` …)
and collects what the judge needs.

Rules: of the gateway, only the reserved ports of its demo are imported. An operation returns when /status
shows its effect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.kit.status import State, StatusPoller
from tests.kit.waiting import wait_until
from tests.load.connection import Files
from tests.load.fleet import NAMES, OLD, Backend
from tests.load.ledger import Ledger
from tests.load.records import Death, Request, Span, read_lines
from tests.real.gateway_process import CHECKOUT, SERVICE, Gateway
from tests.real.processes import Process

CONFIGURATION = """\
workers: {workers}
listen: {listen}
admin: {{listen: "127.0.0.1:{admin_port}"}}
state: {state}
timeouts:
  connect: 500ms
  backend_head: 2s        # a backend that hangs is given up after this; no response here takes a tenth of it
  backend_body_idle: 2s
  backend_write_idle: 2s  # an image is more than a stopped backend's socket takes
  backend_idle: 5s        # the backends close a connection after ten
  client_write_idle: 2s
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 200ms, timeout: 1500ms}}
    offer: {{policy: guaranteed, stabilization: 1s}}
    backends:
{backends}
{more}"""

REQUESTS = "requests.jsonl"
"""The file with the records of all requests, in the folder of the run."""

TRAFFIC = 150
"""Requests that every state of the scenario gets at least, which take about half a second."""

ATTEMPTS = 5
"""How often an action is repeated whose chance of success is better than one in two."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the scenario with its time, and the phases and offers in it."""

    name: str
    span: Span
    phases: tuple[str, ...]


class Testbed:
    """All processes of one run. Use `running`."""

    __test__ = False

    def __init__(
        self,
        folder: Path,
        *,
        backends: Mapping[str, Backend] | None = None,
        workers: int = 1,
        slowness: float = 1.0,
        tls: Files | None = None,
        more: str = "",
    ) -> None:
        """`workers`: those of the gateway. `tls`: of gateway and backends; without it, nobody speaks TLS.
        `more`: lines of the configuration below `services`."""
        self.workers = workers
        self.backends = backends or {name: Backend(name, folder) for name in NAMES}
        self.gateway = Gateway(
            "load", folder / "gateway", {name: backend.url for name, backend in self.backends.items()}, {}
        )
        self.steps: list[Step] = []
        self.falls: list[Span] = []
        self.deaths: list[Death] = []
        self.closed: list[Span] = []
        """While no gateway listens."""
        self.folder = folder
        self.records = folder / REQUESTS
        self._listen = f"127.0.0.1:{self.gateway.port}"
        self._backend_tls = ""
        if tls is not None:
            pair = f"{{certificate: {tls.certificate}, key: {tls.key}}}"
            self._listen = f'[{{address: "{self._listen}", tls: {{certificates: [{pair}]}}}}]'
            self._backend_tls = f", tls: {{ca: {tls.ca}}}"
        self._more = more
        self.configure()
        command = [
            sys.executable,
            "-m",
            "tests.load.clients",
            str(self.gateway.port),
            str(self.records),
            str(slowness),
            *([str(tls.ca)] if tls is not None else []),
        ]
        self._load_generator = Process(
            "load-generator", command, folder, {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        )
        self.poller = StatusPoller(self.gateway.admin_port, SERVICE)

    # -- start and end

    @contextlib.contextmanager
    def running(self) -> Iterator[Testbed]:
        try:
            for backend in self.backends.values():
                backend.start(OLD)
            self.gateway.start()
            with self.poller:
                for backend in self.backends.values():
                    backend.mark_serving()
                self._load_generator.start()
                self.wait_for_traffic()
                yield self
        finally:
            self._load_generator.stop()
            self.gateway.process.stop()
            for backend in self.backends.values():
                backend.end()

    def end_traffic(self) -> None:
        """End the load. Return when all requests are complete and recorded, and /status was read again."""
        assert self._load_generator.terminate() == 0, self._load_generator.log_tail()
        self.poller.until(lambda state: True, "a reading after the last request")
        begun = int(self._load_generator.output.read_text().split()[-1])
        recorded = len(self.requests())
        assert recorded == begun, f"{begun} requests were begun, {recorded} were recorded"

    @contextlib.contextmanager
    def step(self, name: str, *, falls: bool = False) -> Iterator[None]:
        """One step of the scenario. `falls`: the offer may be taken back in it."""
        began = monotonic()
        yield
        span = Span(began, monotonic())
        phases = tuple(f"{each.phase} {each.offer.highest}" for each in self.poller.changes(began))
        self.steps.append(Step(name, span, phases))
        if falls:
            self.falls.append(span)

    # -- operations of the scenario

    def wait_for_traffic(self) -> None:
        """Wait until the gateway has counted `TRAFFIC` more requests."""
        before = self._finished()
        wait_until(lambda: self._finished() >= before + TRAFFIC, f"{TRAFFIC} more requests")

    def _finished(self) -> float:
        return self.gateway.metrics().total("skewgate_requests_total")

    def wait_until_known(self, *names: str) -> State:
        """Wait until the gateway knows what these backends serve now. Then they count as serving."""

        def holds(state: State) -> bool:
            return all(
                entry["freshness"] == "fresh"
                and not entry["drained"]
                and entry["max"] == self.backends[name].highest
                for name, entry in ((name, state["backends"][name]) for name in names)
            )

        state = self.poller.until(holds, f"{', '.join(names)} fresh and known")
        for name in names:
            self.backends[name].mark_serving()
        return state

    def wait_until_not_fresh(self, name: str) -> None:
        self.poller.until(lambda state: state["backends"][name]["freshness"] != "fresh", f"{name} not fresh")

    def wait_until_idle(self, name: str) -> None:
        self.poller.until(lambda state: state["backends"][name]["in_flight"] == 0, f"{name} idle")

    def wait_for_offer(self, highest: str, phase: str) -> State:
        return self.poller.until(
            lambda state: (state["offer"]["max"], state["phase"]) == (highest, phase),
            f"{phase} with an offer up to {highest}",
        )

    def command(self, *argv: str, code: int = 0) -> str:
        """Run `skewgate ARGV` against this gateway. Return what it printed."""
        admin = f"http://127.0.0.1:{self.gateway.admin_port}"
        ended = subprocess.run(
            [sys.executable, "-m", "gateway", *argv, "--admin", admin],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert ended.returncode == code, f"{argv}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def configure(self, *, weight: int = 1, extra: str = "") -> None:
        """Write the configuration file. `weight`: that of the first backend."""
        lines = [
            f'      - {{name: {name}, url: "{backend.url}", weight: {weight if name == NAMES[0] else 1}'
            f"{self._backend_tls}}}"
            for name, backend in self.backends.items()
        ]
        text = CONFIGURATION.format(
            workers=self.workers,
            listen=self._listen,
            admin_port=self.gateway.admin_port,
            state=self.folder / "state.json",
            backends="\n".join(lines),
            more=self._more,
        )
        self.gateway.file.write_text(text + extra)

    def worker_pids(self) -> dict[int, int]:
        """The process that serves requests in each slot; of one process, its own."""
        document = self.poller.until_document(lambda document: True, "a reading")
        return {worker["slot"]: worker["pid"] for worker in document["workers"]}

    def reloads(self, result: str) -> float:
        return self.gateway.metrics().total("skewgate_config_reloads_total", result=result)

    def send_sighup(self) -> None:
        self.gateway.process.signal(signal.SIGHUP)

    # -- results

    def requests(self) -> list[Request]:
        return list(read_lines(self.records, Request))

    def retries(self, reason: str) -> float:
        return self.gateway.metrics().total("skewgate_retries_total", reason=reason)

    def repeat_until_retried(self, reason: str, action: Callable[[], None]) -> None:
        """Repeat `action` until the gateway has sent a safe request again for this reason.

        Chance decides which requests are at a backend when it is taken away. The scenario asserts at its end
        that there was such a retry.
        """
        for _ in range(ATTEMPTS):
            if self.retries(reason):
                return
            action()

    def ledger(self) -> Ledger:
        backends = self.backends.values()
        for backend in backends:
            backend.mark_not_serving()
        return Ledger(
            self.requests(),
            [execution for backend in backends for execution in backend.executions()],
            self.poller.samples,
            outages=[outage for backend in backends for outage in backend.outages],
            serving=[serving for backend in backends for serving in backend.serving],
            falls=self.falls,
            crowds=self.closed,
            deaths=self.deaths,
            agreement=self.workers > 1,
        )
