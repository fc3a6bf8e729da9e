"""docs/adding-a-dialect.md and docs/weather, executed: dialect, servers, commands, tests."""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import aiohttp
import pytest

from gateway import cli, dialects, settings
from gateway.assembly import Gateway
from tests.architecture.source import ROOT
from tests.dialects import test_conformance as conformance
from tests.dialects.dialect_samples import DOCUMENT_SAMPLES, DialectSample, sample_versions
from tests.docs.pages import Block, blocks, page, section
from tests.docs.test_readme import shown_in, until_offered

PAGE: Final = page("docs/adding-a-dialect.md")
FILES: Final = ROOT / "docs" / "weather"
CLIENTS, ADMIN, OLD, NEW = "8080", "9900", "7001", "7002"
"""The ports of the page. The tests replace them by free ones."""


def texts(heading: str, language: str) -> list[str]:
    """The blocks below a heading of the second level."""
    found: list[Block] = blocks(section(PAGE, heading))
    return [block.text for block in found if block.language == language]


class Followed(NamedTuple):
    """The files and ports of a reader who has followed the page."""

    folder: Path
    ports: Mapping[str, int]

    @property
    def configuration(self) -> Path:
        return self.folder / "docs" / "weather" / "weather.yaml"

    def here(self, text: str) -> str:
        """A text of the page with the free ports."""
        return re.sub(r"\b(8080|9900|7001|7002)\b", lambda found: str(self.ports[found[0]]), text)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def forget_weather() -> None:
    """Undo the discovery of the page's dialect."""
    sys.modules.pop("gateway.dialects.weather", None)
    vars(dialects).pop("weather", None)
    dialects.discover.cache_clear()


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    """The page's files written, its dialect beside the others, its two servers started."""
    folder = tmp_path / "dialects"
    folder.mkdir()
    shutil.copy(FILES / "weather.py", folder)
    shutil.copytree(FILES, tmp_path / "docs" / "weather")
    monkeypatch.setattr(dialects, "__path__", [*dialects.__path__, str(folder)])
    forget_weather()
    found = Followed(tmp_path, dict(zip((CLIENTS, ADMIN, OLD, NEW), free_ports(4), strict=True)))
    found.configuration.write_text(found.here(found.configuration.read_text()), encoding="utf-8")
    servers = [start(found, line) for line in commands(texts("What the API says", "console"))]
    try:
        yield found
    finally:
        for server_process in servers:
            server_process.kill()
            server_process.wait()
        forget_weather()


def start(found: Followed, line: str) -> subprocess.Popen[bytes]:
    """One server of the page, once it answers."""
    python, *words, ampersand = shlex.split(found.here(line))
    assert (python, ampersand) == ("python3", "&")
    process = subprocess.Popen([sys.executable, *words], cwd=found.folder, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", int(words[1])), timeout=1).close()
        except ConnectionRefusedError:
            # Another process: only its port shows that it is ready.
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        else:
            return process
    process.kill()
    raise AssertionError(f"{line} does not answer")


def commands(found: list[str]) -> list[str]:
    return [line.removeprefix("$ ") for text in found for line in text.splitlines() if line.startswith("$ ")]


def output_of(command: str) -> list[str]:
    """The output that the page shows below a command."""
    text = next(text for text in texts("Use it", "console") if f"$ {command}\n" in text)
    shown = text.split(f"$ {command}\n", 1)[1].split("$ ", 1)[0]
    return [line for line in shown.splitlines() if line and line != "…"]


def test_the_file_is_found_and_offers_its_own_name(followed: Followed) -> None:
    assert dialects.discover()["weather"].name == "weather"


@pytest.mark.parametrize("verb", ["check", "explain"])
def test_the_commands_print_what_the_page_shows(
    followed: Followed, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(followed.folder)
    (command,) = (line for line in commands(texts("Use it", "console")) if line.startswith(f"./run {verb} "))
    expected = output_of(command)

    assert cli.main(shlex.split(command)[1:]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert expected
    assert [line for line in expected if line not in printed] == []


async def test_the_gateway_answers_as_is_shown(followed: Followed) -> None:
    requests = list(shown_in(PAGE))
    configured = settings.read_file(followed.configuration, environ={}).require()

    assert len(requests) == 4
    async with Gateway(configured) as gateway, aiohttp.ClientSession() as client:
        await asyncio.wait_for(until_offered(gateway, "weather"), 20)
        host, port = gateway.addresses[0]
        for request in requests:
            async with client.get(f"http://{host}:{port}{request.path}", headers=request.headers) as response:
                received = [f"HTTP/1.1 {response.status} {response.reason}"]
                received += [f"{name}: {value}" for name, value in response.headers.items()]
                received += (await response.text()).splitlines()
            assert [line for line in request.response if line not in received] == []


def test_its_own_tests_pass(followed: Followed) -> None:
    (document_sample,) = texts("Test it", "python")
    own = (FILES / "test_weather.py").read_text(encoding="utf-8")
    module = ModuleType("test_weather")
    exec(compile(own, "test_weather.py", "exec"), vars(module))  # noqa: S102 -- the page's own file
    tests = [test for name, test in vars(module).items() if name.startswith("test_")]

    assert document_sample.startswith('"weather":')
    assert len(tests) == 2
    for test in tests:
        test()


def test_it_conforms(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """All conformance tests, with the document sample of the page."""
    (document_sample,) = texts("Test it", "python")
    monkeypatch.setitem(
        DOCUMENT_SAMPLES,
        "weather",
        eval(f"{{{document_sample}}}")["weather"],  # noqa: S307 -- the page's own block
    )
    kind = dialects.discover()["weather"]
    options = kind.Options()
    dialect = kind.configured(options)
    sample = DialectSample("weather", dialect, options, sample_versions(dialect))
    executed = 0
    for name, test in vars(conformance).items():
        if name.startswith("test_") and "sample" in inspect.signature(test).parameters:
            for arguments in cases(test):
                test(sample=sample, **arguments)
                executed += 1

    assert executed >= 20


def cases(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments that a test is parametrised with, beside the dialect."""
    parameters = [
        mark.args for mark in test.pytestmark if mark.name == "parametrize" and mark.args[0] != "sample"
    ]
    for values in product(*(choices for _, choices in parameters)):
        yield dict(zip((name for name, _ in parameters), values, strict=True))
