"""TLS to backends: one context of OpenSSL for all backends that are configured alike.

    BackendTls -> read_contexts (at start and at each reload) -> ClientContexts -> connections

The certificate of the backend is verified unless that is switched off. `reason_of` explains a failed
handshake in a sentence, for `status` and the log. `settings` checks files with the functions that read them
here. This module makes no connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from gateway.core.fleet.backend import BackendTls, ContextKey
from gateway.errors import CertificateError
from gateway.tls.server import apply_profile, load_pair
from gateway.tls.values import CertificateFiles

if TYPE_CHECKING:
    import asyncio

    from gateway.core.fleet.service import Service
    from gateway.tls.certificate import Certificate

SESSION_TIME: Final = 3600.0
"""Seconds for which a backend's TLS session is resumed, and its certificate is not verified again."""
MAX_SESSIONS: Final = 4096
SHUTDOWN_TIME: Final = 2.0
"""Seconds in which a backend may answer the end of a TLS connection (close_notify) with its own."""

REFUSED_BY_PEER: Final = frozenset(
    {
        *("SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        *("SSLV3_ALERT_CERTIFICATE_REVOKED", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"),
        *("SSLV3_ALERT_HANDSHAKE_FAILURE", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"),
        *("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_ACCESS_DENIED"),
        *("TLSV1_ALERT_DECRYPT_ERROR", "TLSV1_ALERT_UNKNOWN_CA"),
    }
)
"""Alerts by which a backend refuses the gateway's certificate. In TLS 1.3 they come after the handshake
seems complete: the backend has executed nothing then."""

_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection during the TLS handshake",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate of the gateway",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it refuses TLS 1.2 and 1.3",
    "UNSUPPORTED_PROTOCOL": "it speaks neither TLS 1.2 nor 1.3",
    "TLSV1_UNRECOGNIZED_NAME": "it has no certificate for this server name",
    "DH_KEY_TOO_SMALL": "its key exchange is too weak",
}
"""Explanations of handshake errors, by OpenSSL's reason. Other reasons are shown as they are."""


@final
class ClientContext(ssl.SSLContext):
    """A TLS context that resumes the last session with a server name. asyncio has no other way to do so.
    Contexts for probes do not resume, because probes check every certificate."""

    sessions: dict[str, tuple[float, ssl.SSLSession]] | None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the standard library's signature
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        if session is None and self.sessions is not None and isinstance(server_hostname, str):
            began, known = self.sessions.get(server_hostname, (0.0, None))
            session = known if monotonic() < began + SESSION_TIME else None
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep_session(self, connection: ssl.SSLObject) -> None:
        """Keep the TLS session of a connection that has ended: in TLS 1.3 it comes after the handshake."""
        sessions, session, name = self.sessions, connection.session, connection.server_hostname
        if sessions is None or session is None or name is None or not session.has_ticket:
            return
        began = sessions[name][0] if connection.session_reused and name in sessions else monotonic()
        if len(sessions) >= MAX_SESSIONS:
            sessions.clear()
        sessions[name] = (began, session)


@final
class ContextPair(NamedTuple):
    """The TLS contexts for backends that are configured alike: one for requests, one for probes."""

    requests: ClientContext
    probes: ClientContext
    certificate: Certificate | None = None
    """The gateway's own certificate that the contexts show to backends; None: they show none."""


Contexts: TypeAlias = Mapping[ContextKey, ContextPair]


def backends_tls(services: Iterable[Service]) -> tuple[BackendTls, ...]:
    """The TLS settings of all backends, those included that are yet to be discovered."""
    found: list[BackendTls | None] = []
    for service in services:
        found += [backend.tls for backend in service.backends]
        found += [source.tls for source in service.sources]
    return tuple(tls for tls in found if tls is not None)


def read_contexts(configured: Iterable[BackendTls]) -> Contexts:
    """TLS contexts for all of these backends. Blocks. Raises `CertificateError` if a file has changed."""
    contexts: dict[ContextKey, ContextPair] = {}
    for tls in configured:
        if tls.context_key not in contexts:
            contexts[tls.context_key] = _make_contexts(tls)
    return contexts


