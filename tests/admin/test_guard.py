"""O6: who may not ask the admin listener, and is told so before anything is looked at."""

from __future__ import annotations

import pytest

from gateway.controlplane.cell import Cell
from tests.admin.stand import admin
from tests.admin.test_api import filled

TOKEN = "a canary, wide and yellow"


@pytest.fixture
def cell() -> Cell:
    return filled()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "gate.internal"])
async def test_its_own_names_are_answered(cell: Cell, host: str) -> None:
    async with admin(cell, hosts=("Gate.internal",)) as stand:
        assert await stand.raw("GET /status HTTP/1.1", f"Host: {host}:{stand.port}") == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",  # DNS rebinding: the name points here, the page came from there
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost:{port}.evil.example",
        "localhost.evil.example:{port}",
        "10.0.0.1:{port}",
        "",
        "gate.internal:{port}",
    ],
)
async def test_any_other_host_is_refused_on_every_path(cell: Cell, host: str) -> None:
    async with admin(cell) as stand:
        line = f"Host: {host.format(port=stand.port)}"
        for path in ("/livez", "/status", "/metrics", "/nowhere"):
            assert await stand.raw(f"GET {path} HTTP/1.1", line) == 403
        assert await stand.raw("POST /-/reload HTTP/1.1", line, "Content-Length: 0") == 403
        assert stand.reloads == 0


async def test_none_or_two_hosts_are_refused(cell: Cell) -> None:
    async with admin(cell) as stand:
        own = f"Host: 127.0.0.1:{stand.port}"
        assert await stand.raw("GET /status HTTP/1.1") in {400, 403}
        assert await stand.raw("GET /status HTTP/1.1", own, own) in {400, 403}


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "https://127.0.0.1:{port}", "http://127.0.0.1:1"]
)
async def test_pages_of_other_origins_are_refused(cell: Cell, origin: str) -> None:
    async with admin(cell) as stand:
        headers = {"Origin": origin.format(port=stand.port)}
        for method, path in (("GET", "/status"), ("POST", "/-/reload"), ("OPTIONS", "/status")):
            reply = await stand.ask(method, path, headers=headers)
            assert reply.status == 403
            assert not [name for name in reply.headers if name.lower().startswith("access-control-")]
        assert stand.reloads == 0


async def test_its_own_pages_may_ask(cell: Cell) -> None:
    async with admin(cell) as stand:
        headers = {"Origin": f"http://127.0.0.1:{stand.port}"}
        assert (await stand.ask("POST", "/-/reload", headers=headers)).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff",
    ],
)
async def test_without_the_token_only_liveness_is_told(cell: Cell, authorization: str | None) -> None:
    async with admin(cell, TOKEN) as stand:
        own = [f"Host: 127.0.0.1:{stand.port}"]
        own += [] if authorization is None else [f"Authorization: {authorization}"]
        for path in ("/status", "/metrics", "/readyz", "/explain?path=/", "/nowhere", "/livez/", "//livez"):
            assert await stand.raw(f"GET {path} HTTP/1.1", *own) == 401, path
        assert await stand.raw("POST /-/reload HTTP/1.1", *own, "Content-Length: 0") == 401
        assert await stand.raw("GET /livez HTTP/1.1", *own) == 200
        assert stand.reloads == 0


async def test_with_the_token_everything_is_told_but_the_token(cell: Cell) -> None:
    """O9: a canary in the token shows up nowhere."""
    async with admin(cell, TOKEN) as stand:
        headers = {"Authorization": f"bearer {TOKEN}"}
        for path in ("/status", "/metrics", "/readyz?verbose", "/explain?path=/v1"):
            reply = await stand.ask("GET", path, headers=headers)
            assert reply.status == 200
            assert "canary" not in await reply.text()

        refused = await stand.ask("GET", "/status")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert "canary" not in await refused.text()


async def test_two_authorizations_are_none(cell: Cell) -> None:
    async with admin(cell, TOKEN) as stand:
        own, right = f"Host: 127.0.0.1:{stand.port}", f"Authorization: Bearer {TOKEN}"
        assert await stand.raw("GET /status HTTP/1.1", own, right) == 200
        assert await stand.raw("GET /status HTTP/1.1", own, "Authorization: Bearer x", right) in {400, 401}
