"""From `agreement` in the file to its settings: endpoints, TLS and user of etcd, and durations that conflict.

The files of TLS are read as the gateway will read them. etcd is not asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from gateway.core.fleet.backend_tls import BackendTls
from gateway.errors import CertificateError
from gateway.settings.checks.admin import is_loopback
from gateway.settings.checks.tls import check_pair
from gateway.settings.model.agreement import Agreement, Etcd, EtcdTls
from gateway.settings.model.document import Document
from gateway.settings.values import AgreementSettings, EtcdSettings
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Node, child
from gateway.tls.values import CertificateFiles

FEWEST_TTLS: Final = 3
"""`forget` is at least so many `ttl`: nobody is forgotten who missed a few beats."""
SHORT_FORGET: Final = 600.0


def read_agreement(document: Document, root: MappingNode, findings: Findings) -> AgreementSettings | None:
    """None: this replica stands alone. Problems go to the findings."""
    written, node = document.agreement, child(root, "agreement")
    if written is None:
        return None
    etcd = child(node, "etcd")
    _check_endpoints(written.etcd, etcd, findings)
    _check_user(written.etcd, etcd, findings)
    _check_durations(written, node, findings)
    if document.state is None and not findings.is_dropped("state"):
        findings.add(
            node,
            "no-state",
            "without `state` a replica that is started anew answers nothing until it has reached etcd, and "
            "what it was before holds back every withdrawal of a version until it is forgotten",
            "add `state: /var/lib/skewgate/state.json`",
            severity=Severity.WARNING,
        )
    return AgreementSettings(
        EtcdSettings(
            tuple(map(str, written.etcd.endpoints)),
            _read_tls(written.etcd, child(etcd, "tls"), findings),
            written.etcd.user,
            written.etcd.password,
            written.etcd.prefix,
        ),
        written.cluster,
        written.ttl,
        written.forget,
    )


def _check_endpoints(etcd: Etcd, node: Node | None, findings: Findings) -> None:
    place = child(node, "endpoints")
    if findings.is_dropped("agreement", "etcd", "endpoints") or (place is not None and place.broken):
        return
    seen = set()
    for index, endpoint in enumerate(etcd.endpoints):
        if endpoint in seen:
            at = child(place, index)
            findings.add(at, "bad-value", "this endpoint is in the list twice", "name each member once")
        seen.add(endpoint)
    if len({endpoint.tls for endpoint in etcd.endpoints}) > 1:
        findings.add(
            child(place, next(at for at, each in enumerate(etcd.endpoints) if not each.tls)),
            "contradiction",
            "some endpoints are https, and this one is not",
            "write https:// for all of them",
        )
    if len(etcd.endpoints) == 1:
        findings.add(
            place,
            "one-endpoint",
            "while this one member is away, no offer can change",
            "name all members: three survive the loss of one",
            severity=Severity.WARNING,
        )


def _check_user(etcd: Etcd, node: Node | None, findings: Findings) -> None:
    for one, other in (("user", "password"), ("password", "user")):
        place = child(node, one)
        dropped = findings.is_dropped("agreement", "etcd", other)
        if place is not None and not place.broken and not dropped and child(node, other) is None:
            findings.add(place, "missing-key", f"{one} and {other} belong together", f"add `{other}: ...`")
    exposed = [each for each in etcd.endpoints if not each.tls and not is_loopback(each.host)]
    if etcd.password is not None and exposed:
        findings.add(
            child(node, "password"),
            "password-exposed",
            "without TLS anyone on the way to etcd can read this password",
            "write https:// for the endpoints",
            severity=Severity.WARNING,
        )


def _check_durations(written: Agreement, node: Node | None, findings: Findings) -> None:
    forget = written.forget
    if forget is None or findings.is_any_dropped("ttl") or findings.is_any_dropped("forget"):
        return
    place = child(node, "forget") or child(node, "ttl")
    if forget < FEWEST_TTLS * written.ttl:
        findings.add(
            place,
            "contradiction",
            f"agreement.forget is less than {FEWEST_TTLS} times agreement.ttl: a few lost beats would be the "
            "end of a replica",
            "raise forget: 24h is its default",
        )
    elif forget < SHORT_FORGET:
        findings.add(
            place,
            "short-forget",
            "when etcd is away for so long, every replica stops answering",
            "raise it: 24h is its default",
            severity=Severity.WARNING,
        )


def _read_tls(etcd: Etcd, node: Node | None, findings: Findings) -> BackendTls | None:
    if not any(endpoint.tls for endpoint in etcd.endpoints):
        if etcd.tls is not None and not (node is not None and node.broken):
            findings.add(
                node,
                "contradiction",
                "no endpoint is https",
                "write https://HOST:PORT for the endpoints, or remove this key",
            )
        return None
    section = etcd.tls or EtcdTls()
    for one, other in (("certificate", "key"), ("key", "certificate")):
        place = child(node, one)
        if place is not None and getattr(section, one) is not None and child(node, other) is None:
            findings.add(place, "missing-key", f"{one} and {other} belong together", f"add `{other}: ...`")
    tls = BackendTls(section.server_name or "", section.ca, section.certificate, section.key)
    _check_files(tls, node, findings)
    return tls


def _check_files(tls: BackendTls, node: Node | None, findings: Findings) -> None:
    if not findings.check_files or not (tls.ca or (tls.certificate and tls.key)):
        return
    before = len(findings.problems)
    if tls.certificate and tls.key:
        check_pair(CertificateFiles(tls.certificate, tls.key), node, findings)
    if len(findings.problems) > before:
        return
    try:
        import_module("gateway.tls.client").read_digest(tls)
    except CertificateError as error:
        findings.add(child(node, error.part), "bad-certificate", error.message, error.hint)
