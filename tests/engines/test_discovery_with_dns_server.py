"""Backends that come and go behind a real name server, Knot DNS of Debian: TTL 1, flaps, NXDOMAIN, an empty
answer and silence. SERVFAIL is in tests/controlplane."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest

from gateway.controlplane import resolver
from tests.kit.waiting import PATIENCE
from tests.scenarios.fakes import OWN
from tests.scenarios.pods import NAME, Pods, configuration, discovery, gateway, is_leaving, known, pods, there
from tests.scenarios.testbed import Testbed

pytestmark = pytest.mark.engines

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
SRV_NAME = "_api._tcp.fleet.test"
START = """\
$ORIGIN fleet.test.
$TTL 1
@ SOA ns admin %d 1 1 1 1
@ NS ns
ns A 127.0.0.1
"""


class Knot:
    """A running name server for `fleet.test`, whose zone a test changes."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self._serial = 0
        self._process: Process | None = None
        (folder / "knot.conf").write_text(f"""\
server:
    rundir: "{folder}"
    listen: [ "127.0.0.1@{port}" ]
database:
    storage: "{folder}/db"
zone:
  - domain: fleet.test
    storage: "{folder}"
    file: zone
    zonefile-load: whole
    journal-content: none
""")
        self._write("")

    def _write(self, records: str) -> None:
        self._serial += 1
        (self.folder / "zone").write_text(START % self._serial + records)

    async def _command(self, *words: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *("knotc", "-c", str(self.folder / "knot.conf"), "-b", *words),
            env={**os.environ, "PATH": PATH},
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        return await process.wait()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *("knotd", "-c", str(self.folder / "knot.conf")),
            env={**os.environ, "PATH": PATH},
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        async with asyncio.timeout(PATIENCE):
            while await self._command("status"):
                assert self._process.returncode is None, "knotd has ended"

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGCONT)
            self._process.terminate()
            await self._process.wait()

    async def serve(self, records: str) -> None:
        """From now on the zone holds these."""
        self._write(records)
        assert await self._command("zone-reload", "fleet.test") == 0

    async def addresses(self, *numbers: int) -> None:
        await self.serve("".join(f"api A 127.0.0.{number}\n" for number in numbers))

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def free_port() -> int:
    """One that is free for UDP and for TCP: connections of other tests that have just ended hold many."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp, suppress(OSError):
            udp.bind(("127.0.0.1", 0))
            tcp.bind(udp.getsockname())
            return int(udp.getsockname()[1])


@pytest.fixture
async def knot(tmp_path: Path) -> AsyncIterator[Knot]:
    assert shutil.which("knotd", path=PATH), "install knot (.ci/packages)"
    running = Knot(tmp_path, free_port())
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def fleet() -> AsyncIterator[Pods]:
    async with pods() as running:
        yield running


class Clients:
    """Send a request after the other at 1.58, until the end."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self.sent = 0
        self.ended = False
        self._one_more = asyncio.Event()

    async def run(self) -> None:
        while not self.ended:
            response = await self._bed.at("1.58")
            assert (response.status, response.get(OWN)) == (200, "1.58")
            self.sent += 1
            self._one_more.set()

    async def some(self, number: int = 20) -> None:
        wanted = self.sent + number
        async with asyncio.timeout(PATIENCE):
            while self.sent < wanted:
                self._one_more.clear()
                await self._one_more.wait()


@asynccontextmanager
async def clients(bed: Testbed) -> AsyncIterator[Clients]:
    """At work until the end of the block; every response was right."""
    found = Clients(bed)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        found.ended = True
        await task


class Lines(logging.Handler):
    """Wakes up whoever waits for the next line of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.came.set()


async def until_error(bed: Testbed, wanted: str) -> None:
    """Wait until a look at the source has brought this problem: each new one is a line of the log."""
    lines, log = Lines(), logging.getLogger("skewgate.discovery")
    log.addHandler(lines)
    level = log.level
    log.setLevel(logging.DEBUG)
    try:
        async with asyncio.timeout(PATIENCE):
            while bed.gateway.parts.plan.discovery.report()[0].error != wanted:
                lines.came.clear()
                await lines.came.wait()
                await asyncio.sleep(0)  # the line comes first
    finally:
        log.setLevel(level)
        log.removeHandler(lines)


@pytest.mark.timeout(120)
async def test_nothing_that_a_name_server_does_is_seen_by_a_client(
    knot: Knot, fleet: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "LONGEST_RETRY", 1.0)
    for number in (2, 3, 4, 5):
        await fleet.start(number)
    await knot.addresses(2, 3, 4)
    text = configuration(f"dns: 'http://{NAME}:{fleet.port}'")
    async with gateway(text, discovery(knot.port, tmp_path)) as bed:
        await bed.until(lambda view: known(view) == 3)
        async with clients(bed) as client:
            await knot.addresses(3, 4, 5)  # one is replaced; TTL 1
            began = monotonic()
            await bed.until(lambda view: there(view).get("127.0.0.2") is True and known(view) == 3)
            assert monotonic() - began < 6

            await knot.serve("")  # NXDOMAIN
            await until_error(bed, "there is no such name")
            await client.some()
            await knot.serve("api TXT x\n")  # the name has no address
            await until_error(bed, "the name has no address")
            await client.some()
            knot.signal(signal.SIGSTOP)
            await until_error(bed, "no name server answers")
            await client.some()
            assert [each for each, leaving in there(bed.view).items() if leaving] == ["127.0.0.2"]
            assert known(bed.view) == 3
            knot.signal(signal.SIGCONT)
            for away, present in ((3, 5), (5, 3), (3, 5)):  # flaps
                await knot.addresses(4, present)
                await bed.until(is_leaving(away))
                await bed.until(lambda view: known(view) == 2)
                await client.some(5)
            assert bed.gateway.parts.plan.discovery.report()[0].error is None
            assert len(bed.view.members.all) == 4
            assert bed.offer == "1.1-1.58"


@pytest.mark.timeout(60)
async def test_srv_records_of_a_real_server(knot: Knot, fleet: Pods, tmp_path: Path) -> None:
    for number in (2, 3):
        await fleet.start(number)
    pod = "".join(f"pod-{number} A 127.0.0.{number}\n" for number in (2, 3))
    await knot.serve(f"{pod}_api._tcp SRV 0 50 {fleet.port} pod-2\n_api._tcp SRV 5 50 {fleet.port} pod-3\n")
    text = configuration(f"srv: http://{SRV_NAME}")
    async with gateway(text, discovery(knot.port, tmp_path)) as bed:
        await bed.until(lambda view: known(view) == 2)
        assert [(each.backend.host, each.backend.backup) for each in bed.view.members.all] == [
            ("127.0.0.2", False),
            ("127.0.0.3", True),
        ]
        assert (await bed.at("1.58")).status == 200
        await knot.serve(f"{pod}_api._tcp SRV 0 0 0 .\n")  # there is no such service: nobody is removed
        await until_error(bed, "it lists no backend")
        assert known(bed.view) == 2
