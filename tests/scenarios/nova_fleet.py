"""Fake API servers that respond as an old or new Nova does, and a gateway in front of them.

Sockets and the record of requests are those of `fakes`; every response is Nova's. The servers know nothing
of the gateway.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.scenarios.fakes import STANDARD, Head, Ironic, Lines, message
from tests.scenarios.testbed import Testbed

OWN: Final = "X-OpenStack-Nova-API-Version"
SERVERS: Final = "/v2.1/servers"
FAULT: Final = "application/json; charset=UTF-8"
TOKEN: Final = ("X-Auth-Token", "admin")

MICROVERSION: Final = re.compile(r"([1-9]\d*)\.([1-9]\d*|0)", re.ASCII)


def pair(version: str) -> dict[str, str]:
    """The two fields that name one version."""
    return {STANDARD: f"compute {version}", OWN: version}


class Nova(Ironic):
    """One Nova API server that serves 2.1 to `highest`. `highest` None: it has `/v2` only, without versions.

    `newton`: releases from 14 on also read and write `OpenStack-API-Version`, and accept several values.
    `redirects`: until about 20, `/v2.1` is a 302 with an absolute `Location`. `wants_token`: until 20, the
    document `/v2.1/` needs a token. `rooted` False: `/` belongs to another program, which responds 404.
    """

    def __init__(
        self,
        highest: int | None,
        *,
        newton: bool = True,
        redirects: bool = False,
        wants_token: bool = False,
        rooted: bool = True,
    ) -> None:
        super().__init__(highest)
        self.newton = newton
        self.redirects = redirects
        self.wants_token = wants_token
        self.rooted = rooted

    # -- responses

    def _response(self, head: Head) -> bytes:
        method, target, _ = head.start.split(" ")
        path, base = target.partition("?")[0], f"http://{head.get('Host')}"
        if path == "/":
            return (
                message(200, self.root(base)) if self.rooted else message(404, b"nothing here", "text/html")
            )
        mount, _, below = path[1:].partition("/")
        if mount == "v2":
            return message(200, self.v2(base)) if not below else self._below(method, below, head, ())
        if mount != "v2.1" and self.highest is not None and ";version=2.1" in (head.get("Accept") or ""):
            return self._versioned(method, path[1:], head, base)
        if mount != "v2.1" or self.highest is None:
            return message(300, self.choices(base, path))
        if path == "/v2.1" and self.redirects:
            return message(302, b"", "text/plain", (("Location", f"{base}/v2.1/"),))
        if self.wants_token and not head.get(TOKEN[0]):
            return message(401, b'{"error": {"code": 401}}')
        return self._versioned(method, below, head, base)

    def _versioned(self, method: str, below: str, head: Head, base: str) -> bytes:
        """Below `/v2.1`: the version is checked before anything else."""
        text = self._text(head)
        text = f"2.{self.highest}" if text == "latest" else text
        match = MICROVERSION.fullmatch(text)
        if match is None:
            self.refused.append(head)
            return message(400, malformed(text), FAULT)
        if match[1] != "2" or not self.lowest <= int(match[2]) <= (self.highest or 0):
            self.refused.append(head)
            return message(
                406, rejected(text, f"2.{self.lowest}", f"2.{self.highest}"), FAULT, self._echo(text)
            )
        if below == "":
            return message(200, self.v2_1(base), lines=self._echo(text))
        if below == "bogus":
            return message(404, b"404 Not Found", "text/plain; charset=UTF-8")
        return self._below(method, below, head, self._echo(text))

    def _text(self, head: Head) -> str:
        """The version as this release reads it: the last item for `compute`, else Nova's own field."""
        items = [item.split(maxsplit=1) for item in ",".join(head.all(STANDARD)).split(",")]
        texts = [words[1] for words in items if len(words) == 2 and words[0].lower() == "compute"]
        if texts and self.newton:
            return texts[-1].strip()
        own = head.all(OWN)
        if not own:
            return "2.1"
        return own[-1].rpartition(",")[2].strip() if self.newton else ",".join(own)

    def _echo(self, text: str) -> Lines:
        own: Lines = ((OWN, text), ("Vary", OWN))
        return ((STANDARD, f"compute {text}"), ("Vary", STANDARD), *own) if self.newton else own

    def _below(self, method: str, below: str, head: Head, lines: Lines) -> bytes:
        if below == "servers" and method == "POST":
            return message(202, head.body, lines=lines)
        if below in ("servers", "servers/detail"):
            return message(200, b'{"servers": []}', lines=lines)
        return message(404, NOT_FOUND, FAULT, lines)

    # -- documents

    def entry(self, base: str, highest: str | None = None) -> dict[str, object]:
        return {
            "id": "v2.1",
            "status": "CURRENT",
            "version": highest or f"2.{self.highest}",
            "min_version": f"2.{self.lowest}",
            "links": [{"rel": "self", "href": f"{base}/v2.1/"}],
        }

    def old_entry(self, base: str) -> dict[str, object]:
        links = [{"rel": "self", "href": f"{base}/v2/"}]
        entry: dict[str, object] = {"id": "v2.0", "status": "DEPRECATED", "links": links}
        return entry if self.highest is None else entry | {"version": "", "min_version": ""}

    def root(self, base: str, highest: str | None = None) -> bytes:
        """The document `/` of this server at `base`. `highest`: a maximum other than its own."""
        newer = [] if self.highest is None else [self.entry(base, highest)]
        return json.dumps({"versions": [self.old_entry(base), *newer]}).encode()

    def v2_1(self, base: str, highest: str | None = None) -> bytes:
        """The document `/v2.1/`, likewise."""
        entry = self.entry(base, highest)
        described = {"rel": "describedby", "href": "http://docs.openstack.org/"}
        return json.dumps({"version": {**entry, "links": [*self._links(entry), described]}}).encode()

    def v2(self, base: str) -> bytes:
        """The document `/v2/`."""
        return json.dumps({"version": self.old_entry(base)}).encode()

    def choices(self, base: str, path: str) -> bytes:
        """The body of the 300 for a path outside `/v2` and `/v2.1`."""
        mounts = ["v2"] if self.highest is None else ["v2", "v2.1"]
        return json.dumps(
            {
                "choices": [
                    {"id": mount, "links": [{"rel": "self", "href": f"{base}/{mount}{path}"}]}
                    for mount in mounts
                ]
            }
        ).encode()

    @staticmethod
    def _links(entry: dict[str, object]) -> list[object]:
        links = entry["links"]
        assert isinstance(links, list)
        return links


