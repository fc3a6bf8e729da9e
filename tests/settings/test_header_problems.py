"""Every way in which the description of an API can be wrong: where `check` shows it, and what it says."""

from __future__ import annotations

import re

import pytest

from gateway.settings import Loaded, load

BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: header
    backends:
      - {url: "http://127.0.0.1:6385", versions: "1-5"}
    header:
"""


def load_text(options: str, base: str = BASE) -> Loaded:
    lines = "".join(f"      {line}\n" for line in options.splitlines())
    return load(base + lines, filename="x.yaml", environ={})


DATES = "scheme: date\n"


@pytest.mark.parametrize(
    "options, marked, said",
    [
        # places
        ("places: []", "[", "nowhere"),
        ("places: [{header: A, query: b}]", "b", "one of"),
        ("places: [{sent: true}]", "{", "one of"),
        (
            "places: [{header: application/vnd.x+json}]",
            "application",
            "a media type, where the name of a header",
        ),
        ("places: [{header: 'text/html; version'}]", "'text", "a media type, where"),
        ("places: [{header: A B}]", "A B", "no header name"),
        ("places: [{header: A_B}]", "A_B", "no header name"),
        ("places: [{header: Host}]", "Host", "says other things"),
        ("places: [{header: accept}]", "accept", "says other things"),
        ("places: [{query: 'a=b'}]", "'a=b'", "parameter's name"),
        ("places: [{path: 'v{version}'}]", "'v", "no path"),
        ("places: [{path: /v}]", "/v", "does not stand here"),
        ("places: [{path: '/{version}/x'}]", "'/", "last segment"),
        ("places: [{path: '/a b/{version}'}]", "'/", "no path"),
        ("places: [{path: '/v{version}', spelling: 'v{version}'}]", "'v{version}'}", "says itself"),
        ("places: [{path: '/{version}{version}'}]", "'/", "twice"),
        ("places: [{parameter: q}]", "q}", "no parameter"),
        ("places: [{parameter: v, media_types: [a/b, json]}]", "json", "no media type"),
        ("places: [{header: A, media_types: [a/b]}]", "[a/b", "belong to a parameter"),
        ("places: [{header: A, spelling: v}]", "v}", "does not stand here"),
        ("places: [{header: A, spelling: '{version},'}]", "'{version},", "letters, digits"),
        ("places: [{header: A, sent: false}]", "[{header", "never see"),
        ("places: [{header: A}, {header: a}]", "a}]", "another place like this"),
        ("places: [{path: '/{version}'}, {path: '/a/{version}'}]", "'/a/", "another place like this"),
        ("places: [{path: '/a/b/{version}'}]\nunversioned: [/c, /a]", "/a]", "versions stand below"),
        ("unversioned: [/a, b]", "b]", "no path"),
        ("unversioned: [/a/]", "/a/", "no path"),
        # versions
        ("names: [v1]", "[v1", "only the scheme `named`"),
        ("date_form: month", "month", "only the scheme `date`"),
        ("scheme: named", "scheme", "needs its names"),
        ("scheme: dates\nsilence: 2024-01-31", "dates", "should be"),
        ("newest: '3'", "'3'", "is a version"),
        ("newest: the newest", "the newest", "up to 64 letters"),
        ("silence: latest", "latest", "no version of the form 2"),
        ("match: nearest_earlier\nreply: {served: A}", "nearest", "only dates and names are matched"),
        # what is told
        ("learn: {list: $.a}\nreply: {served: Vary}", "Vary", "says other things"),
        ("learn: {minimum: $.a}", "$.a", "two ends"),
        ("learn: {minimum: $.a, maximum: $.b, list: $.c}", "$.a", "the list tells it already"),
        ("learn: {minimum: a, maximum: $.b}", "a,", "begins with `$`"),
        ("learn: {minimum: $.a, maximum: '$.b[x]'}", "'$.b", "from character 4 on"),
        ("learn: {path: x}", "x}", "no path"),
        ("learn: {statuses: [200, 500]}", "500", "200 to 499"),
        ("learn: {statuses: []}", "[]", "no answer"),
        ("learn: {content_type: json}", "json", "no media type"),
        ("learn: {spelling: '{version}*'}", "'{version}*", "where the version ends"),
        ("learn: {spelling: x}", "x}", "does not stand here"),
        ("reply: {minimum: A, maximum: a}", "a}", "in this header"),
        ("reply: {served: A, spelling: 'v*'}", "'v*", "does not stand here"),
        ("documents: [{path: /a}]", "{path", "where versions stand"),
        ("documents: [{path: /a, list: $.a}]", "$.a", "every item"),
        ("documents: [{path: a, links: $.a}]", "a,", "no path"),
        ("documents: [{path: /a, maximum: $.a, spelling: '{version}.*'}]", "'{version}.*", "no open end"),
        # refusals
        ("refusal: {status: 200}", "200", "400 to 499"),
        ("refusal: {malformed_status: 500}", "500", "400 to 499"),
        ("refusal: {content_type: json}", "json", "no type that a body"),
        ("refusal: {content_type: text/plain}", "text/plain", "problem document, which is JSON"),
        ("refusal: {body: '{\"a\": {asked}}'}", "'{", "not JSON"),
        ("refusal: {body: '\"{minimun}\"'}", "'\"", "nothing to fill in"),
        ("refusal: {body: '{\"a\": {array}}'}", "'{", "nothing to fill in"),
        ("refusal: {too_old: x}", "x}", "not JSON"),
        ("refusal: {minimum: $.a}", "$.a", "two ends"),
        ("refusal: {list: '$.a[*]', spelling: a}", "a}", "does not stand here"),
        ("failure: {body: '\"{asked}\"'}", "'\"", "nothing to fill in"),
        ("failure: {content_type: text/plain}", "text/plain", "problem document, which is JSON"),
    ],
)
def test_a_mistake_is_shown_where_it_stands(options: str, marked: str, said: str) -> None:
    [problem] = load_text(options).problems

    line = options.splitlines()[problem.line - 8]
    assert re.search(re.escape(said), problem.message), problem
    assert line[problem.column - 7 :].startswith(marked), problem
    assert problem.code == "bad-value"


DATED = BASE.replace('"1-5"', "2024-01-31")


@pytest.mark.parametrize(
    "options, said",
    [
        ("scheme: date\nlearn: {minimum: $.a, maximum: $.b}\nsilence: 2024-01-31", "lie between two"),
        ("scheme: date\nreply: {minimum: A, maximum: B}", "lie between two"),
        ("scheme: date\nrefusal: {minimum: $.a, maximum: $.b}", "lie between two"),
        ("scheme: date\nmatch: nearest_earlier", "must be told what they get"),
        ("scheme: date\nsilence: 2024-1-31", "no version of the form 2024-01-31"),
        ("scheme: date\nsilence: 2024-02-01", "the declared versions are 2024-01-31"),
        ("scheme: date\nmatch: nearest_earlier\nreply: {served: A}\nsilence: 2024-01-30", "the declared"),
    ],
)
def test_mistakes_with_dates(options: str, said: str) -> None:
    [problem] = load_text(options, DATED).problems

    assert said in problem.message


def test_what_is_right_with_dates() -> None:
    for options in (
        'scheme: date\nlearn: {list: "$[*]"}\nrefusal: {body: \'{"a": {array}}\'}',
        "scheme: date\nmatch: nearest_earlier\nreply: {served: A}\nsilence: 2024-02-01",
        "scheme: date\nsilence: 2024-01-31",
    ):
        assert not load_text(options, DATED).problems


NAMED = BASE.replace('"1-5"', '"r1"')


@pytest.mark.parametrize(
    "names, marked, said",
    [
        ("[r1, r10, r2]", "r2", "out of order"),
        ("[r1, v1, v1beta1]", "v1beta1", "out of order"),
        ("[r1, v2alpha1, v1]", "v1]", "out of order"),
        ("[r1, 2024-b, 2023-b]", "2023", "out of order"),
        ("[r1, a, r1]", "r1]", "stands twice"),
        ("[r1, 'a b']", "'a b'", "letters, digits"),
        ("[r1, minimum]", "minimum", "something else"),
    ],
)
def test_mistakes_with_names(names: str, marked: str, said: str) -> None:
    options = f"scheme: named\nnames: {names}"
    [problem] = load_text(options, NAMED).problems

    assert said in problem.message
    assert options.splitlines()[problem.line - 8][problem.column - 7 :].startswith(marked)


@pytest.mark.parametrize("names", ["[r1, v1alpha1, v1beta2, v1, v2]", "[zebra, ant, r1]", "[r1, r2, s1]"])
def test_names_in_an_order_that_may_be(names: str) -> None:
    assert not load_text(f"scheme: named\nnames: {names}", NAMED).problems


def test_a_default_outside_every_declared_range() -> None:
    [problem] = load_text("silence: 6").problems

    assert (problem.code, problem.line, problem.column) == ("contradiction", 8, 16)
    assert "declared versions are 1-5" in problem.message
    assert not load_text("silence: 5").problems
    undeclared = '      - {url: "http://127.0.0.1:6386"}\n    header:'
    learned = BASE.replace("    header:", undeclared)
    assert not load_text("silence: 6\nlearn: {minimum: $.a, maximum: $.b}", learned).problems


def test_a_default_above_the_ceiling() -> None:
    capped = BASE.replace("    header:", "    offer: {ceiling: '3'}\n    header:")
    [problem] = load_text("silence: 4", capped).problems

    assert (problem.code, problem.line) == ("contradiction", 9)
    assert not load_text("silence: 3", capped).problems


def test_where_nothing_can_be_learned_versions_must_be_declared() -> None:
    undeclared = BASE.replace(', versions: "1-5"', "")
    [problem] = load_text("{}", undeclared).problems

    assert (problem.code, problem.line, problem.column) == ("missing-key", 6, 15)
    assert not load_text("learn: {minimum: $.a, maximum: $.b}", undeclared).problems
    assert not load_text("reply: {list: X-Versions}", undeclared).problems


def test_every_mistake_at_once() -> None:
    loaded = load_text("places: [{header: a/b}]\nsilence: x\nlearn: {list: x}\nrefusal: {status: 99}")

    assert [each.line for each in loaded.problems] == [8, 9, 10, 11]


def test_a_default_that_other_tools_read_as_a_number_brings_a_warning() -> None:
    base = BASE.replace('"1-5"', '"1.1-1.90"')
    [problem] = load_text("scheme: major.minor\nsilence: 1.90", base).problems

    assert (problem.code, problem.line, problem.column) == ("number", 9, 16)


MATCHED = BASE.replace("    header:\n", "    match: {path: /shop, strip_prefix: false}\n    header:\n")


@pytest.mark.parametrize(
    "options, marked",
    [
        ("places: [{header: A}, {path: '/shop/{version}'}]", "'/shop/{"),
        ("unversioned: [/health, /shop/health]", "/shop/health"),
        ("documents: [{path: /shop, list: '$[*]'}]", "/shop"),
    ],
)
def test_a_path_that_repeats_the_prefix_of_the_service(options: str, marked: str) -> None:
    """It would never be found, with the prefix taken off or not."""
    [problem] = load_text(options, MATCHED).problems

    assert (problem.code, problem.severity.value) == ("repeated-prefix", "warning")
    assert options[problem.column - 7 :].startswith(marked)
    assert not load_text(options).problems


def test_a_path_that_only_begins_like_the_prefix() -> None:
    assert not load_text("unversioned: [/shops, /a/shop]\nplaces: [{path: '/v{version}'}]", MATCHED).problems
