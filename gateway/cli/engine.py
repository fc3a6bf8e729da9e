"""`skewgate engine haproxy -c FILE`: runs a gateway beside HAProxy and keeps HAProxy's map up to date.

The gateway is the same as that of `run`. `--write` writes the files for HAProxy's first start and exits.
Options that would leave HAProxy without its map are refused before anything starts.
"""

from __future__ import annotations

import logging
import os
import re
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Final

import click

from gateway.cli.command import file_option, find_config, seconds, usage_error, verb
from gateway.cli.run import run_gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text, map_text
from gateway.engines.haproxy.driver import NAME, HaproxyDriver, MakeEngine, Places, replace_file
from gateway.engines.table import compile_table
from gateway.errors import StartupError
from gateway.settings import Settings, read_file
from gateway.settings.sections.listen import Listen

SOCKET: Final = "/run/haproxy/admin.sock"
"""Default runtime socket: its place in Debian's configuration of HAProxy, and in most others."""
MAP: Final = "skewgate.map"
CONFIGURATION: Final = "haproxy.cfg"
_PLAIN_PATH: Final = re.compile(r"[\w/.@:+=~-]+", re.ASCII)
"""File names that HAProxy accepts both in a list of arguments and in a command of its runtime socket."""
_NOT_TRUSTED: Final = (
    "HAProxy is not in `trusted_proxies`: the gateway sees its address as that of every client; add it"
)
_ALL_HOSTS: Final = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 - nothing is bound here

DETAILS: Final = (
    "HAProxy 2.6 or newer loads the written configuration as one more file (`-f`), and needs a `stats socket`"
    " with `level admin`. The map and this file are written beside the `state` file, or else beside the"
    " configuration. HAProxy must be in `trusted_proxies`, and listens on an address of its own. Reload"
    " HAProxy when the gateway's log asks for it.\n\n"
    "First start: run this command with `--write`, start HAProxy, then run this command without `--write`."
)

log = logging.getLogger("skewgate.engine")


@verb("engine", DETAILS)
@click.argument("name", metavar=NAME, type=click.Choice([NAME]))
@file_option("-c", "--config", text="configuration file")
@file_option("--socket", text="HAProxy's runtime socket", default=SOCKET)
@file_option("--map", "map_file", text=f"the map to write; default: {MAP} beside the state file")
@file_option("--map-as", text="path of the map as HAProxy sees it, such as in its container")
@file_option(
    "--configuration", text=f"HAProxy configuration to write; default: {CONFIGURATION} beside the state file"
)
@click.option(
    "--bind", multiple=True, default=("*:8080",), show_default=True, help="address on which HAProxy listens"
)
@click.option(
    "--hard-stop-after",
    metavar="SECONDS",
    type=seconds(1, 86400),
    default="60s",
    show_default=True,
    help="maximum time for HAProxy to drain after a reload",
)
@click.option(
    "--write", is_flag=True, help="write the two files that HAProxy needs for its first start, then exit"
)
def engine(
    *,
    name: str,
    config: Path | None,
    socket: Path,
    map_file: Path | None,
    map_as: Path | None,
    configuration: Path | None,
    bind: tuple[str, ...],
    hard_stop_after: float,
    write: bool,
) -> int:
    """Run the gateway beside HAProxy, or write the files for HAProxy's first start."""
    file = find_config(config)

    def places(configured: Settings) -> Places:
        folder = (file if configured.state is None else Path(configured.state)).absolute().parent
        written = (map_file or folder / MAP).absolute()
        options = HaproxyOptions(
            map_path=str(map_as or written),
            gateway=_address(_listener(configured)),
            binds=bind,
            hard_stop_after=f"{max(1, round(hard_stop_after))}s",
            untrusted_headers=configured.untrusted_headers,
        )
        part = (configuration or folder / CONFIGURATION).absolute()
        where = Places(str(socket), written, part, options, hard_stop_after)
        _require(where, file.absolute(), configured.listen)
        return where

    if write:
        configured = read_file(file, environ=os.environ).require()
        _write(configured, places(configured))
        return 0

    def beside(configured: Settings) -> MakeEngine:
        where = places(configured)
        if not _is_trusted(configured):
            log.warning("%s", _NOT_TRUSTED)
        return lambda holder, acknowledged, ejected: HaproxyDriver(holder, acknowledged, ejected, where)

    return run_gateway(config, engine=beside)


