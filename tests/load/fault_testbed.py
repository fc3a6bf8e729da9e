"""The testbed of the fault run: the gateway with few descriptors, backends by name, half of them far away.

What it does: it is the testbed of the load with other backends, a name server, and pipes for the logs. It
collects what happened, for the judge.

Rules: it runs inside namespaces of its own (`namespace`). Time-outs are short, so that a fault lasts longer
than each of them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from tests.kit.networks import LOOPBACK
from tests.kit.status import Sample
from tests.load.connection import Files, write_files
from tests.load.fleet import NAMES, Backend
from tests.load.frozen_reader import PipedProcess
from tests.load.names import Names
from tests.load.namespace import FarNetwork
from tests.load.records import Delay, Execution, How, Outage, Serving, Span
from tests.load.schedule import Fault
from tests.load.testbed import Testbed
from tests.load.workload import target
from tests.real.gateway_process import CHECKOUT
from tests.real.processes import Process, StartFailed

FAULT_RECORD: Final = "faults.pickle"
"""The file of the record, in the folder of the run."""
SLOW_REQUESTS: Final = "slow.jsonl"
"""The file with the records of the slow peers, likewise."""
DROPPED_LINES: Final = "skewgate_access_log_dropped_total"
IDENT: Final = target("", "").encode()
"""What the line of every request that a client recorded contains, and no other."""

ZONE: Final = "fleet.test"
OTHER_NAMES: Final = tuple(f"other-{number}.test" for number in range(1, 9))
"""Those of another service. Nobody sends it requests, but it is probed."""

NEAR: Final = NAMES[:2]
FAR: Final = NAMES[2:]
"""These are behind the link that is cut."""

DESCRIPTORS: Final = 256
"""The limit of each process of the gateway: enough for the clients that mean well, and not for the crowd."""
SLOWNESS: Final = 1.5
"""The clients request less often than in the other run: here, more processes share the cores."""
CROWD: Final = 250
"""For each worker."""
TIMEOUT: Final = 2.0
"""Seconds that the gateway waits for a peer that does nothing."""
PATIENCE: Final = 2 * TIMEOUT + 0.5
"""Seconds that an outage may delay a request: one time-out, the wait for a retry, and a connection."""
EXIT_LIMIT: Final = 10.0
"""Seconds in which the gateway must end after SIGTERM, whatever the resolver does."""


def _other_service(port: int, tls: Files | None) -> str:
    """Its lines in the configuration. `port`: where it is."""
    scheme, more = ("http", "") if tls is None else ("https", f", tls: {{ca: {tls.ca}}}")
    backends = "".join(f'      - {{url: "{scheme}://{name}:{port}"{more}}}\n' for name in OTHER_NAMES)
    return (
        "  other:\n    dialect: ironic\n    match: {path: /other}\n"
        f"    probe: {{interval: 500ms, timeout: 2s}}\n    backends:\n{backends}"
    )


@dataclass
class FaultRecord:
    """What happened in a run, beside the requests and the executions. `save` and `load` keep it in a file."""

    faults: list[tuple[str, Span]] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    serving: list[Serving] = field(default_factory=list)
    crowds: list[Span] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    queries: dict[str, int] = field(default_factory=dict)
    """Queries to the name server that met a fault of it."""
    facts: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: Path) -> FaultRecord:
        record = pickle.loads(path.read_bytes())  # noqa: S301 - the run has written it
        assert isinstance(record, cls)
        return record


class FaultTestbed(Testbed):
    """All processes of one fault run. `faulty` runs them."""

    def __init__(self, folder: Path, far: FarNetwork, *, tls: bool, workers: int) -> None:
        names = (LOOPBACK, *(f"{name}.{ZONE}" for name in NAMES), *OTHER_NAMES)
        self.tls = write_files(folder, *names) if tls else None
        backends = {
            name: Backend(name, folder, zone=ZONE, far=far if name in FAR else None, tls=self.tls)
            for name in NAMES
        }
        super().__init__(
            folder,
            backends=backends,
            workers=workers,
            slowness=SLOWNESS,
            tls=self.tls,
            more=_other_service(backends[NEAR[0]].port, self.tls),
        )
        self.far = far
        addresses = {f"{name}.{ZONE}": backend.host for name, backend in backends.items()}
        addresses |= dict.fromkeys(OTHER_NAMES, LOOPBACK)
        self.names = Names(addresses, LOOPBACK)
        plain = self.gateway.process
        limit = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
        self.output = PipedProcess(
            plain.name, [*limit, *plain.command], plain.folder, {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        )
        self.gateway.process = self.output
        self.record = FaultRecord()
        self._helpers = 0

    @contextlib.contextmanager
    def faulty(self) -> Iterator[FaultTestbed]:
        with self.names, self.running():
            yield self

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        """One fault, until its consequences are over."""
        began = monotonic()
        yield
        self.record.faults.append((fault.name, Span(began, monotonic())))

    def wait_until_noticed(self, names: Sequence[str], how: How, began: float) -> None:
        """Wait until the gateway knows of each of these backends that it has responded to nothing since
        `began`."""
        for name in names:
            self.wait_until_not_fresh(name)
            self.backends[name].mark_hang_noticed(how)
        self.record.delays.append(Delay(Span(began, monotonic()), PATIENCE))

    def count(self, what: str, number: float) -> None:
        """Add to a fact that is printed at the end."""
        self.record.facts[what] = self.record.facts.get(what, 0) + number

    def helper(self, module: str, *arguments: object) -> Process:
        """A started process of `tests.load.MODULE` with the gateway's port as its first argument."""
        self._helpers += 1
        command = [sys.executable, "-m", f"tests.load.{module}", str(self.gateway.port)]
        process = Process(
            f"{module}-{self._helpers}",
            [*command, *map(str, arguments), *([str(self.tls.ca)] if self.tls else [])],
            self.folder,
            {**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        process.start()
        return process

    def stop_gateway_without_resolver(self) -> None:
        """SIGTERM while no name server answers. Note how long the gateway takes to end."""
        with self.names.ignoring("exit"):
            before = self.names.count()
            self.output.wait_until(lambda: self.names.count() > before, "looking up a name")
            began = monotonic()
            with contextlib.suppress(StartFailed):
                self.output.terminate()
            self.count("seconds to exit", monotonic() - began)

    def note_metrics(self) -> None:
        """Note how many log lines the gateway says it has dropped."""
        self.count("log lines dropped", self.gateway.metrics().total(DROPPED_LINES))

    def finish(self) -> FaultRecord:
        """Note what the judge needs. Every process has ended."""
        record, backends = self.record, self.backends.values()
        for backend in backends:
            backend.mark_not_serving()
            record.outages += backend.outages
            record.serving += backend.serving
            record.executions += backend.executions()
        self.output.end_reading()
        self.count("log lines", self.output.written().count(IDENT))
        record.samples = self.poller.samples
        record.queries = dict(self.names.queries)
        return record
