"""Fast reader of the section `admin` of a configuration, without the rest of the file.

Health checks run every few seconds, and reading a whole configuration costs ten times as much as the check.
So the lines of `admin` are cut out and parsed alone. If anything is ambiguous, the whole file has to be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, final

import yaml

MAX_SIZE: Final = 4 << 20
"""Maximum size of a configuration file in bytes; no valid one is larger."""
MAX_DEPTH: Final = 5
"""Maximum nesting of YAML nodes that is read. The deepest key of `admin` is at level 4."""
DEFAULT: Final = "127.0.0.1", 9900

_KEY: Final = re.compile(r"([a-z_]+):(?:[ ]|$)")
_COMMENT: Final = re.compile(r"(?:^|[ ])#.*")
_ODD: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\t\\x7f-\\x9f\\u2028\\u2029\\ufeff]")
"""Characters that end a line only in YAML, indent like a blank, or are refused."""
_PROPERTY: Final = re.compile(r"(?:^|[\s\[{,:-])[&*!]")
"""Possible start of a YAML anchor, alias or tag."""
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):([0-9]{1,5})")
_REFERENCE: Final = re.compile(
    r"\$\{(?:FILE:(?P<file>[^}-][^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-(?P<default>[^}]*))?)\}"
)
_TOKEN: Final = re.compile("[\\x21-\\x7e]+")
_KEYS: Final = frozenset({"listen", "token", "tls", "hosts", "metrics_listen"})

Value: TypeAlias = "str | dict[str, Value] | list[Value]"


@final
class AdminSection(NamedTuple):
    """The settings of the admin listener that a client needs."""

    host: str
    """Host name or IP address of the admin listener, without brackets."""
    port: int
    token: str | None = None
    certificates: tuple[str, ...] | None = None
    """Paths of the listener's certificates; None: it has no TLS."""


class _NotPlainError(Exception):
    """Error: the section `admin` cannot be read alone; the whole file has to be."""


def read_admin_section(path: str | os.PathLike[str], environ: Mapping[str, str]) -> AdminSection | None:
    """Read the section `admin` of a file. None: the whole file has to be read instead. Blocks."""
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
    """Read a configuration file, but only a regular one: the caller could not read a pipe a second time."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise _NotPlainError
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise _NotPlainError
    return data.decode("utf-8").replace("\r\n", "\n")


def _lines_of_admin(text: str) -> str:
    """Return the lines of the key `admin`; empty if the file has no such key.

    A quoted text and a list in brackets may continue in the first column, where a line of theirs looks like a
    key. So everything that was opened before the key `admin` must be closed there.
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
    """Whether all quotation marks and brackets in these lines are closed."""
    code = "".join(_COMMENT.sub("", line) for line in lines)
    return (
        not any(code.count(mark) % 2 for mark in "\"'")
        and code.count("[") == code.count("]")
        and code.count("{") == code.count("}")
    )


def _plain(node: yaml.Node, depth: int = 0) -> Value:
    """Convert a YAML node to texts, mappings and lists."""
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
    """Replace `${NAME}` and `${FILE:PATH}` in a text by their values."""

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
