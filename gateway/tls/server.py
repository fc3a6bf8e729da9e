"""TLS of a listener: its certificates, one of which each client is shown, and the profile of its contexts.

    ServerTls -> read_pair (each) -> one context for each set of names -> the context in front -> connections

Mozilla's intermediate profile: TLS 1.2 and 1.3, forward secrecy and authenticated encryption only, the
client's preference. A wrong pair raises an error and changes nothing. Reading blocks, so a running gateway
does it in a thread.
"""

from __future__ import annotations

import os
import ssl
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

from gateway.errors import CertificateError
from gateway.tls.values import CertificateFiles, ClientCertificate, ServerTls

if TYPE_CHECKING:
    from gateway.tls.certificate import Certificate

CIPHERS: Final = ":".join(
    f"ECDHE-{key}-{cipher}"
    for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    for key in ("ECDSA", "RSA")
)
"""Allowed ciphers of TLS 1.2, by OpenSSL's names. For TLS 1.3 its default is what Mozilla lists."""
ALPN: Final = ("http/1.1",)

MAX_CHAIN_ENDS: Final = 4096
"""Maximum of remembered clients whose chain expires before their own certificate, which is rare."""
_DER: Final = 2
"""OpenSSL's number of the encoding DER (`_ssl.ENCODING_DER`)."""

_Stamp: TypeAlias = tuple[int, ...]


def apply_profile(context: ssl.SSLContext) -> None:
    """Set Mozilla's intermediate profile in a TLS context, of a listener or for backends."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(ALPN)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def server_context(client_ca: bytes | None = None, *, client_required: bool = True) -> ssl.SSLContext:
    """A listener's TLS context without a certificate. `client_ca`: PEM; clients are asked for theirs then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    apply_profile(context)
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
        _verify_clients(context, client_required=client_required)
    return context


def _verify_clients(context: ssl.SSLContext, *, client_required: bool) -> None:
    """Make a listener's TLS context ask clients for a certificate."""
    # The operator has named these CAs: an intermediate one is enough, and needs no root beside it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL


def load_pair(context: ssl.SSLContext, files: CertificateFiles) -> None:
    """Load a certificate and its key into a TLS context. Raises `CertificateError`, also for weak keys."""
    try:
        # No password in place of a question on the terminal, for which the gateway would wait.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unknown reason"
        words = str(reason).replace("_", " ").lower()
        raise CertificateError("certificate", f"OpenSSL does not take this pair: {words}") from error


def check_pair(files: CertificateFiles) -> Certificate:
    """Read a certificate with its key and check that listeners can use them. Raises `CertificateError`."""
    from gateway.tls.certificate import read_pair  # noqa: PLC0415 - loads `cryptography`

    try:
        certificate = read_pair(files)
        load_pair(server_context(), files)
    except CertificateError as error:
        error.path = files.key if error.part == "key" else files.certificate
        raise
    return certificate


class _Contexts:
    """A listener's certificates as they were read at one time, and a TLS context for each server name."""

    __slots__ = ("by_name", "certificates", "client_ca", "default", "default_indices")

    def __init__(self, settings: ServerTls) -> None:
        from gateway.tls.certificate import read_authorities  # noqa: PLC0415 - loads `cryptography`

        self.certificates = tuple(map(check_pair, settings.certificates))
        self.client_ca = None if settings.client_ca is None else read_authorities(settings.client_ca)
        made: dict[tuple[int, ...], ssl.SSLContext] = {}

        def context_of(indices: tuple[int, ...]) -> ssl.SSLContext:
            if indices not in made:
                context = server_context(self.client_ca, client_required=settings.client_required)
                for index in indices:
                    load_pair(context, settings.certificates[index])
                made[indices] = context
            return made[indices]

        shown = _shown(self.certificates)
        self.by_name: Mapping[str, ssl.SSLContext] = {
            name: context_of(indices) for name, indices in shown.items()
        }
        first = self.certificates[0].names
        self.default_indices = shown[first[0]] if first else (0,)
        self.default = context_of(self.default_indices)

    def find(self, server_name: str | None) -> ssl.SSLContext:
        """The TLS context for the server name that a client has sent (SNI)."""
        if not server_name:
            return self.default
        name = server_name.lower()
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name.get("*." + name.partition(".")[2])
        return found or self.default


def _shown(certificates: Iterable[Certificate]) -> dict[str, tuple[int, ...]]:
    """Indexes of certificates by server name, the first of each kind of key. Clients say what they take."""
    kinds: dict[str, dict[str, int]] = {}
    for index, certificate in enumerate(certificates):
        for name in certificate.names:
            kinds.setdefault(name, {}).setdefault(certificate.key_type, index)
    return {name: tuple(indices.values()) for name, indices in kinds.items()}


