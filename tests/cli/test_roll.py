"""`skewgate roll`: a rolling upgrade by one command, over real sockets, and what stops it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from gateway.assembly import Gateway
from gateway.cli import wait
from gateway.cli.admin_client import AdminClient
from gateway.cli.roll import command
from gateway.cli.roll.gate import GateResult, judge
from gateway.cli.roll.progress import Progress, report_lines
from gateway.core.fleet.fleet import Drain
from gateway.demo.ironic import NEW, SERVED, IronicServer
from gateway.demo.servers import Release
from tests.cli.conftest import Call
from tests.cli.test_wait import gateway_of
from tests.kit.fleets import OLD
from tests.kit.networks import LOOPBACK
from tests.kit.processes import Ended, finish, start

pytestmark = pytest.mark.processes

CALL = "import sys, urllib.request as r; sys.tracebacklimit = 0; r.urlopen(sys.argv[1], timeout=60)"
"""A program that calls a URL, and fails if the answer is an error."""


async def _nothing(name: str) -> None:
    pass


class Installer:
    """What the command of a roll calls: it replaces a server's release, or fails as the test says."""

    def __init__(self, servers: list[IronicServer]) -> None:
        self.servers = {each.name: each for each in servers}
        self.calls: list[str] = []
        self.fails_at = ""
        self.called: Callable[[str], Awaitable[None]] = _nothing
        self.release: Release = NEW
        self.port = 0

    @property
    def command(self) -> str:
        return f"{sys.executable} -c '{CALL}' http://{LOOPBACK}:{self.port}/{{name}}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/{name}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def handle(self, request: web.Request) -> web.Response:
        name = request.path[1:]
        self.calls.append(name)
        await self.called(name)
        if name == self.fails_at:
            return web.Response(status=500)
        if (server := self.servers.get(name)) is not None:
            await server.stop()
            await server.start(self.release)
        return web.Response()


class Bed(NamedTuple):
    gateway: Gateway
    servers: list[IronicServer]
    installer: Installer
    folder: Path
    call: Call

    async def roll(self, *more: str) -> Ended:
        where = ("--admin", self.gateway.admin_url, "--journal", str(self.folder / "journal.json"))
        command = ("--exec", self.installer.command, "--gate", "100ms")
        ended = await self.call("roll", "baremetal", *where, *command, *more)
        lines = f"{ended.out}\n{ended.err}".splitlines()
        assert ended.code == 2 or all(len(line) <= 80 or " " not in line.strip() for line in lines)
        return Ended(ended.code, ended.out.replace("\n  ", " "), ended.err.replace("\n  ", " "))

    def journal(self) -> dict[str, Any]:
        found = json.loads((self.folder / "journal.json").read_text())
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def bed_of(
    folder: Path, session: aiohttp.ClientSession, call: Call, *releases: Release
) -> AsyncIterator[Bed]:
    async with AsyncExitStack() as stack:
        servers = [IronicServer(f"api-{number}") for number in range(1, len(releases) + 1)]
        for server, release in zip(servers, releases, strict=True):
            await server.start(release)
            stack.push_async_callback(server.close)
        installer = Installer(servers)
        await stack.enter_async_context(installer.listening())
        entries = [f"{{name: {each.name}, url: 'http://{LOOPBACK}:{each.port}'}}" for each in servers]
        gateway = await stack.enter_async_context(gateway_of(folder, entries, session))
        yield Bed(gateway, servers, installer, folder, call)


@pytest.fixture
async def bed(tmp_path: Path, session: aiohttp.ClientSession, call_main: Call) -> AsyncIterator[Bed]:
    async with bed_of(tmp_path, session, call_main, OLD, OLD, OLD) as bed:
        yield bed


