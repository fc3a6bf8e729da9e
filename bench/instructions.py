"""What a request costs in instructions, and where they go: whole requests in memory, counted by callgrind.

A busy machine changes no count, so it shows a hundredth, which CPU time does not. It says nothing about the
kernel, the event loop or caches. Heads are those of a scenario (`bench.heads`), responses those of a backend.
Run it with `python -m bench.instructions`, once per change. It needs `apt-get install valgrind`.
"""

import argparse
import asyncio
import gc
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Final
from unittest.mock import patch

from gateway.runtime.compiled import use_compiled

if __name__ == "__main__":
    use_compiled()  # before any module of the hot path is imported

from bench.compiled import COMPILED, interpreted, missing_build
from bench.heads import ID, RESPONSE, VERSION, Heads
from bench.lane import Lane
from bench.loads.wrk import Wrk
from bench.processes import BenchError, find_program, python_module
from bench.report import NOTHING, Row, as_markdown
from bench.scenarios import SCENARIOS
from bench.setting import Setting
from bench.slot import Slot
from gateway.settings import AccessLogSettings

HEADS: Final = {
    scenario.name: scenario.load.heads
    for scenario in SCENARIOS
    if isinstance(scenario.load, Wrk) and scenario.settings in {(Setting(),), (Setting(trusted=True),)}
}
#: Every table and cache is filled. The layouts of twelve kinds of clients are made one after the other.
WARM_UP: Final = 2000
#: A client connection is closed after some more.
PER_CONNECTION: Final = 900
#: Functions of the compiled build in which each part is spent, with what they call. None calls another.
PARTS: Final = {
    "the head of the request, by its layout": ("head_readers___RequestReader___read_known",),
    "the head of the response, by its layout": ("head_readers___ResponseReader___read_known",),
    "`decide`": ("decision___decide",),
    "the request id": ("http1___request_ids___RequestIdSource___of",),
    "both heads composed": ("heads___compose_upstream_head", "heads___compose_downstream_head"),
    "both sent, to a transport in memory": ("context___Context___send", "context___Context___flush"),
    "`Metrics.record`": ("metrics___Metrics___record",),
    "the access log": ("access_log___AccessLog___record",),
}
OTHERS: Final = "everything else"
_FUNCTION: Final = re.compile(r"^ *([\d,]+) .*:CPyDef_(\w+?)(?:'\d+)?(?: \[|$)", re.MULTILINE)
_TOTAL: Final = re.compile(r"^ *([\d,]+) .*PROGRAM TOTALS", re.MULTILINE)


def exchanges(heads: Heads) -> Iterator[tuple[bytes, bytes]]:
    """Requests with ids of their own, and their responses, without end."""
    slot = Slot(Path(), 6385, 0, 0, Setting())
    for number, head in enumerate(cycle(heads.heads(slot)), 1):
        _, _, rest = head.partition(f"\r\n{VERSION}: ".encode())
        own = b"%06x%06x" % (0x2A5B3C, number)
        yield (
            head.replace(ID, own),
            RESPONSE.replace(b"@VERSION@", rest.partition(b"\r\n")[0]).replace(ID, own),
        )


def drive(lane: Lane, several: list[tuple[bytes, bytes]]) -> None:
    answered, flush = lane.backend.data_received, lane.flush
    for begin in range(0, len(several), PER_CONNECTION):
        client = lane.new_client()
        received = client.data_received
        for request, response in several[begin : begin + PER_CONNECTION]:
            received(request)
            flush()
            answered(response)
            flush()
        client.connection_lost(None)


async def run_counted(heads: Heads, number: int, log: AccessLogSettings) -> None:
    """In callgrind: from `getppid` to the end of the process, so many requests."""
    near, far = socket.socketpair()
    # Callgrind is slow: each line of the log would have a time of its own, where thirty share one.
    with near, far, patch("time.time", repeat(1_800_000_000.0).__next__):
        lane = Lane(near, access_log=log, trusted=heads.proxied)
        several = exchanges(heads)
        drive(lane, list(islice(several, WARM_UP)))
        counted = list(islice(several, number))
        gc.collect()
        gc.disable()
        os.getppid()
        drive(lane, counted)
        lane.close()
        wrong = not lane.client_side.written.startswith(b"HTTP/1.1 200")
        os._exit(wrong)  # what Python does at its end is no request's


def count(options: argparse.Namespace, environment: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Instructions of a request in one build: all, and of each part that the build shows.

    Raises:
        BenchError: it did not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile")
        command = [
            *("setarch", "-R", "valgrind", "--tool=callgrind", "--zero-before=getppid"),
            f"--callgrind-out-file={profile}",
            *python_module("bench.instructions", "--counted", "--scenario", options.scenario),
            *("--requests", str(options.requests), "--log", options.log),
        ]
        fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        _output(command, {**environment, **fixed})
        if options.keep:
            shutil.copy(profile, options.keep)
        shown = _output(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(profile)], {})
    if (total := _TOTAL.search(shown)) is None:
        raise BenchError(f"callgrind_annotate named no total\n{shown[:500]}")
    spent: dict[str, float] = {}
    for instructions, name in _FUNCTION.findall(shown):
        spent[name] = max(_each(instructions, options.requests), spent.get(name, 0.0))
    parts = {
        part: sum(spent.get(name, 0.0) for name in names)
        for part, names in PARTS.items()
        if any(name in spent for name in names)
    }
    whole = _each(total[1], options.requests)
    return whole, {**parts, OTHERS: whole - sum(parts.values())} if parts else {}


def _each(instructions: str, requests: int) -> float:
    return int(instructions.replace(",", "")) / requests


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{command[0]} failed with code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def table(builds: dict[str, tuple[float, dict[str, float]]]) -> list[Row]:
    """A row for the whole request and one for each part: only functions of a compiled build have names."""
    rows: list[Row] = [("part of a request, instructions", *builds)]
    rows.append(("the whole request, in memory", *(f"{total:,.0f}" for total, _ in builds.values())))
    for part in (*PARTS, OTHERS):
        found = [parts.get(part) for _, parts in builds.values()]
        if any(found):
            rows.append((part, *(NOTHING if each is None else f"{each:,.0f}" for each in found)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--scenario", choices=HEADS, default="unique", help="whose heads (default unique)")
    parser.add_argument("--requests", type=int, default=1800, help="requests that are counted (default 1800)")
    parser.add_argument("--log", choices=("off", "json", "text"), default="off", help="the access log")
    parser.add_argument("--only", choices=("interpreted", "compiled"), help="this build only")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the last profile of callgrind")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted:
        with tempfile.TemporaryDirectory() as folder:
            log = AccessLogSettings(format=options.log, path=str(Path(folder, "access.log")))
            asyncio.run(run_counted(HEADS[options.scenario], max(1, options.requests), log))
    if missing := [name for name in ("valgrind", "callgrind_annotate", "setarch") if not find_program(name)]:
        print(f"bench: not installed: {', '.join(missing)} (valgrind, util-linux)", file=sys.stderr)
        return 1
    builds = {"interpreted": interpreted(), "compiled": COMPILED}
    if why := missing_build(make=False):
        print(f"bench: compiled is left out: {why}", file=sys.stderr)
        del builds["compiled"]
    try:
        counts = {name: count(options, each) for name, each in builds.items() if options.only in (None, name)}
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(as_markdown(table(counts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
