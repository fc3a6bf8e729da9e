"""The peers of the bench: the command, configuration, version and checks of each.

Every peer is one process on one core in front of the same backends. The configurations are in peers/.
"""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from bench.check import (
    check_forwarding,
    check_outer_proxy,
    check_refusal,
    check_relay,
    check_routing,
    check_services,
)
from bench.compiled import COMPILED, how, interpreted
from bench.envoy import envoy_binary
from bench.peers import haproxy_map
from bench.processes import BenchError, find_program, python_module
from bench.setting import Setting
from bench.slot import Slot

#: The Debian package of each program.
PACKAGES = {
    "nginx": "nginx",
    "haproxy": "haproxy",
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "openssl": "openssl",
    "taskset": "util-linux",
}

#: For nginx with large bodies. With its defaults it moves 4 or 16 KiB at a time.
LARGE_BUFFERS = (
    "proxy_buffer_size 256k; proxy_buffers 16 256k; proxy_busy_buffers_size 1m; client_body_buffer_size 256k;"
)

Check = Callable[[str, Slot], None]


def usual_checks(setting: Setting) -> tuple[Check, ...]:
    """For a peer that routes by version, prefix and host."""
    if setting.services:
        return (check_services,)
    return (check_routing, check_outer_proxy if setting.trusted else check_forwarding)


def gateway_checks(setting: Setting) -> tuple[Check, ...]:
    return (*usual_checks(setting), *(() if setting.services else (check_refusal,)))


def relay_checks(_: Setting) -> tuple[Check, ...]:
    return (check_relay,)


@dataclass(frozen=True)
class Peer:
    """One proxy in the bench. `program`: what it needs from the system, by its key in PACKAGES."""

    name: str
    #: None: no process. Requests go straight to a backend.
    command: Callable[[Slot], list[str]] | None
    version: Callable[[], str]
    checks: Callable[[Setting], tuple[Check, ...]] = usual_checks
    program: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    #: Its admin listener is asked what runs, whether all backends are known, and what it counted.
    is_gateway: bool = False


def nginx_command(configuration: Path, directory: Path) -> list[str]:
    program = find_program("nginx") or "nginx"
    return [program, "-e", "stderr", "-p", str(directory), "-c", str(configuration)]


def missing_packages(programs: set[str]) -> list[str]:
    """Debian packages that are missing. Some programs are always needed."""
    needed = {"nginx", "openssl", "taskset"} | programs
    return [package for name, package in PACKAGES.items() if name in needed and not find_program(name)]


