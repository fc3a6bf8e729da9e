"""The gateway as a process, as a user starts it: `python -m gateway run -c FILE`.

What it does: it writes the configuration file, starts the command, waits until the gateway is ready, and
reads its admin listener.

Rules: it imports nothing of the gateway and uses only what a user can see.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit.metrics import Scrape
from tests.kit.networks import LOOPBACK, free_port
from tests.real.processes import Process, send

CHECKOUT = Path(__file__).resolve().parents[2]

SERVICE = "baremetal"

# Short, because tests wait for the gateway to notice that a backend is back.
PROBE_INTERVAL = "300ms"


class Gateway:
    """One gateway process in front of backends `{name: url}`. `offer`: the keys of the section `offer`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        backends: Mapping[str, str],
        offer: Mapping[str, str],
        *,
        service: str = SERVICE,
        dialect: Sequence[str] = ("dialect: ironic",),
        state: bool = False,
    ) -> None:
        """`service`: the name of the one service. `dialect`: its configuration lines for the dialect.
        `state`: it has a state file, as `take_over` needs it."""
        folder.mkdir(parents=True)
        self.port = free_port()
        self.admin_port = free_port()
        self.file = folder / "gateway.yaml"
        text = _configuration(self.port, self.admin_port, backends, offer, service, dialect)
        self.file.write_text(f"state: {folder / 'state.json'}\n{text}" if state else text)
        self._name = name
        self.verb: Sequence[str] = ("run",)
        self.process = self._process()
        self._backends = set(backends)
        self._service = service

    def configure(self, lines: str, verb: Sequence[str] = ("run",)) -> None:
        """Add lines to the configuration, and start it by another verb."""
        self.file.write_text(f"{lines}\n{self.file.read_text()}")
        self.verb = verb
        self.process = self._process()

    def start(self) -> None:
        """Start it. Return when it is ready and knows what every backend serves."""
        self.process.start()
        self.process.wait_until(self.is_ready, "ready (/readyz 200)")
        self.process.wait_until(self.knows_all, "aware of what every backend serves (/status)")

    def take_over(self) -> None:
        """Replace it by another process with `--take-over`. Return when the one before has ended well."""
        before, self.process = self.process, self._process("--take-over")
        self.process.start()
        before.wait_until(lambda: not before.is_running, "replaced")
        assert before.stop() == 0, before.log_tail()
        self.process.wait_until(self.is_ready, "ready (/readyz 200)")

    def _process(self, *more: str) -> Process:
        command = [sys.executable, "-m", "gateway", *self.verb, "-c", str(self.file), *more]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
        return Process(f"gateway-{self._name}", command, self.file.parent, environment)

    def is_ready(self) -> bool:
        try:
            status, _ = self.admin("/readyz")
        except OSError:
            return False
        return status == 200

    def knows_all(self) -> bool:
        """True when every backend has an advertisement and its last probe succeeded."""
        backends = self.service()["backends"]
        assert set(backends) == self._backends, f"/status lists {sorted(backends)}"
        return all(
            backend["freshness"] == "fresh" and backend["max"] is not None for backend in backends.values()
        )

    def admin(self, target: str) -> tuple[int, str]:
        """GET this target from the admin listener. Return status and text."""
        response = send(self.admin_port, target)
        return response.status, response.body.decode()

    def service(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._shown("/status"))["services"][self._service]
        return found

    def explain(self, method: str, path: str, *headers: str) -> dict[str, Any]:
        """The decision about this request, from /explain. `headers`: each `Name: value`."""
        query = [("method", method), ("path", path), *(("header", header) for header in headers)]
        found: dict[str, Any] = json.loads(self._shown(f"/explain?{urllib.parse.urlencode(query)}"))
        return found

    def metrics(self) -> Scrape:
        return Scrape(self._shown("/metrics"))

    def _shown(self, target: str) -> str:
        status, text = self.admin(target)
        assert status == 200, f"{target} responded {status}: {text}"
        return text


def _configuration(
    port: int,
    admin_port: int,
    backends: Mapping[str, str],
    offer: Mapping[str, str],
    service: str,
    dialect: Sequence[str],
) -> str:
    lines = [
        f"listen: {LOOPBACK}:{port}",
        "admin:",
        f"  listen: {LOOPBACK}:{admin_port}",
        "services:",
        f"  {service}:",
        *(f"    {line}" for line in dialect),
        "    probe:",
        f"      interval: {PROBE_INTERVAL}",
        "      timeout: 5s",
        "    offer:",
        *(f"      {key}: {value}" for key, value in offer.items()),
        "    backends:",
    ]
    for name, url in backends.items():
        lines += [f"      - name: {name}", f"        url: {url}"]
    return "\n".join(lines) + "\n"
