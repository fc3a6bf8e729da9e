"""The shape of one service: every key with its default and the reason for it, a description and an example.

Defaults are written as an operator would write them, and read by the same code. What needs the dialect is
checked in `checks.services`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from types import MappingProxyType
from typing import Any, Final, final

from gateway.core.fleet.admission import CLIENT_LIMITS, MAINTENANCE, ClientLimits, Maintenance
from gateway.core.fleet.ejection import EJECTION_OR_OFF, Ejection
from gateway.core.fleet.limits import SERVICE_LIMITS
from gateway.core.fleet.match import MATCH, Match
from gateway.core.fleet.probe import PROBE, Probe
from gateway.core.fleet.queue import QUEUE, Queue
from gateway.core.fleet.retry import RETRY, Retry
from gateway.core.fleet.reuse import REUSE, Reuse
from gateway.core.fleet.service import AtLeast
from gateway.core.fleet.timeouts import SERVICE_TIMEOUTS
from gateway.core.http.upgrade import PROTOCOL_PATTERN, carries_requests
from gateway.keys.addresses import DNS_URL, NETWORK, SRV_URL, URL, BackendUrl
from gateway.keys.kinds import SHARED, Either, ListOf, Table, Text, matching, reject, section
from gateway.keys.secrets import MaskedText
from gateway.keys.texts import (
    BACKEND_NAME,
    FILE_PATH,
    FLAG,
    HEADER_TOKEN,
    HEADER_TOKEN_TEXT,
    HEADER_VALUE,
    LINE,
    VERSION,
    WAIT,
    count,
    one_of,
)
from gateway.settings.model.admission import ACCESS, Access
from gateway.settings.model.operation import OPERATION, Operation
from gateway.settings.model.tls import BACKEND_TLS, BackendTls


def read_share(text: str) -> AtLeast:
    """A number of backends, `2`, or a percentage of them, `50%`."""
    number = text.removesuffix("%")
    percent = number != text
    if re.fullmatch("[1-9][0-9]{0,2}", number, re.ASCII) is None or (percent and int(number) > 100):
        reject("not a valid number of backends", "write a number such as 2, or a percentage from 1% to 100%")
    return AtLeast(int(number), percent)


def read_protocol(text: str) -> str:
    """A protocol of `Upgrade` that may be tunnelled, in lower case."""
    if re.fullmatch(PROTOCOL_PATTERN, text, re.ASCII) is None:
        reject("not a valid protocol", "write its name, and its version after a slash if it has one")
    if carries_requests(text):
        reject(
            "this protocol is never tunnelled: HTTP requests in it would reach a backend with no version "
            "negotiated",
            "write a protocol that is not HTTP, such as websocket",
        )
    return text.lower()


SHARE: Final = Text(
    read_share,
    {
        "type": ["string", "integer"],
        "minimum": 1,
        "maximum": 999,
        "pattern": "^(?:[1-9][0-9]{0,2}|100%|[1-9][0-9]?%)$",
    },
)
PROTOCOL: Final = Text(read_protocol, matching(PROTOCOL_PATTERN))


@final
@dataclass(frozen=True, slots=True)
class Backend:
    """One replica's address, or a source of several: exactly one of `url`, `dns`, `srv` and `file`."""

    url: BackendUrl | None = URL.key(
        None,
        "http://HOST[:PORT][/base], https://HOST[:PORT][/base] or unix:/PATH of a socket. The base path is "
        "added before every path.",
        reason="A backend has no other identity than its address; `dns`, `srv` and `file` find several.",
        example="http://127.0.0.1:6385",
    )
    dns: BackendUrl | None = DNS_URL.key(
        None,
        "Instead of `url`: http://NAME:PORT, or https. Each address of the name is a backend, which comes "
        "and goes with it. A headless service of Kubernetes is such a name.",
        reason="Backends that do not come and go are named one by one.",
        example="http://ironic-api.openstack.svc.cluster.local:6385",
    )
    srv: BackendUrl | None = SRV_URL.key(
        None,
        "Instead of `url`: http://_SERVICE._tcp.NAME, or https. Each address of the targets of these SRV "
        "records is a backend, at the port of its record.",
        reason="Backends that do not come and go are named one by one.",
        example="http://_api._tcp.ironic-api.openstack.svc.cluster.local",
    )
    file: str | None = FILE_PATH.key(
        None,
        "Instead of `url`: a file with a list of backends in the form of Prometheus' file_sd, JSON or YAML. "
        "It is read again when it changes.",
        reason="Backends that do not come and go are named one by one.",
        example="/etc/skewgate/backends.json",
    )
    leave_grace: float = WAIT.key(
        "5m",
        "For how long a backend that `dns`, `srv` or `file` lists no more counts for the offer with what it "
        "advertised last. It gets no new requests in this time, and is removed at its end.",
        reason="Longer than it takes to replace a pod: so a restart never moves the offer.",
        example="15m",
    )
    networks: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks in which the addresses of `dns`, `srv` or `file` must be; others are not taken. Without "
        "this key: any but link-local, multicast and unspecified ones.",
        reason="Whoever keeps the source could send probes to the metadata service of a cloud.",
        example=["10.0.0.0/8", "fd00::/8"],
    )
    name: str | None = BACKEND_NAME.key(
        None,
        "The name in status, metrics and logs, unique in the service. Without it: HOST:PORT of the URL, or "
        "the last part of a socket's path.",
        reason="People look for HOST:PORT first.",
        example="api-1",
    )
    versions: str | None = VERSION.key(
        None,
        "The versions that it serves, instead of probes: `1.1-1.58`, `1.1-1.58, 1.60`; dates and names as "
        "`a..b` or a list.",
        reason="A probe is always true; declared versions are for servers that do not say what they serve.",
        example="1.1-1.58",
    )
    weight: int = count(1, 1000).key(
        1,
        "Its share of the requests, relative to the other backends.",
        reason="Replicas are usually equal.",
        example=2,
    )
    backup: bool = FLAG.key(
        default=False,
        meaning="Whether it gets requests only where no other backend that serves the version is usable: "
        "all others are lost, ejected, drained, unhealthy, or cannot be connected to. Its versions count for "
        "the offer like any other's.",
        reason="Replicas are usually equal.",
        example=True,
    )
    max_requests: int | None = count(1, 100_000).key(
        None,
        "How many requests it takes at the same time. When all that serve the version are "
        "full, requests wait in their queues, then get 503.",
        reason="An API server has its own limit and refuses, or queues, what is beyond it.",
        example=64,
        workers=f"{SHARED}: never more, from all workers together. They lend each other what they do not "
        "use. If it is less than their number, they take turns",
    )
    max_connections: int | None = count(1, 100_000).key(
        None,
        "How many connections are open to it at the same time. A request needs one of its own, so this "
        "bounds requests, too.",
        reason="Most servers take more connections than any gateway opens.",
        example=64,
        workers=f"{SHARED}, as `max_requests`",
    )
    queue: Queue = QUEUE.key(
        {},
        "How requests wait for it while it is full.",
        reason="A short burst passes.",
        example={"length": 100},
    )
    tls: BackendTls | None = BACKEND_TLS.key(
        None,
        "How it is spoken to over TLS, with an https URL.",
        reason="The CAs of the system, and the host of the URL.",
        example={"ca": "/etc/skewgate/backends-ca.crt"},
    )


