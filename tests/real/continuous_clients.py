"""Clients that send requests through the gateway all the time, while the fleet behind it changes.

What it does: `ContinuousClients` starts and ends them: two libraries as processes, and plain clients as
threads, which send one version, `latest` or no version. It returns a `Call` for each of their calls.

Rules: every call has an id in a field of its own (`CALL_HEADER`), which the recorders see. Each client makes
one call at a time, at a steady rate, whatever the result of the last one. None of them retries: a retry would
hide a lost request.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.networks import LOOPBACK
from tests.real.clients import NEWEST_KNOWN, client_environment
from tests.real.environments import Environment
from tests.real.recorder import OWN_HEADER, Exchange

CALL_HEADER = "X-Test-Call"
SCRIPT = Path(__file__).resolve().parent / "scripts" / "upgrade_loop.py"
INTERVAL = 0.25  # seconds from the beginning of a call to that of the next, for each client
ENDING = 30.0  # seconds that a client has to complete its current node

LIBRARY_CLIENTS = ("ironicclient", "openstacksdk")
# The name of each plain client, and the version that it sends.
PLAIN_CLIENTS = (("pinned", "1.31"), ("latest", "latest"), ("unversioned", None))
# The clients that request the newest version in the offer.
NEWEST_CLIENTS = (*LIBRARY_CLIENTS, "latest")
NAMES = (*LIBRARY_CLIENTS, *(name for name, _ in PLAIN_CLIENTS))


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
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients. At the end, each completes its current node."""
        plain = [
            _Plain(name, version, self._port, self._stopping, self.calls.append)
            for name, version in PLAIN_CLIENTS
        ]
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(self._library(name)) for name in LIBRARY_CLIENTS]
            for client in plain:
                client.start()
            try:
                yield
            finally:
                self._stopping.set()
                for process in processes:
                    process.close_input()
                for client in plain:
                    client.join(ENDING)
        hanging = [client.name for client in plain if client.is_alive()]
        assert not hanging, f"these clients hang in a call: {hanging}"
        for client in plain:
            assert client.failure is None, f"the client {client.name} failed: {client.failure!r}"
        for process in processes:
            self.calls += process.calls()

    @contextlib.contextmanager
    def _library(self, name: str) -> Iterator[_LibraryProcess]:
        plan = {
            "library": name,
            "endpoint": f"http://{LOOPBACK}:{self._port}",
            "newest": NEWEST_KNOWN,
            "interval": INTERVAL,
            "name": name,
            "header": CALL_HEADER,
        }
        command = [str(self._environment.python), str(SCRIPT), json.dumps(plan)]
        with tempfile.TemporaryDirectory(prefix="skewgate-loop-") as home:
            process = _LibraryProcess(name, command, home, self._folder)
            try:
                yield process
            finally:
                process.end()


class _LibraryProcess:
    """One library in a process, which runs until its standard input ends."""

    def __init__(self, name: str, command: list[str], home: str, folder: Path) -> None:
        self._name = name
        self._calls = folder / f"{name}.calls"
        self._errors = folder / f"{name}.errors"
        with self._calls.open("wb") as calls, self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=calls,
                stderr=errors,
                env=client_environment(home),
                cwd=home,
            )

    def close_input(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def end(self) -> None:
        """Close its input and wait for its end. Kill it when it does not end."""
        self.close_input()
        try:
            self._popen.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def calls(self) -> list[Call]:
        """Its calls. Fails when the program failed."""
        assert self._popen.returncode == 0, (
            f"the client {self._name} failed ({self._popen.returncode}):\n{self._errors.read_text()[-3000:]}"
        )
        return [Call(**json.loads(line)) for line in self._calls.read_text().splitlines()]


class _Plain(threading.Thread):
    """A plain client with one kept connection and one version; None: it sends no version."""

    def __init__(
        self,
        name: str,
        version: str | None,
        port: int,
        stop: threading.Event,
        report: Callable[[Call], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: Exception | None = None
        self._version = version
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ENDING)
        self._stopping = stop
        self._report = report
        self._due = time.monotonic()
        self._count = 0

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._lifecycle()
        except Exception as error:  # noqa: BLE001 - `ContinuousClients.running` raises it in the test's thread
            self.failure = error
        finally:
            self._connection.close()

    def _lifecycle(self) -> None:
        # At 1.1 a node has no name. A client can choose its id at every version.
        node = str(uuid.uuid4())
        self._call("create", node, "POST", "/v1/nodes", {"driver": "fake-hardware", "uuid": node})
        self._call("show", node, "GET", f"/v1/nodes/{node}")
        change = [{"op": "add", "path": "/extra/changed", "value": f"{self.name}.{self._count + 1}"}]
        self._call("change", node, "PATCH", f"/v1/nodes/{node}", change)
        self._call("show", node, "GET", f"/v1/nodes/{node}")
        self._call("list", node, "GET", "/v1/nodes")
        self._call("delete", node, "DELETE", f"/v1/nodes/{node}")

    def _call(self, what: str, node: str, method: str, path: str, body: object = None) -> None:
        self._due = max(self._due + INTERVAL, time.monotonic())
        self._stopping.wait(self._due - time.monotonic())
        self._count += 1
        call = f"{self.name}.{self._count}"
        headers = {CALL_HEADER: call, "Content-Type": "application/json"}
        if self._version is not None:
            headers[OWN_HEADER] = self._version
        try:
            text = None if body is None else json.dumps(body)
            self._connection.request(method, path, text, headers)
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._report(Call(call, what, node, error=type(error).__name__, text=str(error)))
            return
        if response.status >= 400:
            self._report(Call(call, what, node, error=str(response.status), text=text))
        else:
            self._report(Call(call, what, node, value=_value(what, node, text)))


def _value(what: str, node: str, text: str) -> object:
    if what == "show":
        return json.loads(text)["extra"]
    if what == "list":
        return node in [listed["uuid"] for listed in json.loads(text)["nodes"]]
    return None
