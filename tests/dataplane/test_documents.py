"""Responses that are read whole: discovery documents, which show the offer or nothing, and refusals.

A 2xx or 300 at a document's place either becomes a document with the offer, or it is 502. So the range of one
backend is never shown.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import PassiveObservation, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.nova import Nova
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, refusing_backend
from tests.kit.ironic import OLD
from tests.kit.messages import KIB, MAX_FIELD, MIN_FIELD, Message, chunked, request, response
from tests.kit.workers import Gateway, Testbed

LIMIT: Final = 256 * KIB
JSON: Final = "Content-Type: application/json"
DEEP: Final = 33
"""Levels: one more than a document may have."""


def v1(**more: object) -> dict[str, Any]:
    """The document of Ironic at `/v1`, with the backend's own range."""
    version = {"id": "v1", "min_version": "1.1", "version": "1.90", "status": "CURRENT", "links": []}
    return {
        "id": "v1",
        "links": [{"href": "http://api.example/v1/", "rel": "self"}],
        "version": version,
    } | more


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


V1: Final = encoded(v1())


def padded(size: int) -> bytes:
    """The document, exactly `size` bytes long."""
    body = encoded(v1(padding=""))
    return encoded(v1(padding="x" * (size - len(body))))


def nested(levels: int) -> bytes:
    """The document, so many levels deep."""
    inner: object = {}
    for _ in range(levels - 2):
        inner = [inner]
    return encoded(v1(inner=inner))


