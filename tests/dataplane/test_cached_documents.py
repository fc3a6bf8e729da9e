"""While no backend that may give a discovery document can be reached, it is answered from the cache.

The answer is made anew for each client: the present offer, and links that this client can follow.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any, Final

import pytest

from gateway.core.decision.decision import DocumentKey
from gateway.core.dialect import Advertisement, Served
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Drain, Pin, ProbeSucceeded
from gateway.core.fleet.service import Match
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.documents.cached import (
    MAX_DOCUMENTS,
    MAX_SIZE,
    MAX_TARGET,
    CachedDocument,
    CachedDocuments,
)
from gateway.dialects.openstack.ironic import ROOT, V1
from tests.dataplane.test_retries import fill_backlog
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, never_respond, refusing_backend
from tests.kit.ironic import OLD, reconfigure
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, request, response, version_line
from tests.kit.workers import Gateway, Testbed, probe_succeeded, service_of


def root(base: str) -> dict[str, Any]:
    """The document of Ironic at `/`, with links below `base`."""
    links = [{"href": f"{base}/v1/", "rel": "self"}, {"href": "https://docs.example/v1", "rel": "help"}]
    entry = {"id": "v1", "links": links, "status": "CURRENT", "min_version": "1.1", "version": "1.90"}
    return {"name": "OpenStack Ironic API", "versions": [entry], "default_version": entry}


def v1(base: str) -> dict[str, Any]:
    """The document of Ironic at `/v1`, likewise."""
    return {
        "id": "v1",
        "links": [{"href": f"{base}/v1/", "rel": "self"}],
        "version": root(base)["versions"][0],
    }


def ironic(*lines: str, status: int = 200, base: str = "http://{host}") -> Any:
    """A server of both documents with links to the Host that it sees, which names the served version."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            own = base.format(host=message.one("host"), port=upstream.backend.port)
            document = root(own) if message.target.partition("?")[0] == "/" else v1(own)
            more = [f"{VERSION_FIELD}: {version}" for version in message.every(VERSION_FIELD)]
            await upstream.send(
                response(
                    status,
                    "Content-Type: application/json; charset=utf-8",
                    "Date: Mon, 01 Jan 2024 00:00:00 GMT",
                    "X-Openstack-Request-Id: req-of-another-request",
                    'ETag: "1"',
                    f"{MIN_FIELD}: 1.1",
                    f"{MAX_FIELD}: 1.90",
                    *more,
                    *lines,
                    body=b"" if message.method == "HEAD" else json.dumps(document).encode(),
                )
            )

    return script


async def fleet(testbed: Testbed, *lines: str, **more: Any) -> tuple[Gateway, ScriptedBackend]:
    """A gateway in front of one Ironic that serves up to 1.90."""
    options = {key: more.pop(key) for key in ("status", "base") if key in more}
    return await testbed.gateway_and_backend(ironic(*lines, **options), **more)


async def get(gateway: Gateway, target: str = "/", *lines: str, **more: Any) -> Message:
    return await gateway.request(request("GET", target, *lines, **more))


def shown(answer: Message, target: str = "/") -> tuple[str, str, str]:
    """Minimum, maximum and the first link of a document."""
    document = json.loads(answer.body)
    entry = document["versions"][0] if target == "/" else document["version"]
    return entry["min_version"], entry["version"], entry["links"][0]["href"]


# --- when it is answered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 203, 300])
async def test_R_D7_a_document_is_answered_while_the_only_backend_is_away(
    testbed: Testbed, status: int
) -> None:
    gateway, backend = await fleet(testbed, status=status)
    assert (await get(gateway)).status == status
    await backend.close()

    for number in (2, 3):
        answer = await get(gateway)
        assert answer.status == status
        assert shown(answer) == ("1.1", "1.90", "http://api.example/v1/")
        record = await gateway.recorded(number)
        assert (record.backend, record.status, record.reason) == ("none", status, "known_document")
        assert record.bytes_out == len(answer.body)
    assert len(backend.requests) == 1


