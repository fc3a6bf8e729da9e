"""Real placement servers on loopback: their own `noauth2` (token `admin`), SQLite, cheroot."""

from __future__ import annotations

from pathlib import Path

from tests.kit.networks import free_port
from tests.real.environments import Environment
from tests.real.launcher import SCRIPTS, Release, RunningServer, databases, python_process, write_options

OLD = Release("placement", "1.1.0", (1, 0), (1, 31))
NEW = Release("placement", "16.0.0", (1, 0), (1, 39))

TOKEN = "admin"

# The application: a module of its own in newer releases, a function in older ones.
APPLICATION = {
    OLD.number: ("placement.wsgi", "init_application()"),
    NEW.number: ("placement.wsgi.api", "application"),
}


def placement_server(release: Release, environment: Environment, folder: Path) -> RunningServer:
    """A server of this release that is not started yet, with an empty database. All its files are in
    `folder`."""
    port = free_port()
    policy, log = folder / "policy.yaml", folder / "placement.log"
    policy.touch()
    settings = write_options(
        folder / "placement.conf",
        {
            "DEFAULT": {"log_file": log},
            "api": {"auth_strategy": "noauth2"},
            "placement_database": {"connection": f"sqlite:///{folder / 'placement.sqlite'}"},
            "oslo_policy": {"policy_file": policy},
        },
    )
    sync = environment.command("placement-manage", "--config-file", str(settings), "db", "sync")
    databases(environment, folder, ("placement.sqlite",), [sync])
    arguments = [str(SCRIPTS / "serve_wsgi.py"), *APPLICATION[release.number], str(port)]
    process = python_process(
        f"placement-{release.number}",
        environment,
        folder,
        arguments,
        log,
        {"OS_PLACEMENT_CONFIG_DIR": str(folder)},
    )
    return RunningServer(release, process, port)
