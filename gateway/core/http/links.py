"""Rewriting of links that a backend wrote, so that the client can follow them.

Backends build links from the Host that they see, from forwarded headers, or from an address of their own.
Each of these becomes the public one; nothing else changes. The dialect decides which texts are links
(`core.dialect.Links`). Nothing here raises: links come from the network.
"""

from __future__ import annotations

import re
from typing import final

_ABSOLUTE = re.compile(r"(?:(https?):)?//([^/?#]*)(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@final
class LinkRewriter:
    """Rewrites the links of one response. `backend` and `public` are scheme, authority and path; `host` is an
    authority. They are parsed once: a document may have thousands of links."""

    __slots__ = ("_addresses", "_backend_address", "_backend_path", "_base", "_public_path", "_scheme")

    def __init__(self, *, backend: str, host: str, public: str) -> None:
        inside, outside = _ABSOLUTE.fullmatch(backend), _ABSOLUTE.fullmatch(public)
        self._base: str | None = None
        """Prefix of rewritten links; None: no link is rewritten, since a proxy sent an invalid scheme."""
        if inside is None or outside is None:
            return
        # Without a Host (HTTP/1.0) the client's authority for the gateway is not known.
        self._base = public if outside[2] else outside[3]
        self._scheme = (outside[1] or "http").lower()
        self._backend_path, self._public_path = inside[3], outside[3]
        self._backend_address = {scheme: _address(inside[2], scheme) for scheme in _DEFAULT_PORTS}
        self._addresses = {
            scheme: (_address(host, scheme), _address(outside[2], scheme)) for scheme in _DEFAULT_PORTS
        }

    def rewrite(self, link: str) -> str:
        """`link` below `public` if it leads to `backend`, `host` or `public`; links to others stay unchanged.
        A path alone gets the path of `public`, but never twice: some backends read `X-Forwarded-Prefix` and
        add it themselves. A service whose own paths begin like the public path is treated like these."""
        if self._base is None:
            return link
        absolute = _ABSOLUTE.fullmatch(link)
        if absolute is None:
            if not link.startswith("/"):
                return link
            return self._public_path + _beneath(link, self._public_path, self._backend_path)
        scheme, path = (absolute[1] or self._scheme).lower(), absolute[3]
        rest = _beneath(path, self._public_path, self._backend_path)
        address = _address(absolute[2], scheme)
        # Outside its base path, a backend's address is not proxied: no client gets there through the gateway.
        to_backend = address == self._backend_address[scheme] and (rest != path or not self._backend_path)
        return self._base + rest if to_backend or address in self._addresses[scheme] else link


def move(link: str, *, before: str, after: str) -> str:
    """Move a link, as `rewrite` made it for the public address `before`, below the address `after`: for a
    document that was fetched for another client. Links to third parties stay unchanged."""
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
    """`path`, with its query, without the `prefixes` that it begins with, on a segment boundary."""
    for prefix in prefixes:
        if prefix and path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/", "?", "#"):
            path = path[len(prefix) :]
    return path