async def test_R_D7_head_is_answered_as_well(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    client = await gateway.client()
    assert (await client.request(request("GET", "/"))).status == 200
    await backend.close()

    head = await client.request(request("HEAD", "/"))
    whole = await client.request(request("GET", "/"))

    assert (head.status, head.body, whole.status) == (200, b"", 200)
    assert head.one("content-length") == whole.one("content-length") == str(len(whole.body))


async def test_R_D7_a_document_is_answered_while_the_only_backend_is_drained(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway)).status == 200
    gateway.snapshot_holder.apply("baremetal", Drain(backend.name))

    answer = await get(gateway)

    assert (answer.status, shown(answer)[:2]) == (200, ("1.1", "1.90"))
    assert len(backend.requests) == 1


async def test_R_D7_a_backend_that_does_not_take_connections_in_time_is_away(testbed: Testbed) -> None:
    backend = await testbed.backend(ironic())
    with socket.socket() as full:
        fillers = fill_backlog(full)
        away = replace(refusing_backend("full"), port=full.getsockname()[1])
        gateway = await testbed.gateway(backend, away, connect=0.1)
        assert (await get(gateway)).status == 200
        gateway.snapshot_holder.apply("baremetal", Drain(backend.name))

        answer = await get(gateway)
        for filler in fillers:
            filler.close()

    assert (answer.status, (await gateway.recorded(2)).attempts) == (200, 1)


@pytest.mark.parametrize(
    "target, method",
    [("/v1/nodes", "GET"), ("/", "POST"), ("/", "OPTIONS"), ("/?a=1", "GET"), ("/v1/?a=1", "GET")],
)
async def test_R_D7_nothing_else_is_answered(testbed: Testbed, target: str, method: str) -> None:
    gateway, backend = await fleet(testbed)
    for known in ("/", "/v1", "/v1/nodes"):
        await get(gateway, known)
    await backend.close()

    assert (await gateway.request(request(method, target))).status == 503


@pytest.mark.parametrize("fetched", ["/v1", "/v1/"])
@pytest.mark.parametrize("asked", ["/v1", "/v1/", "/v1.json", "/%761//"])
async def test_R3_V16_the_spellings_of_one_document_are_one(
    testbed: Testbed, fetched: str, asked: str
) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway, fetched)).status == 200
    await backend.close()

    answer = await get(gateway, asked)

    assert (answer.status, shown(answer, asked)) == (200, ("1.1", "1.90", "http://api.example/v1/"))


async def test_R_D7_a_backend_that_was_reached_and_fails_is_502_or_504(testbed: Testbed) -> None:
    async def closes(upstream: UpstreamConnection) -> None:
        await upstream.head()

    gateway, backend = await fleet(testbed, "Connection: close", backend_head=900.0)
    gateway.clock.stop()
    assert (await get(gateway)).status == 200

    backend.script = closes
    assert (await get(gateway)).status == 502

    backend.script, before = never_respond, len(backend.requests)
    asking = asyncio.get_running_loop().create_task(get(gateway))
    await backend.received(before + 1)
    gateway.turn(900.0)
    assert (await asking).status == 504


async def test_R_D7_nothing_on_offer_is_503(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway)).status == 200
    await backend.close()
    gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 0)))

    assert (await get(gateway)).status == 503


# --- what it shows ---------------------------------------------------------------------------------------


async def test_R_D7_the_present_offer_is_shown(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert shown(await get(gateway))[:2] == ("1.1", "1.90")
    await backend.close()

    for pin, highest in ((Version(1, 50), "1.50"), (Version(1, 30), "1.30"), (None, "1.90")):
        gateway.snapshot_holder.apply("baremetal", Pin(pin))
        assert shown(await get(gateway))[:2] == ("1.1", highest)


async def test_R_D7_a_larger_offer_than_that_of_the_cached_document_is_shown(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 30)))
    assert shown(await get(gateway))[:2] == ("1.1", "1.30")
    await backend.close()
    gateway.snapshot_holder.apply("baremetal", Pin(None))

    assert shown(await get(gateway))[:2] == ("1.1", "1.90")


