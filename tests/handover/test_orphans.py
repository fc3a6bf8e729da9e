"""After a gateway that was killed: its workers finish their requests, and the next gateway counts on it."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from gateway.errors import StartupError
from gateway.handover.connection import SUFFIX, connect, path_of, short
from gateway.handover.predecessor import HandoverServer, Predecessor
from tests.handover.conftest import House
from tests.kit.waiting import PATIENCE, until


def was_killed(house: House) -> None:
    """The file of a socket on which nobody listens."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(house.path))


async def test_an_address_of_a_stranger_is_not_waited_for(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StartupError, match="is another gateway running"):
                await house.start(house.write(f"127.0.0.1:{other.getsockname()[1]}"))

    assert not house.path.exists()


async def test_workers_of_a_killed_gateway_have_a_moment_to_give_the_address_free(house: House) -> None:
    was_killed(house)
    with socket.create_server(("127.0.0.1", 0)) as left:
        address = f"127.0.0.1:{left.getsockname()[1]}"
        starting = asyncio.create_task(house.start(house.write(address)))
        await asyncio.sleep(0.2)
        assert not starting.done()

    gateway = await starting

    assert gateway.urls == (f"http://{address}",)
    assert await house.get(gateway) == 200


async def test_one_that_is_never_free_ends_the_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.handover.handover.ADDRESS_TIME", 0.1)
    was_killed(house)
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(StartupError, match="is another gateway running"),
    ):
        await house.start(house.write(f"127.0.0.1:{other.getsockname()[1]}"))


async def test_what_they_still_serve_is_not_refused_until_they_have_drained(house: House) -> None:
    was_killed(house)
    gateway = await house.start(house.write(more="timeouts: {drain: 1s}"))
    handover, told = gateway.parts.plan.handover, asyncio.Event()
    assert handover.orphans_left()
    handover.orphans_ended = told.set

    await until(told.is_set)

    assert not handover.orphans_left()


async def test_one_that_ended_in_order_has_left_no_worker(house: House) -> None:
    file = house.write()
    await house.end(await house.start(file))

    assert not (await house.start(file)).parts.plan.handover.orphans_left()


async def test_the_socket_of_the_next_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one starts just when the one that ends looks whose socket is there."""
    path = path_of(tmp_path / "state.json")
    old, new = HandoverServer(path), HandoverServer(path)
    old.start(cast(Predecessor, None), replace=False)
    look, starts = Path.lstat, [True]

    def start() -> None:
        with suppress(FileExistsError):
            new.start(cast(Predecessor, None), replace=False)
            starts.clear()

    def looked(at: Path) -> os.stat_result:
        found = look(at)
        monkeypatch.setattr(Path, "lstat", look)
        start()
        return found

    monkeypatch.setattr(Path, "lstat", looked)
    await old.close()
    if starts:  # the old one has listened until it was gone
        start()

    line = connect(path)
    assert line is not None
    line.close()
    await new.close()


async def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    path = path_of(folder / "state.json")
    server = HandoverServer(path)
    server.start(cast(Predecessor, None), replace=False)
    line = connect(path)
    assert line is not None

    await line.send({})

    assert "not understood" in str(await line.receive())
    line.close()
    assert path.name == f"state.json{SUFFIX}"
    await server.close()
    assert not path.exists()
    with short(tmp_path / "y") as name:
        assert name == str(tmp_path / "y")
