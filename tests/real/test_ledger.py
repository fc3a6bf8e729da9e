"""The judge of the rolling upgrade finds every breach: each test shows it one."""

from __future__ import annotations

import dataclasses

import pytest

from tests.kit.messages import Message, request_head
from tests.real.continuous_clients import CALL_HEADER, Call
from tests.real.ironic import Release, ironic
from tests.real.ledger import ONCE, Arrival, Excuse, Ledger, Window, judge
from tests.real.recorder import MAXIMUM_HEADER, MINIMUM_HEADER, OWN_HEADER, Exchange

pytestmark = pytest.mark.real

OLD, NEW = ironic("1", (1, 56)), ironic("2", (1, 115))
OFFERS = [("1.1", "1.56"), ("1.1", "1.115")]
EXCUSE = Excuse(OLD, ONCE, "cannot read")
DONE = Call("a.1", "show", "n", value={})


def seen_by_client(
    status: int | None, method: str = "GET", served: str | None = "1.31", top: str = "1.56"
) -> Exchange:
    """An exchange of a client at 1.31."""
    lines = [(OWN_HEADER, served)] if served else []
    lines += [(MINIMUM_HEADER, "1.1"), (MAXIMUM_HEADER, top)]
    return exchange(method, status, [(CALL_HEADER, "a.1"), (OWN_HEADER, "1.31")], lines)


def at_server(
    status: int | None, method: str = "GET", served: str | None = "1.31", sent: str = "1.31"
) -> Exchange:
    """An exchange of the gateway with a server."""
    head = [(CALL_HEADER, "a.1"), ("Via", "1.1 x"), (OWN_HEADER, sent)]
    return exchange(method, status, head, [(OWN_HEADER, served)] if served else [])


def exchange(
    method: str, status: int | None, request: list[tuple[str, str]], fields: list[tuple[str, str]]
) -> Exchange:
    asked = message(f"{method} /v1/nodes/n HTTP/1.1", request)
    response = None if status is None else message(f"HTTP/1.1 {status} X", fields)
    return Exchange(asked, response, began=10.0, ended=11.0)


def message(start: str, fields: list[tuple[str, str]]) -> Message:
    lines = (f"{name}: {value}" for name, value in fields)
    return Message(request_head(*lines, start=start, host=False), b"", "none")


def judged(
    seen: list[Exchange],
    arrived: list[Exchange],
    call: Call = DONE,
    *,
    release: Release = OLD,
    windows: tuple[Window, ...] = (),
) -> Ledger:
    arrivals = [Arrival("one", release, one) for one in arrived]
    return judge([call], seen, arrivals, windows, [EXCUSE], OFFERS)


def faults(ledger: Ledger) -> set[str]:
    kinds = ("lost", "duplicated", "desynced", "misdirected", "forgotten")
    return {kind for kind in kinds if getattr(ledger, kind)}


def failed(error: str, text: str = "") -> Call:
    return Call("a.1", "change", "n", error=error, text=text)


def test_a_call_without_a_breach() -> None:
    assert faults(judged([seen_by_client(200)], [at_server(200)])) == set()


def test_a_refusal_by_the_gateway_and_the_second_request_of_the_library_are_allowed() -> None:
    ledger = judged([seen_by_client(406, served=None), seen_by_client(200)], [at_server(200)])
    assert (faults(ledger), ledger.refusals) == (set(), 1)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_without_a_response_may_be_sent_again(method: str) -> None:
    ledger = judged([seen_by_client(200, method)], [at_server(None, method, None), at_server(200, method)])
    assert (faults(ledger), ledger.resent) == (set(), 1)


def test_two_responses_to_one_request_are_found() -> None:
    assert faults(judged([seen_by_client(200)], [at_server(200), at_server(200)])) == {"duplicated"}


@pytest.mark.parametrize("method", sorted(ONCE))
def test_a_write_that_is_sent_again_is_found(method: str) -> None:
    ledger = judged([seen_by_client(200, method)], [at_server(None, method, None), at_server(200, method)])
    assert faults(ledger) == {"duplicated"}


@pytest.mark.parametrize("status", [None, 502, 503, 504])
def test_a_request_without_a_response_of_a_server_is_lost(status: int | None) -> None:
    assert faults(judged([seen_by_client(status, served=None)], [], failed("x"))) == {"lost"}


def test_a_call_without_a_request_is_lost() -> None:
    assert faults(judged([], [])) == {"lost"}


def test_a_client_that_fails_after_good_responses_is_lost() -> None:
    assert faults(judged([seen_by_client(200)], [at_server(200)], failed("KeyError"))) == {"lost"}


