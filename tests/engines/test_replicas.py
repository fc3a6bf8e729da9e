"""Three replicas as processes on a real etcd of three members: one truth, whatever happens to them or it."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from platform import machine
from random import Random
from time import time
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from gateway.core.fleet.offer_state import MAX_DOUBLINGS
from gateway.demo.ironic import NEW
from tests.cli.test_roll import Installer
from tests.engines.replicas import STABILIZATION, TTL, Bed, Replica, Watch, ask, namespace, replicas, run
from tests.kit.fleets import OLD
from tests.kit.processes import call, finish, start

pytestmark = pytest.mark.engines

BEYOND: Final = "1.95"
"""No server has ever served it."""

FAKETIME: Final = Path(f"/usr/lib/{machine()}-linux-gnu/faketime/libfaketimeMT.so.1")


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with replicas(tmp_path) as bed:
        yield bed


async def test_rise_fall_pin_and_drain(bed: Bed) -> None:
    async with bed.watch() as watch:
        await bed.upgrade()
        await bed.offered(NEW.text)
        await bed.roll_back()
        await bed.offered(OLD.text)
        await bed.refused(NEW.text, 406)
        await bed.upgrade()
        await bed.offered(NEW.text)
    watch.judge()
    assert watch.tells
    assert watch.refusals


async def test_commands_hold_for_all(bed: Bed) -> None:
    await bed.upgrade()
    await bed.offered(NEW.text)

    async def holds_at_once() -> bool:
        """It is in force with all that are attached when it answers. A machine that stands still for a moment
        detaches replicas; then this is tried again from the beginning."""
        begin = time()
        if await bed.command(bed.replicas[1], "PUT", "ceiling", version="1.40") == 200:
            answers = await bed.ask("1.10")
            stood = [(await bed.status(replica))["agreement"] for replica in bed.replicas]
            if all(each["attached"] and each["since"] < begin for each in stood):
                assert [answer.highest for answer in answers] == ["1.40"] * 3
                return True
        await bed.commanded(bed.replicas[1], "DELETE", "ceiling")
        await bed.offered(NEW.text)
        return False

    await bed.until(holds_at_once, "a pin is in force while all replicas stay attached")
    await bed.commanded(bed.replicas[2], "DELETE", "ceiling")
    await bed.offered(NEW.text)

    await bed.commanded(bed.replicas[0], "POST", "backends/api-1/drain")
    for replica in bed.replicas:

        async def drained() -> bool:
            status = await bed.status(replica)  # noqa: B023 - used in this turn only
            return bool(status["services"]["baremetal"]["backends"]["api-1"]["drained"])

        await bed.until(drained, f"the drain holds for replica {replica.number}")
    await bed.commanded(bed.replicas[2], "POST", "backends/api-1/enable")


async def test_wait_holds_when_every_live_replica_sees_it_by_new_probes(bed: Bed) -> None:
    """One that is stopped says nothing new, and counts until it is live no more."""
    where = ("--admin", bed.replicas[0].admin)
    await bed.upgrade()
    uniform = await call("wait", "baremetal", "--phase", "uniform", "--offer", NEW.text, *where)
    await bed.commanded(bed.replicas[1], "POST", "backends/api-1/drain")
    drained = await call("wait", "baremetal", "--backend", "api-1", "--drained", *where)
    stopped = bed.replicas[2].process
    assert stopped is not None
    stopped.send_signal(signal.SIGSTOP)
    serves = ("wait", "baremetal", "--backend", "api-2", "--serves", NEW.text, *where)
    others = await call(*serves)
    stopped.send_signal(signal.SIGCONT)

    assert (uniform.code, uniform.out) == (0, "baremetal: offers 1.1-1.90, phase uniform\n")
    assert (drained.code, drained.out) == (0, "baremetal/api-1: serves 1.1-1.90, drained\n")
    assert others.code == 0  # after the stopped one has ceased to be live


async def test_a_roll_over_three_replicas_of_which_one_is_replaced_meanwhile(
    bed: Bed, tmp_path: Path
) -> None:
    """In two passes, as if members were pinned in the first. The replica that carries it out is taken over
    while the last member is unpinned."""
    first, installer = bed.replicas[0], Installer([bed.fleet.old, bed.fleet.new])
    successors = []
    statuses: Counter[int] = Counter()

    async def ask_all_the_time(replica: Replica) -> None:
        while True:
            statuses[(await ask(bed.session, replica, OLD.text)).status] += 1
            await asyncio.sleep(0.01)

    async def take_over(name: str) -> None:
        installer.release = OLD if len(installer.calls) <= 2 else NEW
        if len(installer.calls) == 4:
            successors.append(await start("run", "--take-over", "-c", str(first.file)))
            assert first.process is not None
            await finish(first.process)
            first.process = successors[0]

    installer.called = take_over
    await bed.roll_back()
    await bed.offered(OLD.text)
    async with installer.listening(), asyncio.TaskGroup() as group:
        clients = [group.create_task(ask_all_the_time(replica)) for replica in bed.replicas]
        journal = tmp_path / "journal.json"
        passes = ("--exec", installer.command, "--exec", installer.command)
        command = ("roll", "baremetal", *passes, "--expect", NEW.text, "--gate", "1s")
        ended = await call(*command, "--admin", first.admin, "--journal", str(journal))
        await bed.offered(NEW.text)
        for client in clients:
            client.cancel()

    assert ended.code == 0, ended.err
    assert "2 members upgraded, 0 requests lost" in ended.out
    assert set(statuses) == {200}, statuses
    assert installer.calls == ["api-1", "api-2"] * 2


async def test_the_gate_of_a_roll_judges_by_what_another_replica_counts(bed: Bed, tmp_path: Path) -> None:
    """Only one replica has clients, and it is not the one that the roll talks to."""
    asked, (rolls, has_clients, _) = count(), bed.replicas
    installer = Installer([bed.fleet.old, bed.fleet.new])

    async def fail_at_times(_request: web.Request) -> web.Response:
        return web.json_response({"nodes": []}, status=500 if next(asked) % 3 == 0 else 200)

    async def break_the_first(name: str) -> None:
        setattr(installer.servers[name], "_list", fail_at_times)  # noqa: B010 - it is a method

    async def ask_all_the_time() -> None:
        while True:
            await ask(bed.session, has_clients, OLD.text)

    installer.called = break_the_first
    await bed.roll_back()
    await bed.offered(OLD.text)
    async with installer.listening(), asyncio.TaskGroup() as group:
        client = group.create_task(ask_all_the_time())
        command = ("roll", "baremetal", "--exec", installer.command, "--gate", "5s", "--gate-requests", "10")
        ended = await call(*command, "--admin", rolls.admin, "--journal", str(tmp_path / "journal.json"))
        client.cancel()

    assert ended.code == 1
    assert re.search(r"api-1 failed: gate: [0-9]+ requests, [23][0-9]\.. % 5xx, others 0\.0 %\n", ended.err)
    assert "api-1 stays drained; finished: none" in ended.err
    assert installer.calls == ["api-1"]


async def test_a_floor_is_raised_and_lowered_for_all_also_with_one_away(bed: Bed) -> None:
    beneath, above = "1.10", "1.30"
    async with bed.watch() as watch:
        await bed.commanded(bed.replicas[1], "PUT", "floor?yes", version="1.20")
        await bed.refused(beneath, 406)
        await bed.refused(above, 200)
        await bed.commanded(bed.replicas[2], "DELETE", "floor")
        await bed.refused(beneath, 200)

        bed.connect(0, up=False)
        await bed.refused(BEYOND, 503, of=[0])
        await bed.commanded(bed.replicas[1], "PUT", "floor?yes", version="1.20")
        await bed.refused(beneath, 503, of=[1, 2])  # it still serves it
        await bed.refused(beneath, 200, of=[0])
        bed.connect(0, up=True)
        await bed.refused(beneath, 406)
        await bed.refused(above, 200)
    watch.judge()


async def test_an_enforced_sunset_raises_the_floor_once_all_files_have_it(bed: Bed) -> None:
    """One replica after the other is reloaded; the third was killed, and comes back with the new file."""
    beneath, above = "1.10", "1.30"
    sunset = "lifecycle: {sunset: {below: '1.20', at: 2001-01-01, enforce: true}}"
    first, second, third = bed.replicas
    for replica in bed.replicas:
        replica.write(more=f"    default_version: minimum\n    {sunset}\n")
    async with bed.watch() as watch:
        for replica in (first, second):
            replica.signal(signal.SIGHUP)
        await bed.refused(beneath, 200)
        await third.kill()
        await bed.refused(beneath, 503, of=[0, 1])  # the third one is registered, and may serve it
        await third.start()
        await bed.refused(beneath, 406)
        await bed.commanded(second, "DELETE", "floor")
        await bed.refused(beneath, 200)
        await bed.refused(above, 200)
    watch.judge()


async def test_members_of_etcd_that_stop(bed: Bed) -> None:
    async with bed.watch() as watch:
        leader = await bed.cluster.leader()
        leader.stop()
        await bed.upgrade()
        await bed.offered(NEW.text)
        leader.go_on()
        await bed.cluster.answers()
        (follower, *_) = await bed.cluster.followers()
        follower.stop()
        await bed.roll_back()
        await bed.offered(OLD.text)
        await bed.refused(NEW.text, 406)
        follower.go_on()
    watch.judge()


async def test_a_replica_that_is_cut_off_refuses_nothing_and_holds_no_rise(bed: Bed) -> None:
    async with bed.watch() as watch:
        await bed.refused(BEYOND, 406)
        bed.connect(0, up=False)
        await bed.refused(BEYOND, 503, of=[0])
        await bed.upgrade()
        await bed.offered(NEW.text, of=[1, 2])
        await bed.offered(OLD.text, of=[0])
        bed.connect(0, up=True)
        await bed.offered(NEW.text)
        await bed.refused(BEYOND, 406)
    watch.judge()


async def test_a_replica_in_a_network_that_is_cut(bed: Bed, tmp_path: Path) -> None:
    """It has clients and backends on Unix sockets, which no cut of a network ends. Packets to etcd vanish."""
    async with AsyncExitStack() as stack:
        name, near = await stack.enter_async_context(namespace())
        far = Replica(3, tmp_path, [f"http://{near}:{each.port}" for each in bed.cluster.members], bed.fleet)
        text = far.file.read_text().replace(f"listen: 127.0.0.1:{far.port}", f"listen: unix:{tmp_path}/far")
        for server in bed.fleet:
            runner = web.AppRunner(server.application(), access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.UnixSite(runner, str(tmp_path / server.name)).start()
            url = f"http://127.0.0.1:{server.port}"
            text = text.replace(url, f"unix:{tmp_path}/{server.name}")
        far.file.write_text(text)
        stack.push_async_callback(far.kill)
        await far.start(within=("ip", "netns", "exec", name))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "far"), force_close=True))
        )

        async def answers(version: str, status: int, highest: str | None = None) -> None:
            async def so() -> bool:
                answer = await ask(session, far, version)
                return answer.status == status and highest in {None, answer.highest}

            await bed.until(so, f"{version} is answered {status} with {highest}: {far.log[-2_000:]}")

        await answers(BEYOND, 406, OLD.text)
        await run("ip", "-n", name, "link", "set", "far", "down")
        await answers(BEYOND, 503)
        await bed.upgrade()
        await bed.offered(NEW.text)
        await answers("1.10", 200, OLD.text)
        await run("ip", "-n", name, "link", "set", "far", "up")
        await answers(BEYOND, 406, NEW.text)


async def test_quorum_lost_and_back(bed: Bed) -> None:
    followers = await bed.cluster.followers()
    async with bed.watch() as watch:
        for member in followers:
            member.stop()
        await bed.refused(BEYOND, 503)
        await bed.upgrade()
        await bed.refused(NEW.text, 503)
        await bed.offered(OLD.text)  # nobody raises
        for member in followers:
            member.go_on()
        await bed.offered(NEW.text)
        await bed.refused(BEYOND, 406)
    watch.judge()


async def test_restarts_with_and_without_state(bed: Bed) -> None:
    first, second, third = bed.replicas
    await bed.upgrade()
    await bed.offered(NEW.text)
    async with bed.watch() as watch:
        await first.kill()
        await first.start()
        await bed.offered(NEW.text)
        await second.kill()
        second.state.unlink()
        await second.start()
        await bed.offered(NEW.text)
        await third.end()
        await third.start()
        await bed.offered(NEW.text)
    watch.judge()
    assert not watch.refusals


async def test_restarts_while_etcd_is_away(bed: Bed) -> None:
    """What the state files say is served, and nothing is refused."""
    await bed.upgrade()
    await bed.offered(NEW.text)
    for replica in bed.replicas:
        await replica.kill()
    for member in await bed.cluster.followers():
        member.stop()
    for replica in bed.replicas:
        await replica.start()
    await bed.offered(NEW.text)
    await bed.refused(BEYOND, 503)


async def test_different_files_during_a_rolling_reload(bed: Bed) -> None:
    await bed.upgrade()
    await bed.offered(NEW.text)
    async with bed.watch() as watch:
        bed.replicas[0].write(', ceiling: "1.40"')
        bed.replicas[0].signal(signal.SIGHUP)
        await bed.offered("1.40")  # a lower ceiling acts with the first
        for replica in bed.replicas:
            replica.write(', ceiling: "1.70"')
        for replica in bed.replicas[:2]:
            replica.signal(signal.SIGHUP)
        await bed.offered("1.70")
        bed.replicas[2].signal(signal.SIGHUP)
        for replica in bed.replicas:
            replica.write()
            replica.signal(signal.SIGHUP)
        await bed.offered(NEW.text)  # and a higher one with the last
    assert not watch.others


async def test_clocks_that_jumped_between_two_starts(bed: Bed) -> None:
    """The same start of the machine, as the state file says it, and another time since. etcd is away."""
    replica = bed.replicas[0]
    await bed.refused(BEYOND, 406)
    for member in await bed.cluster.followers():
        member.stop()
    await bed.refused(BEYOND, 503)
    await replica.kill()
    state = replica.state.read_bytes()
    for jump, status in ((60, 200), (-60, 503), (2 * 86_400, 503), (0, 200)):
        await replica.kill()
        replica.state.write_bytes(state)  # as one that finds it too old does not leave it
        await replica.start(within=("unshare", "--time", f"--boottime={jump}", "--kill-child", "--fork"))
        await bed.refused("1.10", status, of=[0])
        await bed.refused(BEYOND, 503, of=[0])
    for member in bed.cluster.members:
        member.go_on()
    await bed.offered(OLD.text)
    await bed.refused(BEYOND, 406)


async def test_a_clock_that_is_set_while_they_run(bed: Bed, tmp_path: Path) -> None:
    """The wall clock, which `date` sets: of one replica, by a library that is loaded before the C library."""
    assert FAKETIME.exists(), "as root on Debian: .ci/packages"
    replica, offset = bed.replicas[0], tmp_path / "offset"
    offset.write_text("+0")
    await replica.end()
    await replica.start(
        LD_PRELOAD=str(FAKETIME),
        FAKETIME_TIMESTAMP_FILE=str(offset),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",  # as `date` leaves it, and the clock of deadlines, too
    )
    await bed.offered(OLD.text)
    await bed.refused(BEYOND, 406)
    async with bed.watch() as watch:
        for jump in ("+3d", "-3d"):
            offset.write_text(jump)
            sign = 1 if jump[0] == "+" else -1

            async def jumped() -> bool:
                probed = (await bed.status(replica))["services"]["baremetal"]["backends"]["api-1"]
                return (float(probed["last_probe_at"]) - time()) * sign > 86_400  # noqa: B023 - in this turn

            await bed.until(jumped, f"the clock of replica 0 stands {jump}")
            await bed.upgrade()
            await bed.offered(NEW.text)
            await bed.refused(BEYOND, 406)
            bed.connect(0, up=False)
            await bed.refused(BEYOND, 503, of=[0])
            bed.connect(0, up=True)
            await bed.refused(BEYOND, 406)
            await bed.roll_back()
            await bed.offered(OLD.text)
    watch.judge()


async def test_one_second_of_latency(bed: Bed) -> None:
    async with bed.watch() as watch:
        for links in bed.links:
            for link in links:
                link.delay = 0.5
        await bed.refused(BEYOND, 503)
        await bed.upgrade()
        await bed.offered(OLD.text)
        for links in bed.links:
            for link in links:
                link.delay = 0.0
        await bed.offered(NEW.text)
    watch.judge()


async def test_etcd_wiped(bed: Bed) -> None:
    await bed.upgrade()
    await bed.offered(NEW.text)
    async with bed.watch() as watch:
        await bed.cluster.wipe()
        await bed.offered(NEW.text)
        await bed.refused(BEYOND, 406)
    watch.judge()
    assert not watch.refusals


async def test_two_workers_each(tmp_path: Path) -> None:
    """Every worker knows the deadline of its replica."""
    async with replicas(tmp_path, workers=2) as bed, bed.watch() as watch:
        await bed.upgrade()
        await bed.offered(NEW.text)
        await bed.roll_back()
        await bed.offered(OLD.text)
        await bed.refused(NEW.text, 406)
        bed.connect(0, up=False)
        await bed.refused(BEYOND, 503, of=[0])
        # Each request has a connection of its own: all of them to one worker would be 1 in 2,000,000.
        for number, status in ((0, 503), (1, 406)):

            async def all_alike() -> bool:
                replica, expected = bed.replicas[number], status  # noqa: B023 - used in this turn only
                return {(await ask(bed.session, replica, BEYOND)).status for _ in range(20)} == {expected}

            await bed.until(all_alike, f"every worker of replica {number} answers {status}")
        bed.connect(0, up=True)
        await bed.refused(BEYOND, 406)
        # In order: workers whose main process is killed may drain for 30 s.
        await asyncio.gather(*(replica.end() for replica in bed.replicas))
    watch.judge()


async def test_the_verbs_of_operators(bed: Bed) -> None:
    """`drain --wait`, `status` and `forget` by the command."""
    first, second, third = bed.replicas
    _, writer = await asyncio.open_connection("127.0.0.1", second.port)
    try:
        writer.write(
            b"POST /v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b" " * 1_000_000
        )
        await writer.drain()
        busy: list[str] = []

        async def in_flight() -> bool:
            backends = (await bed.status(second))["services"]["baremetal"]["backends"]
            busy[:] = [name for name, backend in backends.items() if backend["in_flight"]]
            return bool(busy)

        await bed.until(in_flight, "a request is in flight")
        (backend,) = busy
        drain = await start("drain", f"baremetal/{backend}", "--wait", "--admin", first.admin)

        async def waits() -> bool:
            drains = (await bed.status(first))["services"]["baremetal"]["agreement"]["drains"]
            return backend in drains and len(drains[backend]["busy"]) == 1

        await bed.until(waits, "one replica is named that still uses the backend")
        assert drain.returncode is None
    finally:
        writer.transport.abort()  # that ends the request, too
    ended = await finish(drain)
    assert ended.code == 0, ended.err
    assert "drained" in ended.out
    await bed.commanded(third, "POST", f"backends/{backend}/enable")

    identifier = (await bed.status(third))["agreement"]["id"]
    refused = await call("forget", identifier, "--admin", first.admin)
    assert refused.code == 1
    assert identifier in refused.err  # it is live
    await bed.upgrade()
    await bed.offered(NEW.text)
    await third.kill()
    await bed.roll_back()
    await bed.offered(OLD.text, of=[0, 1])
    await bed.refused(NEW.text, 503, of=[0, 1])  # it may still be on offer by the third

    async def shown() -> bool:
        page = (await call("status", "--admin", first.admin)).out
        return any(identifier in line and "detached" in line for line in page.splitlines())

    await bed.until(shown, "the table shows it as detached")
    forgotten = await call("forget", identifier, "--admin", first.admin)
    assert forgotten.code == 0, forgotten.err
    assert forgotten.out.strip() == f"{identifier}: forgotten"
    await bed.refused(NEW.text, 406, of=[0, 1])
    assert identifier not in (await call("status", "--admin", second.admin)).out


FAULTS: Final = (
    *("cut", "kill", "end", "freeze", "freeze etcd", "kill etcd", "wipe etcd"),
    *("pin", "drain", "fleet", "fleet", "fleet"),
)

CONVERGED: Final = 3 * TTL
"""Seconds from when the last fault has ended (etcd has a leader, all processes answer) until all replicas
are attached, refuse alike, and offer what has stood for its wait. Measured on two cores with twelve processes
that want them: 1.2 s at most."""


def wait_of(falls: int) -> float:
    """Seconds for which a version must stand that has fallen so often (semantics, Offering)."""
    return STABILIZATION * 2.0 ** min(falls, MAX_DOUBLINGS)


async def pin(bed: Bed, watch: Watch, replica: Replica, there: Replica, seconds: float) -> None:
    """Below `ASKED` for a while. It may be refused when the store has just come back."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    if await bed.command(replica, "PUT", "ceiling", version="1.40") == 200:
        await bed.offered("1.40")
    await asyncio.sleep(seconds)
    await bed.commanded(there, "DELETE", "ceiling")
    await bed.until(lambda: unpinned(bed), "no replica is held by the pin")
    watch.pinned.append((begin, loop.time()))


