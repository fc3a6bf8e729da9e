"""`clients`: rules that no request could match, and names that services use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from ipaddress import ip_network
from typing import Final

from gateway.core.clients import Client, Naming
from gateway.core.fleet.bridge import WARNED, Bridge
from gateway.core.fleet.service import Service
from gateway.settings.sections.listen import Listen
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, Scalar, SequenceNode, child

_ANY_ADDRESS: Final = Client("any", networks=(ip_network("0.0.0.0/0"),))


def check_clients(
    clients: Sequence[Client], listen: Sequence[Listen], root: MappingNode, findings: Findings
) -> None:
    """Report entries of `clients` without a condition, and those that no request can reach or match."""
    if findings.is_dropped("clients"):
        return  # an entry may have lost a condition
    asked = findings.is_dropped("listen") or any(each.tls and each.tls.client_ca for each in listen)
    for index, client in enumerate(clients):
        node = child(root, "clients", index)
        earlier = next((number for number in range(index) if clients[number].covers(client)), None)
        if not (client.products or client.header or client.networks or client.identities):
            hint = "add `user_agent`, `header`, `networks` or `certificate`"
            findings.bad_value(node, "the entry has no condition: it would name every client", hint)
        elif earlier is not None:
            line = findings.line_of(child(root, "clients", earlier) or root, node)
            message = f"the entry {clients[earlier].name!r} ({line}) matches all that this one matches"
            findings.contradiction(node, message, "the first match counts: write the narrower one first")
        elif client.certificate is not None and not client.identities:
            findings.bad_value(child(node, "certificate"), "no name is given", "add `subject` or `san`")
        elif client.identities and not asked:
            place = child(node, "certificate")
            message, hint = "no listener asks for certificates", "set `listen[].tls.client_ca`"
            findings.warn(place, "never-matches", message, hint)


def resolve_names(
    services: Sequence[Service], clients: Sequence[Client], root: MappingNode, findings: Findings
) -> tuple[Service, ...]:
    """The services with the rules that decide who has an own pace or a bridge; reports unknown names."""
    return tuple(
        _with_rules(service, clients, root, findings) if service.paces or service.bridges else service
        for service in services
    )


def _with_rules(
    service: Service, clients: Sequence[Client], root: MappingNode, findings: Findings
) -> Service:
    node = child(root, "services", service.name)
    for index, bridge in enumerate(service.bridges):
        _check_bridge(bridge, clients, child(node, "bridge", index), findings)
    used = {
        *_names_in(child(node, "offer", "for"), clients, findings),
        *_names_in(child(node, "bridge"), clients, findings),
    }
    last = max((index for index, client in enumerate(clients) if client.name in used), default=-1)
    rules = tuple(clients[: last + 1])  # the first match counts: earlier ones decide, too
    written = sha256(f"{service.written} {rules}".encode("utf-8", "surrogatepass")).hexdigest()
    return replace(service, naming=Naming(rules), written=written if service.written else "")


def _check_bridge(bridge: Bridge, clients: Sequence[Client], node: Node | None, findings: Findings) -> None:
    """Report a bridge for everybody, and one that has ended or soon will."""
    left, place = (bridge.until - datetime.now(UTC).date()).days, child(node, "until")
    if left < 0:
        message = "the day has passed: the versions that these clients ask for are refused"
        findings.warn(place, "passed", message, "write a later day, or remove the entry")
    elif left < WARNED:
        when = f"in {left + 1} days" if left else "tomorrow"
        message = f"{when} the versions that these clients ask for are refused"
        findings.warn(place, "ends-soon", message, "change the clients, or write a later day")
    if any(client.name in bridge.clients and client.covers(_ANY_ADDRESS) for client in clients):
        message = "one of these names is that of every client"
        findings.contradiction(child(node, "clients"), message, "name the few that cannot be changed")


def _names_in(entries: Node | None, clients: Sequence[Client], findings: Findings) -> set[str]:
    """The names of clients in all `entries` of a key; reports those that are unknown or repeated."""
    known = {client.name for client in clients}
    seen: dict[str, Node | None] = {}
    for entry in entries.items if isinstance(entries, SequenceNode) else ():
        names = child(entry, "clients")
        for item in names.items if isinstance(names, SequenceNode) else ():
            name = item.text if isinstance(item, Scalar) else ""
            if name not in known and not item.broken and not findings.is_dropped("clients"):
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "add an entry with this name to `clients`"
                findings.bad_value(item, "no entry of `clients` has this name", hint)
            elif name in seen:
                line = findings.line_of(seen[name] or item, item)
                findings.contradiction(item, f"this client is named already ({line})", "name it once")
            seen.setdefault(name, item)
    return set(seen)
