"""Backends for worker processes, and a data plane of fake ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dataplane.conftest import testbed
from tests.workers.fakes import Plane, plane_at

__all__ = ["testbed"]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with plane_at(tmp_path) as made:
        yield made
