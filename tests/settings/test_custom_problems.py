"""Every mistake in the options of the dialect `custom`: the position that `check` shows, and its message."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import pytest

from gateway.settings import Loaded, load

BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: custom
    backends:
      - {url: "http://127.0.0.1:6385", versions: "1-5"}
    custom:
"""


def load_text(options: str, base: str = BASE, default_version: str | None = None) -> Loaded:
    """Settings with these options of `custom` and, in the line after them, this default version."""
    text = base + "".join(f"      {line}\n" for line in options.splitlines())
    if default_version is not None:
        text += f"    default_version: {default_version}\n"
    return load(text, filename="x.yaml", environ={})


DATES = "scheme: date\n"


@pytest.mark.parametrize(
    "options, marked, message",
    [
        # locations
        ("places: []", "[", "no place of the version"),
        ("places: [{header: A, query: b}]", "b", "one of"),
        ("places: [{sent: true}]", "{", "one of"),
        (
            "places: [{header: application/vnd.x+json}]",
            "application",
            "a media type, but the name of a header",
        ),
        ("places: [{header: 'text/html; version'}]", "'text", "a media type, but"),
        ("places: [{header: A B}]", "A B", "valid header name"),
        ("places: [{header: A_B}]", "A_B", "valid header name"),
        ("places: [{header: Host}]", "Host", "another meaning"),
        ("places: [{header: accept}]", "accept", "another meaning"),
        ("places: [{query: 'a=b'}]", "'a=b'", "name of a parameter"),
        ("places: [{query: '_'}]", "'_'", "name of a parameter"),
        ("places: [{query: api-version}, {query: apiVersion}]", "apiVersion", "another place like this"),
        ("places: [{path: 'v{version}'}]", "'v", "not a valid path"),
        ("places: [{path: /v}]", "/v", "is missing here"),
        ("places: [{path: '/{version}/x'}]", "'/", "last segment"),
        ("places: [{path: '/a b/{version}'}]", "'/", "not a valid path"),
        ("places: [{path: '/v{version}', spelling: 'v{version}'}]", "'v{version}'}", "the path itself holds"),
        ("places: [{path: '/{version}{version}'}]", "'/", "twice"),
        ("places: [{parameter: q}]", "q}", "no parameter of this name"),
        ("places: [{parameter: '*'}]", "'*", "no parameter of this name"),
        ("places: [{parameter: v, media_types: [a/b, json]}]", "json", "not a valid media type"),
        ("places: [{header: A, media_types: [a/b]}]", "[a/b", "belong to a parameter"),
        ("places: [{header: A, spelling: v}]", "v}", "is missing here"),
        ("places: [{header: A, spelling: '{version},'}]", "'{version},", "only letters, digits"),
        ("places: [{header: A, sent: false}]", "[{header", "never see"),
        ("places: [{header: A}, {header: a}]", "a}]", "another place like this"),
        ("places: [{path: '/{version}'}, {path: '/a/{version}'}]", "'/a/", "another place like this"),
        ("places: [{path: '/a/b/{version}'}]\nunversioned: [/c, /a]", "/a]", "has versions below"),
        ("unversioned: [/a, b]", "b]", "not a valid path"),
        ("unversioned: [/a/]", "/a/", "not a valid path"),
        ("places: [{path: '/a/b/{version}'}]\nunversioned: [/c, /A]", "/A]", "has versions below"),
        ("suffixes: [.json, json]", "json]", "a dot with letters and digits"),
        ("suffixes: ['.']", "'.'", "a dot with letters and digits"),
        # methods
        ("method_override: [X-Method, A B]", "A B", "valid header name"),
        ("method_override: [Host]", "Host", "cannot hold a method"),
        ("method_override: [Api-version]", "Api-", "already holds a version"),
        # versions
        ("names: [v1]", "[v1", "only the scheme `named`"),
        ("date_form: month", "month", "only the scheme `date`"),
        ("scheme: named", "scheme", "needs its names"),
        ("scheme: dates", "dates", "not one of the allowed values"),
        ("newest: '3'", "'3'", "is a version"),
        ("newest: the newest", "the newest", "up to 64 letters"),
        ("match: nearest_earlier\nreply: {served: A}", "nearest", "only dates and names can be matched"),
        # documents and response headers
        ("learn: {list: '$.a[*]'}\nreply: {served: Vary}", "Vary", "another meaning"),
        ("learn: {minimum: $.a}", "$.a", "two ends"),
        ("learn: {minimum: $.a, maximum: $.b, list: '$.c[*]'}", "$.a", "the list already holds"),
        ("learn: {minimum: a, maximum: $.b}", "a,", "begins with `$`"),
        ("learn: {minimum: $.a, maximum: '$.b[x]'}", "'$.b", "from character 4 on"),
        ("learn: {path: x}", "x}", "not a valid path"),
        ("learn: {statuses: [200, 500]}", "500", "200 to 499"),
        ("learn: {statuses: []}", "[]", "no response"),
        ("learn: {content_type: json}", "json", "not a valid media type"),
        ("learn: {spelling: '{version}*'}", "'{version}*", "where the version ends"),
        ("learn: {spelling: x}", "x}", "is missing here"),
        ("reply: {minimum: A, maximum: a}", "a}", "already holds another value"),
        ("reply: {served: A, spelling: 'v*'}", "'v*", "is missing here"),
        ("documents: [{path: /a}]", "{path", "nothing names the places"),
        ("documents: [{path: /a, list: $.a}]", "$.a", "every item"),
        ("learn: {path: /a, list: $.a}", "$.a", "every item"),
        ("documents: [{path: a, links: $.a}]", "a,", "not a valid path"),
        (
            "documents: [{path: /a, maximum: $.a, spelling: '{version}.*'}]",
            "'{version}.*",
            "an open end cannot",
        ),
        # refusals
        ("refusal: {status: 200}", "200", "400 to 499"),
        ("refusal: {malformed_status: 500}", "500", "400 to 499"),
        ("refusal: {content_type: json}", "json", "a body cannot have this type"),
        ("refusal: {content_type: text/plain}", "text/plain", "problem document, which is JSON"),
        ("refusal: {body: '{\"a\": {asked}}'}", "'{", "not JSON"),
        ("refusal: {body: '\"{minimun}\"'}", "'\"", "not a known placeholder"),
        ("refusal: {body: '{\"a\": {array}}'}", "'{", "not a known placeholder"),
        ("refusal: {too_old: x}", "x}", "not JSON"),
        ("refusal: {minimum: $.a}", "$.a", "two ends"),
        ("refusal: {list: '$.a[*]', spelling: a}", "a}", "is missing here"),
        ("failure: {body: '\"{asked}\"'}", "'\"", "not a known placeholder"),
        ("failure: {content_type: text/plain}", "text/plain", "problem document, which is JSON"),
    ],
)
def test_a_mistake_is_shown_where_it_stands(options: str, marked: str, message: str) -> None:
    [problem] = load_text(options).problems

    line = options.splitlines()[problem.line - 8]
    assert message in problem.message, problem
    assert line[problem.column - 7 :].startswith(marked), problem
    assert problem.code == "bad-value"


