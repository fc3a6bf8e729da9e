"""Names of clients: the rules of `clients`, and the product of a `User-Agent`.

A name says who has sent a request. It decides only where a service has an own pace or a bridge for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from gateway.core.fleet.admission import Access, IpAddress, Network
from gateway.core.http.message import (
    FORWARDING,
    HOP_BY_HOP,
    UNLISTABLE,
    Header,
    fields_named,
    normalize_name,
)
from gateway.core.usage.record import NO_PRODUCT, OTHER
from gateway.keys.addresses import NETWORK
from gateway.keys.kinds import TEXT, Either, ListOf, Table, Text, matching, reject, section
from gateway.keys.subjects import SUBJECT
from gateway.keys.texts import HEADER_NAME_PATTERN, HEADER_TOKEN, NAME, written_as

PossibleNames: TypeAlias = list[tuple[str, tuple[tuple[str, str], ...]]]
"""Type of the names that a client may have, each with the headers that it then sends."""

_SECRET: Final = re.compile("(proxy-|x-ops-)?authorization(-.*)?|cookie|x-(auth|service|subject)-token")
_UNSEEN: Final = HOP_BY_HOP | UNLISTABLE | FORWARDING | {"proxy", "expect", "max-forwards", "x-request-id"}
"""Headers (normalized names) that the gateway itself reads or drops."""
_PRODUCT: Final = re.compile(rb"[ \t]*([^ \t\r\n/]{1,64})")
_NOT_VISIBLE: Final = re.compile(rb"[^!-~]")


def product_of(user_agent: bytes) -> str:
    """The product of a `User-Agent`: its first word without the version, at most 64 bytes, escaped."""
    found = _PRODUCT.match(user_agent)
    if found is None:
        return NO_PRODUCT
    product = _NOT_VISIBLE.sub(_escaped, found[1]).decode()
    return product if product not in (OTHER, NO_PRODUCT) else f"{product}/"  # not to be taken for these


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % found[0][0]


def read_san(text: str) -> str:
    """Read an alternative name of a subject. Only those of hosts are equal in any case."""
    return text if set(text) & set("/:@") else text.lower()


def read_header(text: str) -> str:
    """Read the name of a header that may name a client. Raises `TextRefused`."""
    name = normalize_name(HEADER_TOKEN.read(text))
    if _SECRET.fullmatch(name):
        reject("this header holds a secret, which is no name", "use another header, or `certificate`")
    if name in _UNSEEN:
        reject("the gateway itself reads or drops this header", "use `networks`, or another header")
    return text


_PRODUCT_NAME: Final = written_as(
    r"[!#$%&'+.^_`|~0-9A-Za-z-]{1,64}",
    "not the product of a User-Agent",
    'write its first word without a version; for a prefix, `header: {User-Agent: "python-*"}`',
)
_HEADER: Final = Text(read_header, matching(HEADER_NAME_PATTERN))
_VALUE: Final = written_as(
    r"[!-)+-~](?:[ -~]*[!-)+-~])?\*?",
    "a value must be visible ASCII, or begin with some before its `*`",
    "write the whole value, or its beginning and `*`",
)


@final
@dataclass(frozen=True, slots=True)
class CertificateNames:
    """Names in the client's certificate, as `tls.client_ca` of the listener has verified it."""

    subject: str | None = SUBJECT.key(
        None,
        "The subject as in RFC 4514, in any equal spelling.",
        reason="Certificates may be known by another name.",
        example="CN=nova,O=Example",
    )
    san: str | None = Text(read_san, TEXT).key(
        None,
        "One of the subject's alternative names: a host, an address, a URI or a mail address.",
        reason="Certificates may be known by their subject.",
        example="spiffe://example.org/nova",
    )


_CERTIFICATE: Final = section(  # a compiled class has no docstring
    CertificateNames,
    "Names in the client's certificate, as `tls.client_ca` of the listener has verified it.",
    title="ClientCertificate",
)


