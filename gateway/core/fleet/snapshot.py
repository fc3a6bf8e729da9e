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
from gateway.core.clients import NO_CLIENTS, Client, Clients
from gateway.core.decision.routing import Routes
from gateway.core.decision.selection import Candidates, SelectionTable
from gateway.core.dialect import Endpoint, Refusal
from gateway.core.fleet.bridge import Bridge
from gateway.core.fleet.fleet import (
    AdvertisementRestored,
    Drain,
    Fleet,
    ObservedFact,
    Pin,
    Raise,
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
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Service
from gateway.core.fleet.skew import ReleaseOrder, SkewState
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.core.versions import ranges
from gateway.core.versions.version import Version


@final
class OwnVote(NamedTuple):
    """Vote of this replica on one service's offer, as the other replicas get it."""

    vote: Vote | None = None
    """This replica's vote on the offer; None: it has none yet, or `transparent` is set."""
    transparent: bool = False
    """Whether the replica sees legacy backends only, and nothing is on offer."""


NO_VOTE: Final = OwnVote()


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceView:
    """A service as a request sees it: its configuration, members and offer, and tables made from these."""

    service: Service
    members: MemberSet
    offer_state: OfferState
    offer: Offer
    by_version: SelectionTable
    non_legacy_by_version: SelectionTable
    """Table of members by version, without legacy ones and those whose versions are unknown."""
    due: float | None
    """Time at which the offer, or this replica's vote, changes next without a new fact; None: never."""
    agreed: Agreed | None = None
    """State of the service that replicas or workers agree on; None: this gateway stands alone."""
    own_ceiling: Version | None = None
    """Ceiling of the clients whose view this is; None: it is everybody's."""
    bridge: Bridge | None = None
    """Bridge of the clients whose view this is; None: they have none."""
    own: Mapping[str, tuple[tuple[ServiceView, float], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Views of clients with an own pace or a bridge, by name, each with the Unix time at which it ends."""
    key: str = field(init=False)
    """Key of cached decisions: views of one service with different offers have different ones."""

    def __post_init__(self) -> None:
        """Make the key of the service's name, the own ceiling and the bridge. A name has no blank."""
        key, own, bridge = self.service.name, self.own_ceiling, self.bridge
        if own is not None or bridge is not None:
            ceiling = "" if own is None else self.service.dialect.scheme.format(own)
            key = f"{key} {ceiling} {'' if bridge is None else self.service.bridges.index(bridge)}"
        object.__setattr__(self, "key", key)

    @classmethod
    def of(
        cls,
        service: Service,
        members: MemberSet,
        offer_state: OfferState,
        agreed: Agreed | None = None,
        now: float | None = None,
    ) -> ServiceView:
        """Make a service's view. `now`: time at which the replica votes; None: in a worker, without vote."""
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
        view = cls(
            service=service,
            members=members,
            offer_state=offer_state,
            offer=offer,
            by_version=SelectionTable(members.all, members.summaries, getting),
            non_legacy_by_version=SelectionTable(members.all, members.summaries, found, non_legacy=True),
            due=at,
            agreed=agreed,
        )
        return view.with_offer(offer) if service.paces or service.bridges else view

    def with_offer(self, offer: Offer) -> ServiceView:
        """A copy of the service's view with another offer, and with the views of clients that have an own
        pace, so that they get a part of it, or a bridge."""
        view = replace(self, offer=offer, own=MappingProxyType({}))
        paces = {name: each for each in self.service.paces for name in each.clients}
        bridges = {name: each for each in self.service.bridges for name in each.clients}
        made: dict[tuple[Pace | None, Bridge | None], ServiceView] = {}
        own: dict[str, tuple[tuple[ServiceView, float], ...]] = {}
        for name in paces | bridges:
            pace, bridge = paces.get(name), bridges.get(name)
            periods = []
            for end in sorted({each.ends_at for each in (pace, bridge) if each is not None}):
                pace = pace if pace and end <= pace.ends_at else None
                bridge = bridge if bridge and end <= bridge.ends_at else None
                if (pace, bridge) not in made:
                    narrow = replace(view, bridge=bridge)
                    if pace is not None:
                        part = replace(offer, versions=offer.versions.up_to(pace.ceiling))
                        narrow = replace(narrow, offer=part, own_ceiling=pace.ceiling)
                    made[pace, bridge] = narrow
                periods.append((made[pace, bridge], end))
            own[name] = tuple(periods)
        return replace(view, own=MappingProxyType(own)) if own else view

    @property
    def skew(self) -> SkewState | None:
        """How far apart the releases in service are; None: nobody watches it."""
        it = self.service
        if it.skew is None:
            return None
        return ReleaseOrder(it.dialect, it.releases).state(self.members, it.skew.releases)

    def for_client(self, name: str, wall_time: float) -> ServiceView:
        """View of the service that a client of this name has at `wall_time`, in seconds since the epoch."""
        for view, end in self.own.get(name, ()):
            if wall_time < end:
                return view
        return self

    def bridged(self, refusal: Refusal, endpoint: Endpoint) -> Version | None:
        """Version at which a bridge has a request executed in place of its refusal; None: it is refused. So
        is a document, unless its version is in the path: who is refused may ask for it without one."""
        dialect = self.service.dialect
        if self.bridge is None or (endpoint.document and not dialect.target_has_version):
            return None
        return self.bridge.version_for(refusal, dialect.scheme)

    def with_agreed(self, agreed: Agreed | None, now: float) -> ServiceView:
        """A copy of the service's view with another agreed state, which decides its requests from now on."""
        offer_state, service, members = self.offer_state, self.service, self.members
        if agreed is not None and agreed.voting:
            if self.agreed is None or not self.agreed.voting:
                offer_state = EMPTY  # what it offered alone, and what fell there, is no word of the others
            offer_state = votes.remember(offer_state, agreed.record, service, members, now)
        return ServiceView.of(service, members, offer_state, agreed, now)

    def candidates(self, version: Version | None, endpoint: Endpoint) -> Candidates:
        """The members that may get a request at `version`; None: nothing is negotiated for it. Only members
        with its mount get it. A document and Nova's `/v2.1` need a member that has versions, unless all are
        legacy, or for a document no other is in service (semantics, Legacy backends)."""
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
        """Candidates that have this part of the API; all of them if no backend has it: each would say so."""
        members = [member for member in candidates.members if member.has_mount(mount)]
        if len(members) == len(candidates.members):
            return candidates
        nobody = not members and not any(member.has_mount(mount) for member in self.members.all)
        return candidates if nobody else Candidates.of(members)

    def prefers_cached_document(self, endpoint: Endpoint, candidates: Candidates) -> bool:
        """Whether a discovery document is answered from the cache, if possible: only legacy `candidates`
        could give it, and another version than theirs is on offer, which their documents do not show."""
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
    """Request headers (normalized) that some dialect reads or owns."""
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """Header patterns, some with `*` at the end, that are dropped from peers that are not trusted."""
    clients: Clients = NO_CLIENTS
    """Rules that name clients. Decisions depend on a name only where it has an own pace or a bridge."""
    dues: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Times at which offers change next without a new fact, by service. Most services have none."""

    @classmethod
    def configured(
        cls,
        services: Sequence[Service],
        *,
        now: float,
        after: Snapshot | None = None,
        saved: Mapping[str, SavedState] | None = None,
        untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS,
        clients: Sequence[Client] = (),
        agreed: Agreed | None = None,
    ) -> Snapshot:
        """The snapshot of a (new) configuration at `now`, in seconds of the clock that dates facts. `after`:
        the present snapshot, whose facts, offer states, commands and unchanged views are kept. `saved`: saved
        state by service, for the first snapshot. `agreed`: first state of a new service."""
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
            clients=Clients(clients),
            dues=dues_after({}, views),
        )

    def brought_up(self, before: Snapshot, to: Snapshot, now: float) -> Snapshot:
        """This snapshot as if it had been configured after `to` instead of `before`. Only changes between
        the two are applied, so a configuration of any size can be prepared aside."""
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
        """The snapshot with other backends in these services; this same object if nothing changes."""
        changed = [
            service
            for service in services
            if (view := self.views.get(service.name)) is not None and not service.is_written_as(view.service)
        ]
        return self._configured_anew(self, changed, now) if changed else self

    def _configured_anew(self, after: Snapshot, services: Iterable[Service], now: float) -> Snapshot:
        changed, member_sets = {}, {}
        for service in services:
            changed[service.name], member_sets[service.name] = _configured(service, after, None, now)
        views = with_items(self.views, changed)
        fleet = Fleet(with_items(self.fleet.member_sets, member_sets))
        return replace(
            self, generation=after.generation + 1, views=views, fleet=fleet, dues=dues_after({}, views)
        )

    def with_agreed(self, agreed: Mapping[str, Agreed | None], now: float) -> Snapshot:
        """The snapshot with another agreed state, by service; this same object if nothing changes."""
        views = {
            name: view.with_agreed(each, now)
            for name, each in agreed.items()
            if (view := self.views.get(name)) is not None and view.agreed != each
        }
        if not views:
            return self
        return self._with_views(views, self.fleet)

    def vote(self, service: str, now: float) -> OwnVote:
        """Vote of this replica on a service, by all that is known at `now` and by the record that its view
        has. Empty for a service that is not configured or does not vote."""
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
        """The snapshot after `facts`, as one change at `now`; this same object if nothing changes."""
        fleet, services = self.fleet.observe_all(facts)
        return self._renewed(fleet, services, now)

    def with_fleet(self, fleet: Fleet, now: float) -> Snapshot:
        """A copy of the snapshot with another fleet, which was made from this one's."""
        before = self.fleet.member_sets
        return self._renewed(
            fleet, [name for name in before if fleet.member_sets[name] is not before[name]], now
        )

    def _renewed(self, fleet: Fleet, services: Collection[str], now: float) -> Snapshot:
        """A copy of the snapshot with new views of `services`, and of those whose offer is due to change."""
        views = {}
        for name in {*services, *(name for name, at in self.dues.items() if at <= now)}:
            view = self.views[name]
            renewed = _renewed(view, fleet.member_sets[name], now)
            if renewed is not view:
                views[name] = renewed
        if not views:
            return self if fleet is self.fleet else replace(self, fleet=fleet)
        return self._with_views(views, fleet)

    def _with_views(self, views: Mapping[str, ServiceView], fleet: Fleet) -> Snapshot:
        dues, views = dues_after(self.dues, views), with_items(self.views, views)
        return replace(self, generation=self.generation + 1, views=views, fleet=fleet, dues=dues)

    def news_since(self, before: Snapshot) -> list[tuple[ServiceView | None, ServiceView]]:
        """Service views that are other objects than in `before`, each behind the earlier one (None: new)."""
        old_views, views = before.views, self.views
        return [(old_views.get(name), views[name]) for name in names_of_others(old_views, views)]

    @property
    def due(self) -> float | None:
        """Time at which an offer changes next without a new fact, by the clock of `now`; None: never."""
        return min(self.dues.values(), default=None)

    def saved(self) -> Mapping[str, SavedState]:
        """Saved state of each service: the part that survives a restart."""
        return {name: _saved(view, self.fleet.member_sets[name]) for name, view in self.views.items()}


def dues_after(dues: Mapping[str, float], views: Mapping[str, ServiceView]) -> Mapping[str, float]:
    """Times at which offers change next, by service: `dues` updated with these views."""
    if not any(view.due is not None or name in dues for name, view in views.items()):
        return dues
    all_dues = dict(dues) | {name: view.due for name, view in views.items()}
    return {name: at for name, at in all_dues.items() if at is not None}


def names_selected_by(services: Iterable[Service]) -> frozenset[str]:
    """Request headers (normalized) that the dialect of one of the services reads or owns."""
    return frozenset().union(*(service.dialect.reads | service.dialect.owned_request for service in services))


def _saved(view: ServiceView, members: MemberSet) -> SavedState:
    service, offer_state, agreed = view.service, view.offer_state, view.agreed
    cut = offer_state.cut
    if agreed is not None and agreed.voting and agreed.record is not None:
        # The file may be read by one that stands alone.
        cut = not votes.is_of_policy(agreed.record.rule, service)
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
        raised=members.raised,
        drained=members.drained,
        policy=service.policy_and_number,
        advertisements=MappingProxyType(advertisements),
        cut=cut,
        negotiates_legacy=service.negotiates_legacy,
    )


def _renewed(view: ServiceView, members: MemberSet, now: float) -> ServiceView:
    """View of a service after new facts. Changes that were due before happen first, by the earlier facts."""
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
    """The offer state, or the one remembered for a vote, after all that is known at `now`."""
    if agreed is not None and agreed.voting:
        return votes.remember(offer_state, agreed.record, service, members, now)
    return advance(offer_state, service, members, now)


def _reconfigured(before: ServiceView, service: Service, members: MemberSet, now: float) -> OfferState:
    """The offer state of a service under its new configuration. Changes that were due before happen first."""
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
        offer_state = restored(saved, service, members) if saved is not None and alone else EMPTY
        offer_state = _brought_up(offer_state, service, members, agreed, now)
    return ServiceView.of(service, members, offer_state, agreed, now), members


def _agreed_anew(before: ServiceView, service: Service) -> Agreed | None:
    """The agreed state under a new configuration. In another scheme nothing is agreed."""
    if before.agreed is None:
        return None
    scheme = service.earlier_scheme(before.service.scheme_id)
    if scheme is None:
        return NOT_JOINED if before.agreed.voting else NOTHING_AGREED
    return before.agreed.read_anew(scheme, service.dialect.scheme)


def _restored(members: MemberSet, service: Service, saved: SavedState, now: float) -> MemberSet:
    """The members with the facts and the operator's commands from before a restart. No advertisement is newer
    than `now`: after the wall clock was set back, no probe could replace it."""
    name = service.name
    facts = [
        (name, backend.name, AdvertisementRestored(known.advertisement, min(known.at, now)))
        for backend in service.backends
        if (known := saved.advertisements.get(backend.name)) is not None
        and known.url == backend.url
        and backend.declared is None
    ]
    fleet = Fleet({name: members}).observe_all(facts).fleet
    fleet = fleet.apply(name, Pin(saved.pin)).apply(name, Raise(saved.raised.floor, saved.raised))
    for backend_name, by in saved.drained.items():
        fleet = fleet.apply(name, Drain(backend_name, by=by))
    return fleet.member_sets[name]


class SnapshotSource(Protocol):
    """Holder of the current snapshot, as its readers see it: one attribute, read once a decision."""

    @property
    def current(self) -> Snapshot: ...

    def apply_batch(self) -> None:
        """Apply the collected facts to the snapshot now, not at the end of this event-loop iteration."""