def _write(configured: Settings, where: Places) -> None:
    """Write both files for HAProxy's first start. Only declared versions have rows in the map."""
    table = compile_table(Snapshot.configured(configured.services, now=monotonic()))
    try:
        replace_file(where.map_file, map_text(table))
        replace_file(where.configuration, configuration_text(table, where.options))
    except OSError as error:
        raise StartupError(f"{error.filename}: {error.strerror}") from error
    print(f"{where.map_file}: written, {sum(len(each.rows) for each in table.services)} rows")
    print(f"{where.configuration}: written")
    for each in table.services:
        if each.inexpressible is not None:
            print(f"{each.service.name}: all requests go through the gateway: {each.inexpressible.reason}")
    if not _is_trusted(configured):
        print(_NOT_TRUSTED)
    print(f"next: start `haproxy -f /etc/haproxy/haproxy.cfg -f {where.configuration}`,")
    print("then run this command without --write")


def _require(where: Places, source: Path, listen: tuple[Listen, ...]) -> None:
    """Fail if HAProxy or this process cannot use the given files or socket: bad usage, or `StartupError`."""
    for option, path in (("--map-as", where.options.map_path), ("--socket", where.socket)):
        if _PLAIN_PATH.fullmatch(path) is None:
            usage_error(f"{option}: {path!r} has characters that HAProxy's commands cannot contain")
    if len({where.map_file, where.configuration, source}) < 3:
        usage_error("--map, --configuration and -c must be three different files")
    for bind in where.options.binds:
        _require_other_port(bind, listen)
    for option, file in (("--map", where.map_file), ("--configuration", where.configuration)):
        if file.is_dir():
            usage_error(f"{option}: {file} is a folder; name a file")
        if not file.parent.is_dir():
            raise StartupError(f"{option}: the folder {file.parent} does not exist")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise StartupError(f"{option}: this user may not write to {file.parent}")


def _require_other_port(bind: str, listen: tuple[Listen, ...]) -> None:
    """Fail if HAProxy would bind a port of the gateway. A host name may stand for any address."""
    if not bind.strip() or not bind.isprintable():
        usage_error("--bind: write an address and parameters, as after HAProxy's keyword `bind`")
    host, _, port = bind.split(maxsplit=1)[0].rpartition(":")
    for each in listen:
        if each.port and port == str(each.port):
            hosts = {host.strip("[]"), each.host}
            if len(hosts) == 1 or hosts & _ALL_HOSTS:
                usage_error(f"--bind: the gateway listens on port {port} itself (`listen`); use another port")


def _listener(configured: Settings) -> Listen:
    """Return the gateway's first listener without TLS, to which HAProxy sends all requests without a row."""
    for listen in configured.listen:
        if listen.tls is None and not listen.proxy_protocol and (listen.path or listen.port):
            return listen
    raise StartupError("HAProxy needs a listener without TLS on a fixed port: add one to `listen`")


def _address(listen: Listen) -> str:
    """Format a listener as HAProxy's server address; a wildcard address becomes loopback."""
    if listen.path:
        return f"unix@{listen.path}"
    return str(listen).replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")


def _is_trusted(configured: Settings) -> bool:
    """Whether the gateway trusts the client addresses that HAProxy forwards, as far as the file shows it."""
    listen = _listener(configured)
    if listen.path:
        return listen.trusted
    address = _address(listen).rpartition(":")[0].strip("[]")
    try:
        loopback = ip_address(address)
    except ValueError:
        return True
    return not loopback.is_loopback or any(loopback in network for network in configured.trusted_proxies)
