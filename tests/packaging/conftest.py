"""The packages of this checkout, each built once for all tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.tools import ROOT, offline, run, tools


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive, and the wheel that is built from it, with no compiler."""
    folder = tmp_path_factory.mktemp("dist")
    run(tools().python, "-P", "-m", "build", "--outdir", folder, ROOT, variables={**offline(), "CC": "false"})
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled wheel, built as cibuildwheel does: by its front end and with its variables."""
    folder, settings = tmp_path_factory.mktemp("compiled"), wheel_settings()
    command = (tools().python, "-P", "-m", settings["build-frontend"], "--wheel", "--outdir", folder, ROOT)
    run(*command, variables={**offline(), **settings["environment"]})
    (path,) = folder.glob("*.whl")
    return path


def wheel_settings() -> dict[str, Any]:
    """The table of cibuildwheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = project["tool"]["cibuildwheel"]
    return found


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debian")
    run(ROOT / "deploy" / "debian" / "build", folder, variables=offline())
    (path,) = folder.glob("*.deb")
    return path
