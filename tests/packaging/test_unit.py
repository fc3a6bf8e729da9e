"""The unit of systemd: without mistakes, with no more rights than it needs, and running under systemd from a
virtual environment in /opt, as docs/deploy.md has it."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.tools import ROOT, Machine, machine_with_gateway, run

pytestmark = pytest.mark.packaging

UNIT = ROOT / "deploy" / "skewgate.service"
EXPOSURE = 1.6
"""What remains: the network, other users of the machine, and ports below 1024."""
TOKEN = "a-token-long-enough-for-anybody"
CONFIGURATION = """\
listen: 127.0.0.1:80
workers: 2
state: /var/lib/skewgate/state.json
admin: {token: "${TOKEN}"}
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://127.0.0.1:6385", versions: "1.1-1.90"}
"""


SCRAPE = """\
import sys, urllib.request
headers = {"Authorization": f"Bearer {sys.argv[1]}"}
request = urllib.request.Request("http://127.0.0.1:9900/metrics", headers=headers)
print(urllib.request.urlopen(request).read().decode())
"""


@pytest.fixture
def debian_unit(package: Path, tmp_path: Path) -> Path:
    run("dpkg-deb", "--extract", package, tmp_path)
    return tmp_path / "lib" / "systemd" / "system" / "skewgate.service"


def exposure(unit: Path) -> float:
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=100", unit).stdout
    match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert match is not None, said
    return float(match[1])


def test_the_unit_is_exposed_as_little_as_its_work_allows(debian_unit: Path) -> None:
    assert exposure(UNIT) <= EXPOSURE
    assert exposure(debian_unit) <= EXPOSURE


def test_a_unit_without_its_protections_is_found(tmp_path: Path) -> None:
    naked = tmp_path / "skewgate.service"
    naked.write_text(re.sub(r"(?m)^(Protect|Private|Restrict|SystemCall).*\n", "", UNIT.read_text()))

    assert exposure(naked) > EXPOSURE


@pytest.fixture(scope="module")
def machine(wheel: Path) -> Iterator[Machine]:
    """With the gateway in /opt, and the unit of its environment."""
    with machine_with_gateway(wheel, CONFIGURATION) as machine:
        machine.write("/etc/skewgate/environment", f"TOKEN={TOKEN}\n")
        machine.run("systemctl", "enable", "/opt/skewgate/lib/systemd/system/skewgate.service")
        yield machine


@pytest.fixture
def unit(machine: Machine) -> Machine:
    """With the unit just started, and nothing of it in the journal."""
    machine.run("systemctl", "stop", "skewgate")
    machine.write("/etc/skewgate/skewgate.yaml", CONFIGURATION)
    machine.run("journalctl", "--rotate")
    machine.run("journalctl", "--vacuum-time=1us")
    machine.run("systemctl", "start", "skewgate")
    return machine


def test_the_unit_runs_from_an_environment_in_opt(unit: Machine) -> None:
    unit.run(
        "env",
        f"TOKEN={TOKEN}",
        "/opt/skewgate/bin/skewgate",
        "healthcheck",
        "-c",
        "/etc/skewgate/skewgate.yaml",
    )
    assert unit.run("systemctl", "show", "--property=Result", "--value", "skewgate").stdout == "success\n"
    unit.run("systemctl", "reload", "skewgate")
    pid = unit.run("systemctl", "show", "--property=MainPID", "--value", "skewgate").stdout.strip()
    owner = int(unit.run("stat", "--format=%u", f"/proc/{pid}").stdout)
    assert 61184 <= owner <= 65519  # of those that systemd gives to a service while it runs
    unit.run("systemctl", "stop", "skewgate")
    assert unit.run("systemctl", "show", "--property=Result", "--value", "skewgate").stdout == "success\n"
    log = unit.run("journalctl", "--unit=skewgate", "--output=cat").stdout
    assert "stopped" in log
    assert TOKEN not in log


def test_R3_V5_a_scrape_has_everything_about_the_process(unit: Machine) -> None:
    pid = unit.run("systemctl", "show", "--property=MainPID", "--value", "skewgate").stdout.strip()
    hidden = unit.run("nsenter", f"--target={pid}", "--mount", "cat", "/proc/stat", check=False)
    now = int(unit.run("date", "+%s").stdout)
    scraped = unit.run("/opt/skewgate/bin/python", "-c", SCRAPE, TOKEN).stdout
    found = {name: float(value) for name, value in re.findall(r"(?m)^(process_\w+) (\S+)$", scraped)}

    assert hidden.returncode, "the unit hides /proc/stat"
    assert set(found) == {
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
    }
    assert all(value > 0 for value in found.values())
    assert now - 600 < found["process_start_time_seconds"] < now + 5


def test_R3_N8_the_journal_knows_the_priority_of_each_line(unit: Machine) -> None:
    """Of the main process, of a worker, and of a stack. Neither prefix nor time is left in the text."""
    pid = unit.run("systemctl", "show", "--property=MainPID", "--value", "skewgate").stdout.strip()
    workers = unit.run("cat", f"/proc/{pid}/task/{pid}/children").stdout.split()
    unit.run("kill", "-QUIT", *workers)
    asked = "journalctl --unit=skewgate --output=cat | grep -q 'worker 1: SIGQUIT'"
    unit.run("timeout", "240", "sh", "-c", f"until {asked}; do sleep 0.1; done")
    unit.run("systemctl", "stop", "skewgate")

    read = unit.run("journalctl", "--unit=skewgate", "--output=json", "_TRANSPORT=stdout").stdout
    entries = [json.loads(line) for line in read.splitlines()]
    own = [(each["MESSAGE"], each["PRIORITY"]) for each in entries if each["SYSLOG_IDENTIFIER"] == "skewgate"]
    levels, seen = {"INFO": "6", "WARNING": "4", "ERROR": "3"}, set()
    for message, priority in own:
        assert not re.match(r"<\d>|\d{4}-", message), message
        level = message.split(" ")[0]
        if level in levels:
            assert priority == levels[level], message
            seen.add((level, " worker 1: " in message))
        elif message.lstrip().startswith('File "'):
            assert priority == "4", message
            seen.add(("stack", True))
    assert {("INFO", False), ("WARNING", True), ("stack", True)} <= seen


def test_systemd_finds_no_mistake_in_the_unit() -> None:
    with Machine() as machine:
        machine.copy(UNIT, "/etc/systemd/system/skewgate.service")
        machine.run("sh", "-c", "mkdir -p /opt/skewgate/bin && ln -s /bin/true /opt/skewgate/bin/skewgate")
        said = machine.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/skewgate.service")

    assert not said.stderr
