"""A backend that sends documents which are hard to parse: what they cost the other requests of the worker.

Times are CPU times of this process, which holds client, worker and backend; so they are compared with those
of a harmless document of the same size.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from collections import Counter
from time import process_time
from typing import Any, Final

import pytest

from gateway.core.fleet.fleet import Pin
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, refusing_backend
from tests.kit.ironic import OLD
from tests.kit.messages import KIB, MAX_FIELD, MIN_FIELD, Message, request, response
from tests.kit.workers import Gateway, Testbed

LIMIT: Final = 256 * KIB
JSON: Final = "Content-Type: application/json"


def v1(**more: object) -> bytes:
    """The document of Ironic at `/v1`, with a link to the backend as the client knows it."""
    version = {"id": "v1", "min_version": "1.1", "version": "1.90", "status": "CURRENT", "links": []}
    links = [{"href": "http://api.example/v1/", "rel": "self"}]
    return json.dumps({"id": "v1", "links": links, "version": version} | more).encode()


def filled(item: str) -> bytes:
    """The document with as many `item` in a list as fit."""
    before = v1()[:-1] + b', "x": ['
    number = (LIMIT - len(before) - 2) // (len(item) + 1)
    return before + ",".join([item] * number).encode() + b"]}"


def sent(body: bytes, *lines: str) -> bytes:
    """A response of the backend with its own range in its headers."""
    return response(200, *(lines or (JSON,)), f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: 1.90", body=body)


async def cost(gateway: Gateway) -> tuple[float, Message]:
    """The least CPU time of three requests for the document, and the last answer."""
    times, answer = [], None
    for _ in range(3):
        begin = process_time()
        answer = await gateway.request(request("GET", "/v1"))
        times.append(process_time() - begin)
    assert answer is not None
    return min(times), answer


async def harmless_cost(testbed: Testbed) -> float:
    """The same for a document of the same size that is one text."""
    backend = await testbed.backend(always(sent(v1(x="x" * (LIMIT - KIB)))))
    seconds, answer = await cost(await testbed.gateway(backend, refusing_backend(declared=OLD)))
    assert answer.status == 200
    return seconds


def assert_bad_document(answer: Message) -> None:
    """502 in Ironic's shape with the range on offer."""
    assert answer.status == 502, answer
    assert json.loads(json.loads(answer.body)["error_message"])["code"] == 502
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.58")


@pytest.mark.load
@pytest.mark.parametrize("item", ["[]", "[" * 10 + "]" * 10, '{"href":"/"}', '{"version":"1.1"}', "{}"])
async def test_R_B12_a_hostile_document_holds_the_loop_no_longer_than_a_harmless_one(
    testbed: Testbed, item: str
) -> None:
    backend = await testbed.backend(always(sent(filled(item))))
    gateway = await testbed.gateway(backend, refusing_backend(declared=OLD))

    seconds, answer = await cost(gateway)

    assert_bad_document(answer)
    assert seconds < 4 * await harmless_cost(testbed)


@pytest.mark.load
async def test_R_B12_a_content_type_of_blanks_holds_the_loop_no_longer(testbed: Testbed) -> None:
    line = f"{JSON};{' ' * 20_000}x"
    backend = await testbed.backend(always(sent(v1(), line)))
    gateway = await testbed.gateway(backend, refusing_backend(declared=OLD))
    client = await gateway.client()
    begin = process_time()

    await client.send(request("GET", "/v1"))
    head = await client.reader.readuntil(b"\r\n\r\n")

    # A search for garbage alone takes 20 ms in a large process; the regular expression took a second.
    assert process_time() - begin < max(0.2, 10 * await harmless_cost(testbed))
    assert head.startswith(b"HTTP/1.1 200")


# --- the same document twice -------------------------------------------------------------------------------