DATED = BASE.replace('"1-5"', "2024-01-31")


@pytest.mark.parametrize(
    "options, message",
    [
        ("scheme: date\nlearn: {minimum: $.a, maximum: $.b}", "lie between two"),
        ("scheme: date\nreply: {minimum: A, maximum: B}", "lie between two"),
        ("scheme: date\nrefusal: {minimum: $.a, maximum: $.b}", "lie between two"),
        ("scheme: date\nmatch: nearest_earlier", "must be able to see it"),
    ],
)
def test_mistakes_with_dates(options: str, message: str) -> None:
    [problem] = load_text(options, DATED).problems

    assert message in problem.message


NEAREST_EARLIER = "scheme: date\nmatch: nearest_earlier\nreply: {served: A}"


@pytest.mark.parametrize(
    "options, default_version, message",
    [
        ("scheme: date", "2024-1-31", "not a version of the form 2024-01-31"),
        ("scheme: date", "2024-02-01", "the declared versions are 2024-01-31"),
        (NEAREST_EARLIER, "2024-01-30", "the declared"),
    ],
)
def test_mistakes_in_a_default_version_that_is_a_date(
    options: str, default_version: str, message: str
) -> None:
    [problem] = load_text(options, DATED, default_version).problems

    assert message in problem.message


@pytest.mark.parametrize(
    "options, default_version",
    [
        ('scheme: date\nlearn: {list: "$[*]"}\nrefusal: {body: \'{"a": {array}}\'}', None),
        (NEAREST_EARLIER, "2024-02-01"),
        ("scheme: date", "2024-01-31"),
    ],
)
def test_correct_options_with_dates(options: str, default_version: str | None) -> None:
    assert not load_text(options, DATED, default_version).problems


NAMED = BASE.replace('"1-5"', '"r1"')


