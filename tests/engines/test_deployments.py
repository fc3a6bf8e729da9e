"""The files of the deployments beside other programs are accepted by these programs, and by the gateway."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import settings
from tests.architecture.source import ROOT
from tests.docs.pages import page, section

KEEPALIVED = ROOT / "deploy/keepalived/keepalived.conf"
KOLLA = ROOT / "deploy/kolla"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def machine() -> Iterator[str]:
    """A network of its own with an interface `eth0`."""
    name = f"skewgate-vrrp-{os.getpid()}"
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        yield name
    finally:
        run("ip", "netns", "delete", name)


def complaints_of_keepalived(machine: str, text: str, folder: Path) -> str:
    file = folder / "keepalived.conf"
    file.write_text(text)
    file.chmod(0o644)
    command = ("ip", "netns", "exec", machine, "keepalived", "--config-test", "--use-file", str(file))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    # Release 2.2.7 ends its test by a signal to itself when the file has a script.
    assert done.returncode in (0, -signal.SIGTERM) or done.stderr
    return done.stdout + done.stderr


@pytest.mark.engines
def test_keepalived_accepts_its_file(machine: str, tmp_path: Path) -> None:
    text = KEEPALIVED.read_text()

    assert complaints_of_keepalived(machine, text, tmp_path) == ""
    assert complaints_of_keepalived(machine, text.replace("skewgate {", "other {"), tmp_path) != ""


@pytest.mark.engines
def test_what_keepalived_asks_is_answered_without_a_token() -> None:
    ready, attached = re.findall(r'script "(.*)"', KEEPALIVED.read_text())

    assert ready.endswith("http://127.0.0.1:9900/readyz")
    assert attached.endswith("http://127.0.0.1:9900/readyz?attached")
    assert Path(ready.split()[0]).exists()


@pytest.mark.parametrize("source", ["deploy/kolla/skewgate.yaml", "docs/deploy.md"])
def test_the_gateway_accepts_its_file(source: str, tmp_path: Path) -> None:
    text = page(source).replace("/var/lib/skewgate", str(tmp_path))
    if source.endswith(".md"):
        text = section(text, "Two machines with keepalived")
        [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        text = re.sub("^   ", "", block, flags=re.MULTILINE)

    loaded = settings.load(text, filename=source, environ={})

    assert not loaded.problems, loaded.render()


def test_haproxy_and_the_gateway_speak_of_the_same_ports() -> None:
    ports = set(re.findall(r"192\.0\.2\.11:(\d+)|port (\d+)", (KOLLA / "skewgate.cfg").read_text()))
    gateway = (KOLLA / "skewgate.yaml").read_text()

    for port in {one or other for one, other in ports}:
        assert f"192.0.2.11:{port}" in gateway