class Rewritten(Counter[str]):
    """How often a document was rewritten, by the Host of its client."""


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Rewritten:
    counts, rewrite = Rewritten(), Ironic.rewrite_document

    def count(self: Ironic, *arguments: Any) -> bytes | None:
        counts[arguments[-1].host] += 1
        return rewrite(self, *arguments)

    monkeypatch.setattr(Ironic, "rewrite_document", count)
    return counts


def get(host: str = "api.example") -> bytes:
    return b"GET /v1 HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode()


def href(answer: Message) -> str:
    assert answer.status == 200, answer
    link: str = json.loads(answer.body)["links"][0]["href"]
    return link


async def test_R_B12_the_same_document_is_rewritten_once(testbed: Testbed, rewritten: Rewritten) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(sent(v1())))

    answers = [await gateway.request(get()) for _ in range(3)]

    assert {answer.body for answer in answers} == {answers[0].body}
    assert href(answers[2]) == "http://api.example/v1/"
    assert rewritten == {"api.example": 1}


async def test_R_B12_what_is_no_record_is_read_once(testbed: Testbed, rewritten: Rewritten) -> None:
    backend = await testbed.backend(always(sent(b'{"id": "v2"}')))
    gateway = await testbed.gateway(backend, refusing_backend(declared=OLD))

    for _ in range(3):
        assert_bad_document(await gateway.request(get()))

    assert rewritten == {"api.example": 1}


async def test_R_B12_each_host_gets_its_own_links(testbed: Testbed, rewritten: Rewritten) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        while True:
            host = (await upstream.request()).one("Host")
            await upstream.send(sent(v1(links=[{"href": f"http://{host}/v1/", "rel": "self"}])))

    gateway, _ = await testbed.gateway_and_backend(script)

    for host in ("a.example", "b.example:8080", "a.example:80", "a.example", "b.example:8080"):
        assert href(await gateway.request(get(host))) == f"http://{host}/v1/"
    assert set(rewritten) == {"a.example", "b.example:8080", "a.example:80"}


async def test_R_B12_a_link_to_the_backend_itself_never_shows_the_host_of_another_client(
    testbed: Testbed, rewritten: Rewritten
) -> None:
    """The document is the same for all clients, byte for byte."""
    backend = await testbed.backend()
    backend.script = always(sent(v1(links=[{"href": f"http://127.0.0.1:{backend.port}/v1/", "rel": "self"}])))
    gateway = await testbed.gateway(backend)

    for host in ("a.example", "b.example", "a.example"):
        assert href(await gateway.request(get(host))) == f"http://{host}/v1/"


async def test_R_B12_a_new_offer_is_written_at_once(testbed: Testbed, rewritten: Rewritten) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(sent(v1())))
    seen = []

    for highest in (90, 58, 90):
        gateway.snapshot_holder.apply("baremetal", Pin(Version(1, highest)))
        answer = await gateway.request(get())
        seen.append(json.loads(answer.body)["version"]["version"])

    assert seen == ["1.90", "1.58", "1.90"]


async def test_R_B12_another_document_of_the_same_backend_is_read(testbed: Testbed) -> None:
    bodies = iter([v1(name="one"), v1(name="two"), v1(name="one")])

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(sent(next(bodies)))

    gateway, _ = await testbed.gateway_and_backend(script)

    assert [json.loads((await gateway.request(get())).body)["name"] for _ in range(3)] == [
        "one",
        "two",
        "one",
    ]


async def test_R_B12_a_cached_document_is_rewritten_once_for_each_host(
    testbed: Testbed, rewritten: Rewritten
) -> None:
    gateway, backend = await testbed.gateway_and_backend(always(sent(v1())))
    assert href(await gateway.request(get("a.example"))) == "http://api.example/v1/"
    await stop(backend)
    rewritten.clear()

    for host in ("a.example", "b.example", "a.example", "b.example"):
        assert (await gateway.request(get(host))).status == 200

    assert sum(rewritten.values()) <= 2


async def stop(backend: ScriptedBackend) -> None:
    """Refuse all connections from now on."""
    await backend.close()
    await backend.disconnected()
