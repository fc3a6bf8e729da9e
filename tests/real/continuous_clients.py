"""Clients that send requests through the gateway all the time, while the fleet behind it changes.

What it does: `ContinuousClients` starts and ends them, each as a process of `scripts/upgrade_loop.py`: two
libraries, and plain clients, which send one version, `latest` or no version. It returns a `Call` for each of
their calls.

Rules: every call has an id in a field of its own (`CALL_HEADER`), which the recorders see. Each client makes
one call at a time, at a steady rate, whatever the result of the last one. None of them retries: a retry would
hide a lost request.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.networks import LOOPBACK
from tests.real.clients import NEWEST_KNOWN, client_environment
from tests.real.environments import Environment
from tests.real.recorder import Exchange

CALL_HEADER = "X-Test-Call"
SCRIPT = Path(__file__).resolve().parent / "scripts" / "upgrade_loop.py"
INTERVAL = 0.25  # seconds from the beginning of a call to that of the next, for each client
ENDING = 30.0  # seconds that a client has to complete its current node

LIBRARY_CLIENTS = ("ironicclient", "openstacksdk")
# What each client requests, by its name. The SDK chooses a version from the documents.
VERSIONS = {
    "ironicclient": NEWEST_KNOWN,
    "openstacksdk": None,
    "pinned": "1.31",
    "latest": "latest",
    "unversioned": None,
}
NAMES = tuple(VERSIONS)
# The clients that request the newest version in the offer.
NEWEST_CLIENTS = (*LIBRARY_CLIENTS, "latest")


def client_of(exchange: Exchange) -> str:
    """The client that sent this request; empty: none of them."""
    return (exchange.request.get(CALL_HEADER) or "").partition(".")[0]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client about `node`.

    `what`: `create`, `show`, `change`, `list` or `delete`. `value`: the result, for `show` the node's
    `extra`, for `list` whether it contains the node. `error`: the class of the exception, or the status.
    `text`: its text.
    """

    call: str
    what: str
    node: str
    value: Any = None
    error: str | None = None
    text: str = ""

    @property
    def client(self) -> str:
        return self.call.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.call} {self.what} {self.node}: {self.error or 'ok'} {self.text[:200]}".rstrip()


class ContinuousClients:
    """All clients of one port. Use `running`. `calls` is complete afterwards."""

    def __init__(self, environment: Environment, port: int, folder: Path) -> None:
        self.calls: list[Call] = []
        self._environment = environment
        self._port = port
        self._folder = folder

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients. At the end, each completes its current node."""
        processes: dict[str, subprocess.Popen[bytes]] = {}
        with tempfile.TemporaryDirectory(prefix="skewgate-loop-") as home:
            try:
                for name, version in VERSIONS.items():
                    processes[name] = self._start(name, version, Path(home))
                yield
            finally:
                for process in processes.values():
                    assert process.stdin is not None
                    process.stdin.close()
                for process in processes.values():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(ENDING)
                    process.kill()
                    process.wait()
        for name, process in processes.items():
            errors = self._file(name, "errors").read_text()[-3000:]
            assert process.returncode == 0, f"the client {name} failed ({process.returncode}):\n{errors}"
            self.calls += [
                Call(**json.loads(line)) for line in self._file(name, "calls").read_text().splitlines()
            ]

    def _start(self, name: str, version: str | None, home: Path) -> subprocess.Popen[bytes]:
        plan = {
            "library": name if name in LIBRARY_CLIENTS else "plain",
            "endpoint": f"http://{LOOPBACK}:{self._port}",
            "version": version,
            "interval": INTERVAL,
            "name": name,
            "header": CALL_HEADER,
        }
        own = home / name
        own.mkdir()
        with self._file(name, "calls").open("wb") as calls, self._file(name, "errors").open("wb") as errors:
            return subprocess.Popen(
                [str(self._environment.python), str(SCRIPT), json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=calls,
                stderr=errors,
                env=client_environment(str(own)),
                cwd=own,
            )

    def _file(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"
