"""The fields that describe the client to the next hop, and links that the client can follow."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import assembly
from gateway.core.fleet.service import Match, Service
from gateway.dataplane.http1.forwarding import MAX_CACHED_SIZE
from gateway.settings import read_file
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, refusing_backend, serve
from tests.kit.clients import Client
from tests.kit.ironic import OLD, reconfigure
from tests.kit.messages import (
    MAX_FIELD,
    MIN_FIELD,
    VERSION_FIELD,
    Message,
    chunked,
    request,
    response,
    version_line,
)
from tests.kit.workers import Gateway, Testbed, service_of

VALUES = (
    "X-Forwarded-For: 6.6.6.6, 10.0.0.7",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: public.example",
    "X-Forwarded-Port: 443",
    "X-Forwarded-Prefix: /outer",
    "Forwarded: for=6.6.6.6;proto=https;host=public.example",
    "X-Real-IP: 6.6.6.6",
    "X_Forwarded_For: 6.6.6.6",
    "X_FORWARDED-Host: public.example",
)


def renamed(service: Service, name: str) -> Service:
    """The same service under another name."""
    return replace(service, name=name)


def forwarding_fields(message: Message) -> dict[str, str]:
    """Every field that describes the client; fails if one is present twice."""
    fields = [(name.lower().replace("_", "-"), value) for name, value in message.fields]
    fields = [(name, value) for name, value in fields if "forwarded" in name or name == "x-real-ip"]
    assert len(fields) == len(dict(fields))
    return dict(fields)


async def test_O11_values_from_untrusted_peers_are_replaced(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"))

    assert (await gateway.request(request("GET", "/metal/v1/nodes", *VALUES))).status == 200

    assert forwarding_fields(backend.only_request) == {
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "api.example",
        "x-forwarded-port": "80",
        "x-forwarded-prefix": "/metal",
    }
    assert b"6.6.6.6" not in backend.only_request.head
    assert gateway.records[0].client == "127.0.0.1"


async def test_O11_values_from_trusted_peers_are_kept_and_extended(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"), trusted=["127.0.0.0/8"])

    assert (await gateway.request(request("GET", "/metal/v1/nodes", *VALUES))).status == 200

    assert forwarding_fields(backend.only_request) == {
        "x-forwarded-for": "6.6.6.6, 10.0.0.7, 127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "public.example",
        "x-forwarded-port": "443",
        "x-forwarded-prefix": "/outer/metal",
    }
    assert backend.only_request.one("host") == "api.example"


async def test_O11_a_trusted_peer_without_values_is_described_like_any_other(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.1/32", "::1/128"])

    assert (await gateway.request(request())).status == 200
    assert forwarding_fields(backend.only_request)["x-forwarded-for"] == "127.0.0.1"
    assert gateway.records[0].client == "127.0.0.1"


@pytest.mark.parametrize(
    "lines, client",
    [
        (("X-Forwarded-For: 10.0.0.7",), "10.0.0.7"),
        (("X-Forwarded-For: 6.6.6.6, 10.0.0.7",), "10.0.0.7"),
        (("X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 10.0.0.7, 127.0.0.9"), "10.0.0.7"),
        (("X-Forwarded-For: 6.6.6.6, 10.0.0.7, , 127.0.0.9,",), "10.0.0.7"),
        (("X-Forwarded-For: ,",), "127.0.0.1"),
    ],
)
async def test_O11_the_client_is_the_rightmost_untrusted_address(
    testbed: Testbed, lines: tuple[str, ...], client: str
) -> None:
    """An untrusted peer may have made up everything to the left of its own address. Empty elements say
    nothing (RFC 9110 5.6.1)."""
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.0/8"])

    assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200
    assert gateway.records[0].client == client


async def test_O11_values_of_one_request_are_not_used_for_the_next(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.0/8"])
    client = await gateway.client()

    assert (await client.request(request("GET", "/v1/nodes", *VALUES))).status == 200
    assert (await client.request(request(host="other.example"))).status == 200
    assert forwarding_fields(backend.requests[1])["x-forwarded-for"] == "127.0.0.1"
    assert forwarding_fields(backend.requests[1])["x-forwarded-host"] == "other.example"


# --- Location ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location, rewritten",
    [
        ("http://BACKEND/v1/nodes/1", "http://api.example/metal/v1/nodes/1"),
        ("http://BACKEND", "http://api.example/metal"),
        ("http://BACKEND?x=1", "http://api.example/metal?x=1"),
        ("http://api.example/v1/nodes/1", "http://api.example/metal/v1/nodes/1"),
        ("http://BACKEND0/v1", "http://BACKEND0/v1"),
        ("http://third.example/v1", "http://third.example/v1"),
        ("/v1/nodes/1", "/metal/v1/nodes/1"),
        ("nodes/1", "nodes/1"),
    ],
)
@pytest.mark.parametrize("name", ["Location", "Content-Location"])
async def test_locations_that_name_the_backend_are_rewritten(
    testbed: Testbed, name: str, location: str, rewritten: str
) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"))
    authority = f"127.0.0.1:{backend.port}"
    backend.script = always(
        response(201, f"{name}: {location.replace('BACKEND', authority)}", reason="Created")
    )

    answer = await gateway.request(request("POST", "/metal/v1/nodes"))

    assert answer.one(name) == rewritten.replace("BACKEND", authority)


async def test_a_location_uses_the_origin_from_a_trusted_proxy(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.1/32"])
    backend.script = always(response(201, f"Location: http://127.0.0.1:{backend.port}/v1/nodes/1"))

    answer = await gateway.request(request("POST", "/v1/nodes", *VALUES))

    assert answer.one("location") == "https://public.example/outer/v1/nodes/1"


# --- discovery documents -----------------------------------------------------------------------------------


def root_document(host: str = "api.example") -> dict[str, Any]:
    """The document of Ironic at `/`."""
    v1 = {
        "id": "v1",
        "links": [{"href": f"http://{host}/v1/", "rel": "self"}],
        "status": "CURRENT",
        "min_version": "1.1",
        "version": "1.90",
    }
    return {"name": "OpenStack Ironic API", "description": "…", "versions": [v1], "default_version": v1}


def v1_document(padding: int = 0) -> dict[str, Any]:
    """The document of Ironic at `/v1`."""
    return {
        "id": "v1",
        "links": [{"href": "http://api.example/v1/", "rel": "self"}],
        "nodes": [{"href": "http://api.example/v1/nodes/", "rel": "self"}],
        "version": {"id": "v1", "min_version": "1.1", "version": "1.90", "status": "CURRENT", "links": []},
        "padding": "x" * padding,
    }


JSON_LINES = (
    "Content-Type: application/json",
    'ETag: "backend"',
    "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT",
    "Content-MD5: abc",
    "Digest: sha-256=x",
)


def document_response(document: object, *lines: str, status: int = 200) -> bytes:
    return response(
        status,
        *JSON_LINES,
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.90",
        *lines,
        body=json.dumps(document).encode(),
    )


async def gateway_with_lower_offer(
    testbed: Testbed, data: bytes, *, match: Match | None = None
) -> tuple[Gateway, ScriptedBackend]:
    """A gateway that offers up to 1.58, in front of a backend that serves up to 1.90 and sends `data`.

    A second backend, up to 1.58, refuses connections.
    """
    backend = await testbed.backend(always(data))
    return await testbed.gateway(backend, refusing_backend(declared=OLD), match=match), backend


@pytest.mark.parametrize("status", [200, 300])
@pytest.mark.parametrize("target", ["/", "/v1", "/v1/"])
async def test_documents_have_the_offer_and_links_that_the_client_can_follow(
    testbed: Testbed, target: str, status: int
) -> None:
    document = root_document() if target == "/" else v1_document()
    gateway, _ = await gateway_with_lower_offer(
        testbed, document_response(document, status=status), match=Match(path="/metal")
    )

    answer = await gateway.request(request("GET", f"/metal{target}"))

    assert answer.status == status
    document = json.loads(answer.body)
    entry = document["versions"][0] if target == "/" else document["version"]
    assert (entry["min_version"], entry["version"]) == ("1.1", "1.58")
    links = entry["links"] if target == "/" else document["links"]
    assert links[0]["href"] == "http://api.example/metal/v1/"
    assert answer.framing == "length"
    assert not {"etag", "last-modified", "content-md5", "digest", "transfer-encoding"} & answer.names
    assert answer.one(MAX_FIELD) == "1.58"


async def test_documents_are_requested_whole_and_unencoded(testbed: Testbed) -> None:
    gateway, backend = await gateway_with_lower_offer(testbed, document_response(v1_document()))
    lines = (
        "Accept-Encoding: gzip, br",
        'If-None-Match: "x"',
        "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT",
        "If-Match: *",
        "If_None_Match: *",
        "Range: bytes=0-5",
        'If-Range: "x"',
        "Accept: application/json",
    )

    assert (await gateway.request(request("GET", "/v1", *lines))).status == 200

    message = backend.only_request
    assert message.one("accept-encoding") == "identity"
    assert (
        not {"if-none-match", "if-modified-since", "if-match", "if_none_match", "range", "if-range"}
        & message.names
    )
    assert message.one("accept") == "application/json"


async def test_other_requests_keep_their_conditional_fields(testbed: Testbed) -> None:
    gateway, backend = await gateway_with_lower_offer(testbed, response(200, 'ETag: "1"', body=b"{}"))

    answer = await gateway.request(
        request("GET", "/v1/nodes", "Accept-Encoding: gzip", 'If-None-Match: "x"', "Range: b=0-")
    )

    assert answer.one("etag") == '"1"'
    assert (backend.only_request.one("accept-encoding"), backend.only_request.one("range")) == (
        "gzip",
        "b=0-",
    )


@pytest.mark.parametrize(
    "targets", [("/v1", "/v1/nodes"), ("/v1/nodes", "/v1"), ("/v1/nodes", "/v1", "/v1/nodes")]
)
async def test_equal_field_sections_are_handled_by_their_target(
    testbed: Testbed, targets: tuple[str, ...]
) -> None:
    gateway, backend = await gateway_with_lower_offer(testbed, document_response(v1_document()))
    client = await gateway.client()

    for target in targets:
        lines = ("Accept-Encoding: gzip", 'If-None-Match: "x"')
        assert (await client.request(request("GET", target, *lines))).status == 200
    for message in backend.requests:
        whole = message.target == "/v1"
        assert message.every("accept-encoding") == (["identity"] if whole else ["gzip"])
        assert message.every("if-none-match") == ([] if whole else ['"x"'])


async def test_equal_field_sections_for_two_services_on_one_connection(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"))
    second = renamed(service_of(backend, match=Match(path="/other/place")), "other")
    first = gateway.snapshot_holder.current.views["baremetal"].service
    reconfigure(gateway.snapshot_holder, [first, second])
    client = await gateway.client()

    for _ in range(2):
        for prefix in ("/metal", "/other/place"):
            assert (await client.request(request("GET", f"{prefix}/v1/nodes"))).status == 200
            assert backend.requests[-1].one("x-forwarded-prefix") == prefix
            assert backend.requests[-1].target == "/v1/nodes"


async def test_a_chunked_document_is_rewritten_and_gets_a_length(testbed: Testbed) -> None:
    body = json.dumps(v1_document()).encode()
    head = response(200, "Content-Type: application/json; charset=utf-8", "Transfer-Encoding: chunked")
    gateway, backend = await gateway_with_lower_offer(testbed, head + chunked(body[:50], body[50:]))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request("GET", "/v1"))
        assert answer.framing == "length"
        assert json.loads(answer.body)["version"]["version"] == "1.58"
    assert backend.connections == 1


async def test_a_response_to_head_of_a_document_has_no_length(testbed: Testbed) -> None:
    head = b"\r\n".join(
        (b"HTTP/1.1 200 OK", *(line.encode() for line in JSON_LINES), b"Content-Length: 999", b"", b"")
    )
    gateway, backend = await gateway_with_lower_offer(testbed, head)
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request("HEAD", "/v1"))
        assert answer.status == 200
        assert not {"content-length", "etag", "transfer-encoding"} & answer.names
    assert [message.method for message in backend.requests] == ["HEAD", "HEAD"]


async def test_a_document_that_breaks_off_is_502_since_nothing_was_sent(testbed: Testbed) -> None:
    backend = await testbed.backend()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, *JSON_LINES, "Content-Length: 1000") + b'{"id": ')

    backend.script = script
    gateway = await testbed.gateway(backend)

    answer = await gateway.request(request("GET", "/v1"))

    assert answer.status == 502
    assert (await gateway.recorded()).reason == "reply_cut"


async def test_the_root_document_is_never_refused_for_its_version(testbed: Testbed) -> None:
    gateway, backend = await gateway_with_lower_offer(testbed, document_response(root_document()))

    assert (await gateway.request(request("GET", "/", version_line("9.9")))).status == 200
    assert VERSION_FIELD.lower() not in backend.only_request.names
    assert (await gateway.request(request("GET", "/v1", version_line("9.9")))).status == 406


@pytest.mark.parametrize(
    "lines, base",
    [
        (("X-Forwarded-Proto: https, http",), "https://api.example/metal"),
        (("X-Forwarded-Proto: gopher",), "http://api.example/metal"),
        (("X-Forwarded-Host: outer.example, inner.example",), "http://outer.example/metal"),
        (("X-Forwarded-Host: a@b",), "http://api.example/metal"),
        (("X-Forwarded-Prefix: /outer/", "X-Forwarded-Proto: HTTPS"), "https://api.example/outer/metal"),
        (("X-Forwarded-Prefix: outer",), "http://api.example/metal"),
    ],
)
async def test_O11_malformed_values_of_a_trusted_proxy_are_not_used(
    testbed: Testbed, lines: tuple[str, ...], base: str
) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"), trusted=["127.0.0.0/8"])
    backend.script = always(
        response(201, f"Location: http://127.0.0.1:{backend.port}/v1/nodes/1", reason="Created")
    )

    answer = await gateway.request(request("POST", "/metal/v1/nodes", *lines))

    assert answer.one("location") == f"{base}/v1/nodes/1"


# --- the port ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host, port",
    [("api.example", "80"), ("api.example:8443", "8443"), ("[::1]", "80"), ("[::1]:9292", "9292")],
)
async def test_R_D3_the_forwarded_port_is_the_one_that_the_client_used(
    testbed: Testbed, host: str, port: str
) -> None:
    """The word of a peer that is not trusted changes nothing."""
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend)

    for lines in ((), VALUES):
        assert (await gateway.request(request("GET", "/v1/nodes", *lines, host=host))).status == 200
        assert backend.requests[-1].one("x-forwarded-port") == port


@pytest.mark.parametrize(
    "lines, port, base",
    [
        ((), "8080", "http://api.example:8080"),
        (("X-Forwarded-Port: 443", "X-Forwarded-Proto: https"), "443", "https://api.example"),
        (("X-Forwarded-Port: 8443", "X-Forwarded-Proto: https"), "8443", "https://api.example:8443"),
        (("X-Forwarded-Port: 80",), "80", "http://api.example"),
        (("X-Forwarded-Host: outer.example", "X-Forwarded-Proto: https"), "443", "https://outer.example"),
        (("X-Forwarded-Host: outer.example",), "80", "http://outer.example"),
        (("X-Forwarded-Host: outer.example:8443",), "8443", "http://outer.example:8443"),
        (
            ("X-Forwarded-Host: outer.example:1", "X-Forwarded-Port: 8443, 9"),
            "8443",
            "http://outer.example:8443",
        ),
        (("X-Forwarded-Host: [2001:db8::1]", "X-Forwarded-Port: 8443"), "8443", "http://[2001:db8::1]:8443"),
        (("X-Forwarded-Port: 844444",), "8080", "http://api.example:8080"),
        (("X-Forwarded-Port: 84444",), "8080", "http://api.example:8080"),
        (("X-Forwarded-Port: 8x",), "8080", "http://api.example:8080"),
    ],
)
async def test_R_D3_the_port_of_a_trusted_peer_is_also_that_of_links(
    testbed: Testbed, lines: tuple[str, ...], port: str, base: str
) -> None:
    """Servers that believe the header write it into their links. The gateway's links name the same port."""
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.0/8"])
    backend.script = always(response(201, f"Location: http://127.0.0.1:{backend.port}/v1/nodes/1"))

    answer = await gateway.request(request("POST", "/v1/nodes", *lines, host="api.example:8080"))

    assert backend.only_request.one("x-forwarded-port") == port
    assert answer.one("location") == f"{base}/v1/nodes/1"


