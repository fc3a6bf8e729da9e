"""`services.NAME.operations`: the operations of the service, and the position of each problem."""

from __future__ import annotations

import pytest

from gateway.core.decision.operations import OperationRule, Operations, OperationStatus, PathTemplate
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme
from gateway.settings import load
from gateway.settings.yaml.problem import Problem
from tests.settings import texts
from tests.settings.texts import load_text

BASE = texts.BASE + "    operations:\n"
XY = MajorMinor()


def problems(items: str, base: str = BASE, **environ: str) -> tuple[Problem, ...]:
    return load_text(base + items, **environ).problems


def found(items: str) -> list[tuple[str, int, int]]:
    return [(problem.code, problem.line, problem.column) for problem in problems(items)]


def operations(items: str, base: str = BASE) -> Operations:
    loaded = load_text(base + items)
    assert not loaded.problems, loaded.render()
    return loaded.require().services[0].operations


def entry(
    methods: tuple[str, ...],
    path: str,
    versions: str | None,
    status: OperationStatus = OperationStatus.ACTIVE,
    refusal: int | None = None,
    scheme: Scheme = XY,
) -> OperationRule:
    exists = VersionSet() if versions is None else VersionSet.read_open(versions, scheme)
    return OperationRule(methods, PathTemplate.read(path), exists, status, refusal)


def test_the_service_has_the_operations_of_the_file() -> None:
    read = operations(
        "      - methods: [GET, POST]\n        path: /v1/nodes/{node}\n        versions: '>=1.5'\n"
        "      - {methods: [GET], path: '/v1/nodes/{id}', versions: 1.1-1.3,\n"
        "         status: deprecated, refusal: 400}\n"
        "      - {methods: [GET], path: /, versions: next, status: unstable}\n"
    )

    assert read == Operations.of(
        [
            entry(("GET", "POST"), "/v1/nodes/{node}", ">=1.5"),
            entry(("GET",), "/v1/nodes/{id}", "1.1-1.3", OperationStatus.DEPRECATED, 400),
            entry(("GET",), "/", None, OperationStatus.UNSTABLE),
        ]
    )
    assert [(operation.method, len(operation.rules)) for operation in read.listed] == [
        ("GET", 2),
        ("POST", 1),
        ("GET", 1),
    ]


def test_a_path_is_compared_as_those_of_requests_and_shown_as_it_was_written() -> None:
    """Ironic reads a path without `/v1` as one below `/v1`, and a path with `.json` as one without."""
    items = (
        "      - {methods: [GET], path: '/nodes/{node}/vifs', versions: '>=1.5'}\n"
        "      - {methods: [GET], path: '/v1/nodes/{node}/vifs.json', versions: '1.1'}\n"
    )
    read = (
        load(BASE.replace("plain", "ironic") + items, filename="f", environ={})
        .require()
        .services[0]
        .operations
    )

    (one,) = read.listed
    assert one.format(XY) == "GET /nodes/{node}/vifs exists only in 1.1, 1.5 and later"
    assert read.find("GET", "/v1/nodes/7/vifs") is one


def test_without_operations_nothing_is_restricted() -> None:
    assert not operations("", BASE.replace("    operations:\n", ""))
    assert not operations("", BASE.replace("operations:", "operations: []"))


def test_versions_are_those_of_the_dialect() -> None:
    read = operations(
        "      - {methods: [GET], path: /x, versions: 2020-01-01..2021-12-31}\n",
        BASE.replace("plain", "dated"),
    )

    expected = entry(("GET",), "/x", "2020-01-01..2021-12-31", scheme=CalendarDate())
    assert read == Operations.of([expected])


@pytest.mark.parametrize(
    "path, wrong",
    [
        (path, True)
        for path in ("v1", "/v1/", "/a//b", "/a/../b", "/a%20", "/a?b", "/:id", "/{}", "/{a}/{a}", "/a;b")
    ]
    + [(path, False) for path in ("/", "/v1", "/{a}/b/{c}", "/a,b")],
)
def test_paths(path: str, wrong: bool) -> None:
    item = f"      - methods: [GET]\n        versions: '1.5'\n        path: '{path}'\n"

    assert found(item) == ([("bad-value", 10, 15)] if wrong else [])


