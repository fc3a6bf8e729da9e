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
from gateway.settings.reference import reference_text

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
    assert files_of("Adding a key") == ["gateway/core/fleet/queue.py", "gateway/dataplane/request_queue.py"]

    runs(KEY, changed(tmp_path, "Adding a key"))
