"""The texts that HAProxy reads, made from a table: its configuration and its map. Pure; it writes no file.

The configuration has a frontend, the route sets, and the gateway beside it. It is a part: it has no
`defaults`, and every section says what it needs, so that it can stand beside the sections that an operator
has already. It changes only when the configuration or the members of a service do; what is on offer is in the
map alone. It needs HAProxy 2.6.

A request goes past the gateway only if it is plain: a usual method and path, usual names of headers, and a
version that has a row. Everything else goes to the gateway.

The map has one line for each row of the table. A key holds the service and, for each header that may carry
its version, how many lines of it there are and the value, percent-encoded as HAProxy's `url_enc` does it:
`ironic|1:1.58|0:`. So no two requests that differ in them have one key, and a repeated header is in none. A
value holds the version, the route set, and what the range headers of the response say, with `|` between them:
`1.58|sg-0123456789abcdef0123|1.1|1.90`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final

from gateway.core.dialect import VersionRefusal
from gateway.core.fleet.failures import Retry, RetryCause
from gateway.core.fleet.service import Service
from gateway.core.http.message import CLIENT_CERT, FORWARDING, HTTPOXY, UNTRUSTED_HEADERS, normalize_pattern
from gateway.engines.table import Asked, EngineServer, ErrorAnswer, RouteSet, Row, ServiceTable, Table, Traits

GATEWAY: Final = "skewgate-gateway"
"""Name of HAProxy's section for the gateway, and of the server in it."""
FRONTEND: Final = "skewgate"
PLAIN_METHODS: Final = "GET HEAD POST PUT PATCH DELETE"
SAFE_METHODS: Final = "GET HEAD"
"""Methods of plain requests that HAProxy sends again after a lost reply. PUT and DELETE, which the gateway
sends again, are left out: HAProxy has no budget of retries."""
MAX_RETRIES: Final = 8
"""Largest number of HAProxy's retries of one request."""
_PLAIN_REST: Final = "[A-Za-z0-9/._~@:,+=-]*$"
"""Regular expression for the rest of a plain path: no escapes, and no separator of any server."""
_PORT: Final = "([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_PLAIN_HOST: Final = rf"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:{_PORT})?$"
VERSION_FIELD: Final = 1
"""Position of the version in a value of HAProxy's map, as its `field` counts."""
ROUTE_SET_FIELD: Final = 2
FIRST_RANGE_FIELD: Final = 3
"""Position of the range headers' first value in a value of HAProxy's map."""
_ENCODED: Final = re.compile(r"[^A-Za-z0-9._-]")


@final
@dataclass(frozen=True, slots=True)
class HaproxyOptions:
    """Options of HAProxy's configuration besides the table. Times are in HAProxy's spelling."""

    map_path: str
    """Path at which HAProxy reads its map."""
    gateway: str
    """Address of the gateway (`HOST:PORT`), which must trust HAProxy (`trusted_proxies`)."""
    binds: tuple[str, ...] = ("*:8080",)
    """Arguments of `bind`: an address, and parameters such as `ssl crt FILE`."""
    socket: str | None = None
    """Arguments of `stats socket`, as `/run/haproxy/admin.sock level admin`; None: it is set elsewhere."""
    hard_stop_after: str = "60s"
    connect_timeout: str = "5s"
    client_timeout: str = "60s"
    server_timeout: str = "60s"
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS


def configuration_text(table: Table, options: HaproxyOptions) -> str:
    """Make the text of HAProxy's configuration."""
    of_process = [f"hard-stop-after {options.hard_stop_after}"]
    if options.socket is not None:
        of_process.append(f"stats socket {options.socket}")
    sections = [("global", of_process), _frontend(table, options), _gateway(options)]
    for service in table.services:
        if service.traits is not None:
            sections += [
                _route_set(service, service.traits, route_set, options) for route_set in service.route_sets
            ]
    return "\n".join(f"{head}\n" + "".join(f"  {line}\n" for line in lines) for head, lines in sections)


