"""Configurations of the `header` dialect worth trying: one for each place, scheme and way of telling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from gateway.dialects._header_options import FailureOptions, HeaderOptions, PlaceOptions, RefusalOptions
from gateway.dialects._header_telling_options import DocumentOptions, LearnOptions, ReplyOptions

NAMES: Final = ("v1alpha1", "v1beta1", "v1", "v2beta1", "v2", "v3")
ELASTIC: Final = "application/vnd.elasticsearch+json"
TOLD: Final = ReplyOptions(served="X-Version", minimum="X-Min-Version", maximum="X-Max-Version")

INTEGER: Final = HeaderOptions(
    learn=LearnOptions(path="/versions", minimum="$.min_version", maximum="$.max_version"), reply=TOLD
)
"""A plain `API-Version: 3`."""

PATH: Final = HeaderOptions(
    places=(PlaceOptions(path="/v{version}"),),
    scheme="major.minor",
    silence="maximum",
    learn=LearnOptions(path="/version", minimum="$.MinAPIVersion", maximum="$.ApiVersion"),
    reply=ReplyOptions(maximum="Api-Version"),
    unversioned=("/_ping",),
    documents=(DocumentOptions(path="/versions", minimum="$.MinAPIVersion", maximum="$.ApiVersion"),),
)
"""As the Docker Engine, which tells its newest version on every reply."""

DATES: Final = HeaderOptions(
    places=(PlaceOptions(header="API-Version"),),
    scheme="date",
    silence="2019-05-17",
    learn=LearnOptions(path="/versions", list="$[*]"),
    documents=(DocumentOptions(path="/versions", list="$[*]"),),
)
"""As GitHub."""

AFTER_A_PREFIX: Final = HeaderOptions(
    places=(PlaceOptions(path="/versions/{version}"),),
    scheme="date",
    date_form="month",
    match="nearest_earlier",
    learn=LearnOptions(path="/api_versions.json", list="$.versions[*].handle"),
    reply=ReplyOptions(served="X-Shopify-API-Version", list="X-Versions"),
    documents=(DocumentOptions(path="/versions", list="$.versions[*].handle", links="$.versions[*].href"),),
)
"""As Shopify, but for its prefix, which the conformance tests know."""

MEDIA_TYPE: Final = HeaderOptions(
    places=(PlaceOptions(parameter="compatible-with", media_types=(ELASTIC,)),),
    silence="refused",
    learn=LearnOptions(
        minimum="$.version.minimum_index_compatibility_version",
        maximum="$.version.number",
        spelling="{version}.*",
    ),
)
"""As Elasticsearch."""

NAMED: Final = HeaderOptions(
    places=(PlaceOptions(header="API-Version", spelling="apps.{version}"), PlaceOptions(query="version")),
    scheme="named",
    names=NAMES,
    newest="newest",
    learn=LearnOptions(list="$.versions[*].version"),
    reply=ReplyOptions(served="X-Served", list="X-Served-Versions", always=True),
    refusal=RefusalOptions(
        status=404,
        content_type="text/plain",
        body="{asked}: no such version, there are {versions}",
        too_old="too old, there are {minimum} to {maximum}",
    ),
    failure=FailureOptions(content_type="text/html; charset=utf-8", body="<h1>{status} {title}</h1>{detail}"),
    documents=(
        DocumentOptions(path="/v2", list="$.versions[*].version", maximum="$.preferred.version"),
        DocumentOptions(path="/v2", maximum="$.preferred.group", spelling="apps/{version}"),
    ),
)
"""Names as Kubernetes has them, in a header and a query."""

SEVERAL: Final = HeaderOptions(
    places=(
        PlaceOptions(query="api-version"),
        PlaceOptions(header="API-Version"),
        PlaceOptions(path="/v{version}", sent=False),
        PlaceOptions(parameter="version"),
    ),
    scheme="semver",
    newest="latest",
    learn=LearnOptions(list="$.versions[*]"),
    reply=ReplyOptions(served="X-Version", list="X-Versions"),
)
"""Every place at once."""


def samples(options: type) -> Iterator[tuple[str, object]]:
    """Labels and options."""
    assert options is HeaderOptions
    yield "plain", INTEGER
    yield "plain, told always", replace(INTEGER, reply=replace(TOLD, always=True), newest="newest")
    yield "plain, learned from headers", replace(INTEGER, learn=LearnOptions(), silence="refused")
    yield "path", PATH
    yield "dates", DATES
    yield "path after a prefix", AFTER_A_PREFIX
    yield "media type", MEDIA_TYPE
    yield "named", NAMED
    yield "several places", SEVERAL


Specimen = Callable[[str, str], Iterable[Any]]


def ends(lowest: str, highest: str) -> Specimen:
    """Documents with an oldest and a newest version, as text and, where it is one, as number."""

    def write(low: str, high: str) -> Iterator[Any]:
        yield {lowest: low, highest: high, "other": "0.1"}
        if low.isdecimal():
            yield {lowest: int(low), highest: int(high)}

    return write


def dated(low: str, high: str) -> Iterator[Any]:
    yield [f"{year}{low[4:]}" for year in range(int(low[:4]), int(high[:4]) + 1)]
    yield [f"{year}{low[4:]}" for year in range(int(high[:4]), int(low[:4]) - 1, -1)]


def handled(low: str, high: str) -> Iterator[Any]:
    link = "http://10.0.0.5:8774/admin"
    entries = [{"handle": each, "href": link} for each in next(dated(low, high))]
    yield {"versions": [*entries, {"handle": "unstable", "href": link}]}


def numbered(low: str, high: str) -> Iterator[Any]:
    told = {"number": f"{high}.13.0", "minimum_index_compatibility_version": f"{low}.0.0"}
    yield {"version": told}


def grouped(low: str, high: str) -> Iterator[Any]:
    entries = [{"version": name} for name in NAMES]
    yield {"versions": entries, "preferred": {"version": high, "group": f"apps/{high}"}}


def patched(low: str, high: str) -> Iterator[Any]:
    yield {"versions": [f"2.{minor}.1" for minor in (3, 17, 29, 43, 71, 96)]}


SPECIMENS: Final[dict[str, Specimen]] = {
    "header": ends("min_version", "max_version"),
    "header[path]": ends("MinAPIVersion", "ApiVersion"),
    "header[dates]": dated,
    "header[path after a prefix]": handled,
    "header[media type]": numbered,
    "header[named]": grouped,
    "header[several places]": patched,
}
"""By label: documents as backends write them."""
