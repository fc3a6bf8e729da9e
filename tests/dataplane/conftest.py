"""Every test gets a house of its own: backends, a gateway, clients; and it must be empty in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.dataplane.stand import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    built = House()
    yield built
    await built.close()
