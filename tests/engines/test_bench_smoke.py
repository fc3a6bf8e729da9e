"""The bench runs as a whole: every engine starts, routes by version like the gateway, answers without errors.

It says nothing about speed; what the bench measures stands in the README.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

# The first run installs Envoy, 37 MB.
pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


def test_every_engine_answers_without_an_error() -> None:
    done = subprocess.run(
        [ROOT / "bench" / "run", "--smoke"],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