async def test_every_member_is_upgraded_and_the_report_says_when_the_offer_moved(
    bed: Bed, session: aiohttp.ClientSession
) -> None:
    host, port = bed.gateway.addresses[0]
    statuses = set()

    async def clients() -> None:
        while True:
            async with session.get(f"http://{host}:{port}/v1/nodes", headers={SERVED: "1.31"}) as response:
                statuses.add(response.status)
            await asyncio.sleep(0.01)

    load = asyncio.create_task(clients())
    report = bed.folder / "report.md"
    before = f"{sys.executable} -c '{CALL}' http://{LOOPBACK}:{bed.installer.port}/before"
    code, out, _ = await bed.roll(
        *("--expect", NEW.text, "--report", str(report), "--before", before),
        *("--after", before.replace("/before", "/after")),
    )
    load.cancel()

    assert code == 0
    assert bed.installer.calls == ["before", "api-1", "api-2", "api-3", "after"]
    assert "baremetal: offers 1.1-1.90, phase uniform\n3 members upgraded, 0 requests lost" in out
    assert statuses == {200}
    assert bed.journal()["complete"] is True
    text = report.read_text()
    assert "complete. Lost 0, in 3 steps." in text
    assert "| 1 | api-1 | 1.1-1.58 | 1.1-1.90 |" in text
    assert "guaranteed api-2, api-3" in text


async def test_a_command_that_fails_stops_it_and_a_second_run_goes_on_there(bed: Bed) -> None:
    bed.installer.fails_at = "api-2"
    failed, _, err = await bed.roll()
    drained = [each.drained for each in bed.gateway.snapshot_holder.current.views["baremetal"].members.all]
    first_run = bed.journal()
    _, status, _ = await bed.call("status", "--admin", bed.gateway.admin_url)
    # A finished member that shows the old range again, as one that is pinned by its own configuration.
    await bed.servers[0].stop()
    await bed.servers[0].start(OLD)
    bed.installer.fails_at = ""
    again, out, _ = await bed.roll()

    assert (failed, again) == (1, 0)
    assert "api-2 failed: the command ended with 1" in err
    assert "api-2 stays drained; finished: api-1" in err
    assert "to go back: " in err
    assert drained == [False, True, False]
    assert f"drained by roll {first_run['id']}" in status
    assert bed.installer.calls == ["api-1", "api-2", "api-2", "api-3"]
    assert "[2/3] api-2" in out


async def test_each_command_is_a_pass_over_all_members_and_goes_on_in_its_own(bed: Bed) -> None:
    """The upgrade of Ironic: new releases that are pinned, then unpinned. A member that is finished shows the
    old range in the first pass, and --expect is about the last."""
    bed.installer.release = OLD

    async def unpin(name: str) -> None:
        if name == "conductor-2":
            bed.installer.release = NEW

    bed.installer.called = unpin
    once = [bed.installer.command.replace("{name}", f"conductor-{number}") for number in (1, 2)]
    options = (
        "--exec",
        bed.installer.command,
        "--expect",
        NEW.text,
        "--before",
        once[0],
        "--before",
        once[1],
    )
    _, plan, _ = await bed.roll(*options, "--dry-run")
    bed.installer.fails_at = "conductor-2"
    first = await bed.roll(*options)
    bed.installer.fails_at = "api-2"
    second = await bed.roll(*options)
    bed.installer.fails_at = ""
    third = await bed.roll(*options)

    each = ["api-1", "api-2", "api-3"]
    assert [first.code, second.code, third.code] == [1, 1, 0]
    assert "roll failed: the command ended with 1" in first.err
    assert "api-2 stays drained; finished: api-1" in second.err
    assert "the new one may be on api-1, api-2, api-3" in second.err
    assert "pass 2 of 2: api-2, api-3" in third.out
    assert "3 members upgraded, 0 requests lost" in third.out
    calls = bed.installer.calls
    assert calls == ["conductor-1", *each, "conductor-2", "conductor-2", "api-1", "api-2", "api-2", "api-3"]
    steps = [
        (step["pass"], step["member"]) for step in bed.journal()["steps"] if step["result"] == "upgraded"
    ]
    assert plan.count("$ ") == 8
    assert [plan.count(f"{name} (1.1-1.58): ") for name in each] == [2, 2, 2]
    assert steps == [*((1, name) for name in each), *((2, name) for name in each)]


async def test_a_signal_ends_the_command_and_says_what_is_drained(bed: Bed) -> None:
    called = asyncio.Event()

    async def forever(name: str) -> None:
        called.set()
        await asyncio.Event().wait()

    bed.installer.called = forever
    where = ("--admin", bed.gateway.admin_url, "--journal", str(bed.folder / "journal.json"))
    process = await start("roll", "baremetal", *where, "--exec", bed.installer.command)
    await called.wait()
    process.terminate()
    ended = await finish(process)

    assert ended.code == 1
    assert "api-1 failed: interrupted\nskewgate: api-1 stays drained; finished: none" in ended.err


