"""`services.NAME.upgrade` and the protocols that it names; h2c is never one of them (threats H3)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.message import MAX_PROTOCOLS, allowed_protocols, carries_requests, read_protocols
from tests.settings.texts import BASE, load_text


@pytest.mark.parametrize(
    "written, upgrade",
    [
        ("[]", set()),
        ("[websocket]", {"websocket"}),
        ("[WebSocket, tcp, SPDY/3.1, tcp]", {"websocket", "tcp", "spdy/3.1"}),
    ],
)
def test_protocols_are_compared_in_lower_case(written: str, upgrade: set[str]) -> None:
    (service,) = load_text(f"{BASE}    upgrade: {written}\n").require().services

    assert service.upgrade == upgrade


def test_by_default_there_are_none() -> None:
    (service,) = load_text(BASE).require().services

    assert service.upgrade == frozenset()
    assert service.timeouts.tunnel_idle == 3600


NEVER = "HTTP requests in it would reach a backend with no version"


@pytest.mark.parametrize("protocol", ["h2c", "H2C", "h2", "h2c/1", "HTTP/2.0", "http", "TLS/1.0", "h3"])
def test_H3_a_protocol_that_carries_requests_is_an_error(protocol: str) -> None:
    (problem,) = load_text(f"{BASE}    upgrade: [websocket, {protocol}]\n").problems

    assert (problem.code, problem.line, problem.column) == ("bad-value", 7, 26)
    assert NEVER in problem.message


@pytest.mark.parametrize(
    "written, code, column",
    [
        ("websocket", "wrong-type", 14),
        ("{websocket: true}", "wrong-type", 14),
        ("[web socket]", "bad-value", 15),
        ("[a/b/c]", "bad-value", 15),
        ('["websocket,h2c"]', "bad-value", 15),
        ("[wébsocket]", "bad-value", 15),
        ('[""]', "wrong-type", 15),
        ("[[websocket]]", "wrong-type", 15),
        (f"[{'x' * 65}]", "bad-value", 15),
        ('["x\\r\\nHost: y"]', "bad-value", 15),
    ],
)
def test_what_is_no_list_of_protocols(written: str, code: str, column: int) -> None:
    problems = load_text(f"{BASE}    upgrade: {written}\n").problems

    assert [problem.line for problem in problems] == [7]
    assert [problem.column for problem in problems] == [column]
    assert [problem.code for problem in problems] in ([code], ["bad-value"])


TOKENS = st.text("!#$%&'*+.^_`|~09AZaz-", min_size=1, max_size=64)


@given(st.lists(st.tuples(TOKENS, st.none() | TOKENS), max_size=MAX_PROTOCOLS), st.data())
def test_protocols_are_read_as_they_were_written(
    pairs: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    names = [name if version is None else f"{name}/{version}" for name, version in pairs]
    cut = data.draw(st.integers(0, len(names)))
    values = [f" ,{' , '.join(part)}\t" for part in (names[:cut], names[cut:])]

    assert read_protocols(values) == tuple(names)


@given(st.text(max_size=80))
def test_no_value_gives_anything_but_protocols(value: str) -> None:
    found = read_protocols([value])

    assert all(name.isascii() and name.isprintable() and not set(name) & set(" ,:") for name in found)


@given(st.lists(TOKENS, max_size=5), st.sets(TOKENS, max_size=5))
def test_H3_what_is_allowed_was_asked_for_and_configured(asked: list[str], allowed: set[str]) -> None:
    """Whatever the configuration says."""
    asked += ["h2c", "HTTP/2.0"]
    allowed = {name.lower() for name in allowed} | {"h2c", "http/2.0"}

    for name in allowed_protocols(asked, allowed):
        assert name in asked
        assert name.lower() in allowed
        assert not carries_requests(name)
