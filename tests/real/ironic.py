"""Real Ironic servers on loopback: no authentication, SQLite, hardware that is only pretended.

What it does: writes the configuration, makes the schema, starts the processes. A whole server is one release
with a database of its own, API and conductor in one process. `Family` is several APIs of one release on
one database with one conductor, each pinned to the API of another release: what is created through one
member is there through every other.

Rules: every file lies in the run folder that the caller gives. What a server serves is stated here from
its release notes and never asked from it, so that a test can hold the two against each other.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.real import launching
from tests.real.environments import Environment
from tests.real.launching import Number, RunningServer
from tests.real.processes import LOOPBACK, Process, StartFailed, answers, free_port, stop_all

# The first version of every Ironic release.
MINIMUM = (1, 1)

LOG = "ironic.log"

Options = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Release(launching.Release):
    """A release of Ironic. `pin` is the release to whose API and objects an operator holds it: [DEFAULT]
    pin_release_version."""

    pin: str | None = None


def ironic(number: str, maximum: Number, pin: str | None = None) -> Release:
    """The release with this number, which serves up to `maximum`."""
    return Release("ironic", number, MINIMUM, maximum, pin)


OLD = ironic("21.4.0", (1, 82))
NEW = ironic("39.0.0", (1, 115))
# The new code, held by an operator to the API of 21.4 in the middle of an upgrade.
NEW_PINNED = ironic("39.0.0", (1, 82), pin="21.4")


def whole_server(release: Release, environment: Environment, folder: Path) -> RunningServer:
    """API and conductor of one release in one process, database and all in `folder`; not yet started."""
    folder.mkdir(parents=True)
    port = free_port()
    options = _options(folder, port, folder / "ironic.sqlite")
    # Calls between API and conductor stay inside the process.
    options["DEFAULT"]["rpc_transport"] = "none"
    settings = _write(folder / "ironic.conf", options)
    create_schema(environment, settings, folder / "ironic.sqlite")
    return RunningServer(release, ironic_process("ironic", environment, settings), port)


class Family:
    """Two APIs of one release on one database: `unpinned`, and `pinned` to the API of an older release."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        folder.mkdir(parents=True)
        database = folder / "family.sqlite"
        calls = free_port()
        settings = member(folder / "conductor", database, NEW, calls=calls)
        create_schema(environment, settings, database)
        self._conductor = ironic_process("ironic-conductor", environment, settings)
        self.unpinned, self.pinned = (
            api_server(release, environment, folder / name, database, port=free_port(), calls=calls)
            for name, release in (("unpinned", NEW), ("pinned", NEW_PINNED))
        )
        for server in (self.unpinned, self.pinned):
            # What a write failed of is in the conductor's log.
            server.process.logs += self._conductor.logs

    def start(self) -> None:
        """Start all three side by side and return once both APIs answer."""
        everything = (self._conductor, self.unpinned.process, self.pinned.process)
        for process in everything:
            process.start()
        wait_for_conductor(self._conductor)
        for server in (self.unpinned, self.pinned):
            server.process.wait_until(lambda server=server: answers(server.port), "answering HTTP")  # type: ignore[misc]

    def stop(self) -> None:
        stop_all((self.unpinned.process, self.pinned.process, self._conductor))


def api_server(
    release: Release, environment: Environment, folder: Path, database: Path, *, port: int, calls: int
) -> RunningServer:
    """An API of this release on a database that exists; it finds its conductor there. Not yet started."""
    settings = member(folder, database, release, calls=calls, port=port)
    return RunningServer(release, ironic_process("ironic-api", environment, settings), port)


def wait_for_conductor(process: Process) -> None:
    """Until this conductor (of 39.0.0), in a folder of its own, has registered itself: before that a write
    finds no conductor, though it listens already."""
    log = process.folder / LOG
    process.wait_until(lambda: log.exists() and "Created RPC server" in log.read_text(), "registered")


def member(folder: Path, database: Path, release: Release, *, calls: int, port: int | None = None) -> Path:
    """The configuration of one process of several on one database: they speak JSON-RPC over loopback. The
    conductor takes calls on the port `calls`."""
    folder.mkdir()
    options = _options(folder, port or free_port(), database)
    options["DEFAULT"]["rpc_transport"] = "json-rpc"
    options["json_rpc"] = {"auth_strategy": "noauth", "host_ip": LOOPBACK, "port": calls}
    if release.pin is not None:
        options["DEFAULT"]["pin_release_version"] = release.pin
    return _write(folder / "ironic.conf", options)


def _options(folder: Path, port: int, database: Path) -> Options:
    """What every process needs: pretended hardware, nothing outside loopback and `folder`."""
    state = folder / "state"
    state.mkdir()
    pretended = ("bios", "boot", "deploy", "management", "power", "raid")
    or_none = ("console", "inspect", "rescue", "vendor")
    interfaces: dict[str, object] = {f"enabled_{kind}_interfaces": "fake" for kind in pretended}
    interfaces |= {f"enabled_{kind}_interfaces": f"fake,no-{kind}" for kind in or_none}
    interfaces |= {"enabled_network_interfaces": "noop", "enabled_storage_interfaces": "fake,noop"}
    interfaces |= {f"default_{kind}_interface": "fake" for kind in ("deploy", "inspect")}
    interfaces |= {f"default_{kind}_interface": "noop" for kind in ("network", "storage")}
    return {
        "DEFAULT": {
            "auth_strategy": "noauth",
            "enabled_hardware_types": "fake-hardware",
            "host": LOOPBACK,
            "my_ip": LOOPBACK,
            "state_path": state,
            "log_file": folder / LOG,
            **interfaces,
        },
        "api": {"host_ip": LOOPBACK, "port": port, "api_workers": 1},
        "conductor": {"automated_clean": "false", "workers_pool_size": 40},
        "database": {"connection": f"sqlite:///{database}"},
        "dhcp": {"dhcp_provider": "none"},
        "oslo_concurrency": {"lock_path": state},
        "oslo_messaging_notifications": {"driver": "noop"},
    }


def _write(target: Path, options: Options) -> Path:
    text = ""
    for section, entries in options.items():
        text += f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    target.write_text(text)
    return target


def ironic_process(program: str, environment: Environment, settings: Path) -> Process:
    process = Process(program, environment.command(program, "--config-file", str(settings)), settings.parent)
    process.logs.append(settings.parent / LOG)
    return process


def create_schema(environment: Environment, settings: Path, database: Path) -> None:
    """An empty database of this release: made by its own tool once, and kept beside its environment."""
    kept = environment.home / "empty.sqlite"
    if kept.exists():
        shutil.copyfile(kept, database)
    else:
        command = environment.command("ironic-dbsync", "--config-file", str(settings), "create_schema")
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=settings.parent)
        if done.returncode != 0:
            raise StartFailed(f"{environment.name}: no schema\n{(done.stdout + done.stderr)[-3000:]}")
        unfinished = kept.with_name(f".empty-{os.getpid()}.sqlite")
        shutil.copyfile(database, unfinished)
        unfinished.rename(kept)
    # With a write-ahead log readers do not block a writer's commit; without it the green threads of one
    # process wait for each other until SQLite says that the database is locked.
    connection = sqlite3.connect(database)
    try:
        connection.execute("pragma journal_mode=wal")
    finally:
        connection.close()
