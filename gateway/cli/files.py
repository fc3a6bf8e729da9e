"""From a file's name to settings, for every verb that takes `-c FILE`. Reads the process's environment."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.settings import Settings, read_file


def read_settings(path: Path) -> Settings:
    """The settings of a file. Raises `SettingsError` with every problem; warnings do not stand in the way."""
    return read_file(path, environ=os.environ).require()
