"""One log line for everything that an operator wants to know about the fleet: what a backend serves, how far
that can be relied on, who is drained, what is offered now and what holds it there.

Subscribed to the cell, so it also tells what was learned from ordinary replies. Changes only, nothing per
probe; it changes nothing itself. How a line about an offer reads is `offer_words`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, final

from gateway.controlplane import offer_words
from gateway.core.backend import Member, Standing
from gateway.core.ranges import NOTHING
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import Scheme, Version
from gateway.telemetry.access_log import printable
from gateway.telemetry.recent import SPAN, LastHour

_backends = logging.getLogger("skewgate.prober")
_offers = logging.getLogger("skewgate.offer")

_AN_HOUR: Final = 0.98 * SPAN
"""Samples of the last hour are taken once a minute: so close to it counts as one."""


@final
class Journal:
    """Writes the lines. `clock` must be the cell's; `last_hour` tells what a service has served lately."""

    def __init__(self, clock: Callable[[], float], last_hour: Callable[[str], LastHour]) -> None:
        self._clock = clock
        self._last_hour = last_hour

    def begin(self, snapshot: Snapshot) -> None:
        """What is in force at the start: what the configuration declares and the state file brought back."""
        for view in snapshot.views.values():
            self._note_new(view)

    def note_changes(self, before: Snapshot, after: Snapshot) -> None:
        """How `after` differs from `before`; a subscriber of the cell."""
        for name in before.views:
            if name not in after.views:
                _offers.info("%s: is not configured any more", name)
        for name, view in after.views.items():
            old = before.views.get(name)
            if old is view:
                continue
            if old is None:
                self._note_new(view)
                continue
            _note_removed(old, view)
            for member in view.pool.members:
                known = old.pool.member(member.backend.name)
                _note_member(known, member, view.service.dialect.scheme)
                _note_doubts(known, member, view.service.dialect.scheme)
                _note_drain(known, member, view)
            self._note_offer(old, view)

    def _note_new(self, view: ServiceView) -> None:
        """A service of which nothing was told before."""
        for member in view.pool.members:
            _note_drain(None, member, view)
        limit = [offer_words.ceiling(view)] if view.offer.ceiling is not None else []
        self._tell(view, [*limit, f"offer {offer_words.offered(view)}"])

    def _note_offer(self, before: ServiceView, view: ServiceView) -> None:
        """The offer, the phase of the upgrade, the ceiling or what holds the offer changed."""
        if offer_words.told(before) == offer_words.told(view):
            return
        old, new = offer_words.offered(before), offer_words.offered(view)
        said = [f"offer {new}" if old == new else f"offer {old} -> {new}"]
        if offer_words.ceiling(before) != offer_words.ceiling(view):
            unpinned = ["unpinned"] if before.offer.pinned and not view.offer.pinned else []
            said = [*unpinned, offer_words.ceiling(view), *said]
        self._tell(view, said, self._fall(before, view))

    def _tell(self, view: ServiceView, said: list[str], fall: str = "") -> None:
        level = logging.WARNING if fall else logging.INFO
        if offer_words.blocked(view):
            level = logging.ERROR
        said.append(f"phase {view.offer.phase}")
        reasons = [fall, offer_words.why(view, self._clock())]
        line = "; ".join([", ".join(said), *(reason for reason in reasons if reason)])
        _offers.log(level, "%s: %s", view.service.name, line)

    def _fall(self, before: ServiceView, view: ServiceView) -> str:
        """Who is refused, when the maximum fell because nobody serves it any more (UPGRADE-back-late)."""
        if not _fell(before, view):
            return ""
        scheme, highest = view.service.dialect.scheme, view.offer.versions.highest
        hour = self._last_hour(view.service.name)
        above = sum(count for text, count in hour.served.items() if _is_above(highest, text, scheme))
        since = "in the last hour" if hour.seconds >= _AN_HOUR else "since the start"
        gone = (before.offer.versions - view.memory.versions).format(scheme)
        requests = f"{above} request{'' if above == 1 else 's'} above {scheme.format(highest)}"
        return f"nobody serves {gone} any more, {requests} served {since}: their clients are refused now"


