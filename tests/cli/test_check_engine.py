"""`check --engine`: services of which no request can go past the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import main

START = "listen: 127.0.0.1:8080\nservices:\n"
BACKENDS = "    backends: [{url: 'http://127.0.0.1:6385'}]\n"


@pytest.mark.parametrize(
    "service, reason",
    [
        ("    dialect: chef\n", "(`dialect`)"),
        ("    dialect: ironic\n    match: {path: /baremetal}\n", "(`match.path`)"),
        ("    dialect: ironic\n    headers: {request: {set: {X-A: b}}}\n", "(`headers`)"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    service: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{START}  one:\n{service}{BACKENDS}")
    assert main(["check", str(file)]) == 0
    assert main(["check", "--engine", "haproxy", str(file)]) == 2
    out = capfd.readouterr().out
    assert f"{file}:3:3: error[engine]: no engine can serve 'one'" in out
    assert reason in out


def test_a_service_that_can_be_expressed_is_fine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{START}  one:\n    dialect: ironic\n{BACKENDS}")
    assert main(["check", "--engine", "haproxy", str(file)]) == 0
    assert "fine" in capfd.readouterr().out