def test_a_request_without_a_call_is_found() -> None:
    other_call = [dataclasses.replace(DONE, call="b.1")]
    ledger = judge(other_call, [seen_by_client(200)], [Arrival("one", OLD, at_server(200))], [], [], OFFERS)
    assert faults(ledger) == {"lost", "duplicated"}


def test_an_expected_500_of_a_server_is_forwarded_once() -> None:
    call = failed("500", "I cannot read that")
    ledger = judged([seen_by_client(500, "PATCH")], [at_server(500, "PATCH")], call)
    assert (faults(ledger), ledger.passed_500.total()) == (set(), 1)
    assert faults(judged([seen_by_client(500, "PATCH")], [at_server(500, "PATCH")] * 2, call)) == {
        "duplicated"
    }


def test_another_500_is_not_excused() -> None:
    assert faults(judged([seen_by_client(500, "PATCH")], [at_server(500, "PATCH")], failed("500", "no"))) == {
        "lost"
    }
    call = failed("500", "I cannot read that")
    assert faults(judged([seen_by_client(500)], [at_server(500)], call)) == {"lost"}
    assert faults(judged([seen_by_client(500, "PATCH")], [at_server(500, "PATCH")], call, release=NEW)) == {
        "lost"
    }


def test_a_500_that_no_server_sent_is_found() -> None:
    call = failed("500", "I cannot read that")
    assert "desynced" in faults(judged([seen_by_client(500, "PATCH")], [at_server(200, "PATCH")], call))


@pytest.mark.parametrize(
    "window, fault",
    [
        (Window("one", 10.5, 12.0), set()),
        (Window("one", 11.5, 12.0), {"lost"}),
        (Window("two", 10.5, 12.0), {"lost"}),
    ],
)
def test_a_write_is_in_doubt_only_when_its_server_was_ending(window: Window, fault: set[str]) -> None:
    seen, arrived = [seen_by_client(502, "POST", None)], [at_server(None, "POST", None)]
    ledger = judged(seen, arrived, failed("502"), windows=(window,))
    assert (faults(ledger), len(ledger.in_doubt)) == (fault, 0 if fault else 1)
    safe = judged(
        [seen_by_client(502, served=None)], [at_server(None, served=None)], failed("502"), windows=(window,)
    )
    assert faults(safe) == {"lost"}


def test_an_execution_at_another_version_is_found() -> None:
    assert faults(judged([seen_by_client(200)], [at_server(200, served="1.30", sent="1.30")])) == {"desynced"}
    assert faults(
        judged([seen_by_client(200, served="1.30")], [at_server(200, served="1.30", sent="1.30")])
    ) == {"desynced"}
    assert "misdirected" in faults(
        judged([seen_by_client(200)], [at_server(200, served="1.31", sent="1.30")])
    )


def test_a_server_that_does_not_serve_the_version_is_found() -> None:
    high = exchange("GET", 200, [(CALL_HEADER, "a.1"), (OWN_HEADER, "1.90")], [(OWN_HEADER, "1.90")])
    assert faults(judged([high], [at_server(200, served="1.90", sent="1.90")])) == {"misdirected"}
    assert faults(judged([high], [at_server(200, served="1.90", sent="1.90")], release=NEW)) == set()


def test_an_offer_that_falls_or_is_unknown_is_found() -> None:
    early = dataclasses.replace(seen_by_client(200, top="1.115"), began=8.0, ended=9.0)
    assert faults(judged([early, seen_by_client(200)], [at_server(200)] * 2)) == {"desynced"}
    late = dataclasses.replace(seen_by_client(200, top="1.115"), began=12.0, ended=13.0)
    assert faults(judged([seen_by_client(200), late], [at_server(200)] * 2)) == set()
    assert faults(judged([seen_by_client(200, top="1.90")], [at_server(200)])) == {"desynced"}


def test_a_change_that_is_missing_afterwards_is_found() -> None:
    change = failed("500", "I cannot read that")
    show = Call("a.2", "show", "n", value={})
    seen, arrived = seen_by_client(500, "PATCH"), Arrival("one", OLD, at_server(500, "PATCH"))
    line = (CALL_HEADER, "a.2")
    later = exchange("GET", 200, [line, (OWN_HEADER, "1.31")], [(OWN_HEADER, "1.31")])
    there = exchange("GET", 200, [line, ("Via", "1.1 x"), (OWN_HEADER, "1.31")], [(OWN_HEADER, "1.31")])
    arrivals = [arrived, Arrival("one", OLD, there)]
    assert faults(judge([change, show], [seen, later], arrivals, [], [EXCUSE], OFFERS)) == {"forgotten"}
    show = dataclasses.replace(show, value={"changed": "a.1"})
    assert faults(judge([change, show], [seen, later], arrivals, [], [EXCUSE], OFFERS)) == set()