@cache
def program_version(name: str, *arguments: str) -> str:
    """The first text in the output of a program that looks like a version."""
    try:
        printed = subprocess.run(
            [find_program(name) or name, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except OSError as error:
        raise BenchError(f"{name}: {error}") from error
    found = re.search(r"\d+\.\d+\.\d+", printed.stdout + printed.stderr)
    return found.group() if found else "unknown"


def loop_name(wanted: str | None) -> str:
    """The event loop of the Python programs: the option, else SKEWGATE_LOOP, else uvloop if installed."""
    if found := wanted or os.environ.get("SKEWGATE_LOOP"):
        return found
    return "uvloop" if find_spec("uvloop") else "asyncio"


def distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "from the checkout"


def _nginx_command(buffering: str = "on", buffers: str = "", log: str = "") -> Callable[[Slot], list[str]]:
    """`buffering`: of bodies; `buffers`: their sizes, if others; `log`: how nginx buffers its log."""

    def command(slot: Slot) -> list[str]:
        outer = slot.setting.trusted
        values = {
            "BUFFERING": buffering,
            "BUFFERS": buffers,
            "LOG": f"{slot.directory}/access.log as_json{log}" if slot.setting.access_log else "off",
            "PROTO": "$http_x_forwarded_proto" if outer else "$scheme",
            "FORWARDED_HOST": "$http_x_forwarded_host" if outer else "$http_host",
            "VIA": "$http_via, 1.1 nginx" if outer else "1.1 nginx",
            "ROUTES": f"{slot.setting.by}.conf",
            "SSL": "ssl" if slot.setting.tls else "",
            "CERTIFICATE": _nginx_certificate(slot),
            "KEEPALIVE": max(128, 2 * slot.setting.backends),
            "WORKERS": slot.setting.workers or 1,
            # A socket for each worker, as the gateway has it. With one socket, few workers take nearly all.
            "REUSEPORT": "reuseport" if slot.setting.workers > 1 else "",
        }
        slot.fill(f"peers/nginx/{slot.setting.by}.conf", values)
        return nginx_command(slot.fill("peers/nginx/nginx.conf", values), slot.directory)

    return command


def _nginx_certificate(slot: Slot) -> str:
    if not slot.setting.tls:
        return ""
    certificate, key = slot.certificate
    return f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"


def _nginx(name: str, command: Callable[[Slot], list[str]]) -> Peer:
    return Peer(name, command, lambda: program_version("nginx", "-v"), program="nginx")


def _envoy_command(slot: Slot) -> list[str]:
    options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [envoy_binary(), "-c", str(slot.fill("peers/envoy.yaml")), *options]


def _haproxy_command(slot: Slot) -> list[str]:
    filled = slot.fill("peers/haproxy.cfg", {"THREADS": slot.setting.threads or 1})
    return [find_program("haproxy") or "haproxy", "-db", "-f", str(filled)]


def _haproxy_map_command(slot: Slot) -> list[str]:
    return [find_program("haproxy") or "haproxy", "-db", "-f", str(haproxy_map.configuration(slot))]


def _gateway_command(slot: Slot) -> list[str]:
    setting = slot.setting
    values = {
        "LOG": "json" if setting.access_log else "off",
        "TRUSTED": "127.0.0.1/32" if setting.trusted else "",
        "LISTEN": _gateway_listener(slot),
        "WORKERS": setting.workers or 1,
        "MATCH": 'path: "/@SERVICE@"' if setting.by == "prefix" else 'host: "@SERVICE@.example.org"',
    }
    template = "peers/skewgate-services.yaml" if setting.services else "peers/skewgate.yaml"
    return python_module("gateway", "run", "-c", str(slot.fill(template, values)))


def _gateway_listener(slot: Slot) -> str:
    address = f"127.0.0.1:{slot.port}"
    if not slot.setting.tls:
        return address
    certificate, key = slot.certificate
    return (
        f'[{{address: "{address}", tls: {{certificates: [{{certificate: "{certificate}", key: "{key}"}}]}}}}]'
    )


def _gateway(name: str, version: str, environment: dict[str, str]) -> Peer:
    return Peer(
        name, _gateway_command, lambda: version, gateway_checks, environment=environment, is_gateway=True
    )


def _python_command(module: str, backends: Callable[[Slot], list[str]]) -> Callable[[Slot], list[str]]:
    def command(slot: Slot) -> list[str]:
        places = [f"{address}:{slot.backends}" for address in backends(slot)]
        return python_module(f"bench.peers.{module}", str(slot.port), *places)

    return command


def lineup(loop: str, earlier: Path | None = None) -> list[Peer]:
    """All peers, the gateway first. The Python programs run on the same event loop.

    `earlier`: another checkout, whose gateway runs in this environment and with this configuration.
    """
    environment = {"SKEWGATE_LOOP": loop}
    loop_version = f"uvloop {distribution('uvloop')}" if loop == "uvloop" else loop
    builds = {"gateway": interpreted(), "compiled": COMPILED}
    versions = {"gateway": distribution("skewgate"), "compiled": distribution("skewgate")}
    if earlier:
        builds["earlier"] = {**interpreted(earlier), "PYTHONPATH": str(earlier)}
        versions["earlier"] = str(earlier)
    return [
        *(
            _gateway(name, f"{versions[name]}, {how(build)}", {**environment, **build})
            for name, build in builds.items()
        ),
        _nginx("nginx", _nginx_command()),
        _nginx("nginx-unbuffered", _nginx_command(buffering="off")),
        _nginx("nginx-large-buffers", _nginx_command(buffers=LARGE_BUFFERS)),
        _nginx("nginx-large-unbuffered", _nginx_command(buffering="off", buffers=LARGE_BUFFERS)),
        _nginx("nginx-log-buffered", _nginx_command(log=" buffer=64k flush=1s")),
        Peer("haproxy", _haproxy_command, lambda: program_version("haproxy", "-v"), program="haproxy"),
        Peer(
            "haproxy-map",
            _haproxy_map_command,
            lambda: program_version("haproxy", "-v"),
            lambda _: (check_routing,),
            program="haproxy",
        ),
        Peer("envoy", _envoy_command, lambda: program_version(envoy_binary(), "--version")),
        Peer(
            "aiohttp",
            _python_command("aiohttp_proxy", lambda slot: [*slot.old, *slot.new]),
            lambda: f"{distribution('aiohttp')}, {loop_version}",
            environment=environment,
        ),
        Peer(
            "relay",
            _python_command("tcp_relay", lambda slot: [*slot.new]),
            lambda: f"asyncio protocols, {loop_version}",
            relay_checks,
            environment=environment,
        ),
        Peer("direct", None, lambda: "no proxy", relay_checks),
    ]
