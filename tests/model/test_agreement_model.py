"""The ladder holds and is live, whatever happens to replicas, store and network; no rule of it can be spared.

It holds: no version is served by one replica and refused by another, attached or not, and none is offered by
one attached replica while another answers 503. It is live: once faults end, every order of events leads to
what all want. The model calls `core.agreement` for each step and each answer.
"""

from __future__ import annotations

import pytest

from tests.model.agreement_model import Model, State, Wrong
from tests.model.record_model import ALONE, BENEATH, ONE, TWO, Universe
from tests.model.replica_model import RULES, without


def is_live(model: Model, states: set[State]) -> None:
    """Upwards and downwards; with those that have crashed coming back, and with them away for good."""
    for up in (True, False):
        for return_ in (True, False):
            found = model.unfinished(states, up=up, return_=return_)
            assert found is None, model.describe(found)


@pytest.mark.parametrize("universe", [ONE, ALONE, BENEATH], ids=["above another", "alone", "beneath another"])
def test_two_replicas_agree_and_are_live(universe: Universe) -> None:
    model = Model(universe, 2)
    states = model.reachable()
    assert len(states) > 10_000
    is_live(model, states)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_needed(rule: str) -> None:
    with pytest.raises(Wrong) as caught:
        Model(ONE, 2, without(rule)).reachable()

    assert 5 <= len(caught.value.way) - 1 <= 20, caught.value


@pytest.mark.fuzz
@pytest.mark.parametrize("universe", [ONE, ALONE, BENEATH], ids=["above another", "alone", "beneath another"])
def test_three_replicas_agree_and_are_live(universe: Universe) -> None:
    model = Model(universe, 3)
    states = model.reachable()
    assert len(states) > 300_000
    is_live(model, states)


@pytest.mark.fuzz
def test_two_replicas_agree_on_two_versions() -> None:
    model = Model(TWO, 2)
    is_live(model, model.reachable())
