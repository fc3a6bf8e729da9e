"""Writer of /metrics: families of samples in the Prometheus text format or as OpenMetrics, in pieces.

    Accept -> form_of -> pieces(families, form) -> bytes, piece by piece

A thousand backends have tens of thousands of lines, which take longer than the event loop may be held, so the
caller can let others run between two pieces. The lines of one histogram are in one piece, so that they agree.
`metrics` imports this module at the first scrape, because it needs a library that nothing else needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import accumulate
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, CONTENT_TYPE_PLAIN_1_0_0, choose_encoder
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.utils import floatToGoString

from gateway.telemetry.histogram import BUCKETS
from gateway.telemetry.series.declaring import Family, Kind

PIECE: Final = 64 * 1024
"""Characters after which a piece of /metrics ends; it is made in some tenths of a millisecond."""

ALL_DIGITS: Final = 1_000_000
"""Lowest number that Go, and so Prometheus, writes with an exponent."""

_LE: Final = "le"
_BUCKET_LABELS: Final = (*map(floatToGoString, BUCKETS), "+Inf")


class Form(Enum):
    """Formats of /metrics by content type, with the plainest escaping: no name here needs any."""

    TEXT = CONTENT_TYPE_PLAIN_0_0_4
    TEXT_1_0 = f"{CONTENT_TYPE_PLAIN_1_0_0}; escaping=underscores"
    OPEN_METRICS = f"{CONTENT_TYPE_LATEST}; escaping=underscores"


def form_of(accept: str) -> Form:
    """Returns the format of /metrics that the field `Accept` prefers, as the Prometheus library chooses."""
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # `version=1.x`: the library compares numbers with text
        return Form.TEXT
    if content_type.startswith("application/openmetrics-text"):
        return Form.OPEN_METRICS
    return Form.TEXT if content_type == CONTENT_TYPE_PLAIN_0_0_4 else Form.TEXT_1_0


def pieces(families: Iterable[Family], form: Form) -> Iterator[bytes]:
    """Writes metric families as text in pieces, each made on demand."""
    parts: list[str] = []
    size = 0
    for part in _parts(families, form):
        parts.append(part)
        size += len(part)
        if size >= PIECE:
            yield "".join(parts).encode()
            parts.clear()
            size = 0
    yield "".join(parts).encode()


def _parts(families: Iterable[Family], form: Form) -> Iterator[str]:
    """Writes metric families in parts of whole lines, with all lines of one histogram in one part."""
    for family in families:
        name = family.name
        sampled = f"{name}_total" if family.kind is Kind.COUNTER else name
        described = name if form is Form.OPEN_METRICS else sampled
        yield f"# HELP {described} {family.description}\n# TYPE {described} {family.kind.value}\n"
        if family.kind is Kind.HISTOGRAM:
            yield from _histogram_parts(name, family)
        else:
            yield from _sample_parts(sampled, family)
    if form is Form.OPEN_METRICS:
        yield "# EOF\n"


def _sample_parts(name: str, family: Family) -> Iterator[str]:
    line = f"{name}{_labels(family)} %s\n"
    escaped = _escaping()
    for values, number in family.rows:
        yield line % (*map(escaped, values), _number(number))


def _histogram_parts(name: str, family: Family) -> Iterator[str]:
    before = "".join(f'{label}="%s",' for label in family.labels if label < _LE)
    after = "".join(f',{label}="%s"' for label in family.labels if label > _LE)
    split = sum(label < _LE for label in family.labels)
    bucket = f'{name}_bucket{{{before}{_LE}="'
    labels = _labels(family)
    end = f"{name}_count{labels} %s\n{name}_sum{labels} %s\n"
    escaped = _escaping()
    for values, histogram in family.rows:
        texts = tuple(map(escaped, values))
        head, tail = bucket % texts[:split], f'"{after}}} ' % texts[split:]
        numbers = [*map(_number, accumulate(histogram.counts))]
        lines = [f"{head}{bound}{tail}{n}\n" for bound, n in zip(_BUCKET_LABELS, numbers, strict=True)]
        lines.append(end % (*texts, numbers[-1], *texts, _number(histogram.total)))
        yield "".join(lines)


def _labels(family: Family) -> str:
    """Template for the labels of a family's samples: in braces, with `%s` for each value."""
    labels = ",".join(f'{label}="%s"' for label in family.labels)
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    """Writes a sample's number as the Prometheus library does. Nearly all numbers here are small integers."""
    if type(value) is int and 0 <= value < ALL_DIGITS:
        return f"{value}.0"
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


def _escaping() -> Callable[[str], str]:
    """Returns a function that escapes label values and caches them: the names of a family repeat."""
    known: dict[str, str] = {}

    def escaped(value: str) -> str:
        text = known.get(value)
        if text is None:
            text = known[value] = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return text

    return escaped
