"""The history of one service in several replicas: votes and ladder, beside the offer of a gateway alone."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.agreement.attachment import NOT_JOINED, Agreed
from gateway.core.agreement.ladder import LiveReplica, Vote, all_transparent, legacy_only, next_record
from gateway.core.agreement.record import AgreedRecord
from gateway.core.agreement.votes import policy_text
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.offer_state import OfferState, SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import NO_VERSIONS
from tests.core.agreement.records import at_rest
from tests.core.timeline import Timeline


class LadderedTimeline(Timeline):
    """Replicas that know what the gateway knows vote after every fact, and every step of the ladder is taken
    at once."""

    def __init__(self, one: Service, saved: SavedState | None = None, number: int = 2) -> None:
        super().__init__(one, saved)
        self.record: AgreedRecord | None = None
        self.last_vote: Vote | None = None
        self.transparent = False
        self.replicas = [Snapshot.configured([one], now=self.now, agreed=NOT_JOINED) for _ in range(number)]
        self._climb(self.now)

    def reload(self, one: Service) -> str:
        self._climb_until_now()
        self._note_cut(one)
        result = super().reload(one)
        self.replicas = [
            Snapshot.configured([one], now=self.now, after=each, agreed=NOT_JOINED) for each in self.replicas
        ]
        self._climb(self.now)
        self._follow()
        return result

    def restart(self, one: Service) -> str:
        """The record stays: it is in the store, or in the state file."""
        self._climb_until_now()
        self._note_cut(one)
        result = super().restart(one)
        self.replicas = [
            Snapshot.configured([one], now=self.now, saved=each.saved(), agreed=NOT_JOINED)
            for each in self.replicas
        ]
        self._adopt(self.now)
        self._climb(self.now)
        self._follow()
        return result

    @property
    def voting(self) -> ServiceView:
        """The service as the first replica has it."""
        return self.replicas[0].views[self.name]

    def _follow(self) -> None:
        """Without a vote it keeps what stands, where a gateway that stands alone goes on: from then on it has
        that one's state. The same after a policy that was changed and changed back in between."""
        state, record = self.view.offer_state, self.record
        rule = policy_text(self.view.service)
        if self.last_vote is None and state.initialized and not state.versions:
            for at, each in enumerate(self.replicas):
                view = each.views[self.name]
                memory = replace(view.offer_state, initialized=True, legacy_alone=False)
                self.replicas[at] = self._with_memory(each, memory)
        if self.last_vote is None and state.versions != (NO_VERSIONS if record is None else record.state):
            seq = 1 if record is None else record.seq + 1
            rule = rule if record is None else record.rule
            self.record = at_rest(seq, rule, state.versions) if state.versions else None
        elif record is not None and state.cut and record.rule == rule:
            self.record = replace(record, rule="another")
        self._adopt(self.now)

    def _note_cut(self, one: Service) -> None:
        """A gateway alone still cuts by a policy that was changed while a first probe was missing, and that
        is changed back now."""
        record = self.record
        if record is not None and self.view.offer_state.cut and record.rule == policy_text(one):
            self.record = replace(record, rule="another")
            self._adopt(self.now)

    def _with_memory(self, replica: Snapshot, memory: OfferState) -> Snapshot:
        before = replica.views[self.name]
        view = ServiceView.of(before.service, before.members, memory, before.agreed, self.now)
        return replace(replica, views={self.name: view})

    def _take(self, fleet: Fleet) -> None:
        self._climb_until_now()
        super()._take(fleet)
        self.replicas = [each.with_fleet(fleet, self.now) for each in self.replicas]
        self._climb(self.now)
        self._follow()

    def _climb_until_now(self) -> None:
        """What is due happens first, by what was known then."""
        while (
            at := min((each.due for each in self.replicas if each.due is not None), default=None)
        ) is not None:
            if at > self.now:
                break
            self.replicas = [each.with_fleet(each.fleet, at) for each in self.replicas]
            assert all(each.due is None or each.due > at for each in self.replicas), "it would never sleep"
            self._climb(at)
        self._climb(self.now)

    def _climb(self, at: float) -> None:
        """Vote and step until it rests."""
        one, members = self.voting.service, self.replicas[0].fleet.member_sets[self.name]
        for _ in range(20):
            seq = 0 if self.record is None else self.record.seq
            found = [each.vote(self.name, at) for each in self.replicas]
            live = {str(number): LiveReplica(seq, *each) for number, each in enumerate(found)}
            self.last_vote, self.transparent = found[0]
            after = next_record(
                self.record, live, list(live), members.pin, one.dialect.scheme, members.raised.floor
            )
            if after is not None:
                self.record = after
            self._adopt(at, live)
            if after is None:
                return
        raise AssertionError("the ladder does not come to rest")

    def _adopt(self, at: float, live: dict[str, LiveReplica] | None = None) -> None:
        replicas = (live or {}).values()
        agreed = Agreed(
            self.record,
            transparent=live is not None and all_transparent(self.record, replicas),
            voting=True,
            legacy_only=legacy_only(self.record, replicas),
        )
        self.replicas = [each.with_agreed({self.name: agreed}, at) for each in self.replicas]
