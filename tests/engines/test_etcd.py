"""The store on a real etcd of three members: what it reads, writes and watches; users, TLS, members that stop
or are slow, and a cluster that is a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from gateway.controlplane.stores.etcd import EtcdStore
from gateway.controlplane.stores.store import Contents, StoreError, StoreRefused, Transaction
from gateway.core.fleet.backend import BackendTls
from gateway.keys.secrets import Secret
from gateway.settings.sections.agreement import EtcdSettings
from tests.controlplane.memory_store import P, hold_to_the_law
from tests.engines.etcd_cluster import Cluster, etcd_cluster, etcdctl, relay
from tests.kit.certificates import Authority
from tests.kit.processes import TIMEOUT
from tests.kit.waiting import until

pytestmark = pytest.mark.engines

TTL: Final = 3.0
"""The default, where it matters how long a call may take."""
PATIENT: Final = 20.0
"""So that no call ends early where a disk or a processor is busy with something else."""


@asynccontextmanager
async def store_of(
    *endpoints: str, ttl: float = PATIENT, tls: BackendTls | None = None, user: str = "", password: str = ""
) -> AsyncIterator[EtcdStore]:
    known = (user, Secret(password)) if user else (None, None)
    store = EtcdStore(EtcdSettings(endpoints, tls, *known), ttl)
    try:
        yield store
    finally:
        await store.close()


async def read_soon(store: EtcdStore, prefix: str = P) -> Contents:
    """The first read that is answered."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await store.read(prefix)
            except StoreRefused:
                raise
            except StoreError:
                await asyncio.sleep(0.05)


async def commit_soon(store: EtcdStore, transaction: Transaction) -> int | None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await store.commit(transaction)
            except StoreError:
                await asyncio.sleep(0.05)


def put(key: str, text: str) -> Transaction:
    return Transaction((), {P + key: text})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with etcd_cluster(tmp_path) as cluster:
        yield cluster


async def test_the_law_of_all_stores_and_hints(cluster: Cluster) -> None:
    async with store_of(*cluster.endpoints) as store, store_of(*reversed(cluster.endpoints)) as other:
        await read_soon(store)
        await read_soon(other)
        await hold_to_the_law(store, other)

        changed = asyncio.Event()
        other.watch(P, changed.set)
        async with asyncio.timeout(TIMEOUT):
            await changed.wait()  # it was made
            changed.clear()
            await store.commit(put("doc", "6"))
            await changed.wait()


async def test_many_keys_and_large_texts(cluster: Cluster) -> None:
    async with store_of(*cluster.endpoints) as store:
        texts = {f"{P}live/{number}": "x" * 5_000 for number in range(100)}
        await commit_soon(store, Transaction((), texts))

        with pytest.raises(StoreError, match="more than etcd takes"):
            await store.commit(put("doc", "x" * 1_000_000))
        assert {key: entry.text for key, entry in (await store.read(P)).entries.items()} == texts


async def test_members_that_stop(cluster: Cluster) -> None:
    """The leader, then a follower, then two: there is no quorum, and later one again."""
    async with store_of(*cluster.endpoints, ttl=TTL) as store:
        await commit_soon(store, put("doc", "1"))
        for stopped in (await cluster.leader(), (await cluster.followers())[0]):
            stopped.stop()
            assert (await read_soon(store)).entries[P + "doc"].text == "1"
            assert await commit_soon(store, put("pin", stopped.name)) is not None
            stopped.go_on()
            await cluster.answers()

        followers = await cluster.followers()
        for member in followers:
            member.stop()

        async def unanswered() -> bool:  # a signal takes its time
            try:
                await store.read(P)
            except StoreError:
                return True
            return False

        await until(unanswered, "no read is answered")
        with pytest.raises(StoreError):
            await store.commit(put("doc", "2"))
        for member in followers:
            member.go_on()
        assert (await read_soon(store)).entries[P + "doc"].text in {"1", "2"}


async def test_a_member_that_is_gone_costs_no_answer(cluster: Cluster) -> None:
    async with store_of(*cluster.endpoints) as store:
        await read_soon(store)
        await cluster.members[0].kill()
        if (await read_soon(store)).revision:
            assert await commit_soon(store, put("doc", "1")) is not None
        await cluster.members[0].start(cluster.members)
        await cluster.answers()
        assert (await store.read(P)).entries[P + "doc"].text == "1"


async def test_a_watch_follows_to_another_member(cluster: Cluster) -> None:
    async with store_of(*cluster.endpoints, ttl=TTL) as store, store_of(cluster.endpoints[1]) as other:
        changed = asyncio.Event()
        store.watch(P, changed.set)
        async with asyncio.timeout(TIMEOUT):
            await changed.wait()
        cluster.members[0].stop()
        await read_soon(store)  # by another member
        changed.clear()

        async def told() -> bool:
            await commit_soon(other, put("doc", str(monotonic())))
            return changed.is_set()

        await until(told, "the watch says what another member has written")


async def test_one_second_of_latency(cluster: Cluster) -> None:
    """Too slow for a TTL of 3 s: each call fails in time. A longer TTL has time."""
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(relay(member.port)) for member in cluster.members]
        urls = [link.url for link in links]
        quick = await stack.enter_async_context(store_of(*urls, ttl=TTL))
        patient = await stack.enter_async_context(store_of(*urls, ttl=30.0))
        await commit_soon(quick, put("doc", "1"))
        for link in links:
            link.delay = 0.5
        for call in (quick.read(P), quick.commit(put("doc", "2"))):
            with pytest.raises(StoreError, match="no endpoint of etcd answered within 690 ms"):
                await call
        assert (await patient.read(P)).entries[P + "doc"].text in {"1", "2"}
        assert await patient.commit(put("doc", "3")) is not None
        for link in links:
            link.delay = 0.0
        assert (await read_soon(quick)).entries[P + "doc"].text == "3"


