"""The Debian package: linted, then installed, run by systemd, upgraded, removed and purged in a Debian."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import __version__
from tests.packaging.tools import Machine, run

pytestmark = pytest.mark.packaging

CONFIGURATION = """\
listen: 127.0.0.1:8080
state: /var/lib/skewgate/state.json
access_log: {path: /var/log/skewgate/access.log}
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://127.0.0.1:6385", versions: "1.1-1.90"}
"""
GET = """\
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=10)
connection.request("GET", "/v1/nodes", headers={"X-OpenStack-Ironic-API-Version": "9.99"})
print(connection.getresponse().status)
"""


def test_lintian_finds_nothing_that_has_no_reason(package: Path) -> None:
    found = run("lintian", "--allow-root", "--profile", "debian", "--fail-on", "error,warning", package)

    assert not [line for line in found.stdout.splitlines() if line[:2] in ("E:", "W:")], found.stdout


def test_the_package_has_what_a_service_needs(package: Path) -> None:
    contents = run("dpkg-deb", "--contents", package).stdout
    configurations = run("dpkg-deb", "--info", package, "conffiles").stdout.split()

    for path in (
        "usr/bin/skewgate",
        "lib/systemd/system/skewgate.service",
        "usr/lib/sysusers.d/skewgate.conf",
        "usr/lib/tmpfiles.d/skewgate.conf",
        "usr/share/skewgate/schema.json",
        "usr/share/skewgate/grafana/skewgate.json",
        "usr/share/skewgate/prometheus/skewgate.yml",
        "usr/share/doc/skewgate/examples/skewgate.yaml",
        "usr/share/doc/skewgate/examples/kubernetes.yaml",
        "usr/share/doc/skewgate/examples/skewgate.socket",
        "usr/share/doc/skewgate/copyright",
        "usr/share/man/man1/skewgate.1.gz",
        "usr/share/bash-completion/completions/skewgate",
        "usr/share/zsh/vendor-completions/_skewgate",
        "usr/share/fish/vendor_completions.d/skewgate.fish",
    ):
        assert f" ./{path}" in contents, path
    assert sorted(configurations) == ["/etc/logrotate.d/skewgate", "/etc/skewgate/skewgate.yaml"]
    assert "__pycache__" not in contents
    assert run("dpkg-deb", "--field", package, "Version").stdout.strip() == __version__


@pytest.fixture
def machine(package: Path) -> Iterator[Machine]:
    """A Debian on which the package is installed."""
    with Machine() as running:
        running.run("systemctl", "is-system-running", "--wait")
        running.copy(package, "/root/skewgate.deb")
        running.run("dpkg", "--install", "/root/skewgate.deb")
        yield running


def test_it_is_installed_run_upgraded_and_removed(machine: Machine) -> None:
    # Installed: a user, a configuration that is right, and nothing runs that nobody asked for.
    assert "skewgate" in machine.run("id", "skewgate").stdout
    machine.run("skewgate", "check", "/etc/skewgate/skewgate.yaml")
    assert machine.run("skewgate", "version").stdout.split()[:2] == ["skewgate", __version__]
    assert machine.run("systemctl", "is-enabled", "skewgate", check=False).stdout == "disabled\n"
    assert machine.run("systemctl", "is-active", "skewgate", check=False).stdout == "inactive\n"

    # Run: systemd says when it serves.
    machine.write("/etc/skewgate/skewgate.yaml", CONFIGURATION)
    machine.run("systemctl", "enable", "--now", "skewgate")
    machine.run("skewgate", "healthcheck")
    assert machine.run("stat", "--format=%U %a", "/var/lib/skewgate/state.json").stdout == "skewgate 600\n"
    assert machine.run("ps", "-o", "user=", "-C", "skewgate", check=False).stdout.split()[:1] == ["skewgate"]
    assert machine.run("/usr/bin/python3", "-c", GET).stdout == "406\n"
    build = json.loads(machine.run("skewgate", "status", "-o", "json").stdout)["build"]
    assert (build["loop"], build["compiled"]) == ("uvloop", True)

    # Reloaded: the exit code of the command is that of the reload.
    machine.write("/etc/skewgate/skewgate.yaml", CONFIGURATION.replace("1.90", "1.80"))
    machine.run("systemctl", "reload", "skewgate")
    assert '"1.80"' in machine.run("skewgate", "status", "-o", "json").stdout
    machine.write("/etc/skewgate/skewgate.yaml", "listen: nowhere\n")
    assert machine.run("systemctl", "reload", "skewgate", check=False).returncode
    machine.run("skewgate", "healthcheck")
    machine.write("/etc/skewgate/skewgate.yaml", CONFIGURATION)

    # Rotated: what is written next is in the new file.
    machine.run("logrotate", "--force", "/etc/logrotate.d/skewgate")
    machine.run("sh", "-c", 'until [ -s /var/log/skewgate/access.log ]; do python3 -c "$0"; done', GET)
    assert "/v1/nodes" in machine.run("cat", "/var/log/skewgate/access.log.1").stdout

    # Upgraded: the service is restarted, and the configuration is the operator's.
    before = machine.run("systemctl", "show", "--property=MainPID", "skewgate").stdout
    machine.run("dpkg", "--install", "/root/skewgate.deb")
    assert machine.run("systemctl", "show", "--property=MainPID", "skewgate").stdout != before
    assert machine.run("cat", "/etc/skewgate/skewgate.yaml").stdout == CONFIGURATION
    machine.run("skewgate", "healthcheck")

    # Removed: nothing runs, and what is the operator's stays. Purged: nothing is left.
    machine.run("dpkg", "--remove", "skewgate")
    assert machine.run("pgrep", "skewgate", check=False).returncode == 1
    machine.run("test", "-e", "/etc/skewgate/skewgate.yaml")
    machine.run("test", "-e", "/var/lib/skewgate/state.json")
    machine.run("test", "!", "-e", "/usr/lib/skewgate")
    machine.run("dpkg", "--purge", "skewgate")
    for path in ("/etc/skewgate", "/var/lib/skewgate", "/var/log/skewgate", "/etc/logrotate.d/skewgate"):
        machine.run("test", "!", "-e", path)
