"""`services.NAME.headers` on the wire: in requests, in responses of backends and of the gateway itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.fleet.service import Match, Service
from gateway.core.http.header_edits import HeaderEdits
from tests.dataplane.test_request_ids import dialect_of, service_with
from tests.kit.backends import Script, ScriptedBackend, UpstreamConnection, always, ironic_response, serve
from tests.kit.ironic import reconfigure
from tests.kit.messages import VERSION_FIELD, request, response
from tests.kit.workers import Gateway, Testbed, service_of

EDITS = HeaderEdits(
    set=(("X-Set", "new"), ("User-Agent", "gateway")), add=(("X-Added", "more"),), remove=("X-Gone",)
)
SENT = ("X-Set: old", "x_set: same", "X-SET: again", "X-Added: first", "X-Gone: 1", "x.gone: 2", "X-Goner: 3")


async def edited(
    testbed: Testbed,
    script: Script = serve,
    *,
    request_edits: HeaderEdits | None = None,
    response_edits: HeaderEdits | None = None,
) -> tuple[Gateway, ScriptedBackend, Service]:
    """A gateway whose one service has these edits."""
    gateway, backend = await testbed.gateway_and_backend(script)
    service = replace(service_of(backend), request_edits=request_edits, response_edits=response_edits)
    reconfigure(gateway.snapshot_holder, [service])
    return gateway, backend, service


async def test_requests_to_backends(testbed: Testbed) -> None:
    gateway, backend, _ = await edited(testbed, request_edits=EDITS)

    for _ in range(3):  # the third head with these names is read by a layout
        await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31", *SENT))

    for sent in backend.requests:
        assert sent.every("X-Set") == ["new"]
        assert sent.every("X-Added") == ["first", "more"]
        assert sent.every("User-Agent") == ["gateway"]
        assert sent.every("X-Goner") == ["3"]
        assert {"x-gone", "x.gone", "x_set"}.isdisjoint(sent.names)
        assert sent.one(VERSION_FIELD) == "1.31"


async def test_responses_of_backends(testbed: Testbed) -> None:
    script = always(response(200, f"{VERSION_FIELD}: 1.31", *SENT, body=b"{}"))
    gateway, _, _ = await edited(testbed, script, response_edits=EDITS)

    for _ in range(3):
        answer = await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31"))
        assert (answer.every("X-Set"), answer.every("X-Added")) == (["new"], ["first", "more"])
        assert answer.every("X-Goner") == ["3"]
        assert {"x-gone", "x.gone", "x_set"}.isdisjoint(answer.names)
        assert answer.one(VERSION_FIELD) == "1.31"


@pytest.mark.parametrize("version", ["1.91", "x"])
async def test_refusals_of_the_gateway(testbed: Testbed, version: str) -> None:
    gateway, _, _ = await edited(testbed, response_edits=EDITS)

    answer = await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: {version}"))

    assert answer.status == 406
    assert (answer.every("X-Set"), answer.every("X-Added")) == (["new"], ["more"])


async def test_failures_have_them_too_and_what_is_removed_of_them_is_gone(testbed: Testbed) -> None:
    edits = HeaderEdits(set=(("X-Set", "new"),), remove=("Content-Type",))
    gateway, backend, _ = await edited(testbed, always(b"nonsense\r\n\r\n"), response_edits=edits)

    answer = await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31"))

    assert (answer.status, answer.every("X-Set"), answer.every("Content-Type")) == (502, ["new"], [])
    assert len(backend.requests) == 1


async def test_errors_before_a_service_is_known_have_none(testbed: Testbed) -> None:
    gateway, _, service = await edited(testbed, response_edits=EDITS)
    reconfigure(gateway.snapshot_holder, [replace(service, match=Match(path="/metal"))])

    unrouted = await gateway.request(request("GET", "/v1"))
    malformed = await gateway.request(request("GET", "/v1", "Content-Length: x"))

    assert (unrouted.status, malformed.status) == (404, 400)
    assert "x-set" not in {*unrouted.names, *malformed.names}


async def test_documents_and_cached_documents(testbed: Testbed) -> None:
    """`Accept-Encoding: identity` of the gateway stands, whatever is configured: the document is read."""
    request_edits = HeaderEdits(set=(("Accept-Encoding", "gzip"), ("If-None-Match", '"x"')))
    gateway, backend, _ = await edited(testbed, request_edits=request_edits, response_edits=EDITS)

    fresh = await gateway.request(request("GET", "/"))
    await backend.close()
    known = await gateway.request(request("GET", "/"))
    testbed.backends.remove(backend)

    assert backend.only_request.every("Accept-Encoding") == ["identity"]
    assert "if-none-match" not in backend.only_request.names
    for answer in (fresh, known):
        assert (answer.status, answer.every("X-Set"), answer.every("X-Added")) == (200, ["new"], ["more"])


async def test_interim_responses_lose_what_is_removed_and_get_nothing(testbed: Testbed) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nX-Gone: 1\r\nX-Set: old\r\nLink: </a>\r\n\r\n"

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        await upstream.send(hints + ironic_response(message))
        await upstream.ended()

    gateway, _, _ = await edited(testbed, script, response_edits=EDITS)
    client = await gateway.client()

    await client.send(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31"))

    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert (await client.response()).one("X-Set") == "new"


async def test_a_service_without_edits_passes_everything(testbed: Testbed) -> None:
    """Beside one with edits, and in the order in which it came."""
    gateway, backend, service = await edited(testbed, request_edits=EDITS, response_edits=EDITS)
    service = replace(service, match=Match(path="/edited"))
    plain = replace(service_of(backend), name="plain")
    reconfigure(gateway.snapshot_holder, [service, plain])

    answer = await gateway.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.31", *SENT))

    lines = backend.only_request.head.decode().split("\r\n")
    assert [line for line in lines if line in SENT] == list(SENT)
    assert "x-set" not in answer.names


async def test_what_other_dialects_have_selected_is_edited(testbed: Testbed) -> None:
    """Fields that another service's dialect reads, and its request ids, are cut out of every head."""
    gateway, backend, _ = await edited(testbed)
    edits = HeaderEdits(
        set=(("X-Openstack-Ironic-Api-Version", "mine"),), remove=("X-Openstack-Request-Id", "X-Other-Id")
    )
    chef = service_with(dialect_of("chef"), "0-2", backend, match=Match(path="/chef"))
    other = replace(chef, request_edits=edits)
    reconfigure(gateway.snapshot_holder, [service_of(backend), other])

    await gateway.request(
        request(
            "GET",
            "/chef/nodes",
            "X-Ops-Server-API-Version: 1",
            f"{VERSION_FIELD}: 1.31",
            "X-Openstack-Request-Id: req-1",
        )
    )

    sent = backend.only_request
    assert sent.every(VERSION_FIELD) == ["mine"]
    assert "x-openstack-request-id" not in sent.names
    assert sent.one("X-Ops-Server-API-Version") == "1"
