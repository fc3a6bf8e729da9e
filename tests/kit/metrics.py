"""A scrape of /metrics, read by the parser of `prometheus_client`."""

from __future__ import annotations

from typing import TypeAlias, final

from prometheus_client.parser import text_string_to_metric_families

Labels: TypeAlias = frozenset[tuple[str, str]]
Sample: TypeAlias = tuple[str, Labels]
"""Full name and labels of a series."""


@final
class Scrape:
    """One answer of /metrics in the text format."""

    def __init__(self, text: str) -> None:
        self.samples: dict[Sample, float] = {}
        self.counters: dict[Sample, float] = {}
        """Those that never fall: of counters and histograms."""
        for family in text_string_to_metric_families(text):
            found = {(each.name, frozenset(each.labels.items())): each.value for each in family.samples}
            self.samples |= found
            if family.type != "gauge":
                self.counters |= found

    def value(self, metric: str, **labels: str) -> float | None:
        """The sample with exactly these labels; None: there is no such series."""
        return self.samples.get((metric, frozenset(labels.items())))

    def total(self, metric: str, **labels: str) -> float:
        """The sum over all samples of this name that have at least these labels."""
        wanted = labels.items()
        return sum(value for (name, has), value in self.samples.items() if name == metric and wanted <= has)

    def labels(self, metric: str) -> list[dict[str, str]]:
        """The label sets of every series of this name."""
        return [dict(has) for name, has in self.samples if name == metric]

    def by(self, label: str, metric: str) -> dict[str, float]:
        """The samples of this name by the value of a label that tells them apart."""
        return {dict(has)[label]: value for (name, has), value in self.samples.items() if name == metric}
