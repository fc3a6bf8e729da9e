"""What a change would do to recorded requests: which would be refused, or executed at another version.

    record, view before, view after  ->  `negotiate` judges each row twice  ->  answer

Requests that the offer before refuses do not count. Where requests may be missing, or a row does not say
enough to be judged, the answer says so: that nobody is affected is then true only as far as is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, final

from gateway.core.days import DAY, text_of_day
from gateway.core.decision.decision import EXECUTED, NegotiationResult
from gateway.core.decision.negotiation import negotiate
from gateway.core.decision.routing import Routes
from gateway.core.dialect import DefaultKind, DefaultVersion, Refusal, RequestedKind, RequestedVersion
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.usage.record import OTHER, RowKey, Scope, UsageRecord
from gateway.core.usage.summary import why_incomplete
from gateway.errors import SkewgateError

CHANGES: Final = ("min", "max", "remove_backend")
"""Changes that `changed` knows. The names are the parameters of `GET /simulate`."""
_SERVED: Final = NegotiationResult.SERVED
_NOT_OFFERED: Final = frozenset({NegotiationResult.BELOW_MIN, NegotiationResult.ABOVE_MAX})
_UNKNOWN: Final = "requests cannot be judged: not known what they asked for, or what will be on offer"
_FOLDED: Final = "requests are of operations that were counted together, and `operations` changes"


@final
class Judgement(NamedTuple):
    """Judgement of a row's requests under one view."""

    result: str
    """Result of the negotiation (`NegotiationResult`), `missing_operation`, `maintenance` or `removed`."""
    version: str = ""
    """Negotiated version in canonical spelling; empty: none was."""


def changed(view: ServiceView, change: str, value: str, now: float) -> ServiceView:
    """View of a service after one of `CHANGES`. `now`: time by the clock that dates facts. Raises
    `SkewgateError` if `value` is no version, or no backend of the service."""
    service, offer = view.service, view.offer
    if change == "remove_backend":
        left = tuple(each for each in service.backends if each.name != value)
        if len(left) == len(service.backends):
            raise SkewgateError(f"{service.name} has no backend {value!a}")
        return reconfigured(view, replace(service, backends=left, written=""), now)
    end, versions = service.dialect.scheme.require(value), offer.versions
    if change == "min" and offer.floor is not None and end < offer.floor:  # a lower floor offers more
        versions = view.offer_state.versions.within(offer.ceiling, None)
    cut = versions.down_to if change == "min" else versions.up_to
    return view.with_offer(replace(offer, versions=cut(end)))


def reconfigured(view: ServiceView, service: Service, now: float, wall_time: float = 0.0) -> ServiceView:
    """View of a service after a reload, when the offer has moved as far as it will by what is known now. All
    replicas are reloaded, so their offer moves as that of a gateway that stands alone. `wall_time`: Unix time
    by which an enforced sunset may have come."""
    raised = view.members.raised.at_sunset(service.passed_sunset(wall_time), service.floor)
    members = replace(view.members, raised=raised)
    alone = ServiceView.of(view.service, members, view.offer_state)
    fleet = Fleet({service.name: members})
    before = Snapshot(0, Routes.of(()), {service.name: alone}, fleet, frozenset())
    after = Snapshot.configured((service,), now=now, after=before)
    return after.with_fleet(after.fleet, math.inf).views[service.name]


def answer(
    record: UsageRecord,
    days: int | None,
    before: ServiceView,
    after: ServiceView | None,
    doubts: Iterable[str] = (),
) -> dict[str, Any]:
    """The JSON object of `GET /simulate`. `days`: number of whole days that were asked for; None: all that
    are recorded. `after` None: the service is no longer configured. `doubts`: more reasons why the answer may
    be wrong."""
    name, scheme = before.service.name, before.service.dialect.scheme
    affected, unclear = _affected_and_unclear(record, before, after)
    reasons = [*doubts, *why_incomplete(record, name, Scope.ALL, of_days=days is not None)]
    begins = (min((each.begins for each in one.periods), default=math.inf) for one in record.sources)
    if days is None and max(begins, default=math.inf) > (record.until - 1) * DAY:
        reasons.append("not one whole day is recorded")
    if not before.offer.versions:
        reasons.append("nothing is on offer now")
    if before.offer.moving:
        reasons.append("replicas have not agreed yet on what is on offer")
    if after is not None and after.members is not before.members and not after.members.all_probed:
        unknown = [each.backend.name for each in after.members.all if not each.probed]
        reasons.append(f"not known yet: what {', '.join(unknown) or 'backends of a source'} serves")
    reasons += [f"{number} {problem}" for problem, number in unclear.items()]
    by_client = why_incomplete(record, name, Scope.CLIENTS, of_days=days is not None)
    return {
        "service": name,
        "offer_before": before.offer.versions.format(scheme),
        "offer_after": "none" if after is None else after.offer.versions.format(after.service.dialect.scheme),
        "first_day": text_of_day(record.since),
        "last_day": text_of_day(record.until),
        "affected": affected,
        "incomplete": reasons,
        "incomplete_by_client": [each for each in by_client if each not in reasons],
    }