@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8",)])
async def test_R3_V13_without_host_there_is_no_forwarded_host(
    testbed: Testbed, trusted: tuple[str, ...]
) -> None:
    """An empty one is a name to servers that write links; they have `Host` for that."""
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=trusted)

    for lines in (b"", b"X-Forwarded-Host: a@b\r\n", b"X-Forwarded-Host: outer.example:99999\r\n"):
        assert (await gateway.request(b"GET /v1/nodes HTTP/1.0\r\n" + lines + b"\r\n")).status == 200
        fields = forwarding_fields(backend.requests[-1])
        assert fields.pop("x-forwarded-for") == "127.0.0.1"
        assert fields == {"x-forwarded-proto": "http", "x-forwarded-port": "80"}
        assert backend.requests[-1].one("host") == f"127.0.0.1:{backend.port}"


async def test_R_D3_without_host_the_port_is_that_of_the_scheme(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(response(200, body=b"{}")))

    assert (await gateway.request(request("GET", "/v1/nodes", host=None, http="1.0"))).status == 200
    assert backend.only_request.one("x-forwarded-port") == "80"


# --- what a proxy in front tells ---------------------------------------------------------------------------

TOLD = (
    *("X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups"),
    *("X-Forwarded-Ssl", "X-Forwarded-Scheme", "X-Forwarded-Preferred-Username", "X-Forwarded-Anything"),
    *("True-Client-IP", "X-Client-IP", "Front-End-Https"),
    *("X-Original-URL", "X-Original-Host", "X-Original-Forwarded-For", "X-Rewrite-URL"),
)
"""Headers by which a proxy in front tells who the client is, its address or the original URL."""
WRITTEN = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
"""Further ones, which the gateway writes or drops itself, whatever the list says."""
FORGED = "6.6.6.6"


