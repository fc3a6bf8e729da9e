"""What README promises about packages: alert rules and dashboard are in them, other pages are linked."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = {
    "deploy/prometheus/rules/skewgate.yml": "share/skewgate/prometheus/skewgate.yml",
    "deploy/grafana/skewgate.json": "share/skewgate/grafana/skewgate.json",
}


def test_R3_N10_the_wheel_has_alert_rules_and_dashboard() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]

    assert FILES.items() <= shared.items()
    assert all((ROOT / source).is_file() for source in shared if source != "config")


def test_R3_N10_so_has_the_debian_package() -> None:
    rules = (ROOT / "deploy" / "debian" / "rules").read_text()

    for source, target in FILES.items():
        assert source in rules
        assert f"debian/skewgate/usr/{target}" in rules


def test_R3_N10_what_is_not_in_a_package_is_linked() -> None:
    home = "https://github.com/skewgate/skewgate"
    page = (ROOT / "docs" / "deploy.md").read_text()

    assert home in (ROOT / "README.md").read_text()
    assert f"Homepage: {home}\n" in (ROOT / "deploy" / "debian" / "control").read_text()
    assert home in page
    assert "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" in page
