"""What ordinary replies teach about their backends, and what a version refusal by a backend leads to."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from gateway.core.decision import REMEMBERED_ASK
from gateway.core.fleet import Overheard
from gateway.core.service import Match, RetryPlan
from gateway.dataplane import http1
from tests.dataplane.stand import (
    OLD,
    Hop,
    House,
    ScriptedBackend,
    Stand,
    always,
    heard,
    newest,
    serve,
    service_of,
    versions,
)
from tests.dataplane.wire import (
    HIGHEST,
    LOWEST,
    SERVED,
    Message,
    asks,
    reply,
    request,
)


async def test_what_a_reply_says_about_its_backend_is_learned(house: House) -> None:
    backend = await house.backend(declared=None)
    gateway = await house.gateway(backend)
    heard(gateway, backend, OLD)  # and the replies say 1.1 to 1.90

    assert (await gateway.ask(request())).one(HIGHEST) == "1.58"  # the offer as it was when it was decided on

    (fact,) = gateway.facts
    assert fact[:2] == ("baremetal", "api-1")
    assert isinstance(fact[2], Overheard)
    assert fact[2].advert.versions == versions("1.1-1.90")
    assert (await gateway.ask(request("GET", "/v1/nodes", asks("latest")))).one(SERVED) == "1.90"
    assert len(gateway.facts) == 1  # nothing new was said


def refusal(highest: str = "1.58") -> bytes:
    """An Ironic's 406 about the version: the range, and no served version."""
    body = json.dumps({"error_message": "Version was requested but is not supported"}).encode()
    return reply(406, f"{LOWEST}: 1.1", f"{HIGHEST}: {highest}", "Content-Type: application/json", body=body)


async def stale_map(house: House) -> tuple[Stand, list[int]]:
    """Two members that are thought to serve 1.90; api-1 was rolled back. Gives (gateway, executions)."""
    executed: list[int] = []

    async def honest(hop: Hop) -> None:
        while True:
            message = await hop.request()
            executed.append(len(message.body))
            await hop.say(reply(200, f"{SERVED}: {message.one(SERVED)}", body=b"done"))

    old = await house.backend(always(refusal()), declared=None)
    new = await house.backend(honest, declared=None)
    gateway = await house.gateway(old, new)
    heard(gateway, old, "1.1-1.90")
    heard(gateway, new, "1.1-1.90")
    return gateway, executed


async def refused_first(gateway: Stand, house: House, *parts: bytes) -> Message:
    """Ask until the one that refuses was asked first."""
    for number in range(1, 60):
        for backend in house.backends:
            heard(gateway, backend, "1.1-1.90")
        answer = await gateway.ask(*parts)
        if house.backends[0].requests:
            return answer
        assert (answer.status, len(gateway.outcomes)) == (200, number)
    raise AssertionError("api-1 was never chosen")


async def test_a_version_refusal_is_learned_and_the_request_served_elsewhere(house: House) -> None:
    """The offer stays, since one still serves it; the one that does not gets no such request again."""
    gateway, executed = await stale_map(house)

    answer = await refused_first(gateway, house, request("POST", "/v1/nodes", asks("1.80"), body=b"hello"))

    assert (answer.status, answer.one(SERVED)) == (200, "1.80")
    assert gateway.outcomes[-1].attempts == 2
    assert gateway.facts[-1][1] == "api-1"
    for _ in range(30):
        assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.80")))).status == 200
    assert len(house.backends[0].requests) == 1
    assert executed.count(5) == len(gateway.outcomes) - 30, "each was executed once"


@pytest.mark.parametrize("elsewhere", ["baremetal-2", None])
async def test_a_reload_between_a_request_and_its_refusal_leaves_no_count_behind(
    house: House, elsewhere: str | None
) -> None:
    """The path may be another service's by then, or nobody's."""
    reloaded = asyncio.Event()

    async def stale(hop: Hop) -> None:
        await hop.request()
        await reloaded.wait()
        await hop.say(refusal())

    old, other = await house.backend(stale), await house.backend(serve, name="other")
    gateway = await house.gateway(old)
    client = await gateway.client()
    await client.send(request())
    await old.came()
    service = replace(service_of(other), name=elsewhere or "hidden")
    match = Match() if elsewhere else Match(host="elsewhere.example")
    gateway.cell.configure([replace(service, match=match)])
    reloaded.set()

    assert (await client.reply()).status == (200 if elsewhere else 404)
    assert not any(gateway.worker.in_flight().values())


