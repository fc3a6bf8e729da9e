"""What RFC 9110 and 9112 require of every proxy: methods, hosts, `Date` and `Max-Forwards` (threats R-B6)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.fleet.service import Match
from gateway.dataplane.local_responses.failures import IDEMPOTENT
from tests.dataplane.assertions import assert_refused
from tests.kit.backends import UpstreamConnection, always, serve
from tests.kit.messages import Message, request, request_head, response
from tests.kit.workers import Testbed

# --- methods -----------------------------------------------------------------------------------------------

UNKNOWN = ["FROBNICATE", "M-SEARCH", "VERSION-CONTROL", "UPDATEREDIRECTREF", "X", "foo", "Foo.bar!", "`'*~|"]


@pytest.mark.parametrize("method", UNKNOWN)
async def test_R_B6_an_unknown_method_is_forwarded_as_it_came(testbed: Testbed, method: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(2):
        assert (await client.request(request(method, "/v1/nodes?a=b", body=b"hello"))).status == 200
    assert [message.start_line for message in backend.requests] == [f"{method} /v1/nodes?a=b HTTP/1.1"] * 2
    assert backend.requests[1].body == b"hello"
    assert (await gateway.recorded(2)).method == method


async def test_R_B6_an_unknown_method_is_never_sent_again(testbed: Testbed) -> None:
    """Nobody knows whether it is idempotent (RFC 9110 9.2.2)."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()

    backends = [await testbed.backend(script) for _ in range(2)]
    gateway = await testbed.gateway(*backends)

    assert (await gateway.request(request("FROBNICATE"))).status == 502
    assert sum(len(backend.requests) for backend in backends) == 1
    assert not {"FROBNICATE", "get", "Get"} & IDEMPOTENT


@pytest.mark.parametrize(
    "start",
    [
        "CONNECT api.example:443 HTTP/1.1",
        "CONNECT /v1 HTTP/1.1",
        "TRACE /v1 HTTP/1.1",
        "TRACK /v1 HTTP/1.1",
        "PRI /v1 HTTP/1.1",
        "PRI * HTTP/1.1",
    ],
)
async def test_R_B6_methods_that_never_reach_a_backend(testbed: Testbed, start: str) -> None:
    """The first three are for proxies (threats H6). PRI only begins HTTP/2 (RFC 9113 3.4)."""
    answer = await assert_refused(testbed, request_head("Max-Forwards: 0", start=start), 405)

    assert "GET" in answer.one("allow")
    assert not {"TRACE", "CONNECT", "PRI"} & set(answer.one("allow").split(", "))


@pytest.mark.parametrize("method", ["get", "Post", "oPTIONS", "trace", "Connect", "Track", "pri"])
async def test_R_B6_a_known_method_in_other_letters_is_refused(testbed: Testbed, method: str) -> None:
    """Methods are case-sensitive (RFC 9110 9.1), but many frameworks compare them in capitals: what is
    unknown here would be a DELETE there."""
    await assert_refused(testbed, request_head(start=f"{method} /v1/nodes HTTP/1.1"), 400)


@pytest.mark.parametrize("method", ['A"B', "A(B", "A/B", "A:B", "A{", "A\x7f", "\xc4", "A" * 33, "@", "A,B"])
async def test_R_B6_a_method_is_a_token_of_at_most_32_characters(testbed: Testbed, method: str) -> None:
    await assert_refused(testbed, request_head(start=f"{method} /v1/nodes HTTP/1.1"), 400)


# --- hosts -------------------------------------------------------------------------------------------------

HOSTS = [
    ("a:", "80"),
    ("a!b", "80"),
    ("api.example:", "80"),
    ("[::1]:", "80"),
    ("a!b:81", "81"),
    ("$&'()*+;=!", "80"),
    ("b%c3%BCcher.example:8080", "8080"),
]


