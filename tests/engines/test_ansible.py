"""`deploy/ansible/`: Ansible itself runs the play that the file of tasks shows, against a whole gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import pytest

from gateway.core.fleet.fleet import Drain
from gateway.demo.ironic import NEW
from tests.architecture.source import ROOT
from tests.cli.test_roll import CALL, Bed, bed_of
from tests.kit.fleets import OLD, brief_session
from tests.kit.networks import LOOPBACK
from tests.kit.processes import TIMEOUT, Ended, call
from tests.real import environments
from tests.real.environments import Environment

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

TASKS: Final = ROOT / "deploy/ansible/upgrade-member.yaml"
NAMES: Final = ["api-1", "api-2"]


@pytest.fixture(scope="module")
def ansible() -> Environment:
    return environments.build_all(["ansible"])["ansible"]


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with brief_session() as session, bed_of(tmp_path, session, call, OLD, OLD) as bed:
        yield bed


def write_play(bed: Bed, ansible: Environment) -> None:
    """The play in the comment of the file of tasks, and machines for it: each is this one."""
    lines = TASKS.read_text(encoding="utf-8").split("---")[0].splitlines()
    play = "\n".join(line.removeprefix("#   ") for line in lines if line.startswith("#   "))
    program = f"{bed.folder}/upgrade-ironic {{{{ inventory_hostname }}}}"
    scripts = {
        "upgrade-ironic": f"{sys.executable} -c '{CALL}' http://{LOOPBACK}:{bed.installer.port}/$1",
        "skewgate": f'{sys.executable} -P -m gateway "$@" --admin {bed.gateway.admin_url}',
    }
    for name, text in scripts.items():
        (bed.folder / name).write_text(f"#!/bin/sh\nexec {text}\n", encoding="utf-8")
        (bed.folder / name).chmod(0o755)
    host = f"ansible_connection=local ansible_python_interpreter={ansible.python}"
    hosts = "\n".join(f"{name} {host}" for name in ("gateway.example", "[ironic_api]", *NAMES))
    (bed.folder / "hosts").write_text(hosts.replace(f"] {host}", "]"), encoding="utf-8")
    (bed.folder / TASKS.name).symlink_to(TASKS)
    text = play.replace("/usr/local/sbin/upgrade-ironic", program)
    (bed.folder / "play.yaml").write_text(text, encoding="utf-8")
    own = "".join(f"{name} = {bed.folder}\n" for name in ("home", "local_tmp", "remote_tmp"))
    (bed.folder / "ansible.cfg").write_text(f"[defaults]\ngathering = explicit\n{own}", encoding="utf-8")


async def run_play(bed: Bed, ansible: Environment) -> Ended:
    """Run the play to its end, with nothing of this machine's own Ansible."""
    environ = {
        "ANSIBLE_CONFIG": f"{bed.folder}/ansible.cfg",
        "LC_ALL": "C.UTF-8",
        "PATH": f"{bed.folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    process = await asyncio.create_subprocess_exec(
        *ansible.command("ansible-playbook", "-i", "hosts", "play.yaml"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=bed.folder,
        env={**os.environ, **environ},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 4 * TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
    return Ended(process.returncode or 0, out.decode(), err.decode())


class Seen(NamedTuple):
    offered: str
    drained: dict[str, str | None]
    """Who has drained which backend."""


async def status(bed: Bed) -> Seen:
    async with aiohttp.request("GET", f"{bed.gateway.admin_url}/status") as response:
        service = (await response.json())["services"]["baremetal"]
    backends = service["backends"].items()
    drained = {name: backend.get("drained_by") for name, backend in backends if backend["drained"]}
    return Seen(service["offer"]["max"], drained)


async def test_the_play_upgrades_one_member_after_the_other(bed: Bed, ansible: Environment) -> None:
    seen: list[Seen] = []

    async def look(_: str) -> None:
        seen.append(await status(bed))

    bed.installer.called = look
    write_play(bed, ansible)
    ended = await run_play(bed, ansible)

    assert ended.code == 0, ended
    assert bed.installer.calls == NAMES
    assert [each.drained for each in seen] == [{"api-1": "ansible"}, {"api-2": "ansible"}]
    assert await status(bed) == Seen(NEW.text, {})


async def test_an_upgrade_that_fails_leaves_its_member_drained_and_the_others_alone(
    bed: Bed, ansible: Environment
) -> None:
    bed.installer.fails_at = "api-1"
    write_play(bed, ansible)
    failed = await run_play(bed, ansible)
    left = await status(bed)
    bed.installer.fails_at = ""
    again = await run_play(bed, ansible)

    assert failed.code != 0
    assert "Upgrade the member" in failed.out
    assert "[api-1]: FAILED!" in failed.out + failed.err
    assert left == Seen("1.58", {"api-1": "ansible"})
    assert again.code == 0, again
    assert bed.installer.calls == ["api-1", *NAMES]
    assert await status(bed) == Seen(NEW.text, {})


@pytest.mark.parametrize("member, by", [("api-1", ""), ("api-2", "roll 1a2b")])
async def test_a_play_keeps_away_from_what_others_have_drained(
    bed: Bed, ansible: Environment, member: str, by: str
) -> None:
    """An operator one member, or another upgrade any."""
    bed.gateway.snapshot_holder.apply("baremetal", Drain(member, by=by))
    write_play(bed, ansible)
    ended = await run_play(bed, ansible)

    assert ended.code != 0
    assert f"{by or 'somebody else'} has drained {member}" in ended.out + ended.err
    assert bed.installer.calls == []
    assert await status(bed) == Seen("1.58", {member: by or None})
