"""Passive observations: what responses show about their backends. And version refusals by backends."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.core.decision.decision import MAX_CACHED_REQUEST_SIZE
from gateway.core.fleet.admission import Access
from gateway.core.fleet.failures import DEFAULT_RETRY, Retry, RetryCause
from gateway.core.fleet.fleet import PassiveObservation
from gateway.core.fleet.service import Match
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, serve
from tests.kit.ironic import OLD, highest_version, reconfigure, versions
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, request, response, version_line
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed, probe_succeeded, service_of


async def test_the_range_in_a_response_is_a_passive_observation(testbed: Testbed) -> None:
    backend = await testbed.backend(declared=None)
    gateway = await testbed.gateway(backend)
    probe_succeeded(gateway, backend, OLD)  # but its responses say 1.1 to 1.90

    assert (await gateway.request(request())).one(
        MAX_FIELD
    ) == "1.58"  # the offer as it was when it was decided on

    (fact,) = gateway.facts
    assert fact[:2] == ("baremetal", "api-1")
    assert isinstance(fact[2], PassiveObservation)
    assert fact[2].advertisement.versions == versions("1.1-1.90")
    assert (await gateway.request(request("GET", "/v1/nodes", version_line("latest")))).one(
        VERSION_FIELD
    ) == "1.90"
    assert len(gateway.facts) == 1  # the second response brought nothing new


def refusal(highest: str = "1.58") -> bytes:
    """The 406 of an Ironic that refuses the version: with its range, and without a served version."""
    body = json.dumps({"error_message": "Version was requested but is not supported"}).encode()
    return response(
        406, f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: {highest}", "Content-Type: application/json", body=body
    )


async def gateway_with_stale_member(testbed: Testbed) -> tuple[Gateway, list[int]]:
    """A gateway whose probes found 1.90 at two members; api-1 was rolled back since.

    Gives the gateway, and the sizes of the request bodies that the other member has executed.
    """
    executed: list[int] = []

    async def serving(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            executed.append(len(message.body))
            await upstream.send(response(200, f"{VERSION_FIELD}: {message.one(VERSION_FIELD)}", body=b"done"))

    old = await testbed.backend(always(refusal()), declared=None)
    new = await testbed.backend(serving, declared=None)
    gateway = await testbed.gateway(old, new)
    probe_succeeded(gateway, old, "1.1-1.90")
    probe_succeeded(gateway, new, "1.1-1.90")
    return gateway, executed


async def request_until_refused(gateway: Gateway, testbed: Testbed, *parts: bytes) -> Message:
    """Send the request until api-1 was selected first and refused it."""
    for number in range(1, 60):
        for backend in testbed.backends:
            probe_succeeded(gateway, backend, "1.1-1.90")
        answer = await gateway.request(*parts)
        if testbed.backends[0].requests:
            return answer
        assert (answer.status, len(gateway.records)) == (200, number)
    raise AssertionError("api-1 was never chosen")


async def test_a_version_refusal_is_learned_and_the_request_served_elsewhere(testbed: Testbed) -> None:
    """The offer stays, since one backend still serves the version. The other gets no such request again."""
    gateway, executed = await gateway_with_stale_member(testbed)

    answer = await request_until_refused(
        gateway, testbed, request("POST", "/v1/nodes", version_line("1.80"), body=b"hello")
    )

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.80")
    assert gateway.records[-1].attempts == 2
    assert gateway.facts[-1][1] == "api-1"
    for _ in range(30):
        assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.80")))).status == 200
    assert len(testbed.backends[0].requests) == 1
    assert executed.count(5) == len(gateway.records) - 30, "each request was executed once"


async def refused_after_a_reload(
    testbed: Testbed, **changes: Any
) -> tuple[Gateway, ScriptedBackend, Message]:
    """The answer to a request whose backend refuses it when a reload has put another service, with these
    changes, in the place of its own; and the backend of that service."""
    reloaded = asyncio.Event()

    async def stale(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await reloaded.wait()
        await upstream.send(refusal())

    old, other = await testbed.backend(stale), await testbed.backend(serve, name="other")
    gateway = await testbed.gateway(old)
    client = await gateway.client()
    await client.send(request())
    await old.received()
    reconfigure(gateway.snapshot_holder, [replace(service_of(other), **changes)])
    reloaded.set()
    return gateway, other, await client.response()


@pytest.mark.parametrize("elsewhere", ["baremetal-2", None])
async def test_a_reload_between_a_request_and_its_refusal_leaves_no_count_behind(
    testbed: Testbed, elsewhere: str | None
) -> None:
    """The path may belong to another service by then, or to none."""
    match = Match() if elsewhere else Match(host=("elsewhere.example",))

    gateway, _, answer = await refused_after_a_reload(testbed, name=elsewhere or "hidden", match=match)

    assert answer.status == (200 if elsewhere else 404)
    assert not any(gateway.worker.report().in_flight_by_service.values())


async def test_a_refused_request_is_not_sent_to_a_service_that_has_not_admitted_it(testbed: Testbed) -> None:
    """A reload has given the path to a service whose access list its client is not on."""
    closed = Access((), (ip_network("127.0.0.0/8"),))

    gateway, other, answer = await refused_after_a_reload(testbed, name="baremetal-2", access=closed)

    assert answer.status == 503
    assert not other.requests
    await until(gateway.nothing_left)


async def test_a_version_refusal_while_it_stays_on_offer_moves_the_request_once(testbed: Testbed) -> None:
    """Declared versions do not change by observations, but the request moves."""
    old = await testbed.backend(always(refusal()))
    new = await testbed.backend(serve)
    gateway = await testbed.gateway(old, new)

    for _ in range(60):
        answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.80"), body=b"hello"))
        assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.80")
        if old.requests:
            break
    assert [message.body for message in old.requests] == [b"hello"]
    assert new.requests[-1].body == b"hello"
    assert gateway.records[-1].attempts == 2
    assert gateway.metric("skewgate_retries_total", reason="version") == 1


async def test_a_version_refusal_by_all_backends_is_503(testbed: Testbed) -> None:
    first, second = await testbed.backend(always(refusal())), await testbed.backend(always(refusal()))
    gateway = await testbed.gateway(first, second)

    answer = await gateway.request(request("GET", "/v1/nodes", version_line("1.80")))

    assert (answer.status, answer.every("retry-after")) == (503, [])
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_version_refusal_after_a_streamed_body_is_503(testbed: Testbed) -> None:
    first, second = await testbed.backend(always(refusal())), await testbed.backend(always(refusal()))
    gateway = await testbed.gateway(first, second)

    answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.80"), body=b"x" * 70000))

    assert (answer.status, answer.every("retry-after")) == (503, [])
    assert len(first.requests) + len(second.requests) == 1


async def test_retries_after_a_version_refusal_can_be_switched_off(testbed: Testbed) -> None:
    first, second = await testbed.backend(always(refusal())), await testbed.backend(always(refusal()))
    gateway = await testbed.gateway(first, second, retry=Retry(on=DEFAULT_RETRY.on - {RetryCause.VERSION}))

    assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.80")))).status == 503
    assert len(first.requests) + len(second.requests) == 1


async def test_a_refusal_about_a_feature_passes_with_the_range_of_the_offer(testbed: Testbed) -> None:
    data = response(
        406,
        f"{VERSION_FIELD}: 1.31",
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.99",
        body=b"no such feature",
        reason="No",
    )
    gateway, backend = await testbed.gateway_and_backend(always(data))

    answer = await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))

    assert (answer.status, answer.body) == (406, b"no such feature")
    assert (answer.one(VERSION_FIELD), answer.one(MAX_FIELD)) == ("1.31", "1.90")
    assert len(backend.requests) == 1


async def test_a_mismatched_version_is_forwarded_and_counted(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(response(200, f"{VERSION_FIELD}: 1.1", body=b"ok")))

    assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))).one(
        VERSION_FIELD
    ) == "1.1"
    assert "contradiction" in b"".join(gateway.metrics.exposition("")[0]).decode()
    record = await gateway.recorded()
    assert (record.negotiated, record.version) == ("1.31", "1.1")


async def test_V9_after_a_mismatch_a_backend_gets_no_request_at_this_version_until_a_probe(
    testbed: Testbed,
) -> None:
    mismatching, serving = (
        await testbed.backend(always(MISMATCHED_RESPONSE), declared=None),
        await testbed.backend(serve, declared=None),
    )
    gateway = await testbed.gateway(mismatching, serving)
    probe_succeeded(gateway, mismatching, "1.1-1.90")
    probe_succeeded(gateway, serving, "1.1-1.90")

    served = []
    while not mismatching.requests:
        served.append(
            (await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))).one(VERSION_FIELD)
        )
    assert served[-1] == "1.1", "it was executed at this version, so the client gets this version"
    for _ in range(30):
        assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))).one(
            VERSION_FIELD
        ) == "1.31"
    assert len(mismatching.requests) == 1
    while len(mismatching.requests) == 1:  # it still gets requests at other versions
        await gateway.request(request("GET", "/v1/nodes", version_line("1.30")))

    probe_succeeded(gateway, mismatching, "1.1-1.90")
    while len(mismatching.requests) == 2:
        await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))


async def test_V9_after_a_mismatch_of_the_only_backend_requests_are_503(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(MISMATCHED_RESPONSE))

    assert (await gateway.request(request("POST", "/v1/nodes", version_line("1.31"), body=b"x"))).one(
        VERSION_FIELD
    ) == "1.1"
    for _ in range(3):
        answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.31"), body=b"x"))
        assert (answer.status, answer.every("retry-after")) == (503, [])
    assert len(backend.requests) == 1


MISMATCHED_RESPONSE = response(200, f"{VERSION_FIELD}: 1.1", body=b"ok")


async def test_a_lower_maximum_is_learned_from_an_ordinary_response(
    testbed: Testbed,
) -> None:
    """The offer shrinks when no backend serves a version any more. Then requests at it reach no backend."""
    data = response(200, f"{VERSION_FIELD}: 1.31", f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: 1.58", body=b"ok")
    backend = await testbed.backend(always(data), declared=None)
    gateway = await testbed.gateway(backend)
    probe_succeeded(gateway, backend, "1.1-1.90")

    assert (await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))).status == 200
    answer = await gateway.request(request("GET", "/v1/nodes", version_line("1.80")))

    assert (answer.status, answer.one(MAX_FIELD)) == (406, "1.58")
    assert len(backend.requests) == 1


async def rolled_back(testbed: Testbed) -> tuple[Gateway, ScriptedBackend]:
    """One backend at which probes found 1.90, and which refuses requests above 1.58 since."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            requested = message.one(VERSION_FIELD)
            ranges = (f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: 1.58")
            above = highest_version(f"{requested}-{requested}") > highest_version("1.1-1.58")
            await upstream.send(
                refusal() if above else response(200, f"{VERSION_FIELD}: {requested}", *ranges, body=b"done")
            )

    backend = await testbed.backend(script, declared=None)
    gateway = await testbed.gateway(backend)
    probe_succeeded(gateway, backend, "1.1-1.90")
    return gateway, backend


async def test_latest_negotiates_again_after_a_version_refusal_with_the_same_backend(
    testbed: Testbed,
) -> None:
    gateway, backend = await rolled_back(testbed)

    answer = await gateway.request(request("POST", "/v1/nodes", version_line("latest"), body=b"hello"))

    assert (answer.status, answer.one(VERSION_FIELD), answer.one(MAX_FIELD)) == (200, "1.58", "1.58")
    assert [message.one(VERSION_FIELD) for message in backend.requests] == ["1.90", "1.58"]
    assert gateway.records[-1].attempts == 2


async def test_a_refused_version_that_is_no_longer_on_offer_gets_the_dialects_refusal(
    testbed: Testbed,
) -> None:
    for body in (b"small", b"x" * 70000):
        gateway, backend = await rolled_back(testbed)
        answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.80"), body=body))

        assert (answer.status, answer.one(MAX_FIELD)) == (406, "1.58")
        assert "retry-after" not in answer.names
        assert len(backend.requests) == 1


async def test_a_streamed_body_is_503_even_if_another_backend_serves_the_version(
    testbed: Testbed,
) -> None:
    gateway, executed = await gateway_with_stale_member(testbed)
    large = request("POST", "/v1/nodes", version_line("1.80"), body=b"x" * 70000)

    answer = await request_until_refused(gateway, testbed, large)

    assert (answer.status, answer.every("retry-after")) == (503, [])
    assert executed.count(70000) == len(gateway.records) - 1
    assert (await gateway.request(large)).status == 200, "the next request goes to the other backend"


# --- caches ------------------------------------------------------------------------------------------------


async def test_a_backend_cannot_fill_the_response_cache(
    testbed: Testbed,
) -> None:
    long = response(200, f"{VERSION_FIELD}: 1.1", "Vary: " + "x" * 40_000, body=b"ok")
    gateway, _ = await testbed.gateway_and_backend(always(long))

    assert (await gateway.request(request())).status == 200
    assert not gateway.worker.context.response_cache


async def test_a_client_cannot_fill_the_decision_cache(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)

    assert (
        await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31" + " " * 4000))
    ).status == 200
    assert (
        await gateway.request(request("GET", "/v1/nodes", *[f"{VERSION_FIELD}:"] * 80, version_line("1.31")))
    ).status == 200

    sizes = [sum(map(len, selected)) for _, _, selected in gateway.worker.context.decision_cache]  # type: ignore[arg-type]
    assert len(sizes) == 1
    assert sizes[0] < MAX_CACHED_REQUEST_SIZE
