"""The composition: valid, every file that it names is there, and each program takes its part."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway import __version__
from gateway.settings import load
from tests.packaging.tools import ROOT, run, tool

pytestmark = pytest.mark.packaging

FOLDER: Final = ROOT / "deploy" / "compose"
BACKENDS: Final = {"BACKEND_1": "http://127.0.0.1:6385", "BACKEND_2": "http://127.0.0.1:6386"}


def composition() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return found


def test_the_composition_is_valid() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FOLDER / "compose.yaml")

    assert composition()["services"]["skewgate"]["image"] == f"skewgate:{__version__}"


def test_every_file_that_is_mounted_is_there() -> None:
    found = composition()
    for service in found["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in found["volumes"] or (FOLDER / source).exists(), volume
    build = found["services"]["skewgate"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).exists()


def test_the_gateway_takes_its_configuration() -> None:
    text = (FOLDER / "skewgate.yaml").read_text(encoding="utf-8")
    loaded = load(text, filename="skewgate.yaml", environ=BACKENDS, check_files=False)
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]

    assert not loaded.problems, loaded.render()
    settings = loaded.require()
    assert set(composition()["services"]["skewgate"]["environment"]) == set(BACKENDS)
    assert settings.admin.metrics_listen is not None
    assert scraped[0]["static_configs"][0]["targets"] == [f"skewgate:{settings.admin.metrics_listen[1]}"]


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """With the rules where the composition has them."""
    shutil.copytree(ROOT / "deploy" / "prometheus" / "rules", tmp_path / "rules")
    text = (FOLDER / "prometheus.yaml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.yaml").write_text(text.replace("/etc/prometheus", str(tmp_path)))

    said = run("promtool", "check", "config", tmp_path / "prometheus.yaml").stdout

    assert "1 rule files found" in said


def test_grafana_finds_the_data_that_its_dashboard_shows() -> None:
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasources.yaml").read_text(encoding="utf-8"))[
        "datasources"
    ]
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text(encoding="utf-8"))[
        "providers"
    ]
    mounted = [volume.split(":")[1] for volume in composition()["services"]["grafana"]["volumes"]]

    assert source["url"] == "http://prometheus:9090"
    assert provider["options"]["path"] in mounted
