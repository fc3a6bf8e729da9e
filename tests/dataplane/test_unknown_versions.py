"""Responses that show that a member's version is not known, and responses that say nothing about it.

A backend becomes another release between two probes, without a refused connection: it was restarted, or
something else answers at its address now.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio

import pytest

from gateway.core.dialect import Advertisement
from gateway.core.fleet.failures import DEFAULT_RETRY, Retry, RetryCause
from gateway.core.fleet.fleet import Drain, ProbeSucceeded, VersionMismatch
from gateway.core.fleet.service import Match, Service
from gateway.core.versions.ranges import VersionSet
from gateway.dialects.chef.dialect import Chef, ChefOptions
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, never_respond, serve
from tests.kit.clients import Client
from tests.kit.ironic import highest_version
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, request, response, version_line
from tests.kit.workers import Gateway, Testbed, probe_succeeded

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


async def test_R_A2_a_member_of_unknown_version_gets_no_negotiated_request(testbed: Testbed) -> None:
    gateway, legacy, _ = await restarted_as_legacy(testbed)
    await request_until_reached(
        gateway, legacy, request("POST", "/v1/nodes", version_line("1.72"), body=b"{}")
    )

    for version in ("1.72", "1.1", "latest") * 10:
        answer = await gateway.request(request("POST", "/v1/nodes", version_line(version), body=b"{}"))
        assert (answer.status, answer.one(MAX_FIELD)) == (200, "1.90")
    assert len(legacy.requests) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_R_A2_a_safe_request_is_sent_to_another_member(testbed: Testbed, method: str) -> None:
    gateway, legacy, other = await restarted_as_legacy(testbed)

    answer = await request_until_reached(gateway, legacy, request(method, "/v1/nodes", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.72")
    assert len(other.requests) == len(gateway.records)
    record = gateway.records[-1]
    assert (record.backend, record.version, record.attempts) == (other.name, "1.72", 2)
    assert gateway.metric("skewgate_retries_total", reason="version_unknown") == 1


async def test_R_A2_a_response_that_has_begun_is_given_up_for_another(testbed: Testbed) -> None:
    """The client has got nothing of it, and the connection is not used again."""

    async def slow(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(UNVERSIONED[:-5])
        assert (await upstream.ended()).rest == b""

    legacy, other = await testbed.backend(slow), await testbed.backend(serve)
    gateway = await testbed.gateway(legacy, other)

    answer = await request_until_reached(gateway, legacy, request("GET", "/v1/nodes", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.72")
    await legacy.disconnected()


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_R_A2_a_request_that_is_not_safe_is_sent_once(testbed: Testbed, method: str) -> None:
    """It was executed: PUT and DELETE, too, would be executed a second time, at another version."""
    gateway, legacy, other = await restarted_as_legacy(testbed)

    answer = await request_until_reached(gateway, legacy, request(method, "/v1/nodes", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.1")
    assert len(legacy.requests) + len(other.requests) == len(gateway.records)


@pytest.mark.parametrize(
    "retry", [None, Retry(on=DEFAULT_RETRY.on - {RetryCause.VERSION}), Retry(attempts=1)]
)
@pytest.mark.parametrize("members", [1, 2])
async def test_R_A2_without_another_attempt_a_safe_request_is_told_the_truth_too(
    testbed: Testbed, retry: Retry | None, members: int
) -> None:
    """There is no other member, or it lacks the served version as well, or the retry plan forbids it."""
    backends = [await testbed.backend(always(UNVERSIONED)) for _ in range(members)]
    gateway = await testbed.gateway(*backends, retry=retry)

    answer = await gateway.request(request("GET", "/v1/nodes", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD), answer.body) == (200, "1.1", b'{"nodes": []}')
    attempts = 1 if retry else members
    assert sum(len(backend.requests) for backend in backends) == attempts
    assert (gateway.records[0].attempts, gateway.records[0].version) == (attempts, "1.1")
    assert (await gateway.request(request("GET", "/v1/nodes"))).status == (200 if attempts < members else 503)


async def many_at_a_legacy_member(gateway: Gateway, legacy: ScriptedBackend) -> list[Client]:
    """Thirty clients whose GETs have reached the member, which answers all of them at once."""
    gateway.snapshot_holder.apply("baremetal", Drain("other"))
    clients = [await gateway.client() for _ in range(30)]
    for client in clients:
        await client.send(request("GET", "/v1/nodes", version_line("1.72")))
    await legacy.received(30)
    gateway.snapshot_holder.apply("baremetal", Drain("other", drained=False))
    return clients


async def test_R_A2_safe_requests_take_turns_and_none_is_told_another_version(testbed: Testbed) -> None:
    answers_now = asyncio.Event()

    async def slow(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await answers_now.wait()
        await upstream.send(UNVERSIONED)

    legacy = await testbed.backend(slow)
    gateway = await testbed.gateway(legacy, await testbed.backend(serve, name="other"))
    clients = await many_at_a_legacy_member(gateway, legacy)
    answers_now.set()

    answers = [await client.response() for client in clients]

    assert {(answer.status, answer.one(VERSION_FIELD)) for answer in answers} == {(200, "1.72")}
    assert gateway.metric("skewgate_retries_total", reason="version_unknown") == 30


async def test_R_A2_safe_requests_that_wait_too_long_for_their_turn_are_503(testbed: Testbed) -> None:
    answers_now = asyncio.Event()

    async def slow(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await answers_now.wait()
        await upstream.send(UNVERSIONED)

    legacy, other = await testbed.backend(slow), await testbed.backend(never_respond, name="other")
    gateway = await testbed.gateway(legacy, other)
    clients = await many_at_a_legacy_member(gateway, legacy)
    answers_now.set()
    await other.received(6)

    gateway.worker.context.retry_budget.expire(float("inf"))  # as if their time were over
    await gateway.recorded(24)

    assert [record.status for record in gateway.records] == [503] * 24
    assert {record.reason for record in gateway.records} == {"version_unknown"}
    assert gateway.metric("skewgate_retries_given_up_total", service="baremetal") == 24
    assert len(clients) == 30


# --- mismatches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target, path",
    [
        ("/v1/nodes/1/states?x=/v2", "/v1/nodes"),
        ("/v1/nodes", "/v1/nodes"),
        ("//v1//nodes//1", "/v1/nodes"),
        ("/v1/No%64es/1", "/v1/No%64es"),
        ("/x", "/x"),
        ("/v1/" + "n" * 4000, "/v1/" + "n" * 124),
    ],
)
async def test_R_D1_a_mismatch_names_the_first_two_segments_of_the_path(
    testbed: Testbed, target: str, path: str
) -> None:
    mismatching = response(200, version_line("1.1"), body=b"{}")
    gateway, _ = await testbed.gateway_and_backend(always(mismatching), match=Match(path="/metal"))

    answer = await gateway.request(request("GET", f"/metal{target}", version_line("1.72")))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.1")
    ((_, _, fact),) = gateway.facts
    assert isinstance(fact, VersionMismatch)
    assert (fact.version, fact.path) == (highest_version("1.72-1.72"), path)
    assert gateway.records[0].version == "1.1", "the record says what was served"


# --- constants ---------------------------------------------------------------------------------------------


async def chef_zero(testbed: Testbed) -> tuple[Gateway, ScriptedBackend]:
    """A chef-zero, whose responses repeat neither the requested version nor the served one."""
    constant = '{"min_version":"0","max_version":"2","request_version":"0","response_version":"0"}'
    backend = await testbed.backend(
        always(response(200, f"X-Ops-Server-API-Version: {constant}", body=b"{}")), declared=None
    )
    chef = Chef(ChefOptions())
    service = Service("chef", chef, (backend.backend,))
    gateway = await testbed.started(Gateway(service))
    advertisement = Advertisement(VersionSet.read("0-2", chef.scheme))
    gateway.snapshot_holder.observe("chef", backend.name, ProbeSucceeded(advertisement, 1.0))
    return gateway, backend


async def test_R_A12_a_constant_that_does_not_repeat_our_version_says_nothing(testbed: Testbed) -> None:
    gateway, backend = await chef_zero(testbed)

    for _ in range(5):
        answer = await gateway.request(request("GET", "/nodes", "X-Ops-Server-API-Version: 1"))
        assert answer.status == 200
        assert '"response_version":"0"' in answer.one("X-Ops-Server-API-Version")
    assert len(backend.requests) == 5
    assert gateway.metric("skewgate_contradictions_total", backend=backend.name) == 0