NOT_FOUND: Final = b'{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}'


def rejected(text: str, lowest: str, highest: str) -> bytes:
    """The body of a 406, as in the golden examples."""
    return (
        f'{{"computeFault": {{"code": 406, "message": "Version {text} is not supported by the API. '
        f'Minimum is {lowest} and maximum is {highest}."}}}}'
    ).encode()


def malformed(text: str) -> bytes:
    """The body of a 400, as in the golden examples."""
    return (
        f'{{"badRequest": {{"code": 400, "message": "API Version String {text} is of invalid format. '
        f'Must be of format MajorNum.MinorNum."}}}}'
    ).encode()


# --- the gateway in front of them ----------------------------------------------------------------------


class NovaTestbed(Testbed):
    """A running gateway with one service `compute`."""

    service = "compute"

    async def at(self, version: str | None, target: str = SERVERS) -> Head:
        """Send a request with `version` in Nova's own field, or without a version."""
        return await self.send(target, *(() if version is None else ((OWN, version),)))


def in_front_of(
    *servers: Nova, probe: str = "interval: 100ms", **more: Any
) -> AbstractAsyncContextManager[NovaTestbed]:
    """A gateway in front of `servers`, assembled as by `run`, that knows what they serve."""
    return NovaTestbed.in_front_of(*servers, dialect="nova", probe=f"{{{probe}}}", **more)


def version_fields(response: Head) -> dict[str, str]:
    """Every version field of a response. None may occur twice."""
    assert len(response.all(STANDARD)) <= 1
    assert len(response.all(OWN)) <= 1
    return response.versions


def varies(response: Head) -> list[str]:
    """The names in all `Vary` lines."""
    return sorted(name.strip() for line in response.all("Vary") for name in line.split(","))