def raw_deflate(body: bytes) -> bytes:
    """The deflate coding as some servers send it: without the frame of zlib."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


async def lower_offer(testbed: Testbed, data: bytes, **more: Any) -> tuple[Gateway, ScriptedBackend]:
    """A gateway that offers up to 1.58, in front of a backend up to 1.90 that always sends `data`.

    A second backend, up to 1.58, refuses connections.
    """
    backend = await testbed.backend(always(data))
    return await testbed.gateway(backend, refusing_backend(declared=OLD), **more), backend


def sent(status: int, body: bytes, *lines: str) -> bytes:
    """A response of the backend with its own range in its headers."""
    return response(status, *lines, f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: 1.90", 'ETag: "1"', body=body)


def assert_offer(answer: Message) -> None:
    """The document with the offer, in body and headers."""
    version = json.loads(answer.body)["version"]
    assert (version["min_version"], version["version"]) == ("1.1", "1.58")
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")
    assert answer.framing == "length"


def assert_bad_document(answer: Message) -> None:
    """502 in Ironic's shape with the range on offer, and nothing of the backend's response."""
    assert answer.status == 502, answer
    assert json.loads(json.loads(answer.body)["error_message"])["code"] == 502
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")
    assert b"1.90" not in answer.head + answer.body
    assert not {"etag", "content-encoding"} & answer.names


# --- documents that cannot be rewritten --------------------------------------------------------------------

SHAPES: Final[dict[str, tuple[int, bytes, tuple[str, ...]]]] = {
    "gzip in spite of identity": (200, gzip.compress(V1), (JSON, "Content-Encoding: gzip")),
    "deflate": (200, zlib.compress(V1), (JSON, "Content-Encoding: deflate")),
    "an unknown coding": (200, V1, (JSON, "Content-Encoding: br")),
    "identity and gzip": (200, gzip.compress(V1), (JSON, "Content-Encoding: identity, gzip")),
    "gzip in a second line": (
        200,
        gzip.compress(V1),
        (JSON, "Content-Encoding: identity", "content-encoding: gzip"),
    ),
    "201": (201, V1, (JSON,)),
    "202": (202, V1, (JSON,)),
    "206": (206, V1, (JSON, "Content-Range: bytes 0-9/10")),
    "207": (207, V1, (JSON,)),
    "299": (299, V1, (JSON,)),
    "205 with content": (205, V1, (JSON,)),
    "text/plain": (200, V1, ("Content-Type: text/plain",)),
    "text/html": (200, b"<html>1.1 to 1.90</html>", ("Content-Type: text/html",)),
    "a list of types": (200, V1, ("Content-Type: text/plain, application/json",)),
    "two types": (200, V1, (JSON, "Content-Type: text/plain")),
    "no type": (200, V1, ()),
    "over the limit": (200, padded(LIMIT + 1), (JSON,)),
    "far over the limit": (200, padded(8 * LIMIT), (JSON,)),
    "too deep": (200, nested(DEEP), (JSON,)),
    "far too deep": (200, b"[" * 100_000, (JSON,)),
    "NaN": (200, encoded(v1(load=float("nan"))), (JSON,)),
    "infinity": (200, encoded(v1(load=float("-inf"))), (JSON,)),
    "a number that is infinite": (200, V1.replace(b'"id": "v1"', b'"id": "v1", "load": 1e999', 1), (JSON,)),
    "a number of 5000 digits": (200, V1.replace(b'"id"', b'"n": ' + b"9" * 5000 + b', "id"', 1), (JSON,)),
    "trailing garbage": (200, V1 + b"x", (JSON,)),
    "two documents": (200, V1 + V1, (JSON,)),
    "a part": (200, V1[:-1], (JSON,)),
    "no content": (200, b"", (JSON,)),
    "only blanks": (200, b" \n", (JSON,)),
    "null": (200, b"null", (JSON,)),
    "a list": (200, b"[" + V1 + b"]", (JSON,)),
    "a text": (200, encoded("1.90"), (JSON,)),
    "a number": (200, b"1.90", (JSON,)),
    "an empty object": (200, b"{}", (JSON,)),
    "other keys": (200, encoded({"id": "v2", "max": "1.90"}), (JSON,)),
    "not JSON": (200, b"{id: v1}", (JSON,)),
    "invalid UTF-8": (200, encoded(v1(name="e")).replace(b'"e"', b'"\xe9"'), (JSON,)),
    "300 that is no document": (300, b"<html>1.90</html>", ("Content-Type: text/html",)),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_R_A9_a_document_that_cannot_be_rewritten_is_502(testbed: Testbed, shape: str) -> None:
    status, body, lines = SHAPES[shape]
    gateway, backend = await lower_offer(testbed, sent(status, body, *lines))

    assert_bad_document(await gateway.request(request("GET", "/v1")))
    assert (await gateway.recorded()).reason == "bad_document"
    assert len(backend.requests) == 1, "it is not sent again"


@pytest.mark.parametrize("http", ["1.1", "1.0"])
@pytest.mark.parametrize("size", [LIMIT + 1, 8 * LIMIT])
async def test_R_A9_a_document_over_the_limit_whose_length_is_not_known_is_502(
    testbed: Testbed, size: int, http: str
) -> None:
    body = padded(size)
    data = sent(200, chunked(body[:1000], body[1000:]), JSON, "Transfer-Encoding: chunked")
    gateway, _ = await lower_offer(testbed, data)

    assert_bad_document(await gateway.request(request("GET", "/v1", http=http)))


async def test_R_A9_a_document_that_ends_with_its_connection_too_early_is_502(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + V1[:-1])

    backend = await testbed.backend(script)
    gateway = await testbed.gateway(backend, refusing_backend(declared=OLD))

    assert_bad_document(await gateway.request(request("GET", "/v1")))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_R_A9_the_rule_is_one_of_the_place_for_every_method(testbed: Testbed, method: str) -> None:
    gateway, backend = await lower_offer(testbed, sent(200, V1, "Content-Type: text/plain"))

    assert_bad_document(await gateway.request(request(method, "/v1")))
    assert len(backend.requests) == 1


async def test_R_A9_the_client_can_use_its_connection_afterwards(testbed: Testbed) -> None:
    gateway, backend = await lower_offer(testbed, sent(200, padded(8 * LIMIT), JSON))
    client = await gateway.client()

    for _ in range(2):
        assert_bad_document(await client.request(request("GET", "/v1")))
    backend.script = always(sent(200, V1, JSON))
    assert_offer(await client.request(request("GET", "/v1")))


async def test_R_A9_the_limit_is_configured(testbed: Testbed) -> None:
    for size in (1000, 1001):
        gateway, _ = await lower_offer(testbed, sent(200, padded(size), JSON), limits={"document": 1000})
        answer = await gateway.request(request("GET", "/v1"))
        (assert_offer if size == 1000 else assert_bad_document)(answer)


# --- documents that are rewritten --------------------------------------------------------------------------


async def test_R_A9_a_203_is_rewritten(testbed: Testbed) -> None:
    gateway, _ = await lower_offer(testbed, sent(203, V1, JSON))

    answer = await gateway.request(request("GET", "/v1"))

    assert answer.status == 203
    assert_offer(answer)


@pytest.mark.parametrize("value", ["identity", " identity", "Identity ", "", "identity, identity"])
async def test_R_A9_the_coding_identity_is_none(testbed: Testbed, value: str) -> None:
    gateway, _ = await lower_offer(testbed, sent(200, V1, JSON, f"Content-Encoding: {value}"))

    assert_offer(await gateway.request(request("GET", "/v1")))


@pytest.mark.parametrize(
    "body",
    [
        V1,
        padded(LIMIT),
        nested(DEEP - 1),
        b"\xef\xbb\xbf" + V1,
        json.dumps(v1()).encode("utf-16"),
        b"\n " + V1 + b" \r\n",
        b'{"version": {"min_version": "1.1", "version": "1.90"},' + V1[1:],
        V1[:-1] + b', "name": "\\ud800"}',
    ],
    ids=["plain", "limit", "depth", "BOM", "UTF-16", "blanks", "a key twice", "a lone surrogate"],
)
async def test_R_A9_what_can_be_read_is_rewritten(testbed: Testbed, body: bytes) -> None:
    gateway, _ = await lower_offer(testbed, sent(200, body, JSON))

    answer = await gateway.request(request("GET", "/v1"))

    assert_offer(answer)
    assert b"1.90" not in answer.body


async def test_R_A9_fields_about_the_backends_own_bytes_are_removed(testbed: Testbed) -> None:
    lines = (
        "Content-Type: application/json; charset=utf-8; profile=x",
        "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT",
        "Age: 7",
        "Accept-Ranges: bytes",
        "Content-MD5: abc",
        "Digest: sha-256=x",
        "Content-Digest: sha-256=:x:",
        "Repr-Digest: sha-256=:x:",
        "X-Other: 1",
    )
    gateway, _ = await lower_offer(testbed, sent(200, V1, *lines))

    answer = await gateway.request(request("GET", "/v1"))

    assert_offer(answer)
    assert answer.one("content-type") == "application/json; profile=x"
    assert answer.one("x-other") == "1"
    gone = {"last-modified", "age", "accept-ranges", "etag", "content-md5", "digest"}
    assert not (gone | {"content-digest", "repr-digest"}) & answer.names


@pytest.mark.parametrize(
    "value, expected",
    [
        ("application/json;charset=utf-8", "application/json"),
        ("application/json ; Charset = utf-8", "application/json"),
        ('Application/JSON; a=b; charset="utf-8";c=d', "Application/JSON; a=b;c=d"),
        ("application/vnd.example+json; charset=UTF-8", "application/vnd.example+json"),
    ],
)
async def test_R_A9_the_charset_is_dropped_alone(testbed: Testbed, value: str, expected: str) -> None:
    gateway, _ = await lower_offer(testbed, sent(200, V1, f"Content-Type: {value}"))

    answer = await gateway.request(request("GET", "/v1"))

    assert_offer(answer)
    assert answer.one("content-type") == expected


# --- nothing to rewrite ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, status",
    [("GET", 204), ("GET", 205), ("POST", 201), ("PUT", 204), ("DELETE", 202), ("POST", 200)],
)
async def test_R_A9_a_response_without_content_passes_with_the_range_on_offer(
    testbed: Testbed, method: str, status: int
) -> None:
    gateway, _ = await lower_offer(testbed, sent(status, b"", "Allow: GET"))

    answer = await gateway.request(request(method, "/v1"))

    assert (answer.status, answer.body, answer.one("allow")) == (status, b"", "GET")
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")


@pytest.mark.parametrize("status", [301, 304, 401, 404, 405, 500])
async def test_R_A9_other_statuses_pass_with_the_range_on_offer(testbed: Testbed, status: int) -> None:
    body = b"" if status == 304 else b"something"
    gateway, _ = await lower_offer(testbed, sent(status, body, "Content-Type: text/plain"))

    answer = await gateway.request(request("GET", "/v1"))

    assert (answer.status, answer.body) == (status, body)
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")


@pytest.mark.parametrize(
    "status, lines",
    [
        (200, (JSON, "Content-Length: 999")),
        (203, (JSON, "Content-Length: 999")),
        (300, (JSON, "Content-Length: 999")),
        (200, ("Content-Type: text/plain", "Content-Length: 999")),
        (200, ("Content-Length: 999",)),
        (200, (JSON, "Content-Encoding: gzip", "Content-Length: 999")),
        (200, (JSON, f"Content-Length: {8 * LIMIT}")),
        (206, (JSON, "Content-Length: 10", "Content-Range: bytes 0-9/999")),
    ],
)
async def test_R_A9_head_is_forwarded_without_length_and_validators(
    testbed: Testbed, status: int, lines: tuple[str, ...]
) -> None:
    lines = (*lines, "Age: 1", "Accept-Ranges: bytes", "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT")
    gateway, backend = await lower_offer(testbed, sent(status, b"", *lines))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request("HEAD", "/v1"))
        assert answer.status == status
        gone = {"content-length", "transfer-encoding", "etag", "last-modified", "age", "accept-ranges"}
        assert not gone & answer.names
        assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")
    assert [message.method for message in backend.requests] == ["HEAD", "HEAD"]


# --- how documents are requested ---------------------------------------------------------------------------

CONDITIONS: Final = (
    "Accept-Encoding: gzip",
    'If-Match: "1"',
    "If-None-Match: *",
    "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT",
    "If-Unmodified-Since: Mon, 01 Jan 2024 00:00:00 GMT",
    'If-Range: "1"',
    "Range: bytes=0-5",
)


def conditions(message: Message) -> list[str]:
    """Those of the field lines that a backend received which are in CONDITIONS."""
    names = {line.partition(":")[0].lower() for line in CONDITIONS}
    return sorted(f"{name}: {value}" for name, value in message.fields if name.lower() in names)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_R_A10_preconditions_of_changes_reach_the_backend(testbed: Testbed, method: str) -> None:
    gateway, backend = await lower_offer(testbed, response(412, reason="Precondition Failed"))

    assert (await gateway.request(request(method, "/v1", *CONDITIONS))).status == 412
    assert conditions(backend.only_request) == sorted(CONDITIONS)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_R_A10_documents_are_requested_whole_and_unencoded(testbed: Testbed, method: str) -> None:
    gateway, backend = await lower_offer(testbed, sent(200, b"" if method == "HEAD" else V1, JSON))

    assert (await gateway.request(request(method, "/v1", *CONDITIONS))).status == 200
    assert conditions(backend.only_request) == ["Accept-Encoding: identity"]


# --- a refusal that only the body shows --------------------------------------------------------------------


def nova_versions(highest: int) -> VersionSet:
    return VersionSet.between(Version(2, 1), Version(2, highest))


def refusal(version: str, highest: int) -> bytes:
    """The body of Nova's 406."""
    message = f"Version {version} is not supported by the API. Minimum is 2.1 and maximum is 2.{highest}."
    return encoded({"computeFault": {"code": 406, "message": message}})


