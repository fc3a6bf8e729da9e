"""A service of the configuration file: its keys, and the service of core that is made from them.

Nouns with a module of their own are `backend`, `offer`, `headers`, `operation`, `access` and `dialect`. This
module knows no dialect by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, final

from gateway.core.dialect import Dialect, ProbePaths
from gateway.core.fleet.admission import CLIENT_LIMITS, MAINTENANCE, ClientLimits, Maintenance
from gateway.core.fleet.bridge import BRIDGE, Bridge
from gateway.core.fleet.connections import REUSE, Reuse
from gateway.core.fleet.failures import EJECTION_OR_OFF, RETRY, Ejection, Retry
from gateway.core.fleet.limits import SERVICE_LIMITS, Limits
from gateway.core.fleet.service import MATCH, PROBE, AtLeast, Match, Policy, Probe, Service
from gateway.core.fleet.skew import SKEW, ReleaseOrder, Skew
from gateway.core.fleet.timeouts import SERVICE_TIMEOUTS, Timeouts
from gateway.core.http.message import PROTOCOL_PATTERN, carries_requests
from gateway.keys.kinds import SHARED, ListOf, Table, Text, matching, reject, section
from gateway.keys.texts import FLAG, LINE, VERSION, one_of
from gateway.settings.sections.access import WrittenAccess, read_access
from gateway.settings.sections.backend import BACKEND, WrittenBackend, check_backends, read_backends
from gateway.settings.sections.dialect import check_rules, read_dialect
from gateway.settings.sections.headers import Headers, read_header_edits
from gateway.settings.sections.lifecycle import WrittenLifecycle, read_lifecycle
from gateway.settings.sections.offer import (
    WrittenOffer,
    check_floors,
    read_at_least,
    read_ceiling,
    read_default_version,
    read_releases,
)
from gateway.settings.sections.operation import WrittenOperation, read_operations
from gateway.settings.sections.pace import read_paces
from gateway.settings.sections.versions import read_version
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, SequenceNode, child, plain


def read_protocol(text: str) -> str:
    """Read the name of a protocol of `Upgrade` that may be tunnelled, in lower case."""
    if re.fullmatch(PROTOCOL_PATTERN, text, re.ASCII) is None:
        reject("not a valid protocol", "write its name, and its version after a slash if it has one")
    if carries_requests(text):
        reject(
            "this protocol is never tunnelled: HTTP requests in it would reach a backend with no version "
            "negotiated",
            "write a protocol that is not HTTP, such as websocket",
        )
    return text.lower()


PROTOCOL: Final = Text(read_protocol, matching(PROTOCOL_PATTERN))


@final
@dataclass(frozen=True, slots=True)
class WrittenService:
    """A versioned API with one dialect."""

    dialect: str = field(
        metadata=LINE.required(
            "The dialect: how this API expresses versions.",
            reason="A wrong guess would misread every request.",
            example="ironic",
        )
    )
    backends: tuple[WrittenBackend, ...] = field(
        metadata=ListOf(BACKEND).required(
            "The replicas, at least one.",
            reason="A service without a backend cannot respond.",
            example=[{"url": "http://127.0.0.1:6385"}],
            form="[{url: http://HOST:PORT}]",
            minItems=1,
        )
    )
    match: Match = MATCH.key(
        {},
        reason="A single service gets all requests.",
        example={"path": "/baremetal"},
    )
    probe: Probe = PROBE.key(
        {},
        reason="The dialect has good defaults.",
        example={"interval": "10s"},
    )
    offer: WrittenOffer = section(WrittenOffer, title="Offer").key(
        {},
        reason="What every backend serves, without a ceiling.",
        example={"ceiling": "1.90"},
    )
    lifecycle: WrittenLifecycle = section(WrittenLifecycle, title="Lifecycle").key(
        {},
        reason="Nothing is deprecated.",
        example={"deprecated": {"below": "1.46", "since": "2026-01-15"}},
    )
    bridge: tuple[Bridge, ...] = ListOf(BRIDGE).key(
        (),
        "Clients that cannot be changed: where a version would be refused to them, the nearest one on offer "
        "is served. `X-Skewgate-Bridged` in the response names both. Bodies are not converted.",
        reason="A request is executed at the version that it asks for, or not at all.",
        example=[{"clients": ["old-ci"], "match": "nearest_later", "until": "2099-06-30"}],
    )
    releases: Mapping[str, str] = Table(LINE, VERSION).key(
        {},
        "Release names beyond the dialect's table, each with its highest version, for `offer.ceiling`.",
        reason="The dialect's table has the public releases.",
        example={"our-build-7": "1.90"},
    )
    skew: Skew | None = SKEW.key(None, reason="Only the operator knows it.", example={"releases": 1})
    default_version: str | None = VERSION.key(
        None,
        "The version for requests without one: minimum or maximum (of the offer), refused, or a version. "
        "Without this key: as the dialect's servers do.",
        reason="Clients were written for what their servers do.",
        example="minimum",
    )
    legacy: str = one_of("transparent", "refuse").key(
        "transparent",
        "What happens while all known backends are legacy. transparent: requests pass unchanged. refuse: the "
        "version that legacy backends count as (Ironic 1.1, Senlin 1.0, Chef 0) is on offer; others are "
        "refused.",
        reason="The backends ignore versions, and clients have learnt to live with that.",
        example="refuse",
    )
    retry_after: bool | None = FLAG.key(
        None,
        "Whether a 503 of the gateway has `Retry-After`. Without this key: true, except for dialects whose "
        "clients break on it (ironic, and the Manila and Ironic Inspector of openstack).",
        reason="python-ironicclient and manilaclient raise TypeError at it. Other clients wait accordingly.",
        example=True,
    )
    operations: tuple[WrittenOperation, ...] = ListOf(section(WrittenOperation, title="Operation")).key(
        (),
        "Operations that exist only in some versions of the service. In other versions the gateway refuses "
        "them as the dialect's servers do; no backend is touched. All other paths exist in every version.",
        reason="Only the backends know their operations. The gateway must be configured.",
        example=[{"methods": ["GET"], "path": "/v1/nodes/{node}/vifs", "versions": ">=1.28"}],
    )
    retry: Retry = RETRY.key(
        {},
        reason="Only where a second attempt does no harm.",
        example={"attempts": 2},
        workers=f"{SHARED}: at a time each worker repeats at most a fifth of its own requests in flight. The "
        "3 that every service may have are leased to the worker that needs them",
    )
    ejection: Ejection | None = EJECTION_OR_OFF.key(
        {},
        "Outlier ejection: when a failing backend gets no requests for a while; `off`: never. If no other "
        "backend that serves a version is usable, ejected ones get its requests. The offer does not change.",
        reason="A backend that fails costs clients time until its next probe, and some pass every probe.",
        example={"failures": 3, "time": "30s"},
    )
    headers: Headers = section(Headers).key(
        {},
        "Headers that are set, added and removed.",
        reason="By default, headers pass as they came.",
        example={"response": {"remove": ["X-Powered-By"]}},
    )
    upgrade: tuple[str, ...] = ListOf(PROTOCOL).key(
        (),
        "Protocols, as named in `Upgrade`, to which a client may switch its connection: it becomes a tunnel "
        "to the backend. Others are removed from the request, which is forwarded without an upgrade.",
        reason="Nothing in a tunnel is negotiated, checked or logged.",
        example=["websocket"],
    )
    reuse: Reuse = REUSE.key(
        {},
        reason="The defaults cost nothing and bound the harm of a connection that is out of step.",
        example={"requests": 100, "time": "1m"},
    )
    access: WrittenAccess = section(WrittenAccess, title="Access").key(
        {},
        reason="Without rules, every client that reaches the listener may use its services.",
        example={"allow": ["10.0.0.0/8"]},
    )
    client_limits: ClientLimits = CLIENT_LIMITS.key(
        {},
        "How much of the service one client may use.",
        reason="There is no useful default.",
        example={"rate": "100/s", "concurrency": 50},
    )
    maintenance: Maintenance | None = MAINTENANCE.key(
        None,
        "A fixed response to every request of the service, discovery documents included, while this key is "
        "set. Probes continue and keep the offer up to date.",
        reason="Without this key, the service is available.",
        example={"retry_after": "10m"},
    )
    timeouts: Mapping[str, Any] = SERVICE_TIMEOUTS.key(
        {},
        "How long the gateway waits for the peers of this service. What is not here is inherited from the "
        "`timeouts` of the whole file.",
        reason="Most services need the same.",
        example={"backend_body_idle": "off"},
    )
    limits: Mapping[str, Any] = SERVICE_LIMITS.key(
        {},
        "How much this service accepts. What is not here is inherited from the `limits` of the whole file.",
        reason="Most services need the same.",
        example={"body": "10GiB"},
    )
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Options of dialects, by the name of the dialect."""


