"""HAProxy with the map of a snapshot does what the gateway with this snapshot does.

The same requests go to both, and what clients and members see of it is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.engines.equality.apis import FLEETS, services
from tests.engines.equality.comparison import Pair, differences, members_seen, report
from tests.engines.equality.gateway import RunningGateway, configuration, running_gateway
from tests.engines.equality.generations import Traffic
from tests.engines.equality.haproxy import running_engine, running_haproxy
from tests.engines.equality.members import MEMBER_HEADER, UNACCEPTABLE, other_refusal, running_members
from tests.engines.equality.requests import Asked, requests
from tests.kit.clients import Answer, ByteClient
from tests.kit.networks import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(170)]

SEED: Final = 16

ONLY_FORWARDS: Final = """
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend any
  bind 127.0.0.1:{port}
  option forwardfor
  default_backend one
backend one
  server one 127.0.0.1:{target}
"""
"""No map: everything goes to one server."""


SAID_BY_HEADERS: Final = ("ironic", "header")
"""Services whose members say in the headers of a 406 whether it is about the version."""


async def both(asked: Asked, gateway: RunningGateway, port: int) -> tuple[Answer, Answer]:
    """The answers of the gateway and of HAProxy to one request, over connections of its own."""
    one, other = ByteClient(gateway.port), ByteClient(port)
    try:
        return await one.exchange(asked.raw), await other.exchange(asked.raw)
    finally:
        one.close()
        other.close()


async def ask(service: str, number: int, gateway: RunningGateway, port: int) -> Sequence[Pair]:
    """Send requests for a service to the gateway and to HAProxy at this port, one after the other."""
    one, other = ByteClient(gateway.port), ByteClient(port)
    pairs = []
    try:
        for asked in requests(FLEETS[service], SEED, number):
            direct, before = await one.exchange(asked.raw), gateway.requests
            answer = await other.exchange(asked.raw)
            pairs.append(Pair(asked, direct, answer, gateway.requests == before))
    finally:
        one.close()
        other.close()
    return pairs


def assert_equal(pairs: Iterable[Pair]) -> None:
    found = [each for pair in pairs for each in differences(pair)]
    assert not found, f"seed {SEED}\n{report(found)}"


@pytest.mark.parametrize("service", FLEETS)
async def test_the_comparison_sees_what_is_there(service: str, tmp_path: Path) -> None:
    """No difference where HAProxy only forwards to the gateway; many where it forwards to one member."""
    async with (
        running_members() as ports,
        running_gateway(configuration(services("guaranteed", ports))) as gateway,
    ):
        for target, equal in ((gateway.port, True), (ports[service]["old-1"], False)):
            port, file = free_port(), tmp_path / f"{target}.cfg"
            file.write_text(ONLY_FORWARDS.format(port=port, target=target))
            async with running_haproxy(file, port):
                pairs = await ask(service, 200, gateway, port)
            if equal:
                assert_equal(pairs)
                assert members_seen(pairs)["gateway"] > 20
                assert members_seen(pairs)["old"] > 20
            else:
                assert sum(1 for pair in pairs for _ in differences(pair)) > 100


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
@pytest.mark.parametrize("service", FLEETS)
async def test_a_thousand_requests_get_the_same_answers(service: str, policy: str, tmp_path: Path) -> None:
    """And enough of them go past the gateway: sending everything to it would be equal, too."""
    async with (
        running_members() as ports,
        running_gateway(configuration(services(policy, ports))) as gateway,
        running_engine(gateway, tmp_path) as engine,
    ):
        pairs = await ask(service, 1000, gateway, engine.port)
        assert_equal(pairs)
        assert sum(pair.past and bool(pair.haproxy.values(MEMBER_HEADER)) for pair in pairs) > 100


async def test_the_same_is_said_where_nobody_can_be_reached(tmp_path: Path) -> None:
    """Requests that only the new member serves are 503, in the shape and in the words of the gateway."""
    async with running_members() as found:
        ports = {name: {**found[name], "new-1": free_port()} for name in FLEETS}
        async with (
            running_gateway(configuration(services("reachable", ports))) as gateway,
            running_engine(gateway, tmp_path) as engine,
        ):
            for service in FLEETS:
                pairs = await ask(service, 200, gateway, engine.port)
                assert_equal(pairs)
                assert sum(pair.past and pair.haproxy.status == 503 for pair in pairs) > 5, service


async def test_the_end_of_versions_is_the_same_on_both_ways(tmp_path: Path) -> None:
    """What the floor refuses is refused, what is deprecated is announced, and only the rest goes past."""
    async with (
        running_members() as ports,
        running_gateway(configuration(services("reachable", ports, ending=True))) as gateway,
        running_engine(gateway, tmp_path) as engine,
    ):
        for service in FLEETS:
            pairs = await ask(service, 300, gateway, engine.port)
            assert_equal(pairs)
            announced = [pair for pair in pairs if pair.haproxy.values("Deprecation")]
            assert len(announced) > 5, service
            assert not any(pair.past for pair in announced)
            assert sum(pair.past and bool(pair.haproxy.values(MEMBER_HEADER)) for pair in pairs) > 5, service


async def test_a_refusal_of_a_member_reaches_no_client(tmp_path: Path) -> None:
    """The new member has become an old one, and nobody knows it yet: what it refuses, in its own words, is
    503 on both ways. To HEAD a server says nothing that the gateway could read: there it may pass."""
    async with (
        running_members(new="old-3") as ports,
        running_gateway(configuration(services("reachable", ports))) as gateway,
        running_engine(gateway, tmp_path) as engine,
    ):
        for service in FLEETS:
            pairs = await ask(service, 200, gateway, engine.port)
            assert_equal(pair for pair in pairs if not pair.asked.raw.startswith(b"HEAD "))
            assert sum(pair.past and pair.haproxy.status == 503 for pair in pairs) > 5, service
            assert not [pair for pair in pairs if pair.past and pair.haproxy.status == 406]


async def test_a_406_about_something_else_is_503_where_only_its_body_says_so(tmp_path: Path) -> None:
    """HAProxy reads no bodies. The gateway does, and so passes such a 406 on."""
    async with (
        running_members() as ports,
        running_gateway(configuration(services("reachable", ports))) as gateway,
        running_engine(gateway, tmp_path) as engine,
    ):
        for service, fleet in FLEETS.items():
            path = fleet.api.targets[0]
            raw = f"GET {path}?{UNACCEPTABLE} HTTP/1.1\r\nHost: {fleet.api.host}\r\n\r\n".encode()
            direct, through = await both(Asked(fleet, "other 406", raw), gateway, engine.port)
            assert (direct.status, direct.body) == (406, other_refusal(service))
            if service in SAID_BY_HEADERS:
                assert (through.status, through.body) == (406, direct.body), service
            else:
                assert through.status == 503, service
                assert not through.values(MEMBER_HEADER)


async def test_no_answer_is_of_two_generations_over_400_flips(tmp_path: Path) -> None:
    fleet, highest = FLEETS["ironic"], ("1.58", "1.72", "1.90")

    def generation(number: int, members: Mapping[str, int]) -> str:
        service = fleet.service("reachable", members, ceiling=highest[number % len(highest)])
        return configuration(service)

    async with running_members() as ports:
        members = ports["ironic"]
        async with (
            running_gateway(generation(0, members)) as gateway,
            running_engine(gateway, tmp_path) as engine,
        ):
            traffic = Traffic(fleet, engine.port, [(fleet.lowest, each) for each in highest])
            clients = [asyncio.create_task(traffic.client(number)) for number in range(8)]
            try:
                for number in range(1, 401):
                    gateway.reconfigure(generation(number, members))
                    await engine.follow()
                    await traffic.answered(20)
            finally:
                for client in clients:
                    client.cancel()
                await asyncio.gather(*clients, return_exceptions=True)
    assert not traffic.problems, traffic.problems[:10]
    assert {f"member {each}" for each in highest} <= traffic.answers.keys(), traffic.answers
