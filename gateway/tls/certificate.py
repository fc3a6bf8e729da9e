"""Files of certificates and keys: reads them, and explains each error in a sentence.

OpenSSL explains few errors, so `cryptography` reads the files. It takes 20 MiB and 60 ms, so this module is
imported when the first file is read. It makes no connection, and keeps no key.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from gateway.errors import CertificateError
from gateway.keys.subjects import subject_text
from gateway.tls.values import CertificateFiles

MAX_FILE: Final = 1024 * 1024
"""Maximum bytes of a certificate, key or CA file. A bundle of all public CAs has a quarter of that."""
_CERTIFICATE_MARK: Final = b"-----BEGIN CERTIFICATE-----"
_KEY_MARK: Final = b"PRIVATE KEY-----"


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """Data of a certificate that was read from a file: its names, kind of key, expiry and subject."""

    path: str
    names: tuple[str, ...]
    """The certificate's DNS names in lower case (some with `*.` at the beginning) and IP addresses."""
    key_type: str
    """The kind of the certificate's key, `RSA`, `EC` and so on. Not every client accepts each."""
    not_after: float
    """Time at which the certificate expires: seconds since the epoch."""
    subject: str
    """The certificate's subject in the form of RFC 4514."""


def read_pair(files: CertificateFiles) -> Certificate:
    """Read a certificate and check it and its key. Raises `CertificateError`; `part` names the wrong file."""
    chain = read_certificates(files.certificate, "certificate")
    key = _read_key(files.key)
    leaf = chain[0]
    _check_times(chain, "certificate")
    if _public_bytes(leaf) != key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        hint = "the file of the certificate must begin with the certificate of this key, not with a CA's"
        raise CertificateError("key", "the key does not belong to the certificate", hint)
    _check_chain(chain)
    return Certificate(
        files.certificate,
        names_of(leaf),
        _key_type(leaf),
        leaf.not_valid_after_utc.timestamp(),
        leaf.subject.rfc4514_string(),
    )


def read_authorities(path: str, part: str = "client_ca") -> bytes:
    """The CA certificates in a file, as the PEM text for OpenSSL. Raises `CertificateError`."""
    found = read_certificates(path, part)
    for number, certificate in enumerate(found, start=1):
        if not _is_authority(certificate):
            hint = "name the CA that has issued the certificates, not one of them"
            raise CertificateError(part, f"certificate {number} of the file is not that of a CA", hint)
    _check_times(found, part)
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def read_trusted(path: str, part: str = "ca") -> bytes:
    """The certificates in a file that are trusted as they are, as the PEM text for OpenSSL: those of CAs, or
    of servers themselves. Raises `CertificateError`."""
    found = read_certificates(path, part)
    _check_times(found, part)
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names of a certificate: those of the extension, or else its common name."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return alternative_names(certificate) or tuple(str(each.value).lower() for each in common)


def alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """The subject's alternative names (RFC 5280 4.2.1.6), those of hosts in lower case; empty: none."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    of = found.get_values_for_type
    hosts = (*(name.lower() for name in of(x509.DNSName)), *map(str, of(x509.IPAddress)))
    return (*hosts, *of(x509.UniformResourceIdentifier), *of(x509.RFC822Name))


@lru_cache(maxsize=1024)
def describe(der: bytes) -> tuple[str, str, float, tuple[str, ...]]:
    """Subject (RFC 4514), SHA-256 fingerprint (hexadecimal), expiry (wall-clock seconds) and alternative
    names of a certificate."""
    certificate = x509.load_der_x509_certificate(der)
    try:
        subject = subject_text(certificate.subject)
    except ValueError:  # a name that is not valid; OpenSSL has verified the signature, not this
        subject = ""
    fingerprint, ends = certificate.fingerprint(SHA256()).hex(), certificate.not_valid_after_utc.timestamp()
    return subject, fingerprint, ends, alternative_names(certificate)


def read_certificates(path: str, part: str) -> Sequence[x509.Certificate]:
    """The certificates of a PEM file, at least one. Raises `CertificateError`."""
    data = read_whole(path, part)
    if _CERTIFICATE_MARK not in data:
        raise CertificateError(part, "the file has no certificate in PEM", _form_hint(data))
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateError(part, "the file has a certificate that is damaged") from error


def read_whole(path: str, part: str) -> bytes:
    """The content of a regular file of at most `MAX_FILE`. Raises `CertificateError`, also for a pipe."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise CertificateError(part, f"the file cannot be read: {reason}", _hint_for(path, error)) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise CertificateError(part, "this is not a file", "name a file in PEM")
    with os.fdopen(number, "rb") as file:
        try:
            data = file.read(MAX_FILE + 1)
        except OSError as error:
            raise CertificateError(part, f"the file cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE:
        raise CertificateError(part, f"the file is larger than {MAX_FILE // 1024} KiB", "name a file in PEM")
    return data


def _hint_for(path: str, error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "the user that runs the gateway must be able to read it"
    return "" if Path(path).is_absolute() else "a relative path begins in the folder of the configuration"


def _form_hint(data: bytes) -> str:
    if data[:1] == b"\x30":
        return "the file is DER: convert it with `openssl x509 -inform der`, or `openssl pkcs12`"
    if _KEY_MARK in data:
        return "the file is a private key: perhaps certificate and key are exchanged"
    return ""


def _read_key(path: str) -> PrivateKeyTypes:
    data = read_whole(path, "key")
    if _KEY_MARK not in data:
        hint = ""
        if _CERTIFICATE_MARK in data:
            hint = "the file is a certificate: perhaps certificate and key are exchanged"
        elif data[:1] == b"\x30":
            hint = "the file is DER: convert it with `openssl pkey -inform der`"
        raise CertificateError("key", "the file has no private key in PEM", hint)
    try:
        return load_pem_private_key(data, password=None)
    except TypeError as error:
        hint = "decrypt it with `openssl pkey`, and let nobody but the gateway read the file"
        raise CertificateError("key", "the key is encrypted", hint) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        message = "the private key is damaged, or of a kind that is not supported"
        raise CertificateError("key", message) from error


def _check_times(chain: Sequence[x509.Certificate], part: str) -> None:
    now = datetime.now(UTC)
    for number, certificate in enumerate(chain, start=1):
        which = "the certificate" if len(chain) == 1 else f"certificate {number} of the file"
        if now > certificate.not_valid_after_utc:
            hint = "renew it; the gateway reads files that have changed by itself"
            raise CertificateError(part, f"{which} expired on {_day(certificate.not_valid_after_utc)}", hint)
        if now < certificate.not_valid_before_utc:
            message = f"{which} is not valid before {_day(certificate.not_valid_before_utc)}"
            raise CertificateError(part, message, "is the clock of this machine right?")


def _day(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")


def _check_chain(chain: Sequence[x509.Certificate]) -> None:
    """Raise `CertificateError` unless each certificate is issued by the next one: clients need that order."""
    for number, (one, issuer) in enumerate(pairwise(chain), start=1):
        try:
            one.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise CertificateError(
                "certificate",
                f"wrong chain: certificate {number} of the file is not issued by certificate {number + 1}",
                "the server's own certificate first, then the one that has issued it, and so on",
            ) from error


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return certificate.subject == certificate.issuer  # as of X.509 version 1


def _public_bytes(certificate: x509.Certificate) -> bytes:
    try:
        key = certificate.public_key()
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm) as error:
        message = "the certificate has a kind of key that is not supported"
        raise CertificateError("certificate", message) from error


def _key_type(certificate: x509.Certificate) -> str:
    return type(certificate.public_key()).__name__.removeprefix("_").removesuffix("PublicKey")