@final
class ServerCertificates:
    """The certificates of a listener. `resumption`: whether sessions resume. Raises `CertificateError`."""

    def __init__(self, settings: ServerTls, *, resumption: bool = True) -> None:
        self.settings = settings
        self._stamps = _stamps(settings)
        self._contexts = _Contexts(settings)
        self._resumption = resumption
        self._front = self._new_front()
        self._ends_by_chain: dict[str, float] = {}
        """Expiry times of the chains of client certificates, by fingerprint, where that is sooner than the
        certificate itself. Learned in full handshakes, because a session does not hold the chain."""

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection. It shows the certificates that were read last."""
        return self._front if self._resumption else self._front_for_one()

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The listener's certificates in force: those that were read last."""
        return self._contexts.certificates

    def changed(self) -> bool:
        """Whether a certificate file was changed since it was last read. Blocks, as file systems may."""
        return _stamps(self.settings) != self._stamps

    def reload(self, settings: ServerTls | None = None) -> None:
        """Read every certificate file again. Blocks. Raises `CertificateError`: then those in force stay, and
        `changed` is False until a file changes again."""
        settings = settings or self.settings
        stamps = _stamps(settings)
        if settings.paths == self.settings.paths:
            self._stamps = stamps
        contexts = _Contexts(settings)
        before, self._contexts = self._contexts, contexts
        same_clients = (
            contexts.client_ca == before.client_ca
            and settings.client_required == self.settings.client_required
        )
        self.settings, self._stamps = settings, stamps
        if not same_clients:  # sessions of clients that another CA has vouched for are not resumed
            self._front, self._ends_by_chain = self._new_front(), {}

    def client_certificate(self, connection: ssl.SSLObject) -> ClientCertificate | None:
        """The certificate that a client has shown in this handshake, or in the one whose session it resumes,
        when OpenSSL has verified it. None: it has shown none."""
        if self.settings.client_ca is None:
            return None
        der = connection.getpeercert(binary_form=True)
        if der is None:
            return None
        from gateway.tls.certificate import describe  # noqa: PLC0415 - loads `cryptography`

        subject, fingerprint, not_after, names = describe(der)
        if not connection.session_reused:
            self._learn_end(fingerprint, not_after, connection)
        not_after = min(not_after, self._ends_by_chain.get(fingerprint, not_after))
        line = b"Client-Cert: :%b:\r\n" % b64encode(der) if self.settings.forward_client_cert else b""
        return ClientCertificate(subject, fingerprint, line, not_after, names)

    def _learn_end(self, fingerprint: str, not_after: float, connection: ssl.SSLObject) -> None:
        """Remember when a client's chain of certificates expires, of `MAX_CHAIN_ENDS` clients at most."""
        from gateway.tls.certificate import describe  # noqa: PLC0415 - loads `cryptography`

        ends = self._ends_by_chain
        ends.pop(fingerprint, None)
        end = min((describe(der)[2] for der in _verified_chain(connection)), default=not_after)
        if end < not_after:
            if len(ends) >= MAX_CHAIN_ENDS:
                del ends[next(iter(ends))]
            ends[fingerprint] = end

    def _front_for_one(self) -> ssl.SSLContext:
        """A TLS context with which one handshake begins. OpenSSL keeps sessions and keys of tickets there, so
        none can be resumed. It loads no files, because the context that is shown has them."""
        front = server_context()
        front.options |= ssl.OP_NO_TICKET
        front.num_tickets = 0
        if self._contexts.client_ca is not None:
            _verify_clients(front, client_required=self.settings.client_required)

        def choose(connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._contexts.find(server_name)

        front.sni_callback = choose
        return front

    def _new_front(self) -> ssl.SSLContext:
        """The TLS context with which handshakes begin. It keeps the keys of session tickets, so that clients
        can resume sessions after the certificates have changed."""
        settings = self.settings
        shown = self._contexts.default
        front = server_context(self._contexts.client_ca, client_required=settings.client_required)
        for index in self._contexts.default_indices:
            load_pair(front, settings.certificates[index])

        def choose(connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
            found = self._contexts.find(server_name)
            if found is not shown:  # exchanging contexts takes OpenSSL some 20 µs
                connection.context = found

        front.sni_callback = choose
        return front


def _verified_chain(connection: ssl.SSLObject) -> Sequence[bytes]:
    """The certificates, in DER, by which OpenSSL has verified that of a client: its own and those above."""
    if sys.version_info >= (3, 13):
        return connection.get_verified_chain()
    found = cast(Any, connection)._sslobj.get_verified_chain()  # noqa: SLF001 - public since Python 3.13
    return [each.public_bytes(_DER) for each in found or ()]


def _stamps(settings: ServerTls) -> tuple[_Stamp, ...]:
    """Stamps of a listener's certificate files. `stat` follows links, because renewal may replace a link."""
    return tuple(map(file_stamp, settings.paths))


def file_stamp(path: str) -> _Stamp:
    """A stamp of a file that changes when it is written or replaced; empty if it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a text that may be no valid path
    except (OSError, ValueError):
        return ()
    return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev)
