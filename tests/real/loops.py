"""Clients that go on and on through the gateway while something happens behind it.

What it does: starts them (`Loops`): the two libraries as processes of their own, and requesters of ours as
threads, which say one version, `latest` or nothing; ends them; hands back a `Call` for each thing they did.

Rules: every call has an id, sent in a header of its own (`CALL_HEADER`), by which the recorders' records are
told apart. Each client does one thing at a time, at a steady pace, whatever came of the one before. Nobody
tries anything again: a retry would hide what was lost.
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

from tests.real.clients import NEWEST_KNOWN, surroundings
from tests.real.environments import Environment
from tests.real.hop import OWN_HEADER, Exchange
from tests.real.processes import LOOPBACK

CALL_HEADER = "X-Test-Call"
SCRIPT = Path(__file__).resolve().parent / "scripts" / "upgrade_loop.py"
INTERVAL = 0.25  # seconds from the begin of a call to that of the next, for each client
ENDING = 30.0  # seconds that a client has to finish the life it is in

LIBRARY_CLIENTS = ("ironicclient", "openstacksdk")
# The name of each requester of ours, and what it sends as the version.
PLAIN_CLIENTS = (("pinned", "1.31"), ("latest", "latest"), ("silent", None))
# Those who ask for the newest that they are offered.
NEWEST_CLIENTS = (*LIBRARY_CLIENTS, "latest")
NAMES = (*LIBRARY_CLIENTS, *(name for name, _ in PLAIN_CLIENTS))


def client_of(one: Exchange) -> str:
    """The client whose request this was; empty when it was nobody's."""
    return (one.request.get(CALL_HEADER) or "").partition(".")[0]


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that a client did to `node`.

    `value` is what it got: of `show` the node's `extra`, of `list` whether the node is in it. `error` is the
    class of what it raised (or the status), `text` what that said."""

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


class Loops:
    """All clients against one port. Use `running`; `calls` is whole afterwards."""

    def __init__(self, environment: Environment, port: int, folder: Path) -> None:
        self.calls: list[Call] = []
        self._environment = environment
        self._port = port
        self._folder = folder
        self._enough = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All of them at it; at the end each finishes the life it is in."""
        plain = [
            _Plain(name, version, self._port, self._enough, self.calls.append)
            for name, version in PLAIN_CLIENTS
        ]
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(self._library(name)) for name in LIBRARY_CLIENTS]
            for one in plain:
                one.start()
            try:
                yield
            finally:
                self._enough.set()
                for process in processes:
                    process.close_input()
                for one in plain:
                    one.join(ENDING)
        stuck = [one.name for one in plain if one.is_alive()]
        assert not stuck, f"these clients hang in a call: {stuck}"
        for one in plain:
            assert one.broke is None, f"the client {one.name} itself broke: {one.broke!r}"
        for process in processes:
            self.calls += process.calls()

    @contextlib.contextmanager
    def _library(self, name: str) -> Iterator[_LibraryProcess]:
        plan = {
            "library": name, "endpoint": f"http://{LOOPBACK}:{self._port}", "newest": NEWEST_KNOWN,
            "interval": INTERVAL, "name": name, "header": CALL_HEADER,
        }  # fmt: skip
        command = [str(self._environment.python), str(SCRIPT), json.dumps(plan)]
        with tempfile.TemporaryDirectory(prefix="skewgate-loop-") as home:
            process = _LibraryProcess(name, command, home, self._folder)
            try:
                yield process
            finally:
                process.end()


class _LibraryProcess:
    """One library at it, until its standard input ends."""

    def __init__(self, name: str, command: list[str], home: str, folder: Path) -> None:
        self._name = name
        self._said = folder / f"{name}.calls"
        self._errors = folder / f"{name}.errors"
        with self._said.open("wb") as said, self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=errors, env=surroundings(home), cwd=home
            )

    def close_input(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def end(self) -> None:
        """Wait for its end, which `close_input` has asked for; killed when it does not come."""
        self.close_input()
        try:
            self._popen.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def calls(self) -> list[Call]:
        """What it did; fails when the program itself did."""
        assert self._popen.returncode == 0, (
            f"the client {self._name} itself failed ({self._popen.returncode}):\n"
            f"{self._errors.read_text()[-3000:]}"
        )
        return [Call(**json.loads(line)) for line in self._said.read_text().splitlines()]


class _Plain(threading.Thread):
    """A requester of ours: one kept connection, one version (None: it says nothing of versions)."""

    def __init__(
        self,
        name: str,
        version: str | None,
        port: int,
        enough: threading.Event,
        report: Callable[[Call], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.broke: Exception | None = None
        self._version = version
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ENDING)
        self._enough = enough
        self._report = report
        self._due = time.monotonic()
        self._count = 0

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                self._life()
        except Exception as error:  # noqa: BLE001 - told by `Loops.running`, in the test's own thread
            self.broke = error
        finally:
            self._connection.close()

    def _life(self) -> None:
        # At 1.1 a node has no name: what a client may choose at every version is its id.
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
        self._enough.wait(self._due - time.monotonic())
        self._count += 1
        call = f"{self.name}.{self._count}"
        headers = {CALL_HEADER: call, "Content-Type": "application/json"}
        if self._version is not None:
            headers[OWN_HEADER] = self._version
        try:
            sent = None if body is None else json.dumps(body)
            self._connection.request(method, path, sent, headers)
            reply = self._connection.getresponse()
            text = reply.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._report(Call(call, what, node, error=type(error).__name__, text=str(error)))
            return
        if reply.status >= 400:
            self._report(Call(call, what, node, error=str(reply.status), text=text))
        else:
            self._report(Call(call, what, node, value=_value(what, node, text)))


def _value(what: str, node: str, text: str) -> object:
    if what == "show":
        return json.loads(text)["extra"]
    if what == "list":
        return node in [one["uuid"] for one in json.loads(text)["nodes"]]
    return None