SERVICE: Final = section(WrittenService, title="Service")
"""The keys of a service but the options of dialects, which `schema.file_section` adds."""


def read_services(
    written: Mapping[str, WrittenService],
    timeouts: Timeouts,
    limits: Limits,
    node: Node | None,
    dialects: Mapping[str, type[Dialect]],
    findings: Findings,
) -> tuple[Service, ...]:
    """The services of the file with a usable dialect. `timeouts` and `limits` are those of the whole file."""
    if not written:
        findings.bad_value(node, "no service is configured", "add one: its name, dialect and backends")
    services = []
    for name, each in written.items():
        reader = _ServiceReader(name, each, child(node, name), findings)
        service = reader.read(timeouts, limits, dialects)
        if service is not None:
            services.append(service)
    return tuple(services)


@final
@dataclass(frozen=True, slots=True)
class _ServiceReader:
    name: str
    written: WrittenService
    node: Node | None
    findings: Findings

    def read(
        self, timeouts: Timeouts, limits: Limits, dialects: Mapping[str, type[Dialect]]
    ) -> Service | None:
        written, node, findings = self.written, self.node, self.findings
        match, health = written.match, written.probe.health
        prefix = "" if match.strip_prefix or match.path == "/" else match.path
        probes = ProbePaths(written.probe.path, None if health is None else health.path, prefix)
        dialect = read_dialect(
            written.dialect, written.options, dialects, node, findings, service=self.name, probes=probes
        )
        place = child(node, "backends")
        check_backends(written.backends, place, ("services", self.name, "backends"), findings)
        has_sources = any(each.place not in {"", "url"} for each in written.backends)
        number = None if has_sources else len(written.backends)
        at_least = read_at_least(written.offer, self.name, number, child(node, "offer"), findings)
        if dialect is None:
            return None
        self._check_hosts()
        self._check_sections(dialect)
        service = self._service(
            dialect, at_least, replace(timeouts, **written.timeouts), replace(limits, **written.limits)
        )
        check_rules(service, node, findings)
        check_floors(service, node, findings)
        return service

    def _service(self, dialect: Dialect, at_least: AtLeast, timeouts: Timeouts, limits: Limits) -> Service:
        written, node, findings = self.written, self.node, self.findings
        offer = written.offer
        backends, sources = read_backends(written.backends, dialect, node, findings)
        releases = read_releases(written.releases, dialect, child(node, "releases"), findings)
        known_releases = {**dialect.releases, **releases}
        if written.skew is not None and len(ReleaseOrder(dialect, releases).known) < 2:
            message = "the order of releases is not known: fewer than two have a highest version"
            findings.contradiction(child(node, "skew"), message, "add `releases: {NAME: VERSION, ...}`")
        request_edits, response_edits = read_header_edits(
            written.headers, dialect, child(node, "headers"), findings
        )
        ceiling = read_ceiling(offer, known_releases, backends, dialect, child(node, "offer"), findings)
        # What is inherited, and what files of TLS hold, may change while the service is written as before.
        all_tls = [*(each.tls for each in backends), *(each.tls for each in sources)]
        digested = node and (plain(node), timeouts, limits, all_tls)
        return Service(
            name=self.name,
            dialect=dialect,
            backends=backends,
            sources=sources,
            undiscovered=bool(sources),
            match=written.match,
            policy=Policy(offer.policy),
            at_least=at_least,
            stabilization=offer.stabilization,
            ceiling=ceiling,
            lifecycle=read_lifecycle(written.lifecycle, dialect, ceiling, child(node, "lifecycle"), findings),
            paces=read_paces(offer.for_, ceiling, backends, dialect, child(node, "offer"), findings),
            bridges=written.bridge,
            floor=read_version(offer.floor, dialect, child(node, "offer", "floor"), findings),
            default_version=read_default_version(
                written.default_version, dialect, child(node, "default_version"), findings
            ),
            negotiates_legacy=written.legacy == "refuse",
            retry_after=written.retry_after,
            releases=releases,
            skew=written.skew,
            operations=read_operations(written.operations, dialect, child(node, "operations"), findings),
            probe=written.probe,
            retry=written.retry,
            ejection=written.ejection,
            timeouts=timeouts,
            limits=limits,
            reuse=written.reuse,
            upgrade=frozenset(written.upgrade),
            maintenance=written.maintenance,
            access=read_access(self.name, written.access, child(node, "access"), findings),
            client_limits=written.client_limits,
            request_edits=request_edits,
            response_edits=response_edits,
            written=sha256(repr(digested).encode("utf-8", "surrogatepass")).hexdigest() if digested else "",
        )

    def _check_sections(self, dialect: Dialect) -> None:
        """Report problems in a service's ejection, client limits, maintenance and limits of bodies."""
        written, findings = self.written, self.findings
        if written.ejection is not None:
            self._check_ejection(written.ejection, child(self.node, "ejection"))
        limits, node = written.client_limits, child(self.node, "client_limits")
        dropped = findings.is_dropped("services", self.name, "client_limits", "rate")
        if limits.rate is None and limits.burst is not None and not dropped:
            hint = "add `rate: 100/s`, or write `concurrency` for requests in flight"
            findings.contradiction(child(node, "burst"), "a burst needs a rate", hint)
        sent = dialect.retry_after if written.retry_after is None else written.retry_after
        if written.maintenance is not None and written.maintenance.retry_after is not None and not sent:
            message = "clients of this dialect break on Retry-After, so it is not sent"
            hint = "remove it, or set `retry_after: true` for the service"
            findings.warn(child(self.node, "maintenance", "retry_after"), "no-effect", message, hint)
        bodies = written.limits  # the service's own: inherited ones are checked where they are written
        if {"body", "replay_body"} <= bodies.keys() and bodies["replay_body"] > bodies["body"]:
            message = "limits.replay_body is larger than limits.body"
            hint = "a larger body is never accepted"
            findings.contradiction(child(self.node, "limits", "replay_body"), message, hint)

    def _check_ejection(self, ejection: Ejection, node: Node | None) -> None:
        if ejection.max_time < ejection.time:
            message = "max_time is shorter than time: every ejection would be cut to it"
            hint = "raise max_time, or lower time"
            self.findings.contradiction(child(node, "max_time") or child(node, "time"), message, hint)
        if not ejection.on and not self.findings.is_any_dropped("ejection", "on"):
            message = "no kind of failure is left, so no backend would be ejected"
            self.findings.contradiction(child(node, "on"), message, "write `ejection: off`")

    def _check_hosts(self) -> None:
        written, node = self.written.match.host, child(self.node, "match", "host")
        items = node.items if isinstance(node, SequenceNode) else []
        if written == () and not (node is not None and node.broken) and not items:
            self.findings.bad_value(node, "the list is empty", "add a host, or remove the key: any host")
        for index, host in enumerate(written or ()):
            if written and host in written[:index] and len(items) == len(written):
                first = items[written.index(host)].position.line
                hint = "hosts are compared without case and without the dot at the end"
                self.findings.add(items[index], "duplicate-match", f"the same host as in line {first}", hint)
