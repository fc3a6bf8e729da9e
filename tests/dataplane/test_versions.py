"""The invariant: the negotiated version is the one in the bytes that the backend received, and the one that
any WSGI, ASGI or Rack server reads from these bytes. The ids are rows V of docs/threats.md."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.http.message import normalize_name
from gateway.core.versions.version import Version
from tests.kit.backends import always, serve
from tests.kit.examples import examples
from tests.kit.ironic import versions
from tests.kit.messages import (
    MAX_FIELD,
    STANDARD_FIELD,
    VERSION_FIELD,
    Message,
    chunked,
    request,
    response,
    version_line,
)
from tests.kit.workers import Gateway, Testbed

ALIAS = VERSION_FIELD.replace("-", "_")


def wsgi(message: Message) -> dict[str, str]:
    """The environment of the laxest server: all separators in names are one, several lines are joined."""
    environ: dict[str, str] = {}
    for name, value in message.fields:
        key = re.sub("[^A-Z0-9]", "_", name.upper())
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def received_version(message: Message) -> str:
    """The version that any server reads, or empty; fails where two servers could differ."""
    environ = wsgi(message)
    spellings = [name for name, _ in message.fields if "version" in name.lower()]
    if not spellings:
        return ""
    assert spellings == [VERSION_FIELD, STANDARD_FIELD], "each field exactly once, in canonical spelling"
    version = environ[ALIAS.upper()]
    assert environ["OPENSTACK_API_VERSION"].split(",")[0] == f"baremetal {version}"
    return version


async def forwarded_version(testbed: Testbed, *lines: str) -> str:
    """The version that the backend received; empty if the gateway refused the request."""
    gateway, backend = await testbed.gateway_and_backend(serve)
    answer = await gateway.request(request("GET", "/v1/nodes", *lines))
    record = await gateway.recorded()
    if answer.status == 406:
        assert not backend.requests
        return ""
    assert answer.status == 200
    version = received_version(backend.only_request)
    assert record.version == version == answer.one(VERSION_FIELD)
    return version


async def test_V1_twice_the_same(testbed: Testbed) -> None:
    assert await forwarded_version(testbed, version_line("1.31"), version_line("1.31")) == "1.31"


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{VERSION_FIELD}: 1.10", f"{VERSION_FIELD}: 1.20"), "1.20"),
        ((f"{VERSION_FIELD.upper()}: 1.10", f"{VERSION_FIELD.lower()}: 1.20"), "1.20"),
        ((f"{VERSION_FIELD}: 1.10", f"{STANDARD_FIELD}: baremetal 1.30", f"{VERSION_FIELD}: 1.20"), "1.30"),
        ((f"{STANDARD_FIELD}: baremetal 1.30", f"{STANDARD_FIELD.lower()}: baremetal 1.31"), "1.31"),
        ((f"{VERSION_FIELD}: 1.10", f"{VERSION_FIELD}: 9.9"), ""),
    ],
)
async def test_V2_the_last_of_several_values_counts_and_one_line_is_sent(
    testbed: Testbed, lines: tuple[str, ...], version: str
) -> None:
    assert await forwarded_version(testbed, *lines) == version


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{STANDARD_FIELD}: compute 2.1, identity 3.8",), "1.1"),
        ((f"{STANDARD_FIELD}: compute 2.1, baremetal 1.40, identity 3.8",), "1.40"),
        ((f"{STANDARD_FIELD}: baremetal 1.40,baremetal 1.41",), "1.41"),
        ((f"{STANDARD_FIELD}: baremetal-introspection 1.40",), "1.1"),
        ((f"{VERSION_FIELD}: 1.10, 1.20",), "1.20"),
        ((f"{VERSION_FIELD}: 1.10,",), "1.1"),
    ],
)
async def test_V3_lists(testbed: Testbed, lines: tuple[str, ...], version: str) -> None:
    assert await forwarded_version(testbed, *lines) == version


@pytest.mark.parametrize(
    "lines, version",
    [
        ((f"{ALIAS}: 1.20",), ("1.20", "1.1")),
        ((f"{VERSION_FIELD}: 1.10", f"{ALIAS}: 1.20"), ("1.10", "1.20")),
        ((f"{ALIAS.lower()}: 1.20", f"{VERSION_FIELD}: 1.10"), ("1.10",)),
        (("X_OpenStack-Ironic_API-Version: 1.20", "OPENSTACK_API_VERSION: baremetal 1.30"), ("1.1", "1.30")),
    ],
)
async def test_V4_aliases(testbed: Testbed, lines: tuple[str, ...], version: tuple[str, ...]) -> None:
    assert await forwarded_version(testbed, *lines) in version


@pytest.mark.parametrize(
    "text",
    [
        "1.\u0663",
        "\uff11.5",
        "1.\u00b2",
        "01.5",
        "1.05",
        "+1.5",
        "1.+5",
        "-1.5",
        "1e1",
        "1.5e1",
        "1_0.5",
        "1.5_0",
        "1 .5",
        "1. 5",
        "0x1.5",
        "NaN",
        "inf",
        "1.",
        ".5",
        "1",
        "1.5.0",
        "1.5\u00a0",
        "latest\u00a0",
        "latest!",
        "lates",
        "1.5;q=1",
        '"1.5"',
        "9" * 7000,
        "1." + "9" * 7000,
        "1.1000000",
    ],
)
async def test_V6_malformed_versions(testbed: Testbed, text: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    answer = await gateway.request(request("GET", "/v1/nodes", version_line(text.encode().decode("latin-1"))))

    assert answer.status == 406
    assert not backend.requests
    assert not answer.every(VERSION_FIELD)


@pytest.mark.parametrize(
    "text, version", [("1.5 ", "1.5"), ("\t1.5\t", "1.5"), ("latest", "1.90"), ("LATEST", "1.90")]
)
async def test_V6_whitespace_around_a_version_is_removed(testbed: Testbed, text: str, version: str) -> None:
    assert await forwarded_version(testbed, version_line(text)) == version


async def test_V7_listed_in_connection(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    for listed in (VERSION_FIELD, STANDARD_FIELD.lower(), ALIAS):
        answer = await gateway.request(
            request("GET", "/v1/nodes", version_line("1.31"), f"Connection: {listed}")
        )
        assert answer.status == 400
    assert not backend.requests


async def test_V7_in_trailers(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    body = chunked(b"x" * 10)[:-2] + f"{version_line('1.50')}\r\n\r\n".encode()

    assert (
        await gateway.request(
            request("POST", "/v1/x", version_line("1.31"), "Transfer-Encoding: chunked"), body
        )
    ).status == 200
    assert received_version(backend.only_request) == "1.31"


async def test_V7_folded(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}:", " 1.31"))).status == 400
    assert not backend.requests


@pytest.mark.parametrize(
    "lines",
    [
        (f"{VERSION_FIELD}:",),
        (f"{VERSION_FIELD}:   ",),
        (version_line("1.31"), f"{VERSION_FIELD}:"),
        (f"{STANDARD_FIELD}:",),
    ],
)
async def test_V7_empty_is_absent(testbed: Testbed, lines: tuple[str, ...]) -> None:
    assert await forwarded_version(testbed, *lines) == "1.1"


@pytest.mark.parametrize(
    "line",
    [
        "Forwarded: for=6.6.6.6;host=evil",
        "X-Forwarded-Host: evil",
        "X-Real-IP: 6.6.6.6",
        "X_Forwarded_Proto: gopher",
    ],
)
async def test_V12_headers_that_the_gateway_writes_are_removed(testbed: Testbed, line: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", "/v1/nodes", line))).status == 200
    assert line.partition(": ")[2] not in backend.only_request.head.decode()


async def test_the_root_is_not_negotiated_and_gets_no_version(testbed: Testbed) -> None:
    document = response(200, "Content-Type: application/json", body=b'{"versions": []}')
    gateway, backend = await testbed.gateway_and_backend(always(document))

    answer = await gateway.request(
        request("GET", "/", version_line("9.99"), f"{ALIAS}: 1.2", f"{STANDARD_FIELD}: baremetal 1.5")
    )
    assert answer.status == 200
    assert received_version(backend.only_request) == ""


# --- the same with random fields ---------------------------------------------------------------------------


def _mixed(name: str) -> st.SearchStrategy[str]:
    """A name in any case, with any of its dashes as another separator."""
    letters = [
        st.sampled_from("--_.~" if letter == "-" else sorted({letter.lower(), letter.upper()}))
        for letter in name
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
    st.builds("{}: {}".format, _mixed(VERSION_FIELD), _TEXTS),
    st.builds("{}:{}".format, _mixed(VERSION_FIELD), st.lists(_TEXTS, max_size=3).map(",".join)),
    st.builds("{}: {}".format, _mixed(STANDARD_FIELD), st.lists(_ITEMS, max_size=3).map(",".join)),
    st.sampled_from(["Accept: */*", "X-OpenStack-Nova-API-Version: 2.1", "X-API-Version: 1.5"]),
)


def test_V2_fuzzed_every_server_reads_the_negotiated_version() -> None:
    async def build() -> tuple[Testbed, Gateway]:
        testbed = Testbed()
        gateway, _ = await testbed.gateway_and_backend(serve)
        return testbed, gateway

    async def one(testbed: Testbed, gateway: Gateway, lines: list[str]) -> None:
        backend = testbed.backends[0]
        backend.requests.clear()
        gateway.records.clear()
        answer = await gateway.request(request("GET", "/v1/nodes", *lines))
        record = await gateway.recorded()
        if answer.status == 406:
            assert not backend.requests
            return
        assert answer.status == 200, answer
        owned = {normalize_name(VERSION_FIELD), normalize_name(STANDARD_FIELD)}
        owned_fields = [
            (name, value) for name, value in backend.only_request.fields if normalize_name(name) in owned
        ]
        assert owned_fields == [
            (VERSION_FIELD, record.version),
            (STANDARD_FIELD, f"baremetal {record.version}"),
        ]
        assert wsgi(backend.only_request)[ALIAS.upper()] == record.version == answer.one(VERSION_FIELD)
        assert Version(*map(int, record.version.split("."))) in versions("1.1-1.90")

    with asyncio.Runner() as runner:
        testbed, gateway = runner.run(build())

        @settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(_LINES, max_size=5))
        def any_lines(lines: list[str]) -> None:
            runner.run(one(testbed, gateway, lines))

        try:
            any_lines()
        finally:
            runner.run(testbed.close())


@pytest.mark.parametrize("separator", "!#$%&'*+.^`|~")
async def test_R_A6_aliases_with_any_separator_reach_no_backend(testbed: Testbed, separator: str) -> None:
    aliases = [name.replace("-", separator) for name in (VERSION_FIELD, STANDARD_FIELD, "X-Forwarded-Host")]
    gateway, backend = await testbed.gateway_and_backend(serve)

    answer = await gateway.request(
        request("GET", "/v1/nodes", *(f"{alias}: 1.58" for alias in aliases), version_line("1.31"))
    )

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.31")
    assert received_version(backend.only_request) == "1.31"
    assert not {alias.lower() for alias in aliases} & backend.only_request.names


@pytest.mark.parametrize("separator", "!#$%&'*+.^`|~")
async def test_R_A6_aliases_with_any_separator_reach_no_client(testbed: Testbed, separator: str) -> None:
    aliases = [name.replace("-", separator) for name in (VERSION_FIELD, MAX_FIELD, "Content-Length")]
    lines = (version_line("1.31"), f"{MAX_FIELD}: 1.90", *(f"{alias}: 1" for alias in aliases))
    gateway, _ = await testbed.gateway_and_backend(always(response(200, *lines, "X-Other: 1", body=b"{}")))

    answer = await gateway.request(request("GET", "/v1/nodes", version_line("1.31")))

    assert answer.one("x-other") == "1"
    assert not {alias.lower() for alias in aliases} & answer.names
    assert (answer.one(VERSION_FIELD), answer.one(MAX_FIELD)) == ("1.31", "1.90")
