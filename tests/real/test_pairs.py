"""Nova, placement and senlin in pairs behind the gateway: every kind of requested version, without libraries.

Under `guaranteed`, the offer is what both releases serve. Under `reachable`, it is what one of them serves.
After each test, `testbed.violations` checks that no request reached a server that does not serve its version.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.real.launcher import Release
from tests.real.processes import send
from tests.real.recorder import Recorder
from tests.real.server_pool import KINDS, Kind, ServerPool
from tests.real.testbed import Testbed, violations

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


def kind_of(pair: Testbed) -> Kind:
    return next(kind for kind in KINDS.values() if kind.api is pair.api)


def forwarded(pair: Testbed) -> dict[str, int]:
    """The number of forwarded requests at each server, without documents."""
    return {member: len(pair.forwarded(member)) for member in pair.servers}


@EVERY_PAIR
def test_a_request_without_a_version_gets_the_default_version_explicitly(pair: Testbed) -> None:
    for _ in range(8):
        assert pair.send(kind_of(pair).resource).status == 200
    assert set(pair.served()) == {pair.api.default_version}
    sent = [
        pair.api.versions(exchange.request) for member in pair.servers for exchange in pair.forwarded(member)
    ]
    assert [set(versions) for versions in sent] == [{pair.api.default_version}] * 8


@EVERY_PAIR
def test_a_version_of_both_goes_to_both(pair: Testbed) -> None:
    kind = kind_of(pair)
    for _ in range(24):
        assert pair.send(kind.resource, kind.inside).status == 200
    assert pair.served() == [kind.inside] * 24
    assert all(forwarded(pair).values()), forwarded(pair)


@of("reachable")
def test_a_version_of_the_new_server_goes_to_the_new_server(pair: Testbed) -> None:
    kind = kind_of(pair)
    for _ in range(12):
        assert pair.send(kind.resource, kind.above).status == 200
    assert pair.served() == [kind.above] * 12
    assert forwarded(pair) == {"old": 0, "new": 12}


@of("guaranteed")
def test_a_version_of_the_new_server_is_refused_outside_the_offer(pair: Testbed) -> None:
    kind = kind_of(pair)
    response = pair.send(kind.resource, kind.above)
    assert response.status == 406
    assert kind.old.top in response.body.decode()
    assert kind.new.top not in response.body.decode()
    assert forwarded(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_a_version_that_no_server_has_is_refused_by_the_gateway(pair: Testbed) -> None:
    kind = kind_of(pair)
    response = pair.send(kind.resource, f"{kind.new.maximum[0]}.999")
    assert response.status == 406
    assert pair.offer.top in response.body.decode()
    assert forwarded(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_a_malformed_version_is_refused_by_the_gateway(pair: Testbed) -> None:
    assert pair.send(kind_of(pair).resource, "spam").status == 400
    assert forwarded(pair) == {"old": 0, "new": 0}


@EVERY_PAIR
def test_latest_is_the_maximum_of_the_offer(pair: Testbed) -> None:
    for _ in range(8):
        assert pair.send(kind_of(pair).resource, "latest").status == 200
    assert pair.served() == [pair.offer.top] * 8
    if pair.offer is kind_of(pair).new:
        assert forwarded(pair) == {"old": 0, "new": 8}


@EVERY_PAIR
def test_every_document_contains_the_offer(pair: Testbed) -> None:
    """Eight requests for each document, which reach both servers."""
    for path in sorted(path for path in pair.api.documents if path):
        for _ in range(8):
            response = pair.send(path)
            if response.status == 302:
                # Old nova redirects `/v2.1`: the location must be at the gateway.
                assert response.headers["Location"] == f"{pair.url}{path}/"
                response = pair.send(f"{path}/")
            assert response.status in (200, 300), path
            found = ranges(json.loads(response.body))
            assert found == {(pair.offer.bottom, pair.offer.top)}, path


def ranges(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Every range in a version document. Entries without a range are left out."""
    entries = [*document.get("versions", []), *([document["version"]] if "version" in document else [])]
    found = (
        (entry.get("min_version"), entry.get("max_version") or entry.get("version")) for entry in entries
    )
    return {(bottom, top) for bottom, top in found if bottom and top}


@EVERY_PAIR
def test_status_contains_the_range_of_each_server(pair: Testbed) -> None:
    kind = kind_of(pair)
    backends = pair.gateway.service()["backends"]
    assert {name: (backend["min"], backend["max"]) for name, backend in backends.items()} == {
        "old": (kind.old.bottom, kind.old.top),
        "new": (kind.new.bottom, kind.new.top),
    }


@EVERY_KIND
@pytest.mark.parametrize("fault", ["too new", "no version", "not forwarded", None])
def test_a_request_at_the_wrong_server_is_found(
    server_pool: ServerPool, kind: str, fault: str | None
) -> None:
    """The check after every test can fail: here it does."""
    chosen = KINDS[kind]
    server = server_pool.servers(kind)["old"]
    version = {"too new": chosen.above, "no version": None}.get(fault or "", chosen.inside)
    headers = chosen.api.headers(version) | ({} if fault == "not forwarded" else {"Via": "1.1 x"})
    with Recorder(f"judged-{kind}", server.port) as recorder:
        send(recorder.port, chosen.resource, headers)
        judged: Any = SimpleNamespace(
            api=chosen.api,
            offer=chosen.new,
            servers={"old": server},
            recorders={"old": recorder},
            seen=list,
            arrived=lambda member: recorder.exchanges(),
        )
        found = violations(cast(Testbed, judged))
    assert len(found) == (0 if fault is None else 1), found


def test_a_release_knows_its_range() -> None:
    release = Release("x", "1", (2, 1), (2, 60))
    assert [release.serves(text) for text in ("2.0", "2.1", "2.60", "2.61", "3.1", "latest", "2")] == [
        False,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
