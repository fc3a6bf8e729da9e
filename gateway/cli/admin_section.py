"""The admin listener as a configuration names it, without reading the rest of the file.

A health check runs every few seconds, and the whole of a configuration costs ten times as much as the check.
So the lines of `admin` are cut out and read alone. That is done only where nothing can be read in two ways;
else there is no result, and the caller reads the whole file, which also says what is wrong with it. Decides
nothing about the listener.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, final

import yaml

MAX_SIZE: Final = 4 << 20
"""Bytes of a file that is read here; a larger one is no configuration."""
MAX_DEPTH: Final = 5
"""The deepest key of `admin` is at level 4."""
DEFAULT: Final = "127.0.0.1", 9900

_KEY: Final = re.compile(r"([a-z_]+):(?:[ ]|$)")
_COMMENT: Final = re.compile(r"(?:^|[ ])#.*")
_ODD: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\t\\x7f-\\x9f\\u2028\\u2029\\ufeff]")
"""What ends a line for YAML only, or indents, or is refused."""
_PROPERTY: Final = re.compile(r"(?:^|[\s\[{,:-])[&*!]")
"""The beginning of an anchor, an alias or a tag, perhaps."""
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):([0-9]{1,5})")
_REFERENCE: Final = re.compile(
    r"\$\{(?:FILE:(?P<file>[^}-][^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-(?P<default>[^}]*))?)\}"
)
_TOKEN: Final = re.compile("[\\x21-\\x7e]+")
_KEYS: Final = frozenset({"listen", "token", "tls", "hosts", "metrics_listen"})

Value: TypeAlias = "str | dict[str, Value] | list[Value]"


@final
class AdminSection(NamedTuple):
    """What a client of the listener has to know."""

    host: str
    """Without brackets."""
    port: int
    token: str | None = None
    certificates: tuple[str, ...] | None = None
    """Paths of the listener's certificates; None: it has no TLS."""


class _NotPlainError(Exception):
    """The whole file has to be read."""


def read_admin_section(path: str | os.PathLike[str], environ: Mapping[str, str]) -> AdminSection | None:
    """What the file says of the admin listener. None: the whole file has to be read. Blocks."""
    try:
        lines = _lines_of_admin(_text_of(path))
        if not lines:
            return AdminSection(*DEFAULT)
        root = yaml.compose(lines, Loader=yaml.SafeLoader)
        whole = {} if root is None else _plain(root)
        section = whole.get("admin") if isinstance(whole, dict) else None
        if not isinstance(section, dict) or not _KEYS.issuperset(section):
            return None
        return _section(section, os.path.dirname(path), environ)  # noqa: PTH120 - pathlib is not needed
    except (_NotPlainError, yaml.YAMLError, OSError, ValueError):
        return None


def _text_of(path: str | os.PathLike[str]) -> str:
    """The content of a regular file: a pipe can be read once only."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise _NotPlainError
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise _NotPlainError
    return data.decode("utf-8").replace("\r\n", "\n")


def _lines_of_admin(text: str) -> str:
    """The lines of the key `admin`; nothing: the file has no such key.

    A text in quotation marks and a list in brackets may go on in the first column, where a line of theirs
    looks like a key. So whatever begins before the key `admin` must have ended there.
    """
    if _ODD.search(text):
        raise _NotPlainError
    sections: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):
        key = _KEY.match(line)
        if key is not None:
            name = key[1]
            if name in sections:
                raise _NotPlainError
            if name == "admin" and not all(map(_is_closed, sections.values())):
                raise _NotPlainError
            sections[name] = []
        elif not line.lstrip(" ") or line.lstrip(" ").startswith("#"):
            continue
        elif not line.startswith(" ") or not name:
            raise _NotPlainError
        sections[name].append(line)
    section = "\n".join(sections.get("admin", ()))
    if _PROPERTY.search(section):
        raise _NotPlainError
    return section


def _is_closed(lines: list[str]) -> bool:
    """Whether quotation marks and brackets that begin in these lines end there."""
    code = "".join(_COMMENT.sub("", line) for line in lines)
    return (
        not any(code.count(mark) % 2 for mark in "\"'")
        and code.count("[") == code.count("]")
        and code.count("{") == code.count("}")
    )


def _plain(node: yaml.Node, depth: int = 0) -> Value:
    """YAML as texts, mappings and lists."""
    if depth > MAX_DEPTH:
        raise _NotPlainError
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in found:
                raise _NotPlainError
            found[key.value] = _plain(value, depth + 1)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, depth + 1) for each in node.value]
    return str(node.value)


def _section(section: Mapping[str, Value], folder: str, environ: Mapping[str, str]) -> AdminSection:
    def text_of(value: Value | None) -> str:
        if not isinstance(value, str) or not value:
            raise _NotPlainError
        return _substituted(value, folder, environ)

    host, port = DEFAULT
    if "listen" in section:
        address = _ADDRESS.fullmatch(text_of(section["listen"]))
        if address is None:
            raise _NotPlainError
        host, port = address[1].strip("[]").lower(), int(address[2])
    token = text_of(section["token"]) if "token" in section else None
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise _NotPlainError
    certificates = None
    if "tls" in section:
        tls = section["tls"]
        pairs = tls.get("certificates") if isinstance(tls, dict) else None
        if not isinstance(pairs, list) or not pairs:
            raise _NotPlainError
        written = [text_of(pair.get("certificate") if isinstance(pair, dict) else None) for pair in pairs]
        certificates = tuple(os.path.join(folder, each) for each in written)  # noqa: PTH118
    return AdminSection(host, port, token, certificates)


def _substituted(text: str, folder: str, environ: Mapping[str, str]) -> str:
    """A text with the values of `${NAME}` and `${FILE:PATH}`."""

    def value_of(found: re.Match[str]) -> str:
        if found["file"] is not None:
            return _text_of(os.path.join(folder, found["file"])).removesuffix("\n")  # noqa: PTH118
        value = environ.get(found["name"])
        if found["rest"] is not None:
            return value or found["default"]
        if value is None:
            raise _NotPlainError
        return value

    if "${" in _REFERENCE.sub("", text):
        raise _NotPlainError
    return _REFERENCE.sub(value_of, text)