async def test_a_journal_is_of_one_command_and_one_roll_at_a_time(bed: Bed) -> None:
    bed.installer.fails_at = "api-2"
    second = []

    async def roll_again(name: str) -> None:
        second.append(await bed.roll())

    bed.installer.called = roll_again
    await bed.roll()
    another, _, err = await bed.roll("--exec", "true {name}")

    assert [each.code for each in second] == [1, 1]
    assert "another roll with the journal" in second[0].err
    assert another == 1
    assert "is the journal of another --exec, finished for api-1" in err
    assert bed.installer.calls == ["api-1", "api-2"]


async def test_another_roll_is_refused_until_it_adopts_what_the_first_has_drained(bed: Bed) -> None:
    """Both at once, and with a journal that is lost."""
    bed.installer.fails_at = "api-2"
    other = ("--journal", str(bed.folder / "other.json"))
    seconds = []

    async def roll_another(name: str) -> None:
        seconds.append(await bed.roll(*other))

    bed.installer.called = roll_another
    await bed.roll()
    bed.installer.called, bed.installer.fails_at = _nothing, ""
    first = bed.journal()["id"]
    adopted, _, _ = await bed.roll(*other, "--adopt", first)

    assert [each.code for each in seconds] == [1, 1]
    assert f"roll {first} has drained api-1; if it has ended, add --adopt {first}" in seconds[0].err
    assert f"roll {first} has drained api-2; if it has ended, add --adopt {first}" in seconds[1].err
    assert bed.installer.calls == ["api-1", "api-2", "api-2", "api-3", "api-1"]
    assert adopted == 0


async def test_what_an_operator_drains_meanwhile_is_not_enabled(bed: Bed) -> None:
    async def drain(name: str) -> None:
        await bed.call("drain", f"baremetal/{name}", "--admin", bed.gateway.admin_url)

    bed.installer.called = drain
    code, _, err = await bed.roll()

    assert code == 1
    assert "/enable responded 409: somebody else has drained api-1" in err
    assert "api-1 stays drained; finished: none" in err


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"service": "baremetal", "finished": 5}',
        b'{"service": "baremetal", "steps": [{}]}',
    ],
)
async def test_a_damaged_journal_is_no_journal(bed: Bed, damage: bytes) -> None:
    (bed.folder / "journal.json").write_bytes(damage)
    code, _, err = await bed.roll()

    assert code == 1
    assert "is no journal of a rolling upgrade: give another --journal" in err
    assert bed.installer.calls == []


