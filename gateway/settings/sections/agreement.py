"""`agreement`: the etcd and the cluster in which several replicas agree on one offer.

The files of TLS are read as the gateway will read them. etcd is not contacted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, final

from gateway.core.fleet.backend import BackendTls
from gateway.keys.addresses import Address, read_host, read_port
from gateway.keys.kinds import ListOf, Section, Text, keys_of_class, matching, reject, section
from gateway.keys.secrets import Secret
from gateway.keys.texts import (
    DURATION_PATTERN,
    LINE,
    NAME,
    read_duration,
    read_text,
    written_as,
)
from gateway.settings.sections.admin import is_loopback
from gateway.settings.sections.tls import WrittenTls, read_digest
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child

DEFAULT_PORT: Final = 2379
_ENDPOINT: Final = r"https?://[^/@?#]+/?"
SHORTEST_TTL: Final = 0.5
LONGEST_TTL: Final = 60.0
LONGEST_FORGET_HOURS: Final = 720
FEWEST_TTLS: Final = 3
"""Least ratio of `forget` to `ttl`, so that no replica is forgotten after a few missed heartbeats."""
SHORT_FORGET: Final = 600.0


@final
class EtcdEndpoint(NamedTuple):
    """Address at which one member of etcd serves clients."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{Address(self.host, self.port)}"


def read_endpoint(text: str) -> EtcdEndpoint:
    """Read the URL of an etcd member: `http://HOST[:PORT]`, or the same with `https`."""
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
    return EtcdEndpoint(read_host(host), read_port(port, lowest=1), scheme == "https")


def read_ttl(text: str) -> float:
    """Read the `ttl` of a replica, a duration from `SHORTEST_TTL` to `LONGEST_TTL`."""
    seconds = read_duration(text)
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        reject("this duration must be from 500ms to 60s")
    return seconds


def read_forget(text: str) -> float | None:
    """Read the time after which a detached replica is forgotten; None: `never`."""
    if text == "never":
        return None
    if (hours := re.fullmatch("([0-9]{1,9})h", text, re.ASCII)) and int(hours[1]):
        if int(hours[1]) > LONGEST_FORGET_HOURS:
            reject(f"the duration must be at most {LONGEST_FORGET_HOURS}h", "or write never")
        return int(hours[1]) * 3600.0
    return read_duration(text, ", or never")


ENDPOINT: Final = Text(lambda text: str(read_endpoint(text)), matching(_ENDPOINT))
PASSWORD: Final = Text(
    lambda text: Secret(read_text(text)), {"type": "string", "minLength": 1, "writeOnly": True}
)
PREFIX: Final = written_as(
    r"(?:/[A-Za-z0-9_.-]{1,64}){1,8}",
    "a prefix must be one to eight parts of letters, digits, `_`, `.` or `-`, each after a slash",
    "write /skewgate, without a slash at its end",
)
TTL: Final = Text(read_ttl, matching(DURATION_PATTERN))
FORGET: Final = Text(read_forget, matching(f"{DURATION_PATTERN}|never"))


def _etcd_tls(**written: Any) -> BackendTls:  # noqa: ANN401 - of all keys
    tls = WrittenTls(**written)
    return BackendTls(tls.server_name or "", tls.ca, tls.certificate, tls.key)


ETCD_TLS: Final = Section(
    make=_etcd_tls,
    keys={name: key for name, key in keys_of_class(WrittenTls).items() if name != "verify"},
    about="TLS to etcd. Its certificate is always verified.",
    title="EtcdTls",
)


