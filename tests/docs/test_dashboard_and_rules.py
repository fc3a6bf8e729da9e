"""The Grafana dashboard and the alert rules below deploy/ against what a running gateway exposes.

That the rules fire when they should is tested by promtool, and that a real Prometheus takes all of it, in
tests/engines/test_prometheus.py.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import pytest
import yaml

from tests.architecture.source import ROOT
from tests.docs import promql
from tests.docs.pages import page, rows, section
from tests.docs.promql import QueryError
from tests.docs.test_metrics_page import PAGE, documented, scrape
from tests.kit.metrics import Scrape

SERIES: Final = promql.sampled(documented())
DASHBOARD: Final = json.loads((ROOT / "deploy/grafana/skewgate.json").read_text())
RULES_FILE: Final = "deploy/prometheus/rules/skewgate.yml"
RULES: Final = [rule for group in yaml.safe_load(page(RULES_FILE))["groups"] for rule in group["rules"]]
UNIT_TESTS: Final = yaml.safe_load(page("deploy/prometheus/tests/skewgate.yml"))["tests"]
BY_ALERT: Final = {rule["alert"]: rule for rule in RULES}

Values: TypeAlias = Mapping[tuple[str, str], set[str]]

LABEL_IN_TEXT: Final = re.compile(r"\$labels\.(\w+)")
LABEL_IN_LEGEND: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
QUERY_IN_TEXT: Final = re.compile(r'printf "([^"]+)"')
OPEN: Final = frozenset(
    {
        *("service", "backend", "job", "instance", "code", "version", "min", "max"),
        *("hash", "host", "source", "certificate", "worker"),
    }
)
"""Labels with other values than those of closed sets."""


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """Of every label of a running gateway, by series: what is counted has all its series from the start."""
    text = asyncio.run(scrape(tmp_path_factory.mktemp("gateway")))
    found: dict[tuple[str, str], set[str]] = {}
    for name, labels in Scrape(text).samples:
        for label, value in labels:
            found.setdefault((name, label), set()).add(value)
    return found


def check_values(expression: Any, values: Values) -> None:
    """Every value that a selector names is one of the closed set of its label."""
    for series, label, named in promql.matchers(expression):
        if label not in OPEN:
            assert set(named) <= values[series, label], f"{series}: {label} is never one of {named}"


# --- the parser itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query, reason",
    [
        ("sum(rate(skewgate_requests_total[5m])", "no PromQL"),
        ("skewgate_requests", "no series"),
        ("skewgate_request_duration_seconds", "no series"),
        ('{__name__=~"skewgate_.*"}', "no series"),
        ("rate(skewgate_requests_total)", "no PromQL"),
        ('skewgate_phase{bakend="x"}', "no label bakend"),
        ("sum by (backend) (skewgate_phase)", "backend, which is not there"),
        ("max without (reason) (skewgate_phase)", "reason, which is not there"),
        ("sum by (service) (skewgate_phase) / skewgate_requests_in_flight", "never match"),
        ("skewgate_backend_up and skewgate_phase", "never match"),
        ("skewgate_backend_up and on (nothing) skewgate_phase", "nothing, which is not there"),
        ("histogram_quantile(0.5, rate(skewgate_request_duration_seconds_sum[5m]))", "label le"),
    ],
)
def test_a_query_that_gives_nothing_is_found(query: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        promql.result_labels(promql.parse(query), SERIES)


@pytest.mark.parametrize(
    "query, labels",
    [
        ("time()", None),
        ("time() - process_start_time_seconds", {"job", "instance"}),
        ("skewgate_backend_up and on (service) skewgate_phase", {"service", "backend", "job", "instance"}),
        ("-(skewgate_requests_in_flight > 3) or skewgate_tunnels_open", {"service", "job", "instance"}),
        ("sum(skewgate_phase)", set()),
        ("topk(3, skewgate_tunnels_open)", {"service", "job", "instance"}),
        ("histogram_quantile(0.9, sum by (le) (skewgate_request_duration_seconds_bucket))", set()),
        ('absent(up{job="x"})', {"job"}),
        (
            "max_over_time(rate(skewgate_body_bytes_total[1m])[1h:1m])",
            {"direction", "service", "job", "instance"},
        ),
    ],
)
def test_the_labels_of_a_result(query: str, labels: set[str] | None) -> None:
    assert promql.result_labels(promql.parse(query), SERIES) == labels


# --- the dashboard ------------------------------------------------------------------------------------------


class Query(NamedTuple):
    """One query of the dashboard."""

    panel: str
    expression: str
    legend: str


def queries() -> Iterator[Query]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Query(panel["title"], target["expr"], target["legendFormat"])
    for annotation in DASHBOARD["annotations"]["list"]:
        yield Query(annotation["name"], annotation["expr"], annotation["titleFormat"])


QUERIES: Final = tuple(queries())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.panel)
def test_every_query_of_the_dashboard_can_give_something(query: Query, values: Values) -> None:
    expression = promql.parse(query.expression)
    labels = promql.result_labels(expression, SERIES)
    assert labels is not None
    assert set(LABEL_IN_LEGEND.findall(query.legend)) <= labels
    assert promql.variables(query.expression) <= {"job", "instance", "service"}
    check_values(expression, values)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.panel)
def test_every_query_heeds_what_is_chosen(query: Query) -> None:
    chosen: dict[str, set[str]] = {}
    for series, label, _ in promql.matchers(promql.parse(query.expression)):
        chosen.setdefault(series, set()).add(label)
    assert chosen
    for series, labels in chosen.items():
        assert {"job", "instance", "service"} & SERIES[series] <= labels


def test_the_variables_of_the_dashboard_are_labels() -> None:
    found = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(found) == ["datasource", "job", "instance", "service"]
    for name in ("job", "instance", "service"):
        text = found[name]["query"]["query"]
        inside = re.fullmatch(r"label_values\((.+), (\w+)\)", text)
        assert inside is not None, text
        labels = promql.result_labels(promql.parse(inside[1]), SERIES)
        assert labels is not None
        assert inside[2] == name
        assert name in labels


def test_the_panels_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (column, line)
            for column in range(place["x"], place["x"] + place["w"])
            for line in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
            assert {target["refId"] for target in panel["targets"]} == set(
                "ABCDEFGH"[: len(panel["targets"])]
            )


# --- the rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", BY_ALERT)
def test_every_alert_can_fire_and_says_what_is_wrong(alert: str, values: Values) -> None:
    rule = BY_ALERT[alert]
    expression = promql.parse(rule["expr"])
    labels = promql.result_labels(expression, SERIES)
    assert labels is not None
    check_values(expression, values)
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description"}
    texts = " ".join(rule["annotations"].values())
    # `absent` knows the job only.
    assert set(LABEL_IN_TEXT.findall(texts)) <= (
        labels | {"instance"} if "absent(" in rule["expr"] else labels
    )
    for query in QUERY_IN_TEXT.findall(texts):
        promql.result_labels(promql.parse(query.replace("%s", "x")), SERIES)


def test_every_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for test in UNIT_TESTS:
        for case in test["alert_rule_test"]:
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
    assert fires == BY_ALERT.keys()
    assert silent == BY_ALERT.keys()


def test_the_unit_tests_use_series_that_exist(values: Values) -> None:
    for test in UNIT_TESTS:
        for each in test["input_series"]:
            selector = promql.parse(each["series"])
            assert promql.result_labels(selector, SERIES)
            check_values(selector, values)


def test_the_page_lists_every_alert() -> None:
    listed = [row[0].strip("`") for row in rows(section(PAGE, "Alerts"))]
    assert listed == list(BY_ALERT)
