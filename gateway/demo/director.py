"""Director of the demonstration: starts everything, takes the steps of the upgrade, and runs commands.

A step waits until the gateway has learned the change of the step before. So the sequence of steps, offers
and phases is the same in every run, however slow the machine is. HAProxy's fleet takes the same steps.

With a length the upgrade runs once. Without one it goes on until the user quits: a complete upgrade is rolled
back, server by server, and begins anew. The display is up to `view` and `report`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from random import Random
from time import monotonic
from typing import Final, NamedTuple, Self, final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.demo import script
from gateway.demo.clients import Client
from gateway.demo.fleet import BAREMETAL, EmbeddedFleet
from gateway.demo.front import USUAL_ADMIN_PORT, GatewayFront
from gateway.demo.haproxy import HAProxyFront
from gateway.demo.ironic import NEW, SERVED
from gateway.demo.scene import DemoEvent, KeyCommand, Scene
from gateway.demo.script import Action, Step
from gateway.demo.servers import ApiServer, ServerState
from gateway.demo.side import NOTHING, Side

ROUND: Final = 45.0
"""Seconds of one upgrade if no length is given."""
REST: Final = 3
"""Pause after a complete upgrade or roll-back, in pauses between two steps."""
LATE: Final = 30.0
"""Seconds beyond its length after which the demonstration ends even if the upgrade is not complete."""
LEARN_WITHIN: Final = 40.0
"""Maximum seconds that a step waits for the gateway. Usually one is enough; after many roll-backs the gateway
waits ever longer before it offers a version again."""
AWAY: Final = 4.0
"""Seconds after which a killed or hanging server comes back."""
TICK: Final = 0.02
"""Seconds between two checks whether a step or a command is due."""
MAX_EVENTS: Final = 200
MAX_COMMANDS: Final = 4
"""Maximum number of waiting commands from the keyboard. Further keys are ignored."""
TOKEN_BYTES: Final = 12

PROBES: Final = 80
"""Number of probe intervals in the demonstration's length."""
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 0.25


class DemoOptions(NamedTuple):
    """Options of the demonstration."""

    length: float | None
    """Length of the demonstration in seconds; None: until the user quits."""
    seed: int
    port: int = 0
    haproxy: str = ""
    """Path of HAProxy for the comparison; empty for none."""
    operator: bool = False
    """Whether the operations page takes commands, with a token."""
    admin_port: int = USUAL_ADMIN_PORT