def spellings(name: str) -> tuple[str, ...]:
    """A name, in other cases, and two aliases of it."""
    return name, name.lower(), name.upper(), name.replace("-", "_"), name.replace("-", ".").upper()


async def forwarded_names(backend: ScriptedBackend, gateway: Gateway, *names: str) -> list[str]:
    """Which of these headers, sent on one connection, come to the backend."""
    client = await gateway.client()
    for _ in range(2):  # the second time from the cache of the connection
        lines = (f"{name}: {FORGED}" for name in names)
        answer = await client.request(request("GET", "/v1/nodes", *lines, "X-Other: 1"))
        assert answer.status == 200
        assert backend.requests[-1].one("x-other") == "1"
    first, second = ([name for name, value in one.fields if FORGED in value] for one in backend.requests[-2:])
    assert first == second
    return first


IDENTITY = (
    *("SSL-Client-Verify", "ssl-client-subject-dn", "ssl-client-cert", "ssl-client-issuer-dn"),
    *("X-Amzn-Mtls-Clientcert", "X-Amzn-Mtls-Clientcert-Subject", "X-ARR-ClientCert"),
    *("X-Tls-Client-Cert", "X-Tls-Client-Subject", "X-Client-Verify", "X-Client-Dn"),
    *("CF-Connecting-IP", "X-Cluster-Client-IP", "Fastly-Client-IP", "X-Envoy-External-Address"),
    *("X-Azure-ClientIP", "X-Azure-SocketIP", "Remote-User", "X-Remote-User"),
    *("X-Auth-Request-User", "X-Auth-Request-Email", "X-Auth-Request-Access-Token", "X-WebAuth-User"),
    *("X-Host", "X-HTTP-Host-Override"),
)
"""Headers by which other proxies tell who the client is, its address, its certificate, the original host."""


