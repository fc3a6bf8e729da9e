"""From the services of the document to those of `core.fleet.service`: everything that needs the dialect.

Versions are read in the dialect's scheme, names are looked up, and options go to the dialect's own dataclass.
This module knows no dialect by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from hashlib import sha256
from typing import Final

from gateway.core.configuration_rules import ProbePaths
from gateway.core.dialect import DefaultKind, DefaultVersion, Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import ALL_BACKENDS, AtLeast, Policy, Service
from gateway.core.fleet.source import Source
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.errors import OptionsError, VersionTextError
from gateway.keys.addresses import BackendUrl
from gateway.settings.checks.admission import check_client_limits, check_maintenance, read_access
from gateway.settings.checks.backend_tls import check_name, default_name, read_backend_tls
from gateway.settings.checks.balancing import check_backups, check_ejection, check_queue
from gateway.settings.checks.headers import read_header_edits
from gateway.settings.checks.operations import read_operations
from gateway.settings.checks.sources import (
    check_place,
    check_sources,
    read_source,
    source_place,
    warn_of_secrets,
)
from gateway.settings.model import service as service_model
from gateway.settings.model.document import RENAMED_DIALECTS, Document
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity, quoted
from gateway.settings.yaml.tree import MappingNode, Node, Scalar, SequenceNode, child, plain

_DECIMAL: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*", re.ASCII)

DEFAULT_VERSION_WORDS: Final = {
    "minimum": DefaultKind.MINIMUM,
    "maximum": DefaultKind.MAXIMUM,
    "refused": DefaultKind.REFUSED,
}


def read_services(
    document: Document, root: MappingNode, dialects: Mapping[str, type[Dialect]], findings: Findings
) -> tuple[Service, ...]:
    """Every service that can be made. Of the others, all problems are reported."""
    node = child(root, "services")
    if not document.services:
        findings.add(node, "bad-value", "no service is configured", "add one: its name, dialect and backends")
    services = []
    for name, written in document.services.items():
        reader = _ServiceReader(name, written, document, node, dialects, findings)
        if service := reader.read():
            services.append(service)
    return tuple(services)


class _ServiceReader:
    """Reads one service. Its methods share the node in the file and the findings."""

    def __init__(
        self,
        name: str,
        written: service_model.Service,
        document: Document,
        services: Node | None,
        dialects: Mapping[str, type[Dialect]],
        findings: Findings,
    ) -> None:
        self.name = name
        self.written = written
        self.document = document
        self.node = child(services, name)
        self.key = services.entries[name].key if isinstance(services, MappingNode) else None
        self.dialects = dialects
        self.findings = findings

    def read(self) -> Service | None:
        """The service, or None when its dialect cannot be made. Problems go to the findings."""
        dialect = self._dialect()
        self._warn_of_numbers()
        self._check_names()
        check_backups(self.written.backends, child(self.node, "backends"), self.findings)
        at_least = self._at_least()
        if dialect is None:
            return None
        backends, sources = self._backends(dialect)
        releases = self._releases(dialect)
        ceiling = self._ceiling(dialect, releases)
        default_version = self._default_version(dialect)
        self._check_ceiling(ceiling, dialect, releases, backends)
        self._check_hosts()
        self._check_sections(dialect)
        request_edits, response_edits = read_header_edits(
            self.written.headers, dialect, child(self.node, "headers"), self.findings
        )
        timeouts, limits = self._timeouts_and_limits()
        # What is inherited, and what files of TLS hold, may change while the service is written as before.
        all_tls = [*(each.tls for each in backends), *(each.tls for each in sources)]
        digested = self.node and (plain(self.node), timeouts, limits, all_tls)
        return Service(
            name=self.name,
            dialect=dialect,
            backends=backends,
            sources=sources,
            undiscovered=bool(sources),
            match=self.written.match,
            policy=Policy(self.written.offer.policy),
            at_least=at_least,
            stabilization=self.written.offer.stabilization,
            ceiling=ceiling,
            default_version=default_version,
            retry_after=self.written.retry_after,
            releases={name: releases[name] for name in self.written.releases if name in releases},
            operations=read_operations(
                self.written.operations, dialect, child(self.node, "operations"), self.findings
            ),
            probe=self.written.probe,
            retry=self.written.retry,
            ejection=self.written.ejection,
            timeouts=timeouts,
            limits=limits,
            reuse=self.written.reuse,
            upgrade=frozenset(self.written.upgrade),
            maintenance=self.written.maintenance,
            access=read_access(self.name, self.written.access, child(self.node, "access"), self.findings),
            client_limits=self.written.client_limits,
            request_edits=request_edits,
            response_edits=response_edits,
            written=sha256(repr(digested).encode("utf-8", "surrogatepass")).hexdigest() if digested else "",
        )

    def _dialect(self) -> Dialect | None:
        name = self.written.dialect
        node = child(self.node, "dialect")
        kind = self.dialects.get(name)
        if kind is None:
            known = sorted(self.dialects)
            close = get_close_matches(name, known, n=1)
            renamed = RENAMED_DIALECTS.get(name, "")
            if renamed:
                hint = f"write {renamed}, which is its new name"
            elif close:
                hint = f"did you mean {close[0]}?"
            else:
                hint = "known dialects: " + ", ".join(known)
            message = "there is no dialect of this name"
            self.findings.add(node, "unknown-dialect", message, hint, mend=renamed)
            return None
        for other in self.dialects:
            if other != name and isinstance(self.node, MappingNode) and other in self.node.entries:
                self.findings.add(
                    self.node.entries[other].key,
                    "wrong-dialect",
                    f"these are options of {other}, but the dialect of the service is {name}",
                    f"remove them, or write them under `{name}`",
                )
        try:
            return kind.made(self._options(kind))
        except OptionsError as error:
            # Where the model refused an option, the dialect got a default that nobody wrote. Problems with
            # that default are not reported.
            if not self.findings.is_dropped("services", self.name, name):
                for at, message, hint in error.problems:
                    self._refused_option((name, *at), message, hint)
            return None
        except (VersionTextError, ValueError) as error:
            self.findings.refused(child(self.node, name) or node, error)
            return None

    def _options(self, kind: type[Dialect]) -> object:
        """The dialect's options. Where it wants to know what probes request, they have it."""
        options = self.written.options.get(self.written.dialect) or kind.Options()
        has_probes = any(each.name == "probes" for each in fields(options))
        return replace(options, probes=self._probe_paths()) if has_probes else options

    def _refused_option(self, at: tuple[str | int, ...], message: str, hint: str) -> None:
        """Report an option that the dialect refuses: at the option, where the option is missing, or at the
        dialect where all options are."""
        paths = [*(at[:length] for length in range(len(at), 0, -1)), ("dialect",), ()]
        nodes = (child(self.node, *path) for path in paths)
        node = next((node for node in nodes if node is not None), None)
        self.findings.add(node, "bad-value", message, hint)

    def _warn_of_numbers(self) -> None:
        """Warn of versions without quotation marks: 1.90 is a text here, but 1.9 in other YAML readers."""
        lists = child(self.node, "backends"), child(self.node, "operations")
        releases = child(self.node, "releases")
        nodes = [
            child(self.node, "offer", "ceiling"),
            child(self.node, "default_version"),
            *(
                child(item, "versions")
                for items in lists
                for item in (items.items if isinstance(items, SequenceNode) else ())
            ),
            *(
                entry.value
                for entry in (releases.entries.values() if isinstance(releases, MappingNode) else ())
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
                    mend=f'"{node.written}"',
                )

    def _check_names(self) -> None:
        """Check the backends: at least one, each with its own name, and no URL twice."""
        node = child(self.node, "backends")
        if not self.written.backends and not (isinstance(node, SequenceNode) and node.broken):
            self.findings.add(
                node, "bad-value", "the service has no backend", "add one: `- url: http://HOST:PORT`"
            )
        names: set[str] = set()
        urls: set[BackendUrl] = set()
        for index, backend in enumerate(self.written.backends):
            check_place(
                *(backend, child(node, index), self.findings),
                *("services", self.name, "backends", index),
            )
            if backend.url is None:
                continue
            name = backend.name or default_name(backend.url)
            check_name(name, child(node, index, "url"), self.findings)
            if name in names:
                self.findings.add(
                    child(node, index, "name") or child(node, index, "url"),
                    "duplicate-backend",
                    "two backends of the service have this name"
                    if backend.name
                    else "two backends of the service have the same name, which is that of their socket"
                    if backend.url.socket_path
                    else "two backends of the service have this address, which is also their name",
                    "give each its own name" if backend.name else "remove one, or give each a name",
                )
            elif backend.url in urls:
                self.findings.add(
                    child(node, index, "url"),
                    "duplicate-url",
                    "another backend of the service has this URL",
                    "the replica would get twice its share of the requests",
                    severity=Severity.WARNING,
                )
            names.add(name)
            urls.add(backend.url)

    def _backends(self, dialect: Dialect) -> tuple[tuple[Backend, ...], tuple[Source, ...]]:
        """Those that the file names, and the sources of others."""
        backends, sources, nodes = [], [], []
        for index, written in enumerate(self.written.backends):
            declared = None
            if written.versions is not None:
                node = child(self.node, "backends", index, "versions")
                try:
                    declared = VersionSet.read(written.versions, dialect.scheme)
                except VersionTextError as error:
                    example = dialect.scheme.example
                    self.findings.refused(node, error, f'write one version such as "{example}", or a range')
            backend_node = child(self.node, "backends", index)
            template = self._template(written, declared, backend_node)
            if written.url is not None:
                host, port, path, _, socket_path = written.url
                tls = read_backend_tls(written, written.url, backend_node, self.findings)
                name = written.name or default_name(written.url)
                own = replace(template, name=name, host=host, port=port, path=path, socket_path=socket_path)
                backends.append(replace(own, tls=tls))
            elif source_place(written) is not None:
                sources.append(read_source(written, template, backend_node, self.findings))
                nodes.append(backend_node)
        check_sources(tuple(sources), tuple(nodes), self.findings)
        warn_of_secrets(tuple(sources), child(self.node, "probe", "headers"), self.findings)
        return tuple(backends), tuple(sources)

    def _template(
        self, written: service_model.Backend, declared: VersionSet | None, node: Node | None
    ) -> Backend:
        """A backend without name and address, as the file describes it."""
        template = Backend(
            name="", host="", port=0, weight=written.weight, declared=declared, backup=written.backup
        )
        requests, connections = written.max_requests or 0, written.max_connections or 0
        if requests or connections:
            return replace(template, max_requests=requests, max_connections=connections, queue=written.queue)
        check_queue(node, self.findings)
        return template

    def _check_sections(self, dialect: Dialect) -> None:
        """Check the sections whose values core uses as they are read."""
        written, findings = self.written, self.findings
        check_ejection(written.ejection, child(self.node, "ejection"), findings)
        limits_node, node = child(self.node, "client_limits"), child(self.node, "maintenance")
        check_client_limits(self.name, written.client_limits, limits_node, findings)
        check_maintenance(written.maintenance, dialect, node, findings, retry_after=written.retry_after)

    def _check_hosts(self) -> None:
        """Report an empty list of hosts, and a host that is there twice."""
        written, node = self.written.match.host, child(self.node, "match", "host")
        items = node.items if isinstance(node, SequenceNode) else []
        if written == () and not (node is not None and node.broken) and not items:
            self.findings.add(
                node, "bad-value", "the list is empty", "add a host, or remove the key: any host"
            )
        for index, host in enumerate(written or ()):
            if written and host in written[:index] and len(items) == len(written):
                first = items[written.index(host)].position.line
                self.findings.add(
                    items[index],
                    "duplicate-match",
                    f"the same host as in line {first}",
                    "hosts are compared without case and without the dot at the end",
                )

    def _probe_paths(self) -> ProbePaths:
        match, health = self.written.match, self.written.probe.health
        prefix = "" if match.strip_prefix or match.path == "/" else match.path
        return ProbePaths(self.written.probe.path, None if health is None else health.path, prefix)

    def _timeouts_and_limits(self) -> tuple[Timeouts, Limits]:
        """Its time-outs and limits. Its own that contradict each other are reported, inherited ones not."""
        whole, timeouts, limits = self.document, self.written.timeouts, self.written.limits
        if {"body", "replay_body"} <= limits.keys() and limits["replay_body"] > limits["body"]:
            self.findings.add(
                child(self.node, "limits", "replay_body"),
                "contradiction",
                "limits.replay_body is larger than limits.body",
                "a larger body is never accepted",
            )
        return replace(whole.timeouts, **timeouts), replace(whole.limits, **limits)

    def _releases(self, dialect: Dialect) -> Mapping[str, Version]:
        """The dialect's table and the releases of the file."""
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
                    f"the dialect already has this release, with the version {dialect.scheme.format(known)}",
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
            hint = f"did you mean {close[0]}?" if close else "add it under `releases`, or write a version"
            self.findings.add(
                child(node, "release"),
                "unknown-release",
                "neither the dialect nor `releases` has this release",
                hint,
            )
            return None
        return releases[ceiling.release]

    def _at_least(self) -> AtLeast:
        """The number of backends for the policy `at_least`. No other policy uses one."""
        policy, share = self.written.offer.policy, self.written.offer.at_least
        node = child(self.node, "offer", "at_least")
        if share is None:
            if policy == Policy.AT_LEAST and not self.findings.is_dropped(
                "services", self.name, "offer", "at_least"
            ):
                self.findings.add(
                    child(self.node, "offer", "policy"),
                    "contradiction",
                    "the policy at_least needs a number",
                    "add `at_least: 2` or `at_least: 50%`",
                )
            return ALL_BACKENDS
        if policy != Policy.AT_LEAST and not self.findings.is_dropped(
            "services", self.name, "offer", "policy"
        ):
            self.findings.add(
                node,
                "contradiction",
                f"the policy {policy} does not use at_least",
                "write `policy: at_least`, or remove this key",
            )
        elif (
            not share.percent
            and share.number > len(self.written.backends)
            and all(source_place(backend) is None for backend in self.written.backends)
        ):
            self.findings.add(
                node,
                "contradiction",
                f"more than the service's backends, {len(self.written.backends)}: no version could be added",
                "lower the number, or write a percentage",
            )
        return share

    def _default_version(self, dialect: Dialect) -> DefaultVersion | None:
        text = self.written.default_version
        if text is None:
            return None
        node = child(self.node, "default_version")
        if kind := DEFAULT_VERSION_WORDS.get(text):
            return DefaultVersion(kind)
        version = dialect.scheme.parse(text)
        if version is None:
            example = dialect.scheme.example
            self.findings.add(
                node,
                "bad-value",
                f"not a valid version, write one like {example}",
                "or write minimum, maximum or refused",
            )
            return None
        return DefaultVersion(DefaultKind.CONSTANT, version)

    def _check_ceiling(
        self,
        ceiling: Version | None,
        dialect: Dialect,
        releases: Mapping[str, Version],
        backends: tuple[Backend, ...],
    ) -> None:
        """Report a ceiling above all that the known releases serve, and one below the lowest declared
        version: nothing could be offered."""
        known = {**dialect.releases, **releases}
        if ceiling is not None and known and ceiling > (highest := max(known.values())):
            self.findings.add(
                child(self.node, "offer", "ceiling"),
                "no-effect",
                f"no known release serves more than {dialect.scheme.format(highest)}: this hides nothing",
                "lower the ceiling, or remove it; newer releases can be named under `releases`",
                severity=Severity.WARNING,
            )
        declared = [backend.declared for backend in backends if backend.declared]
        reachable = self.written.offer.policy == Policy.REACHABLE and len(declared) < len(backends)
        if ceiling is None or not declared or reachable:
            return
        lowest = min(versions.lowest for versions in declared)
        if ceiling < lowest:
            self.findings.add(
                child(self.node, "offer", "ceiling"),
                "ceiling-below-minimum",
                f"the lowest declared version is {dialect.scheme.format(lowest)}: nothing would be offered",
                "raise the ceiling",
            )
