"""API servers that answer as Chef Server or goiardi does, and a gateway in front of them.

Sockets, and what is remembered of requests, are those of the fakes of Ironic; every answer is Chef's own. The
servers know nothing of the gateway.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.cli.gateway import Gateway
from gateway.core.offer import Phase
from gateway.settings import load
from tests.scenarios.fakes import END, LOOPBACK, Head, Ironic, Lines, running
from tests.scenarios.stand import Stand

OWN: Final = "X-Ops-Server-API-Version"
SIGNED_1_1: Final = (("X-Ops-Sign", "algorithm=sha1;version=1.1;"), ("X-Ops-Userid", "bob"))
SIGNED_1_3: Final = (("X-Ops-Sign", "algorithm=sha256;version=1.3;"), ("X-Ops-Userid", "bob"))


def told(low: int, high: int, asked: int, served: int) -> str:
    """The object on a reply, as Chef Server writes it."""
    return (
        f'{{"min_version":"{low}","max_version":"{high}",'
        f'"request_version":"{asked}","response_version":"{served}"}}'
    )


class Erchef(Ironic):
    """Chef Server, of `lowest` to `highest`; None: before 12.1, it knows no versions.

    Every resource answers with what it was sent, so that a test can see whether it was touched.
    """

    highest: int | None

    def __init__(self, highest: int | None, lowest: int = 0) -> None:
        super().__init__(highest, lowest)

    def _reply(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        if path in ("/_status", "/nowhere"):
            # The health check, and the nginx before erchef where it knows no path, say nothing of versions.
            return message(200 if path == "/_status" else 404, b'{"status":"pong"}', ())
        if self.highest is None:
            return message(*self._signed_resource(path, head), ())
        values = head.all(OWN)
        try:
            asked = int(
                values[0] if values else "0"
            )  # signs and leading zeros as Erlang; nothing lax is sent
            refused = bool(values) and not self.lowest <= asked <= self.highest
        except ValueError:
            asked, refused = -1, True
        if refused:
            self.refused.append(head)
            text = f"Specified version {values[0]} not supported"
            error = {"error": "invalid-x-ops-server-api-version", "message": text}
            body = {**error, "min_version": self.lowest, "max_version": self.highest}
            return message(406, compact(body), self._object(asked, -1))
        status, body_bytes = self._signed_resource(path, head)
        return message(status, body_bytes, self._object(asked, -1 if status == 406 else asked))

    def _object(self, asked: int, served: int) -> Lines:
        assert self.highest is not None
        return ((OWN, told(self.lowest, self.highest, asked, served)),)

    def _signed_resource(self, path: str, head: Head) -> tuple[int, bytes]:
        if not head.all("X-Ops-Sign"):
            return 401, b'{"error":["missing required authentication header(s)"]}'
        if head.get("Accept") == "text/html":
            return 406, b""
        if path == "/nodes/nosuch":
            return 404, b'{"error":["node \'nosuch\' not found"]}'
        return 200, compact({"target": head.target, "body": head.body.decode()})


class Goiardi(Erchef):
    """goiardi 0.11.10: says something to exactly `0` and `1`, and serves whatever it is asked for."""

    def __init__(self) -> None:
        super().__init__(1)

    def _reply(self, head: Head) -> bytes:
        status, body = self._signed_resource(head.target, head)
        value = (head.all(OWN) or [""])[0]
        blanks = json.dumps(json.loads(told(0, 1, int(value), int(value)))) if value in ("0", "1") else ""
        lines = (("X-Ops-Server-Api-Version", blanks),) if blanks else ()
        return message(status, body, (("X-Goiardi", "yes"), *lines))


def compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def message(status: int, body: bytes, lines: Lines) -> bytes:
    head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in lines]
    return "\r\n".join(head).encode() + END + body


class ChefStand(Stand):
    """A gateway that runs, with one service `chef`."""

    service = "chef"

    async def at(
        self, version: str | None, target: str = "/nodes", sign: tuple[tuple[str, str], ...] = SIGNED_1_1
    ) -> Head:
        """A signed request that names `version`, or none."""
        return await self.ask(target, *sign, *(() if version is None else ((OWN, version),)))


@asynccontextmanager
async def in_front_of(
    *servers: Erchef,
    offer: str = "{}",
    options: str = "{}",
    interval: str = "100ms",
    at: tuple[int, ...] = (),
    operations: str = "[]",
) -> AsyncIterator[ChefStand]:
    """A gateway on the code path of `run` that has heard every server out; with ports `at`, where nobody
    listens, it cannot have."""
    async with running(*servers):
        backends = [
            f"      - {{name: api-{number}, url: 'http://{LOOPBACK}:{port}'}}\n"
            for number, port in enumerate((*(server.port for server in servers), *at), 1)
        ]
        text = (
            "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
            f"services:\n  chef:\n    dialect: chef\n    chef: {options}\n    offer: {offer}\n"
            f"    operations: {operations}\n"
            f"    probe: {{interval: {interval}}}\n    backends:\n{''.join(backends)}"
        )
        configured = load(text, filename="scenario.yaml", environ={}).require()
        async with Gateway(configured) as gateway:
            stand = ChefStand(gateway, servers, "")
            if not at:
                await stand.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
            yield stand