@pytest.mark.parametrize("name", IDENTITY)
async def test_R3_T8_identity_headers_of_other_proxies_are_dropped_from_strangers(
    testbed: Testbed, name: str
) -> None:
    backend = await testbed.backend()
    strangers = await testbed.gateway(backend, trusted=["10.0.0.0/8"])
    proxies = await testbed.gateway(backend, trusted=["127.0.0.0/8"])

    for spelling in spellings(name):
        assert await forwarded_names(backend, strangers, spelling) == []
    assert await forwarded_names(backend, strangers, *spellings(name)) == []
    assert await forwarded_names(backend, proxies, *spellings(name)) == list(spellings(name))


@pytest.mark.parametrize(
    "name",
    [
        *("X-Auth-Token", "X-Auth-Requests", "X-Hosts", "X-Hostname", "X-User", "Remote-Users", "X-Client"),
        *("X-Client-Version", "SSL-Clients", "X-Amzn-Trace-Id", "CF-Ray", "X-Azure-Ref", "X-Request-Id"),
    ],
)
async def test_R3_T8_headers_with_names_like_these_pass(testbed: Testbed, name: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(response(200, body=b"{}")))

    assert await forwarded_names(backend, gateway, name) == [name]


@pytest.mark.parametrize("name", TOLD)
async def test_R_B10_what_a_proxy_in_front_tells_is_dropped_from_others(testbed: Testbed, name: str) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["10.0.0.0/8"])

    for spelling in spellings(name):
        assert await forwarded_names(backend, gateway, spelling) == []
    assert await forwarded_names(backend, gateway, *spellings(name)) == []