@pytest.mark.parametrize(
    "names, marked, message",
    [
        ("[r1, r10, r2]", "r2", "out of order"),
        ("[r1, v1, v1beta1]", "v1beta1", "out of order"),
        ("[r1, v2alpha1, v1]", "v1]", "out of order"),
        ("[r1, 2024-b, 2023-b]", "2023", "out of order"),
        ("[r1, a, r1]", "r1]", "occurs twice"),
        ("[r1, 'a b']", "'a b'", "letters, digits"),
        ("[r1, minimum]", "minimum", "reserved"),
    ],
)
def test_mistakes_with_names(names: str, marked: str, message: str) -> None:
    options = f"scheme: named\nnames: {names}"
    [problem] = load_text(options, NAMED).problems

    assert message in problem.message
    assert options.splitlines()[problem.line - 8][problem.column - 7 :].startswith(marked)


@pytest.mark.parametrize("names", ["[r1, v1alpha1, v1beta2, v1, v2]", "[zebra, ant, r1]", "[r1, r2, s1]"])
def test_names_in_a_possible_order(names: str) -> None:
    assert not load_text(f"scheme: named\nnames: {names}", NAMED).problems


def test_a_default_version_outside_every_declared_range() -> None:
    [problem] = load_text("newest: latest", default_version="6").problems

    assert (problem.code, problem.line, problem.column) == ("contradiction", 9, 22)
    assert "declared versions are 1-5" in problem.message
    assert not load_text("newest: latest", default_version="5").problems
    undeclared = '      - {url: "http://127.0.0.1:6386"}\n    custom:'
    learned = BASE.replace("    custom:", undeclared)
    assert not load_text("learn: {minimum: $.a, maximum: $.b}", learned, "6").problems


def test_a_default_version_above_the_ceiling() -> None:
    capped = BASE.replace("    custom:", "    offer: {ceiling: '3'}\n    custom:")
    [problem] = load_text("newest: latest", capped, "4").problems

    assert (problem.code, problem.line) == ("contradiction", 10)
    assert not load_text("newest: latest", capped, "3").problems


def test_versions_must_be_declared_where_none_can_be_learned() -> None:
    undeclared = BASE.replace(', versions: "1-5"', "")
    [problem] = load_text("{}", undeclared).problems

    assert (problem.code, problem.line, problem.column) == ("missing-key", 6, 15)
    assert not load_text("learn: {minimum: $.a, maximum: $.b}", undeclared).problems
    assert not load_text("reply: {list: X-Versions}", undeclared).problems


def test_every_mistake_is_found_at_once() -> None:
    loaded = load_text("places: [{header: a/b}]\nnewest: '1'\nlearn: {list: x}\nrefusal: {status: 99}")

    assert [problem.line for problem in loaded.problems] == [8, 9, 10, 11]


def test_a_default_version_that_other_tools_read_as_a_number_gives_a_warning() -> None:
    base = BASE.replace('"1-5"', '"1.1-1.90"')
    [problem] = load_text("scheme: major.minor", base, "1.90").problems

    assert (problem.code, problem.line, problem.column) == ("number", 9, 22)


MATCHED = BASE.replace("    custom:\n", "    match: {path: /shop, strip_prefix: false}\n    custom:\n")


@pytest.mark.parametrize(
    "options, marked",
    [
        ("places: [{header: A}, {path: '/shop/{version}'}]", "'/shop/{"),
        ("unversioned: [/health, /shop/health]", "/shop/health"),
        ("documents: [{path: /shop, list: '$[*]'}]", "/shop"),
    ],
)
def test_a_path_that_repeats_the_prefix_of_the_service(options: str, marked: str) -> None:
    """No request has it, with the prefix removed or not."""
    [problem] = load_text(options, MATCHED).problems

    assert (problem.code, problem.severity.value) == ("repeated-prefix", "warning")
    assert options[problem.column - 7 :].startswith(marked)
    assert not load_text(options).problems


def test_a_path_that_only_begins_like_the_prefix() -> None:
    assert not load_text("unversioned: [/shops, /a/shop]\nplaces: [{path: '/v{version}'}]", MATCHED).problems


@pytest.mark.parametrize("name", ["X.Api.Version", "X~Api-Version", "X-Api-Version!"])
def test_R_A6_a_header_for_versions_has_letters_digits_and_hyphens_only(name: str) -> None:
    options = f"places: [{{header: '{name}'}}]"
    openstack = BASE.replace("custom", "openstack").replace('"1-5"', '"1.1-1.5"')

    custom_problems = load_text(options).errors
    assert ["valid header name" in problem.message for problem in custom_problems] == [True]
    openstack_problems = load_text(f"service_type: backup\nlegacy_headers: ['{name}']", openstack).errors
    assert ["valid header name" in problem.message for problem in openstack_problems] == [True]
