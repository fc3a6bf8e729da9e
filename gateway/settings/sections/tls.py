"""`tls` of a listener and of a backend: verification of backends, and the files of both.

Each file is read as the gateway will read it. A problem is shown at the key that names the file. Nothing is
kept of the files but a digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import final

from gateway.core.days import DAY
from gateway.core.fleet.backend import BackendTls
from gateway.errors import CertificateError
from gateway.keys.addresses import HOST
from gateway.keys.texts import FILE_PATH, one_of
from gateway.settings.files import reader_of
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child
from gateway.tls.values import WARN_BEFORE, CertificateFiles, ServerTls


@final
@dataclass(frozen=True, slots=True)
class WrittenTls:
    """TLS of the connections to a server: how it is verified, and the client certificate."""

    ca: str | None = FILE_PATH.key(
        None,
        "CA certificates (PEM) that verify the server's certificate, which may itself be one of them.",
        reason="Without it, the CAs that the system trusts.",
        example="/etc/skewgate/backends-ca.crt",
    )
    server_name: str | None = HOST.key(
        None,
        "The name that the certificate must have, which is also sent (SNI).",
        reason="Without it, the host of each URL.",
        example="ironic.example.org",
    )
    certificate: str | None = FILE_PATH.key(
        None,
        "The client certificate of the gateway, with its chain (PEM).",
        reason="Few servers ask for one.",
        example="/etc/skewgate/gateway.crt",
    )
    verify: str = one_of("on", "off").key(
        "on",
        "off: any certificate is accepted. A warning says so at each start.",
        reason="Without verification, anyone on the network path can impersonate the server.",
        example="off",
    )
    key: str | None = FILE_PATH.key(
        None,
        "The private key of `certificate`, not encrypted.",
        reason="Few servers ask for a certificate.",
        example="/etc/skewgate/gateway.key",
    )


def read_backend_tls(
    written: WrittenTls, server_name: str, node: Node | None, findings: Findings
) -> BackendTls:
    """The TLS settings for one backend, checked. `server_name` is the default; `node`: the key `tls`."""
    findings.require_both(node, "certificate", "key")
    if written.verify == "off":
        if (ca := child(node, "ca")) is not None:
            message = "with `verify: off` no certificate is verified, and ca means nothing"
            findings.contradiction(ca, message, "remove `verify: off`")
        message = "the certificate of this backend is not verified: anyone on the way can take its place"
        findings.warn(child(node, "verify"), "not-verified", message, "name its CA: `ca: FILE`")
    tls = BackendTls(
        written.server_name or server_name,
        written.ca,
        written.certificate,
        written.key,
        verify=written.verify == "on",
    )
    for path in (tls.ca, tls.certificate, tls.key):
        if path and findings.check_files:
            findings.note_file(path)
    return replace(tls, digest=read_digest(tls, node, findings))


def read_digest(tls: BackendTls, node: Node | None, findings: Findings) -> str:
    """The digest of a backend's TLS files after a check of each; empty: one is wrong, or none is read."""
    if not findings.check_files or not (tls.ca or (tls.certificate and tls.key)):
        return ""
    if tls.certificate and tls.key:
        check_pair(CertificateFiles(tls.certificate, tls.key), node, findings)
    try:
        digest: str = import_module("gateway.tls.client").read_digest(tls)
    except CertificateError as error:
        if not findings.has_at(child(node, error.part)):
            _report(error, node, findings)
        return ""
    return digest


def check_server_tls(tls: ServerTls | None, node: Node | None, findings: Findings) -> None:
    """Report problems in the TLS settings of one listener. `node`: its key `tls`."""
    if tls is None:
        return
    if tls.client_ca is None and not findings.is_any_dropped("client_ca"):
        for name in ("client", "forward_client_cert"):
            if (found := child(node, name)) is not None and not found.broken:
                message = f"without client_ca no client is asked for a certificate, and {name} means nothing"
                findings.contradiction(found, message, "add client_ca, or remove this key")
    for index, pair in enumerate(tls.certificates):
        check_pair(pair, child(node, "certificates", index), findings)
    if tls.client_ca is not None and findings.check_files:
        try:
            # It imports `cryptography`, which a file without TLS does without.
            import_module("gateway.tls.certificate").read_authorities(tls.client_ca, "client_ca")
        except CertificateError as error:
            _report(error, node, findings)


def check_pair(files: CertificateFiles, node: Node | None, findings: Findings) -> None:
    """Report problems of a certificate and its key, also that it expires soon, at these keys of `node`."""
    if not findings.check_files or (node is not None and node.broken):
        return
    try:
        # It imports ssl, which a file without TLS does without.
        not_after = import_module("gateway.tls.server").check_pair(files).not_after
    except CertificateError as error:
        _report(error, node, findings)
        return
    left = not_after - datetime.now(UTC).timestamp()
    if left < WARN_BEFORE:
        message = f"the certificate expires in {max(0, int(left // DAY))} days"
        hint = "renew it; the gateway reads files that have changed by itself"
        findings.warn(child(node, "certificate"), "expires-soon", message, hint)


def _report(error: CertificateError, node: Node | None, findings: Findings) -> None:
    path = getattr(error.__cause__, "filename", None)  # of a file that cannot be opened
    quoting = reader_of(path) if path else ""
    findings.add(child(node, error.part), "bad-certificate", error.message, error.hint, quoting=quoting)
