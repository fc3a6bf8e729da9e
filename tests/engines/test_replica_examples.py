"""The examples of three replicas over etcd, for Compose and for Helm: valid, and their parts fit together.

Nothing of them is started here: test_replicas.py does what they describe, with processes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway import __version__
from gateway.settings import Settings, load
from tests.architecture.source import ROOT
from tests.docs.pages import page
from tests.engines.equality.haproxy import program
from tests.packaging.test_helm import KUBERNETES, helm
from tests.packaging.tools import run, tool

pytestmark = pytest.mark.engines

COMPOSE: Final = ROOT / "deploy/compose/replicas"
HELM: Final = ROOT / "deploy/helm/replicas.yaml"
GATEWAYS: Final = ("skewgate-1", "skewgate-2", "skewgate-3")
MEMBERS: Final = ("etcd-1", "etcd-2", "etcd-3")
BACKENDS: Final = {"BACKEND_1": "http://127.0.0.1:6385", "BACKEND_2": "http://127.0.0.1:6386"}


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def settings_of(text: str, name: str) -> Settings:
    loaded = load(text, filename=name, environ=BACKENDS, check_files=False)
    warnings = [problem.message for problem in loaded.problems]
    # etcd inside of one network, and a short `forget` where pods do not come back: both on purpose.
    assert all("https" in each or "forget" in each for each in warnings), loaded.render()
    return loaded.require()


def test_the_composition_is_valid_and_every_file_is_there() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE / "compose.yaml")
    found = read(COMPOSE / "compose.yaml")

    assert set(found["services"]) == {*GATEWAYS, *MEMBERS, "haproxy"}
    for service in found["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in found["volumes"] or (COMPOSE / source).exists(), volume
    for name in GATEWAYS:
        build = found["services"][name]["build"]
        assert (COMPOSE / build["context"] / build["dockerfile"]).exists()
        assert found["services"][name]["image"] == f"skewgate:{__version__}"
        assert set(found["services"][name]["environment"]) == set(BACKENDS)


def test_no_two_share_a_state_a_name_or_the_data_of_etcd() -> None:
    services = read(COMPOSE / "compose.yaml")["services"]
    owned = [
        volume.partition(":")[0]
        for name in (*GATEWAYS, *MEMBERS)
        for volume in services[name]["volumes"]
        if not volume.startswith("./")
    ]

    assert len(owned) == len(set(owned)) == 6
    assert [services[name]["hostname"] for name in GATEWAYS] == [*GATEWAYS]


def test_the_gateways_name_the_members_and_believe_the_balancer() -> None:
    found = read(COMPOSE / "compose.yaml")
    settings = settings_of((COMPOSE / "skewgate.yaml").read_text(), "skewgate.yaml")
    (network,) = found["networks"]["default"]["ipam"]["config"]

    assert settings.agreement is not None
    assert settings.agreement.etcd.endpoints == tuple(f"http://{name}:2379" for name in MEMBERS)
    assert [str(each) for each in settings.trusted_proxies] == [network["subnet"]]
    assert settings.state == "/var/lib/skewgate/state.json"
    for name in MEMBERS:
        words = dict(
            word.removeprefix("--").split("=", 1)
            for word in found["services"][name]["command"]
            if "=" in word
        )
        assert words["name"] == name
        assert words["advertise-client-urls"] == f"http://{name}:2379"
        assert words["initial-advertise-peer-urls"] == f"http://{name}:2380"
        assert words["initial-cluster"] == ",".join(f"{each}=http://{each}:2380" for each in MEMBERS)
        assert found["services"][name]["volumes"] == [f"{name}:{words['data-dir']}"]


def test_haproxy_takes_its_configuration_and_asks_every_gateway(tmp_path: Path) -> None:
    text = (COMPOSE / "haproxy.cfg").read_text()
    settings = settings_of((COMPOSE / "skewgate.yaml").read_text(), "skewgate.yaml")
    assert settings.admin.metrics_listen is not None
    said = run(program(), "-c", "-f", COMPOSE / "haproxy.cfg")

    assert "WARNING" not in said.stdout + said.stderr
    for name in GATEWAYS:
        assert f"server {name} {name}:{settings.listen[0].port}\n" in text
    assert f"check port {settings.admin.metrics_listen[1]} " in text
    assert "uri /readyz\n" in text
    wrong = tmp_path / "wrong.cfg"
    wrong.write_text(text.replace("default_backend", "default_bakend"))
    assert run(program(), "-c", "-f", wrong, check=False).returncode


def test_helm_renders_three_gateways_that_agree(tmp_path: Path) -> None:
    (answer,) = helm(read(HELM))
    found: dict[str, Any] = {}
    for name, text in answer["objects"].items():
        if name.endswith(".yaml"):
            found |= {each["kind"]: each for each in yaml.safe_load_all(text) if each}
    deployment = found["Deployment"]["spec"]
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    settings = settings_of(found["ConfigMap"]["data"]["skewgate.yaml"], "values")

    assert deployment["replicas"] == 3
    assert settings.agreement is not None
    assert len(settings.agreement.etcd.endpoints) == 3
    assert settings.agreement.forget == 3600.0
    labels = deployment["template"]["metadata"]["labels"].items()
    assert spread["labelSelector"]["matchLabels"].items() <= labels
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    for release in KUBERNETES:
        file = tmp_path / f"{release}.yaml"
        file.write_text(yaml.safe_dump(found["Deployment"]))
        tool("kubernetes-validate", "--strict", "-k", release, file)
    assert "PersistentVolumeClaim" not in found


def test_the_schema_of_the_chart_takes_the_values_and_finds_a_slip() -> None:
    values = read(HELM)
    wrong = json.loads(json.dumps(values)) | {"replica": 3}

    assert "error" in helm(wrong)[0]
    assert "error" not in helm(values)[0]


def test_the_page_names_both() -> None:
    text = page("docs/replicas.md")

    assert "(../deploy/compose/replicas)" in text
    assert "(../deploy/helm/replicas.yaml)" in text
