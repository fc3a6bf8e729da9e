"""What is said of replicas that hold a change back."""

from __future__ import annotations

from gateway.telemetry.neighbours import AgreementReport, ReplicaReport, ServiceReport


def replica(number: int, *, attached: bool = True, holds: tuple[str, ...] = ()) -> ReplicaReport:
    return ReplicaReport(f"id-{number}", f"gw-{number}", "host", "0.1.0", attached, None, holds)


def why_held(*replicas: ReplicaReport, service: ServiceReport | None = None, error: str = "") -> str:
    about = service or ServiceReport(attached=True, since=0.0, seq=1)
    return AgreementReport("id-1", error, replicas, {"baremetal": about}).why_held("baremetal")


def test_each_is_named_with_its_id_and_what_it_is_awaited_for() -> None:
    away = replica(2, attached=False, holds=("baremetal",))
    against = replica(3, holds=("baremetal",))
    slow = replica(4)
    service = ServiceReport(attached=True, since=0.0, seq=2, awaited=("id-4",))
    assert why_held(replica(1), away, against, slow, service=service) == (
        "held back by replicas: gw-2 (id-2) is not attached, "
        "gw-3 (id-3) does not vote for it, gw-4 (id-4) has not acknowledged it"
    )


def test_those_of_another_service_are_not_named() -> None:
    assert why_held(replica(1), replica(2, holds=("compute",))) == ""
    assert AgreementReport("id-1", "", (), {}).why_held("baremetal") == ""


def test_many_are_counted() -> None:
    text = why_held(*(replica(number, holds=("baremetal",)) for number in range(9)))
    assert text.count("gw-") == 4
    assert text.endswith(" and 5 more")


def test_a_detached_one_says_why_it_is() -> None:
    detached = ServiceReport(attached=False, since=0.0, seq=1)
    assert why_held(service=detached, error="no member answers") == (
        "this replica is detached: no member answers"
    )
    unreadable = detached._replace(problem="`doc` is of another scheme")
    assert why_held(service=unreadable) == "this replica is detached: `doc` is of another scheme"
    assert why_held(service=detached) == "this replica is detached: it has not joined yet"
