"""Real clustering servers on loopback: senlin in one process, SQLite, its own fake cloud.

What it does: it writes the configuration and the pipeline, and makes the database.

Rules: the pipeline is written here because older wheels have none. It has the filters of the release in their
order, with another identity filter (`standin/confirmed.py`) and without `trust`. That one would need an
identity service; `_store_trust` writes its data into the database instead.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.kit.networks import LOOPBACK, free_port
from tests.real.environments import Environment
from tests.real.launcher import SCRIPTS, Release, RunningServer, databases, python_process, write_options

OLD = Release("senlin", "5.0.1", (1, 0), (1, 9))
NEW = Release("senlin", "16.0.0", (1, 0), (1, 14))

OWN_FACTORY = "senlin.api.common.wsgi:filter_factory"
# The user of these tests, and the one in the token of openstacksdk when it is configured without a token.
USERS = ("admin", "notused")
TRUST = '{"openstack": {"trust": "none"}}'


def senlin_server(release: Release, environment: Environment, folder: Path) -> RunningServer:
    """A server of this release that is not started yet. All its files are in `folder`."""
    port = free_port()
    log = folder / "senlin.log"
    settings = _settings(folder, port, log)
    sync = environment.command("senlin-manage", "--config-file", str(settings), "db_sync")
    databases(environment, folder, ("senlin.sqlite",), [sync])
    _store_trust(folder / "senlin.sqlite")
    arguments = [str(SCRIPTS / "senlin_in_one.py"), "--config-file", str(settings)]
    process = python_process(f"senlin-{release.number}", environment, folder, arguments, log)
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
            # Required and never used: nobody listens there.
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
    def filter_options(name: str) -> dict[str, object]:
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
            "filter:faultwrap": filter_options("fault_filter"),
            "filter:versionnegotiation": filter_options("version_filter"),
            "filter:webhook": filter_options("webhook_filter"),
            "filter:authtoken": {"paste.filter_factory": "confirmed:factory"},
            "filter:context": filter_options("context_filter") | {"oslo_config_project": "senlin"},
        },
    )


def _store_trust(database: Path) -> None:
    """Store the trust that the identity service would have created for the users."""
    with sqlite3.connect(database) as connection:
        connection.executemany(
            'insert into credential ("user", project, cred) values (?, ?, ?)',
            [(user, "admin", TRUST) for user in USERS],
        )
    connection.close()