def server_name(member: EngineServer) -> str:
    """Name of a server in each of its route sets: `set server ROUTE_SET/NAME`."""
    return encoded(member.name).replace("%", ":")


def _frontend(table: Table, options: HaproxyOptions) -> tuple[str, list[str]]:
    direct = [service for service in table.services if service.traits is not None]
    lines = ["mode http", f"timeout client {options.client_timeout}"]
    lines += [f"bind {bind}" for bind in options.binds]
    lines += ["option http-keep-alive", "acl odd_name req.hdr_names -m reg [^A-Za-z0-9,-]"]
    lines += [*_client(options), *_routes(table, direct)]
    lines += [
        "acl plain_method method " + PLAIN_METHODS,
        f"acl plain_host req.hdr(host) -m reg {_quoted(_PLAIN_HOST)}",
        "acl origin_form url -m beg /",
        "acl dots path -m sub /.",
        "acl upgrade req.fhdr(upgrade) -m found",
        "acl chunked req.fhdr(transfer-encoding) -m found",
        "acl names_options req.fhdr(connection) -m found",
        "acl usual_options req.fhdr(connection) -m str -i keep-alive close",
        "acl more_options req.fhdr_cnt(connection) gt 1",
        "http-request unset-var(txn.service) if !plain_method or odd_name or !plain_host or !origin_form",
        "http-request unset-var(txn.service) if dots or upgrade or chunked or more_options",
        "http-request unset-var(txn.service) if names_options !usual_options",
    ]
    for at, service in enumerate(direct):
        lines += _lookup(at, service, options)
    lines += [
        f"use_backend %[var(txn.row),field({ROUTE_SET_FIELD},|)] if {{ var(txn.row) -m found }}",
        f"default_backend {GATEWAY}",
    ]
    return f"frontend {FRONTEND}", lines


def _client(options: HaproxyOptions) -> Iterator[str]:
    """HAProxy's rules for the headers that describe the client: the same for the gateway and the backends."""
    yield "http-request set-var(txn.host) req.hdr(host)"
    listed = (*options.untrusted_headers, *CLIENT_CERT, *sorted(FORWARDING - {"via"}), *HTTPOXY)
    dropped = dict.fromkeys(map(normalize_pattern, listed))
    for name in dropped:
        beginning = name.removesuffix("*")
        yield f"http-request del-header {beginning}" + (" -m beg" if beginning != name else "")
    # The gateway, which gets every request with such names, takes them from HAProxy, because it trusts it.
    for name in dropped:
        if "-" in name:
            yield f"http-request del-header {_aliases(name)} -m reg if odd_name"
    yield "http-request set-header X-Forwarded-For %[src]"
    yield "http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]"
    yield "http-request set-header X-Forwarded-Host %[var(txn.host)]"


def _aliases(pattern: str) -> str:
    """Regular expression for every lower-case spelling of a normalized header name or prefix."""
    beginning = pattern.removesuffix("*")
    end = "$" if beginning == pattern else ""
    return f"^{beginning.replace('-', '[^a-z0-9]')}{end}"


def _routes(table: Table, direct: Iterable[ServiceTable]) -> Iterator[str]:
    """HAProxy's rules that find the service of a request. The last matching rule wins: the more specific ones
    come last, as in the gateway. A service that cannot be expressed, or has a path, unsets the result."""
    able = {service.service.name for service in direct}
    rules: list[tuple[tuple[int, int, int], str]] = []
    for service in (each.service for each in table.services):
        for host in service.match.hosts or (None,):
            kind = 0 if host is None else 1 if host.startswith("*") else 2
            rank = (kind, len(host or ""), len(service.match.prefix))
            rules.append((rank, _route(service, host, able)))
    return (rule for _, rule in sorted(rules))