BACKEND: Final = section(Backend, oneOf=[{"required": [name]} for name in ("url", "dns", "srv", "file")])


@final
@dataclass(frozen=True, slots=True)
class ReleaseCeiling:
    """A ceiling that names a release."""

    release: str = field(
        metadata=LINE.required(
            "A release of the dialect's table or of `releases`.",
            reason="A ceiling needs a version or a release.",
            example="2024.1",
        )
    )


RELEASE_CEILING: Final = section(ReleaseCeiling)


@final
@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """What is changed in one direction. A name that the dialect owns, that belongs to the connection or the
    framing, or that the gateway itself writes is refused."""

    set: Mapping[str, MaskedText] = Table(HEADER_TOKEN, HEADER_VALUE).key(
        {},
        "Headers that replace all of the same name, each with its value.",
        reason="Backends and clients get what the other has sent.",
        example={"X-Frame-Options": "DENY"},
    )
    add: Mapping[str, MaskedText] = Table(HEADER_TOKEN, HEADER_VALUE).key(
        {},
        "Headers that come in addition to those of the same name, each with its value.",
        reason="Backends and clients get what the other has sent.",
        example={"Vary": "Origin"},
    )
    remove: tuple[str, ...] = ListOf(HEADER_TOKEN_TEXT).key(
        (),
        "Headers that are removed, in every spelling that servers take for the same name (`X_User` with "
        "`X-User`).",
        reason="Backends and clients get what the other has sent.",
        example=["X-Powered-By"],
    )


