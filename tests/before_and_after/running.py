"""One gateway of a checkout as a process, what clients and operators send to it, and when it rests.

Nothing waits for time to pass: each step ends with a condition that the gateway itself shows.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

import aiohttp

from tests.before_and_after.checkout import Checkout
from tests.before_and_after.servers import LOOPBACK, PATIENCE, PLAIN
from tests.kit.messages import Message, read_message

PAUSE: Final = 0.02
TOKEN: Final = "a-token-of-some-length"

_REQUEST_ID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_DATE: Final = re.compile(r"(?im)^(date): .*$")
_SAMPLE: Final = re.compile(r"(?m)^(\w+)(?:\{(.*)\})? (\S+)$")

FORMS: Final = {
    "text": "text/plain;version=0.0.4",
    "text 1.0": "text/plain;version=1.0.0",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
}
"""What a scraper accepts, by the form that it gets."""


@final
class Wire:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_open = True

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self, method: str) -> Message:
        return await read_message(self.reader, response_to=method)

    async def rest(self) -> bytes:
        """What comes until the gateway closes the connection."""
        found = b""
        try:
            async with asyncio.timeout(PATIENCE):
                while data := await self.reader.read(1 << 16):
                    found += data
        except ConnectionError:
            pass  # whether the end or a reset is seen first depends on chance
        return found

    async def close(self) -> None:
        self.is_open = False
        self.writer.close()
        with suppress(OSError):  # the gateway was first
            await self.writer.wait_closed()


@final
class Running:
    """A gateway that runs. `ports`: where it listens; `transcript`: every response, with what changes from
    run to run masked. Of several workers, each has the requests of its own services, so that the order in
    which things are counted is the same in each run."""

    def __init__(
        self, process: asyncio.subprocess.Process, ports: Mapping[str, int], log: Path, workers: int
    ) -> None:
        self.process = process
        self.ports = ports
        self.transcript: list[str] = []
        self.workers = workers
        self._log = log
        self._wires: list[Wire] = []
        self._by_slot: dict[int, Wire] = {}
        self._operator = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), trust_env=False)
        self._scraper = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), trust_env=False)

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()
        await self._operator.close()
        await self._scraper.close()

    # --- clients --------------------------------------------------------------------------------------------

    async def connect(self, listener: str = "plain", **options: Any) -> Wire:
        async with asyncio.timeout(PATIENCE):
            wire = Wire(*await asyncio.open_connection(LOOPBACK, self.ports[listener], **options))
        self._wires.append(wire)
        return wire

    async def ask(
        self, target: str, *lines: str, method: str = "GET", body: bytes = b"", wire: Wire | None = None
    ) -> Message:
        """Send a request, and write down the response. Without `wire` on a connection of its own, or on the
        one to the worker of its service."""
        own = wire or await self.wire_for(target)
        await own.send(head(target, *lines, method=method, body=body))
        close = wire is None and self.workers == 1
        response = await self.answer(own, f"{method} {target} {' '.join(lines)}", method, close=close)
        if self.workers > 1 and "close" in response.every("connection"):
            await own.close()
            self._by_slot = {slot: each for slot, each in self._by_slot.items() if each is not own}
        return response

    async def wire_for(self, target: str, *, kept: bool = True) -> Wire:
        """A connection to the worker that has the requests of the service. `kept`: for further ones."""
        if self.workers == 1:
            return await self.connect()
        slot = len(target.split("/")[1]) % self.workers
        if kept and slot in self._by_slot:
            return self._by_slot[slot]
        wire = await self._connect_to(slot)
        if kept:
            self._by_slot[slot] = wire
        return wire

    async def _connect_to(self, slot: int) -> Wire:
        """Open connections until one is at this worker; the others are closed."""
        others = []
        while True:
            before = await self._connections()
            wire = await self.connect()
            after = await self._connections()
            if after[slot] > before[slot]:
                break
            others.append(wire)
        for other in others:
            await other.close()
        await self._connections()
        return wire

    async def _connections(self) -> dict[int, int]:
        """Connections by slot, once the workers have all that are open here, and no others."""
        found: dict[int, int] = {}

        def has_all(status: Mapping[str, Any]) -> bool:
            found.update({each["slot"]: each["connections"] for each in status["workers"]})
            return sum(found.values()) == sum(wire.is_open for wire in self._wires)

        await self.until("the workers have the connections that are open here", has_all)
        return found

    async def answer(self, wire: Wire, label: str, method: str = "GET", *, close: bool = True) -> Message:
        """Write the response down that comes on `wire`."""
        response = await wire.response(method)
        self.note(label, response.head + response.body)
        if close:
            await wire.close()
        if self.workers > 1:
            await self.counted()
        return response

    async def broken(self, label: str, data: bytes, listener: str = "plain", *, shown: bool = True) -> None:
        """Send bytes that may be anything, and write down what comes until the connection is closed. `shown`:
        False where a reset may come before it is read."""
        wire = await self.connect(listener)
        await wire.send(data)
        rest = await wire.rest()
        self.note(label, rest if shown else b"")
        await wire.close()

    def note(self, label: str, data: bytes) -> None:
        text = data.decode("latin-1").replace("\r\n", "\n")
        self.transcript.append(f"> {label}\n{_DATE.sub(_MASK, _REQUEST_ID.sub('~', text))}")

    # --- operators ------------------------------------------------------------------------------------------

    async def operate(self, method: str, path: str, body: object = None, *, token: str | None = TOKEN) -> str:
        """A request to the admin listener. Its response, apart from the status that follows a command, is
        written down."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body)
        url = f"http://{LOOPBACK}:{self.ports['admin']}{path}"
        async with self._operator.request(method, url, headers=headers, data=data) as response:
            text = await response.text()
            shown = text if response.status >= 400 else ""
            self.transcript.append(f"> {method} {path}\n{response.status} {shown}")
            return text

    async def status_text(self) -> str:
        url = f"http://{LOOPBACK}:{self.ports['admin']}/status"
        async with self._operator.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            return await response.text()

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.status_text())
        return found

    async def scrape(self, form: str = "text") -> str:
        """The content type of /metrics, and its text."""
        url = f"http://{LOOPBACK}:{self.ports['metrics']}/metrics"
        async with self._scraper.get(url, headers={"Accept": FORMS[form]}) as response:
            return f"{response.status} {response.headers['Content-Type']}\n{await response.text()}"

    async def counted(self) -> None:
        """Have the workers say what they have counted: new series come in the order of the requests."""
        url = f"http://{LOOPBACK}:{self.ports['metrics']}/metrics"
        async with self._scraper.head(url) as response:
            assert response.status == 200

    async def value(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series with these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(found[3])
            for found in _SAMPLE.finditer(await self.scrape())
            if found[1] == name and all(each in (found[2] or "") for each in wanted)
        )

    # --- conditions -----------------------------------------------------------------------------------------

    async def until(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until `holds` is true of the status."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds(await self.status()):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise self.failure(f"never happened: {what}") from None

    async def until_value(self, value: float, name: str, **labels: str) -> None:
        """Wait until a metric has this value."""
        found = None
        try:
            async with asyncio.timeout(PATIENCE):
                while (found := await self.value(name, **labels)) != value:  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise self.failure(f"{name} of {labels} is {found}, not {value}") from None

    async def until_any(self, name: str, **labels: str) -> None:
        """Wait until a metric is not zero."""
        async with asyncio.timeout(PATIENCE):
            while not await self.value(name, **labels):  # noqa: ASYNC110 - another process
                await asyncio.sleep(PAUSE)

    async def has_all_clients(self) -> None:
        """Wait until the gateway has the connections that are open here, and no others."""
        await self.until_value(sum(wire.is_open for wire in self._wires), "skewgate_client_connections")

    async def rests(self) -> None:
        """Wait until every client connection of ours is closed, and nothing is under way."""
        for wire in self._wires:
            await wire.close()
        self._wires.clear()
        self._by_slot.clear()
        for name in ("requests_in_flight", "tunnels_open", "client_connections", "tls_handshakes_active"):
            await self.until_value(0, f"skewgate_{name}")
        await self.until_value(0, "skewgate_queue_length")
        await self.until_value(0, "skewgate_backend_connections", state="active")
        await self.until_value(1, "skewgate_admin_connections", listener="admin")

    def failure(self, text: str) -> RuntimeError:
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return RuntimeError(f"{text}\nThe log of the gateway:\n{log[-5000:]}")


_MASK: Final = r"\1: ~"


def head(target: str, *lines: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request. Lines such as `host: x` replace those that it has by default."""
    own = [f"{method} {target} HTTP/1.1"]
    own += [] if any(line.lower().startswith("host:") for line in lines) else ["Host: api.example.org"]
    own += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join((*own, *lines, "", "")).encode("latin-1") + body


def at(version: str) -> str:
    """The field by which the services of the dialect `custom` here read a version."""
    return f"{PLAIN}: {version}"


def do(what: str) -> str:
    """The field that scripts a server."""
    return f"X-Do: {what}"


@asynccontextmanager
async def running(
    checkout: Checkout, folder: Path, file: Path, ports: Mapping[str, int], workers: int
) -> AsyncIterator[Running]:
    """The gateway of a checkout, with the configuration `file`, from its readiness to its end."""
    log = folder / f"{checkout.side}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *checkout.python("-m", "gateway", "run", file),
            cwd=checkout.root,
            env=checkout.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    gateway = Running(process, ports, log, workers)
    try:
        await _listens(gateway)
        yield gateway
    finally:
        await gateway.close()
        await _stop(process)


async def _listens(gateway: Running) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                if gateway.process.returncode is not None:
                    raise gateway.failure(f"the gateway has ended with {gateway.process.returncode}")
                with suppress(aiohttp.ClientConnectionError):
                    await gateway.scrape()
                    return
                await asyncio.sleep(PAUSE)
    except TimeoutError:
        raise gateway.failure("the gateway does not listen") from None


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
