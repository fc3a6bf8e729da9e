"""Checks of the file as a whole: conflicting addresses, an exposed admin listener, contradicting limits, and
services that conflict with each other or with their dialect's rules.

One service by itself is in `services`. Each check reports everything that it finds and repairs nothing.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    OfferedVersions,
    Refusal,
    RequestedKind,
    RequestedVersion,
    VersionMatch,
)
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Service
from gateway.core.http.message import HOP_BY_HOP, UNLISTABLE, normalize_pattern
from gateway.core.http.request_ids import PLAIN_IDS
from gateway.keys.addresses import UNIX, Address, UnixAddress, read_network
from gateway.settings.checks.headers import read_by
from gateway.settings.checks.sources import PLACES
from gateway.settings.model.document import Document
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Node, SequenceNode, child

LOOPBACK_NAME: Final = "localhost"
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_OF_THE_MESSAGE: Final = HOP_BY_HOP | UNLISTABLE | {"expect", "via"}
"""Headers (normalized names) that the gateway itself reads from every peer or removes."""


def check_addresses(
    document: Document, root: MappingNode, findings: Findings
) -> tuple[Address | UnixAddress, ...]:
    """The addresses to listen on. Two that cannot be bound at the same time are an error."""
    node = child(root, "listen")
    if isinstance(document.listen, Address | UnixAddress):
        listen: tuple[Address | UnixAddress, ...] = (document.listen,)
        nodes: list[Node | None] = [node]
    else:
        listen = tuple(listener.address for listener in document.listen)
        count = len(node.items) if isinstance(node, SequenceNode) else 0
        nodes = [child(node, index, "address") for index in range(count)]
    if not listen:
        findings.add(node, "bad-value", "the list is empty: no client could connect", "add an address")
    taken = list(zip(listen, nodes, strict=True))
    for index, (address, address_node) in enumerate(taken):
        for other, other_node in taken[:index]:
            if _collide(address, other):
                message = f"this address conflicts with the one{_in_line(other_node)}"
                other_place = "path" if isinstance(address, UnixAddress) else "port"
                hint = f"give one of them another {other_place}"
                findings.add(address_node, "address-taken", message, hint)
                break
    _check_admin_addresses(document, root, taken, findings)
    return listen


def _in_line(node: Node | None) -> str:
    return f" in line {node.position.line}" if node else ""


def _check_admin_addresses(
    document: Document,
    root: MappingNode,
    taken: list[tuple[Address | UnixAddress, Node | None]],
    findings: Findings,
) -> None:
    """The addresses of the admin listener against the others. When it is the default, which is not in the
    file, the problem is shown at the other address."""
    admin, node = document.admin, child(root, "admin", "listen")
    metrics_node = child(root, "admin", "metrics_listen")
    own: list[tuple[Address | UnixAddress, Node | None]] = []
    if not findings.is_dropped("admin", "listen"):
        _check_admin_address(admin.listen, node, taken, findings)
        own = [(admin.listen, node)]
    if admin.metrics_listen is not None:
        _check_admin_address(admin.metrics_listen, metrics_node, [*taken, *own], findings)


def _check_admin_address(
    address: Address,
    node: Node | None,
    taken: list[tuple[Address | UnixAddress, Node | None]],
    findings: Findings,
) -> None:
    for other, other_node in taken:
        if _collide(address, other):
            if node is None:
                message = f"this address conflicts with the default of admin.listen, {address}"
            elif other_node is None:
                message = f"this address conflicts with the default of admin.listen, {other}"
            else:
                message = f"this address conflicts with the one{_in_line(other_node)}"
            findings.add(node or other_node, "address-taken", message, "give one of them another port")
            return


def _collide(one: Address | UnixAddress, other: Address | UnixAddress) -> bool:
    if isinstance(one, UnixAddress) or isinstance(other, UnixAddress):
        return one == other
    if one.port != other.port or one.port == 0:
        return False
    for mine in _addresses(one.host):
        for theirs in _addresses(other.host):
            if mine == theirs:
                return True
            # An IPv6 wildcard does not include IPv4 where another listener has that port (`listeners`).
            if (":" in mine) == (":" in theirs) and {mine, theirs} & WILDCARDS:
                return True
    return False


def _addresses(host: str) -> tuple[str, ...]:
    return ("127.0.0.1", "::1") if host == LOOPBACK_NAME else (host,)


def check_limits(limits: Limits, root: MappingNode, findings: Findings) -> None:
    """Limits that contradict each other. The problem is shown at the limit that the file sets."""
    for small, large, why in (
        ("line", "head", "a line is a part of the head"),
        ("replay_body", "body", "a larger body is never accepted"),
    ):
        dropped = findings.is_dropped("limits", small) or findings.is_dropped("limits", large)
        if not dropped and getattr(limits, small) > getattr(limits, large):
            findings.add(
                child(root, "limits", small) or child(root, "limits", large),
                "contradiction",
                f"limits.{small} is larger than limits.{large}",
                why,
            )


def check_trust(root: MappingNode, findings: Findings) -> None:
    """Trusting every network is allowed, and nearly always a mistake."""
    node = child(root, "trusted_proxies")
    for item in node.items if isinstance(node, SequenceNode) else ():
        text = getattr(item, "text", "")
        if not item.broken and text != UNIX and read_network(text).prefixlen == 0:
            findings.add(
                item,
                "trusts-everyone",
                "every client is trusted and can claim any origin",
                "name the networks of your load balancers",
                severity=Severity.WARNING,
            )


def check_untrusted_headers(
    document: Document, services: tuple[Service, ...], root: MappingNode, findings: Findings
) -> None:
    """A header that the gateway or a dialect needs from every peer cannot be dropped. The default list has no
    effect on such headers, so only a list in the file is checked."""
    node = child(root, "untrusted_headers")
    items = node.items if isinstance(node, SequenceNode) else ()
    for item in items:
        text = getattr(item, "text", "")
        if item.broken or not text:
            continue
        pattern = normalize_pattern(text)
        if _covers(pattern, _OF_THE_MESSAGE):
            findings.add(
                item,
                "contradiction",
                "this would drop a header of the connection or the framing, which the gateway handles",
                "name the headers one by one" if text.endswith("*") else "remove it from the list",
            )
            continue
        for service in services:
            if name := _covers(pattern, read_by(service.dialect)) or _exactly(pattern):
                findings.add(
                    item,
                    "contradiction",
                    f"service {service.name!r} reads the header {name!r}, which this would drop",
                    "name the headers one by one" if text.endswith("*") else "remove it from the list",
                )
                break


def _exactly(pattern: str) -> str:
    """A request id is taken from everybody. A pattern with `*` may include it, and has no effect on it."""
    return pattern if pattern == PLAIN_IDS.normalized_header else ""


def _covers(pattern: str, names: frozenset[str]) -> str:
    """The first of these names that a normalized pattern includes; empty if none."""
    beginning = pattern.removesuffix("*")
    if beginning == pattern:
        return pattern if pattern in names else ""
    return next((name for name in sorted(names) if name.startswith(beginning)), "")


def check_matches(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """No request may belong to two services."""
    seen: dict[tuple[str | None, str], str] = {}
    for service in services:
        if findings.is_dropped("services", service.name, "match"):
            continue
        for host in service.match.hosts or (None,):
            other = seen.setdefault((host, service.match.path), service.name)
            if other == service.name:
                continue
            node = _match_node(root, service, host)
            first = _match_node(root, next(one for one in services if one.name == other), host)
            findings.add(
                node,
                "duplicate-match",
                f"services {other!r} and {service.name!r} match the same requests"
                + (f" in {findings.line_of(first, node)}" if first else ""),
                "give one of them another match.path or match.host",
            )


def check_default_version(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """A default version that can never be on offer would refuse every request without a version."""
    for service in services:
        dialect, version = service.dialect, service.effective_default_version.constant
        node = child(root, "services", service.name)
        place = child(node, "default_version")
        if version is None or service.default_version is None:
            continue  # the dialect's own constant is not in the file
        earlier = dialect.version_match is VersionMatch.NEAREST_EARLIER
        if service.ceiling is not None and version > service.ceiling and not earlier:
            findings.add(
                place,
                "contradiction",
                f"the ceiling is {dialect.scheme.format(service.ceiling)}: requests without a version would "
                f"all be refused",
                "lower the default version or raise the ceiling",
            )
        served = [backend.declared for backend in service.backends if backend.declared is not None]
        if not served or len(served) < len(service.backends) or service.sources:
            continue  # a backend that is probed may serve any version
        declared = reduce(or_, served)
        if isinstance(
            negotiate(
                RequestedVersion(RequestedKind.NONE),
                OfferedVersions(declared),
                service.effective_default_version,
                dialect.version_match,
            ),
            Refusal,
        ):
            findings.add(
                place,
                "contradiction",
                f"the declared versions are {declared.format(dialect.scheme)}: requests without a version "
                f"would all be refused",
                "write one of these versions, minimum or maximum",
            )


def check_option_paths(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Paths in a dialect's options start after `match.path`, even where backends receive that prefix. A path
    that repeats the prefix would never match, and its requests would have no version."""
    for service in services:
        prefix, rules = service.match.prefix, service.dialect.configuration_rules
        options = child(root, "services", service.name, service.dialect.name)
        for at, path in rules.option_paths if prefix else ():
            if path == prefix or path.startswith(prefix + "/"):
                findings.add(
                    child(options, *at),
                    "repeated-prefix",
                    "this path repeats match.path, which is not part of it",
                    "remove the prefix; with strip_prefix: false backends still receive it",
                    severity=Severity.WARNING,
                )


