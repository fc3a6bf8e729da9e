"""Contexts for backends: the certificates of the gateway that they show, and when those expire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.core.fleet.backend import BackendTls
from gateway.tls.client import ClientContexts, read_contexts
from tests.kit.certificates import Authority


def test_the_expiry_of_what_backends_are_shown_is_known_by_path(tmp_path: Path) -> None:
    authority = Authority()
    leaf = authority.client()
    certificate, key = map(str, leaf.write(tmp_path, "gateway"))
    plain = BackendTls("api.test", ca=str(authority.write(tmp_path)))
    mutual = replace(plain, certificate=certificate, key=key)
    contexts = ClientContexts()
    assert contexts.expiry() == {}

    contexts.put_in_force(read_contexts([plain, mutual, replace(mutual, server_name="other.test")]))
    assert contexts.expiry() == {certificate: leaf.certificate.not_valid_after_utc.timestamp()}

    contexts.put_in_force(read_contexts([plain]))
    assert contexts.expiry() == {}
