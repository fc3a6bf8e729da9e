"""Limits of the whole file and of one service: `limits` and `services.NAME.limits`.

A service inherits the keys that it does not write. A key that applies before a request has its service says
so (`whole_file`). The data plane enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from gateway.core.fleet.timeouts import DURATION_OR_OFF
from gateway.keys.kinds import DIVIDED, PER_WORKER, Text, inherited, reject, section
from gateway.keys.texts import count, read_count, size

_HEAD_FIRST: Final = "the service is known only after the whole head has been read"
_ALL_TOGETHER: Final = "it is for all services together"


def read_connections(text: str) -> int | None:
    """Read a number of client connections: `auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= 1_000_000:
        reject("the number must be from 1 to 1000000", "or write auto: from the limit of open files")
    return value


_CONNECTIONS: Final = Text(
    read_connections, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 1_000_000}]}
)


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on connections, requests and messages. Sizes are in bytes."""

    head: int = size("1KiB", "1MiB").key(
        "32KiB",
        "Size of all header lines of a request together; then 431.",
        reason="Real heads stay below 16 KiB, even with large tokens. More memory would only help attackers.",
        example="64KiB",
        whole_file=_HEAD_FIRST,
    )
    line: int = size("256B", "1MiB").key(
        "8KiB",
        "Size of the request line (then 414) and of each header line (then 431).",
        reason="The limit of Apache, nginx and most API servers: a longer line would fail there.",
        example="16KiB",
        whole_file=_HEAD_FIRST,
    )
    headers: int = count(8, 10_000).key(
        100,
        "How many header lines a request may have; then 431.",
        reason="The value of Envoy and HAProxy.",
        example=200,
        whole_file=_HEAD_FIRST,
    )
    body: int = size("0B", "1024GiB").key(
        "1GiB",
        "Size of a request body; then 413.",
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
        "Largest number of client connections; `auto`: from the limit of open files, with a reserve for "
        "backends.",
        reason="Without free descriptors requests fail, and the process can read its own limit.",
        example=2000,
        workers=f"{DIVIDED}, rounded up. `auto`: {PER_WORKER}, since each process has files of its own",
        whole_file="a connection belongs to no service before its first request",
    )
    handshakes: int = count(8, 100_000).key(
        256,
        "Largest number of connections in a PROXY header or a TLS handshake at once. Others wait; clients "
        "take turns.",
        reason="Each takes up to 100 KiB and a millisecond of CPU; 256 are a second's worth of both.",
        example=64,
        workers=f"{PER_WORKER}: it bounds how long those who are connected wait for one process",
        whole_file="TLS comes before any request",
    )
    shed_lag: float = DURATION_OR_OFF.key(
        "500ms",
        "How late the event loop may be. While it is later, new requests get 503: first on new connections, "
        "then on young ones, then on all. The admin listener is always served. `off`: never.",
        reason="A request then waits a few times as long. Clients give up after seconds, and the work would "
        "be wasted.",
        example="1s",
        workers=f"{PER_WORKER}: each has an event loop of its own, and refuses for itself",
        whole_file=_ALL_TOGETHER,
    )


LIMITS: Final = section(Limits, "Limits on connections, requests and messages. Sizes are in bytes.")
SERVICE_LIMITS: Final = inherited(LIMITS, "limits", "How much this service accepts.", "ServiceLimitsSection")
DEFAULT_LIMITS: Final = Limits()


def share_of(limits: Limits, workers: int) -> Limits:
    """Limits of each of several workers: its part of those that are divided, rounded up."""
    if workers == 1:
        return limits
    connections = limits.connections
    return replace(
        limits,
        connections=None if connections is None else -(-connections // workers),
        replay_total=-(-limits.replay_total // workers),
    )
