"""The texts of a configuration as values: durations, sizes, addresses, networks, URLs, names, paths.

Each type reads one text strictly (`1_000`, `5.0` and ` 5` are no whole numbers here) and brings its own JSON
Schema. Messages never quote the text: it may come from the environment; the caret shows it as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Final, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gateway.core.service import AtLeast
from gateway.settings.secret import MaskedText, Secret

T = TypeVar("T")

VARIABLE_PATTERN: Final = r"\$\{"
"""What lets the schema accept a value that the environment completes."""
HOST_PATTERN: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*"
NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
BACKEND_NAME_PATTERN: Final = r"[A-Za-z0-9_.:\[\]-]{1,255}"
HEADER_NAME_PATTERN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HOST: Final = re.compile(HOST_PATTERN, re.ASCII)
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_BACKEND_NAME: Final = re.compile(BACKEND_NAME_PATTERN, re.ASCII)
_TOKEN: Final = re.compile(HEADER_NAME_PATTERN, re.ASCII)
_PATH_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]*", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


class Address(NamedTuple):
    """Where something listens. `host` is a name or an address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BackendUrl(NamedTuple):
    """Where a backend is reached by plain HTTP. `path` is empty or begins with a slash and does not end in
    one."""

    host: str
    port: int
    path: str


def reject(message: str, hint: str = "", code: str = "bad-value") -> NoReturn:
    """Refuse a text. The message must not quote it."""
    # Braces would be taken for places to fill in.
    raise PydanticCustomError(code, "{said}", {"said": message, "hint": hint})


def text_of(value: object) -> str:
    """The text itself; anything else than a text is refused."""
    if not isinstance(value, str):
        reject(f"a text is expected here, not {shape_of(value)}", code="wrong-type")
    if not value:
        reject("the value is empty", "remove the key to get its default")
    return value


def shape_of(value: object) -> str:
    """What a part of the tree is, for messages."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "a text" if value else "nothing"


def read_duration(text: str) -> float:
    """`250ms`, `5s`, `2m` as seconds."""
    seconds = read_wait(text)
    if not seconds:
        reject("a duration must be more than 0")
    return seconds


def read_wait(text: str) -> float:
    """A duration that may be none at all, `0s`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        reject("this is no duration", "write a whole number and its unit: 250ms, 5s or 2m")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400:
        reject("a duration must be at most 1440m (a day)")
    return seconds


def read_share(text: str) -> AtLeast:
    """A number of backends, `2`, or a percentage of them, `50%`."""
    number = text.removesuffix("%")
    percent = number != text
    if re.fullmatch("[1-9][0-9]{0,2}", number, re.ASCII) is None or (percent and int(number) > 100):
        reject("this is no number of backends", "write a number, 2, or a percentage from 1% to 100%")
    return AtLeast(int(number), percent)


def read_size(text: str) -> int:
    """`512B`, `64KiB`, `1MiB`, `1GiB` as bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        reject("this is no size", "write a whole number and its unit: 512B, 64KiB, 1MiB or 1GiB")
    return int(found[1]) * _BYTES[found[2]]


def read_count(text: str) -> int:
    """A whole number in plain digits."""
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", text, re.ASCII) is None:
        reject("this is no whole number", "write digits only")
    return int(text)


def read_flag(text: str) -> bool:
    """`true` or `false`."""
    if text not in {"true", "false"}:
        reject("this is neither true nor false", "write true or false; other words are read as they stand")
    return text == "true"


def read_host(text: str) -> str:
    """A host name in lower case, or an IP address without brackets."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else None
    try:
        address = ip_address(text if inner is None else inner)
    except ValueError:
        address = None
    if address is not None and (isinstance(address, IPv6Address) == (inner is not None)):
        if getattr(address, "scope_id", None):
            reject("an address with a zone means something on one machine only")
        return str(address)
    if address is not None:
        reject("an IPv6 address stands in brackets here", "write [::1], not ::1")
    if len(text) > 253 or _HOST.fullmatch(text) is None or re.fullmatch(r"[0-9.]+", text):
        reject("this is neither a host name nor an IP address")
    return text.lower()


def read_address(text: str) -> Address:
    """`HOST:PORT`, IPv6 as `[::1]:8080`."""
    host, colon, port = text.rpartition(":")
    if "://" in text:
        reject("an address is HOST:PORT, without a scheme", "write 127.0.0.1:8080")
    if not colon or (":" in host and not host.startswith("[")):
        reject("an address is HOST:PORT", "write 127.0.0.1:8080 or [::1]:8080")
    if host in {"", "*"}:
        reject("the address has no host", "for every interface write 0.0.0.0 or [::]")
    return Address(read_host(host), _read_port(port, lowest=0))


