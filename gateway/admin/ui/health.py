"""Problems of the gateway and its services, as sentences in the order of their importance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import gmtime, strftime
from typing import Final, NamedTuple

from gateway.admin import views
from gateway.admin.ui.model import HealthCard
from gateway.admin.ui.offer import cut, duration, held, without_address
from gateway.controlplane.change_log import is_blocked, unserved, why_unserved
from gateway.core.days import DAY
from gateway.core.fleet.backend import Freshness, Member, MemberSummary
from gateway.core.fleet.snapshot import ServiceView
from gateway.telemetry.neighbours import AgreementReport, EngineReport
from gateway.telemetry.process_log import named
from gateway.telemetry.status import GatewayStatus, ServiceStatus, WorkerState

GOOD: Final = "good"
UPGRADING: Final = "upgrading"
ATTENTION: Final = "attention"
BAD: Final = "bad"

MAX_REASONS: Final = 3
"""Maximum reasons in a sentence about several backends; the other backends are only counted."""

MAX_PROBLEMS: Final = 20
"""Maximum problems shown as sentences; the others are only counted."""

EXPIRES_SOON: Final = 14.0 * DAY
"""Seconds before its expiry from which on a certificate is a problem."""


class Problem(NamedTuple):
    """A problem of the gateway or of a service that the page shows."""

    level: str
    """Severity of the problem: `attention` or `bad`."""
    sentence: str
    brief: str = ""
    """Sentence without names for the overview, where equal ones are shown once; empty: `sentence`."""


def health(problems: Iterable[Problem], good: HealthCard) -> HealthCard:
    """Summarises `problems` as health, or returns `good` if there are none."""
    found = list(problems)
    if not found:
        return good
    worst = BAD if any(each.level == BAD for each in found) else ATTENTION
    count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    sentence = f"not healthy: {count}" if worst == BAD else f"needs attention: {count}"
    shown = [each.sentence for each in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        shown.append(f"{len(found) - MAX_PROBLEMS} more")
    return HealthCard(worst, sentence, tuple(shown))


def together(problems: Iterable[tuple[str, Problem]]) -> Iterator[Problem]:
    """Combines the problems of several services: equal ones become one that names the services."""
    services: dict[tuple[str, str], list[str]] = {}
    for service, each in problems:
        services.setdefault((each.level, each.brief or each.sentence), []).append(service)
    for (level, sentence), names in services.items():
        yield Problem(level, f"{named(names)}: {sentence}")


def gateway_problems(status: GatewayStatus) -> Iterator[Problem]:
    """Finds problems of the gateway as a whole."""
    for each in views.conditions(status.snapshot, not_serving=status.not_serving):
        if not each.holds and each.name != "offer":  # each service reports that itself
            yield Problem(BAD, each.reason)
    if status.config.error:
        error = cut(status.config.error)
        yield Problem(ATTENTION, f"the last reload was refused, the old configuration is in force: {error}")
    if status.agreement is not None:
        yield from _agreement(status.agreement)
    yield from _workers(status.workers)
    if status.engine is not None:
        yield from _engine(status.engine)
    if status.state_writes is not None and not status.state_writes.successful:
        yield Problem(ATTENTION, "the state file cannot be written: a restart would forget the present offer")
    yield from _certificates(status.certificate_expiry, status.now)


def _agreement(report: AgreementReport) -> Iterator[Problem]:
    if report.store_error:
        yield Problem(ATTENTION, f"the store that replicas share does not respond: {cut(report.store_error)}")
    if detached := [name for name, each in report.services.items() if not each.attached]:
        left = report.answers_for
        ends = "" if left is None else f", and it stops responding in {duration(left)}"
        sentence = f"this replica is detached for {named(detached)}: it refuses no version{ends}"
        yield Problem(ATTENTION, sentence)
    others = [
        report.name_of(each.id) for each in report.replicas if each.id != report.id and not each.attached
    ]
    if others:
        yield Problem(ATTENTION, f"replicas not attached: {named(others)}")
    if differing := [report.name_of(each.id) for each in report.replicas if each.differs]:
        yield Problem(
            ATTENTION, f"replicas whose configuration differs in what clients can notice: {named(differing)}"
        )


def _workers(workers: Sequence[WorkerState]) -> Iterator[Problem]:
    if len(workers) > 1 and (idle := [f"{each.slot}" for each in workers if each.state != "serving"]):
        level = BAD if len(idle) == len(workers) else ATTENTION
        yield Problem(level, f"{len(idle)} of {len(workers)} workers are not serving: {named(idle)}")


def _engine(report: EngineReport) -> Iterator[Problem]:
    if report.problem:
        yield Problem(ATTENTION, f"the engine {report.name} is not in sync: {cut(report.problem)}")
    if report.missing:
        missing = named(report.missing)
        yield Problem(ATTENTION, f"the configuration of {report.name} lacks route sets: {missing}")


def _certificates(expiry: Mapping[str, float], now: float) -> Iterator[Problem]:
    expired = [path for path, at in expiry.items() if at <= now]
    soon = {path: at for path, at in expiry.items() if now < at <= now + EXPIRES_SOON}
    if expired:
        yield Problem(BAD, f"certificates have expired: {named(expired)}")
    if soon:
        first = min(soon.values())
        when = strftime("%Y-%m-%d %H:%M UTC", gmtime(first))
        yield Problem(ATTENTION, f"certificates expire soon, the first at {when}: {named(sorted(soon))}")


def service_problems(service: ServiceStatus) -> Iterator[Problem]:
    """Finds problems of one service."""
    view, members, ejected = service.view, service.view.members, service.gateway.report.ejected
    yield from _offer(service)
    # Drained backends are being worked on, and leaving ones are not missed.
    down = members.names(lambda summary: summary.freshness is Freshness.DOWN and _is_wanted(summary))
    if down:
        state = "down (3 failed probes) and used only as a last resort"
        yield _some(state, down, view, why=lambda member: member.error)
    unknown = members.names(
        lambda summary: summary.freshness is Freshness.UNKNOWN and summary.probed and _is_wanted(summary),
    )
    if unknown:
        yield _some("without a known version", unknown, view, why=lambda member: member.error)
    doubtful = members.names(lambda summary: summary.version_unknown or _mismatched(summary))
    if doubtful:
        yield _some("serving another version than advertised", doubtful, view)
    if unhealthy := members.names(lambda summary: summary.unhealthy):
        yield _some("failing their health check", unhealthy, view, why=lambda member: member.unhealthy)
    if out := [member.backend.name for member in members.all if member.key in ejected] if ejected else []:
        yield _some("ejected", out, view)
    if (skew := view.skew) and skew.problem:
        yield Problem(ATTENTION, skew.problem)
    for each in service.sources:
        if each.error:
            yield Problem(ATTENTION, f"the source {cut(each.source)} does not respond: {cut(each.error)}")
    if view.service.maintenance is not None:
        status = view.service.maintenance.status
        yield Problem(ATTENTION, f"maintenance: every request gets {status}")
    if service.agreement is not None and service.agreement.problem:
        yield Problem(ATTENTION, f"this replica cannot attach: {cut(service.agreement.problem)}")


def _offer(service: ServiceStatus) -> Iterator[Problem]:
    """Finds problems of a service's offer: nothing is offered, or no backend can serve a version of it."""
    view, offer = service.view, service.view.offer
    if offer.transparent:
        return
    if is_blocked(view):
        yield Problem(BAD, f"nothing is offered: {held(service)}")
    elif not offer.versions:
        yield Problem(BAD, f"nothing is offered, requests get 503: {held(service)}")
    elif missing := unserved(view):
        level = BAD if missing == offer.versions else ATTENTION
        yield Problem(level, cut(why_unserved(view, missing)))