def _affected_and_unclear(
    record: UsageRecord, before: ServiceView, after: ServiceView | None
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The affected requests, most first, and the number of those that cannot be judged, by reason."""
    affected: dict[tuple[object, ...], dict[str, Any]] = {}
    unclear = Counter[str]()
    judged: dict[tuple[str, ...], tuple[Judgement | None, Judgement | None]] = {}
    other_operations = after is not None and after.service.operations != before.service.operations
    has_own = bool(before.own or (after is not None and after.own))
    for (_, row), count in record.rows.items():
        if row.service != before.service.name or row.result == "denied":
            continue  # refused for another reason
        name = row.client if row.named else ""
        what_counts = (row.requested, row.asked, row.result, row.operation, name if has_own else "")
        if what_counts not in judged:
            own = [each and each.for_client(name, record.until * DAY) for each in (before, after)]
            judged[what_counts] = judge(own[0] or before, row), _judge_after(before, own[1], row)
        now, then = judged[what_counts]
        if now is None or then is None:
            unclear[_UNKNOWN] += count.requests
            continue
        counts = now.version or now.result == NegotiationResult.TRANSPARENT
        if counts and (now.version != then.version or then.result not in {now.result, _SERVED}):
            what = {name: getattr(row, name) for name in ("client", "named", "requested", "asked")}
            executed_at = then.version if then.result in EXECUTED else ""
            what |= {"now": now.version, "then": executed_at, "result": then.result}
            empty = {"requests": 0, "last": 0.0, "operations": Counter[str]()}
            one = affected.setdefault(tuple(what.values()), what | empty)
            one["requests"] += count.requests
            one["last"] = max(one["last"], count.last)
            one["operations"][row.operation] += count.requests
        elif now.version and other_operations and (row.operation == OTHER or {*"{…"} & {*row.operation}):
            unclear[_FOLDED] += count.requests
    found = [
        {**one, "operations": dict((+one["operations"]).most_common())}
        for one in sorted(affected.values(), key=lambda one: -int(one["requests"]))
        if one["requests"] > 0  # 0: its requests have moved to another row
    ]
    return found, +unclear


def judge(view: ServiceView, row: RowKey) -> Judgement | None:
    """Judgement of a row's requests under a view; None: the row does not say which version they asked for."""
    service, offer, scheme = view.service, view.offer, view.service.dialect.scheme
    asked = scheme.parse(row.asked)
    if not (row.requested or row.result):
        return _judge_unnegotiated(view, row)
    if row.asked == OTHER and row.result in _NOT_OFFERED:  # no backend had ever advertised it
        return Judgement(row.result)
    if not row.requested or (asked is None and row.requested == RequestedKind.EXACT):
        return None
    if offer.transparent or not offer.versions:
        return Judgement(
            NegotiationResult.TRANSPARENT if offer.transparent else NegotiationResult.UNAVAILABLE
        )
    requested = RequestedVersion(RequestedKind(row.requested), asked, row.asked, row.signed)
    default, match = service.effective_default_version, service.dialect.version_match
    if default.kind is DefaultKind.REFUSED and row.result == _SERVED:  # it was for a document
        default = DefaultVersion(DefaultKind.MINIMUM)
    version, result = negotiate(requested, offer.versions, default, match), _SERVED
    method, _, path = row.operation.partition(" ")
    if isinstance(version, Refusal):
        found = view.bridged(version, service.dialect.endpoint(method, path, ""))
        if found is None:
            return Judgement(version.reason.value)
        if path.endswith("…"):
            return None  # not every document is bridged
        version, result = found, NegotiationResult.BRIDGED
    operation = None if path.endswith("…") else service.operations.find(method, path)
    if operation is not None and version not in operation.versions:
        return Judgement("missing_operation")
    served = version in offer.reachable  # else nobody in service serves it: 503
    return Judgement(result if served else NegotiationResult.UNAVAILABLE, scheme.format(version))


def _judge_unnegotiated(view: ServiceView, row: RowKey) -> Judgement | None:
    """Judgement where nothing is negotiated: any backend that has this part of the API executes the request.
    The version `-` stands for that. None: the row does not say which part."""
    method, _, path = row.operation.partition(" ")
    mount = view.service.dialect.endpoint(method, path, "").mount
    members = view.members.all
    if row.operation == OTHER and any(each.advertisement and each.advertisement.mounts for each in members):
        return None
    if not members or (mount is not None and not any(each.has_mount(mount) for each in members)):
        return Judgement("removed")
    executed = any(each.in_service and (mount is None or each.has_mount(mount)) for each in members)
    offers = view.offer.versions or view.offer.transparent
    return Judgement(_SERVED if executed and offers else NegotiationResult.UNAVAILABLE, "-")


def _judge_after(before: ServiceView, after: ServiceView | None, row: RowKey) -> Judgement | None:
    """Judgement after the change; None also if probes must form an offer then."""
    if after is None:
        return Judgement("removed")
    if after.service.maintenance is not None and before.service.maintenance is None:
        return Judgement("maintenance")
    forms = not after.offer.versions and not after.members.all_probed
    return None if forms else judge(after, row)