@pytest.mark.parametrize("name", WRITTEN)
async def test_R_B10_what_the_gateway_writes_is_dropped_in_every_spelling(
    testbed: Testbed, name: str
) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["10.0.0.0/8"])

    assert await forwarded_names(backend, gateway, *spellings(name)) == []


@pytest.mark.parametrize("name", TOLD)
async def test_R_B10_what_a_trusted_peer_tells_passes_as_it_came(testbed: Testbed, name: str) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=["127.0.0.0/8"])

    assert await forwarded_names(backend, gateway, *spellings(name)) == list(spellings(name))
    assert await forwarded_names(backend, gateway, *WRITTEN) == ["X-Forwarded-For"]


@pytest.mark.parametrize(
    "name", ["Forward", "X-Forward-User", "XForwarded-User", "X-Originals", "X-Real-IPs"]
)
async def test_R_B10_other_headers_pass(testbed: Testbed, name: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(response(200, body=b"{}")))

    assert await forwarded_names(backend, gateway, name) == [name]


@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8",)])
async def test_R_B10_proxy_is_dropped_from_everybody(testbed: Testbed, trusted: tuple[str, ...]) -> None:
    """CGI hands it to programs as HTTP_PROXY, the proxy of their own requests."""
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, trusted=trusted)

    assert await forwarded_names(backend, gateway, "Proxy", "proxy", "PROXY") == []
    assert await forwarded_names(backend, gateway, "Proxy-Status", "X-Proxy") == ["Proxy-Status", "X-Proxy"]