@pytest.mark.parametrize(
    "key, value, column",
    [
        ("versions", "''", 19),
        ("versions", "'>1.5'", 19),
        ("versions", "'>='", 19),
        ("versions", "'1.5-1.4'", 19),
        ("versions", "'1.5,,1.7'", 19),
        ("versions", "latest", 19),
        ("status", "retired", 17),
        ("refusal", "406", 18),
        ("refusal", "gone", 18),
        ("methods", "[]", 18),
        ("methods", "[get]", 19),
        ("methods", "[TRACE]", 19),
        ("methods", "[GET, FETCH]", 24),
    ],
)
def test_values(key: str, value: str, column: int) -> None:
    keys = {"methods": "[GET]", "path": "/x", "versions": "'1.5'", key: value}
    lines = [f"{name}: {text}\n" for name, text in keys.items()]

    (one,) = found("      - " + "        ".join(lines))

    assert one == ("bad-value", 8 + list(keys).index(key), column)


@pytest.mark.parametrize("missing", ["methods", "path", "versions"])
def test_required_keys(missing: str) -> None:
    keys = {"methods": "[GET]", "path": "/x", "versions": "'1.5'"}
    text = ", ".join(f"{name}: {value}" for name, value in keys.items() if name != missing)

    assert found(f"      - {{{text}}}\n") == [("missing-key", 8, 9)]


def test_a_plain_decimal_causes_a_warning() -> None:
    assert found("      - {methods: [GET], path: /x, versions: 1.10}\n") == [("number", 8, 46)]


def test_a_version_from_the_environment_is_not_quoted() -> None:
    item = "      - {methods: [GET], path: /x, versions: '${A}'}\n"

    (problem,) = problems(item, A="secret")

    assert (problem.code, "secret" in problem.message) == ("bad-value", False)
    assert problem.hint is not None
    assert problem.hint.endswith("the value comes from the environment: A")


ONE = "      - {methods: [GET, PUT], path: '/x/{a}', versions: '1.1-1.5', status: active, refusal: 404}\n"


@pytest.mark.parametrize(
    "other, position",
    [
        ("{methods: [PUT], path: '/x/{b}', versions: '1.9', refusal: 400}", ("contradiction", 9, 68)),
        ("{methods: [PUT], path: '/x/{b}', versions: '>=1.5', status: deprecated}", ("contradiction", 9, 69)),
        ("{status: unstable, methods: [GET], path: '/x/{b}', versions: '<=1.1'}", ("contradiction", 9, 18)),
        ("{methods: [GET], path: /y, versions: next, status: deprecated}", ("contradiction", 9, 60)),
        ("{methods: [POST], path: '/x/{a}', versions: '1.9', refusal: 400}", None),
        ("{methods: [GET], path: /x/y, versions: '1.9', refusal: 400}", None),
        ("{methods: [GET], path: '/x/{a}', versions: '1.5-1.9', refusal: 404}", None),
        ("{methods: [GET], path: '/x/{a}', versions: '>=1.6', status: deprecated}", None),
        ("{methods: [GET], path: '/x/{a}', versions: next, status: unstable}", None),
        ("{methods: [GET], path: '/x/{a}', versions: next, status: active}", None),
    ],
)
def test_contradictions(other: str, position: tuple[str, int, int] | None) -> None:
    """Items with the same method and path have one refusal, and one status in each version."""
    assert found(f"{ONE}      - {other}\n") == ([] if position is None else [position])


def test_two_statuses_of_next_contradict() -> None:
    items = "".join(
        f"      - {{methods: [GET], path: /x, versions: next{status}}}\n"
        for status in ("", ", status: unstable")
    )

    (problem,) = problems(items)

    assert problem.message == "GET '/x' is active in next above"


def test_a_contradiction_names_the_operation_and_the_versions() -> None:
    (problem,) = problems(
        f"{ONE}      - {{methods: [GET], path: '/x/{{b}}', versions: '>=1.4', status: deprecated}}\n"
    )

    assert problem.message == "GET '/x/{b}' is active in 1.4-1.5 above"
