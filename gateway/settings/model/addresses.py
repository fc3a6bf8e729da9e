"""Addresses as texts of the file: hosts, networks, URLs, path prefixes.

Each type reads one text strictly and brings its own JSON Schema. This module looks up no name and opens no
connection.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Final, NamedTuple, TypeAlias

from gateway.settings.model.fields import TEXT, TextReader, matching, reject

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*", re.ASCII)
_PATH_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]*", re.ASCII)
_URL: Final = r"[Hh][Tt][Tt][Pp]://[^@?#/]+(?:/[^?#@%]*)?"
_PATH: Final = r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+"


class Address(NamedTuple):
    """An address to listen on. `host` is a name, or an IP address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BackendUrl(NamedTuple):
    """The address of a backend that speaks plain HTTP. `path` is empty, or begins with a slash and does not
    end with one."""

    host: str
    port: int
    path: str


def read_host(text: str) -> str:
    """A host name in lower case, or an IP address without brackets."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else None
    try:
        address = ip_address(text if inner is None else inner)
    except ValueError:
        address = None
    if address is not None and (isinstance(address, IPv6Address) == (inner is not None)):
        if getattr(address, "scope_id", None):
            reject("an address with a zone is valid on one machine only")
        return str(address)
    if address is not None:
        reject("an IPv6 address needs brackets here, an IPv4 address has none", "write [::1] or 127.0.0.1")
    if len(text) > 253 or _HOST.fullmatch(text) is None or re.fullmatch(r"[0-9.]+", text):
        reject("not a valid host name or IP address")
    return text.lower()


def read_address(text: str) -> Address:
    """`HOST:PORT`, IPv6 as `[::1]:8080`."""
    host, colon, port = text.rpartition(":")
    if "://" in text:
        reject("an address has the form HOST:PORT, without a scheme", "write 127.0.0.1:8080")
    if not colon or (":" in host and not host.startswith("[")):
        reject("an address has the form HOST:PORT", "write 127.0.0.1:8080 or [::1]:8080")
    if host in {"", "*"}:
        reject("the address has no host", "write 0.0.0.0 or [::] for every interface")
    return Address(read_host(host), _read_port(port, lowest=0))


def _read_port(text: str, *, lowest: int) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) is None or not lowest <= int(text) <= 65_535:
        reject(f"the port must be a number from {lowest} to 65535")
    return int(text)


def read_network(text: str) -> IPv4Network | IPv6Network:
    """`10.0.0.0/8`, `fd00::/8` or a single address."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        reject("not a valid network", "write 10.0.0.0/8, fd00::/8 or a single address")
    return reject(
        f"bits are set after the first {network.prefixlen}, which are the network", f"did you mean {network}?"
    )


def read_url(text: str) -> BackendUrl:
    """`http://HOST[:PORT][/base]`."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        reject("a URL must begin with http://", "write http://HOST:PORT")
    if scheme.lower() == "https":
        reject("https:// to a backend is not supported in this release", code="unsupported")
    if scheme.lower() != "http":
        reject("a backend's URL must begin with http://")
    for character, part in (("@", "user or password"), ("?", "query"), ("#", "fragment")):
        if character in rest:
            reject(
                f"a backend's URL must not contain a {part}",
                "write http://HOST:PORT or http://HOST:PORT/base",
            )
    authority, slash, path = rest.partition("/")
    host, port = authority, "80"
    if found := re.fullmatch(r"(.*?):([^:\]]*)", authority):
        host, port = found[1], found[2]
    if not host:
        reject("the URL has no host", "write http://HOST:PORT")
    base = read_path("/" + path.removesuffix("/")) if slash and path else "/"
    return BackendUrl(read_host(host), _read_port(port, lowest=1), "" if base == "/" else base)


def read_path(text: str) -> str:
    """A path prefix. It begins with a slash, does not end with one, and can be written in one way only."""
    if not text.startswith("/"):
        reject("a path must begin with a slash", "write /baremetal")
    if text == "/":
        return text
    if _PATH_CHARACTERS.fullmatch(text) is None:
        reject("a path must not contain %, a query or blanks", "paths are compared as clients send them")
    if text.endswith("/"):
        reject("a path must not end with a slash", "a path covers everything below it")
    if any(segment in {"", ".", ".."} for segment in text[1:].split("/")):
        reject("a path must not contain an empty, `.` or `..` segment")
    return text


ListenAddress: TypeAlias = Annotated[
    Address, TextReader(read_address, matching(r".+:[0-9]{1,5}"), (Address,))
]
Network: TypeAlias = Annotated[
    IPv4Network | IPv6Network, TextReader(read_network, TEXT, (IPv4Network, IPv6Network))
]
Url: TypeAlias = Annotated[BackendUrl, TextReader(read_url, matching(_URL))]
Host: TypeAlias = Annotated[str, TextReader(read_host, TEXT)]
Path: TypeAlias = Annotated[str, TextReader(read_path, matching(_PATH))]
