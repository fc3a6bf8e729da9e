"""python-ironicclient 6.3 as far as versions go: what it sends, remembers, and when it gives up.

Written from its behaviour on the wire: the version it starts with is the user's, or one that is cached for
this server, or its default; the headers of a 406 are never used, `GET /v1` without a version is; it
negotiates once.
"""

from __future__ import annotations

import re
from typing import Final

from tests.scenarios.fakes import HIGHEST, LOWEST, OWN, Head
from tests.scenarios.stand import Stand

LIBRARY_DEFAULT: Final = "1.9"
ONE_DIGIT_MAJOR: Final = re.compile(r"^(\d)\.(\d+)$")


class UnsupportedVersion(Exception):
    """The client's last word: it stops."""


def parsed(text: str) -> tuple[int, int]:
    match = ONE_DIGIT_MAJOR.match(text)
    assert match is not None, f"the client cannot read {text!r}"
    return int(match[1]), int(match[2])


class IronicClient:
    """One process of it. `cache` is shared by processes: host and port -> version."""

    def __init__(
        self,
        stand: Stand,
        version: str | None = None,
        *,
        default: str = LIBRARY_DEFAULT,
        cache: dict[str, str] | None = None,
    ) -> None:
        self._stand = stand
        self._cache = {} if cache is None else cache
        self.version = version or self._cache.get(stand.authority) or default
        self.state = "user" if version else "cached" if stand.authority in self._cache else "default"
        self.log: list[tuple[str, str | None, int]] = []
        """Path, the version that was sent, and the status that came."""
        self.told: set[tuple[str | None, str | None]] = set()
        """Every range that it was shown."""

    async def get(self, path: str) -> Head:
        """One call. Raises `UnsupportedVersion`."""
        if self.version == "latest":
            _, self.version = await self._discover()
            self._settle(self.version)
        reply = await self._send(path, self.version)
        if reply.status != 406:
            return reply
        lowest, highest = await self._discover()
        if self.state not in ("default", "cached"):
            raise UnsupportedVersion(f"{self.version} was refused, the server serves {lowest} to {highest}")
        self._settle(max(min(self.version, highest, key=parsed), lowest, key=parsed))
        again = await self._send(path, self.version)
        if again.status == 406:
            raise UnsupportedVersion(f"{self.version} was refused after negotiation")
        return again

    async def _discover(self) -> tuple[str, str]:
        """The range, from `GET /v1` without a version; asked for twice before it gives up."""
        for _ in range(2):
            reply = await self._send("/v1", None)
            lowest, highest = reply.get(LOWEST), reply.get(HIGHEST)
            if lowest is not None and highest is not None:
                return lowest, highest
        raise RuntimeError("the server names no range")

    def _settle(self, version: str) -> None:
        self.version, self.state = version, "negotiated"
        self._cache[self._stand.authority] = version

    async def _send(self, path: str, version: str | None) -> Head:
        lines = [("Accept", "*/*" if version is None else "application/json")]
        if version is not None:
            lines.append((OWN, version))
        reply = await self._stand.ask(path, *lines)
        self.log.append((path, version, reply.status))
        self.told.add((reply.get(LOWEST), reply.get(HIGHEST)))
        return reply