def _some(
    what: str, names: Sequence[str], view: ServiceView, why: Callable[[Member], str | None] = lambda _: None
) -> Problem:
    """Makes the problem `3 of 4 backends are down: api-1, api-2 (no connection)`; `why` returns a reason."""
    by_reason: dict[str, list[str]] = {}
    for name in names:
        member = view.members.member(name)
        reason = "" if member is None else without_address(why(member) or "")
        by_reason.setdefault(reason, []).append(name)
    ranked = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    parts = [
        f"{named(alike)} ({cut(reason)})" if reason else named(alike)
        for reason, alike in ranked[:MAX_REASONS]
    ]
    if rest := sum(len(alike) for _, alike in ranked[MAX_REASONS:]):
        parts.append(f"{rest} for other reasons")
    number = len(view.members.all)
    of_all = f"{len(names)} of {'1 backend' if number == 1 else f'{number} backends'}"
    brief = f"{of_all} {'is' if len(names) == 1 else 'are'} {what}"
    return Problem(ATTENTION, f"{brief}: {'; '.join(parts)}", brief)


def _is_wanted(summary: MemberSummary) -> bool:
    return not (summary.drained or summary.absent)


def _mismatched(summary: MemberSummary) -> bool:
    """Whether responses of a member named versions other than it advertises."""
    usable = not (summary.restored or summary.version_unknown or summary.absent)
    return usable and summary.advertised is not None and summary.usable != summary.advertised
