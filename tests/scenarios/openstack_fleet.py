"""Fake API servers that respond as Senlin, Cinder, Placement and Manila do, and a gateway in front of them.

Sockets and the record of requests are those of `fakes`. The servers know nothing of the gateway.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from gateway.core.fleet.offer import Phase
from gateway.core.fleet.snapshot import Snapshot
from tests.kit.gateways import gateway_of
from tests.kit.ironic import until_snapshot
from tests.scenarios.fakes import STANDARD, Head, Ironic, Lines, message, running
from tests.scenarios.testbed import Testbed, configuration, service_of

EXPLANATION: Final = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
MANILA_OWN: Final = "X-OpenStack-Manila-API-Version"


class Server(Ironic):
    """One API server that serves MAJOR.`lowest` to MAJOR.`highest`. `highest` None: it has no versions."""

    major = 1
    service = ""
    """The name of its item in the standard field; empty: it reads the field `own` only."""
    own = ""
    old_mount = ""
    """A mount without versions, which later releases do not have."""
    has_old_mount = False

    def __init__(self, highest: int | None, lowest: int = 0) -> None:
        super().__init__(highest, lowest)

    @property
    def offered(self) -> tuple[str, str]:
        return f"{self.major}.{self.lowest}", f"{self.major}.{self.highest}"

    def requested_version(self, head: Head) -> str | None:
        """The text of the version for this service. The gateway must not send a second line or item."""
        if not self.service:
            return head.get(self.own)
        found = re.fullmatch(rf"{self.service} (\S+)", head.get(STANDARD) or "")
        return found[1] if found else None

    def _response(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        if self.old_mount and path.split("/")[1] == self.old_mount:
            return message(200, self._listed(self.old_mount)) if self.has_old_mount else message(404, b"{}")
        document = self.document(path, f"http://{head.get('Host')}")
        if document is not None:
            written = json.dumps(document[1]).encode()
            if path == "/" and self.has_old_mount:
                written = written.replace(b'{"versions": [', self._listed(self.old_mount)[:-2] + b", ", 1)
            return message(document[0], written)
        if self.highest is None:
            return message(200, b"{}")
        text = self.requested_version(head) or self.offered[0]
        major, _, minor = text.partition(".")
        if int(major) != self.major or not self.lowest <= int(minor) <= self.highest:
            self.refused.append(head)
            return message(406, json.dumps(self.refusal(text)).encode())
        status, body, versioned = self.resource(path, int(minor), head)
        return message(status, json.dumps(body).encode(), lines=self.echo(text) if versioned else ())

    @staticmethod
    def _listed(mount: str) -> bytes:
        """A list with the entry of a mount without versions."""
        entry = {"id": f"{mount}.0", "status": "DEPRECATED", "version": "", "min_version": "", "links": []}
        return json.dumps({"versions": [entry]}).encode()

    def echo(self, text: str) -> Lines:
        return ((STANDARD, f"{self.service} {text}"),)

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        raise NotImplementedError

    def refusal(self, text: str) -> object:
        raise NotImplementedError

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        """Status, body, and whether the response names the served version."""
        return 200, {}, True


class SenlinServer(Server):
    """Senlin 16.0, or the one of Mitaka when `highest` is None."""

    service = "clustering"

    def entry(self, link: str, highest: str | None = None) -> dict[str, object]:
        """The version entry of this server's documents. `highest`: a maximum other than its own."""
        versions = {"min_version": self.offered[0], "max_version": highest or self.offered[1]}
        links = [{"href": link, "rel": "self"}, {"rel": "help", "href": "https://docs.openstack.org/api-ref"}]
        return {
            "id": "1.0",
            "status": "CURRENT",
            "links": links,
            **({} if self.highest is None else versions),
        }

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        if path in ("/", "/versions"):
            return 300, {"versions": [self.entry(f"{base}/v1")]}
        return (200, {"version": self.entry(f"{base}/v1/v1")}) if path == "/v1" and self.highest else None

    def refusal(self, text: str) -> object:
        lowest, highest = self.offered
        reason = f"Version '{text}' is not supported by the API."
        reason += f" Minimum is '{lowest}' and maximum is '{highest}'."
        return senlin_error(406, "Not Acceptable", "InvalidGlobalAPIVersion", reason)

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        if path == "/v1/clusters":
            return 200, {"clusters": []}, True
        if path.endswith("/ops") and minor < 4:
            reason = f"API version '1.{minor}' is not supported on this method."
            return 400, senlin_error(400, "Bad Request", "MethodVersionNotFound", reason), False
        if path.endswith("/ops"):
            return 200, {"operations": {}}, True
        return 404, {"title": "Not Found"}, False


