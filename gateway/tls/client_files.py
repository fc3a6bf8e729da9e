"""The files of TLS to backends: read, checked, and made into a context of OpenSSL.

It knows no configuration file. `settings` checks files with it, so what was checked is what runs. Everything
here blocks.
"""

from __future__ import annotations

import ssl
from hashlib import sha256
from typing import Final

from gateway.core.fleet.backend_tls import BackendTls
from gateway.tls.certificate import CERTIFICATE, KEY, Certificate, read_pair, read_trusted, read_whole
from gateway.tls.client import ClientContext
from gateway.tls.server import ALPN, CIPHERS, load_pair
from gateway.tls.values import CertificateFiles

CA: Final = "ca"


def client_context(tls: BackendTls) -> ClientContext:
    """A context for a backend. Reads files, so it blocks. Raises `CertificateError`."""
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sessions = None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(ALPN)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        # What the operator names is trusted as it is: an intermediate CA needs no root beside it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=read_trusted(tls.ca, CA).decode("ascii"))
    if tls.certificate is not None and tls.key is not None:
        load_pair(context, CertificateFiles(tls.certificate, tls.key))
    return context


def own_certificate(tls: BackendTls) -> Certificate | None:
    """The certificate that the gateway shows; None: it shows none. Raises `CertificateError`."""
    if tls.certificate is None or tls.key is None:
        return None
    return read_pair(CertificateFiles(tls.certificate, tls.key))


def read_digest(tls: BackendTls) -> str:
    """The digest of the files that `tls` names. Raises `CertificateError` for the first that is wrong."""
    digest = sha256()
    if tls.ca is not None:
        digest.update(read_trusted(tls.ca, CA))
    if tls.certificate is not None and tls.key is not None:
        read_pair(CertificateFiles(tls.certificate, tls.key))
        digest.update(read_whole(tls.certificate, CERTIFICATE) + read_whole(tls.key, KEY))
    client_context(tls)
    return digest.hexdigest()[:32]
