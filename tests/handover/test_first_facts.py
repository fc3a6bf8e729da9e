"""Clients are accepted only once every worker holds what the first probes have brought. Whoever waits in a
socket gets an answer that is made from it."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.assembly import Gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.demo.ironic import NEW, IronicServer
from gateway.handover.inheritance import Inheritance
from gateway.handover.take_over import TakenOver
from gateway.workers.publisher import offers
from gateway.workers.supervisor import Timing, WorkerProcesses
from tests.handover.conftest import House
from tests.handover.test_activation import ask
from tests.kit.fleets import OLD
from tests.kit.waiting import until

pytestmark = pytest.mark.processes


class Watch:
    """Whether each live worker held an offer at the moments that matter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planes: list[WorkerProcesses] = []
        self.at_listen: list[bool] = []
        self.at_ready: list[bool] = []
        start, listen, ready = WorkerProcesses.start, WorkerProcesses.listen, TakenOver.ready

        async def started(plane: WorkerProcesses) -> None:
            self.planes.append(plane)
            await start(plane)

        async def listened(plane: WorkerProcesses) -> None:
            self.at_listen.append(self.hold(plane))
            await listen(plane)

        async def told(taken: TakenOver) -> None:
            self.at_ready.append(self.hold(self.planes[-1]))
            await ready(taken)

        # A worker that a test stops is not replaced meanwhile.
        defaults = WorkerProcesses.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "timing", Timing(ttl=60.0))
        monkeypatch.setattr(WorkerProcesses, "start", started)
        monkeypatch.setattr(WorkerProcesses, "listen", listened)
        monkeypatch.setattr(TakenOver, "ready", told)

    @staticmethod
    def hold(plane: WorkerProcesses) -> bool:
        """Whether all workers hold an offer, and that each server of it is known."""
        held = [state.holds for state in plane.workers() if state.pid and state.state != "starting"]
        return all(
            snapshot is not None
            and offers(snapshot)
            and all(
                each.advertisement for members in snapshot.fleet.member_sets.values() for each in members.all
            )
            for snapshot in held
        )

    def stop_at_the_offer(self, pid: int) -> None:
        """Stop a worker as soon as its main process has an offer, of which it has not been told."""
        holder = self.planes[-1]._snapshot_holder

        def on_change(_before: Snapshot, after: Snapshot) -> None:
            if offers(after):
                unsubscribe()
                os.kill(pid, signal.SIGSTOP)

        unsubscribe = holder.subscribe(on_change)

    def pids(self) -> list[int]:
        return [state.pid for state in self.planes[-1].workers() if state.pid]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """The socket of systemd."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield listening


@pytest.fixture
async def starting(
    house: House, listening: socket.socket, watch: Watch, servers: tuple[IronicServer, IronicServer]
) -> AsyncIterator[asyncio.Task[Gateway]]:
    """A gateway of two workers that has started them. Clients wait in its socket, and no server answers."""
    for server in servers:
        await server.stop()
    file = house.write(f"127.0.0.1:{listening.getsockname()[1]}", more="workers: 2")
    passed = Inheritance((Inherited(listening.dup(), managed=True),))
    starting = asyncio.get_running_loop().create_task(house.start(file, passed=passed))
    await until(
        lambda: bool(watch.planes) and all(each.state == "ready" for each in watch.planes[-1].workers())
    )
    yield starting
    await starting


async def test_R3_V1_nobody_listens_before_the_workers_hold_what_the_first_probes_brought(
    house: House,
    starting: asyncio.Task[Gateway],
    listening: socket.socket,
    watch: Watch,
    servers: tuple[IronicServer, IronicServer],
) -> None:
    asked = [ask(house, listening) for _ in range(8)]
    await servers[0].start(OLD)
    await servers[1].start(NEW)

    assert await asyncio.gather(*asked) == [200] * 8
    await starting
    assert watch.at_listen == [True]


async def asked_while_one_lags(
    house: House, listening: socket.socket, watch: Watch, servers: tuple[IronicServer, IronicServer]
) -> tuple[asyncio.Task[int], int]:
    """A request that waits, and the worker that is stopped. The other one holds the offer, and has not been
    told to accept anybody."""
    first, second = watch.pids()
    watch.stop_at_the_offer(second)
    asked = ask(house, listening)
    await servers[0].start(OLD)
    await servers[1].start(NEW)
    await until(lambda: any(each.pid == first and offers(each.holds) for each in watch.planes[-1].workers()))
    return asked, second


async def test_R3_V1_who_waits_is_not_served_while_a_worker_lags(
    house: House,
    starting: asyncio.Task[Gateway],
    listening: socket.socket,
    watch: Watch,
    servers: tuple[IronicServer, IronicServer],
) -> None:
    asked, second = await asked_while_one_lags(house, listening, watch, servers)
    assert not watch.at_listen

    os.kill(second, signal.SIGCONT)

    assert await asked == 200
    await starting
    assert watch.at_listen == [True]


async def test_R3_V1_a_worker_that_is_killed_meanwhile_delays_nobody(
    house: House,
    starting: asyncio.Task[Gateway],
    listening: socket.socket,
    watch: Watch,
    servers: tuple[IronicServer, IronicServer],
) -> None:
    asked, second = await asked_while_one_lags(house, listening, watch, servers)

    os.kill(second, signal.SIGKILL)

    assert await asked == 200
    await starting
    assert watch.at_listen == [True]


async def test_R3_V1_in_a_take_over_the_workers_hold_it_before_the_other_gateway_stops(
    house: House, watch: Watch
) -> None:
    file = house.write(more="workers: 2")
    old = await house.start(file)
    await house.known(old)

    new = await house.start(file, takes_over=True)
    await house.one_ended()

    assert watch.at_ready == [True]
    assert await house.get(new) == 200
