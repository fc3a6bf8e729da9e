"""Shell completion of service, backend and replica names, from a running gateway or else from the
configuration file.

A completion must never fail, print or wait for long: on any error nothing is completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import click

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import find_config, read_settings
from gateway.errors import SkewgateError

ERRORS: Final = (SkewgateError, click.UsageError, OSError, LookupError, TypeError)
TIMEOUT: Final = 1.0


def services(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a service."""
    return [name for name in sorted(_names(ctx)) if name.startswith(incomplete)]


def backends(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a backend, written SERVICE/BACKEND."""
    found = [f"{service}/{name}" for service, names in _names(ctx).items() for name in names]
    return sorted(target for target in found if target.startswith(incomplete))


def replicas(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the id of a detached replica."""
    with suppress(*ERRORS):
        found = _status(_where(ctx))["agreement"]["replicas"]
        ids = sorted(str(each["id"]) for each in found if not each["attached"])
        return [each for each in ids if each.startswith(incomplete)]
    return []


def _names(ctx: click.Context) -> Mapping[str, Sequence[str]]:
    """Return the backend names of each service."""
    where = _where(ctx)
    with suppress(*ERRORS):
        found = _status(where)["services"]
        return {str(name): [str(backend) for backend in each["backends"]] for name, each in found.items()}
    if where.admin is None:
        with suppress(*ERRORS):
            services = read_settings(find_config(where.config)).services
            return {each.name: [backend.name for backend in each.backends] for each in services}
    return {}


def _where(ctx: click.Context) -> AdminOptions:
    return AdminOptions(*(ctx.params.get(name) for name in AdminOptions._fields))


def _status(where: AdminOptions) -> Mapping[str, Any]:
    return replace(admin_client.find(where), timeout=TIMEOUT).status()
