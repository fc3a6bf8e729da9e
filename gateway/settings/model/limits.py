"""The shape of `timeouts` and `limits`: of the whole file, and of one service.

A key that means something before a request has its service says so (`whole_file`). The others may be written
in a service, too, and what a service leaves out is inherited from the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

from gateway.core.fleet.limits import NO_TIMEOUT, ServiceLimits
from gateway.keys.kinds import DIVIDED, PER_WORKER, Text, inherited, matching, reject, section
from gateway.keys.texts import DURATION, DURATION_PATTERN, count, read_count, read_duration, size

_HEAD_FIRST: Final = "the service is known only after the whole head has been read"
_ALL_TOGETHER: Final = "it is for all services together"


def read_timeout(text: str) -> float:
    """A duration, or `off`: no time-out."""
    return NO_TIMEOUT if text == "off" else read_duration(text, "; or off")


DURATION_OR_OFF: Final = Text(read_timeout, matching(f"{DURATION_PATTERN}|off"))


@final
@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the gateway waits. Seconds as float."""

    client_head: float = DURATION.key(
        "10s",
        "In total, from the first byte of a request to the end of its head; then 408.",
        reason="The usual value in HAProxy. It limits clients that send one byte at a time.",
        example="5s",
        whole_file=_HEAD_FIRST,
    )
    handshake: float = DURATION.key(
        "10s",
        "In total, from a new connection to the end of its PROXY header and its TLS handshake.",
        reason="As long as `client_head`. A handshake takes two round trips.",
        example="5s",
        whole_file="TLS comes before any request",
    )
    client_body_idle: float = DURATION.key(
        "30s",
        "Between two parts of a request body; then 408.",
        reason="Longer than a disturbance of the network, shorter than a slow attack needs.",
        example="1m",
    )
    client_idle: float = DURATION.key(
        "75s",
        "How long a client connection may wait for its next request.",
        reason="The value of nginx: load balancers in front keep connections for 60 s, so they close first.",
        example="30s",
        whole_file="between two requests a connection belongs to no service",
    )
    client_write_idle: float = DURATION.key(
        "60s",
        "How long a client may take nothing of a response that is ready. A slow reader has no time limit.",
        reason="The value of nginx. A client that does not read keeps a backend connection in use, but the "
        "kernel of a steady reader with a large receive buffer may acknowledge nothing for half a minute.",
        example="2m",
    )
    connect: float = DURATION.key(
        "2s",
        "To open a connection to a backend; then another backend that serves the version is tried.",
        reason="Backends are near. Nothing has been sent yet, so an early switch costs nothing.",
        example="500ms",
    )
    backend_head: float = DURATION_OR_OFF.key(
        "30s",
        "In total, from the end of a request to the end of the response head; then 504. `off`: for requests "
        "that wait for an event, such as a long poll.",
        reason="API calls that take longer respond 202 and continue in the background.",
        example="60s",
    )
    backend_body_idle: float = DURATION_OR_OFF.key(
        "60s",
        "Between two parts of a response body; then the client connection is closed. `off`: for watches and "
        "logs that are followed.",
        reason="A response that was cut cannot be repaired, so this is longer than the other limits.",
        example="2m",
    )
    backend_write_idle: float = DURATION.key(
        "30s",
        "How long a backend may take nothing of a request body; then 504.",
        reason="A slow upload is no fault while bytes move; a backend that takes nothing has hung.",
        example="1m",
    )
    backend_idle: float = DURATION.key(
        "15s",
        "How long an idle connection to a backend is kept.",
        reason="It must be shorter than the backend's own limit, or requests meet a connection that closes.",
        example="4s",
    )
    tunnel_idle: float = DURATION_OR_OFF.key(
        "60m",
        "How long a tunnel (`services.NAME.upgrade`) may carry nothing in either direction; then both "
        "connections are reset.",
        reason="The value of HAProxy's examples: longer than any ping, so it ends only what is forgotten.",
        example="10m",
    )
    drain: float = DURATION.key(
        "30s",
        "At shutdown: how long requests in flight may take before they are cut.",
        reason="As long as `backend_head`: a backend may use all of its time to respond.",
        example="2m",
        whole_file="the whole process is drained",
    )


TIMEOUTS: Final = section(Timeouts)