def _read_port(text: str, *, lowest: int) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) is None or not lowest <= int(text) <= 65_535:
        reject(f"a port is a number from {lowest} to 65535")
    return int(text)


def read_network(text: str) -> IPv4Network | IPv6Network:
    """`10.0.0.0/8`, `fd00::/8` or a single address."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        meant = ip_network(text, strict=False)
    except ValueError:
        reject("this is no network", "write 10.0.0.0/8, fd00::/8 or a single address")
    reject(
        f"bits are set behind the first {meant.prefixlen}, which are the network", f"did you mean {meant}?"
    )


def read_url(text: str) -> BackendUrl:
    """`http://HOST[:PORT][/base]`."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        reject("a URL begins with http://", "write http://HOST:PORT")
    if scheme.lower() == "https":
        reject("backends are reached by http:// only in this release", code="unsupported")
    if scheme.lower() != "http":
        reject("a backend's URL begins with http://")
    for character, what in (("@", "user or password"), ("?", "query"), ("#", "fragment")):
        if character in rest:
            reject(f"a backend's URL holds no {what}", "write http://HOST:PORT or http://HOST:PORT/base")
    authority, slash, path = rest.partition("/")
    host, port = authority, "80"
    if found := re.fullmatch(r"(.*?):([^:\]]*)", authority):
        host, port = found[1], found[2]
    if not host:
        reject("the URL names no host", "write http://HOST:PORT")
    base = read_path("/" + path.removesuffix("/")) if slash and path else "/"
    return BackendUrl(read_host(host), _read_port(port, lowest=1), "" if base == "/" else base)


def read_path(text: str) -> str:
    """A path prefix: begins with a slash, does not end in one, and can be spelled in one way only."""
    if not text.startswith("/"):
        reject("a path begins with a slash", "write /baremetal")
    if text == "/":
        return text
    if _PATH_CHARACTERS.fullmatch(text) is None:
        reject(
            "a path holds plain characters only: no %, no query, no blanks", "paths are compared as they come"
        )
    if text.endswith("/"):
        reject("a path does not end in a slash", "it covers everything below it anyway")
    if any(segment in {"", ".", ".."} for segment in text[1:].split("/")):
        reject("a path holds no empty, `.` or `..` segment")
    return text


def read_name(text: str) -> str:
    """The name of a service."""
    if _NAME.fullmatch(text) is None:
        reject(
            "a name is 1 to 64 letters, digits, `_`, `.` or `-`", "it becomes a part of URLs and of metrics"
        )
    return text


def read_backend_name(text: str) -> str:
    """The name of a backend; `HOST:PORT` is one."""
    if _BACKEND_NAME.fullmatch(text) is None:
        reject("a backend's name is 1 to 255 letters, digits, or one of `_ . : [ ] -`")
    return text


_NOT_PROBED_WITH: Final = frozenset(
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)


def read_header_name(text: str) -> str:
    """A header's name that a probe may carry."""
    if _TOKEN.fullmatch(text) is None:
        reject("this is no header name", "a name has no blanks and no colon")
    if text.lower() in _NOT_PROBED_WITH:
        reject("this header belongs to the connection, not to the question")
    return text


def read_header_value(text: str) -> MaskedText:
    """A header's value: visible ASCII with blanks inside."""
    if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", text) is None:
        reject("a header's value is visible ASCII without blanks around it")
    return MaskedText(text)


def read_secret(text: str) -> Secret:
    """A token that fits into an `Authorization: Bearer` line."""
    if re.fullmatch(r"[\x21-\x7e]+", text) is None:
        reject("a token is visible ASCII without blanks", "it is sent in a header")
    return Secret(text)


def read_text(text: str) -> str:
    """Any text on one line."""
    if not text.isprintable():
        reject("the text holds a character that cannot be printed")
    return text


def read_lines(text: str) -> str:
    """Any text, on one line or several."""
    if not text.replace("\n", " ").isprintable():
        reject("the text holds a character that cannot be printed")
    return text


def read_file_path(text: str) -> str:
    """Where a file of ours is or is to be."""
    if read_text(text).rpartition("/")[2] in {"", ".", ".."}:
        reject("this names a folder, not a file", "add the file's name, such as state.json")
    return text


