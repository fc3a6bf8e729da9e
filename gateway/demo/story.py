"""The course of the demonstration: two servers start, the gateway learns their versions, clients send
requests, and the old server is upgraded.

This module connects servers, gateway, clients and narrator, and decides when each event happens. `narration`
decides what is printed about requests and about the fleet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from importlib.resources import files
from random import Random
from typing import Final, final

from gateway import process, settings
from gateway.assembly import Gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.demo.clients import KINDS, Client
from gateway.demo.fleet import NEW, OLD, SERVED, Database, Server
from gateway.demo.narration import Narrator, offer_text
from gateway.errors import StartupError
from gateway.terminal import Paint, Style, print_error

SERVICE: Final = "baremetal"
UPGRADE_AT: Final = 0.35
"""Share of the whole time: before it the fleet is mixed, after it the old server is upgraded."""
DOWN_FOR: Final = 0.15
"""Share of the whole time for which the server is down."""
MAX_DOWN: Final = 3.0
"""Seconds for which the server is down at most."""
BURSTS: Final = 2
"""How often all clients send requests at once while the gateway does not know that the server is down."""
BURST_TIME: Final = 0.03
"""Seconds for the requests in flight to end: they take milliseconds, and a probe comes much later."""
MAX_FAULTS: Final = 10
"""Lost requests that the summary lists. Their number is always complete."""
LEARN_WITHIN: Final = 10.0
"""Seconds for the gateway's first offer. It takes milliseconds."""

USUAL_ADMIN_PORT: Final = settings.AdminSettings().port
"""Where the verbs look for a gateway, so that `skewgate status` beside the demonstration finds it."""

# Documentation addresses (RFC 5737), one for each client, so that the gateway's records can be assigned.
CLIENTS: Final = {f"192.0.2.{number}": kind for number, kind in enumerate(KINDS, 11)}


