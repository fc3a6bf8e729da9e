"""The difference between two snapshots: a process that has the older one makes the newer one from it.

    publication(before, after)     here, where facts come in
    published(before, difference)  there: decides every request as `after` does

Derived values are not sent: tables, offers and routes are made again. Unchanged objects of the older
snapshot are shared with the newer one. So a fact costs its member, and not its service. Pure:
`workers.channel` pickles and sends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from operator import is_not
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, final

from gateway.core.clients import Clients
from gateway.core.decision.routing import Routes
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.member_set import MemberSet, names_of_others, with_items
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot, dues_after, names_selected_by

_Item = TypeVar("_Item")

Changes: TypeAlias = dict[str, Any]
"""Changed fields of one value of a snapshot, with their new values, by the field's name."""

_SERVICE_FIELDS: Final = tuple(field.name for field in fields(Service) if field.name != "backends")
_MEMBER_FIELDS: Final = tuple(
    field.name
    for field in fields(Member)
    if field.init and field.name not in ("service", "backend", "scheme_id")
)
_SET_FIELDS: Final = ("pin", "raised", "undiscovered")
_VIEW_FIELDS: Final = ("offer_state", "agreed")


class ServiceNews(NamedTuple):
    """Changes of one service between two snapshots."""

    service: Changes | None
    """Changed settings of the service, without backends; None: the same object."""
    backends: Sequence[Backend | int] | None
    """All backends, unchanged ones by their earlier positions; None: the same backends."""
    member_set: Changes
    members: Mapping[int, Changes]
    """Changed members, by position: a missing field is as before, or as of an unknown backend."""
    view: Changes | None
    """Changed fields of the service's view; None: the same object, only times are new."""


@final
@dataclass(frozen=True, slots=True)
class Publication:
    """Difference between two snapshots. It has a meaning only for a process that has the first one."""

    generation: int
    names: tuple[str, ...] | None
    """Names of all services, in order; None: the same ones as in the earlier snapshot."""
    services: Mapping[str, ServiceNews]
    untrusted_headers: tuple[str, ...] | None
    """New list of header patterns that untrusted peers cannot send; None: the same."""
    clients: Clients | None
    """New rules that name clients; None: the same."""


def publication(before: Snapshot | None, after: Snapshot) -> Publication:
    """The difference that leads from the snapshot `before` (None: nothing) to `after`."""
    old = before or _NOTHING
    member_sets, old_member_sets = after.fleet.member_sets, old.fleet.member_sets
    changed = dict.fromkeys(
        [*names_of_others(old.views, after.views), *names_of_others(old_member_sets, member_sets)]
    )
    same_names = after.views is old.views or tuple(after.views) == tuple(old.views)
    same_headers = after.untrusted_headers == old.untrusted_headers
    return Publication(
        generation=after.generation,
        names=None if same_names else tuple(after.views),
        services={
            name: _news(old.views.get(name), old_member_sets.get(name), after.views[name], member_sets[name])
            for name in changed
        },
        untrusted_headers=None if same_headers else after.untrusted_headers,
        clients=None if after.clients.rules == old.clients.rules else after.clients,
    )


def published(before: Snapshot | None, difference: Publication) -> Snapshot:
    """The snapshot that the difference leads to. `before` equals the one that it was made from."""
    old = before or _NOTHING
    views: dict[str, ServiceView] = {}
    member_sets: dict[str, MemberSet] = {}
    for name, news in difference.services.items():
        old_view = old.views.get(name)
        view, member_set = _after(old_view, old.fleet.member_sets.get(name), news)
        if view is not old_view:
            views[name] = view
        if member_set is not old.fleet.member_sets.get(name):
            member_sets[name] = member_set
    all_views = _items_after(difference.names, old.views, views)
    everyone = _items_after(difference.names, old.fleet.member_sets, member_sets)
    services = [view.service for view in all_views.values()]
    headers = difference.untrusted_headers
    return Snapshot(
        difference.generation,
        # New routes make the data plane read heads anew, by the new list of headers.
        Routes.of(services) if headers is not None or _is_changed(difference, "match") else old.routes,
        all_views,
        old.fleet if everyone is old.fleet.member_sets else Fleet(everyone),
        names_selected_by(services) if _is_changed(difference, "dialect") else old.selected_names,
        old.untrusted_headers if headers is None else headers,
        old.clients if difference.clients is None else difference.clients,
        dues_after(old.dues, views) if difference.names is None else dues_after({}, all_views),
    )


_NOTHING: Final = Snapshot(
    0, Routes.of(()), MappingProxyType({}), Fleet(MappingProxyType({})), frozenset(), ()
)


