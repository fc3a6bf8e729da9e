"""Versions in the configuration file: read in the scheme of the service's dialect. A report says what another
text looks like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Final, TypeVar

from gateway.core.dialect import Dialect
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme, Semantic, Version, WholeNumber
from gateway.errors import VersionTextError
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node

T = TypeVar("T")

_LIKE_VERSION: Final = re.compile(
    r"(?<![\w.-])(?:[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?|[0-9]+(?:\.[0-9]+){0,2})(?![\w.]|-[0-9]+-)", re.ASCII
)
_KINDS: Final[tuple[tuple[Scheme, str], ...]] = (
    (CalendarDate(), "a date"),
    (CalendarDate(day=False), "a date"),
    (Semantic(), "a version X.Y.Z"),
    (MajorMinor(), "a version X.Y"),
    (WholeNumber(), "a whole number"),
)


def versions_form(scheme: Scheme) -> str:
    """Several versions as an operator writes them, for hints: `1.1-1.31`."""
    if not scheme.contiguous:
        return scheme.example
    highest = scheme.require(scheme.example)
    return f"{scheme.format(highest.step(1 - highest.minor))}-{scheme.example}"


def read_versions(
    read: Callable[[str, Scheme], T],
    text: str,
    dialect: Dialect,
    hint: str,
    node: Node | None,
    findings: Findings,
) -> T | None:
    """The result of `read` for a text with versions in the dialect's scheme; None: a problem was reported."""
    try:
        return read(text, dialect.scheme)
    except VersionTextError as error:
        message = str(error)
        found = _LIKE_VERSION.search(text)
        version = found[0] if found and dialect.scheme.parse(found[0]) is None else ""
        for scheme, kind in _KINDS if version else ():
            if scheme.parse(version) is not None:
                message = f"{version} is {kind}"
                if any(option.name == "scheme" for option in fields(dialect.Options)):
                    hint = f"set `scheme: {scheme.name}`, or {hint}"
                break
        findings.refused(node, message, hint)
        return None


def read_version(
    text: str | None, dialect: Dialect, node: Node | None, findings: Findings, otherwise: str = ""
) -> Version | None:
    """Read one version; None: none is written, or it was reported. `otherwise`: other words that are allowed,
    for the hint."""
    if text is None:
        return None
    hint = f"write `{dialect.scheme.example}`{otherwise}"
    return read_versions(lambda text, scheme: scheme.require(text), text, dialect, hint, node, findings)
