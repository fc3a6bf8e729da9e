"""The demo's course of events: two servers start, the gateway learns them, clients come, the old server is
upgraded.

Puts fleet, gateway, clients and narrator together and says when what happens. What is printed is
`narration`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from importlib.resources import files
from random import Random
from typing import Final, final

from gateway import settings
from gateway.cli import signals
from gateway.cli.demo.clients import KINDS, Client
from gateway.cli.demo.fleet import NEW, OLD, SERVED, Database, Server
from gateway.cli.demo.narration import Narrator, offered
from gateway.cli.gateway import Gateway
from gateway.cli.printing import Paint, Style, complain
from gateway.core.snapshot import Snapshot
from gateway.errors import StartupError

SERVICE: Final = "baremetal"
UPGRADE_AT: Final = 0.35
"""Of the whole length: until then the mixed fleet is shown, afterwards the upgraded one."""
DOWN_FOR: Final = 0.15
RUSHES: Final = 2
"""How often everybody asks at once while the gateway does not know yet that the server is away."""
BEAT: Final = 0.03
"""Seconds for what is under way to end: some milliseconds of requests, and far less than until a probe."""
LONGEST_DOWN: Final = 3.0
"""Seconds that the server is away, at most."""
MOST_FAULTS: Final = 10
"""Lost requests that the summary names; the count is always whole."""
LEARN_WITHIN: Final = 10.0
"""Seconds for the gateway's first offer; it takes some milliseconds."""

# Addresses for documentation (RFC 5737): each client's own, so that the gateway's records tell them apart.
CLIENTS: Final = {f"192.0.2.{number}": kind for number, kind in enumerate(KINDS, 11)}


