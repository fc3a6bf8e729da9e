"""`legacy: refuse`: what legacy backends alone count as is on offer (semantics, Legacy backends)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.decision import Forward, NegotiationResult, Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.service import Service
from tests.core.builders import legacy, service, upto, v
from tests.core.timeline import NEW, STABILIZATION, UPTO_9, Timeline, timeline

OLD_ALONE = {"a": legacy("1.1"), "b": legacy("1.1")}


def configured(*, refuse: bool) -> Service:
    return service("a", "b", stabilization=STABILIZATION, negotiates_legacy=refuse)


def state(it: Timeline) -> tuple[str, bool]:
    return it.text, it.offer.transparent


def test_legacy_backends_alone_make_a_first_offer() -> None:
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe(OLD_ALONE)

    assert (state(it), it.held()) == (("1.1", False), ("uniform", (), None))
    refused = it.send(v("1.2"))
    assert isinstance(refused, Refuse)
    assert refused.result is NegotiationResult.ABOVE_MAX
    for version in (v("1.1"), None):
        forward = it.send(version)
        assert isinstance(forward, Forward)
        assert forward.resolution.version == v("1.1")
        assert forward.resolution.legacy_request_field_lines == b""


def test_the_first_offer_waits_for_backends_that_did_not_answer() -> None:
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe({"a": legacy("1.1"), "b": None})

    assert state(it) == ("none", False)
    assert it.wait(STABILIZATION) == "1.1"


def test_newer_backends_join_as_to_any_offer() -> None:
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe(OLD_ALONE)
    it.probe({"a": UPTO_9, "b": UPTO_9})

    assert it.text == "1.1"
    assert it.wait(STABILIZATION) == NEW


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_it_acts_at_once_in_both_directions(how: str) -> None:
    it = timeline("a", "b")
    it.probe(OLD_ALONE)
    for refuse in (True, False, True):
        getattr(it, how)(configured(refuse=refuse))
        if how == "restart":
            it.probe(OLD_ALONE)
        assert state(it) == (("1.1", False) if refuse else ("none", True))


def test_a_restart_with_refuse_offers_at_once_what_was_offered() -> None:
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe(OLD_ALONE)
    it.restart(configured(refuse=True))

    assert state(it) == ("1.1", False)


def test_after_a_restart_it_ends_at_once_even_if_the_reload_adds_a_backend() -> None:
    """The round of probes after the restart has ended, and no later backend begins another one."""
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe(OLD_ALONE)
    it.restart(configured(refuse=True))
    it.probe(OLD_ALONE)
    it.reload(service("a", "b", "c", stabilization=STABILIZATION))

    assert state(it) == ("none", True)


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_an_offer_with_newer_backends_stays(how: str) -> None:
    """Also where they count as the same as a legacy one: they negotiate."""
    it = timeline("a", "b", negotiates_legacy=True)
    it.probe({"a": legacy("1.1"), "b": upto(1)})
    getattr(it, how)(configured(refuse=False))

    assert state(it) == ("1.1", False)


def test_a_fleet_that_went_back_to_legacy_stays_negotiated_as_ever() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_9, "b": UPTO_9})
    for _ in range(3):
        it.probe(OLD_ALONE)
    it.reload(configured(refuse=False))

    assert state(it) == ("1.1", False)


ADVERTISED = st.sampled_from((legacy("1.1"), upto(5), UPTO_9, None))


@given(st.lists(st.fixed_dictionaries({"a": ADVERTISED, "b": ADVERTISED}), min_size=1, max_size=6))
def test_with_it_a_service_is_never_transparent_and_offers_what_answers(
    rounds: list[dict[str, Advertisement | None]],
) -> None:
    """What any known backend serves or counts as is on offer, if it is one range from 1.1 on."""
    it = timeline("a", "b", negotiates_legacy=True)
    for results in rounds:
        it.probe(results)
        it.wait(STABILIZATION)
        known = [m for m in it.view.members.all if m.advertisement is not None]
        assert not it.offer.transparent
        assert (v("1.1") in it.offer.versions) is bool(known)
