"""The invariant: the version that was decided on = the one in the bytes that the backend received = the one
that any WSGI, ASGI or Rack server would read from those bytes. Ids are rows V of the list of attacks."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.message import fold
from gateway.core.version import Version
from tests.dataplane.stand import (
    House,
    Stand,
    always,
    serve,
    versions,
)
from tests.dataplane.wire import (
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
async def test_V2_of_several_the_last_counts_and_one_goes_out(
    house: House, lines: tuple[str, ...], version: str
) -> None:
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
        "1.\u0663", "\uff11.5", "1.\u00b2", "01.5", "1.05", "+1.5", "1.+5", "-1.5", "1e1", "1.5e1", "1_0.5",
        "1.5_0", "1 .5", "1. 5", "0x1.5", "NaN", "inf", "1.", ".5", "1", "1.5.0", "1.5\u00a0", "latest\u00a0",
        "latest!", "lates", "1.5;q=1", '"1.5"', "9" * 7000, "1." + "9" * 7000, "1.1000000",
    ],
)  # fmt: skip
async def test_V6_texts_that_are_no_version(house: House, text: str) -> None:
    gateway, backend = await house.behind(serve)

    answer = await gateway.ask(request("GET", "/v1/nodes", asks(text.encode().decode("latin-1"))))

    assert answer.status == 406
    assert not backend.requests
    assert not answer.every(SERVED)


@pytest.mark.parametrize(
    "text, version", [("1.5 ", "1.5"), ("\t1.5\t", "1.5"), ("latest", "1.90"), ("LATEST", "1.90")]
)
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

    assert (
        await gateway.ask(request("POST", "/v1/x", asks("1.31"), "Transfer-Encoding: chunked"), body)
    ).status == 200
    assert received(backend.only) == "1.31"


async def test_V7_folded(house: House) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", "/v1/nodes", f"{SERVED}:", " 1.31"))).status == 400
    assert not backend.requests


@pytest.mark.parametrize(
    "lines", [(f"{SERVED}:",), (f"{SERVED}:   ",), (asks("1.31"), f"{SERVED}:"), (f"{STANDARD}:",)]
)
async def test_V7_empty_is_absent(house: House, lines: tuple[str, ...]) -> None:
    assert await forwarded(house, *lines) == "1.1"


@pytest.mark.parametrize(
    "line",
    [
        "Forwarded: for=6.6.6.6;host=evil",
        "X-Forwarded-Host: evil",
        "X-Real-IP: 6.6.6.6",
        "X_Forwarded_Proto: gopher",
    ],
)
async def test_V12_headers_that_are_ours_to_write_are_stripped(house: House, line: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", "/v1/nodes", line))).status == 200
    assert line.partition(": ")[2] not in backend.only.head.decode()


async def test_the_root_is_not_negotiated_and_gets_no_version(house: House) -> None:
    gateway, backend = await house.behind(always(reply(200, body=b"root")))

    answer = await gateway.ask(
        request("GET", "/", asks("9.99"), f"{TWIN}: 1.2", f"{STANDARD}: baremetal 1.5")
    )
    assert answer.status == 200
    assert received(backend.only) == ""


# --- the same, by chance -----------------------------------------------------------------------------------


def _mixed(name: str) -> st.SearchStrategy[str]:
    """A name in any case, with any of its dashes as underscores."""
    letters = [
        st.sampled_from(sorted({each.lower(), each.upper(), "_" if each == "-" else each})) for each in name
    ]
    return st.tuples(*letters).map("".join)


_TEXTS = st.one_of(
    st.sampled_from(
        ["1.1", "1.10", "1.58", "1.90", "1.91", "latest", "", "2.1", "1.05", "+1.5", "1.5 ", "0.9", "x"]
    ),
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
