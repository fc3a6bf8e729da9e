"""Real Ironic servers on loopback: no authentication, SQLite, fake hardware.

What it does: it writes the configuration, creates the schema and starts the processes. A whole server is API
and conductor of one release in one process, with its own database.

Rules: all files are in the folder that the caller gives. The range of a release is stated here from its
release notes and never read from the server, so that a test can compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.kit.networks import LOOPBACK, free_port
from tests.real import launcher
from tests.real.environments import Environment
from tests.real.launcher import Number, RunningServer, databases, write_options
from tests.real.processes import Process

# The first version of every Ironic release.
MINIMUM = (1, 1)

LOG = "ironic.log"
DATABASE = "ironic.sqlite"


@dataclass(frozen=True, slots=True)
class Release(launcher.Release):
    """A release of Ironic. `pin`: the release to whose API and objects an operator pins it, with
    `pin_release_version` in [DEFAULT]."""

    pin: str | None = None


def ironic(number: str, maximum: Number, pin: str | None = None) -> Release:
    return Release("ironic", number, MINIMUM, maximum, pin)


OLD = ironic("21.4.0", (1, 82))
NEW = ironic("39.0.0", (1, 115))
# The new release, pinned to the API of 21.4 by an operator during an upgrade.
NEW_PINNED = ironic("39.0.0", (1, 82), pin="21.4")


def whole_server(release: launcher.Release, environment: Environment, folder: Path) -> RunningServer:
    """API and conductor of one release in one process that is not started yet. All files are in `folder`."""
    port = free_port()
    options = _options(folder, port, folder / DATABASE)
    # Calls between API and conductor stay inside the process.
    options["DEFAULT"]["rpc_transport"] = "none"
    settings = write_options(folder / "ironic.conf", options)
    create_schema(environment, settings, folder / DATABASE)
    return RunningServer(release, ironic_process("ironic", environment, settings), port)


def api_server(
    release: Release, environment: Environment, folder: Path, database: Path, *, port: int, calls: int
) -> RunningServer:
    """An API of this release, not started yet, on an existing database. It finds its conductor there."""
    settings = member(folder, database, release, calls=calls, port=port)
    return RunningServer(release, ironic_process("ironic-api", environment, settings), port)


def wait_for_conductor(process: Process) -> None:
    """Wait until this conductor (of 39.0.0, in a folder of its own) has registered itself.

    Before that, writes find no conductor, although it listens already.
    """
    log = process.folder / LOG
    process.wait_until(lambda: log.exists() and "Created RPC server" in log.read_text(), "registered")


def member(folder: Path, database: Path, release: Release, *, calls: int, port: int | None = None) -> Path:
    """Write the configuration of one process of several on one database. They use JSON-RPC over loopback.

    `calls`: the port of the conductor.
    """
    folder.mkdir()
    options = _options(folder, port or free_port(), database)
    options["DEFAULT"]["rpc_transport"] = "json-rpc"
    options["json_rpc"] = {"auth_strategy": "noauth", "host_ip": LOOPBACK, "port": calls}
    if release.pin is not None:
        options["DEFAULT"]["pin_release_version"] = release.pin
    return write_options(folder / "ironic.conf", options)


def _options(folder: Path, port: int, database: Path) -> dict[str, dict[str, object]]:
    """The options of every process: fake hardware, and nothing outside loopback and `folder`."""
    state = folder / "state"
    state.mkdir()
    fake_interfaces = ("bios", "boot", "deploy", "management", "power", "raid")
    optional_interfaces = ("console", "inspect", "rescue", "vendor")
    interfaces: dict[str, object] = {f"enabled_{kind}_interfaces": "fake" for kind in fake_interfaces}
    interfaces |= {f"enabled_{kind}_interfaces": f"fake,no-{kind}" for kind in optional_interfaces}
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


def ironic_process(program: str, environment: Environment, settings: Path) -> Process:
    process = Process(program, environment.command(program, "--config-file", str(settings)), settings.parent)
    process.logs.append(settings.parent / LOG)
    return process


def create_schema(environment: Environment, settings: Path, database: Path) -> None:
    sync = environment.command("ironic-dbsync", "--config-file", str(settings), "create_schema")
    databases(environment, database.parent, (database.name,), [sync])
