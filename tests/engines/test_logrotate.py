"""Rotation by the real logrotate, with the file that is shipped: no line is lost, none is twice."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.demo.ironic import SERVED
from tests.kit.backends import ScriptedBackend, serve
from tests.kit.networks import free_port
from tests.kit.processes import ROOT, finish, ready, start
from tests.kit.workers import Testbed

pytestmark = pytest.mark.engines

SHIPPED = ROOT / "deploy" / "logrotate"
ROTATIONS = 4


def program() -> str:
    found = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip("logrotate is not installed: .ci/packages installs it")
    return found


async def rotate(folder: Path, pid: int) -> None:
    """Once, now. Of the shipped file only path and command differ: no systemd runs here."""
    text, paths = re.subn(r"^/var/log/skewgate/", f"{folder}/", SHIPPED.read_text(), flags=re.MULTILINE)
    text, commands = re.subn(
        r"^( *)systemctl kill .*--signal=USR1 .*$", rf"\1kill -USR1 {pid}", text, flags=re.MULTILINE
    )
    assert (paths, commands) == (1, 1), "the shipped file has changed its shape"
    configuration = folder.parent / "logrotate.conf"
    configuration.write_text(text)
    configuration.chmod(0o644)  # logrotate reads no file that others may write
    command = (program(), "--force", "--state", str(folder.parent / "state"), str(configuration))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")


def numbers_in(file: Path) -> list[int]:
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [int(json.loads(line)["target"].rpartition("/")[2]) for line in text.splitlines()]


def has_lines(file: Path) -> bool:
    """An empty file is not rotated."""
    return file.exists() and file.stat().st_size > 0


@pytest.fixture
async def backend() -> AsyncIterator[ScriptedBackend]:
    testbed = Testbed()
    yield await testbed.backend(serve, name="api-1")
    await testbed.close()


async def test_no_line_is_lost_while_logrotate_rotates_under_load(
    backend: ScriptedBackend, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    log = folder / "access.log"
    folder.mkdir(mode=0o750)
    port, admin_port = free_port(), free_port()
    file = tmp_path / "gateway.yaml"
    file.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: {{listen: 127.0.0.1:{admin_port}}}\n"
        f"access_log: {{path: {log}}}\n"
        "services:\n  baremetal:\n    dialect: ironic\n    backends:\n"
        f"      - {{url: 'http://127.0.0.1:{backend.port}', versions: 1.1-1.58}}\n"
    )
    process = await start("run", "-c", str(file))
    done, ended = 0, asyncio.Event()

    async def load(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while not ended.is_set():
            done += 1
            async with session.get(
                f"http://127.0.0.1:{port}/v1/nodes/{done}", headers={SERVED: "1.31"}
            ) as response:
                assert response.status == 200

    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        await ready(session, f"http://127.0.0.1:{admin_port}")
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(load(session))
            for _ in range(ROTATIONS):
                before = done
                while done < before + 40 or not has_lines(log):  # noqa: ASYNC110 - it is load, and in a file
                    await asyncio.sleep(0.01)
                await rotate(folder, process.pid)
            ended.set()
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0

    files = sorted(folder.iterdir(), key=lambda path: int(re.sub(r"\D", "", path.name) or 0))
    assert [path.name for path in files] == [
        *("access.log", "access.log.1"),
        *(f"access.log.{number}.gz" for number in range(2, ROTATIONS + 1)),
    ]
    logged = [number for path in files for number in numbers_in(path)]
    assert sorted(logged) == list(range(1, done + 1))
    assert all(numbers_in(path) for path in files[:-1]), "each rotation began a new file"
    assert files[0].stat().st_mode & 0o777 == 0o640
