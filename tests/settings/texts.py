"""The smallest configuration, and how the tests of settings read a text: with two dialects of their own."""

from __future__ import annotations

from gateway.settings import Loaded, load
from tests.settings.dialects import DIALECTS

# The lines that a test adds begin with line 7.
BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: plain
    backends:
      - url: http://127.0.0.1:6385
"""


def load_text(text: str, **environ: str) -> Loaded:
    return load(text, filename="x.yaml", environ=environ, dialects=DIALECTS)
