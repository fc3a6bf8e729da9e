"""How many CPUs the process may use: its affinity and the quotas of its control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.runtime.cpus import usable_cpus


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def machine(place: Path, group: str, limits: dict[str, str]) -> Path:
    """A root of the file system on which the process is in `group`, with the `cpu.max` of some groups."""
    (place / "proc/self").mkdir(parents=True)
    (place / "proc/self/cgroup").write_text(f"1:name=systemd:/other\n0::{group}\n", encoding="ascii")
    for path, limit in limits.items():
        folder = place / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(f"{limit}\n", encoding="ascii")
    return place


@pytest.mark.parametrize(
    "group, limits, cpus",
    [
        ("/", {}, 8),
        ("/", {"": "200000 100000"}, 2),  # a container with a name space of its own
        ("/", {"": "150000 100000"}, 2),
        ("/", {"": "10000 100000"}, 1),
        ("/system.slice/skewgate.service", {"system.slice/skewgate.service": "max 100000"}, 8),
        ("/system.slice/skewgate.service", {"system.slice/skewgate.service": "300000 100000"}, 3),
        ("/a/b", {"a": "400000 100000", "a/b": "max 100000"}, 4),
        ("/a/b", {"a": "400000 100000", "a/b": "500000 100000"}, 4),
        ("/a", {"a": "1600000 100000"}, 8),  # more than there are
        ("/../x", {"": "max 100000"}, 8),  # a container sees groups outside of its own
        ("/a", {"a": "what"}, 8),
        ("/a", {"a": "1 0"}, 8),
    ],
)
def test_quotas(tmp_path: Path, group: str, limits: dict[str, str], cpus: int) -> None:
    assert usable_cpus(machine(tmp_path, group, limits)) == cpus


def test_without_control_groups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_cpus(tmp_path) == 8
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("7:cpu,cpuacct:/a\n", encoding="ascii")  # version 1
    assert usable_cpus(tmp_path) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable_cpus(tmp_path) == 1
