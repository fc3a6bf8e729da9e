"""What an operator should know about a command: why it is refused, and what it leaves unserved or unchanged.

One place for the endpoints, which say it afterwards, and for the operations page, which says it before. Pure:
views and offers in, sentences out.
"""

from __future__ import annotations

from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme, Version


def beneath(view: ServiceView) -> VersionSet:
    """What is on offer beneath the ceiling."""
    if view.agreed is None or not view.agreed.voting:
        return view.offer_state.versions
    return NO_VERSIONS if view.agreed.document is None else view.agreed.document.state


def below_minimum(view: ServiceView, ceiling: Version) -> str | None:
    """Why a pin to `ceiling` is refused; None: it is not."""
    versions, scheme = beneath(view), view.service.dialect.scheme
    if not versions or ceiling >= versions.lowest:
        return None
    return (
        f"the ceiling {scheme.format(ceiling)} is below the minimum "
        f"{scheme.format(versions.lowest)} on offer: nothing could be served"
    )


def hides_nothing(view: ServiceView, pin: Version | None) -> str | None:
    """A pin above all that is known hides nothing, which may be a slip. None: it hides something, or there is
    no pin."""
    known = beneath(view) | view.offer.reachable
    if pin is None or not known or pin <= known.highest:
        return None
    scheme = view.service.dialect.scheme
    return (
        f"no known backend serves more than {scheme.format(known.highest)}: "
        f"the ceiling {scheme.format(pin)} hides nothing now"
    )


def leaves_unserved(offer: Offer, scheme: Scheme) -> str | None:
    """What stays on offer although no backend in service serves it: a drain takes nothing off the offer.
    None: there is no such version."""
    unserved = offer.versions - offer.reachable
    if not unserved:
        return None
    text = unserved.format(scheme)
    return f"{text} stays on offer, and no backend in service serves it: such requests are 503 until one does"
