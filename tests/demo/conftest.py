"""Two API servers of the demonstration, each with a client, served by the fixtures of pytest-aiohttp."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from gateway.demo.ironic import NEW, OLD, IronicServer

ServerClient: TypeAlias = TestClient[web.Request, web.Application]


class Fleet(NamedTuple):
    """A client of the old server (1.1-1.82) and one of the new server (1.1-1.90)."""

    old: ServerClient
    new: ServerClient


def url_of(client: ServerClient) -> str:
    return f"http://{client.host}:{client.port}"


@pytest.fixture
async def fleet(aiohttp_client: AiohttpClient) -> Fleet:
    return Fleet(
        await aiohttp_client(IronicServer("api-1", OLD).application()),
        await aiohttp_client(IronicServer("api-2", NEW).application()),
    )