async def nova_gateway(testbed: Testbed, *backends: ScriptedBackend) -> Gateway:
    """A gateway in front of Nova servers that were last seen to serve up to 2.90."""
    service = Service("compute", Nova(), tuple(each.backend for each in backends))
    gateway = await testbed.started(Gateway(service))
    for backend in backends:
        probe = ProbeSucceeded(Advertisement(nova_versions(90)), 0.0)
        gateway.snapshot_holder.observe("compute", backend.name, probe)
    return gateway


AT_2_90: Final = request(
    "GET", "/v2.1/servers", "OpenStack-API-Version: compute 2.90", "Accept-Encoding: gzip"
)

CODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip ": gzip.compress,
    "identity, gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": raw_deflate,
}


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("coding", CODINGS)
async def test_R_A8_an_encoded_406_about_the_version_is_learned(
    testbed: Testbed, coding: str, framing: str
) -> None:
    body, lines = CODINGS[coding](refusal("2.90", 79)), [JSON, f"Content-Encoding: {coding}"]
    if framing == "chunked":
        body, lines = chunked(body[:9], body[9:]), [*lines, "Transfer-Encoding: chunked"]
    backend = await testbed.backend(always(response(406, *lines, body=body)), declared=None)
    gateway = await nova_gateway(testbed, backend)

    answer = await gateway.request(AT_2_90)

    (fact,) = [fact for _, _, fact in gateway.facts if isinstance(fact, PassiveObservation)]
    assert fact.advertisement.versions == nova_versions(79)
    assert answer.status == 406
    assert "content-encoding" not in answer.names
    assert b"maximum is 2.79." in answer.body, "the refusal by the offer, which is lower now"


