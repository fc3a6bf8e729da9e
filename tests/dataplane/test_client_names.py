"""Which name the record of a request has: by what its client sends, and by who may send it."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from gateway.core.clients import Client, Clients
from tests.kit.backends import serve
from tests.kit.messages import request, version_line
from tests.kit.workers import Gateway, Testbed

CLIENTS = Clients(
    [
        Client("far", networks=(ip_network("192.0.2.0/24"),)),
        Client("team", header={"X-Team": "compute-*"}),
        Client("user", header={"X-Remote-User": "alice"}),
        Client("latest", header={"X-OpenStack-Ironic-API-Version": "latest"}),
        Client("curl", "curl"),
    ]
)


async def named(testbed: Testbed, clients: Clients = CLIENTS, trusted: tuple[str, ...] = ()) -> Gateway:
    """A worker whose snapshot has these rules."""
    gateway, _ = await testbed.gateway_and_backend(serve, trusted=trusted)
    holder = gateway.snapshot_holder
    holder.update(replace(holder.current, clients=clients))
    return gateway


async def name_of(gateway: Gateway, *lines: str, method: str = "GET") -> str:
    """The name in the record of a request with these header lines."""
    number = len(gateway.records) + 1
    await gateway.request(request(method, "/v1/nodes", *lines))
    return (await gateway.recorded(number)).client_name


async def test_a_client_is_named_by_what_it_sends(testbed: Testbed) -> None:
    """The first and second time as from the third on, when a layout reads its head."""
    gateway = await named(testbed)

    for lines, name in 3 * (
        (("User-Agent: curl/8.1",), "curl"),
        (("user-agent:CURL",), "curl"),
        (("User-Agent: curl/8.1", "X-Team: compute-7"), "team"),
        (("x_team: compute-7",), "team"),
        (("X-Team: computer",), ""),
        ((version_line("latest"), "User-Agent: curl/8.1"), "latest"),
        (("User-Agent: wget/1",), ""),
        ((), ""),
    ):
        assert await name_of(gateway, *lines) == name, lines


async def test_nobody_is_named_without_rules(testbed: Testbed) -> None:
    assert await name_of(await named(testbed, Clients()), "User-Agent: curl/8") == ""


async def test_a_header_that_is_dropped_from_a_peer_does_not_name_it(testbed: Testbed) -> None:
    assert await name_of(await named(testbed), "X-Remote-User: alice", "X_Remote.User: alice") == ""
    assert await name_of(await named(testbed, trusted=("127.0.0.0/8",)), "X-Remote-User: alice") == "user"


@pytest.mark.parametrize("trusted, name", [((), ""), (("127.0.0.0/8",), "far")])
async def test_networks_are_those_of_the_client_that_a_trusted_proxy_names(
    testbed: Testbed, trusted: tuple[str, ...], name: str
) -> None:
    gateway = await named(testbed, trusted=trusted)
    assert await name_of(gateway, "X-Forwarded-For: 198.51.100.1, 192.0.2.7") == name


async def test_a_refused_request_has_the_name_of_its_client(testbed: Testbed) -> None:
    gateway = await named(testbed)

    assert await name_of(gateway, version_line("1.999"), "User-Agent: curl/8") == "curl"
    assert gateway.records[-1].status == 406
    assert await name_of(gateway, "Max-Forwards: 0", "User-Agent: curl/8", method="OPTIONS") == "curl"


async def test_a_name_is_no_part_of_the_key_of_a_decision(testbed: Testbed) -> None:
    gateway = await named(testbed)
    for number in range(20):
        assert await name_of(gateway, f"X-Team: compute-{number}", f"User-Agent: x{number}") == "team"

    assert len(gateway.worker.context.decision_cache) == 1


async def test_new_rules_hold_for_the_next_request_of_an_open_connection(testbed: Testbed) -> None:
    gateway = await named(testbed)
    client = await gateway.client()
    for name in ("curl", "renamed"):
        assert (await client.request(request("GET", "/v1/nodes", "User-Agent: curl/8"))).status == 200
        assert gateway.records[-1].client_name == name
        holder = gateway.snapshot_holder
        holder.update(replace(holder.current, clients=Clients([Client("renamed", "curl")])))


@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8",)])
async def test_requests_of_one_connection_may_be_of_several_clients(
    testbed: Testbed, trusted: tuple[str, ...]
) -> None:
    gateway = await named(testbed, trusted=trusted)
    client = await gateway.client()
    far, agent, team = "X-Forwarded-For: 192.0.2.7", "User-Agent: curl/8", "X-Team: compute-1"
    for lines, name in (
        ((agent,), "curl"),
        ((agent, team), "team"),
        ((agent,), "curl"),
        ((agent, far), "far" if trusted else "curl"),
        ((team, far), "far" if trusted else "team"),
        ((team,), "team"),
        ((), ""),
        ((agent,), "curl"),
        (("User-Agent: wget",), ""),
        (("user-agent: wget", agent), "curl"),
        (("user-agent: wget",), ""),
        (("Accept: a", agent), "curl"),
        (("Accept: b", "User-Agent: curly", agent), ""),
    ):
        assert (await client.request(request("GET", "/v1/nodes", *lines))).status == 200
        assert gateway.records[-1].client_name == name, lines


async def test_4_kb_of_any_bytes_are_no_error(testbed: Testbed) -> None:
    gateway = await named(testbed, Clients([Client("x", header={"X-Team": "a"})]))
    client = await gateway.client()
    odd = bytes(range(0x80, 0x100)) * 32

    answer = await client.request(
        request("GET", "/v1/nodes").replace(b"\r\n\r\n", b"\r\nUser-Agent: %b\r\n\r\n" % odd)
    )

    assert answer.status == 200
    assert gateway.records[-1].client_name == ""