@final
class Director:
    """A run of the demonstration, inside `async with`. Equal seeds give equal choices of the clients.

    `over` is set when it has ended: then no client runs any more, and `scene` does not change.
    """

    def __init__(self, options: DemoOptions) -> None:
        self.over = asyncio.Event()
        self.token = secrets.token_urlsafe(TOKEN_BYTES) if options.operator else ""
        """Token of the operations page; empty if it takes no commands."""
        self._options = options
        self._pace = options.length or ROUND
        self._sides: tuple[Side, ...] = ()
        """The gateway's side of the demonstration, and HAProxy's in a comparison."""
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None
        self._begun = monotonic()
        self._ending = asyncio.Event()
        self._commands: deque[KeyCommand] = deque()
        self._paused_at: float | None = None
        self._position = 0
        self._forward = True
        self._due = 0.0
        """Time of the upgrade's next step in seconds since the start. A pause postpones it."""
        self._touched = False
        """Whether the user gave a command: then the demonstration may end before the upgrade is complete."""
        self._step = "nothing is upgraded yet"
        self._victims = Random(f"{options.seed}/victims")  # noqa: S311 - choices of a demonstration
        self._away: dict[str, tuple[ServerState, float]] = {}
        """Killed and hanging servers: their state, and the time at which they come back."""
        self._events: deque[DemoEvent] = deque(maxlen=MAX_EVENTS)
        self._event_count = 0
        """Number of events since the demonstration's start."""
        self._recording = False
        self._last: Scene | None = None

    async def __aenter__(self) -> Self:
        """Start servers, gateway and clients once the gateway knows the servers. Raises `StartupError`."""
        async with AsyncExitStack() as stack:
            interval = min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, self._pace / PROBES))
            fleet = await stack.enter_async_context(EmbeddedFleet())
            self._gateway = GatewayFront(
                fleet,
                interval=interval,
                port=self._options.port,
                admin_port=self._options.admin_port,
                token=self.token,
                changed=self._on_change,
            )
            self._sides = (Side(fleet, self._gateway, self._options.seed),)
            if self._options.haproxy:
                fleet = await stack.enter_async_context(EmbeddedFleet())
                haproxy = HAProxyFront(self._options.haproxy, fleet, interval=interval)
                self._sides += (Side(fleet, haproxy, self._options.seed),)
            clients = [client for each in self._sides for client in await each.start(stack)]
            await self._until(self._sides[0].steady)
            self._begun = monotonic()
            self._due = self._pace * script.START_SHARE
            self._recording = True
            for view in self._gateway.gateway.snapshot_holder.current.views.values():
                self._record_offer(view)
            self._task = asyncio.create_task(  # noqa: TID251 - awaited when it is left
                self._play(clients)
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the demonstration and raise errors of its tasks."""
        async with self._stack:
            self.quit()
            if self._task is not None:
                await self._task

    @property
    def lost(self) -> int:
        return self._sides[0].lost

    @property
    def page(self) -> str:
        return self._gateway.page

    def quit(self) -> None:
        """End the demonstration after the requests in flight."""
        self._ending.set()

    async def _play(self, clients: Sequence[Client]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for client in clients:
                    tasks.create_task(client.run(self._pause))
                tasks.create_task(self._direct())
        finally:
            self._recording = False
            self._ending.set()
            self._last = self.scene()
            self.over.set()

    async def _pause(self, seconds: float) -> bool:
        """Wait some seconds; return False when the demonstration ends."""
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return True
        return False

    def scene(self) -> Scene:
        if self._last is not None:
            return self._last
        url = self._gateway.url(BAREMETAL).removeprefix("http://")
        served, newest = (f"curl -iH '{SERVED}: {each}' {url}/v1/nodes" for each in ("1.31", NEW.text))
        return Scene(
            seconds=self._now(),
            length=self._options.length,
            seed=self._options.seed,
            paused=self._paused_at is not None,
            step=f"{self._position} of {script.LAST}: {self._step}",
            fronts=tuple(each.scene() for each in self._sides),
            events=tuple(self._events),
            curl_served=served,
            curl_newest=newest,
            page=f"{self.page} (token {self.token})" if self.token else self.page,
        )

    def _record(self, text: str, kind: str) -> None:
        if self._recording:
            self._event_count += 1
            self._events.append(DemoEvent(self._event_count, self._now(), text, kind))

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        for old, new in after.news_since(before):
            if old is None:
                continue
            for old_member, member in zip(old.members.all, new.members.all, strict=True):
                self._record_member(old_member, member, new)
            if old.offer.versions != new.offer.versions or old.offer.phase is not new.offer.phase:
                self._record_offer(new)

    def _record_offer(self, view: ServiceView) -> None:
        offer = view.offer.versions
        text = offer.format(view.service.dialect.scheme) if offer else NOTHING
        self._record(f"{view.service.name} offers {text}: {view.offer.phase}", "offer")

    def _record_member(self, old: Member, member: Member, view: ServiceView) -> None:
        name, known = member.backend.name, member.advertisement
        if known is not None and old.advertisement != known:
            self._record(f"{name} serves {known.versions.format(view.service.dialect.scheme)}", "backend")
        elif old.freshness is not member.freshness:
            answers = member.freshness is Freshness.FRESH
            self._record(f"{name} {'answers again' if answers else f'is {member.freshness}'}", "backend")

    def do(self, command: KeyCommand) -> None:
        """Carry out a command from the keyboard, or put it in a queue. Never waits and never raises."""
        if command is KeyCommand.QUIT:
            self.quit()
        elif command is KeyCommand.PAUSE:
            self._toggle_pause()
        elif len(self._commands) < MAX_COMMANDS:  # more come from a key that is held down
            self._commands.append(command)

    def _toggle_pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._now()
        else:
            self._due += self._now() - self._paused_at
            self._paused_at = None
        self._touched = True

    async def _direct(self) -> None:
        """Take the steps of the upgrade when they are due, and run commands between them."""
        while not self._ending.is_set():
            now = self._now()
            step = self._next_step()
            if self._commands:
                await self._apply(self._commands.popleft())
            elif self._is_complete(now):
                self.quit()
            elif step is not None and self._is_due(now):
                await self._take(step)
            else:
                await self._tick()

    def _is_complete(self, now: float) -> bool:
        length = self._options.length
        if length is None or now < length:
            return False
        finished = self._position == script.LAST and self._sides[0].steady()
        return self._touched or finished or now >= length + LATE

    def _is_due(self, now: float) -> bool:
        if self._paused_at is not None or now < self._due:
            return False
        return self._sides[0].steady() or now >= self._due + LEARN_WITHIN

    async def _tick(self) -> None:
        """Wait a moment, and bring back killed and hanging servers that are due."""
        await self._pause(TICK)
        for name, (state, due) in tuple(self._away.items()):
            if self._now() >= due:
                del self._away[name]
                await self._bring_back(name, state)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, but at most `LEARN_WITHIN` and not beyond the demonstration's end."""
        deadline = self._now() + LEARN_WITHIN
        while not condition() and not self._ending.is_set() and self._now() < deadline:
            await self._tick()

    def _now(self) -> float:
        return monotonic() - self._begun

    def _next_step(self) -> Step | None:
        """Return the next step of the upgrade; None if it is complete and is not rolled back."""
        if not self._forward:
            return script.back(self._position) or script.forward(0)
        if self._position == script.LAST and self._options.length is None:
            return script.back(script.LAST)
        return script.forward(self._position)

    async def _take(self, step: Step) -> None:
        await self._act(step)
        self._position = step.position
        self._forward = step.action is not Action.ROLL_BACK
        turns = self._position == (script.LAST if self._forward else 0)
        self._due = self._now() + self._pace * script.STEP_SHARE * (REST if turns else 1)
        if self._paused_at is not None:
            self._paused_at = self._now()

    async def _act(self, step: Step) -> None:
        """Take a step of the upgrade in each fleet. Waits rather than stop a service's last server."""
        gateway = self._sides[0]
        service = gateway.fleet.service_of(step.server)
        release = service.new if step.action is Action.UPGRADE else service.old
        if step.action is not Action.UPGRADE:
            await self._until(lambda: gateway.can_do_without(step.server))
        self._step = script.sentence(step, release.name)
        self._record(self._step, "step")
        if step.action is not Action.UPGRADE:
            await self._for_each(step.server, ApiServer.stop)
        if step.action is Action.ROLL_BACK:
            await self._until(gateway.learned)
        if step.action is not Action.STOP:
            await self._for_each(step.server, lambda server: server.start(release))

    async def _for_each(self, name: str, change: Callable[[ApiServer], Awaitable[None]]) -> None:
        await asyncio.gather(*(change(each.fleet.server(name)) for each in self._sides))

    async def _apply(self, command: KeyCommand) -> None:
        self._touched = True
        match command:
            case KeyCommand.NEXT:
                await self._until(self._sides[0].learned)
                if step := self._next_step():
                    await self._take(step)
            case KeyCommand.ROLL_BACK:
                await self._roll_back()
            case KeyCommand.KILL:
                await self._strike(ServerState.KILLED)
            case KeyCommand.HANG:
                await self._strike(ServerState.HANGING)
            case _:
                raise AssertionError(command)

    async def _roll_back(self) -> None:
        """Roll back one server; the upgrade goes on afterwards."""
        step = script.back(self._position)
        if step is None:
            self._record("nothing to roll back: no server is upgraded", "step")
            return
        await self._until(self._sides[0].learned)
        await self._take(step)
        self._forward = True

    async def _strike(self, state: ServerState) -> None:
        """Kill a random server, or let it hang. The last running one of a service is spared, and only one
        hangs at a time: otherwise a request that is sent again could hang, too."""
        fleet = self._sides[0].fleet
        possible = []
        for service in fleet.services:
            running = [each.name for each in service.servers if each.state is ServerState.RUNNING]
            if len(running) > 1:
                possible += running
        hangs = any(each.state is ServerState.HANGING for each in fleet.servers)
        if not possible or (state is ServerState.HANGING and hangs):
            self._record(
                "another server already hangs" if hangs else "the last running servers are kept", "step"
            )
            return
        name = self._victims.choice(possible)
        self._record(f"{name} {'is killed' if state is ServerState.KILLED else 'hangs'}", "step")

        async def strike(server: ApiServer) -> None:
            if state is ServerState.KILLED:
                await server.kill()
            else:
                server.hang()

        await self._for_each(name, strike)
        self._away[name] = state, self._now() + AWAY

    async def _bring_back(self, name: str, state: ServerState) -> None:
        """Bring back a killed or hanging server, unless the upgrade has restarted it meanwhile."""
        if self._sides[0].fleet.server(name).state is state:
            self._record(f"{name} comes back", "step")
            await self._for_each(name, ApiServer.come_back)