async def unpinned(bed: Bed) -> bool:
    return "1.40" not in {answer.highest for answer in await bed.ask("1.10")}


async def inflict(bed: Bed, watch: Watch, fault: str, random: Random) -> None:
    """One fault, which ends. Of the fleet: it has happened, and time passes."""
    number = random.randrange(3)
    replica, there, member = bed.replicas[number], bed.replicas[number - 1], bed.cluster.members[number]
    seconds = random.uniform(0.1, 1.5 * TTL)
    if fault == "pin":
        await pin(bed, watch, replica, there, seconds)
    elif fault == "drain":
        await bed.command(replica, "POST", "backends/api-1/drain")
        await asyncio.sleep(seconds)
        await bed.commanded(there, "POST", "backends/api-1/enable")
    elif fault == "wipe etcd":
        await bed.cluster.wipe()
    elif fault in {"kill", "end"}:
        await (replica.kill() if fault == "kill" else replica.end())
        await asyncio.sleep(seconds)
        await replica.start()
    elif fault == "kill etcd":
        await member.kill()
        await asyncio.sleep(seconds)
        await member.start(bed.cluster.members)
    else:
        faults: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "cut": (partial(bed.connect, number, up=False), partial(bed.connect, number, up=True)),
            "freeze": (replica.freeze, replica.thaw),
            "freeze etcd": (member.stop, member.go_on),
            "fleet": (lambda: None, lambda: None),
        }
        begin, end = faults[fault]
        begin()
        await asyncio.sleep(seconds)
        end()


async def test_random_faults_under_load(bed: Bed) -> None:
    """60 s. The fleet goes up and down meanwhile."""
    random = Random(16)
    loop = asyncio.get_running_loop()
    ends = loop.time() + 60.0
    faults: list[str] = []
    new, falls = False, 0
    async with bed.watch() as watch:
        while loop.time() < ends:
            faults = faults or random.sample(FAULTS, len(FAULTS))
            fault = faults.pop()
            if fault == "fleet":
                new = not new
                falls += not new
                await (bed.upgrade() if new else bed.roll_back())
            await inflict(bed, watch, fault, random)
        await bed.runs()  # the last fault has ended
        since = loop.time()
        await bed.refused(BEYOND, 406, within=CONVERGED)
        if new:  # a replica that has restarted lets it stand anew
            await bed.offered(NEW.text, within=CONVERGED + wait_of(falls))
        else:
            await bed.offered(OLD.text, within=since + CONVERGED - loop.time())
        assert len({answer.highest for answer in await bed.ask("1.10")}) == 1
    watch.judge()
    assert watch.tells
    assert watch.refusals
