"""What the next hop is told about the client, and links that the client can follow."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.service import Match, Service
from gateway.core.snapshot import Snapshot
from tests.dataplane.stand import OLD, Hop, House, ScriptedBackend, Stand, always, nobody, service_of
from tests.dataplane.wire import HIGHEST, LOWEST, SERVED, Message, asks, chunked, reply, request

CLAIMS = (
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


def replace_name(service: Service, name: str) -> Service:
    """The same service under another name."""
    return replace(service, name=name)


def forwarded(message: Message) -> dict[str, str]:
    """Every header that tells about the client; an assertion when one stands there twice."""
    told = [(name.lower().replace("_", "-"), value) for name, value in message.fields]
    told = [(name, value) for name, value in told if "forwarded" in name or name == "x-real-ip"]
    assert len(told) == len(dict(told))
    return dict(told)


async def test_O11_claims_of_anybody_are_replaced_by_what_we_see(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"))
    port = str(gateway.worker.addresses[0][1])

    assert (await gateway.ask(request("GET", "/metal/v1/nodes", *CLAIMS))).status == 200

    assert forwarded(backend.only) == {
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "api.example",
        "x-forwarded-port": port,
        "x-forwarded-prefix": "/metal",
    }
    assert b"6.6.6.6" not in backend.only.head
    assert gateway.outcomes[0].client == "127.0.0.1"


async def test_O11_claims_of_trusted_peers_are_believed_and_added_to(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"), trusted=["127.0.0.0/8"])

    assert (await gateway.ask(request("GET", "/metal/v1/nodes", *CLAIMS))).status == 200

    assert forwarded(backend.only) == {
        "x-forwarded-for": "6.6.6.6, 10.0.0.7, 127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "public.example",
        "x-forwarded-port": "443",
        "x-forwarded-prefix": "/outer/metal",
    }
    assert backend.only.one("host") == "api.example"


async def test_O11_a_trusted_peer_that_claims_nothing_is_told_about_like_any_other(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, trusted=["127.0.0.1/32", "::1/128"])

    assert (await gateway.ask(request())).status == 200
    assert forwarded(backend.only)["x-forwarded-for"] == "127.0.0.1"
    assert gateway.outcomes[0].client == "127.0.0.1"


@pytest.mark.parametrize(
    "lines, client",
    [
        (("X-Forwarded-For: 10.0.0.7",), "10.0.0.7"),
        (("X-Forwarded-For: 6.6.6.6, 10.0.0.7",), "10.0.0.7"),
        (("X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 10.0.0.7, 127.0.0.9"), "10.0.0.7"),
    ],
)
async def test_O11_the_client_is_the_last_address_that_nobody_trusted_wrote(
    house: House, lines: tuple[str, ...], client: str
) -> None:
    """Read from the right: everything left of an address that is not trusted is that peer's invention."""
    backend = await house.backend()
    gateway = await house.gateway(backend, trusted=["127.0.0.0/8"])

    assert (await gateway.ask(request("GET", "/v1/nodes", *lines))).status == 200
    assert gateway.outcomes[0].client == client


async def test_O11_claims_of_one_client_are_not_told_about_the_next(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, trusted=["127.0.0.0/8"])
    client = await gateway.client()

    assert (await client.ask(request("GET", "/v1/nodes", *CLAIMS))).status == 200
    assert (await client.ask(request(host="other.example"))).status == 200
    assert forwarded(backend.requests[1])["x-forwarded-for"] == "127.0.0.1"
    assert forwarded(backend.requests[1])["x-forwarded-host"] == "other.example"


# --- Location ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said, told",
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
async def test_locations_that_name_the_backend_become_ours(
    house: House, name: str, said: str, told: str
) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"))
    authority = f"127.0.0.1:{backend.port}"
    backend.script = always(reply(201, f"{name}: {said.replace('BACKEND', authority)}", reason="Created"))

    answer = await gateway.ask(request("POST", "/metal/v1/nodes"))

    assert answer.one(name) == told.replace("BACKEND", authority)


async def test_a_location_becomes_what_a_trusted_proxy_says_the_client_sees(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, trusted=["127.0.0.1/32"])
    backend.script = always(reply(201, f"Location: http://127.0.0.1:{backend.port}/v1/nodes/1"))

    answer = await gateway.ask(request("POST", "/v1/nodes", *CLAIMS))

    assert answer.one("location") == "https://public.example/outer/v1/nodes/1"


# --- discovery documents -----------------------------------------------------------------------------------


def root_document(host: str = "api.example") -> dict[str, Any]:
    """What Ironic says on `/`."""
    v1 = {
        "id": "v1",
        "links": [{"href": f"http://{host}/v1/", "rel": "self"}],
        "status": "CURRENT",
        "min_version": "1.1",
        "version": "1.90",
    }
    return {"name": "OpenStack Ironic API", "description": "…", "versions": [v1], "default_version": v1}


