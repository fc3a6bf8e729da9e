"""What a shell completes after `pin`, `unpin`, `drain` and `enable`."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import pytest
from aiohttp import web
from aiohttp.pytest_plugin import AiohttpRawServer

from gateway.cli import admin_client, known_names
from gateway.cli.command import CONFIG_VARIABLE
from gateway.cli.operator_commands import unpin
from tests.cli.conftest import Running, Write
from tests.kit.networks import free_port
from tests.kit.processes import call


async def completed(line: str) -> set[str]:
    words = line.split(" ")
    ended = await call(
        _SKEWGATE_COMPLETE="bash_complete", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)
    )

    assert (ended.code, ended.err) == (0, "")
    return {found.partition(",")[2] for found in ended.out.split()}


@pytest.mark.processes
@pytest.mark.parametrize(
    "verb, begun, wanted",
    [
        ("pin", "", {"baremetal"}),
        ("unpin", "bare", {"baremetal"}),
        ("unpin", "other", set()),
        ("drain", "", {"baremetal/api-1", "baremetal/api-2"}),
        ("enable", "baremetal/api-2", {"baremetal/api-2"}),
    ],
)
async def test_the_names_of_the_gateway_that_runs(
    verb: str, begun: str, wanted: set[str], running: Running
) -> None:
    assert await completed(f"skewgate {verb} --admin {running.admin} {begun}") == wanted


@pytest.mark.processes
async def test_without_a_gateway_the_names_of_the_file(write: Write) -> None:
    file = write(admin_port=free_port())

    assert await completed(f"skewgate drain -c {file} ") == {"baremetal/api-1", "baremetal/api-2"}
    assert await completed(f"skewgate pin -c {file} b") == {"baremetal"}


def test_without_an_option_the_names_of_the_file_in_the_usual_place(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(admin_port=free_port())
    monkeypatch.setattr(admin_client, "DEFAULT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.chdir(tmp_path)

    def names(**params: str) -> list[str]:
        context = click.Context(unpin)
        context.params = params
        return known_names.services(context, unpin.params[0], "")

    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    assert names() == ["baremetal"]
    assert names(admin=admin_client.DEFAULT_URL) == []
    monkeypatch.setenv(CONFIG_VARIABLE, f"{file}.gone")
    assert names() == []


@pytest.mark.processes
async def test_where_nothing_is_known_nothing_is_completed(
    write: Write, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async def respond(request: web.BaseRequest) -> web.Response:
        return web.json_response({"generation": 1, "build": {}, "services": {"a": "b"}})

    server = await aiohttp_raw_server(respond)
    broken = write(admin_port=free_port())
    broken.write_text("listen: [")

    assert await completed(f"skewgate pin --admin http://127.0.0.1:{server.port} ") == set()
    assert await completed(f"skewgate pin --admin http://127.0.0.1:{free_port()} ") == set()
    assert await completed(f"skewgate drain -c {broken} ") == set()
    assert await completed(f"skewgate drain -c {broken}.gone ") == set()


@pytest.mark.processes
async def test_a_gateway_that_does_not_answer_is_not_waited_for() -> None:
    assert known_names.TIMEOUT <= 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await completed(f"skewgate pin --admin http://127.0.0.1:{silent.getsockname()[1]} ") == set()