def check_option_warnings(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """What a dialect says about its options that are allowed and will mislead somebody."""
    for service in services:
        options = child(root, "services", service.name, service.dialect.name)
        for at, message, hint in service.dialect.configuration_rules.warnings:
            node = next((node for end in range(len(at), -1, -1) if (node := child(options, *at[:end]))), None)
            findings.add(node, "misleading", message, hint, severity=Severity.WARNING)


def check_declared(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Where backends cannot be probed, each needs declared versions."""
    for service in services:
        if service.dialect.configuration_rules.can_be_probed:
            continue
        backends = child(root, "services", service.name, "backends")
        for item in backends.items if isinstance(backends, SequenceNode) else ():
            if child(item, "versions") is None:
                findings.add(
                    next((place for key in PLACES if (place := child(item, key)) is not None), item),
                    "missing-key",
                    "nothing says which versions this backend serves",
                    "add `versions: ...`, or configure in the dialect's options where its servers say it",
                )


def check_signed_paths(services: tuple[Service, ...], root: MappingNode, findings: Findings) -> None:
    """Where clients sign the path, backends must receive exactly the path that was signed."""
    for service in services:
        if not service.dialect.configuration_rules.path_is_signed:
            continue
        node = child(root, "services", service.name)
        if service.match.strip_prefix and service.match.prefix:
            findings.add(
                child(node, "match", "strip_prefix") or child(node, "match", "path"),
                "contradiction",
                "clients sign the path: without its prefix every signature would be wrong",
                "set match.strip_prefix: false, or match by host",
            )
        own, sources = iter(service.backends), iter(service.sources)
        items = child(node, "backends")
        for item in items.items if isinstance(items, SequenceNode) else ():
            url = child(item, "url")
            place = url or child(item, "dns") or child(item, "srv")
            backend = next(own, None) if url is not None else None
            source = next(sources, None) if url is None else None
            if not (backend.path if backend is not None else source is not None and source.path):
                continue
            without = "http://NAME" if backend is None else f"http://{backend.authority}"
            findings.add(
                place,
                "contradiction",
                "clients sign the path: with a base path every signature would be wrong",
                f"end the URL after the port: {without}",
            )


def _match_node(root: MappingNode, service: Service, host: str | None) -> Node | None:
    """The node that says that a service matches `host`, the most specific that there is."""
    match = child(root, "services", service.name, "match")
    hosts = child(match, "host")
    if isinstance(hosts, SequenceNode) and len(hosts.items) == len(service.match.hosts) and host is not None:
        return hosts.items[service.match.hosts.index(host)]
    if node := child(match, "path") or hosts:
        return node
    services = child(root, "services")
    return services.entries[service.name].key if isinstance(services, MappingNode) else None