async def test_R_A8_the_request_is_sent_to_another_backend(testbed: Testbed) -> None:
    body = gzip.compress(refusal("2.90", 79))
    refused = response(406, JSON, "Content-Encoding: gzip", body=body)
    served = response(200, "OpenStack-API-Version: compute 2.90", body=b"{}")
    answers = iter([refused, served])

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(next(answers))

    backends = [await testbed.backend(script, declared=None) for _ in range(2)]
    gateway = await nova_gateway(testbed, *backends)

    answer = await gateway.request(AT_2_90)

    assert (answer.status, answer.one("openstack-api-version")) == (200, "compute 2.90")


BOMB: Final = gzip.compress(refusal("2.90", 79) + b" " * 64_000_000)

UNREADABLE: Final[dict[str, tuple[str, bytes]]] = {
    "another refusal": ("gzip", gzip.compress(encoded({"computeFault": {"code": 406, "message": "no"}}))),
    "a bomb": ("gzip", BOMB),
    "a bomb of bombs": ("gzip, gzip", gzip.compress(BOMB)),
    "twice": ("gzip, gzip", gzip.compress(gzip.compress(refusal("2.90", 79)))),
    "in two lines": ("gzip\r\nContent-Encoding: gzip", gzip.compress(gzip.compress(refusal("2.90", 79)))),
    "cut off": ("gzip", gzip.compress(refusal("2.90", 79))[:-9]),
    "not gzip": ("gzip", refusal("2.90", 79)),
    "not deflate": ("deflate", refusal("2.90", 79)),
    "more behind it": ("gzip", gzip.compress(refusal("2.90", 79)) + b"x"),
    "an unknown coding": ("br", b"\x0b\x02\x80{}\x03"),
    "no content": ("gzip", b""),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_R_A8_a_406_that_is_not_known_to_be_about_the_version_passes_as_it_came(
    testbed: Testbed, what: str
) -> None:
    coding, body = UNREADABLE[what]
    data = response(406, JSON, f"Content-Encoding: {coding}", 'ETag: "1"', body=body)
    backend = await testbed.backend(always(data), declared=None)
    gateway = await nova_gateway(testbed, backend)

    answer = await gateway.request(AT_2_90)

    assert (answer.status, answer.body, answer.one("etag")) == (406, body, '"1"')
    assert ", ".join(answer.every("content-encoding")) == coding.replace("\r\nContent-Encoding:", ",")
    assert gateway.facts == []


async def test_R_A8_a_406_beyond_64_KiB_passes_as_it_came(testbed: Testbed) -> None:
    body = refusal("2.90", 79) + b" " * 64 * KIB
    backend = await testbed.backend(always(response(406, JSON, body=body)), declared=None)
    gateway = await nova_gateway(testbed, backend)

    answer = await gateway.request(AT_2_90)

    assert (answer.status, answer.body, gateway.facts) == (406, body, [])