def read_connections(text: str) -> int | None:
    """`auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= 1_000_000:
        reject("the number must be from 1 to 1000000", "or write auto: from the limit of open files")
    return value


_CONNECTIONS: Final = Text(
    read_connections,
    {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 1_000_000}]},
)


def read_shed_lag(text: str) -> float | None:
    """A duration, or `off` (None)."""
    return None if text == "off" else read_duration(text, "; or off")


_SHED_LAG: Final = Text(read_shed_lag, matching(f"{DURATION_PATTERN}|off"))


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """How much the gateway accepts. Bytes as int."""

    head: int = size("1KiB", "1MiB").key(
        "32KiB",
        "All header lines of a request together; then 431.",
        reason="Real heads stay below 16 KiB, even with large tokens. More memory would only help attackers.",
        example="64KiB",
        whole_file=_HEAD_FIRST,
    )
    line: int = size("256B", "1MiB").key(
        "8KiB",
        "The request line (then 414) and each header line (then 431).",
        reason="The limit of Apache, nginx and most API servers: a longer line would fail there.",
        example="16KiB",
        whole_file=_HEAD_FIRST,
    )
    headers: int = count(8, 10000).key(
        100,
        "How many header lines a request may have; then 431.",
        reason="The value of Envoy and HAProxy.",
        example=200,
        whole_file=_HEAD_FIRST,
    )
    body: int = size("0B", "1024GiB").key(
        "1GiB",
        "The body of a request; then 413.",
        reason="Bodies are streamed, so a large one costs no memory. The limit is for endless ones.",
        example="10MiB",
    )
    replay_body: int = size("0B", "16MiB").key(
        "64KiB",
        "Request bodies up to this size are kept, so that the request can be sent again to another backend.",
        reason="The value of Linkerd: API documents fit, and a thousand at once stay below 64 MiB.",
        example="256KiB",
    )
    replay_total: int = size("0B", "64GiB").key(
        "64MiB",
        "All request bodies that are kept, together, and what has come of others before they have a "
        "connection to a backend. Beyond it a body is streamed, and its request is not sent again.",
        reason="A thousand bodies of the largest size that is kept. It bounds what clients can fill; each "
        "client costs 3 to 7 KiB besides, which `connections` bounds.",
        example="256MiB",
        workers=f"{DIVIDED}, rounded up",
        whole_file=_ALL_TOGETHER,
    )
    document: int = size("1KiB", "16MiB").key(
        "256KiB",
        "A discovery document of a backend; a larger one is 502.",
        reason="Documents are read whole before they are rewritten. Real ones have some kilobytes.",
        example="1MiB",
    )
    write_buffer: int = size("4KiB", "16MiB").key(
        "64KiB",
        "What may wait for a client that reads slowly; beyond it no more is read from the backend. The same "
        "for a backend that reads a request body slowly.",
        reason="Large enough that a fast reader never waits, small enough for thousands of slow ones.",
        example="256KiB",
    )
    min_rate: int = count(0, 1_000_000_000).key(
        240,
        "Bytes a second that a request must bring on average once it has lasted 10 s; then 408. 0: no "
        "minimum.",
        reason="The slowest rate that Kestrel (ASP.NET) accepts, with its grace: an attack by slow bodies "
        "holds a connection for a day otherwise.",
        example=1000,
    )
    connections: int | None = _CONNECTIONS.key(
        "auto",
        "How many clients may be connected at once; `auto`: from the limit of open files, with a reserve "
        "for backends.",
        reason="Without free descriptors requests fail, and the process knows its own limit.",
        example=2000,
        workers=f"{DIVIDED}, rounded up. `auto`: {PER_WORKER}, since each process has files of its own",
        whole_file="a connection belongs to no service before its first request",
    )
    handshakes: int = count(8, 100000).key(
        256,
        "How many connections may be busy with a PROXY header or a TLS handshake at once. Others wait, each "
        "client's in turn.",
        reason="Each takes up to 100 KiB and a millisecond of CPU; 256 are a second's worth of both.",
        example=64,
        workers=f"{PER_WORKER}: it bounds how long those who are connected wait for one process",
        whole_file="TLS comes before any request",
    )
    shed_lag: float | None = _SHED_LAG.key(
        "500ms",
        "How late the event loop may be. While it stays later, new requests get 503: first those of new "
        "connections, then of young ones, at last of all. The admin listener is served. `off`: never.",
        reason="A request waits a few times as long. Beyond seconds clients give up, and the work is wasted.",
        example="1s",
        workers=f"{PER_WORKER}: each has an event loop of its own, and refuses for itself",
        whole_file=_ALL_TOGETHER,
    )


LIMITS: Final = section(Limits)


def share_of(limits: Limits, workers: int) -> Limits:
    """The limits of each of several workers: its part of those that are divided, rounded up."""
    if workers == 1:
        return limits
    connections = limits.connections
    return replace(
        limits,
        connections=None if connections is None else -(-connections // workers),
        replay_total=-(-limits.replay_total // workers),
    )


# --- the same for one service ------------------------------------------------------------------------------

SERVICE_TIMEOUTS: Final = inherited(
    TIMEOUTS, "timeouts", "How long the gateway waits for the peers of this service.", "ServiceTimeouts"
)
SERVICE_LIMITS: Final = inherited(LIMITS, "limits", "How much this service accepts.", "ServiceLimitsSection")


@final
@dataclass(frozen=True, slots=True)
class Reuse:
    """How long one connection to a backend is used. It ends between two requests."""

    requests: int = count(1, 1000000).key(
        1000,
        "How many requests one connection carries; then it is closed. 1: each request has its own.",
        reason="A connection on which responses and requests have come apart serves wrong answers until it "
        "ends. A new one for a thousand requests costs nothing that can be measured.",
        example=100,
    )
    time: float = DURATION.key(
        "5m",
        "The age at which a connection carries no further request; then it is closed.",
        reason="As `requests`, for services with few of them.",
        example="1m",
    )


REUSE: Final = section(Reuse)

PER_SERVICE: Final = SERVICE_TIMEOUTS.keys.keys() | SERVICE_LIMITS.keys.keys()
"""Keys of `timeouts` and `limits` that a service may have, too."""


def limits_of_all(timeouts: Timeouts, limits: Limits) -> ServiceLimits:
    """What a service has that writes nothing itself."""
    return limits_of_service(timeouts, limits, {}, {}, Reuse())


def limits_of_service(
    timeouts: Timeouts,
    limits: Limits,
    own_timeouts: Mapping[str, Any],
    own_limits: Mapping[str, Any],
    reuse: Reuse,
) -> ServiceLimits:
    """The final values of one service: its own, and those of the whole file where it writes none."""
    timeouts, limits = replace(timeouts, **own_timeouts), replace(limits, **own_limits)
    return ServiceLimits(
        **{name: getattr(timeouts, name) for name in SERVICE_TIMEOUTS.keys},
        **{name: getattr(limits, name) for name in SERVICE_LIMITS.keys},
        reuse_requests=reuse.requests,
        reuse_time=reuse.time,
    )
