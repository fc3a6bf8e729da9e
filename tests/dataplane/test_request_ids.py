"""The id by which a request is found in the logs of gateway and servers: one id in every place."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.decision.decision import Resolution
from gateway.core.dialect import (
    Advertisement,
    Dialect,
    Endpoint,
)
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Match, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.request_ids import OPENSTACK_IDS, PLAIN_IDS, is_plain_id
from gateway.core.versions.ranges import VersionSet
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_request_head
from gateway.dataplane.http1.request_ids import RequestIdSource, id_lines, is_made
from gateway.dialects import discover
from tests.kit.backends import (
    Script,
    ScriptedBackend,
    always,
    no_reply,
    refusing_backend,
    respond_with,
    serve,
)
from tests.kit.examples import examples
from tests.kit.messages import Message, read_fields, request, response, version_line
from tests.kit.workers import Gateway, Testbed, service_of

ID_FIELD: Final = "X-Openstack-Request-Id"
GIVEN: Final = "req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f"
PLAIN_FIELD: Final = "X-Request-Id"
PLAIN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WELL_FORMED: Final = re.compile(r"req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def dialect_of(name: str, **options: object) -> Dialect:
    kind = discover()[name]
    return kind.configured(kind.Options(**options))


def service_with(
    dialect: Dialect, declared: str, *backends: ScriptedBackend | Backend, match: Match | None = None
) -> Service:
    """A service of `dialect`, whose backends serve these versions."""
    versions = VersionSet.read(declared, dialect.scheme)
    made = (one.backend if isinstance(one, ScriptedBackend) else one for one in backends)
    return Service(
        dialect.name,
        dialect,
        tuple(replace(backend, declared=versions) for backend in made),
        match=match or Match(),
    )


async def gateway_for(testbed: Testbed, *services: Service) -> Gateway:
    """A gateway with these services."""
    gateway = await testbed.gateway(refusing_backend())
    gateway.snapshot_holder.update(Snapshot.configured(services, now=0.0))
    return gateway


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


async def test_R_D6_where_the_dialect_has_no_ids_a_plain_one_is_made(testbed: Testbed) -> None:
    """Two services on one connection, whose requests have equal bytes but for the path. The field of another
    API passes as it came; a well-formed id in it is the id of the request."""
    backend = await testbed.backend(always(response(200, body=b"{}")))
    chef = service_with(dialect_of("chef"), "0-1", backend, match=Match(path="/chef"))
    ironic = replace(service_of(backend, match=Match(path="/metal")), name="metal")
    gateway = await gateway_for(testbed, chef, ironic)
    client = await gateway.client()

    for _ in range(2):
        for values in (["spam"], ["a", "b"], [], [GIVEN]):
            lines = [f"{ID_FIELD.upper()}: {value}" for value in values]
            assert (await client.request(request("GET", "/chef/nodes", *lines))).status == 200
            sent = backend.requests[-1]
            assert sent.every(ID_FIELD) == values
            if values == [GIVEN]:
                assert PLAIN_FIELD.lower() not in sent.names
                assert gateway.records[-1].request_id == GIVEN
            else:
                assert PLAIN.fullmatch(sent.one(PLAIN_FIELD))
                assert gateway.records[-1].request_id == sent.one(PLAIN_FIELD)
            await client.request(request("GET", "/metal/v1/nodes", *lines))
    refused = await client.request(request("GET", "/chef/nodes", "X-Ops-Server-API-Version: 9"))
    assert refused.status == 406
    assert refused.one(PLAIN_FIELD) == gateway.records[-1].request_id
    assert ID_FIELD.lower() not in refused.names


@pytest.mark.parametrize("value", ["8a2f", "Root=1-67891233-abcdef01", "a" * 128, "a.b:c/d+e=_-9"])
async def test_R_D6_a_plain_id_of_the_client_is_the_only_one(testbed: Testbed, value: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(no_reply)

    answer = await gateway.request(request("POST", "/v1/nodes", f"{PLAIN_FIELD.lower()}: {value}"))

    assert backend.only_request.one(PLAIN_FIELD) == value
    assert ID_FIELD.lower() not in backend.only_request.names, "none is made where one came"
    record = await gateway.recorded()
    assert answer.status == 502
    assert answer.one(PLAIN_FIELD) == answer.one(ID_FIELD) == record.request_id == value
    assert record.response_request_id == value


@pytest.mark.parametrize(
    "lines",
    [
        (f"{PLAIN_FIELD}: two words",),
        (f"{PLAIN_FIELD}:",),
        (f"{PLAIN_FIELD}: {'a' * 129}",),
        (f'{PLAIN_FIELD}: "quoted"',),
        (f"{PLAIN_FIELD}: a\xe9",),
        (f"{PLAIN_FIELD}: a", f"{PLAIN_FIELD}: b"),
        (f"{PLAIN_FIELD}: a, b",),
    ],
)
async def test_R_D6_a_malformed_plain_id_is_replaced(testbed: Testbed, lines: tuple[str, ...]) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200

    made = backend.only_request.one(ID_FIELD)
    assert WELL_FORMED.fullmatch(made)
    assert backend.only_request.one(PLAIN_FIELD) == made == (await gateway.recorded()).request_id


@pytest.mark.parametrize(
    "line", [f"{PLAIN_FIELD.replace('-', '_')}: a", f"{PLAIN_FIELD.replace('-', '.')}: a"]
)
async def test_R_D6_an_alias_of_the_plain_field_is_removed(testbed: Testbed, line: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", "/v1/nodes", line))).status == 200

    assert sum("request" in name for name in backend.only_request.names) == 1
    assert WELL_FORMED.fullmatch(backend.only_request.one(ID_FIELD))


async def test_R_D6_where_both_came_the_one_of_the_api_counts(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for own, passes in ((GIVEN, True), ("spam", False)):
        lines = (f"{PLAIN_FIELD}: of-the-ingress", f"{ID_FIELD}: {own}")
        refused = await client.request(request("GET", "/v1/nodes", version_line("1.999"), *lines))
        assert (await client.request(request("GET", "/v1/nodes", *lines))).status == 200
        sent, counted = backend.requests[-1], own if passes else "of-the-ingress"
        assert sent.every(ID_FIELD) == ([own] if passes else [])
        assert sent.one(PLAIN_FIELD) == refused.one(PLAIN_FIELD) == "of-the-ingress"
        assert refused.one(ID_FIELD) == counted
        assert {record.request_id for record in gateway.records[-2:]} == {counted}


async def test_R_D6_the_record_has_the_id_of_the_response(testbed: Testbed) -> None:
    own = "req-ffffffff-ffff-4fff-8fff-ffffffffffff"
    found = [
        ((f"{ID_FIELD.lower()}:  {own} ",), own),
        (("Server: x", "X-Compute-Request-Id: y", f"{ID_FIELD}: {own}"), "y"),
        (("X-About: my request-id: z", "Request-Id: 1"), "1"),
        (("X-Request-Id: not well-formed",), ""),
        ((), ""),
    ]
    script = respond_with(*(response(200, *lines, body=b"{}") for lines, _ in found))
    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()

    for _, request_id in found:
        await client.request(request("GET", "/v1/nodes", f"{ID_FIELD}: {GIVEN}"))
        assert gateway.records[-1].response_request_id == request_id


async def test_R_D6_a_transparent_service_gets_no_id_that_the_client_did_not_send(testbed: Testbed) -> None:
    gateway, backend = await transparent_gateway(testbed)

    for lines in ((), (f"{ID_FIELD}: {GIVEN}",), (f"{ID_FIELD}: spam",)):
        assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200
        assert backend.requests[-1].every(ID_FIELD) == [line.partition(": ")[2] for line in lines]


async def transparent_gateway(
    testbed: Testbed, script: Script | None = None
) -> tuple[Gateway, ScriptedBackend]:
    """A gateway in front of one legacy Ironic."""
    backend = await testbed.backend(script or always(response(200, body=b"{}")), declared=None)
    gateway = await testbed.gateway(backend)
    gateway.snapshot_holder.observe(
        "baremetal", backend.name, ProbeSucceeded(Advertisement(VersionSet(), legacy=True), 1.0)
    )
    assert gateway.snapshot_holder.current.views["baremetal"].offer.transparent
    return gateway, backend


async def test_R_D6_a_refusal_of_a_transparent_service_has_an_id(testbed: Testbed) -> None:
    gateway, backend = await transparent_gateway(testbed, no_reply)

    answer = await gateway.request(request("POST", "/v1/nodes"))

    assert answer.status == 502
    assert ID_FIELD.lower() not in backend.only_request.names
    assert WELL_FORMED.fullmatch(answer.one(ID_FIELD))
    assert answer.one(ID_FIELD) == (await gateway.recorded()).request_id


async def test_R_D6_where_no_service_is_found_the_answer_has_an_id(testbed: Testbed) -> None:
    gateway = await gateway_for(testbed, replace(service_of(refusing_backend()), match=Match(path="/metal")))

    for line, own in (("", ""), (f"{PLAIN_FIELD}: mine", "mine"), (f"{ID_FIELD}: {GIVEN}", GIVEN)):
        answer = await gateway.request(request("GET", "/nowhere", *([line] if line else [])))
        assert answer.status == 404
        assert answer.one(PLAIN_FIELD) == gateway.records[-1].request_id
        assert answer.one(PLAIN_FIELD) == own or PLAIN.fullmatch(answer.one(PLAIN_FIELD))


async def test_R_D6_what_is_no_request_has_no_id(testbed: Testbed) -> None:
    """It has no line in the log either."""
    gateway = await testbed.gateway(refusing_backend())

    answer: Message = await gateway.request(b"GET / HTTP/1.1\r\n\r\n")

    assert answer.status == 400
    assert not any("request-id" in name for name in answer.names)


IDS = st.sampled_from(["", GIVEN, "plain", "spam spam", GIVEN.upper(), "x" * 200])


@settings(max_examples=examples(200))
@given(own=IDS, plain=IDS, other=st.booleans())
def test_R_D6_a_backend_gets_no_malformed_id_and_one_that_is_in_the_log(
    own: str, plain: str, *, other: bool
) -> None:
    """Whatever came: the id of the request is in some field for the backend, and no field is malformed."""
    dialect = dialect_of("chef" if other else "ironic")
    service = service_with(dialect, "0-1" if other else "1.1-1.90", refusing_backend())
    view = Snapshot.configured([service], now=0.0).views[dialect.name]
    lines = [f"{ID_FIELD}: {own}"] * bool(own) + [f"{PLAIN_FIELD}: {plain}"] * bool(plain)
    names = frozenset({ID_FIELD.lower(), PLAIN_FIELD.lower()})
    head = read_request_head(
        request("GET", "/", *lines), NameTable.for_requests(frozenset(), names), Limits()
    )
    resolution = Resolution(view, Endpoint("resource"), candidates=view.by_version.everyone)
    request_id = RequestIdSource().of(resolution, head)

    written = dict(read_fields(b"\r\n" + id_lines(head, resolution, request_id) + b"\r\n"))

    given_one = OPENSTACK_IDS.is_valid(own) or PLAIN_IDS.is_valid(plain)
    assert is_made(head, request_id) is not given_one
    assert request_id in written.values()
    assert PLAIN_IDS.is_valid(written.get(PLAIN_FIELD, "1"))
    assert other or OPENSTACK_IDS.is_valid(written.get(ID_FIELD, GIVEN))


@settings(max_examples=examples(200))
@given(st.integers(0, len(GIVEN)), st.integers(0, 1), st.text("0afgAFr-_:/%", max_size=2))
def test_R_D6_an_id_is_kept_if_it_has_the_form_of_its_api(at: int, cut: int, put: str) -> None:
    """One that differs from it by a character, or in length, is replaced."""
    text = GIVEN[:at] + put + GIVEN[at + cut :]
    service = service_with(dialect_of("ironic"), "1.1-1.90", refusing_backend())
    view = Snapshot.configured([service], now=0.0).views["ironic"]
    head = read_request_head(
        request("GET", "/", f"{ID_FIELD}: {text}"),
        NameTable.for_requests(frozenset(), frozenset({ID_FIELD.lower()})),
        Limits(),
    )
    resolution = Resolution(view, Endpoint("resource"), candidates=view.by_version.everyone)

    kept = RequestIdSource().of(resolution, head) == text
    assert kept is (re.fullmatch("req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None)


def test_a_plain_id_has_the_form_of_plain_ids() -> None:
    for byte in range(256):
        for value in (bytes([byte]), b"a%cz" % byte):
            assert is_plain_id(value) is PLAIN_IDS.is_valid(value.decode("latin-1"))
    assert [is_plain_id(b"a" * length) for length in (0, 1, 128, 129)] == [False, True, True, False]