CLIENTS: Final[list[tuple[tuple[str, ...], str | None, str]]] = [
    ((), "api.example", "http://api.example/metal/v1/"),
    ((), "other.example:81", "http://other.example:81/metal/v1/"),
    (("X-Forwarded-Proto: https",), "api.example", "https://api.example/metal/v1/"),
    (("X-Forwarded-Host: outer.example",), "api.example", "http://outer.example/metal/v1/"),
    (("X-Forwarded-Prefix: /outer",), "api.example", "http://api.example/outer/metal/v1/"),
    (("X-Forwarded-Prefix: /metal",), "api.example", "http://api.example/metal/metal/v1/"),
]

BASES: Final = {
    "the Host": "http://{host}",
    "its own address": "http://127.0.0.1:{port}",
    "a path": "",
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("second", CLIENTS)
@pytest.mark.parametrize("first", CLIENTS)
async def test_R_D7_links_are_those_of_the_present_client(
    testbed: Testbed,
    first: tuple[tuple[str, ...], str, str],
    second: tuple[tuple[str, ...], str, str],
    base: str,
) -> None:
    more: dict[str, Any] = {"match": Match(path="/metal"), "trusted": ["127.0.0.0/8"]}
    gateway, backend = await fleet(testbed, base=BASES[base], **more)
    links = []
    for number, (lines, host, expected) in enumerate((first, second)):
        if number:
            await backend.close()
        answer = await get(gateway, "/metal/", *lines, host=host)
        assert answer.status == 200
        links.append((shown(answer)[2], expected))
        document = json.loads(answer.body)
        assert document["versions"][0]["links"][1]["href"] == "https://docs.example/v1"

    for found, expected in links:
        assert found == (expected if base != "a path" else expected[expected.index("/", 8) :])


async def test_R_D7_links_that_a_backend_builds_from_forwarded_fields_are_those_of_the_present_client(
    testbed: Testbed,
) -> None:
    more: dict[str, Any] = {"match": Match(path="/metal"), "trusted": ["127.0.0.0/8"]}
    gateway, backend = await fleet(testbed, base="https://first.example/outer/metal", **more)
    first = ("X-Forwarded-Proto: https", "X-Forwarded-Host: first.example", "X-Forwarded-Prefix: /outer")
    assert shown(await get(gateway, "/metal/", *first))[2] == "https://first.example/outer/metal/v1/"
    await backend.close()

    assert shown(await get(gateway, "/metal/"))[2] == "http://api.example/metal/v1/"


async def test_R_D7_the_host_of_another_client_is_never_shown(testbed: Testbed) -> None:
    """A backend that repeats the Host outside its links: what one client chose is not for others."""
    gateway, backend = await testbed.gateway_and_backend(ironic())

    async def repeats(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        document = root(f"http://{message.one('host')}") | {"description": f"at {message.one('host')}"}
        lines = ("Content-Type: application/json", "Connection: close")
        await upstream.send(response(200, *lines, body=json.dumps(document).encode()))

    backend.script = repeats
    assert (await get(gateway, host="evil.example")).status == 200
    await backend.close()

    assert (await get(gateway)).status == 503
    assert (await get(gateway, host="evil.example")).status == 200


@pytest.mark.parametrize("port", [80, 8080])
async def test_R_D7_the_host_of_another_client_is_never_shown_with_another_port(
    testbed: Testbed, port: int
) -> None:
    """A backend that takes the name from the Host and the port from its configuration."""

    async def own_port(upstream: UpstreamConnection) -> None:
        name = (await upstream.request()).one("host").partition(":")[0]
        lines = ("Content-Type: application/json", "Connection: close")
        await upstream.send(response(200, *lines, body=json.dumps(root(f"http://{name}:6385")).encode()))

    gateway, backend = await testbed.gateway_and_backend(own_port)
    assert (await get(gateway, host=f"evil.example:{port}")).status == 200
    await backend.close()

    assert (await get(gateway)).status == 503
    assert (await get(gateway, host="evil.example")).status == 200


async def test_R_D7_the_forwarded_host_of_another_client_is_never_shown(testbed: Testbed) -> None:
    async def repeats(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        document = root("") | {"description": f"at {message.one('x-forwarded-host')}"}
        lines = ("Content-Type: application/json", "Connection: close")
        await upstream.send(response(200, *lines, body=json.dumps(document).encode()))

    gateway, backend = await testbed.gateway_and_backend(repeats, trusted=["127.0.0.0/8"])
    assert (await get(gateway, "/", "X-Forwarded-Host: evil.example")).status == 200
    await backend.close()

    assert (await get(gateway)).status == 503
    assert (await get(gateway, "/", "X-Forwarded-Host: evil.example")).status == 200


async def test_R_D7_a_client_without_a_host_changes_no_links_of_others(testbed: Testbed) -> None:
    """Its document has paths in place of links: nobody knows by which name it reached the gateway."""
    gateway, backend = await fleet(testbed)
    assert (await get(gateway)).status == 200
    assert (await gateway.request(b"GET / HTTP/1.0\r\n\r\n")).status == 200
    await backend.close()

    assert shown(await get(gateway)) == ("1.1", "1.90", "http://api.example/v1/")


@pytest.mark.parametrize("requested", ["1.58", "latest", None])
async def test_R_D7_a_negotiated_document_names_the_version_at_which_it_was_made(
    testbed: Testbed, requested: str | None
) -> None:
    """What it lists depends on that version, so no other one is claimed."""
    gateway, backend = await fleet(testbed)
    assert (await get(gateway, "/v1", version_line("1.7"))).one(VERSION_FIELD) == "1.7"
    await backend.close()
    gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 60)))

    answer = await get(gateway, "/v1", *([version_line(requested)] if requested else []))

    assert (answer.status, answer.one(VERSION_FIELD)) == (200, "1.7")
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.60")
    assert shown(answer, "/v1")[:2] == ("1.1", "1.60")
    record = await gateway.recorded(2)
    assert (record.result, record.version) == ("served", "1.7")


