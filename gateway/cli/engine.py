"""`skewgate engine haproxy -c FILE`: runs a gateway beside HAProxy, and keeps HAProxy at its offers.

The gateway is the one of `run`. `--write` writes what HAProxy needs for its first start, and ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Final

import click

from gateway.cli.command import FileName, find_config, seconds, verb
from gateway.cli.run import run_gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.engine import MakeEngine
from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text
from gateway.engines.haproxy.driver import NAME, HaproxyDriver, Places, replace_file
from gateway.engines.haproxy.map_file import map_text
from gateway.engines.table import compile_table
from gateway.errors import StartupError
from gateway.settings import Settings, read_file

DETAILS: Final = (
    "HAProxy 2.6 or newer gets the written configuration as one more file (`-f`), and needs a `stats socket`"
    " with `level admin`. The gateway must believe what HAProxy tells of clients (`trusted_proxies`), and"
    " listens on another address than HAProxy. When its log asks for it, reload HAProxy."
)


@verb("engine", DETAILS)
@click.argument("name", metavar=NAME, type=click.Choice([NAME]))
@click.option("-c", "--config", metavar="FILE", type=FileName(), help="the configuration")
@click.option("--socket", required=True, metavar="FILE", type=FileName(), help="HAProxy's runtime socket")
@click.option("--map", "map_file", required=True, metavar="FILE", type=FileName(), help="the map to write")
@click.option("--map-as", metavar="FILE", type=FileName(), help="the same as HAProxy finds it, if elsewhere")
@click.option(
    "--configuration", required=True, metavar="FILE", type=FileName(), help="the configuration to write"
)
@click.option("--bind", multiple=True, default=("*:8080",), show_default=True, help="where HAProxy listens")
@click.option(
    "--hard-stop-after",
    type=seconds(1, 86400),
    default="60s",
    show_default=True,
    help="how long HAProxy may drain",
)
@click.option("--write", is_flag=True, help="write both files for the first start of HAProxy, and end")
def command(
    *,
    name: str,
    config: Path | None,
    socket: Path,
    map_file: Path,
    map_as: Path | None,
    configuration: Path,
    bind: tuple[str, ...],
    hard_stop_after: float,
    write: bool,
) -> int:
    """Run it; 0 after a drain. Raises `SettingsError` or `StartupError` when it cannot start."""

    def places(configured: Settings) -> Places:
        options = HaproxyOptions(
            map_path=str(map_as or map_file),
            gateway=_own_address(configured),
            binds=bind,
            hard_stop_after=f"{max(1, round(hard_stop_after))}s",
            untrusted_headers=configured.untrusted_headers,
        )
        return Places(str(socket), map_file, configuration, options, hard_stop_after)

    if write:
        configured = read_file(find_config(config), environ=os.environ).require()
        _write(configured, places(configured))
        return 0

    def engine(configured: Settings) -> MakeEngine:
        where = places(configured)
        return lambda holder, acknowledged, ejected: HaproxyDriver(holder, acknowledged, ejected, where)

    return run_gateway(config, engine=engine)


def _write(configured: Settings, where: Places) -> None:
    """With no rows but those of declared versions: everything else goes to the gateway."""
    table = compile_table(Snapshot.configured(configured.services, now=monotonic()))
    try:
        replace_file(where.map_file, map_text(table))
        replace_file(where.configuration, configuration_text(table, where.options))
    except OSError as error:
        raise StartupError(f"{error.filename}: {error.strerror}") from error


def _own_address(configured: Settings) -> str:
    """The first listener without TLS; a gateway on every address is reached on loopback."""
    for listen in configured.listen:
        if listen.tls is None and not listen.proxy_protocol:
            if listen.path:
                return f"unix@{listen.path}"
            if listen.port:
                return str(listen).replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
    raise StartupError("HAProxy needs a listener of the gateway without TLS, at a fixed port")