def _route(service: Service, host: str | None, able: set[str]) -> str:
    action = "unset-var(txn.service)"
    if service.name in able:
        action = f"set-var(txn.service) str({encoded(service.name)})"
    conditions = []
    if host is not None:
        found = "end" if host.startswith("*") else "str"
        conditions.append(f"{{ req.hdr(host),host_only,lower -m {found} {host.removeprefix('*')} }}")
    if service.match.prefix:
        # A little more than the service has: what lies between goes to the gateway, which knows.
        conditions.append(f"{{ path -m beg {_quoted(service.match.prefix)} }}")
    return f"http-request {action}" + (f" if {' '.join(conditions)}" if conditions else "")


def _lookup(at: int, service: ServiceTable, options: HaproxyOptions) -> Iterator[str]:
    """HAProxy's rules that look up a plain request to this service in its map."""
    traits, name = service.traits, f"s{at}"
    assert traits is not None
    yield f"acl {name} var(txn.service) -m str {encoded(service.service.name)}"
    for paths in service.paths:
        plain = f"^{re.escape(paths.prefix)}[{paths.first}]{_PLAIN_REST}"
        yield f"acl {name}_path path -m reg {_quoted(plain)}"
        for beginning in paths.besides:
            yield f"acl {name}_odd path -m beg -i {_quoted(beginning)}"
    for header in traits.decisive:
        yield f"acl {name}_odd req.fhdr({header}) -m found"
    odd = any(paths.besides for paths in service.paths) or bool(traits.decisive)
    key = [encoded(service.service.name)]
    key += [f"%[req.fhdr_cnt({header})]:%[req.fhdr({header}),url_enc]" for header in traits.headers]
    condition = f"if {name} {name}_path" + (f" !{name}_odd" if odd else "")
    yield f"http-request set-var-fmt(txn.key) {_quoted('|'.join(key))} {condition}"
    yield (
        f"http-request set-var(txn.row) var(txn.key),map_str({options.map_path}) "
        f"if {name} {{ var(txn.key) -m found }}"
    )


def _gateway(options: HaproxyOptions) -> tuple[str, list[str]]:
    return f"backend {GATEWAY}", [
        "mode http",
        f"timeout connect {options.connect_timeout}",
        f"timeout server {options.server_timeout}",
        "option http-keep-alive",
        f"server {GATEWAY} {options.gateway}",
    ]


def _route_set(
    service: ServiceTable, traits: Traits, route_set: RouteSet, options: HaproxyOptions
) -> tuple[str, list[str]]:
    lines = [
        "mode http",
        "balance random(2)",
        f"timeout connect {options.connect_timeout}",
        f"timeout server {options.server_timeout}",
        "option redispatch 1",
        "option allbackups",
        *_retried(service.service.retry, route_set),
        *_written(traits),
        *_refused(traits),
        *_answered(traits),
        *(f"http-error status {_error(traits, error)}" for error in traits.failed),
    ]
    lines += [_server(member) for member in route_set.members]
    return f"backend {route_set.name}", lines


def _retried(plan: Retry, route_set: RouteSet) -> Iterator[str]:
    """HAProxy's retry rules: unsent requests, and safe ones without a reply, go to another server."""
    without_response = RetryCause.NO_REPLY in plan.on and plan.attempts > 1
    reasons = ["conn-failure"] * (RetryCause.CONNECT in plan.on) + ["empty-response"] * without_response
    # None for one member: HAProxy would wait for a second before it connects to the same one again. It leaves
    # out only the last one that it asked, so every member is asked twice if need be.
    retries = min(2 * (len(route_set.members) - 1), MAX_RETRIES) if reasons else 0
    if RetryCause.CONNECT not in plan.on:
        retries = min(retries, plan.attempts - 1)
    yield f"retries {retries}"
    yield f"retry-on {' '.join(reasons) or 'none'}"
    if without_response:
        yield f"http-request disable-l7-retry if !{{ method {SAFE_METHODS} }}"


def _written(traits: Traits) -> Iterator[str]:
    """HAProxy's rules that write the headers of the dialect for the backend."""
    for header in traits.removed:
        yield f"http-request del-header {header}"
    for header, (before, after) in zip(traits.headers, traits.written, strict=True):
        value = f"{_literal(before)}%[var(txn.row),field({VERSION_FIELD},|)]{_literal(after)}"
        yield f"http-request set-header {header} {_quoted(value)}"