@final
class Story:
    """One run of the demo. `length` in seconds; equal seeds make equal choices."""

    def __init__(self, length: float, seed: int, port: int, paint: Paint) -> None:
        self._length = length
        self._seed = seed
        self._port = port
        self._paint = paint
        self._over = asyncio.Event()
        self._bell = asyncio.Event()
        self._offering = asyncio.Event()
        self._output_gone = False
        database = Database(Random(f"{seed}/database"))  # noqa: S311 - identifiers of a demo
        self._old, self._new = Server("api-1", database), Server("api-2", database)
        kinds = {address: kind.kind for address, kind in CLIENTS.items()}
        self._narrator = Narrator(SERVICE, kinds, paint, self._write)

    async def play(self) -> bool:
        """Everything, in order. True when nothing was lost. Raises `StartupError`, or `BrokenPipeError`
        when nobody reads what is printed."""
        async with AsyncExitStack() as stack:
            stack.enter_context(signals.handled(self._finish))
            for server, release in ((self._old, OLD), (self._new, NEW)):
                stack.push_async_callback(server.close)
                await server.start(release)
            gateway = await self._start_gateway(stack)
            await asyncio.wait_for(self._offering.wait(), LEARN_WITHIN)
            first = offered(gateway.cell.current.views[SERVICE])
            await self._clients_and_upgrade(gateway)
            last = offered(gateway.cell.current.views[SERVICE])
        self._narrator.close()
        lost = self._sum_up(first, last)
        if self._output_gone:
            raise BrokenPipeError
        return not lost

    # -- the gateway

    async def _start_gateway(self, stack: AsyncExitStack) -> Gateway:
        """The gateway on the wanted port, or where that is taken on any free one."""
        try:
            return await self._enter_gateway(stack, self._port)
        except StartupError as problem:
            if self._port == 0:
                raise
            complain(f"{problem}; taking a free port instead")
        return await self._enter_gateway(stack, 0)

    async def _enter_gateway(self, stack: AsyncExitStack, port: int) -> Gateway:
        text = files(__package__).joinpath("config.yaml").read_text(encoding="utf-8")
        interval = round(
            min(500.0, max(100.0, self._length * 25))
        )  # milliseconds: some forty probes in a run
        values = {
            "DEMO_PORT": str(port),
            "DEMO_INTERVAL": f"{interval}ms",
            "DEMO_API_1": str(self._old.port.number),
            "DEMO_API_2": str(self._new.port.number),
        }
        configured = settings.load(text, filename="demo", environ=values).require()
        gateway = Gateway(configured, listeners=[self._narrator.hear])
        self._narrator.follow(gateway.cell)
        gateway.cell.subscribe(self._narrator.changed)
        gateway.cell.subscribe(self._note_offer)
        self._introduce(text, values)
        await stack.enter_async_context(gateway)
        self._invite(gateway)
        return gateway

    def _note_offer(self, before: Snapshot, after: Snapshot) -> None:
        if after.views[SERVICE].offer.versions:
            self._offering.set()

    # -- clients and the upgrade

    async def _clients_and_upgrade(self, gateway: Gateway) -> None:
        host, port = gateway.addresses[0]
        url = f"http://{host}:{port}"
        clients: list[Client] = [
            kind(url, address, Random(f"{self._seed}/{kind.kind}"), self._narrator.tell)  # noqa: S311
            for address, kind in CLIENTS.items()
        ]
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run(self._turn))
            tasks.create_task(self._upgrade())
            await self._pause(self._length)
            self._finish()

    async def _pause(self, seconds: float) -> bool:
        """Wait; False when the demo is over."""
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _turn(self, seconds: float) -> bool:
        """A client's pause: as `_pause`, unless everybody is called to ask at once."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), seconds)
        return not self._over.is_set()

    def _finish(self) -> None:
        """The demo is over: nobody waits any more."""
        self._over.set()
        self._bell.set()

    async def _upgrade(self) -> None:
        """Stop the old server, bring it back as a new one."""
        say, server = self._narrator.say, self._old
        if not await self._pause(self._length * UPGRADE_AT):
            return
        await self._next_probe(server)
        say(f"Upgrade: {server.name} stops, its connections are refused. It ran {OLD.name}, 1.1-{OLD.text}.")
        await server.stop()
        await self._rush()
        await self._pause(min(LONGEST_DOWN, self._length * DOWN_FOR))
        await server.start(NEW)
        say(f"Upgrade: {server.name} is back with {NEW.name} and serves 1.1-{NEW.text} now.")

    async def _next_probe(self, server: Server) -> None:
        """Until the gateway has just asked: its next look is as far away as it can be."""
        server.asked_silently.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.asked_silently.wait(), LEARN_WITHIN)

    async def _rush(self) -> None:
        """Everybody asks while the gateway still believes that the stopped server is there: some requests
        meet it, find no connection and must be moved."""
        if not await self._pause(BEAT):
            return
        self._narrator.say("Everybody asks at once, before a probe can notice.", Style.DIM)
        for _ in range(RUSHES):
            self._bell.set()
            if not self._over.is_set():
                self._bell.clear()
            await self._pause(BEAT)

    # -- what is printed around it

    def _introduce(self, text: str, values: dict[str, str]) -> None:
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value)
        say = self._write
        say(
            self._paint(
                "skewgate demo: one gateway, one old and one new API server, five kinds of clients",
                Style.BOLD,
            )
        )
        say(f"({self._length:g} seconds, seed {self._seed}; Ctrl-C ends it earlier)\n")
        say("The configuration it runs:\n")
        say("\n".join(f"    {line}".rstrip() for line in text.splitlines()))
        say(f"\n  api-1  {OLD.name}: serves 1.1-{OLD.text}\n  api-2  {NEW.name}: serves 1.1-{NEW.text}")

    def _invite(self, gateway: Gateway) -> None:
        host, port = gateway.addresses[0]
        url = f"http://{host}:{port}"
        self._write(f"\n  gateway  {url}\n  admin    {gateway.admin_url}  (/status /metrics /explain)")
        self._write("  try it   curl -i -H '" + SERVED + f": latest' {url}/v1/nodes\n")

    def _sum_up(self, first: str, last: str) -> bool:
        """Print the sums; True when something was lost."""
        tally, say = self._narrator.tally, self._write
        misled = [f"{server.name} got {text}" for server in (self._old, self._new) for text in server.refused]
        refused = sum(tally.refused.values())
        failed = len(tally.faults)
        say(self._paint("\nSummary", Style.BOLD))
        served = tally.requests - refused - failed
        say(f"  requests   {tally.requests}: {served} served, {refused} refused, {failed} failed")
        say(f"  refused    {_counted(tally.refused, 'of')}")
        say(f"  backends   {_counted(tally.backends, 'by')}")
        say(f"  versions   {_counted(tally.versions, 'at')}")
        say(f"  moved      {tally.moved} to the other backend because the first could not take it")
        say(f"  misled     {', '.join(misled) or 'no backend was sent a version that it does not serve'}")
        say(f"  the offer  {first} at the start, {last} at the end")
        for fault in tally.faults[:MOST_FAULTS]:
            say(self._paint(f"  LOST       {fault}", Style.RED))
        lost = bool(tally.faults or misled)
        say(
            self._paint(
                "Something was lost." if lost else "Nothing was lost.", Style.RED if lost else Style.GREEN
            )
        )
        return lost

    def _write(self, text: str) -> None:
        """Print; without a reader the demo ends, but not in the middle of somebody's request."""
        if self._output_gone:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            self._output_gone = True
            self._finish()


def _counted(counts: Mapping[str, int], link: str) -> str:
    """`38 by api-1, 42 by api-2`; versions in their own order."""
    names = sorted(counts, key=lambda name: (len(name), name))
    return ", ".join(f"{counts[name]} {link} {name}" for name in names) or "none"
