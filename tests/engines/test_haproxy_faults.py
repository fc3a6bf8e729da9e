"""What can be wrong with a HAProxy that is to follow: each is one clear sentence, and nothing is acknowledged
that is not in force. A real HAProxy where it can be made to do so, or else one that answers as it does."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import get_ident
from time import monotonic
from typing import Any, Final

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import Decision, decide
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines import table as table_module
from gateway.engines.haproxy import driver as driver_module
from gateway.engines.haproxy.configuration import server_name
from gateway.engines.haproxy.runtime import CHUNK
from gateway.engines.table import compile_table
from gateway.settings import load
from tests.engines.equality.haproxy import running_haproxy
from tests.engines.test_haproxy_driver import (
    following,
    lines_in_force,
    next_record,
    places,
    snapshot,
    wait_for,
    wait_until_held,
    write,
)
from tests.kit.networks import free_port
from tests.kit.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]

PID: Final = 4711


def fleet(*versions: str) -> Snapshot:
    """One backend for each of these ranges."""
    backends = "".join(
        f"      - {{name: b{at}, url: 'http://127.0.0.1:{at + 1}', versions: '{each}'}}\n"
        for at, each in enumerate(versions)
    )
    text = f"listen: 127.0.0.1:0\nservices:\n  baremetal:\n    dialect: ironic\n    backends:\n{backends}"
    return Snapshot.configured(load(text, filename="f.yaml", environ={}).require().services, now=monotonic())


# --- a real one --------------------------------------------------------------------------------------------


async def test_a_route_set_that_its_configuration_lacks_is_in_no_row_until_it_is_reloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(fleet("1.1-1.58", "1.1-1.90"))
    write(holder.current, where)
    async with following(holder, where) as driver, running_haproxy(where.configuration, port) as old:
        await wait_for(driver, "")
        known = {
            route_set.name for each in compile_table(holder.current).services for route_set in each.route_sets
        }
        assert driver.report().missing == ()
        holder.update(fleet("1.1-1.58", "1.1-1.90", "1.1-1.95"))
        wanted = {
            route_set.name for each in compile_table(holder.current).services for route_set in each.route_sets
        }

        async def told() -> bool:
            return bool(driver.report().missing)

        await until(told, "the driver says which route sets HAProxy lacks")
        assert set(driver.report().missing) <= wanted - known
        assert f"reload HAProxy with {where.configuration}" in caplog.text
        await wait_for(driver, "")

        async def in_rows() -> set[str]:
            return {line.split()[1].split("|")[1] for line in await lines_in_force(where)}

        assert await in_rows() <= known
        async with running_haproxy(where.configuration, port, instead_of=old.pid):

            async def whole() -> bool:
                report = driver.report()
                return not report.missing and not report.problem and bool(await in_rows() - known)

            await until(whole, "HAProxy has all route sets, and rows lead to the new ones")


async def test_a_map_of_thousands_of_rows_is_replaced_whole(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(fleet("1.1-1.20"))
    write(holder.current, where)
    async with following(holder, where) as driver, running_haproxy(where.configuration, port):
        await wait_for(driver, "")
        for newest in (6000, 5000, 20):
            holder.update(fleet(f"1.1-1.{newest}"))

            async def in_force() -> bool:
                written = where.map_file.read_text()
                return f"|1:1.{newest}|" in written and f"|1:1.{newest + 1}|" not in written  # noqa: B023

            await until(in_force, f"the file goes up to 1.{newest}")
            lines = where.map_file.read_text().splitlines()
            assert newest == 20 or len(lines) > 2000
            assert newest == 20 or where.map_file.stat().st_size > 10 * CHUNK

            async def alike() -> bool:
                return await lines_in_force(where) == set(lines)  # noqa: B023 - in this turn only

            await until(alike, "HAProxy has the lines of the file, and no others")
            await wait_for(driver, "")


@pytest.mark.parametrize("level", ["user", "operator"])
async def test_rights_that_are_too_few_are_named(level: str, tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port, level=level), SnapshotHolder(snapshot())
    record = next_record(holder, None)
    write(holder.current, where)
    async with following(holder, where) as driver, running_haproxy(where.configuration, port):
        await wait_for(driver, f"has the level `{level}`: add `level admin` to `stats socket`")
        assert driver.held("baremetal") != record.seq


async def test_a_socket_or_a_map_that_belongs_elsewhere_is_named(tmp_path: Path) -> None:
    port = free_port()
    where, holder = places(tmp_path, port), SnapshotHolder(snapshot())
    write(holder.current, where)
    other = tmp_path / "other.map"
    where.map_file.rename(other)
    where.configuration.write_text(where.configuration.read_text().replace(str(where.map_file), str(other)))
    haproxy = tmp_path / "as-it-is.cfg"
    where.configuration.rename(haproxy)
    async with following(holder, where) as driver, running_haproxy(haproxy, port):
        await wait_for(driver, f"HAProxy has no map {where.map_file}: its configuration must name it")
        assert driver.held("baremetal") == 0


async def test_a_file_is_no_socket(tmp_path: Path) -> None:
    """Whoever made it: a HAProxy with another socket may be serving, so the offer stands still."""
    where, holder = places(tmp_path, 1), SnapshotHolder(snapshot())
    next_record(holder, None)
    where.map_file.with_name("s.sock").touch()
    async with following(holder, where) as driver:
        await wait_for(driver, f"{where.socket} is no socket")
        assert driver.held("baremetal") == 0


async def test_a_folder_that_cannot_be_written_any_more_is_named(tmp_path: Path) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(snapshot())
    where.map_file.with_name("skewgate.map.new").mkdir()
    async with following(holder, where) as driver:
        await wait_for(driver, f"{where.map_file}.new cannot be written: Is a directory")
        assert driver.held("baremetal") == 0


# --- one that answers as it does ---------------------------------------------------------------------------


class Answers:
    """A HAProxy of one map, at its socket."""

    def __init__(self, where_map: Path, servers: str) -> None:
        self.pid, self.uptime = PID, 100
        self.lines: list[str] = []
        """In force."""
        self.prepared: list[str] = []
        self.stat = ""
        self.before: Callable[[str], bool] = lambda command: True
        """Called with each command; False: it ends without an answer."""
        self._map = where_map
        self._servers = servers

    def answer(self, command: str, payload: list[str]) -> str:
        match command.split():
            case ["show", "info"]:
                return f"Name: HAProxy\nVersion: 2.6.12\nPid: {self.pid}\nUptime_sec: {self.uptime}"
            case ["show", "cli", "level"]:
                return "admin"
            case ["show", "servers", "state"]:
                return self._servers
            case ["show", "stat", *_]:
                return self.stat
            case ["prepare", "map", _]:
                self.prepared = []
                return "New version created: 1"
            case ["add", "map", "@1", _, "<<"]:
                self.prepared += payload
            case ["commit", "map", "@1", _]:
                self.lines = self.prepared
            case _:
                pass
        return ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode().removesuffix("\n"):
                payload: list[str] = []
                while line.endswith("<<") and (more := (await reader.readline()).decode().strip("\n")):
                    payload.append(more)
                if not self.before(line):
                    return
                writer.write(f"{self.answer(line, payload)}\n\n> ".encode())
        finally:
            writer.transport.abort()

    def starts_anew(self) -> None:
        """Another process in a container, which has the same id, with what it read from the file."""
        self.uptime = 0
        self.lines = self._map.read_text().splitlines()


@asynccontextmanager
async def answering(holder: SnapshotHolder, socket: str, where_map: Path) -> AsyncIterator[Answers]:
    servers = "\n".join(
        f"1 {route_set.name} 1 {server_name(member)} 127.0.0.1 2 0 1 1"
        for each in compile_table(holder.current).services
        for route_set in each.route_sets
        for member in route_set.members
    )
    haproxy = Answers(where_map, servers)
    async with await asyncio.start_unix_server(haproxy.serve, socket):
        yield haproxy


async def test_one_that_ends_between_two_chunks_has_acknowledged_nothing(tmp_path: Path) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(fleet("1.1-1.300"))
    first = next_record(holder, None)
    write(holder.current, where)
    async with answering(holder, where.socket, where.map_file) as haproxy, following(holder, where) as driver:
        await wait_until_held(driver, first)
        chunks = 0

        def ends_at_the_second(command: str) -> bool:
            nonlocal chunks
            chunks += command.startswith("add map")
            return chunks < 2

        haproxy.before = ends_at_the_second
        before = list(haproxy.lines)
        second = next_record(holder, first)
        await wait_for(driver, "HAProxy has closed the connection")
        assert driver.held("baremetal") == first.seq
        assert haproxy.lines == before
        haproxy.before = lambda command: True
        await wait_until_held(driver, second)
        assert haproxy.lines == where.map_file.read_text().splitlines()


async def test_one_that_is_replaced_while_it_is_told_is_told_again(tmp_path: Path) -> None:
    """The new process may have read the file of before. It has the same id, as each start in a container."""
    where, holder = places(tmp_path, 1, hard_stop_after=2), SnapshotHolder(fleet("1.1-1.50"))
    first = next_record(holder, None)
    write(holder.current, where)
    async with answering(holder, where.socket, where.map_file) as haproxy, following(holder, where) as driver:
        await wait_until_held(driver, first)
        older = list(haproxy.lines)
        too_early: list[str] = []

        def replaced_after_the_commit(command: str) -> bool:
            if haproxy.lines == older and driver.held("baremetal") == first.seq + 1:
                too_early.append(command)
            if haproxy.lines != older and haproxy.uptime:
                haproxy.uptime, haproxy.lines = 0, list(older)
            return True

        haproxy.before = replaced_after_the_commit
        second = next_record(holder, first)
        await wait_until_held(driver, second)
        assert haproxy.lines == where.map_file.read_text().splitlines() != older
        assert haproxy.uptime == 0
        assert not too_early


@pytest.mark.parametrize("uptime, is_same", [(100, True), (101, True), (110, True), (99, False), (0, False)])
async def test_R3_V2_only_another_pid_or_a_fallen_uptime_is_another_process(
    uptime: int, is_same: bool, tmp_path: Path
) -> None:
    """Ten seconds later by the clock of the gateway."""
    where, holder = places(tmp_path, 1, hard_stop_after=600), SnapshotHolder(fleet("1.1-1.9"))
    first = next_record(holder, None)
    write(holder.current, where)
    now = [1000.0]
    async with (
        answering(holder, where.socket, where.map_file) as haproxy,
        following(holder, where, clock=lambda: now[0]) as driver,
    ):
        await wait_until_held(driver, first)
        now[0], haproxy.uptime = 1010.0, uptime
        second = next_record(holder, first)
        if is_same:
            await wait_until_held(driver, second)
        else:

            async def counts() -> bool:
                return driver.report().draining == 1

            await until(counts, "it counts as another one, and the first one may be draining")
        assert driver.report().draining == (0 if is_same else 1)
        assert (driver.held("baremetal") == second.seq) is is_same


@pytest.mark.parametrize(
    "answer", ["", "Unknown command: 'show stat'", "# pxname,svname,qcur,scur,\nsg-a,b0,,x,"]
)
async def test_one_that_does_not_tell_its_requests_is_named_and_follows_all_the_same(
    answer: str, tmp_path: Path
) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(fleet("1.1-1.9", "1.1-1.5"))
    record = next_record(holder, None)
    write(holder.current, where)
    async with answering(holder, where.socket, where.map_file) as haproxy, following(holder, where) as driver:
        await wait_until_held(driver, record)
        haproxy.stat = answer
        holder.apply("baremetal", Drain("b1"))
        await wait_for(driver, "HAProxy did not report its requests")
        assert driver.held("baremetal") == record.seq
        assert driver.report().in_flight == {"baremetal/b1": 1}
        assert haproxy.lines == where.map_file.read_text().splitlines()
        haproxy.stat = "# pxname,svname,qcur,scur,\nsg-a,b1,1,2,"
        await wait_for(driver, "")
        assert driver.report().in_flight == {"baremetal/b1": 3}


async def test_a_table_is_made_aside_of_the_loop_and_not_again_while_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(fleet("1.1-1.50"))
    asked: list[int] = []

    def decide_and_note(*arguments: Any) -> Decision:
        asked.append(get_ident())
        return decide(*arguments)

    write(holder.current, where)
    async with answering(holder, where.socket, where.map_file) as haproxy:
        monkeypatch.setattr(table_module, "decide", decide_and_note)
        monkeypatch.setattr(driver_module, "POLL_INTERVAL", 0.01)
        looks: list[int] = []

        def note(command: str) -> bool:
            if command == "show servers state":
                looks.append(len(asked))
            return True

        haproxy.before = note

        async def looked(times: int) -> bool:
            return len(looks) > times

        async with following(holder, where) as driver:
            await wait_for(driver, "")
            first = len(asked)
            await until(lambda: looked(5), "it has looked five times")
            assert looks[0] == 0 < first == len(asked)
            holder.update(fleet("1.1-1.60"))

            async def asked_again() -> bool:
                return len(asked) > first

            await until(asked_again, "the next table is made")
    assert get_ident() not in asked


async def test_what_another_program_answers_is_named(tmp_path: Path) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(snapshot())
    next_record(holder, None)

    def closes(command: str) -> str | None:
        return None

    def speaks_http(command: str) -> str | None:
        return "HTTP/1.1 400 Bad Request\n\n> "

    def names_itself_wrongly(command: str) -> str | None:
        return "Name: HAProxy\nVersion: soon\nPid: x\n\n> "

    def has_no_end(command: str) -> str | None:
        return "a" * 17_000_000

    says = closes

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if (answer := says(line.decode())) is None:
                    return
                writer.write(answer.encode())
                await writer.drain()
        except OSError:
            pass  # it was told enough
        finally:
            writer.transport.abort()

    async with await asyncio.start_unix_server(serve, where.socket), following(holder, where) as driver:
        for program, sentence in (
            (closes, "has closed the connection"),
            (speaks_http, "is not HAProxy"),
            (names_itself_wrongly, "is not HAProxy"),
            (has_no_end, "is too long"),
        ):
            says = program
            await wait_for(driver, sentence)
            assert driver.held("baremetal") == 0
