"""A worker that does what a test says: it speaks the channel, and serves nobody.

    python fake_worker.py CONTROL --channel FD --code BUILD_ID

It connects to the Unix socket CONTROL, tells there each message that it gets (a line of JSON each), and takes
orders from there. Unless it is ordered otherwise it answers as a worker does. It imports nothing of the
gateway, so that it starts at once: the classes of messages are made up here, under the names that the real
ones have.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
import types
from collections import namedtuple
from typing import Any, Final

LENGTH: Final = struct.Struct("!I")

MESSAGES: Final = "gateway.workers.messages"
REPORT: Final = "gateway.telemetry.worker_report"

FIELDS: Final = {
    "Start": "settings publication slot workers listeners balance",
    "Update": "number publication facts_seen settings",
    "Serve": "",
    "ReportRequest": "number counters",
    "Do": "what",
    "Deadlines": "deadlines",
    "Pause": "",
    "Shutdown": "seconds",
    "Ack": "number",
    "Serving": "",
    "Stopped": "",
    "LearnedFacts": "number facts",
    "Report": "number worker counted",
}


class AnyClass(type):
    def __getattr__(cls, name: str) -> Anything:
        """Stand for a member of an enumeration, which Python 3.11.2 looks up by its name."""
        return Anything()


class Anything(metaclass=AnyClass):
    """Stands for every class of the gateway that a message has inside."""

    def __new__(cls, *args: object, **kwargs: object) -> Anything:
        return super().__new__(cls)

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass

    def __call__(self, *args: object) -> Anything:
        return self


def make_up(module: str, name: str, fields: str) -> Any:
    made = namedtuple(name, fields)  # type: ignore[misc]
    made.__module__, made.__qualname__ = module, name
    place = sys.modules.setdefault(module, types.ModuleType(module))
    setattr(place, name, made)
    return made


for package in ("gateway", "gateway.workers", "gateway.telemetry"):
    sys.modules[package] = types.ModuleType(package)
KINDS: Final = {name: make_up(MESSAGES, name, fields) for name, fields in FIELDS.items()}
WorkerUse = make_up(
    REPORT,
    "WorkerUse",
    "clients max_clients handshakes max_handshakes held_body_bytes max_held_body_bytes",
)
WorkerReport = make_up(
    REPORT,
    "WorkerReport",
    "in_flight_by_member in_flight_by_service waiting_by_member connections tunnels_open ejected use "
    "processes access_log_dropped process_log_dropped",
)


class Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == MESSAGES and name in KINDS:
            return KINDS[name]
        if module.partition(".")[0] == "gateway":
            return Anything
        return getattr(importlib.import_module(module), name, Anything)


class FakeWorker:
    def __init__(self, control: str, descriptor: int) -> None:
        self.control = socket.socket(socket.AF_UNIX)
        self.control.connect(control)
        self.channel = socket.socket(fileno=descriptor)
        self.silent: set[str] = set()
        """Kinds of messages that are not answered."""
        self.heeds_main_process = False
        """Not before the test has said how."""
        self.clients = 0
        self.name = ""
        """The number of its slot."""
        self.told = b""
        self.ordered = b""
        self.tell("began", pid=os.getpid())

    def tell(self, kind: str, **details: object) -> None:
        with contextlib.suppress(OSError):  # the test is over
            self.control.sendall(json.dumps({"kind": kind, **details}).encode() + b"\n")

    def say(self, message: object) -> None:
        data = pickle.dumps(message)
        with contextlib.suppress(OSError):
            self.channel.sendall(LENGTH.pack(len(data)) + data)

    def say_kind(self, kind: str, *values: Any) -> None:
        self.say(KINDS[kind](*values))

    def report(self, number: int) -> None:
        use = WorkerUse(self.clients, 100, 0, 10, 0, 1000)
        in_flight, by_service = {"baremetal/api-1": self.clients}, {"baremetal": self.clients}
        worker = WorkerReport(in_flight, by_service, {}, {}, {}, {}, {self.name: use}, {}, 0, 0)
        self.say_kind("Report", number, worker, None)

    def heard(self, message: Any) -> None:
        kind = type(message).__name__
        simple = {
            name: value for name, value in message._asdict().items() if isinstance(value, int | float | str)
        }
        more: dict[str, Any] = {"settings": message.settings is not None} if kind == "Update" else {}
        if kind == "Deadlines":
            more = {"deadlines": dict(message.deadlines)}
        if kind == "Start":
            self.name = str(message.slot)
            more = {"listeners": message.listeners, "settings": True}
        self.tell(kind, **simple, **more)
        if kind in self.silent:
            return
        if kind in {"Start", "Update"}:
            self.say_kind("Ack", 1 if kind == "Start" else message.number)
        elif kind == "Serve":
            self.say_kind("Serving")
        elif kind == "ReportRequest":
            self.report(message.number)
        elif kind == "Pause":
            self.say_kind("Stopped")
        elif kind == "Shutdown":
            self.say_kind("Stopped")
            if "end" not in self.silent:
                self.end(0)

    def order(self, order: dict[str, Any]) -> None:
        kind, values = order["kind"], order.get("values", [])
        if kind == "silent":
            self.silent = set(values)
        elif kind == "say":
            self.say_kind(*values)
        elif kind == "say_raw":
            with contextlib.suppress(OSError):
                self.channel.sendall(bytes.fromhex(values[0]))
        elif kind == "begin":
            self.heeds_main_process = True
        elif kind == "clients":
            self.clients = values[0]
        elif kind == "exit":
            self.end(values[0])
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "close":
            self.channel.close()

    def end(self, code: int) -> None:
        self.control.close()
        os._exit(code)

    def run(self) -> None:
        while True:
            watched = [self.control]
            if self.heeds_main_process and self.channel.fileno() >= 0:
                watched.append(self.channel)
            readable, _, _ = select.select(watched, [], [])
            if self.control in readable:
                data = self.control.recv(65536)
                if not data:
                    os._exit(0)  # the test is over
                *lines, self.ordered = (self.ordered + data).split(b"\n")
                for line in lines:
                    self.order(json.loads(line))
            elif self.channel in readable:
                self.read()

    def read(self) -> None:
        try:
            data = self.channel.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self.tell("alone")
            self.channel.close()
            return
        self.told += data
        while len(self.told) >= 4 and len(self.told) >= 4 + LENGTH.unpack_from(self.told)[0]:
            end = 4 + LENGTH.unpack_from(self.told)[0]
            message, self.told = self.told[4:end], self.told[end:]
            self.heard(Reader(io.BytesIO(message)).load())


if __name__ == "__main__":
    FakeWorker(sys.argv[1], int(sys.argv[sys.argv.index("--channel") + 1])).run()
