"""The whole bench runs: every peer starts, routes by version like the gateway, and responds without errors.

This is no test of speed. The figures of the bench are in the README.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

# The first run installs Envoy, 37 MB.
pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


def test_every_peer_responds_without_an_error() -> None:
    ended = subprocess.run(
        [ROOT / "bench" / "run", "--smoke"],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout
