"""The PROXY header, versions 1 and 2: bytes in, the client's address out. Pure: it reads from no connection.

A balancer that passes on TCP connections writes it as their first bytes (HAProxy, "The PROXY protocol",
versions 1 and 2). It is read only from trusted peers; whether there is one must never be guessed.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple, final

from gateway.errors import FramingError

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_TEXT_BEGIN: Final = b"PROXY "
MAX_TEXT: Final = 107
"""Maximum bytes of a version 1 PROXY header, its line end included, by the specification."""
MAX_BINARY: Final = 16 * 1024
"""Maximum bytes of a version 2 PROXY header, with all its additional items: HAProxy's limit."""
_FIXED: Final = 16
"""Bytes of a version 2 PROXY header before the addresses."""
_TEXT: Final = re.compile(
    rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|TCP([46]) ([0-9a-fA-F:.]+) ([0-9a-fA-F:.]+) (%b) (%b))\r\n"
    % ((rb"0|[1-9][0-9]{0,4}",) * 2)
)
_LOCAL: Final = 0
_PROXY: Final = 1
_SIZES: Final = {0x00: 0, 0x11: 12, 0x21: 36, 0x31: 216}
"""Bytes of the addresses in a PROXY header, by family: unspecified, TCP over IPv4, over IPv6, Unix."""
_TLV_TLS: Final = 0x20
_CLIENT_USED_TLS: Final = 0x01


@final
class ProxyHeader(NamedTuple):
    """Content of a PROXY header: its size, the client's address, and whether the client used TLS."""

    size: int
    """Length of the PROXY header in bytes."""
    address: str
    """The client's address. Empty if there is none, as in the balancer's own checks: the peer's counts."""
    tls: bool = False
    """Whether the client has used TLS up to the balancer."""


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read the PROXY header at the beginning of `data`; None if it is incomplete. Raises `FramingError`."""
    if data.startswith(SIGNATURE[: len(data)]):
        return _read_binary(data)
    if data.startswith(_TEXT_BEGIN[: len(data)]):
        return _read_text(data)
    raise FramingError("proxy_header")


def _read_text(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_TEXT) + 2
    if end < 2:
        if len(data) >= MAX_TEXT:
            raise FramingError("proxy_header")
        return None
    found = _TEXT.fullmatch(data[:end])
    if found is None:
        raise FramingError("proxy_header")
    family, source, target, source_port, target_port = found.groups()
    if family is None:
        return ProxyHeader(end, "")
    if int(source_port) > 65_535 or int(target_port) > 65_535:
        raise FramingError("proxy_header")
    try:
        if family == b"4":
            IPv4Address(target.decode())
            return ProxyHeader(end, str(IPv4Address(source.decode())))
        IPv6Address(target.decode())
        return ProxyHeader(end, _version_6(IPv6Address(source.decode())))
    except ValueError as error:
        raise FramingError("proxy_header") from error


def _read_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _FIXED:
        return None
    version, command, family = data[12] >> 4, data[12] & 0x0F, data[13]
    length = int.from_bytes(data[14:16], "big")
    size = _FIXED + length
    if version != 2 or command not in (_LOCAL, _PROXY) or size > MAX_BINARY:
        raise FramingError("proxy_header")
    if len(data) < size:
        return None
    if command == _LOCAL:  # the balancer's own connection; the rest is ignored
        return ProxyHeader(size, "")
    addresses = _SIZES.get(family)
    if addresses is None or length < addresses:
        raise FramingError("proxy_header")
    address = ""
    if family == 0x11:
        address = str(IPv4Address(data[16:20]))
    elif family == 0x21:
        address = _version_6(IPv6Address(data[16:32]))
    return ProxyHeader(size, address, tls=_used_tls(data[_FIXED + addresses : size]))


def _version_6(address: IPv6Address) -> str:
    mapped = address.ipv4_mapped
    if mapped is None and address.scope_id is not None:
        raise FramingError("proxy_header")
    return str(address if mapped is None else mapped)


def _used_tls(items: bytes) -> bool:
    """Whether the client used TLS, by the items after the addresses (type, two bytes of length, content)."""
    used = False
    while items:
        if len(items) < 3:
            raise FramingError("proxy_header")
        end = 3 + int.from_bytes(items[1:3], "big")
        if end > len(items):
            raise FramingError("proxy_header")
        if items[0] == _TLV_TLS:
            if end < 8:
                raise FramingError("proxy_header")
            used = bool(items[3] & _CLIENT_USED_TLS)
        items = items[end:]
    return used
