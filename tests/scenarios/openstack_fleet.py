"""API servers that answer as Senlin, Cinder, Placement and Manila do, and a gateway in front of all of them.

Built on the bare sockets of `fakes`: they remember every byte that they were sent and know nothing of the
gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from gateway.cli.gateway import Gateway
from gateway.core.offer import Phase
from gateway.core.snapshot import Snapshot
from gateway.settings import load
from tests.scenarios.fakes import LOOPBACK, STANDARD, Head, Ironic, Lines, message, running
from tests.scenarios.stand import PATIENCE, Stand

EXPLANATION: Final = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
MANILA_OWN: Final = "X-OpenStack-Manila-API-Version"


class Server(Ironic):
    """One API server from MAJOR.`lowest` to MAJOR.`highest`; None: it knows no versions."""

    major = 1
    service = ""
    """Its item in the standard header; empty: it reads `own` alone."""
    own = ""

    def __init__(self, highest: int | None, lowest: int = 0) -> None:
        super().__init__(highest, lowest)

    @property
    def bounds(self) -> tuple[str, str]:
        return f"{self.major}.{self.lowest}", f"{self.major}.{self.highest}"

    def asked_version(self, head: Head) -> str | None:
        """The text of the item for this service; a second line or item would be the gateway's fault."""
        if not self.service:
            return head.get(self.own)
        found = re.fullmatch(rf"{self.service} (\S+)", head.get(STANDARD) or "")
        return found[1] if found else None

    def _reply(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        document = self.document(path, f"http://{head.get('Host')}")
        if document is not None:
            return message(document[0], json.dumps(document[1]).encode())
        if self.highest is None:
            return message(200, b"{}")
        text = self.asked_version(head) or self.bounds[0]
        major, _, minor = text.partition(".")
        if int(major) != self.major or not self.lowest <= int(minor) <= self.highest:
            self.refused.append(head)
            return message(406, json.dumps(self.refusal(text)).encode())
        status, body, marked = self.resource(path, int(minor), head)
        return message(status, json.dumps(body).encode(), lines=self.echo(text) if marked else ())

    def echo(self, text: str) -> Lines:
        return ((STANDARD, f"{self.service} {text}"),)

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        raise NotImplementedError

    def refusal(self, text: str) -> object:
        raise NotImplementedError

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        """Status, body, and whether the served version stands on it."""
        return 200, {}, True


class SenlinServer(Server):
    """Senlin: of 16.0, or of Mitaka when `highest` is None."""

    service = "clustering"

    def entry(self, link: str, highest: str | None = None) -> dict[str, object]:
        """The version as this server tells it, or as it would with another maximum."""
        told = (
            {} if self.highest is None else {"min_version": "1.0", "max_version": highest or self.bounds[1]}
        )
        links = [{"href": link, "rel": "self"}, {"rel": "help", "href": "https://docs.openstack.org/api-ref"}]
        return {"id": "1.0", "status": "CURRENT", "links": links, **told}

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        if path in ("/", "/versions"):
            return 300, {"versions": [self.entry(f"{base}/v1")]}
        return (200, {"version": self.entry(f"{base}/v1/v1")}) if path == "/v1" and self.highest else None

    def refusal(self, text: str) -> object:
        lowest, highest = self.bounds
        told = (
            f"Version '{text}' is not supported by the API. Minimum is '{lowest}' and maximum is '{highest}'."
        )
        return senlin_error(406, "Not Acceptable", "InvalidGlobalAPIVersion", told)

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        if path == "/v1/clusters":
            return 200, {"clusters": []}, True
        if path.endswith("/ops") and minor < 4:
            told = f"API version '1.{minor}' is not supported on this method."
            return 400, senlin_error(400, "Bad Request", "MethodVersionNotFound", told), False
        return (
            (200, {"operations": {}}, True) if path.endswith("/ops") else (404, {"title": "Not Found"}, False)
        )


def senlin_error(status: int, title: str, kind: str, told: str) -> object:
    error = {"code": status, "message": told, "type": kind}
    return {"code": status, "error": error, "explanation": EXPLANATION, "title": title}


class CinderServer(Server):
    """Cinder: a header that does not name `volume` is a bad request to it."""

    major = 3
    service = "volume"

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.bounds
        entry = {"id": "v3.0", "status": "CURRENT", "min_version": lowest, "version": highest}
        listed = {"versions": [{**entry, "links": [{"rel": "self", "href": f"{base}/v3/"}]}]}
        return (300, listed) if path == "/" else None

    def refusal(self, text: str) -> object:
        lowest, highest = self.bounds
        told = f"Version {text} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
        return {"computeFault": {"code": 406, "message": told}}

    def resource(self, path: str, minor: int, head: Head) -> tuple[int, object, bool]:
        if head.all(STANDARD) and self.asked_version(head) is None:
            return 400, {"badRequest": {"code": 400, "message": "Version None is not supported."}}, False
        return 200, {"volumes": []}, True


class PlacementServer(Server):
    """Placement: names of headers in lower case."""

    service = "placement"

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.bounds
        entry = {"id": "v1.0", "max_version": highest, "min_version": lowest, "status": "CURRENT"}
        return (
            (200, {"versions": [{**entry, "links": [{"rel": "self", "href": ""}]}]}) if path == "/" else None
        )

    def refusal(self, text: str) -> object:
        lowest, highest = self.bounds
        return {"errors": [{"status": 406, "max_version": highest, "min_version": lowest}]}

    def echo(self, text: str) -> Lines:
        return (("openstack-api-version", f"placement {text}"),)


class ManilaServer(Server):
    """Manila: a header of its own, and no other."""

    major = 2
    own = MANILA_OWN

    def document(self, path: str, base: str) -> tuple[int, object] | None:
        lowest, highest = self.bounds
        entry = {"id": "v2.0", "status": "CURRENT", "min_version": lowest, "version": highest, "links": []}
        return (300, {"versions": [entry]}) if path == "/" else None

    def refusal(self, text: str) -> object:
        return CinderServer.refusal(self, text)  # type: ignore[arg-type]  # the words are the same

    def echo(self, text: str) -> Lines:
        return ((self.own, text),)


class Fleet(NamedTuple):
    """One service: how it is configured, and its servers. Found below `/NAME`."""

    name: str
    servers: Sequence[Server]
    dialect: str
    policy: str = "guaranteed"
    operations: tuple[str, ...] = ()
    """Items of `operations`."""
    settle: str = "5s"


def senlin(
    *servers: Server, policy: str = "guaranteed", operations: tuple[str, ...] = (), settle: str = "5s"
) -> Fleet:
    return Fleet("clustering", servers, "dialect: senlin", policy, operations, settle)


def other(service_type: str, *servers: Server, policy: str = "guaranteed", settle: str = "5s") -> Fleet:
    options = f"dialect: openstack\n    openstack: {{service_type: {service_type}}}"
    return Fleet(service_type, servers, options, policy, settle=settle)


@asynccontextmanager
async def in_front_of(*fleets: Fleet, interval: str = "100ms") -> AsyncIterator[Stand]:
    """A gateway that knows the versions of every server. Targets of `Stand.ask` begin with `/NAME`."""
    servers = tuple(server for fleet in fleets for server in fleet.servers)
    async with running(*servers):
        lines = [
            "listen: 127.0.0.1:0",
            "admin: {listen: 127.0.0.1:0}",
            "access_log: {format: off}",
            "services:",
        ]
        for fleet in fleets:
            lines += [f"  {fleet.name}:", f"    {fleet.dialect}", f"    match: {{path: /{fleet.name}}}"]
            lines.append(f"    probe: {{interval: {interval}}}")
            lines.append(f"    offer: {{policy: {fleet.policy}, settle: {fleet.settle}}}")
            lines.append(f"    operations: [{', '.join(fleet.operations)}]")
            lines += [
                "    backends:",
                *(f"      - url: http://{LOOPBACK}:{each.port}" for each in fleet.servers),
            ]
        configured = load("\n".join(lines) + "\n", filename="scenario.yaml", environ={}).require()
        async with Gateway(configured) as gateway:
            await _ready(gateway)
            yield Stand(gateway, servers, "")


async def _ready(gateway: Gateway) -> None:
    came = asyncio.Event()

    def look(_: Snapshot, after: Snapshot) -> None:
        if all(view.offer.phase is not Phase.UNKNOWN for view in after.views.values()):
            came.set()

    leave = gateway.cell.subscribe(look)
    look(gateway.cell.current, gateway.cell.current)
    try:
        async with asyncio.timeout(PATIENCE):
            await came.wait()
    finally:
        leave()