@final
@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The etcd (3.4 or newer) in which replicas keep what they agree on."""

    endpoints: tuple[str, ...] = field(
        metadata=ListOf(ENDPOINT, least=1).required(
            "The client URLs of its members, `http://HOST:PORT` or `https://HOST:PORT` (default port 2379). "
            "A member that does not answer is skipped.",
            reason="There is no useful default.",
            example=["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"],
        )
    )
    tls: BackendTls | None = ETCD_TLS.key(
        None,
        "How certificates of https endpoints are verified, and the client certificate. The files are read "
        "again when a connection fails.",
        reason="https needs nothing more if the system trusts the CA.",
        example={"ca": "/etc/skewgate/etcd-ca.crt"},
    )
    user: str | None = LINE.key(
        None,
        "The etcd user of the gateway. It needs `readwrite` on all keys under `prefix`.",
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
        "Prefix of all keys in etcd.",
        reason="It separates the keys from those of other programs.",
        example="/site-1/skewgate",
    )


@final
@dataclass(frozen=True, slots=True)
class AgreementSettings:
    """Agreement of all replicas of this gateway on one offer."""

    etcd: EtcdSettings = field(
        metadata=section(EtcdSettings, title="Etcd").required(
            reason="Replicas need one place that all of them can reach.",
            example={"endpoints": ["https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"]},
        )
    )
    cluster: str = field(
        metadata=NAME.required(
            "The name of this set of replicas. All of them need the same one; no other set in this etcd may "
            "have it.",
            reason="Two sets under one name would hold back each other's offers.",
            example="site-1",
        )
    )
    ttl: float = TTL.key(
        "3s",
        "From 500ms to 60s, the same for all replicas. A replica that has not reached etcd for nine tenths "
        "of it is detached: it keeps its offer, and answers 503 where it would refuse a version.",
        reason="A beat is sent every quarter of it, and etcd answers in milliseconds.",
        example="10s",
    )
    forget: float | None = FORGET.key(
        "24h",
        "How long a replica may be detached: then it stops answering, and the others go on without it; "
        "`never`: neither. At most 720h, the same for all replicas.",
        reason="A day is enough to repair etcd, and a machine that is gone holds back the offer no longer.",
        example="never",
    )

    @property
    def prefix(self) -> str:
        """The prefix of all etcd keys of this set of replicas. It ends with a slash."""
        return f"{self.etcd.prefix}/{self.cluster}/"


def read_agreement(
    written: AgreementSettings | None, node: Node | None, findings: Findings, *, has_state: bool
) -> AgreementSettings | None:
    """The settings for replicas, checked and with TLS for https endpoints; None: this gateway has none."""
    if written is None:
        return None
    etcd, place = written.etcd, child(node, "etcd")
    endpoints = list(map(read_endpoint, etcd.endpoints))
    _check_endpoints(endpoints, child(place, "endpoints"), findings)
    _check_user(etcd, endpoints, place, findings)
    _check_durations(written, node, findings)
    if not has_state:
        findings.warn(
            node,
            "no-state",
            "without `state` a replica that is started anew answers nothing until it has reached etcd, and "
            "what it was before holds back every withdrawal of a version until it is forgotten",
            "add `state: /var/lib/skewgate/state.json`",
        )
    return replace(written, etcd=replace(etcd, tls=_read_tls(etcd, endpoints, child(place, "tls"), findings)))


def _check_endpoints(endpoints: Sequence[EtcdEndpoint], node: Node | None, findings: Findings) -> None:
    if findings.is_dropped("agreement", "etcd", "endpoints") or (node is not None and node.broken):
        return
    for index, endpoint in enumerate(endpoints):
        if endpoint in endpoints[:index]:
            at = child(node, index)
            findings.bad_value(at, "this endpoint is in the list twice", "name each member once")
    if len({endpoint.tls for endpoint in endpoints}) > 1:
        findings.contradiction(
            child(node, next(at for at, each in enumerate(endpoints) if not each.tls)),
            "some endpoints are https, and this one is not",
            "write https:// for all of them",
        )
    if len(endpoints) == 1:
        message = "while this one member is away, no offer can change"
        findings.warn(node, "one-endpoint", message, "name all members: three survive the loss of one")


def _check_user(
    etcd: EtcdSettings, endpoints: Sequence[EtcdEndpoint], node: Node | None, findings: Findings
) -> None:
    if not any(findings.is_dropped("agreement", "etcd", each) for each in ("user", "password")):
        findings.require_both(node, "user", "password")
    if etcd.password is not None and any(not each.tls and not is_loopback(each.host) for each in endpoints):
        message = "without TLS anyone on the way to etcd can read this password"
        hint = "write https:// for the endpoints"
        findings.warn(child(node, "password"), "password-exposed", message, hint)


def _check_durations(written: AgreementSettings, node: Node | None, findings: Findings) -> None:
    forget = written.forget
    if forget is None or findings.is_any_dropped("ttl") or findings.is_any_dropped("forget"):
        return
    place = child(node, "forget") or child(node, "ttl")
    if forget < FEWEST_TTLS * written.ttl:
        findings.contradiction(
            place,
            f"agreement.forget is less than {FEWEST_TTLS} times agreement.ttl: a few lost beats would be the "
            "end of a replica",
            "raise forget: 24h is its default",
        )
    elif forget < SHORT_FORGET:
        message = "when etcd is away for so long, every replica stops answering"
        findings.warn(place, "short-forget", message, "raise it: 24h is its default")


def _read_tls(
    etcd: EtcdSettings, endpoints: Sequence[EtcdEndpoint], node: Node | None, findings: Findings
) -> BackendTls | None:
    if not any(endpoint.tls for endpoint in endpoints):
        if etcd.tls is not None:
            hint = "write https://HOST:PORT for the endpoints, or remove this key"
            findings.contradiction(node, "no endpoint is https", hint)
        return None
    tls = etcd.tls or BackendTls("")
    findings.require_both(node, "certificate", "key")
    read_digest(tls, node, findings)
    return tls
