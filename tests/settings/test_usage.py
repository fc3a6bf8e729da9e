"""`usage`: on without a key, `off`, and a database that cannot be where the file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.sections.usage import UsageSettings
from tests.settings.texts import BASE, load_text


def test_usage_is_recorded_unless_it_is_off() -> None:
    assert load_text(BASE).require().usage == UsageSettings(None, 30, 200_000, addresses=False)
    assert load_text(f"{BASE}usage: off\n").require().usage is None
    written = "usage: {path: /var/tmp/x.db, keep: 90d, rows: 5000, addresses: true}\n"
    assert load_text(BASE + written).require().usage == UsageSettings(
        "/var/tmp/x.db", 90, 5000, addresses=True
    )


@pytest.mark.parametrize("keep", ["0d", "30", "24h", "1000d", "1.5d", "-1d"])
def test_a_record_is_kept_for_whole_days(keep: str) -> None:
    (problem,) = load_text(f"{BASE}usage: {{keep: {keep}}}\n").problems
    assert problem.code == "bad-value"
    assert "30d" in str(problem.hint)


def test_a_database_that_cannot_be_written_is_reported_at_its_key(tmp_path: Path) -> None:
    (problem,) = load_text(f"{BASE}usage: {{path: {tmp_path}/nowhere/usage.db}}\n").problems
    assert (problem.code, problem.line) == ("bad-value", BASE.count("\n") + 1)


def test_a_database_never_overwrites_the_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    (problem,) = load_text(f"{BASE}state: {path}\nusage: {{path: {path}}}\n").problems
    assert (problem.code, problem.message) == ("contradiction", "this is the `state` file")
