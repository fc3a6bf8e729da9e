"""The shape of a file, but for one service's (`service_model`): every key with its default and the reason for
it.

These models read texts into values and give the JSON Schema and the reference page; what concerns more than
one key is in `checks`. Defaults are written as an operator would write them, and read by the same code.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Tag

from gateway.settings.addresses import ListenAddress, Network
from gateway.settings.reading import Reads, reject, words
from gateway.settings.scalars import Duration, FilePath, Name, SecretText, Text, count, read_count, size
from gateway.settings.section import (
    OTHER_SHAPE,
    TEXT_SHAPE,
    Section,
    by_shape,
    key,
    required,
)
from gateway.settings.service_model import Service


class Listener(Section):
    """One address on which clients are served."""

    address: ListenAddress = required(
        "HOST:PORT, IPv6 as [HOST]:PORT.",
        reason="Where a service may be reached is the operator's to say.",
        example="0.0.0.0:8080",
    )


class Admin(Section):
    """The listener for people and machines that run the gateway."""

    listen: ListenAddress = key(
        "127.0.0.1:9900",
        "HOST:PORT of the admin listener: health, metrics, status, pins.",
        reason="Whoever reaches it can drain backends, so it is open to this machine only.",
        example="127.0.0.1:9900",
    )
    token: SecretText | None = key(
        None,
        "What clients of the admin listener must send as `Authorization: Bearer TOKEN`. Needed unless "
        "`listen` is "
        "loopback.",
        reason="On loopback the machine's own users are trusted.",
        example="${SKEWGATE_ADMIN_TOKEN}",
    )


class AccessLog(Section):
    """One line for every request."""

    format: Annotated[str, words("json", "text", "off")] = key(
        "json",
        "How a line looks; off: none is written.",
        reason="Lines are read by machines first.",
        example="text",
    )
    path: Text = key(
        "-",
        "The file that lines are added to; `-` is the standard output.",
        reason="Containers and systemd collect the standard output.",
        example="/var/log/skewgate/access.log",
    )


class Timeouts(Section):
    """How long the gateway waits. Seconds as float."""

    client_head: Duration = key(
        "10s",
        "From the first byte of a request to the end of its head, in all; then 408.",
        reason="HAProxy's usual value; it bounds clients that send a byte at a time.",
        example="5s",
    )
    client_body_idle: Duration = key(
        "30s",
        "Between two pieces of a request's body; then 408.",
        reason="Longer than any hiccup of a network, shorter than what a slow attack needs.",
        example="1m",
    )
    client_idle: Duration = key(
        "75s",
        "How long a connection may wait for its next request.",
        reason="nginx's value: load balancers in front keep connections for 60 s, so they close first.",
        example="30s",
    )
    client_write_idle: Duration = key(
        "30s",
        "How long a client may take nothing of a reply that is ready for it.",
        reason="A client that does not read holds a backend's connection.",
        example="1m",
    )
    connect: Duration = key(
        "2s",
        "To open a connection to a backend; then the next one that serves the version is tried.",
        reason="Backends are near, and nothing has been sent yet: an early switch costs nothing.",
        example="500ms",
    )
    backend_head: Duration = key(
        "30s",
        "From the end of a request to the end of the reply's head, in all; then 504.",
        reason="API calls that take longer answer 202 and go on by themselves.",
        example="60s",
    )
    backend_body_idle: Duration = key(
        "60s",
        "Between two pieces of a reply's body; then the client's connection is cut.",
        reason="What has begun deserves patience; a cut cannot be repaired.",
        example="2m",
    )
    backend_idle: Duration = key(
        "15s",
        "How long an unused connection to a backend is kept.",
        reason="It must be shorter than the backend's own limit, or requests meet a closing connection.",
        example="4s",
    )
    drain: Duration = key(
        "30s",
        "At the end: how long requests under way may take before they are cut.",
        reason="As long as `backend_head`: whatever a backend may still answer is answered.",
        example="2m",
    )


def read_connections(text: str) -> int | None:
    """`auto` (None) or a whole number."""
    if text == "auto":
        return None
    value = read_count(text)
    if not 1 <= value <= 1_000_000:
        reject("the number must be from 1 to 1000000", "or `auto`: derived from the limit of open files")
    return value


_CONNECTIONS: Final = Reads(
    read_connections,
    {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 1_000_000}]},
    (int, type(None)),
)


class Limits(Section):
    """How much is taken. Bytes as int."""

    head: Annotated[int, size("1KiB", "1MiB")] = key(
        "32KiB",
        "All header lines of a request together; then 431.",
        reason="Real heads stay below 16 KiB even with large tokens; memory for more only helps attackers.",
        example="64KiB",
    )
    line: Annotated[int, size("256B", "1MiB")] = key(
        "8KiB",
        "The request line (then 414) and each header line (then 431).",
        reason="What Apache, nginx and most API servers take; a longer line would fail behind the gateway.",
        example="16KiB",
    )
    headers: Annotated[int, count(8, 10_000)] = key(
        100,
        "How many header lines a request may have; then 431.",
        reason="Envoy's and HAProxy's value.",
        example=200,
    )
    body: Annotated[int, size("0B", "1024GiB")] = key(
        "1GiB",
        "The body of a request; then 413.",
        reason="Bodies are streamed, so a large one costs no memory; the bound is against endless ones.",
        example="10MiB",
    )
    replay_body: Annotated[int, size("0B", "16MiB")] = key(
        "64KiB",
        "Bodies up to this are held, so that the request can be sent again to another backend.",
        reason="Linkerd's value: API documents fit, and a thousand at once stay below 64 MiB.",
        example="256KiB",
    )
    connections: Annotated[int | None, _CONNECTIONS] = key(
        "auto",
        "How many clients may be connected at once; `auto`: derived from the limit of open files, with "
        "a reserve for backends.",
        reason="Running out of descriptors fails requests; the process knows its own limit best.",
        example=2000,
    )


def only_one(text: str) -> int:
    """The number of workers."""
    if read_count(text) != 1:
        reject("more than one worker is not supported in this release", "write 1", "unsupported")
    return 1


def services_key() -> Any:  # noqa: ANN401
    """The key that holds the services."""
    return required(
        "The APIs, each under a name of 1 to 64 letters, digits, `_`, `.` or `-`.",
        reason="Without one there is nothing to do.",
        example={"baremetal": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:6385"}]}},
        minProperties=1,
    )


class Document(Section):
    """A whole file, but for the services: which keys those have depends on the dialects there are
    (`schema`)."""

    listen: Annotated[
        Annotated[ListenAddress, Tag(TEXT_SHAPE)] | Annotated[tuple[Listener, ...], Tag(OTHER_SHAPE)],
        by_shape,
    ] = required(
        "Where clients are served: HOST:PORT, or a list of `{address: HOST:PORT}`.",
        reason="Where a service may be reached is the operator's to say.",
        example="127.0.0.1:8080",
    )
    services: dict[Name, Service] = services_key()
    admin: Admin = key(
        {},
        "The listener for people and machines that run the gateway.",
        reason="Health and metrics are wanted everywhere.",
        example={"listen": "127.0.0.1:9900"},
    )
    workers: Annotated[int, Reads(only_one, {"type": "integer", "const": 1}, (int,))] = key(
        1,
        "Processes that move bytes. This release has one.",
        reason="One process carries thousands of requests a second.",
        example=1,
    )
    access_log: AccessLog = key(
        {},
        "One line for every request.",
        reason="Lines as JSON on the standard output.",
        example={"format": "off"},
    )
    trusted_proxies: tuple[Network, ...] = key(
        (),
        "Networks whose X-Forwarded-* headers are believed; from all others they are replaced.",
        reason="Whoever is believed can claim any origin.",
        example=["10.0.0.0/8"],
    )
    state: FilePath | None = key(
        None,
        "One small file that keeps offers, pins and drains across a restart; it is written whenever they "
        "change. Left out: nothing is kept.",
        reason="Where a service may write is the operator's to say; without it the fleet is learned anew.",
        example="/var/lib/skewgate/state.json",
    )
    timeouts: Timeouts = key(
        {}, "How long the gateway waits.", reason="Each has its own.", example={"connect": "1s"}
    )
    limits: Limits = key(
        {}, "How much the gateway takes.", reason="Each has its own.", example={"body": "10MiB"}
    )


UNSUPPORTED: Final = frozenset(
    {
        "admin.tls",
        "listen.*.tls",
        "services.*.backends.*.tls",
    }
)
"""Keys of the contract that are not in force: they are refused as such, never taken for a misspelling and
never accepted without effect."""
