"""One log line for everything that an operator wants to know about the fleet: what a backend serves, how far
that can be relied on, what is offered now.

Subscribed to the cell, so it also tells what was learned from ordinary replies. Changes only, nothing per
probe; it changes nothing itself.
"""

from __future__ import annotations

import logging

from gateway.core.backend import Member, Standing
from gateway.core.offer import Offer
from gateway.core.ranges import NOTHING
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import Scheme
from gateway.telemetry.access_log import printable

_backends = logging.getLogger("skewgate.prober")
_offers = logging.getLogger("skewgate.offer")


def note_changes(before: Snapshot, after: Snapshot) -> None:
    """Log how `after` differs from `before`; a subscriber of the cell."""
    for name, view in after.views.items():
        old = before.views.get(name)
        if old is view:
            continue
        scheme = view.service.dialect.scheme
        for member in view.pool.members:
            known = old.pool.member(member.backend.name) if old is not None else None
            _note_member(known, member, scheme)
            _note_doubts(known, member, scheme)
        _note_offer(name, old, view)


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
    if member.refusing and not (before is not None and before.refusing):
        _backends.warning(
            "%s: refused a connection, tried last until a probe answers; check %s",
            member.key,
            member.backend.url,
        )
    told = before.contradicted if before is not None else NOTHING
    news = member.contradicted - told
    if news:
        _backends.error(
            "%s: was asked for %s and said that it served another version, gets no such request until a "
            "probe answers; check whether two servers are behind %s, and what on the way "
            "rewrites version headers",
            member.key,
            news.format(scheme),
            member.backend.url,
        )


def _note_offer(name: str, before: ServiceView | None, view: ServiceView) -> None:
    """The offer or the phase of the upgrade changed."""
    offer, scheme = view.offer, view.service.dialect.scheme
    if before is None or _told(before.offer) == _told(offer):
        return
    old, new = before.offer.versions.format(scheme), offer.versions.format(scheme)
    moved = f"offer {new}" if old == new else f"offer {old} -> {new}"
    if offer.transparent:
        moved = "transparent, every backend is silent about versions"
    differing = f", differing: {', '.join(offer.held_by)}" if offer.held_by else ""
    _offers.info("%s: %s, phase %s%s", name, moved, offer.phase, differing)


def _told(offer: Offer) -> tuple[object, ...]:
    return offer.versions, offer.phase, offer.transparent


def serves(member: Member, scheme: Scheme) -> str:
    """`1.1-1.58`, `1.1 (silent)`, or `none` before anything is known."""
    if member.advert is None:
        return "none"
    return member.advert.versions.format(scheme) + (" (silent)" if member.silent else "")


def _why(member: Member) -> str:
    return printable(member.error or "no reason was given")