HEADER_CHANGES: Final = section(HeaderChanges)


@final
@dataclass(frozen=True, slots=True)
class Headers:
    """What is changed in the heads of requests and responses."""

    request: HeaderChanges = HEADER_CHANGES.key(
        {},
        "In requests to backends. Probes have headers of their own (`probe.headers`). The values are never "
        "shown.",
        reason="The gateway adds only what describes the client.",
        example={"remove": ["X-Debug"]},
    )
    response: HeaderChanges = HEADER_CHANGES.key(
        {},
        "In responses to clients, also in those that the gateway makes for this service. Errors before a "
        "request has its service have none of them.",
        reason="The gateway adds nothing of its own but `Vary`.",
        example={"set": {"X-Frame-Options": "DENY"}},
    )


HEADERS: Final = section(Headers)


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """The versions that the service offers to clients."""

    policy: str = one_of("guaranteed", "reachable", "at_least").key(
        "guaranteed",
        "guaranteed: what every backend in service serves. reachable: what at least one serves. at_least: "
        "what at least `at_least` of them serve.",
        reason="Clients keep a version for hours. Only what every backend serves survives the loss of one.",
        example="reachable",
    )
    at_least: AtLeast | None = SHARE.key(
        None,
        "For the policy `at_least`: how many of the backends in service must serve a version, as a number or "
        "as a percentage, which is rounded up.",
        reason="The other policies need no number.",
        example="50%",
    )
    stabilization: float = WAIT.key(
        "5s",
        "How long the policy must give a version before it is added to the offer; `0s`: at once. The first "
        "offer waits so long at most, for backends that have not answered.",
        reason="One interval of probes: a server that is rolled back at once does not raise the offer.",
        example="30s",
    )
    ceiling: str | ReleaseCeiling | None = Either(VERSION, RELEASE_CEILING).key(
        None,
        'The highest version on offer, as a version ("1.90") or as {release: NAME}.',
        reason="The fleet shows what it can serve.",
        example="1.90",
    )


OFFER: Final = section(Offer)


