"""The books of the rolling upgrade notice what they are there for: each test feeds them one mishap."""

from __future__ import annotations

import dataclasses

import pytest

from tests.real.hop import MAXIMUM_HEADER, MINIMUM_HEADER, OWN_HEADER, Exchange
from tests.real.ironic import Release, ironic
from tests.real.ledger import ONCE, Arrival, Excuse, Ledger, Window, judge
from tests.real.loops import CALL_HEADER, Call
from tests.real.wire import Head

pytestmark = pytest.mark.real

OLD, NEW = ironic("1", (1, 56)), ironic("2", (1, 115))
OFFERS = [("1.1", "1.56"), ("1.1", "1.115")]
EXCUSE = Excuse(OLD, ONCE, "cannot read")
DONE = Call("a.1", "show", "n", value={})


def told(status: int | None, method: str = "GET", served: str | None = "1.31", top: str = "1.56") -> Exchange:
    """What a client asked at 1.31 and was told by the gateway."""
    lines = [(OWN_HEADER, served)] if served else []
    lines += [(MINIMUM_HEADER, "1.1"), (MAXIMUM_HEADER, top)]
    return exchange(method, status, [(CALL_HEADER, "a.1"), (OWN_HEADER, "1.31")], lines)


def given(
    status: int | None, method: str = "GET", served: str | None = "1.31", sent: str = "1.31"
) -> Exchange:
    """What a server was sent by the gateway and answered."""
    head = [(CALL_HEADER, "a.1"), ("Via", "1.1 x"), (OWN_HEADER, sent)]
    return exchange(method, status, head, [(OWN_HEADER, served)] if served else [])


def exchange(
    method: str, status: int | None, asked: list[tuple[str, str]], said: list[tuple[str, str]]
) -> Exchange:
    reply = None if status is None else Head(f"HTTP/1.1 {status} X", tuple(said))
    return Exchange(Head(f"{method} /v1/nodes/n HTTP/1.1", tuple(asked)), reply, began=10.0, ended=11.0)


