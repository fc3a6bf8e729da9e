"""The gateway as a user starts it: `python -m gateway run -c FILE`, a process of its own.

What it does: writes the configuration file, starts the command, waits until it says that it is ready, and
reads its admin listener.

Rules: nothing of the gateway is imported; all that is known of it is what a user can see from outside.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.real.processes import LOOPBACK, Process, free_port

CHECKOUT = Path(__file__).resolve().parents[2]

SERVICE = "baremetal"

# Short, so that a backend that has come back is known to be back while a test waits for it.
PROBE_INTERVAL = "300ms"

Sample = tuple[str, frozenset[tuple[str, str]]]


class Gateway:
    """One gateway process in front of backends `{name: url}`; `offer` is the text of the offer's keys."""

    def __init__(
        self,
        name: str,
        folder: Path,
        backends: Mapping[str, str],
        offer: Mapping[str, str],
        *,
        service: str = SERVICE,
        dialect: Sequence[str] = ("dialect: ironic",),
    ) -> None:
        """`service` is the one service's name, `dialect` the configuration lines that say how it speaks."""
        folder.mkdir(parents=True)
        self.port = free_port()
        self.admin_port = free_port()
        self.file = folder / "gateway.yaml"
        self.file.write_text(_configuration(self.port, self.admin_port, backends, offer, service, dialect))
        command = [sys.executable, "-m", "gateway", "run", "-c", str(self.file)]
        surroundings = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
        self.process = Process(f"gateway-{name}", command, folder, surroundings)
        self._backends = set(backends)
        self._service = service

    def start(self) -> None:
        """Start it; return once it is ready and knows what every backend serves."""
        self.process.start()
        self.process.wait_until(self.is_ready, "ready (/readyz 200)")
        self.process.wait_until(self.knows_all, "told by /status what every backend serves")

    def is_ready(self) -> bool:
        try:
            status, _ = self.admin("/readyz")
        except OSError:
            return False
        return status == 200

    def knows_all(self) -> bool:
        """True when every backend has an advert and its last probe answered."""
        backends = self.service()["backends"]
        assert set(backends) == self._backends, f"/status lists {sorted(backends)}"
        return all(one["standing"] == "fresh" and one["max"] is not None for one in backends.values())

    def admin(self, target: str) -> tuple[int, str]:
        """GET this from the admin listener: the status and the text."""
        connection = http.client.HTTPConnection(LOOPBACK, self.admin_port, timeout=10)
        try:
            connection.request("GET", target)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def service(self) -> dict[str, Any]:
        """What /status says of the one service."""
        status, text = self.admin("/status")
        assert status == 200, f"/status answered {status}: {text}"
        found: dict[str, Any] = json.loads(text)["services"][self._service]
        return found

    def explain(self, method: str, path: str, *headers: str) -> dict[str, Any]:
        """What /explain says would happen to this request (`headers`: each `Name: value`)."""
        query = [("method", method), ("path", path), *(("header", header) for header in headers)]
        status, text = self.admin(f"/explain?{urllib.parse.urlencode(query)}")
        assert status == 200, f"/explain answered {status}: {text}"
        found: dict[str, Any] = json.loads(text)
        return found

    def metrics(self) -> Metrics:
        status, text = self.admin("/metrics")
        assert status == 200, f"/metrics answered {status}: {text}"
        return Metrics(text)


class Metrics:
    """One reading of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples: dict[Sample, float] = {}
        for name, labels, value in re.findall(r"^([a-z_:]+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
            pairs = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
            self._samples[name, pairs] = float(value)

    def value(self, metric: str, **labels: str) -> float | None:
        """The sample with exactly these labels; None when there is no such series."""
        return self._samples.get((metric, frozenset(labels.items())))

    def total(self, metric: str, **labels: str) -> float:
        """The sum over all samples of this name that have at least these labels."""
        wanted = set(labels.items())
        return sum(value for (name, has), value in self._samples.items() if name == metric and wanted <= has)

    def labels(self, metric: str) -> list[dict[str, str]]:
        """The label sets of every series of this name."""
        return [dict(has) for name, has in self._samples if name == metric]


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
