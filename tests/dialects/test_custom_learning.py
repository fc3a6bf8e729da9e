"""What a probe says about a document in which it finds no versions, and a document without the oldest one."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.dialect import Advertisement, Links, ProbeFault, ProbeResponse
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.dialect import Custom
from gateway.dialects.custom.options import CustomOptions, LearnOptions
from gateway.errors import OptionProblem, OptionsError
from gateway.settings import load

LIST = {"list": "$.versions[*]"}


def probed(document: Any, scheme: str = "integer", **learn: str) -> Advertisement | ProbeFault:
    dialect = Custom.configured(CustomOptions(scheme=scheme, learn=LearnOptions(**learn)))  # type: ignore[arg-type]
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = dialect.probe((ProbeResponse(200, {"content-type": "application/json"}, body),), None)
    assert isinstance(found, Advertisement | ProbeFault)
    return found


def why(document: Any, scheme: str = "integer", **learn: str) -> str:
    found = probed(document, scheme, **learn)
    assert isinstance(found, ProbeFault)
    assert found.reason == "range"
    return found.detail


@pytest.mark.parametrize(
    "document, scheme, learn, expected",
    [
        (
            {"versions": ["v1"]},
            "integer",
            LIST,
            'no versions found at $.versions[*]; found "v1": spelling: "v{version}" reads it',
        ),
        (
            {"versions": ["v1", "v2", "v3", "v4"]},
            "integer",
            LIST,
            (
                'no versions found at $.versions[*]; found "v1", "v2", "v3", \u2026: '
                'spelling: "v{version}" reads it'
            ),
        ),
        (
            {"version": {"number": "8.19.0"}},
            "integer",
            {"minimum": "1", "maximum": "$.version.number"},
            'no versions found at $.version.number; found "8.19.0": spelling: "{version}.*" reads it',
        ),
        (
            {"a b": "api 2.1 (old)"},
            "major.minor",
            {"minimum": '$["a b"]', "maximum": '$["a b"]'},
            'no versions found at $["a b"]; found "api 2.1 (old)": spelling: "api {version} *" reads it',
        ),
        ({"versions": [{"id": 1}]}, "integer", LIST, "no versions found at $.versions[*]; found an object"),
        (
            {"versions": [True, None, 1.5]},
            "integer",
            LIST,
            "no versions found at $.versions[*]; found true, null, 1.5",
        ),
        ({"versions": ["new"]}, "integer", LIST, 'no versions found at $.versions[*]; found "new"'),
        (
            {"other": []},
            "integer",
            LIST,
            "no versions found at $.versions[*]: the document has nothing there",
        ),
        (b"no JSON", "integer", LIST, "no versions found at $.versions[*]: the document has nothing there"),
        (
            {"versions": ['<"\\\u00fc\n' + "x" * 99]},
            "integer",
            LIST,
            'no versions found at $.versions[*]; found "<????' + "x" * 35 + '"\u2026',
        ),
        ({"versions": list(range(1001))}, "integer", LIST, "more than 1000 values at $.versions[*]"),
        (
            {"low": 5, "high": 4},
            "integer",
            {"minimum": "$.low", "maximum": "$.high"},
            "no range from a minimum up to a maximum at $.low and $.high",
        ),
    ],
)
def test_R3_N4_the_message_says_what_was_found_and_the_key_that_reads_it(
    document: Any, scheme: str, learn: dict[str, str], expected: str
) -> None:
    assert why(document, scheme, **learn) == expected


@pytest.mark.parametrize(
    "document, scheme, learn",
    [
        ({"versions": ["v1"]}, "integer", LIST | {"spelling": "v{version}"}),
        ({"n": "8.19.0"}, "integer", {"minimum": "1", "maximum": "$.n", "spelling": "{version}.*"}),
        (
            {"n": "api 2.1 (old)"},
            "major.minor",
            {"minimum": "2.0", "maximum": "$.n", "spelling": "api {version} *"},
        ),
    ],
)
def test_R3_N4_that_key_reads_it(document: Any, scheme: str, learn: dict[str, str]) -> None:
    assert isinstance(probed(document, scheme, **learn), Advertisement)


def test_R3_N4_a_document_with_only_a_maximum_is_learned() -> None:
    assert probed({"newest": 4}, minimum="1", maximum="$.newest") == Advertisement(
        VersionSet.between(Version(1), Version(4))
    )
    assert "no range from" in why({"newest": 4}, minimum="5", maximum="$.newest")


def test_R3_N4_its_maximum_is_the_offer_for_clients() -> None:
    learn = LearnOptions(path="/v", minimum="1", maximum="$.newest")
    dialect = Custom.configured(CustomOptions(learn=learn))
    offered = VersionSet.between(Version(1), Version(3))
    links = Links("http://10.0.0.5", "api.test", "http://api.test")

    endpoint = dialect.endpoint("GET", "/v", "")

    assert dialect.rewrite_document(endpoint, b'{"newest": 4}', offered, links) == b'{"newest":3}'


def test_R3_N4_what_is_neither_a_path_nor_a_version_is_refused() -> None:
    with pytest.raises(OptionsError) as refused:
        Custom.configured(CustomOptions(learn=LearnOptions(minimum="1.2", maximum="$.newest")))

    [problem] = refused.value.problems
    assert problem == OptionProblem(("learn", "minimum"), "a JSON path begins with `$`")


def test_R3_N4_a_number_needs_no_quotation_marks() -> None:
    text = (
        "listen: 127.0.0.1:8080\nservices:\n  api:\n    dialect: custom\n"
        "    custom: {learn: {path: /v, minimum: 1, maximum: $.newest}}\n"
        "    backends: [{url: 'http://127.0.0.1:1'}]\n"
    )

    assert load(text, filename="x.yaml", environ={}).problems == ()
