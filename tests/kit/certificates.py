"""Certificates for tests: a CA of one's own, and what it issues, good and wrong. Keys are ECDSA unless a test
asks for RSA, which takes longer to make. `authority` is made once for all tests."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

DAY = timedelta(days=1)


def new_key(kind: str = "EC") -> PrivateKey:
    """`EC` (P-256) or `RSA` (2048 bits)."""
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class Leaf:
    """A certificate, the ones above it, and its key. `write` makes the files."""

    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: PrivateKey

    @property
    def pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.chain))

    def key_pem(self, password: bytes | None = None) -> bytes:
        form: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, form)

    def write(self, folder: Path, name: str = "tls", *, password: bytes | None = None) -> tuple[Path, Path]:
        """The paths of certificate (with chain) and key."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.pem)
        key.write_bytes(self.key_pem(password))
        return certificate, key


class Authority:
    """A CA. `above`: the one that has issued it; without one it is a root. It is valid for so many `days`."""

    def __init__(self, name: str = "Test CA", above: Authority | None = None, *, days: float = 365) -> None:
        self.key = new_key()
        self.above = above
        self.name = _common_name(name)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        self.certificate = (above or self)._signed(self.name, self.key, (-1, days), identifier, ca=True)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, folder: Path, name: str = "ca") -> Path:
        path = folder / f"{name}.crt"
        path.write_bytes(self.pem)
        return path

    def server(
        self,
        *names: str,
        key: PrivateKey | None = None,
        days: float = 90,
        starts: float = -1,
        subject: str = "",
    ) -> Leaf:
        """A server's certificate for DNS names and IP addresses (default: localhost and loopback), valid from
        `starts` to `days` days from now. A negative `days` makes one that has expired."""
        return self._leaf(
            names or ("localhost", "127.0.0.1", "::1"),
            subject or (names[0] if names else "localhost"),
            key or new_key(),
            (starts if days > starts else days - 1, days),
            ExtendedKeyUsageOID.SERVER_AUTH,
        )

    def member(self, *names: str) -> Leaf:
        """The certificate of a server that also connects with it, as members of etcd do."""
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._leaf(names, names[0], new_key(), (-1.0, 90.0), *usages)

    def client(
        self, subject: str = "a client", *names: str, days: float = 90, key: PrivateKey | None = None
    ) -> Leaf:
        """A client's certificate. `names`: its alternative names."""
        starts = -1.0 if days > -1 else days - 1
        return self._leaf(names, subject, key or new_key(), (starts, days), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _leaf(
        self,
        names: tuple[str, ...],
        subject: str,
        key: PrivateKey,
        days: tuple[float, float],
        *purposes: x509.ObjectIdentifier,
    ) -> Leaf:
        extensions: list[x509.ExtensionType] = [
            x509.ExtendedKeyUsage(purposes),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
        ]
        if names:
            extensions.append(x509.SubjectAlternativeName(list(map(_general_name, names))))
        chain = (self.certificate,) if self.above is not None else ()
        return Leaf(self._signed(_common_name(subject), key, days, *extensions), chain, key)

    def _signed(
        self,
        name: x509.Name,
        key: PrivateKey,
        days: tuple[float, float],
        *extensions: x509.ExtensionType,
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now + days[0] * DAY)
            .not_valid_after(now + days[1] * DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(_usage(ca=ca), critical=True)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, SHA256())


def client_context(
    authority: Authority | None, certificate: tuple[Path, Path] | None = None
) -> ssl.SSLContext:
    """The context of a client that trusts `authority` (None: everybody), with its own certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority.pem.decode())
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        if "@" in text:
            return x509.RFC822Name(text)
        return x509.UniformResourceIdentifier(text) if ":" in text else x509.DNSName(text)


@cache
def authority() -> Authority:
    """The CA of all tests that need no other: making a key takes time."""
    return Authority()
