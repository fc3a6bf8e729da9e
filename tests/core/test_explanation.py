"""explain() says what decide() does, and every backend is a candidate or left out for a reason."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gateway.core.decision.decision import Forward, Refuse, decide
from gateway.core.decision.explanation import Load
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Fact,
    Fleet,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.service import Match, Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header, RequestHead, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.guideline import OpenStack
from gateway.dialects.openstack.ironic import Ironic
from gateway.dialects.openstack.services import OpenStackOptions
from tests.core.builders import explained, explained_json, legacy, upto, v
from tests.core.builders import snapshot as toy_snapshot
from tests.core.builders import upto as upto_toy

OWN = "X-OpenStack-Ironic-API-Version"
NAMES = ("old", "new", "kilo", "drained", "never")
LEGACY = Advertisement(VersionSet.only(Version(1, 1)), legacy=True)


def snapshot(
    facts: dict[str, Fact],
    *,
    drained: frozenset[str] = frozenset(),
    match: Match | None = None,
    **more: object,
) -> Snapshot:
    """A service with these backends, and a fact about each."""
    backends = tuple(Backend(name, "10.0.0.1", 1000 + number) for number, name in enumerate(facts))
    one = Service("baremetal", Ironic(), backends, match=match or Match(), **more)  # type: ignore[arg-type]
    first = Snapshot.configured([one], now=0.0)
    fleet = first.fleet
    for name, fact in facts.items():
        fleet = fleet.observe("baremetal", name, fact)
    members = MemberSet(
        tuple(
            replace(each, drained_by="" if each.backend.name in drained else None)
            for each in fleet.member_sets["baremetal"].all
        )
    )
    return first.with_fleet(Fleet(MappingProxyType({"baremetal": members})), 0.0)


MIXED: dict[str, Fact] = {"old": ProbeSucceeded(upto(58), 1.0), "new": ProbeSucceeded(upto(90), 1.0)}


def names(shown: Any) -> list[tuple[str, int]]:
    return [(each.backend, each.tier) for each in shown.candidates]


def reasons(shown: Any) -> dict[str, str]:
    return {each.backend: each.reason for each in shown.left_out}


def test_a_request_that_goes_to_a_backend() -> None:
    shown = explained(
        snapshot(MIXED), "GET", "/v1/nodes?limit=1", [("Host", "api"), (OWN, "1.31")], {"baremetal/new": 4}
    )

    assert (shown.decision, shown.status, shown.response) == ("forward", None, None)
    assert (shown.service, shown.dialect, shown.result, shown.version) == (
        "baremetal",
        "ironic",
        "served",
        "1.31",
    )
    assert (shown.path, shown.local_path, shown.host) == ("/v1/nodes?limit=1", "/v1/nodes", "api")
    assert shown.requested is not None
    assert (shown.requested.kind, shown.requested.text, shown.requested.version) == (
        "exact",
        "1.31",
        "1.31",
    )
    assert shown.offer is not None
    assert (shown.offer.min, shown.offer.max, shown.offer.phase) == ("1.1", "1.58", "mixed")
    assert names(shown) == [("old", 1), ("new", 1)]
    assert [each.in_flight for each in shown.candidates] == [0, 4]
    assert shown.left_out == ()
    assert shown.sends == (f"{OWN}: 1.31", "OpenStack-API-Version: baremetal 1.31")
    assert shown.sends_legacy == ()
    assert shown.because == "the requested version leads to 1.31 of the offer 1.1-1.58"


def bounded_and_backup() -> Snapshot:
    declared = VersionSet.between(v("1.1"), v("1.58"))
    backends = (
        Backend("one", "127.0.0.1", 1, declared=declared, max_requests=2),
        Backend("two", "127.0.0.1", 2, declared=declared),
        Backend("spare", "127.0.0.1", 3, declared=declared, backup=True),
    )
    return Snapshot.configured([Service("baremetal", Ironic(), backends)], now=0.0)


def test_ejections_backups_and_bounds_are_told() -> None:
    base, path, reason = bounded_and_backup(), "/v1/nodes", {"baremetal/two": "no response came in time"}
    everybody = [f"baremetal/{name}" for name in ("one", "two", "spare")]

    usual = explained(base, "GET", path, (), {"baremetal/one": 2})
    ejected = explained(base, "GET", path, load=Load({}, {"baremetal/two": 0}, reason))
    back = explained(base, "GET", path, load=Load({}, {"baremetal/two": 1 << 14}))
    waits = explained(base, "GET", path, load=Load({"baremetal/one": 2}, {"baremetal/two": 0}, reason))
    panic = explained(base, "GET", path, load=Load({}, dict.fromkeys(everybody, 0)))

    assert names(usual) == [("one", 1), ("two", 1), ("spare", 2)]
    assert [each.why for each in usual.candidates] == [
        "its versions are declared; it is full, it takes 2 requests at a time",
        "its versions are declared",
        "a backup, its versions are declared",
    ]
    assert names(ejected) == [("one", 1), ("spare", 2)]
    assert reasons(ejected) == {"two": "ejected"}
    assert [each.why for each in ejected.left_out] == ["ejected: no response came in time"]
    assert back.candidates[1].why.endswith("it comes back after an ejection, with 25 % of its requests")
    assert waits.because.endswith("; all suitable backends are full, so it waits")
    assert [each.backend for each in panic.candidates] == ["one", "two", "spare"]
    assert all("no other backend is usable" in each.why for each in panic.candidates)


def test_every_backend_is_a_candidate_or_left_out_for_a_reason() -> None:
    facts: dict[str, Fact] = {
        "old": ProbeSucceeded(upto(58), 1.0),
        "new": ProbeSucceeded(upto(90), 1.0),
        "kilo": ProbeSucceeded(LEGACY, 1.0),
        "drained": ProbeSucceeded(upto(90), 1.0),
        "never": ProbeFailed("no connection", 1.0),
    }
    shown = explained(
        snapshot(facts, drained=frozenset({"drained"}), policy=Policy.REACHABLE),
        "GET",
        "/v1/nodes",
        [(OWN, "1.90")],
    )

    assert names(shown) == [("new", 1)]
    assert reasons(shown) == {
        "old": "version",
        "kilo": "version",
        "drained": "drained",
        "never": "unknown",
    }
    why = {each.backend: each.why for each in shown.left_out}
    assert why["old"] == "serves 1.1-1.58, not 1.90"
    assert why["never"] == "its versions are not known yet (no connection)"

    document = explained(snapshot(facts, drained=frozenset({"drained"})), "GET", "/")
    assert reasons(document)["kilo"] == "legacy"


def test_stale_and_lost_backends_are_candidates_of_a_later_tier() -> None:
    base = snapshot(MIXED)
    fleet = base.fleet
    for number in range(3):
        fleet = fleet.observe("baremetal", "old", ProbeFailed("x", 2.0 + number))
    shown = explained(base.with_fleet(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "latest")])

    assert names(shown) == [("new", 1), ("old", 2)]
    assert [each.freshness for each in shown.candidates] == ["fresh", "down"]
    assert [each.why for each in shown.candidates] == [
        "its last probe succeeded",
        "its last three probes failed",
    ]
    assert shown.because == "`latest` leads to 1.58 of the offer 1.1-1.58"


def test_failed_connections_and_mismatches_are_reasons() -> None:
    base = snapshot(MIXED)
    fleet = base.fleet.observe("baremetal", "old", ConnectFailed(2.0))
    fleet = fleet.observe("baremetal", "new", VersionMismatch(Version(1, 31), 2.0))
    shown = explained(base.with_fleet(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "1.31")])

    assert [each.why for each in shown.candidates] == [
        "a connection to it failed, and no probe has succeeded since"
    ]
    assert reasons(shown) == {"new": "mismatch"}
    (left_out,) = shown.left_out
    assert left_out.why == (
        "a response to 1.31 named another served version, and no regular probe has succeeded since"
    )

    other = explained(base.with_fleet(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "1.30")])
    assert names(other) == [("new", 1), ("old", 2)]


def test_a_backend_whose_version_is_unknown_is_left_out_with_the_reason() -> None:
    base = snapshot(MIXED)
    fleet = base.fleet.observe("baremetal", "new", ServedVersionMissing(2.0))
    shown = explained(base.with_fleet(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "1.31")])

    assert reasons(shown) == {"new": "unknown"}
    assert shown.left_out[0].why.startswith("its versions are not known now (a response lacked the served")


def test_declared_versions_need_no_probe_to_be_tried_first() -> None:
    declared = Backend("api", "10.0.0.1", 1, declared=upto(58).versions)
    service = Service("baremetal", Ironic(), (declared,))
    shown = explained(Snapshot.configured([service], now=0.0), "GET", "/v1/nodes", [(OWN, "1.31")])

    assert [each.why for each in shown.candidates] == ["its versions are declared"]


@pytest.mark.parametrize(
    "text, result, kind, version",
    [
        ("1.90", "above_max", "exact", "1.90"),
        ("1.0", "below_min", "exact", "1.0"),
        ("spam", "malformed", "malformed", None),
    ],
)
def test_a_refusal_shows_the_local_response(text: str, result: str, kind: str, version: str | None) -> None:
    shown = explained(snapshot(MIXED), "GET", "/v1/nodes", [(OWN, text)])

    assert (shown.decision, shown.status, shown.result, shown.version) == (
        "refuse",
        406,
        result,
        None,
    )
    assert shown.requested is not None
    assert (shown.requested.kind, shown.requested.text, shown.requested.version) == (
        kind,
        text,
        version,
    )
    assert shown.candidates == ()
    assert reasons(shown) == {"old": "not_asked", "new": "not_asked"}
    assert shown.response is not None
    assert shown.response.status == 406
    assert "error_message" in json.loads(shown.response.body)
    assert shown.because.endswith("is not in the offer 1.1-1.58")
    assert "spam" not in shown.because


def test_under_a_ceiling_below_the_minimum_it_is_503() -> None:
    shown = explained(
        snapshot(
            {"old": ProbeSucceeded(upto(58), 1.0), "never": ProbeFailed("x", 1.0)}, ceiling=Version(1, 0)
        ),
        "GET",
        "/v1/nodes",
        [(OWN, "1.31")],
    )

    assert (shown.decision, shown.status, shown.result) == ("refuse", 503, "unavailable")
    assert shown.response is not None
    assert ("Content-Type", "application/json") in shown.response.headers
    assert reasons(shown) == {"old": "not_asked", "never": "unknown"}


def test_before_anything_is_known() -> None:
    shown = explained(snapshot({"never": ProbeFailed("x", 1.0)}), "GET", "/v1/nodes")

    assert (shown.decision, shown.status) == ("refuse", 503)
    assert shown.offer is not None
    assert (shown.offer.min, shown.offer.max, shown.offer.phase) == (None, None, "unknown")
    assert shown.because.startswith("nothing is on offer at the moment")


def test_an_endpoint_without_negotiation_and_a_transparent_service() -> None:
    root = explained(snapshot(MIXED), "GET", "/", [(OWN, "1.90")])
    assert (root.decision, root.requested, root.version, root.result) == ("forward", None, None, None)
    assert root.endpoint is not None
    assert (root.endpoint.name, root.endpoint.negotiated, root.endpoint.document) == ("root", False, True)
    assert root.sends == ()

    old = explained(snapshot({"kilo": ProbeSucceeded(LEGACY, 1.0)}), "GET", "/v1/nodes", [(OWN, "1.90")])
    assert (old.decision, old.result, names(old)) == ("forward", "transparent", [("kilo", 1)])
    assert old.sends_legacy == (f"{normalize_name(OWN)}: 1.90",), "as it came"


def test_no_route() -> None:
    base = snapshot(MIXED, match=Match(host=("api.example",), path="/baremetal"))

    elsewhere = explained(base, "GET", "/baremetal/v1", [("Host", "other.example")])
    assert (elsewhere.decision, elsewhere.status, elsewhere.service) == ("unrouted", 404, None)

    shown = explained(base, "GET", "/baremetal/v1/nodes", [("host", "API.example:8080")])
    assert shown.local_path == "/v1/nodes"
    assert shown.route is not None
    assert (shown.route.host, shown.route.path, shown.route.strip_prefix) == (
        "api.example",
        "/baremetal",
        True,
    )


def test_the_route_names_the_host_that_matched() -> None:
    """Of several hosts and wildcards the one that led here, not that of the request."""
    base = snapshot(MIXED, match=Match(host=("api.example", "*.eu.example")))

    shown = explained(base, "GET", "/v1/nodes", [("Host", "One.Two.EU.example.:80")])

    assert shown.route is not None
    assert shown.route.host == "*.eu.example"


@pytest.mark.parametrize("text", [None, "1.1", "1.31", "1.58", "1.90", "latest", "LATEST", "x", "1.0", "2.0"])
@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nodes", "/v1/nodes?fields=uuid"])
def test_it_decides_nothing_itself(text: str | None, path: str) -> None:
    base = snapshot({**MIXED, "kilo": ProbeSucceeded(LEGACY, 1.0)}, policy=Policy.REACHABLE)
    headers: list[Header] = [] if text is None else [(OWN, text)]
    local, _, query = path.partition("?")
    head = RequestHead("GET", local, query, tuple((normalize_name(name), value) for name, value in headers))

    shown = explained(base, "GET", path, headers)

    match decide(base, head, "", {}, 12345, {}):
        case Forward(resolution=resolution, member=member):
            assert shown.decision == "forward"
            assert member is not None
            assert member.backend.name in {each.backend for each in shown.candidates}
            assert shown.version == (resolution.version_text or None)
        case Refuse(_, response, result):
            assert (shown.decision, shown.status, shown.result) == (
                "refuse",
                response.status,
                result.value,
            )
        case other:
            pytest.fail(f"unexpected {other}")
    backends = [each.backend for each in shown.candidates] + [each.backend for each in shown.left_out]
    assert sorted(backends) == ["kilo", "new", "old"]


def test_it_becomes_json() -> None:
    plain = explained_json(snapshot(MIXED), "GET", "/v1/nodes", [(OWN, "1.90")])

    assert json.loads(json.dumps(plain)) == json.loads(
        json.dumps(plain, default=lambda value: pytest.fail(str(value)))
    )
    assert plain["offer"] == {
        "own_ceiling": None,
        "min": "1.1",
        "max": "1.58",
        "policy": "guaranteed",
        "ceiling": None,
        "floor": None,
        "phase": "mixed",
        "transparent": False,
    }
    assert type(plain["decision"]) is str


# --- local responses, and times without an offer -----------------------------------------------------------


def test_an_endpoint_that_the_gateway_answers() -> None:
    shown = explained(toy_snapshot({"a": upto_toy(5), "b": None}), "GET", "/own?x")

    assert (shown.decision, shown.status, shown.because) == (
        "answer",
        200,
        "the gateway answers this endpoint itself",
    )
    assert shown.response is not None
    assert shown.response.body == "GET /own?x 1.5"
    assert {each.backend: each.reason for each in shown.left_out} == {"a": "not_asked", "b": "unknown"}


@pytest.mark.parametrize("target", ["/x", "/doc", "/legacy"])
def test_before_the_first_probes_have_ended_no_backend_gets_a_request(target: str) -> None:
    shown = explained(toy_snapshot({"a": upto_toy(5)}, unprobed=["b"]), "GET", target)

    assert (shown.decision, shown.status, shown.version) == ("refuse", 503, None)
    assert shown.because.startswith("nothing is on offer at the moment")
    assert {each.backend: each.reason for each in shown.left_out} == {"a": "not_asked", "b": "unknown"}


def test_a_ceiling_that_allows_nothing() -> None:
    shown = explained(
        toy_snapshot({"a": upto_toy(9, 5)}, ceiling=v("1.4")), "GET", "/x", [("X-Version", "1.5")]
    )

    assert shown.because.endswith("or a ceiling allows none")
    assert shown.offer is not None
    assert (shown.offer.ceiling, shown.offer.phase) == ("1.4", "unknown")


def test_a_legacy_backend_at_an_endpoint_for_versioned_ones() -> None:
    shown = explained(
        toy_snapshot({"old": legacy("1.1"), "new": upto_toy(9)}), "GET", "/new", [("X-Version", "1.1")]
    )
    assert {each.backend: each.reason for each in shown.left_out} == {"old": "legacy"}


def test_a_version_on_offer_that_no_suitable_backend_serves() -> None:
    shown = explained(
        toy_snapshot({"old": legacy("1.1"), "new": upto_toy(9, 2)}, policy=Policy.REACHABLE), "GET", "/new"
    )

    assert (shown.decision, shown.result, shown.version) == ("refuse", "unavailable", "1.1")
    assert shown.because.endswith("but no backend in service can execute it")
    assert {each.backend: each.reason for each in shown.left_out} == {"old": "legacy", "new": "version"}


def test_R3_V17_a_member_without_the_mount_is_left_out_with_that_reason() -> None:
    manila = OpenStack.configured(OpenStackOptions("manila"))
    versions = VersionSet.between(v("2.0"), v("2.60"))
    mixed = {
        "old": Advertisement(versions, mounts=frozenset({"v1"})),
        "new": Advertisement(versions, mounts=frozenset()),
    }

    shown = explained(toy_snapshot(mixed, dialect=manila), "GET", "/v1/tenant/shares")

    assert reasons(shown) == {"new": "mount"}
    assert [each.why for each in shown.left_out] == ["it does not have /v1"]
    nobody = {"old": mixed["new"], "new": mixed["new"]}
    assert reasons(explained(toy_snapshot(nobody, dialect=manila), "GET", "/v1/tenant/shares")) == {}
