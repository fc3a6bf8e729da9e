"""What a verb costs before it does anything: a health check runs every second, and completion with every key.

Measured is CPU of the whole process, as the kernel counts it, the best of several. Other work on the machine
makes it more (two threads of one core, cold caches): a known program is measured beside it, and what that
costs more than on the quiet machine for which the limits are, the verb may cost more, too.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.kit.processes import ROOT

pytestmark = pytest.mark.processes

LIGHT = 0.12
HEAVY = 0.25
TRIES = 5
NOISE = 1.3
"""The comparison is no better than that on a busy machine."""
KNOWN, KNOWN_COST = "import asyncio", 0.05
"""A program that imports, too, and its cost on that machine."""

CHECKED_BY_FILE = ("healthcheck", "-c", "config/skewgate.yaml")
NOWHERE = ("--admin", "http://127.0.0.1:1")
LIGHT_VERBS = [
    ("--help",),
    ("version",),
    ("completion", "bash"),
    ("healthcheck", *NOWHERE),
    ("status", *NOWHERE),
    ("pin", "a", "1.1", *NOWHERE),
    ("unpin", "a", *NOWHERE),
    ("drain", "a/b", *NOWHERE),
    ("enable", "a/b", *NOWHERE),
    ("reload", *NOWHERE),
]
HEAVY_VERBS = [
    ("check", "config/minimal.yaml"),
    ("check", "config/skewgate.yaml"),
    ("schema",),
    ("check", "--fix", "config/skewgate.yaml"),
]
DEAR = (
    *("aiohttp", "asyncio", "yaml", "cryptography", "prometheus_client", "gateway.settings"),
    *("http.client", "ssl"),
)
"""What the light verbs do without."""
NOT_OF_A_CHECK = (*(each for each in DEAR if each != "yaml"), "encodings.idna")
"""What the health check of a container does without."""
NOT_OF_SETTINGS = ("aiohttp", "asyncio", "cryptography", "idna", "prometheus_client", "ssl")
"""What reading a configuration does without, where nothing in it needs them."""


def cpu(*program: str) -> float:
    """Seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], cwd=ROOT, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def share(argv: tuple[str, ...], limit: float) -> float:
    """How much of the limit a verb needs; no more runs than that takes."""
    known = least = used = float("inf")
    for _ in range(TRIES):
        known = min(known, cpu("-c", KNOWN))
        least = min(least, cpu("-P", "-m", "gateway", *argv))
        used = least / (limit * max(1.0, known / KNOWN_COST))
        if used <= NOISE:
            break
    return used


@pytest.mark.parametrize("argv", [*LIGHT_VERBS, CHECKED_BY_FILE], ids=" ".join)
def test_a_verb_that_talks_to_a_gateway_costs_next_to_nothing(argv: tuple[str, ...]) -> None:
    assert share(argv, LIGHT) <= NOISE


@pytest.mark.parametrize("argv", HEAVY_VERBS, ids=" ".join)
def test_a_verb_that_reads_a_configuration_costs_a_quarter_of_a_second(argv: tuple[str, ...]) -> None:
    assert share(argv, HEAVY) <= NOISE


@pytest.mark.interpreted("the module that is looked for is another one in the compiled build")
@pytest.mark.parametrize("argv", LIGHT_VERBS, ids=" ".join)
def test_it_imports_nothing_dear(argv: tuple[str, ...]) -> None:
    assert after(argv, f"[name for name in {DEAR!r} if name in sys.modules]") == "[]"


def test_R3_V6_a_health_check_by_the_file_reads_only_what_finds_the_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The containers' file names the token by a variable."""
    monkeypatch.setenv("SKEWGATE_ADMIN_TOKEN", "open-sesame-sesame")
    for argv in (CHECKED_BY_FILE, ("healthcheck", *NOWHERE)):
        assert after(argv, f"[name for name in {NOT_OF_A_CHECK!r} if name in sys.modules]") == "[]"


@pytest.mark.parametrize("argv", HEAVY_VERBS, ids=" ".join)
def test_a_verb_that_reads_a_configuration_imports_no_more_than_that_takes(argv: tuple[str, ...]) -> None:
    assert after(argv, f"[name for name in {NOT_OF_SETTINGS!r} if name in sys.modules]") == "[]"


def test_the_end_of_a_verb_looks_for_no_garbage_among_what_was_imported() -> None:
    assert after(("check", "config/minimal.yaml"), "len(gc.get_objects()) < 1000") == "True"


def after(argv: tuple[str, ...], expression: str) -> str:
    """What an expression is at the end of a verb."""
    program = (
        "import gc, sys; sys.argv = ['skewgate', *sys.argv[1:]]\n"
        "from gateway.__main__ import main\n"
        "code = main()\n"
        f"print({expression}, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, *argv], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return ended.stderr.splitlines()[-1]
