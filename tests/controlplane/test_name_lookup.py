"""One lookup: the hosts file, the search list, and name servers that answer, fail, deny or say nothing."""

from __future__ import annotations

import errno
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from gateway.controlplane.name_lookup import (
    HOSTS_TTL,
    MAX_ADDRESSES,
    NO_ADDRESS,
    NO_ANSWER,
    NO_SUCH_NAME,
    Failed,
    Found,
    NameLookup,
)
from tests.kit.name_servers import AAAA, NXDOMAIN, SERVFAIL, SILENT, A, NameServer, name_server, name_servers

NAME = "api.fleet.test"


def lookup_of(
    folder: Path, server: NameServer, resolv_conf: str = "nameserver 127.0.0.1\nsearch .", hosts: str = ""
) -> NameLookup:
    """A lookup by files of the test. Without a search list of its own the machine's domain would be one."""
    (folder / "hosts").write_text(hosts)
    (folder / "resolv.conf").write_text(f"{resolv_conf}\noptions timeout:1\n")
    return NameLookup(hosts=folder / "hosts", resolv_conf=folder / "resolv.conf", port=server.port)


async def test_addresses_of_both_families_and_the_shortest_ttl_on_the_way_to_them(tmp_path: Path) -> None:
    async with name_server() as server:
        lookup = lookup_of(tmp_path, server)
        server.aliases[NAME] = "real.fleet.test"
        server.addresses["real.fleet.test"] = ("192.0.2.7", "2001:db8::7", "192.0.2.8")
        server.ttl = 40

        assert await lookup(NAME) == Found(("2001:db8::7",), ("192.0.2.7", "192.0.2.8"), 40.0)


@pytest.mark.parametrize(
    "code,reason",
    [
        (NXDOMAIN, NO_SUCH_NAME),
        (SERVFAIL, "the name servers fail (SERVFAIL)"),
        (SILENT, NO_ANSWER),
        (0, NO_ADDRESS),
    ],
)
async def test_no_address_has_a_reason(tmp_path: Path, code: int, reason: str) -> None:
    async with name_server() as server:
        server.addresses[NAME] = ()
        server.code = code

        assert await lookup_of(tmp_path, server)(NAME) == Failed(reason)


async def test_a_lack_of_descriptors_is_told_as_the_systems_error(tmp_path: Path) -> None:
    async with name_server() as server:
        server.addresses[NAME] = ("192.0.2.7",)
        lookup = lookup_of(tmp_path, server)
        assert isinstance(await lookup(NAME), Found)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            found = await lookup(NAME)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert found == Failed("no name server can be reached: too many open files", errno.EMFILE)


async def test_a_family_that_fails_does_not_hide_the_other(tmp_path: Path) -> None:
    async with name_server() as server:
        server.addresses[NAME] = ("192.0.2.7",)
        server.kinds[AAAA] = SERVFAIL

        assert await lookup_of(tmp_path, server)(NAME) == Found(None, ("192.0.2.7",), 1.0)


async def test_a_response_too_long_for_a_datagram_comes_over_tcp(tmp_path: Path) -> None:
    async with name_server() as server:
        server.addresses[NAME] = tuple(f"192.0.2.{number}" for number in range(1, 250))
        server.truncates = True
        found = await lookup_of(tmp_path, server)(NAME)

    assert isinstance(found, Found)
    assert found.ipv4 == tuple(f"192.0.2.{number}" for number in range(1, MAX_ADDRESSES + 1))
    assert server.over_tcp == 2


async def test_the_next_name_server_is_asked_when_the_first_says_nothing(tmp_path: Path) -> None:
    async with name_servers("127.0.0.1", "127.0.0.2") as (silent, server):
        silent.code = SILENT
        server.addresses[NAME] = ("192.0.2.7",)
        lookup = lookup_of(tmp_path, server, "search .\nnameserver 127.0.0.1\nnameserver 127.0.0.2")

        assert await lookup(NAME) == Found((), ("192.0.2.7",), 1.0)


@pytest.mark.parametrize(
    "name,ndots,tried",
    [
        ("api", 1, ["api.one.test", "api.two.test", "api"]),
        ("api.fleet", 1, ["api.fleet", "api.fleet.one.test", "api.fleet.two.test"]),
        ("api.fleet", 2, ["api.fleet.one.test", "api.fleet.two.test", "api.fleet"]),
    ],
)
async def test_names_are_searched_as_resolv_conf_says(
    tmp_path: Path, name: str, ndots: int, tried: list[str]
) -> None:
    resolv_conf = f"nameserver 127.0.0.1\nsearch one.test two.test\noptions ndots:{ndots}"
    async with name_server() as server:
        lookup = lookup_of(tmp_path, server, resolv_conf)

        assert await lookup(name) == Failed(NO_SUCH_NAME)
        assert [name for name, kind in server.queries if kind == A] == tried
        server.addresses[tried[1]] = ("192.0.2.7",)
        server.codes[tried[0]] = SERVFAIL  # passed over, as by libc
        assert await lookup(name) == Found((), ("192.0.2.7",), 1.0)


async def test_a_search_list_that_names_the_root_makes_no_second_query(tmp_path: Path) -> None:
    async with name_server() as server:
        assert await lookup_of(tmp_path, server)(NAME) == Failed(NO_SUCH_NAME)

        assert sorted(server.queries) == [(NAME, A), (NAME, AAAA)]


