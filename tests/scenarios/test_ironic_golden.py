"""The golden examples I1 to I18 through the gateway, as bytes: what it answers, and what it rewrites.

Behind it stand a server of 21.4 (1.1 to 1.82; ignores the standard header) and one of 39.0 (1.1 to 1.115), so
the offer is the old one's range whichever of them answers. Where releases differ the gateway speaks as 25.0
and later do.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import HIGHEST, LOWEST, OWN, STANDARD, Head, Ironic, client_fault
from tests.scenarios.stand import VARY, Stand, in_front_of, told

MIN = (LOWEST, "1.1")
MAX = (HIGHEST, "1.82")
JSON = ("Content-Type", "application/json")
TRIES = 12
"""Requests: enough that both servers have answered, nearly always; no assertion rests on that."""


def error(text: bytes) -> bytes:
    """The body of a version refusal, as the examples show it."""
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
async def stand() -> AsyncIterator[Stand]:
    async with in_front_of(Ironic(82), Ironic(115, reads_standard=True)) as stand:
        yield stand


async def same(stand: Stand, target: str, *lines: tuple[str, str]) -> Head:
    """The reply, which is the same every time, whichever server made it."""
    replies = [await stand.ask(target, *lines) for _ in range(TRIES)]
    one = {(each.status, each.body, *sorted(each.lines)) for each in replies}
    assert len(one) == 1, "the client can tell the servers apart"
    return replies[0]


def about_versions(reply: Head) -> set[tuple[str, str]]:
    """All version lines and `Vary`, names as they were written."""
    return {line for line in reply.lines if line[0] in reply.versions or line[0] == "Vary"}


def refuses(reply: Head, body: bytes, *, length: int, ranged: bool) -> None:
    """The gateway said this by itself."""
    assert (reply.status, reply.body, reply.get("Content-Length")) == (406, body, str(length))
    assert about_versions(reply) == {("Vary", VARY), *((MIN, MAX) if ranged else ())}
    assert JSON in reply.lines


async def test_I1_default(stand: Stand) -> None:
    reply = await same(stand, "/v1/nodes")

    assert (reply.status, reply.body) == (200, b'{"nodes": []}')
    assert about_versions(reply) == {MIN, MAX, (OWN, "1.1"), ("Vary", VARY)}
    assert JSON in reply.lines


@pytest.mark.parametrize(
    "text, served",
    [("1.31", "1.31"), ("latest", "1.82"), ("LATEST", "1.82")],
    ids=["I2", "I3 latest", "I3 LATEST"],
)
async def test_I2_I3_legacy_header(stand: Stand, text: str, served: str) -> None:
    reply = await same(stand, "/v1/nodes", (OWN, text))

    assert (reply.status, told(reply)) == (200, ("1.1", "1.82", served))
    sent = {OWN: served, STANDARD: f"baremetal {served}"}
    assert all(head.versions == sent for head in stand.asked)


@pytest.mark.parametrize(
    "text, length", [("1.999", 218), ("1.0", 216), ("1.83", 217)], ids=["I4", "I5", "offer"]
)
async def test_I4_I5_outside_the_range(stand: Stand, text: str, length: int) -> None:
    refuses(
        await same(stand, "/v1/nodes", (OWN, text)), not_supported(text.encode()), length=length, ranged=True
    )
    assert stand.asked == []


async def test_I6_another_major(stand: Stand) -> None:
    body = error(
        b"Mutually exclusive versions requested. Version 2.1 requested but not supported by this service. "
        b"The supported version range is: [1.1, 1.82]."
    )

    refuses(await same(stand, "/v1/nodes", (OWN, "2.1")), body, length=230, ranged=True)
    assert stand.asked == []


@pytest.mark.parametrize("line", [(OWN, "spam"), (OWN, "1.05"), (STANDARD, "baremetal spam")])
async def test_I7_malformed(stand: Stand, line: tuple[str, str]) -> None:
    refuses(await same(stand, "/v1/nodes", line), MALFORMED, length=145, ranged=False)
    assert stand.asked == []


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
async def test_I8_the_standard_header_counts_even_where_the_server_does_not_read_it(
    stand: Stand, lines: list[tuple[str, str]], served: str
) -> None:
    """Behind a plain balancer the old server would have executed the first of these at 1.1."""
    assert told(await same(stand, "/v1/nodes", *lines)) == ("1.1", "1.82", served)
    assert all(head.versions == {OWN: served, STANDARD: f"baremetal {served}"} for head in stand.asked)


async def test_I9_an_empty_value_is_absence(stand: Stand) -> None:
    assert told(await same(stand, "/v1/nodes", (OWN, ""))) == ("1.1", "1.82", "1.1")


@pytest.mark.parametrize(
    "lines",
    [
        [(OWN, "1.58, 1.60")],
        [(OWN, "1.58"), (OWN, "1.60")],
        [(OWN.lower(), "1.58"), (OWN.upper(), "1.60")],
    ],
)
async def test_I10_the_last_of_several_wins_and_one_line_leaves(
    stand: Stand, lines: list[tuple[str, str]]
) -> None:
    assert told(await same(stand, "/v1/nodes", *lines)) == ("1.1", "1.82", "1.60")
    for head in stand.asked:
        assert (head.get(OWN), head.get(STANDARD)) == ("1.60", "baremetal 1.60")


async def test_I11_a_resource_that_is_not_there(stand: Stand) -> None:
    reply = await same(stand, "/v1/nodes/nope", (OWN, "1.31"))

    assert (reply.status, reply.body) == (404, client_fault("Node nope could not be found."))
    assert about_versions(reply) == {MIN, MAX, (OWN, "1.31"), ("Vary", VARY)}


async def test_I12_a_route_that_is_not_there(stand: Stand) -> None:
    reply = await same(stand, "/v1/bogus")

    assert (reply.status, about_versions(reply)) == (404, {("Vary", VARY)})
    assert (
        reply.body
        == rb'{"error_message": "{\"code\": 404, \"title\": \"Not Found\", \"description\": \"\"}"}'
    )


@pytest.mark.parametrize("line", [None, (OWN, "1.999"), (OWN, "spam"), (STANDARD, "baremetal 1.999")])
async def test_I13_I14_the_root_tells_the_offer_and_hears_no_version(
    stand: Stand, line: tuple[str, str] | None
) -> None:
    reply = await same(stand, "/", *([line] if line else []))

    assert reply.status == 200
    assert reply.body == stand.servers[0].root(stand.base) == stand.servers[1].root(stand.base, "1.82")
    assert reply.get("Content-Length") == str(len(reply.body))
    assert about_versions(reply) == {("Vary", VARY)}
    assert all(head.versions == {} for head in stand.asked)


@pytest.mark.parametrize("target", ["/v1", "/v1/"])
async def test_v1_tells_the_offer_in_headers_and_body(stand: Stand, target: str) -> None:
    reply = await same(stand, target)

    assert (reply.status, told(reply)) == (200, ("1.1", "1.82", "1.1"))
    assert reply.body == stand.servers[0].v1(stand.base)
    assert [head.get("Accept-Encoding") for head in stand.asked] == ["identity"] * TRIES


async def test_I15_a_ceiling_looks_like_a_pinned_server_everywhere() -> None:
    async with in_front_of(Ironic(115), Ironic(115), offer='{ceiling: {release: "2025.1"}}') as stand:
        assert told(await same(stand, "/v1/nodes")) == ("1.1", "1.96", "1.1")
        assert told(await same(stand, "/v1/nodes", (OWN, "latest"))) == ("1.1", "1.96", "1.96")
        assert (await same(stand, "/")).body == stand.servers[0].root(stand.base, "1.96")
        assert (await same(stand, "/v1")).body == stand.servers[0].v1(stand.base, "1.96")
        refused = await same(stand, "/v1/nodes", (OWN, "1.97"))
        assert (refused.status, told(refused)) == (406, ("1.1", "1.96", None))
        assert b"[1.1, 1.96]." in refused.body


async def test_I16_a_resource_newer_than_the_version_is_the_servers_own_404(stand: Stand) -> None:
    reply = await same(stand, "/v1/portgroups", (OWN, "1.5"))

    assert (reply.status, reply.body) == (404, client_fault("Resource could not be found."))
    assert told(reply) == ("1.1", "1.82", "1.5")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json, */*"])
async def test_I17_a_refusal_is_json_whatever_accept_says(stand: Stand, accept: str) -> None:
    reply = await same(stand, "/v1/nodes", (OWN, "1.999"), ("Accept", accept))

    refuses(reply, not_supported(b"1.999"), length=218, ranged=True)


async def test_I18_a_feature_newer_than_the_version_is_the_servers_own_406_and_no_news(stand: Stand) -> None:
    reply = await same(stand, "/v1/nodes?conductor_group=x", (OWN, "1.31"))

    text = "Request not acceptable. The minimal required API version should be 1.46"
    assert (reply.status, reply.body) == (406, client_fault(text))
    assert told(reply) == ("1.1", "1.82", "1.31")
    assert len(stand.asked) == TRIES, "each was sent once: nothing is tried elsewhere"
    assert stand.offer == "1.1-1.82"


async def test_a_head_request_has_the_same_headers_and_no_body(stand: Stand) -> None:
    reply = await stand.ask("/v1/nodes", (OWN, "1.999"), method="HEAD", bodiless=True)

    assert (reply.status, told(reply), reply.get("Content-Length")) == (406, ("1.1", "1.82", None), "218")


# --- links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/v1"])
async def test_documents_below_a_prefix_have_links_that_a_client_can_follow(target: str) -> None:
    async with in_front_of(Ironic(82), Ironic(115), match="{path: /baremetal}") as stand:
        reply = await same(stand, target)

        server = stand.servers[0]
        assert reply.body == (server.root(stand.base) if target == "/" else server.v1(stand.base))
        assert {head.target for head in stand.asked} == {target}
        assert {head.get("X-Forwarded-Prefix") for head in stand.asked} == {"/baremetal"}


@pytest.mark.parametrize("reads_forwarded", [False, True])
@pytest.mark.parametrize("target", ["/", "/v1"])
async def test_links_name_what_the_outermost_client_asked_for_whoever_builds_them(
    target: str, reads_forwarded: bool
) -> None:
    """Behind a trusted proxy that ends TLS; a server that reads its headers must not get the prefix twice."""
    server = Ironic(82, reads_forwarded=reads_forwarded)
    async with in_front_of(server, match="{path: /baremetal}", trusted="[127.0.0.0/8]") as stand:
        lines = (
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "api.test"),
            ("X-Forwarded-Prefix", "/outer"),
        )
        public = "https://api.test/outer/baremetal"

        reply = await stand.ask(target, *lines)

        assert reply.body == (server.root(public) if target == "/" else server.v1(public))


async def test_forwarded_headers_of_anybody_else_are_not_believed() -> None:
    server = Ironic(82, reads_forwarded=True)
    async with in_front_of(server) as stand:
        reply = await stand.ask("/v1", ("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test"))

        assert reply.body == server.v1(stand.base)
        assert [head.get("X-Forwarded-Host") for head in stand.asked] == [stand.authority]
        assert [head.get("Forwarded") for head in stand.asked] == [None]


async def test_documents_of_an_old_server_that_tell_no_range_keep_their_shape() -> None:
    """Until 11 `/v1` had no version, until 4.2 neither had `/`: the range is in the headers alone."""
    async with in_front_of(Ironic(31, document_range=False)) as stand:
        for target, body in (
            ("/", stand.servers[0].root(stand.base)),
            ("/v1", stand.servers[0].v1(stand.base)),
        ):
            assert (await same(stand, target)).body == body
