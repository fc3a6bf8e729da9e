"""Every test gets a house of its own: backends, a gateway, clients; and it must be empty in the end.

Where sockets are cut, filled or left, the loops differ: there every test runs on asyncio's own loop and on
uvloop, which serves in production, when that is installed.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.util import find_spec
from typing import Final

import pytest

from tests.dataplane.stand import House

LOOPS_DIFFER: Final = frozenset(
    {
        "test_flow",
        "test_hostile_backends",
        "test_leaving",
        "test_proxying",
        "test_repeating",
        "test_retries",
        "test_timeouts",
    }
)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops on which a test runs."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in LOOPS_DIFFER and find_spec("uvloop") is not None:
        loops["uvloop"] = importlib.import_module("uvloop").new_event_loop
    return loops


@pytest.fixture
async def house() -> AsyncIterator[House]:
    built = House()
    yield built
    await built.close()
