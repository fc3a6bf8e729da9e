"""Replicas that know the same, stepped until they rest, end at what one gateway without agreement offers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import invariant

from gateway.core.fleet.offer import HeldRule
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import NO_VERSIONS
from tests.core.agreement.replica import LadderedTimeline
from tests.core.test_upgrade_laws import Upgrades
from tests.kit.examples import examples


class LadderedUpgrades(Upgrades):
    """The same random upgrades, failures, roll-backs, commands, reloads and restarts."""

    def _timeline(self, one: Service) -> LadderedTimeline:
        return LadderedTimeline(one)

    @invariant()
    def the_ladder_ends_at_the_offer(self) -> None:
        here = self.busy
        assert isinstance(here, LadderedTimeline)
        record, offer = here.record, here.offer
        if here.last_vote is None:
            # It moves nothing: its first round has not ended, or it is transparent.
            assert here.transparent is offer.transparent
            return
        state = NO_VERSIONS if record is None else record.state
        assert state == here.view.offer_state.versions
        assert (NO_VERSIONS if record is None else record.offered) == offer.versions
        assert record is None or record.offered == record.accepted == record.open
        assert here.voting.offer_state.pending_versions == here.view.offer_state.pending_versions

    @invariant()
    def each_replica_shows_the_offer(self) -> None:
        here = self.busy
        assert isinstance(here, LadderedTimeline)
        alone, views = here.view, [each.views[here.name] for each in here.replicas]
        for view in views:
            assert view.offer.versions == (NO_VERSIONS if here.record is None else here.record.offered)
            if here.last_vote is not None:
                assert (view.offer.versions, view.offer.phase) == (alone.offer.versions, alone.offer.phase)
                assert view.offer.held == alone.offer.held, "nobody else holds anything"
                assert view.offer.pending == alone.offer.pending
            elif view.offer.versions:
                assert view.offer.held.rule in {HeldRule.AGREEMENT, HeldRule.CEILING}


LadderedUpgrades.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=30)
TestLadderedUpgrades = LadderedUpgrades.TestCase
