"""Everything that runs: the gateway as users start it, four backends before which it stands, and the load.

What it does: starts and ends them, gives the story its verbs (`traffic`, `known`, `command`, …), and
collects what the judgement needs.

Rules: nothing of the gateway is imported but the demo's reserved ports; a verb returns when /status says that
it has taken effect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.load.fleet import NAMES, OLD, Backend
from tests.load.ledger import Ledger
from tests.load.records import Request, Span, read_lines
from tests.load.watch import State, Watch
from tests.real.gateway_process import CHECKOUT, SERVICE, Gateway
from tests.real.processes import Process, wait_for

CONFIGURATION = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin_port}"}}
state: {state}
timeouts:
  backend_head: 2s        # what hangs is told so after this; nothing here takes a tenth of it
  backend_body_idle: 2s
  backend_idle: 5s        # the backends close a connection after ten
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 200ms, timeout: 1s}}
    offer: {{policy: guaranteed, settle: 1s}}
    backends:
{backends}
"""

TRAFFIC = 150
"""Requests that every state of the story sees at least, before the next step is taken: half a second's."""


ENOUGH = 5
"""Times that something is done again for a chance that is better than one in two."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One part of the story, when it was, and how the offer went in it."""

    name: str
    span: Span
    phases: tuple[str, ...]


class Stand:
    """Use `running`."""

    def __init__(self, folder: Path) -> None:
        self.backends = {name: Backend(name, folder) for name in NAMES}
        self.gateway = Gateway(
            "load", folder / "gateway", {name: each.url for name, each in self.backends.items()}, {}
        )
        self.chapters: list[Chapter] = []
        self.falls: list[Span] = []
        self._folder = folder
        self._book = folder / "requests.jsonl"
        self.configure()
        command = [sys.executable, "-m", "tests.load.traffic", str(self.gateway.port), str(self._book)]
        self._traffic = Process("traffic", command, folder, {**os.environ, "PYTHONPATH": str(CHECKOUT)})
        self.watch = Watch(self.gateway.admin_port, SERVICE)

    # -- life

    @contextlib.contextmanager
    def running(self) -> Iterator[Stand]:
        """Four old backends, the gateway, and the load."""
        try:
            for backend in self.backends.values():
                backend.start(OLD)
            self.gateway.start()
            with self.watch:
                for backend in self.backends.values():
                    backend.counts()
                self._traffic.start()
                self.traffic()
                yield self
        finally:
            self._traffic.stop()
            self.gateway.process.stop()
            for backend in self.backends.values():
                backend.end()

    def end_traffic(self) -> None:
        """All that it began is finished and written down, and looked past."""
        assert self._traffic.terminate() == 0, self._traffic.last_words()
        self.watch.until(lambda state: True, "one more reading, after the last request")
        begun = int(self._traffic.output.read_text().split()[-1])
        written = len(self.requests())
        assert written == begun, f"{begun} requests were begun and {written} written down"

    @contextlib.contextmanager
    def chapter(self, name: str, *, falls: bool = False) -> Iterator[None]:
        """One part of the story. `falls`: in it the offer may be taken back."""
        began = monotonic()
        yield
        span = Span(began, monotonic())
        self.chapters.append(Chapter(name, span, tuple(self.watch.phases(began))))
        if falls:
            self.falls.append(span)

    # -- what the story does

    def traffic(self) -> None:
        """Let the load go on in this state for a while, by the gateway's own count."""
        before = self._finished()
        wait_for(lambda: self._finished() >= before + TRAFFIC, f"{TRAFFIC} more requests")

    def _finished(self) -> float:
        return self.gateway.metrics().total("skewgate_requests_total")

    def known(self, *names: str) -> State:
        """Wait until the gateway has heard from these what they serve now; then they count."""

        def holds(state: State) -> bool:
            told = [state["backends"][name] for name in names]
            due = [self.backends[name].highest for name in names]
            return all(
                each["standing"] == "fresh" and not each["drained"] and each["max"] == highest
                for each, highest in zip(told, due, strict=True)
            )

        state = self.watch.until(holds, f"{', '.join(names)} fresh and heard")
        for name in names:
            self.backends[name].counts()
        return state

    def not_fresh(self, name: str) -> None:
        """Wait until a probe of it has failed."""
        self.watch.until(lambda state: state["backends"][name]["standing"] != "fresh", f"{name} not fresh")

    def idle(self, name: str) -> None:
        """Wait until none of its requests is under way any more."""
        self.watch.until(lambda state: state["backends"][name]["in_flight"] == 0, f"{name} idle")

    def offered(self, highest: str, phase: str) -> State:
        return self.watch.until(
            lambda state: (state["offer"]["max"], state["phase"]) == (highest, phase),
            f"{phase} with an offer up to {highest}",
        )

    def command(self, *argv: str, code: int = 0) -> str:
        """`skewgate ARGV` with this gateway; what it printed."""
        admin = f"http://127.0.0.1:{self.gateway.admin_port}"
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *argv, "--admin", admin],
            cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def configure(self, *, weight: int = 1, extra: str = "") -> None:
        """Write the file; `weight` of the first backend."""
        lines = [
            f'      - {{name: {name}, url: "{each.url}", weight: {weight if name == NAMES[0] else 1}}}'
            for name, each in self.backends.items()
        ]
        text = CONFIGURATION.format(
            port=self.gateway.port,
            admin_port=self.gateway.admin_port,
            state=self._folder / "state.json",
            backends="\n".join(lines),
        )
        self.gateway.file.write_text(text + extra)

    def reloads(self, result: str) -> float:
        return self.gateway.metrics().total("skewgate_config_reloads_total", result=result)

    def hang_up(self) -> None:
        """SIGHUP to the gateway."""
        self.gateway.process.signal(signal.SIGHUP)

    # -- what came of it

    def requests(self) -> list[Request]:
        return list(read_lines(self._book, Request))

    def retries(self, reason: str) -> float:
        return self.gateway.metrics().total("skewgate_retries_total", reason=reason)

    def until_retried(self, reason: str, again: Callable[[], None]) -> None:
        """What a backend has in its hands when it is taken away is chance: do it again until the gateway had
        to send a safe request a second time. The story asserts that it had."""
        for _ in range(ENOUGH):
            if self.retries(reason):
                return
            again()

    def ledger(self) -> Ledger:
        backends = self.backends.values()
        for backend in backends:
            backend.counts_no_more()
        return Ledger(
            self.requests(),
            [each for backend in backends for each in backend.executions()],
            self.watch.samples,
            outages=[each for backend in backends for each in backend.outages],
            serving=[each for backend in backends for each in backend.serving],
            falls=self.falls,
        )
