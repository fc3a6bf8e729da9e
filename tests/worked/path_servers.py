"""Servers with the version in the path: Docker Engine, Shopify and Kubernetes.

Each responds like the system of its name, as far as versions are concerned. They know nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Final

from tests.scenarios.fakes import Head, Lines, message
from tests.worked.docker_streams import WITH_INPUT, is_stream, run_program
from tests.worked.fleet import WorkedServer
from tests.worked.header_servers import JSON, encoded


def pair(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


VERSION: Final = re.compile(r"/v([0-9.]+)(?=/)")


class DockerEngine(WorkedServer):
    """A daemon that serves everything from `versions[0]` to `versions[-1]`, with one container, `c1`."""

    def __init__(self, *versions: str) -> None:
        super().__init__(*versions)
        self.pinged = asyncio.Event()
        """Output that needs no input waits for it: docker-py loses what comes together with the 101."""

    async def _take_over(
        self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        version = self._version(head)
        if not is_stream(head) or version is None:
            return False
        self.execute(version, head)
        await run_program(self.versions[-1], self.pinged, head, reader, writer)
        return True

    def _version(self, head: Head) -> str | None:
        """The version at which a request is executed; None: it is refused."""
        oldest, newest = self.versions[0], self.versions[-1]
        found = VERSION.match(head.target.partition("?")[0])
        version = found[1] if found else newest
        return version if pair(oldest) <= pair(version) <= pair(newest) else None

    @property
    def lines(self) -> Lines:
        return (("Api-Version", self.versions[-1]), ("Docker-Experimental", "false"), ("Ostype", "linux"))

    def answer(self, head: Head) -> bytes:
        path, oldest, newest = head.target.partition("?")[0], self.versions[0], self.versions[-1]
        found = VERSION.match(path)
        version = found[1] if found else newest
        if not pair(oldest) <= pair(version) <= pair(newest):
            self.refuse(head)
            age = "old" if pair(version) < pair(oldest) else "new"
            return self._json(400, {"message": f"client version {version} is too {age}"})
        resource = path[found.end() :] if found else path
        if resource == "/version":
            return self._json(200, self.version_document(oldest, newest))
        self.execute(version, head)
        if resource == "/_ping":
            self.pinged.set()
            return message(200, b"OK", "text/plain; charset=utf-8", self.lines)
        if resource == "/containers/json":
            return self._json(200, [])
        if resource == "/volumes/create":
            return self._json(201, {"Name": "data", "Driver": "local"})
        if resource == "/containers/c1/json":
            return self._json(200, {"Id": "c1", "Name": "/c1", "Config": {"Tty": False, "Image": "x"}})
        if resource == "/containers/c1/exec":
            return self._json(201, {"Id": WITH_INPUT if json.loads(head.body)["AttachStdin"] else "e1"})
        if resource in {"/exec/e1/json", f"/exec/{WITH_INPUT}/json"}:
            return self._json(200, {"Running": False, "ExitCode": 0})
        return self._json(404, {"message": "page not found"})

    def _json(self, status: int, document: object) -> bytes:
        return message(status, encoded(document), lines=self.lines)

    @staticmethod
    def version_document(oldest: str, newest: str) -> dict[str, object]:
        """The body of `/version` of a daemon with this range."""
        engine = {"ApiVersion": newest, "MinAPIVersion": oldest, "Os": "linux"}
        components = [
            {"Name": "Engine", "Version": "27.0", "Details": engine},
            {"Name": "runc", "Version": "1.1.12", "Details": {"GitCommit": "v1.1.12"}},
        ]
        return {"Components": components, "Version": "27.0", "ApiVersion": newest, "MinAPIVersion": oldest}


class Shopify(WorkedServer):
    """Months. One older than all that it serves gets the oldest."""

    def answer(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        found = re.match(r"/admin/api/([^/]+)/", path)
        requested = found[1] if found else self.versions[0]
        if not re.fullmatch(r"\d{4}-\d{2}", requested) or requested > self.versions[-1]:
            self.refuse(head)
            return message(404, encoded({"errors": "Not Found"}), JSON)
        version = max(requested, self.versions[0])
        self.execute(version, head)
        lines = (("X-Shopify-API-Version", version),)
        return message(200, encoded({"products": []}), JSON, lines)


NOT_FOUND: Final = b"404 page not found\n"


class Kubernetes(WorkedServer):
    """An API server with two groups of resources."""

    batch: Final = "batch"
    flowcontrol: Final = "flowcontrol.apiserver.k8s.io"

    def __init__(self, *, batch: Sequence[str], flowcontrol: Sequence[str]) -> None:
        super().__init__()
        self.groups = {self.batch: tuple(batch), self.flowcontrol: tuple(flowcontrol)}

    def answer(self, head: Head) -> bytes:
        _, _, group, *rest = head.target.partition("?")[0].split("/")
        if not rest:
            return message(200, encoded(self.group(group, self.groups[group])))
        if rest[0] not in self.groups[group]:
            self.refuse(head)
            return message(404, NOT_FOUND, "text/plain; charset=utf-8")
        self.execute(f"{group}/{rest[0]}", head)
        return message(200, encoded({"kind": "List", "apiVersion": f"{group}/{rest[0]}", "items": []}))

    @staticmethod
    def group(name: str, versions: Sequence[str]) -> dict[str, object]:
        """The document of a group with these versions, newest first. The newest is the preferred one."""
        entries = [
            {"groupVersion": f"{name}/{version}", "version": version} for version in reversed(versions)
        ]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": name,
            "versions": entries,
            "preferredVersion": entries[0],
        }
