"""`services.NAME.match.host`: names, addresses and wildcards, and services that want the same requests."""

from __future__ import annotations

import pytest

from tests.settings.texts import BASE, load_text

OTHER = "  b:\n    dialect: plain\n    backends: [{url: 'http://a'}]\n"


def hosts_of(written: str) -> tuple[str, ...]:
    [service] = load_text(f"{BASE}    match:\n      host: {written}\n").require().services
    return service.match.hosts


@pytest.mark.parametrize(
    "written, hosts",
    [
        ("API.example", ("api.example",)),
        ("api.example.", ("api.example",)),
        ("'*.Example.org.'", ("*.example.org",)),
        ("'*.org'", ("*.org",)),
        ("BÜCHER.example", ("xn--bcher-kva.example",)),
        ("'*.bücher.example'", ("*.xn--bcher-kva.example",)),
        ("xn--bcher-kva.example", ("xn--bcher-kva.example",)),
        ("'[0:0::1]'", ("[::1]",)),
        ("[a.example, '*.b.example', 10.0.0.1]", ("a.example", "*.b.example", "10.0.0.1")),
        ("[a.example]", ("a.example",)),
    ],
)
def test_hosts_are_kept_as_they_are_compared(written: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(written) == hosts


@pytest.mark.parametrize(
    "written, hint",
    [
        ("'*'", "leave this key out"),
        ("'*.'", "leave this key out"),
        ("'a.*'", "*.example.org"),
        ("'*a.b'", "*.example.org"),
        ("'*.*.a'", "*.example.org"),
        ("'*.1.2.3'", "*.example.org"),
        ("'*.[::1]'", "*.example.org"),
        ("a.example:80", "port"),
        ("'*.a.example:80'", "port"),
        ("http://a.example", ""),
        ("a..example", ""),
        ("-a..b", ""),
        ("'a b'", ""),
        ("'::1'", "brackets"),
        ("'[fe80::1%eth0]'", ""),
        ("ab\u2215c", ""),
        ("'*.a_b..c'", ""),
    ],
)
def test_what_is_no_host_is_refused(written: str, hint: str) -> None:
    for text, column in ((written, 13), (f"[x.example, {written}]", 25)):
        [problem] = load_text(f"{BASE}    match:\n      host: {text}\n").problems
        assert (problem.code, problem.line, problem.column) == ("bad-value", 8, column)
        assert hint in f"{problem.message} {problem.hint}"


def test_an_empty_list_is_no_word_for_any_host() -> None:
    [problem] = load_text(f"{BASE}    match:\n      host: []\n").problems

    assert (problem.code, problem.line, problem.column) == ("bad-value", 8, 13)


def test_a_host_that_is_listed_twice_is_an_error() -> None:
    [problem] = load_text(
        f"{BASE}    match:\n      host:\n        - a.example\n        - A.Example.\n"
    ).problems

    assert (problem.code, problem.line, problem.column) == ("duplicate-match", 10, 11)
    assert "line 9" in problem.message


@pytest.mark.parametrize(
    "one, other, column",
    [
        ("host: a.example", "host: [b.example, A.example.]", 31),
        ("host: ['*.a.example', x]", "host: '*.A.example'", 19),
        ("host: [x, y], path: /v1", "path: /v1, host: y", 19),
        ("path: /v1", "path: /v1", 19),
    ],
)
def test_services_that_match_the_same_requests_are_an_error_with_both_places(
    one: str, other: str, column: int
) -> None:
    problems = load_text(f"{BASE}    match: {{{one}}}\n{OTHER}    match: {{{other}}}\n").problems

    [problem] = problems
    assert (problem.code, problem.line, problem.column) == ("duplicate-match", 11, column)
    assert problem.message == "services 'api' (line 7) and 'b' match the same requests"


@pytest.mark.parametrize(
    "one, other",
    [
        ("host: '*.a.example'", "host: b.a.example"),
        ("host: '*.a.example'", "host: '*.b.a.example'"),
        ("host: a.example", "path: /"),
        ("host: [a.example, b.example]", "host: b.example, path: /v1"),
    ],
)
def test_a_more_specific_match_is_no_conflict(one: str, other: str) -> None:
    assert load_text(f"{BASE}    match: {{{one}}}\n{OTHER}    match: {{{other}}}\n").problems == ()
