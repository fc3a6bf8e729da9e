"""The PROXY header as bytes: what every version says, and that nothing else is taken for one."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.edge.proxy_protocol import (
    MAX_BINARY,
    MAX_TEXT,
    SIGNATURE,
    ProxyHeader,
    read_proxy_header,
)
from gateway.errors import FramingError


def binary(
    command: int = 1, family: int = 0x11, content: bytes = b"", *, version: int = 2, length: int | None = None
) -> bytes:
    size = len(content) if length is None else length
    return SIGNATURE + bytes([version << 4 | command, family]) + struct.pack(">H", size) + content


def version_4(source: str = "192.0.2.1", target: str = "198.51.100.2") -> bytes:
    return IPv4Address(source).packed + IPv4Address(target).packed + struct.pack(">HH", 4711, 443)


def version_6(source: str = "2001:db8::1", target: str = "2001:db8::2") -> bytes:
    return IPv6Address(source).packed + IPv6Address(target).packed + struct.pack(">HH", 4711, 443)


def item(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">H", len(content)) + content


GOOD = {
    "tcp4": (b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n", "192.0.2.1", False),
    "tcp6": (b"PROXY TCP6 2001:DB8::1 2001:db8::2 4711 443\r\n", "2001:db8::1", False),
    "mapped": (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 4711 443\r\n", "192.0.2.1", False),
    "unknown": (b"PROXY UNKNOWN\r\n", "", False),
    "unknown with words": (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", False),
    "port 0": (b"PROXY TCP4 192.0.2.1 198.51.100.2 0 65535\r\n", "192.0.2.1", False),
    "2 tcp4": (binary(content=version_4()), "192.0.2.1", False),
    "2 tcp6": (binary(family=0x21, content=version_6()), "2001:db8::1", False),
    "2 mapped": (binary(family=0x21, content=version_6("::ffff:192.0.2.1")), "192.0.2.1", False),
    "2 unix": (binary(family=0x31, content=bytes(216)), "", False),
    "2 unspecified": (binary(family=0), "", False),
    "2 local": (binary(command=0, family=0), "", False),
    "2 local with anything": (binary(command=0, family=0xEE, content=b"xyz"), "", False),
    "2 with items": (
        binary(content=version_4() + item(4, bytes(9)) + item(2, b"a.example")),
        "192.0.2.1",
        False,
    ),
    "2 after tls": (
        binary(content=version_4() + item(0x20, b"\x01\0\0\0\0" + item(0x21, b"TLSv1.3"))),
        "192.0.2.1",
        True,
    ),
    "2 without tls": (binary(content=version_4() + item(0x20, b"\x00\0\0\0\x01")), "192.0.2.1", False),
}

BAD = {
    "http": b"GET / HTTP/1.1\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01",
    "lower case": b"proxy TCP4 192.0.2.1 198.51.100.2 4711 443\r\n",
    "family": b"PROXY TCP5 192.0.2.1 198.51.100.2 4711 443\r\n",
    "udp": b"PROXY UDP4 192.0.2.1 198.51.100.2 4711 443\r\n",
    "two spaces": b"PROXY TCP4  192.0.2.1 198.51.100.2 4711 443\r\n",
    "bare line feed": b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\n" + bytes(MAX_TEXT),
    "no ports": b"PROXY TCP4 192.0.2.1 198.51.100.2\r\n",
    "more": b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 x\r\n",
    "large port": b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 65536\r\n",
    "signed port": b"PROXY TCP4 192.0.2.1 198.51.100.2 +4711 443\r\n",
    "leading zero": b"PROXY TCP4 192.0.2.1 198.51.100.2 04711 443\r\n",
    "octal": b"PROXY TCP4 192.0.02.1 198.51.100.2 4711 443\r\n",
    "4 in 6": b"PROXY TCP6 192.0.2.1 198.51.100.2 4711 443\r\n",
    "6 in 4": b"PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n",
    "target": b"PROXY TCP4 192.0.2.1 nowhere 4711 443\r\n",
    "zone": b"PROXY TCP6 fe80::1%eth0 2001:db8::2 4711 443\r\n",
    "too long": b"PROXY UNKNOWN " + b"x" * MAX_TEXT,
    "2 version": binary(version=1, content=version_4()),
    "2 command": binary(command=2, content=version_4()),
    "2 datagrams": binary(family=0x12, content=version_4()),
    "2 family": binary(family=0x41, content=version_6()),
    "2 short": binary(content=version_4()[:-1]),
    "2 too long": binary(length=MAX_BINARY),
    "2 cut item": binary(content=version_4() + b"\x04\x00"),
    "2 long item": binary(content=version_4() + b"\x04\x00\x09x"),
    "2 empty tls item": binary(content=version_4() + item(0x20, b"")),
    "2 signature": SIGNATURE[:-1] + b"\r" + bytes(16),
}


@pytest.mark.parametrize("sent, address, tls", GOOD.values(), ids=GOOD)
def test_a_header_names_the_client(sent: bytes, address: str, tls: bool) -> None:
    header = read_proxy_header(sent + b"GET / HTTP/1.1\r\n\r\n")

    assert header is not None
    assert (header.size, header.address, header.tls) == (len(sent), address, tls)


@pytest.mark.parametrize("sent, address, tls", GOOD.values(), ids=GOOD)
def test_a_header_may_come_in_pieces(sent: bytes, address: str, tls: bool) -> None:
    assert all(read_proxy_header(sent[:size]) is None for size in range(len(sent)))


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
def test_what_is_no_header_is_refused(sent: bytes) -> None:
    with pytest.raises(FramingError) as refused:
        read_proxy_header(sent)

    assert refused.value.reason == "proxy_header"


def test_an_endless_header_is_refused_before_it_fills_memory() -> None:
    for size in range(MAX_TEXT + 1, MAX_TEXT + 3):
        with pytest.raises(FramingError):
            read_proxy_header((b"PROXY UNKNOWN " + b"x" * size)[:size])
    with pytest.raises(FramingError):
        read_proxy_header(binary(length=MAX_BINARY)[:16])


def _read(data: bytes) -> ProxyHeader | FramingError | None:
    try:
        return read_proxy_header(data)
    except FramingError as error:
        return error


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(SIGNATURE.__add__),
        st.binary(max_size=120).map(b"PROXY TCP4 ".__add__),
    )
)
def test_any_bytes_are_a_header_or_incomplete_or_refused(data: bytes) -> None:
    """And what is a header, or is refused, stays so with more bytes behind it."""
    found = _read(data)
    more = _read(data + b"\x00")

    if isinstance(found, ProxyHeader):
        assert found.size <= len(data)
        if found.address:
            ip_address(found.address)
        assert isinstance(more, ProxyHeader)
        assert (more.size, more.address, more.tls) == (found.size, found.address, found.tls)
    elif found is not None:
        assert isinstance(more, FramingError)


@given(st.ip_addresses(), st.ip_addresses(v=6), st.integers(0, 65_535))
def test_every_address_passes(source: IPv4Address | IPv6Address, other: IPv6Address, port: int) -> None:
    target = IPv4Address(int(other) & 0xFFFFFFFF) if source.version == 4 else other
    text = f"PROXY TCP{source.version} {source} {target} {port} 443\r\n".encode()
    content = source.packed + target.packed + struct.pack(">HH", port, 443)
    data = binary(family=0x11 if source.version == 4 else 0x21, content=content)

    for sent in (text, data):
        header = read_proxy_header(sent)
        assert header is not None
        mapped = source.ipv4_mapped if isinstance(source, IPv6Address) else None
        assert header.address == str(mapped or source)
