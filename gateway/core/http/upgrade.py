"""Protocols to which a client may switch its connection (RFC 9110 7.8): parsing and comparison.

Pure. `dataplane.exchange.tunnel` carries out a switch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

PROTOCOL_PATTERN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}(?:/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})?"
"""Name, and perhaps a version: `websocket`, `SPDY/3.1`."""
_PROTOCOL = re.compile(PROTOCOL_PATTERN)
MAX_PROTOCOLS = 16
"""Most protocols that one request may name. Real clients name one."""

_CARRY_REQUESTS = frozenset({"h2", "h2c", "h3", "http", "https", "tls"})


def carries_requests(protocol: str) -> bool:
    """Whether HTTP requests follow in this protocol: they would bypass every rule here (threats H3)."""
    return protocol.partition("/")[0].lower() in _CARRY_REQUESTS


def read_protocols(values: Iterable[str]) -> tuple[str, ...]:
    """The protocols in the values of `Upgrade`, as they were written; None: one of them is malformed. A
    recipient may ignore the field then, and a backend might read it in another way."""
    items = [item.strip(" \t") for value in values for item in value.split(",")]
    names = tuple(item for item in items if item)
    valid = len(names) <= MAX_PROTOCOLS and all(_PROTOCOL.fullmatch(name) for name in names)
    return names if valid else ()


def allowed_protocols(asked: Iterable[str], allowed: Collection[str]) -> tuple[str, ...]:
    """The protocols of `asked` that a service tunnels. `allowed` is in lower case, since names are compared
    without regard to case. A protocol that carries requests is never one of them."""
    return tuple(name for name in asked if name.lower() in allowed and not carries_requests(name))