@final
class Story:
    """One run of the demonstration. `length` is in seconds. Equal seeds give equal choices."""

    def __init__(
        self, length: float, seed: int, port: int, paint: Paint, admin_port: int = USUAL_ADMIN_PORT
    ) -> None:
        self._length = length
        self._seed = seed
        self._port = port
        self._admin_port = admin_port
        self._paint = paint
        self._over = asyncio.Event()
        self._burst = asyncio.Event()
        self._offered = asyncio.Event()
        self._output_closed = False
        database = Database(Random(f"{seed}/database"))  # noqa: S311 - identifiers of a demonstration
        self._old, self._new = Server("api-1", database), Server("api-2", database)
        kinds = {address: kind.kind for address, kind in CLIENTS.items()}
        self._narrator = Narrator(SERVICE, kinds, paint, self._write)

    async def play(self) -> bool:
        """Run everything in order. True when no request was lost. Raises `StartupError`, or `BrokenPipeError`
        when the reader of the output has closed it."""
        async with AsyncExitStack() as stack:
            stack.enter_context(process.handle_signals(self._finish))
            for server, release in ((self._old, OLD), (self._new, NEW)):
                stack.push_async_callback(server.close)
                await server.start(release)
            gateway = await self._start_gateway(stack)
            await asyncio.wait_for(self._offered.wait(), LEARN_WITHIN)
            first = offer_text(gateway.snapshot_holder.current.views[SERVICE])
            await self._clients_and_upgrade(gateway)
            last = offer_text(gateway.snapshot_holder.current.views[SERVICE])
        self._narrator.close()
        lost = self._print_summary(first, last)
        if self._output_closed:
            raise BrokenPipeError
        return not lost

    # -- the gateway

    async def _start_gateway(self, stack: AsyncExitStack) -> Gateway:
        """Start the gateway on the wanted port, or on any free port when that one is taken. The same for the
        admin listener, but nobody has asked for its usual port, so nothing is said."""
        admin_port = self._admin_port if _is_free(self._admin_port) else 0
        try:
            return await self._enter_gateway(stack, self._port, admin_port)
        except StartupError as problem:
            if self._port == admin_port == 0:
                raise
            if self._port:
                print_error(f"{problem}; a free port is used instead")
        return await self._enter_gateway(stack, 0, 0)

    async def _enter_gateway(self, stack: AsyncExitStack, port: int, admin_port: int) -> Gateway:
        text = files(__package__).joinpath("config.yaml").read_text(encoding="utf-8")
        # Milliseconds between probes: about forty probes in one run.
        interval = round(min(500.0, max(100.0, self._length * 25)))
        values = {
            "DEMO_PORT": str(port),
            "DEMO_ADMIN_PORT": str(admin_port),
            "DEMO_INTERVAL": f"{interval}ms",
            "DEMO_API_1": str(self._old.port.number),
            "DEMO_API_2": str(self._new.port.number),
        }
        configured = settings.load(text, filename="demo", environ=values).require()
        gateway = Gateway(configured, listeners=[self._narrator.on_request_record])
        self._narrator.follow(gateway.snapshot_holder)
        gateway.snapshot_holder.subscribe(self._narrator.on_snapshot)
        gateway.snapshot_holder.subscribe(self._notice_offer)
        self._print_introduction(text, values)
        await stack.enter_async_context(gateway)
        self._print_addresses(gateway)
        return gateway

    def _notice_offer(self, before: Snapshot, after: Snapshot) -> None:
        if after.views[SERVICE].offer.versions:
            self._offered.set()

    # -- clients and the upgrade

    async def _clients_and_upgrade(self, gateway: Gateway) -> None:
        host, port = gateway.addresses[0]
        url = f"http://{host}:{port}"
        clients: list[Client] = [
            kind(url, address, Random(f"{self._seed}/{kind.kind}"), self._narrator.on_client_record)  # noqa: S311
            for address, kind in CLIENTS.items()
        ]
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run(self._client_pause))
            tasks.create_task(self._upgrade())
            await self._pause(self._length)
            self._finish()

    async def _pause(self, seconds: float) -> bool:
        """Wait. False when the demonstration is over."""
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _client_pause(self, seconds: float) -> bool:
        """A client's pause: like `_pause`, but a burst ends it."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._burst.wait(), seconds)
        return not self._over.is_set()

    def _finish(self) -> None:
        """End the demonstration and every pause."""
        self._over.set()
        self._burst.set()

    async def _upgrade(self) -> None:
        """Stop the old server and start it again with the new release."""
        announce, server = self._narrator.announce, self._old
        if not await self._pause(self._length * UPGRADE_AT):
            return
        await self._next_probe(server)
        announce(
            f"Upgrade: {server.name} stops, its connections are refused. It ran {OLD.name}, 1.1-{OLD.text}."
        )
        await server.stop()
        await self._send_bursts()
        await self._pause(min(MAX_DOWN, self._length * DOWN_FOR))
        await server.start(NEW)
        announce(f"Upgrade: {server.name} is back with {NEW.name} and serves 1.1-{NEW.text} now.")

    async def _next_probe(self, server: Server) -> None:
        """Wait for a probe, so that the following one is as late as possible."""
        server.unversioned_request.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.unversioned_request.wait(), LEARN_WITHIN)

    async def _send_bursts(self) -> None:
        """All clients send requests while the gateway does not know that the server is down. For some of them
        it tries that server first, gets no connection, and uses the other backend."""
        if not await self._pause(BURST_TIME):
            return
        self._narrator.announce("All clients send requests at once, before the next probe.", Style.DIM)
        for _ in range(BURSTS):
            self._burst.set()
            if not self._over.is_set():
                self._burst.clear()
            await self._pause(BURST_TIME)

    # -- introduction and summary

    def _print_introduction(self, text: str, values: dict[str, str]) -> None:
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value)
        write = self._write
        write(
            self._paint(
                "skewgate demo: one gateway, one old and one new API server, five kinds of clients",
                Style.BOLD,
            )
        )
        write(f"({self._length:g} seconds, seed {self._seed}; Ctrl-C ends it earlier)\n")
        write("The configuration:\n")
        write("\n".join(f"    {line}".rstrip() for line in text.splitlines()))
        write(f"\n  api-1  {OLD.name}: serves 1.1-{OLD.text}\n  api-2  {NEW.name}: serves 1.1-{NEW.text}")

    def _print_addresses(self, gateway: Gateway) -> None:
        host, port = gateway.addresses[0]
        url = f"http://{host}:{port}"
        self._write(f"\n  gateway  {url}\n  admin    {gateway.admin_url}  (/status /metrics /explain)")
        where = "" if gateway.admin_url.endswith(f":{USUAL_ADMIN_PORT}") else f" --admin {gateway.admin_url}"
        self._write(f"  look     skewgate status{where}")
        self._write(f"  try it   curl -i -H '{SERVED}: latest' {url}/v1/nodes\n")

    def _print_summary(self, first: str, last: str) -> bool:
        """Print the sums. True when a request was lost or misrouted."""
        totals, write = self._narrator.totals, self._write
        misrouted = [
            f"{server.name} got {text}" for server in (self._old, self._new) for text in server.refused
        ]
        refused = sum(totals.refused.values())
        failed = len(totals.faults)
        served = totals.requests - refused - failed
        write(self._paint("\nSummary", Style.BOLD))
        write(f"  requests   {totals.requests}: {served} served, {refused} refused, {failed} failed")
        write(f"  refused    {_counted(totals.refused, 'of')}")
        write(f"  backends   {_counted(totals.backends, 'by')}")
        write(f"  versions   {_counted(totals.versions, 'at')}")
        write(f"  retried    {totals.retried} on the other backend, because the first could not be reached")
        write(f"  misrouted  {', '.join(misrouted) or 'no backend got a version that it does not serve'}")
        write(f"  the offer  {first} at the start, {last} at the end")
        for fault in totals.faults[:MAX_FAULTS]:
            write(self._paint(f"  LOST       {fault}", Style.RED))
        lost = bool(totals.faults or misrouted)
        sentence, style = ("Something was lost.", Style.RED) if lost else ("Nothing was lost.", Style.GREEN)
        write(self._paint(sentence, style))
        return lost

    def _write(self, text: str) -> None:
        """Print. Without a reader the demonstration ends, after the requests in flight."""
        if self._output_closed:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            self._output_closed = True
            self._finish()


def _counted(counts: Mapping[str, int], link: str) -> str:
    """`38 by api-1, 42 by api-2`; versions in their own order."""
    names = sorted(counts, key=lambda name: (len(name), name))
    return ", ".join(f"{counts[name]} {link} {name}" for name in names) or "none"


def _is_free(port: int) -> bool:
    """Whether one can listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the event loop does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