async def test_R_D7_a_document_of_a_version_that_is_no_longer_on_offer_names_none(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway, "/v1", version_line("1.72"))).one(VERSION_FIELD) == "1.72"
    await backend.close()
    gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 60)))

    answer = await get(gateway, "/v1", version_line("1.58"))

    assert (answer.status, answer.every(VERSION_FIELD), answer.one(MAX_FIELD)) == (200, [], "1.60")
    assert (await gateway.recorded(2)).version == ""


async def test_R_D7_a_backend_that_names_a_constant_version_is_not_corrected(testbed: Testbed) -> None:
    document = json.dumps(v1("")).encode()
    lines = ("Content-Type: application/json", f"{VERSION_FIELD}: 1.3")
    gateway, backend = await testbed.gateway_and_backend(always(response(200, *lines, body=document)))
    assert (await get(gateway, "/v1", version_line("1.7"))).one(VERSION_FIELD) == "1.3"
    await backend.close()

    assert (await get(gateway, "/v1", version_line("1.58"))).one(VERSION_FIELD) == "1.3"


async def test_R_D7_a_refused_version_stays_refused(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway, "/v1", version_line("1.7"))).status == 200
    await backend.close()

    assert (await get(gateway, "/v1", version_line("1.91"))).status == 406
    assert (await get(gateway, "/v1", version_line("spam"))).status == 406


async def test_R_D7_of_the_old_fields_only_those_about_the_document_are_repeated(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed, "Content-Language: en", "Age: 3", "Vary: Accept", "X-Other: 1")
    assert (await get(gateway)).status == 200
    await backend.close()

    answer = await get(gateway)

    assert answer.status == 200
    assert answer.one("content-type") == "application/json"
    assert answer.one("content-language") == "en"
    assert answer.one("date") != "Mon, 01 Jan 2024 00:00:00 GMT"
    assert not {"age", "etag", "x-other"} & answer.names
    assert "req-of-another-request" not in answer.head.decode()
    assert ", ".join(answer.every("vary")) == f"Accept, OpenStack-API-Version, {VERSION_FIELD}"


# --- what is kept ----------------------------------------------------------------------------------------