async def test_members_that_somebody_else_has_drained_are_skipped_by_name(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that was drained since the upgrade began."""
    await bed.call("drain", "baremetal/api-2", "--by", "ann", "--admin", bed.gateway.admin_url)

    async def drain_another(name: str) -> None:
        bed.gateway.snapshot_holder.apply("baremetal", Drain("api-3"))

    bed.installer.called = drain_another
    report = bed.folder / "report.md"
    with caplog.at_level("INFO", "skewgate.prober"):
        code, _, err = await bed.roll(
            *("--allow-unserved", "--after", bed.installer.command, "--report", str(report))
        )

    assert code == 1
    assert bed.installer.calls == ["api-1"]
    assert "warning: this is not complete: run it again when all can be upgraded" in err
    assert "warning: api-2 is skipped: ann has drained it" in err
    assert "warning: api-3 is skipped: somebody else has drained it" in err
    assert bed.journal()["complete"] is False
    assert "Skipped, because somebody else had drained them: api-2, api-3" in report.read_text()
    assert f"baremetal/api-1: drained by roll {bed.journal()['id']}, gets no new requests" in caplog.text


async def test_the_oldest_comes_first_and_the_last_of_a_version_is_not_drained(
    tmp_path: Path, session: aiohttp.ClientSession, call_main: Call
) -> None:
    async with bed_of(tmp_path, session, call_main, NEW, OLD) as bed:
        dry, plan, _ = await bed.roll("--dry-run")
        code, _, _ = await bed.roll()
    assert (dry, code) == (0, 0)
    assert plan.index("api-2 (1.1-1.58)") < plan.index("api-1 (1.1-1.90)")
    assert bed.installer.calls == ["api-2", "api-1"]

    other = tmp_path / "one"
    other.mkdir()
    async with bed_of(other, session, call_main, OLD) as bed:
        _, plan, _ = await bed.roll("--dry-run")
        _, anyway, _ = await bed.roll("--dry-run", "--allow-unserved")
        refused, _, err = await bed.roll()
        allowed, _, _ = await bed.roll("--allow-unserved")
    assert (refused, allowed) == (1, 0)
    assert "no other member that is up serves 1.1-1.58 now: it stops here" in plan
    assert "no other member that is up serves 1.1-1.58 now: 503 meanwhile" in anyway
    assert "no other backend that is up and in service serves 1.1-1.58" in err
    assert "to go back: " not in err
    assert bed.installer.calls == ["api-1"]


async def test_a_member_that_the_gate_does_not_pass_is_drained_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "judge", lambda *_: GateResult("1000 requests, 9.0 % 5xx, others 0.0 %"))
    code, _, err = await bed.roll()

    drained = [each.drained for each in bed.gateway.snapshot_holder.current.views["baremetal"].members.all]
    assert (code, drained) == (1, [True, False, False])
    assert "api-1 failed: gate: 1000 requests, 9.0 % 5xx, others 0.0 %" in err
    assert "api-1 stays drained; finished: none" in err


async def test_a_gateway_that_is_gone_does_not_hide_what_is_drained_or_lost(bed: Bed) -> None:
    async def end_gateway(name: str) -> None:
        await bed.gateway._served.admin.stop()

    bed.installer.called = end_gateway
    code, _, err = await bed.roll("--timeout", "3s")

    assert code == 1
    assert "api-1 stays drained; finished: none" in err
    assert [step["gate"] for step in bed.journal()["steps"]] == ["-, lost: unknown"]


async def test_a_member_that_is_enabled_while_its_command_runs_is_named(bed: Bed) -> None:
    async def enable(name: str) -> None:
        bed.gateway.snapshot_holder.apply("baremetal", Drain(name, drained=False))

    bed.installer.called = enable
    code, _, err = await bed.roll()

    assert code == 0
    assert "warning: api-1 was enabled meanwhile; a gateway without `state` forgets drains" in err


async def test_a_member_that_is_renamed_while_its_command_runs_is_not_said_to_serve(bed: Bed) -> None:
    file = bed.folder / "gateway.yaml"

    async def rename(name: str) -> None:
        file.write_text(file.read_text().replace(f"name: {name},", f"name: new-{name},"))
        await bed.call("reload", "--admin", bed.gateway.admin_url)

    bed.installer.called = rename
    code, _, err = await bed.roll()

    assert code == 1
    assert "has no backend 'api-1'; it has: new-api-1, api-2, api-3" in err
    assert "api-1 is not configured now; finished: none" in err


async def test_what_is_drained_is_said_when_nobody_reads_the_output_any_more(bed: Bed) -> None:
    """As with `roll | grep -m 1 drain`."""
    os.mkfifo(bed.folder / "output")
    reader = os.open(bed.folder / "output", os.O_RDONLY | os.O_NONBLOCK)

    async def stop_reading(name: str) -> None:
        os.close(reader)

    bed.installer.called = stop_reading
    where = ("--admin", bed.gateway.admin_url, "--journal", str(bed.folder / "journal.json"))
    within = ("sh", "-c", 'exec "$@" >"$0"', str(bed.folder / "output"))
    ended = await finish(
        await start("roll", "baremetal", *where, "--exec", bed.installer.command, within=within)
    )

    assert ended.code == 1
    assert "api-1 failed: [Errno 32] Broken pipe\nskewgate: api-1 stays drained" in ended.err


@pytest.mark.parametrize("text", ["spam", ""])
async def test_what_is_expected_is_a_version_before_anything_is_drained(bed: Bed, text: str) -> None:
    code, _, err = await bed.roll("--expect", text)

    assert code == 2
    assert f"{text!r} is not a version" in err
    assert bed.installer.calls == []


def test_the_report_shows_what_clients_call_themselves_as_it_is() -> None:
    progress = Progress("baremetal", refused={"(a|<img>`*_\n[x](y))": 1}, doubt="usage is off")
    text = "\n".join(report_lines(progress))

    assert r"Refused meanwhile to (a\|\<img\>\`\*\_�\[x\](y)): 1" in text
    assert "Clients may be missing: usage is off" in text


async def test_a_dry_run_names_who_asks_for_latest(bed: Bed, session: aiohttp.ClientSession) -> None:
    host, port = bed.gateway.addresses[0]
    headers = {SERVED: "latest", "User-Agent": "nova-compute/1"}
    async with session.get(f"http://{host}:{port}/v1/nodes", headers=headers):
        pass
    code, out, _ = await bed.roll("--dry-run")

    assert code == 0
    assert out.endswith("a higher maximum changes `latest` for (requests): (nova-compute) (1)\n")
    assert bed.installer.calls == []


async def test_a_dry_run_reads_the_status_no_more_often_for_more_members(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, send = [], AdminClient.request

    def request(client: AdminClient, method: str, path: str, *more: Any) -> tuple[int, bytes]:
        asked.append(path)
        return send(client, method, path, *more)

    monkeypatch.setattr(AdminClient, "request", request)
    code, out, _ = await bed.roll("--dry-run")

    assert code == 0
    assert [f"[{number}/3] api-{number}" in out for number in (1, 2, 3)] == [True] * 3
    assert asked.count("/status") == 2, "to find the service, and to plan"


async def test_a_member_that_goes_down_while_it_is_judged_ends_the_upgrade(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a request there is nothing to count."""
    loop = asyncio.get_running_loop()

    async def fail() -> None:
        await bed.servers[0].stop()
        bed.gateway.parts.prober.probe_now("baremetal")

    def judge_and_fail(*arguments: Any) -> GateResult:
        asyncio.run_coroutine_threadsafe(fail(), loop).result()
        return judge(*arguments)

    monkeypatch.setattr(command, "judge", judge_and_fail)
    code, _, err = await bed.roll("--gate", "30s")

    assert code == 1
    assert "api-1 failed: gate: down: no connection to" in err
    assert "api-1 stays drained; finished: none" in err


async def test_what_a_replica_that_comes_back_has_lost_before_is_not_lost_by_the_upgrade(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def until_holds(*arguments: Any, **options: Any) -> tuple[Any, Any]:
        state, waits_for = wait.until_holds(*arguments, **options)
        if state is not None and "evidence" in state:
            asked.append(state)
            state["agreement"] = {"replicas": [{"id": "b2"}]}
            (own,) = state["evidence"].values()
            state["evidence"] |= {"b2": own | {"lost": 5}} if len(asked) > 1 else {}
        return state, waits_for

    monkeypatch.setattr(command, "until_holds", until_holds)
    code, out, _ = await bed.roll()

    assert code == 0
    assert "3 members upgraded, 0 requests lost" in out


async def test_a_second_interrupt_ends_the_wait_for_counts_and_the_journal_has_the_step(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_holds(*arguments: Any, **options: Any) -> tuple[Any, Any]:
        if bed.installer.calls:
            raise KeyboardInterrupt
        return wait.until_holds(*arguments, **options)

    monkeypatch.setattr(command, "until_holds", until_holds)
    code, _, err = await bed.roll()

    assert code == 1
    assert "api-1 failed: interrupted skewgate: api-1 stays drained" in err.replace("\n", " ")
    assert "the new one may be on api-1" in err
    assert [(step["member"], step["result"]) for step in bed.journal()["steps"]] == [("api-1", "failed")]


async def test_a_member_that_does_not_serve_what_is_expected_stays_drained(bed: Bed) -> None:
    bed.installer.release = OLD
    code, _, err = await bed.roll("--expect", NEW.text, "--timeout", "4s")

    assert code == 1
    assert "api-1 failed: api-1 serves 1.1-1.58" in err
    assert bed.installer.calls == ["api-1"]


@pytest.mark.parametrize(
    "argv, why",
    [
        (("--exec", "no-such-program {name}"), "is no command: no-such-program is not found"),
        (("--exec", "'"), "No closing quotation"),
        (("--exec", "true", "--before", "true", "--before", "true"), "needs an --exec of its own"),
        (("--exec", "true", "--gate", "soon"), "must be a duration"),
        (("--exec", "true", "--report", "a.json"), "another name than the report"),
        (("--exec", "true", "--report", ""), "need the name of a file"),
        (("--exec", "true", "--journal", "/"), "need the name of a file"),
    ],
)
async def test_bad_usage_is_exit_2(call_main: Call, argv: tuple[str, ...], why: str) -> None:
    ended = await call_main("roll", "baremetal", *argv)

    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err
