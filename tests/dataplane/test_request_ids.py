"""The id by which a request is found in the logs of gateway and servers: one id in every place."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

import pytest

from gateway.core.dialect import Advertisement, Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import RouteMatch, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.dialects import discover
from tests.dataplane.messages import Message, request, response, version_line
from tests.dataplane.testbed import (
    Gateway,
    ScriptedBackend,
    Testbed,
    UpstreamConnection,
    always,
    refusing_backend,
    respond_with,
    serve,
    service_of,
)

ID_FIELD: Final = "X-Openstack-Request-Id"
GIVEN: Final = "req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f"
WELL_FORMED: Final = re.compile(r"req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def dialect_of(name: str, **options: object) -> Dialect:
    kind = discover()[name]
    return kind.configured(kind.Options(**options))


def service_with(
    dialect: Dialect, declared: str, *backends: ScriptedBackend | Backend, match: RouteMatch | None = None
) -> Service:
    """A service of `dialect`, whose backends serve these versions."""
    versions = VersionSet.read(declared, dialect.scheme)
    made = (one.backend if isinstance(one, ScriptedBackend) else one for one in backends)
    return Service(
        dialect.name,
        dialect,
        tuple(replace(backend, declared=versions) for backend in made),
        match=match or RouteMatch(),
    )


async def gateway_for(testbed: Testbed, *services: Service) -> Gateway:
    """A gateway with these services."""
    gateway = await testbed.gateway(refusing_backend())
    gateway.snapshot_holder.update(Snapshot.configured(services, now=0.0))
    return gateway


async def no_reply(upstream: UpstreamConnection) -> None:
    """Read one request, and close."""
    await upstream.request()


async def test_R_D6_one_id_is_made_for_backend_log_and_refusal(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(no_reply)

    answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.31")))

    made = backend.only_request.one(ID_FIELD)
    assert WELL_FORMED.fullmatch(made)
    assert answer.status == 502
    assert answer.one(ID_FIELD) == made == (await gateway.recorded()).request_id


async def test_R_D6_a_well_formed_id_of_the_client_is_kept_everywhere(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(no_reply)
    lines = (version_line("1.31"), f"{ID_FIELD.lower()}:  {GIVEN} ")

    answer = await gateway.request(request("POST", "/v1/nodes", *lines))

    assert backend.only_request.one(ID_FIELD) == GIVEN
    assert answer.status == 502
    assert answer.one(ID_FIELD) == GIVEN == (await gateway.recorded()).request_id


@pytest.mark.parametrize(
    "lines",
    [
        (f"{ID_FIELD}: spam",),
        (f"{ID_FIELD}:",),
        (f"{ID_FIELD}: {GIVEN.upper()}",),
        (f"{ID_FIELD}: {GIVEN}0",),
        (f"{ID_FIELD}: {GIVEN}", f"{ID_FIELD}: {GIVEN}"),
        (f"{ID_FIELD}: {GIVEN}, {GIVEN}",),
        (f"{ID_FIELD}: {GIVEN}\xa0",),
        (f"{ID_FIELD.replace('-', '_')}: {GIVEN}",),
        (f"{ID_FIELD.replace('-', '.')}: {GIVEN}",),
        (f"{ID_FIELD}: {GIVEN}", f"Connection: {ID_FIELD}"),
    ],
)
async def test_R_D6_another_id_is_replaced(testbed: Testbed, lines: tuple[str, ...]) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200

    made = backend.only_request.one(ID_FIELD)
    assert WELL_FORMED.fullmatch(made)
    assert made != GIVEN
    assert (await gateway.recorded()).request_id == made
    assert sum("request" in name for name in backend.only_request.names) == 1


async def test_R_D6_each_refusal_has_an_id_of_its_own(testbed: Testbed) -> None:
    """The refusal itself is cached. Equal bytes on one connection are read only once, too."""
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    seen = []
    for _ in range(3):
        answer = await client.request(request("GET", "/v1/nodes", version_line("1.999")))
        assert answer.status == 406
        seen.append(answer.one(ID_FIELD))
    assert len(set(seen)) == 3
    assert [record.request_id for record in gateway.records] == seen
    for _ in range(3):
        assert (await client.request(request("GET", "/v1/nodes", version_line("1.31")))).status == 200
    assert len({message.one(ID_FIELD) for message in backend.requests} - set(seen)) == 3


async def test_R_D6_a_503_has_the_id_of_the_log(testbed: Testbed) -> None:
    gateway = await testbed.gateway(refusing_backend())

    answer = await gateway.request(request("GET", "/v1/nodes"))

    assert answer.status == 503
    assert WELL_FORMED.fullmatch(answer.one(ID_FIELD))
    assert answer.one(ID_FIELD) == (await gateway.recorded()).request_id


async def test_R_D6_a_request_that_is_sent_again_keeps_its_id(testbed: Testbed) -> None:
    backends = [await testbed.backend(no_reply) for _ in range(2)]
    gateway = await testbed.gateway(*backends)

    answer = await gateway.request(request("GET", "/v1/nodes"))

    assert answer.status == 502
    assert {backend.only_request.one(ID_FIELD) for backend in backends} == {answer.one(ID_FIELD)}


async def test_R_D6_the_ids_of_a_backend_are_not_touched(testbed: Testbed) -> None:
    own = "req-ffffffff-ffff-4fff-8fff-ffffffffffff"
    lines = (f"{ID_FIELD.lower()}: {own}", "Openstack-Request-Id: x", "X-Compute-Request-Id: y")
    script = respond_with(response(404, *lines, body=b"{}"), response(200, body=b"{}"))
    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()

    first = await client.request(request("GET", "/v1/nodes", f"{ID_FIELD}: {GIVEN}"))
    assert lines == tuple(f"{name}: {value}" for name, value in first.fields if "equest-" in name)
    second = await client.request(request("GET", "/v1/nodes", f"{ID_FIELD}: {GIVEN}"))
    assert ID_FIELD.lower() not in second.names, "nothing is added, either"


async def test_R_D6_nova_names_the_id_twice(testbed: Testbed) -> None:
    gateway = await gateway_for(testbed, service_with(dialect_of("nova"), "2.1-2.60", refusing_backend()))

    for version, status in (("2.999", 406), ("2.50", 503)):
        line = f"X-OpenStack-Nova-API-Version: {version}"
        answer = await gateway.request(request("GET", "/v2.1/servers", line))
        assert answer.status == status
        assert WELL_FORMED.fullmatch(answer.one(ID_FIELD))
        assert answer.one(ID_FIELD) == answer.one("X-Compute-Request-Id") == gateway.records[-1].request_id


async def test_R_D6_placement_has_the_id_in_the_body_too(testbed: Testbed) -> None:
    placement = dialect_of("openstack", service_type="placement")
    gateway = await gateway_for(testbed, service_with(placement, "1.0-1.39", refusing_backend()))

    for version, status in (("1.999", 406), ("1.30", 503)):
        line = f"OpenStack-API-Version: placement {version}"
        answer = await gateway.request(request("GET", "/resource_providers", line, f"{ID_FIELD}: {GIVEN}"))
        assert (answer.status, answer.one(ID_FIELD)) == (status, GIVEN)
        assert json.loads(answer.body)["errors"][0]["request_id"] == GIVEN


async def test_R_D6_where_the_dialect_has_no_ids_the_field_passes_as_it_came(testbed: Testbed) -> None:
    """Two services on one connection, whose requests have equal bytes but for the path."""
    backend = await testbed.backend(always(response(200, body=b"{}")))
    chef = service_with(dialect_of("chef"), "0-1", backend, match=RouteMatch(path="/chef"))
    ironic = replace(service_of(backend, match=RouteMatch(path="/metal")), name="metal")
    gateway = await gateway_for(testbed, chef, ironic)
    client = await gateway.client()

    for _ in range(2):
        for lines in ((f"{ID_FIELD.upper()}: spam",), (f"{ID_FIELD}: a", f"{ID_FIELD}: b"), ()):
            assert (await client.request(request("GET", "/chef/nodes", *lines))).status == 200
            sent = [
                f"{name}: {value}"
                for name, value in backend.requests[-1].fields
                if "equest-i" in name.lower()
            ]
            assert sent == list(lines)
            await client.request(request("GET", "/metal/v1/nodes", *lines))
    refused = await client.request(request("GET", "/chef/nodes", "X-Ops-Server-API-Version: 9"))
    assert refused.status == 406
    assert not any("request-id" in name for name in refused.names)


async def test_R_D6_a_transparent_service_gets_no_id_that_the_client_did_not_send(testbed: Testbed) -> None:
    gateway, backend = await transparent_gateway(testbed)

    for lines in ((), (f"{ID_FIELD}: {GIVEN}",), (f"{ID_FIELD}: spam",)):
        assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200
        assert backend.requests[-1].every(ID_FIELD) == [line.partition(": ")[2] for line in lines]


async def transparent_gateway(testbed: Testbed) -> tuple[Gateway, ScriptedBackend]:
    """A gateway in front of one legacy Ironic."""
    backend = await testbed.backend(always(response(200, body=b"{}")), declared=None)
    gateway = await testbed.gateway(backend)
    gateway.snapshot_holder.observe(
        "baremetal", backend.name, ProbeSucceeded(Advertisement(VersionSet(), legacy=True), 1.0)
    )
    assert gateway.snapshot_holder.current.views["baremetal"].offer.transparent
    return gateway, backend


async def test_R_D6_an_error_before_routing_has_no_id(testbed: Testbed) -> None:
    gateway = await gateway_for(
        testbed, replace(service_of(refusing_backend()), match=RouteMatch(path="/metal"))
    )

    for data, status in ((request("GET", "/nowhere"), 404), (b"GET / HTTP/1.1\r\n\r\n", 400)):
        answer: Message = await gateway.request(data)
        assert answer.status == status
        assert not any("request-id" in name for name in answer.names)
