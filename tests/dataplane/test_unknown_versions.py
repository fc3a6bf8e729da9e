"""Responses that show that a member's version is not known, and responses that say nothing about it.

A backend becomes another release between two probes, without a refused connection: it was restarted, or
something else answers at its address now.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.dialects.chef.dialect import Chef, ChefOptions
from tests.dataplane.messages import (
    MAX_FIELD,
    MIN_FIELD,
    VERSION_FIELD,
    Message,
    request,
    response,
    version_line,
)
from tests.dataplane.testbed import Gateway, ScriptedBackend, Testbed, always, probe_succeeded, serve

UNVERSIONED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"nodes": []}'
"""What a legacy Ironic sends, which executes every request at 1.1."""


async def restarted_as_legacy(testbed: Testbed) -> tuple[Gateway, ScriptedBackend, ScriptedBackend]:
    """Two members at which probes found 1.90. The first one was restarted as a legacy server since."""
    legacy = await testbed.backend(always(UNVERSIONED), declared=None)
    other = await testbed.backend(serve, declared=None)
    gateway = await testbed.gateway(legacy, other)
    for backend in (legacy, other):
        probe_succeeded(gateway, backend, "1.1-1.90")
    return gateway, legacy, other


async def request_until_reached(gateway: Gateway, backend: ScriptedBackend, *parts: bytes) -> Message:
    """Send the request until `backend` has got it once; gives the last response."""
    while True:
        answer = await gateway.request(*parts)
        if backend.requests:
            return answer


@pytest.mark.xfail(strict=True, reason="R-A2: 200 without version headers, and the log says served 1.72")
async def test_R_A2_a_client_is_told_what_a_member_of_unknown_version_served(testbed: Testbed) -> None:
    """It was executed at 1.1, as a legacy server does, so the client gets that version."""
    gateway, legacy, _ = await restarted_as_legacy(testbed)
    post = request("POST", "/v1/nodes", version_line("1.72"), body=b"{}")

    answer = await request_until_reached(gateway, legacy, post)

    assert (answer.status, answer.body) == (200, b'{"nodes": []}')
    assert (answer.one(VERSION_FIELD), answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.1", "1.90")
    assert gateway.records[-1].version == "1.1"
    assert gateway.metric("skewgate_served_version_total", version="1.72") == len(gateway.records) - 1
    assert gateway.metric("skewgate_contradictions_total", backend=legacy.name) == 1


@pytest.mark.xfail(strict=True, reason="R-A2: it gets negotiated requests until the next probe")
async def test_R_A2_a_member_of_unknown_version_gets_no_negotiated_request(testbed: Testbed) -> None:
    gateway, legacy, _ = await restarted_as_legacy(testbed)
    await request_until_reached(
        gateway, legacy, request("POST", "/v1/nodes", version_line("1.72"), body=b"{}")
    )

    for version in ("1.72", "1.1", "latest") * 10:
        answer = await gateway.request(request("POST", "/v1/nodes", version_line(version), body=b"{}"))
        assert (answer.status, answer.one(MAX_FIELD)) == (200, "1.90")
    assert len(legacy.requests) == 1


@pytest.mark.xfail(strict=True, reason="R-A2: the client gets the response of the legacy server")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_R_A2_a_safe_request_is_sent_to_another_member(testbed: Testbed, method: str) -> None:
    gateway, legacy, other = await restarted_as_legacy(testbed)

    answer = await request_until_reached(gateway, legacy, request(method, "/v1/nodes", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.72")
    assert len(other.requests) == len(gateway.records)
    record = gateway.records[-1]
    assert (record.backend, record.version, record.attempts) == (other.name, "1.72", 2)


# --- constants ---------------------------------------------------------------------------------------------


async def chef_zero(testbed: Testbed) -> tuple[Gateway, ScriptedBackend]:
    """A chef-zero, whose responses repeat neither the requested version nor the served one."""
    constant = '{"min_version":"0","max_version":"2","request_version":"0","response_version":"0"}'
    backend = await testbed.backend(
        always(response(200, f"X-Ops-Server-API-Version: {constant}", body=b"{}")), declared=None
    )
    chef = Chef(ChefOptions())
    service = Service("chef", chef, (backend.backend,))
    gateway = Gateway(SnapshotHolder(Snapshot.configured([service], now=0.0)), {}, {}, ())
    await gateway.start()
    testbed.gateways.append(gateway)
    advertisement = Advertisement(VersionSet.read("0-2", chef.scheme))
    gateway.snapshot_holder.observe("chef", backend.name, ProbeSucceeded(advertisement, 1.0))
    return gateway, backend


@pytest.mark.xfail(strict=True, reason="R-A12: the constant 0 counts as a contradiction: 503 from then on")
async def test_R_A12_a_constant_that_does_not_repeat_our_version_says_nothing(testbed: Testbed) -> None:
    gateway, backend = await chef_zero(testbed)

    for _ in range(5):
        answer = await gateway.request(request("GET", "/nodes", "X-Ops-Server-API-Version: 1"))
        assert answer.status == 200
        assert '"response_version":"0"' in answer.one("X-Ops-Server-API-Version")
    assert len(backend.requests) == 5
    assert gateway.metric("skewgate_contradictions_total", backend=backend.name) == 0
