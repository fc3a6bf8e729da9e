"""Connections to backends with names: which address, how long each of them has, and what if there is none."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from gateway.controlplane.name_lookup import Addresses
from gateway.controlplane.resolver import Resolve, UnresolvedError
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ConnectFailed
from tests.kit.backends import ScriptedBackend
from tests.kit.ironic import NEW, versions
from tests.kit.messages import request
from tests.kit.networks import LOOPBACK
from tests.kit.workers import Testbed

OTHER = "127.0.0.9"
"""An address of loopback at which no backend listens."""
NAME = "api.fleet.test"


def named(backend: ScriptedBackend) -> Backend:
    """The same backend by a name."""
    return Backend(backend.name, NAME, backend.port, declared=versions(NEW))


def addresses(*known: str) -> Resolve:
    async def resolve(host: str) -> Addresses:
        return known if host == NAME else (host,)

    return resolve


def failing(error: OSError) -> Resolve:
    async def resolve(host: str) -> Addresses:
        if host == NAME:
            raise error
        return (host,)

    return resolve


@contextlib.contextmanager
def deaf_address(port: int) -> Iterator[None]:
    """`OTHER` does not respond to connections: those that a full backlog still takes are there."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((OTHER, port))
        listener.listen(0)
        for _ in range(8):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((OTHER, port))
        yield


async def test_the_first_address_that_takes_a_connection_gets_it(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(named(backend), resolve=addresses(OTHER, OTHER, LOOPBACK))

    assert (await gateway.request(request())).status == 200
    assert len(backend.requests) == 1
    assert gateway.facts == []


async def test_an_address_that_never_responds_does_not_hide_the_next(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(named(backend), resolve=addresses(OTHER, LOOPBACK), connect=1.0)
    with deaf_address(backend.port):
        assert (await gateway.request(request())).status == 200

    assert gateway.facts == []


async def test_all_addresses_together_have_the_time_of_one_connection(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(named(backend), resolve=addresses(OTHER, OTHER), connect=0.3)
    with deaf_address(backend.port):
        assert (await gateway.request(request())).status == 503

    assert [type(fact) for _, _, fact in gateway.facts] == [ConnectFailed]


async def test_R_B9_a_name_without_an_address_fails_at_once_and_another_backend_serves(
    testbed: Testbed,
) -> None:
    lost, good = await testbed.backend(), await testbed.backend()
    resolve = failing(UnresolvedError("no address"))
    gateway = await testbed.gateway(named(lost), good, resolve=resolve, connect=60.0)

    for _ in range(8):
        assert (await gateway.request(request())).status == 200
    assert lost.connections == 0
    assert {backend for _, backend, _ in gateway.facts} <= {lost.name}

    alone = await testbed.gateway(named(lost), resolve=resolve, connect=60.0)
    assert (await alone.request(request())).status == 503
    assert [type(fact) for _, _, fact in alone.facts] == [ConnectFailed]


async def test_a_lookup_that_lacked_a_descriptor_is_not_counted_against_the_backend(testbed: Testbed) -> None:
    backend = await testbed.backend()
    error = UnresolvedError(errno.EMFILE, "no address")
    gateway = await testbed.gateway(named(backend), resolve=failing(error))

    assert (await gateway.request(request())).status == 503
    assert gateway.facts == []


@pytest.mark.parametrize("found_in_time", [True, False])
async def test_a_request_waits_for_a_new_name_as_long_as_for_a_connection(
    testbed: Testbed, found_in_time: bool
) -> None:
    backend = await testbed.backend()
    found = asyncio.Event()

    async def resolve(host: str) -> Addresses:
        await found.wait()
        return (LOOPBACK,)

    gateway = await testbed.gateway(named(backend), resolve=resolve, connect=5.0 if found_in_time else 0.1)
    client = await gateway.client()
    await client.send(request())
    if found_in_time:
        found.set()

    assert (await client.response()).status == (200 if found_in_time else 503)
    assert backend.connections == int(found_in_time)