def v1_document(padding: int = 0) -> dict[str, Any]:
    """What Ironic says on `/v1`."""
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


def document_reply(document: object, *lines: str, status: int = 200) -> bytes:
    return reply(
        status,
        *JSON_LINES,
        f"{LOWEST}: 1.1",
        f"{HIGHEST}: 1.90",
        *lines,
        body=json.dumps(document).encode(),
    )


async def offering_less(
    house: House, said: bytes, *, match: Match | None = None
) -> tuple[Stand, ScriptedBackend]:
    """A gateway whose offer ends at 1.58 in front of one that speaks up to 1.90 (and one that is away)."""
    backend = await house.backend(always(said))
    return await house.gateway(backend, nobody(declared=OLD), match=match), backend


@pytest.mark.parametrize("status", [200, 300])
@pytest.mark.parametrize("target", ["/", "/v1", "/v1/"])
async def test_documents_tell_the_offer_and_links_that_can_be_followed(
    house: House, target: str, status: int
) -> None:
    document = root_document() if target == "/" else v1_document()
    gateway, _ = await offering_less(
        house, document_reply(document, status=status), match=Match(path="/metal")
    )

    answer = await gateway.ask(request("GET", f"/metal{target}"))

    assert answer.status == status
    told = json.loads(answer.body)
    entry = told["versions"][0] if target == "/" else told["version"]
    assert (entry["min_version"], entry["version"]) == ("1.1", "1.58")
    links = entry["links"] if target == "/" else told["links"]
    assert links[0]["href"] == "http://api.example/metal/v1/"
    assert answer.framing == "length"
    assert not {"etag", "last-modified", "content-md5", "digest", "transfer-encoding"} & answer.names
    assert answer.one(HIGHEST) == "1.58"


async def test_documents_are_asked_for_whole_and_unencoded(house: House) -> None:
    gateway, backend = await offering_less(house, document_reply(v1_document()))
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

    assert (await gateway.ask(request("GET", "/v1", *lines))).status == 200

    sent = backend.only
    assert sent.one("accept-encoding") == "identity"
    assert (
        not {"if-none-match", "if-modified-since", "if-match", "if_none_match", "range", "if-range"}
        & sent.names
    )
    assert sent.one("accept") == "application/json"


async def test_other_requests_keep_their_conditions(house: House) -> None:
    gateway, backend = await offering_less(house, reply(200, 'ETag: "1"', body=b"{}"))

    answer = await gateway.ask(
        request("GET", "/v1/nodes", "Accept-Encoding: gzip", 'If-None-Match: "x"', "Range: b=0-")
    )

    assert answer.one("etag") == '"1"'
    assert (backend.only.one("accept-encoding"), backend.only.one("range")) == ("gzip", "b=0-")


@pytest.mark.parametrize(
    "targets", [("/v1", "/v1/nodes"), ("/v1/nodes", "/v1"), ("/v1/nodes", "/v1", "/v1/nodes")]
)
async def test_equal_heads_are_treated_each_by_its_own_target(house: House, targets: tuple[str, ...]) -> None:
    gateway, backend = await offering_less(house, document_reply(v1_document()))
    client = await gateway.client()

    for target in targets:
        lines = ("Accept-Encoding: gzip", 'If-None-Match: "x"')
        assert (await client.ask(request("GET", target, *lines))).status == 200
    for sent in backend.requests:
        whole = sent.target == "/v1"
        assert sent.every("accept-encoding") == (["identity"] if whole else ["gzip"])
        assert sent.every("if-none-match") == ([] if whole else ['"x"'])


async def test_equal_heads_for_two_services_on_one_connection(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"))
    second = replace_name(service_of(backend, match=Match(path="/other/place")), "other")
    first = gateway.cell.current.views["baremetal"].service
    gateway.cell.update(Snapshot.configured([first, second], after=gateway.cell.current, now=0.0))
    client = await gateway.client()

    for _ in range(2):
        for prefix in ("/metal", "/other/place"):
            assert (await client.ask(request("GET", f"{prefix}/v1/nodes"))).status == 200
            assert backend.requests[-1].one("x-forwarded-prefix") == prefix
            assert backend.requests[-1].target == "/v1/nodes"


async def test_a_chunked_document_is_rewritten_and_gets_a_length(house: House) -> None:
    body = json.dumps(v1_document()).encode()
    said = reply(200, "Content-Type: application/json; charset=utf-8", "Transfer-Encoding: chunked")
    gateway, backend = await offering_less(house, said + chunked(body[:50], body[50:]))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request("GET", "/v1"))
        assert answer.framing == "length"
        assert json.loads(answer.body)["version"]["version"] == "1.58"
    assert backend.connections == 1


