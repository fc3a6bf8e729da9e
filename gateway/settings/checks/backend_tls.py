"""From what the file says about the address of a backend, and about TLS to it, to values of `core.fleet`.

The files that it names are read as the gateway will read them. What is wrong with one is shown at its key.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module

from gateway.core.fleet.backend_tls import BackendTls
from gateway.errors import CertificateError
from gateway.keys.addresses import BackendUrl
from gateway.keys.texts import BACKEND_NAME_PATTERN
from gateway.settings.checks.tls import check_pair
from gateway.settings.model import service as service_model
from gateway.settings.model import tls as tls_model
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Node, child
from gateway.tls.values import CertificateFiles


def default_name(url: BackendUrl) -> str:
    """The name of a backend that has none in the file: HOST:PORT, or the last part of a socket's path."""
    if url.socket_path:
        return url.socket_path.rpartition("/")[2]
    return f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"


def check_name(name: str, node: Node | None, findings: Findings) -> None:
    """A name from a socket's path may hold what a name cannot. `node`: the URL."""
    if re.fullmatch(BACKEND_NAME_PATTERN, name, re.ASCII) is None:
        findings.add(node, "bad-value", "the last part of this path cannot be a name", "add `name: ...`")


def read_backend_tls(
    written: service_model.Backend, url: BackendUrl, node: Node | None, findings: Findings
) -> BackendTls | None:
    """TLS to one backend; None: its URL is not https. `node`: of the backend."""
    section, place = written.tls, child(node, "tls")
    if not url.tls:
        if section is not None and not (place is not None and place.broken):
            findings.add(
                node.entries["tls"].key if isinstance(node, MappingNode) and "tls" in node.entries else place,
                "contradiction",
                "the URL of this backend is not https",
                "write url: https://HOST:PORT, or remove this key",
            )
        return None
    return read_section(section or tls_model.BackendTls(), url.host, place, findings)


def read_section(
    section: tls_model.BackendTls, server_name: str, place: Node | None, findings: Findings
) -> BackendTls:
    """What a section says; `server_name`: where it names none. `place`: of the key `tls`."""
    tls = BackendTls(
        section.server_name or server_name,
        section.ca,
        section.certificate,
        section.key,
        verify=section.verify == "on",
    )
    _check_combination(section, place, findings)
    return replace(tls, digest=_read_files(tls, place, findings))


def _check_combination(section: tls_model.BackendTls, node: Node | None, findings: Findings) -> None:
    for one, other in (("certificate", "key"), ("key", "certificate")):
        place = child(node, one)
        if place is not None and getattr(section, one) is not None and child(node, other) is None:
            findings.add(place, "missing-key", f"{one} and {other} belong together", f"add `{other}: ...`")
    if section.verify == "on":
        return
    place = child(node, "verify")
    if child(node, "ca") is not None:
        findings.add(
            child(node, "ca"),
            "contradiction",
            "with `verify: off` no certificate is verified, and ca means nothing",
            "remove `verify: off`",
        )
    findings.add(
        place,
        "not-verified",
        "the certificate of this backend is not verified: anyone on the way can take its place",
        "name its CA: `ca: FILE`",
        severity=Severity.WARNING,
    )


def _read_files(tls: BackendTls, node: Node | None, findings: Findings) -> str:
    """The digest of the files, after a check of each; empty if one is wrong."""
    if not findings.check_files or not (tls.ca or (tls.certificate and tls.key)):
        return ""
    for path in (tls.ca, tls.certificate, tls.key):
        if path:
            findings.note_file(path)
    if tls.certificate and tls.key:
        check_pair(CertificateFiles(tls.certificate, tls.key), node, findings)
    try:
        digest: str = import_module("gateway.tls.client").read_digest(tls)
    except CertificateError as error:
        place = child(node, error.part)
        reported = any(
            place is not None
            and (problem.line, problem.column) == (place.position.line, place.position.column)
            for problem in findings.problems
        )
        if not reported:
            findings.add(place, "bad-certificate", error.message, error.hint)
        return ""
    return digest
