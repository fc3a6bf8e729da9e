"""What operators see of several replicas, and say to all of them."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from math import inf
from types import SimpleNamespace
from typing import Any, cast

from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.prober import Prober
from gateway.controlplane.replication.replication import Replication
from gateway.controlplane.sight import Evidence, Sight
from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.fleet import OperatorCommand, Pin
from gateway.core.versions.version import Version
from gateway.telemetry.neighbours import AgreementReport, ReplicaReport, ServiceReport
from gateway.telemetry.series.neighbours import OfReplicas
from gateway.telemetry.series.now import Now
from tests.admin.testbed import StartAdmin, mixed_fleet
from tests.telemetry.builders import samples

CEILING = "/services/baremetal/ceiling"
OWN = ReplicaReport("a1", "gw-1", "gw-1", "0.1.0", attached=True, seen_at=100.0)
OTHER = ReplicaReport("b2", "gw-2", "gw-2", "0.1.0", attached=False, seen_at=90.0, holds=("baremetal",))


def report(service: ServiceReport | None = None, *more: ReplicaReport, error: str = "") -> AgreementReport:
    about = service or ServiceReport(attached=True, since=50.0, seq=7)
    return AgreementReport("a1", error, (OWN, OTHER, *more), {"baremetal": about})


async def test_status_names_who_is_attached_and_who_holds_a_change_back(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    testbed.agreement = report(
        ServiceReport(True, 50.0, 7, None, ("b2",), busy={"api-1": (), "api-2": ("a1",)})
    )
    document = await testbed.json("/status")
    agreement, service = document["agreement"], document["services"]["baremetal"]

    assert (agreement["id"], agreement["attached"], agreement["since"]) == ("a1", True, 50.0)
    assert [(each["id"], each["attached"], each["holds"]) for each in agreement["replicas"]] == [
        ("a1", True, []),
        ("b2", False, ["baremetal"]),
    ]
    assert service["offer"]["held_by_replicas"] == ["gw-2"]
    assert service["agreement"]["awaited"] == ["gw-2"]
    assert service["agreement"]["drains"] == {
        "api-1": {"idle": True, "busy": []},
        "api-2": {"idle": False, "busy": ["gw-1"]},
    }


async def test_a_detached_replica_is_ready_but_not_attached_and_does_not_know_who_is_idle(
    admin: StartAdmin,
) -> None:
    testbed = await admin(mixed_fleet())
    testbed.agreement = report(
        ServiceReport(False, 60.0, 7, 3600.0, busy={"api-1": ()}), error="no endpoint answers"
    )
    assert (await testbed.send("GET", "/readyz")).status == 200
    assert (await testbed.send("GET", "/readyz?attached")).status == 503
    verbose = await testbed.send("GET", "/readyz?verbose")
    assert verbose.status == 200
    assert (
        "[-] agreement: this replica is detached for baremetal because the store does not respond: "
        "no endpoint answers; it stops responding in 3600 s\nready\n"
    ) in await verbose.text()
    document = await testbed.json("/status")
    assert (document["agreement"]["since"], document["agreement"]["answers_for"]) == (60.0, 3600.0)
    assert document["services"]["baremetal"]["agreement"]["drains"] == {}

    testbed.agreement = None
    assert (await testbed.send("GET", "/readyz?attached")).status == 200


async def test_R3_V3_a_replica_that_joins_is_not_ready(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    testbed.agreement = report(ServiceReport(False, 60.0, 7))._replace(joining=True)
    assert (await testbed.send("GET", "/readyz")).status == 503
    verbose = await testbed.send("GET", "/readyz?verbose")
    assert "[-] joined: this replica has not joined the others since its start\n" in await verbose.text()

    testbed.agreement = testbed.agreement._replace(joining=False)
    assert (await testbed.send("GET", "/readyz")).status == 200


async def test_a_command_goes_through_the_store_and_names_replicas(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    said: list[tuple[str, OperatorCommand]] = []

    async def command(service: str, what: OperatorCommand) -> None:
        said.append((service, what))

    app = await admin(testbed.snapshot_holder, command=command)
    app.agreement, app.pending = report(), ("b2, store",)
    document = await (await app.send("PUT", CEILING, data=json.dumps({"version": "1.31"}))).json()

    assert said == [("baremetal", Pin(Version(1, 31)))]
    assert document["pending"] == ["gw-2", "store"]


async def test_a_command_that_the_store_does_not_take_is_503_and_changes_nothing_here(
    admin: StartAdmin,
) -> None:
    async def command(service: str, what: OperatorCommand) -> None:
        raise StoreError("no endpoint answers")

    testbed = await admin(mixed_fleet(), command=command)
    response = await testbed.send("PUT", CEILING, data=json.dumps({"version": "1.31"}))

    assert response.status == 503
    assert "no endpoint answers" in await response.text()
    assert (await testbed.json("/status"))["services"]["baremetal"]["pin"] is None


async def test_only_a_registered_replica_that_is_gone_is_forgotten(admin: StartAdmin) -> None:
    asked = []

    async def forget(replica: str) -> bool:
        asked.append(replica)
        return replica == "b2"

    testbed = await admin(mixed_fleet(), forget=forget)
    assert (await testbed.send("DELETE", "/replicas/b2")).status == 404  # it stands alone
    live = ReplicaReport("c3", "gw-2", "gw-2", "0.1.0", attached=True, seen_at=100.0)
    testbed.agreement = report(None, live)
    found = {name: await testbed.send("DELETE", f"/replicas/{name}") for name in ("a1", "b2", "c3", "d4")}

    assert {name: each.status for name, each in found.items()} == {"a1": 409, "b2": 200, "c3": 409, "d4": 404}
    assert "gw-2 (c3) is live" in await found["c3"].text()
    assert asked == ["b2", "c3", "d4"]


def test_metrics_count_replicas_and_tell_until_when_a_detached_one_answers() -> None:
    detached = ServiceReport(attached=False, since=60.0, seq=7, answers_for=3600.0)
    found = samples(OfReplicas, Now(agreement=report(detached, error="x")))

    assert found["agreement_replicas"] == {("attached",): 1, ("detached",): 1}
    assert found["agreement_attached"] == {("baremetal",): 0}
    assert found["agreement_answers_for_seconds"] == {("baremetal",): 3600.0}
    assert found["agreement_forget_seconds"] == {(): inf}
    assert found["agreement_holding_replicas"] == {("baremetal",): 1}
    assert found["agreement_store_up"] == {(): 0}
    assert samples(OfReplicas, Now()) == {}


async def test_evidence_about_a_member_is_of_every_replica_and_its_trouble_says_where(
    admin: StartAdmin,
) -> None:
    """It holds once each replica has told it about this member, not about another one."""
    holder, nothing, asked = mixed_fleet(), frozenset[str](), list[str]()
    told = [Evidence("api-2", "", 0, {}), Evidence("api-1", "ejected: no_reply", 2, {"1.31": [9, 1, 8, 0]})]

    async def request_probes(service: str, judged: str) -> int:
        asked.append(f"{service}/{judged}")
        return 7

    def sights(service: str, question: int) -> dict[str, Any]:
        return {"b2": Sight("mixed", {}, nothing, nothing, nothing, told[min(len(asked), 2) - 1])}

    others = cast(Replication, SimpleNamespace(id="a1", request_probes=request_probes, sights=sights))
    prober = SimpleNamespace(
        probe_now=lambda *_, **__: 1.0, has_ended=lambda *_: True, has_answered=lambda *_: True
    )
    facts = FreshFacts(
        holder, cast(Prober, prober), dict, others, evidence=lambda _: {("api-1", "1.31", True): 3}
    )
    testbed = await admin(holder, agreement=report(), facts=facts)
    path = "/services/baremetal/wait?backend=api-1&evidence&seconds=0"
    early, late = [await (await testbed.send("POST", path)).json() for _ in range(2)]

    assert asked == ["baremetal/api-1"] * 2
    assert (early["holds"], early["waits_for"]) == (
        False,
        ["gw-2: it has not said yet what it has counted of api-1"],
    )
    assert late["status"]["evidence"].keys() == {"a1", "b2"}  # as every replica calls them
    own, other = late["status"]["evidence"].values()
    assert own == {"member": "api-1", "trouble": "", "lost": 0, "by_version": {"1.31": [3, 3, 0, 0]}}
    assert other == told[1]._asdict() | {"trouble": "gw-2: ejected: no_reply"}
