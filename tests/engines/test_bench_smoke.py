"""The whole bench runs: in every scenario, every peer starts, routes and responds without errors.

This is no test of speed. The figures of the bench are in docs/performance.md.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.scenarios import SCENARIOS
from tests.architecture.source import ROOT

# The first run installs Envoy, 37 MB. Without that, it is over in 90 seconds.
pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


def test_every_peer_responds_without_an_error_in_every_scenario() -> None:
    ended = subprocess.run(
        [ROOT / "bench" / "run", "--smoke"],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout
    for scenario in SCENARIOS:
        assert f"\n{scenario.name}: {scenario.title}\n" in ended.stdout
