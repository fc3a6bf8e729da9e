"""Worker processes from the side of the main process: joining, watching, replacing, draining. The workers are
fakes, so that each of them fails exactly when a test wants it to."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from gateway.core.fleet.fleet import Drain as DrainBackend
from gateway.errors import StartupError
from gateway.workers.supervisor import Timing
from tests.kit.waiting import PATIENCE
from tests.workers.fakes import PATIENT, FakeWorker, Plane, agree, control_at, plane_at, settings_of

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
QUICK = Timing(ttl=0.2, start=60.0, first_pause=0.01, longest_pause=0.05)


def no_children() -> bool:
    """Nobody is left who would have to be reaped, or runs."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


# --- joining


async def test_workers_serve_after_listen_and_each_gets_its_own_sockets(plane: Plane) -> None:
    await plane.processes.start()
    workers = plane.control.workers

    assert {plane.state(0), plane.state(1)} == {"ready"}
    assert plane.processes.not_serving == "the gateway is starting: it does not listen yet"
    assert not any(worker.of("Serve") for worker in workers)

    await plane.processes.listen()

    assert {plane.state(0), plane.state(1)} == {"serving"}
    assert plane.processes.not_serving == ""
    assert sorted(worker.slot for worker in workers) == [0, 1]
    assert len({worker.of("Start")[0]["listeners"][0][1] for worker in workers}) == 2
    assert {each.pid for each in plane.processes.workers()} == {worker.pid for worker in workers}
    assert sorted(plane.shared.heard) == [(0, "joined"), (1, "joined")]


async def test_a_worker_that_starts_gets_what_is_new_before_it_serves(plane: Plane) -> None:
    plane.control.silent = ("Start",)
    start = asyncio.create_task(plane.processes.start())
    workers = [await plane.control.worker(0), await plane.control.worker(1)]
    agree(plane.holder, 1)  # a record, of which they know nothing
    for worker in workers:
        worker.say("Ack", 1)
    await start

    assert all(len(worker.of("Update")) == 1 for worker in workers)
    assert plane.processes.held("baremetal") == 1


async def test_a_record_waits_for_a_worker_that_starts_only_once_it_holds_something(plane: Plane) -> None:
    agree(plane.holder, 1)
    await plane.serve()
    assert plane.processes.held("baremetal") == 1

    plane.control.silent = ("Start",)
    plane.control.workers[0].order("exit", 1)
    third = await plane.control.worker(2)
    agree(plane.holder, 2)
    await plane.until(lambda: plane.processes.held("baremetal") == 2)  # the one that runs decides

    third.order("silent", "Update")
    third.say("Ack", 1)  # the first record
    await plane.until(lambda: plane.processes.held("baremetal") == 1)
    assert not third.of("Serve")
    third.say("Ack", 2)
    await plane.control.until(lambda: bool(third.of("Serve")))
    assert plane.processes.held("baremetal") == 2


async def test_nobody_holds_what_is_no_record(plane: Plane) -> None:
    assert plane.processes.held("baremetal") is None, "there is no worker"
    await plane.serve()
    assert plane.processes.held("baremetal") == 0
    assert plane.processes.held("gone") == 0


async def test_another_record_with_the_same_number_is_not_held(plane: Plane) -> None:
    agree(plane.holder, 5)
    await plane.serve()
    for worker in plane.control.workers:
        worker.order("silent", "Update")
    agree(plane.holder, 5, rule="reachable")
    held = plane.processes.held("baremetal")

    assert held is not None
    assert held < 5


# --- a start that fails


async def test_a_worker_that_ends_before_it_knows_anything_keeps_the_gateway_from_starting(
    plane: Plane,
) -> None:
    plane.control.exit_at_once = 3

    with pytest.raises(StartupError, match=r"worker [01] could not start: exit code 3"):
        await plane.processes.start()
    assert no_children()


async def test_a_worker_that_never_starts_is_killed_in_time(tmp_path: Path) -> None:
    async with plane_at(tmp_path, timing=Timing(ttl=0.1, start=0.5)) as plane:
        plane.control.silent = ("Start",)
        with pytest.raises(StartupError, match=r"it has not started within 0.5 s, and was killed"):
            await plane.processes.start()
        assert no_children()


async def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    async with plane_at(tmp_path) as plane:
        plane.processes._program = (str(tmp_path / "nothing"),)
        with pytest.raises(StartupError, match=r"nothing cannot be run: No such file"):
            await plane.processes.start()
        assert no_children()