@final
@dataclass(frozen=True, slots=True)
class Client:
    """A rule that names clients. All of its conditions must hold; it needs at least one."""

    name: str = field(
        metadata=NAME.required(
            "The name of the client. Several entries may give the same one.",
            reason="Usage and the access log show it.",
            example="nova-cron",
        )
    )
    user_agent: str | tuple[str, ...] | None = Either(_PRODUCT_NAME, ListOf(_PRODUCT_NAME, least=1)).key(
        None,
        "The product of the User-Agent, which is its first word without a version, in any case; `none`: "
        "there is no User-Agent. Of a list, one must match.",
        reason="Without this key, any User-Agent or none.",
        example="python-ironicclient",
    )
    header: Mapping[str, str] = Table(_HEADER, _VALUE).key(
        {},
        "Headers in any spelling (`X_Team` with `X-Team`), each with its value, or the beginning of it and "
        "`*`. A header that is dropped as untrusted never matches. Any other may be forged.",
        reason="Without this key, any headers.",
        example={"X-Team": "billing-*"},
    )
    networks: tuple[Network, ...] | None = ListOf(NETWORK, least=1).key(
        None,
        "Networks with the client's address. Behind `trusted_proxies` the forwarded address counts.",
        reason="Without this key, any address.",
        example=["10.9.0.0/16"],
    )
    certificate: CertificateNames | None = _CERTIFICATE.key(
        None,
        reason="Without this key, any certificate or none.",
        example={"san": "nova.example.org"},
    )

    @property
    def products(self) -> frozenset[str]:
        """Products of which the client must have one, in lower case; empty: it may have any."""
        names = (self.user_agent,) if isinstance(self.user_agent, str) else self.user_agent or ()
        return frozenset(name.lower() for name in names)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers that the request must have: normalized name, and value or its beginning with `*`."""
        return tuple((normalize_name(name), value) for name, value in self.header.items())

    @property
    def identities(self) -> frozenset[object]:
        """Names that the client's certificate must have."""
        it = self.certificate or CertificateNames()
        return frozenset(filter(None, (it.san, it.subject and ("subject", it.subject))))

    def covers(self, other: Client) -> bool:
        """Whether this rule matches every request that `other` matches."""
        return (
            (not self.products or (bool(other.products) and other.products <= self.products))
            and _has_all(other.headers, self.headers)
            and (not self.networks or _are_within(other.networks or (), self.networks))
            and self.identities <= other.identities
        )


@final
class Clients:
    """The rules of `clients`. The first one whose conditions all hold names the client."""

    __slots__ = ("_pattern", "_prepared", "has_networks", "headers", "rules")

    def __init__(self, rules: Iterable[Client] = ()) -> None:
        self.rules = tuple(rules)
        self.has_networks = any(rule.networks for rule in self.rules)
        self.headers = frozenset(name for rule in self.rules for name, _ in rule.headers)
        """Headers (normalized names) that some rule needs."""
        self._pattern = fields_named(self.headers) if self.headers else None
        self._prepared = [
            (
                rule.name,
                rule.products,
                rule.headers,
                Access(rule.networks, ()) if rule.networks else None,
                rule.identities,
            )
            for rule in self.rules
        ]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the rules: the other process prepares them anew."""
        return Clients, (self.rules,)

    def possible(
        self,
        user_agent: bytes,
        address: IpAddress | None = None,
        subject: str = "",
        alternative_names: Iterable[str] = (),
    ) -> PossibleNames:
        """Names that a client may have by all but its headers, each with the headers that it needs, in order
        up to the first that needs none. `subject` and `alternative_names`: those of its certificate."""
        product = product_of(user_agent).lower()
        shown = {("subject", subject), *alternative_names}
        found: PossibleNames = []
        for name, products, headers, access, identities in self._prepared:
            if (
                (not products or product in products)
                and (access is None or access.allows(address))
                and (not identities or identities <= shown)
            ):
                found.append((name, headers))
                if not headers:
                    break
        return found

    def name_of(self, possible: PossibleNames, fields: bytes) -> str:
        """Name of the client that has sent a request; empty: it has none of those `possible`. `fields`: its
        field lines, each with the CRLF before it."""
        found: list[tuple[str, str]] = []
        if self._pattern is not None:
            for name, value in self._pattern.findall(fields):
                found.append((normalize_name(name.decode()), value.rstrip(b" \t").decode("latin-1")))
        for client, headers in possible:
            if _has_all(found, headers):
                return client
        return ""


CLIENT: Final = section(
    Client, "A rule that names clients. All of its conditions must hold; it needs at least one."
)
NO_CLIENTS: Final = Clients()


@final
@dataclass(frozen=True, slots=True)
class Naming:
    """Rules of `clients` that decide whether a request has a name with an own pace or a bridge, in order."""

    rules: tuple[Client, ...] = ()

    def vary(self, listed: Iterable[str]) -> tuple[str, ...]:
        """Request headers that decide about a name, without those `listed` for other reasons."""
        names = [name for rule in self.rules for name in rule.header]
        if any(rule.products for rule in self.rules):
            names.append("User-Agent")
        known = {normalize_name(name) for name in listed}
        found = {normalize_name(name): name for name in names}
        return tuple(name for normalized, name in found.items() if normalized not in known)

    @property
    def private(self) -> tuple[Header, ...]:
        """The header of every response if an address or a certificate decides: no shared cache sees those."""
        shown = any(rule.networks or rule.identities for rule in self.rules)
        return (("Cache-Control", "private"),) if shown else ()


NO_NAMES: Final = Naming()


def _has_all(found: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]) -> bool:
    """Whether each of the wanted headers is among these: `*` at the end of a value is for any rest."""
    for name, value in wanted:
        beginning = value[:-1] if value[-1] == "*" else None
        for other, text in found:
            if other == name and (text == value or (beginning is not None and text.startswith(beginning))):
                break
        else:
            return False
    return True


def _are_within(inner: Sequence[Network], outer: Sequence[Network]) -> bool:
    return bool(inner) and all(
        any(one.prefixlen >= net.prefixlen and one.network_address in net for net in outer) for one in inner
    )
