"""What concerns the file as a whole: addresses that collide, an admin listener in the open, limits that
contradict.

Services are `services`'. Each check says everything it finds; nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from ipaddress import ip_address, ip_network
from operator import or_
from typing import Final

from gateway.core.dialect import Ask, AskKind, Bounds, Match, Refusal
from gateway.core.negotiation import settle
from gateway.core.service import Service
from gateway.settings.addresses import Address
from gateway.settings.model import Document, Limits
from gateway.settings.problem import Severity
from gateway.settings.shape import Findings
from gateway.settings.yaml_tree import MappingNode, Node, SequenceNode, child

LOOPBACK_NAME: Final = "localhost"
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104


def check_addresses(document: Document, root: MappingNode, findings: Findings) -> tuple[Address, ...]:
    """The addresses to listen on. Two that the system would not give out together are an error."""
    node = child(root, "listen")
    if isinstance(document.listen, Address):
        listen: tuple[Address, ...] = (document.listen,)
        places: list[Node | None] = [node]
    else:
        listen = tuple(each.address for each in document.listen)
        count = len(node.items) if isinstance(node, SequenceNode) else 0
        places = [child(node, index, "address") for index in range(count)]
    if not listen:
        findings.add(node, "bad-value", "the list is empty: nobody could reach the gateway", "add an address")
    taken = list(zip(listen, places, strict=True))
    for index, (address, place) in enumerate(taken):
        for other, other_place in taken[:index]:
            if _collide(address, other):
                line = f" in line {other_place.mark.line}" if other_place else ""
                message = f"this and the address{line} cannot both be listened on"
                findings.add(place, "address-taken", message, "give one of them another port")
                break
    _check_admin_address(document, root, taken, findings)
    return listen


def _check_admin_address(
    document: Document, root: MappingNode, taken: list[tuple[Address, Node | None]], findings: Findings
) -> None:
    """The admin listener may have its default address, which stands nowhere: then the other one is shown."""
    if findings.doubtful("admin", "listen"):
        return
    node = child(root, "admin", "listen")
    for other, place in taken:
        if _collide(document.admin.listen, other):
            line = f" in line {place.mark.line}" if node and place else ""
            message = (
                f"admin.listen and the address{line} cannot both be listened on"
                if node
                else f"the admin listener is at this address, too: {document.admin.listen} is its default"
            )
            findings.add(node or place, "address-taken", message, "give one of them another port")
            return


def _collide(one: Address, other: Address) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    for mine in _addresses(one.host):
        for theirs in _addresses(other.host):
            if mine == theirs:
                return True
            # An IPv6 wildcard leaves IPv4 alone: asyncio sets IPV6_V6ONLY.
            if (":" in mine) == (":" in theirs) and {mine, theirs} & WILDCARDS:
                return True
    return False


def _addresses(host: str) -> tuple[str, ...]:
    return ("127.0.0.1", "::1") if host == LOOPBACK_NAME else (host,)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may mean anything."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK_NAME


def check_admin(document: Document, root: MappingNode, findings: Findings) -> None:
    """Whoever reaches the admin listener can change what is offered."""
    if findings.doubtful("admin", "token") or document.admin.token is not None:
        return
    if not is_loopback(document.admin.listen.host):
        findings.add(
            child(root, "admin", "listen"),
            "admin-exposed",
            "other machines could reach the admin listener without a token",
            "set admin.token: ${SKEWGATE_ADMIN_TOKEN}, or listen on 127.0.0.1",
        )


def check_limits(limits: Limits, root: MappingNode, findings: Findings) -> None:
    """Limits that contradict each other. The one that was written is shown."""
    for small, large, why in (
        ("line", "head", "a line is a part of the head"),
        ("replay_body", "body", "a larger body is never accepted"),
    ):
        doubtful = findings.doubtful("limits", small) or findings.doubtful("limits", large)
        if not doubtful and getattr(limits, small) > getattr(limits, large):
            findings.add(
                child(root, "limits", small) or child(root, "limits", large),
                "contradiction",
                f"limits.{small} is more than limits.{large}",
                why,
            )


def check_trust(root: MappingNode, findings: Findings) -> None:
    """Believing everybody is allowed, and nearly always a mistake."""
    node = child(root, "trusted_proxies")
    for item in node.items if isinstance(node, SequenceNode) else ():
        text = getattr(item, "text", "")
        if not item.broken and ip_network(text).prefixlen == 0:
            findings.add(
                item,
                "trusts-everyone",
                "any client can claim any origin",
                "name the networks of your load balancers",
                severity=Severity.WARNING,
            )


def check_matches(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """No request may belong to two services."""
    seen: dict[tuple[str | None, str], str] = {}
    for service in services:
        if findings.doubtful("services", service.name, "match"):
            continue
        match = service.match.host, service.match.path
        if match not in seen:
            seen[match] = service.name
            continue
        findings.add(
            next(_match_places(root, service.name)),
            "duplicate-match",
            f"services {seen[match]!r} and {service.name!r} match the same requests",
            "give one of them another match.path or match.host",
        )


def check_silence(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """What silence stands for must be able to be on offer, or requests without a version would all be
    refused."""
    for service in services:
        dialect, version = service.dialect, service.silence_rule.constant
        node = child(root, "services", service.name)
        place = child(node, "default_version") or child(node, dialect.name, *dialect.silence_option)
        if version is None or not (service.silence or dialect.silence_option):
            continue  # the dialect's own word: nobody wrote it
        earlier = dialect.match is Match.NEAREST_EARLIER
        if service.ceiling is not None and version > service.ceiling and not earlier:
            findings.add(
                place,
                "contradiction",
                f"the ceiling is {dialect.scheme.format(service.ceiling)}: requests without a version would "
                f"all be refused",
                "lower the one or raise the other",
            )
        served = [each.declared for each in service.backends if each.declared is not None]
        if not served or len(served) < len(service.backends):
            continue  # who is asked may serve anything
        declared = reduce(or_, served)
        if isinstance(
            settle(Ask(AskKind.SILENT), Bounds(declared), service.silence_rule, dialect.match), Refusal
        ):
            findings.add(
                place,
                "contradiction",
                f"the declared versions are {declared.format(dialect.scheme)}: requests without a version "
                f"would all be refused",
                "write one of them, or minimum or maximum",
            )


def check_own_paths(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Paths in a dialect's options begin behind `match.path`, also where backends see that: one that repeats
    it would never be found, and its requests would go without a version."""
    for service in services:
        prefix, dialect = service.match.prefix, service.dialect
        options = child(root, "services", service.name, dialect.name)
        for at, path in dialect.own_paths if prefix else ():
            if path == prefix or path.startswith(prefix + "/"):
                findings.add(
                    child(options, *at),
                    "repeated-prefix",
                    "this repeats match.path, which is no part of it",
                    "write what follows; with strip_prefix: false backends see both all the same",
                    severity=Severity.WARNING,
                )


