"""`listen`: the listeners for clients, as they are written and as the data plane uses them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, TypeAlias, final

from gateway.keys.addresses import CLIENT_ADDRESS, UNIX, Address, UnixAddress, addresses_of
from gateway.keys.kinds import Text, reject
from gateway.keys.texts import one_of
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.tls import check_server_tls
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, child
from gateway.tls.values import LISTENER_TLS, CertificateFiles, ServerTls

ClientAddress: TypeAlias = Address | UnixAddress
Taken: TypeAlias = tuple[ClientAddress, Node | None]
"""An address on which the gateway listens, with its node in the file."""

WILDCARD_6: Final = "::"
WILDCARDS: Final = frozenset({"0.0.0.0", WILDCARD_6})  # noqa: S104
_MODE: Final = "0?[0-7]{3}"
_SOME_TLS: Final = ServerTls((CertificateFiles("", ""),))


def read_mode(text: str) -> int:
    """Read the mode of a Unix socket, which is written in octal digits."""
    if re.fullmatch(_MODE, text, re.ASCII) is None:
        reject("not a valid mode of a file", 'write octal digits, such as "0660"')
    return int(text, 8)


MODE: Final = Text(read_mode, {"type": ["string", "integer"], "pattern": f"^{_MODE}$"})


@final
@dataclass(frozen=True, slots=True)
class WrittenListener:
    """An address on which clients are served."""

    address: ClientAddress = field(
        metadata=CLIENT_ADDRESS.required(
            "HOST:PORT; IPv6 as [HOST]:PORT; unix:PATH.",
            reason="There is no useful default.",
            example="0.0.0.0:8080",
        )
    )
    tls: ServerTls | None = LISTENER_TLS.key(
        None,
        "TLS on this listener.",
        reason="It needs a certificate.",
        example={"certificates": [{"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}]},
    )
    proxy_protocol: str = one_of("off", "on").key(
        "off",
        "Whether peers in `trusted_proxies` begin each connection with a PROXY header, version 1 or 2. A "
        "connection from them without one is refused. Other peers are served without one.",
        reason="It cannot be detected: a client could send one.",
        example="on",
    )
    mode: int = MODE.key(
        "0660",
        "The mode of a Unix socket. Users that may write to it may connect.",
        reason="Only the user and the group of the gateway may connect.",
        example="0600",
    )


@final
@dataclass(frozen=True, slots=True)
class Listen:
    """A listener for clients. `host` is a name or an IP address without brackets. Port 0: any free port."""

    host: str
    port: int
    path: str = ""
    """Path of a Unix socket, which has neither host nor port."""
    mode: int = 0o660
    dual_stack: bool = False
    """Whether a listener on `[::]` takes IPv4 connections, too."""
    trusted: bool = False
    """Whether every client of this Unix socket is a trusted proxy."""
    proxy_protocol: bool = False
    """Whether connections of trusted peers begin with a PROXY header."""
    tls: ServerTls | None = None

    def __str__(self) -> str:
        return str(UnixAddress(self.path) if self.path else Address(self.host, self.port))

    @property
    def fixed(self) -> Listen:
        """The part of a listener's settings that a reload cannot change: all but the certificates."""
        if self.tls is None:
            return self
        return replace(self, tls=replace(_SOME_TLS, forward_client_cert=self.tls.forward_client_cert))


def read_listeners(
    written: ClientAddress | tuple[WrittenListener, ...],
    admin: Admin,
    trusted: Sequence[IPv4Network | IPv6Network | str],
    root: MappingNode,
    findings: Findings,
) -> tuple[Listen, ...]:
    """The listeners for clients that the file describes. `trusted`: the value of `trusted_proxies`."""
    node = child(root, "listen")
    if isinstance(written, Address | UnixAddress):
        listeners: tuple[WrittenListener, ...] = (WrittenListener(address=written),)
        places = [node]
    else:
        listeners = written
        places = [child(node, index, "address") for index in range(len(listeners))]
    taken = [(each.address, place) for each, place in zip(listeners, places, strict=True)]
    if not taken:
        findings.bad_value(node, "the list is empty: no client could connect", "add an address")
    own = [] if findings.is_dropped("admin", "listen") else [(admin.listen, child(root, "admin", "listen"))]
    if admin.metrics_listen is not None:
        own.append((admin.metrics_listen, child(root, "admin", "metrics_listen")))
    _check_addresses([*taken, *own], findings)
    reader = _ListenerReader(trusted, [*(address for address, _ in taken), admin.listen], findings)
    return tuple(reader.read(each, child(node, index)) for index, each in enumerate(listeners))


