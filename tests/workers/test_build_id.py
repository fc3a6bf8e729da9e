"""A worker never runs other code than its main process: what counts as other, and what a gateway does whose
package was replaced while it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from gateway import __version__
from gateway.runtime import compiled
from gateway.workers.build_id import OTHER_CODE, OTHER_CODE_REASON, build_id
from tests.kit.backends import ScriptedBackend, serve
from tests.kit.networks import free_port
from tests.kit.processes import ROOT, finish, kill_left, ready, start
from tests.kit.waiting import until
from tests.workers.main_process import PROGRAM

pytestmark = pytest.mark.processes

CONFIGURATION: Final = """
workers: 2
listen: 127.0.0.1:{port}
state: {folder}/state.json
admin: {{listen: 127.0.0.1:{admin}}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    backends: [{{name: api-1, url: "http://127.0.0.1:{backend}", versions: 1.1-1.58}}]
"""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    kill_left()


# --- what counts


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "gateway"
    (folder / "core").mkdir(parents=True)
    (folder / "one.py").write_text("1")
    (folder / "core" / "two.py").write_text("2")
    return folder


def edited(package: Path) -> None:
    (package / "core" / "two.py").write_text("3")


def added(package: Path) -> None:
    (package / "three.py").write_text("")


def removed(package: Path) -> None:
    (package / "one.py").unlink()


def renamed(package: Path) -> None:
    (package / "one.py").rename(package / "eins.py")


def moved_text(package: Path) -> None:
    (package / "core" / "two.py").write_text("1")
    (package / "one.py").write_text("2")


@pytest.mark.parametrize("change", [edited, added, removed, renamed, moved_text])
def test_every_change_of_the_sources_is_other_code(package: Path, change: Callable[[Path], None]) -> None:
    before = build_id(package)
    change(package)
    assert build_id(package) != before


def test_what_is_no_source_and_when_it_was_written_does_not_count(package: Path) -> None:
    before = build_id(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.cpython-311.pyc").write_bytes(b"x")
    (package / "one.py").write_text("1")
    assert build_id(package) == before


def test_the_release_and_the_build_count(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    before = build_id(package)
    assert before.startswith(f"{__version__}-")
    monkeypatch.setattr("gateway.workers.build_id.is_compiled", lambda: not compiled.is_compiled())
    assert build_id(package) != before


# --- a worker


async def test_a_worker_of_other_code_ends_before_it_reads_anything() -> None:
    """It has not even opened the channel: there is none at this descriptor."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--channel", "99", "--code", "0.0.9-interpreted-0", stderr=asyncio.subprocess.PIPE
    )
    _, logged = await process.communicate()
    assert (process.returncode, logged) == (OTHER_CODE, b"")


# --- a gateway


async def test_a_gateway_whose_package_was_replaced_serves_until_the_next_one_takes_over(
    tmp_path: Path,
) -> None:
    package = tmp_path / "gateway"
    shutil.copytree(ROOT / "gateway", package)
    backend = ScriptedBackend(serve, "api-1", "1.1-1.58")
    await backend.start()
    port, admin = free_port(), free_port()
    file = tmp_path / "skewgate.yaml"
    file.write_text(
        CONFIGURATION.format(port=port, admin=admin, folder=tmp_path, backend=backend.backend.port)
    )
    log = tmp_path / "log"

    async def begin(*options: str) -> Process:
        with log.open("ab") as stderr:
            return await start(
                *("run", *options, "-c", str(file)),
                stderr=stderr,
                PYTHONPATH=str(tmp_path),
                SKEWGATE_COMPILED="0",
            )

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:

        async def status() -> dict[str, Any]:
            async with session.get(f"http://127.0.0.1:{admin}/status") as response:
                found: dict[str, Any] = await response.json()
            return found

        async def serving() -> int:
            return sum(worker["state"] == "serving" for worker in (await status())["workers"])

        async def get() -> int:
            async with session.get(f"http://127.0.0.1:{port}/v1/nodes") as response:
                return response.status

        async def refused() -> bool:
            return OTHER_CODE_REASON in log.read_text()

        async def whole() -> bool:
            return await serving() == 2

        process = await begin()
        await ready(session, f"http://127.0.0.1:{admin}")
        release = package / "__init__.py"
        release.write_text(release.read_text().replace(f'"{__version__}"', '"0.2.0"'))
        os.kill((await status())["workers"][1]["pid"], signal.SIGKILL)
        await until(refused, "the log says that the package was replaced")
        assert {*await asyncio.gather(*(get() for _ in range(40)))} == {200}
        assert await serving() == 1

        following = await begin("--take-over")
        assert (await finish(process)).code == 0
        await until(whole, "both workers of the new release serve")
        assert (await status())["build"]["version"] == "0.2.0"
        assert {*await asyncio.gather(*(get() for _ in range(40)))} == {200}
        following.send_signal(signal.SIGTERM)
        assert (await finish(following)).code == 0
    await backend.close()
