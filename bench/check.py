"""Checks a proxy before it is measured: figures of a wrong proxy mean nothing.

The checks use only what any client can see, so that they are the same for every peer.
"""

import contextlib
import http.client
import ipaddress
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from bench.processes import BenchError, Child

VERSION = "X-OpenStack-Ironic-API-Version"


@dataclass(frozen=True)
class Response:
    status: int
    served_by: str | None
    headers: dict[str, str]
    body: bytes


class Client:
    """One persistent connection. A request fails when the proxy has closed it after the last one."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.host = f"127.0.0.1:{port}"
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        self.connection.connect()
        self.connection.auto_open = 0

    def get(self, path: str, version: str) -> Response:
        try:
            self.connection.request("GET", path, headers={"Accept": "application/json", VERSION: version})
            response = self.connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, headers.get("x-served-by"), headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(
                f"{self.name}: GET {path} at {version}: {type(error).__name__}: {error}"
            ) from error


@contextlib.contextmanager
def _client(name: str, port: int) -> Iterator[Client]:
    client = Client(name, port)
    try:
        yield client
    finally:
        client.connection.close()


def wait_until_ready(child: Child, port: int, seconds: float) -> None:
    """Wait until 1.90 is served: the gateway must probe its backends first."""
    deadline = time.monotonic() + seconds
    last = "nothing"
    while time.monotonic() < deadline:
        child.check_alive()
        try:
            with _client(child.name, port) as client:
                response = client.get("/v1/nodes", "1.90")
            if response.status == 200:
                return
            last = f"{response.status} {response.body[:200]!r}"
        except (BenchError, OSError) as error:
            last = str(error)
        time.sleep(0.05)
    raise BenchError(f"{child.name} was not ready within {seconds:.0f} s; last: {last}\n{child.log_tail()}")


def _require(name: str, subject: str, expected: object, found: object) -> None:
    if expected != found:
        raise BenchError(f"{name}: {subject}: expected {expected!r}, found {found!r}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_routing(name: str, port: int) -> None:
    """1.59 and 1.90 reach only the new backend, 1.31 and 1.58 both. Each is served as requested."""
    with _client(name, port) as client:
        for version, allowed in (
            ("1.90", {"new"}),
            ("1.59", {"new"}),
            ("1.58", {"old", "new"}),
            ("1.31", {"old", "new"}),
        ):
            served_by = set()
            for _ in range(24):
                response = client.get("/v1/nodes", version)
                _require(name, f"status at {version}", 200, response.status)
                _require(name, f"version served at {version}", version, response.headers.get(VERSION.lower()))
                served_by.add(response.served_by)
            _require(name, f"backends that served {version}", allowed, served_by)


def check_forwarding(name: str, port: int) -> None:
    """The backend gets the usual fields of a reverse proxy, on a persistent connection."""
    with _client(name, port) as client:
        seen = [json.loads(client.get("/v1/seen", "1.90").body) for _ in range(3)]
        for document in seen:
            _require(name, "Host at the backend", client.host, document["host"])
            # For a client on loopback, Envoy writes the address of the machine: any address is accepted.
            _require(name, "an address in X-Forwarded-For at the backend", True, _is_address(document["for"]))
            _require(name, "X-Forwarded-Proto at the backend", "http", document["proto"])
            _require(name, "X-Forwarded-Host at the backend", client.host, document["forwarded_host"])
            _require(name, "protocol at the backend", "HTTP/1.1", document["protocol"])
        if int(seen[-1]["connection_requests"]) < 3:
            raise BenchError(f"{name}: the connection to the backend is not persistent: {seen[-1]}")


def check_relay(name: str, port: int) -> None:
    """The relay knows no versions: every request reaches the new backend."""
    with _client(name, port) as client:
        for version in ("1.31", "1.90"):
            response = client.get("/v1/nodes", version)
            _require(name, f"response at {version}", (200, "new"), (response.status, response.served_by))


def check_refusal(name: str, port: int) -> None:
    """Only the gateway refuses by itself, with one range for the whole fleet."""
    with _client(name, port) as client:
        response = client.get("/v1/nodes", "1.999")
    _require(name, "status at 1.999", 406, response.status)
    _require(name, "backend of a refusal", None, response.served_by)
    found = tuple(
        response.headers.get(f"x-openstack-ironic-api-{end}-version") for end in ("minimum", "maximum")
    )
    _require(name, "range in a refusal", ("1.1", "1.90"), found)


def read_metrics(name: str, admin_port: int) -> str:
    """The gateway's own metrics. Their cost is part of the measurement."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=5) as response:
            text: str = response.read().decode()
    except OSError as error:
        raise BenchError(f"{name}: no metrics: {error}") from error
    return text


def check_loop(name: str, metrics: str, wanted: str) -> None:
    """The gateway runs on the event loop that the report names."""
    lines = [line for line in metrics.splitlines() if line.startswith("skewgate_build_info{")]
    if not any(f'loop="{wanted}' in line for line in lines):
        raise BenchError(f"{name}: its metrics do not show the event loop {wanted}: {lines}")


def requests_counted(metrics: str) -> int:
    """The sum of skewgate_requests_total over all its labels."""
    lines = (line for line in metrics.splitlines() if line.startswith("skewgate_requests_total{"))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
