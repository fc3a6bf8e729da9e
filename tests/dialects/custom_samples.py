"""Options of the dialect `custom` worth testing: one set for each location, scheme and kind of document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from gateway.dialects.custom.options import (
    CustomOptions,
    DocumentOptions,
    FailureOptions,
    LearnOptions,
    LocationOptions,
    RefusalOptions,
    ResponseOptions,
)

NAMES: Final = ("v1alpha1", "v1beta1", "v1", "v2beta1", "v2", "v3")
ELASTIC: Final = "application/vnd.elasticsearch+json"
HEADERS: Final = ResponseOptions(served="X-Version", minimum="X-Min-Version", maximum="X-Max-Version")

INTEGER: Final = CustomOptions(
    learn=LearnOptions(path="/versions", minimum="$.min_version", maximum="$.max_version"), reply=HEADERS
)
"""A plain `API-Version: 3`."""

PATH: Final = CustomOptions(
    places=(LocationOptions(path="/v{version}"),),
    scheme="major.minor",
    learn=LearnOptions(path="/version", minimum="$.MinAPIVersion", maximum="$.ApiVersion"),
    reply=ResponseOptions(maximum="Api-Version"),
    unversioned=("/_ping",),
    documents=(DocumentOptions(path="/versions", minimum="$.MinAPIVersion", maximum="$.ApiVersion"),),
)
"""Like the Docker Engine, which sends its newest version on every response."""

DATES: Final = CustomOptions(
    places=(LocationOptions(header="API-Version"),),
    scheme="date",
    learn=LearnOptions(path="/versions", list="$[*]"),
    documents=(DocumentOptions(path="/versions", list="$[*]"),),
)
"""Like GitHub."""

AFTER_A_PREFIX: Final = CustomOptions(
    places=(LocationOptions(path="/versions/{version}"),),
    scheme="date",
    date_form="month",
    match="nearest_earlier",
    learn=LearnOptions(path="/api_versions.json", list="$.versions[*].handle"),
    reply=ResponseOptions(served="X-Shopify-API-Version", list="X-Versions"),
    documents=(DocumentOptions(path="/versions", list="$.versions[*].handle", links="$.versions[*].href"),),
)
"""Like Shopify, but with a prefix that the conformance tests know."""

MEDIA_TYPE: Final = CustomOptions(
    places=(LocationOptions(parameter="compatible-with", media_types=(ELASTIC,)),),
    learn=LearnOptions(
        minimum="$.version.minimum_index_compatibility_version",
        maximum="$.version.number",
        spelling="{version}.*",
    ),
)
"""Like Elasticsearch."""

NAMED: Final = CustomOptions(
    places=(
        LocationOptions(header="API-Version", spelling="apps.{version}"),
        LocationOptions(query="version"),
    ),
    scheme="named",
    names=NAMES,
    newest="newest",
    learn=LearnOptions(list="$.versions[*].version"),
    reply=ResponseOptions(served="X-Served", list="X-Served-Versions", always=True),
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
"""Names like those of Kubernetes, in a header and in a query."""

SEVERAL: Final = CustomOptions(
    places=(
        LocationOptions(query="api-version"),
        LocationOptions(header="API-Version"),
        LocationOptions(path="/v{version}", sent=False),
        LocationOptions(parameter="version"),
    ),
    scheme="semver",
    newest="latest",
    learn=LearnOptions(list="$.versions[*]"),
    documents=(),
    reply=ResponseOptions(served="X-Version", list="X-Versions"),
)
"""Every location at once."""


def samples(options: type) -> Iterator[tuple[str, object]]:
    """Labels and options."""
    assert options is CustomOptions
    yield "plain", INTEGER
    yield (
        "plain, headers always",
        replace(
            INTEGER,
            reply=replace(HEADERS, always=True),
            newest="newest",
            suffixes=(".json",),
            method_override=("X-HTTP-Method-Override",),
        ),
    )
    yield "plain, learned from headers", replace(INTEGER, learn=LearnOptions())
    yield "path", PATH
    yield "dates", DATES
    yield "path after a prefix", AFTER_A_PREFIX
    yield "media type", MEDIA_TYPE
    yield "named", NAMED
    yield "several locations", SEVERAL


Specimen = Callable[[str, str], Iterable[Any]]


def range_documents(lowest: str, highest: str) -> Specimen:
    """Documents with an oldest and a newest version: as text, and also as numbers where they are whole."""

    def write(low: str, high: str) -> Iterator[Any]:
        yield {lowest: low, highest: high, "other": "0.1"}
        if low.isdecimal():
            yield {lowest: int(low), highest: int(high)}

    return write


def date_documents(low: str, high: str) -> Iterator[Any]:
    yield [f"{year}{low[4:]}" for year in range(int(low[:4]), int(high[:4]) + 1)]
    yield [f"{year}{low[4:]}" for year in range(int(high[:4]), int(low[:4]) - 1, -1)]


def handle_documents(low: str, high: str) -> Iterator[Any]:
    link = "http://10.0.0.5:8774/admin"
    entries = [{"handle": month, "href": link} for month in next(date_documents(low, high))]
    yield {"versions": [*entries, {"handle": "unstable", "href": link}]}


def release_documents(low: str, high: str) -> Iterator[Any]:
    version = {"number": f"{high}.13.0", "minimum_index_compatibility_version": f"{low}.0.0"}
    yield {"version": version}


def group_documents(low: str, high: str) -> Iterator[Any]:
    entries = [{"version": name} for name in NAMES]
    yield {"versions": entries, "preferred": {"version": high, "group": f"apps/{high}"}}


def semver_documents(low: str, high: str) -> Iterator[Any]:
    yield {"versions": [f"2.{minor}.1" for minor in (3, 17, 29, 43, 71, 96)]}


SPECIMENS: Final[dict[str, Specimen]] = {
    "custom": range_documents("min_version", "max_version"),
    "custom[path]": range_documents("MinAPIVersion", "ApiVersion"),
    "custom[dates]": date_documents,
    "custom[path after a prefix]": handle_documents,
    "custom[media type]": release_documents,
    "custom[named]": group_documents,
    "custom[several locations]": semver_documents,
}
"""Documents as backends write them, by label."""
