"""Whom to ask next, when the one that was chosen will not do.

What a request settled on stands; who serves that is looked up by what is known by now. Pure, and never asked
on the straight way; the choice itself is `core.selection`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.core.backend import Member
from gateway.core.decision import Resolution
from gateway.core.selection import Candidates, pick
from gateway.core.snapshot import ServiceView, Snapshot


def next_member(
    resolution: Resolution,
    snapshot: Snapshot,
    load: Mapping[str, int],
    ticket: int,
    tried: Collection[str] = (),
) -> Member | None:
    """Whom to send the request to that led to `resolution`, as `snapshot` knows them; None: nobody is left.

    Whoever has been drained since, has refused a connection or has lost the version is left out or comes
    last. `load`, `ticket` and `tried` as in `selection.pick`.
    """
    return pick(_able(resolution, snapshot.views.get(resolution.service)), load, ticket, tried)


def _able(resolution: Resolution, view: ServiceView | None) -> Candidates:
    """Who can serve it now. After a reload the service may speak another language, and in a service that has
    turned transparent, or is so no more, another head would have to be written: then it stays as it was."""
    before, place = resolution.view, resolution.place
    if (
        view is None
        or view is before
        or view.service is not before.service
        or view.offer.transparent is not before.offer.transparent
    ):
        return resolution.candidates
    if resolution.version is not None:
        table = view.speaking_by_version if place.versioned_only else view.by_version
        return table.candidates(resolution.version)
    return view.speaking if place.versioned_only and not view.offer.transparent else view.everyone
