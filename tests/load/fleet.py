"""Four fake API servers as processes: started, terminated, killed, stopped in their tracks, and started again
as another release on the same port.

What it does: `Backend` does it to one of them; `Fleet` keeps the chronicle of what was done when, which the
judgement needs.

Rules: only processes started here are signalled, by their own ids. A port stays reserved while nobody listens
on it, so connections are refused as they are where a server is down.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Final

from gateway.cli.demo.fleet import Port
from tests.load.records import Execution, How, Outage, Serving, Span, read_lines
from tests.real.gateway_process import CHECKOUT
from tests.real.processes import LOOPBACK, Process

NAMES: Final = ("api-1", "api-2", "api-3", "api-4")
OLD: Final = "1.58"
NEW: Final = "1.90"

AFTERMATH: Final = 0.25
"""Seconds after the end of a process in which the gateway may still be told by a closed connection."""


class Backend:
    """One of them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.highest = OLD
        self.outages: list[Outage] = []
        self.serving: list[Serving] = []
        self._port = Port()
        self._folder = folder
        self._journal = folder / f"{name}.jsonl"
        self._process: Process | None = None
        self._up_since: float | None = None
        self._hung_since = 0.0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port.number}"

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self, highest: str) -> None:
        """As the release that serves 1.1 to `highest`. It is not counted on before `counts`."""
        self.highest = highest
        minor = highest.partition(".")[2]
        command = [sys.executable, "-m", "tests.load.backend", self.name, str(self._port.number), minor]
        surroundings = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        self._process = Process(self.name, [*command, str(self._journal)], self._folder, surroundings)
        self._process.start()

    def counts(self) -> None:
        """The gateway knows what it serves and may choose it, from now on."""
        if self._up_since is None:
            self._up_since = monotonic()

    def counts_no_more(self) -> None:
        if self._up_since is not None:
            self.serving.append(Serving(self.name, self.highest, Span(self._up_since, monotonic())))
            self._up_since = None

    def terminate(self, *, drained: bool = False) -> None:
        """SIGTERM: it finishes what it has, and closes idle connections, on which the gateway may be sending
        at that moment. `drained`: the gateway sends it nothing, so this excuses nobody."""
        self.counts_no_more()
        began = monotonic()
        code = self.process.terminate()
        if not drained:
            self._note(How.TERMINATED, began)
        assert code == 0, f"{self.name} ended with {code}\n{self.process.last_words()}"

    def kill(self) -> None:
        """SIGKILL: it finishes nothing."""
        self.counts_no_more()
        began = monotonic()
        self.process.signal(signal.SIGKILL)
        self.process.stop()
        self._note(How.KILLED, began)

    def hang(self) -> None:
        """SIGSTOP: its system still accepts connections and bytes, and nobody answers."""
        self.counts_no_more()
        self._hung_since = monotonic()
        self.process.signal(signal.SIGSTOP)

    def hang_was_noticed(self) -> None:
        """From now on nothing new may be sent to it while others can take it."""
        self.outages.append(Outage(self.name, How.HUNG, Span(self._hung_since, monotonic())))

    def go_on(self) -> None:
        self.process.signal(signal.SIGCONT)

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process is not None:
            self.counts_no_more()
            if self._process.is_running:
                self.go_on()
            self._process.stop()
        self._port.close()

    def executions(self) -> list[Execution]:
        return list(read_lines(self._journal, Execution))

    def _note(self, how: How, began: float) -> None:
        self.outages.append(Outage(self.name, how, Span(began, monotonic() + AFTERMATH)))