def senlin_error(status: int, title: str, kind: str, reason: str) -> object:
    error = {"code": status, "message": reason, "type": kind}
    return {"code": status, "error": error, "explanation": EXPLANATION, "title": title}


class CinderServer(Server):
    """Cinder: it refuses a standard field without an item for `volume` as a bad request."""

    major = 3
    service = "volume"
    old_mount = "v2"

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.offered
        entry = {"id": "v3.0", "status": "CURRENT", "min_version": lowest, "version": highest}
        listed = {"versions": [{**entry, "links": [{"rel": "self", "href": f"{base}/v3/"}]}]}
        return (300, listed) if path == "/" else None

    def refusal(self, text: str) -> object:
        lowest, highest = self.offered
        reason = f"Version {text} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
        return {"computeFault": {"code": 406, "message": reason}}

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        if head.all(STANDARD) and self.requested_version(head) is None:
            return 400, {"badRequest": {"code": 400, "message": "Version None is not supported."}}, False
        return 200, {"volumes": []}, True


class PlacementServer(Server):
    """Placement: it writes field names in lower case."""

    service = "placement"

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.offered
        entry = {"id": "v1.0", "max_version": highest, "min_version": lowest, "status": "CURRENT"}
        return (
            (200, {"versions": [{**entry, "links": [{"rel": "self", "href": ""}]}]}) if path == "/" else None
        )

    def refusal(self, text: str) -> object:
        lowest, highest = self.offered
        return {"errors": [{"status": 406, "max_version": highest, "min_version": lowest}]}

    def echo(self, text: str) -> Lines:
        return (("openstack-api-version", f"placement {text}"),)


class ManilaServer(Server):
    """Manila: it reads and writes its own field only."""

    major = 2
    own = MANILA_OWN
    old_mount = "v1"

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.offered
        entry = {"id": "v2.0", "status": "CURRENT", "min_version": lowest, "version": highest, "links": []}
        return (300, {"versions": [entry]}) if path == "/" else None

    def refusal(self, text: str) -> object:
        return CinderServer.refusal(self, text)  # type: ignore[arg-type]  # Manila copied Cinder's text

    def echo(self, text: str) -> Lines:
        return ((self.own, text),)


class Fleet(NamedTuple):
    """One service with its configuration and its servers. Its path prefix is `/NAME`."""

    name: str
    servers: Sequence[Server]
    keys: Mapping[str, str]


def senlin(
    *servers: Server, policy: str = "guaranteed", operations: tuple[str, ...] = (), stabilization: str = "5s"
) -> Fleet:
    """`operations`: the items of that key."""
    offer = f"{{policy: {policy}, stabilization: {stabilization}}}"
    keys = {"dialect": "senlin", "offer": offer, "operations": f"[{', '.join(operations)}]"}
    return Fleet("clustering", servers, keys)


def other(
    service_type: str, *servers: Server, policy: str = "guaranteed", stabilization: str = "5s"
) -> Fleet:
    offer = f"{{policy: {policy}, stabilization: {stabilization}}}"
    openstack = f"{{service_type: {service_type}}}"
    return Fleet(service_type, servers, {"dialect": "openstack", "openstack": openstack, "offer": offer})


@asynccontextmanager
async def in_front_of(*fleets: Fleet, interval: str = "100ms") -> AsyncIterator[Testbed]:
    """A gateway in front of all fleets that knows what every server serves. Targets begin with `/NAME`."""
    servers = tuple(server for fleet in fleets for server in fleet.servers)
    async with running(*servers):
        services = []
        for name, members, keys in fleets:
            ports = [server.port for server in members]
            services.append(service_of(name, ports, interval=interval, match=f"{{path: /{name}}}", **keys))
        async with gateway_of(configuration(*services)) as gateway:
            await until_snapshot(gateway.snapshot_holder, all_phases_known)
            yield Testbed(gateway, servers, "")


def all_phases_known(snapshot: Snapshot) -> bool:
    return all(view.offer.phase is not Phase.UNKNOWN for view in snapshot.views.values())
