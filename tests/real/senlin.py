"""Real clustering servers on loopback: senlin in one process, SQLite, its own pretended cloud.

What it does: writes the configuration and the pipeline, makes the database.

Rules: the pipeline is written here because older wheels ship none: the release's own filters in their own
order, the identity filter replaced (`standin/confirmed.py`) and `trust` left out, which asks an identity
service for what `_entrust` puts into the database instead.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.real.environments import Environment
from tests.real.launching import SCRIPTS, Release, RunningServer, databases, python_process, write_options
from tests.real.processes import LOOPBACK, free_port

OLD = Release("senlin", "5.0.1", (1, 0), (1, 9))
NEW = Release("senlin", "16.0.0", (1, 0), (1, 14))

OWN_FACTORY = "senlin.api.common.wsgi:filter_factory"
# Ours, and whom the token names that openstacksdk sends when it is told to send none.
USERS = ("admin", "notused")
TRUST = '{"openstack": {"trust": "none"}}'


def senlin_server(release: Release, environment: Environment, folder: Path) -> RunningServer:
    """A server of this release, all its files in `folder`; not yet started."""
    port = free_port()
    log = folder / "senlin.log"
    settings = _settings(folder, port, log)
    sync = environment.command("senlin-manage", "--config-file", str(settings), "db_sync")
    databases(environment, folder, ("senlin.sqlite",), [sync])
    _entrust(folder / "senlin.sqlite")
    words = [str(SCRIPTS / "senlin_in_one.py"), "--config-file", str(settings)]
    process = python_process(f"senlin-{release.number}", environment, folder, words, log)
    return RunningServer(release, process, port)


def _settings(folder: Path, port: int, log: Path) -> Path:
    state, policy = folder / "state", folder / "policy.yaml"
    state.mkdir()
    policy.touch()
    return write_options(
        folder / "senlin.conf",
        {
            "DEFAULT": {
                "transport_url": "fake://",
                "host": folder.name,
                "state_path": state,
                "log_file": log,
                "cloud_backend": "openstack_test",
            },
            # Demanded and never used: nobody listens there.
            "authentication": {
                "auth_url": f"http://{LOOPBACK}:9/",
                "service_username": "senlin",
                "service_password": "unused",
                "service_project_name": "service",
            },
            "senlin_api": {
                "bind_host": LOOPBACK,
                "bind_port": port,
                "workers": 0,
                "api_paste_config": _pipeline(folder / "api-paste.ini"),
            },
            "database": {"connection": f"sqlite:///{folder / 'senlin.sqlite'}"},
            "oslo_concurrency": {"lock_path": state},
            "oslo_policy": {"policy_file": policy},
        },
    )


def _pipeline(target: Path) -> Path:
    def own(name: str) -> dict[str, object]:
        return {"paste.filter_factory": OWN_FACTORY, "senlin.filter_factory": f"senlin.api.middleware:{name}"}

    return write_options(
        target,
        {
            "pipeline:senlin-api": {
                "pipeline": "request_id faultwrap versionnegotiation webhook authtoken context apiv1app"
            },
            "app:apiv1app": {
                "paste.app_factory": "senlin.api.common.wsgi:app_factory",
                "senlin.app_factory": "senlin.api.openstack.v1.router:API",
            },
            "filter:request_id": {"paste.filter_factory": "oslo_middleware.request_id:RequestId.factory"},
            "filter:faultwrap": own("fault_filter"),
            "filter:versionnegotiation": own("version_filter"),
            "filter:webhook": own("webhook_filter"),
            "filter:authtoken": {"paste.filter_factory": "confirmed:factory"},
            "filter:context": own("context_filter") | {"oslo_config_project": "senlin"},
        },
    )


def _entrust(database: Path) -> None:
    """What the identity service would have entrusted the server with on the user's behalf."""
    with sqlite3.connect(database) as connection:
        connection.executemany(
            'insert into credential ("user", project, cred) values (?, ?, ?)',
            [(user, "admin", TRUST) for user in USERS],
        )
    connection.close()