CREDENTIALS: Final = ("Authorization: Basic eDp5", "X-Auth-Token: t", "x_auth_token: t", "Cookie: a=b")


@pytest.mark.parametrize("line", CREDENTIALS)
async def test_R_D7_nothing_is_kept_of_a_request_with_credentials(testbed: Testbed, line: str) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway, "/", line)).status == 200
    await backend.close()

    assert (await get(gateway)).status == 503
    assert (await get(gateway, "/", line)).status == 503


@pytest.mark.parametrize("line", CREDENTIALS)
async def test_R_D7_a_request_with_credentials_is_answered(testbed: Testbed, line: str) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway)).status == 200
    await backend.close()

    assert (await get(gateway, "/", line)).status == 200


@pytest.mark.parametrize(
    "line",
    [
        "Cache-Control: no-store",
        "cache-control: max-age=3, Private",
        'Cache-Control: private="x"',
        "Set-Cookie: a=b",
        "Vary: *",
    ],
)
async def test_R_D7_a_response_that_is_for_one_client_is_not_kept(testbed: Testbed, line: str) -> None:
    gateway, backend = await fleet(testbed, line)
    assert (await get(gateway)).status == 200
    await backend.close()

    assert (await get(gateway)).status == 503


async def test_R_D7_only_what_could_be_rewritten_is_kept(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed, status=201)
    await get(gateway)
    await gateway.request(request("HEAD", "/"))
    await gateway.request(request("POST", "/"))
    await backend.close()

    assert (await get(gateway)).status == 503


async def test_R_D7_a_reload_keeps_the_documents_of_backends_that_stay(testbed: Testbed) -> None:
    gateway, backend = await fleet(testbed)
    assert (await get(gateway)).status == 200
    await backend.close()
    reconfigure(gateway.snapshot_holder, [service_of(backend)])
    assert (await get(gateway)).status == 200

    reconfigure(gateway.snapshot_holder, [service_of(refusing_backend("another"))])
    assert (await get(gateway)).status == 503

    reconfigure(gateway.snapshot_holder, [replace(service_of(backend), name="another")])
    assert (await get(gateway)).status == 503


# --- legacy backends -------------------------------------------------------------------------------------


async def legacy_and_new(testbed: Testbed) -> tuple[Gateway, ScriptedBackend, ScriptedBackend]:
    """A gateway that offers 1.1 to 1.58, in front of a legacy backend and one up to 1.58."""
    old = await testbed.backend(ironic(), name="old", declared=None)
    new = await testbed.backend(ironic(), name="new", declared=None)
    gateway = await testbed.gateway(new)
    probe_succeeded(gateway, new, OLD)
    reconfigure(gateway.snapshot_holder, [service_of(old, new)])
    legacy = Advertisement(VersionSet.only(Version(1, 1)), legacy=True)
    gateway.snapshot_holder.observe("baremetal", "old", ProbeSucceeded(legacy, 1.0))
    assert gateway.snapshot_holder.current.views["baremetal"].offer.versions.highest == Version(1, 58)
    return gateway, old, new


async def test_R_D7_a_legacy_backend_gives_the_document_that_is_known_for_another_client_alone(
    testbed: Testbed,
) -> None:
    gateway, old, new = await legacy_and_new(testbed)

    async def repeats(upstream: UpstreamConnection) -> None:
        document = root("") | {"description": f"at {(await upstream.request()).one('host')}"}
        lines = ("Content-Type: application/json", "Connection: close")
        await upstream.send(response(200, *lines, body=json.dumps(document).encode()))

    new.script = repeats
    plain = json.dumps(root("")).encode()
    old.script = always(response(200, "Content-Type: application/json", body=plain))
    assert b"at other.example" in (await get(gateway, host="other.example")).body
    gateway.snapshot_holder.apply("baremetal", Drain("new"))

    assert shown(await get(gateway))[:2] == ("1.1", "1.58")
    assert len(old.requests) == 1
    assert b"at other.example" in (await get(gateway, host="other.example")).body
    assert len(old.requests) == 1