async def test_a_search_domain_too_long_for_a_name_is_passed_over(tmp_path: Path) -> None:
    long = ".".join(["x" * 60] * 4)  # with the name in front of it there are more than 255 bytes
    async with name_server() as server:
        server.addresses["database-primary.two.test"] = ("192.0.2.7",)
        lookup = lookup_of(tmp_path, server, f"nameserver 127.0.0.1\nsearch {long} two.test")

        assert await lookup("database-primary") == Found((), ("192.0.2.7",), 1.0)


async def test_after_silence_no_other_name_is_tried(tmp_path: Path) -> None:
    """It may be another machine's."""
    async with name_server() as server:
        server.codes["api.one.test"] = SILENT
        server.addresses["api.two.test"] = ("192.0.2.7",)
        lookup = lookup_of(tmp_path, server, "nameserver 127.0.0.1\nsearch one.test two.test")

        assert await lookup("api") == Failed(NO_ANSWER)


async def test_the_hosts_file_comes_first_and_is_read_again_when_it_changes(tmp_path: Path) -> None:
    async with name_server() as server:
        server.addresses[NAME] = ("192.0.2.7",)
        lookup = lookup_of(
            tmp_path, server, hosts=f"# {NAME}\n10.0.0.1 other API.fleet.test # api\n::1 {NAME}\n"
        )

        assert await lookup(NAME) == Found(("::1",), ("10.0.0.1",), HOSTS_TTL)
        assert server.queries == []
        (tmp_path / "hosts").write_text("nonsense\n\nx y z\n")
        assert await lookup(NAME) == Found((), ("192.0.2.7",), 1.0)
        (tmp_path / "hosts").unlink()
        assert await lookup("other") == Failed(NO_SUCH_NAME)


async def test_an_address_that_the_hosts_file_repeats_counts_once(tmp_path: Path) -> None:
    hosts = f"10.0.0.1 {NAME} {NAME}\n::1 {NAME}\n10.0.0.2 {NAME}\n10.0.0.1 {NAME}\n0::1 {NAME}\n"
    async with name_server() as server:
        found = await lookup_of(tmp_path, server, hosts=hosts)(NAME)

    assert found == Found(("::1",), ("10.0.0.1", "10.0.0.2"), HOSTS_TTL)


@pytest.mark.parametrize("name", ["localhost", "api.localhost"])
async def test_localhost_is_never_asked_of_a_name_server(tmp_path: Path, name: str) -> None:
    async with name_server() as server:
        assert await lookup_of(tmp_path, server)(name) == Found(("::1",), ("127.0.0.1",), HOSTS_TTL)
        assert server.queries == []


async def test_resolv_conf_is_read_again_when_it_changes(tmp_path: Path) -> None:
    async with name_servers("127.0.0.1", "127.0.0.2") as (first, second):
        first.addresses[NAME], second.addresses[NAME] = ("192.0.2.1",), ("192.0.2.2",)
        lookup, file = lookup_of(tmp_path, first), tmp_path / "resolv.conf"

        assert await lookup(NAME) == Found((), ("192.0.2.1",), 1.0)
        file.write_text("nameserver 127.0.0.2\n")
        assert await lookup(NAME) == Found((), ("192.0.2.2",), 1.0)
        for unusable in ("", "nameserver nonsense\n", "# being written"):
            file.write_text(unusable)
            assert await lookup(NAME) == Found((), ("192.0.2.2",), 1.0), unusable


async def test_without_resolv_conf_the_name_server_is_on_this_machine(tmp_path: Path) -> None:
    async with name_server() as server:
        server.addresses[NAME] = ("192.0.2.7",)
        lookup = NameLookup(hosts=tmp_path / "none", resolv_conf=tmp_path / "none", port=server.port)

        assert await lookup(NAME) == Found((), ("192.0.2.7",), 1.0)


async def test_without_a_name_server_in_resolv_conf_the_rest_of_it_counts(tmp_path: Path) -> None:
    """The name server is on this machine then, whatever the file said before."""
    async with name_servers("127.0.0.1", "127.0.0.2") as (server, before):
        server.addresses["api.fleet.one.test"] = ("192.0.2.7",)
        lookup = lookup_of(tmp_path, server, "nameserver 127.0.0.2")
        assert await lookup("api.fleet") == Failed(NO_SUCH_NAME)
        asked = len(before.queries)

        (tmp_path / "resolv.conf").write_text("search one.test\noptions timeout:1 ndots:2")
        assert await lookup("api.fleet") == Found((), ("192.0.2.7",), 1.0)
        assert [name for name, kind in server.queries if kind == A] == ["api.fleet.one.test"]
        assert len(before.queries) == asked


@pytest.mark.parametrize("name", ["a..b", "x" * 64, ".".join(["x" * 60] * 5)])
async def test_what_cannot_be_a_name_is_not_found(tmp_path: Path, name: str) -> None:
    async with name_server() as server:
        assert await lookup_of(tmp_path, server)(name) == Failed("it is not a valid name")


async def test_a_lookup_makes_no_thread_and_asks_libc_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("libc would wait for a name server")

    async with name_server() as server:
        lookup = lookup_of(tmp_path, server)
        server.addresses[NAME] = ("192.0.2.7",)
        server.truncates = True
        monkeypatch.setattr(socket, "getaddrinfo", fail)
        before = threading.enumerate()

        assert isinstance(await lookup(NAME), Found)
        assert threading.enumerate() == before
