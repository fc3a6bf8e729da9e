"""A real Chef server on loopback: Debian's goiardi, all in memory, every request's signature checked.

Rules: it is installed by the system (`.ci/packages`), the only server here that is; a test that needs it
fails with words where it is missing. All its files lie in the folder that the caller gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.real.environments import MissingPrerequisite
from tests.real.launching import Release, RunningServer
from tests.real.pairs import Wire
from tests.real.processes import LOOPBACK, Process, answers, free_port, stop_all
from tests.real.wire import Head

# Its versions are whole numbers; here and below a number stands for `0.N`.
GOIARDI = Release("goiardi", "Debian's", (0, 0), (0, 1))
PROGRAM = "goiardi"
USER = "admin"


HEADER = "X-Ops-Server-API-Version"


class ChefWire(Wire):
    """Chef's versions: whole numbers in requests, an object with the version that was used in replies."""

    def versions(self, head: Head | None) -> list[str]:
        values = [] if head is None else head.all(HEADER)
        used = [json.loads(text)["response_version"] if text.startswith("{") else text for text in values]
        return [f"0.{number}" for number in used if str(number).isdecimal()]

    def headers(self, version: str | None) -> dict[str, str]:
        """What an unsigned request carries; `version` is the whole number itself."""
        said = {} if version is None else {HEADER: version}
        return {"Accept": "application/json", "X-Chef-Version": "16.12.3", "X-Ops-Userid": USER, **said}


WIRE = ChefWire(
    service="chef",
    dialect=("dialect: chef",),
    service_type="",
    silence="0.0",
    documents=frozenset({"/users", "/server_api_version", "/_status"}),
    # What is signed over its version goes on as it came, without one too.
    silent=True,
)


class ChefServer(RunningServer):
    """One goiardi; `key` is the private key that it made for its first user, `USER`."""

    def __init__(self, process: Process, port: int, key: Path) -> None:
        super().__init__(GOIARDI, process, port)
        self.key = key

    def start(self) -> None:
        """Start and return once it answers and the first user's key is there."""
        self.process.start()
        self.process.wait_until(
            lambda: answers(self.port, "/_status") and self.key.exists(), "answering HTTP"
        )


def chef_server(folder: Path, like: ChefServer | None = None) -> ChefServer:
    """A Chef server; not yet started. Empty, or with the users and keys that `like`, ended, had left.

    Raises MissingPrerequisite where goiardi is not installed."""
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if program is None:
        raise MissingPrerequisite(
            "the real Chef server is goiardi, and no such program was found; as root on Debian: .ci/packages"
        )
    settings = folder / "conf"
    if like is None:
        settings.mkdir(parents=True)
    else:
        # It saves what it holds when it ends, and its first user's key is a file.
        shutil.copytree(like.process.folder, folder, ignore=shutil.ignore_patterns("*.out"))
    (folder / "files").mkdir(exist_ok=True)
    port = free_port()
    command = [
        program, "--ipaddress", LOOPBACK, "--hostname", LOOPBACK, "--port", str(port), "-VV", "--use-auth",
        f"--conf-root={settings}", f"--local-filestore-dir={folder / 'files'}",
        f"--data-file={folder / 'data'}", f"--index-file={folder / 'index'}",
    ]  # fmt: skip
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GOIARDI")}
    return ChefServer(Process(folder.name, command, folder, variables), port, settings / f"{USER}.pem")


@contextlib.contextmanager
def chef_servers(folder: Path, names: tuple[str, ...]) -> Iterator[dict[str, ChefServer]]:
    """As many Chef servers as there are names, which know the same users by the same keys."""
    first = chef_server(folder / "goiardi")
    try:
        first.start()
    finally:
        first.process.stop()
    servers = {name: chef_server(folder / f"goiardi-{name}", first) for name in names}
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        stop_all(server.process for server in servers.values())
