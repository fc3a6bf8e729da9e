"""Real compute APIs on loopback: only nova, SQLite, an in-process message bus, every user an administrator.

What it does: it writes the configuration and the pipeline, and makes the three databases and the two cells.

Rules: the pipeline is the one of the release, with another identity filter (`standin/confirmed.py`). Flavors
are written to the database. Operations that need a compute host do not work.
"""

from __future__ import annotations

from pathlib import Path

from tests.kit.networks import LOOPBACK, free_port
from tests.real.environments import Environment
from tests.real.launcher import SCRIPTS, Release, RunningServer, databases, python_process, write_options

OLD = Release("nova", "17.0.13", (2, 1), (2, 60))
NEW = Release("nova", "34.0.0", (2, 1), (2, 104))

IDENTITY_FILTER = "keystonemiddleware.auth_token:filter_factory"
DATABASES = ("nova_api.sqlite", "nova_cell0.sqlite", "nova.sqlite")


def nova_server(release: Release, environment: Environment, folder: Path) -> RunningServer:
    """A compute API of this release that is not started yet. All its files are in `folder`."""
    port = free_port()
    settings = _settings(environment, folder, port)
    log = folder / "nova.log"
    variables = {"OS_NOVA_CONFIG_DIR": str(folder), "NOVA_CONFIG_DIR": str(folder)}
    databases(environment, folder, DATABASES, _database_commands(environment, settings))
    own_program = environment.home / "bin" / "nova-api-os-compute"
    if own_program.exists():
        arguments = [str(own_program), "--config-file", str(settings)]
    else:
        variables["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
        application = ["nova.wsgi.osapi_compute", "application", str(port), "nova.monkey_patch"]
        arguments = [str(SCRIPTS / "serve_wsgi.py"), *application]
    process = python_process(f"nova-{release.number}", environment, folder, arguments, log, variables)
    return RunningServer(release, process, port)


def _settings(environment: Environment, folder: Path, port: int) -> Path:
    state, policy, pipeline = folder / "state", folder / "policy.yaml", folder / "api-paste.ini"
    state.mkdir()
    policy.touch()
    own = (environment.home / "etc" / "nova" / "api-paste.ini").read_text()
    assert IDENTITY_FILTER in own, f"{environment.name}: its pipeline has an unknown identity filter"
    pipeline.write_text(own.replace(IDENTITY_FILTER, "confirmed:factory"))
    return write_options(
        folder / "nova.conf",
        {
            "DEFAULT": {
                "transport_url": "fake://",
                "state_path": state,
                "log_file": folder / "nova.log",
                "my_ip": LOOPBACK,
                "enabled_apis": "osapi_compute",
                "osapi_compute_listen": LOOPBACK,
                "osapi_compute_listen_port": port,
                "osapi_compute_workers": 1,
            },
            "api": {"auth_strategy": "keystone"},
            # Relative to the working folder of the server: the databases contain these paths and are copied.
            "api_database": {"connection": "sqlite:///nova_api.sqlite"},
            "database": {"connection": "sqlite:///nova.sqlite"},
            "wsgi": {"api_paste_config": pipeline},
            "oslo_concurrency": {"lock_path": state},
            "oslo_policy": {"policy_file": policy},
        },
    )


def _database_commands(environment: Environment, settings: Path) -> list[list[str]]:
    """The commands that make the databases and register both cells."""
    cell0 = ["map_cell0", "--database_connection", "sqlite:///nova_cell0.sqlite"]
    cell1 = [
        "--name",
        "cell1",
        "--database_connection",
        "sqlite:///nova.sqlite",
        "--transport-url",
        "fake://",
    ]
    steps = [
        ["api_db", "sync"],
        ["cell_v2", *cell0],
        ["db", "sync"],
        ["cell_v2", "create_cell", *cell1],
    ]
    return [environment.command("nova-manage", "--config-file", str(settings), *step) for step in steps]
