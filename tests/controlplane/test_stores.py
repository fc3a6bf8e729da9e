"""The stores: the one in memory against the law of all, the one in etcd against answers that are wrong."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.controlplane.stores import etcd
from gateway.controlplane.stores.etcd import EtcdStore
from gateway.controlplane.stores.store import (
    Contents,
    Entry,
    StoreError,
    StoreRefused,
    Transaction,
    Unchanged,
)
from gateway.core.fleet.backend import BackendTls
from gateway.keys.secrets import Secret
from gateway.settings.sections.agreement import EtcdSettings
from tests.controlplane.memory_store import MemoryCluster, P, hold_to_the_law
from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT

HEADER: Final = {"cluster_id": "1", "member_id": "2", "revision": "7", "raft_term": "2"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


KV: Final = {"key": b64(P + "doc"), "value": b64("1"), "mod_revision": "5"}
GOOD: Final = {"header": HEADER, "kvs": [KV], "count": "1"}
READ: Final = Contents(7, {P + "doc": Entry("1", 5)})


@asynccontextmanager
async def member(handler: Handler) -> AsyncIterator[str]:
    """An endpoint that answers everything so."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def store_of(
    *endpoints: str, ttl: float = 60.0, tls: BackendTls | None = None, password: str = ""
) -> AsyncIterator[EtcdStore]:
    known = ("me", Secret(password)) if password else (None, None)
    store = EtcdStore(EtcdSettings(endpoints, tls, *known), ttl)
    try:
        yield store
    finally:
        await store.close()


def says(answer: object, status: int = 200) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(status=status, body=body)

    return handle


async def test_the_store_in_memory_is_held_to_the_law() -> None:
    cluster = MemoryCluster()

    await hold_to_the_law(cluster.client("one"), cluster.client("other"))


async def test_faults_of_the_store_in_memory() -> None:
    cluster = MemoryCluster()
    store = cluster.client(timeout=0.01)
    changed = asyncio.Event()
    store.watch(P, changed.set)
    write = Transaction((Unchanged(P + "doc", 0),), {P + "doc": "1"})

    store.link.up = False
    with pytest.raises(StoreError):
        await store.commit(write)
    store.link.up = True
    store.link.pass_on.clear()
    with pytest.raises(StoreError, match="in time"):
        await store.commit(write)
    store.link.pass_on.set()
    assert cluster.texts() == {}
    store.link.loses_answers = True
    with pytest.raises(StoreError, match="lost"):
        await store.commit(write)
    assert cluster.texts(P) == {"doc": "1"}
    await changed.wait()
    cluster.quorum = False
    with pytest.raises(StoreError, match="quorum"):
        await store.read(P)
    cluster.quorum = True
    cluster.wipe()
    assert (await store.read(P)).entries == {}
    await store.close()


@pytest.mark.parametrize(
    "answer, status, message",
    [
        (b"<html>", 200, "without JSON: it is not etcd"),
        (b"<html>", 502, "answers 502 without JSON"),
        (b"[" * 100_000, 200, "without JSON"),
        (b"[]", 200, "without JSON"),
        (b"Not Found", 404, "it is not etcd 3.4 or newer"),
        ({}, 200, "without the id of its cluster"),
        ({"header": []}, 200, "without the id of its cluster"),
        ({"header": {"cluster_id": "1"}}, 200, "without a revision"),
        ({"header": {**HEADER, "revision": "-1"}}, 200, "without a revision"),
        ({"header": {**HEADER, "revision": "9" * 5_000}}, 200, "without a revision"),
        ({"header": HEADER, "kvs": {}}, 200, "keys that cannot be read"),
        ({"header": HEADER, "kvs": [1]}, 200, "a key that cannot be read"),
        ({"header": HEADER, "kvs": [{**KV, "key": "ä"}]}, 200, "no base64"),
        ({"header": HEADER, "kvs": [{**KV, "value": 1}]}, 200, "no text"),
        ({"header": HEADER, "kvs": [{**KV, "mod_revision": 5}]}, 200, "without a revision"),
        ({**GOOD, "more": True}, 200, "keys that cannot be read"),
        ({"message": "etcdserver: no leader", "code": 14}, 503, "reports: no leader"),
        ({"message": "x" * 1_000}, 500, "reports: xxx"),
        ({"error": {"a": 1}}, 500, "reports: "),
        (b"", 307, "without JSON"),
    ],
)
async def test_wrong_answers(answer: object, status: int, message: str) -> None:
    async with member(says(answer, status)) as url, store_of(url) as store:
        with pytest.raises(StoreError, match=message) as told:
            await store.read(P)

        assert len(str(told.value)) < 400
        assert not isinstance(told.value, StoreRefused)


