"""The gateway is replaced under systemd, while requests come all the time: by itself (SIGUSR2), and by
`systemctl restart` with socket activation. None of them is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.tools import ROOT, Machine, machine_with_gateway

pytestmark = pytest.mark.packaging

CONFIGURATION = """\
listen: 127.0.0.1:80
state: /var/lib/skewgate/state.json
access_log: {format: off}
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://127.0.0.1:6385", versions: "1.1-1.90"}
"""
BACKEND = """\
import asyncio

HEAD = b"HTTP/1.1 200 OK\\r\\nX-OpenStack-Ironic-API-Version: 1.31\\r\\nContent-Length: 2\\r\\n\\r\\n{}"

async def serve(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            await asyncio.sleep(0.05)  # so that some requests are in flight at every moment
            writer.write(HEAD)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    writer.close()

async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", 6385) as server:
        await server.serve_forever()

asyncio.run(main())
"""
CLIENTS = """\
# 150 requests a second, each on a connection of its own, until the file `stop` is there.
import asyncio, collections, json, os, time

VERSION = b"X-OpenStack-Ironic-API-Version: 1.31\\r\\n"
REQUEST = b"GET /v1/nodes HTTP/1.1\\r\\nHost: a\\r\\n" + VERSION + b"Connection: close\\r\\n\\r\\n"
results, slowest = collections.Counter(), 0.0

async def ask():
    global slowest
    began = time.monotonic()
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", 80)
            writer.write(REQUEST)
            results[(await reader.read()).partition(b"\\r\\n")[0].decode()] += 1
            writer.close()
    except (OSError, TimeoutError) as error:
        results[repr(error)] += 1
    slowest = max(slowest, time.monotonic() - began)

async def main():
    due = time.monotonic()
    async with asyncio.TaskGroup() as group:
        while not os.path.exists("/root/stop"):
            group.create_task(ask())
            due += 1 / 150
            await asyncio.sleep(max(0, due - time.monotonic()))
            with open("/root/sent.new", "w") as file:
                file.write(str(sum(results.values())))
            os.rename("/root/sent.new", "/root/sent")

asyncio.run(main())
with open("/root/results.new", "w") as file:
    json.dump({"results": results, "slowest": slowest}, file)
os.rename("/root/results.new", "/root/results")
"""
PYTHON = "/opt/skewgate/bin/python"
SERVED = "HTTP/1.1 200 OK"


@pytest.fixture(scope="module")
def machine(wheel: Path) -> Iterator[Machine]:
    """With the gateway in /opt, its unit, and a backend."""
    with machine_with_gateway(wheel, CONFIGURATION) as machine:
        machine.write("/root/backend.py", BACKEND)
        machine.write("/root/clients.py", CLIENTS)
        machine.copy(ROOT / "deploy" / "skewgate.service", "/etc/systemd/system/skewgate.service")
        socket = (ROOT / "deploy" / "skewgate.socket").read_text().replace("0.0.0.0:8080", "127.0.0.1:80")
        machine.write("/etc/systemd/system/skewgate.socket", socket)
        # A watchdog that is missed for this long ends the process: whoever is MAINPID must feed it.
        machine.run("mkdir", "/etc/systemd/system/skewgate.service.d")
        machine.write("/etc/systemd/system/skewgate.service.d/test.conf", "[Service]\nWatchdogSec=2\n")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemd-run", "--unit=backend", PYTHON, "/root/backend.py")
        yield machine


def show(machine: Machine, name: str, unit: str = "skewgate.service") -> str:
    return machine.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()


def wait_for(machine: Machine, condition: str) -> None:
    """Until a command of the shell succeeds."""
    machine.run("timeout", "240", "sh", "-c", f"until {condition}; do sleep 0.05; done")


def wait_for_requests(machine: Machine, count: int = 150) -> None:
    sent = "$(cat /root/sent 2>/dev/null || echo 0)"
    before = machine.run("sh", "-c", f"echo {sent}").stdout.strip()
    wait_for(machine, f"[ {sent} -ge {int(before) + count} ]")


def begin(machine: Machine) -> None:
    machine.run("rm", "-f", "/root/stop", "/root/results", "/root/sent")
    machine.run("systemd-run", "--unit=clients", "--collect", PYTHON, "/root/clients.py")
    wait_for_requests(machine)


def end(machine: Machine) -> dict[str, int]:
    """The results of all requests."""
    machine.run("touch", "/root/stop")
    wait_for(machine, "[ -e /root/results ]")
    found = json.loads(machine.run("cat", "/root/results").stdout)
    results: dict[str, int] = found["results"]
    return results


def journal(machine: Machine) -> str:
    return machine.run("journalctl", "--unit=skewgate", "--output=cat").stdout


def replace(machine: Machine, pid: str) -> None:
    """SIGUSR2, again if no other process has taken over: on a machine that is busy enough a successor gives
    up, and the gateway goes on, as its log says."""
    is_another = f"[ $(systemctl show --property=MainPID --value skewgate) != {pid} ]"
    for _ in range(3):
        machine.run("systemctl", "kill", "--kill-whom=main", "--signal=USR2", "skewgate")
        waiting = ("timeout", "75", "sh", "-c", f"until {is_another}; do sleep 0.05; done")
        if machine.run(*waiting, check=False).returncode == 0:
            return
    raise AssertionError(journal(machine))


def test_a_signal_replaces_the_gateway(machine: Machine) -> None:
    machine.run("systemctl", "start", "skewgate.service")
    begin(machine)
    pids = [show(machine, "MainPID")]
    for _ in range(2):
        replace(machine, pids[-1])
        wait_for(machine, f"! [ -e /proc/{pids[-1]} ]")
        pids.append(show(machine, "MainPID"))
        wait_for_requests(machine, 600)  # 4 s: two watchdogs of the new one
    results = end(machine)

    assert set(results) == {SERVED}, journal(machine)
    assert len(set(pids)) == 3
    assert (show(machine, "ActiveState"), show(machine, "NRestarts")) == ("active", "0"), journal(machine)
    machine.run("systemctl", "reload", "skewgate")
    # It is the main process in every respect: its death is noticed.
    machine.run("kill", "-KILL", pids[-1])
    wait_for(machine, "[ $(systemctl show --property=NRestarts --value skewgate) = 1 ]")
    wait_for(machine, "[ $(systemctl show --property=ActiveState --value skewgate) = active ]")
    machine.run("systemctl", "stop", "skewgate.service")
    assert show(machine, "Result") == "success"


def test_a_restart_with_socket_activation_refuses_nobody(machine: Machine) -> None:
    machine.run("systemctl", "start", "skewgate.socket")
    machine.run("systemctl", "start", "skewgate.service")
    begin(machine)
    for _ in range(2):
        machine.run("systemctl", "restart", "skewgate.service")
        wait_for_requests(machine)
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=USR2", "skewgate")
    wait_for_requests(machine)
    machine.run("systemctl", "restart", "skewgate.service")
    wait_for_requests(machine)
    results = end(machine)

    assert set(results) == {SERVED}, journal(machine)
    assert show(machine, "ActiveState", "skewgate.socket") == "active"
    machine.run("systemctl", "stop", "skewgate.socket", "skewgate.service")
