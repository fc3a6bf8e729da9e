"""The shape of a whole file: every key with its default and the reason for it. One service is in `service`.

Each section is a frozen dataclass whose fields are keys. The JSON Schema and the reference page are made from
them. Defaults are written as an operator would write them, and read by the same code. What concerns more than
one key is in `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Final, final

from gateway.core.fleet.limits import LIMITS, Limits
from gateway.core.fleet.timeouts import TIMEOUTS, Timeouts
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.keys.addresses import CLIENT_ADDRESS, TRUSTED_PEER, Address, UnixAddress
from gateway.keys.kinds import TEXT, Either, ListOf, PathText, Table, Text, reject, section
from gateway.keys.texts import (
    FILE_PATH,
    FILE_PATTERN,
    FLAG,
    HEADER_PATTERN_TEXT,
    LINE,
    NAME,
    VARIABLE_NAME,
    one_of,
    read_count,
    read_text,
)
from gateway.settings.model.admin import ADMIN, Admin
from gateway.settings.model.agreement import AGREEMENT, Agreement
from gateway.settings.model.listener import LISTENER, Listener
from gateway.settings.model.service import SERVICE, Service


@final
@dataclass(frozen=True, slots=True)
class AccessLog:
    """One line for every request."""

    format: str = one_of("json", "text", "off").key(
        "json",
        "The format of a line; off: no line is written.",
        reason="Programs read the lines before people do.",
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
        "What a line shows of the query of a target: `redact` writes `*` for each value (`?limit=*`), `keep` "
        "the query as it came.",
        reason="Queries hold tokens, signatures and names of people, and logs are kept for long.",
        example="keep",
    )


ACCESS_LOG: Final = section(AccessLog)


@final
@dataclass(frozen=True, slots=True)
class Log:
    """What the gateway says of itself, on standard error."""

    format: str = one_of("text", "json").key(
        "text",
        "The format of a line. In JSON every event is one line, with the keys of the access log where they "
        "mean the same.",
        reason="People read it first: at the start, and in `journalctl`.",
        example="json",
    )
    level: str = one_of("debug", "info", "warning", "error").key(
        "info",
        "Events below this level are not written.",
        reason="A healthy gateway writes a few lines a day.",
        example="warning",
    )


LOG: Final = section(Log)


@final
@dataclass(frozen=True, slots=True)
class Metrics:
    """Which series `/metrics` has."""

    per_backend: bool = FLAG.key(
        default=True,
        meaning="Whether durations, failures, connections, ranges and requests are shown for each "
        "backend. If not, a backend has five series: skewgate_backend_up, _draining, _ejected and "
        "_unhealthy, and skewgate_offer_held_by; a discovered one also skewgate_backend_leaving.",
        reason="Some 70 series for a backend find the slow one; a thousand backends may be too many for a "
        "Prometheus.",
        example=False,
    )


METRICS: Final = section(Metrics)


MAX_WORKERS: Final = 64


def read_workers(text: str) -> int | None:
    """`auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= MAX_WORKERS:
        reject(f"the number must be from 1 to {MAX_WORKERS}", "or write auto: one for each CPU")
    return value


_WORKERS: Final = Text(
    read_workers, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_WORKERS}]}
)


@final
@dataclass(frozen=True, slots=True)
class Include:
    """Files with further services, and which values they may read from elsewhere."""

    files: str = field(
        metadata=FILE_PATTERN.required(
            "A pattern of the files. `*`, `?` and `[ ]` as in a shell, relative to the folder of the main "
            "file, which is itself left out.",
            reason="Only the operator knows where they are.",
            example="conf.d/*.yaml",
        )
    )
    environment: tuple[str, ...] = ListOf(VARIABLE_NAME).key(
        (),
        "The environment variables that these files may read by `${NAME}`.",
        reason="Whoever writes such a file could put the secrets of the gateway into responses.",
        example=["TEAM_TOKEN"],
    )
    folders: tuple[str, ...] = ListOf(LINE).key(
        (),
        "The folders beneath which these files may read values by `${FILE:PATH}`, with symbolic links "
        "resolved. Relative to the folder of the main file.",
        reason="Whoever writes such a file could put the secrets of the gateway into responses.",
        example=["/run/secrets/team"],
    )


INCLUDE: Final = section(Include)


@final
@dataclass(frozen=True, slots=True)
class Document:
    """A whole file. `schema` replaces the type of the services, because the keys of a service depend on the
    dialects."""

    listen: Address | UnixAddress | tuple[Listener, ...] = field(
        metadata=Either(CLIENT_ADDRESS, ListOf(LISTENER)).required(
            "Where clients are served: HOST:PORT, unix:PATH, or a list of `{address: HOST:PORT}` with more "
            "keys. `[::]:PORT` is for IPv4, too, unless another listener has the port there.",
            reason="Only the operator knows where clients may reach the services.",
            example="127.0.0.1:8080",
        )
    )
    services: Mapping[str, Service] = field(
        metadata=Table(NAME, SERVICE).required(
            "The APIs, each under a name of 1 to 64 letters, digits, `_`, `.` or `-`.",
            reason="Without a service the gateway has nothing to do.",
            example={"baremetal": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:6385"}]}},
            minProperties=1,
        )
    )
    include: str | Include | None = Either(FILE_PATTERN, INCLUDE).key(
        None,
        "A pattern of files with further services, each `services: {...}` and nothing else, or a "
        "mapping with more keys. A name that two files have is an error.",
        reason="One file is enough for most. Teams may each have their own.",
        example="conf.d/*.yaml",
    )
    watch: bool = FLAG.key(
        default=True,
        meaning="Whether the gateway reloads by itself once the content of a file that it has read is "
        "another one and has stayed so for a second: this file, included ones, `${FILE:PATH}`, TLS of "
        "backends. A change that is refused is tried again when a file changes again.",
        reason="ConfigMaps and Secrets change without a signal.",
        example=False,
    )
    admin: Admin = ADMIN.key(
        {},
        "The listener for the people and programs that operate the gateway.",
        reason="Every installation needs health and metrics.",
        example={"listen": "127.0.0.1:9900"},
    )
    workers: int | None = _WORKERS.key(
        1,
        "How many processes serve requests; `auto`: one for each CPU that the gateway may use, at most "
        f"{MAX_WORKERS}. With 1 they are served by the process that also probes. With more, that one serves "
        "none (docs/workers.md).",
        reason="One process handles thousands of requests a second, and needs the least of everything.",
        example="auto",
    )
    agreement: Agreement | None = AGREEMENT.key(
        None,
        "What all replicas of this gateway agree over, so that they offer the same (docs/replicas.md).",
        reason="Without it a replica stands alone.",
        example={
            "etcd": {"endpoints": ["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"]},
            "cluster": "site-1",
        },
    )
    access_log: AccessLog = ACCESS_LOG.key(
        {},
        "One line for every request.",
        reason="JSON lines on standard output.",
        example={"format": "off"},
    )
    log: Log = LOG.key(
        {},
        "What the gateway says of itself, on standard error. A reload puts it in force.",
        reason="Each key has its own.",
        example={"format": "json"},
    )
    metrics: Metrics = METRICS.key(
        {},
        "Which series `/metrics` has.",
        reason="Each key has its own.",
        example={"per_backend": False},
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network | str, ...] = ListOf(TRUSTED_PEER).key(
        (),
        "Networks whose X-Forwarded-* headers and PROXY headers are accepted; from all others they are "
        "replaced. `unix:` is whoever connects to a Unix socket.",
        reason="A trusted peer can claim any origin.",
        example=["10.0.0.0/8"],
    )
    untrusted_headers: tuple[str, ...] = ListOf(HEADER_PATTERN_TEXT).key(
        UNTRUSTED_HEADERS,
        "Headers that are dropped from peers outside `trusted_proxies`, with every other spelling of them "
        "(`X_Real.IP`); `*` at the end: all that begin so. The headers about the client that the gateway "
        "writes are replaced even if the list does not have them. `Proxy` is dropped from everybody. A list "
        "replaces the default as a whole.",
        reason="Servers take them for the word of the proxy in front: who the client is, its address, the "
        "original URL.",
        example=["X-Forwarded-*", "X-Original-*", "X-Acme-User"],
    )
    state: str | None = FILE_PATH.key(
        None,
        "One small file that keeps offers, pins and drains across a restart. It is written whenever they "
        "change. Without it nothing is kept.",
        reason="Only the operator knows where the gateway may write. Without it the fleet is learned anew.",
        example="/var/lib/skewgate/state.json",
    )
    timeouts: Timeouts = TIMEOUTS.key(
        {}, "How long the gateway waits.", reason="Each key has its own.", example={"connect": "1s"}
    )
    limits: Limits = LIMITS.key(
        {}, "How much the gateway accepts.", reason="Each key has its own.", example={"body": "10MiB"}
    )


DOCUMENT: Final = section(Document, "The configuration of skewgate.", title="Configuration")


RENAMED: Final = {
    "services.*.offer.settle": "write `stabilization`",
    "services.*.header": "write `custom`, which is the new name of the dialect",
    "services.*.custom.silence": (
        "write `default_version` beside `dialect`: minimum, maximum, refused or a version"
    ),
}
"""Keys of earlier releases, with the hint that names the new key."""

NEW_NAMES: Final = {"services.*.offer.settle": "stabilization", "services.*.header": "custom"}
"""The new names of those that only have another name, at the same place."""

RENAMED_DIALECTS: Final = {"header": "custom"}
"""Names of dialects in earlier releases, with the new names."""
