"""The compiled build of the gateway: whether this environment has it, and how to make it."""

import os
import shutil
import subprocess
import sys

from bench.processes import python_module

VARIABLE = "SKEWGATE_COMPILED"
#: It takes 35 to 90 seconds, and a while to install its tools the first time.
BUILD_SECONDS = 600
COMPILED, INTERPRETED = {VARIABLE: "1"}, {VARIABLE: "0"}


def _gateway(
    arguments: list[str], environment: dict[str, str], seconds: int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        python_module("gateway", *arguments),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def missing_build(make: bool) -> str:
    """Why there is no compiled build of these sources; empty when there is one.

    With `make`, one is made if a compiler is there.
    """
    ended = _gateway(["version"], COMPILED, 30)
    if ended.returncode and make and (shutil.which("cc") or shutil.which("gcc")):
        print("bench: making the compiled build of these sources", file=sys.stderr, flush=True)
        made = _gateway(["build"], {}, BUILD_SECONDS)
        ended = made if made.returncode else _gateway(["version"], COMPILED, 30)
    text = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    return " ".join(text[-1:]) or "no compiled build" if ended.returncode else ""
