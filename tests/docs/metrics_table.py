"""Writes the tables of series and of alerts in docs/metrics.md, from their declarations and from the rules.

    python -m tests.docs.metrics_table docs/metrics.md

The rest of the page is written by hand, and so is the order of the series, by which a reader finds what
belongs together: a row stays where it is, and a new one comes after that of the series declared before it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import yaml

from gateway.telemetry.series.catalog import GROUPS
from gateway.telemetry.series.declaring import Kind, Series

_RULES: Final = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules" / "skewgate.yml"
_ALERTS: Final = "| alert | severity | what it says |\n|---|---|---|\n"
_HEADER: Final = "| series | type | labels | meaning |\n|---|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with the tables as the declarations and the rules have them."""
    above, _, below = page.partition(_ALERTS)
    page = above + _ALERTS + _alerts() + "\n\n" + below.partition("\n\n")[2]
    before, _, rest = page.partition(_HEADER)
    table, gap, after = rest.partition("\n\n")
    rows = {_name(series): _row(series) for group in GROUPS for series in group.series}
    names = [name for line in table.splitlines() if (name := line.split("`")[1]) in rows]
    last = ""
    for name in rows:
        if name not in names:
            names.insert(names.index(last) + 1 if last else 0, name)
        last = name
    return before + _HEADER + "\n".join(rows[name] for name in names) + gap + after


def _alerts() -> str:
    """A row for each rule: its summary, with the names of labels in place of their values."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    return "\n".join(
        f"| `{rule['alert']}` | {rule['labels']['severity']} | {_plain(rule['annotations']['summary'])} |"
        for group in groups
        for rule in group["rules"]
    )


def _plain(summary: str) -> str:
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: f"*{found[1]}*", summary)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "*value*", named)


def _name(series: Series) -> str:
    return f"{series.full_name}_total" if series.kind is Kind.COUNTER else series.full_name


def _row(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.all_labels) or "–"  # noqa: RUF001 - as the page has it
    return f"| `{_name(series)}` | {series.kind.value} | {labels} | {series.text.rstrip('.')} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
