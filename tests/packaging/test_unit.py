"""The unit of systemd: without mistakes, with no more rights than it needs, and running under systemd from a
virtual environment in /opt, as deploy/README.md has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.tools import ROOT, Machine, run, wheelhouse

pytestmark = pytest.mark.engines

UNIT = ROOT / "deploy" / "skewgate.service"
EXPOSURE = 1.6
"""What remains: the network, other users of the machine, and ports below 1024."""
TOKEN = "a-token-long-enough-for-anybody"
CONFIGURATION = """\
listen: 127.0.0.1:80
state: /var/lib/skewgate/state.json
admin: {token: "${TOKEN}"}
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://127.0.0.1:6385", versions: "1.1-1.90"}
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


def test_the_unit_runs_from_an_environment_in_opt(wheel: Path) -> None:
    with Machine() as machine:
        machine.run("systemctl", "is-system-running", "--wait")
        machine.run("mkdir", "/root/wheels", "/etc/skewgate")
        for file in (wheel, *wheelhouse().iterdir()):
            machine.copy(file, f"/root/wheels/{file.name}")
        machine.run("/usr/bin/python3", "-m", "venv", "/opt/skewgate")
        offline = ("--no-index", "--find-links", "/root/wheels")
        machine.run("/opt/skewgate/bin/pip", "install", "--quiet", *offline, "skewgate[uvloop]")
        machine.write("/etc/skewgate/skewgate.yaml", CONFIGURATION)
        machine.write("/etc/skewgate/environment", f"TOKEN={TOKEN}\n")

        machine.run("systemctl", "enable", "--now", "/opt/skewgate/lib/systemd/system/skewgate.service")

        machine.run("env", f"TOKEN={TOKEN}", "/opt/skewgate/bin/skewgate", "healthcheck",
                    "-c", "/etc/skewgate/skewgate.yaml")  # fmt: skip
        assert (
            machine.run("systemctl", "show", "--property=Result", "--value", "skewgate").stdout == "success\n"
        )
        machine.run("systemctl", "reload", "skewgate")
        pid = machine.run("systemctl", "show", "--property=MainPID", "--value", "skewgate").stdout.strip()
        owner = int(machine.run("stat", "--format=%u", f"/proc/{pid}").stdout)
        assert 61184 <= owner <= 65519  # of those that systemd gives to a service while it runs
        machine.run("systemctl", "stop", "skewgate")
        assert (
            machine.run("systemctl", "show", "--property=Result", "--value", "skewgate").stdout == "success\n"
        )
        log = machine.run("journalctl", "--unit=skewgate", "--output=cat").stdout
        assert "stopped" in log
        assert TOKEN not in log


def test_systemd_finds_no_mistake_in_the_unit() -> None:
    with Machine() as machine:
        machine.copy(UNIT, "/etc/systemd/system/skewgate.service")
        machine.run("sh", "-c", "mkdir -p /opt/skewgate/bin && ln -s /bin/true /opt/skewgate/bin/skewgate")
        said = machine.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/skewgate.service")

    assert not said.stderr
