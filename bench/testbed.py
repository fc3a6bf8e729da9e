"""The backends behind all peers, and a directory for files. They run during the whole bench."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.certificates import make_certificates
from bench.lineup import Peer, nginx_command
from bench.loads.bodies import BODY_SIZE, PART, PART_SIZE
from bench.processes import Child, Cores, free_port, python_module, running, wait_for_port
from bench.setting import Setting
from bench.slot import MOST_BACKENDS, Slot

START_SECONDS = 20.0


@dataclass(frozen=True)
class Testbed:
    """`port`: that of every backend. A backend is at 127.0.0.1, too, for requests without a proxy."""

    directory: Path
    backends: Child
    sink: Child
    port: int

    def usage_cpu(self) -> float:
        return self.backends.usage().cpu + self.sink.usage().cpu

    @contextlib.contextmanager
    def slot(self, peer: Peer, setting: Setting) -> Iterator[Slot]:
        """The place of one start. Its directory is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=self.directory) as name:
            directory = Path(name)
            directory.chmod(0o755)  # nginx's worker is another user when its master is root
            port = free_port() if peer.command else self.port
            yield Slot(directory, port, free_port(), self.port, setting)


@contextlib.contextmanager
def testbed(cores: Cores) -> Iterator[Testbed]:
    """Run the backends. They and the directory are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="skewgate-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with (directory / "body").open("wb") as body:
            body.writelines(PART for _ in range(BODY_SIZE // PART_SIZE))
        make_certificates(directory)
        port, sink_port = free_port("0.0.0.0"), free_port()
        slot = Slot(directory, 0, 0, port, Setting(backends=2 * MOST_BACKENDS))
        slot.fill("backends/backend.conf", {"SINK": sink_port})
        command = nginx_command(slot.fill("backends/nginx.conf"), directory)
        sink_command = python_module("bench.backends.sink", str(sink_port))
        with (
            running("sink", sink_command, cores.backends, directory / "sink.log", {}) as sink,
            running("backends", command, cores.backends, directory / "backends.log", {}) as backends,
        ):
            wait_for_port(sink, sink_port, START_SECONDS)
            wait_for_port(backends, port, START_SECONDS)
            yield Testbed(directory, backends, sink, port)
