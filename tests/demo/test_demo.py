"""The demonstration as a command, without a terminal: what it prints, how it ends, that it repeats itself."""

from __future__ import annotations

import asyncio
import re
import signal
import socket

import aiohttp
import pytest

from gateway.demo.clients import KINDS
from tests.kit.processes import Ended, call, finish, start

pytestmark = pytest.mark.processes

EVENT = re.compile(r"^ *[\d.]+ s  (step|offer): +(.*)$", re.MULTILINE)
LINE = re.compile(
    r"^ +1\.\d s  baremetal 1\.1-1\.\d\d \w+, catalog 1-\d \w+ \| answered \d+, refused \d+, lost 0$",
    re.MULTILINE,
)
COURSE = [
    ("offer", "baremetal offers 1.1-1.82: uniform"),
    ("offer", "catalog offers 1-4: uniform"),
    ("step", "api-1 stops for its upgrade"),
    ("step", "api-1 is upgraded to Caracal (24.1)"),
    ("offer", "baremetal offers 1.1-1.82: mixed"),
    ("step", "catalog-1 stops for its upgrade"),
    ("step", "catalog-1 is upgraded to 3.0"),
    ("offer", "catalog offers 1-4: mixed"),
    ("step", "api-2 stops for its upgrade"),
    ("step", "api-2 is upgraded to Caracal (24.1)"),
    ("step", "api-3 stops for its upgrade"),
    ("step", "api-3 is upgraded to Caracal (24.1)"),
    ("step", "catalog-2 stops for its upgrade"),
    ("step", "catalog-2 is upgraded to 3.0"),
    ("offer", "catalog offers 1-4: stabilizing"),
    ("offer", "catalog offers 1-7: uniform"),
    ("step", "api-4 stops for its upgrade"),
    ("step", "api-4 is upgraded to Caracal (24.1)"),
    ("offer", "baremetal offers 1.1-1.82: stabilizing"),
    ("offer", "baremetal offers 1.1-1.90: uniform"),
]


async def test_one_seed_gives_the_same_course_twice_and_nothing_is_lost() -> None:
    both = await asyncio.gather(*(call("demo", "--for", "2s", "--seed", "5") for _ in range(2)))

    for ended in both:
        assert (ended.code, ended.err) == (0, ""), ended.out
        assert EVENT.findall(ended.out) == COURSE
        assert LINE.search(ended.out), ended.out
        assert_summary(ended)


def assert_summary(ended: Ended) -> None:
    found = re.search(
        r"^  skewgate: (\d+) requests, (\d+) answered, (\d+) refused, lost 0$", ended.out, re.MULTILINE
    )
    assert found is not None, ended.out
    requests, answered, refused = map(int, found.groups())
    assert requests == answered + refused > 20
    for kind in KINDS:
        assert re.search(
            rf"^    {re.escape(kind.kind)} +[1-9]\d* answered .* 0 lost$", ended.out, re.MULTILINE
        )


async def test_a_stop_signal_ends_it_with_the_summary() -> None:
    for ended in await asyncio.gather(*map(ended_by, (signal.SIGINT, signal.SIGTERM))):
        assert (ended.code, ended.err) == (0, "")
        assert "Summary after" in ended.out
        assert "lost 0" in ended.out


async def ended_by(number: signal.Signals) -> Ended:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" answered " not in (line := await process.stdout.readline()):
        assert line, "ended before the first second"
    process.send_signal(number)
    return await finish(process)


async def test_without_a_reader_it_ends_quietly() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    while b" answered " not in await process.stdout.readline():
        pass
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined] # no other way
    transport.close()

    ended = await finish(process)

    assert (ended.code, ended.err) == (1, "")


async def test_the_commands_to_copy_get_200_and_406_until_the_offer_rises() -> None:
    process = await start("demo", "--for", "600")
    assert process.stdout is not None
    commands: list[tuple[str, str, str]] = []
    while len(commands) < 2:
        line = (await process.stdout.readline()).decode()
        assert line, "ended without the commands"
        commands += re.findall(r"curl -iH '(\S+): (\S+)' (\S+)", line)
    statuses = []
    async with aiohttp.ClientSession() as session:
        for name, version, url in commands:
            async with session.get(f"http://{url}", headers={name: version}) as response:
                statuses.append((version, response.status))
    process.send_signal(signal.SIGINT)
    await finish(process)

    assert statuses == [("1.31", 200), ("1.90", 406)]


async def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = await call("demo", "--for", "1", "--port", str(port))

    assert ended.code == 0
    assert f"cannot listen on 127.0.0.1:{port}" in ended.err
    assert "a free port is used instead" in ended.err


async def test_web_prints_the_page_and_a_token_that_gives_orders() -> None:
    process = await start("demo", "--for", "600", "--web", DISPLAY="", WAYLAND_DISPLAY="", BROWSER="")
    assert process.stdout is not None
    found = None
    while found is None:
        line = (await process.stdout.readline()).decode()
        assert line, "ended without the page"
        found = re.search(r"(http://127\.0\.0\.1:\d+)/ui/ \(token (\S{16,})\)", line)
    url, token = found.groups()
    pin = f"{url}/services/baremetal/ceiling"
    async with aiohttp.ClientSession() as session:
        async with session.put(pin, json={"version": "1.50"}) as refused:
            pass
        headers = {"Authorization": f"Bearer {token}"}
        async with session.put(pin, json={"version": "1.50"}, headers=headers) as accepted:
            pass
    process.send_signal(signal.SIGINT)
    await finish(process)

    assert (refused.status, accepted.status) == (401, 200)
