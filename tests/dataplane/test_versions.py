"""The invariant: the version that was decided on = the one in the bytes that the backend received = the one that any
WSGI, ASGI or Rack server would read from those bytes. Ids are rows V of the list of attacks.
"""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.fleet import Overheard
from gateway.core.message import fold
from gateway.core.service import RetryPlan
from gateway.core.version import Version
from tests.dataplane.stand import (
    OLD,
    House,
    Hop,
    Stand,
    always,
    heard,
    serve,
    versions,
)
from tests.dataplane.wire import (
    HIGHEST,
    LOWEST,
    SERVED,
    STANDARD,
    Message,
    asks,
    chunked,
    reply,
    request,
)

TWIN = SERVED.replace("-", "_")


def wsgi(message: Message) -> dict[str, str]:
    """The headers as a lax WSGI server makes them: names folded, several lines joined."""
    environ: dict[str, str] = {}
    for name, value in message.fields:
        key = name.upper().replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def received(message: Message) -> str:
    """The version that any server reads, or empty; an assertion where two could differ."""
    environ = wsgi(message)
    spellings = [name for name, _ in message.fields if "version" in name.lower()]
    if not spellings:
        return ""
    assert spellings == [SERVED, STANDARD], "each exactly once, in canonical spelling"
    version = environ[TWIN.upper()]
    assert environ["OPENSTACK_API_VERSION"].split(",")[0] == f"baremetal {version}"
    return version


async def forwarded(house: House, *lines: str) -> str:
    """The version that the backend reads; empty when the gateway refused."""
    gateway, backend = await house.behind(serve)
    answer = await gateway.ask(request("GET", "/v1/nodes", *lines))
    seen = await gateway.told()
    if answer.status == 406:
        assert not backend.requests
        return ""
    assert answer.status == 200
    version = received(backend.only)
    assert seen.version == version == answer.one(SERVED)
    return version


async def test_V1_twice_the_same(house: House) -> None:
    assert await forwarded(house, asks("1.31"), asks("1.31")) == "1.31"


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{SERVED}: 1.10", f"{SERVED}: 1.20"), "1.20"),
        ((f"{SERVED.upper()}: 1.10", f"{SERVED.lower()}: 1.20"), "1.20"),
        ((f"{SERVED}: 1.10", f"{STANDARD}: baremetal 1.30", f"{SERVED}: 1.20"), "1.30"),
        ((f"{STANDARD}: baremetal 1.30", f"{STANDARD.lower()}: baremetal 1.31"), "1.31"),
        ((f"{SERVED}: 1.10", f"{SERVED}: 9.9"), ""),
    ],
)
async def test_V2_of_several_the_last_counts_and_one_goes_out(house: House, lines: tuple[str, ...], version: str) -> None:
    assert await forwarded(house, *lines) == version


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{STANDARD}: compute 2.1, identity 3.8",), "1.1"),
        ((f"{STANDARD}: compute 2.1, baremetal 1.40, identity 3.8",), "1.40"),
        ((f"{STANDARD}: baremetal 1.40,baremetal 1.41",), "1.41"),
        ((f"{STANDARD}: baremetal-introspection 1.40",), "1.1"),
        ((f"{SERVED}: 1.10, 1.20",), "1.20"),
        ((f"{SERVED}: 1.10,",), "1.1"),
    ],
)
async def test_V3_lists(house: House, lines: tuple[str, ...], version: str) -> None:
    assert await forwarded(house, *lines) == version


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{TWIN}: 1.20",), ("1.20", "1.1")),
        ((f"{SERVED}: 1.10", f"{TWIN}: 1.20"), ("1.10", "1.20")),
        ((f"{TWIN.lower()}: 1.20", f"{SERVED}: 1.10"), ("1.10",)),
        (("X_OpenStack-Ironic_API-Version: 1.20", "OPENSTACK_API_VERSION: baremetal 1.30"), ("1.1", "1.30")),
    ],
)
async def test_V4_twins(house: House, lines: tuple[str, ...], version: tuple[str, ...]) -> None:
    assert await forwarded(house, *lines) in version