# --- what is in force


async def test_in_force_waits_for_late_acknowledgements(plane: Plane) -> None:
    await plane.serve()
    slow = plane.control.workers[0]
    slow.order("silent", "Update")
    plane.learn(20)
    waiting = asyncio.create_task(plane.processes.in_force())
    await plane.control.until(lambda: all(worker.of("Update") for worker in plane.control.workers))
    await plane.processes.collect(counters=False)  # so that an acknowledgement would have come, too
    assert not waiting.done()

    plane.learn(21)  # while that one is under way: it waits
    slow.say("Ack", slow.of("Update")[0]["number"])
    assert await waiting
    await plane.control.until(lambda: len(slow.of("Update")) == 2)


async def test_in_force_says_no_when_a_worker_takes_too_long(tmp_path: Path) -> None:
    async with plane_at(tmp_path, timing=PATIENT._replace(ttl=0.1, start=60.0)) as plane:
        await plane.serve()
        plane.control.workers[0].order("silent", "Update")  # it answers beats, so it is not killed
        plane.learn(20)
        assert not await plane.processes.in_force()


async def test_a_worker_that_starts_holds_what_is_in_force_without_it(plane: Plane) -> None:
    await plane.serve()
    plane.control.silent = ("Start", "Update")
    plane.control.workers[0].order("exit", 1)
    third = await plane.control.worker(2)
    plane.holder.apply("baremetal", DrainBackend("api-1"))
    assert await plane.processes.in_force()

    third.say("Ack", 1)  # which it was told before the drain
    await plane.control.until(lambda: bool(third.of("Update")))
    assert not third.of("Serve")
    third.say("Ack", 2)
    await plane.control.until(lambda: bool(third.of("Serve")))


async def test_a_reload_reaches_everybody_once_and_with_the_snapshot(plane: Plane) -> None:
    await plane.serve()
    plane.learn(20)
    plane.processes.configured(settings_of(plane.holder))
    assert await plane.processes.in_force()
    plane.learn(21)
    assert await plane.processes.in_force()

    for worker in plane.control.workers:
        await plane.control.until(partial(lambda each: len(each.of("Update")) == 2, worker))
        assert [update["settings"] for update in worker.of("Update")] == [True, False]


async def test_a_worker_that_dies_with_an_update_under_way_keeps_nobody_waiting(plane: Plane) -> None:
    await plane.serve()
    victim = plane.control.workers[0]
    victim.order("silent", "Update")
    plane.learn(20)
    waiting = asyncio.create_task(plane.processes.in_force())
    await plane.control.until(lambda: bool(victim.of("Update")))
    before = plane.acknowledged
    os.kill(victim.pid, signal.SIGKILL)

    assert await waiting
    assert plane.acknowledged > before, "who moves records is told"
    assert ("left" in {what for _, what in plane.shared.heard}) is True


async def test_everybody_is_told_to_open_the_logs_and_to_read_certificates(plane: Plane) -> None:
    await plane.serve()
    plane.processes.reopen_logs()
    plane.processes.read_certificates()
    workers = plane.control.workers
    await plane.control.until(lambda: all(len(worker.of("Do")) == 2 for worker in workers))
    assert [message["what"] for message in workers[0].of("Do")] == ["reopen_logs", "read_certificates"]


async def test_everybody_is_told_the_deadlines_and_whoever_joins_later_too(plane: Plane) -> None:
    await plane.serve()
    first, second = plane.control.workers
    plane.processes.deadlines({"baremetal": 7.25})
    plane.processes.deadlines({"baremetal": 8.5})
    for worker in (first, second):
        await plane.control.until(lambda worker=worker: len(worker.of("Deadlines")) == 2)  # type: ignore[misc]
        assert [each["deadlines"] for each in worker.of("Deadlines")] == [
            {"baremetal": 7.25},
            {"baremetal": 8.5},
        ]

    first.order("exit", 3)
    third = await plane.control.worker(2)
    await plane.control.until(lambda: bool(third.of("Serve")))
    kinds = [each["kind"] for each in third.told]
    assert kinds.index("Start") < kinds.index("Deadlines") < kinds.index("Serve")
    assert third.of("Deadlines")[0]["deadlines"] == {"baremetal": 8.5}


# --- watching


