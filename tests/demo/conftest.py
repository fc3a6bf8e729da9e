"""Two API servers of the demonstration, each with a client, served by the fixtures of pytest-aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from gateway.demo.fleet import NEW, OLD, Database, Server
from tests.kit.processes import TIMEOUT

ServerClient: TypeAlias = TestClient[web.Request, web.Application]


class Fleet(NamedTuple):
    """A client of the old server (1.1-1.58) and one of the new server (1.1-1.90), which share a database."""

    old: ServerClient
    new: ServerClient


def url_of(client: ServerClient) -> str:
    return f"http://{client.host}:{client.port}"


async def until(condition: Callable[[], bool], description: str) -> None:
    """Check the condition again and again until it is true."""
    try:
        async with asyncio.timeout(TIMEOUT):
            while not condition():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {description}") from None


@pytest.fixture
async def fleet(aiohttp_client: AiohttpClient) -> Fleet:
    database = Database(Random(7))
    return Fleet(
        await aiohttp_client(Server("api-1", database, OLD).application()),
        await aiohttp_client(Server("api-2", database, NEW).application()),
    )
