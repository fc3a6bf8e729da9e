"""What /explain tells is what would happen, and every backend is accounted for."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType

import pytest

from gateway.core.backend import Backend
from gateway.core.decision import Forward, Refuse, decide
from gateway.core.dialect import Advert
from gateway.core.explanation import explain
from gateway.core.fleet import Answered, Contradicted, Fact, Failed, Fleet, Pool, Unreached
from gateway.core.message import Header, RequestHead, fold
from gateway.core.ranges import VersionSet
from gateway.core.service import Match, Policy, Service
from gateway.core.snapshot import Snapshot
from gateway.core.told import Explanation
from gateway.core.version import Version
from gateway.dialects.ironic import Ironic

OWN = "X-OpenStack-Ironic-API-Version"
NAMES = ("old", "new", "kilo", "drained", "never")
SILENT = Advert(VersionSet.only(Version(1, 1)), silent=True)


def upto(highest: int) -> Advert:
    return Advert(VersionSet.between(Version(1, 1), Version(1, highest)))


def snapshot(
    facts: dict[str, Fact],
    *,
    drained: frozenset[str] = frozenset(),
    match: Match | None = None,
    **wanted: object,
) -> Snapshot:
    """A service with these backends, and what was heard of each."""
    backends = tuple(Backend(name, "10.0.0.1", 1000 + number) for number, name in enumerate(facts))
    one = Service("baremetal", Ironic(), backends, match=match or Match(), **wanted)  # type: ignore[arg-type]
    first = Snapshot.configured([one], now=0.0)
    fleet = first.fleet
    for name, fact in facts.items():
        fleet = fleet.observe("baremetal", name, fact)
    pool = Pool(
        tuple(
            replace(each, drained=each.backend.name in drained) for each in fleet.pools["baremetal"].members
        )
    )
    return first.knowing(Fleet(MappingProxyType({"baremetal": pool})), 0.0)


MIXED: dict[str, Fact] = {"old": Answered(upto(58), 1.0), "new": Answered(upto(90), 1.0)}


def names(told: Explanation) -> list[tuple[str, int]]:
    return [(each.backend, each.tier) for each in told.candidates]


def reasons(told: Explanation) -> dict[str, str]:
    return {each.backend: each.reason for each in told.left_out}


def test_a_request_that_goes_to_a_backend() -> None:
    told = explain(
        snapshot(MIXED), "GET", "/v1/nodes?limit=1", [("Host", "api"), (OWN, "1.31")], {"baremetal/new": 4}
    )

    assert (told.decision, told.status, told.reply) == ("forward", None, None)
    assert (told.service, told.dialect, told.outcome, told.version) == (
        "baremetal",
        "ironic",
        "served",
        "1.31",
    )
    assert (told.path, told.local_path, told.host) == ("/v1/nodes?limit=1", "/v1/nodes", "api")
    assert told.ask is not None
    assert (told.ask.kind, told.ask.text, told.ask.version) == ("exact", "1.31", "1.31")
    assert told.offer is not None
    assert (told.offer.min, told.offer.max, told.offer.phase) == ("1.1", "1.58", "mixed")
    assert names(told) == [("old", 1), ("new", 1)]
    assert [each.in_flight for each in told.candidates] == [0, 4]
    assert told.left_out == ()
    assert told.sends == (f"{OWN}: 1.31", "OpenStack-API-Version: baremetal 1.31")
    assert told.sends_silent == ()
    assert told.because == "the version asked for settles on 1.31 of the offer 1.1-1.58"


def test_every_backend_is_a_candidate_or_left_out_for_a_reason() -> None:
    facts: dict[str, Fact] = {
        "old": Answered(upto(58), 1.0),
        "new": Answered(upto(90), 1.0),
        "kilo": Answered(SILENT, 1.0),
        "drained": Answered(upto(90), 1.0),
        "never": Failed("no connection", 1.0),
    }
    told = explain(
        snapshot(facts, drained=frozenset({"drained"}), policy=Policy.REACHABLE),
        "GET",
        "/v1/nodes",
        [(OWN, "1.90")],
    )

    assert names(told) == [("new", 1)]
    assert reasons(told) == {"old": "version", "kilo": "version", "drained": "drained", "never": "unknown"}
    why = {each.backend: each.why for each in told.left_out}
    assert why["old"] == "does not serve 1.90, only 1.1-1.58"
    assert why["never"] == "its versions are not known yet (no connection)"

    document = explain(snapshot(facts, drained=frozenset({"drained"})), "GET", "/")
    assert reasons(document)["kilo"] == "silent"


def test_stale_and_lost_backends_are_candidates_of_a_later_tier() -> None:
    base = snapshot(MIXED)
    fleet = base.fleet
    for number in range(3):
        fleet = fleet.observe("baremetal", "old", Failed("x", 2.0 + number))
    told = explain(base.knowing(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "latest")])

    assert names(told) == [("new", 1), ("old", 2)]
    assert [each.standing for each in told.candidates] == ["fresh", "lost"]
    assert [each.why for each in told.candidates] == [
        "its last probe answered",
        "its last three probes failed",
    ]
    assert told.because == "`latest` settles on 1.58 of the offer 1.1-1.58"


def test_what_requests_met_is_told_as_the_reason() -> None:
    base = snapshot(MIXED)
    fleet = base.fleet.observe("baremetal", "old", Unreached(2.0))
    fleet = fleet.observe("baremetal", "new", Contradicted(Version(1, 31), 2.0))
    told = explain(base.knowing(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "1.31")])

    assert [each.why for each in told.candidates] == ["refused a connection, and no probe has answered since"]
    assert reasons(told) == {"new": "contradicted"}
    (left_out,) = told.left_out
    assert (
        left_out.why == "was asked for 1.31 and said that it served another, and no probe has answered since"
    )

    other = explain(base.knowing(fleet, 0.0), "GET", "/v1/nodes", [(OWN, "1.30")])
    assert names(other) == [("new", 1), ("old", 2)]


def test_declared_versions_need_no_probe_to_be_tried_first() -> None:
    declared = Backend("api", "10.0.0.1", 1, declared=upto(58).versions)
    service = Service("baremetal", Ironic(), (declared,))
    told = explain(Snapshot.configured([service], now=0.0), "GET", "/v1/nodes", [(OWN, "1.31")])

    assert [each.why for each in told.candidates] == ["its versions are declared"]


@pytest.mark.parametrize(
    "asked, outcome, kind, version",
    [
        ("1.90", "above_max", "exact", "1.90"),
        ("1.0", "below_min", "exact", "1.0"),
        ("spam", "malformed", "garbled", None),
    ],
)
def test_a_refusal_shows_the_reply_and_asks_nobody(
    asked: str, outcome: str, kind: str, version: str | None
) -> None:
    told = explain(snapshot(MIXED), "GET", "/v1/nodes", [(OWN, asked)])

    assert (told.decision, told.status, told.outcome, told.version) == ("refuse", 406, outcome, None)
    assert told.ask is not None
    assert (told.ask.kind, told.ask.text, told.ask.version) == (kind, asked, version)
    assert told.candidates == ()
    assert reasons(told) == {"old": "not_asked", "new": "not_asked"}
    assert told.reply is not None
    assert told.reply.status == 406
    assert "error_message" in json.loads(told.reply.body)
    assert told.because.endswith("is not in the offer 1.1-1.58")
    assert "spam" not in told.because


def test_a_version_on_offer_that_nobody_in_service_serves_is_503() -> None:
    told = explain(
        snapshot({"old": Answered(upto(58), 1.0), "never": Failed("x", 1.0)}, ceiling=Version(1, 0)),
        "GET",
        "/v1/nodes",
        [(OWN, "1.31")],
    )

    assert (told.decision, told.status, told.outcome) == ("refuse", 503, "unavailable")
    assert told.reply is not None
    assert ("Retry-After", "2") in told.reply.headers
    assert reasons(told) == {"old": "not_asked", "never": "unknown"}


def test_before_anything_is_known() -> None:
    told = explain(snapshot({"never": Failed("x", 1.0)}), "GET", "/v1/nodes")

    assert (told.decision, told.status) == ("refuse", 503)
    assert told.offer is not None
    assert (told.offer.min, told.offer.max, told.offer.phase) == (None, None, "unknown")
    assert told.because.startswith("nothing is offered at this moment")


def test_a_place_without_negotiation_and_a_transparent_service() -> None:
    root = explain(snapshot(MIXED), "GET", "/", [(OWN, "1.90")])
    assert (root.decision, root.ask, root.version, root.outcome) == ("forward", None, None, None)
    assert root.place is not None
    assert (root.place.name, root.place.negotiated, root.place.document) == ("root", False, True)
    assert root.sends == ()

    quiet = explain(snapshot({"kilo": Answered(SILENT, 1.0)}), "GET", "/v1/nodes", [(OWN, "1.90")])
    assert (quiet.decision, quiet.outcome, names(quiet)) == ("forward", "transparent", [("kilo", 1)])
    assert quiet.sends_silent == (f"{fold(OWN)}: 1.90",), "as it came"


def test_no_route() -> None:
    base = snapshot(MIXED, match=Match(host="api.example", path="/baremetal"))

    elsewhere = explain(base, "GET", "/baremetal/v1", [("Host", "other.example")])
    assert (elsewhere.decision, elsewhere.status, elsewhere.service) == ("unrouted", 404, None)

    told = explain(base, "GET", "/baremetal/v1/nodes", [("host", "API.example:8080")])
    assert told.local_path == "/v1/nodes"
    assert told.route is not None
    assert (told.route.host, told.route.path, told.route.strip_prefix) == ("api.example", "/baremetal", True)


@pytest.mark.parametrize(
    "asked", [None, "1.1", "1.31", "1.58", "1.90", "latest", "LATEST", "x", "1.0", "2.0"]
)
@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nodes", "/v1/nodes?fields=uuid"])
def test_it_decides_nothing_itself(asked: str | None, path: str) -> None:
    base = snapshot({**MIXED, "kilo": Answered(SILENT, 1.0)}, policy=Policy.REACHABLE)
    headers: list[Header] = [] if asked is None else [(OWN, asked)]
    local, _, query = path.partition("?")
    head = RequestHead("GET", local, query, tuple((fold(name), value) for name, value in headers))

    told = explain(base, "GET", path, headers)

    match decide(base, head, "", {}, 12345, {}):
        case Forward(resolution, member):
            assert told.decision == "forward"
            assert member.backend.name in {each.backend for each in told.candidates}
            assert told.version == (resolution.version_text or None)
        case Refuse(_, reply, verdict):
            assert (told.decision, told.status, told.outcome) == ("refuse", reply.status, verdict.value)
        case other:
            pytest.fail(f"unexpected {other}")
    accounted = [each.backend for each in told.candidates] + [each.backend for each in told.left_out]
    assert sorted(accounted) == ["kilo", "new", "old"]


def test_as_json_it_is_plain() -> None:
    plain = explain(snapshot(MIXED), "GET", "/v1/nodes", [(OWN, "1.90")]).to_json()

    assert json.loads(json.dumps(plain)) == json.loads(
        json.dumps(plain, default=lambda value: pytest.fail(str(value)))
    )
    assert plain["offer"] == {
        "min": "1.1",
        "max": "1.58",
        "policy": "guaranteed",
        "ceiling": None,
        "phase": "mixed",
        "transparent": False,
    }
    assert type(plain["decision"]) is str