def books(
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


def test_all_is_well() -> None:
    assert faults(books([told(200)], [given(200)])) == set()


def test_a_refusal_by_the_gateway_and_the_library_s_second_try_are_no_fault() -> None:
    ledger = books([told(406, served=None), told(200)], [given(200)])
    assert (faults(ledger), ledger.refusals) == (set(), 1)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_a_server_did_not_answer_may_be_sent_again(method: str) -> None:
    ledger = books([told(200, method)], [given(None, method, None), given(200, method)])
    assert (faults(ledger), ledger.resent) == (set(), 1)


def test_two_answers_to_one_request_are_one_too_many() -> None:
    assert faults(books([told(200)], [given(200), given(200)])) == {"duplicated"}


@pytest.mark.parametrize("method", sorted(ONCE))
def test_a_write_that_is_sent_again_is_found(method: str) -> None:
    ledger = books([told(200, method)], [given(None, method, None), given(200, method)])
    assert faults(ledger) == {"duplicated"}


@pytest.mark.parametrize("status", [None, 502, 503, 504])
def test_a_request_without_a_server_s_answer_is_lost(status: int | None) -> None:
    assert faults(books([told(status, served=None)], [], failed("x"))) == {"lost"}


def test_a_call_of_which_nothing_was_seen_is_lost() -> None:
    assert faults(books([], [])) == {"lost"}


def test_a_client_that_fails_after_good_replies_is_lost() -> None:
    assert faults(books([told(200)], [given(200)], failed("KeyError"))) == {"lost"}


def test_a_request_of_nobody_is_found() -> None:
    stray = [dataclasses.replace(DONE, call="b.1")]
    ledger = judge(stray, [told(200)], [Arrival("one", OLD, given(200))], [], [], OFFERS)
    assert faults(ledger) == {"lost", "duplicated"}


def test_a_server_s_own_500_is_passed_on_once() -> None:
    call = failed("500", "I cannot read that")
    ledger = books([told(500, "PATCH")], [given(500, "PATCH")], call)
    assert (faults(ledger), ledger.passed_500.total()) == (set(), 1)
    assert faults(books([told(500, "PATCH")], [given(500, "PATCH")] * 2, call)) == {"duplicated"}


def test_another_500_is_not_excused() -> None:
    assert faults(books([told(500, "PATCH")], [given(500, "PATCH")], failed("500", "no"))) == {"lost"}
    call = failed("500", "I cannot read that")
    assert faults(books([told(500)], [given(500)], call)) == {"lost"}
    assert faults(books([told(500, "PATCH")], [given(500, "PATCH")], call, release=NEW)) == {"lost"}


def test_a_500_of_which_no_server_knows_is_no_server_s() -> None:
    call = failed("500", "I cannot read that")
    assert "desynced" in faults(books([told(500, "PATCH")], [given(200, "PATCH")], call))


@pytest.mark.parametrize(
    "window, fault",
    [
        (Window("one", 10.5, 12.0), set()),
        (Window("one", 11.5, 12.0), {"lost"}),
        (Window("two", 10.5, 12.0), {"lost"}),
    ],
)
def test_a_write_is_in_doubt_only_where_a_server_took_it_with_it(window: Window, fault: set[str]) -> None:
    seen, arrived = [told(502, "POST", None)], [given(None, "POST", None)]
    ledger = books(seen, arrived, failed("502"), windows=(window,))
    assert (faults(ledger), len(ledger.in_doubt)) == (fault, 0 if fault else 1)
    safe = books([told(502, served=None)], [given(None, served=None)], failed("502"), windows=(window,))
    assert faults(safe) == {"lost"}


def test_another_version_than_told_is_found() -> None:
    assert faults(books([told(200)], [given(200, served="1.30", sent="1.30")])) == {"desynced"}
    assert faults(books([told(200, served="1.30")], [given(200, served="1.30", sent="1.30")])) == {"desynced"}
    assert "misdirected" in faults(books([told(200)], [given(200, served="1.31", sent="1.30")]))


def test_a_server_that_does_not_serve_the_version_is_found() -> None:
    high = exchange("GET", 200, [(CALL_HEADER, "a.1"), (OWN_HEADER, "1.90")], [(OWN_HEADER, "1.90")])
    assert faults(books([high], [given(200, served="1.90", sent="1.90")])) == {"misdirected"}
    assert faults(books([high], [given(200, served="1.90", sent="1.90")], release=NEW)) == set()


def test_an_offer_that_falls_or_is_nobody_s_is_found() -> None:
    early = dataclasses.replace(told(200, top="1.115"), began=8.0, ended=9.0)
    assert faults(books([early, told(200)], [given(200)] * 2)) == {"desynced"}
    late = dataclasses.replace(told(200, top="1.115"), began=12.0, ended=13.0)
    assert faults(books([told(200), late], [given(200)] * 2)) == set()
    assert faults(books([told(200, top="1.90")], [given(200)])) == {"desynced"}


def test_a_change_that_is_not_there_afterwards_is_found() -> None:
    change = failed("500", "I cannot read that")
    show = Call("a.2", "show", "n", value={})
    seen, arrived = told(500, "PATCH"), Arrival("one", OLD, given(500, "PATCH"))
    line = (CALL_HEADER, "a.2")
    later = exchange("GET", 200, [line, (OWN_HEADER, "1.31")], [(OWN_HEADER, "1.31")])
    there = exchange("GET", 200, [line, ("Via", "1.1 x"), (OWN_HEADER, "1.31")], [(OWN_HEADER, "1.31")])
    arrivals = [arrived, Arrival("one", OLD, there)]
    assert faults(judge([change, show], [seen, later], arrivals, [], [EXCUSE], OFFERS)) == {"forgotten"}
    show = dataclasses.replace(show, value={"changed": "a.1"})
    assert faults(judge([change, show], [seen, later], arrivals, [], [EXCUSE], OFFERS)) == set()
