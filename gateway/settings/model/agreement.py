"""What several replicas agree over, in the file. What concerns more than one key is in `checks.agreement`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from gateway.keys.addresses import HOST, read_host, read_port
from gateway.keys.kinds import ListOf, Text, matching, reject, section
from gateway.keys.secrets import Secret
from gateway.keys.texts import (
    DURATION_PATTERN,
    FILE_PATH,
    LINE,
    NAME_PATTERN,
    read_duration,
    read_name,
    read_text,
)

DEFAULT_PORT: Final = 2379
_PREFIX: Final = r"(?:/[A-Za-z0-9_.-]{1,64}){1,8}"
_ENDPOINT: Final = r"https?://[^/@?#]+/?"
SHORTEST_TTL: Final = 0.5
LONGEST_TTL: Final = 60.0
LONGEST_FORGET_HOURS: Final = 720


@final
class Endpoint(NamedTuple):
    """Where one member of etcd answers clients."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        """As it is written in the file."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def read_endpoint(text: str) -> Endpoint:
    """`http://HOST[:PORT]`, the same with `https`."""
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in {"http", "https"}:
        reject("an endpoint must begin with http:// or https://", f"write http://HOST:{DEFAULT_PORT}")
    authority = rest.removesuffix("/")
    if found := re.search("[/@?#]", authority):
        part = {"/": "path", "@": "user or password", "?": "query", "#": "fragment"}[found[0]]
        hint = "write agreement.etcd.user and .password" if found[0] == "@" else f"write {scheme}://HOST:PORT"
        reject(f"an endpoint must not contain a {part}", hint)
    host, port = authority, str(DEFAULT_PORT)
    if with_port := re.fullmatch(r"(.*?):([^:\]]*)", authority):
        host, port = with_port[1], with_port[2]
    if not host:
        reject("the endpoint has no host", f"write {scheme}://HOST:{DEFAULT_PORT}")
    return Endpoint(read_host(host), read_port(port, lowest=1), scheme == "https")


def read_password(text: str) -> Secret:
    """Any text on one line."""
    return Secret(read_text(text))


def read_prefix(text: str) -> str:
    """What the keys begin with: `/skewgate`."""
    if re.fullmatch(_PREFIX, text, re.ASCII) is None:
        reject(
            "a prefix must be one to eight parts of letters, digits, `_`, `.` or `-`, each after a slash",
            "write /skewgate, without a slash at its end",
        )
    return text


def read_ttl(text: str) -> float:
    """A duration within bounds."""
    seconds = read_duration(text)
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        reject("this duration must be from 500ms to 60s")
    return seconds


def read_forget(text: str) -> float | None:
    """A duration; None: `never`."""
    if text == "never":
        return None
    if (hours := re.fullmatch("([0-9]{1,9})h", text, re.ASCII)) and int(hours[1]):
        if int(hours[1]) > LONGEST_FORGET_HOURS:
            reject(f"the duration must be at most {LONGEST_FORGET_HOURS}h", "or write never")
        return int(hours[1]) * 3600.0
    return read_duration(text, ", or never")


ENDPOINT: Final = Text(read_endpoint, matching(_ENDPOINT))
PASSWORD: Final = Text(read_password, {"type": "string", "minLength": 1, "writeOnly": True})
CLUSTER_NAME: Final = Text(read_name, matching(NAME_PATTERN))
PREFIX: Final = Text(read_prefix, matching(_PREFIX))
TTL: Final = Text(read_ttl, matching(DURATION_PATTERN))
FORGET: Final = Text(read_forget, matching(f"{DURATION_PATTERN}|never"))


@final
@dataclass(frozen=True, slots=True)
class EtcdTls:
    """TLS to etcd. Its certificate is always verified."""

    ca: str | None = FILE_PATH.key(
        None,
        "CA certificates (PEM), by which the certificates of the members are verified.",
        reason="Without it those that the system trusts.",
        example="/etc/skewgate/etcd-ca.crt",
    )
    server_name: str | None = HOST.key(
        None,
        "The name that the certificate of each member must have.",
        reason="Without it the host of each endpoint.",
        example="etcd.example.org",
    )
    certificate: str | None = FILE_PATH.key(
        None,
        "The certificate that the gateway shows, with its chain (PEM). It is read again when there "
        "is no connection with it.",
        reason="Only an etcd with `client-cert-auth` asks for one.",
        example="/etc/skewgate/etcd-client.crt",
    )
    key: str | None = FILE_PATH.key(
        None,
        "The private key of `certificate`, not encrypted.",
        reason="Only an etcd with `client-cert-auth` asks for a certificate.",
        example="/etc/skewgate/etcd-client.key",
    )


ETCD_TLS: Final = section(EtcdTls)


@final
@dataclass(frozen=True, slots=True)
class Etcd:
    """The etcd in which replicas keep what they agree on: version 3.4 or newer."""

    endpoints: tuple[Endpoint, ...] = field(
        metadata=ListOf(ENDPOINT, least=1).required(
            "The client URLs of its members, `http://HOST:PORT` or `https://HOST:PORT` (port 2379 if none is "
            "written). One that does not answer is passed over.",
            reason="Only the operator knows where it is.",
            example=["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"],
        )
    )
    tls: EtcdTls | None = ETCD_TLS.key(
        None,
        "How the certificates of https endpoints are verified, and what the gateway shows.",
        reason="https needs nothing where the system trusts the CA.",
        example={"ca": "/etc/skewgate/etcd-ca.crt"},
    )
    user: str | None = LINE.key(
        None,
        "The user of etcd as whom the gateway reads and writes. It needs `readwrite` on all keys under "
        "`prefix`.",
        reason="An etcd without users asks for none.",
        example="skewgate",
    )
    password: Secret | None = PASSWORD.key(
        None,
        "The password of `user`.",
        reason="An etcd without users asks for none.",
        example="${SKEWGATE_ETCD_PASSWORD}",
    )
    prefix: str = PREFIX.key(
        "/skewgate",
        "What all keys begin with.",
        reason="It says whose keys they are.",
        example="/site-1/skewgate",
    )


ETCD: Final = section(Etcd)


@final
@dataclass(frozen=True, slots=True)
class Agreement:
    """What all replicas of this gateway agree over, so that they offer the same."""

    etcd: Etcd = field(
        metadata=ETCD.required(
            "The etcd in which replicas keep what they agree on: version 3.4 or newer.",
            reason="Replicas need one place that all of them can reach.",
            example={"endpoints": ["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"]},
        )
    )
    cluster: str = field(
        metadata=CLUSTER_NAME.required(
            "The name of this set of replicas: all of them have the same one, and no other set in this etcd "
            "has it.",
            reason="Two sets under one name would hold back each other's offers.",
            example="site-1",
        )
    )
    ttl: float = TTL.key(
        "3s",
        "From 500ms to 60s. A replica that has not reached etcd for nine tenths of it is detached: it keeps "
        "its offer, and answers 503 where it would refuse a version. All replicas have the same one.",
        reason="A beat is sent every quarter of it, and etcd answers in milliseconds.",
        example="10s",
    )
    forget: float | None = FORGET.key(
        "24h",
        "A replica that is detached for so long stops answering, and the others go on without it; `never`: "
        "neither. At most 720h. All replicas have the same one.",
        reason="A day is time enough to repair etcd, and no machine that is gone holds back an offer for "
        "longer.",
        example="never",
    )


AGREEMENT: Final = section(Agreement)