def check_declared(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Where nothing tells what backends serve, each must have it declared."""
    for service in services:
        backends = child(root, "services", service.name, "backends")
        for index, backend in enumerate(service.backends if not service.dialect.can_be_asked else ()):
            if backend.declared is None and child(backends, index, "versions") is None:
                findings.add(
                    child(backends, index, "url") or child(backends, index),
                    "missing-key",
                    "nothing tells which versions this backend serves",
                    "add `versions: ...`, or say under the dialect's options where its servers tell it",
                )


def check_signed_paths(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Where clients sign the path, backends must see the one that was signed."""
    for service in services:
        if not service.dialect.path_is_signed:
            continue
        node = child(root, "services", service.name)
        if service.match.strip_prefix and service.match.prefix:
            findings.add(
                child(node, "match", "strip_prefix") or child(node, "match", "path"),
                "contradiction",
                "clients sign the path: without its prefix every signature would be wrong",
                "set match.strip_prefix: false, or match by host",
            )
        for index, backend in enumerate(service.backends):
            if backend.path:
                findings.add(
                    child(node, "backends", index, "url"),
                    "contradiction",
                    "clients sign the path: with this before it every signature would be wrong",
                    f"the URL must end after the port: {backend.authority}",
                )


def _match_places(root: MappingNode, name: str) -> Iterator[Node | None]:
    """Where a service says what it matches: the most telling place first."""
    service = child(root, "services", name)
    for path in (("match", "path"), ("match", "host")):
        if place := child(service, *path):
            yield place
    services = child(root, "services")
    yield services.entries[name].key if isinstance(services, MappingNode) else None
