"""What HAProxy may have at drained backends, from what it tells."""

from __future__ import annotations

from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.driver import OpenRequests
from gateway.engines.table import compile_table
from gateway.settings import load

BACKENDS = """
    backends:
      - {name: one, url: "http://127.0.0.1:1", versions: "1.1-1.9"}
      - {name: two, url: "http://127.0.0.1:2", versions: "1.1-1.9"}
"""
TEXT = f"""
listen: 127.0.0.1:0
services:
  a:
    dialect: ironic
    match: {{host: a.test}}{BACKENDS}
  b:
    dialect: ironic
    match: {{host: b.test}}{BACKENDS}
"""


def fleet() -> Snapshot:
    return Snapshot.configured(load(TEXT, filename="t.yaml", environ={}).require().services, now=0.0)


def commanded(before: Snapshot, service: str, command: Drain) -> Snapshot:
    return before.with_fleet(before.fleet.apply(service, command), 0.0)


def told(snapshot: Snapshot, service: str, **requests: int) -> dict[str, dict[str, int]]:
    """So many at the servers of each route set of a service."""
    return {
        route_set.name: requests
        for route_set in compile_table(snapshot).route_sets
        if route_set.service == service
    }


def test_they_are_those_of_all_route_sets_of_the_service_and_of_those_that_nobody_knows() -> None:
    drained = commanded(fleet(), "a", Drain("one"))
    table, found = compile_table(drained), OpenRequests()
    route_sets = len(told(drained, "a"))
    others = {"sg-earlier": {"one": 5}, "operators-own": {"one": 100}}
    answer = {**told(drained, "a", one=2, two=7), **told(drained, "b", one=9), **others}
    found.count(drained, drained, table, answer)
    assert route_sets > 1
    assert found.may_be(drained, elsewhere=False) == {"a/one": 2 * route_sets + 5}


def test_while_nobody_has_counted_there_may_be_one() -> None:
    drained, found = commanded(fleet(), "a", Drain("one")), OpenRequests()
    assert found.may_be(fleet(), elsewhere=True) == {}
    assert found.may_be(drained, elsewhere=False) == {"a/one": 1}
    found.count(drained, drained, compile_table(drained), {})
    assert found.may_be(drained, elsewhere=False) == {"a/one": 0}
    assert found.may_be(drained, elsewhere=True) == {"a/one": 1}


def test_who_was_in_service_in_between_is_counted_anew() -> None:
    first, found = commanded(fleet(), "a", Drain("one")), OpenRequests()
    found.count(first, first, compile_table(first), {})
    enabled = commanded(first, "a", Drain("one", drained=False))
    found.leave_out_enabled(enabled)
    again = commanded(enabled, "a", Drain("one"))
    assert found.may_be(again, elsewhere=False) == {"a/one": 1}


def test_a_count_that_comes_too_late_is_none() -> None:
    """While HAProxy was asked, the backend has come back into service, or another one was drained."""
    drained, found = commanded(fleet(), "a", Drain("one")), OpenRequests()
    now = commanded(commanded(drained, "a", Drain("one", drained=False)), "b", Drain("two"))
    found.count(drained, now, compile_table(drained), {})
    assert found.may_be(commanded(now, "a", Drain("one")), elsewhere=False) == {"a/one": 1, "b/two": 1}