async def test_a_worker_that_hangs_is_killed_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plane_at(tmp_path, timing=QUICK) as plane:
        await plane.serve()
        hung = plane.control.workers[0]
        slot = hung.slot
        hung.order("stop")  # a stopped process takes no signal but this one
        await plane.control.until(lambda: hung.gone)
        replaced = await plane.control.worker(2)
        await plane.until(lambda: plane.state(slot) == "serving")

        assert replaced.slot == slot
        assert (
            f"worker {slot} (process {hung.pid}) has ended: it has not answered for 0.2 s, and was killed; "
            "its connections are cut; a new worker is started now" in caplog.messages
        )
        assert [each.restarts for each in plane.processes.workers() if each.slot == slot] == [1]


async def test_a_worker_that_answers_no_beats_but_acknowledges_lives(tmp_path: Path) -> None:
    async with plane_at(tmp_path, timing=QUICK) as plane:
        plane.control.silent = ("ReportRequest",)
        await plane.serve()
        first = {worker.pid for worker in plane.control.workers}
        for highest in range(20, 40):  # for four times as long as a TTL
            plane.learn(highest)
            for more in [more_beats(worker) for worker in plane.control.workers]:
                await plane.control.until(more)
            assert await plane.processes.in_force()
        assert {worker.pid for worker in plane.control.workers} == first


def more_beats(worker: FakeWorker) -> Callable[[], bool]:
    before = len(worker.of("ReportRequest"))
    return lambda: len(worker.of("ReportRequest")) > before


async def test_after_the_main_process_stood_still_nobody_is_killed(tmp_path: Path) -> None:
    async with plane_at(tmp_path, timing=QUICK) as plane:
        await plane.serve()
        first = {worker.pid for worker in plane.control.workers}
        time.sleep(2.5 * QUICK.ttl)  # noqa: ASYNC251
        await plane.processes.collect(counters=False)
        assert {each.pid for each in plane.processes.workers()} == first


async def test_a_crash_loop_backs_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    timing = Timing(ttl=60.0, start=60.0, first_pause=0.01, longest_pause=0.03)
    async with plane_at(tmp_path, number=1, timing=timing) as plane:
        await plane.serve()
        plane.control.exit_at_once = 7
        plane.control.workers[0].order("exit", 7)
        await plane.control.until(lambda: len(plane.control.workers) >= 5)
        plane.control.exit_at_once = None
        await plane.until(lambda: plane.state(0) == "serving")

        pauses = [
            message.rpartition("started ")[2] for message in caplog.messages if "has ended: exit" in message
        ]
        assert pauses[:5] == ["now", "in 0.01 s", "in 0.02 s", "in 0.03 s", "in 0.03 s"]


async def test_a_worker_that_was_steady_is_replaced_at_once_again(tmp_path: Path) -> None:
    timing = Timing(ttl=60.0, start=60.0, first_pause=30.0, longest_pause=30.0, steady=0.0)
    async with plane_at(tmp_path, number=1, timing=timing) as plane:
        await plane.serve()
        for number in range(3):
            (await plane.control.worker(number)).order("exit", 1)
            await plane.control.worker(number + 1)
            await plane.until(lambda: plane.state(0) == "serving")


async def test_nothing_is_served_while_nobody_is_there(plane: Plane) -> None:
    plane.processes._timing = PATIENT._replace(first_pause=30.0, longest_pause=30.0)
    await plane.serve()
    plane.control.exit_at_once = 1
    for worker in list(plane.control.workers):
        worker.order("exit", 1)
    await plane.until(lambda: plane.processes.not_serving != "")
    assert plane.processes.not_serving == "no worker serves at this moment: the log says why"
    await plane.until(lambda: [each.pid for each in plane.processes.workers()] == [0, 0])


# --- what makes no sense


@pytest.mark.parametrize(
    "message",
    [
        ("Ack", 1),
        ("Ack", 99),
        ("LearnedFacts", 2, ()),
        ("Stopped",),
        ("Shutdown", 1.0),
    ],
    ids=str,
)
async def test_a_worker_that_says_what_makes_no_sense_is_replaced(
    plane: Plane, caplog: pytest.LogCaptureFixture, message: tuple[object, ...]
) -> None:
    await plane.serve()
    plane.control.workers[0].say(*message)  # type: ignore[arg-type]
    await plane.control.worker(2)
    assert any("has sent a message that is not valid now" in text for text in caplog.messages)


@pytest.mark.parametrize("data", ["ffffffff", "00000003ffffff", "000000056e6f74206f"], ids=str)
async def test_a_worker_that_sends_what_is_no_message_is_replaced(plane: Plane, data: str) -> None:
    await plane.serve()
    plane.control.workers[0].order("say_raw", data)
    await plane.control.worker(2)