def client_context(tls: BackendTls) -> ClientContext:
    """A new TLS context for a backend. Reads files, so it blocks. Raises `CertificateError`."""
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sessions = None
    apply_profile(context)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        from gateway.tls.certificate import read_trusted  # noqa: PLC0415 - loads `cryptography`

        # What the operator names is trusted as it is: an intermediate CA needs no root beside it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=read_trusted(tls.ca, "ca").decode("ascii"))
    if (own := _own_files(tls)) is not None:
        load_pair(context, own)
    return context


def read_digest(tls: BackendTls) -> str:
    """The digest of the certificate files that `tls` names. Blocks. Raises `CertificateError`."""
    from gateway.tls.certificate import read_pair, read_trusted, read_whole  # noqa: PLC0415 - as above

    digest = sha256()
    if tls.ca is not None:
        digest.update(read_trusted(tls.ca, "ca"))
    if (own := _own_files(tls)) is not None:
        read_pair(own)
        digest.update(read_whole(own.certificate, "certificate") + read_whole(own.key, "key"))
    client_context(tls)
    return digest.hexdigest()[:32]


def _own_files(tls: BackendTls) -> CertificateFiles | None:
    """The files of the certificate that the gateway shows to a backend; None: it shows none."""
    if tls.certificate is None or tls.key is None:
        return None
    return CertificateFiles(tls.certificate, tls.key)


def _make_contexts(tls: BackendTls) -> ContextPair:
    from gateway.tls.certificate import read_pair  # noqa: PLC0415 - as above

    requests, probes = client_context(tls), client_context(tls)
    requests.sessions = {}
    own = _own_files(tls)
    return ContextPair(requests, probes, None if own is None else read_pair(own))


@final
class ClientContexts:
    """Holder of the TLS contexts for backends that are in force."""

    def __init__(self) -> None:
        self._contexts: dict[ContextKey, ContextPair] = {}
        self._before: Contexts = {}
        """The TLS contexts of the configuration before, whose last requests may still connect."""

    def put_in_force(self, contexts: Contexts) -> None:
        """Use these TLS contexts for new connections from now on. Open connections stay."""
        self._before, self._contexts = self._contexts, dict(contexts)

    def expiry(self) -> Mapping[str, float]:
        """Expiry times of the gateway's certificates for backends: seconds since the epoch, by path."""
        shown = (pair.certificate for pair in self._contexts.values())
        return {each.path: each.not_after for each in shown if each is not None}

    def of(self, tls: BackendTls) -> ContextPair:
        """The TLS contexts for a backend, made now if they were not before. Raises `OSError`."""
        found = self._contexts.get(tls.context_key) or self._before.get(tls.context_key)
        if found is None:
            try:
                found = self._contexts[tls.context_key] = _make_contexts(tls)
            except CertificateError as error:
                raise OSError(f"{error.part}: {error}") from error
        return found


def keep_session(transport: asyncio.BaseTransport) -> None:
    """Keep the TLS session of a connection that has ended, to resume it. Does nothing without a handshake."""
    connection = transport.get_extra_info("ssl_object")
    if isinstance(connection, ssl.SSLObject) and isinstance(connection.context, ClientContext):
        connection.context.keep_session(connection)


def has_ended(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side of a TLS connection has ended its data with close_notify. Without it, an
    attacker may have cut them off. All data before it must have been read."""
    connection = transport.get_extra_info("ssl_object")
    try:
        return isinstance(connection, ssl.SSLObject) and connection.read(1) == b""
    except (ssl.SSLError, ValueError):
        return False


def refused_by_peer(error: BaseException | None) -> bool:
    """Whether an error means that a backend has refused the gateway's certificate, or that it shows none."""
    return isinstance(error, ssl.SSLError) and error.reason in REFUSED_BY_PEER


def reason_of(error: OSError) -> str:
    """The reason why a connection failed, as part of a sentence, without numbers and addresses."""
    if not isinstance(error, ssl.SSLError):
        text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        return text.lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message.rstrip(".")
        begin = text[:1].lower() if text[1:2].islower() else text[:1]
        return f"its certificate is not valid: {begin}{text[1:]}"
    known = _REASONS.get(error.reason or "")
    if known is not None:
        return known
    words = (error.reason or error.strerror or "unknown reason").replace("_", " ").lower()
    return f"the TLS handshake failed: {words}"