@final
@dataclass(frozen=True, slots=True)
class Service:
    """One versioned API with one dialect."""

    dialect: str = field(
        metadata=LINE.required(
            "The dialect: how this API expresses versions.",
            reason="A wrong guess would misread every request.",
            example="ironic",
        )
    )
    backends: tuple[Backend, ...] = field(
        metadata=ListOf(BACKEND).required(
            "The replicas, at least one.",
            reason="A service without a backend cannot respond.",
            example=[{"url": "http://127.0.0.1:6385"}],
            minItems=1,
        )
    )
    match: Match = MATCH.key(
        {},
        "Which requests belong to the service.",
        reason="A single service gets all requests.",
        example={"path": "/baremetal"},
    )
    probe: Probe = PROBE.key(
        {},
        "How backends are probed for their versions.",
        reason="The dialect knows how.",
        example={"interval": "10s"},
    )
    offer: Offer = OFFER.key(
        {},
        "The versions that the service offers to clients.",
        reason="What every backend serves, without a ceiling.",
        example={"ceiling": "1.90"},
    )
    releases: Mapping[str, str] = Table(LINE, VERSION).key(
        {},
        "Release names beyond the dialect's table, each with its highest version, for `offer.ceiling`.",
        reason="The dialect's table has the public releases.",
        example={"our-build-7": "1.90"},
    )
    default_version: str | None = VERSION.key(
        None,
        "What a request without a version gets: minimum or maximum (of the offer), refused, or a version. "
        "Without this key: what the dialect's servers do.",
        reason="Clients were written for what their servers do.",
        example="minimum",
    )
    retry_after: bool | None = FLAG.key(
        None,
        "Whether a 503 of the gateway has `Retry-After`. Without this key: unless the dialect's clients "
        "break on it (ironic, and the Manila and Ironic Inspector of openstack).",
        reason="python-ironicclient and manilaclient raise TypeError at it. Other clients wait as it says.",
        example=True,
    )
    operations: tuple[Operation, ...] = ListOf(OPERATION).key(
        (),
        "Operations that exist only in some versions of the service. In other versions the gateway refuses "
        "them as the dialect's servers do; no backend is touched. All other paths exist in every version.",
        reason="Only the backends know their operations. The gateway must be configured.",
        example=[{"methods": ["GET"], "path": "/v1/nodes/{node}/vifs", "versions": ">=1.28"}],
    )
    retry: Retry = RETRY.key(
        {},
        "When a request is sent to another backend.",
        reason="Only where a second attempt does no harm.",
        example={"attempts": 2},
        workers=f"{SHARED}: at a time each worker repeats at most a fifth of its own requests in flight. The "
        "3 that every service may have are lent to the worker that needs them",
    )
    ejection: Ejection | None = EJECTION_OR_OFF.key(
        {},
        "When a backend that fails gets no requests for a while; `off`: never. While nobody else who serves "
        "a version is usable, ejected ones get its requests. The offer does not change.",
        reason="A backend that fails costs clients time until its next probe, and some pass every probe.",
        example={"failures": 3, "time": "30s"},
    )
    headers: Headers = HEADERS.key(
        {},
        "Headers that are set, added and removed.",
        reason="What was sent passes as it came.",
        example={"response": {"remove": ["X-Powered-By"]}},
    )
    upgrade: tuple[str, ...] = ListOf(PROTOCOL).key(
        (),
        "Protocols to which a client may switch its connection, as `Upgrade` names them. It becomes a tunnel "
        "to the backend. All others are removed from the request, which goes on as an ordinary one.",
        reason="Nothing in a tunnel is negotiated, checked or logged, so only named protocols may have one.",
        example=["websocket"],
    )
    reuse: Reuse = REUSE.key(
        {},
        "How long one connection to a backend is used. It ends between two requests.",
        reason="The defaults cost nothing and bound what one connection out of step can do.",
        example={"requests": 100, "time": "1m"},
    )
    access: Access = ACCESS.key(
        {},
        "From which addresses the service may be used.",
        reason="Who may reach the listener may use its services.",
        example={"allow": ["10.0.0.0/8"]},
    )
    client_limits: ClientLimits = CLIENT_LIMITS.key(
        {},
        "How much of the service one client may use.",
        reason="Only the operator knows what is much for one client.",
        example={"rate": "100/s", "concurrency": 50},
    )
    maintenance: Maintenance | None = MAINTENANCE.key(
        None,
        "A fixed answer to every request of the service, discovery documents included, while this key is "
        "there. Probes go on, and the offer with them.",
        reason="Services are there to be used.",
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
    """Options of dialects, by the name of the dialect, which is their key in the file."""


SERVICE: Final = section(Service)
"""A service without options of dialects: `schema.document_section` adds those."""
