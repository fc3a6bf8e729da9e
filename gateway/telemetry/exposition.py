"""Writer of /metrics: families of samples in the Prometheus text format or as OpenMetrics, in pieces.

    Accept -> form_of -> pieces(families, form) -> bytes, piece by piece

A thousand backends have tens of thousands of lines, which take longer than the event loop may be held, so the
caller can let others run between two pieces. The lines of one histogram are in one piece, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import accumulate
from typing import Final

from gateway.telemetry.histogram import BUCKETS
from gateway.telemetry.series.declaring import Family, Kind

PIECE: Final = 64 * 1024
"""Characters after which a piece of /metrics ends; it is made in some tenths of a millisecond."""

_LE: Final = "le"
_BUCKET_LABELS: Final = (*map(str, BUCKETS), "+Inf")


class Form(Enum):
    """Formats of /metrics by content type, with the plainest escaping: no name here needs any."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    TEXT_1_0 = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"


def form_of(accept: str) -> Form:
    """Returns the first format of /metrics that the field `Accept` names, as Prometheus's own library does,
    without a look at weights; the oldest one, if it names none."""
    for named in accept.split(","):
        kind, *parameters = map(str.strip, named.split(";"))
        version = next((each[8:] for each in parameters if each.startswith("version=")), "")
        if kind == "application/openmetrics-text" and not version.startswith("0."):
            return Form.OPEN_METRICS
        if kind == "text/plain" and version and not version.startswith("0."):
            return Form.TEXT_1_0
    return Form.TEXT


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
    """Writes a sample's number. Nearly all numbers here are integers, for which this is quicker."""
    return f"{value}.0" if type(value) is int else str(float(value))


def _escaping() -> Callable[[str], str]:
    """Returns a function that escapes label values and caches them: the names of a family repeat."""
    known: dict[str, str] = {}

    def escaped(value: str) -> str:
        text = known.get(value)
        if text is None:
            text = known[value] = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return text

    return escaped
