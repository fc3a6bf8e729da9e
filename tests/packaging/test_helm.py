"""The Helm chart: linted and rendered by Helm's own library, every object valid for old and new Kubernetes,
and its parts agree with each other and with the gateway."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.settings import load
from tests.packaging.tools import LIMIT, ROOT, tool, tools

pytestmark = pytest.mark.packaging

CHART: Final = ROOT / "deploy" / "helm" / "skewgate"
RENDER: Final = """\
import json
import sys

import helm_python

answers = []
with helm_python.Chart.load(sys.argv[1]) as chart:
    for wanted in json.load(sys.stdin):
        try:
            chart.validate_schema(wanted["values"])
            answers.append({"objects": chart.render(wanted["values"], name=wanted["name"], namespace="api")})
        except helm_python.HelmError as error:
            answers.append({"error": str(error)})
report = helm_python.lint(sys.argv[1], strict=True)
json.dump({"answers": answers, "errors": report["errors"]}, sys.stdout)
"""
"""Run by the interpreter of the tools, which has the library."""
KUBERNETES: Final = ("1.25.0", "1.37.0")
"""The oldest that Chart.yaml allows, and the newest that the validator knows."""
EVERYTHING: Final[Mapping[str, Any]] = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "persistence": {"enabled": True, "storageClass": "fast"},
    "image": {"repository": "registry.example/skewgate", "tag": "1.2.3"},
    "imagePullSecrets": [{"name": "pull"}],
    "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "gateway", "key": "token"}}}],
    "envFrom": [{"secretRef": {"name": "gateway"}}],
    "volumes": [{"name": "certificates", "secret": {"secretName": "tls"}}],
    "volumeMounts": [{"name": "certificates", "mountPath": "/tls", "readOnly": True}],
    "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "api"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "priorityClassName": "high",
}


def helm(*wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What Helm says to each set of values. The linter must have nothing to say."""
    ended = subprocess.run(
        [tools().python, "-c", RENDER, CHART],
        input=json.dumps([{"values": values, "name": "edge"} for values in wanted]),
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    said = json.loads(ended.stdout)
    assert said["errors"] == []
    answers: list[dict[str, Any]] = said["answers"]
    return answers


@cache
def objects(*, everything: bool) -> dict[str, dict[str, Any]]:
    """The objects by kind; the service of the metrics is `Service metrics`."""
    (answer,) = helm(EVERYTHING if everything else {})
    found = {}
    for name, text in answer["objects"].items():
        if name.endswith(".yaml"):
            for each in yaml.safe_load_all(text):
                if each:
                    ports = {port["name"] for port in each.get("spec", {}).get("ports", ())}
                    found[f"{each['kind']} metrics" if "metrics" in ports else each["kind"]] = each
    return found


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_takes_every_object(everything: bool, release: str, tmp_path: Path) -> None:
    found = objects(everything=everything)
    files = []
    for kind, each in found.items():
        if kind != "ServiceMonitor":  # no part of Kubernetes: below
            files.append(tmp_path / f"{kind}.yaml")
            files[-1].write_text(yaml.safe_dump(each))

    tool("kubernetes-validate", "--strict", "-k", release, *files)

    expected = {
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
        "Service metrics",
        "ServiceAccount",
    }
    assert set(found) == expected | ({"PersistentVolumeClaim", "ServiceMonitor"} if everything else set())


def test_the_validator_finds_a_wrong_object(tmp_path: Path) -> None:
    wrong = {**objects(everything=False)["Deployment"], "spec": {"replicas": "many"}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))

    ended = tool("kubernetes-validate", "--strict", "-k", KUBERNETES[0], tmp_path / "wrong.yaml", check=False)

    assert ended.returncode
    assert "replicas" in ended.stdout + ended.stderr


@pytest.mark.parametrize("everything", [False, True])
def test_the_parts_find_each_other(everything: bool) -> None:
    found = objects(everything=everything)
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    labels = pod["metadata"]["labels"].items()

    for kind in ("Service", "Service metrics"):
        assert found[kind]["spec"]["selector"].items() <= labels
        assert all(port["targetPort"] in ports for port in found[kind]["spec"]["ports"])
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert not any("subPath" in mount for mount in container["volumeMounts"])
    if everything:
        monitor = found["ServiceMonitor"]["spec"]
        service = found["Service metrics"]
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert (
            not monitor["selector"]["matchLabels"].items() <= found["Service"]["metadata"]["labels"].items()
        )
        assert [each["port"] for each in monitor["endpoints"]] == ["metrics"]


def test_the_gateway_takes_the_configuration_as_it_was_written() -> None:
    found = objects(everything=False)
    text = found["ConfigMap"]["data"]["skewgate.yaml"]
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    settings = load(text, filename="values.yaml", environ={}, check_files=False).require()

    assert [listen.port for listen in settings.listen] == [ports["http"]]
    assert settings.admin.metrics_listen is not None
    assert settings.admin.metrics_listen[1] == ports["metrics"]
    (answer,) = helm({"config": "services: {a: {offer: {ceiling: 1.90}}}\n"})
    assert "ceiling: 1.90" in answer["objects"]["skewgate/templates/configmap.yaml"]


def test_the_pod_has_no_rights_and_outlives_the_drain() -> None:
    found = objects(everything=False)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = load(
        found["ConfigMap"]["data"]["skewgate.yaml"], filename="v", environ={}, check_files=False
    ).require()

    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["automountServiceAccountToken"]
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > settings.timeouts.drain + pause


@pytest.mark.parametrize(
    "values, said",
    [
        ({"config": {"listen": "0.0.0.0:8080"}}, "/config"),
        ({"replicas": "two"}, "/replicas"),
        ({"replica": 2}, "replica"),
        ({"ports": {"http": 0, "metrics": 9901}}, "/ports/http"),
        ({"serviceMonitor": {"interval": "often"}}, "/serviceMonitor/interval"),
        ({"replicas": 2, "persistence": {"enabled": True}}, "one pod"),
    ],
)
def test_wrong_values_are_refused_with_their_place(values: dict[str, Any], said: str) -> None:
    (answer,) = helm(values)

    assert said in answer["error"]


def test_the_schema_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    assert set(values) == set(schema["properties"]) - {"global"}
    tool("check-jsonschema", "--check-metaschema", CHART / "values.schema.json")
    tool("check-jsonschema", "--schemafile", CHART / "values.schema.json", CHART / "values.yaml")


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert chart["version"] == chart["appVersion"] == project["version"]