@pytest.mark.parametrize(
    "text",
    [
        "1.\u0663", "\uff11.5", "1.\u00b2", "01.5", "1.05", "+1.5", "1.+5", "-1.5", "1e1", "1.5e1", "1_0.5", "1.5_0",
        "1 .5", "1. 5", "0x1.5", "NaN", "inf", "1.", ".5", "1", "1.5.0", "1.5\u00a0", "latest\u00a0", "latest!", "lates",
        "1.5;q=1", '"1.5"', "9" * 7000, "1." + "9" * 7000, "1.1000000",
    ],
)  # fmt: skip
async def test_V6_texts_that_are_no_version(house: House, text: str) -> None:
    gateway, backend = await house.behind(serve)

    answer = await gateway.ask(request("GET", "/v1/nodes", asks(text.encode().decode("latin-1"))))

    assert answer.status == 406
    assert not backend.requests
    assert not answer.every(SERVED)


@pytest.mark.parametrize("text, version", [("1.5 ", "1.5"), ("\t1.5\t", "1.5"), ("latest", "1.90"), ("LATEST", "1.90")])
async def test_V6_blanks_around_a_version_are_http_and_go(house: House, text: str, version: str) -> None:
    assert await forwarded(house, asks(text)) == version


async def test_V7_listed_in_connection(house: House) -> None:
    gateway, backend = await house.behind(serve)

    for listed in (SERVED, STANDARD.lower(), TWIN):
        answer = await gateway.ask(request("GET", "/v1/nodes", asks("1.31"), f"Connection: {listed}"))
        assert answer.status == 400
    assert not backend.requests


async def test_V7_in_trailers(house: House) -> None:
    gateway, backend = await house.behind(serve)
    body = chunked(b"x" * 10)[:-2] + f"{asks('1.50')}\r\n\r\n".encode()

    assert (await gateway.ask(request("POST", "/v1/x", asks("1.31"), "Transfer-Encoding: chunked"), body)).status == 200
    assert received(backend.only) == "1.31"


async def test_V7_folded(house: House) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", "/v1/nodes", f"{SERVED}:", " 1.31"))).status == 400
    assert not backend.requests


@pytest.mark.parametrize("lines", [(f"{SERVED}:",), (f"{SERVED}:   ",), (asks("1.31"), f"{SERVED}:"), (f"{STANDARD}:",)])
async def test_V7_empty_is_absent(house: House, lines: tuple[str, ...]) -> None:
    assert await forwarded(house, *lines) == "1.1"


@pytest.mark.parametrize(
    "line",
    ["Forwarded: for=6.6.6.6;host=evil", "X-Forwarded-Host: evil", "X-Real-IP: 6.6.6.6", "X_Forwarded_Proto: gopher"],
)
async def test_V12_headers_that_are_ours_to_write_are_stripped(house: House, line: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", "/v1/nodes", line))).status == 200
    assert line.partition(": ")[2] not in backend.only.head.decode()


async def test_the_root_is_not_negotiated_and_gets_no_version(house: House) -> None:
    gateway, backend = await house.behind(always(reply(200, body=b"root")))

    answer = await gateway.ask(request("GET", "/", asks("9.99"), f"{TWIN}: 1.2", f"{STANDARD}: baremetal 1.5"))
    assert answer.status == 200
    assert received(backend.only) == ""


# --- the same, by chance -----------------------------------------------------------------------------------


def _mixed(name: str) -> st.SearchStrategy[str]:
    """A name in any case, with any of its dashes as underscores."""
    letters = [st.sampled_from(sorted({each.lower(), each.upper(), "_" if each == "-" else each})) for each in name]
    return st.tuples(*letters).map("".join)


_TEXTS = st.one_of(
    st.sampled_from(["1.1", "1.10", "1.58", "1.90", "1.91", "latest", "", "2.1", "1.05", "+1.5", "1.5 ", "0.9", "x"]),
    st.builds("1.{}".format, st.integers(0, 120)),
    st.text("0123456789.,+- \tlatestLATEST\xa0\xff", max_size=12),
)
_ITEMS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["baremetal", "BareMetal", "compute", "baremetals", "", "bare metal"]),
    st.sampled_from([" ", "  ", "\t", "", "\xa0"]),
    _TEXTS,
)
_LINES = st.one_of(
    st.builds("{}: {}".format, _mixed(SERVED), _TEXTS),
    st.builds("{}:{}".format, _mixed(SERVED), st.lists(_TEXTS, max_size=3).map(",".join)),
    st.builds("{}: {}".format, _mixed(STANDARD), st.lists(_ITEMS, max_size=3).map(",".join)),
    st.sampled_from(["Accept: */*", "X-OpenStack-Nova-API-Version: 2.1", "X-API-Version: 1.5"]),
)


