"""Exchanges of the weather service as they were seen on the wire."""

from __future__ import annotations

from gateway.dialects.weather import FORECAST, Weather

from gateway.core.dialect import (
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionRefusal,
)
from gateway.core.http.message import Response, as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version

WEATHER = Weather.configured(Weather.Options())
OFFERED = VersionSet.between(Version(1), Version(3))


def test_too_new() -> None:
    requested = RequestedVersion(RequestedKind.EXACT, Version(9), "9")
    refusal = Refusal(RefusalReason.ABOVE_MAX, requested, Version(9), OFFERED)

    assert WEATHER.refuse(refusal, FORECAST, as_mapping([])) == Response(
        406,
        (("X-Weather-Range", "1-3"), ("Content-Type", "text/plain")),
        b"weather: not between 1 and 3\n",
    )


def test_a_406_with_a_served_version_does_not_refuse_the_version() -> None:
    served = WEATHER.read_response(
        FORECAST, 406, as_mapping([("x-weather-version", "2"), ("x-weather-range", "1-3")])
    )

    assert served.version_refusal is VersionRefusal.NO
