"""What of a service an engine cannot do for the gateway, with the reason and the key in the configuration.

Such a service has no rows: all of its requests go to the gateway beside the engine, so nothing is wrong, and
nothing is faster. Pure; it looks at the configuration alone, never at what is known of backends.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.core.fleet.match import Match
from gateway.core.fleet.service import Service


class Inexpressible(NamedTuple):
    """Why a service has no rows."""

    key: tuple[str | int, ...]
    """The key below the service: `("match", "path")`."""
    reason: str
    """One sentence for the operator, without the service's name."""


def inexpressible(service: Service) -> Inexpressible | None:
    """The first reason why no request of `service` can go past the gateway; None: some may."""
    for key, found, reason in _reasons(service):
        if found:
            return Inexpressible(key, reason)
    return None


def _reasons(service: Service) -> tuple[tuple[tuple[str | int, ...], bool, str], ...]:
    backends = service.backends
    return (
        (
            ("dialect",),
            not service.dialect.direct_paths or service.dialect.target_writer is not None,
            "an engine reads versions only in headers that hold nothing else",
        ),
        (
            ("match", "path"),
            service.match.path != Match().path,
            "an engine serves whole hosts, and no service below a path prefix",
        ),
        (("operations",), bool(service.operations), "an engine does not look up operations"),
        (
            ("headers",),
            service.request_edits is not None or service.response_edits is not None,
            "an engine does not change other headers",
        ),
        (("access",), service.has_rules, "an engine does not look at the client of a request"),
        (
            ("backends",),
            any(backend.tls is not None for backend in backends),
            "an engine speaks to backends without TLS",
        ),
        (("backends",), any(backend.path for backend in backends), "an engine adds no base path"),
        (
            ("backends",),
            any(backend.max_requests or backend.max_connections for backend in backends),
            "an engine does not share a backend's bound with the gateway",
        ),
    )
