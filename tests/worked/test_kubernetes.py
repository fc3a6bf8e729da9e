"""config/examples/kubernetes.yaml: a group and a named version in the path, and a service for each group."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed, running
from tests.worked.path_servers import NOT_FOUND, Kubernetes

BATCH, FLOW = f"/apis/{Kubernetes.batch}", f"/apis/{Kubernetes.flowcontrol}"


@pytest.fixture
async def testbed() -> AsyncIterator[WorkedTestbed]:
    """An old and a new server. Both serve both versions of `batch`, and one version of `flowcontrol`."""
    old = Kubernetes(batch=["v1beta1", "v1"], flowcontrol=["v1beta2", "v1beta3"])
    new = Kubernetes(batch=["v1beta1", "v1"], flowcontrol=["v1beta3", "v1"])
    async with running("kubernetes", old, new, service="flowcontrol") as testbed:
        await testbed.until_offered("v1beta3")
        yield testbed


@pytest.mark.parametrize(
    "target, version",
    [
        (f"{FLOW}/v1beta3/flowschemas?limit=5", "flowcontrol.apiserver.k8s.io/v1beta3"),
        (f"{FLOW}/v1beta3", "flowcontrol.apiserver.k8s.io/v1beta3"),
        (f"{BATCH}/v1/namespaces/default/jobs", "batch/v1"),
        (f"{BATCH}/v1beta1/cronjobs", "batch/v1beta1"),
    ],
)
async def test_a_version_that_both_serve(testbed: WorkedTestbed, target: str, version: str) -> None:
    response = await testbed.repeated(target)

    assert (response.status, json.loads(response.body)["apiVersion"]) == (200, version)
    assert testbed.executed() == [version] * REPEATS
    assert {head.target for head in testbed.forwarded} == {target}


@pytest.mark.parametrize(
    "target",
    [
        *(
            f"{FLOW}/{version}/flowschemas"
            for version in ("v1", "v1beta2", "v1alpha1", "v9", "V1beta3", "%761beta3")
        ),
        f"{FLOW}/latest/flowschemas",
        f"{BATCH}/v2alpha1/cronjobs",
        f"{BATCH}//v1/jobs",
    ],
)
async def test_any_other_version_is_not_found(testbed: WorkedTestbed, target: str) -> None:
    response = await testbed.repeated(target)

    assert (response.status, response.body) == (404, NOT_FOUND)
    assert response.get("Content-Type") == "text/plain; charset=utf-8"
    assert testbed.forwarded == []


async def test_documents_list_the_versions_on_offer(testbed: WorkedTestbed) -> None:
    flow, batch = await testbed.repeated(FLOW), await testbed.repeated(BATCH)

    assert json.loads(flow.body) == Kubernetes.group(Kubernetes.flowcontrol, ["v1beta3"])
    assert json.loads(batch.body) == Kubernetes.group(Kubernetes.batch, ["v1beta1", "v1"])


async def test_a_path_of_no_service_is_not_routed(testbed: WorkedTestbed) -> None:
    assert [(await testbed.send(target)).status for target in ("/apis", "/api/v1/pods", "/apis/apps/v1")] == [
        404,
        404,
        404,
    ]
    assert testbed.forwarded == []


async def test_one_group_moves_and_the_other_does_not(testbed: WorkedTestbed) -> None:
    old, _ = testbed.servers
    assert isinstance(old, Kubernetes)
    old.groups[Kubernetes.flowcontrol] = ("v1beta3", "v1")
    await testbed.until_offered("v1beta3..v1")

    assert (await testbed.repeated(f"{FLOW}/v1/flowschemas")).status == 200
    assert testbed.executed() == ["flowcontrol.apiserver.k8s.io/v1"] * REPEATS
    assert json.loads((await testbed.repeated(FLOW)).body) == Kubernetes.group(
        Kubernetes.flowcontrol, ["v1beta3", "v1"]
    )
    assert json.loads((await testbed.repeated(BATCH)).body) == Kubernetes.group(
        Kubernetes.batch, ["v1beta1", "v1"]
    )
