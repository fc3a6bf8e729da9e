"""The builds of the gateway that are compared: sources with the matcher in C, and the compiled build."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.processes import python_module
from gateway.runtime.compiled import (
    MATCHER_ONLY,
    NOTHING,
    SOURCES,
    VARIABLE,
    WHOLE,
    matcher_build,
    matcher_source,
)

#: It takes half a minute on two cores, and a while to install its tools the first time.
BUILD_SECONDS = 600
COMPILED = {VARIABLE: WHOLE}


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


def interpreted(sources: Path = SOURCES) -> dict[str, str]:
    """The environment in which these sources run interpreted: with the matcher in C, if it is compiled here.
    Other sources must have the same matcher, because an environment has one."""
    theirs, ours = matcher_source(sources), matcher_source(SOURCES)
    same = theirs.exists() and theirs.read_bytes() == ours.read_bytes()
    return {VARIABLE: MATCHER_ONLY if same and matcher_build() else NOTHING}


def how(environment: dict[str, str]) -> str:
    """What of a gateway in this environment is compiled, for the reader of the figures."""
    return {NOTHING: "nothing compiled", MATCHER_ONLY: "matcher in C", WHOLE: "all compiled"}[
        environment[VARIABLE]
    ]


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
