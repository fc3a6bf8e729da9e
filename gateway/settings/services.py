"""One service of the document -> `core.service.Service`: everything that needs its dialect is checked here.

Versions are read in the dialect's scheme, names are looked up, options go to the dialect's own dataclass. No
dialect is known by name here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from gateway.core.backend import Backend
from gateway.core.dialect import Dialect, Silence, SilenceKind
from gateway.core.ranges import VersionSet
from gateway.core.service import EVERYONE, AtLeast, Match, Policy, ProbePlan, RetryPlan, Service
from gateway.core.version import Version
from gateway.errors import OptionsError, VersionTextError
from gateway.settings import service_model
from gateway.settings.model import Document
from gateway.settings.operations import read_operations
from gateway.settings.options import read_options
from gateway.settings.problem import Severity, quoted
from gateway.settings.shape import Findings
from gateway.settings.yaml_tree import MappingNode, Node, Scalar, SequenceNode, child

_DECIMAL: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*", re.ASCII)

SILENCE_WORDS: Final = {"minimum": SilenceKind.MINIMUM, "maximum": SilenceKind.MAXIMUM}


def read_services(
    document: Document, root: MappingNode, dialects: Mapping[str, type[Dialect]], findings: Findings
) -> tuple[Service, ...]:
    """Every service that can be made; of the others, all that is wrong with them."""
    node = child(root, "services")
    if not document.services:
        findings.add(node, "bad-value", "there is no service", "add one: its name, dialect and backends")
    made = []
    for name, written in document.services.items():
        reader = _ServiceReader(name, written, node, dialects, findings)
        if service := reader.read():
            made.append(service)
    return tuple(made)


class _ServiceReader:
    """Reads one service; its methods share the place in the file and the dialect."""

    def __init__(
        self,
        name: str,
        written: service_model.Service,
        services: Node | None,
        dialects: Mapping[str, type[Dialect]],
        findings: Findings,
    ) -> None:
        self.name = name
        self.written = written
        self.node = child(services, name)
        self.key = services.entries[name].key if isinstance(services, MappingNode) else None
        self.dialects = dialects
        self.findings = findings

    def read(self) -> Service | None:
        """The service, or None when its dialect is unknown; complaints go to the findings."""
        dialect = self._dialect()
        self._warn_of_numbers(dialect)
        self._check_names()
        at_least = self._at_least()
        if dialect is None:
            return None
        backends = self._backends(dialect)
        releases = self._releases(dialect)
        ceiling = self._ceiling(dialect, releases)
        silence = self._silence(dialect)
        self._check_ceiling(ceiling, dialect, backends)
        match, probe, retry = self.written.match, self.written.probe, self.written.retry
        return Service(
            name=self.name,
            dialect=dialect,
            backends=backends,
            match=Match(_as_sent(match.host), match.path, match.strip_prefix),
            policy=Policy(self.written.offer.policy),
            at_least=at_least,
            settle=self.written.offer.settle,
            ceiling=ceiling,
            silence=silence,
            releases={name: releases[name] for name in self.written.releases if name in releases},
            operations=read_operations(
                self.written.operations, dialect, child(self.node, "operations"), self.findings
            ),
            probe=ProbePlan(probe.interval, probe.timeout, probe.path, tuple(probe.headers.items())),
            retry=RetryPlan(
                retry.attempts, "connect" in retry.on, "no_reply" in retry.on, "version" in retry.on
            ),
        )

    def _dialect(self) -> Dialect | None:
        name = self.written.dialect
        node = child(self.node, "dialect")
        kind = self.dialects.get(name)
        if kind is None:
            known = sorted(self.dialects)
            close = get_close_matches(name, known, n=1)
            said = "there is no dialect of this name"
            hint = f"did you mean {close[0]}?" if close else "there are: " + ", ".join(known)
            self.findings.add(node, "unknown-dialect", said, hint)
            return None
        for other in self.dialects:
            if other != name and isinstance(self.node, MappingNode) and other in self.node.entries:
                self.findings.add(
                    self.node.entries[other].key,
                    "wrong-dialect",
                    f"these are options of {other}, but the service speaks {name}",
                    f"remove them, or write them under `{name}`",
                )
        try:
            return kind.configured(read_options(getattr(self.written, name), kind.Options))
        except OptionsError as error:
            # Beside what did not fit a default stands that nobody meant: what follows from it is no finding.
            if not self.findings.doubtful("services", self.name, name):
                for at, said, hint in error.problems:
                    self._refused_option((name, *at), said, hint)
            return None
        except (VersionTextError, ValueError) as error:
            self.findings.refused(child(self.node, name) or node, error)
            return None

    def _refused_option(self, at: tuple[str | int, ...], said: str, hint: str) -> None:
        """An option that makes no dialect: shown where it stands, or where it should."""
        paths = [at[:length] for length in range(len(at), -1, -1)]
        found = (child(self.node, *path) for path in paths)
        node = next((each for each in found if each is not None), None)
        self.findings.add(node, "bad-value", said, hint)

    def _warn_of_numbers(self, dialect: Dialect | None) -> None:
        """1.90 is a text here and the number 1.9 to every other reader of YAML."""
        lists = child(self.node, "backends"), child(self.node, "operations")
        releases = child(self.node, "releases")
        nodes = [
            child(self.node, "offer", "ceiling"),
            child(self.node, "offer", "ceiling", "release"),
            child(self.node, "default_version"),
            child(self.node, dialect.name, *dialect.silence_option) if dialect else None,
            *(
                child(item, "versions")
                for each in lists
                for item in (each.items if isinstance(each, SequenceNode) else ())
            ),
            *(
                each.value
                for each in (releases.entries.values() if isinstance(releases, MappingNode) else ())
            ),
        ]
        for node in nodes:
            if isinstance(node, Scalar) and node.plain and _DECIMAL.fullmatch(node.written):
                self.findings.add(
                    node,
                    "number",
                    f"other tools read {node.written} as the number {float(node.written)}",
                    f'write "{node.written}"',
                    severity=Severity.WARNING,
                )

    def _check_names(self) -> None:
        """Backends: at least one, names unique, and no address twice."""
        node = child(self.node, "backends")
        if not self.written.backends and not (isinstance(node, SequenceNode) and node.broken):
            self.findings.add(
                node, "bad-value", "the service has no backend", "add one: `- url: http://HOST:PORT`"
            )
        names: set[str] = set()
        urls: set[tuple[str, int, str]] = set()
        for index, each in enumerate(self.written.backends):
            name = each.name or _authority(each)
            place = child(node, index, "name") or child(node, index, "url")
            if name in names:
                self.findings.add(
                    place,
                    "duplicate-backend",
                    "two backends of the service have this name"
                    if each.name
                    else "two backends of the service have this address, which is their name, too",
                    "give each a name of its own" if each.name else "remove one, or give each a name",
                )
            elif each.url in urls:
                self.findings.add(
                    child(node, index, "url"),
                    "duplicate-url",
                    "another backend of the service has this URL",
                    "one replica counts twice when requests are spread",
                    severity=Severity.WARNING,
                )
            names.add(name)
            urls.add(each.url)

    def _backends(self, dialect: Dialect) -> tuple[Backend, ...]:
        made = []
        for index, each in enumerate(self.written.backends):
            declared = None
            if each.versions is not None:
                node = child(self.node, "backends", index, "versions")
                try:
                    declared = VersionSet.read(each.versions, dialect.scheme)
                except VersionTextError as error:
                    example = dialect.scheme.example
                    self.findings.refused(node, error, f'write one version "{example}" or a range')
            host, port, path = each.url
            made.append(Backend(each.name or _authority(each), host, port, path, each.weight, declared))
        return tuple(made)

    def _releases(self, dialect: Dialect) -> Mapping[str, Version]:
        """The dialect's table with the file's own names."""
        table = dict(dialect.releases)
        for name, text in self.written.releases.items():
            node = child(self.node, "releases", name)
            version = self._version(dialect, text, node)
            if version is None:
                continue
            known = dialect.releases.get(name)
            if known is not None and known != version:
                self.findings.add(
                    node,
                    "duplicate-release",
                    f"the dialect knows this release: it serves up to {dialect.scheme.format(known)}",
                    "give yours another name",
                )
            table[name] = version
        return table

    def _version(self, dialect: Dialect, text: str, node: Node | None) -> Version | None:
        try:
            return dialect.scheme.require(text)
        except VersionTextError as error:
            self.findings.refused(node, error)
            return None

    def _ceiling(self, dialect: Dialect, releases: Mapping[str, Version]) -> Version | None:
        ceiling = self.written.offer.ceiling
        node = child(self.node, "offer", "ceiling")
        if ceiling is None:
            return None
        if isinstance(ceiling, str):
            if dialect.scheme.parse(ceiling) is None and ceiling in releases:
                self.findings.add(
                    node,
                    "bad-value",
                    "this is the name of a release",
                    f"write {{release: {quoted(ceiling)}}}",
                )
                return None
            return self._version(dialect, ceiling, node)
        if ceiling.release not in releases:
            close = get_close_matches(ceiling.release, releases, n=1)
            hint = f"did you mean {close[0]}?" if close else "add it under `releases`, or name a version"
            self.findings.add(
                child(node, "release"),
                "unknown-release",
                "neither the dialect nor `releases` knows this name",
                hint,
            )
            return None
        return releases[ceiling.release]

    def _at_least(self) -> AtLeast:
        """The share that the policy needs; another policy has no use for one."""
        policy, share = self.written.offer.policy, self.written.offer.at_least
        node = child(self.node, "offer", "at_least")
        if share is None:
            if policy == Policy.AT_LEAST and not self.findings.doubtful(
                "services", self.name, "offer", "at_least"
            ):
                self.findings.add(
                    child(self.node, "offer", "policy"),
                    "contradiction",
                    "the policy at_least needs a number",
                    "add `at_least: 2` or `at_least: 50%`",
                )
            return EVERYONE
        if policy != Policy.AT_LEAST and not self.findings.doubtful("services", self.name, "offer", "policy"):
            self.findings.add(
                node,
                "contradiction",
                f"the policy is {policy}, which has no use for a number",
                "add `policy: at_least`, or remove this",
            )
        elif not share.percent and share.number > len(self.written.backends):
            self.findings.add(
                node,
                "contradiction",
                f"there are only {len(self.written.backends)} backends: no version could ever be added",
                "lower it, or write a percentage",
            )
        return share

    def _silence(self, dialect: Dialect) -> Silence | None:
        text = self.written.default_version
        if text is None:
            return None
        node = child(self.node, "default_version")
        if kind := SILENCE_WORDS.get(text):
            return Silence(kind)
        version = dialect.scheme.parse(text)
        if version is None:
            example = dialect.scheme.example
            self.findings.add(
                node, "bad-value", f"this is no version of the form {example}", "or write minimum or maximum"
            )
            return None
        return Silence(SilenceKind.CONSTANT, version)

    def _check_ceiling(
        self, ceiling: Version | None, dialect: Dialect, backends: tuple[Backend, ...]
    ) -> None:
        """Under a ceiling below what the declared backends begin with, nothing could ever be offered."""
        declared = [each.declared for each in backends if each.declared]
        reachable = self.written.offer.policy == Policy.REACHABLE and len(declared) < len(backends)
        if ceiling is None or not declared or reachable:
            return
        lowest = min(each.lowest for each in declared)
        if ceiling < lowest:
            self.findings.add(
                child(self.node, "offer", "ceiling"),
                "ceiling-below-minimum",
                f"the declared versions begin at {dialect.scheme.format(lowest)}: nothing would be offered",
                "raise the ceiling",
            )


def _as_sent(host: str | None) -> str | None:
    """A host as it stands in a Host field: IPv6 in brackets."""
    return f"[{host}]" if host and ":" in host else host


def _authority(backend: service_model.Backend) -> str:
    host, port, _ = backend.url
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
