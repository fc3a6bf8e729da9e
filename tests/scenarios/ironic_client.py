"""A model of python-ironicclient 6.3: which version it sends and keeps, and when it gives up.

The model follows the client's behaviour on the wire. It starts with the version of the user, with the
version in its cache for this server, or with its default. It never uses the fields of a 406: it reads the
range from `GET /v1` without a version. It negotiates once.
"""

from __future__ import annotations

import re
from typing import Final

from tests.scenarios.fakes import HIGHEST, LOWEST, OWN, Head
from tests.scenarios.testbed import Testbed

LIBRARY_DEFAULT: Final = "1.9"
ONE_DIGIT_MAJOR: Final = re.compile(r"^(\d)\.(\d+)$")


class UnsupportedVersion(Exception):
    """The client gives up."""


def parsed(text: str) -> tuple[int, int]:
    match = ONE_DIGIT_MAJOR.match(text)
    assert match is not None, f"the client cannot read {text!r}"
    return int(match[1]), int(match[2])


class IronicClient:
    """One client process. `cache` is shared by processes: it maps host and port to a version."""

    def __init__(
        self,
        testbed: Testbed,
        version: str | None = None,
        *,
        default: str = LIBRARY_DEFAULT,
        cache: dict[str, str] | None = None,
    ) -> None:
        self._testbed = testbed
        self._cache = {} if cache is None else cache
        self.version = version or self._cache.get(testbed.authority) or default
        self.state = "user" if version else "cached" if testbed.authority in self._cache else "default"
        self.log: list[tuple[str, str | None, int]] = []
        """Path, version in the request, status of the response."""
        self.ranges: set[tuple[str | None, str | None]] = set()
        """Every range in a response."""

    async def get(self, path: str) -> Head:
        """Make one call. Raises `UnsupportedVersion`."""
        if self.version == "latest":
            _, self.version = await self._discover()
            self._keep(self.version)
        response = await self._send(path, self.version)
        if response.status != 406:
            return response
        lowest, highest = await self._discover()
        if self.state not in ("default", "cached"):
            raise UnsupportedVersion(f"{self.version} was refused, the server serves {lowest} to {highest}")
        self._keep(max(min(self.version, highest, key=parsed), lowest, key=parsed))
        again = await self._send(path, self.version)
        if again.status == 406:
            raise UnsupportedVersion(f"{self.version} was refused after negotiation")
        return again

    async def _discover(self) -> tuple[str, str]:
        """Read the range from `GET /v1` without a version. The client gives up after two attempts."""
        for _ in range(2):
            response = await self._send("/v1", None)
            lowest, highest = response.get(LOWEST), response.get(HIGHEST)
            if lowest is not None and highest is not None:
                return lowest, highest
        raise RuntimeError("the server names no range")

    def _keep(self, version: str) -> None:
        self.version, self.state = version, "negotiated"
        self._cache[self._testbed.authority] = version

    async def _send(self, path: str, version: str | None) -> Head:
        lines = [("Accept", "*/*" if version is None else "application/json")]
        if version is not None:
            lines.append((OWN, version))
        response = await self._testbed.send(path, *lines)
        self.log.append((path, version, response.status))
        self.ranges.add((response.get(LOWEST), response.get(HIGHEST)))
        return response
