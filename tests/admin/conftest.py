"""The fixture `admin`: pytest-aiohttp serves the admin listener's application, and closes it afterwards."""

from __future__ import annotations

import pytest
from pytest_aiohttp import AiohttpClient

from gateway.controlplane.snapshot_holder import SnapshotHolder
from tests.admin.testbed import AdminTestbed, StartAdmin


@pytest.fixture
def admin(aiohttp_client: AiohttpClient) -> StartAdmin:
    async def start(
        snapshot_holder: SnapshotHolder, token: str | None = None, hosts: tuple[str, ...] = ()
    ) -> AdminTestbed:
        testbed = AdminTestbed(snapshot_holder)
        client = await aiohttp_client(testbed.app(token, hosts))
        assert client.port is not None
        testbed.port, testbed.session = client.port, client.session
        return testbed

    return start
