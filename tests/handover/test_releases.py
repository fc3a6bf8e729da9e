"""From one release of the gateway to the next, and back: no request is lost.

`tests/compatibility/handing-over.tar.xz` has the sources of the release before, as they were. Its libraries
are in an environment of their own.
"""

from __future__ import annotations

import os
import tarfile
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from gateway.runtime.compiled import VARIABLE
from tests.handover.conftest import House
from tests.handover.test_processes import Requests, ports, stop  # noqa: F401 - `ports` is a fixture
from tests.kit.processes import ROOT, finish, ready, start
from tests.real.environments import build, find_python

pytestmark = pytest.mark.load

ARCHIVE = ROOT / "tests" / "compatibility" / "handing-over.tar.xz"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the release before."""
    folder = tmp_path_factory.mktemp("handing-over")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


async def begin(sources: Path, file: Path, *options: str) -> Process:
    """The gateway of a release. Of the one before there are only sources: it is not compiled."""
    arguments = ("run", *options, "-c", str(file))
    if sources == ROOT:
        return await start(*arguments, SKEWGATE_COMPILED=os.environ.get(VARIABLE, "0"))
    python = build("earlier", find_python()).python
    return await start(*arguments, python=python, PYTHONPATH=str(sources), SKEWGATE_COMPILED="0")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "roll-back"])
async def test_releases_hand_over_to_each_other(
    house: House,
    ports: tuple[int, int],  # noqa: F811 - the fixture
    earlier: Path,
    back: bool,
    workers: int,
) -> None:
    file = house.folder / "skewgate.yaml"
    file.write_text(f"workers: {workers}\n{file.read_text()}")
    first, second = (ROOT, earlier) if back else (earlier, ROOT)
    process = await begin(first, file)
    await ready(house.session, f"http://127.0.0.1:{ports[1]}")
    requests = Requests(ports[0])
    async with requests.under_way():
        await requests.count(30)
        following = await begin(second, file, "--take-over")
        ended = await finish(process)
        assert ended.code == 0, ended.err
        assert f"process {following.pid} serves now" in ended.err
        await requests.count(30)
    await stop(following)
    assert set(requests.results) == {200}
