"""Heads that two readers may read differently never make a member execute another version.

HAProxy mends some of what the gateway refuses with 400: it joins folded lines. What a member then gets must
be one version in each header, and the one that the client wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.apis import Header
from tests.engines.equality.apis import FLEETS, Fleet, services
from tests.engines.equality.comparison import Pair, differences, is_http
from tests.engines.equality.gateway import configuration, running_gateway
from tests.engines.equality.haproxy import running_engine
from tests.engines.equality.members import RECEIVED_HEADER, as_servers_read, running_members
from tests.engines.equality.requests import Asked
from tests.kit.clients import Answer, ByteClient

pytestmark = [pytest.mark.engines, pytest.mark.timeout(60)]


def hostile(name: str, good: str, other: str, absent: str) -> Iterator[tuple[str, str, str]]:
    """What is done, the lines, and the value that a member may get at most; empty: none may get any.

    `good` and `other` are whole values of the header, both on offer; `absent` is what a request without one
    gets.
    """
    yield "folded before the value", f"{name}:\r\n {good}", good
    yield "folded by a tab", f"{name}:\r\n\t{good}", good
    yield "folded after the value", f"{name}: {good}\r\n ", good
    yield "folded in the value", f"{name}: {good[:-1]}\r\n {good[-1]}", ""
    yield "another version on a folded line", f"{name}: {good}\r\n ,{other}", ""
    yield "the other header on a folded line", f"{name}: {good}\r\n {name}: {other}", ""
    yield "a folded line before the header", f"X-Other: a\r\n {name}: {other}\r\n{name}: {good}", good
    yield "only on a folded line", f"X-Other: a\r\n {name}: {good}", absent
    yield "the first line folded", f" {name}: {good}", ""
    yield "twice", f"{name}: {good}\r\n{name}: {other}", ""
    yield "twice, in another case", f"{name}: {good}\r\n{name.swapcase()}: {other}", ""
    yield "twice, one empty", f"{name}: {good}\r\n{name}:", ""
    yield "a list", f"{name}: {good}, {other}", ""
    yield "a list that ends early", f"{name}: {good},", ""
    for sign in "_.+!~*'|^`#$%&":
        odd = name.replace("-", sign)
        yield f"hyphens are {sign}", f"{odd}: {other}", ""
        yield f"beside one whose hyphens are {sign}", f"{odd}: {other}\r\n{name}: {good}", ""
    yield "a blank before the colon", f"{name} : {other}", ""
    yield "a bare CR", f"{name}: {good}\r{name}: {other}", ""
    yield "a bare LF", f"{name}: {good}\n{name}: {other}", ""
    yield "NUL", f"{name}: {good}\0", ""
    yield "no-break space", f"{name}: {good}\xa0", ""
    yield "vertical tab", f"{name}: \v{good}", ""
    yield "a header that the connection names", f"{name}: {good}\r\nConnection: close, {name}", ""
    yield "no colon", f"{name} {good}", ""
    yield "no name", f": {good}\r\n{name}: {good}", ""


def received(answer: Answer) -> list[str]:
    """The lines with versions that the member got, if one answered."""
    return [line for line in "".join(answer.values(RECEIVED_HEADER)).split("|") if line]


def assert_harmless(pair: Pair, version: str, places: list[Header]) -> None:
    """`version`: what the client wrote; HAProxy alone may send nothing else on."""
    if is_http(pair):
        assert not list(differences(pair)), pair
    if not pair.past or not pair.haproxy.values(RECEIVED_HEADER):
        return
    assert version, f"{pair.asked.kind}: {pair.asked.raw!r}, {pair.haproxy}"
    names = [as_servers_read(line) for line in received(pair.haproxy)]
    assert sorted(names) == sorted({place.name.lower() for place in places}), pair
    for line in received(pair.haproxy):
        place = next(one for one in places if one.name.lower() == as_servers_read(line))
        assert read(place, line.partition(":")[2].strip()) == version, pair


def read(place: Header, value: str) -> str | None:
    """The version in a value of this header."""
    before, _, after = place.spelling.partition("{}")
    found = value.startswith(before) and value.endswith(after)
    return value[len(before) : len(value) - len(after)] if found else None


async def both(fleet: Fleet, what: str, lines: str, ports: tuple[int, ...]) -> tuple[Asked, list[Answer]]:
    """The answers to one request at both ports, each over a connection of its own."""
    head = f"GET {fleet.api.targets[0]} HTTP/1.1\r\nHost: {fleet.api.host}\r\n{lines}\r\n\r\n"
    asked, answers = Asked(fleet, what, head.encode("latin-1")), []
    for port in ports:
        connection = ByteClient(port)
        try:
            answers.append(await connection.exchange(asked.raw))
        finally:
            connection.close()
    return asked, answers


@pytest.mark.parametrize("service", FLEETS)
async def test_no_member_executes_another_version(service: str, tmp_path: Path) -> None:
    fleet = FLEETS[service]
    places = [place for place in fleet.api.locations if isinstance(place, Header)]
    async with (
        running_members() as members,
        running_gateway(configuration(services("reachable", members))) as gateway,
        running_engine(gateway, tmp_path) as engine,
    ):
        for place in places:
            good, other = place.spelling.format(fleet.old), place.spelling.format(fleet.new)
            absent = place.spelling.format(fleet.lowest)
            for what, lines, value in hostile(place.name, good, other, absent):
                asked, (direct,) = await both(fleet, what, lines, (gateway.port,))
                before = gateway.requests
                _, (through,) = await both(fleet, what, lines, (engine.port,))
                pair = Pair(asked, direct, through, gateway.requests == before)
                assert_harmless(pair, read(place, value) or "", places)
