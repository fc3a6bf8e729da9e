"""Four fake API servers as processes, which are started, terminated, killed, suspended and upgraded.

What it does: a `Backend` is one of them. It records its outages and the times in which it served, for the
judge.

Rules: only processes that were started here are signalled, by their own ids. A port stays reserved while
nobody listens on it, so that connections are refused as by a server that is down.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Final

from gateway.demo.servers import bind_loopback
from tests.kit.networks import LOOPBACK
from tests.load.connection import Files
from tests.load.namespace import FAR_HOST, FarNetwork
from tests.load.records import Execution, How, Outage, Serving, Span, read_lines
from tests.real.gateway_process import CHECKOUT
from tests.real.processes import Process

NAMES: Final = ("api-1", "api-2", "api-3", "api-4")
OLD: Final = "1.58"
NEW: Final = "1.90"

AFTERMATH: Final = 0.25
"""Seconds after the end of a process in which the gateway may still see its closed connections."""


class Backend:
    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        zone: str = "",
        far: FarNetwork | None = None,
        tls: Files | None = None,
    ) -> None:
        """`zone`: the gateway knows it by its name there, not by its address. `far`: the network it is in."""
        self.name = name
        self.host = LOOPBACK if far is None else FAR_HOST
        self._known_as = f"{name}.{zone}" if zone else self.host
        self._far = far
        self._tls = tls
        self.highest = OLD
        self.outages: list[Outage] = []
        self.serving: list[Serving] = []
        self._reserved = bind_loopback()
        self._folder = folder
        self._records = folder / f"{name}.jsonl"
        self._process: Process | None = None
        self._up_since: float | None = None
        self._hung_since = 0.0

    @property
    def port(self) -> int:
        return int(self._reserved.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self._known_as}:{self.port}"

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self, highest: str) -> None:
        """Start the release that serves 1.1 to `highest`. It counts as serving after `mark_serving`."""
        self.highest = highest
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        self._process = Process(self.name, self._command(), self._folder, environment)
        self._process.start()

    def _command(self) -> list[str]:
        arguments = (self.name, self.host, self.port, self.highest.partition(".")[2], self._records)
        pair = () if self._tls is None else (self._tls.certificate, self._tls.key)
        command = [sys.executable, "-m", "tests.load.backend", *map(str, (*arguments, *pair))]
        return command if self._far is None else self._far.inside(*command)

    def mark_serving(self) -> None:
        """From now on, the gateway knows what it serves and may choose it."""
        if self._up_since is None:
            self._up_since = monotonic()

    def mark_not_serving(self) -> None:
        """From now on, the gateway need not choose it."""
        if self._up_since is not None:
            self.serving.append(Serving(self.name, self.highest, Span(self._up_since, monotonic())))
            self._up_since = None

    def terminate(self, *, drained: bool = False) -> None:
        """SIGTERM: it completes its requests and closes idle connections. The gateway may be sending on one.

        `drained`: the gateway sends it no requests, so that this excuses no failure.
        """
        self.mark_not_serving()
        began = monotonic()
        code = self.process.terminate()
        if not drained:
            self._record_outage(How.TERMINATED, began)
        assert code == 0, f"{self.name} ended with {code}\n{self.process.log_tail()}"

    def kill(self) -> None:
        """SIGKILL: it completes nothing."""
        self.mark_not_serving()
        began = monotonic()
        self.process.signal(signal.SIGKILL)
        self.process.stop()
        self._record_outage(How.KILLED, began)

    def hang(self) -> None:
        """SIGSTOP: the kernel still accepts connections and bytes, and nobody responds."""
        self.mark_hung()
        self.process.signal(signal.SIGSTOP)

    def mark_hung(self) -> None:
        """From now on, it responds to nothing, and the gateway does not know it yet."""
        self.mark_not_serving()
        self._hung_since = monotonic()

    def mark_hang_noticed(self, how: How = How.HUNG) -> None:
        """From now on, it must get no new request that another backend can serve."""
        self.outages.append(Outage(self.name, how, Span(self._hung_since, monotonic())))

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)

    def end(self) -> None:
        """End it in any state."""
        if self._process is not None:
            self.mark_not_serving()
            if self._process.is_running:
                self.resume()
            self._process.stop()
        self._reserved.close()

    def executions(self) -> list[Execution]:
        return list(read_lines(self._records, Execution))

    def _record_outage(self, how: How, began: float) -> None:
        self.outages.append(Outage(self.name, how, Span(began, monotonic() + AFTERMATH)))