def test_V2_fuzzed_the_decided_version_is_the_one_that_every_server_reads() -> None:
    async def build() -> tuple[House, Stand]:
        house = House()
        gateway, _ = await house.behind(serve)
        return house, gateway

    async def one(house: House, gateway: Stand, lines: list[str]) -> None:
        backend = house.backends[0]
        backend.requests.clear()
        gateway.outcomes.clear()
        answer = await gateway.ask(request("GET", "/v1/nodes", *lines))
        seen = await gateway.told()
        if answer.status == 406:
            assert not backend.requests
            return
        assert answer.status == 200, answer
        owned = {fold(SERVED), fold(STANDARD)}
        ours = [(name, value) for name, value in backend.only.fields if fold(name) in owned]
        assert ours == [(SERVED, seen.version), (STANDARD, f"baremetal {seen.version}")]
        assert wsgi(backend.only)[TWIN.upper()] == seen.version == answer.one(SERVED)
        assert Version(*map(int, seen.version.split("."))) in versions("1.1-1.90")

    with asyncio.Runner() as runner:
        house, gateway = runner.run(build())

        @settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(_LINES, max_size=5))
        def examples(lines: list[str]) -> None:
            runner.run(one(house, gateway, lines))

        try:
            examples()
        finally:
            runner.run(house.close())


# --- what replies teach ------------------------------------------------------------------------------------


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


async def stale_map(house: House, **more: RetryPlan) -> tuple[Stand, list[int]]:
    """Two members that are thought to serve 1.90; api-1 was rolled back and refuses. Gives (gateway, executions)."""
    executed: list[int] = []

    async def honest(hop: Hop) -> None:
        while True:
            message = await hop.request()
            executed.append(len(message.body))
            await hop.say(reply(200, f"{SERVED}: {message.one(SERVED)}", body=b"done"))

    old = await house.backend(always(refusal()), declared=None)
    new = await house.backend(honest, declared=None)
    gateway = await house.gateway(old, new, **more)
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
    gateway, executed = await stale_map(house)

    answer = await refused_first(gateway, house, request("POST", "/v1/nodes", asks("1.80"), body=b"hello"))

    # The offer has shrunk to what both serve: 1.80 is no longer in it, and the client is told so.
    assert answer.status == 406
    assert answer.one(HIGHEST) == "1.58"
    assert gateway.facts[-1][1] == "api-1"
    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.58")))).status in (200, 406)
    assert len(house.backends[0].requests) >= 1
    assert executed.count(5) == len(gateway.outcomes) - 2


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
    said = reply(406, f"{SERVED}: 1.31", f"{LOWEST}: 1.1", f"{HIGHEST}: 1.99", body=b"no such feature", reason="No")
    gateway, backend = await house.behind(always(said))

    answer = await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))

    assert (answer.status, answer.body) == (406, b"no such feature")
    assert (answer.one(SERVED), answer.one(HIGHEST)) == ("1.31", "1.90")
    assert len(backend.requests) == 1


async def test_a_backend_that_served_something_else_is_told_as_it_is_and_counted(house: House) -> None:
    gateway, _ = await house.behind(always(reply(200, f"{SERVED}: 1.1", body=b"ok")))

    assert (await gateway.ask(request("GET", "/v1/nodes", asks("1.31")))).one(SERVED) == "1.1"
    assert "contradiction" in gateway.metrics.exposition("")[0].decode()
