"""What is told about names and sources of backends: plain values, and their families of /metrics.

Label values come from the configuration: services, sources as they are written, and names of hosts. No name
that a source lists is one, but for those of backends, which are bounded by `core.fleet.source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.telemetry.families import Family, counter, gauge


class SourceReport(NamedTuple):
    """What one source of backends has said."""

    service: str
    source: str
    listed: int
    """Backends that it lists."""
    unlisted: int
    """Those that it lists no more, and that stay: half of them are leaving already, or they were restored and
    nothing was listed yet."""
    leaving: int
    answers: int
    failures: int
    """Looks without a list: failed, refused or empty."""
    answered_at: float | None
    """Wall-clock seconds; None: never."""
    error: str | None


class NameReport(NamedTuple):
    """What is known of one host name."""

    host: str
    found_at: float | None
    """Wall-clock seconds of the last lookup that found addresses; None: none has."""
    failures: int
    error: str | None


def source_families(reports: Iterable[SourceReport]) -> Iterator[Family]:
    """The families of sources; none without a source."""
    sources = list(reports)
    if not sources:
        return
    labels = ("service", "source")
    yield gauge(
        "discovery_backends",
        "Backends of a source, by state; `unlisted`: no longer listed, and not leaving yet.",
        ("service", "source", "state"),
        [
            ((each.service, each.source, state), number)
            for each in sources
            for state, number in (
                ("listed", each.listed),
                ("unlisted", each.unlisted),
                ("leaving", each.leaving),
            )
        ],
    )
    yield counter(
        "discovery_looks",
        "Looks at a source, by result.",
        ("result", "service", "source"),
        [
            ((result, each.service, each.source), number)
            for each in sources
            for result, number in (("success", each.answers), ("failure", each.failures))
        ],
    )
    yield gauge(
        "discovery_last_success_timestamp_seconds",
        "When a source has given a list for the last time; 0: never.",
        labels,
        [((each.service, each.source), each.answered_at or 0.0) for each in sources],
    )


def name_families(reports: Iterable[NameReport]) -> Iterator[Family]:
    """The families of names; none without a name."""
    names = list(reports)
    if not names:
        return
    yield counter(
        "resolver_failures",
        "Lookups of the name of a backend that found no address.",
        ("host",),
        [((each.host,), each.failures) for each in names],
    )
    yield gauge(
        "resolver_last_success_timestamp_seconds",
        "When the name of a backend was found for the last time; 0: never.",
        ("host",),
        [((each.host,), each.found_at or 0.0) for each in names],
    )