@pytest.mark.parametrize("host, port", HOSTS)
async def test_R_B6_every_valid_host_is_forwarded_as_it_came(testbed: Testbed, host: str, port: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    assert (await client.request(request(host=host))).status == 200
    assert (await client.request(request("GET", f"http://{host}/v1/x", host="other.example"))).status == 200
    for message in backend.requests:
        assert message.one("host") == message.one("x-forwarded-host") == host
        assert message.one("x-forwarded-port") == port


async def test_R_B6_a_host_with_an_empty_port_has_the_route_of_its_name(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, match=Match(host=("api.example",)))

    assert (await gateway.request(request(host="api.example:"))).status == 200
    assert (await gateway.request(request(host="API.example:80"))).status == 200
    assert (await gateway.request(request(host="api!example:"))).status == 404
    assert len(backend.requests) == 2


@pytest.mark.parametrize("host", ["a:", "a!b:", "a'&b"])
@pytest.mark.parametrize("written", ["http://{host}/v1/x", "http://{plain}/v1/x", "/v1/x"])
async def test_R_B6_links_for_a_client_have_its_host_without_an_empty_port(
    testbed: Testbed, host: str, written: str
) -> None:
    plain = host.removesuffix(":")
    location = written.format(host=host, plain=plain)
    gateway, _ = await testbed.gateway_and_backend(always(response(201, f"Location: {location}")))

    answer = await gateway.request(request("POST", "/v1/nodes", host=host))

    assert answer.one("location") == (f"http://{plain}/v1/x" if "//" in written else "/v1/x")


@pytest.mark.parametrize("host", ["a!b:", "a'&b;$(x)=*+", "b%c3%bc"])
async def test_R_B6_a_host_stays_inside_the_links_of_a_document(testbed: Testbed, host: str) -> None:
    def document(message: Message) -> bytes:
        link = f"http://{message.one('host')}/v1/"
        version = {"id": "v1", "links": [{"href": link, "rel": "self"}], "version": "1.90"}
        body = {
            "versions": [{**version, "min_version": "1.1", "status": "CURRENT"}],
            "default_version": version,
        }
        return response(200, "Content-Type: application/json", body=json.dumps(body).encode())

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.send(document(await upstream.request()))

    gateway, _ = await testbed.gateway_and_backend(script)
    answer = await gateway.request(request("GET", "/", host=host))

    assert answer.status == 200
    links = json.loads(answer.body)["versions"][0]["links"]
    assert links == [{"href": f"http://{host.removesuffix(':')}/v1/", "rel": "self"}]


async def test_R_B6_no_document_is_kept_whose_host_could_stand_escaped_in_it(testbed: Testbed) -> None:
    """Other clients would be shown this one's Host: servers write `&` as `\\u0026`."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            host = (await upstream.request()).one("host")
            document = {"name": host, "versions": [{"id": "v1", "links": [{"href": f"http://{host}/v1/"}]}]}
            body = json.dumps(document).replace("&", "\\u0026").encode()
            await upstream.send(response(200, "Content-Type: application/json", body=body))

    gateway, backend = await testbed.gateway_and_backend(script)
    answer = await gateway.request(request("GET", "/", host="evil&x.example"))
    assert json.loads(answer.body)["versions"][0]["links"][0]["href"] == "http://evil&x.example/v1/"
    await backend.close()

    assert (await gateway.request(request("GET", "/"))).status == 503


@pytest.mark.parametrize(
    "host",
    [
        *(":80", "a:b", "a:1:2", "a:-1", "a:123456", "[::1]x", "[::1", "a/b", "a?b", "a#b", "a@b", "a\\b"),
        *(
            'a"b',
            "a<b",
            "a>b",
            "a^b",
            "a`b",
            "a{b",
            "a|b",
            "a b",
            "a%",
            "a%c",
            "a%zz",
            "a%c3%",
            "a,b",
            "a, b",
        ),
        *("a%2eb", "a%2fb", "a%40b", "a%0d%0ab", "a%00b", "a%25b", "a%22b", "a%7f"),
    ],
)
async def test_R_B6_an_invalid_host_is_refused(testbed: Testbed, host: str) -> None:
    """Percent-encoding is for UTF-8 alone (RFC 3986 3.2.2): an encoded `.` or `/` is another name to a reader
    that decodes it. A comma makes a list of two Hosts to readers that join lines (RFC 9110 5.3)."""
    await assert_refused(testbed, request_head(f"Host: {host}", host=False))


# --- Date --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 304, 404, 500])
async def test_R_B6_a_response_without_a_date_gets_one(testbed: Testbed, status: int) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(response(status, "X-Date: x", "Dated: y")))

    answer = await gateway.request(request())

    assert answer.status == status
    assert abs(parsedate_to_datetime(answer.one("date")).timestamp() - time.time()) < 5


@pytest.mark.parametrize("line", ["Date: Sun, 06 Nov 1994 08:49:37 GMT", "dATE:x", "DATE:"])
async def test_R_B6_the_date_of_a_backend_stays(testbed: Testbed, line: str) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(response(200, "X: y", line)))

    answer = await gateway.request(request())

    assert answer.one("date") == line.partition(":")[2].strip()


async def test_R_B6_a_date_that_is_listed_in_connection_is_replaced(testbed: Testbed) -> None:
    lines = ("Date: Sun, 06 Nov 1994 08:49:37 GMT", "Connection: date")
    gateway, _ = await testbed.gateway_and_backend(always(response(200, *lines)))

    assert "1994" not in (await gateway.request(request())).one("date")


# --- Max-Forwards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["*", "/v1/nodes", "/v1", "/"])
@pytest.mark.parametrize("line", ["Max-Forwards: 0", "max-forwards:00  "])
async def test_R_B6_options_with_no_forwards_left_are_answered_here(
    testbed: Testbed, target: str, line: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for body in (b"", b"hello", b""):
        answer = await client.request(request("OPTIONS", target, line, body=body))
        assert (answer.status, answer.one("content-length")) == (200, "0")
        assert "OPTIONS" in answer.one("allow")
        assert parsedate_to_datetime(answer.one("date")).year >= 2024
    assert not backend.requests
    assert (await gateway.recorded(3)).status == 200


@pytest.mark.parametrize(
    "line, sent",
    [
        ("Max-Forwards: 1", "0"),
        ("MAX-FORWARDS:10", "9"),
        ("Max-Forwards: \t0070 ", "69"),
        ("Max-Forwards: " + "9" * 5000, "999999999"),
    ],
)
@pytest.mark.parametrize("target", ["*", "/v1/nodes", "/"])
async def test_R_B6_options_are_forwarded_with_one_forward_less(
    testbed: Testbed, line: str, sent: str, target: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(2):  # the second one has a field section that is cached
        await client.request(request("OPTIONS", target, "X: y", line, "Z: z"))
        assert backend.requests[-1].one("max-forwards") == sent
        assert (backend.requests[-1].one("x"), backend.requests[-1].one("z")) == ("y", "z")


@pytest.mark.parametrize(
    "method, lines",
    [
        ("GET", ("Max-Forwards: 0",)),
        ("POST", ("Max-Forwards: 7",)),
        ("OPTIONS", ("Max-Forwards: -1",)),
        ("OPTIONS", ("Max-Forwards: 1, 2",)),
        ("OPTIONS", ("Max-Forwards:",)),
        ("OPTIONS", ("Max-Forwards: 3", "Max-Forwards: 4")),
        ("OPTIONS", ("Max-Forwards-Not: 0",)),
    ],
)
async def test_R_B6_max_forwards_of_other_methods_or_without_a_number_passes(
    testbed: Testbed, method: str, lines: tuple[str, ...]
) -> None:
    """A recipient may ignore it in other methods (RFC 9110 7.6.2). What is no number cannot be counted
    down."""
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request(method, "/v1/nodes", *lines))).status == 200
    name = lines[0].partition(":")[0]
    assert backend.only_request.every(name) == [line.partition(":")[2].strip() for line in lines]


async def test_R_B6_one_field_section_serves_options_and_other_methods(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for method in ("GET", "OPTIONS", "GET"):
        await client.request(request(method, "/v1/nodes", "Max-Forwards: 5"))
    assert [backend.requests[at].one("max-forwards") for at in (0, 2)] == ["5", "5"]


async def test_R_B6_a_max_forwards_that_connection_lists_is_removed(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    await gateway.request(request("OPTIONS", "/v1/nodes", "Max-Forwards: 5", "Connection: max-forwards"))

    assert "max-forwards" not in backend.only_request.names


# --- the grammar of Host, as a law -------------------------------------------------------------------------

REG_NAME = st.text("abcXYZ019-._~!$&'()*+;=", min_size=1, max_size=30)
ENCODED = st.text("\xfc\u5b57\u0416", max_size=3).map(
    lambda text: "".join(f"%{one:02x}" for one in text.encode())
)


@given(REG_NAME, ENCODED, st.sampled_from(["", ":", ":0", ":80", ":65535"]))
@example("a", "", ":")
@example("a!b", "", "")
def test_R_B6_any_name_of_rfc_3986_is_a_host(name: str, encoded: str, port: str) -> None:
    from gateway.dataplane.http1.fields import is_host

    assert is_host(f"{encoded}{name}{port}".encode())
    assert not is_host(f"{name},{name}{port}".encode())