def _refused(traits: Traits) -> Iterator[str]:
    """HAProxy's rule that makes a backend's refusal of the version a 503: its advertisement is outdated."""
    if traits.refusal is VersionRefusal.NO:
        return
    condition = f"{{ status {traits.refusal_status} }}"
    if traits.refusal is VersionRefusal.YES:
        conditions = [f"{{ res.fhdr({header}) -m found }}" for header in traits.range_headers]
        conditions += [f"!{{ res.fhdr({header}) -m found }}" for header in traits.served_headers]
        condition = " ".join([condition, *conditions])
    yield f"http-response return status {_error(traits, traits.refused)} if {condition}"


def _answered(traits: Traits) -> Iterator[str]:
    """HAProxy's rules that replace the backend's range by the offer, and add `Vary`."""
    found = " or ".join(f"{{ res.fhdr({header}) -m found }}" for header in traits.range_headers)
    for header, value in _range_values(traits):
        yield f"http-response set-header {header} {value} if {found}"
    yield "acl vary_all res.hdr(vary) -m str *"
    for name in traits.vary:
        yield f"http-response add-header Vary {name} if !vary_all !{{ res.hdr(vary) -m str -i {name} }}"


def _error(traits: Traits, error: ErrorAnswer) -> str:
    """Arguments of an error response by HAProxy, from the status on."""
    kind, headers = "text/plain", ""
    for name, value in error.headers:
        if name.lower() == "content-type":
            kind = value
        else:
            headers += f" hdr {name} {_quoted(_literal(value))}"
    if error.has_range:
        headers += "".join(f" hdr {name} {value}" for name, value in _range_values(traits))
    headers += "".join(f" hdr Vary {_quoted(name)}" for name in traits.vary)
    body = _quoted(_literal(error.body.decode("ascii")))
    return f"{error.status} content-type {_quoted(kind)} lf-string {body}{headers}"


def _range_values(traits: Traits) -> Iterator[tuple[str, str]]:
    for at, header in enumerate(traits.range_headers):
        yield header, f"%[var(txn.row),field({FIRST_RANGE_FIELD + at},|)]"


def _server(member: EngineServer) -> str:
    host = f"[{member.host}]" if ":" in member.host else member.host
    address = f"unix@{member.socket_path}" if member.socket_path else f"{host}:{member.port}"
    backup = " backup" if member.backup else ""
    return f"server {server_name(member)} {_quoted(address)} weight {min(member.weight, 256)}{backup}"


def _literal(text: str) -> str:
    """Escape a text for a log format of HAProxy: a percent sign is doubled."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Quote one argument of HAProxy's configuration. Inside single quotes nothing is special to HAProxy; a
    template engine, through which the file may go, would see pairs of braces."""
    inner = text.replace("'", "'\\''")
    for pair in ("{{", "{%", "{#"):
        inner = inner.replace(pair, f"{pair[0]}''{pair[1]}")
    return f"'{inner}'"


def map_lines(table: Table) -> Iterator[str]:
    """Lines of HAProxy's map: key, space, value. A service's are together. Neither part has spaces."""
    for service in table.services:
        for row in service.rows:
            yield f"{key_of(service.service, row.asked)} {value_of(row)}"


def map_text(table: Table) -> str:
    """Make the map file that HAProxy reads when it starts."""
    return "".join(f"{line}\n" for line in map_lines(table))


def key_of(service: Service, asked: Asked) -> str:
    """Key in HAProxy's map for the requests to `service` that ask for a version in one particular way."""
    parts = ("0:" if value is None else f"1:{encoded(value)}" for value in asked)
    return "|".join((encoded(service.name), *parts))


def value_of(row: Row) -> str:
    """Value in HAProxy's map for a row of the table."""
    return "|".join((row.version, row.route_set, *row.range))


def encoded(text: str) -> str:
    """Encode a text as HAProxy's `url_enc` does."""
    return _ENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
