"""The fixture `admin`: the admin listener as the gateway starts it, and closes it afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from tests.admin.testbed import AdminTestbed, StartAdmin, on_site


@pytest.fixture
async def admin() -> AsyncIterator[StartAdmin]:
    async with AsyncExitStack() as stack:

        async def start(
            snapshot_holder: SnapshotHolder,
            token: str | None = None,
            hosts: tuple[str, ...] = (),
            **replicas: Any,
        ) -> AdminTestbed:
            return await stack.enter_async_context(on_site(snapshot_holder, token, hosts, **replicas))

        yield start
