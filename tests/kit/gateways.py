"""A whole gateway: in the loop of the test, assembled as by `run`, or as a process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from gateway.assembly import Gateway
from gateway.settings import load
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.processes import finish, start


@asynccontextmanager
async def gateway_of(
    text: str, *, source: Path | None = None, environ: Mapping[str, str] | None = None, **parts: Any
) -> AsyncIterator[Gateway]:
    """One that runs with this configuration. `source`: the file that a reload reads; `parts`: further
    arguments of `Gateway`."""
    configured = load(text, filename="test.yaml", environ=environ or {}).require()
    async with Gateway(configured, source=source, **parts) as gateway:
        yield gateway


class GatewayProcess:
    """One process after the other with the same ports, files and database, which a test freezes and ends."""

    def __init__(self, folder: Path, name: str = "gateway") -> None:
        folder.mkdir(exist_ok=True)
        self.port, self.admin_port = free_port(), free_port()
        self.file, self.state = folder / f"{name}.yaml", folder / f"{name}.json"
        self.process: asyncio.subprocess.Process | None = None
        self._log = folder / f"{name}.log"

    @property
    def url(self) -> str:
        """Where clients are served."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def admin(self) -> str:
        return f"http://{LOOPBACK}:{self.admin_port}"

    @property
    def log(self) -> str:
        """What it has said on standard error."""
        return self._log.read_text(encoding="utf-8")

    def configure(self, text: str, admin: str = "") -> None:
        """Write the configuration, which a running gateway may read. `admin`: more keys of that section."""
        written = self.file.with_suffix(".new")
        written.write_text(
            f"listen: {LOOPBACK}:{self.port}\nadmin: {{listen: '{LOOPBACK}:{self.admin_port}'{admin}}}\n"
            f"access_log: {{format: off}}\nstate: {self.state}\n{text}",
            encoding="utf-8",
        )
        written.replace(self.file)

    async def start(self, *arguments: str, within: Sequence[str] = (), **environ: str) -> None:
        """Start a process, without waiting for anything. `within`: a command that starts it elsewhere."""
        with self._log.open("ab") as log:
            run = ("run", "-c", str(self.file), *arguments)
            self.process = await start(*run, stderr=log, within=within, **environ)

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def freeze(self) -> None:
        """From now on it does nothing, and its connections stay."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await self.process.wait()

    async def end(self) -> None:
        """End it in order."""
        assert self.process is not None
        self.signal(signal.SIGTERM)
        assert (await finish(self.process)).code == 0, self.log
