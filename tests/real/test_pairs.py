"""Nova, placement and senlin in pairs behind the gateway: every kind of ask, by requests of our own.

Under `guaranteed` clients are offered what both releases serve, under `reachable` what one of them does.
That nothing reached a server that does not serve it is checked after each test (`pairs.violations`)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.real.hop import Hop
from tests.real.launching import Release
from tests.real.pairs import Pair, ask, violations
from tests.real.park import KINDS, Kind, Park

pytestmark = pytest.mark.real

POLICIES = ("guaranteed", "reachable")
EVERY_KIND = pytest.mark.parametrize("kind", list(KINDS))


def of(policy: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", [(kind, policy) for kind in KINDS], indirect=True, ids=list(KINDS))


EVERY_PAIR = pytest.mark.parametrize(
    "pair",
    [(kind, policy) for kind in KINDS for policy in POLICIES],
    indirect=True,
    ids=[f"{kind}-{policy}" for kind in KINDS for policy in POLICIES],
)


def kind_of(pair: Pair) -> Kind:
    return next(kind for kind in KINDS.values() if kind.wire is pair.wire)


def reached(pair: Pair) -> dict[str, int]:
    """How many requests of clients each server got, documents apart."""
    return {member: len(pair.reached(member)) for member in pair.servers}


@EVERY_PAIR
def test_silence_runs_at_the_service_s_default_and_is_sent_explicitly(pair: Pair) -> None:
    for _ in range(8):
        assert pair.ask(kind_of(pair).resource).status == 200
    assert set(pair.served()) == {pair.wire.silence}
    sent = [pair.wire.versions(one.request) for member in pair.servers for one in pair.reached(member)]
    assert [set(versions) for versions in sent] == [{pair.wire.silence}] * 8


@EVERY_PAIR
def test_what_both_serve_goes_to_both(pair: Pair) -> None:
    kind = kind_of(pair)
    for _ in range(24):
        assert pair.ask(kind.resource, kind.inside).status == 200
    assert pair.served() == [kind.inside] * 24
    assert all(reached(pair).values()), reached(pair)


@of("reachable")
def test_what_only_the_new_one_serves_goes_to_the_new_one(pair: Pair) -> None:
    kind = kind_of(pair)
    for _ in range(12):
        assert pair.ask(kind.resource, kind.above).status == 200
    assert pair.served() == [kind.above] * 12
    assert reached(pair) == {"old": 0, "new": 12}


@of("guaranteed")
def test_what_only_the_new_one_serves_is_refused_where_it_is_not_on_offer(pair: Pair) -> None:
    kind = kind_of(pair)
    reply = pair.ask(kind.resource, kind.above)
    assert reply.status == 406
    assert kind.old.top in reply.body.decode()
    assert kind.new.top not in reply.body.decode()
    assert reached(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_what_nobody_serves_is_refused_by_the_gateway(pair: Pair) -> None:
    kind = kind_of(pair)
    reply = pair.ask(kind.resource, f"{kind.new.maximum[0]}.999")
    assert reply.status == 406
    assert pair.offer.top in reply.body.decode()
    assert reached(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_a_garbled_version_is_refused_by_the_gateway(pair: Pair) -> None:
    assert pair.ask(kind_of(pair).resource, "spam").status == 400
    assert reached(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_latest_is_the_offer_s_maximum(pair: Pair) -> None:
    for _ in range(8):
        assert pair.ask(kind_of(pair).resource, "latest").status == 200
    assert pair.served() == [pair.offer.top] * 8
    if pair.offer is kind_of(pair).new:
        assert reached(pair) == {"old": 0, "new": 8}


@EVERY_PAIR
def test_every_document_names_the_offer(pair: Pair) -> None:
    """Whichever server it came from: eight times each, and both have been asked by then."""
    for path in sorted(path for path in pair.wire.documents if path):
        for _ in range(8):
            reply = pair.ask(path)
            if reply.status == 302:
                # Old nova's answer to `/v2.1`: it must lead the client to the gateway, not past it.
                assert reply.headers["Location"] == f"{pair.url}{path}/"
                reply = pair.ask(f"{path}/")
            assert reply.status in (200, 300), path
            found = ranges(json.loads(reply.body))
            assert found == {(pair.offer.bottom, pair.offer.top)}, path


def ranges(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Every range that a version document names; entries for versions without any are left out."""
    entries = [*document.get("versions", []), *([document["version"]] if "version" in document else [])]
    named = ((one.get("min_version"), one.get("max_version") or one.get("version")) for one in entries)
    return {(bottom, top) for bottom, top in named if bottom and top}


@EVERY_PAIR
def test_status_tells_what_each_server_serves(pair: Pair) -> None:
    kind = kind_of(pair)
    backends = pair.gateway.service()["backends"]
    assert {name: (one["min"], one["max"]) for name, one in backends.items()} == {
        "old": (kind.old.bottom, kind.old.top),
        "new": (kind.new.bottom, kind.new.top),
    }


@EVERY_KIND
@pytest.mark.parametrize("fault", ["too new", "no version", "not forwarded", None])
def test_a_request_at_the_wrong_server_is_found(park: Park, kind: str, fault: str | None) -> None:
    """The check that runs after every other test can fail: here it does."""
    chosen = KINDS[kind]
    server = park.servers(kind)["old"]
    version = {"too new": chosen.above, "no version": None}.get(fault or "", chosen.inside)
    headers = chosen.wire.headers(version) | ({} if fault == "not forwarded" else {"Via": "1.1 x"})
    with Hop(f"judged-{kind}", server.port) as hop:
        ask(hop.port, chosen.resource, headers)
        judged: Any = SimpleNamespace(
            wire=chosen.wire, offer=chosen.new, servers={"old": server},
            seen=list, arrived=lambda member: hop.exchanges(),
        )  # fmt: skip
        found = violations(cast(Pair, judged))
    assert len(found) == (0 if fault is None else 1), found


def test_a_release_knows_its_range() -> None:
    release = Release("x", "1", (2, 1), (2, 60))
    assert [release.serves(text) for text in ("2.0", "2.1", "2.60", "2.61", "3.1", "latest", "2")] == [
        False, True, True, False, False, False, False,
    ]  # fmt: skip
