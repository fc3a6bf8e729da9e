"""The shape of a whole file: every key with its default and the reason for it. One service is in `service`.

These models read texts into values. The JSON Schema and the reference page are made from them. Defaults are
written as an operator would write them, and read by the same code. What concerns more than one key is in
`checks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Tag

from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.settings.model.addresses import ClientAddress, TrustedPeer
from gateway.settings.model.admin import Admin
from gateway.settings.model.agreement import Agreement
from gateway.settings.model.fields import (
    OTHER_SHAPE,
    TEXT,
    TEXT_SHAPE,
    FilePath,
    FilePattern,
    Flag,
    HeaderPattern,
    Name,
    PathReader,
    Section,
    Text,
    TextReader,
    VariableName,
    by_shape,
    key,
    one_of,
    read_count,
    read_text,
    reject,
    required,
)
from gateway.settings.model.limits import Limits, Timeouts
from gateway.settings.model.listener import Listener
from gateway.settings.model.service import Service


class AccessLog(Section):
    """One line for every request."""

    format: Annotated[str, one_of("json", "text", "off")] = key(
        "json",
        "The format of a line; off: no line is written.",
        reason="Programs read the lines before people do.",
        example="text",
    )
    path: Annotated[str, PathReader(read_text, TEXT, unplaced=frozenset("-"))] = key(
        "-",
        "The file to which lines are appended; `-` is standard output.",
        reason="Containers and systemd collect standard output.",
        example="/var/log/skewgate/access.log",
    )
    query: Annotated[str, one_of("redact", "keep")] = key(
        "redact",
        "What a line shows of the query of a target: `redact` writes `*` for each value (`?limit=*`), `keep` "
        "the query as it came.",
        reason="Queries hold tokens, signatures and names of people, and logs are kept for long.",
        example="keep",
    )


class Log(Section):
    """What the gateway says of itself, on standard error."""

    format: Annotated[str, one_of("text", "json")] = key(
        "text",
        "The format of a line. In JSON every event is one line, with the keys of the access log where they "
        "mean the same.",
        reason="People read it first: at the start, and in `journalctl`.",
        example="json",
    )
    level: Annotated[str, one_of("debug", "info", "warning", "error")] = key(
        "info",
        "Events below this level are not written.",
        reason="A healthy gateway writes a few lines a day.",
        example="warning",
    )


class Metrics(Section):
    """Which series `/metrics` has."""

    per_backend: Flag = key(
        default=True,
        description="Whether durations, failures, connections, ranges and requests are shown for each "
        "backend. If not, a backend has five series: skewgate_backend_up, _draining, _ejected and "
        "_unhealthy, and skewgate_offer_held_by; a discovered one also skewgate_backend_leaving.",
        reason="Some 70 series for a backend find the slow one; a thousand backends may be too many for a "
        "Prometheus.",
        example=False,
    )


MAX_WORKERS: Final = 64


def read_workers(text: str) -> int | None:
    """`auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= MAX_WORKERS:
        reject(f"the number must be from 1 to {MAX_WORKERS}", "or write auto: one for each CPU")
    return value


_WORKERS: Final = TextReader(
    read_workers,
    {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_WORKERS}]},
    (int, type(None)),
)


def services_key() -> Any:  # noqa: ANN401
    """The key `services`."""
    return required(
        "The APIs, each under a name of 1 to 64 letters, digits, `_`, `.` or `-`.",
        reason="Without a service the gateway has nothing to do.",
        example={"baremetal": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:6385"}]}},
        minProperties=1,
    )


class Include(Section):
    """Files with further services, and which values they may read from elsewhere."""

    files: FilePattern = required(
        "A pattern of the files. `*`, `?` and `[ ]` as in a shell, relative to the folder of the main file, "
        "which is itself left out.",
        reason="Only the operator knows where they are.",
        example="conf.d/*.yaml",
    )
    environment: tuple[VariableName, ...] = key(
        (),
        "The environment variables that these files may read by `${NAME}`.",
        reason="Whoever writes such a file could put the secrets of the gateway into responses.",
        example=["TEAM_TOKEN"],
    )
    folders: tuple[Text, ...] = key(
        (),
        "The folders beneath which these files may read values by `${FILE:PATH}`, with symbolic links "
        "resolved. Relative to the folder of the main file.",
        reason="Whoever writes such a file could put the secrets of the gateway into responses.",
        example=["/run/secrets/team"],
    )


class Document(Section):
    """A whole file. `schema` replaces the type of the services, because the keys of a service depend on the
    dialects."""

    listen: Annotated[
        Annotated[ClientAddress, Tag(TEXT_SHAPE)] | Annotated[tuple[Listener, ...], Tag(OTHER_SHAPE)],
        by_shape,
    ] = required(
        "Where clients are served: HOST:PORT, unix:PATH, or a list of `{address: HOST:PORT}` with more keys. "
        "`[::]:PORT` is for IPv4, too, unless another listener has the port there.",
        reason="Only the operator knows where clients may reach the services.",
        example="127.0.0.1:8080",
    )
    services: dict[Name, Service] = services_key()
    include: (
        Annotated[
            Annotated[FilePattern, Tag(TEXT_SHAPE)] | Annotated[Include, Tag(OTHER_SHAPE)],
            by_shape,
        ]
        | None
    ) = key(
        None,
        "A pattern of files with further services, each `services: {...}` and nothing else, or a "
        "mapping with more keys. A name that two files have is an error.",
        reason="One file is enough for most. Teams may each have their own.",
        example="conf.d/*.yaml",
    )
    watch: Flag = key(
        default=True,
        description="Whether the gateway reloads by itself once the content of a file that it has read is "
        "another one and has stayed so for a second: this file, included ones, `${FILE:PATH}`, TLS of "
        "backends. A change that is refused is tried again when a file changes again.",
        reason="ConfigMaps and Secrets change without a signal.",
        example=False,
    )
    admin: Admin = key(
        {},
        "The listener for the people and programs that operate the gateway.",
        reason="Every installation needs health and metrics.",
        example={"listen": "127.0.0.1:9900"},
    )
    workers: Annotated[int | None, _WORKERS] = key(
        1,
        "How many processes serve requests; `auto`: one for each CPU that the gateway may use, at most "
        f"{MAX_WORKERS}. With 1 they are served by the process that also probes. With more, that one serves "
        "none (docs/workers.md).",
        reason="One process handles thousands of requests a second, and needs the least of everything.",
        example="auto",
    )
    agreement: Agreement | None = key(
        None,
        "What all replicas of this gateway agree over, so that they offer the same (docs/replicas.md).",
        reason="Without it a replica stands alone.",
        example={
            "etcd": {"endpoints": ["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"]},
            "cluster": "site-1",
        },
    )
    access_log: AccessLog = key(
        {},
        "One line for every request.",
        reason="JSON lines on standard output.",
        example={"format": "off"},
    )
    log: Log = key(
        {},
        "What the gateway says of itself, on standard error. A reload puts it in force.",
        reason="Each key has its own.",
        example={"format": "json"},
    )
    metrics: Metrics = key(
        {},
        "Which series `/metrics` has.",
        reason="Each key has its own.",
        example={"per_backend": False},
    )
    trusted_proxies: tuple[TrustedPeer, ...] = key(
        (),
        "Networks whose X-Forwarded-* headers and PROXY headers are accepted; from all others they are "
        "replaced. `unix:` is whoever connects to a Unix socket.",
        reason="A trusted peer can claim any origin.",
        example=["10.0.0.0/8"],
    )
    untrusted_headers: tuple[HeaderPattern, ...] = key(
        UNTRUSTED_HEADERS,
        "Headers that are dropped from peers outside `trusted_proxies`, with every other spelling of them "
        "(`X_Real.IP`); `*` at the end: all that begin so. The headers about the client that the gateway "
        "writes are replaced even if the list does not have them. `Proxy` is dropped from everybody. A list "
        "replaces the default as a whole.",
        reason="Servers take them for the word of the proxy in front: who the client is, its address, the "
        "original URL.",
        example=["X-Forwarded-*", "X-Original-*", "X-Acme-User"],
    )
    state: FilePath | None = key(
        None,
        "One small file that keeps offers, pins and drains across a restart. It is written whenever they "
        "change. Without it nothing is kept.",
        reason="Only the operator knows where the gateway may write. Without it the fleet is learned anew.",
        example="/var/lib/skewgate/state.json",
    )
    timeouts: Timeouts = key(
        {}, "How long the gateway waits.", reason="Each key has its own.", example={"connect": "1s"}
    )
    limits: Limits = key(
        {}, "How much the gateway accepts.", reason="Each key has its own.", example={"body": "10MiB"}
    )


RENAMED: Final = {
    "services.*.offer.settle": "write `stabilization`",
    "services.*.header": "write `custom`, which is the new name of the dialect",
    "services.*.custom.silence": (
        "write `default_version` beside `dialect`: minimum, maximum, refused or a version"
    ),
}
"""Keys of earlier releases, with the hint that names the new key."""

RENAMED_DIALECTS: Final = {"header": "custom"}
"""Names of dialects in earlier releases, with the new names."""
