"""What workers hold of the offers, compared with what is in force. Pure; who waits for it is the supervisor's
and the agreement's matter."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.agreement.document import Document
from gateway.core.fleet.snapshot import ServiceView, Snapshot


def lowest_held(service: str, current: Snapshot, held: Iterable[Snapshot]) -> int | None:
    """The lowest `seq` of this service's document among what the workers hold. 0: one of them holds none.
    None: there is no worker."""
    present = _document(current.views.get(service))
    lowest: int | None = None
    for each in held:
        document = _document(each.views.get(service))
        if document is None:
            return 0
        seq = document.seq
        if present is not None and document != present:  # another one with this number is not it
            seq = min(seq, present.seq - 1)
        lowest = seq if lowest is None else min(lowest, seq)
    return lowest


def offers(snapshot: Snapshot | None) -> bool:
    """Whether some service has an offer, as in a gateway that is ready."""
    return snapshot is not None and any(
        view.offer.versions or view.offer.transparent for view in snapshot.views.values()
    )


def holds_documents(held: Snapshot, current: Snapshot) -> bool:
    """Whether a worker that holds this decides by the present documents."""
    for name, view in current.views.items():
        other = held.views.get(name)
        if other is not view and (other is None or other.agreed != view.agreed):
            return False
    return True


def _document(view: ServiceView | None) -> Document | None:
    return None if view is None or view.agreed is None else view.agreed.document
