"""What the kernel says of this process, and the same without it."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client.process_collector import ProcessCollector

from gateway.telemetry import process_stats
from gateway.telemetry.process_stats import collect_stats, read_stats


def by_library() -> dict[str, float]:
    """As the library of Prometheus reads them."""
    families = ProcessCollector(registry=None).collect()
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_it_is_what_the_library_reads() -> None:
    stats, library = read_stats(), by_library()

    assert stats.started_at == pytest.approx(library["process_start_time_seconds"], abs=0.02)
    assert stats.cpu_seconds == pytest.approx(library["process_cpu_seconds_total"], abs=0.2)
    assert stats.resident_bytes == pytest.approx(library["process_resident_memory_bytes"], rel=0.05)
    assert stats.virtual_bytes == pytest.approx(library["process_virtual_memory_bytes"], rel=0.05)
    assert stats.max_fds == library["process_max_fds"]


def test_R3_V5_where_only_processes_are_shown_nothing_is_left_out(tmp_path: Path) -> None:
    """As under `ProcSubset=pid`: there is no /proc/stat, which has the start of the machine."""
    (tmp_path / "self").symlink_to("/proc/self")
    known, hidden = read_stats(), read_stats(tmp_path)

    assert known.started_at is not None
    assert hidden.started_at == pytest.approx(known.started_at, abs=5.0)
    assert hidden.resident_bytes == pytest.approx(known.resident_bytes, rel=0.05)
    assert hidden.virtual_bytes == pytest.approx(known.virtual_bytes, rel=0.05)
    assert read_stats(tmp_path).started_at == hidden.started_at  # a restart is what changes it


ALIKE = """
import os
from gateway.telemetry.process_stats import count_descriptors, read_stats
before = count_descriptors()
assert before is not None
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
assert count_descriptors() == before + 100
assert read_stats().open_fds in {None, before + 100}
"""


def test_descriptors_are_counted_alike_with_and_without_the_kernel() -> None:
    """In a process of its own: threads of other tests open and close some at any time."""
    subprocess.run([sys.executable, "-P", "-c", ALIKE], check=True, timeout=30)


async def test_what_the_kernel_does_not_say_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.2 the size of the folder is 0."""
    monkeypatch.setattr(process_stats, "_known_descriptors", lambda _: None)
    assert read_stats().open_fds is None

    found = (await collect_stats()).open_fds

    assert found is not None
    assert found > 2


async def test_where_proc_is_missing_the_rest_is_there(tmp_path: Path) -> None:
    found = await collect_stats(tmp_path)

    assert found.started_at is found.virtual_bytes is found.resident_bytes is found.open_fds is None
    assert found.cpu_seconds > 0
    assert found.max_fds == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize("text", ["", "1 (a", "1 (a) b) S 1 2", "1 (a) " + "x " * 30])
def test_nonsense_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text(text)
    assert read_stats(tmp_path)[1:4] == (None, None, None)
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    assert read_stats(tmp_path)[1:4] == (None, None, None)


@pytest.mark.parametrize("text", ["cpu 1 2 3\n", "btime soon\n", "btime \n"])
def test_nonsense_about_the_machine_hides_only_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "self").symlink_to("/proc/self")
    (tmp_path / "stat").write_text(text)
    found = read_stats(tmp_path)
    assert found.started_at is None
    assert found.resident_bytes is not None


def test_a_name_may_hold_blanks_and_parentheses(tmp_path: Path) -> None:
    fields = ["S", *map(str, range(1, 19)), "4200", "1000", "5"]
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text(f"7 (a) b ( c) {' '.join(fields)}")
    (tmp_path / "stat").write_text(f"cpu 1\nbtime {int(time.time())}\n")

    found = read_stats(tmp_path)

    assert (found.virtual_bytes, found.resident_bytes) == (1000, 5 * resource.getpagesize())
    assert found.started_at == pytest.approx(int(time.time()) + 4200 / os.sysconf("SC_CLK_TCK"), abs=2)
