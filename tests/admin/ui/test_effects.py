"""What a command will change, in words: said before it is given, and true once it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.admin import effects
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Drain, Pin, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.telemetry.recent import SPAN, LastHour
from tests.core.builders import XY, legacy, service, snapshot, upto, v

NOTHING_SERVED = LastHour({}, SPAN)
MIXED = {"api-1": upto(58), "api-2": upto(90)}
UNIFORM = {"api-1": upto(90), "api-2": upto(90)}


def view(
    results: Mapping[str, Advertisement | None],
    pin: str | None = None,
    drained: tuple[str, ...] = (),
    **more: Any,
) -> ServiceView:
    """A service after a first round of probes, and the operator's commands."""
    return applied(snapshot(results, **more), *map(Drain, drained), Pin(None if pin is None else v(pin)))


def applied(before: Snapshot, *commands: Pin | Drain) -> ServiceView:
    for command in commands:
        before = before.with_fleet(before.fleet.apply("toy", command), 1.0)
    return before.views["toy"]


def drain(one: ServiceView, name: str) -> str:
    return effects.drain(one, one.members.all[one.members.positions[name]])


def enable(one: ServiceView, name: str) -> str:
    return effects.enable(one, one.members.all[one.members.positions[name]])


def hour(**served: int) -> LastHour:
    """Of `v58=3` three requests at 1.58."""
    return LastHour({f"1.{name.removeprefix('v')}": count for name, count in served.items()}, SPAN)


# --- pin ------------------------------------------------------------------------------------------------


def test_a_pin_says_what_will_be_refused_and_whose_requests_that_are() -> None:
    assert effects.pin(view(UNIFORM), v("1.58"), hour(v1=50, v58=36, v59=4, v90=10)) == (
        "1.59-1.90 will be refused; 14 % of the last hour's requests asked for them or got them as the "
        "latest; versions above 1.58 will not be offered until it is unpinned"
    )


def test_what_it_says_is_what_the_pin_then_does() -> None:
    before = snapshot(UNIFORM)
    after = applied(before, Pin(v("1.58")))
    gone = before.views["toy"].offer.versions - after.offer.versions
    assert effects.pin(before.views["toy"], v("1.58"), NOTHING_SERVED).startswith(
        f"{gone.format(XY)} will be refused"
    )


@pytest.mark.parametrize(
    "last_hour, said",
    [
        (NOTHING_SERVED, "no request of the last hour asked for them"),
        (hour(v58=5), "no request of the last hour asked for them"),
        (hour(v90=5), "100 % of the last hour's requests"),
        (hour(v58=999, v90=1), "< 1 % of the last hour's requests"),
        (hour(v58=1, v90=999), "> 99 % of the last hour's requests"),
        (LastHour({"1.58": 1, "1.90": 1}, 90.0), "50 % of the requests since the start"),
        (LastHour({"1.58": 1}, 90.0), "no request since the start"),
        (LastHour({"other": 1, "1.90": 1}, SPAN), "50 % of the last hour's requests"),
    ],
)
def test_the_share_is_that_of_the_last_hour(last_hour: LastHour, said: str) -> None:
    assert said in effects.pin(view(UNIFORM), v("1.58"), last_hour)


def test_a_pin_at_the_maximum_of_a_fleet_in_an_upgrade_changes_nothing_yet() -> None:
    assert effects.pin(view(MIXED), v("1.58"), hour(v58=5)) == (
        "nothing changes now; versions above 1.58 will not be offered until it is unpinned"
    )


def test_a_pin_above_all_that_is_known_hides_nothing() -> None:
    assert effects.pin(view(MIXED), v("1.95"), NOTHING_SERVED) == (
        "nothing changes now; the ceiling 1.95 has no effect now: no known backend serves more than 1.90"
    )


def test_a_pin_that_is_there_already() -> None:
    text = effects.pin(view(UNIFORM, pin="1.58"), v("1.58"), NOTHING_SERVED)
    assert text == "nothing changes: it is already pinned to 1.58"


def test_a_higher_pin_offers_more() -> None:
    text = effects.pin(view(UNIFORM, pin="1.58"), v("1.60"), hour(v58=5))
    assert text == "1.59-1.60 will be offered; versions above 1.60 will not be offered until it is unpinned"


def test_a_pin_below_the_minimum_will_be_refused() -> None:
    assert effects.below_minimum(view({"api-1": upto(90, lowest=20)}), v("1.5")) == (
        "the ceiling 1.5 is below the minimum 1.20 on offer: nothing could be served"
    )


def test_with_replicas_the_record_counts_and_not_what_this_one_remembers() -> None:
    offered = VersionSet.between(v("1.1"), v("1.70"))
    record = AgreedRecord(7, "guaranteed", offered, offered, offered, offered)
    one = view(UNIFORM).with_agreed(Agreed(record, voting=True), 1.0)
    assert one.offer.versions == offered
    assert effects.pin(one, v("1.58"), NOTHING_SERVED).startswith("1.59-1.70 will be refused; ")


# --- unpin ----------------------------------------------------------------------------------------------


def test_unpin_offers_what_stands_beneath() -> None:
    assert effects.unpin(view(UNIFORM, pin="1.58"), NOTHING_SERVED) == (
        "1.59-1.90 will be offered; no ceiling limits the offer any more"
    )


