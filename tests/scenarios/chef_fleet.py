"""Fake API servers that respond as Chef Server or goiardi does, and a gateway in front of them.

Sockets and the record of requests are those of `fakes`; every response is Chef's. The servers know nothing
of the gateway.
"""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.scenarios.fakes import Head, Ironic, Lines, message
from tests.scenarios.testbed import Testbed

OWN: Final = "X-Ops-Server-API-Version"
SIGNED_1_1: Final = (("X-Ops-Sign", "algorithm=sha1;version=1.1;"), ("X-Ops-Userid", "bob"))
SIGNED_1_3: Final = (("X-Ops-Sign", "algorithm=sha256;version=1.3;"), ("X-Ops-Userid", "bob"))


def version_object(low: int, high: int, requested: int, served: int) -> str:
    """The JSON object in the version field of a response, as Chef Server writes it."""
    return (
        f'{{"min_version":"{low}","max_version":"{high}",'
        f'"request_version":"{requested}","response_version":"{served}"}}'
    )


class Erchef(Ironic):
    """Chef Server that serves `lowest` to `highest`. `highest` None: a release before 12.1, without versions.

    Every resource responds with target and body of the request, so that a test sees any change to them.
    """

    highest: int | None

    def __init__(self, highest: int | None, lowest: int = 0) -> None:
        super().__init__(highest, lowest)

    def _response(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        if path in ("/_status", "/nowhere"):
            # Neither the health check nor a 404 of the nginx in front of erchef has a version field.
            return message(200 if path == "/_status" else 404, b'{"status":"pong"}')
        if self.highest is None:
            return message(*self._signed_resource(path, head))
        values = head.all(OWN)
        try:
            # Erlang takes signs and leading zeros too. It takes no blanks, and no test sends any.
            requested = int(values[0] if values else "0")
            refused = bool(values) and not self.lowest <= requested <= self.highest
        except ValueError:
            requested, refused = -1, True
        if refused:
            self.refused.append(head)
            text = f"Specified version {values[0]} not supported"
            error = {"error": "invalid-x-ops-server-api-version", "message": text}
            body = {**error, "min_version": self.lowest, "max_version": self.highest}
            return message(406, compact(body), lines=self._version_field(requested, -1))
        status, body_bytes = self._signed_resource(path, head)
        served = -1 if status == 406 else requested
        return message(status, body_bytes, lines=self._version_field(requested, served))

    def _version_field(self, requested: int, served: int) -> Lines:
        assert self.highest is not None
        return ((OWN, version_object(self.lowest, self.highest, requested, served)),)

    def _signed_resource(self, path: str, head: Head) -> tuple[int, bytes]:
        if not head.all("X-Ops-Sign"):
            return 401, b'{"error":["missing required authentication header(s)"]}'
        if head.get("Accept") == "text/html":
            return 406, b""
        if path == "/nodes/nosuch":
            return 404, b'{"error":["node \'nosuch\' not found"]}'
        return 200, compact({"target": head.target, "body": head.body.decode()})


class Goiardi(Erchef):
    """goiardi 0.11.10: it serves every request, and writes a version field for `0` and `1` only."""

    def __init__(self) -> None:
        super().__init__(1)

    def _response(self, head: Head) -> bytes:
        status, body = self._signed_resource(head.target, head)
        value = (head.all(OWN) or [""])[0]
        lines: Lines = ()
        if value in ("0", "1"):
            with_blanks = json.dumps(json.loads(version_object(0, 1, int(value), int(value))))
            lines = (("X-Ops-Server-Api-Version", with_blanks),)
        return message(status, body, lines=(("X-Goiardi", "yes"), *lines))


def compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


class ChefTestbed(Testbed):
    """A running gateway with one service `chef`."""

    service = "chef"

    async def at(
        self, version: str | None, target: str = "/nodes", sign: tuple[tuple[str, str], ...] = SIGNED_1_1
    ) -> Head:
        """Send a signed request with `version`, or without a version."""
        return await self.send(target, *sign, *(() if version is None else ((OWN, version),)))


def in_front_of(
    *servers: Erchef, options: str = "{}", **more: Any
) -> AbstractAsyncContextManager[ChefTestbed]:
    """A gateway in front of `servers`. `options`: those of the dialect; `more`: as everywhere."""
    return ChefTestbed.in_front_of(*servers, dialect="chef", chef=options, **more)
