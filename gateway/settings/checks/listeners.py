"""From `listen` in the file to the listeners: each with its address, its TLS, and what it reads before HTTP.

Which addresses exclude each other is in `document`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from gateway.keys.addresses import UNIX, Address, UnixAddress
from gateway.settings.checks.document import check_addresses
from gateway.settings.checks.tls import check_server_tls
from gateway.settings.model.document import Document
from gateway.settings.model.listener import Listener
from gateway.settings.values import Listen
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, child

WILDCARD_6 = "::"


def read_listeners(document: Document, root: MappingNode, findings: Findings) -> tuple[Listen, ...]:
    """Where clients are served."""
    addresses = check_addresses(document, root, findings)
    unix_trusted = UNIX in document.trusted_proxies
    if isinstance(document.listen, tuple) and not isinstance(document.listen, Address | UnixAddress):
        written: Sequence[Listener] = document.listen
    else:
        written = [Listener(address=document.listen)]
    node = child(root, "listen")
    return tuple(
        _read_listener(each, child(node, index), document, addresses, findings, unix_trusted=unix_trusted)
        for index, each in enumerate(written)
    )


def _read_listener(
    written: Listener,
    node: Node | None,
    document: Document,
    addresses: Sequence[Address | UnixAddress],
    findings: Findings,
    *,
    unix_trusted: bool,
) -> Listen:
    address, expects_proxy = written.address, written.proxy_protocol == "on"
    check_server_tls(written.tls, child(node, "tls"), findings)
    if isinstance(address, UnixAddress):
        _check_proxy_protocol(node, findings, trusts_somebody=unix_trusted or not expects_proxy, hint=UNIX)
        return Listen(
            *("", 0, address.path, written.mode),
            trusted=unix_trusted,
            proxy_protocol=expects_proxy,
            tls=written.tls,
        )
    networks = [each for each in document.trusted_proxies if each != UNIX]
    trusts_somebody = bool(networks) or findings.is_dropped("trusted_proxies") or not expects_proxy
    _check_proxy_protocol(
        node, findings, trusts_somebody=trusts_somebody, hint="the networks of the balancers"
    )
    if (mode := child(node, "mode")) is not None and not mode.broken:
        findings.add(mode, "contradiction", "only the socket of a unix: address has a mode", "remove it")
    admin = document.admin.listen
    others = [other for other in (*addresses, admin) if isinstance(other, Address) and other is not address]
    return Listen(
        address.host,
        address.port,
        dual_stack=address.host == WILDCARD_6
        and not any(other.port == address.port and _is_version_4(other.host) for other in others),
        proxy_protocol=expects_proxy,
        tls=written.tls,
    )


def _check_proxy_protocol(node: Node | None, findings: Findings, *, trusts_somebody: bool, hint: str) -> None:
    if not trusts_somebody:
        findings.add(
            child(node, "proxy_protocol"),
            "contradiction",
            "no peer of this listener is trusted, so no PROXY header would ever be read",
            f"add {hint} to trusted_proxies",
        )


def _is_version_4(host: str) -> bool:
    """Whether the host may have an IPv4 address. A name may."""
    try:
        return ip_address(host).version == 4
    except ValueError:
        return True
