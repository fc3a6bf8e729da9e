"""The smallest file, and how the tests of settings read one: with two dialects of their own, from a text."""

from __future__ import annotations

from gateway.settings import Loaded, load
from tests.settings.dialects import DIALECTS

# What a test adds stands in line 7 or below.
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
