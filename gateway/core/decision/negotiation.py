"""Negotiation: from requested version and offer to the negotiated version, or the reason for a refusal.

Where several replicas or workers agree on an offer, the level of an exactly requested version in their record
decides (`negotiate_agreed`). Nowhere else is a version negotiated. `core.decision.selection` chooses the
backend; dialects write the refusals.
"""

from __future__ import annotations

from typing import assert_never

from gateway.core.agreement.attachment import Agreed, Answer, answer
from gateway.core.agreement.record import Level
from gateway.core.dialect import (
    DefaultKind,
    DefaultVersion,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionMatch,
)
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version


def negotiate(
    requested: RequestedVersion,
    offered: VersionSet,
    default_version: DefaultVersion,
    match: VersionMatch = VersionMatch.EXACT,
) -> Version | Refusal:
    """Negotiated version, which is on offer, or a refusal (semantics, Negotiating). `latest` is the offer's
    maximum, before any backend is chosen. A constant default version counts as if it were requested."""
    wanted = _wanted(requested, offered, default_version)
    if wanted is None:
        return Refusal(RefusalReason.MALFORMED, requested, None, offered)
    if wanted in offered:
        return wanted
    if match is VersionMatch.NEAREST_EARLIER:
        earlier = offered.up_to(wanted)
        if earlier:
            return earlier.highest
    elif match is VersionMatch.NEAREST_LATER:
        later = offered.down_to(wanted)
        if later:
            return later.lowest
    reason = RefusalReason.BELOW_MIN if wanted < offered.lowest else RefusalReason.ABOVE_MAX
    return Refusal(reason, requested, wanted, offered)


def negotiate_agreed(
    requested: RequestedVersion,
    offered: VersionSet | None,
    agreed: Agreed,
    default_version: DefaultVersion,
    match: VersionMatch = VersionMatch.EXACT,
) -> Version | Refusal | None:
    """Negotiated version, or a refusal, by the agreed record; None: 503. `offered` None: nothing is on offer.
    A refusal could name no range then, so nothing is refused."""
    wanted = exact_version(requested, default_version)
    if wanted is not None:
        given = answer(agreed.level(wanted), attached=True)
        if given is not Answer.REFUSE:
            return wanted if given is Answer.SERVE else None
    if offered is None:
        return None
    negotiated = negotiate(requested, offered, default_version, match)
    if isinstance(negotiated, Refusal) and negotiated.reason is not RefusalReason.MALFORMED:
        given = answer(Level.REFUSED, attached=agreed.attached)
        return negotiated if given is Answer.REFUSE else None
    return negotiated


def exact_version(requested: RequestedVersion, default_version: DefaultVersion) -> Version | None:
    """The version that the request means, independent of the offer; None: the offer decides."""
    if requested.kind is RequestedKind.NONE and default_version.kind is DefaultKind.CONSTANT:
        return default_version.constant
    return requested.version if requested.kind is RequestedKind.EXACT else None


def _wanted(
    requested: RequestedVersion, offered: VersionSet, default_version: DefaultVersion
) -> Version | None:
    """The version that a request means, whether it is on offer or not; None: it means none."""
    match requested.kind:
        case RequestedKind.EXACT:
            return requested.version
        case RequestedKind.LATEST:
            return offered.highest
        case RequestedKind.MALFORMED:
            return None
        case RequestedKind.NONE:
            return _default(default_version, offered)
        case _:
            assert_never(requested.kind)


def _default(default_version: DefaultVersion, offered: VersionSet) -> Version | None:
    """The version that a request without one means, by the service's rule for it; None: it means none."""
    match default_version.kind:
        case DefaultKind.MINIMUM:
            return offered.lowest
        case DefaultKind.MAXIMUM:
            return offered.highest
        case DefaultKind.CONSTANT:
            return default_version.constant
        case DefaultKind.REFUSED:
            return None
        case _:
            assert_never(default_version.kind)
