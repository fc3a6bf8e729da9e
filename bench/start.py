"""What a start costs: CPU of `run` until it serves, of `check` and of light verbs, and memory at rest.

`python -m bench.start` measures this checkout, `python -m bench.start OLD NEW` several in turn. Each is
run by the interpreter of its own `.venv`, interpreted and compiled, and with bytecode, as it is installed.
CPU is what the kernel counted for the process; memory is its proportional and its resident set in MiB, after
requests and one scrape. Linux only. It judges nothing.
"""

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

from bench.processes import free_port
from gateway.runtime.compiled import VARIABLE

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE: Final = 30.0
"""Seconds to wait for a gateway that starts."""
REQUESTS: Final = 20
REST: Final = 2.0
"""Seconds between the last request and the measurement of memory."""

FILE: Final = """\
listen: 127.0.0.1:{client}
admin: {{listen: 127.0.0.1:{admin}}}
state: {folder}/state.json
services:
  baremetal: {{dialect: ironic, backends: [{{url: "http://127.0.0.1:{backend}"}}]}}
"""
NOWHERE: Final = ("--admin", "http://127.0.0.1:1")
VERBS: Final = {
    "check": ("check", "{file}"),
    "version": ("version",),
    "status": ("status", *NOWHERE),
    "healthcheck": ("healthcheck", *NOWHERE),
    "completion": ("completion", "bash"),
    "schema": ("schema",),
}


class Ironic(BaseHTTPRequestHandler):
    """An API server that serves the versions 1.1 to 1.90."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer every request alike."""
        body = b"{}"
        self.send_response(200)
        self.send_header("X-OpenStack-Ironic-API-Version", "1.1")
        self.send_header("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
        self.send_header("X-OpenStack-Ironic-API-Maximum-Version", "1.90")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
        """Write no line for a request."""


class Checkout(NamedTuple):
    """One build of one checkout."""

    folder: Path
    compiled: bool
    bytecode: Path
    """The folder for bytecode, which an installed gateway has."""

    def __str__(self) -> str:
        return f"{self.folder.name}, {'compiled' if self.compiled else 'interpreted'}"

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The command line of one verb."""
        return (str(self.folder / ".venv" / "bin" / "python"), "-m", "gateway", *arguments)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process of this build."""
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(self.bytecode),
            VARIABLE: str(int(self.compiled)),
            **more,
        }

    def verb(self, *arguments: str) -> float:
        """CPU seconds of one verb."""
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return _end(process)

    @contextmanager
    def serving(self, file: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A gateway from the moment when it serves."""
        address = file.with_name("notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(address))
            manager.settimeout(PATIENCE)
            process = subprocess.Popen(
                self.command("run", str(file)),
                cwd=self.folder,
                env=self.environment(NOTIFY_SOCKET=str(address)),
                stdout=subprocess.DEVNULL,  # the access log
                stderr=subprocess.DEVNULL,
            )
            try:
                while b"READY=1" not in manager.recv(4096).splitlines():
                    pass
                yield process
            finally:
                process.kill()
                process.wait()
                address.unlink()

    def start(self, file: Path) -> float:
        """CPU seconds of a gateway until it serves."""
        with self.serving(file) as process:
            process.kill()
            return _end(process)

    def memory(self, file: Path, client: int, admin: int) -> tuple[float, float]:
        """Proportional and resident memory in MiB of a gateway that has served, and now rests."""
        with self.serving(file) as process:
            for _ in range(REQUESTS):
                _get(f"http://127.0.0.1:{client}/v1/nodes")
            _get(f"http://127.0.0.1:{admin}/metrics")
            time.sleep(REST)
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
            kib = {line.partition(":")[0]: int(line.split()[1]) for line in rollup}
            return kib["Pss"] / 1024, kib["Rss"] / 1024


def _end(process: subprocess.Popen[bytes]) -> float:
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        response.read()


def main() -> int:
    """Print a row for each figure, and a column for each build of each checkout."""
    parser = argparse.ArgumentParser(prog="bench.start", description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT], help="checkouts with a .venv")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="run,memory,check", help="figures to measure, or `all`")
    parser.add_argument("--interpreted", action="store_true", help="leave the compiled builds out")
    options = parser.parse_args()
    builds = (False,) if options.interpreted else (False, True)
    wanted = ("run", "memory", *VERBS) if options.only == "all" else options.only.split(",")
    backend = ThreadingHTTPServer(("127.0.0.1", 0), Ironic)
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        bytecode = Path(folder, "bytecode")
        checkouts = [
            Checkout(checkout.resolve(), compiled, bytecode)
            for compiled in builds
            for checkout in options.folders
        ]
        client, admin, file = free_port(), free_port(), Path(folder, "gateway.yaml")
        file.write_text(
            FILE.format(client=client, admin=admin, folder=folder, backend=backend.server_address[1])
        )
        verbs = {name: [each.format(file=file) for each in verb] for name, verb in VERBS.items()}

        def figure(name: str, checkout: Checkout) -> tuple[float, ...]:
            if name == "memory":
                return checkout.memory(file, client, admin)
            return (checkout.start(file) if name == "run" else checkout.verb(*verbs[name]),)

        for checkout in checkouts:  # the caches of bytecode, and the state file
            with checkout.serving(file) as process:
                time.sleep(REST)
                process.terminate()
                process.wait()
        for name in wanted:
            results: dict[Checkout, list[tuple[float, ...]]] = {each: [] for each in checkouts}
            for checkout in checkouts:
                figure(name, checkout)
            for _ in range(options.runs if name != "memory" else max(1, options.runs // 4)):
                for checkout in checkouts:
                    results[checkout].append(figure(name, checkout))
            for checkout, values in results.items():
                print(
                    f"{name:12} {checkout!s:28}",
                    *(
                        f"{statistics.median(each):8.3f} (least {min(each):.3f})"
                        for each in zip(*values, strict=True)
                    ),
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
