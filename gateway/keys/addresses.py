"""Readers of addresses in the file: hosts, networks, URLs, path prefixes.

Each reads one text strictly and brings its own JSON Schema. Nothing here looks up a name or opens a
connection.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from gateway.keys.kinds import TEXT, PathText, Text, matching, reject
from gateway.keys.texts import read_text

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*", re.ASCII)
_PATH_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]*", re.ASCII)
_URL: Final = r"[Hh][Tt][Tt][Pp][Ss]?://[^@?#/]+(?:/[^?#@%]*)?|unix:/.*[^/]"
_URL_OF_NAME: Final = r"[Hh][Tt][Tt][Pp][Ss]?://[^@?#/]+(?:/[^?#@%]*)?"
UNIX: Final = "unix:"
"""Prefix of an address that is the path of a Unix socket. As a trusted peer: all clients on sockets."""
LOCALHOST: Final = "localhost"
MAX_SOCKET_PATH: Final = 107
"""Most bytes of the path of a Unix socket: `sun_path` in Linux without the zero at its end."""
_PATH: Final = r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+"
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAPPED: Final = 96
"""Bits of the prefix `::ffff:0:0/96`, where IPv4 is mapped."""


class Address(NamedTuple):
    """An address to listen on. `host` is a name, or an IP address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(NamedTuple):
    """An address to listen on: the path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return UNIX + self.path


class BackendUrl(NamedTuple):
    """Address of a backend. `path` is empty, or begins with a slash and does not end with one."""

    host: str
    port: int
    path: str
    tls: bool = False
    socket_path: str = ""
    """Path of a backend's Unix socket; host and port have no meaning then."""


def addresses_of(host: str) -> tuple[str, ...]:
    """Addresses of `localhost`; of any other host the text itself, because no name is looked up."""
    return ("127.0.0.1", "::1") if host == LOCALHOST else (host,)


def read_host(text: str) -> str:
    """Read a host name in lower case, or an IP address without brackets."""
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


def read_host_pattern(text: str) -> str:
    """Read the host of a `Host` field, in the form that `core.decision.routing` compares, or a wildcard:
    `*.example.org` stands for names with one label or more in place of the `*`."""
    name = text.removesuffix(".")
    if name in {"*", "*."}:
        reject("`*` alone is not a host", "leave this key out: then any host matches")
    wildcard = name.startswith("*.")
    if wildcard:
        name = name[2:]
    if "*" in name:
        reject("`*` can only stand for the first labels of a name", "write *.example.org")
    if not name.isascii():
        import idna  # noqa: PLC0415 - only such a name needs it

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:
            reject("not a valid international host name")
    if re.fullmatch(r"[^\[]*[^:]:[0-9]+", name):
        reject("a host here has no port", "the port of a request is never compared")
    if wildcard and (name.startswith("[") or re.fullmatch(r"[0-9]+", name.rpartition(".")[2])):
        reject("a wildcard is for names, not for addresses", "write *.example.org")
    host = read_host(name)
    return f"[{host}]" if ":" in host else f"*.{host}" if wildcard else host


def read_address(text: str) -> Address:
    """Read an address to listen on: `HOST:PORT`, IPv6 as `[::1]:8080`."""
    host, colon, port = text.rpartition(":")
    if text.lower().startswith("https://"):
        message = "an address has the form HOST:PORT, without a scheme"
        reject(message, "for TLS write a list: `- {address: 0.0.0.0:8443, tls: {certificates: [...]}}`")
    if "://" in text:
        reject("an address has the form HOST:PORT, without a scheme", "write 127.0.0.1:8080")
    if text.startswith(("/", "./")):
        reject("an address has the form HOST:PORT", "for a Unix socket write unix:/run/skewgate/http.sock")
    if re.fullmatch("[0-9]+", text, re.ASCII):
        reject("an address has the form HOST:PORT", "write a host before the port: 127.0.0.1:8080")
    if not colon and re.fullmatch(r"[0-9.]+|\[.*\]|[A-Za-z][A-Za-z0-9.-]*", text):
        reject("the address has no port", "write one after the host: 127.0.0.1:8080")
    if not colon or (":" in host and not host.startswith("[")):
        reject("an address has the form HOST:PORT", "write 127.0.0.1:8080 or [::1]:8080")
    if host in {"", "*"}:
        reject("the address has no host", "write 0.0.0.0 or [::] for every interface")
    return Address(read_host(host), read_port(port, lowest=0))


def read_socket_path(text: str) -> str:
    """Read the path of a Unix socket, without `unix:`."""
    if text.startswith("//"):
        reject("after unix: comes the path itself, without //", "write unix:/run/skewgate/http.sock")
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("the address has no path of a socket", "write unix:/run/skewgate/http.sock")
    if len(text.encode()) > MAX_SOCKET_PATH:
        reject(f"the path of a Unix socket may have at most {MAX_SOCKET_PATH} bytes", "use a shorter path")
    return text


def read_client_address(text: str) -> Address | UnixAddress:
    """Read an address to listen on for clients: `HOST:PORT` or `unix:PATH`."""
    if text.startswith(UNIX):
        return UnixAddress(read_socket_path(text.removeprefix(UNIX)))
    return read_address(text)