async def test_a_version_refusal_while_it_stays_on_offer_moves_the_request_once(house: House) -> None:
    """Declared members are not learned about: the map stays, the request moves."""
    old = await house.backend(always(refusal()))
    new = await house.backend(serve)
    gateway = await house.gateway(old, new)

    for _ in range(60):
        answer = await gateway.ask(request("POST", "/v1/nodes", asks("1.80"), body=b"hello"))
        assert (answer.status, answer.one(SERVED)) == (200, "1.80")
        if old.requests:
            break
    assert [each.body for each in old.requests] == [b"hello"]
    assert new.requests[-1].body == b"hello"
    assert gateway.outcomes[-1].attempts == 2
    assert gateway.metric("skewgate_retries_total", reason="version") == 1


async def test_a_version_refusal_by_everyone_is_503_and_not_a_refusal(house: House) -> None:
    first, second = await house.backend(always(refusal())), await house.backend(always(refusal()))
    gateway = await house.gateway(first, second)

    answer = await gateway.ask(request("GET", "/v1/nodes", asks("1.80")))

    assert (answer.status, answer.one("retry-after")) == (503, "2")
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_version_refusal_of_a_body_that_is_gone_is_503(house: House) -> None:
    first, second = await house.backend(always(refusal())), await house.backend(always(refusal()))
    gateway = await house.gateway(first, second)

    answer = await gateway.ask(request("POST", "/v1/nodes", asks("1.80"), body=b"x" * 70000))

    assert (answer.status, answer.one("retry-after")) == (503, "2")
    assert len(first.requests) + len(second.requests) == 1


async def test_after_a_version_refusal_nothing_is_tried_where_the_plan_says_so(house: House) -> None:
    first, second = await house.backend(always(refusal())), await house.backend(always(refusal()))
    gateway = await house.gateway(first, second, retry=RetryPlan(on_version=False))

    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.80")))).status == 503
    assert len(first.requests) + len(second.requests) == 1


async def test_a_refusal_about_a_feature_passes_with_the_range_of_the_offer(house: House) -> None:
    said = reply(
        406, f"{SERVED}: 1.31", f"{LOWEST}: 1.1", f"{HIGHEST}: 1.99", body=b"no such feature", reason="No"
    )
    gateway, backend = await house.behind(always(said))

    answer = await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))

    assert (answer.status, answer.body) == (406, b"no such feature")
    assert (answer.one(SERVED), answer.one(HIGHEST)) == ("1.31", "1.90")
    assert len(backend.requests) == 1


async def test_a_backend_that_served_something_else_is_told_as_it_is_and_counted(house: House) -> None:
    gateway, _ = await house.behind(always(reply(200, f"{SERVED}: 1.1", body=b"ok")))

    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))).one(SERVED) == "1.1"
    assert "contradiction" in gateway.metrics.exposition("")[0].decode()


async def test_v9_who_contradicted_a_version_gets_no_request_at_it_until_a_probe_answers(
    house: House,
) -> None:
    lies, honest = await house.backend(always(LIE), declared=None), await house.backend(serve, declared=None)
    gateway = await house.gateway(lies, honest)
    heard(gateway, lies, "1.1-1.90")
    heard(gateway, honest, "1.1-1.90")

    told = []
    while not lies.requests:
        told.append((await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))).one(SERVED))
    assert told[-1] == "1.1", "it was executed so, and that is told"
    for _ in range(30):
        assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))).one(SERVED) == "1.31"
    assert len(lies.requests) == 1
    while len(lies.requests) == 1:  # other versions still go there
        await gateway.ask(request("GET", "/v1/nodes", asks("1.30")))

    heard(gateway, lies, "1.1-1.90")
    while len(lies.requests) == 2:
        await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))


async def test_v9_where_nobody_else_serves_it_it_is_503_and_executed_nowhere(house: House) -> None:
    gateway, backend = await house.behind(always(LIE))

    assert (await gateway.ask(request("POST", "/v1/nodes", asks("1.31"), body=b"x"))).one(SERVED) == "1.1"
    for _ in range(3):
        answer = await gateway.ask(request("POST", "/v1/nodes", asks("1.31"), body=b"x"))
        assert (answer.status, answer.one("retry-after")) == (503, "2")
    assert len(backend.requests) == 1


LIE = reply(200, f"{SERVED}: 1.1", body=b"ok")


