"""Which protocols a client may switch its connection to (RFC 9110 7.8): how they are written and compared.

Values in, values out. What a switch does to a connection is in `dataplane.exchange.tunnel`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

PROTOCOL_PATTERN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}(?:/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})?"
"""A name, and perhaps a version: `websocket`, `SPDY/3.1`."""
_PROTOCOL = re.compile(PROTOCOL_PATTERN)
MAX_PROTOCOLS = 16
"""Of one request. Real clients name one."""

_CARRY_REQUESTS = frozenset({"h2", "h2c", "h3", "http", "https", "tls"})


def carries_requests(protocol: str) -> bool:
    """Whether HTTP requests follow in this protocol: they would get past every rule here (threats H3)."""
    return protocol.partition("/")[0].lower() in _CARRY_REQUESTS


def read_protocols(values: Iterable[str]) -> tuple[str, ...]:
    """The protocols of the values of `Upgrade`, as they were written. None if one of them is malformed: a
    recipient may ignore the field, and a backend might read it in another way."""
    items = [item.strip(" \t") for value in values for item in value.split(",")]
    names = tuple(item for item in items if item)
    valid = len(names) <= MAX_PROTOCOLS and all(_PROTOCOL.fullmatch(name) for name in names)
    return names if valid else ()


def allowed_protocols(asked: Iterable[str], allowed: Collection[str]) -> tuple[str, ...]:
    """Those of `asked` that a service tunnels. `allowed`: in lower case, since names are compared without
    regard to case. A protocol that carries requests is never one of them."""
    return tuple(name for name in asked if name.lower() in allowed and not carries_requests(name))
