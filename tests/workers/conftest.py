"""Backends for worker processes, and a place for their bytecode."""

from __future__ import annotations

import pytest

from tests.dataplane.conftest import testbed
from tests.workers.parent import BYTECODE

__all__ = ["testbed"]


@pytest.fixture(scope="session", autouse=True)
def _bytecode(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = str(tmp_path_factory.mktemp("bytecode"))
    BYTECODE.update(PYTHONPYCACHEPREFIX=place, PYTHONDONTWRITEBYTECODE="")