async def test_a_maximum_that_fell_without_a_restart_is_learned_from_an_ordinary_reply(house: House) -> None:
    """The offer falls when nobody serves it any more; who asks for it then is refused without a backend."""
    said = reply(200, f"{SERVED}: 1.31", f"{LOWEST}: 1.1", f"{HIGHEST}: 1.58", body=b"ok")
    backend = await house.backend(always(said), declared=None)
    gateway = await house.gateway(backend)
    heard(gateway, backend, "1.1-1.90")

    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))).status == 200
    answer = await gateway.ask(request("GET", "/v1/nodes", asks("1.80")))

    assert (answer.status, answer.one(HIGHEST)) == (406, "1.58")
    assert len(backend.requests) == 1


async def rolled_back(house: House) -> tuple[Stand, ScriptedBackend]:
    """One backend, thought to serve 1.90, that refuses what is above 1.58."""

    async def script(hop: Hop) -> None:
        while True:
            message = await hop.request()
            wanted = message.one(SERVED)
            ranges = (f"{LOWEST}: 1.1", f"{HIGHEST}: 1.58")
            above = newest(f"{wanted}-{wanted}") > newest("1.1-1.58")
            await hop.say(refusal() if above else reply(200, f"{SERVED}: {wanted}", *ranges, body=b"done"))

    backend = await house.backend(script, declared=None)
    gateway = await house.gateway(backend)
    heard(gateway, backend, "1.1-1.90")
    return gateway, backend


async def test_latest_settles_anew_after_a_version_refusal_also_on_who_refused(house: House) -> None:
    gateway, backend = await rolled_back(house)

    answer = await gateway.ask(request("POST", "/v1/nodes", asks("latest"), body=b"hello"))

    assert (answer.status, answer.one(SERVED), answer.one(HIGHEST)) == (200, "1.58", "1.58")
    assert [each.one(SERVED) for each in backend.requests] == ["1.90", "1.58"]
    assert gateway.outcomes[-1].attempts == 2


async def test_a_refused_version_that_nobody_serves_any_more_is_the_dialects_refusal(house: House) -> None:
    for body in (b"small", b"x" * 70000):
        gateway, backend = await rolled_back(house)
        answer = await gateway.ask(request("POST", "/v1/nodes", asks("1.80"), body=body))

        assert (answer.status, answer.one(HIGHEST)) == (406, "1.58")
        assert "retry-after" not in answer.names
        assert len(backend.requests) == 1


async def test_a_body_too_large_to_hold_is_503_where_another_still_serves_the_version(house: House) -> None:
    gateway, executed = await stale_map(house)
    large = request("POST", "/v1/nodes", asks("1.80"), body=b"x" * 70000)

    answer = await refused_first(gateway, house, large)

    assert (answer.status, answer.one("retry-after")) == (503, "2")
    assert executed.count(70000) == len(gateway.outcomes) - 1
    assert (await gateway.ask(large)).status == 200, "learned: the next one goes where it is served"


# --- what is remembered ------------------------------------------------------------------------------------


async def test_a_backend_cannot_fill_the_memory_with_replies_that_are_always_another(house: House) -> None:
    long = reply(200, f"{SERVED}: 1.1", "Vary: " + "x" * 40_000, body=b"ok")
    gateway, _ = await house.behind(always(long))

    assert (await gateway.ask(request())).status == 200
    assert not gateway.worker.context.markings


async def test_a_backend_cannot_fill_the_memory_with_reasons(house: House) -> None:
    reason = "r" * 30_000
    gateway, _ = await house.behind(always(reply(200, f"{SERVED}: 1.1", reason=reason, body=b"ok")))

    assert (await gateway.ask(request())).start.endswith(reason)
    assert all(reason.encode() not in line for line in http1._status_lines)


async def test_a_client_cannot_fill_the_memory_with_blanks_and_empty_lines(house: House) -> None:
    gateway, _ = await house.behind(serve)

    assert (await gateway.ask(request("GET", "/v1/nodes", f"{SERVED}: 1.31" + " " * 4000))).status == 200
    assert (await gateway.ask(request("GET", "/v1/nodes", *[f"{SERVED}:"] * 80, asks("1.31")))).status == 200

    held = [sum(map(len, apart)) for _, _, apart in gateway.worker.context.recall]  # type: ignore[arg-type]
    assert len(held) == 1
    assert held[0] < REMEMBERED_ASK
