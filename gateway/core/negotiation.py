"""Ask x offer -> the version to serve, or the reason why not.

The only place where a version is settled on. Which backend serves it is `core.selection`; how a refusal is
spelled is the dialect's.
"""

from __future__ import annotations

from typing import assert_never

from gateway.core.dialect import Ask, AskKind, Bounds, Match, Reason, Refusal, Silence, SilenceKind
from gateway.core.version import Version


def settle(ask: Ask, bounds: Bounds, silence: Silence, match: Match = Match.EXACT) -> Version | Refusal:
    """Settle on a version inside the offer (design section 2, Settling).

    `latest` is the offer's maximum, resolved here and so before any backend is chosen. A constant that
    silence stands for is treated as if the client had asked for it: outside the offer it is refused.
    """
    wanted = _wanted(ask, bounds, silence)
    if wanted is None:
        return Refusal(Reason.MALFORMED, ask, None, bounds)
    if wanted in bounds.versions:
        return wanted
    if match is Match.NEAREST_EARLIER:
        earlier = bounds.versions.up_to(wanted)
        if earlier:
            return earlier.highest
    elif match is Match.NEAREST_LATER:
        later = bounds.versions.down_to(wanted)
        if later:
            return later.lowest
    reason = Reason.BELOW_MIN if wanted < bounds.lowest else Reason.ABOVE_MAX
    return Refusal(reason, ask, wanted, bounds)


def _wanted(ask: Ask, bounds: Bounds, silence: Silence) -> Version | None:
    """The version that an ask comes to, on offer or not; None when it comes to none."""
    match ask.kind:
        case AskKind.EXACT:
            return ask.version
        case AskKind.LATEST:
            return bounds.highest
        case AskKind.GARBLED:
            return None
        case AskKind.SILENT:
            return _implied(silence, bounds)
        case _:
            assert_never(ask.kind)


def _implied(silence: Silence, bounds: Bounds) -> Version | None:
    """What it means to name no version."""
    match silence.kind:
        case SilenceKind.MINIMUM:
            return bounds.lowest
        case SilenceKind.MAXIMUM:
            return bounds.highest
        case SilenceKind.CONSTANT:
            return silence.constant
        case SilenceKind.REFUSED:
            return None
        case _:
            assert_never(silence.kind)
