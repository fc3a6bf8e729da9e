"""Common to every verb: usage, exit codes, and no traceback except for bugs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import version as installed
from pathlib import Path

import click
import pytest

from gateway import __version__
from gateway.cli import main, skewgate
from gateway.cli.verbs import VERBS
from gateway.errors import SettingsError
from gateway.runtime import process
from gateway.runtime.compiled import is_compiled
from gateway.settings import schema_text
from tests.kit.processes import ROOT, call, finish, start
from tests.kit.servers import serving
from tests.kit.waiting import PATIENCE


def test_every_verb_explains_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capfd.readouterr().out

    for name, sentence in VERBS.items():
        assert main([name, "--help"]) == 0
        shown = " ".join(capfd.readouterr().out.split())
        assert f"{sentence[0].upper()}{sentence[1:]}." in shown
        assert re.search(rf"^ +{name}\b", overview, re.MULTILINE)


@pytest.mark.parametrize(
    "word, hint",
    [
        ("stauts", "Did you mean 'status'?"),
        ("unpni", "Did you mean 'unpin'?"),
        ("--hepl", "--help"),
        ("xyzzy", "`skewgate --help` lists all"),
    ],
)
def test_a_misspelt_verb_or_option_gets_a_hint(
    word: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2

    err = capfd.readouterr().err
    assert hint in err
    assert err.startswith("Usage: skewgate")


def test_every_verb_is_found_under_its_name() -> None:
    """The table is all that the help imports; a verb that is not in it cannot be called."""
    for name in VERBS:
        command = skewgate.get_command(click.Context(skewgate), name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["run"],
        ["check"],
        ["explain", "GET"],
        ["explain", "GET", "v1/nodes"],
        ["explain", "GET", "/v1", "-H", "no colon"],
        ["explain", "GET", "/v1", "--from", "nobody"],
        ["explain", "--offline", "GET", "/v1"],
        ["status", "--admin", "127.0.0.1:9900"],
        ["status", "--admin", "http://127.0.0.1:1", "-c", "x.yaml"],
        ["demo", "--for", "0"],
        ["demo", "--for", "soon"],
        ["demo", "--port", "70000"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_2_with_the_usage(argv: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2

    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("Usage: skewgate")


def test_version_names_the_program_and_its_libraries(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    text = capfd.readouterr().out
    assert main(["version", "-o", "json"]) == 0
    found = json.loads(capfd.readouterr().out)

    assert f"skewgate           {__version__}\n" in text
    assert found["skewgate"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert found["python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert found["httptools"] == installed("httptools")
    assert found["loop"] in ("asyncio", "uvloop")
    assert found["compiled"] == str(is_compiled()).lower()


def test_schema_prints_the_schema_of_the_settings(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0

    assert capfd.readouterr().out == schema_text()


@pytest.mark.processes
async def test_the_environment_chooses_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = await call("version", "-o", "json", SKEWGATE_LOOP="asyncio")
    assert json.loads(ended.out)["loop"] == "asyncio"

    monkeypatch.setenv("SKEWGATE_LOOP", "asyncio")

    async def module() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert (await asyncio.to_thread(lambda: process.run_in_loop(module()))).startswith("asyncio.")


def test_an_unknown_loop_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKEWGATE_LOOP", "trio")

    assert main(["version"]) == 2
    assert capfd.readouterr().err == "skewgate: SKEWGATE_LOOP must be asyncio or uvloop, not 'trio'\n"

    async def never() -> None:
        raise AssertionError("was run")

    with pytest.raises(SettingsError):
        process.run_in_loop(never())


@pytest.mark.processes
async def test_a_closed_output_causes_no_traceback() -> None:
    process = await start("schema")
    assert process.stdout is not None
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined] # asyncio offers no other way
    transport.close()

    ended = await finish(process)

    assert (ended.code, ended.err) == (1, "")


@pytest.mark.processes
@pytest.mark.parametrize(
    "argv", [["--help"], ["schema"], ["version"], ["check", "config/skewgate.yaml"], ["completion", "zsh"]]
)
@pytest.mark.parametrize("errors_too", [False, True])
def test_a_full_disk_is_one_sentence(argv: list[str], errors_too: bool) -> None:
    """Both may be full: then the exit code alone says so. Python keeps what it could not write, if nobody has
    told it not to."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-P", "-m", "gateway", *argv],
            cwd=ROOT,
            check=False,
            text=True,
            stdout=full,
            stderr=full if errors_too else subprocess.PIPE,
            env=buffered,
        )

    assert ended.returncode == 1
    if not errors_too:
        assert ended.stderr == "skewgate: the output cannot be written: No space left on device\n"


@pytest.mark.processes
async def test_ctrl_c_is_quiet() -> None:
    """The command waits for an admin listener that accepts requests and never responds."""
    requested = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await reader.read()

    async with serving(listen) as server:
        process = await start("status", "--admin", f"http://127.0.0.1:{server.port}")
        async with asyncio.timeout(PATIENCE):
            await requested.wait()
        process.send_signal(signal.SIGINT)
        ended = await finish(process)

    assert ended == (1, "", "")
