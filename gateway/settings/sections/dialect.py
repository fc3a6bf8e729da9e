"""`dialect` of a service: the dialect with its options, and what it demands of the service.

Options go to the dialect's own dataclass. This module knows no dialect by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import reduce
from operator import or_
from typing import Any

from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    Dialect,
    ProbePaths,
    Refusal,
    RequestedKind,
    RequestedVersion,
    VersionMatch,
)
from gateway.core.fleet.service import Service
from gateway.errors import OptionProblem, OptionsError, VersionTextError
from gateway.settings.sections.backend import PLACES
from gateway.settings.sections.versions import versions_form
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, SequenceNode, child


def read_dialect(
    name: str,
    options: Mapping[str, Any],
    dialects: Mapping[str, type[Dialect]],
    node: Node | None,
    findings: Findings,
    *,
    service: str,
    probes: ProbePaths,
) -> Dialect | None:
    """The dialect of a service with its options; None: it is unknown or refuses them. `node`: the service."""
    place = child(node, "dialect")
    kind = dialects.get(name)
    if kind is None:
        close = get_close_matches(name, sorted(dialects), n=1)
        hint = f"did you mean {close[0]}?" if close else "known dialects: " + ", ".join(sorted(dialects))
        findings.add(place, "unknown-dialect", "there is no dialect of this name", hint)
        return None
    for other in dialects:
        if other != name and isinstance(node, MappingNode) and other in node.entries:
            message = f"these are options of {other}, but the dialect of the service is {name}"
            hint = f"remove them, or write them under `{name}`"
            findings.add(node.entries[other].key, "wrong-dialect", message, hint)
    chosen = options.get(name) or kind.Options()
    if any(each.name == "probes" for each in fields(chosen)):
        chosen = replace(chosen, probes=probes)
    try:
        return kind.made(chosen)
    except OptionsError as error:
        # Where an option was refused, the dialect got a default that nobody wrote. Problems with that default
        # are not reported.
        if not findings.is_dropped("services", service, name):
            for problem in error.problems:
                _report_option(name, problem, node, findings)
    except (VersionTextError, ValueError) as error:
        findings.refused(child(node, name) or place, str(error))
    return None


def _report_option(dialect: str, problem: OptionProblem, node: Node | None, findings: Findings) -> None:
    """Report an option that its dialect refuses: at the option, where it is missing, or at the dialect."""
    at = (dialect, *problem.at)
    paths = [*(at[:length] for length in range(len(at), 0, -1)), ("dialect",), ()]
    places = (child(node, *path) for path in paths)
    place = next((each for each in places if each is not None), None)
    findings.add(place, "bad-value", problem.message, problem.hint, quoting=problem.quoting)


def check_rules(service: Service, node: Node | None, findings: Findings) -> None:
    """Report what a dialect forbids its service, and its warnings about options. `node`: the service."""
    rules = service.dialect.configuration_rules
    options = child(node, service.dialect.name)
    _check_option_paths(service, options, findings)
    for at, message, hint in rules.warnings:
        place = next((found for end in range(len(at), -1, -1) if (found := child(options, *at[:end]))), None)
        findings.warn(place, "misleading", message, hint)
    if rules.path_is_signed:
        _check_signed_paths(service, node, findings)
    if rules.missing_option:
        _check_declared(service, child(node, "backends"), findings)
    if service.negotiates_legacy and not service.dialect.legacy_versions:
        message = "legacy backends of this dialect count as no version: nothing could be offered"
        findings.contradiction(child(node, "legacy"), message, "remove this key")
    if service.default_version is not None:  # the dialect's own is not in the file
        _check_default_version(service, child(node, "default_version"), findings)


def _check_option_paths(service: Service, options: Node | None, findings: Findings) -> None:
    """Warn of option paths that repeat `match.path`: they start after it and would never match."""
    prefix = service.match.prefix
    for at, path in service.dialect.configuration_rules.option_paths if prefix else ():
        if path == prefix or path.startswith(prefix + "/"):
            message = "this path repeats match.path, which is not part of it"
            hint = "remove the prefix; with strip_prefix: false backends still receive it"
            findings.warn(child(options, *at), "repeated-prefix", message, hint)


def _check_signed_paths(service: Service, node: Node | None, findings: Findings) -> None:
    """Report settings under which backends would not receive the path that clients signed."""
    if service.match.strip_prefix and service.match.prefix:
        findings.contradiction(
            child(node, "match", "strip_prefix") or child(node, "match", "path"),
            "clients sign the path: without its prefix every signature would be wrong",
            "set match.strip_prefix: false, or match by host",
        )
    own, sources = iter(service.backends), iter(service.sources)
    items = child(node, "backends")
    for item in items.items if isinstance(items, SequenceNode) else ():
        url = child(item, "url")
        place = url or child(item, "dns") or child(item, "srv")
        backend = next(own, None) if url is not None else None
        source = next(sources, None) if url is None else None
        if not (backend.path if backend is not None else source is not None and source.path):
            continue
        without = "http://NAME" if backend is None else f"http://{backend.authority}"
        message = "clients sign the path: with a base path every signature would be wrong"
        findings.contradiction(place, message, f"end the URL after the port: {without}")


def _check_declared(service: Service, backends: Node | None, findings: Findings) -> None:
    """Report backends without declared versions, where they cannot be probed."""
    at = ("services", service.name, "backends")
    form = versions_form(service.dialect.scheme)
    hint = f'add `versions: "{form}"`, or `{service.dialect.configuration_rules.missing_option}`'
    for index, item in enumerate(backends.items if isinstance(backends, SequenceNode) else ()):
        if child(item, "versions") is None and not findings.is_dropped(*at, index, "versions"):
            findings.add(
                next((place for key in PLACES if (place := child(item, key)) is not None), item),
                "missing-key",
                "nothing says which versions this backend serves",
                hint,
            )


def _check_default_version(service: Service, node: Node | None, findings: Findings) -> None:
    """Report a default version that can never be on offer."""
    dialect, version = service.dialect, service.effective_default_version.constant
    if version is None:
        return
    earlier = dialect.version_match is VersionMatch.NEAREST_EARLIER
    if service.ceiling is not None and version > service.ceiling and not earlier:
        findings.contradiction(
            node,
            f"the ceiling is {dialect.scheme.format(service.ceiling)}: requests without a version would "
            f"all be refused",
            "lower the default version or raise the ceiling",
        )
    later = dialect.version_match is VersionMatch.NEAREST_LATER
    if service.floor is not None and version < service.floor and not later:
        findings.contradiction(
            node,
            f"the floor is {dialect.scheme.format(service.floor)}: requests without a version would all be "
            f"refused",
            "raise the default version or lower the floor",
        )
    served = [backend.declared for backend in service.backends if backend.declared is not None]
    if not served or len(served) < len(service.backends) or service.sources:
        return  # a backend that is probed may serve any version
    declared = reduce(or_, served)
    negotiated = negotiate(
        RequestedVersion(RequestedKind.NONE),
        declared,
        service.effective_default_version,
        dialect.version_match,
    )
    if isinstance(negotiated, Refusal):
        findings.contradiction(
            node,
            f"the declared versions are {declared.format(dialect.scheme)}: requests without a version "
            f"would all be refused",
            "write one of these versions, minimum or maximum",
        )
