"""`init --from URL` of an API that no dialect knows: a file with the dialect `custom` and open questions."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpRawServer

from tests.cli.conftest import Call
from tests.kit.networks import free_port

OPENAPI = {"info": {"version": "1.7.3"}, "paths": {"/api/v1/users/{id}": {}, "/api/health": {}}}


async def server(raw: AiohttpRawServer, documents: Mapping[str, Any], **headers: str) -> str:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.path not in documents:
            return web.Response(status=404)
        return web.Response(
            body=json.dumps(documents[request.path]).encode(),
            headers={"Content-Type": "application/json", **headers},
        )

    return f"http://127.0.0.1:{(await raw(respond)).port}"


@pytest.mark.parametrize("options", [(), ("--dialect", "custom")])
async def test_R3_N5_init_describes_an_api_of_ones_own(
    options: tuple[str, ...], call_main: Call, aiohttp_raw_server: AiohttpRawServer, tmp_path: Path
) -> None:
    old = await server(aiohttp_raw_server, {"/api/versions": ["v1", "v2"], "/openapi.json": OPENAPI})
    new = await server(aiohttp_raw_server, {"/api/versions": ["v1", "v2", "v3"], "/openapi.json": OPENAPI})
    file = tmp_path / "own.yaml"

    ended = await call_main("init", "--from", old, "--from", new, "--to", str(file), *options)

    assert ended.code == 0
    assert ended.err.startswith("skewgate: warning: no dialect fits this API: ")
    assert "comments that begin with `Open:`" in ended.err
    text = file.read_text()
    assert f"      # served 1-2 when this was written\n      - url: {old}\n" in text
    assert f"      # served 1-3 when this was written\n      - url: {new}\n" in text
    checked = await call_main("check", "--strict", str(file))
    assert (checked.code, checked.err) == (0, "")
    explained = await call_main("explain", "--offline", "-c", str(file), "GET", "/api/v3/users")
    assert "the requested version (3) is not in the offer 1-2" in explained.out
    passed = await call_main("explain", "--offline", "-c", str(file), "GET", "/api/health")
    assert passed.out.startswith("GET /api/health: forward")


async def test_R3_N5_a_server_without_an_answer_is_said(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    here = await server(aiohttp_raw_server, {"/": {"name": "shop"}}, **{"Shop-Version": "2024-05-01"})
    gone = f"http://127.0.0.1:{free_port()}"

    ended = await call_main("init", "--from", here, "--from", gone)

    assert ended.code == 0
    assert f"skewgate: warning: {gone}: no response\n" in ended.err
    assert f'      - url: {here}\n        versions: "2024-05-01"\n' in ended.out
    assert f"      # - url: {gone}\n" in ended.out


async def test_R3_N5_where_no_version_is_found_init_says_where_it_looked(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer, tmp_path: Path
) -> None:
    where = await server(aiohttp_raw_server, {"/": {"name": "shop"}})
    file = tmp_path / "own.yaml"

    ended = await call_main("init", "--from", where, "--to", str(file))

    assert (ended.code, ended.out) == (1, "")
    assert (
        f"  {where}: / 200, /versions 404, /version 404, /api/versions 404, /openapi.json 404\n" in ended.err
    )
    assert not file.exists()
    assert "docs/dialects.md" in ended.err


async def test_R3_N5_a_bad_option_is_said_and_no_api(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    where = await server(aiohttp_raw_server, {"/versions": [1, 2]})

    ended = await call_main("init", "--from", where, "--listen", "nowhere")

    assert (ended.code, ended.out) == (2, "")
