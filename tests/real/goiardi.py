"""A real Chef server on loopback: Debian's goiardi, in memory, with checks of all signatures.

Rules: it is the only server here that comes from a system package (`.ci/packages`). A test that needs it
fails with an explanation when it is missing. All its files are in the folder that the caller gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.kit.messages import Message
from tests.kit.networks import LOOPBACK, free_port
from tests.real.apis import ServiceApi
from tests.real.environments import MissingPrerequisite
from tests.real.launcher import Release, RunningServer
from tests.real.processes import Process, responds, stop_all

# Its versions are whole numbers. Here and below, `0.N` stands for the number N.
GOIARDI = Release("goiardi", "Debian's", (0, 0), (0, 1))
PROGRAM = "goiardi"
USER = "admin"

HEADER = "X-Ops-Server-API-Version"


class ChefApi(ServiceApi):
    """Chef's versions: whole numbers in requests, a JSON object with the served version in responses."""

    def versions(self, head: Message | None) -> list[str]:
        values = [] if head is None else head.every(HEADER)
        numbers = [json.loads(text)["response_version"] if text.startswith("{") else text for text in values]
        return [f"0.{number}" for number in numbers if str(number).isdecimal()]

    def headers(self, version: str | None) -> dict[str, str]:
        """The fields of an unsigned request. `version`: the whole number itself."""
        fields = {} if version is None else {HEADER: version}
        return {"Accept": "application/json", "X-Chef-Version": "16.12.3", "X-Ops-Userid": USER, **fields}


API = ChefApi(
    service="chef",
    dialect=("dialect: chef",),
    service_type="",
    default_version="0.0",
    documents=frozenset({"/users", "/server_api_version", "/_status"}),
    # A request with a signature over its version is forwarded unchanged, also without a version.
    unversioned_allowed=True,
)


class ChefServer(RunningServer):
    """One goiardi. `key`: the private key that it made for its first user, `USER`."""

    def __init__(self, process: Process, port: int, key: Path) -> None:
        super().__init__(GOIARDI, process, port)
        self.key = key

    def start(self) -> None:
        """Start. Return when it responds and the key of the first user exists."""
        self.process.start()
        self.process.wait_until(
            lambda: responds(self.port, "/_status") and self.key.exists(), "responding to HTTP"
        )


def chef_server(folder: Path, like: ChefServer | None = None) -> ChefServer:
    """A Chef server that is not started yet. It is empty, or has the users and keys of `like`, which has
    ended.

    Raises MissingPrerequisite when goiardi is not installed.
    """
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if program is None:
        raise MissingPrerequisite(
            "the real Chef server is goiardi, which is not installed; as root on Debian: .ci/packages"
        )
    settings = folder / "conf"
    if like is None:
        settings.mkdir(parents=True)
    else:
        # It saves its data when it ends, and the key of its first user is a file.
        shutil.copytree(like.process.folder, folder, ignore=shutil.ignore_patterns("*.out"))
    (folder / "files").mkdir(exist_ok=True)
    port = free_port()
    command = [
        program,
        "--ipaddress",
        LOOPBACK,
        "--hostname",
        LOOPBACK,
        "--port",
        str(port),
        "-VV",
        "--use-auth",
        f"--conf-root={settings}",
        f"--local-filestore-dir={folder / 'files'}",
        f"--data-file={folder / 'data'}",
        f"--index-file={folder / 'index'}",
    ]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GOIARDI")}
    return ChefServer(Process(folder.name, command, folder, variables), port, settings / f"{USER}.pem")


@contextlib.contextmanager
def chef_servers(folder: Path, names: tuple[str, ...]) -> Iterator[dict[str, ChefServer]]:
    """One Chef server for each name. All know the same users with the same keys."""
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
