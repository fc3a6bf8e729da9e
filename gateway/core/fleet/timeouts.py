"""Time limits of the whole file and of one service: `timeouts` and `services.NAME.timeouts`.

A service inherits the keys that it does not write. A key that applies before a request has its service says
so (`whole_file`). The data plane enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.keys.kinds import Text, inherited, matching, section
from gateway.keys.texts import DURATION, DURATION_PATTERN, read_duration

NO_TIMEOUT: Final = float("inf")
"""Value of a time limit that is `off`."""


def read_timeout(text: str) -> float:
    """Read a duration, or `off`: no limit."""
    return NO_TIMEOUT if text == "off" else read_duration(text, "; or off")


DURATION_OR_OFF: Final = Text(read_timeout, matching(f"{DURATION_PATTERN}|off"))


@final
@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of connections, requests and responses, in seconds."""

    client_head: float = DURATION.key(
        "10s",
        "Total time from the first byte of a request to the end of its head; then 408.",
        reason="The usual value in HAProxy. It limits clients that send one byte at a time.",
        example="5s",
        whole_file="the service is known only after the whole head has been read",
    )
    handshake: float = DURATION.key(
        "10s",
        "Total time from a new connection to the end of its PROXY header and its TLS handshake.",
        reason="As long as `client_head`. A handshake takes two round trips.",
        example="5s",
        whole_file="TLS comes before any request",
    )
    client_body_idle: float = DURATION.key(
        "30s",
        "Time between two parts of a request body; then 408.",
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
        "Time to open a connection to a backend; then another backend that serves the version is tried.",
        reason="Backends are near. Nothing has been sent yet, so an early switch costs nothing.",
        example="500ms",
    )
    backend_head: float = DURATION_OR_OFF.key(
        "30s",
        "Total time from the end of a request to the end of the response head; then 504. `off`: for requests "
        "that wait for an event, such as a long poll.",
        reason="API calls that take longer respond 202 and continue in the background.",
        example="60s",
    )
    backend_body_idle: float = DURATION_OR_OFF.key(
        "60s",
        "Time between two parts of a response body; then the client connection is closed. `off`: for watches "
        "and followed logs.",
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


TIMEOUTS: Final = section(Timeouts, "Time limits of connections, requests and responses, in seconds.")
SERVICE_TIMEOUTS: Final = inherited(
    TIMEOUTS, "timeouts", "How long the gateway waits for the peers of this service.", "ServiceTimeouts"
)
DEFAULT_TIMEOUTS: Final = Timeouts()
