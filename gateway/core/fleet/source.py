"""Sources of backends that come and go, and the rule for backends that they no longer list.

A source is a value of the configuration: a name to look up, or a file. It answers with a list of backends. By
`after_answer`, backends that are missing from the list leave slowly, so that neither the churn of pods nor a
source that is wrong for a while moves an offer or takes the backends away. No lookup, no clock and no file
here: those are `controlplane.discovery`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple, final

from gateway.core.fleet.admission import Network
from gateway.core.fleet.backend import Backend, BackendTls, Freshness, Member

MAX_BACKENDS: Final = 1000
"""Most backends of one source, leaving ones included: a list may have any number, and each is probed."""

MAX_WEIGHT: Final = 1000


_NO_PLACE: Final = Backend("", "", 0)


class SourceKind(StrEnum):
    """Kind of source from which a service's backends are discovered."""

    DNS = "dns"
    """Source: the addresses of a DNS name, A and AAAA."""
    SRV = "srv"
    """Source: the SRV records of a DNS name."""
    FILE = "file"
    """Source: a file in the form of Prometheus' file_sd."""


class Address(NamedTuple):
    """Backend in a source's list, with the fields that its source gives."""

    host: str
    """Host of the listed backend: a name in lower case, or an IP address without brackets."""
    port: int
    weight: int | None = None
    """Weight of the backend; None: the one in the configuration."""
    backup: bool = False
    path: str | None = None
    """Base path of the backend without a trailing slash; None: the one in the configuration."""
    tls: bool | None = None
    """Whether the gateway uses TLS to the backend; None: as configured."""

    @property
    def name(self) -> str:
        """Name of the backend: `host:port`, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Source from which a service's backends are discovered, as configured."""

    kind: SourceKind
    text: str
    """URL of the source in the configuration, or the path of its file as it is opened."""
    name: str = ""
    port: int = 0
    path: str = ""
    """Base path of the source's backends, without a trailing slash."""
    tls: BackendTls | None = None
    """TLS to the source's backends; without `server_name`: each one's host. A file may say it for each."""
    leave_grace: float = 300.0
    """Seconds for which a leaving backend counts with its last advertisement."""
    networks: tuple[Network, ...] = ()
    """Networks in which the source's backends must be; empty: any but special ones (`why_refused`)."""
    template: Backend = _NO_PLACE

    @property
    def key(self) -> str:
        """Key of the source, unique in its service and unchanged by reloads: `dns http://api.svc:6385`."""
        return f"{self.kind} {self.text}"

    def backend(self, address: Address) -> Backend:
        """The backend at an address that this source has listed."""
        template, tls = self.template, self.tls
        if address.tls is False or (address.tls is None and self.kind is SourceKind.FILE):
            tls = None
        elif address.tls or tls is not None:
            tls = tls or BackendTls("")
            tls = tls if tls.server_name else replace(tls, server_name=address.host)
        return replace(
            template,
            name=address.name,
            host=address.host,
            port=address.port,
            path=self.path if address.path is None else address.path,
            weight=template.weight if address.weight is None else address.weight,
            backup=template.backup or address.backup,
            tls=tls,
            source=self.key,
            networks=self.networks,
        )


@final
class Membership(NamedTuple):
    """Result of a source's answer: its backends from now on, and what of the answer was not followed."""

    backends: tuple[Backend, ...]
    """The source's backends in a stable order: those that were there before keep their places."""
    unlisted: tuple[str, ...] = ()
    """Names of backends that are not listed and stay, because half of the others are leaving already."""
    refused: int = 0
    """Number of new backends that were not taken, because there are `MAX_BACKENDS`."""


def after_answer(
    source: Source,
    before: Sequence[Backend],
    listed: Sequence[Address],
    known: Mapping[str, Member],
    now: float,
    taken: Collection[str] = (),
) -> Membership:
    """The backends of `source` after it has listed these. `before`: its backends until now; `known`: members
    by name; `taken`: names that belong to others.

    - An empty list removes nobody. A backend that is leaving and is listed again stays.
    - A backend that never advertised counts for nothing, and goes at once.
    - Of the others, at most half are leaving at the same time; those that are down go first. A list of
      newcomers that do not answer drives out few.
    """
    named = {address.name: source.backend(address) for address in listed if address.name not in taken}
    staying = after_time(before, now, taken)
    if not named:
        return Membership(staying)
    heard = {backend.name for backend in staying if _is_heard(backend, known)}
    missing = [each for each in staying if each.name not in named and each.name in heard and not each.leaving]
    leaving = sum(1 for each in staying if each.leaving and each.name not in named)
    room = max(0, len(heard) // 2 - leaving)
    missing.sort(key=lambda backend: not _is_down(known[backend.name]))
    gone = {each.name for each in missing[:room]}
    found: dict[str, Backend] = {}
    for backend in staying:
        if backend.name in named:
            found[backend.name] = named[backend.name]
        elif backend.name in gone:
            found[backend.name] = replace(backend, leaves_at=now + source.leave_grace)
        elif backend.name in heard:
            found[backend.name] = backend
    newcomers = [backend for name, backend in named.items() if name not in found]
    free = max(0, MAX_BACKENDS - len(found))
    found.update((backend.name, backend) for backend in newcomers[:free])
    unlisted = tuple(each.name for each in missing[room:])
    return Membership(after_time(found.values(), now, ()), unlisted, max(0, len(newcomers) - free))


def after_time(backends: Iterable[Backend], now: float, taken: Collection[str]) -> tuple[Backend, ...]:
    """The discovered backends without those whose time is over at `now`, or whose names are `taken`."""
    return tuple(
        each
        for each in backends
        if each.name not in taken and (each.leaves_at is None or each.leaves_at > now)
    )


def _is_heard(backend: Backend, known: Mapping[str, Member]) -> bool:
    """Whether the backend's last advertisement counts for the offer."""
    member = known.get(backend.name)
    return member is not None and member.advertisement is not None and member.backend.url == backend.url


def _is_down(member: Member) -> bool:
    return member.freshness is Freshness.DOWN or member.connect_failed


def why_refused(host: str, networks: Sequence[Network] | None) -> str | None:
    """Reason why a backend at `host` is refused, as part of a sentence; None: it is accepted, or `host` is a
    name. `networks`: those of its source, which decide alone; empty: it has none, and special addresses are
    refused; None: the configuration names the backend itself."""
    if networks is None:
        return None
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if networks:
        # One with a zone is in no network of another address.
        return None if any(address in network for network in networks) else "it is in none of its `networks`"
    kinds = (
        ("a link-local", address.is_link_local),
        ("a multicast", address.is_multicast),
        ("an unspecified", address.is_unspecified),
    )
    kind = next((name for name, applies in kinds if applies), None)
    return None if kind is None else f"it is {kind} address, which only `networks` of the source can allow"
