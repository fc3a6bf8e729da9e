"""Checks a peer before it is measured, and while it is loaded: figures of a wrong proxy mean nothing.

The checks use only what any client can see, so that they are the same for every peer.
"""

import contextlib
import http.client
import ipaddress
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.heads import CLIENT, OUTER, VERSION, VERSIONS, Heads
from bench.processes import BenchError, Child
from bench.slot import Slot

#: Requests of the check that runs while the peer is loaded.
EXCHANGES = 200
#: Services that are asked before a run; the load names its backend in every request.
SERVICES = 100


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def served_by(self) -> str | None:
        return self.headers.get("x-served-by")

    @property
    def version(self) -> str | None:
        return self.headers.get(VERSION.lower())


def connect(slot: Slot, timeout: float) -> http.client.HTTPConnection:
    """A connection to the peer, as a client of the setting makes it. The certificate is not verified."""
    if not slot.setting.tls:
        return http.client.HTTPConnection("127.0.0.1", slot.port, timeout=timeout)
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - made by the bench itself
    return http.client.HTTPSConnection("127.0.0.1", slot.port, timeout=timeout, context=context)


class Client:
    """One persistent connection. A request fails when the proxy has closed it after the last one."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.name = name
        self.host = f"127.0.0.1:{slot.port}"
        self.connection = connect(slot, 5)
        self.connection.connect()
        self.connection.auto_open = 0

    def get(self, path: str, version: str) -> Response:
        return self.send(path, {"Accept": "application/json", VERSION: version})

    def send(self, path: str, fields: dict[str, str]) -> Response:
        try:
            self.connection.request("GET", path, headers=fields)
            response = self.connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{self.name}: GET {path}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _client(name: str, slot: Slot) -> Iterator[Client]:
    client = Client(name, slot)
    try:
        yield client
    finally:
        client.connection.close()


def wait_until_ready(child: Child, slot: Slot, seconds: float) -> None:
    """Wait until 1.90 is served: the gateway must probe its backends first."""
    deadline = time.monotonic() + seconds
    last = "nothing"
    fields, path = _fields_and_path(Heads(), slot, "/v1/nodes", "1.90", 0)
    while time.monotonic() < deadline:
        child.check_alive()
        try:
            with _client(child.name, slot) as client:
                response = client.send(path, fields)
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


def check_routing(name: str, slot: Slot) -> None:
    """1.59 and 1.90 reach only new backends, 1.31 and 1.58 all. Each is served as requested."""
    # Some proxies take the backends in the order of their configuration, in which the old ones come first.
    turns = max(24, slot.setting.backends)
    with _client(name, slot) as client:
        for version, allowed in (
            ("1.90", {"new"}),
            ("1.59", {"new"}),
            ("1.58", {"old", "new"}),
            ("1.31", {"old", "new"}),
        ):
            served_by = set()
            for _ in range(turns):
                response = client.get("/v1/nodes", version)
                _require(name, f"status at {version}", 200, response.status)
                _require(name, f"version served at {version}", version, response.version)
                served_by.add(response.served_by)
            _require(name, f"backends that served {version}", allowed, served_by)


def check_forwarding(name: str, slot: Slot) -> None:
    """The backend gets the usual fields of a reverse proxy, on a persistent connection."""
    with _client(name, slot) as client:
        seen = [json.loads(client.get("/v1/seen", "1.90").body) for _ in range(3)]
        for document in seen:
            _require(name, "Host at the backend", client.host, document["host"])
            # For a client on loopback, Envoy writes the address of the machine: any address is accepted.
            _require(name, "an address in X-Forwarded-For at the backend", True, _is_address(document["for"]))
            proto = "https" if slot.setting.tls else "http"
            _require(name, "X-Forwarded-Proto at the backend", proto, document["proto"])
            _require(name, "X-Forwarded-Host at the backend", client.host, document["forwarded_host"])
            _require(name, "protocol at the backend", "HTTP/1.1", document["protocol"])
    # There can be many backends, each with a connection of its own.
    if slot.setting.backends <= 2 and int(seen[-1]["connection_requests"]) < 3:
        raise BenchError(f"{name}: the connection to the backend is not persistent: {seen[-1]}")


def check_outer_proxy(name: str, slot: Slot) -> None:
    """What an outer proxy wrote reaches the backend, and the peer's own part is added."""
    fields = {VERSION: "1.90", **dict(OUTER)}
    with _client(name, slot) as client:
        document = json.loads(client.send("/v1/seen", fields).body)
    _require(name, "X-Forwarded-For at the backend", f"{CLIENT}, 127.0.0.1", document["for"])
    _require(name, "X-Forwarded-Proto at the backend", "https", document["proto"])
    _require(name, "X-Forwarded-Host at the backend", "api.example.org", document["forwarded_host"])
    # nginx, which writes this document, shows the first line of several with one name.
    _require(name, "first hop in Via at the backend", "1.1 edge", document["via"].split(",")[0])


def check_services(name: str, slot: Slot) -> None:
    """A request reaches the backend of its service. Of many services, those at equal distances are asked."""
    step = max(1, len(slot.services) // SERVICES)
    with _client(name, slot) as client:
        for place in range(0, len(slot.services), step):
            fields, path = _fields_and_path(Heads(), slot, "/v1/nodes", "1.90", place)
            response = client.send(path, fields)
            found = (response.status, response.headers.get("x-address"))
            _require(name, f"backend of service {place}", (200, slot.services[place]), found)


def check_relay(name: str, slot: Slot) -> None:
    """What knows no versions: every request reaches the new backend."""
    with _client(name, slot) as client:
        for version in ("1.31", "1.90"):
            response = client.get("/v1/nodes", version)
            _require(name, f"response at {version}", (200, "new"), (response.status, response.served_by))


def check_refusal(name: str, slot: Slot) -> None:
    """Only the gateway refuses by itself, with one range for the whole fleet."""
    with _client(name, slot) as client:
        response = client.get("/v1/nodes", "1.999")
    _require(name, "status at 1.999", 406, response.status)
    _require(name, "backend of a refusal", None, response.served_by)
    found = tuple(
        response.headers.get(f"x-openstack-ironic-api-{end}-version") for end in ("minimum", "maximum")
    )
    _require(name, "range in a refusal", ("1.1", "1.90"), found)


def check_exchanges(name: str, slot: Slot, heads: Heads) -> None:
    """Under load, too, each request gets its own response, of a backend that serves its version."""
    with _client(name, slot) as client:
        for number in range(EXCHANGES):
            version = VERSIONS[number % 3] if not slot.services else VERSIONS[-1]
            fields, path = _fields_and_path(
                heads, slot, "/v1/seen", version, number, kind=number % heads.kinds
            )
            response = client.send(path, fields)
            document = json.loads(response.body)
            found = (response.status, response.version, document.get("request_id"))
            wanted = (200, version, fields.get("X-Openstack-Request-Id", document.get("request_id")))
            _require(name, "response under load", wanted, found)
            if version == VERSIONS[-1]:
                _require(name, "backend under load", "new", response.served_by)


def _fields_and_path(
    heads: Heads, slot: Slot, path: str, version: str, number: int, kind: int = 0
) -> tuple[dict[str, str], str]:
    """A request as the load sends it, for the service of this number if there are any."""
    service = slot.services[number % len(slot.services)] if slot.services else None
    head = heads.head(slot, path, version, kind, service).replace(b"@ID@", b"%012x" % (1 << 47 | number))
    request_line, *lines = head.decode().strip().split("\r\n")
    return dict(line.split(": ", 1) for line in lines), request_line.split()[1]