@final
@dataclass(frozen=True, slots=True)
class _ListenerReader:
    trusted: Sequence[IPv4Network | IPv6Network | str]
    addresses: Sequence[ClientAddress]
    """All addresses on which the gateway listens for clients, and that of the admin listener."""
    findings: Findings

    def read(self, written: WrittenListener, node: Node | None) -> Listen:
        """The listener that an item of `listen` describes. `node`: its mapping, if the file has one."""
        check_server_tls(written.tls, child(node, "tls"), self.findings)
        address, expects_proxy = written.address, written.proxy_protocol == "on"
        if expects_proxy:
            self._check_proxy_protocol(address, node)
        if isinstance(address, UnixAddress):
            return Listen(
                host="",
                port=0,
                path=address.path,
                mode=written.mode,
                trusted=UNIX in self.trusted,
                proxy_protocol=expects_proxy,
                tls=written.tls,
            )
        if (mode := child(node, "mode")) is not None:
            self.findings.contradiction(mode, "only the socket of a unix: address has a mode", "remove it")
        return Listen(
            address.host,
            address.port,
            dual_stack=address.host == WILDCARD_6 and not self._has_version_4(address),
            proxy_protocol=expects_proxy,
            tls=written.tls,
        )

    def _check_proxy_protocol(self, address: ClientAddress, node: Node | None) -> None:
        """Report a listener that expects PROXY headers and could read none, because it trusts no peer."""
        if isinstance(address, UnixAddress):
            trusts_somebody, missing = UNIX in self.trusted, UNIX
        else:
            networks = any(each != UNIX for each in self.trusted)
            trusts_somebody = networks or self.findings.is_dropped("trusted_proxies")
            missing = "the networks of the balancers"
        if not trusts_somebody:
            message = "no peer of this listener is trusted, so no PROXY header would ever be read"
            hint = f"add {missing} to trusted_proxies"
            self.findings.contradiction(child(node, "proxy_protocol"), message, hint)

    def _has_version_4(self, address: Address) -> bool:
        """Whether another listener may have an IPv4 address at this port. A host name may have one."""
        others = (each for each in self.addresses if isinstance(each, Address) and each is not address)
        return any(other.port == address.port and _is_version_4(other.host) for other in others)


def _is_version_4(host: str) -> bool:
    try:
        return ip_address(host).version == 4
    except ValueError:
        return True


def _check_addresses(taken: Sequence[Taken], findings: Findings) -> None:
    """Report two listen addresses that conflict, at the second, or at the one that the file has."""
    for index, (address, node) in enumerate(taken):
        found = next((other for other in taken[:index] if _collide(address, other[0])), None)
        if found is None:
            continue
        other, other_node = found
        if node is None or other_node is None:
            default = address if node is None else other
            message = f"this address conflicts with the default of admin.listen, {default}"
        else:
            message = f"this address conflicts with the one in line {other_node.position.line}"
        what = "path" if isinstance(address, UnixAddress) else "port"
        findings.add(node or other_node, "address-taken", message, f"give one of them another {what}")


def _collide(one: ClientAddress, other: ClientAddress) -> bool:
    if isinstance(one, UnixAddress) or isinstance(other, UnixAddress):
        return one == other
    if one.port != other.port or one.port == 0:
        return False
    for mine in addresses_of(one.host):
        for theirs in addresses_of(other.host):
            if mine == theirs:
                return True
            # An IPv6 wildcard does not include IPv4 where another listener has that port.
            if (":" in mine) == (":" in theirs) and {mine, theirs} & WILDCARDS:
                return True
    return False
