"""Host and path -> service. The host decides first, then the longest path prefix on a segment boundary.

Paths are compared as they came, with their escapes, so that routing, access log and backend see the same
bytes. Nothing here checks a path: the data plane did that when it read the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from gateway.core.fleet.service import RouteMatch, Service


@final
@dataclass(frozen=True, slots=True)
class Route:
    """One service's match in the form that is compared with requests."""

    service: str
    match: RouteMatch
    prefix: str
    """Without trailing slash; empty matches everything."""

    def covers(self, path: str) -> bool:
        """Whether the prefix ends on a segment boundary of `path`."""
        prefix = self.prefix
        return not prefix or path == prefix or path.startswith(prefix + "/")

    def local(self, path: str) -> str:
        """The path as the API itself knows it: without the prefix, never empty."""
        return path[len(self.prefix) :] or "/" if self.prefix else path


@final
@dataclass(frozen=True, slots=True)
class Routes:
    """All routes, by host and for any host; the longest prefix comes first."""

    by_host: Mapping[str, tuple[Route, ...]]
    any_host: tuple[Route, ...]
    everything: Route | None
    """The only route, when it matches every request."""

    @classmethod
    def of(cls, services: Iterable[Service]) -> Routes:
        hosts: dict[str | None, list[Route]] = {}
        for service in services:
            match = service.match
            hosts.setdefault(match.host, []).append(Route(service.name, match, match.prefix))
        ordered = {
            host: tuple(sorted(routes, key=lambda route: -len(route.prefix)))
            for host, routes in hosts.items()
        }
        any_host = ordered.pop(None, ())
        only = any_host[0] if not ordered and len(any_host) == 1 and not any_host[0].prefix else None
        return cls({host: routes for host, routes in ordered.items() if host is not None}, any_host, only)

    def find(self, host: str, path: str) -> Route | None:
        """The route of a request. `host` is the Host field's value, with or without port."""
        if self.everything is not None:
            return self.everything
        if self.by_host:
            name = host.lower()
            routes = self.by_host.get(name) or self.by_host.get(_without_port(name), ())
            for route in routes:
                if route.covers(path):
                    return route
        for route in self.any_host:
            if route.covers(path):
                return route
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return host if not colon or port.strip("0123456789") else name