def test_unpin_where_the_configuration_has_a_lower_ceiling() -> None:
    one = view(UNIFORM, pin="1.70", ceiling=v("1.60"))
    assert effects.unpin(one, hour(v60=3, v65=1)) == (
        "1.61-1.70 will be refused; 25 % of the last hour's requests asked for them or got them as the "
        "latest; the configured ceiling 1.60 applies again"
    )


def test_unpin_without_a_pin_and_where_it_hides_nothing() -> None:
    assert effects.unpin(view(UNIFORM), NOTHING_SERVED) == "nothing changes: there is no pin"
    assert effects.unpin(view(MIXED, pin="1.58"), NOTHING_SERVED) == (
        "nothing changes now; no ceiling limits the offer any more"
    )


# --- drain and enable -----------------------------------------------------------------------------------


def test_a_drain_that_changes_nothing_for_clients() -> None:
    assert drain(view(UNIFORM), "api-1") == (
        "api-1 gets no new requests; requests in flight finish; the offer does not change"
    )


def test_a_drain_of_the_one_that_holds_the_offer_lets_it_rise() -> None:
    assert drain(view(MIXED, stabilization=5.0), "api-1") == (
        "api-1 gets no new requests; requests in flight finish; "
        "1.59-1.90 will be offered after 5 s at the earliest"
    )


def test_what_it_says_of_the_offer_is_what_the_drain_then_does() -> None:
    after = applied(snapshot(MIXED), Drain("api-1"))
    assert after.offer.versions.highest == v("1.90")
    assert "1.59-1.90 will be offered after 0 s" in drain(view(MIXED), "api-1")


def test_a_drain_under_a_pin_promises_nothing_above_it() -> None:
    assert "will be offered" not in drain(view(MIXED, pin="1.58"), "api-1")


def test_a_drain_that_leaves_versions_unserved() -> None:
    one = view({"api-1": upto(90), "api-2": upto(58)}, policy=Policy.REACHABLE)
    assert drain(one, "api-1") == (
        "api-1 gets no new requests; requests in flight finish; the offer does not change; 1.59-1.90 "
        "stays on offer, but no backend in service serves it: such requests get 503 until one does"
    )


def test_a_drain_of_the_last_one() -> None:
    text = drain(view(UNIFORM, drained=("api-2",)), "api-1")
    assert "; no backend of toy is left in service; 1.1-1.90 stays on offer, but no backend" in text


def test_enabling_one_that_serves_less_stops_what_waits() -> None:
    before = snapshot({"api-1": upto(58), "api-2": upto(58)}, stabilization=5.0)
    before = before.with_fleet(before.fleet.apply("toy", Drain("api-1")), 1.0)
    before = before.after([("toy", "api-2", ProbeSucceeded(upto(90), 2.0))], 2.0)
    assert before.views["toy"].offer.pending
    assert enable(before.views["toy"], "api-1") == (
        "api-1 gets requests again; 1.59-1.90 was about to be offered and will not be"
    )


def test_enabling_one_more_that_serves_a_version_can_raise_the_offer() -> None:
    two = AtLeast(2)
    one = view(
        {"api-1": upto(90), "api-2": upto(90), "api-3": upto(58)},
        drained=("api-2",),
        policy=Policy.AT_LEAST,
        at_least=two,
        stabilization=3.0,
    )
    shrunk = replace(one.offer_state, versions=VersionSet.between(v("1.1"), v("1.58")))
    one = ServiceView.of(one.service, one.members, shrunk)
    assert enable(one, "api-2") == (
        "api-2 gets requests again; 1.59-1.90 will be offered after 3 s at the earliest"
    )


def test_enabling_one_that_is_unknown_down_or_serves_nothing_on_offer() -> None:
    unknown = view({"api-1": upto(58), "api-2": None}, drained=("api-2",))
    assert enable(unknown, "api-2").startswith("api-2 gets requests once a probe has shown its versions")
    before = snapshot(UNIFORM)
    before = before.with_fleet(before.fleet.apply("toy", Drain("api-2")), 1.0)
    down = before.after([("toy", "api-2", ProbeFailed("no connection", at)) for at in (2.0, 3.0, 4.0)], 5.0)
    assert enable(down.views["toy"], "api-2").startswith(
        "api-2 is down and gets requests only as a last resort"
    )
    idle = view({"api-1": upto(58), "api-2": upto(90, lowest=80)}, drained=("api-2",))
    idle = ServiceView.of(
        idle.service,
        idle.members,
        replace(idle.offer_state, versions=VersionSet.between(v("1.1"), v("1.58"))),
    )
    assert "but gets no requests: it serves nothing that is on offer" in enable(idle, "api-2")
    old = view({"api-1": upto(58), "api-2": legacy()}, drained=("api-2",))
    assert enable(old, "api-2").startswith("api-2 gets requests again")


def test_what_is_so_already() -> None:
    one = view(UNIFORM, drained=("api-2",))
    assert drain(one, "api-2") == "nothing changes: api-2 is already drained"
    assert enable(one, "api-1") == "nothing changes: api-1 is already in service"


def test_before_anything_is_known() -> None:
    one = Snapshot.configured([service("api-1")], now=0.0).views["toy"]
    assert effects.pin(one, v("1.58"), NOTHING_SERVED).startswith("nothing changes now; versions above 1.58")
    assert drain(one, "api-1") == (
        "api-1 gets no new requests; requests in flight finish; no backend of toy is left in service"
    )
