"""Checks of the files that TLS needs: each one is read as the gateway will read it.

What is wrong with a file is shown at the key that names it. Nothing is kept of a file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

from gateway.errors import CertificateError
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import Node, child
from gateway.tls.values import WARN_BEFORE, CertificateFiles, ServerTls


def check_server_tls(tls: ServerTls | None, node: Node | None, findings: Findings) -> None:
    """TLS of one listener. `node` is its `tls` in the file. Problems go to the findings."""
    if tls is None:
        return
    if tls.client_ca is None and not findings.is_any_dropped("client_ca"):
        for name in ("client", "forward_client_cert"):
            if (found := child(node, name)) is not None and not found.broken:
                findings.add(
                    found,
                    "contradiction",
                    f"without client_ca no client is asked for a certificate, and {name} means nothing",
                    "add client_ca, or remove this key",
                )
    for index, pair in enumerate(tls.certificates):
        check_pair(pair, child(node, "certificates", index), findings)
    if tls.client_ca is not None:
        check_authorities(tls.client_ca, child(node, "client_ca"), "client_ca", findings)


def check_pair(files: CertificateFiles, node: Node | None, findings: Findings) -> None:
    """A certificate and its key. `node`: the mapping that has the keys `certificate` and `key`."""
    if not findings.check_files or (node is not None and node.broken):
        return
    try:
        # It imports ssl, which a file without TLS does without.
        not_after = import_module("gateway.tls.server").check_pair(files).not_after
    except CertificateError as error:
        at = child(node, error.part)
        findings.add(at, "bad-certificate", error.message, error.hint)
        return
    left = not_after - datetime.now(UTC).timestamp()
    if left < WARN_BEFORE:
        findings.add(
            child(node, "certificate"),
            "expires-soon",
            f"the certificate expires in {max(0, int(left // 86_400))} days",
            "renew it; the gateway reads files that have changed by itself",
            severity=Severity.WARNING,
        )


def check_authorities(path: str, node: Node | None, part: str, findings: Findings) -> None:
    """A file of CA certificates. `node`: the scalar that names it; `part`: its key."""
    if not findings.check_files:
        return
    try:
        # It imports `cryptography`, which a file without TLS does without.
        import_module("gateway.tls.certificate").read_authorities(path, part)
    except CertificateError as error:
        findings.add(node, "bad-certificate", error.message, error.hint)
