"""How services write versions, and what the gateway promises about a request to each.

The promise: a request reaches only a server that serves its version. It has that version explicitly and is
executed at it. The client sees the version that it requested. Rules: values in, values out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.kit.messages import Message
from tests.real.launcher import Release
from tests.real.recorder import OWN_HEADER, STANDARD_HEADER, Exchange

EXACT = re.compile(r"[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class ServiceApi:
    """How a service writes versions, and how the gateway is configured for it.

    `dialect`: lines of the configuration. `default_version`: the version of a request without one.
    `unversioned_allowed`: whether the gateway may forward such a request unchanged. `documents`: paths of
    version documents, which clients and probes request without a version. `token`: sent by clients.
    """

    service: str
    dialect: tuple[str, ...]
    service_type: str
    default_version: str
    documents: frozenset[str]
    own_header: str | None = None
    token: str = "admin"
    unversioned_allowed: bool = False

    def versions(self, head: Message | None) -> list[str]:
        """Every version for this service in a head, one for each field."""
        if head is None:
            return []
        items = (item.strip().partition(" ") for item in (head.get(STANDARD_HEADER) or "").split(","))
        found = [version.strip() for name, _, version in items if name == self.service_type]
        if self.own_header is not None:
            found += head.every(self.own_header)
        return found

    def headers(self, version: str | None) -> dict[str, str]:
        fields = {} if version is None else {STANDARD_HEADER: f"{self.service_type} {version}"}
        return {"X-Auth-Token": self.token, "Accept": "application/json", **fields}

    def misdirected(self, exchange: Exchange, release: Release) -> str | None:
        """Why this request must not reach a server of this release in this form; None: it may."""
        versions = set(self.versions(exchange.request))
        if len(versions) > 1:
            return f"two versions in one request: {sorted(versions)}"
        if any(not release.serves(version) for version in versions):
            return f"this release serves {release.bottom} to {release.top}, and got {versions}"
        if exchange.path in self.documents:
            return None
        if not exchange.was_forwarded:
            return "neither a probe of the gateway nor a client's request"
        if not versions and not self.unversioned_allowed:
            return "no explicit version"
        if exchange.status == 406:
            return "refused by the server because of its version"
        served = set(self.versions(exchange.response))
        if served and served != (versions or {self.default_version}):
            return f"executed at {sorted(served)}, not at the version in the request"
        return None

    def wrong_response(self, exchange: Exchange, offer: tuple[str, str]) -> str | None:
        """What is wrong with the version in the response under this offer; None: nothing."""
        if exchange.path in self.documents or not exchange.succeeded:
            return None
        # The standard field takes precedence over the service's own, and its last item counts.
        requested = (self.versions(exchange.request) or [self.default_version])[0]
        due = offer[1] if requested == "latest" else requested
        served = self.versions(exchange.response)
        if exchange.status == 204 and not served:
            # Senlin's own responses without content have no version either.
            return None
        if EXACT.fullmatch(due) and set(served) != {due}:
            return f"requested {requested}, served {served}"
        return None


class IronicApi(ServiceApi):
    """Ironic negotiates the documents of `/v1`, too, and names its range in every response."""

    def headers(self, version: str | None) -> dict[str, str]:
        return {} if version is None else {OWN_HEADER: version}

    def misdirected(self, exchange: Exchange, release: Release) -> str | None:
        versions = set(self.versions(exchange.request))
        if not exchange.was_forwarded:
            is_probe = exchange.method == "GET" and exchange.path in ("/v1", "/v1/") and not versions
            return None if is_probe else "neither a probe of the gateway nor a client's request"
        if exchange.path == "/":
            unwanted = f"the documents on / must be requested without a version, not with {versions}"
            return unwanted if versions else None
        if exchange.requested is None:
            return "no explicit version"
        if len(versions) > 1:
            return f"two versions in one request: {sorted(versions)}"
        if not release.serves(exchange.requested):
            return f"this release serves {release.bottom} to {release.top}"
        if exchange.served is not None and exchange.served != exchange.requested:
            return "executed at another version than the one in the request"
        if exchange.status == 406 and exchange.served is None:
            return "refused by the server because of its version"
        return None

    def wrong_response(self, exchange: Exchange, offer: tuple[str, str]) -> str | None:
        if exchange.offered not in ((None, None), offer):
            return f"the offer is {offer}, the response has {exchange.offered}"
        if exchange.served is None or exchange.path == "/":
            return None
        requested = (self.versions(exchange.request) or [self.default_version])[0]
        due = offer[1] if requested.lower() == "latest" else requested
        if EXACT.fullmatch(due) and exchange.served != due:
            return f"requested {requested}, served {exchange.served}"
        return None


IRONIC = IronicApi(
    service="baremetal",
    dialect=("dialect: ironic",),
    service_type="baremetal",
    default_version="1.1",
    documents=frozenset(),
    own_header=OWN_HEADER,
)
