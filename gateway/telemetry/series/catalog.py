"""All groups of metric series, in the order in which /metrics has them."""

from __future__ import annotations

from typing import Final

from gateway.telemetry.series.backend import BackendDetails, BackendState, OfBackend
from gateway.telemetry.series.declaring import Group
from gateway.telemetry.series.neighbours import OfEngine, OfNames, OfReplicas, OfSources
from gateway.telemetry.series.process import OfConfiguration, OfProcess, OfWorkers, Standard
from gateway.telemetry.series.service import OfGate, OfOffers, OfRequests, OfService

GROUPS: Final[tuple[type[Group], ...]] = (
    *(Standard, OfConfiguration, OfWorkers, OfProcess),
    *(OfRequests, OfService),
    *(OfNames, OfSources, OfReplicas, OfEngine),
    *(OfBackend, OfOffers, BackendState, BackendDetails),
)

_SHOWN: Final = [series for group in GROUPS for series in group.series]

SERIES: Final = {series.full_name: series for series in (*_SHOWN, *OfGate.series)}
"""All metric series, and those that no scrape shows, by their full names."""
