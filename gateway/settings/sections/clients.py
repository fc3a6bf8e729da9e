"""`clients`: rules that no request could match."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.clients import Client
from gateway.settings.sections.listen import Listen
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, child


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
