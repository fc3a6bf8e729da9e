"""Checks of the file against the machine: a backend that is the gateway itself, a state file that cannot be
written, more workers than CPUs. No socket is opened, and nothing is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.cpus import usable_cpus
from gateway.settings.values import AdminSettings, Listen
from gateway.settings.yaml.document import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Scalar, SequenceNode, child

LOCALHOST: Final = "localhost"
HINT: Final = "name the API's own address"


class _Own(NamedTuple):
    """An address of the gateway."""

    name: str
    hosts: tuple[str, ...]
    port: int
    path: str = ""


def check_own_addresses(
    listen: Sequence[Listen],
    admin: AdminSettings,
    services: Sequence[Service],
    root: MappingNode,
    findings: Findings,
) -> None:
    """A backend that is the gateway itself would get its own requests again and again."""
    if findings.is_dropped("listen") or findings.is_dropped("admin", "listen"):
        return
    own = [
        *(
            _Own(
                "where the gateway itself serves clients",
                (*_hosts(one.host), "0.0.0.0") if one.dual_stack else _hosts(one.host),  # noqa: S104
                one.port,
                one.path,
            )
            for one in listen
        ),
        _Own("the gateway's own admin listener", _hosts(admin.host), admin.port),
    ]
    for service in services:
        nodes = child(root, "services", service.name, "backends")
        items = nodes.items if isinstance(nodes, SequenceNode) else []
        for index, backend in enumerate(service.backends):
            node = child(items[index], "url") if index < len(items) else None
            found = next((each.name for each in own if _is_at(backend, each)), None)
            if found is not None and isinstance(node, Scalar):
                findings.add(node, "own-address", f"this is {found}", HINT)


def _is_at(backend: Backend, own: _Own) -> bool:
    """As far as the file shows it: another address of this machine looks like any other."""
    if backend.socket_path or own.path:
        return bool(own.path) and os.path.normpath(backend.socket_path) == os.path.normpath(own.path)
    if backend.port != own.port:
        return False
    return any(_reaches(mine, theirs) for mine in own.hosts for theirs in _hosts(backend.host))


def _hosts(host: str) -> tuple[str, ...]:
    return ("127.0.0.1", "::1") if host == LOCALHOST else (host,)


def _reaches(own: str, host: str) -> bool:
    """Whether `host` is certainly an address of a listener on `own`."""
    if own == host:
        return True
    try:
        mine, theirs = ip_address(own), ip_address(host)
    except ValueError:
        return False
    local = theirs.is_loopback or theirs.is_unspecified
    return mine.is_unspecified and local and mine.version == theirs.version


def check_workers(workers: int | None, root: MappingNode, findings: Findings) -> None:
    """More of them than CPUs wait for each other."""
    node = child(root, "workers")
    if workers is None or workers == 1 or node is None or not findings.check_files:
        return
    if workers > (cpus := usable_cpus()):
        findings.add(
            node,
            "too-many-workers",
            f"{workers} workers share {cpus} {'CPU' if cpus == 1 else 'CPUs'} here",
            "write auto: one for each CPU that the gateway may use",
            severity=Severity.WARNING,
        )


def check_state_path(path: str | None, root: MappingNode, findings: Findings) -> None:
    """What the file of `state` would be lost for is told before the first change."""
    node = child(root, "state")
    if path is None or node is None or not findings.check_files:
        return
    real = Path(os.path.realpath(path))
    try:
        mode = real.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError:
        mode = 0  # nobody knows
    if mode and not stat.S_ISREG(mode):
        findings.add(node, "bad-value", "this is no regular file", "name a file of its own for the state")
        return
    folder = real.parent
    try:
        is_folder = folder.is_dir()
    except OSError:
        is_folder = True  # nobody knows: it cannot be looked at
    if not is_folder:
        findings.add(node, "bad-value", "the folder of this file does not exist", "make it, or name another")
    elif mode == 0 or not os.access(folder, os.W_OK | os.X_OK):
        findings.add(
            node,
            "not-writable",
            "this user cannot write the folder of this file",
            "run `check` as the user of the gateway, and give that user the folder",
            severity=Severity.WARNING,
        )
