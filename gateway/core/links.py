"""Links that a backend wrote, as the client can follow them.

Backends build links from the Host that they see, from forwarded headers when they read those, or from an
address of their own; each of these is turned into the public one, and nothing else. Which texts are links is
the dialect's to say (`core.dialect.Links`). Never raises: links come from the network.
"""

from __future__ import annotations

import re

_ABSOLUTE = re.compile(r"(?:(https?):)?//([^/?#]*)(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def rewrite(link: str, *, backend: str, host: str, public: str) -> str:
    """`link` below `public` when it names one of the three; as it is when it names a third party.

    `backend` and `public` are scheme, authority and path, `host` an authority. The path of `public` is never
    put on twice; a path alone gets it, too. A service whose own paths begin like the public path (a gateway's
    `/v1` in front of an API's `/v1`) cannot be told from a backend that reads `X-Forwarded-Prefix`; it is
    taken for one.
    """
    absolute, mine, ours = (_ABSOLUTE.fullmatch(each) for each in (link, backend, public))
    if mine is None or ours is None:  # a trusted proxy may claim any text as our scheme
        return link
    if absolute is None:
        return ours[3] + _beneath(link, ours[3], mine[3]) if link.startswith("/") else link
    scheme = (absolute[1] or ours[1]).lower()
    rest = _beneath(absolute[3], ours[3], mine[3])
    named = _address(absolute[2], scheme)
    # Beside its base path a backend's address is somebody else's: no client gets there through us.
    if not (named == _address(mine[2], scheme) and (rest != absolute[3] or not mine[3])) and named not in (
        _address(host, scheme),
        _address(ours[2], scheme),
    ):
        return link
    # Without a Host (HTTP/1.0) no authority is known under which the client would find us.
    return (public if ours[2] else ours[3]) + rest


def _address(authority: str, scheme: str) -> tuple[str, str]:
    """Name and port of `authority`, the port that `scheme` implies when it names none."""
    name, colon, port = authority.lower().rpartition(":")
    if not colon or port.strip("0123456789"):
        name, port = authority.lower(), ""
    return name, port or _DEFAULT_PORTS[scheme]


def _beneath(path: str, *prefixes: str) -> str:
    """`path` (query and all) without those of `prefixes` that it begins with, on a segment boundary."""
    for prefix in prefixes:
        if prefix and path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/", "?", "#"):
            path = path[len(prefix) :]
    return path