def _items_after(
    names: Sequence[str] | None, before: Mapping[str, _Item], news: Mapping[str, _Item]
) -> Mapping[str, _Item]:
    """A mapping with these names, in this order: items of `news` if they are there, others of `before`."""
    if names is None:
        return with_items(before, news) if news else before
    return MappingProxyType({name: news[name] if name in news else before[name] for name in names})


def _is_changed(difference: Publication, field: str) -> bool:
    return difference.names is not None or any(
        news.service is not None and field in news.service for news in difference.services.values()
    )


# --- one service -------------------------------------------------------------------------------------------


def _news(
    old_view: ServiceView | None, old_member_set: MemberSet | None, view: ServiceView, member_set: MemberSet
) -> ServiceNews:
    service, old_service = view.service, None if old_view is None else old_view.service
    backends: list[Backend | int] | None = None
    if old_service is None or service.backends is not old_service.backends:
        backends = _backends(() if old_service is None else old_service.backends, service.backends)
    return ServiceNews(
        None if service is old_service else _changes(_SERVICE_FIELDS, old_service, service),
        backends,
        _changes(_SET_FIELDS, old_member_set, member_set),
        dict(_member_changes(service, old_member_set, member_set)),
        None if view is old_view else _changes(_VIEW_FIELDS, old_view, view),
    )


def _after(
    old_view: ServiceView | None, old_member_set: MemberSet | None, news: ServiceNews
) -> tuple[ServiceView, MemberSet]:
    service = _service_after(None if old_view is None else old_view.service, news)
    member_set = _member_set_after(service, old_member_set, news)
    if old_view is None or news.view is None:
        return old_view or ServiceView.of(service, member_set, **(news.view or {})), member_set
    values = {name: getattr(old_view, name) for name in _VIEW_FIELDS} | news.view
    return ServiceView.of(service, member_set, **values), member_set


def _service_after(before: Service | None, news: ServiceNews) -> Service:
    if news.service is None:
        assert before is not None, "all is said about a new service"
        return before
    values = dict(news.service)
    if news.backends is not None:
        old = () if before is None else before.backends
        values["backends"] = tuple(old[each] if isinstance(each, int) else each for each in news.backends)
    return Service(**values) if before is None else replace(before, **values)


def _member_set_after(service: Service, before: MemberSet | None, news: ServiceNews) -> MemberSet:
    if before is not None and news.service is None:
        changed = {at: replace(before.all[at], **changes) for at, changes in news.members.items()}
        member_set = before.with_members(changed) if changed else before
        return replace(member_set, **news.member_set) if news.member_set else member_set
    values = {} if before is None else {name: getattr(before, name) for name in _SET_FIELDS}
    scheme_id = service.scheme_id
    members = (
        _member_after(service, backend, before, scheme_id, news.members.get(at, {}))
        for at, backend in enumerate(service.backends)
    )
    return MemberSet(tuple(members), scheme_id=scheme_id, **(values | news.member_set))


def _member_after(
    service: Service,
    backend: Backend,
    before: MemberSet | None,
    scheme_id: tuple[object, ...],
    changes: Changes,
) -> Member:
    known = None if before is None else before.member(backend.name)
    if known is None:
        return Member(service.name, backend, scheme_id=scheme_id, **changes)
    if known.backend is backend and known.scheme_id == scheme_id and not changes:
        return known
    return replace(known, backend=backend, scheme_id=scheme_id, **changes)


# --- what is other -----------------------------------------------------------------------------------------


def _changes(names: Sequence[str], before: object, after: object) -> Changes:
    """Fields of a value that are other objects than before: equal ones may differ in times or names."""
    if before is None:
        return {name: getattr(after, name) for name in names}
    return {
        name: value
        for name in names
        if (value := getattr(after, name)) is not (old := getattr(before, name))
        and not (isinstance(value, int | float) and value == old)  # compiled fields give new ones each time
    }


def _backends(before: Sequence[Backend], after: Sequence[Backend]) -> list[Backend | int]:
    """Backends of `after` for a difference: unchanged ones by their positions in `before`."""
    positions = {backend.name: at for at, backend in enumerate(before)}
    return [
        at if (at := positions.get(backend.name)) is not None and before[at] == backend else backend
        for backend in after
    ]


def _member_changes(
    service: Service, before: MemberSet | None, after: MemberSet
) -> Iterator[tuple[int, Changes]]:
    positions: Iterable[int] = range(len(after.all))
    if before is not None and after.positions is before.positions:
        positions = compress(positions, map(is_not, after.all, before.all))
    for at in positions:
        member = after.all[at]
        known = None if before is None else before.member(member.backend.name)
        reference = known or Member(service.name, member.backend)
        if changes := _changes(_MEMBER_FIELDS, reference, member):
            yield at, changes
