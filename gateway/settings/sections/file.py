"""The whole configuration file: its keys, its small sections, and the rules between services.

Each section is a frozen dataclass whose fields are keys. Defaults are written as an operator would write
them, and read by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Final, final

from gateway.core.clients import CLIENT, Client
from gateway.core.fleet.limits import LIMITS, Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.timeouts import TIMEOUTS, Timeouts
from gateway.core.http.message import HOP_BY_HOP, UNLISTABLE, UNTRUSTED_HEADERS, normalize_pattern
from gateway.core.http.request_ids import PLAIN_IDS
from gateway.keys.addresses import CLIENT_ADDRESS, TRUSTED_PEER, UNIX, read_network
from gateway.keys.kinds import TEXT, Either, ListOf, PathText, Table, section
from gateway.keys.texts import (
    FILE_PATH,
    FILE_PATTERN,
    FLAG,
    HEADER_PATTERN_TEXT,
    NAME,
    one_of,
    read_text,
)
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.agreement import AgreementSettings
from gateway.settings.sections.headers import read_by
from gateway.settings.sections.include import Include
from gateway.settings.sections.listen import ClientAddress, WrittenListener
from gateway.settings.sections.service import SERVICE, WrittenService
from gateway.settings.sections.usage import USAGE_OR_OFF, UsageSettings
from gateway.settings.sections.workers import MAX_WORKERS, WORKERS
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, Node, SequenceNode, child

_OF_THE_MESSAGE: Final = HOP_BY_HOP | UNLISTABLE | {"expect", "via"}
"""Headers (normalized names) that the gateway reads from every peer or removes."""


@final
@dataclass(frozen=True, slots=True)
class AccessLogSettings:
    """The access log: one line for every request."""

    format: str = one_of("json", "text", "off").key(
        "json",
        "The format of a line; off: no lines.",
        reason="Mostly programs read the access log.",
        example="text",
    )
    path: str = PathText(read_text, TEXT, unplaced="-").key(
        "-",
        "The file to which lines are appended; `-` is standard output.",
        reason="Containers and systemd collect standard output.",
        example="/var/log/skewgate/access.log",
    )
    query: str = one_of("redact", "keep").key(
        "redact",
        "How a line shows the query: `redact` writes `*` for each value (`?limit=*`), `keep` writes it as it "
        "came.",
        reason="Queries contain tokens, signatures and personal data, and logs are kept for long.",
        example="keep",
    )


@final
@dataclass(frozen=True, slots=True)
class LogSettings:
    """The gateway's own messages, on standard error."""

    format: str = one_of("text", "json").key(
        "text",
        "The format of a line. In JSON every event is one line, with the keys of the access log where they "
        "mean the same.",
        reason="Mostly people read it: at the start, and in `journalctl`.",
        example="json",
    )
    level: str = one_of("debug", "info", "warning", "error").key(
        "info",
        "Events below this level are not written.",
        reason="A healthy gateway writes a few lines a day.",
        example="warning",
    )


