"""Settings from a file name, for every verb with `-c FILE`. Reads the environment of the process."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.settings import Settings, read_file


def read_settings(path: Path) -> Settings:
    """The settings of a file. Raises `SettingsError` with every problem when there is an error. Warnings are
    ignored."""
    return read_file(path, environ=os.environ, check_files=False).require()