async def test_head_of_a_document_tells_no_length(house: House) -> None:
    said = b"\r\n".join(
        (b"HTTP/1.1 200 OK", *(line.encode() for line in JSON_LINES), b"Content-Length: 999", b"", b"")
    )
    gateway, backend = await offering_less(house, said)
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request("HEAD", "/v1"))
        assert answer.status == 200
        assert not {"content-length", "etag", "transfer-encoding"} & answer.names
    assert [each.method for each in backend.requests] == ["HEAD", "HEAD"]


def same(answer: Message, body: bytes) -> None:
    """It passed as it came."""
    assert answer.body == body
    assert answer.one("etag") == '"backend"'


@pytest.mark.parametrize("more", [1, 1_000_000])
async def test_a_document_beyond_a_mebibyte_passes_as_it_came(house: House, more: int) -> None:
    room = 1024 * 1024 - len(json.dumps(v1_document()))
    body = json.dumps(v1_document(room + more)).encode()
    assert len(body) == 1024 * 1024 + more
    gateway, _ = await offering_less(house, reply(200, *JSON_LINES, body=body))

    same(await gateway.ask(request("GET", "/v1")), body)


async def test_a_document_of_a_mebibyte_is_rewritten(house: House) -> None:
    room = 1024 * 1024 - len(json.dumps(v1_document()))
    gateway, _ = await offering_less(house, document_reply(v1_document(room)))

    assert json.loads((await gateway.ask(request("GET", "/v1"))).body)["version"]["version"] == "1.58"


async def test_an_encoded_document_passes_as_it_came(house: House) -> None:
    body = gzip.compress(json.dumps(v1_document()).encode())
    gateway, _ = await offering_less(house, reply(200, *JSON_LINES, "Content-Encoding: gzip", body=body))

    same(await gateway.ask(request("GET", "/v1")), body)


@pytest.mark.parametrize(
    "status, kind, body",
    [
        (200, "text/html", b"<html>{}</html>"),
        (404, "application/json", json.dumps(v1_document()).encode()),
        (200, "application/json", b"{not json"),
        (200, "application/json", b'{"id": "v2"}'),
        (200, "application/json", b"[1, 2]"),
        (200, "application/json", b"\xff\xfe"),
        (200, "application/json", b""),
        (200, "application/json", b"[" * 5000),
    ],
)
async def test_what_is_no_document_passes_as_it_came(
    house: House, status: int, kind: str, body: bytes
) -> None:
    lines = (f"Content-Type: {kind}", 'ETag: "backend"')
    gateway, _ = await offering_less(house, reply(status, *lines, body=body))

    answer = await gateway.ask(request("GET", "/v1"))

    assert answer.status == status
    assert answer.body == body


async def test_a_document_that_breaks_off_is_502_since_nothing_was_sent(house: House) -> None:
    backend = await house.backend()

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, *JSON_LINES, "Content-Length: 1000") + b'{"id": ')

    backend.script = script
    gateway = await house.gateway(backend)

    answer = await gateway.ask(request("GET", "/v1"))

    assert answer.status == 502
    assert (await gateway.told()).error == "reply_cut"


async def test_documents_are_not_negotiated_away(house: House) -> None:
    gateway, backend = await offering_less(house, document_reply(root_document()))

    assert (await gateway.ask(request("GET", "/", asks("9.9")))).status == 200
    assert SERVED.lower() not in backend.only.names
    assert (await gateway.ask(request("GET", "/v1", asks("9.9")))).status == 406


@pytest.mark.parametrize(
    "lines, public",
    [
        (("X-Forwarded-Proto: https, http",), "https://api.example/metal"),
        (("X-Forwarded-Proto: gopher",), "http://api.example/metal"),
        (("X-Forwarded-Host: outer.example, inner.example",), "http://outer.example/metal"),
        (("X-Forwarded-Host: a@b",), "http://api.example/metal"),
        (("X-Forwarded-Prefix: /outer/", "X-Forwarded-Proto: HTTPS"), "https://api.example/outer/metal"),
        (("X-Forwarded-Prefix: outer",), "http://api.example/metal"),
    ],
)
async def test_O11_what_a_trusted_proxy_claims_must_be_usable(
    house: House, lines: tuple[str, ...], public: str
) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"), trusted=["127.0.0.0/8"])
    backend.script = always(
        reply(201, f"Location: http://127.0.0.1:{backend.port}/v1/nodes/1", reason="Created")
    )

    answer = await gateway.ask(request("POST", "/metal/v1/nodes", *lines))

    assert answer.one("location") == f"{public}/v1/nodes/1"
