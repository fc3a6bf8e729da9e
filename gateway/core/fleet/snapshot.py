"""Everything that a request may read, in one immutable value: routes, services, fleet, offers, generation.

A request takes one snapshot when it begins and is decided by it. It reads a newer one only to be re-routed:
when another backend must be chosen, or when a version refusal has proved its snapshot out of date. Building
is pure and keeps, by identity, the view of every service about which nothing has changed, so that what is
cached for that view stays valid. Nothing here swaps snapshots: `controlplane.snapshot_holder` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, final

from gateway.core.agreement import votes
from gateway.core.agreement.attachment import NOT_JOINED, NOTHING_AGREED, Agreed
from gateway.core.agreement.ladder import Vote
from gateway.core.decision.routing import Routes
from gateway.core.decision.selection import Candidates, SelectionTable
from gateway.core.dialect import Endpoint
from gateway.core.fleet.fleet import (
    AdvertisementRestored,
    Drain,
    Fleet,
    ObservedFact,
    Pin,
    configured_member_set,
)
from gateway.core.fleet.member_set import MemberSet, names_of_others, with_items
from gateway.core.fleet.offer import Offer, agreed_offer, form_offer, voted_offer
from gateway.core.fleet.offer_state import (
    EMPTY,
    OfferState,
    SavedAdvertisement,
    SavedState,
    advance,
    due,
    reachable_versions,
    read_anew,
    reconfigured,
    restored,
)
from gateway.core.fleet.service import Service
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.core.versions import ranges
from gateway.core.versions.version import Version


@final
class OwnVote(NamedTuple):
    """What this replica says to the others about one service."""

    vote: Vote | None = None
    """None: it has none yet, or `transparent`."""
    transparent: bool = False
    """It sees legacy backends only, and nothing is on offer."""


NO_VOTE: Final = OwnVote()


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceView:
    """One service as a request sees it: configuration, what is known and offered, and tables of these."""

    service: Service
    members: MemberSet
    offer_state: OfferState
    offer: Offer
    by_version: SelectionTable
    """Every member in service."""
    non_legacy_by_version: SelectionTable
    """Without the legacy members, and those whose versions are unknown."""
    due: float | None
    """When time alone will change the offer, or this replica's vote, next; None: never."""
    agreed: Agreed | None = None
    """What several replicas or workers agree to offer. None: this one stands alone."""

    @classmethod
    def of(
        cls,
        service: Service,
        members: MemberSet,
        offer_state: OfferState,
        agreed: Agreed | None = None,
        now: float | None = None,
    ) -> ServiceView:
        """`now`: of whoever votes. None: a worker, which passes on what it is told and has no vote."""
        offer = form_offer(service, members, offer_state)
        if agreed is None or not agreed.voting:
            at = due(offer_state, service, members)
            offer = offer if agreed is None else agreed_offer(offer, agreed)
        else:
            wanted = votes.wanted(offer_state, agreed.record, service, members, now)
            offer = voted_offer(offer, agreed, wanted)
            at = None if now is None else votes.vote_due(offer_state, service, members, now)
        found = [group.summary for group in members.groups]
        # Where nothing is negotiated, a member that is not legacy would show its own versions for all. It is
        # known here while not everybody knows it yet.
        getting = [summary for summary in found if summary.legacy] if offer.transparent else found
        if not getting and (agreed is None or not agreed.voting):
            getting = found
        return cls(
            service=service,
            members=members,
            offer_state=offer_state,
            offer=offer,
            by_version=SelectionTable(members.all, members.summaries, getting),
            non_legacy_by_version=SelectionTable(members.all, members.summaries, found, non_legacy=True),
            due=at,
            agreed=agreed,
        )

    def with_agreed(self, agreed: Agreed | None, now: float) -> ServiceView:
        """The same view, decided by `agreed` from now on."""
        offer_state, service, members = self.offer_state, self.service, self.members
        if agreed is not None and agreed.voting:
            if self.agreed is None or not self.agreed.voting:
                offer_state = EMPTY  # what it offered alone, and what fell there, is no word of the others
            offer_state = votes.remember(offer_state, agreed.record, service, members, now)
        return ServiceView.of(service, members, offer_state, agreed, now)

    def candidates(self, version: Version | None, endpoint: Endpoint) -> Candidates:
        """The members that may get a request at `version`; None: nothing is negotiated for it.

        Below a mount that only some releases have, it goes to a member that has it. A document and Nova's
        `/v2.1` need a member that has versions, except while all are legacy. A document comes from a legacy
        one if no other is in service (semantics, Legacy backends).
        """
        table = self.by_version
        everyone = table.everyone if version is None else table.candidates(version)
        if endpoint.mount is not None:
            return self._having(endpoint.mount, everyone)
        if not endpoint.versioned_only or (version is None and self.offer.transparent):
            return everyone
        table = self.non_legacy_by_version
        chosen = table.everyone if version is None else table.candidates(version)
        return chosen if chosen.tiers or not endpoint.document else everyone

    def _having(self, mount: str, candidates: Candidates) -> Candidates:
        """The candidates with this part of the API. All, if no configured backend has it: each says so."""
        members = [member for member in candidates.members if member.has_mount(mount)]
        if len(members) == len(candidates.members):
            return candidates
        nobody = not members and not any(member.has_mount(mount) for member in self.members.all)
        return candidates if nobody else Candidates.of(members)

    def prefers_cached_document(self, endpoint: Endpoint, candidates: Candidates) -> bool:
        """Whether a discovery document is answered from the cache, if possible, not by `candidates`.

        It is where nobody may give it but legacy members. Their documents show nothing but what they stand
        for, so they give it where no other version is on offer.
        """
        if not endpoint.document or not self.offer.versions or self.offer.transparent:
            return False
        if not candidates.tiers:
            return True
        return (
            endpoint.versioned_only
            and all(member.legacy or member.version_unknown for member in candidates.members)
            and not self.offer.versions <= self.service.dialect.legacy_versions
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state of the whole gateway at one moment."""

    generation: int
    routes: Routes
    views: Mapping[str, ServiceView]
    fleet: Fleet
    selected_names: frozenset[str]
    """Every request header (normalized) that a head reader selects: some dialect reads or owns it."""
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """The headers, some with `*` at the end, that are dropped from peers that are not trusted."""
    dues: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """When time alone will change an offer next, by service. Most are not here."""

    @classmethod
    def configured(
        cls,
        services: Sequence[Service],
        *,
        now: float,
        after: Snapshot | None = None,
        saved: Mapping[str, SavedState] | None = None,
        untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS,
        agreed: Agreed | None = None,
    ) -> Snapshot:
        """The snapshot of a (new) configuration at `now`, in seconds of the clock that dates facts.

        `after`: the present snapshot, from which are kept what is known of the backends that stay, the offer
        states and the operator's commands, and the view of each service that is written as before. `saved`:
        for the first snapshot, what survived the restart, by service. `agreed`: with what a service begins
        that is new; None: it stands alone.
        """
        found = saved or {}
        views, member_sets = {}, {}
        for service in services:
            name = service.name
            views[name], member_sets[name] = _configured(service, after, found.get(name), now, agreed)
        return cls(
            generation=after.generation + 1 if after else 1,
            routes=Routes.of(services),
            views=MappingProxyType(views),
            fleet=Fleet(MappingProxyType(member_sets)),
            selected_names=names_selected_by(services),
            untrusted_headers=untrusted_headers,
            dues=dues_after({}, views),
        )

    def brought_up(self, before: Snapshot, to: Snapshot, now: float) -> Snapshot:
        """This snapshot, which was configured after `before`, as it is when configured after `to`. Only what
        has changed in between is looked at, so a configuration can be worked out aside, however large."""
        if to is before:
            return self
        known, known_to = before.fleet.member_sets, to.fleet.member_sets
        changed = [
            view.service
            for name, view in self.views.items()
            if to.views.get(name) is not before.views.get(name) or known_to.get(name) is not known.get(name)
        ]
        return self._configured_anew(to, changed, now)

    def with_discovered(self, services: Iterable[Service], now: float) -> Snapshot:
        """The same with these services in place of those of the same names: only their backends are others.
        This same object if there is no such service, or nothing is other."""
        changed = [
            service
            for service in services
            if (view := self.views.get(service.name)) is not None and not service.is_written_as(view.service)
        ]
        return self._configured_anew(self, changed, now) if changed else self

    def _configured_anew(self, after: Snapshot, services: Iterable[Service], now: float) -> Snapshot:
        """With these services as they are when configured after `after`."""
        changed, member_sets = {}, {}
        for service in services:
            changed[service.name], member_sets[service.name] = _configured(service, after, None, now)
        views = with_items(self.views, changed)
        fleet = Fleet(with_items(self.fleet.member_sets, member_sets))
        return self._with(after.generation + 1, views, fleet, dues_after({}, views))

    def with_agreed(self, agreed: Mapping[str, Agreed | None], now: float) -> Snapshot:
        """The same with what is agreed on from now on, by service; this same object when nothing is other."""
        views = {
            name: view.with_agreed(each, now)
            for name, each in agreed.items()
            if (view := self.views.get(name)) is not None and view.agreed != each
        }
        if not views:
            return self
        dues = dues_after(self.dues, views)
        return self._with(self.generation + 1, with_items(self.views, views), self.fleet, dues)

    def vote(self, service: str, now: float) -> OwnVote:
        """What this replica says to the others about a service, by all that is known at `now` and by the
        record that its view has. Of a service that is not configured, or does not vote: nothing."""
        view = self.views.get(service)
        if view is None or view.agreed is None or not view.agreed.voting:
            return NO_VOTE
        record, one, members = view.agreed.record, view.service, self.fleet.member_sets[service]
        remembered = votes.remember(view.offer_state, record, one, members, now)
        return OwnVote(
            votes.vote(remembered, record, one, members, now),
            votes.votes_transparent(remembered, record, one, members),
        )

    def after(self, facts: Iterable[ObservedFact], now: float) -> Snapshot:
        """The snapshot after `facts`, as one change at `now`; this same object when nothing changes."""
        fleet, services = self.fleet.observe_all(facts)
        return self._renewed(fleet, services, now)

    def with_fleet(self, fleet: Fleet, now: float) -> Snapshot:
        """The same with a fleet that somebody has made of this one's."""
        before = self.fleet.member_sets
        return self._renewed(
            fleet, [name for name in before if fleet.member_sets[name] is not before[name]], now
        )

    def _renewed(self, fleet: Fleet, services: Collection[str], now: float) -> Snapshot:
        """With the views of `services` renewed, and of those for which it is time. All other views, and those
        of them about which nothing has changed, stay the same objects."""
        views = {}
        for name in {*services, *(name for name, at in self.dues.items() if at <= now)}:
            view = self.views[name]
            renewed = _renewed(view, fleet.member_sets[name], now)
            if renewed is not view:
                views[name] = renewed
        if not views:
            return self if fleet is self.fleet else self._with(self.generation, self.views, fleet, self.dues)
        dues = dues_after(self.dues, views)
        return self._with(self.generation + 1, with_items(self.views, views), fleet, dues)

    def _with(
        self, generation: int, views: Mapping[str, ServiceView], fleet: Fleet, dues: Mapping[str, float]
    ) -> Snapshot:
        return Snapshot(
            generation, self.routes, views, fleet, self.selected_names, self.untrusted_headers, dues
        )

    def news_since(self, before: Snapshot) -> list[tuple[ServiceView | None, ServiceView]]:
        """The views that are others than in `before`, each behind the one before (None: it is new)."""
        old_views, views = before.views, self.views
        return [(old_views.get(name), views[name]) for name in names_of_others(old_views, views)]

    @property
    def due(self) -> float | None:
        """When time alone will change an offer next, by the clock of `now`; None: never."""
        return min(self.dues.values(), default=None)

    def saved(self) -> Mapping[str, SavedState]:
        """What survives a restart, by service."""
        return {name: _saved(view, self.fleet.member_sets[name]) for name, view in self.views.items()}


def dues_after(dues: Mapping[str, float], views: Mapping[str, ServiceView]) -> Mapping[str, float]:
    """When time alone will change an offer next, by service: as in `dues`, but for these views."""
    if not any(view.due is not None or name in dues for name, view in views.items()):
        return dues
    all_dues = dict(dues) | {name: view.due for name, view in views.items()}
    return {name: at for name, at in all_dues.items() if at is not None}


def names_selected_by(services: Iterable[Service]) -> frozenset[str]:
    """Every request header (normalized) that the dialect of one of them reads or owns."""
    return frozenset().union(*(service.dialect.reads | service.dialect.owned_request for service in services))


def _saved(view: ServiceView, members: MemberSet) -> SavedState:
    service, offer_state, agreed = view.service, view.offer_state, view.agreed
    cut = offer_state.cut
    if agreed is not None and agreed.voting and agreed.record is not None:
        # The file may be read by one that stands alone.
        cut = agreed.record.rule != votes.policy_text(service)
    advertisements = {
        member.backend.name: SavedAdvertisement(
            member.backend.url,
            member.advertisement,
            member.advertised_at,
            member.backend.source,
            member.backend.leaves_at,
        )
        for member in members.all
        if member.advertisement is not None and member.backend.declared is None
    }
    return SavedState(
        versions=offer_state.versions,
        pin=members.pin,
        drained=frozenset(member.backend.name for member in members.all if member.drained),
        policy=service.policy_and_number,
        advertisements=MappingProxyType(advertisements),
        cut=cut,
    )


def _renewed(view: ServiceView, members: MemberSet, now: float) -> ServiceView:
    """The view after new facts. What was due before them happens first, by what was known then."""
    offer_state, same = view.offer_state, members.knows_the_same(view.members)
    is_due = view.due is not None and view.due <= now
    if is_due:
        offer_state = _brought_up(offer_state, view.service, view.members, view.agreed, now)
    elif same:
        return view
    offer_state = _brought_up(offer_state, view.service, members, view.agreed, now)
    voted = is_due and view.agreed is not None and view.agreed.voting  # the vote is another, the state is not
    if offer_state is view.offer_state and same and not voted:
        return view
    return ServiceView.of(view.service, members, offer_state, view.agreed, now)


def _brought_up(
    offer_state: OfferState, service: Service, members: MemberSet, agreed: Agreed | None, now: float
) -> OfferState:
    """What is on offer, or is remembered for a vote, after all that is known at `now`."""
    if agreed is not None and agreed.voting:
        return votes.remember(offer_state, agreed.record, service, members, now)
    return advance(offer_state, service, members, now)


def _reconfigured(before: ServiceView, service: Service, members: MemberSet, now: float) -> OfferState:
    """The offer state of a service under its new configuration. What was due before happens first."""
    offer_state = _brought_up(before.offer_state, before.service, before.members, before.agreed, now)
    staying = {(member.backend.name, member.backend.url) for member in members.all}
    removed = reachable_versions(
        [member for member in before.members.all if (member.backend.name, member.backend.url) not in staying]
    )
    scheme = service.earlier_scheme(before.service.scheme_id)
    assert scheme is not None, "otherwise the state begins empty"
    removed = ranges.read_anew(removed, scheme, service.dialect.scheme)
    offer_state = read_anew(offer_state, scheme, service.dialect.scheme)
    if before.agreed is not None and before.agreed.voting:
        record = before.agreed.read_anew(scheme, service.dialect.scheme).record
        # What leaves the record by the removal of these backends has not fallen.
        offer_state = replace(offer_state, removed=offer_state.removed | removed)
        return votes.remember(offer_state, record, service, members, now)
    return reconfigured(offer_state, before.service, service, members, now, removed=removed)


def _configured(
    service: Service,
    after: Snapshot | None,
    saved: SavedState | None,
    now: float,
    agreed: Agreed | None = None,
) -> tuple[ServiceView, MemberSet]:
    """One service of a configuration, with its member set. `agreed`: with what it begins if it is new."""
    before = after.views.get(service.name) if after else None
    known = after.fleet.member_sets.get(service.name) if after else None
    if before is not None and known is not None and service.is_written_as(before.service):
        return before, known
    members = configured_member_set(service, known)
    if saved is not None:
        members = _restored(members, service, saved, now)
    agreed = agreed if before is None else _agreed_anew(before, service)
    if before is not None and service.earlier_scheme(before.service.scheme_id) is not None:
        offer_state = _reconfigured(before, service, members, now)
    else:
        # One of several replicas begins by what the others agree on, or by the saved record.
        alone = saved is not None and (agreed is None or not agreed.voting)
        offer_state = restored(saved, service) if saved is not None and alone else EMPTY
        offer_state = _brought_up(offer_state, service, members, agreed, now)
    return ServiceView.of(service, members, offer_state, agreed, now), members


def _agreed_anew(before: ServiceView, service: Service) -> Agreed | None:
    """What is agreed on under a new configuration. In another scheme nothing is."""
    if before.agreed is None:
        return None
    scheme = service.earlier_scheme(before.service.scheme_id)
    if scheme is None:
        return NOT_JOINED if before.agreed.voting else NOTHING_AGREED
    return before.agreed.read_anew(scheme, service.dialect.scheme)


def _restored(members: MemberSet, service: Service, saved: SavedState, now: float) -> MemberSet:
    """The member set with what was known before a restart, and with the operator's commands from then.

    No advertisement is newer than `now`: the wall clock may have been set back meanwhile, and then no probe
    could replace it.
    """
    name = service.name
    facts = [
        (name, backend.name, AdvertisementRestored(known.advertisement, min(known.at, now)))
        for backend in service.backends
        if (known := saved.advertisements.get(backend.name)) is not None
        and known.url == backend.url
        and backend.declared is None
    ]
    fleet = Fleet({name: members}).observe_all(facts).fleet.apply(name, Pin(saved.pin))
    for backend_name in sorted(saved.drained):
        fleet = fleet.apply(name, Drain(backend_name))
    return fleet.member_sets[name]


class SnapshotSource(Protocol):
    """Where others read the current snapshot: one attribute, read once for each decision."""

    @property
    def current(self) -> Snapshot: ...

    def apply_batch(self) -> None:
        """Apply the batch of facts now, before the end of this event-loop iteration."""
