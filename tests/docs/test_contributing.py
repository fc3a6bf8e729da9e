"""CONTRIBUTING shows real changes: each applies to these sources, touches few files, and works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

PARTS = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")
DIFFS = {
    part.partition("\n")[0]: part.partition("```diff\n")[2].partition("```")[0]
    for part in PARTS
    if "```diff" in part
}
KEY = """
from gateway.settings import load, schema_text
from tests.docs.configuration_page import reference_text

text = '''
listen: 127.0.0.1:80
services:
  api: {dialect: ironic, backends: [{url: "http://a", max_requests: 1, queue: {resent: %s}}]}
'''
[service] = load(text % "false", filename="x", environ={}).require().services
assert service.backends[0].queue.resent is False
[problem] = load(text % "no", filename="x", environ={}).problems
assert (problem.line, problem.message) == (4, "not true or false"), problem
assert '"resent"' in schema_text()
assert "| `resent` | `true` | Whether a request" in reference_text()
"""
COUNTER = """
from pathlib import Path

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series.backend import OfBackend
from tests.docs.metrics_table import with_table

backends = (Backend("old", "10.0.0.1", 80), Backend("new", "10.0.0.2", 80))
holder = SnapshotHolder(Snapshot.configured([Service("api", Ironic(), backends)], now=0.0))
main, worker = Metrics(), Metrics()
for metrics in (main, worker):
    metrics.watch(holder)
worker.count(OfBackend.queued, service="api", backend="old")
main.add(worker.take())
text = b"".join(main.exposition("")[0]).decode()
assert 'skewgate_queued_total{backend="old",service="api"} 1.0' in text
assert 'skewgate_queued_total{backend="new",service="api"} 0.0' in text
rows = with_table(Path("metrics.md").read_text()).splitlines()
(at,) = (at for at, row in enumerate(rows) if row.startswith("| `skewgate_queued_total` | counter |"))
assert rows[at - 1].startswith("| `skewgate_ejections_total`")
assert len(rows) == len(Path("metrics.md").read_text().splitlines()) + 1
"""


def changed(tmp_path: Path, heading: str) -> Path:
    """A copy of the package with the change that CONTRIBUTING shows below this heading."""
    shutil.copytree(ROOT / "gateway", tmp_path / "gateway", ignore=shutil.ignore_patterns("__pycache__"))
    diff = DIFFS[heading].encode()
    subprocess.run(["git", "apply", "--whitespace=error"], input=diff, cwd=tmp_path, check=True)
    return tmp_path


def runs(program: str, folder: Path) -> None:
    environ = {"PYTHONPATH": str(folder), "SKEWGATE_COMPILED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def files_of(heading: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.*)$", DIFFS[heading], re.MULTILINE)


@pytest.mark.processes
def test_the_key_that_is_shown_works(tmp_path: Path) -> None:
    assert files_of("Adding a key") == [
        "gateway/core/fleet/connections.py",
        "gateway/dataplane/backends/queue.py",
    ]

    runs(KEY, changed(tmp_path, "Adding a key"))


@pytest.mark.processes
def test_the_counter_that_is_shown_comes_from_a_worker_to_metrics_and_page(tmp_path: Path) -> None:
    files = ["gateway/telemetry/series/backend.py", "gateway/dataplane/backends/queue.py"]
    assert files_of("Adding a counter") == files

    folder = changed(tmp_path, "Adding a counter")
    shutil.copy(ROOT / "docs" / "metrics.md", folder)
    runs(COUNTER, folder)
