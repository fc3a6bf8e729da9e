"""API servers of the demonstration that negotiate versions as Ironic 21.4 and 24.1 do.

Both know only Ironic's own header (releases before 25.0 ignore `OpenStack-API-Version`), and store no nodes.
This module must not know the gateway: these are foreign servers that run in the same process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, final

from aiohttp import web

from gateway.demo.servers import ApiServer, Release

SERVED: Final = "X-OpenStack-Ironic-API-Version"
LOWEST: Final = "X-OpenStack-Ironic-API-Minimum-Version"
HIGHEST: Final = "X-OpenStack-Ironic-API-Maximum-Version"

OLD: Final = Release("Antelope (21.4)", 82)
NEW: Final = Release("Caracal (24.1)", 90)


@final
class IronicServer(ApiServer):
    """A server of the Bare Metal API."""

    documents = frozenset({"/", "/v1", "/v1/"})

    def __init__(self, name: str, release: Release = OLD) -> None:
        super().__init__(name, release)

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self.present, self._negotiate])
        application.router.add_get("/", self._root, allow_head=False)
        for path in ("/v1", "/v1/"):
            application.router.add_get(path, self._v1, allow_head=False)
        application.router.add_get("/v1/nodes", self._list)
        application.router.add_post("/v1/nodes", self._create)
        application.router.add_get("/v1/nodes/{ident}", self._show)
        return application

    @web.middleware
    async def _negotiate(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        """Negotiate as Ironic does: no version means 1.1, and a version that is not served gets 406."""
        text = request.headers.get(SERVED, "")
        self.received[text] += 1
        if request.path == "/":
            return await self._routed(request, handler)
        version = _read(text, self.release)
        if version is None:
            self.refused.append(text)
            return _fault(406, "Not Acceptable", f"Invalid value for {SERVED} header")
        if version[0] != 1 or not 1 <= version[1] <= self.release.highest:
            self.refused.append(text)
            response = _fault(406, "Not Acceptable", _not_served(version, self.release))
            return _with_versions(response, self.release, None)
        response = await self._routed(request, handler)
        if request.match_info.http_exception:
            return response
        return _with_versions(response, self.release, version[1])

    async def _routed(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.Response:
        """Return the response of the route, or pecan's error without version headers if there is no route."""
        problem = request.match_info.http_exception
        if problem is not None:
            return _fault(problem.status, problem.reason, "")
        response: web.Response = await handler(request)
        return response

    async def _root(self, request: web.Request) -> web.Response:
        entry = self._version_entry(request)
        return web.json_response(
            {
                "name": "OpenStack Ironic API",
                "description": "A server of skewgate's demonstration.",
                "default_version": entry,
                "versions": [entry],
            }
        )

    async def _v1(self, request: web.Request) -> web.Response:
        nodes = [{"href": f"http://{request.host}/v1/nodes/", "rel": "self"}]
        entry = self._version_entry(request)
        return web.json_response({"id": "v1", "links": entry["links"], "nodes": nodes, "version": entry})

    def _version_entry(self, request: web.Request) -> dict[str, Any]:
        return {
            "id": "v1",
            "links": [{"href": f"http://{request.host}/v1/", "rel": "self"}],
            "status": "CURRENT",
            "min_version": "1.1",
            "version": self.release.text,
        }

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"nodes": []})

    async def _create(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({}, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        """Answer 404 as Ironic's methods do: the form of `_fault` with other keys."""
        text = f"Node {request.match_info['ident']} could not be found."
        inner = json.dumps({"faultcode": "Client", "faultstring": text, "debuginfo": None})
        return web.json_response({"error_message": inner}, status=404)


def _read(text: str, release: Release) -> tuple[int, int] | None:
    if not text:
        return (1, 1)
    if text.lower() == "latest":
        return (1, release.highest)
    major, dot, minor = text.partition(".")
    if dot and all(part.isascii() and part.isdigit() and len(part) <= 6 for part in (major, minor)):
        return (int(major), int(minor))
    return None


def _with_versions(response: web.Response, release: Release, minor: int | None) -> web.Response:
    """Add the version headers to a response: the range, and the served version when there is one."""
    response.headers[LOWEST] = "1.1"
    response.headers[HIGHEST] = release.text
    if minor is not None:
        response.headers[SERVED] = f"1.{minor}"
    return response


def _not_served(version: tuple[int, int], release: Release) -> str:
    text = f"{version[0]}.{version[1]}"
    if version[0] == 1:
        problem = f"Version {text} was requested but the minor version is not supported by this service."
    else:
        problem = (
            f"Mutually exclusive versions requested. Version {text} requested "
            "but not supported by this service."
        )
    return f"{problem} The supported version range is: [1.1, {release.text}]."


def _fault(status: int, title: str, description: str) -> web.Response:
    """Return an error as Ironic's routing writes it: JSON as a string inside JSON."""
    inner = json.dumps({"code": status, "title": title, "description": description})
    return web.json_response({"error_message": inner}, status=status)
