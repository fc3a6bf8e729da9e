"""Links that a backend wrote, rewritten so that the client can follow them.

Backends build links from the Host that they see, from forwarded headers if they read those, or from an
address of their own. Each of these becomes the public one; nothing else changes. The dialect decides which
texts are links (`core.dialect.Links`). Nothing here raises: links come from the network.
"""

from __future__ import annotations

import re

_ABSOLUTE = re.compile(r"(?:(https?):)?//([^/?#]*)(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def rewrite(link: str, *, backend: str, host: str, public: str) -> str:
    """`link` below `public` when its authority is one of the three; unchanged when it names a third party.

    `backend` and `public` are scheme, authority and path; `host` is an authority. A path alone gets the path
    of `public`, too. That path is never added twice, as some backends read `X-Forwarded-Prefix` and add it
    themselves. So a service whose own paths begin like the public path (`/v1` of an API behind a gateway's
    `/v1`) is treated like such a backend: the two cannot be distinguished.
    """
    absolute, inside, outside = (_ABSOLUTE.fullmatch(url) for url in (link, backend, public))
    if inside is None or outside is None:  # a trusted proxy may send any text as the client's scheme
        return link
    if absolute is None:
        return outside[3] + _beneath(link, outside[3], inside[3]) if link.startswith("/") else link
    scheme = (absolute[1] or outside[1]).lower()
    rest = _beneath(absolute[3], outside[3], inside[3])
    address = _address(absolute[2], scheme)
    # Outside its base path, a backend's address is not proxied: no client gets there through the gateway.
    to_backend = address == _address(inside[2], scheme) and (rest != absolute[3] or not inside[3])
    if not to_backend and address not in (_address(host, scheme), _address(outside[2], scheme)):
        return link
    # Without a Host (HTTP/1.0) the client's authority for the gateway is not known.
    return (public if outside[2] else outside[3]) + rest


def move(link: str, *, before: str, after: str) -> str:
    """`link`, as `rewrite` made it for the public address `before`, below `after` instead; unchanged when it
    names a third party. For a document that was fetched for another client."""
    old, new = _ABSOLUTE.fullmatch(before), _ABSOLUTE.fullmatch(after)
    if old is None or new is None:
        return link
    is_path = link.startswith("/") and not link.startswith("//")
    base, other = (old[3], new[3]) if is_path else (before, after if new[2] else new[3])
    if link.startswith(base) and link[len(base) : len(base) + 1] in ("", "/", "?", "#"):
        return other + link[len(base) :]
    return link


def _address(authority: str, scheme: str) -> tuple[str, str]:
    """Name and port of `authority`; without a port, the default port of `scheme`."""
    name, colon, port = authority.lower().rpartition(":")
    if not colon or port.strip("0123456789"):
        name, port = authority.lower(), ""
    return name, port or _DEFAULT_PORTS[scheme]


def _beneath(path: str, *prefixes: str) -> str:
    """`path`, with its query, without those of `prefixes` that it begins with, on a segment boundary."""
    for prefix in prefixes:
        if prefix and path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/", "?", "#"):
            path = path[len(prefix) :]
    return path
