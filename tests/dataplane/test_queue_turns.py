"""A request that waits for room keeps its turn: one draw lets it go, and who comes back is not the last."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import Resolution
from gateway.core.decision.selection import ALL_REQUESTS
from gateway.core.dialect import Endpoint
from gateway.core.fleet.backend import Member
from gateway.core.fleet.connections import Queue
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.backends.queue import RequestQueue, Turn
from gateway.dataplane.local_responses.failures import Failure
from gateway.telemetry.metrics import Metrics
from tests.dataplane.test_request_queue import Held, bounded, queued, sent
from tests.kit.backends import UpstreamConnection, refusing_backend
from tests.kit.examples import examples
from tests.kit.waiting import until
from tests.kit.workers import Testbed, service_of

KEY = "baremetal/api-1"
NOT_ITS_TURN = ALL_REQUESTS - 1
"""A draw by which a member that is held back does not get the request. 0 is one by which it does."""


async def test_R3_T3_one_draw_lets_a_request_go(testbed: Testbed) -> None:
    """A member with a bound re-enters beside a backup. A draw says that the backup gets the request: a second
    one, which would say that it has to wait for the other, is not made."""
    held = Held()
    returning, backup = await testbed.backend(held), await testbed.backend()
    gateway = await testbed.gateway(bounded(returning), replace(backup.backend, backup=True))
    gateway.worker.context.held_back[KEY] = ALL_REQUESTS // 2
    gateway.draw(0)
    first = await sent(gateway)
    await returning.received()
    waiting = await sent(gateway, "/v1/nodes/waiting")
    await until(lambda: queued(gateway) == 1)

    gateway.draw(0, NOT_ITS_TURN)

    assert (await waiting.response()).status == 200
    assert [message.target for message in backup.requests] == ["/v1/nodes/waiting"]
    held.let_go()
    assert (await first.response()).status == 200


async def test_R3_T3_who_comes_back_goes_before_those_that_came_later(testbed: Testbed) -> None:
    """The older one gets the room of a member that dies with it, and has to wait again."""
    held, dies = Held(), asyncio.Event()

    async def dying_server(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await dies.wait()

    busy, dying = await testbed.backend(held), await testbed.backend(dying_server)
    gateway = await testbed.gateway(bounded(busy), bounded(dying))
    gateway.snapshot_holder.apply("baremetal", Drain("api-2"))
    clients = [await sent(gateway, "/v1/nodes/0")]
    await busy.received()
    for number in (1, 2):
        clients.append(await sent(gateway, f"/v1/nodes/{number}"))
        await until(lambda number=number: queued(gateway) == number)  # type: ignore[misc]
    gateway.snapshot_holder.apply("baremetal", Drain("api-2", drained=False))
    await dying.received()
    gateway.snapshot_holder.apply("baremetal", Drain("api-2"))

    dies.set()
    await until(lambda: queued(gateway) == 2)
    held.let_go(3)

    for client in clients:
        assert (await client.response()).status == 200
    assert dying.requests[0].target == "/v1/nodes/1"
    assert [message.target for message in busy.requests] == [f"/v1/nodes/{number}" for number in range(3)]


# --- the queue alone ---------------------------------------------------------------------------------------

TIMEOUT = 10.0


class Waiting:
    """A request that waits, and may come back with its turn."""

    def __init__(self, bed: StoppedQueue, name: int) -> None:
        self.bed = bed
        self.name = name
        self.member: Member | None = None
        self.turn: Turn | None = None
        self.given_up = False

    def on_room(self, member: Member | None, failure: Failure | None, turn: Turn) -> None:
        self.member, self.turn = member, turn
        self.bed.in_flight[KEY] += 1

    def give_up(self, failure: Failure) -> None:
        self.given_up = True


class StoppedQueue:
    """A queue with a clock that stands, in front of a member that takes one request."""

    def __init__(self, length: int = 9) -> None:
        self.now = 1000.0
        self.in_flight = defaultdict(int, {KEY: 1})
        declared = refusing_backend("api-1")
        backend = replace(declared, max_requests=1, queue=Queue(length, TIMEOUT))
        holder = SnapshotHolder(Snapshot.configured([service_of(backend)], now=0.0))
        view = holder.current.views["baremetal"]
        self.resolution = Resolution(view, Endpoint("resource"), candidates=view.by_version.everyone)
        self.queue = RequestQueue(holder, self.in_flight, {}, Metrics(), lambda: self.now, lambda: 0)

    def enter(self, request: Waiting, turn: Turn | None = None) -> bool | None:
        return self.queue.enter(request, self.resolution, (), None, turn)

    def make_room(self) -> None:
        self.in_flight[KEY] = 0
        self.queue.expire()
        assert self.in_flight[KEY] <= 1
        self.in_flight[KEY] = 1


def test_R3_T3_a_full_queue_has_a_place_for_who_comes_back() -> None:
    bed = StoppedQueue(length=1)
    back, newcomer, late = (Waiting(bed, number) for number in range(3))
    bed.enter(back)
    bed.make_room()
    assert back.turn is not None
    assert bed.enter(newcomer)

    assert bed.enter(back, back.turn)

    assert bed.enter(late) is False
    back.member = None
    bed.make_room()
    assert (back.member, newcomer.member) != (None, None)
    assert newcomer.member is None


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.sampled_from(["enter", "room", "back", "pass"]), st.floats(0.0, 4.0)), max_size=40)
)
def test_R3_T3_the_oldest_goes_first_and_all_waits_together_are_bounded(
    steps: list[tuple[str, float]],
) -> None:
    """Whatever enters, goes and comes back: rooms go by age, and nobody waits longer than once."""
    bed, entered = StoppedQueue(length=100), 0
    waiting: list[Waiting] = []
    gone: list[Waiting] = []
    waited: dict[int, float] = defaultdict(float)
    for step, seconds in steps:
        match step:
            case "enter":
                entered += 1
                waiting.append(Waiting(bed, entered))
                assert bed.enter(waiting[-1])
            case "back" if gone:
                back = gone.pop(0)
                assert back.turn is not None
                bed.enter(back, back.turn)
                back.member = None
                waiting.append(back)
            case "room":
                oldest = min((each.name for each in waiting if not each.given_up), default=None)
                bed.make_room()
                went = [each for each in waiting if each.member is not None]
                assert [each.name for each in went] == ([] if oldest is None else [oldest])
                gone += went
            case _:
                bed.now += seconds
                for each in waiting:
                    waited[each.name] += seconds
                bed.queue.expire()
        over = [each for each in waiting if waited[each.name] >= TIMEOUT + 1e-6]
        assert all(each.given_up for each in over)
        waiting = [each for each in waiting if not each.given_up and each.member is None]


def test_R3_T3_the_time_in_an_attempt_is_no_wait() -> None:
    bed = StoppedQueue()
    request = Waiting(bed, 0)
    bed.enter(request)
    bed.now += TIMEOUT - 1
    bed.make_room()
    assert request.turn is not None
    assert request.turn.left == 1

    bed.now += 30
    bed.enter(request, request.turn)
    bed.queue.expire()
    assert not request.given_up
    bed.now += 1
    bed.queue.expire()
    assert request.given_up