async def test_a_foreign_value_is_passed_on_as_text() -> None:
    kv = {**KV, "value": b64encode(b"\xff\x00").decode()}
    async with member(says({**GOOD, "kvs": [kv]})) as url, store_of(url) as store:
        assert (await store.read(P)).entries[P + "doc"].text == "\ufffd\0"


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2 * etcd.MAX_ANSWER // 65_536):
            await response.write(b" " * 65_536)
        return response

    async with member(endless) as url, store_of(url) as store:
        with pytest.raises(StoreError, match="larger than 8 MiB"):
            await store.read(P)


async def test_a_read_goes_on_to_the_next_endpoint_and_stays_there() -> None:
    asked: list[str] = []

    def named(name: str, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            asked.append(name)
            return await handler(request)

        return handle

    nobody = f"http://127.0.0.1:{free_port()}"
    broken = named("broken", says({"message": "no leader"}, 503))
    async with (
        member(broken) as first,
        member(named("good", says(GOOD))) as second,
        store_of(nobody, first, second) as store,
    ):
        assert await store.read(P) == READ
        assert await store.read(P) == READ
        assert asked == ["broken", "good", "good"]


async def test_a_read_does_not_wait_for_an_endpoint_that_hangs() -> None:
    released = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async with member(hang) as first, member(says(GOOD)) as second, store_of(first, second, ttl=1.0) as store:
        for _ in range(100):  # a busy machine may take longer than a call has
            try:
                assert await store.read(P) == READ
                break
            except StoreError:
                continue
        else:
            raise AssertionError("never answered")
        released.set()


@pytest.mark.parametrize("begins_to_answer", [False, True])
async def test_R3_V4_a_watch_follows_the_calls_at_once(begins_to_answer: bool) -> None:
    """From a member that has accepted the watch and says nothing, or nothing more. A watch that waited for it
    would be with the other one after minutes."""
    asked, followed = asyncio.Event(), asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        if request.path != etcd.WATCH:
            return web.json_response({"message": "etcdserver: no leader"}, status=503)
        response = web.StreamResponse()
        if begins_to_answer:
            await response.prepare(request)
            await response.write(b"{}")
        asked.set()
        await asyncio.Event().wait()
        return response

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.path != etcd.WATCH:
            return web.json_response(GOOD)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}")
        await asyncio.Event().wait()
        return response

    async with member(hangs) as one, member(answers) as other, store_of(one, other, ttl=600.0) as store:
        store.watch(P, followed.set)
        async with asyncio.timeout(TIMEOUT):
            await asked.wait()
            if begins_to_answer:
                await followed.wait()
                followed.clear()
            assert await store.read(P) == READ
            await followed.wait()


async def test_a_transaction_is_not_repeated_once_it_was_sent() -> None:
    sent: list[str] = []

    async def breaks(request: web.Request) -> web.Response:
        sent.append(await request.text())
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    nobody = f"http://127.0.0.1:{free_port()}"
    async with member(breaks) as first, member(breaks) as second, store_of(nobody, first, second) as store:
        with pytest.raises(StoreError, match="closed the connection without an answer"):
            await store.commit(Transaction((), {P + "doc": "1"}))
        assert len(sent) == 1


async def test_nobody_answers() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with store_of(nobody) as store:
        for call in (store.read(P), store.commit(Transaction((), {P + "doc": "1"}))):
            with pytest.raises(StoreError, match=f"no connection to {nobody}: connection refused"):
                await call


async def test_a_user_is_refused() -> None:
    failed = {"message": "etcdserver: authentication failed, invalid user ID or password", "code": 3}
    async with member(says(failed, 400)) as url, store_of(url, password="secret") as store:
        with pytest.raises(StoreRefused, match="authentication failed") as told:
            await store.read(P)
        assert "secret" not in str(told.value)
    empty = {"message": "etcdserver: user name is empty", "code": 3}
    async with member(says(empty, 400)) as url, store_of(url) as store:
        with pytest.raises(StoreRefused, match=r"set agreement\.etcd\.user"):
            await store.read(P)


async def test_a_token_is_renewed_once() -> None:
    tokens = iter(("first", "second"))

    async def handle(request: web.Request) -> web.Response:
        if request.path == etcd.AUTHENTICATE:
            return web.json_response({"header": HEADER, "token": next(tokens)})
        if request.headers["Authorization"] == "first":
            return web.json_response({"message": "etcdserver: invalid auth token", "code": 16}, status=401)
        return web.json_response(GOOD)

    async with member(handle) as url, store_of(url, password="secret") as store:
        assert await store.read(P) == READ
        assert await store.read(P) == READ


async def test_no_tls_where_it_was_expected() -> None:
    async with (
        member(says(GOOD)) as url,
        store_of(url.replace("http:", "https:"), tls=BackendTls("")) as store,
    ):
        with pytest.raises(StoreError, match="it does not speak TLS"):
            await store.read(P)