def _fell(before: ServiceView, view: ServiceView) -> bool:
    """The maximum is lower, and not by a ceiling alone."""
    pairs = ((before.offer.versions, view.offer.versions), (before.memory.versions, view.memory.versions))
    return all(old and new and new.highest < old.highest for old, new in pairs)


def _is_above(highest: Version, text: str, scheme: Scheme) -> bool:
    version = scheme.parse(text)
    return version is not None and version > highest


def _note_member(before: Member | None, member: Member, scheme: Scheme) -> None:
    """A backend's standing or advert changed."""
    was = before.standing if before is not None else Standing.UNKNOWN
    if before is not None and before.advert != member.advert:
        told = f"serves {serves(before, scheme)} -> {serves(member, scheme)}" if before.advert else ""
        _backends.info("%s: %s, %s", member.key, told or f"serves {serves(member, scheme)}", member.standing)
    elif was is not member.standing:
        match member.standing:
            case Standing.FRESH:
                _backends.info("%s: answers again, serves %s", member.key, serves(member, scheme))
            case Standing.STALE:
                _backends.warning("%s: stale, its last probe failed: %s", member.key, _why(member))
            case Standing.LOST:
                _backends.warning(
                    "%s: lost after three failed probes, tried last until it answers; check %s: %s",
                    member.key,
                    member.backend.url,
                    _why(member),
                )
            case Standing.UNKNOWN:
                pass
    if (
        member.standing is Standing.UNKNOWN
        and member.failures == 1
        and (before is None or not before.failures)
    ):
        _backends.warning(
            "%s: gets no requests, its versions are unknown; check %s: %s",
            member.key,
            member.backend.url,
            _why(member),
        )


def _note_doubts(before: Member | None, member: Member, scheme: Scheme) -> None:
    """Requests have met something that no probe has told."""
    until = "until a probe answers" if member.backend.declared is None else "for a while"
    if member.refusing and not (before is not None and before.refusing):
        _backends.warning(
            "%s: refused a connection, tried last %s; check %s",
            member.key,
            until,
            member.backend.url,
        )
    told = before.contradicted if before is not None else NOTHING
    news = member.contradicted - told
    if news:
        _backends.error(
            "%s: was asked for %s and said that it served another version, gets no such request %s; "
            "check whether two servers are behind %s, and what on the way "
            "rewrites version headers",
            member.key,
            news.format(scheme),
            until,
            member.backend.url,
        )


def _note_drain(before: Member | None, member: Member, view: ServiceView) -> None:
    """An operator took it out of service, or put it back."""
    if member.drained == (before is not None and before.drained):
        return
    if not member.drained:
        _backends.info("%s: in service again", member.key)
        return
    said = f"{member.key}: drained, gets no new requests; `skewgate enable {member.key}` puts it back"
    if all(each.drained for each in view.pool.members):
        _backends.warning("%s; no backend of %s is left in service", said, view.service.name)
    else:
        _backends.info("%s", said)


def _note_removed(before: ServiceView, view: ServiceView) -> None:
    """Backends that a reload took away."""
    for member in before.pool.members:
        if view.pool.member(member.backend.name) is None:
            forgotten = ", its drain is forgotten" if member.drained else ""
            _backends.info("%s: is not configured any more%s", member.key, forgotten)


def serves(member: Member, scheme: Scheme) -> str:
    """`1.1-1.58`, `1.1 (silent)`, or `none` before anything is known."""
    if member.advert is None:
        return "none"
    return member.advert.versions.format(scheme) + (" (silent)" if member.silent else "")


def _why(member: Member) -> str:
    return printable(member.error or "no reason was given")
