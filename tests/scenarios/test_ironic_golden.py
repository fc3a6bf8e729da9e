"""The golden examples I1 to I18 through the gateway, as bytes: its own responses and its rewriting.

The fleet is a server of 21.4 (1.1 to 1.82, ignores the standard field) and one of 39.0 (1.1 to 1.115). So the
offer is the range of the old one, whichever responds. Where releases differ, the gateway responds as 25.0 and
later do.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import HIGHEST, LOWEST, OWN, STANDARD, Head, Ironic, client_fault
from tests.scenarios.testbed import REPEATS, VARY, Testbed, in_front_of, negotiation_fields, version_fields

MIN = (LOWEST, "1.1")
MAX = (HIGHEST, "1.82")
JSON = ("Content-Type", "application/json")


def error(text: bytes) -> bytes:
    """The body of a version refusal, as in the golden examples."""
    return (
        rb'{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"'
        + text
        + rb'\"}"}'
    )


def not_supported(version: bytes) -> bytes:
    return error(
        b"Version " + version + b" was requested but the minor version is not supported by this service. "
        b"The supported version range is: [1.1, 1.82]."
    )


MALFORMED = error(b"Invalid value for X-OpenStack-Ironic-API-Version header")


@pytest.fixture
async def testbed() -> AsyncIterator[Testbed]:
    async with in_front_of(Ironic(82), Ironic(115, reads_standard=True)) as testbed:
        yield testbed


def assert_refused_by_gateway(response: Head, body: bytes, *, length: int, ranged: bool) -> None:
    """The gateway wrote this refusal. `ranged`: the response names the offer."""
    assert (response.status, response.body, response.get("Content-Length")) == (406, body, str(length))
    assert negotiation_fields(response) == {("Vary", VARY), *((MIN, MAX) if ranged else ())}
    assert JSON in response.lines


async def test_I1_default(testbed: Testbed) -> None:
    response = await testbed.same_response("/v1/nodes")

    assert (response.status, response.body) == (200, b'{"nodes": []}')
    assert negotiation_fields(response) == {MIN, MAX, (OWN, "1.1"), ("Vary", VARY)}
    assert JSON in response.lines


@pytest.mark.parametrize(
    "text, served",
    [("1.31", "1.31"), ("latest", "1.82"), ("LATEST", "1.82")],
    ids=["I2", "I3 latest", "I3 LATEST"],
)
async def test_I2_I3_legacy_header(testbed: Testbed, text: str, served: str) -> None:
    response = await testbed.same_response("/v1/nodes", (OWN, text))

    assert (response.status, version_fields(response)) == (200, ("1.1", "1.82", served))
    sent = {OWN: served, STANDARD: f"baremetal {served}"}
    assert all(head.versions == sent for head in testbed.forwarded)


@pytest.mark.parametrize(
    "text, length", [("1.999", 218), ("1.0", 216), ("1.83", 217)], ids=["I4", "I5", "offer"]
)
async def test_I4_I5_outside_the_range(testbed: Testbed, text: str, length: int) -> None:
    assert_refused_by_gateway(
        await testbed.same_response("/v1/nodes", (OWN, text)),
        not_supported(text.encode()),
        length=length,
        ranged=True,
    )
    assert testbed.forwarded == []


async def test_I6_another_major(testbed: Testbed) -> None:
    body = error(
        b"Mutually exclusive versions requested. Version 2.1 requested but not supported by this service. "
        b"The supported version range is: [1.1, 1.82]."
    )

    assert_refused_by_gateway(
        await testbed.same_response("/v1/nodes", (OWN, "2.1")), body, length=230, ranged=True
    )
    assert testbed.forwarded == []


@pytest.mark.parametrize("line", [(OWN, "spam"), (OWN, "1.05"), (STANDARD, "baremetal spam")])
async def test_I7_malformed(testbed: Testbed, line: tuple[str, str]) -> None:
    assert_refused_by_gateway(
        await testbed.same_response("/v1/nodes", line), MALFORMED, length=145, ranged=False
    )
    assert testbed.forwarded == []


@pytest.mark.parametrize(
    "lines, served",
    [
        ([(STANDARD, "baremetal 1.31")], "1.31"),
        ([(STANDARD, "baremetal 1.31"), (OWN, "1.9")], "1.31"),
        ([(STANDARD, "compute 2.90, baremetal 1.31"), (OWN, "1.9")], "1.31"),
        ([(STANDARD, "compute 2.90"), (OWN, "1.9")], "1.9"),
        ([(STANDARD, "compute 2.90")], "1.1"),
    ],
)
async def test_I8_the_standard_field_counts_even_if_the_server_does_not_read_it(
    testbed: Testbed, lines: list[tuple[str, str]], served: str
) -> None:
    """Behind a plain load balancer, the old server would execute the first of these at 1.1."""
    assert version_fields(await testbed.same_response("/v1/nodes", *lines)) == ("1.1", "1.82", served)
    assert all(head.versions == {OWN: served, STANDARD: f"baremetal {served}"} for head in testbed.forwarded)


async def test_I9_an_empty_value_counts_as_no_version(testbed: Testbed) -> None:
    assert version_fields(await testbed.same_response("/v1/nodes", (OWN, ""))) == ("1.1", "1.82", "1.1")


@pytest.mark.parametrize(
    "lines",
    [
        [(OWN, "1.58, 1.60")],
        [(OWN, "1.58"), (OWN, "1.60")],
        [(OWN.lower(), "1.58"), (OWN.upper(), "1.60")],
    ],
)
async def test_I10_the_last_of_several_counts_and_one_line_is_forwarded(
    testbed: Testbed, lines: list[tuple[str, str]]
) -> None:
    assert version_fields(await testbed.same_response("/v1/nodes", *lines)) == ("1.1", "1.82", "1.60")
    for head in testbed.forwarded:
        assert (head.get(OWN), head.get(STANDARD)) == ("1.60", "baremetal 1.60")


async def test_I11_a_missing_resource(testbed: Testbed) -> None:
    response = await testbed.same_response("/v1/nodes/nope", (OWN, "1.31"))

    assert (response.status, response.body) == (404, client_fault("Node nope could not be found."))
    assert negotiation_fields(response) == {MIN, MAX, (OWN, "1.31"), ("Vary", VARY)}


async def test_I12_a_missing_route(testbed: Testbed) -> None:
    response = await testbed.same_response("/v1/bogus")

    assert (response.status, negotiation_fields(response)) == (404, {("Vary", VARY)})
    assert (
        response.body
        == rb'{"error_message": "{\"code\": 404, \"title\": \"Not Found\", \"description\": \"\"}"}'
    )


@pytest.mark.parametrize("line", [None, (OWN, "1.999"), (OWN, "spam"), (STANDARD, "baremetal 1.999")])
async def test_I13_I14_the_root_contains_the_offer_and_ignores_versions(
    testbed: Testbed, line: tuple[str, str] | None
) -> None:
    response = await testbed.same_response("/", *([line] if line else []))

    assert response.status == 200
    assert (
        response.body
        == testbed.servers[0].root(testbed.base)
        == testbed.servers[1].root(testbed.base, "1.82")
    )
    assert response.get("Content-Length") == str(len(response.body))
    assert negotiation_fields(response) == {("Vary", VARY)}
    assert all(head.versions == {} for head in testbed.forwarded)


@pytest.mark.parametrize("target", ["/v1", "/v1/"])
async def test_v1_contains_the_offer_in_fields_and_body(testbed: Testbed, target: str) -> None:
    response = await testbed.same_response(target)

    assert (response.status, version_fields(response)) == (200, ("1.1", "1.82", "1.1"))
    assert response.body == testbed.servers[0].v1(testbed.base)
    assert [head.get("Accept-Encoding") for head in testbed.forwarded] == ["identity"] * REPEATS


async def test_I15_a_ceiling_looks_like_a_pinned_server_everywhere() -> None:
    async with in_front_of(Ironic(115), Ironic(115), offer='{ceiling: {release: "2025.1"}}') as testbed:
        assert version_fields(await testbed.same_response("/v1/nodes")) == ("1.1", "1.96", "1.1")
        assert version_fields(await testbed.same_response("/v1/nodes", (OWN, "latest"))) == (
            "1.1",
            "1.96",
            "1.96",
        )
        assert (await testbed.same_response("/")).body == testbed.servers[0].root(testbed.base, "1.96")
        assert (await testbed.same_response("/v1")).body == testbed.servers[0].v1(testbed.base, "1.96")
        refused = await testbed.same_response("/v1/nodes", (OWN, "1.97"))
        assert (refused.status, version_fields(refused)) == (406, ("1.1", "1.96", None))
        assert b"[1.1, 1.96]." in refused.body


async def test_I16_a_resource_newer_than_the_version_gets_the_404_of_the_server(testbed: Testbed) -> None:
    response = await testbed.same_response("/v1/portgroups", (OWN, "1.5"))

    assert (response.status, response.body) == (404, client_fault("Resource could not be found."))
    assert version_fields(response) == ("1.1", "1.82", "1.5")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json, */*"])
async def test_I17_a_refusal_is_json_whatever_accept_says(testbed: Testbed, accept: str) -> None:
    response = await testbed.same_response("/v1/nodes", (OWN, "1.999"), ("Accept", accept))

    assert_refused_by_gateway(response, not_supported(b"1.999"), length=218, ranged=True)


async def test_I18_a_feature_newer_than_the_version_gets_the_406_of_the_server_and_teaches_nothing(
    testbed: Testbed,
) -> None:
    response = await testbed.same_response("/v1/nodes?conductor_group=x", (OWN, "1.31"))

    text = "Request not acceptable. The minimal required API version should be 1.46"
    assert (response.status, response.body) == (406, client_fault(text))
    assert version_fields(response) == ("1.1", "1.82", "1.31")
    assert len(testbed.forwarded) == REPEATS, "each request must be sent once only"
    assert testbed.offer == "1.1-1.82"


async def test_a_head_request_has_the_same_headers_and_no_body(testbed: Testbed) -> None:
    response = await testbed.send("/v1/nodes", (OWN, "1.999"), method="HEAD", bodiless=True)

    assert (response.status, version_fields(response), response.get("Content-Length")) == (
        406,
        ("1.1", "1.82", None),
        "218",
    )


# --- links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/v1"])
async def test_documents_below_a_prefix_have_links_that_a_client_can_follow(target: str) -> None:
    async with in_front_of(Ironic(82), Ironic(115), match="{path: /baremetal}") as testbed:
        response = await testbed.same_response(target)

        server = testbed.servers[0]
        assert response.body == (server.root(testbed.base) if target == "/" else server.v1(testbed.base))
        assert {head.target for head in testbed.forwarded} == {target}
        assert {head.get("X-Forwarded-Prefix") for head in testbed.forwarded} == {"/baremetal"}


@pytest.mark.parametrize("reads_forwarded", [False, True])
@pytest.mark.parametrize("target", ["/", "/v1"])
async def test_links_name_the_address_that_the_outermost_client_used(
    target: str, reads_forwarded: bool
) -> None:
    """A trusted proxy in front terminates TLS. A server that reads its fields gets the prefix only once."""
    server = Ironic(82, reads_forwarded=reads_forwarded)
    async with in_front_of(server, match="{path: /baremetal}", trusted="[127.0.0.0/8]") as testbed:
        lines = (
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "api.test"),
            ("X-Forwarded-Prefix", "/outer"),
        )
        public = "https://api.test/outer/baremetal"

        response = await testbed.send(target, *lines)

        assert response.body == (server.root(public) if target == "/" else server.v1(public))


async def test_forwarded_fields_of_other_peers_are_not_trusted() -> None:
    server = Ironic(82, reads_forwarded=True)
    async with in_front_of(server) as testbed:
        response = await testbed.send(
            "/v1", ("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test")
        )

        assert response.body == server.v1(testbed.base)
        assert [head.get("X-Forwarded-Host") for head in testbed.forwarded] == [testbed.authority]
        assert [head.get("Forwarded") for head in testbed.forwarded] == [None]


async def test_R3_V15_of_the_documents_of_an_old_server_v1_gets_the_range() -> None:
    """`/v1` had no range until 11, `/` had none until 4.2: the range was in fields only. `/` stays so."""
    async with in_front_of(Ironic(31, document_range=False)) as testbed:
        server = testbed.servers[0]
        assert (await testbed.same_response("/")).body == server.root(testbed.base)

        document = json.loads((await testbed.same_response("/v1")).body)
        version = document.pop("version")
        assert document == json.loads(server.v1(testbed.base))
        assert (version["min_version"], version["version"]) == ("1.1", "1.31")