async def test_connections_that_hang(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(relay(member.port)) for member in cluster.members]
        store = await stack.enter_async_context(store_of(*(link.url for link in links)))
        await commit_soon(store, put("doc", "1"))
        links[0].up = False
        assert (await store.read(P)).entries[P + "doc"].text == "1"
        links[0].up = True
        for link in links[1:]:
            link.up = False
        assert (await read_soon(store)).entries[P + "doc"].text == "1"


async def test_a_new_cluster_at_the_same_addresses(cluster: Cluster) -> None:
    async with store_of(*cluster.endpoints) as store:
        for number in range(5):
            await commit_soon(store, put("doc", str(number)))
        before = (await store.read(P)).revision
        await cluster.wipe()

        after = await read_soon(store)
        assert after.entries == {}
        assert after.revision < before


async def test_users_and_tokens(cluster: Cluster) -> None:
    (root,) = cluster.endpoints[:1]
    async with (
        store_of(*cluster.endpoints, user="skewgate", password="secret") as store,
        store_of(*cluster.endpoints) as nobody,
    ):
        await commit_soon(store, put("doc", "1"))  # no users yet: everybody may
        for words in (
            ("user", "add", "root:root"),
            ("user", "grant-role", "root", "root"),
            ("user", "add", "skewgate:secret"),
            ("role", "add", "skewgate"),
            ("role", "grant-permission", "skewgate", "readwrite", "/skewgate/", "--prefix"),
            ("user", "grant-role", "skewgate", "skewgate"),
            ("auth", "enable"),
        ):
            await etcdctl(root, *words)

        assert (await read_soon(store)).entries[P + "doc"].text == "1"
        assert await store.commit(put("doc", "2")) is not None
        with pytest.raises(StoreRefused, match=r"set agreement\.etcd\.user"):
            await nobody.read(P)
        with pytest.raises(StoreRefused, match="permission denied"):
            await store.read("/other/")
        with pytest.raises(StoreRefused, match="permission denied"):
            await store.commit(Transaction((), {"/other/key": "1"}))
        async with store_of(*cluster.endpoints, user="skewgate", password="hidden") as refused:
            with pytest.raises(StoreRefused, match="authentication failed") as told:
                await read_soon(refused)
            assert "hidden" not in str(told.value)

        changed = asyncio.Event()
        store.watch(P, changed.set)
        async with asyncio.timeout(TIMEOUT):
            await changed.wait()
        # Members that start anew know no token of before.
        for member in cluster.members:
            await member.kill()
            await member.start(cluster.members)
        await cluster.answers()
        assert (await read_soon(store)).entries[P + "doc"].text == "2"
        changed.clear()

        async def told_again() -> bool:
            await commit_soon(store, put("doc", str(monotonic())))
            return changed.is_set()

        await until(told_again, "the watch has a new token, too")


async def test_tls_with_an_own_ca_and_a_certificate(tmp_path: Path) -> None:
    authority = Authority()
    server, key = authority.member("etcd.test", "127.0.0.1").write(tmp_path, "server")
    own, own_key = authority.client("replica").write(tmp_path, "client")
    foreign, foreign_key = Authority("Another CA").client("replica").write(tmp_path, "foreign")
    ca = str(authority.write(tmp_path))
    options = (f"--cert-file={server}", f"--key-file={key}", "--client-cert-auth", f"--trusted-ca-file={ca}")
    async with etcd_cluster(tmp_path, *options) as cluster:
        good = BackendTls("", ca, str(own), str(own_key))
        async with store_of(*cluster.endpoints, tls=good) as store:
            await commit_soon(store, put("doc", "1"))
            assert (await read_soon(store)).entries[P + "doc"].text == "1"
        for tls, message in (
            (BackendTls("", None, str(own), str(own_key)), "certificate is not valid"),
            (BackendTls("another.test", ca, str(own), str(own_key)), "certificate is not valid"),
            (BackendTls("", ca), "certificate|TLS|closed|reset"),
            (BackendTls("", ca, str(foreign), str(foreign_key)), "certificate|TLS|closed|reset|unknown ca"),
            (BackendTls("", str(tmp_path / "absent"), str(own), str(own_key)), r"agreement\.etcd\.tls\.ca"),
        ):
            async with store_of(*cluster.endpoints, tls=tls, ttl=60.0) as store:
                with pytest.raises(StoreError, match=message):
                    await store.read(P)
                with pytest.raises(StoreError):
                    await store.commit(put("doc", "2"))
        # A certificate that is renewed is read again.
        renewed = BackendTls("etcd.test", ca, str(foreign), str(foreign_key))
        async with store_of(*cluster.endpoints, tls=renewed, ttl=60.0) as store:
            with pytest.raises(StoreError):
                await store.read(P)
            authority.client("replica").write(tmp_path, "foreign")
            assert (await read_soon(store)).entries[P + "doc"].text == "1"


async def test_two_clusters_are_not_one_store(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with (
        etcd_cluster(tmp_path / "other", "--initial-cluster-token", "another") as other,
        relay(cluster.members[0].port) as link,
        store_of(link.url, other.members[0].url) as store,
    ):
        await read_soon(store)
        link.up = False
        with pytest.raises(StoreError):
            await store.read(P)  # the other one has answered, and the first one says nothing to it
        link.up = True

        async def refused() -> bool:
            try:
                await store.read(P)
            except StoreError as error:
                return "two etcd clusters" in str(error)
            link.up = not link.up
            return False

        await until(refused, "the two clusters are told apart")
