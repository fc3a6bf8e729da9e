"""gophercloud, the OpenStack library of Go programs (Terraform, metal3), as Debian packages it.

What it does: it compiles `scripts/gophercloud_session.go` once, into the cache of the environments, and runs
sessions of it. The rules of `Clients` hold.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.real.clients import SCRIPTS, Clients, Result, Session
from tests.real.environments import BUILD_LIMIT, MissingPrerequisite, cache_folder, kept

SOURCE = SCRIPTS / "gophercloud_session.go"
SOURCES_OF_DEBIAN = Path("/usr/share/gocode")


def compiled() -> Path:
    """The program, from the cache or compiled now. Raises MissingPrerequisite with the compiler's words."""
    go = shutil.which("go")
    if go is None or not (SOURCES_OF_DEBIAN / "src/github.com/gophercloud").is_dir():
        raise MissingPrerequisite(
            "gophercloud needs Debian's golang-go and golang-github-gophercloud-gophercloud-dev:"
            " run .ci/packages"
        )

    def make(made: Path) -> None:
        settings = {"GO111MODULE": "off", "GOPATH": str(SOURCES_OF_DEBIAN), "GOFLAGS": ""}
        ended = subprocess.run(
            [go, "build", "-o", str(made), str(SOURCE)],
            env=os.environ | settings | {"GOCACHE": str(made.parent / "cache")},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT,
            check=False,
        )
        if ended.returncode != 0:
            raise MissingPrerequisite(f"compiling {SOURCE.name} failed:\n{ended.stderr[-2000:]}")

    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return kept(cache_folder() / f"gophercloud-{digest}", make)


class Gophercloud:
    def __init__(self, program: Path) -> None:
        self._program = program

    async def session(self, endpoint: str, *calls: str, version: str | None = None) -> Session:
        """Run one process. `version` None: the newest one that `/v1` names."""
        plan = {"endpoint": endpoint, "version": version, "calls": calls}
        ended = await asyncio.to_thread(Clients._run, [str(self._program), json.dumps(plan)])
        assert ended.code == 0, f"{SOURCE.name} itself failed (exit {ended.code}):\n{ended.errors}"
        session = json.loads(ended.output)
        return Session([Result.read(entry) for entry in session["results"]], session["version"], False)