@pytest.mark.parametrize(
    "listed, passed",
    [
        ("[X-Bar-User, X-Acme-*]", ("X-Forwarded-User", "X-Original-URL", "X-Acm")),
        (
            "[]",
            ("X-Forwarded-User", "X-Original-URL", "X-Bar-User", "X_Bar.User", "X-Acme-Id", "X-Acm"),
        ),
        ("[x-*]", ()),
    ],
)
async def test_R_B10_the_list_is_configured_and_a_reload_is_in_force_for_the_next_head(
    testbed: Testbed, tmp_path: Path, listed: str, passed: tuple[str, ...]
) -> None:
    """Also on connections that are open. What the gateway writes itself does not depend on the list."""
    backend = await testbed.backend(always(response(200, body=b"{}")))
    told = ("X-Forwarded-User", "X-Original-URL", "X-Bar-User", "X_Bar.User", "X-Acme-Id", "X-Acm")
    lines = [f"{name}: {FORGED}" for name in (*told, *WRITTEN, "Proxy")]
    text = (
        "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\naccess_log: {format: off}\nservices:\n  api:\n"
        "    dialect: custom\n    custom: {places: [{path: '/v{version}'}], scheme: integer}\n"
        f"    backends: [{{url: 'http://127.0.0.1:{backend.port}', versions: '1-9'}}]\n"
    )
    file = tmp_path / "skewgate.yaml"

    async def passing(client: Client) -> tuple[str, ...]:
        assert (await client.request(request("GET", "/v1/nodes", *lines))).status == 200
        return tuple(name for name, value in backend.requests[-1].fields if FORGED in value)

    file.write_text(text)
    settings = read_file(file, environ={}).require()
    async with assembly.Gateway(settings, source=file) as gateway:
        client = Client(*await asyncio.open_connection(*gateway.addresses[0]))
        try:
            assert await passing(client) == ("X-Bar-User", "X_Bar.User", "X-Acme-Id", "X-Acm")
            file.write_text(text + f"untrusted_headers: {listed}\n")
            async with aiohttp.ClientSession() as session:
                reloaded = await session.post(f"{gateway.admin_url}/-/reload")
            assert reloaded.status == 200
            assert await passing(client) == passed
        finally:
            client.writer.close()


async def test_L6_what_a_proxy_in_front_passes_on_does_not_fill_the_table_of_lines(testbed: Testbed) -> None:
    """The lines are found by all that they depend on, so that is bounded as well."""
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=("127.0.0.0/8",))
    client = await gateway.client()
    for number in range(20):
        value = f"{number:07}" + "x" * 7900
        fields = [f"X-Forwarded-{name}: {value}" for name in ("Port", "Prefix", "Host")]
        assert (await client.request(request("GET", "/v1/nodes", *fields))).status == 200
        assert (await client.request(request("GET", "/v1/nodes", f"Via: 1.1 {value}"))).status == 200

    lines = gateway.worker.context.forwarding_lines._lines
    assert sum(len(repr(key)) + len(value.whole) for key, value in lines.items()) < 4 * MAX_CACHED_SIZE