@dataclass(frozen=True, eq=False)
class Reads(Generic[T]):
    """An annotation: pydantic reads the text with `read`, and the schema of the place is `schema`.

    Values of the types `made` are taken as they are: defaults, and settings that code makes by itself.
    """

    read: Callable[[str], T]
    schema: Mapping[str, object]
    made: tuple[type, ...] = ()
    key: bool = False
    """True: it stands left of a colon, where no variable is replaced."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> dict[str, Any]:
        schema = dict(self.schema)
        if self.key or (schema.get("type") in ("string", ["string", "integer"]) and "enum" not in schema):
            if "pattern" in schema and not self.key:
                schema["pattern"] = f"{schema['pattern']}|{VARIABLE_PATTERN}"
            return schema
        return {"anyOf": [schema, {"type": "string", "pattern": VARIABLE_PATTERN}]}

    def _validate(self, value: object) -> object:
        return value if isinstance(value, self.made) else self.read(text_of(value))


def _pattern(pattern: str) -> dict[str, object]:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


_TEXT: Final = {"type": "string", "minLength": 1}
_URL: Final = r"[Hh][Tt][Tt][Pp]://[^@?#/]+(?:/[^?#@%]*)?"
_PATH: Final = r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+"

Duration: TypeAlias = Annotated[float, Reads(read_duration, _pattern("[0-9]{1,9}(?:ms|s|m)"), (float, int))]
Wait: TypeAlias = Annotated[float, Reads(read_wait, _pattern("[0-9]{1,9}(?:ms|s|m)"), (float, int))]
Share: TypeAlias = Annotated[
    AtLeast,
    Reads(
        read_share,
        {
            "type": ["string", "integer"],
            "minimum": 1,
            "maximum": 999,
            "pattern": "^(?:[1-9][0-9]{0,2}|100%|[1-9][0-9]?%)$",
        },
        (AtLeast,),
    ),
]
Flag: TypeAlias = Annotated[bool, Reads(read_flag, {"type": "boolean"}, (bool,))]
ListenAddress: TypeAlias = Annotated[Address, Reads(read_address, _pattern(r".+:[0-9]{1,5}"), (Address,))]
Network: TypeAlias = Annotated[
    IPv4Network | IPv6Network, Reads(read_network, _TEXT, (IPv4Network, IPv6Network))
]
Url: TypeAlias = Annotated[BackendUrl, Reads(read_url, _pattern(_URL))]
Host: TypeAlias = Annotated[str, Reads(read_host, _TEXT)]
Path: TypeAlias = Annotated[str, Reads(read_path, _pattern(_PATH))]
Name: TypeAlias = Annotated[str, Reads(read_name, _pattern(NAME_PATTERN), key=True)]
BackendName: TypeAlias = Annotated[str, Reads(read_backend_name, _pattern(BACKEND_NAME_PATTERN))]
HeaderName: TypeAlias = Annotated[str, Reads(read_header_name, _pattern(HEADER_NAME_PATTERN), key=True)]
HeaderValue: TypeAlias = Annotated[MaskedText, Reads(read_header_value, _TEXT)]
SecretText: TypeAlias = Annotated[
    Secret, Reads(read_secret, {**_pattern("[\\x21-\\x7e]+"), "writeOnly": True}, (Secret,))
]
Text: TypeAlias = Annotated[str, Reads(read_text, _TEXT)]
Lines: TypeAlias = Annotated[str, Reads(read_lines, _TEXT)]
FilePath: TypeAlias = Annotated[str, Reads(read_file_path, _pattern(r"(?:.*/)?(?!\.{1,2}$)[^/]+"))]
VersionText: TypeAlias = Annotated[str, Reads(read_text, {"type": ["string", "integer"], "minLength": 1})]
"""A version as written. Whole numbers need no quotation marks; 1.90 does where other tools read the file,
too."""


def words(*known: str) -> Reads[str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in known:
            close = [word for word in known if word.lower() == text.lower()]
            close = close or get_close_matches(text, known, n=1)
            reject(
                "this is none of the words that may stand here",
                f"did you mean {close[0]}?" if close else "one of: " + ", ".join(known),
            )
        return text

    return Reads(read, {"type": "string", "enum": list(known)})


def count(low: int, high: int) -> Reads[int]:
    """A whole number from `low` to `high`."""

    def read(text: str) -> int:
        value = read_count(text)
        if not low <= value <= high:
            reject(f"the number must be from {low} to {high}")
        return value

    return Reads(read, {"type": "integer", "minimum": low, "maximum": high}, (int,))


def size(low: str, high: str) -> Reads[int]:
    """Bytes, from `low` to `high` as an operator writes them."""
    bounds = read_size(low), read_size(high)

    def read(text: str) -> int:
        value = read_size(text)
        if not bounds[0] <= value <= bounds[1]:
            reject(f"the size must be from {low} to {high}")
        return value

    return Reads(read, _pattern("[0-9]{1,12}(?:B|KiB|MiB|GiB)"), (int,))
