"""What the bench asks the admin listener of a gateway: whether it is ready, what runs, what it counted."""

import json
import re
import time
import urllib.request

from bench.processes import BenchError, Child

#: A scrape of an old gateway with 1,000 backends takes half a minute.
SECONDS = 60


def _read(name: str, port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as response:
            text: str = response.read().decode()
    except OSError as error:
        raise BenchError(f"{name}: {path} of its admin listener: {error}") from error
    return text


def wait_until_probed(child: Child, port: int, seconds: float) -> None:
    """Wait until the first round of probes is over: each backend is known."""
    deadline = time.monotonic() + seconds
    while True:
        services = json.loads(_read(child.name, port, "/status"))["services"].values()
        backends = [backend for service in services for backend in service["backends"].values()]
        unknown = sum(backend["freshness"] == "unknown" for backend in backends)
        if not unknown:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{child.name}: {unknown} backends are not known after {seconds:.0f} s")
        time.sleep(0.2)


def metrics(name: str, port: int) -> str:
    """Their cost is part of the measurement; that of reading them is not."""
    return _read(name, port, "/metrics")


def build_info(text: str) -> dict[str, str]:
    """The labels of skewgate_build_info."""
    line = next((line for line in text.splitlines() if line.startswith("skewgate_build_info{")), "")
    return dict(re.findall(r'(\w+)="([^"]*)"', line))


def check_loop(name: str, text: str, wanted: str) -> None:
    """The gateway runs on the event loop that the report names."""
    found = build_info(text).get("loop")
    if found != wanted:
        raise BenchError(f"{name}: its metrics show the event loop {found}, not {wanted}")


def requests_counted(text: str) -> int:
    """The sum of skewgate_requests_total over all its labels."""
    lines = (line for line in text.splitlines() if line.startswith("skewgate_requests_total{"))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def connections_by_worker(name: str, port: int) -> list[int]:
    """Client connections of each worker at this moment."""
    return [worker["connections"] for worker in json.loads(_read(name, port, "/status"))["workers"]]
