"""config/examples/kubernetes.yaml: a group and a named version in the path, a service for each group."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.worked.fleet import TRIES, WorkedStand, running
from tests.worked.path_servers import NOT_FOUND, Kubernetes

BATCH, FLOW = f"/apis/{Kubernetes.batch}", f"/apis/{Kubernetes.flowcontrol}"


@pytest.fixture
async def stand() -> AsyncIterator[WorkedStand]:
    """Servers of two ages: of `batch` both serve both versions, of `flowcontrol` one."""
    old = Kubernetes(batch=["v1beta1", "v1"], flowcontrol=["v1beta2", "v1beta3"])
    new = Kubernetes(batch=["v1beta1", "v1"], flowcontrol=["v1beta3", "v1"])
    async with running("kubernetes", old, new, service="flowcontrol") as stand:
        await stand.until_offered("v1beta3")
        yield stand


@pytest.mark.parametrize(
    "target, version",
    [
        (f"{FLOW}/v1beta3/flowschemas?limit=5", "flowcontrol.apiserver.k8s.io/v1beta3"),
        (f"{FLOW}/v1beta3", "flowcontrol.apiserver.k8s.io/v1beta3"),
        (f"{BATCH}/v1/namespaces/default/jobs", "batch/v1"),
        (f"{BATCH}/v1beta1/cronjobs", "batch/v1beta1"),
    ],
)
async def test_what_both_serve(stand: WorkedStand, target: str, version: str) -> None:
    reply = await stand.same(target)

    assert (reply.status, json.loads(reply.body)["apiVersion"]) == (200, version)
    assert stand.executed() == [version] * TRIES
    assert {head.target for head in stand.asked} == {target}


@pytest.mark.parametrize(
    "target",
    [
        *(
            f"{FLOW}/{each}/flowschemas"
            for each in ("v1", "v1beta2", "v1alpha1", "v9", "V1beta3", "%761beta3")
        ),
        f"{FLOW}/latest/flowschemas",
        f"{BATCH}/v2alpha1/cronjobs",
        f"{BATCH}//v1/jobs",
    ],
)
async def test_any_other_is_not_there(stand: WorkedStand, target: str) -> None:
    reply = await stand.same(target)

    assert (reply.status, reply.body) == (404, NOT_FOUND)
    assert reply.get("Content-Type") == "text/plain; charset=utf-8"
    assert stand.asked == []


async def test_documents_list_what_is_on_offer(stand: WorkedStand) -> None:
    flow, batch = await stand.same(FLOW), await stand.same(BATCH)

    assert json.loads(flow.body) == Kubernetes.group(Kubernetes.flowcontrol, ["v1beta3"])
    assert json.loads(batch.body) == Kubernetes.group(Kubernetes.batch, ["v1beta1", "v1"])


async def test_what_stands_in_no_service_is_not_routed(stand: WorkedStand) -> None:
    assert [(await stand.ask(target)).status for target in ("/apis", "/api/v1/pods", "/apis/apps/v1")] == [
        404,
        404,
        404,
    ]
    assert stand.asked == []


async def test_one_group_moves_and_the_other_does_not(stand: WorkedStand) -> None:
    old, _ = stand.servers
    assert isinstance(old, Kubernetes)
    old.groups[Kubernetes.flowcontrol] = ("v1beta3", "v1")
    await stand.until_offered("v1beta3..v1")

    assert (await stand.same(f"{FLOW}/v1/flowschemas")).status == 200
    assert stand.executed() == ["flowcontrol.apiserver.k8s.io/v1"] * TRIES
    assert json.loads((await stand.same(FLOW)).body) == Kubernetes.group(
        Kubernetes.flowcontrol, ["v1beta3", "v1"]
    )
    assert json.loads((await stand.same(BATCH)).body) == Kubernetes.group(Kubernetes.batch, ["v1beta1", "v1"])
