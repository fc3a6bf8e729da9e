"""`services.NAME.headers`: which headers may be set, added and removed, and which belong to somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.fleet.service import Service
from gateway.core.http.header_edits import HeaderEdits
from gateway.settings import load
from tests.kit.examples import examples

BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: ironic
    backends:
      - url: http://127.0.0.1:6385
"""

Found = list[tuple[str, int, int]]


def service_of(text: str, **environ: str) -> Service:
    [service] = load(BASE + text, filename="x.yaml", environ=environ).require().services
    return service


def found_in(text: str) -> Found:
    problems = load(BASE + text, filename="x.yaml", environ={}).problems
    return [(problem.code, problem.line, problem.column) for problem in problems]


def test_without_the_key_nothing_is_changed() -> None:
    for text in ("", "    headers: {}\n", "    headers: {request: {set: {}, remove: []}, response: {}}\n"):
        service = service_of(text)
        assert (service.request_edits, service.response_edits) == (None, None)


def test_each_direction_has_its_own() -> None:
    service = service_of(
        "    headers:\n"
        "      request: {set: {X-Key: '${KEY}'}, remove: [X-Debug]}\n"
        "      response: {add: {Vary: Origin}, set: {X-Frame-Options: DENY}}\n",
        KEY="secret",
    )

    assert service.request_edits == HeaderEdits(set=(("X-Key", "secret"),), remove=("X-Debug",))
    assert service.response_edits == HeaderEdits(
        set=(("X-Frame-Options", "DENY"),), add=(("Vary", "Origin"),)
    )
    assert "secret" not in repr(service.request_edits)


RESERVED_IN_REQUESTS = (
    *("Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade"),
    *(
        "Expect",
        "Max-Forwards",
        "Via",
        "Forwarded",
        "X-Forwarded-For",
        "x-forwarded-host",
        "X_Forwarded_Port",
    ),
    *("X-Real-IP", "Proxy", "Proxy-Authorization", "Client-Cert", "HTTP2-Settings"),
    *("X-OpenStack-Ironic-API-Version", "x_openstack.ironic-API-version", "X-Openstack-Request-Id"),
)
RESERVED_IN_RESPONSES = (
    *("Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Proxy-Authenticate", "Location"),
    *("Content-Location", "Date", "Proxy-Status", "X_Skewgate.Bridged", "OpenStack-Request-Id"),
    *("X-OpenStack-Ironic-API-Version", "X-OpenStack-Ironic-API-Maximum-Version"),
)


@pytest.mark.parametrize("verb", ["set", "add", "remove"])
@pytest.mark.parametrize(
    "direction, name",
    [("request", name) for name in RESERVED_IN_REQUESTS]
    + [("response", name) for name in RESERVED_IN_RESPONSES],
)
def test_a_header_that_somebody_else_writes_is_refused(direction: str, name: str, verb: str) -> None:
    change = f"[{name}]" if verb == "remove" else f"{{{name}: x}}"
    column = len("        : [") + len(verb)

    assert found_in(f"    headers:\n      {direction}:\n        {verb}: {change}\n") == [
        ("reserved-header", 9, column + 1)
    ]


@st.composite
def spellings(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    """One of the names, in any case and with any separators that servers take for the same."""
    name = draw(st.sampled_from(names))
    return "".join(
        draw(st.sampled_from([letter.lower(), letter.upper()]))
        if letter.isalnum()
        else draw(st.sampled_from("-_.!~^"))
        for letter in name
    )


@settings(max_examples=examples(60))
@given(spellings(RESERVED_IN_REQUESTS), spellings(RESERVED_IN_RESPONSES))
def test_no_spelling_is_a_way_around(asked: str, answered: str) -> None:
    text = f"    headers: {{request: {{set: {{'{asked}': x}}}}, response: {{remove: ['{answered}']}}}}\n"

    assert [code for code, _, _ in found_in(text)] == ["reserved-header", "reserved-header"]


def test_vary_may_only_be_added() -> None:
    assert found_in("    headers: {response: {add: {Vary: Origin}}}\n") == []
    assert found_in("    headers: {response: {set: {Vary: Origin}}}\n") == [("reserved-header", 7, 32)]
    assert found_in("    headers: {response: {remove: [Vary]}}\n") == [("reserved-header", 7, 35)]


def test_what_another_dialect_owns_may_be_changed() -> None:
    assert found_in("    headers: {request: {set: {OpenStack-API-Version: compute 2.1}}}\n") != []
    assert found_in("    headers: {request: {set: {X-Chef-Version: '12'}}}\n") == []


def test_a_header_that_a_dialect_only_reads_is_refused_too() -> None:
    """A backend would execute another method than the one by which the gateway decided."""
    text = BASE.replace("ironic", "custom") + (
        "    custom:\n      places: [{header: API-Version}]\n      scheme: integer\n"
        "      learn: {path: /, minimum: $.a, maximum: $.b}\n      method_override: [X-Method]\n"
        "    headers: {request: {set: {X_Method: DELETE}}}\n"
    )

    problems = load(text, filename="x.yaml", environ={}).problems

    assert [(problem.code, problem.line) for problem in problems] == [("reserved-header", 12)]
    assert "reads or owns" in problems[0].message


@pytest.mark.parametrize(
    "text, found",
    [
        ("{set: {X-A: x, x_a: y}}", ("contradiction", 7, 39)),
        ("{set: {X-A: x}, remove: [x-a]}", ("contradiction", 7, 49)),
        ("{add: {X-A: x}, set: {X-A: y}}", ("contradiction", 7, 31)),
        ("{remove: [X-A, X-A]}", ("contradiction", 7, 39)),
        ('{set: {X-A: "a\\r\\nB: c"}}', ("bad-value", 7, 36)),
        ('{set: {X-A: "a\\0"}}', ("bad-value", 7, 36)),
        ("{set: {X-A: ' a'}}", ("bad-value", 7, 36)),
        ("{set: {X-A: ''}}", ("bad-value", 7, 36)),
        ("{set: {X-A: ä}}", ("bad-value", 7, 36)),
        ("{set: {X-A: [a]}}", ("wrong-type", 7, 36)),
        ("{set: {'a b': x}}", ("bad-value", 7, 31)),
        ("{remove: ['a:b']}", ("bad-value", 7, 34)),
        ("{remove: X-A}", ("wrong-type", 7, 33)),
        ("{sett: {X-A: x}}", ("unknown-key", 7, 25)),
    ],
)
def test_what_is_wrong_has_its_position(text: str, found: tuple[str, int, int]) -> None:
    assert found_in(f"    headers: {{request: {text}}}\n") == [found]


def test_two_changes_of_one_header_name_both_places() -> None:
    text = "    headers:\n      response:\n        set: {X-A: x}\n        remove:\n          - x-a\n"

    [problem] = load(BASE + text, filename="x.yaml", environ={}).problems

    assert (problem.code, problem.line, problem.column) == ("contradiction", 11, 13)
    assert problem.message == "the same header is under `set` (line 9)"


@pytest.mark.parametrize("verb", ["set", "add"])
def test_the_value_of_a_request_header_is_never_shown(verb: str) -> None:
    text = f"    headers: {{request: {{{verb}: {{X-Key: CANARY}}}}}}\n    offer: {{policy: x}}\n"

    assert "CANARY" not in load(BASE + text, filename="x.yaml", environ={}).render()
    broken = f"    headers: {{request: {{{verb}: {{X-Key: 'CANARY ä'}}}}}}\n"
    shown = load(BASE + broken, filename="x.yaml", environ={}).render()
    assert "bad-value" in shown
    assert "CANARY" not in shown
