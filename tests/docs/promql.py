"""PromQL as Prometheus reads it: which series a query uses, with which labels, and which its result has.

A query is parsed, never searched for words. A query that Prometheus takes and that can never give anything is
wrong here: an unknown series or label, a sum by a label that is not there, two sides whose labels differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import promql_parser as promql

ADDED: Final = frozenset({"job", "instance"})
"""Labels that Prometheus adds to what it scrapes."""
UP: Final = {"up": ADDED}
"""Prometheus makes it for every target."""

_INTERVAL: Final = re.compile(r"\$__(?:rate_)?interval\b")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_SCALARS: Final = frozenset({"time", "scalar"})

Labels: TypeAlias = frozenset[str]
SeriesLabels: TypeAlias = Mapping[str, Labels]
"""By the name that a query selects: of a histogram its parts."""


class QueryError(Exception):
    """A query that can never give anything."""


class Matcher(NamedTuple):
    """One condition of a selector, and the series that it is about."""

    series: str
    label: str
    values: tuple[str, ...]
    """One of which must be there."""


def parse(query: str) -> Any:
    """The tree of a query. What Grafana replaces in it is replaced. Raises `QueryError`."""
    try:
        return promql.parse(_VARIABLE.sub(r"\1", _INTERVAL.sub("5m", query)))
    except ValueError as error:
        raise QueryError(f"no PromQL: {error}") from None


def variables(text: str) -> set[str]:
    """Of Grafana, but for those that it has itself."""
    return {name for name in _VARIABLE.findall(text) if not name.startswith("__")}


def sampled(series: Mapping[str, tuple[str, Labels]]) -> dict[str, Labels]:
    """What a query can select. `series`: type and labels by name."""
    found = dict(UP)
    for name, (kind, labels) in series.items():
        if kind == "histogram":
            found[f"{name}_bucket"] = labels | ADDED | {"le"}
            found[f"{name}_sum"] = found[f"{name}_count"] = labels | ADDED
        else:
            found[name] = labels | ADDED
    return found


def matchers(node: Any) -> Iterator[Matcher]:
    """All conditions of a parsed query that name values: `=` and `=~` with alternatives."""
    if isinstance(node, promql.VectorSelector):
        for each in node.matchers.matchers:
            if str(each.op) in {"MatchOp.Equal", "MatchOp.Re"}:
                yield Matcher(node.name or "", each.name, tuple(each.value.split("|")))
    for below in _below(node):
        yield from matchers(below)


def result_labels(node: Any, series: SeriesLabels) -> Labels | None:
    """The labels of what a parsed query gives; None: a number without labels. Raises `QueryError`."""
    match node:
        case promql.NumberLiteral() | promql.StringLiteral():
            return None
        case promql.VectorSelector():
            return _of_selector(node, series)
        case promql.MatrixSelector():
            return result_labels(node.vector_selector, series)
        case promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return result_labels(node.expr, series)
        case promql.AggregateExpr():
            return _of_aggregation(node, series)
        case promql.BinaryExpr():
            return _of_operation(node, series)
        case promql.Call():
            return _of_call(node, series)
        case _:
            raise QueryError(f"not known here: {type(node).__name__}")


def _of_selector(node: Any, series: SeriesLabels) -> Labels:
    labels = series.get(node.name or "")
    if labels is None:
        raise QueryError(f"there is no series {node.name}")
    for each in node.matchers.matchers:
        if each.name not in labels:
            raise QueryError(f"{node.name} has no label {each.name}")
    return labels


def _of_aggregation(node: Any, series: SeriesLabels) -> Labels:
    labels = result_labels(node.expr, series)
    if labels is None:
        raise QueryError(f"{node.op} of a number")
    if node.modifier is None:
        return labels if str(node.op) in {"topk", "bottomk"} else frozenset()
    named = frozenset(node.modifier.labels)
    if missing := named - labels:
        raise QueryError(f"{node.op} by or without {', '.join(sorted(missing))}, which is not there")
    return named if node.modifier.type == promql.AggModifierType.By else labels - named


def _of_operation(node: Any, series: SeriesLabels) -> Labels | None:
    left, right = result_labels(node.lhs, series), result_labels(node.rhs, series)
    if left is None or right is None:
        return left if right is None else right
    modifier = node.modifier
    if modifier is not None and modifier.matching is not None:
        named = frozenset(modifier.matching.labels)
        if missing := named - (left | right):
            raise QueryError(f"{node.op} on or ignoring {', '.join(sorted(missing))}, which is not there")
        on = modifier.matching.type == promql.LabelModifierType.Include
        left_match, right_match = (left & named, right & named) if on else (left - named, right - named)
    else:
        left_match, right_match = left, right
    if left_match != right_match and str(node.op) != "or":
        differing = ", ".join(sorted(left_match ^ right_match))
        raise QueryError(f"the sides of {node.op} never match: only one of them has {differing}")
    return left & right if str(node.op) == "or" else left


def _of_call(node: Any, series: SeriesLabels) -> Labels | None:
    name = node.func.name
    below = [result_labels(each, series) for each in node.args]
    found = [labels for labels in below if labels is not None]
    if name in _SCALARS:
        return None
    if name == "absent":
        (selector,) = node.args
        return frozenset(each.name for each in selector.matchers.matchers)
    if not found:
        raise QueryError(f"{name} of nothing")
    if name == "histogram_quantile":
        if "le" not in found[0]:
            raise QueryError("histogram_quantile without the label le")
        return found[0] - {"le"}
    return found[0]


def _below(node: Any) -> Iterator[Any]:
    names = ("expr", "lhs", "rhs", "vector_selector")
    yield from (found for name in names if (found := getattr(node, name, None)) is not None)
    yield from getattr(node, "args", None) or ()
