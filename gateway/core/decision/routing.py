"""Routing of requests by host, then by the longest path prefix on a segment boundary.

An exact host goes before a wildcard, a longer wildcard before a shorter one, and any of them before services
without a host. If no service of a host matches the path, the next less specific host is tried. All look-ups
use dictionaries: services are not compared one by one.

Hosts are compared without case, port and trailing dot. Paths are compared unchanged, with their escapes, so
that routing, access log and backend see the same bytes. The data plane has validated both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, final

from gateway.core.fleet.service import Match, Service

FEW: Final = 4
"""Most routes of one host that are compared one by one (measured)."""


@final
@dataclass(frozen=True, slots=True)
class Route:
    """Route to one service, in the form that is compared with requests."""

    service: str
    match: Match
    host: str | None
    """Host of the route, one of `match.hosts`; None: any."""
    prefix: str
    """Path prefix without trailing slash; empty: every path."""
    inside: str
    """Beginning of every path below the route's prefix."""

    def local(self, path: str) -> str:
        """Path as the API itself sees it: without the prefix, never empty."""
        return path[len(self.prefix) :] or "/" if self.prefix else path


@final
@dataclass(frozen=True, slots=True)
class Prefixes:
    """Routes of one host, or of any, by prefix. A look-up costs as much as the deepest, however many."""

    few: tuple[Route, ...]
    """All routes of the host, the longest prefix first, if so few that comparing each is cheaper."""
    by_prefix: Mapping[str, Route]
    deepest: int
    root: Route | None
    less_specific: Prefixes | None = None
    """Routes of the next less specific host, for paths that none of these covers."""

    @classmethod
    def of(cls, routes: Iterable[Route], less_specific: Prefixes | None = None) -> Prefixes:
        ordered = sorted(routes, key=lambda route: -len(route.prefix))
        by_prefix = {route.prefix: route for route in ordered}
        root = by_prefix.pop("", None)
        few = tuple(ordered) if len(ordered) <= FEW else ()
        deepest = max((prefix.count("/") for prefix in by_prefix), default=0)
        return cls(few, by_prefix, deepest, root, less_specific)

    def find(self, path: str) -> Route | None:
        """The route with the longest prefix that ends on a segment boundary of `path`."""
        found, deepest = self.root, self.deepest
        if not deepest:
            return found
        if self.few:
            for route in self.few:
                if path.startswith(route.inside) or path == route.prefix:
                    return route
            return None
        get = self.by_prefix.get
        end = path.find("/", 1)
        while deepest > 1 and end >= 0:
            found = get(path[:end], found)
            end = path.find("/", end + 1)
            deepest -= 1
        return get(path if end < 0 else path[:end], found)


@final
@dataclass(frozen=True, slots=True)
class Routes:
    """Routes of all services, by host and for any host."""

    by_host: Mapping[str, Prefixes]
    by_wildcard: Mapping[str, Prefixes]
    """Routes by the ending of a host: `.example.org` for `*.example.org`."""
    most_labels: int
    any_host: Prefixes
    everything: Route | None
    """The only route, if it matches every request."""

    @classmethod
    def of(cls, services: Iterable[Service]) -> Routes:
        hosts: dict[str | None, list[Route]] = {None: []}
        for service in services:
            match = service.match
            for host in match.hosts or (None,):
                route = Route(service.name, match, host, match.prefix, match.prefix and match.prefix + "/")
                hosts.setdefault(host, []).append(route)
        any_host = Prefixes.of(hosts.pop(None))
        named = {host: routes for host, routes in hosts.items() if host is not None}
        by_wildcard: dict[str, Prefixes] = {}
        # The shorter ones first: each is what a longer one falls back to.
        for host in sorted((host for host in named if host[0] == "*"), key=len):
            ending = host[1:]
            covering = _longest(by_wildcard, ending) or any_host
            by_wildcard[ending] = Prefixes.of(named[host], covering)
        by_host = {
            host: Prefixes.of(routes, _longest(by_wildcard, host) or any_host)
            for host, routes in named.items()
            if host[0] != "*"
        }
        most_labels = max((ending.count(".") for ending in by_wildcard), default=0)
        only = None if named or any_host.by_prefix else any_host.root
        return cls(by_host, by_wildcard, most_labels, any_host, only)

    def find(self, host: str, path: str) -> Route | None:
        """The route of a request. `host` is the Host field's value, with or without port."""
        if self.everything is not None:
            return self.everything
        prefixes: Prefixes | None = self.any_host
        if self.by_host or self.by_wildcard:
            prefixes = self._prefixes(host)
        while prefixes is not None:
            route = prefixes.find(path)
            if route is not None:
                return route
            prefixes = prefixes.less_specific
        return None

    def _prefixes(self, host: str) -> Prefixes:
        name = host.lower()
        found = self.by_host.get(name)
        if found is not None:
            return found
        name = plain_host(name)
        found = self.by_host.get(name)
        if found is None and self.most_labels:
            # From the end of the name, as many labels as the longest wildcard has: the longest is found last.
            end, labels = len(name), self.most_labels
            while labels and (end := name.rfind(".", 0, end)) > 0:
                found = self.by_wildcard.get(name[end:], found)
                labels -= 1
        return self.any_host if found is None else found


def _longest(by_wildcard: Mapping[str, Prefixes], host: str) -> Prefixes | None:
    """The routes of the longest wildcard that covers `host`, a name or the ending of another wildcard."""
    dot = host.find(".", 1)
    while dot > 0:
        found = by_wildcard.get(host[dot:])
        if found is not None:
            return found
        dot = host.find(".", dot + 1)
    return None


def plain_host(host: str) -> str:
    """Normalize `Host`: lower case, without port and trailing dot, an IPv6 address as in RFC 5952."""
    name, colon, port = host.rpartition(":")
    if not colon or port.strip("0123456789"):
        name = host
    if name[:1] == "[":
        try:
            return f"[{ip_address(name[1:-1])}]"
        except ValueError:
            return name
    return name[:-1] if name[-1:] == "." else name
