"""Backends that come and go: who is there after a list, and that churn never moves an offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.core.decision.decision import Forward, Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend, BackendTls, Member
from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.fleet.source import (
    MAX_BACKENDS,
    Address,
    Membership,
    Source,
    SourceKind,
    after_answer,
    after_time,
)
from tests.core.builders import service, upto, v
from tests.core.timeline import NEW, OLD, STABILIZATION, UPTO_5, UPTO_9, Timeline

GRACE = 300.0
SOURCE = Source(SourceKind.DNS, "http://api.svc:80", "api.svc", 80, leave_grace=GRACE)
HOSTS = st.integers(1, 12).map(lambda number: f"10.0.0.{number}")


def addresses(*hosts: str) -> list[Address]:
    return [Address(host, 80) for host in hosts]


def known(backends: Sequence[Backend], heard: Mapping[str, Advertisement | None]) -> dict[str, Member]:
    return {each.name: Member("toy", each, heard.get(each.host)) for each in backends}


def names(membership: Membership) -> dict[str, bool]:
    """Who is there, and who of them is leaving."""
    return {each.host: each.leaving for each in membership.backends}


class Pods(Timeline):
    """A service whose backends all come from one source, and time in which they come and go."""

    def __init__(self, **more: object) -> None:
        options = {"stabilization": STABILIZATION, "sources": (SOURCE,), **more}
        super().__init__(service(undiscovered=True, **options))  # type: ignore[arg-type]  # fields of Service

    def list(self, *hosts: str) -> str:
        """The source lists these."""
        everyone = self.view.members.all
        members = {member.backend.name: member for member in everyone}
        before = [member.backend for member in everyone]
        found = after_answer(SOURCE, before, addresses(*hosts), members, self.now)
        self._discovered(found.backends)
        return self.text

    def wait(self, seconds: float) -> str:
        super().wait(seconds)
        self._discovered(after_time([each.backend for each in self.view.members.all], self.now, ()))
        return self.text

    def heard(self, **results: Advertisement | None) -> str:
        """Probes of `10.0.0.N`, written `pN`."""
        return self.probe({f"10.0.0.{name[1:]}:80": result for name, result in results.items()})

    def _discovered(self, backends: Sequence[Backend]) -> None:
        one = self.view.service.with_backends(backends, undiscovered=False)
        self.snapshot = self.snapshot.with_discovered([one], self.now)


# --- who is there after a list ------------------------------------------------------------------------------


@given(
    lists=st.lists(st.lists(HOSTS, max_size=8), max_size=8),
    heard=st.sets(HOSTS),
    waits=st.lists(st.sampled_from((1.0, 10.0, 400.0)), min_size=8, max_size=8),
)
def test_the_laws_of_a_list(lists: list[list[str]], heard: set[str], waits: list[float]) -> None:
    now = 0.0
    before: tuple[Backend, ...] = ()
    for hosts, seconds in zip(lists, waits, strict=False):
        observed = known(before, dict.fromkeys(heard, UPTO_5))
        found = after_answer(SOURCE, before, addresses(*hosts), observed, now)
        was = {each.host: each for each in after_time(before, now, ())}
        there = {each.host: each for each in found.backends}
        assert len(there) == len(found.backends), "each once"
        if not hosts:
            assert there == was, "an empty list removes nobody"
        else:
            assert {host for host, each in there.items() if not each.leaving} >= set(hosts), (
                "all that are listed"
            )
            assert there.keys() >= heard & was.keys(), "who was heard leaves slowly"
            newly = {host for host in there.keys() & was.keys() if there[host].leaving > was[host].leaving}
            leaving = {host for host, each in there.items() if each.leaving}
            assert not newly or len(leaving) <= len(heard & was.keys()) // 2, "at most half at once"
            assert there.keys() - set(hosts) <= heard, "who was never heard goes at once"
        before, now = found.backends, now + seconds
    gone = after_time(before, now + GRACE, ())
    assert not any(each.leaving for each in gone)


def test_who_is_lost_leaves_first() -> None:
    before = after_answer(SOURCE, (), addresses("10.0.0.1", "10.0.0.2", "10.0.0.3"), {}, 0.0).backends
    members = known(before, dict.fromkeys(("10.0.0.1", "10.0.0.2", "10.0.0.3"), UPTO_5))
    members["10.0.0.2:80"] = replace(members["10.0.0.2:80"], failures=3)

    found = after_answer(SOURCE, before, addresses("10.0.0.9"), members, 1.0)

    assert names(found) == {"10.0.0.1": False, "10.0.0.2": True, "10.0.0.3": False, "10.0.0.9": False}
    assert found.unlisted == ("10.0.0.1:80", "10.0.0.3:80")


def test_strangers_that_do_not_answer_drive_out_at_most_half() -> None:
    """A name server that is wrong, or was taken over."""
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
    it.heard(p1=UPTO_5, p2=UPTO_5, p3=UPTO_5, p4=UPTO_5)

    for stranger in range(10, 30):
        it.list(f"10.0.0.{stranger}", f"10.0.1.{stranger}")
        it.wait(1)

    assert isinstance(it.send(v("1.5")), Forward)
    assert sum(not member.absent for member in it.view.members.all if member.in_service) == 2
    assert len(it.view.members.all) <= 6


def test_a_hostile_list_fills_no_memory() -> None:
    """Every name that it lists is a backend, a target of probes, and has series of metrics."""
    before: tuple[Backend, ...] = ()
    for round_number in range(5):
        many = [Address(f"10.{round_number}.{at // 250}.{at % 250}", 80) for at in range(MAX_BACKENDS)]
        observed = known(before, {each.host: UPTO_5 for each in before})
        found = after_answer(SOURCE, before, many, observed, float(round_number))
        before = found.backends
        assert len(before) <= MAX_BACKENDS
        assert found.refused == (0 if round_number == 0 else MAX_BACKENDS)


def test_names_that_belong_to_others_are_not_taken() -> None:
    found = after_answer(SOURCE, (), addresses("10.0.0.1", "10.0.0.2"), {}, 0.0, {"10.0.0.1:80"})
    assert names(found) == {"10.0.0.2": False}


@pytest.mark.parametrize(
    "source, address, url, name",
    [
        (SOURCE, Address("10.0.0.1", 80), "http://10.0.0.1:80", None),
        (SOURCE, Address("fd00::1", 80), "http://[fd00::1]:80", None),
        (
            replace(SOURCE, tls=BackendTls("api.svc")),
            Address("10.0.0.1", 80),
            "https://10.0.0.1:80",
            "api.svc",
        ),
        (Source(SourceKind.FILE, "x.json"), Address("api-1", 1, path="/b"), "http://api-1:1/b", None),
        (Source(SourceKind.FILE, "x.json"), Address("api-1", 1, tls=True), "https://api-1:1", "api-1"),
        (
            Source(SourceKind.FILE, "x.json", tls=BackendTls("", "/ca")),
            *(Address("api-1", 1, tls=True), "https://api-1:1", "api-1"),
        ),
        (
            Source(SourceKind.FILE, "x.json", tls=BackendTls("all.test", "/ca")),
            *(Address("api-1", 1, tls=False), "http://api-1:1", None),
        ),
    ],
)
def test_a_backend_of_a_source(source: Source, address: Address, url: str, name: str | None) -> None:
    backend = source.backend(address)
    assert (backend.url, backend.name) == (url, address.name)
    assert (backend.tls and backend.tls.server_name) == name
    assert backend.source == source.key


# --- what it means for the offer ----------------------------------------------------------------------------


def test_the_first_offer_waits_for_the_first_list() -> None:
    it = Pods()
    assert it.wait(1000) == "none"
    it.list("10.0.0.1", "10.0.0.2")
    assert it.heard(p1=UPTO_5) == "none"
    assert it.heard(p2=UPTO_9) == OLD


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"policy": Policy.REACHABLE},
        {"policy": Policy.AT_LEAST, "at_least": AtLeast(2)},
        {"policy": Policy.AT_LEAST, "at_least": AtLeast(50, percent=True)},
    ],
    ids=["guaranteed", "reachable", "two", "half"],
)
def test_pods_that_are_replaced_one_after_the_other_never_move_the_offer(
    policy: Mapping[str, object],
) -> None:
    """A restart of a deployment: every pod gets another address, and is away for a while."""
    it = Pods(**policy)
    it.list("10.0.0.1", "10.0.0.2", "10.0.0.3")
    it.heard(p1=UPTO_9, p2=UPTO_9, p3=UPTO_9)
    there = [1, 2, 3]
    for new in range(4, 30):
        there.pop(0)
        assert it.list(*(f"10.0.0.{one}" for one in there)) == NEW
        assert it.wait(5) == NEW
        there.append(new)
        assert it.list(*(f"10.0.0.{one}" for one in there)) == NEW
        assert it.wait(2) == NEW
        assert it.heard(**{f"p{new}": UPTO_9}) == NEW
        assert it.wait(30) == NEW
        assert isinstance(it.send(v("1.9")), Forward)


def test_an_old_pod_that_is_away_for_a_moment_does_not_let_the_offer_rise() -> None:
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2")
    assert it.heard(p1=UPTO_5, p2=UPTO_9) == OLD
    assert it.list("10.0.0.2") == OLD
    assert it.wait(GRACE - 1) == OLD
    assert it.held() == ("mixed", ("10.0.0.1:80",), "guaranteed")
    it.list("10.0.0.2", "10.0.0.3")
    assert it.heard(p3=UPTO_5) == OLD
    assert it.wait(GRACE) == OLD


def test_an_upgrade_ends_when_the_grace_of_the_last_old_pod_has_ended() -> None:
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2")
    it.heard(p1=UPTO_5, p2=UPTO_5)
    it.list("10.0.0.2", "10.0.0.3")
    it.heard(p3=UPTO_9)
    it.list("10.0.0.3", "10.0.0.4")
    it.heard(p4=UPTO_9)
    assert it.list("10.0.0.3", "10.0.0.4") == OLD
    assert it.wait(GRACE + 1) == OLD
    assert it.wait(STABILIZATION) == NEW


def test_what_only_pods_served_that_have_left_is_offered_until_their_grace_has_ended() -> None:
    it = Pods(policy=Policy.REACHABLE)
    it.list("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert it.heard(p1=UPTO_5, p2=UPTO_5, p3=UPTO_9) == NEW
    assert it.list("10.0.0.1", "10.0.0.2") == NEW
    refused = it.send(v("1.9"))
    assert isinstance(refused, Refuse)
    assert refused.response.status == 503, "it is on offer, and nobody has it at this moment"
    assert it.held() == ("mixed", ("10.0.0.3:80",), "state")
    assert it.wait(GRACE - 1) == NEW
    assert it.wait(1) == OLD


def test_who_is_leaving_gets_no_request_and_who_comes_back_only_after_a_probe() -> None:
    """Another server may have got its address meanwhile."""
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2")
    it.heard(p1=UPTO_5, p2=UPTO_5)
    it.list("10.0.0.2")
    it.list("10.0.0.1", "10.0.0.2")
    back = it.view.members.all[0]
    assert (back.backend.name, back.absent, back.probed) == ("10.0.0.1:80", True, True)
    assert {each.backend.name for each in it.view.by_version.everyone.members} == {"10.0.0.2:80"}
    assert it.view.members.all_probed, "what waits to be offered goes on waiting"

    it.heard(p1=UPTO_9)

    assert isinstance(it.send(v("1.5")), Forward)
    assert {each.backend.name for each in it.view.by_version.everyone.members} == {
        "10.0.0.1:80",
        "10.0.0.2:80",
    }


def test_who_comes_back_and_fails_its_probe_is_as_any_other_that_fails() -> None:
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2")
    it.heard(p1=UPTO_5, p2=UPTO_5)
    it.list("10.0.0.2")
    it.list("10.0.0.1", "10.0.0.2")
    it.heard(p1=None)
    assert not it.view.members.all[0].absent
    assert it.view.members.all[0].freshness == "stale"


def test_a_flapping_list_lets_an_upgrade_go_on() -> None:
    """A name server gives another part of the addresses each time: what stands for its time is offered."""
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2", "10.0.0.3")
    it.heard(p1=UPTO_5, p2=UPTO_5, p3=UPTO_5)
    it.heard(p1=UPTO_9, p2=UPTO_9, p3=UPTO_9)
    for number in range(11):
        it.list(*(f"10.0.0.{1 + (number + one) % 3}" for one in range(2)))
        it.wait(1)
        it.heard(
            **{f"p{one}": UPTO_9 for one in (1, 2, 3) if not it.view.members.all[one - 1].backend.leaving}
        )
    assert it.text == NEW


def test_the_lists_of_a_service_leave_its_own_backends_alone() -> None:
    own = Backend("api-1", "10.9.9.9", 80)
    one = service(backends=(own,), sources=(SOURCE,), undiscovered=True)
    found = one.with_backends([SOURCE.backend(Address("10.0.0.1", 80))], undiscovered=False)
    assert [each.name for each in found.backends] == ["api-1", "10.0.0.1:80"]
    assert [each.name for each in found.with_backends((), undiscovered=False).backends] == ["api-1"]


def test_a_restart_keeps_what_was_discovered() -> None:
    it = Pods()
    it.list("10.0.0.1", "10.0.0.2")
    it.heard(p1=UPTO_5, p2=upto(7))
    it.list("10.0.0.2")
    saved = it.snapshot.saved()["toy"]
    assert {name: (each.source, each.leaves_at) for name, each in saved.advertisements.items()} == {
        "10.0.0.1:80": (SOURCE.key, GRACE),
        "10.0.0.2:80": (SOURCE.key, None),
    }
