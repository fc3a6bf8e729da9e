"""The APIs that HAProxy can serve by a map, and a fleet of old and new members for each.

The requests are those of the differential test (`tests.differential`), as are the APIs. Nothing here sends or
reads a byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.differential.apis import APIS, Api, Header

SERVED: Final = "{}"
"""In a header of `Api.response`: the served version."""


@dataclass(frozen=True)
class Fleet:
    """An API, two old members and a new one. The lowest version of both is the same."""

    dialect: str
    api: Api
    lowest: str
    old: str
    """The highest version of old members."""
    new: str
    documents: tuple[str, ...] = ()
    """The paths of discovery documents, without a slash at the end."""

    def highest(self, member: str) -> str:
        return self.new if member == "new" else self.old

    def response_lines(self, member: str, version: str) -> list[str]:
        """The header lines with versions of this member, which served `version` (empty: none)."""
        lines = []
        for name, value in self.api.response.items():
            if SERVED in value:
                if version:
                    lines.append(f"{name}: {value.replace(SERVED, version)}")
            else:
                own = re.sub(rf"\b{re.escape(self.new)}$", self.highest(member), value)
                lines.append(f"{name}: {own}")
        return lines

    def service(
        self, policy: str, ports: Mapping[str, int], ceiling: str = "", *, ending: bool = False
    ) -> str:
        """The service in the configuration, with the members at these ports of loopback. `ending`: all below
        the highest version is deprecated, and what is below the highest of the old members has gone."""
        backends = ", ".join(
            f"{{name: {name}, url: 'http://127.0.0.1:{port}', "
            f"versions: '{self.lowest}-{self.highest(kind_of(name))}'}}"
            for name, port in ports.items()
        )
        limit = f", ceiling: '{ceiling}'" if ceiling else ""
        line = f"{{below: '{self.new}', since: 2026-01-15, link: 'https://docs.example/old'}}"
        if ending:
            limit += f", floor: '{self.old}'"
        lifecycle = f", lifecycle: {{deprecated: {line}}}, default_version: minimum" if ending else ""
        options = self.api.configuration.split(", operations:")[0]
        return (
            f"  {self.api.name}: {{{options}, match: {{host: {self.api.host}}}, "
            f"offer: {{policy: {policy}, stabilization: 0s{limit}}}{lifecycle}, backends: [{backends}]}}"
        )

    @property
    def version_headers(self) -> tuple[str, ...]:
        """In lower case: those of requests and of responses."""
        names = [
            *self.api.response,
            *(place.name for place in self.api.locations if isinstance(place, Header)),
        ]
        return tuple({name.lower() for name in names})


def kind_of(member: str) -> str:
    """`old` or `new`, of the name of a member."""
    return member.partition("-")[0]


MEMBERS: Final = ("old-1", "old-2", "new-1")

FLEETS: Final[Mapping[str, Fleet]] = {
    fleet.api.name: fleet
    for fleet in (
        Fleet("ironic", APIS["ironic"], "1.1", "1.58", "1.90", ("", "/v1")),
        Fleet("nova", APIS["nova"], "2.1", "2.53", "2.90", ("", "/v2.1")),
        Fleet("senlin", APIS["senlin"], "1.0", "1.5", "1.14", ("", "/v1")),
        Fleet("openstack", APIS["placement"], "1.0", "1.10", "1.39", ("",)),
        Fleet("openstack", APIS["manila"], "2.0", "2.45", "2.91", ("", "/v2")),
        Fleet("openstack", APIS["magnum"], "1.1", "1.7", "1.11", ("", "/v1")),
        Fleet("custom", APIS["header"], "1", "3", "9"),
    )
}
"""By the name of the service."""


def services(policy: str, ports: Mapping[str, Mapping[str, int]], *, ending: bool = False) -> str:
    """All services as YAML, below the key `services`. `ports`: by service and member."""
    return "\n".join(fleet.service(policy, ports[name], ending=ending) for name, fleet in FLEETS.items())
