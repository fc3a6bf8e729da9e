"""Starts, pins, measures and ends the processes of the bench.

Only processes that were started here are ended, by their own id, with their children. Linux only: it reads
/proc.
"""

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """Something did not run. The text says what, for the user."""


@dataclass(frozen=True)
class Cores:
    """The use of each core, and the number of cores. With two cores, backends and load share one."""

    proxy: int
    backends: int
    load: int
    count: int

    @property
    def used(self) -> set[int]:
        return {self.proxy, self.backends, self.load}

    @property
    def note(self) -> str:
        if self.count == 1:
            return "one core only, shared by proxy, backends and load, so rates and latencies mean little"
        return f"proxy on core {self.proxy}, backends on {self.backends}, load on {self.load}"


def detect_cores() -> Cores:
    """One core for the proxy. Its hyper-thread siblings stay idle if there are enough cores."""
    cores = sorted(os.sched_getaffinity(0))
    proxy = cores[0]
    others = cores[1:]
    siblings = Path(f"/sys/devices/system/cpu/cpu{proxy}/topology/thread_siblings_list")
    if siblings.exists():
        shared = _numbers(siblings.read_text())
        others = [core for core in others if core not in shared] or others
    if not others:
        return Cores(proxy, proxy, proxy, 1)
    backends, load = others[0], others[1] if len(others) > 1 else others[0]
    return Cores(proxy, backends, load, len(cores))


def _numbers(text: str) -> set[int]:
    """Read `0-1,4` as {0, 1, 4}."""
    found: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def find_program(name: str) -> str | None:
    """The path of a program. Debian has servers in /usr/sbin, which is not in the PATH of users."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Usage:
    """The use of a process tree so far: CPU seconds, those of them in the kernel, and proportional memory
    in bytes."""

    cpu: float
    kernel: float
    memory: int


class Child:
    """One started program and its children."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    def tree(self) -> list[int]:
        """The ids of the program and all its descendants."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (fields := _stat(int(entry.name))):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        tree = [self.process.pid]
        for pid in tree:  # grows while it is walked: breadth first
            tree.extend(children.get(pid, []))
        return tree

    def usage(self) -> Usage:
        cpu, kernel, memory = 0.0, 0.0, 0
        for pid in self.tree():
            if fields := _stat(pid):
                user, system = int(fields[11]), int(fields[12])
                cpu += (user + system) / TICKS_PER_SECOND
                kernel += system / TICKS_PER_SECOND
            memory += _proportional_memory(pid)
        return Usage(cpu, kernel, memory)

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended with code {self.process.returncode}\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join(f"    {line}" for line in lines)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after ten seconds."""
        started = {pid: fields[19] for pid in self.tree() if (fields := _stat(pid))}
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        for pid, since in started.items():
            # The start time distinguishes the child from a later process with the same id.
            if (
                pid != self.process.pid
                and (fields := _stat(pid))
                and fields[19] == since
                and fields[0] != "Z"
            ):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third one on (the state, see proc(5)); None: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _proportional_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cores_busy(cores: set[int]) -> float:
    """Busy seconds of these cores since boot, including time stolen by the hypervisor."""
    names = {f"cpu{core}" for core in cores}
    busy = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(tick) for tick in ticks[:8])
            busy += user + nice + system + irq + softirq + steal
    return busy / TICKS_PER_SECOND


def ended_children_cpu() -> float:
    """CPU seconds of all children of this process that have ended and were waited for, such as wrk."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def own_cpu() -> float:
    """CPU seconds of this process."""
    return time.process_time()


def allow_open_files() -> int:
    """Raise the limit of open files for this process and all that it starts. Return the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def python_module(name: str, *arguments: str) -> list[str]:
    """The command for a module, in this environment."""
    return [sys.executable, "-P", "-m", name, *arguments]


def pinned(core: int, command: list[str]) -> list[str]:
    """The command on this core only. It ends with this process, even when that is killed."""
    prefix = ["taskset", "-c", str(core)]
    if setpriv := shutil.which("setpriv"):
        prefix = [setpriv, "--pdeathsig", "TERM", *prefix]
    return [*prefix, *command]


@contextlib.contextmanager
def running(
    name: str, command: list[str], core: int, log: Path, environment: dict[str, str]
) -> Iterator[Child]:
    """Run the program during the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            pinned(core, command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        child.stop()


def wait_for_port(child: Child, port: int, seconds: float) -> None:
    """Wait until the program accepts connections."""
    deadline = time.monotonic() + seconds
    while True:
        child.check_alive()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise BenchError(
                    f"{child.name} did not listen within {seconds:.0f} s\n{child.log_tail()}"
                ) from None
            time.sleep(0.02)
        else:
            return
