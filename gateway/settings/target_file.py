"""Lists of backends in the form of Prometheus' file_sd: text becomes addresses, or one reason why not.

    [{"targets": ["10.0.0.1:6385", "https://api-2:6385/base"], "labels": {"__scheme__": "https"}}]

The file is JSON, or YAML if its name ends so. Only the label `__scheme__` is used. One invalid target makes
the whole list invalid. Values in, values out; `controlplane.discovery.listers` reads the disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import yaml

from gateway.core.fleet.source import MAX_BACKENDS, Address, Source, SourceKind
from gateway.errors import SkewgateError, TextRefused
from gateway.keys.addresses import BackendUrl, read_url

MAX_SIZE: Final = 4 << 20
"""Largest file of backends in bytes, enough for ten thousand targets. Parsing as much JSON takes 40 ms."""

MAX_YAML_SIZE: Final = 256 << 10
"""Largest YAML file of backends in bytes. YAML is parsed much more slowly than JSON."""

MAX_ITEMS: Final = 100_000
"""Largest number of targets in a file, duplicates included: YAML aliases make many from few bytes."""

_MAX_QUOTED: Final = 60

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader: the one in C if it is there, which is ten times as fast."""


class TargetsError(SkewgateError):
    """Raised for a text that is no list of backends. The message says why, as part of a sentence."""


def read_targets(data: bytes, filename: str) -> tuple[Address, ...]:
    """Read the backends of a list, each once and in file order. Raises `TargetsError`."""
    found: dict[tuple[str, int], Address] = {}
    seen: set[tuple[object, object]] = set()
    for text, scheme, place in _targets(_parsed(data, filename)):
        if isinstance(text, str):
            if (text, scheme) in seen:
                continue
            seen.add((text, scheme))
        address = _address(text, scheme, place)
        known = found.setdefault((address.host, address.port), address)
        if known != address:
            raise TargetsError(f"{place}: the same host and port is listed with another scheme or path")
        if len(found) > MAX_BACKENDS:
            raise TargetsError(f"it lists more than {MAX_BACKENDS} backends")
    return tuple(found.values())


def _parsed(data: bytes, filename: str) -> Any:  # noqa: ANN401 - whatever the file holds
    in_yaml = filename.endswith((".yaml", ".yml"))
    if len(data) > (MAX_YAML_SIZE if in_yaml else MAX_SIZE):
        size = f"{MAX_YAML_SIZE >> 10} KiB" if in_yaml else f"{MAX_SIZE >> 20} MiB"
        raise TargetsError(f"it is larger than {size}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data.count(b"\n", 0, error.start)
        raise TargetsError(f"line {before + 1}: it is not UTF-8") from None
    if not text.strip():
        raise TargetsError("it is empty; a list without backends is []")
    try:
        return yaml.load(text, _LOADER) if in_yaml else json.loads(text)  # noqa: S506 - a safe one
    except json.JSONDecodeError as error:
        raise TargetsError(f"line {error.lineno}, column {error.colno}: it is not JSON") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise TargetsError(
            f"{f'line {mark.line + 1}, column {mark.column + 1}: ' if mark else ''}it is not YAML"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise TargetsError(f"it is not {'YAML' if in_yaml else 'JSON'}") from None


def _targets(groups: object) -> Iterator[tuple[object, object, str]]:
    """Each target of a list of backends, with the scheme of its group and its place in the file."""
    if not isinstance(groups, list):
        raise TargetsError('it is not a list of groups such as {"targets": ["10.0.0.1:6385"]}')
    items = 0
    for at, group in enumerate(groups, 1):
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise TargetsError(f"group {at} has no list `targets`")
        labels = group.get("labels") or {}
        if not isinstance(labels, dict):
            raise TargetsError(f"group {at}: `labels` is not a mapping")
        scheme = labels.get("__scheme__", "http")
        if scheme not in ("http", "https"):
            raise TargetsError(f"group {at}: the label __scheme__ is not http or https")
        for number, target in enumerate(group["targets"], 1):
            items += 1
            if items > MAX_ITEMS:
                raise TargetsError(f"it lists more than {MAX_ITEMS} targets")
            yield target, scheme, f"group {at}, target {number}"


def _address(target: object, scheme: object, place: str) -> Address:
    if not isinstance(target, str):
        raise TargetsError(f"{place} is not a text")
    has_scheme = "://" in target
    try:
        url = read_url(target if has_scheme else f"{scheme}://{target}")
    except TextRefused as error:
        raise TargetsError(f"{place}, {quoted(target)}: {error.message}") from None
    if url.socket_path:
        raise TargetsError(f"{place}: a file lists hosts and ports only")
    return address_of(url)


def restored_address(text: str, source: Source) -> Address | None:
    """The address of a discovered backend that had this URL before a restart; None: not from `source`."""
    try:
        address = address_of(read_url(text))
    except TextRefused:
        return None
    if source.kind is not SourceKind.FILE:  # the configuration says the rest
        address = Address(address.host, address.port)
    return address if source.backend(address).url == text else None


def address_of(url: BackendUrl) -> Address:
    """The address of a backend that a URL contains, without anything from the configuration."""
    return Address(url.host, url.port, path=url.path or None, tls=url.tls)


def quoted(text: str) -> str:
    """Text of a file, quoted for a message: on one line, and of bounded length."""
    shown = text[:_MAX_QUOTED].encode("unicode_escape", "backslashreplace").decode("ascii")
    return f"{shown!r}" if len(text) <= _MAX_QUOTED else f"{shown!r}…"
