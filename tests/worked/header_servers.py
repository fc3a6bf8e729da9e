"""Servers with the version in a header or a media type: GitHub, Stripe, Elasticsearch, and a plain one.

Each responds like the system of its name, as far as versions are concerned. They know nothing of the gateway.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from tests.scenarios.fakes import Head, message
from tests.worked.fleet import WorkedServer

JSON: Final = "application/json; charset=utf-8"


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


class Orders(WorkedServer):
    """A plain API with whole numbers in `API-Version`; without one it serves its oldest."""

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        return (("API-Version-Min", self.versions[0]), ("API-Version-Max", self.versions[-1]))

    def answer(self, head: Head) -> bytes:
        oldest, newest = self.versions[0], self.versions[-1]
        if head.target == "/versions":
            return message(200, encoded({"oldest": int(oldest), "newest": int(newest)}))
        version = head.get("API-Version") or oldest
        if version not in self.versions:
            self.refuse(head)
            return message(400, b"{}", lines=self.lines)
        self.execute(version, head)
        return message(200, encoded({"orders": []}), lines=(("API-Version", version), *self.lines))


class GitHub(WorkedServer):
    """Dates. A request without a version always gets the first one, in any release."""

    first = "2022-11-28"

    def answer(self, head: Head) -> bytes:
        if head.target == "/versions":
            return message(200, encoded(list(self.versions)), JSON)
        version = head.get("X-GitHub-Api-Version") or self.first
        if version not in self.versions:
            self.refuse(head)
            return message(400, encoded({"message": "not a supported version"}), JSON)
        self.execute(version, head)
        lines = (("X-GitHub-Api-Version-Selected", version), ("X-RateLimit-Remaining", "4999"))
        return message(200, self._resource(head.target), JSON, lines)

    @staticmethod
    def _resource(target: str) -> bytes:
        return encoded({"login": "octocat", "id": 1, "url": target})


class Stripe(WorkedServer):
    """Named dates. A request without a version gets the default of the account."""

    default = "2023-10-16"

    def answer(self, head: Head) -> bytes:
        version = head.get("Stripe-Version") or self.default
        if version not in self.versions:
            self.refuse(head)
            return message(400, encoded({"error": {"type": "invalid_request_error"}}))
        self.execute(version, head)
        lines = (("Stripe-Version", version), ("Request-Id", "req_1"))
        return message(200, encoded({"object": "balance", "livemode": False}), lines=lines)


class MediaType(NamedTuple):
    """A media type as Elasticsearch reads it."""

    name: str
    version: int | None

    @classmethod
    def parse(cls, text: str | None) -> MediaType | None:
        """None without a media type, and for a list, in which Elasticsearch reads no version."""
        if text is None or "," in text or text.strip() == "*/*":
            return None
        found = re.search(r";\s*compatible-with=(\d+)", text)
        return cls(text.partition(";")[0].strip(), int(found[1]) if found else None)


class Elasticsearch(WorkedServer):
    """One release. It serves its own major version and the one before."""

    def __init__(self, release: str) -> None:
        super().__init__()
        self.upgrade(release)

    def upgrade(self, release: str) -> None:
        """Make it another release."""
        self.release, self.major = release, int(release.partition(".")[0])
        self.versions = (str(self.major - 1), str(self.major))

    def answer(self, head: Head) -> bytes:
        accept, content = (MediaType.parse(head.get(name)) for name in ("Accept", "Content-Type"))
        accepted = self.major if accept is None or accept.version is None else accept.version
        fault = None if str(accepted) in self.versions else f"Accept version {accepted}"
        if head.body and not fault:
            of_content = None if content is None else content.version
            of_accept = None if accept is None else accept.version
            if of_content != of_accept:
                fault = "A compatible version is required on both headers, and they must match"
        if fault:
            self.refuse(head)
            return message(400, encoded({"error": {"reason": fault}, "status": 400}), "application/json")
        self.execute(str(accepted), head)
        kind = accept.name if accept else "text/plain" if "/_cat" in head.target else "application/json"
        if accept is not None and accept.version is not None:
            kind += f";compatible-with={accept.version}"
        return message(200, self._resource(head), kind, (("X-Elastic-Product", "Elasticsearch"),))

    def _resource(self, head: Head) -> bytes:
        path = head.target.partition("?")[0]
        if path == "/_bulk":
            return encoded({"took": 1, "errors": False, "items": []})
        if path.endswith("/_search"):
            return encoded({"took": 1, "timed_out": False, "hits": {"hits": []}})
        if path.startswith("/_cat/"):
            return b"green open orders\n"
        if path != "/":
            return encoded({"_index": "orders", "_id": "1", "result": "created"})
        version = {
            "number": self.release,
            "minimum_wire_compatibility_version": f"{self.major - 1}.18.0",
            "minimum_index_compatibility_version": f"{self.major - 1}.0.0",
        }
        return encoded({"name": "node", "version": version, "tagline": "You Know, for Search"})
