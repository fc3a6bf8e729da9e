"""The sources `dns` and `srv` against a name server: what they list, and what is no list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.controlplane.discovery.listers import DnsLister, Listed, SrvLister
from gateway.controlplane.name_lookup import (
    NO_ADDRESS,
    NO_ANSWER,
    NO_RECORD,
    NO_SUCH_NAME,
    Failed,
    NameLookup,
)
from gateway.core.fleet.source import MAX_BACKENDS, Address
from tests.kit.name_servers import AAAA, NO_ERROR, SERVFAIL, SILENT, A, NameServer, name_server

NAME = "api.fleet.test"
SRV_NAME = "_api._tcp.fleet.test"


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with name_server() as running:
        yield running


@pytest.fixture
def lookup(server: NameServer, tmp_path: Path) -> NameLookup:
    hosts, resolv_conf = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("192.0.2.99 in-the-file.test\n")
    resolv_conf.write_text("nameserver 127.0.0.1\nsearch cluster.test\noptions timeout:1\n")
    return NameLookup(hosts=hosts, resolv_conf=resolv_conf, port=server.port, max_addresses=MAX_BACKENDS + 1)


def hosts(answer: Listed | Failed) -> list[str]:
    assert isinstance(answer, Listed), answer
    return [address.host for address in answer.addresses]


# --- dns ----------------------------------------------------------------------------------------------------


async def test_each_address_of_a_name_is_a_backend_whatever_their_order(
    server: NameServer, lookup: NameLookup
) -> None:
    server.addresses[NAME] = ("10.0.0.10", "10.0.0.9", "fd00::1", "10.0.0.10")
    server.ttl = 7
    listed = await DnsLister(lookup, NAME, 6385).poll()
    assert listed == Listed(
        (Address("fd00::1", 6385), Address("10.0.0.9", 6385), Address("10.0.0.10", 6385)), 7.0
    )


async def test_a_headless_service_of_kubernetes_is_found_by_the_search_list(
    server: NameServer, lookup: NameLookup
) -> None:
    server.addresses["api.cluster.test"] = ("10.0.0.1", "10.0.0.2")
    assert hosts(await DnsLister(lookup, "api", 80).poll()) == ["10.0.0.1", "10.0.0.2"]
    assert hosts(await DnsLister(lookup, "in-the-file.test", 80).poll()) == ["192.0.2.99"]


async def test_hundreds_of_addresses_come_over_tcp(server: NameServer, lookup: NameLookup) -> None:
    server.addresses[NAME] = tuple(f"10.0.{at // 200}.{at % 200}" for at in range(500))
    assert len(hosts(await DnsLister(lookup, NAME, 80).poll())) == 500
    assert server.over_tcp


async def test_more_addresses_than_anybody_has_are_refused_as_a_whole(
    server: NameServer, lookup: NameLookup
) -> None:
    server.addresses[NAME] = tuple(f"10.0.{at // 200}.{at % 200}" for at in range(MAX_BACKENDS + 1))
    assert await DnsLister(lookup, NAME, 80).poll() == Failed(
        f"it lists {MAX_BACKENDS + 1} backends, more than {MAX_BACKENDS}"
    )


@pytest.mark.parametrize(
    "code, reason",
    [(NO_ERROR, NO_SUCH_NAME), (SERVFAIL, "the name servers fail (SERVFAIL)"), (SILENT, NO_ANSWER)],
)
async def test_a_failure_says_what_it_is(
    server: NameServer, lookup: NameLookup, code: int, reason: str
) -> None:
    server.code = code
    assert await DnsLister(lookup, NAME, 80).poll() == Failed(reason)
    assert await SrvLister(lookup, SRV_NAME).poll() == Failed(reason)


async def test_a_name_without_an_address_lists_nothing(server: NameServer, lookup: NameLookup) -> None:
    server.addresses[NAME] = ()
    assert await DnsLister(lookup, NAME, 80).poll() == Failed(NO_ADDRESS)
    assert await SrvLister(lookup, NAME).poll() == Failed(NO_RECORD)


async def test_a_family_about_which_nothing_was_learned_keeps_its_addresses(
    server: NameServer, lookup: NameLookup
) -> None:
    lister = DnsLister(lookup, NAME, 80)
    server.addresses[NAME] = ("10.0.0.1", "fd00::1")
    assert hosts(await lister.poll()) == ["fd00::1", "10.0.0.1"]
    server.addresses[NAME] = ("10.0.0.2",)
    server.kinds[AAAA] = SERVFAIL
    assert hosts(await lister.poll()) == ["fd00::1", "10.0.0.2"]
    server.kinds.clear()
    assert hosts(await lister.poll()) == ["10.0.0.2"]


# --- srv ----------------------------------------------------------------------------------------------------


async def test_srv_records_bring_ports_weights_and_backups(server: NameServer, lookup: NameLookup) -> None:
    server.services[SRV_NAME] = ((10, 20, 8001, "a.test"), (10, 60, 8002, "b.test"), (20, 5, 8003, "c.test"))
    server.addresses |= {"a.test": ("10.0.0.1",), "b.test": ("10.0.0.2", "fd00::2"), "c.test": ("10.0.0.3",)}
    server.ttl = 9
    listed = await SrvLister(lookup, SRV_NAME).poll()
    assert listed == Listed(
        (
            Address("10.0.0.1", 8001, 4),
            Address("fd00::2", 8002, 12),
            Address("10.0.0.2", 8002, 12),
            Address("10.0.0.3", 8003, 1, backup=True),
        ),
        9.0,
    )


@pytest.mark.parametrize(
    "weights, expected",
    [((33, 33, 33), [1, 1, 1]), ((0, 0), [1, 1]), ((0, 65535), [1, 1]), ((1, 65535), [1, 1000])],
)
async def test_weights_stay_as_they_are_when_the_number_of_replicas_changes(
    server: NameServer, lookup: NameLookup, weights: tuple[int, ...], expected: list[int]
) -> None:
    server.services[SRV_NAME] = tuple((0, weight, 80 + at, "a.test") for at, weight in enumerate(weights))
    server.addresses["a.test"] = ("10.0.0.1",)
    listed = await SrvLister(lookup, SRV_NAME).poll()
    assert isinstance(listed, Listed)
    assert [address.weight for address in listed.addresses] == expected


async def test_a_target_that_cannot_be_looked_up_keeps_its_addresses(
    server: NameServer, lookup: NameLookup
) -> None:
    lister = SrvLister(lookup, SRV_NAME)
    server.services[SRV_NAME] = ((0, 1, 80, "a.test"), (0, 1, 80, "b.test"))
    server.addresses |= {"a.test": ("10.0.0.1",), "b.test": ("10.0.0.2",)}
    assert hosts(await lister.poll()) == ["10.0.0.1", "10.0.0.2"]
    server.codes["b.test"] = SERVFAIL
    assert hosts(await lister.poll()) == ["10.0.0.1", "10.0.0.2"]
    server.services[SRV_NAME] = ((0, 1, 80, "b.test"),)
    server.codes["a.test"] = SERVFAIL
    assert hosts(await lister.poll()) == ["10.0.0.2"], "who has no record is no target"


async def test_targets_without_any_address_are_a_failure(server: NameServer, lookup: NameLookup) -> None:
    server.services[SRV_NAME] = ((0, 1, 80, "a.test"), (0, 1, 80, "b.test"))
    assert await SrvLister(lookup, SRV_NAME).poll() == Failed(
        f"no address of any of its 2 targets: {NO_SUCH_NAME}"
    )


async def test_a_service_that_says_it_is_not_there_lists_nobody(
    server: NameServer, lookup: NameLookup
) -> None:
    """RFC 2782: the target `.`. An empty list removes nobody."""
    server.services[SRV_NAME] = ((0, 0, 0, "."),)
    assert await SrvLister(lookup, SRV_NAME).poll() == Listed((), 1.0)


async def test_hostile_targets_are_looked_up_and_never_shown(server: NameServer, lookup: NameLookup) -> None:
    """Control characters, quotes and colours of a terminal in the name of a target."""
    hostile = 'x\x1b[31m"\n\x00'
    server.services[SRV_NAME] = ((0, 1, 80, hostile), (0, 1, 80, "a.test"))
    server.addresses["a.test"] = ("10.0.0.1",)
    assert hosts(await SrvLister(lookup, SRV_NAME).poll()) == ["10.0.0.1"]
    server.addresses.clear()
    failed = await SrvLister(lookup, SRV_NAME).poll()
    assert isinstance(failed, Failed)
    assert failed.reason.isprintable()
    assert "31m" not in failed.reason


async def test_only_addresses_are_queried_for(server: NameServer, lookup: NameLookup) -> None:
    server.addresses[NAME] = ("10.0.0.1",)
    await DnsLister(lookup, NAME, 80).poll()
    assert {kind for _, kind in server.queries} == {A, AAAA}