@final
@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Settings of `/metrics`: the set of series that it has."""

    per_backend: bool = FLAG.key(
        default=True,
        meaning="Whether durations, failures, connections, ranges and requests are shown for each "
        "backend. If not, a backend has five series: skewgate_backend_up, _draining, _ejected and "
        "_unhealthy, and skewgate_offer_held_by; a discovered one also skewgate_backend_leaving.",
        reason="Some 70 series for each backend show which one is slow; with a thousand backends they may be "
        "too many for a Prometheus.",
        example=False,
    )


@final
@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A whole configuration file. `schema` replaces the type of services: keys depend on the dialects."""

    listen: ClientAddress | tuple[WrittenListener, ...] = field(
        metadata=Either(CLIENT_ADDRESS, ListOf(section(WrittenListener, title="Listener"))).required(
            "The address for clients: HOST:PORT, unix:PATH, or a list of `{address: HOST:PORT}` with more "
            "keys. `[::]:PORT` serves IPv4, too, unless another listener has that port there.",
            reason="There is no useful default.",
            example="127.0.0.1:8080",
        )
    )
    services: Mapping[str, WrittenService] = field(
        metadata=Table(NAME, SERVICE).required(
            "The APIs, each under a name of 1 to 64 letters, digits, `_`, `.` or `-`.",
            reason="Without a service the gateway has nothing to do.",
            example={"baremetal": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:6385"}]}},
            form="{NAME: {...}}",
            minProperties=1,
        )
    )
    include: str | Include | None = Either(FILE_PATTERN, section(Include)).key(
        None,
        "A pattern of files with further services, each `services: {...}` and nothing else, or a "
        "mapping with more keys. A name that two files have is an error.",
        reason="One file is enough for most. Teams may each have their own.",
        example="conf.d/*.yaml",
    )
    watch: bool = FLAG.key(
        default=True,
        meaning="Whether the gateway reloads by itself, one second after the last change of a file that it "
        "has read: this file, included ones, `${FILE:PATH}`, TLS of backends. A refused change is tried "
        "again after the next change.",
        reason="ConfigMaps and Secrets change without a signal.",
        example=False,
    )
    admin: Admin = section(Admin).key(
        {},
        reason="Every installation needs health and metrics.",
        example={"listen": "127.0.0.1:9900"},
    )
    workers: int | None = WORKERS.key(
        1,
        "How many processes serve requests; `auto`: one for each CPU that the gateway may use, at most "
        f"{MAX_WORKERS}. With 1, the main process serves requests itself. With more, it serves none "
        "(docs/workers.md).",
        reason="One process handles thousands of requests a second with the least memory.",
        example="auto",
    )
    agreement: AgreementSettings | None = section(AgreementSettings, title="Agreement").key(
        None,
        "The store through which all replicas of this gateway share one offer, pins and drains "
        "(docs/replicas.md).",
        reason="Without it, a gateway shares nothing.",
        example={
            "etcd": {"endpoints": ["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"]},
            "cluster": "site-1",
        },
    )
    access_log: AccessLogSettings = section(AccessLogSettings, title="AccessLog").key(
        {},
        reason="JSON lines on standard output.",
        example={"format": "off"},
    )
    log: LogSettings = section(LogSettings, title="Log").key(
        {},
        "The gateway's own messages, on standard error. A reload applies a change.",
        reason="Each key has its own.",
        example={"format": "json"},
    )
    metrics: MetricsSettings = section(MetricsSettings, title="Metrics").key(
        {},
        reason="Each key has its own.",
        example={"per_backend": False},
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network | str, ...] = ListOf(TRUSTED_PEER).key(
        (),
        "Networks whose X-Forwarded-* headers and PROXY headers are accepted; from all others they are "
        "replaced. `unix:` means every client of a Unix socket.",
        reason="A trusted peer can claim any origin.",
        example=["10.0.0.0/8"],
    )
    untrusted_headers: tuple[str, ...] = ListOf(HEADER_PATTERN_TEXT).key(
        UNTRUSTED_HEADERS,
        "Headers that are dropped from peers outside `trusted_proxies`, in every spelling (`X_Real.IP`); `*` "
        "at the end: all with this prefix. Headers about the client that the gateway writes are always "
        "replaced, and `Proxy` is always dropped. A list replaces the whole default.",
        reason="Servers believe that a proxy wrote them: the client's identity, its address, the original "
        "URL.",
        example=["X-Forwarded-*", "X-Original-*", "X-Acme-User"],
    )
    clients: tuple[Client, ...] = ListOf(CLIENT).key(
        (),
        "Names for clients, for usage, the access log and `explain`; the first entry that matches counts. A "
        "client without a name is known by the product of its User-Agent (docs/usage.md).",
        reason="Only the operator knows which client is whose.",
        example=[{"name": "nova", "user_agent": "python-ironicclient", "networks": ["10.9.0.0/16"]}],
    )
    state: str | None = FILE_PATH.key(
        None,
        "A small file that keeps offers, pins and drains across a restart. It is written whenever they "
        "change. Without it, nothing is kept.",
        reason="There is no useful default. Without it the fleet is learned anew after a restart.",
        example="/var/lib/skewgate/state.json",
    )
    usage: UsageSettings | None = USAGE_OR_OFF.key(
        {},
        "The record of which clients use which versions, or `off` (docs/usage.md).",
        reason="It costs a request less than a microsecond, and is needed most when nobody thought of it "
        "before.",
        example={"keep": "90d"},
    )
    timeouts: Timeouts = TIMEOUTS.key(
        {}, "How long the gateway waits.", reason="Each key has its own.", example={"connect": "1s"}
    )
    limits: Limits = LIMITS.key(
        {}, "How much the gateway accepts.", reason="Each key has its own.", example={"body": "10MiB"}
    )


FILE: Final = section(WrittenFile, "The configuration of skewgate.", title="Configuration")


def check_limits(limits: Limits, root: MappingNode, findings: Findings) -> None:
    """Report two size limits that contradict each other, at the limit that the file sets."""
    for small, large, why in (
        ("line", "head", "a line is a part of the head"),
        ("replay_body", "body", "a larger body is never accepted"),
    ):
        dropped = findings.is_dropped("limits", small) or findings.is_dropped("limits", large)
        if not dropped and getattr(limits, small) > getattr(limits, large):
            message = f"limits.{small} is larger than limits.{large}"
            findings.contradiction(child(root, "limits", small) or child(root, "limits", large), message, why)


def check_trust(root: MappingNode, findings: Findings) -> None:
    """Warn if every network is trusted, which is nearly always a mistake."""
    node = child(root, "trusted_proxies")
    for item in node.items if isinstance(node, SequenceNode) else ():
        text = getattr(item, "text", "")
        if not item.broken and text != UNIX and read_network(text).prefixlen == 0:
            message = "every client is trusted and can claim any origin"
            findings.warn(item, "trusts-everyone", message, "name the networks of your load balancers")


def check_untrusted_headers(services: Sequence[Service], root: MappingNode, findings: Findings) -> None:
    """Report items of `untrusted_headers` that would drop a header which the gateway or a dialect needs."""
    node = child(root, "untrusted_headers")
    items = node.items if isinstance(node, SequenceNode) else ()
    for item in items:
        text = getattr(item, "text", "")
        if item.broken or not text:
            continue
        pattern = normalize_pattern(text)
        if _covers(pattern, _OF_THE_MESSAGE):
            message = "this would drop a header of the connection or the framing, which the gateway handles"
            hint = "name the headers one by one" if text.endswith("*") else "remove it from the list"
            findings.contradiction(item, message, hint)
            continue
        # A request id is taken from everybody. A pattern with `*` has no effect on it.
        exact = pattern if pattern == PLAIN_IDS.normalized_header else ""
        for service in services:
            if name := _covers(pattern, read_by(service.dialect)) or exact:
                message = f"service {service.name!r} reads the header {name!r}, which this would drop"
                hint = "name the headers one by one" if text.endswith("*") else "remove it from the list"
                findings.contradiction(item, message, hint)
                break


def _covers(pattern: str, names: frozenset[str]) -> str:
    """The first of `names` that a pattern of header names (normalized) matches; empty: none."""
    beginning = pattern.removesuffix("*")
    if beginning == pattern:
        return pattern if pattern in names else ""
    return next((name for name in sorted(names) if name.startswith(beginning)), "")


def check_matches(services: Sequence[Service], root: MappingNode, findings: Findings) -> None:
    """Report services that match the same requests, by host and path."""
    seen: dict[tuple[str | None, str], str] = {}
    for service in services:
        if findings.is_dropped("services", service.name, "match"):
            continue
        for host in service.match.hosts or (None,):
            other = seen.setdefault((host, service.match.path), service.name)
            if other == service.name:
                continue
            node = _match_node(root, service, host)
            first = _match_node(root, next(one for one in services if one.name == other), host)
            line = f" ({findings.line_of(first, node)})" if first else ""
            message = f"services {other!r}{line} and {service.name!r} match the same requests"
            hint = "give one of them another match.path or match.host"
            findings.add(node, "duplicate-match", message, hint)


def _match_node(root: MappingNode, service: Service, host: str | None) -> Node | None:
    """The node of the file by which a service matches `host`; the most specific one."""
    match = child(root, "services", service.name, "match")
    hosts = child(match, "host")
    if isinstance(hosts, SequenceNode) and len(hosts.items) == len(service.match.hosts) and host is not None:
        return hosts.items[service.match.hosts.index(host)]
    if node := child(match, "path") or hosts:
        return node
    services = child(root, "services")
    return services.entries[service.name].key if isinstance(services, MappingNode) else None