async def test_a_worker_that_closes_its_channel_is_killed(plane: Plane) -> None:
    await plane.serve()
    victim = plane.control.workers[0]
    victim.order("close")
    await plane.control.until(lambda: victim.gone)
    await plane.control.worker(2)


# --- reports


async def test_what_is_said_is_of_all_workers_and_of_this_moment(plane: Plane) -> None:
    await plane.serve()
    for number, worker in enumerate(plane.control.workers, start=1):
        worker.order("clients", number)
    await plane.processes.collect(counters=True)

    assert plane.processes.in_flight_by_member == {"baremetal/api-1": 3}
    report = plane.processes.report()
    assert report.in_flight_by_member == {"baremetal/api-1": 3}
    assert report.in_flight_by_service == {"baremetal": 3}
    assert sorted(each.connections for each in plane.processes.workers()) == [1, 2]
    assert sorted(use.clients for use in report.use.values()) == [1, 2]


async def test_collecting_reports_does_not_wait_for_those_that_end(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.workers.supervisor.COLLECT", 10 * PATIENCE)
    await plane.serve()
    victim = plane.control.workers[0]
    victim.order("silent", "ReportRequest")
    collected = asyncio.create_task(plane.processes.collect(counters=False))
    await plane.control.until(lambda: bool(victim.of("ReportRequest")))
    victim.order("exit", 1)
    async with asyncio.timeout(PATIENCE):
        await collected


# --- the end


async def test_a_drain_ends_everybody_in_order(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    await plane.serve()
    with caplog.at_level(logging.WARNING):
        await plane.processes.drain(5.0)

    assert [worker.of("Shutdown")[0]["seconds"] for worker in plane.control.workers] == [5.0, 5.0]
    assert plane.processes.not_serving == "the gateway is shutting down"
    assert [each for each in caplog.records if each.name == "skewgate.workers"] == []
    assert no_children()


async def test_those_that_do_not_end_are_cut_after_the_drain(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.workers.supervisor.CUT", 0.1)
    await plane.serve()
    plane.control.workers[0].order("silent", "end")
    await plane.processes.drain(0.0)
    assert no_children()


async def test_stop_accepting_returns_when_nobody_accepts(plane: Plane) -> None:
    await plane.serve()
    for worker in plane.control.workers:
        worker.order("silent", "Pause")
    stopping = asyncio.create_task(plane.processes.stop_accepting())
    await plane.control.until(lambda: all(worker.of("Pause") for worker in plane.control.workers))
    plane.control.workers[0].say("Stopped")
    await plane.processes.collect(counters=False)
    assert not stopping.done()

    plane.control.workers[1].order("exit", 0)  # who has ended accepts nobody
    await stopping
    assert not plane.control.workers[0].of("Shutdown")
    await plane.processes.drain(5.0)
    assert no_children()


async def test_who_was_paused_serves_again(plane: Plane) -> None:
    await plane.serve()
    await plane.processes.stop_accepting()
    assert plane.processes.not_serving
    plane.control.workers[1].order("exit", 1)  # another one takes its place, and waits as well
    replaced = await plane.control.worker(2)
    await plane.until(lambda: len(plane.processes._handles) == 2)
    assert not replaced.of("Serve")

    await plane.processes.listen()
    assert not plane.processes.not_serving
    await plane.control.until(lambda: len(plane.control.workers[0].of("Serve")) == 2)
    await plane.control.until(lambda: len(replaced.of("Serve")) == 1)
    await plane.processes.stop_accepting()
    await plane.processes.drain(5.0)
    assert no_children()


async def test_what_was_given_to_a_worker_that_ends_is_not_left_to_one_that_never_serves(
    plane: Plane,
) -> None:
    """Clients are accepted by another gateway by then: the worker that takes its place gets no `Serve`."""
    await plane.serve()
    first, second = (plane.processes._connection_counts.descriptors(slot) for slot in (0, 1))
    client, given = socket.socketpair()
    [(_, to_second)] = first.senders
    with client, socket.socket(fileno=os.dup(to_second)) as giver, given:
        socket.send_fds(giver, [b"\0"], [given.fileno()])
    await plane.processes.stop_accepting()
    os.kill(plane.processes._handles[1].pid, signal.SIGKILL)
    await plane.control.worker(2)

    with socket.socket(fileno=os.dup(first.inbox)) as inbox:
        data, descriptors, _, _ = socket.recv_fds(inbox, 1, 1)
    assert (data, len(descriptors)) == (b"\0", 1)
    os.close(descriptors[0])
    with socket.socket(fileno=os.dup(second.inbox)) as inbox, pytest.raises(BlockingIOError):
        inbox.recv(1)
    await plane.processes.drain(5.0)
    assert no_children()


async def test_a_worker_that_is_about_to_serve_is_stopped_too(plane: Plane) -> None:
    await plane.processes.start()
    for worker in plane.control.workers:
        worker.order("silent", "Serve", "Pause")
    listening = asyncio.create_task(plane.processes.listen())
    await plane.control.until(lambda: all(worker.of("Serve") for worker in plane.control.workers))
    stopping = asyncio.create_task(plane.processes.stop_accepting())
    await plane.control.until(lambda: all(worker.of("Pause") for worker in plane.control.workers))
    for worker in plane.control.workers:
        worker.say("Serving")
    await listening
    assert not stopping.done()
    for worker in plane.control.workers:
        worker.say("Stopped")
    await stopping
    assert {plane.state(0), plane.state(1)} == {"ready"}


async def test_a_drain_ends_the_wait_for_another_start(tmp_path: Path) -> None:
    timing = Timing(ttl=60.0, start=60.0, first_pause=60.0, longest_pause=60.0)
    async with plane_at(tmp_path, timing=timing) as plane:
        await plane.serve()
        plane.control.exit_at_once = 1
        plane.control.workers[0].order("exit", 1)
        await plane.until(lambda: len(plane.processes._handles) == 1)
        await plane.processes.drain(5.0)
        assert no_children()


async def test_a_drain_while_a_worker_starts(plane: Plane) -> None:
    await plane.serve()
    plane.control.silent = ("Start",)
    plane.control.workers[0].order("exit", 1)
    await plane.control.worker(2)
    await plane.processes.drain(5.0)
    assert no_children()


async def test_abort_lets_those_that_serve_end_by_themselves(plane: Plane) -> None:
    await plane.serve()
    await plane.processes.abort()
    assert [worker.of("Shutdown")[0]["seconds"] for worker in plane.control.workers] == [0.0, 0.0]
    assert no_children()


async def test_abort_leaves_nothing(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.workers.supervisor.END", 0.1)
    await plane.serve()
    for worker in plane.control.workers:
        worker.order("stop")
    await plane.processes.abort()
    await plane.processes.abort()
    assert no_children()
    assert plane.processes.held("baremetal") is None


async def test_who_does_not_stop_accepting_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plane_at(tmp_path, timing=PATIENT._replace(ttl=0.3)) as plane:
        await plane.serve()
        plane.control.workers[0].order("silent", "Pause")
        await plane.processes.stop_accepting()
        await plane.processes.drain(5.0)
        assert any("has not stopped accepting within 0.3 s" in text for text in caplog.messages)
        assert no_children()


async def test_a_second_stop_signal_waits_for_nobody(plane: Plane) -> None:
    await plane.serve()
    plane.processes.kill()
    await plane.control.until(lambda: all(worker.gone for worker in plane.control.workers))


# --- the main process


async def test_when_the_main_process_is_killed_every_worker_notices(tmp_path: Path) -> None:
    """No worker has inherited an end of the channel of another one."""
    async with control_at(tmp_path) as control:
        main = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.workers.doomed_main_process", str(control.path), cwd=ROOT
        )
        try:
            await control.until(lambda: sum(bool(worker.of("Serve")) for worker in control.workers) == 2)
        finally:
            main.kill()
            await main.wait()
        await control.until(lambda: all(worker.of("alone") for worker in control.workers))
        for worker in control.workers:
            worker.order("exit", 0)
        await control.until(lambda: all(worker.gone for worker in control.workers))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_both_kinds_of_event_loop(tmp_path: Path, loop: str) -> None:
    async def life() -> None:
        async with plane_at(tmp_path) as plane:
            await plane.serve()
            victim = plane.control.workers[0]
            os.kill(victim.pid, signal.SIGKILL)
            await plane.control.worker(2)
            await plane.until(lambda: {plane.state(0), plane.state(1)} == {"serving"})
            plane.learn(20)
            assert await plane.processes.in_force()
            await plane.processes.drain(5.0)
            assert no_children()

    factory = asyncio.new_event_loop if loop == "asyncio" else import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(life())
