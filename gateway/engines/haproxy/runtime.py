"""Client for the runtime socket of HAProxy: process info, maps, and states of servers.

One connection is one conversation with one process: after a reload, a connection that was open before still
reaches the earlier process. A caller therefore opens one, asks which process it is (`info`), and does all
that belongs together in it. Knows no table and no snapshot.
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, final

OLDEST: Final = (2, 6)
"""Oldest tested release with the map commands that are used here."""
TIMEOUT: Final = 5.0
"""Time limit of one answer of HAProxy in seconds. It takes a millisecond, unless the process stands still."""
CHUNK: Final = 7000
"""Size of one `add map` in bytes: less than half of the default `tune.bufsize`, which must hold all of it."""
MAX_ANSWER: Final = 16 * 1024 * 1024
"""Largest answer of HAProxy in bytes: the states of a hundred thousand servers."""
_PROMPT: Final = b"\n> "
_OPEN: Final = ("scur", "qcur")
"""Columns of `show stat` that count requests: sent to a server, or waiting for it."""
_SERVERS: Final = 4
"""Type argument of `show stat` for servers: neither frontends nor whole backends."""
_CREATED: Final = re.compile(r"New version created: (\d+)")


class RuntimeProblem(Exception):
    """Error: HAProxy cannot be brought up to date. The text is a sentence for the operator."""


@final
class NobodyListens(RuntimeProblem):
    """Error: HAProxy's socket exists, and no process listens."""


@final
class Info(NamedTuple):
    """Description of the HAProxy process that has the socket."""

    pid: int
    release: str
    uptime: int
    """Seconds since the start of the HAProxy process."""


@final
class Conversation:
    """Connection to the runtime socket of one HAProxy process. Every method raises `RuntimeProblem`."""

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer

    async def command(self, text: str) -> str:
        """Send a command to HAProxy and return the answer without the prompt."""
        try:
            async with asyncio.timeout(TIMEOUT):
                self._writer.write(text.encode("utf-8") + b"\n")
                await self._writer.drain()
                answer = await self._reader.readuntil(_PROMPT)
        except TimeoutError:
            raise RuntimeProblem(f"HAProxy has not answered at {self._path} for {TIMEOUT:g} s") from None
        except (OSError, asyncio.IncompleteReadError):
            raise RuntimeProblem(f"HAProxy has closed the connection at {self._path}") from None
        except asyncio.LimitOverrunError:
            raise RuntimeProblem(f"the answer of HAProxy at {self._path} is too long") from None
        return answer.decode("utf-8", "replace").strip(" \n>+")

    async def info(self) -> Info:
        """Identify the HAProxy process at the socket, and check its release and our rights."""
        text = await self.command("show info")
        found = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        release = found.get("Version", "")
        numbers = re.match(r"(\d+)\.(\d+)", release)
        if found.get("Name") != "HAProxy" or numbers is None or not found.get("Pid", "").isdigit():
            raise RuntimeProblem(f"the process at {self._path} is not HAProxy")
        if (int(numbers[1]), int(numbers[2])) < OLDEST:
            raise RuntimeProblem(f"HAProxy {release} is too old: use 2.6 or newer")
        level = await self.command("show cli level")
        if level != "admin":
            raise RuntimeProblem(
                f"the socket {self._path} has the level `{level[:20]}`: add `level admin` to `stats socket`"
            )
        uptime = found.get("Uptime_sec", "")
        return Info(int(found["Pid"]), release, int(uptime) if uptime.isdigit() else 0)

    async def replace_map(self, path: str, lines: Iterable[str]) -> None:
        """Replace all lines of a map in HAProxy atomically."""
        answer = await self.command(f"prepare map {path}")
        created = _CREATED.match(answer)
        if created is None:
            raise RuntimeProblem(
                f"HAProxy has no map {path}: its configuration must name it ({_short(answer)})"
            )
        version = created[1]
        for chunk in chunks(lines):
            if answer := await self.command(f"add map @{version} {path} <<\n{chunk}"):
                await self.command(f"clear map @{version} {path}")
                raise RuntimeProblem(f"HAProxy refused the lines of {path}: {_short(answer)}")
        if answer := await self.command(f"commit map @{version} {path}"):
            raise RuntimeProblem(f"HAProxy did not commit {path}: {_short(answer)}")

    async def servers(self) -> Mapping[str, Mapping[str, bool]]:
        """Return whether each server gets requests, by backend and server. An operator of HAProxy may have
        forced another state, which `set_server` replaces."""
        answer = await self.command("show servers state")
        found: dict[str, dict[str, bool]] = {}
        for line in answer.splitlines():
            fields = line.split()
            if len(fields) > 6 and not line.startswith("#") and fields[6].isdigit():
                found.setdefault(fields[1], {})[fields[3]] = int(fields[6]) == 0
        return found

    async def requests(self) -> Mapping[str, Mapping[str, int]]:
        """Count the requests of each server of HAProxy, sent or queued, by backend and server."""
        answer = await self.command(f"show stat -1 {_SERVERS} -1")
        found: dict[str, dict[str, int]] = {}
        rows = csv.DictReader(answer.removeprefix("# ").splitlines())
        try:
            if not {*_OPEN, "pxname", "svname"} <= set(rows.fieldnames or ()):
                raise ValueError("these are no servers")
            for row in rows:
                found.setdefault(row["pxname"], {})[row["svname"]] = sum(int(row[name]) for name in _OPEN)
        except (TypeError, ValueError):
            raise RuntimeProblem(f"HAProxy did not report its requests: {_short(answer)}") from None
        return found

    async def set_server(self, backend: str, server: str, *, usable: bool) -> None:
        """Set whether a server of HAProxy gets new requests."""
        state = "ready" if usable else "drain"
        if answer := await self.command(f"set server {backend}/{server} state {state}"):
            raise RuntimeProblem(f"HAProxy did not set {backend}/{server} to `{state}`: {_short(answer)}")


@asynccontextmanager
async def conversation(path: str) -> AsyncIterator[Conversation]:
    """Connect to the HAProxy process that has the socket now. Raises `RuntimeProblem`."""
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
    except FileNotFoundError:
        raise RuntimeProblem(f"there is no socket {path}: `stats socket` of HAProxy must name it") from None
    except PermissionError:
        raise RuntimeProblem(f"the socket {path} may not be opened by this user") from None
    except ConnectionRefusedError:
        raise _nobody(path) from None
    except (OSError, TimeoutError) as error:
        raise RuntimeProblem(
            f"the socket {path} cannot be opened: {str(error) or 'it takes too long'}"
        ) from None
    try:
        talk = Conversation(path, reader, writer)
        await talk.command("prompt")
        yield talk
    finally:
        writer.transport.abort()


def _nobody(path: str) -> RuntimeProblem:
    """Describe a refused connection to HAProxy. Without a socket it may still serve, at another one."""
    if Path(path).is_socket():
        return NobodyListens(f"nobody listens at {path}: HAProxy does not run")
    return RuntimeProblem(f"{path} is no socket: `stats socket` of HAProxy must name it")


def chunks(lines: Iterable[str]) -> Iterator[str]:
    """Split lines into payloads for HAProxy's `add map`."""
    part: list[str] = []
    size = 0
    for line in lines:
        length = len(line.encode("utf-8")) + 1
        if size + length > CHUNK and part:
            yield "".join(part)
            part, size = [], 0
        part.append(f"{line}\n")
        size += length
    if part:
        yield "".join(part)


def _short(answer: str) -> str:
    return repr(answer[:100])
