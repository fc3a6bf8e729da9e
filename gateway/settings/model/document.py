"""The shape of a whole file: every key with its default and the reason for it. One service is in `service`.

These models read texts into values. The JSON Schema and the reference page are made from them. Defaults are
written as an operator would write them, and read by the same code. What concerns more than one key is in
`checks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Tag

from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.settings.model.addresses import ListenAddress, Network
from gateway.settings.model.fields import (
    OTHER_SHAPE,
    TEXT_SHAPE,
    Duration,
    FilePath,
    HeaderPattern,
    Name,
    SecretText,
    Section,
    Text,
    TextReader,
    by_shape,
    count,
    key,
    one_of,
    read_count,
    reject,
    required,
    size,
)
from gateway.settings.model.service import Service


class Listener(Section):
    """One address on which clients are served."""

    address: ListenAddress = required(
        "HOST:PORT; IPv6 as [HOST]:PORT.",
        reason="Only the operator knows where clients may reach the services.",
        example="0.0.0.0:8080",
    )


class Admin(Section):
    """The listener for the people and programs that operate the gateway."""

    listen: ListenAddress = key(
        "127.0.0.1:9900",
        "HOST:PORT of the admin listener: health, metrics, status, pins.",
        reason="Everybody who reaches it can drain backends, so it is open to this machine only.",
        example="127.0.0.1:9900",
    )
    token: SecretText | None = key(
        None,
        "The token that clients of the admin listener send as `Authorization: Bearer TOKEN`. Required unless "
        "`listen` is a loopback address.",
        reason="On loopback the users of the machine are trusted.",
        example="${SKEWGATE_ADMIN_TOKEN}",
    )


class AccessLog(Section):
    """One line for every request."""

    format: Annotated[str, one_of("json", "text", "off")] = key(
        "json",
        "The format of a line; off: no line is written.",
        reason="Programs read the lines before people do.",
        example="text",
    )
    path: Text = key(
        "-",
        "The file to which lines are appended; `-` is standard output.",
        reason="Containers and systemd collect standard output.",
        example="/var/log/skewgate/access.log",
    )


class Timeouts(Section):
    """How long the gateway waits. Seconds as float."""

    client_head: Duration = key(
        "10s",
        "In total, from the first byte of a request to the end of its head; then 408.",
        reason="The usual value in HAProxy. It limits clients that send one byte at a time.",
        example="5s",
    )
    client_body_idle: Duration = key(
        "30s",
        "Between two parts of a request body; then 408.",
        reason="Longer than a disturbance of the network, shorter than a slow attack needs.",
        example="1m",
    )
    client_idle: Duration = key(
        "75s",
        "How long a client connection may wait for its next request.",
        reason="The value of nginx: load balancers in front keep connections for 60 s, so they close first.",
        example="30s",
    )
    client_write_idle: Duration = key(
        "30s",
        "How long a client may take nothing of a response that is ready. A slow reader has no time limit.",
        reason="A client that does not read keeps a backend connection in use.",
        example="1m",
    )
    connect: Duration = key(
        "2s",
        "To open a connection to a backend; then another backend that serves the version is tried.",
        reason="Backends are near. Nothing has been sent yet, so an early switch costs nothing.",
        example="500ms",
    )
    backend_head: Duration = key(
        "30s",
        "In total, from the end of a request to the end of the response head; then 504.",
        reason="API calls that take longer respond 202 and continue in the background.",
        example="60s",
    )
    backend_body_idle: Duration = key(
        "60s",
        "Between two parts of a response body; then the client connection is closed.",
        reason="A response that was cut cannot be repaired, so this is longer than the other limits.",
        example="2m",
    )
    backend_write_idle: Duration = key(
        "30s",
        "How long a backend may take nothing of a request body; then 504.",
        reason="A slow upload is no fault while bytes move; a backend that takes nothing has hung.",
        example="1m",
    )
    backend_idle: Duration = key(
        "15s",
        "How long an idle connection to a backend is kept.",
        reason="It must be shorter than the backend's own limit, or requests meet a connection that closes.",
        example="4s",
    )
    drain: Duration = key(
        "30s",
        "At shutdown: how long requests in flight may take before they are cut.",
        reason="As long as `backend_head`: a backend may use all of its time to respond.",
        example="2m",
    )


def read_connections(text: str) -> int | None:
    """`auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= 1_000_000:
        reject("the number must be from 1 to 1000000", "or write auto: from the limit of open files")
    return value


_CONNECTIONS: Final = TextReader(
    read_connections,
    {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 1_000_000}]},
    (int, type(None)),
)


class Limits(Section):
    """How much the gateway accepts. Bytes as int."""

    head: Annotated[int, size("1KiB", "1MiB")] = key(
        "32KiB",
        "All header lines of a request together; then 431.",
        reason="Real heads stay below 16 KiB, even with large tokens. More memory would only help attackers.",
        example="64KiB",
    )
    line: Annotated[int, size("256B", "1MiB")] = key(
        "8KiB",
        "The request line (then 414) and each header line (then 431).",
        reason="The limit of Apache, nginx and most API servers: a longer line would fail there.",
        example="16KiB",
    )
    headers: Annotated[int, count(8, 10_000)] = key(
        100,
        "How many header lines a request may have; then 431.",
        reason="The value of Envoy and HAProxy.",
        example=200,
    )
    body: Annotated[int, size("0B", "1024GiB")] = key(
        "1GiB",
        "The body of a request; then 413.",
        reason="Bodies are streamed, so a large one costs no memory. The limit is for endless ones.",
        example="10MiB",
    )
    replay_body: Annotated[int, size("0B", "16MiB")] = key(
        "64KiB",
        "Request bodies up to this size are kept, so that the request can be sent again to another backend.",
        reason="The value of Linkerd: API documents fit, and a thousand at once stay below 64 MiB.",
        example="256KiB",
    )
    replay_total: Annotated[int, size("0B", "64GiB")] = key(
        "64MiB",
        "All request bodies that are kept, together. Beyond it a body is streamed, and its request is not "
        "sent again.",
        reason="A thousand bodies of the largest size that is kept. It bounds what clients can fill.",
        example="256MiB",
    )
    document: Annotated[int, size("1KiB", "16MiB")] = key(
        "256KiB",
        "A discovery document of a backend; a larger one is 502.",
        reason="Documents are read whole before they are rewritten. Real ones have some kilobytes.",
        example="1MiB",
    )
    write_buffer: Annotated[int, size("4KiB", "16MiB")] = key(
        "64KiB",
        "What may wait for a client that reads slowly; beyond it no more is read from the backend. The same "
        "for a backend that reads a request body slowly.",
        reason="Large enough that a fast reader never waits, small enough for thousands of slow ones.",
        example="256KiB",
    )
    min_rate: Annotated[int, count(0, 1_000_000_000)] = key(
        240,
        "Bytes a second that a request must bring on average once it has lasted 10 s; then 408. 0: no "
        "minimum.",
        reason="The slowest rate that Kestrel (ASP.NET) accepts, with its grace: an attack by slow bodies "
        "holds a connection for a day otherwise.",
        example=1000,
    )
    connections: Annotated[int | None, _CONNECTIONS] = key(
        "auto",
        "How many clients may be connected at once; `auto`: from the limit of open files, with a reserve "
        "for backends.",
        reason="Without free descriptors requests fail, and the process knows its own limit.",
        example=2000,
    )


def only_one(text: str) -> int:
    """The number of workers, which must be 1."""
    if read_count(text) != 1:
        reject("more than one worker is not supported in this release", "write 1", "unsupported")
    return 1


def services_key() -> Any:  # noqa: ANN401
    """The key `services`."""
    return required(
        "The APIs, each under a name of 1 to 64 letters, digits, `_`, `.` or `-`.",
        reason="Without a service the gateway has nothing to do.",
        example={"baremetal": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:6385"}]}},
        minProperties=1,
    )


class Document(Section):
    """A whole file. `schema` replaces the type of the services, because the keys of a service depend on the
    dialects."""

    listen: Annotated[
        Annotated[ListenAddress, Tag(TEXT_SHAPE)] | Annotated[tuple[Listener, ...], Tag(OTHER_SHAPE)],
        by_shape,
    ] = required(
        "Where clients are served: HOST:PORT, or a list of `{address: HOST:PORT}`.",
        reason="Only the operator knows where clients may reach the services.",
        example="127.0.0.1:8080",
    )
    services: dict[Name, Service] = services_key()
    admin: Admin = key(
        {},
        "The listener for the people and programs that operate the gateway.",
        reason="Every installation needs health and metrics.",
        example={"listen": "127.0.0.1:9900"},
    )
    workers: Annotated[int, TextReader(only_one, {"type": "integer", "const": 1}, (int,))] = key(
        1,
        "Processes of the data plane. This release supports one.",
        reason="One process handles thousands of requests a second.",
        example=1,
    )
    access_log: AccessLog = key(
        {},
        "One line for every request.",
        reason="JSON lines on standard output.",
        example={"format": "off"},
    )
    trusted_proxies: tuple[Network, ...] = key(
        (),
        "Networks whose X-Forwarded-* headers are accepted; from all others they are replaced.",
        reason="A trusted peer can claim any origin.",
        example=["10.0.0.0/8"],
    )
    untrusted_headers: tuple[HeaderPattern, ...] = key(
        UNTRUSTED_HEADERS,
        "Headers that are dropped from peers outside `trusted_proxies`, with every other spelling of them "
        "(`X_Real.IP`); `*` at the end: all that begin so. The headers about the client that the gateway "
        "writes are replaced even if the list does not have them. `Proxy` is dropped from everybody.",
        reason="Servers take them for the word of the proxy in front: who the client is, its address, the "
        "original URL.",
        example=["X-Forwarded-*", "X-Original-*", "X-Remote-User"],
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


UNSUPPORTED: Final = frozenset(
    {
        "admin.tls",
        "listen.*.tls",
        "services.*.backends.*.tls",
    }
)
"""Documented keys that this release does not support. They get their own error: they are never taken for
misspelled keys, and never accepted without effect."""

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
