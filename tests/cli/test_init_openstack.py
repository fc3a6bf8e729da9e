"""`init --from URL` of OpenStack services that share one dialect: the service is read or asked for."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpRawServer

from gateway.dialects.openstack.guideline import OpenStack
from gateway.settings import load
from tests.cli.conftest import Call
from tests.dialects import openstack_documents as documents
from tests.dialects.openstack_documents import Answer


async def server(raw: AiohttpRawServer, answer: Answer) -> str:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/":
            return web.Response(status=404)
        return web.Response(
            status=answer.status,
            body=answer.body,
            headers=[*answer.lines, ("Content-Type", "application/json")],
        )

    return f"http://127.0.0.1:{(await raw(respond)).port}"


@pytest.mark.parametrize("service_type", documents.NAMED)
async def test_R3_N11_init_reads_the_service_from_the_document(
    service_type: str, call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    where = await server(aiohttp_raw_server, documents.NAMED[service_type])

    ended = await call_main("init", "--from", where)

    assert (ended.code, ended.err) == (0, "")
    loaded = load(ended.out, filename="x", environ={})
    assert loaded.problems == ()
    (service,) = loaded.require().services
    assert isinstance(service.dialect, OpenStack)
    assert (service.name, service.dialect.service_type) == (service_type, service_type)


@pytest.mark.parametrize("options", [(), ("--dialect", "openstack")])
async def test_R3_N11_without_certainty_init_refuses_to_guess(
    options: tuple[str, ...], call_main: Call, aiohttp_raw_server: AiohttpRawServer, tmp_path: Path
) -> None:
    where = await server(aiohttp_raw_server, documents.NAMELESS)
    file = tmp_path / "new.yaml"

    ended = await call_main("init", "--from", where, "--to", str(file), *options)

    assert (ended.code, ended.out) == (1, "")
    assert "does not say which service of OpenStack it is: volume, shared-file-system, placement" in ended.err
    assert ended.err.endswith("Give it with --service-type.\n")
    assert not file.exists()


async def test_R3_N11_the_operator_names_what_the_document_does_not(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    where = await server(aiohttp_raw_server, documents.NAMELESS)

    ended = await call_main("init", "--from", where, "--service-type", "instance-ha")

    assert ended.code == 0
    assert (
        "  instance-ha:\n    dialect: openstack\n    openstack:\n      service_type: instance-ha\n"
        in ended.out
    )
    assert load(ended.out, filename="x", environ={}).problems == ()


async def test_R3_N11_a_service_type_that_the_document_contradicts_writes_nothing(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    where = await server(aiohttp_raw_server, documents.NAMED["volume"])

    ended = await call_main("init", "--from", where, "--service-type", "placement")

    assert (ended.code, ended.out) == (1, "")
    assert "this is the service volume, according to its media type: configure service_type" in ended.err


async def test_R3_N11_servers_of_two_services_are_not_one(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    cinder = await server(aiohttp_raw_server, documents.NAMED["volume"])
    manila = await server(aiohttp_raw_server, documents.NAMED["shared-file-system"])

    ended = await call_main("init", "--from", cinder, "--from", manila)

    assert (ended.code, ended.out) == (1, "")
    assert f"\n  {cinder}: volume\n  {manila}: shared-file-system\n" in ended.err


async def test_R3_N11_a_service_type_is_for_dialects_that_have_one(call_main: Call) -> None:
    ended = await call_main(
        "init", "--from", "http://127.0.0.1:1", "--dialect", "nova", "--service-type", "x"
    )

    assert ended == (2, "", "skewgate: the dialect nova has no service types; remove --service-type\n")
