"""The packages of this checkout, each built once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.tools import ROOT, offline, run, tools


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(tools().python, "-P", "-m", "build", "--outdir", folder, ROOT, variables=offline())
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package."""
    folder = tmp_path_factory.mktemp("debian")
    run(ROOT / "deploy" / "debian" / "build", folder, variables=offline())
    (path,) = folder.glob("*.deb")
    return path