def read_trusted_peer(text: str) -> IPv4Network | IPv6Network | str:
    """Read a trusted peer: a network, or `unix:` for all clients on sockets."""
    return UNIX if text == UNIX else read_network(text)


def read_port(text: str, *, lowest: int) -> int:
    """Read the number of a port."""
    if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) is None or not lowest <= int(text) <= 65_535:
        reject(f"the port must be a number from {lowest} to 65535", "write it at the end: HOST:8080")
    return int(text)


def read_network(text: str) -> IPv4Network | IPv6Network:
    """Read a network: `10.0.0.0/8`, `fd00::/8` or a single address. IPv4 mapped into IPv6 becomes IPv4."""
    try:
        network = ip_network(text)
        mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
        if mapped is None or network.prefixlen < _MAPPED:
            return network
        return IPv4Network((int(mapped), network.prefixlen - _MAPPED))
    except ValueError:
        pass
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        reject("not a valid network", "write 10.0.0.0/8, fd00::/8 or a single address")
    message = f"bits are set after the first {network.prefixlen}, which are the network"
    return reject(message, f"did you mean {network}?")


def read_url(text: str) -> BackendUrl:
    """Read a backend's URL: `http://HOST[:PORT][/base]`, the same with `https`, or `unix:/PATH`."""
    if text.startswith(UNIX):
        path = read_socket_path(text.removeprefix(UNIX))
        if not path.startswith("/"):
            reject("the path of a Unix socket must begin with a slash", "write unix:/run/api.sock")
        return BackendUrl("", 0, "", socket_path=path)
    scheme, mark, rest = text.partition("://")
    if not mark:
        path = "for a Unix socket write unix:/PATH" if text.startswith("/") else ""
        reject("a URL must begin with http:// or https://", path or "write http://HOST:PORT, or unix:/PATH")
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        close = get_close_matches(scheme, _DEFAULT_PORTS, n=1)
        meant = f"did you mean {close[0]}://?" if close else "write http://HOST:PORT or https://HOST:PORT"
        reject("a backend's URL must begin with http://, https:// or unix:", meant)
    for character, part in (("@", "user or password"), ("?", "query"), ("#", "fragment")):
        if character in rest:
            message = f"a backend's URL must not contain a {part}"
            reject(message, f"write {scheme}://HOST:PORT or {scheme}://HOST:PORT/base")
    authority, slash, path = rest.partition("/")
    host, port = authority, _DEFAULT_PORTS[scheme]
    if found := re.fullmatch(r"(.*?):([^:\]]*)", authority):
        host, port = found[1], found[2]
    if not host:
        reject("the URL has no host", f"write {scheme}://HOST:PORT")
    base = read_path("/" + path.removesuffix("/")) if slash and path else "/"
    return BackendUrl(
        read_host(host), read_port(port, lowest=1), "" if base == "/" else base, tls=scheme == "https"
    )


def read_dns_url(text: str) -> BackendUrl:
    """Read `http://NAME[:PORT][/base]`: a URL whose host is looked up."""
    url = _read_url_of_name(text, "http://NAME:PORT")
    if url.host.startswith("_"):
        reject("this is the name of SRV records", "write `srv` instead of `dns`")
    return url


def read_srv_url(text: str) -> BackendUrl:
    """Read `http://_SERVICE._PROTOCOL.NAME[/base]`: a URL whose host and port SRV records bring."""
    url = _read_url_of_name(text, "http://_api._tcp.NAME")
    if re.match(r"_[^.]+\._[^.]+\.", url.host) is None:
        reject("not the name of SRV records", "write http://_SERVICE._tcp.NAME")
    if re.search(r"//[^/]*:", text):
        reject("the URL has a port, but each SRV record brings its own", "remove the port")
    return url


def _read_url_of_name(text: str, example: str) -> BackendUrl:
    if text.startswith(UNIX):
        reject("a socket cannot be looked up", "write `url` for one backend")
    if "://" not in text:
        reject("a URL must begin with http:// or https://", f"write {example}")
    url = read_url(text)
    try:
        ip_address(url.host)
    except ValueError:
        return url
    return reject("an address cannot be looked up", f"write `url` for one backend, or {example}")


def read_path(text: str) -> str:
    """Read a path prefix. It begins with a slash, does not end with one, and has only one spelling."""
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


LISTEN_ADDRESS: Final = Text(read_address, matching(r".+:[0-9]{1,5}"))
CLIENT_ADDRESS: Final = PathText(read_client_address, matching(r"unix:.+|.+:[0-9]{1,5}"), before=UNIX)
TRUSTED_PEER: Final = Text(read_trusted_peer, TEXT)
NETWORK: Final = Text(read_network, TEXT)
URL: Final = Text(read_url, matching(_URL))
DNS_URL: Final = Text(read_dns_url, matching(_URL_OF_NAME))
SRV_URL: Final = Text(read_srv_url, matching(_URL_OF_NAME))
HOST: Final = Text(read_host, TEXT)
HOST_PATTERN: Final = Text(read_host_pattern, TEXT)
PATH: Final = Text(read_path, matching(_PATH))
