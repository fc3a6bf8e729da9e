"""The driver keeps a real HAProxy at the snapshots of its gateway, and says clearly why it cannot."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.ladder import Target, step
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text, map_text, server_name
from gateway.engines.haproxy.driver import HaproxyDriver, Places, replace_file
from gateway.engines.haproxy.runtime import RuntimeProblem, chunks, conversation
from gateway.engines.table import compile_table
from gateway.settings import load
from tests.engines.equality.haproxy import running_haproxy
from tests.kit.networks import free_port
from tests.kit.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(60)]

FILE: Final = """
listen: 127.0.0.1:0
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: old, url: "http://127.0.0.1:1", versions: "1.1-1.58"}}
      - {{name: new, url: "http://127.0.0.1:2", versions: "1.1-{newest}"}}
"""


def snapshot(newest: str = "1.90") -> Snapshot:
    text = FILE.format(newest=newest)
    services = load(text, filename="driver.yaml", environ={}).require().services
    return Snapshot.configured(services, now=monotonic())


def places(folder: Path, port: int, *, level: str = "admin", hard_stop_after: int = 5) -> Places:
    options = HaproxyOptions(
        map_path=str(folder / "skewgate.map"),
        gateway="127.0.0.1:3",
        binds=(f"127.0.0.1:{port}",),
        socket=f"{folder}/s.sock mode 600 level {level}",
        hard_stop_after=f"{hard_stop_after}s",
    )
    return Places(
        f"{folder}/s.sock", folder / "skewgate.map", folder / "skewgate.cfg", options, hard_stop_after
    )


def write(first: Snapshot, where: Places) -> None:
    table = compile_table(first)
    replace_file(where.map_file, map_text(table))
    replace_file(where.configuration, configuration_text(table, where.options))


@asynccontextmanager
async def following(
    holder: SnapshotHolder,
    where: Places,
    ejected: Collection[str] = (),
    clock: Callable[[], float] = monotonic,
) -> AsyncIterator[HaproxyDriver]:
    driver = HaproxyDriver(holder, lambda: None, lambda: ejected, where, clock)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.close()


async def lines_in_force(where: Places) -> set[str]:
    async with conversation(where.socket) as talk:
        answer = await talk.command(f"show map {where.map_file}")
    return {line.partition(" ")[2] for line in answer.splitlines()}


async def wait_for(driver: HaproxyDriver, problem: str) -> None:
    async def told() -> bool:
        return problem in driver.report().problem if problem else not driver.report().problem

    await until(told, f"the driver says {problem!r}")


async def test_a_running_haproxy_follows_and_so_does_one_that_is_started_anew(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(snapshot())
    write(holder.current, where)
    async with following(holder, where) as driver:
        async with running_haproxy(where.configuration, port) as process:
            await wait_for(driver, "")
            assert driver.report().pid == process.pid
            assert driver.report().rows["baremetal"] > 50
            before = await lines_in_force(where)
            holder.update(snapshot("1.40"))

            async def changed() -> bool:
                return await lines_in_force(where) != before

            await until(changed, "the map is another one")
            now = await lines_in_force(where)
            assert now == set(where.map_file.read_text().splitlines())
        await wait_for(driver, "nobody listens")
        assert driver.report().draining == 1
        async with running_haproxy(where.configuration, port) as process:
            await wait_for(driver, "")
            assert driver.report().pid == process.pid
            assert await lines_in_force(where) == now


def next_record(holder: SnapshotHolder, before: AgreedRecord | None) -> AgreedRecord:
    """The one after `before`, in force."""
    view = holder.current.views["baremetal"]
    target = Target("guaranteed", view.offer_state.versions, None)
    record = step(before, target, view.service.dialect.scheme, all_attached=True)
    assert record is not None
    holder.agree({"baremetal": Agreed(record)})
    return record


async def test_who_is_ejected_gets_nothing_where_there_is_another(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(snapshot())
    old, new = (member.key for member in holder.current.fleet.member_sets["baremetal"].all)
    ejected: set[str] = set()
    write(holder.current, where)

    async def passed_over() -> dict[frozenset[str], set[str]]:
        """By the members of a route set: those that get no requests."""
        async with conversation(where.socket) as talk:
            servers = await talk.servers()
        (service,) = compile_table(holder.current).services
        names = {
            server_name(member): member.key
            for route_set in service.route_sets
            for member in route_set.members
        }
        return {
            route_set.keys: {names[name] for name, gets in servers[route_set.name].items() if not gets}
            for route_set in service.route_sets
        }

    async with following(holder, where, ejected) as driver, running_haproxy(where.configuration, port):
        await wait_for(driver, "")
        both, alone = frozenset({old, new}), frozenset({new})
        for gone, among_both in (({new}, {new}), ({old, new}, set()), (set(), set())):
            ejected.clear()
            ejected.update(gone)

            async def told(expected: set[str] = among_both) -> bool:
                return (await passed_over())[both] == expected

            await until(told, f"HAProxy passes over {among_both}")
            assert (await passed_over())[alone] == set()


async def wait_until_held(driver: HaproxyDriver, record: AgreedRecord) -> None:
    async def held() -> bool:
        return driver.held("baremetal") == record.seq

    await until(held, f"every process has record {record.seq}")


async def test_a_process_that_drains_after_a_reload_holds_what_it_had(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port, hard_stop_after=2), SnapshotHolder(snapshot())
    first = next_record(holder, None)
    write(holder.current, where)

    async with following(holder, where) as driver, running_haproxy(where.configuration, port) as old:
        await wait_for(driver, "")
        async with running_haproxy(where.configuration, port, instead_of=old.pid) as new:

            async def met() -> bool:
                return driver.report().pid == new.pid

            await until(met, "the driver has met the new process")
            assert driver.report().draining == 1
            second = next_record(holder, first)

            assert driver.held("baremetal") in {0, first.seq}
            await wait_until_held(driver, second)
            assert driver.report().draining == 0


async def test_too_old_a_haproxy_is_named(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"Name: HAProxy\nVersion: 2.4.22\nPid: 7\nUptime_sec: 1\n\n> ")
        writer.close()

    where, holder = places(tmp_path, 1), SnapshotHolder(snapshot())
    async with await asyncio.start_unix_server(answer, where.socket), following(holder, where) as driver:
        await wait_for(driver, "HAProxy 2.4.22 is too old: use 2.6 or newer")


async def test_R3_V2_one_that_was_halted_holds_the_offer_until_it_goes_on_and_is_the_same_then(
    tmp_path: Path,
) -> None:
    """Its own clock has stood still, too. As another process it would hold the offer for ten minutes more."""
    port = free_port()
    where, holder = places(tmp_path, port, hard_stop_after=600), SnapshotHolder(snapshot())
    first = next_record(holder, None)
    write(holder.current, where)
    async with following(holder, where) as driver, running_haproxy(where.configuration, port) as process:
        await wait_for(driver, "")
        process.send_signal(signal.SIGSTOP)
        try:
            second = next_record(holder, first)
            await wait_for(driver, "has not answered")
            assert driver.held("baremetal") == first.seq
        finally:
            process.send_signal(signal.SIGCONT)
        await wait_until_held(driver, second)
        assert driver.report().draining == 0


async def test_what_is_held_is_acknowledged_only_when_it_is_in_force(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(snapshot())
    record = next_record(holder, None)
    first = holder.current
    write(first, where)
    async with running_haproxy(where.configuration, port), following(holder, where) as driver:
        assert driver.held("baremetal") == 0
        await wait_for(driver, "")
        assert driver.held("baremetal") == record.seq


async def test_a_socket_that_will_not_do_is_one_clear_sentence(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port, level="operator"), SnapshotHolder(snapshot())
    write(holder.current, where)
    async with following(holder, where) as driver:
        await wait_for(driver, "there is no socket")
        async with running_haproxy(where.configuration, port):
            await wait_for(driver, "add `level admin`")
            assert driver.held("baremetal") == 0


async def test_something_else_at_the_socket_is_no_haproxy(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"Name: Other\n\n> ")
        writer.close()
        await writer.wait_closed()
        closed.set()

    path = str(tmp_path / "s.sock")
    async with await asyncio.start_unix_server(answer, path):
        with pytest.raises(RuntimeProblem, match="is not HAProxy"):
            async with conversation(path) as talk:
                await talk.info()
        await closed.wait()


def test_chunks_are_below_the_buffer_and_lose_no_line() -> None:
    lines = [f"key-{number} value" for number in range(3000)]
    parts = list(chunks(lines))
    assert len(parts) > 1
    assert max(map(len, parts)) <= 7000
    assert "".join(parts).splitlines() == lines