async def test_R_D7_what_is_known_goes_before_the_document_of_a_legacy_backend(testbed: Testbed) -> None:
    gateway, old, new = await legacy_and_new(testbed)
    assert (await get(gateway)).status == 200
    gateway.snapshot_holder.apply("baremetal", Drain("new"))

    answer = await get(gateway)

    assert (answer.status, shown(answer)[:2]) == (200, ("1.1", "1.58"))
    assert (len(old.requests), len(new.requests)) == (0, 1)


async def test_R_D7_where_nothing_is_known_the_document_is_that_of_a_legacy_backend(
    testbed: Testbed,
) -> None:
    gateway, old, new = await legacy_and_new(testbed)
    gateway.snapshot_holder.apply("baremetal", Drain("new"))

    answer = await get(gateway)

    assert (answer.status, shown(answer)[:2]) == (200, ("1.1", "1.58"))
    assert (len(old.requests), len(new.requests)) == (1, 0)
    assert VERSION_FIELD.lower() not in old.only_request.names


@pytest.mark.parametrize("target", ["/", "/v1"])
async def test_R_D7_where_only_legacy_versions_are_on_offer_a_legacy_backend_gives_the_document(
    testbed: Testbed, target: str
) -> None:
    gateway, old, new = await legacy_and_new(testbed)
    assert (await get(gateway, target)).status == 200
    gateway.snapshot_holder.apply("baremetal", Pin(Version(1, 1)))
    assert (await get(gateway, target)).status == 200
    assert (len(old.requests), len(new.requests)) == (0, 2), "one that is not legacy is preferred"
    gateway.snapshot_holder.apply("baremetal", Drain("new"))

    answer = await get(gateway, target)

    assert (answer.status, shown(answer, target)[:2]) == (200, ("1.1", "1.1"))
    assert (len(old.requests), len(new.requests)) == (1, 2)
    assert VERSION_FIELD.lower() not in old.only_request.names


# --- bounds ----------------------------------------------------------------------------------------------


def entry(
    number: int, backend: Backend, size: int = 10, target: str = ""
) -> tuple[DocumentKey, CachedDocument]:
    service = service_of(backend)
    known = CachedDocument(
        service.scheme_id, backend, False, "h", "http://h", 200, Served(), None, (), (), b"x" * size
    )
    return DocumentKey(service, ROOT, target or f"/?{number}"), known


def test_R_D7_the_least_recently_used_document_is_dropped_first() -> None:
    documents, backend = CachedDocuments(), refusing_backend()
    entries = [entry(number, backend) for number in range(MAX_DOCUMENTS + 1)]
    for key, known in entries[:-1]:
        documents.keep(key, known)
    assert documents.find(entries[0][0]) is entries[0][1]

    documents.keep(*entries[-1])

    assert len(documents) == MAX_DOCUMENTS
    assert [key in documents for key, _ in entries] == [True, False] + [True] * (MAX_DOCUMENTS - 1)


def test_R_D7_all_documents_together_are_bounded() -> None:
    documents, backend = CachedDocuments(), refusing_backend()
    for number in range(20):
        documents.keep(*entry(number, backend, MAX_SIZE // 4))
        documents.keep(*entry(number, backend, MAX_SIZE // 4))  # the same once more
        assert len(documents) == min(number + 1, 4)
    documents.keep(*entry(21, backend, MAX_SIZE + 1))
    assert len(documents) == 0
    documents.keep(*entry(22, backend, target="/" + "x" * MAX_TARGET))
    assert len(documents) == 0


def test_R_D7_a_document_is_found_by_service_endpoint_and_target() -> None:
    documents, backend = CachedDocuments(), refusing_backend()
    key, known = entry(1, backend)
    documents.keep(key, known)

    assert documents.find(key) is known
    assert key._replace(service=service_of(backend)) in documents, "a reload with the same backend"
    for other in (
        key._replace(service=replace(key.service, name="other")),
        key._replace(endpoint=V1),
        key._replace(target="/"),
        "/?1",
    ):
        assert other not in documents
    assert key._replace(service=service_of(replace(backend, port=backend.port + 1))) not in documents
    assert key not in documents, "it was dropped with its backend"
