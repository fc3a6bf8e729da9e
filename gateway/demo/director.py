"""Directs the demonstration: starts everything, takes the steps of the upgrade, obeys commands, and ends it.

A step waits until the gateway has learned what the one before has changed. So the sequence of steps, offers
and phases is the same in every run, however slow the machine is. With HAProxy beside the gateway each step is
taken in both fleets at the same time.

With a length the upgrade is taken once, and the demonstration ends after that time, or a little later when a
slow machine needs it (`LATE`). Without one it goes on until somebody quits: complete, the upgrade is rolled
back, server by server, and begins anew. What is shown is up to `view` and `report`.
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
"""Seconds that stand for the length where there is none."""
REST: Final = 3
"""Pauses between steps for which a complete upgrade, or roll-back, is shown before it is turned round."""
LATE: Final = 30.0
"""Seconds after the length at which the demonstration ends even if the upgrade is not complete."""
LEARN_WITHIN: Final = 40.0
"""Seconds for which a step waits for the gateway: less than one is needed, and more only after many
roll-backs, when versions that fell wait ever longer."""
AWAY: Final = 4.0
"""Seconds after which a server that was killed, or hangs, comes back."""
TICK: Final = 0.02
"""Seconds between two looks at whether something is due."""
MAX_EVENTS: Final = 200
MAX_COMMANDS: Final = 4
"""Commands that wait for their turn. More keys are not remembered."""
TOKEN_BYTES: Final = 12

PROBES: Final = 80
"""Intervals between probes in the length: many in a step."""
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 0.25


class DemoOptions(NamedTuple):
    """What the user has chosen."""

    length: float | None
    """Seconds; None: until somebody quits."""
    seed: int
    port: int = 0
    """Where the gateway listens; 0: on any free port."""
    haproxy: str = ""
    """Program of HAProxy, through which the same clients go as well; empty: nothing is compared."""
    operator: bool = False
    """Whether the operations page takes commands: the admin listener gets a token."""
    admin_port: int = USUAL_ADMIN_PORT


@final
class Director:
    """One run of the demonstration, inside `async with`. Equal seeds give equal choices.

    `over` is set when it has ended: then no client runs any more, and `scene` stays as it is.
    """

    def __init__(self, options: DemoOptions) -> None:
        self.over = asyncio.Event()
        self.token = secrets.token_urlsafe(TOKEN_BYTES) if options.operator else ""
        """What the operations page asks for; empty: nothing, and it takes no commands."""
        self._options = options
        self._pace = options.length or ROUND
        self._sides: tuple[Side, ...] = ()
        """That of the gateway first."""
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None
        self._begun = monotonic()
        self._ending = asyncio.Event()
        self._commands: deque[KeyCommand] = deque()
        self._paused_at: float | None = None
        self._position = 0
        self._forward = True
        self._due = 0.0
        """When the next step is taken, seconds since the beginning. It moves while somebody pauses."""
        self._touched = False
        """Whether a command has changed the course: then nothing is completed after the end."""
        self._step = "nothing is upgraded yet"
        self._victims = Random(f"{options.seed}/victims")  # noqa: S311 - choices of a demonstration
        self._away: dict[str, tuple[ServerState, float]] = {}
        """Servers that were struck: what was done to each, and when it comes back."""
        self._events: deque[DemoEvent] = deque(maxlen=MAX_EVENTS)
        self._event_count = 0
        """Events since the beginning."""
        self._recording = False
        self._last: Scene | None = None

    # --- start and end --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start servers, gateway and clients, and wait until the gateway knows the servers. Raises
        `StartupError`."""
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
                self._tell_offer(view)
            self._task = asyncio.create_task(  # noqa: TID251 - awaited when it is left
                self._play(clients)
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it if it goes on. Raises what went wrong meanwhile."""
        async with self._stack:
            self.quit()
            if self._task is not None:
                await self._task

    @property
    def lost(self) -> int:
        """Requests that were lost behind the gateway."""
        return self._sides[0].lost

    @property
    def page(self) -> str:
        """URL of the operations page."""
        return self._gateway.page

    def quit(self) -> None:
        """End it, after the requests that are under way."""
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
        """Wait. False when the demonstration ends."""
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return True
        return False

    # --- what is to be seen ---------------------------------------------------------------------------------

    def scene(self) -> Scene:
        """What is to be seen now."""
        if self._last is not None:
            return self._last
        url = self._gateway.url(BAREMETAL).removeprefix("http://")
        served, refused = (f"curl -iH '{SERVED}: {each}' {url}/v1/nodes" for each in ("1.31", NEW.text))
        return Scene(
            seconds=self._now(),
            length=self._options.length,
            seed=self._options.seed,
            paused=self._paused_at is not None,
            step=f"{self._position} of {script.LAST}: {self._step}",
            fronts=tuple(each.scene() for each in self._sides),
            events=tuple(self._events),
            curl_served=served,
            curl_refused=refused,
            page=f"{self.page} (token {self.token})" if self.token else self.page,
        )

    def _tell(self, text: str, kind: str) -> None:
        if self._recording:
            self._event_count += 1
            self._events.append(DemoEvent(self._event_count, self._now(), text, kind))

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        """For each change of what the gateway knows or offers."""
        for old, new in after.news_since(before):
            if old is None:
                continue
            for old_member, member in zip(old.pool.members, new.pool.members, strict=True):
                self._tell_member(old_member, member, new)
            if old.offer.versions != new.offer.versions or old.offer.phase is not new.offer.phase:
                self._tell_offer(new)

    def _tell_offer(self, view: ServiceView) -> None:
        offer = view.offer.versions
        text = offer.format(view.service.dialect.scheme) if offer else NOTHING
        self._tell(f"{view.service.name} offers {text}: {view.offer.phase}", "offer")

    def _tell_member(self, old: Member, member: Member, view: ServiceView) -> None:
        name, known = member.backend.name, member.advertisement
        if known is not None and old.advertisement != known:
            self._tell(f"{name} serves {known.versions.format(view.service.dialect.scheme)}", "backend")
        elif old.freshness is not member.freshness:
            answers = member.freshness is Freshness.FRESH
            self._tell(f"{name} {'answers again' if answers else f'is {member.freshness}'}", "backend")

    # --- the course -----------------------------------------------------------------------------------------

    def do(self, command: KeyCommand) -> None:
        """Begin with what somebody wants. Never waits and never raises."""
        if command is KeyCommand.QUIT:
            self.quit()
        elif command is KeyCommand.PAUSE:
            self._toggle_pause()
        elif len(self._commands) < MAX_COMMANDS:  # else somebody holds a key down
            self._commands.append(command)

    def _toggle_pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._now()
        else:
            self._due += self._now() - self._paused_at
            self._paused_at = None
        self._touched = True

    async def _direct(self) -> None:
        """Take steps when it is time, and obey commands between them."""
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
        """Wait a moment, and let those servers come back whose time has come."""
        await self._pause(TICK)
        for name, (state, due) in tuple(self._away.items()):
            if self._now() >= due:
                del self._away[name]
                await self._bring_back(name, state)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, at most `LEARN_WITHIN`, or until the end."""
        deadline = self._now() + LEARN_WITHIN
        while not condition() and not self._ending.is_set() and self._now() < deadline:
            await self._tick()

    def _now(self) -> float:
        """Seconds since the beginning."""
        return monotonic() - self._begun

    # --- steps and commands ---------------------------------------------------------------------------------

    def _next_step(self) -> Step | None:
        """The step that follows; None: the upgrade is complete, and nobody wants it rolled back."""
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
        """Do to the server, in each fleet, what the step says. Waits rather than stop the last that runs."""
        gateway = self._sides[0]
        service = gateway.fleet.service_of(step.server)
        release = service.new if step.action is Action.UPGRADE else service.old
        if step.action is not Action.UPGRADE:
            await self._until(lambda: gateway.can_do_without(step.server))
        self._step = script.sentence(step, release.name)
        self._tell(self._step, "step")
        if step.action is not Action.UPGRADE:
            await self._for_each(step.server, ApiServer.stop)
        if step.action is Action.ROLL_BACK:
            await self._until(gateway.learned)
        if step.action is not Action.STOP:
            await self._for_each(step.server, lambda server: server.start(release))

    async def _for_each(self, name: str, change: Callable[[ApiServer], Awaitable[None]]) -> None:
        """Do something to the server of this name in each fleet, at the same time."""
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
        """Roll one server back; afterwards the upgrade goes on."""
        step = script.back(self._position)
        if step is None:
            self._tell("nothing is upgraded: nothing to roll back", "step")
            return
        await self._until(self._sides[0].learned)
        await self._take(step)
        self._forward = True

    async def _strike(self, state: ServerState) -> None:
        """Kill a server, or let it hang. Never the last one of a service that runs, and only one hangs at a
        time: a request that two of them leave unanswered is answered by nobody."""
        fleet = self._sides[0].fleet
        possible = []
        for service in fleet.services:
            running = [each.name for each in service.servers if each.state is ServerState.RUNNING]
            if len(running) > 1:
                possible += running
        hangs = any(each.state is ServerState.HANGING for each in fleet.servers)
        if not possible or (state is ServerState.HANGING and hangs):
            self._tell("one hangs already" if hangs else "the last server of a service stays", "step")
            return
        name = self._victims.choice(possible)
        self._tell(f"{name} {'is killed' if state is ServerState.KILLED else 'hangs'}", "step")

        async def strike(server: ApiServer) -> None:
            if state is ServerState.KILLED:
                await server.kill()
            else:
                server.hang()

        await self._for_each(name, strike)
        self._away[name] = state, self._now() + AWAY

    async def _bring_back(self, name: str, state: ServerState) -> None:
        """Let a server come back that was struck, unless an upgrade has done so meanwhile."""
        if self._sides[0].fleet.server(name).state is state:
            self._tell(f"{name} comes back", "step")
            await self._for_each(name, ApiServer.come_back)
