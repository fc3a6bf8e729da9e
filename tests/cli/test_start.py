"""What a start costs before it serves, and in which order it does things (R3-V12)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.assembly import Gateway
from gateway.controlplane.state.keeper import StateKeeper
from gateway.settings import read_file
from gateway.workers.supervisor import WorkerProcesses
from tests.cli.conftest import Write
from tests.kit.fleets import Fleet
from tests.kit.processes import ROOT
from tests.kit.waiting import PATIENCE

NOT_AT_THE_START = ("cryptography", "dns", "gateway.demo", "jinja2", "opentelemetry", "rich")
"""What many gateways never need, or only when they are asked for something."""
PROGRAMS = {
    "gateway.cli.run": NOT_AT_THE_START,
    "gateway.workers.worker_main": (*NOT_AT_THE_START, "aiohttp", "click", "gateway.admin"),
}

NOT_FOR_THIS_FILE = (
    *NOT_AT_THE_START,
    *("gateway.dialects.chef.dialect", "gateway.dialects.custom.dialect", "gateway.dialects.openstack.nova"),
    *("gateway.controlplane.replication", "gateway.controlplane.stores.etcd"),
    *("gateway.workers.shares", "gateway.workers.supervisor"),
    *("gateway.admin.ui.contents", "gateway.admin.ui.model", "gateway.admin.ui.pages"),
    "prometheus_client",
)
"""What a gateway does without that stands alone, has one worker and one service, of the dialect `ironic`, and
that nobody has scraped or looked at yet."""


def imported(program: str, *names: str) -> str:
    """Which of these modules the program has imported."""
    end = f"import sys\nprint([name for name in {names!r} if name in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", f"{program}\n{end}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ended.stdout


@pytest.mark.processes
@pytest.mark.parametrize("module", PROGRAMS)
def test_R3_V12_a_start_imports_nothing_that_it_may_not_need(module: str) -> None:
    program = f"import {module}\nfrom gateway.controlplane.resolver import Resolver\nResolver()"
    assert imported(program, *PROGRAMS[module]) == "[]\n"


def test_R3_V12_a_start_imports_only_what_its_file_needs(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n"
        "services: {a: {dialect: ironic, backends: [{url: 'http://127.0.0.1:1'}]}}\n"
    )
    program = (
        "import asyncio, gateway.cli.run\n"
        "from gateway.assembly import Gateway\n"
        "from gateway.settings import read_file\n"
        "async def start():\n"
        f"    async with Gateway(read_file({str(file)!r}, environ={{}}).require()):\n"
        "        pass\n"
        "asyncio.run(start())"
    )
    assert imported(program, *NOT_FOR_THIS_FILE) == "[]\n"


def test_R3_V12_the_contexts_that_aiohttp_makes_for_itself_are_not_filled() -> None:
    """So nothing may use them, and what is read later is read as the environment says."""
    program = (
        "import os, sys\n"
        "os.environ['SSL_CERT_FILE'] = 'a file'\n"
        "import gateway.__main__\n"
        "gateway.__main__.import_aiohttp()\n"
        "from aiohttp import connector\n"
        "contexts = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED\n"
        "print([each.cert_store_stats()['x509'] for each in contexts], os.environ.pop('SSL_CERT_FILE'))\n"
        "del sys.modules['aiohttp.connector'], sys.modules['aiohttp']\n"
        "gateway.__main__.import_aiohttp()\n"
        "print('SSL_CERT_FILE' in os.environ)"
    )
    assert imported(program) == "[0, 0] a file\nFalse\n[]\n"


def test_aiohttp_comes_without_the_cplusplus_library_and_the_types_of_files(tmp_path: Path) -> None:
    file = tmp_path / "mime.types"
    file.write_text("application/x-of-the-system sys\n")
    program = (
        "import mimetypes\n"
        f"mimetypes.knownfiles[:] = [{str(file)!r}]\n"
        "import gateway.__main__\n"
        "gateway.__main__.import_aiohttp()\n"
        "from aiohttp.web_fileresponse import CONTENT_TYPES\n"
        "print(*CONTENT_TYPES.guess_type('a.sys'))"
    )
    assert imported(program, "frozenlist._frozenlist") == "None None\n[]\n"


@pytest.mark.parametrize("slow", [WorkerProcesses, StateKeeper])
async def test_R3_V12_the_first_probes_are_sent_before_anything_that_waits(
    write: Write, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, slow: type[WorkerProcesses | StateKeeper]
) -> None:
    """Each of these waits, here until both backends are known."""
    file = write()
    file.write_text(f"workers: 2\nstate: {file.parent}/state.json\n{file.read_text()}")
    gateway = Gateway(read_file(file, environ=os.environ).require())

    async def waits(self: object) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all(
                member.advertisement
                for members in gateway.snapshot_holder.current.fleet.member_sets.values()
                for member in members.all
            ):
                await asyncio.sleep(0.01)
                gateway.snapshot_holder.apply_batch()
        raise _StopsHereError

    monkeypatch.setattr(slow, "start", waits)
    with pytest.raises(_StopsHereError):
        async with gateway:
            pass


class _StopsHereError(Exception):
    """The backends were known."""
